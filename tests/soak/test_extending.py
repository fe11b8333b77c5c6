"""docs/extending.md: its examples, written as a package outside of this tree, and used in new processes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from own_package import PAGE, SMALL, Call, called, folder

__all__ = ["called", "folder"]


def test_all_code_of_the_page_is_in_the_package(folder: Path) -> None:
    files = {path.stem for path in (folder / "my_package").iterdir()}
    things = {"welfare", "algorithm", "network", "environment", "column", "executor", "memory"}
    assert files == {"__init__", *things}
    assert PAGE.read_text("utf-8").count("```python") == len(files)


def test_own_welfare(called: Call) -> None:
    said = called(f"""
import numpy as np
import evenhand as eh
from evenhand import report
from evenhand.evaluation.result import Outcome
from my_package.environment import Orchard
from my_package.welfare import Kolm

welfare = Kolm(2, 3.0)
assert isinstance(welfare, eh.Welfare)
v = np.array([[0.2, 0.5], [0.4, 0.1]])
sides = [welfare.value(v + 1e-6 * step) - welfare.value(v - 1e-6 * step) for step in np.eye(2)]
np.testing.assert_allclose(np.stack(sides, -1) / 2e-6, welfare.gradient(v), rtol=1e-6)

run = eh.train(Orchard, "a2c", welfare, 160, 2, settings={SMALL}, folder="kolm", jobs=2, episodes=2, progress=False)
assert all(run.complete(seed) for seed in (0, 1))
try:
    eh.load("kolm", env=Orchard)
except eh.InputError as error:
    assert "trained for the welfare 'kolm:3'" in str(error), error
else:
    raise AssertionError("it was loaded without its welfare")
assert eh.load("kolm", env=Orchard, welfare=welfare)([1.0, 0.0] @ np.eye(2)) in range(3)
assert eh.resume("kolm", env=Orchard, welfare=welfare).complete(1)

model = Orchard().model
best = eh.solve(model, welfare, gamma=0.9)
assert best.status == "optimal" and best.gap < 1e-6
np.testing.assert_allclose(eh.evaluate(model, best.policy, gamma=0.9), best.returns)
for action in np.eye(3):
    other = eh.evaluate(model, np.tile(action, (2, 1)), gamma=0.9)
    assert welfare.value(other) <= best.welfare + best.gap

tests = list(run.evaluations().values())
outcomes = [Outcome.of(run.name, tests, "average"), Outcome.of("one", tests[:1], "average")]
sheet = report.outcomes_sheet(outcomes, run.request.objectives, welfare, prices=True)
assert [row.name for row in sheet.rows] == ["KOLM3-A2C", "one"]
record = report.outcomes_record(run, outcomes, "average", welfare)
assert record["welfare"] == "kolm:3"
expected = np.mean([welfare.value(test.returns("average")) for test in tests])
np.testing.assert_allclose(record["policies"][0]["welfare"]["value"], expected)
print("done")
""")
    assert said == "done\n"


def test_own_algorithm_and_network(called: Call) -> None:
    said = called(f"""
import pathlib, shutil
import my_package
import evenhand as eh
from evenhand.runs import trainer
from evenhand.runs.hyperparameters import configured
from evenhand.studies.search import suggestion

kept, trainer.in_this_process = trainer.in_this_process, None  # two seeds are trained in other processes, or not at all
asked = dict(env="species", algo="reinforce", steps=160, seeds=2, jobs=2, episodes=2, progress=False)
run = eh.train(folder="own", settings={SMALL} | {{"network": "skip"}}, **asked)
state = next(pathlib.Path("own/seed-1/checkpoints").glob("*/state.safetensors"))
before = state.read_bytes()
shutil.rmtree("own/seed-1")
pathlib.Path("own/evaluations/seed-1.json").unlink()
trainer.in_this_process = kept
eh.resume("own", progress=False)
assert state.read_bytes() == before
policy = eh.load("own", 1)
assert policy.agent.params.keys() == {{"around", "straight"}} and policy.agent.params["straight"].any()
assert policy.name == "GGF-REINFORCE seed 1"
assert eh.evaluate_policy("species", policy, 2, arguments={{"episode_steps": 20}}).episodes == 2
assert set(suggestion("reinforce", [], 1)) == {{"learning_rate", "rollout"}}
for wrong, words in (({{"rollout": 1}}, "a rollout of one step"), ({{"keep": 2}}, "keep must lie in [0, 1]")):
    try:
        configured("reinforce", wrong)
    except eh.InputError as error:
        assert words in str(error), error
    else:
        raise AssertionError(wrong)
print("done")
""")
    assert said == "done\n"


def test_what_is_added_is_listed(called: Call) -> None:
    said = json.loads(called("list", "my_package:", "--json"))
    assert {"name": "orchard", "about": "a well, and two users"} in said["environments"]
    about = "REINFORCE for the welfare of D returns: no critic, and weights by what each user gets per step"
    assert {"name": "reinforce", "about": about} in said["algorithms"]
    script = "import my_package; from evenhand import cli; cli.main(['list']); "
    said = called(script + "cli.main(['list', 'orchard']); cli.main(['list', 'reinforce'])")
    assert re.search(r"orchard +a well, and two users", said)
    assert re.search(r"refill +number +0\.8", said)
    assert re.search(r"keep +number +0\.9 +How slowly the estimate", said)


def test_own_policy_with_a_memory(called: Call) -> None:
    """On a pure and on a host-side environment, whose episodes are of different lengths."""
    said = called("""
import gymnasium
import jax.numpy as jnp
import numpy as np
import evenhand as eh
from my_package.memory import Turns

class First:
    "Takes action 1 once in each episode."
    name = "first"
    def initial_state(self, n, key):
        return jnp.zeros(n, jnp.int32)
    def step(self, state, observation, key):
        return jnp.where(state == 0, 1, 0), state + 1

class Two(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    reward_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 7))
        return np.zeros(1, np.float32), {}
    def step(self, action):
        self.left -= 1
        return np.zeros(1, np.float32), np.eye(2, dtype=np.float32)[action], self.left == 0, False, {}

one_state = eh.MOMDP(np.ones((2, 1, 1)), np.eye(2)[None], [1.0])
for env in (eh.FiniteEnv(one_state, 5), Two):
    played = eh.evaluate_policy(env, First(), 40)
    assert (played.total[:, 1] == 1).all() and (played.total.sum(1) == played.length).all(), played.total
    turns = eh.evaluate_policy(env, Turns(), 40)
    assert turns.name == "taking turns" and (abs(turns.total[:, 0] - turns.total[:, 1]) <= 1).all(), turns.total
    more = turns.total[turns.length % 2 == 1].argmax(1)
    assert 0 < more.mean() < 1  # who is first is drawn for each episode
assert len(set(played.length)) > 1
print("done")
""")
    assert said == "done\n"
