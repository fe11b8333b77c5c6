# Each target sets up what it needs in .venv, from a machine with only Python 3.11, pip and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
LONG := $(BIN)/pytest -n auto --dist worksteal -o timeout=7200 -o faulthandler_timeout=7500
PEERS := .venv-peers/bin
PEERS_READY := .venv-peers/.ready

.PHONY: demo test fuzz soak smoke smoke-lowest lint bench bench-exact bench-learning bench-early bench-environments bench-morl bench-quality bench-fairness bench-traffic bench-datacenter lock clean

demo: $(READY)  ## train PPO and GGF-PPO on two species; tables here, a picture and a page in demo/
	$(BIN)/python -m evenhand.demo

test: export XLA_FLAGS ?= --xla_backend_optimization_level=0
test: $(READY)  ## every test but those of the next four; half of its time is compiling, which is not optimised here
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

fuzz: $(READY)  ## what chance finds: properties by new examples, and tests/fuzz; EVENHAND_FUZZ=0.05 is a twentieth of it
	$(LONG) --jaxtyping-packages=evenhand,beartype.beartype -m "fuzz or hypothesis" --hypothesis-profile explore $(if $(EVENHAND_LOTS),--hypothesis-seed=$(EVENHAND_LOTS)) -o norecursedirs="soak .*"

soak: $(READY) $(PEERS_READY)  ## what takes long: random kills, simulators and libraries beside each other; EVENHAND_FUZZ as above
	$(LONG) tests/soak

smoke: $(READY)  ## the wheel in an empty environment of PYTHON: train, evaluate, export, solve
	$(BIN)/python tests/smoke.py $(PYTHON)

smoke-lowest: $(READY)  ## the same with the oldest versions that pyproject.toml allows
	$(BIN)/python tests/smoke.py $(PYTHON) --lowest

lint: $(READY)  ## style, types and the direction of dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: bench-exact bench-learning bench-early bench-morl bench-environments  ## beside others, in one run: an hour
	$(BIN)/python benchmarks/page.py

bench-exact: $(READY) $(PEERS_READY)  ## the exact solver beside HiGHS and quantecon
	$(BIN)/python benchmarks/exact.py

bench-learning: $(READY) $(PEERS_READY)  ## speed of learning beside four others
	$(BIN)/python benchmarks/learning.py

bench-early: $(READY) $(PEERS_READY)  ## what is learnt from few steps, beside Stable-Baselines3, ten seeds each
	$(BIN)/python benchmarks/learning.py --quality --scale 0.2

bench-environments: $(READY) $(PEERS_READY)  ## speed of the three environments
	$(BIN)/python benchmarks/environments.py

bench-morl: $(READY) $(PEERS_READY)  ## fairness of what is learnt beside MORL-Baselines, ten seeds each
	$(BIN)/python benchmarks/morl.py

bench-quality: $(READY) $(PEERS_READY)  ## the same from as many steps as it takes: an hour
	$(BIN)/python benchmarks/learning.py --quality

bench-fairness: $(READY)  ## fair algorithms beside their bases and the exact optimum, ten seeds each: about an hour
	$(BIN)/python benchmarks/fairness.py

bench-traffic: $(READY) $(PEERS_READY)  ## speed of the traffic light beside sumo-rl and SUMO itself
	$(BIN)/python benchmarks/traffic.py

bench-datacenter: $(READY)  ## the data centre: speed, the emulated network, and what is learnt in an hour or two
	$(BIN)/python benchmarks/datacenter.py
	$(BIN)/python benchmarks/datacenter_emulated.py
	$(BIN)/python benchmarks/datacenter_load.py
	$(BIN)/python benchmarks/datacenter_learning.py

lock: $(READY)  ## pin the newest allowed versions of everything
	$(BIN)/pip-compile --quiet --upgrade --all-extras --strip-extras --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
	  --output-file requirements.lock pyproject.toml

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "evenhand needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# torch first and by itself: otherwise pip may take a build for graphics cards, of gigabytes.
$(PEERS_READY): benchmarks/peers/peers.txt benchmarks/peers/peers.lock
	$(PYTHON) -m venv .venv-peers
	$(PEERS)/pip install --quiet --disable-pip-version-check $$(grep '^torch==' $<)
	$(PEERS)/pip install --quiet --disable-pip-version-check -r $<
	$(PEERS)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

clean:
	rm -rf .venv .venv-peers demo
