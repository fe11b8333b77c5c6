"""What takes minutes, in full: `make test` has a short version of each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from calls import program
from evenhand import demo
from evenhand.exact import examples
from finite_models import learn_fair_policies
from larger_models import agrees, by_interior_point
from models import AVERAGE, best_unichain_average
from written_pages import Reader, is_png, small

__all__ = ["small"]


@pytest.mark.parametrize("users", [3, 4])
@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_fair_policies_are_learnt(algorithm: str, users: int) -> None:
    learn_fair_policies(algorithm, users)


def test_the_stand_in_is_close_to_sumo() -> None:
    """Within 5 % for each arm and controller, beyond what chance may do; and the same ranking."""
    found = json.loads(program("calibrate", "traffic", "--episodes", 3, "--json").out)
    assert len(found["controllers"]) >= 7
    for controller in found["controllers"]:
        off, chance = np.abs(controller["difference"]), np.array(controller["uncertainty"])
        assert (off < 0.05 + 1.5 * chance).all(), controller
    assert found["same_ranking"]


def test_a_random_model() -> None:
    model = examples.garnet(3000, 3, 4, 3, seed=3)
    agrees(model, 0.99, by_interior_point(model, 0.99))


def test_the_average_of_a_random_model() -> None:
    model = examples.garnet(2000, 3, 4, 3, seed=3)
    agrees(model, AVERAGE, best_unichain_average(model, eh.GGF.geometric(4).weights))


@pytest.mark.parametrize("gamma", [0.99, AVERAGE])
def test_a_grid(gamma: float) -> None:
    model = examples.grid(40, 3)
    agrees(model, gamma, by_interior_point(model, gamma))


def test_the_demo_tells_its_story_and_makes_room_for_the_next(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main() == 0
    out, err = capsys.readouterr()
    assert err == ""
    for text in ("GGF-PPO", "exact optimum", "price of", "Fair in discounted returns", "demo/index.html"):
        assert text in " ".join(out.split())
    assert max(len(line) for line in out.splitlines() if not line.startswith("$ evenhand")) <= 80
    assert is_png(Path("demo/who-gets-what.png"))
    read = Reader(Path("demo/index.html").read_text("utf-8"))
    assert read.tags.count("table") == 2
    assert all(link.startswith("data:") for link in read.links)

    Path("demo/runs/notes.txt").write_text("mine")
    for name, welfare in demo.WELFARES.items():
        assert (Path("demo/runs") / name / "run.json").exists()
        demo._clear(Path("demo/runs") / name, welfare)
    assert [path.name for path in Path("demo/runs").iterdir() if path.suffix != ".log"] == ["notes.txt"]
