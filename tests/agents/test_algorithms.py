"""What algorithms declare of themselves, and algorithms and networks of a person's own."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import evenhand as eh
from evenhand.agents import algorithm as registry
from evenhand.agents import names, networks, ppo, register
from evenhand.agents.algorithm import PARTS, Algorithm, Range, algorithm
from evenhand.agents.config import Common, Share, hyperparameters
from evenhand.agents.networks import register_network
from evenhand.cli import list as list_command
from evenhand.errors import InputError
from evenhand.runs.declared import Field, settings_of
from evenhand.runs.folder import RunFolder
from evenhand.runs.hyperparameters import configured, settings
from evenhand.runs.request import check_actions
from evenhand.types import Box, Discrete

SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"envs": 2, "rollout": 32, "epochs": 1, "hidden": (8,)},
    "dqn": {"learning_starts": 64, "memory": 512, "batch": 16, "hidden": (8,)},
}


@hyperparameters
class OwnConfig(ppo.Config):
    """Hyperparameters of a person's own algorithm."""

    boldness: Share = 0.5
    """How bold it is."""


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers, other tests do not know."""
    monkeypatch.setattr(registry, "_registered", {})
    before = dict(networks.NETWORKS)
    yield
    for name in networks.NETWORKS.keys() - before.keys():
        del networks.NETWORKS[name]


def own_algorithm(**instead: Any) -> types.SimpleNamespace:
    """PPO with another name."""
    return types.SimpleNamespace(**{part: getattr(ppo, part) for part in PARTS} | instead)


# What is declared


@pytest.mark.parametrize("name", names())
def test_every_algorithm_declares_all_parts(name: str) -> None:
    found = algorithm(name)
    assert isinstance(found, Algorithm)
    assert all(hasattr(found, part) for part in PARTS)
    assert found.REVISION == 1
    assert set(found.ACTIONS) <= {Discrete, Box}
    assert found.SPEED > 0
    fields = {field.name for field in dataclasses.fields(found.Config)}
    assert found.SEARCH.keys() <= fields
    for setting, values in found.SEARCH.items():
        for value in values:  # of a range, its ends
            configured(name, {setting: value})
        assert not isinstance(values, Range) or 0 < values.low < values.high


def test_colours_differ() -> None:
    colours = [algorithm(name).COLOUR for name in names()]
    assert len(set(colours)) == len(colours)
    assert all(len(colour) == 7 and int(colour.removeprefix("#"), 16) >= 0 for colour in colours)


def test_parts_are_those_of_the_protocol() -> None:
    declared = {"Config", "REVISION", "ACTIONS", "SEARCH", "COLOUR", "SPEED", "exported", "impossible", "reported"}
    assert set(PARTS) == declared | {"initialise", "acting", "act", "mode", "explore", "update"}


def test_asking_for_names_does_not_import_jax() -> None:
    code = "import sys, evenhand.agents as agents; print(*agents.names(), 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*names(), "False"]


def test_algorithms_that_cannot_choose_are_refused() -> None:
    box = Box.of(-1, 1, 2)
    for name in ("ppo", "a2c"):
        check_actions(name, "lever", box)
    with pytest.raises(InputError) as refused:
        check_actions("dqn", "lever", box)
    assert str(refused.value) == (
        "dqn needs a finite number of actions, and those of lever are continuous: use ppo or a2c."
    )
    register("levers", own_algorithm(ACTIONS=(Box,)))
    check_actions("levers", "lever", box)
    with pytest.raises(InputError, match=r"levers needs continuous actions, .* switch are not: use ppo, a2c or dqn"):
        check_actions("levers", "switch", Discrete(2))
    with pytest.raises(InputError, match="use ppo, a2c or levers"):
        check_actions("dqn", "lever", box)


# Ranges of settings

POSITIVE = {
    *("envs", "rollout", "epochs", "minibatches", "batch", "memory", "gradient_steps", "target_interval"),
    *("initial_states", "clip", "learning_rate", "adam_epsilon", "rmsprop_epsilon", "gradient_norm"),
    *("reward_scale", "value_clip"),
}
SHARES = {"average", "gae_lambda", "exploration_start", "exploration_end", "exploration_fraction", "rmsprop_decay"}


@pytest.mark.parametrize("name", names())
def test_every_number_has_its_range(name: str) -> None:
    hints = typing.get_type_hints(algorithm(name).Config)
    numbers = [setting for setting, hint in hints.items() if {int, float} & {hint, *typing.get_args(hint)}]
    numbers = [setting for setting in numbers if setting not in ("gamma", "hidden")]
    assert len(numbers) > 8
    for setting in numbers:
        words = "be positive" if setting in POSITIVE else "lie in [0, 1]" if setting in SHARES else "not be negative"
        for wrong in (-1, 0, 2):
            ruled_out = wrong <= 0 if setting in POSITIVE else not 0 <= wrong <= 1 if setting in SHARES else wrong < 0
            if ruled_out:
                kind = int if hints[setting] is int else float
                with pytest.raises(InputError) as refused:
                    configured(name, {setting: wrong})
                assert str(refused.value) == f"{setting} must {words}, not {kind(wrong)!r}."
    with pytest.raises(InputError) as refused:
        configured(name, {"gamma": 1})
    assert str(refused.value) == "gamma must lie in [0, 1), as in 0.99, not 1.0."
    for setting in SHARES & set(numbers):
        assert getattr(configured(name, {setting: 1}), setting) == 1


def test_annotated_numbers_are_traced() -> None:
    import jax

    numbers, _ = jax.tree.flatten(ppo.Config(value_clip=0.25, reward_scale=2.0))
    assert {0.25, 2.0, 0.99} <= set(numbers)
    assert all(isinstance(number, float) for number in numbers)


# Algorithms of a person's own


def test_own_algorithm_trains(tmp_path: Path) -> None:
    """Bit by bit as the one it is a copy of; also with two seeds, which other processes could not train."""
    register("bold", own_algorithm(Config=OwnConfig, COLOUR="#111111"))
    assert names() == ("ppo", "a2c", "dqn", "bold")
    asked: dict[str, Any] = {"steps": 256, "seeds": 2, "episodes": 2, "progress": False}
    plain = eh.train("species", "ppo", settings=SMALL["ppo"], folder=tmp_path / "plain", jobs=1, **asked)
    asked["training"] = plain.request.training  # presets know nothing of it
    bold = plain.request.settings | {"boldness": 0.75}
    run = eh.train("species", "bold", settings=bold, folder=tmp_path / "bold", jobs=1, **asked)
    again = RunFolder.open(tmp_path / "bold").request
    assert (again.algo, again.method, again.config.boldness) == ("bold", "GGF-BOLD", 0.75)
    [ours] = (tmp_path / "bold").glob("seed-1/checkpoints/*/state.safetensors")
    [theirs] = (tmp_path / "plain").glob("seed-1/checkpoints/*/state.safetensors")
    assert ours.read_bytes() == theirs.read_bytes()
    observation = np.full((3, run.task.observation_size), 0.5, np.float32)
    np.testing.assert_array_equal(run.policy(1)(observation), plain.policy(1)(observation))
    run.export(tmp_path / "policy.safetensors")
    more = eh.train("species", "bold", settings=SMALL["ppo"], folder=tmp_path / "more", jobs=2, **asked)
    assert all(more.complete(seed) for seed in (0, 1))


def test_own_settings_are_checked_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    register("bold", own_algorithm(Config=OwnConfig))
    with pytest.raises(InputError, match=r"boldness must lie in \[0, 1\], not 2.0"):
        settings("bold", "species", True, changes={"boldness": 2})
    listed = settings_of(OwnConfig)
    assert [setting.name for setting in listed] == [field.name for field in dataclasses.fields(OwnConfig)]
    assert listed[-1] == Field("boldness", "number", "0.5", "How bold it is.")
    assert listed[:-1] == settings_of("evenhand.agents.ppo:Config")
    list_command.run_list(list_command.List("bold"))
    assert "boldness" in capsys.readouterr().out


def test_what_is_no_algorithm_is_refused() -> None:
    incomplete = own_algorithm()
    del incomplete.COLOUR, incomplete.explore
    with pytest.raises(InputError, match=r"bold is no algorithm, for it has no COLOUR, explore\."):
        register("bold", incomplete)
    with pytest.raises(InputError, match="there is an algorithm 'ppo' already"):
        register("ppo", own_algorithm())
    register("bold", own_algorithm())
    with pytest.raises(InputError, match="there is an algorithm 'bold' already"):
        register("bold", own_algorithm())
    with pytest.raises(InputError, match="there is no algorithm 'timid': choose among ppo, a2c, dqn, bold, or"):
        algorithm("timid")
    with pytest.raises(InputError, match=r"there is no algorithm 'bald': .* did you mean bold"):
        settings("bald", "species", True)


# Networks of a person's own


def new_residual(random: np.random.Generator | None, inputs: int, outputs: int, config: Common, gain: float) -> Any:
    shapes = {"first": (inputs, config.hidden[0]), "straight": (inputs, outputs), "last": (config.hidden[0], outputs)}
    drawn = {name: np.zeros(shape) if random is None else random.normal(size=shape) for name, shape in shapes.items()}
    return {name: jnp.asarray(gain * weight, jnp.float32) for name, weight in drawn.items()}


def apply_residual(params: Any, x: Any, config: Common) -> Any:
    return x @ params["straight"] + jnp.tanh(x @ params["first"]) @ params["last"]


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_own_network_trains(algo: str, tmp_path: Path) -> None:
    register_network("residual", new_residual, apply_residual)
    changes = SMALL[algo] | {"network": "residual"}
    run = eh.train("species", algo, "ggf", 256, settings=changes, folder=tmp_path / "run", episodes=2, progress=False)
    policy = eh.load(tmp_path / "run")
    params = policy.agent.network if algo == "dqn" else policy.agent.averaged.actor
    assert params.keys() == {"first", "straight", "last"}
    before = algorithm(algo).initialise(run.task.config, run.task.problem, 0)
    first = before.network if algo == "dqn" else before.averaged.actor
    assert all(np.any(params[name] != first[name]) for name in params)
    with pytest.raises(InputError, match=r"only perceptrons .* can be exported, and this policy is a residual"):
        run.export(tmp_path / "policy.safetensors")
    assert not list(tmp_path.glob("policy*"))


def test_networks_are_known_by_name() -> None:
    with pytest.raises(InputError, match="there is no network 'residual': choose among mlp"):
        configured("ppo", {"network": "residual"})
    with pytest.raises(InputError, match="network must be a text, not 3"):
        configured("ppo", {"network": 3})
    register_network("residual", new_residual, apply_residual)
    assert configured("dqn", {"network": "residual"}).network == "residual"
    with pytest.raises(InputError, match="there is a network 'mlp' already"):
        register_network("mlp", new_residual, apply_residual)
