"""A policy as one safetensors file that runs without evenhand and without JAX; docs/deploy.md says what is in it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy
from jaxtyping import Float32

from evenhand.agents.normalise import LIMIT, Running
from evenhand.envs.host import HostEnv
from evenhand.runs.checkpoint import write_atomically
from evenhand.types import Box
from evenhand.welfare import GGF, Leximin

if TYPE_CHECKING:
    from evenhand.judge import Policy

VERSION = 1


def export_policy(policy: Policy, path: str | os.PathLike[str], about: Mapping[str, Any] | None = None) -> Path:
    """Write what acting needs into one file; the same policy gives the same bytes.

    about: facts for people, such as the name of the environment.
    """
    task = policy.task
    greedy = task.algorithm == "dqn"
    facts = {
        **(about or {}),
        "version": VERSION,
        "name": policy.name,
        "algorithm": task.algorithm,
        "welfare": task.welfare.name,
        "objectives": list(policy.env.objectives),
        "activations": [task.config.activation] * len(task.config.hidden)
        + [task.config.output_activation if greedy else "linear"],
        "greedy": greedy,
    }
    network, scales = policy.agent.network if greedy else policy.agent.averaged.actor, policy.agent.scales
    tensors = {f"layer.{k}.{name}": part for k, layer in enumerate(network) for name, part in layer._asdict().items()}
    tensors |= _normalisation(scales.observations, task.observation_size) | _actions(policy)
    if greedy and isinstance(task.problem.welfare, GGF | Leximin):
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


def _actions(policy: Policy) -> dict[str, Any]:
    """The environment's own actions: a row for each of them, or the bounds of a box and the policy's deviation."""
    space, env = policy.task.actions, policy.env
    if isinstance(space, Box):
        std = np.exp(np.asarray(policy.agent.averaged.log_std))
        return {"action.low": space.low, "action.high": space.high, "action.std": std}
    numbers = np.arange(space.n)
    return {"action.table": env.act(numbers) if isinstance(env, HostEnv) else numbers}
