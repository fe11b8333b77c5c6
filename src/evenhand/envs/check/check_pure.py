"""Checks of pure environments: that they can be compiled, are pure, and keep their word."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.envs.check.findings import Findings, reward_line, short, span
from evenhand.envs.core import PureEnv
from evenhand.types import Box

RUNS, STEPS = 8, 5000


def check_pure(env: PureEnv, seed: int, found: Findings) -> None:
    """Everything that can be found out about a pure environment."""
    key = jax.random.key(seed)
    D, O = len(env.objectives), env.observation_space.n  # noqa: E741
    if env.reward_space.n != D:
        found.error(
            "Names and rewards do not match", f"There are {D} objectives, but reward_space has {env.reward_space.n}."
        )
    with found.guard("It cannot be compiled"):
        jax.eval_shape(env.reset, key)
        state, observation = env.reset(key)
        action = _pure_action(env, key)
        jax.eval_shape(env.step, state, action, key)
        step = env.step(state, action, key)
        shapes = [
            ("observation", observation, (O,), "f"),
            ("observation of step()", step.observation, (O,), "f"),
            ("reward", step.reward, (D,), "f"),
            ("terminated", step.terminated, (), "b"),
            ("truncated", step.truncated, (), "b"),
        ]
        for what, value, shape, kind in shapes:
            array = np.asarray(value)
            if array.shape != shape or array.dtype.kind != kind:
                wanted = "floats" if kind == "f" else "a bool"
                found.error(
                    f"The {what} has the wrong form",
                    f"It is {array.dtype} of shape {array.shape}; it should be {wanted} of shape {shape}.",
                )
        if _form(state) != _form(step.state):
            found.error(
                "step() gives a state of another form than it takes",
                f"It takes {short(_form(state))} and gives {short(_form(step.state))}; compiled loops need the same "
                "shapes and kinds of number.",
            )
        if not found.has_errors:
            _compare_ways(env, key, found)
    if not found.has_errors:
        with found.guard("The environment failed in a compiled loop"):
            _roll_out(env, key, found)


def _form(state: Any) -> Any:
    leaves, structure = jax.tree.flatten(state)
    return structure, [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]


def _pure_action(env: PureEnv, key: Any) -> Any:
    space = env.action_space
    if isinstance(space, Box):
        low, high = (jnp.clip(jnp.asarray(bound), -1e3, 1e3) for bound in (space.low, space.high))
        return jax.random.uniform(key, (space.n,), minval=low, maxval=high)
    return jax.random.randint(key, (), 0, space.n)


def _compare_ways(env: PureEnv, key: Any, found: Findings) -> None:
    """The same steps, plainly, plainly again, compiled, and for several keys at once."""
    keys = jax.random.split(key, 2)

    def one(key: Any) -> Any:
        state, observation = env.reset(key)
        step = env.step(state, _pure_action(env, key), key)
        return jnp.concatenate(
            [observation, step.observation, step.reward, jnp.stack([step.terminated, step.truncated]).astype(float)]
        )

    plainly = np.stack([one(key) for key in keys])
    compiled = jax.jit(one)
    ways = {
        "again with the same keys": np.stack([one(key) for key in keys]),
        "compiled by jax.jit": np.stack([compiled(key) for key in keys]),
        "for several keys at once by jax.vmap": np.asarray(jax.jit(jax.vmap(one))(keys)),
    }
    for how, results in ways.items():
        if not np.allclose(plainly, results, rtol=1e-4, atol=1e-5, equal_nan=True):
            found.error(
                "The same step has different results",
                f"Run {how}, it gives other numbers. reset() and step() must be pure: all randomness from the key, no "
                "NumPy generators, no attributes changed.",
            )
            return
    found.fine("It is pure", "Plainly run, compiled and vectorised, the same steps gave the same numbers.")


def _roll_out(env: PureEnv, key: Any, found: Findings) -> None:
    """A compiled loop of random steps with resets, in several environments."""

    def advance(carry: Any, key: Any) -> Any:
        state, _, age = carry
        for_action, for_step, for_reset = jax.random.split(key, 3)
        step = env.step(state, _pure_action(env, for_action), for_step)
        ended = step.terminated | step.truncated
        fresh, first = env.reset(for_reset)
        state = jax.tree.map(lambda a, b: jnp.where(ended, a, b), fresh, step.state)
        length = age + 1
        after = (state, jnp.where(ended, first, step.observation), jnp.where(ended, 0, length))
        return after, (step.observation, step.reward, step.terminated, step.truncated, jnp.where(ended, length, 0))

    def run(key: Any) -> Any:
        at_start, along = jax.random.split(key)
        return jax.lax.scan(advance, (*env.reset(at_start), jnp.int32(0)), jax.random.split(along, STEPS))[1]

    compiled = jax.jit(jax.vmap(run))
    keys = jax.random.split(key, RUNS)
    compiled(keys)  # compiling takes its time, once
    began = time.perf_counter()
    observations, rewards, terminated, truncated, lengths = (np.asarray(part) for part in compiled(keys))
    seconds = time.perf_counter() - began
    numbers = [
        ("observation", "An observation is not a finite number", observations, env.observation_space),
        ("reward", "A reward is not a finite number", rewards, env.reward_space),
    ]
    for what, title, values, space in numbers:
        finite = np.isfinite(values)
        if not finite.all():
            run_, step, entry = (int(i) for i in np.argwhere(~finite)[0])
            found.error(
                title, f"In step {step + 1} of run {run_}, entry {entry} of the {what} was {values[run_, step, entry]}."
            )
            continue
        slack = 1e-5 * np.maximum(1, np.abs(values))
        outside = (values < space.low - slack) | (values > space.high + slack)
        if outside.any():
            run_, step, entry = (int(i) for i in np.argwhere(outside)[0])
            found.warning(
                f"{what.capitalize()}s lie outside their space",
                f"In step {step + 1} of run {run_}, entry {entry} was {values[run_, step, entry]:.6g}, but the bounds "
                f"are [{space.low[entry]:.6g}, {space.high[entry]:.6g}].",
            )
    ended = lengths[lengths > 0]
    if not ended.size:
        found.warning(
            "No episode has ended", f"None did in {STEPS:,} random steps: let step() say truncated after a time limit."
        )
    if (terminated & truncated).any():
        found.warning(
            "Episodes end as terminated and truncated at once",
            "At a mere time limit set only truncated, or learning will undervalue the last states.",
        )
    found.fine(
        "What was seen",
        f"Observations: {env.observation_space.n} numbers.\nActions: {env.action_space}.\n"
        + reward_line(tuple(env.objectives), rewards.min(axis=(0, 1)), rewards.max(axis=(0, 1)))
        + f"\nEpisodes: {ended.size} ended in {lengths.size:,} random steps"
        + (f", after {span(int(ended.min()), int(ended.max()))} steps." if ended.size else ".")
        + f"\nSpeed: {lengths.size / max(seconds, 1e-9):,.0f} steps per second, compiled, {RUNS} environments at once.",
    )
