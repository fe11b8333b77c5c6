"""A policy as one safetensors file that runs without evenhand and without JAX; docs/deploy.md says what is in it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from jaxtyping import Float32, Shaped

from evenhand.agents.algorithm import Exported
from evenhand.agents.normalise import LIMIT, Running
from evenhand.disk import write_atomically
from evenhand.envs.gym.host_env import HostEnv
from evenhand.errors import InputError
from evenhand.training.task import Task
from evenhand.types import Actions, Box, Discrete
from evenhand.welfare import GGF, Leximin

VERSION = 1


@dataclass(frozen=True)
class Spaces:
    """What acting needs to know of an environment; kept in checkpoints, so that a policy can be read without it."""

    observation_size: int
    actions: Actions
    table: Shaped[np.ndarray, "n ..."] | None
    """The environment's own action for each number; None where actions are a box."""

    @staticmethod
    def of(env: Any) -> Spaces:
        """Those of an environment, as `evenhand.envs.resolve` gives it."""
        space = env.action_space
        table = None if isinstance(space, Box) else np.arange(space.n)
        if table is not None and isinstance(env, HostEnv):
            table = np.array(env.act(table))
        return Spaces(env.observation_space.n, space, table)

    def record(self) -> dict[str, Any]:
        """As JSON can hold it."""
        if isinstance(self.actions, Box):
            actions = {"low": self.actions.low.tolist(), "high": self.actions.high.tolist()}
        else:
            assert self.table is not None
            actions = {"table": self.table.tolist()}
        return {"observations": self.observation_size, "actions": actions}

    @staticmethod
    def from_record(record: Any) -> Spaces:
        """What `record` made; the error says what it cannot be."""
        try:
            size, actions = record["observations"], record["actions"]
            names = ("low", "high") if "low" in actions else ("table",)
            low, high, table = (np.array(actions[name] if name in names else []) for name in ("low", "high", "table"))
        except (KeyError, TypeError, ValueError, OverflowError):
            raise InputError("its spaces are damaged.") from None
        if not isinstance(size, int) or not 1 <= size < 2**31:
            raise InputError(f"its observations should be of some number of entries, not {size!r:.40}.")
        if "table" in names:
            if not table.ndim or not table.size or table.dtype.kind not in "iu":
                raise InputError("its actions should be a table of whole numbers.")
            return Spaces(size, Discrete(len(table)), table)
        if any(bound.ndim != 1 or not bound.size or bound.dtype.kind not in "iuf" for bound in (low, high)):
            raise InputError("the bounds of its actions should be numbers.")
        if low.shape != high.shape or not np.isfinite([low, high]).all():
            raise InputError("the bounds of its actions should be finite, and as many on both sides.")
        return Spaces(size, Box(low.astype(np.float32), high.astype(np.float32)), None)


def export_policy(
    task: Task,
    agent: Any,
    spaces: Spaces,
    objectives: Sequence[str],
    name: str,
    path: str | os.PathLike[str],
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Write what acting needs into one file; the same policy gives the same bytes.

    agent: what was learnt, or the part of it that acting needs. about: facts for people, such as the name of the
        environment.
    """
    policy = task.agent.exported(task.config, agent)
    facts = {
        **(about or {}),
        "version": VERSION,
        "name": name,
        "algorithm": task.algorithm,
        "welfare": task.welfare.name,
        "objectives": list(objectives),
        "activations": list(policy.activations),
        "greedy": policy.greedy,
    }
    layers = enumerate(policy.layers)
    tensors = {f"layer.{k}.{part}": value for k, layer in layers for part, value in layer._asdict().items()}
    tensors |= _normalisation(policy.observations, task.observation_size) | _actions(policy, spaces)
    if policy.greedy and isinstance(task.problem.welfare, GGF | Leximin):
        worst_first = np.arange(task.problem.D)
        tensors["welfare.weights"] = task.problem.welfare.gradient(worst_first)
    # All facts in one entry: of several, safetensors does not keep the order.
    content = safetensors.numpy.save(
        {name: np.array(tensor, np.float32, order="C") for name, tensor in tensors.items()},
        {"policy": json.dumps(facts, ensure_ascii=False)},
    )
    write_atomically(Path(path), content)
    return Path(path)


def _normalisation(seen: Running | None, n: int) -> dict[str, Float32[np.ndarray, " _"]]:
    """Always there, so that a reader need not ask; without normalisation it changes nothing."""
    mean, scale, limit = np.zeros(n), np.ones(n), np.inf
    if seen is not None:
        mean, scale, limit = np.asarray(seen.mean), (np.asarray(seen.variance) + 1e-8) ** -0.5, LIMIT
    named = {"mean": mean, "scale": scale, "range": np.array([-limit, limit])}
    return {f"observation.{name}": value.astype(np.float32) for name, value in named.items()}


def _actions(policy: Exported, spaces: Spaces) -> dict[str, Any]:
    """The environment's own actions: a row for each of them, or the bounds of a box and the policy's deviation."""
    if isinstance(spaces.actions, Box):
        std = np.exp(np.asarray(policy.log_std))
        return {"action.low": spaces.actions.low, "action.high": spaces.actions.high, "action.std": std}
    return {"action.table": spaces.table}
