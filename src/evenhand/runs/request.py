"""What a run is asked to do: thirteen entries, checked in one place whether a person or a file says them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

from evenhand.agents.algorithm import BUILT_IN, algorithm, names
from evenhand.disk import as_json
from evenhand.envs.registry import factory, import_named, resolve
from evenhand.errors import InputError
from evenhand.runs.hyperparameters import PRESETS, check_name, check_steps, configured, settings
from evenhand.welfare import Utilitarian, Welfare
from evenhand.welfare import welfare as named_welfare

LARGEST = 2**63 - 1
"""Of whole numbers, where nothing else bounds them."""
MOST_EPISODES = MOST_WORKERS = 2**31 - 1
OWN = "own:"
"""Before the name of a welfare that no text stands for."""
CAME_LATER: Mapping[str, Any] = {"network": "mlp"}
"""Settings that earlier versions did not have, and what they did: where it is just that, run.json does not say so, and
what was asked before is still the same."""
DEEPEST = 16
"""How far lists within lists may go in the settings of an environment."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A training run, as it stands in run.json; made by `from_json`, which checks it, or from one that was checked."""

    env: str | None
    """The name of the environment, perhaps as `module:name`; None where only a Python program can make it."""
    name: str
    """What people call it."""
    arguments: Mapping[str, Any]
    """Settings of the environment."""
    training: Mapping[str, Any]
    """Those that differ while training."""
    objectives: tuple[str, ...]
    """The names of its users."""
    algo: str
    welfare: str
    """What is maximised, as text; with `OWN` before it, a name of something that only a Python program has."""
    preset: str
    settings: Mapping[str, Any]
    """Every hyperparameter of the algorithm."""
    steps: int
    """Of the environment, for each seed."""
    seeds: tuple[int, ...]
    workers: int
    """Processes that step each seed's environments."""
    episodes: int
    """Test episodes for each seed after training."""

    @staticmethod
    def from_json(content: Any) -> Request:
        """What was read from a file or asked by a person; the error says which entry cannot be."""
        if not isinstance(content, dict):
            raise InputError("it should be an object with the entries of a run.")
        for name in NAMES:
            if name not in content:
                raise InputError(f'it has no "{name}".')
        for name in content:
            check_name("entry of a run called", name, NAMES)
        request = Request(
            env=None if content["env"] is None else _text("env", content["env"]),
            name=_text("name", content["name"]),
            arguments=_plain("arguments", content["arguments"]),
            training=_plain("training", content["training"]),
            objectives=_names("objectives", content["objectives"]),
            algo=_text("algo", content["algo"]),
            welfare=_text("welfare", content["welfare"]),
            preset=_text("preset", content["preset"]),
            settings=_plain("settings", content["settings"]),
            steps=_whole("steps", content["steps"], 1),
            seeds=_seeds(content["seeds"]),
            workers=_whole("workers", content["workers"], 0, MOST_WORKERS),
            episodes=_whole("episodes", content["episodes"], 0, MOST_EPISODES),
        )
        check_name("preset", request.preset, PRESETS)
        if not request.welfare.startswith(OWN):
            named_welfare(request.welfare, len(request.objectives))
        return request

    @staticmethod
    def asked(**entries: Any) -> Request:
        """What a person asks for, with whatever kinds of numbers; refused is what no file could hold."""
        try:
            content = json.loads(as_json(entries))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"a run can only ask for what JSON can hold: {error}.") from None
        return Request.from_json(content)

    def to_json(self) -> dict[str, Any]:
        """The same, as JSON can hold it."""
        found = {name: getattr(self, name) for name in NAMES}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    @cached_property
    def config(self) -> Any:
        """The algorithm's hyperparameters, checked as if they were new.

        Not in `from_json`, since it takes JAX, and the algorithm may be one that is not known yet.
        """
        from evenhand.agents.networks import NETWORKS

        try:
            check_name("algorithm", self.algo, names())
            check_name("network", self.settings.get("network", "mlp"), NETWORKS)
        except InputError as error:
            raise InputError(
                "run.json is damaged, or asks for what a module of yours adds, which then has to be imported first "
                f"(--env-module MODULE; in Python import it): {error}"
            ) from None
        try:
            config = configured(self.algo, self.settings)
            check_steps(self.algo, config, self.steps)
        except InputError as error:
            raise InputError(f"run.json is damaged: {error}") from None
        return config

    @cached_property
    def social_welfare(self) -> Welfare | None:
        """What is maximised; None where only a Python program has it."""
        return None if self.welfare.startswith(OWN) else named_welfare(self.welfare, len(self.objectives))

    @property
    def method(self) -> str:
        """What people call the algorithm with this welfare."""
        return method_name(self.algo, self.welfare)


NAMES = tuple(field.name for field in fields(Request))


def method_name(algo: str, welfare: str) -> str:
    """What people call an algorithm with a welfare: PPO for the utilitarian one, GGF-PPO, GGF10-PPO, NASH-DQN."""
    kind, _, argument = welfare.removeprefix(OWN).partition(":")
    if kind == "utilitarian":
        return algo.upper()
    return f"{kind}{'' if (kind, argument) == ('ggf', '2') else argument}-{algo}".upper()


def whole(value: Any, least: int, most: int = LARGEST) -> bool:
    """Whether something is a whole number in a range; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _whole(name: str, value: Any, least: int, most: int = LARGEST) -> int:
    if not whole(value, least, most):
        limit = f" and at most {most}" if isinstance(value, int) and value > most else ""
        raise InputError(f'"{name}" must be a whole number of at least {least}{limit}, not {_shown(value)}.')
    return int(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f'"{name}" must be a text, not {_shown(value)}.')
    return value


def _names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise InputError(f'"{name}" must be a list of names, not {_shown(value)}.')
    return tuple(value)


def _seeds(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or not all(whole(seed, 0, 2**62) for seed in value):
        raise InputError(f'"seeds" must be a list of whole numbers from 0 to 2^62, not {_shown(value)}.')
    if len(set(value)) < len(value):
        raise InputError(f'"seeds" must differ, but {_shown(value)} has one twice.')
    return tuple(value)


def _plain(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f'"{name}" must be an object of names and values, not {_shown(value)}.')
    _check_plain(name, value, DEEPEST)
    return value


def _check_plain(name: str, value: Any, depth: int) -> None:
    """Values may be anything that JSON can hold, within reason."""
    if depth < 0:
        raise InputError(f'"{name}" has lists within lists too far.')
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(f'"{name}" has the name {_shown(key)}, which is no text.')
            _check_plain(name, item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check_plain(name, item, depth - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f'"{name}" has a number that is not finite.')
    elif not isinstance(value, str | bool | int | float | None):
        raise InputError(f'"{name}" has a value of the kind {type(value).__name__}, which JSON does not know.')
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise InputError(f'"{name}" has a number of {value.bit_length()} bits, which is too large.')


def _shown(value: Any, most: int = 60) -> str:
    """A value as it was written, but never a page of it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


# From what a person says to a request


class Checked(NamedTuple):
    """A request, and what no file can hold of it."""

    request: Request
    env: Any
    """The environment, or what makes it, where no name tells it."""
    welfare: Welfare | None
    """A person's own."""


def checked_request(
    env: Any,
    algo: str,
    welfare: Welfare | str,
    steps: int | float | None,
    seeds: int | Sequence[int],
    arguments: Mapping[str, Any] | None,
    training: Mapping[str, Any] | None,
    changes: Mapping[str, Any] | None,
    preset: str,
    workers: int,
    episodes: int,
    step_timeout: float | int | None = None,
) -> Checked:
    """Check everything before any work starts."""
    from evenhand.envs.gym.host_env import HostEnv

    if isinstance(env, str):
        import_named(env)  # it may also register the algorithm
    check_name("algorithm", algo, names())
    given = dict(arguments or {})
    name = factory(env, given)[0]
    resolved = resolve(env, given)
    D = len(resolved.objectives)
    if isinstance(welfare, Welfare) and welfare.D != D:
        raise InputError(
            f"{name} has {D} users ({', '.join(resolved.objectives)}), but the welfare is for {welfare.D}."
        )
    chosen = named_welfare(welfare, D)
    if D == 1:
        chosen = Utilitarian(1)  # one user: all welfares agree
    check_actions(algo, name, resolved.action_space)
    if steps is not None and (isinstance(steps, bool) or not math.isfinite(steps) or steps != int(steps)):
        raise InputError(f"steps must be a whole number, not {steps!r}.")
    fair = not isinstance(chosen, Utilitarian)
    found = settings(algo, name, fair, preset, changes, None if steps is None else int(steps))
    training = dict(training) if training else _taken(env, given, found.training)
    if workers and not isinstance(resolved, HostEnv):
        raise InputError(f"{name} is compiled and needs no worker processes: leave workers at 0.")
    if workers < 0 or episodes < 0:
        raise InputError(f"workers and episodes must not be negative, not {workers} and {episodes}.")
    trained_on = resolve(env, given | training) if training else resolved
    check_step_timeout(step_timeout, name, trained_on)
    written = _written(chosen)
    network = getattr(found.config, "network", "mlp")
    if written.startswith(OWN) or algo not in BUILT_IN or network != "mlp":
        _try_out(algo, found.config, chosen, trained_on)
    request = Request.asked(
        env=env if isinstance(env, str) else None,
        name=name,
        arguments=given,
        training=training,
        objectives=list(resolved.objectives),
        algo=algo,
        welfare=written,
        preset=preset,
        settings={k: v for k, v in dataclasses.asdict(found.config).items() if (k, v) not in CAME_LATER.items()},
        steps=found.steps,
        seeds=_chosen_seeds(seeds),
        workers=workers,
        episodes=episodes,
    )
    return Checked(request, None if isinstance(env, str) else env, chosen if written.startswith(OWN) else None)


def _written(welfare: Welfare) -> str:
    """A welfare as text; what the text would not be read as again is a person's own."""
    with suppress(InputError):
        if type(named_welfare(welfare.name, welfare.D)) is type(welfare):
            return welfare.name
    return f"{OWN}{welfare.name}"


def _try_out(algo: str, config: Any, welfare: Welfare, env: Any) -> None:
    """Refuse a welfare or a network of a person's own that cannot be trained with: an update is traced, and not run."""
    from evenhand.training.loop import trace_update
    from evenhand.training.task import Task

    task = Task(algo, config, welfare, env.observation_space.n, env.action_space)
    try:
        trace_update(task, len(env.objectives))
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        network = getattr(config, "network", "mlp")
        raise InputError(
            f"{algo} with the welfare {welfare.name!r} and the network {network!r} cannot be trained: {said:.300}"
        ) from error


def check_step_timeout(seconds: float | int | None, name: str, env: Any) -> None:
    """Refuse what is no time, and any for environments that are compiled."""
    from evenhand.envs.gym.host_env import HostEnv
    from evenhand.envs.gym.vector import check_timeout

    check_timeout(seconds)
    if seconds is not None and not isinstance(env, HostEnv):
        raise InputError(f"{name} is compiled, and its steps cannot hang: leave step_timeout out.")


def is_made(env: Any) -> bool:
    """Whether it is an environment, and not what makes one."""
    return not isinstance(env, (str, type)) and not callable(env)


def _taken(env: Any, given: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Of a preset's arguments for training, those that can be handed over and that the user has not set."""
    return {} if is_made(env) else {name: value for name, value in more.items() if name not in given}


def check_actions(algo: str, name: str, space: Any) -> None:
    """Refuse actions that an algorithm cannot choose among."""
    from evenhand.types import Box

    if not isinstance(space, algorithm(algo).ACTIONS):
        *most, last = [other for other in names() if isinstance(space, algorithm(other).ACTIONS)]
        able = f"{', '.join(most)} or {last}" if most else last
        wanted, there = ("a finite number of", "continuous") if isinstance(space, Box) else ("continuous", "not")
        raise InputError(f"{algo} needs {wanted} actions, and those of {name} are {there}: use {able}.")
    if isinstance(space, Box) and not space.bounded:
        raise InputError(f"the actions of {name} have no bounds: give its action space finite ones.")


def _chosen_seeds(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, int):
        if seeds < 1:
            raise InputError(f"there must be at least one seed, not {seeds}.")
        return list(range(seeds))
    chosen = [int(seed) for seed in seeds]
    if not chosen or min(chosen) < 0 or len(set(chosen)) < len(chosen):
        raise InputError(f"seeds must be different whole numbers from 0, not {list(seeds)}.")
    return chosen
