"""Watching what was learnt: play."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tyro.conf import arg

from evenhand import report
from evenhand.cli.shared import (
    NO_HINT,
    Assignments,
    Environment,
    Flag,
    OfRun,
    RunPath,
    Whole,
    aside,
    assignments,
    check_not_negative,
    check_picture,
    check_positive,
    environment_of,
    opened,
    optional,
    print_json,
)
from evenhand.envs.stepping import blamed
from evenhand.errors import InputError
from evenhand.report import judging
from evenhand.runs.training import Run
from evenhand.welfare import Welfare

FRAMES = (".png", ".gif")
MOST_FRAMES = 200
"""In one moving picture; of longer episodes only every second, third, … one is shown."""
NO_PICTURES = "the environment draws no pictures (render_mode rgb_array): leave --render out."
FILM = "rgb_array_list"
"""Gymnasium's mode for environments that draw what happens between two steps as well."""


@dataclass(frozen=True)
class Play(OfRun):
    """Watch a trained policy, step by step.

    For example:
        evenhand play species runs/fair
        evenhand play - runs/fair --steps 50 --render fair.gif

    ENV is the environment to play in; - is the one that the run was trained for.
    """

    env: Environment
    """The environment, or -."""
    run: RunPath
    """The folder of the run."""
    policy_seed: Annotated[int | None, optional(int, "S"), NO_HINT] = None
    """Of several seeds, whose policy to play; by default the first."""
    seed: Whole = 0
    """The same seed gives the same episode."""
    steps: Whole = 200
    """Stop after so many steps, if the episode has not ended by then."""
    arguments: Annotated[Assignments, arg(name="env")] = ()
    """Settings of the environment that differ from those of the training."""
    render: Annotated[Path | None, optional(Path, "FILE"), NO_HINT, arg(aliases=["--video"])] = None
    """A picture of the last step (.png), or a film of all (.gif)."""
    deterministic: Flag = False
    """Always the most probable action. A fair policy may then no longer be fair."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


def run_play(asked: Play) -> int:
    """Step through one episode."""
    check_positive("--steps", asked.steps)
    check_not_negative("--seed", asked.seed)
    check_picture(asked.render, "--render", FRAMES)
    given = assignments("--env", asked.arguments)
    run = opened(asked, asked.run)
    from evenhand.envs.gym import GymEnv
    from evenhand.envs.host import HostEnv
    from evenhand.judge import TEST_SEED
    from evenhand.runs.pool import prepare_jax

    prepare_jax()
    name = None if asked.env == "-" else asked.env
    env = environment_of(run, given, name)
    policy = run.policy(asked.policy_seed)
    if (env.observation_space.n, env.action_space) != (run.env.observation_space.n, run.env.action_space):
        raise InputError(f"{asked.run} was trained with other observations or actions than {asked.env} has.")
    mode = None if asked.render is None else "rgb_array"
    if isinstance(env, HostEnv):
        if asked.render is not None and _moving(asked.render) and FILM in _render_modes(env):
            mode = FILM
        try:
            drawing = env if mode is None else environment_of(run, given, name, render_mode=mode)
        except InputError as error:
            why = str(error).partition("\n")[0]
            raise InputError(f"{NO_PICTURES} ({why})") from error
        stepped = drawing.make()
    else:
        stepped = GymEnv(env, mode)
    try:
        return _play(asked, run, env, policy, stepped, TEST_SEED + asked.seed)
    finally:
        stepped.close()


def _play(asked: Play, run: Run, env: Any, policy: Any, stepped: Any, seed: int) -> int:
    objectives, names = list(env.objectives), judging.action_names(env)
    moving = asked.render is not None and _moving(asked.render)
    policy.seed(asked.seed)
    with blamed(f"{asked.run}: the environment could not be reset"):
        observation, _ = stepped.reset(seed=seed % 2**32)
    total = np.zeros(len(objectives))
    steps: list[dict[str, Any]] = []
    frames: list[Any] = []
    every, drawn, last = math.ceil(asked.steps / MOST_FRAMES), 0, []
    terminated = truncated = False
    if not asked.json:
        whose = run.seeds[0] if asked.policy_seed is None else asked.policy_seed
        print(f"{run.name} of {asked.run}, seed {whose}; {run.welfare.name} so far")
        width = max(16, *(len(name) + 2 for name in names)) if names else 16
        print(
            f"{'step':>6}  {'action':<{width}}"
            + "".join(f"{name[:14]:>16}" for name in objectives)
            + f"{'welfare':>12}"
        )
    while not terminated and not truncated and len(steps) < asked.steps:
        action = policy(observation, deterministic=asked.deterministic)
        with blamed(f"{asked.run}: step {len(steps) + 1} of the environment failed"):
            observation, reward, terminated, truncated, _ = stepped.step(action)
        reward = np.atleast_1d(np.asarray(reward, float))
        total += reward
        welfare = _welfare_of(run.welfare, total / (len(steps) + 1))
        steps.append({"action": np.asarray(action).tolist(), "rewards": reward.tolist(), "welfare_so_far": welfare})
        if getattr(stepped, "render_mode", None) == FILM:
            last = _frames(stepped)
            every = math.ceil(asked.steps * len(last) / MOST_FRAMES)
            frames += [frame for i, frame in enumerate(last, drawn + 1) if i % every == 0]
            drawn += len(last)
        elif moving and len(steps) % every == 0:
            frames += _frames(stepped)
        if not asked.json:
            shown = names[int(action)] if names else _short(action)
            rewards = "".join(f"{value:>16.6g}" for value in reward)
            print(f"{len(steps):>6}  {shown:<{width}}{rewards}{welfare:>12.6g}")
    how = "ended by itself" if terminated else "ended by its time limit" if truncated else "goes on"
    if asked.render is not None:
        _draw_frames(asked.render, frames or last[-1:] or _frames(stepped))
    if asked.json:
        record = {
            "run": str(asked.run),
            "objectives": objectives,
            "steps": steps,
            "total": total.tolist(),
            "average": (total / len(steps)).tolist(),
            "welfare": _welfare_of(run.welfare, total / len(steps)),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
        }
        print_json(record)
        return 0
    print(f"After {len(steps)} steps the episode {how}.")
    for label, values in (("total", total), ("average", total / len(steps))):
        print(f"{label:<8}" + ", ".join(f"{name} {value:.6g}" for name, value in zip(objectives, values, strict=True)))
    print(f"welfare of the average: {_welfare_of(run.welfare, total / len(steps)):.6g} ({run.welfare.name})")
    if asked.render is not None:
        print(f"Drawn in {asked.render}.")
    return 0


def _moving(path: Path) -> bool:
    return path.suffix.lower() == ".gif"


def _render_modes(env: Any) -> Sequence[str]:
    made = env.make()
    try:
        return list(made.metadata.get("render_modes", ()))
    finally:
        made.close()


def _frames(stepped: Any) -> list[Any]:
    """What there is to see since the last time: one picture, or several of a film."""
    with blamed("the environment could not draw"):
        try:
            drawn = stepped.render()
        except NotImplementedError:
            drawn = None
    frames = drawn if isinstance(drawn, list) else [drawn]
    if not frames or any(not isinstance(frame, np.ndarray) or frame.ndim != 3 for frame in frames):
        raise InputError(NO_PICTURES)
    return frames


def _draw_frames(path: Path, frames: Sequence[Any]) -> None:
    from PIL import Image

    images = [Image.fromarray(np.asarray(frame, np.uint8)) for frame in frames]
    with aside(path) as partial:
        if path.suffix.lower() == ".gif":
            images[0].save(partial, save_all=True, append_images=images[1:], duration=100, loop=0)
        else:
            images[-1].save(partial)


def _short(action: Any) -> str:
    array = np.asarray(action)
    return str(action) if array.ndim == 0 else "[" + " ".join(f"{x:.3g}" for x in array.ravel()) + "]"


def _welfare_of(welfare: Welfare, returns: Any) -> float:
    found = report.welfare_of(welfare, returns)
    return math.nan if found is None else found
