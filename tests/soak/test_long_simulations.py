"""What takes long in simulators and in theory, in full: `make test` has a short version of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auditor import Controller, adversarial, at_random, audit, cyclic, waits
from evenhand.envs import resolve
from evenhand.envs.check.check_host import check_env
from evenhand.envs.traffic.network import Roads
from species_optima import OPTIMA, reach_the_optimum
from theory_facts import come_out_as_in_docs_theory


@pytest.mark.parametrize(("controller", "seconds"), [(at_random, 4200), (cyclic, 4200), (adversarial, 8400)])
def test_audit(controller: Controller, seconds: int) -> None:
    found = audit("split", controller, seconds)
    assert found.crossed > 1000
    assert found.in_yellow > 10


def test_audit_of_ordinary_roads() -> None:
    assert audit("two-lane", adversarial, 4200).crossed > 300


def test_split_and_ordinary_roads_wait_equally_long() -> None:
    roads: tuple[Roads, Roads] = ("split", "two-lane")
    split, ordinary = (np.array([waits(of, 3, seed) for seed in range(4)]) for of in roads)
    difference = (split - ordinary).mean(axis=0)
    noise = np.sqrt((split.var(axis=0, ddof=1) + ordinary.var(axis=0, ddof=1)) / len(split))
    assert (np.abs(difference) < 3.5 * noise + 0.01 * ordinary.mean(axis=0)).all()
    assert split.sum(axis=1).mean() == pytest.approx(ordinary.sum(axis=1).mean(), rel=0.02)


@pytest.mark.parametrize(("response", "criterion"), OPTIMA)
def test_the_optimum_of_species_is_reached_in_the_environment(response: str, criterion: str) -> None:
    reach_the_optimum(response, criterion)


def test_the_theory_comes_out_as_in_docs_theory(tmp_path: Path) -> None:
    come_out_as_in_docs_theory(tmp_path)


@pytest.mark.parametrize(
    ("env", "arguments"),
    [("datacenter", {}), ("traffic", {"backend": "standin", "episode_seconds": 140, "warm_up": 14})],
)
def test_check_env_finds_nothing(env: str, arguments: dict[str, Any]) -> None:
    assert [finding for finding in check_env(resolve(env, arguments)) if finding.severity != "fine"] == []
