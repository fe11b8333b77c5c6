"""play: watching what was learnt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tyro.conf import arg

from evenhand.cli import options, output
from evenhand.envs.gym.failures import blamed
from evenhand.envs.gym.gym_env import GymEnv
from evenhand.errors import InputError
from evenhand.runs.pool import prepare_jax
from evenhand.runs.run import Run
from evenhand.welfare import welfare_of

# JAX and Pillow are imported where they are used: help and refusals should not wait for them.

FRAMES = (".png", ".gif")
MOST_FRAMES = 200
"""In one moving picture; of longer episodes only every second, third, … one is shown."""
NO_PICTURES = "the environment draws no pictures (render_mode rgb_array): leave --render out."
FILM = "rgb_array_list"
"""Gymnasium's mode for environments that draw what happens between two steps as well."""


@dataclass(frozen=True)
class Play(options.OfRun):
    """Watch a trained policy, step by step.

    For example:
        evenhand play species runs/fair
        evenhand play - runs/fair --steps 50 --render fair.gif

    ENV is the environment to play in; - is the one that the run was trained for.
    """

    env: options.Environment
    """The environment, or -."""
    run: options.RunPath
    policy_seed: options.PolicySeed = None
    """Of several seeds, whose policy to play; by default the first."""
    seed: options.Whole = 0
    """The same seed gives the same episode."""
    steps: options.Whole = 200
    """Stop after so many steps, if the episode has not ended by then."""
    arguments: options.EnvArguments = ()
    """Settings of the environment that differ from those of the training."""
    render: Annotated[options.OptionalFile, arg(aliases=["--video"])] = None
    """A picture of the last step (.png), or a film of all (.gif)."""
    deterministic: options.Flag = False
    """Always the most probable action. A fair policy may then no longer be fair."""
    json: options.Json = False


def run_play(args: Play) -> int:
    """Step through one episode."""
    options.check_positive(args, "steps")
    options.check_not_negative(args, "seed")
    output.check_picture(args.render, "--render", FRAMES)
    arguments = options.assignments("--env", args.arguments)
    run = options.open_run(args, args.run)
    from evenhand.envs.gym.host_env import HostEnv
    from evenhand.evaluation.playing import TEST_SEED

    prepare_jax()
    name = None if args.env == "-" else args.env
    env = options.environment_of(run, arguments, name)
    policy = run.policy(args.policy_seed)
    if (env.observation_space.n, env.action_space) != (run.env.observation_space.n, run.env.action_space):
        raise InputError(f"{args.run} was trained with other observations or actions than {args.env} has.")
    mode = None if args.render is None else "rgb_array"
    if isinstance(env, HostEnv):
        if _moving(args.render) and FILM in _render_modes(env):
            mode = FILM
        try:
            drawing = env if mode is None else options.environment_of(run, arguments, name, render_mode=mode)
        except InputError as error:
            why = str(error).partition("\n")[0]
            raise InputError(f"{NO_PICTURES} ({why})") from error
        stepped = drawing.make()
    else:
        stepped = GymEnv(env, mode)
    with closing(stepped):
        return _play(args, run, env, policy, stepped, TEST_SEED + args.seed)


def _play(args: Play, run: Run, env: Any, policy: Any, stepped: Any, seed: int) -> int:
    objectives, names = list(env.objectives), getattr(env, "action_names", None)
    policy.seed(args.seed)
    policy.reset()
    with blamed(f"{args.run}: the environment could not be reset"):
        observation, _ = stepped.reset(seed=seed % 2**32)
    total = np.zeros(len(objectives))
    steps: list[dict[str, Any]] = []
    frames: list[Any] = []
    every, drawn, last = math.ceil(args.steps / MOST_FRAMES), 0, []
    terminated = truncated = False
    if not args.json:
        whose = run.seeds[0] if args.policy_seed is None else args.policy_seed
        print(f"{run.name} of {args.run}, seed {whose}; {run.welfare.name} so far")
        width = max(16, *(len(name) + 2 for name in names)) if names else 16
        users = "".join(f"{name[:14]:>16}" for name in objectives)
        print(f"{'step':>6}  {'action':<{width}}{users}{'welfare':>12}")
    while not terminated and not truncated and len(steps) < args.steps:
        action = policy(observation, deterministic=args.deterministic)
        with blamed(f"{args.run}: step {len(steps) + 1} of the environment failed"):
            observation, reward, terminated, truncated, _ = stepped.step(action)
        reward = np.atleast_1d(np.asarray(reward, float))
        total += reward
        average = total / (len(steps) + 1)
        welfare = float(welfare_of(run.welfare, average))
        steps.append({"action": np.asarray(action).tolist(), "rewards": reward.tolist(), "welfare_so_far": welfare})
        if getattr(stepped, "render_mode", None) == FILM:
            last = _frames(stepped)
            every = math.ceil(args.steps * len(last) / MOST_FRAMES)
            frames += [frame for i, frame in enumerate(last, drawn + 1) if i % every == 0]
            drawn += len(last)
        elif _moving(args.render) and len(steps) % every == 0:
            frames += _frames(stepped)
        if not args.json:
            shown = names[int(action)] if names else _short(action)
            rewards = "".join(f"{value:>16.6g}" for value in reward)
            print(f"{len(steps):>6}  {shown:<{width}}{rewards}{welfare:>12.6g}")
    if args.render is not None:
        _draw_frames(args.render, frames or last[-1:] or _frames(stepped))
    if args.json:
        record = {
            "run": str(args.run),
            "objectives": objectives,
            "steps": steps,
            "total": total.tolist(),
            "average": average.tolist(),
            "welfare": welfare,
            "terminated": bool(terminated),
            "truncated": bool(truncated),
        }
        output.print_json(record)
        return 0
    how = "ended by itself" if terminated else "ended by its time limit" if truncated else "goes on"
    print(f"After {len(steps)} steps the episode {how}.")
    for label, values in (("total", total), ("average", average)):
        print(f"{label:<8}" + ", ".join(f"{name} {value:.6g}" for name, value in zip(objectives, values, strict=True)))
    print(f"welfare of the average: {welfare:.6g} ({run.welfare.name})")
    if args.render is not None:
        print(f"Drawn in {args.render}.")
    return 0


def _moving(path: Path | None) -> bool:
    return path is not None and path.suffix.lower() == ".gif"


def _render_modes(env: Any) -> Sequence[str]:
    with closing(env.make()) as made:
        return list(made.metadata.get("render_modes", ()))


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
    with output.aside(path) as partial:
        if _moving(path):
            images[0].save(partial, save_all=True, append_images=images[1:], duration=100, loop=0)
        else:
            images[-1].save(partial)


def _short(action: Any) -> str:
    array = np.asarray(action)
    return str(action) if array.ndim == 0 else "[" + " ".join(f"{x:.3g}" for x in array.ravel()) + "]"
