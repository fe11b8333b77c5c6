# Each target sets up what it needs in .venv, from a machine with only Python 3.11, pip and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint bench lock clean

demo: $(READY)  ## solve a fair planning problem; a table here and a picture in demo/
	$(BIN)/python -m evenhand.demo

test: $(READY)  ## every test, the slow ones too
	$(BIN)/pytest -n auto

lint: $(READY)  ## style, types and the direction of dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## speed and memory of the exact solver, as ratios measured in one run
	$(BIN)/python benchmarks/exact.py

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

clean:
	rm -rf .venv demo
