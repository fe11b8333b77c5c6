"""docs/extending.md: its examples, by the words of the command line, and in a study."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from own_package import SMALL, WORDS, Call, called, folder

__all__ = ["called", "folder"]


def test_all_of_it_on_the_command_line(called: Call, folder: Path) -> None:
    own = ["my_package:orchard", "--algo", "reinforce", *WORDS, "network=skip", "--seeds", "2", "--jobs", "2"]
    trained = json.loads(called("train", *own, "-o", "orchard", "--json"))
    assert trained["environment"] == "orchard"
    assert 0 <= trained["policies"][0]["gini"]["value"] < 1
    test = ["evaluate", "orchard", "--measure", "discounted", "--episodes", "2"]
    assert "name it yourself: --env-module my_package" in called(*test, code=2)
    shown = called(*test, "--env-module", "my_package")
    assert re.search(r"CV +Gini +optimum", shown)
    assert re.search(r"taking turns .* \d+\.\d %", shown)
    assert re.search(r"exact optimum .* 100\.0 %", shown)
    kept = json.loads((folder / "orchard/evaluations/test-2-episodes-seed-0.json").read_text())
    assert [policy["name"] for policy in kept["policies"]] == [
        *("GGF-REINFORCE", "random", "taking turns", "exact optimum"),
    ]
    assert all(policy["share_of_optimum"]["value"] > 0 for policy in kept["policies"])
    played = called("play", "my_package:orchard", "orchard", "--steps", "30")
    assert "water north" in played
    shutil.rmtree(folder / "orchard/seed-1")
    (folder / "orchard/evaluations/seed-1.json").unlink()
    called("resume", "orchard", "--trust")
    assert (folder / "orchard/evaluations/seed-1.json").exists()


def test_own_executor_and_column_in_a_study(called: Call, folder: Path) -> None:
    words = ["my_package:orchard", "--algos", "reinforce", *WORDS, "--seeds", "1"]
    said = called("study", *words, "--executor", "here", "-o", "study")
    assert "in 1 process" in said
    record = json.loads((folder / "study/results.json").read_text())
    (setting,) = record["settings"].values()
    assert setting["scores"].keys() == {"REINFORCE", "GGF-REINFORCE", "random", "taking turns"}
    assert all(0 <= scores["gini"][0] < 1 for scores in setting["scores"].values())
    assert list((folder / "study/figures").glob("*-gini.png"))
    assert "Gini" in (folder / "study/index.html").read_text()
    # The same in Python, with one more seed, in other processes; what was done is not done again.
    said = called(f"""
import pathlib
import my_package
import numpy as np
from evenhand.report.study_pictures import looks
from evenhand.studies.cells import cells_of, missing_of
from evenhand.studies.claims import Claim, Higher, judge
from evenhand.studies.executor import ThisMachine, carry_out
from evenhand.studies.experiment import FIRST_SEED, Experiment, Learner, Simple, Study, Test
from evenhand.studies.results import gather, settings_of, verdicts

small = {SMALL}
learners = tuple(
    Learner(name=name, algo="reinforce", welfare=welfare, settings=small, steps=160)
    for name, welfare in (("plain", "utilitarian"), ("fair", "ggf"))
)
experiment = Experiment(
    key="orchard", title="Orchard", env="my_package:orchard", learners=learners,
    simple=(Simple(name="turns", policy="taking turns"),), tests=(Test(name="test", measure="average", episodes=2),),
    seeds=(FIRST_SEED, FIRST_SEED + 1),
)
assert looks(experiment)["fair"].colour == "#AA3377"
claim = Claim(
    text="Plain shares less evenly", parts=(Higher("plain", "fair", "gini"),), source="here", settings=("orchard/test",)
)
study = Study(key="orchard", title="Orchard", about="", experiments=(experiment,), claims=(claim,))
folder, cells = pathlib.Path("study"), cells_of(experiment)
assert {{cell.seed for cell in missing_of(cells, folder)}} == {{FIRST_SEED + 1}}
assert carry_out(cells, folder, ThisMachine(2), lambda report: None, print) == []
(setting,) = settings_of(study, [gather(experiment, cells, folder)])
(found,) = verdicts(study.claims, {{setting.key: setting.returns}})
assert "2 seeds, and nothing is decided" in found["orchard/test"].findings[0].text
uneven = {{"plain": np.tile([1.0, 0.1], (5, 1)) + np.arange(5)[:, None], "fair": np.ones((5, 2))}}
judged = judge(claim, uneven)
assert judged.verdict == "holds" and judged.findings[0].text.startswith("Gini of plain 0."), judged
print("done")
""")
    assert said == "done\n"
