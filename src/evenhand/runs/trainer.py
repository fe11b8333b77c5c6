"""Training the seeds of a run: one after another in this process, or several processes side by side.

Every seed's numbers depend on the request and the seed alone, not on how many there are or how often the run was
stopped and resumed.
"""

from __future__ import annotations

import importlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.agents.algorithm import algorithm
from evenhand.children import leave_if_run_again
from evenhand.disk import memory
from evenhand.envs.gym.failures import EnvironmentFailed
from evenhand.errors import InputError, Say
from evenhand.extensions import home_of
from evenhand.interrupt import deferred_interrupt
from evenhand.progress import TrainingProgress
from evenhand.runs.checkpoint import Checkpoint, save_checkpoint
from evenhand.runs.folder import RunFolder, new_run_path
from evenhand.runs.metrics_file import Metrics, spread
from evenhand.runs.pool import Perform, Report, Stop, cores, one_thread, prepare_jax, spread_out
from evenhand.runs.request import check_step_timeout, checked_request, whole
from evenhand.runs.run import Run
from evenhand.welfare import Welfare

if TYPE_CHECKING:
    from evenhand.envs.gym.vector import Start
    from evenhand.training.loop import Loop, LoopState
    from evenhand.training.task import Task

ROWS = 100
"""At least so many rows of metrics a run has, if it has as many updates; each takes about a millisecond."""
MOST_STEPS_PER_ROW = 65_536
"""Rows are also where a run can be stopped, so that they must not be too far apart."""
CHECKPOINT_SECONDS = 30.0
PATIENCE = 20.0
"""Seconds to wait for the last process of an interrupted run to let go of a seed."""


def train(
    env: Any,
    algo: str = "ppo",
    welfare: Welfare | str = "ggf",
    steps: int | float | None = None,
    seeds: int | Sequence[int] = 1,
    *,
    arguments: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str = "tuned",
    folder: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    workers: int = 0,
    episodes: int = 50,
    progress: bool | None = None,
    checkpoint_seconds: float | int = CHECKPOINT_SECONDS,
    step_timeout: float | int | None = None,
) -> Run:
    """Train policies that maximise the welfare of an environment's users, one for each seed.

    env: an environment or its name (see `evenhand.envs.resolve`), and `arguments` for it; `training` are arguments
        that differ while training, such as shorter episodes, and replace the preset's.
    algo: "ppo", "a2c", "dqn", or one of your own that `evenhand.agents.register` made known.
    welfare: what to maximise, as an object or as text.
    seeds: how many, or which. settings: hyperparameters that differ from the preset's.
    folder: where to keep the run; by default a new folder in `runs`.
    jobs: seeds trained at the same time, by default one per core. workers: processes that step each seed's
        environments, for environments that are slow and not compiled.
    episodes: test episodes for each seed after training; 0 for none.
    progress: whether to show a progress bar; by default if standard error is a terminal.
    checkpoint_seconds: the most that a kill can cost.
    step_timeout: seconds that a step of an environment may take, for environments that may hang: its worker process is
        then started anew, and the episodes that it was at are cut off. By default any time.

    Ctrl-C stops at a checkpoint, and at once where it is pressed again; `evenhand.resume` goes on from there, also
    after a kill.
    """
    leave_if_run_again()
    request, made, own_welfare = checked_request(
        env, algo, welfare, steps, seeds, arguments, training, settings, preset, workers, episodes, step_timeout
    )
    path = Path(folder) if folder is not None else new_run_path(request.name, algo, request.welfare)
    # What it is to import was named just now.
    run = Run(RunFolder.create(path, request), made, trust=True, step_timeout=step_timeout, _welfare=own_welfare)
    go_on(run, jobs=jobs, progress=progress, checkpoint_seconds=checkpoint_seconds)
    return run


def resume(
    folder: str | os.PathLike[str],
    *,
    env: Any = None,
    welfare: Welfare | None = None,
    trust: bool = False,
    jobs: int | None = None,
    progress: bool | None = None,
    checkpoint_seconds: float | int = CHECKPOINT_SECONDS,
    step_timeout: float | int | None = None,
) -> Run:
    """Go on with a run where it was interrupted; one that is finished is left as it is.

    env: needed again if the run was started from Python with an environment that has no name, or if its name asks to
        import a module, which a folder may not do by itself.
    welfare: needed again if the run was started from Python with one that no text stands for.
    trust: let the folder import what it names, which runs code.
    step_timeout: as for `train`.
    """
    leave_if_run_again()
    run = Run(RunFolder.open(folder), env, trust, step_timeout=step_timeout, _welfare=welfare)
    go_on(run, jobs=jobs, progress=progress, checkpoint_seconds=checkpoint_seconds)
    return run


def go_on(
    run: Run,
    jobs: int | None = None,
    progress: bool | None = None,
    checkpoint_seconds: float | int = CHECKPOINT_SECONDS,
    start: Start | None = None,
) -> None:
    """Train what is not trained yet, and test it.

    start: what starts the processes that step the environments, if not this machine alone (see
        `evenhand.envs.gym.vector.VectorEnv`); seeds are then trained one after another.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"there must be at least one job, not {jobs}.")
    if run.step_timeout is not None:
        check_step_timeout(run.step_timeout, run.request.name, run.training_env)
    with run.folder.locked():
        missing = [seed for seed in run.seeds if not run.complete(seed)]
        if not missing:
            return
        run.folder.record_versions()
        _check_memory(run.training_env, run.task)
        total = run.updates * run.task.config.steps_per_update
        with TrainingProgress(missing, total, run.request.objectives, progress) as bar:
            run.folder.echo = bar.say
            try:
                jobs = min(jobs or cores(), len(missing))
                if jobs > 1 and run.named is not None and start is None and _known_elsewhere(run):
                    in_processes(run, missing, jobs, float(checkpoint_seconds), bar.update)
                else:
                    in_this_process(run, missing, float(checkpoint_seconds), bar.update, start)
            finally:
                run.folder.echo = None


def _known_elsewhere(run: Run) -> bool:
    """Whether other processes can find what is to be trained."""
    from evenhand.agents.networks import NETWORKS

    network = NETWORKS[getattr(run.request.config, "network", "mlp")]
    found = all(home_of(part) is not None for part in (algorithm(run.request.algo), network.initialise))
    return found and run.request.social_welfare is not None


def train_seed(
    run: Run, seed: int, loop: Loop, checkpoint_seconds: float, report: Report, stop: Stop
) -> LoopState | None:
    """Train one seed to the end, and test it; its last state, or None if `stop` said so before."""
    from evenhand.runs.policy_file import Spaces
    from evenhand.training.loop import CutShort

    folder, task = run.folder, run.task
    per_update, of = task.config.steps_per_update, run.updates
    every = max(1, min(of // ROWS, MOST_STEPS_PER_ROW // per_update))
    objectives = run.request.objectives
    extra = {"spaces": Spaces.of(run.training_env).record()}
    with folder.locked(seed, PATIENCE):
        state = loop.start(seed)
        found = folder.newest(seed, state)
        done = 0
        if found is not None:
            state, done = loop.resumed(found.tree), _updates(found, per_update)
        report({"seed": seed, "phase": "compiling", "step": done * per_update})
        seconds = loop.compile(state) if done < of else 0.0
        report({"seed": seed, "phase": "training", "step": done * per_update, "compiled": seconds})
        metrics = Metrics(folder.metrics(seed), _columns(task, objectives), folder.say)
        with metrics:
            metrics.resume_at(found.step if found is not None else -1)
            saved = time.monotonic()
            while done < of:
                began = time.perf_counter()
                updates = min(every - done % every, of - done)
                try:
                    state, measured = loop.advance(state, updates, of)
                except CutShort as cut:
                    if done + cut.updates:
                        metrics.write()
                        step = (done + cut.updates) * per_update
                        save_checkpoint(folder.checkpoints(seed), step, cut.state, {"updates": done + cut.updates})
                    raise cut.why from None
                done += updates
                step = done * per_update
                speed = updates * per_update / (time.perf_counter() - began)
                _refuse_divergence(measured, step, task)
                metrics.add(step, _row(measured, objectives), {"steps per second": speed})
                reward = np.asarray(measured["reward"], float)
                report({"seed": seed, "phase": "training", "step": step, "speed": speed, "reward": reward.tolist()})
                stopping = stop()
                if done == of or stopping or time.monotonic() - saved >= checkpoint_seconds:
                    metrics.write()
                    save_checkpoint(folder.checkpoints(seed), step, state, {"updates": done, **extra})
                    saved = time.monotonic()
                if stopping and done < of:
                    return None
        if run.request.episodes:
            testing = {"seed": seed, "phase": "testing", "step": done * per_update}
            report(testing)
            policy = run.policy_of(seed, state.agent)
            run.test(seed, run.request.episodes, lambda share: report({**testing, "share": share}), policy)
    report({"seed": seed, "phase": "done", "step": done * per_update})
    return state


def _updates(found: Checkpoint, per_update: int) -> int:
    """How many updates a checkpoint has behind it."""
    done: Any = found.extra.get("updates")
    if not whole(done, 0) or done * per_update != found.step:
        raise InputError(f"checkpoint {found.path.name} is damaged: its updates are not those of its steps.")
    return int(done)


def _check_memory(env: Any, task: Task) -> None:
    """Refuse, before it is tried, what this machine cannot hold: the state of a run, and the steps of an update."""
    import jax

    from evenhand.training.loop import template

    state = sum(math.prod(leaf.shape) * 4 for leaf in jax.tree.leaves(template(env, task)))
    steps = 4 * task.config.steps_per_update * (2 * task.observation_size + len(env.objectives))
    if state + steps > memory():
        raise InputError(
            f"this run would take {(state + steps) / 2**30:,.0f} GiB of memory, and this machine has "
            f"{memory() / 2**30:,.0f}: take fewer envs, a shorter rollout, or smaller networks."
        )


# Rows of metrics


def _columns(task: Task, objectives: Sequence[str]) -> list[str]:
    from evenhand.training.loop import report_shapes

    shapes = report_shapes(task, len(objectives))
    return list(_row({name: np.zeros(shape) for name, shape in shapes.items()}, objectives))


def _row(measured: Mapping[str, Any], objectives: Sequence[str]) -> dict[str, float]:
    """Vectors become one column per user; what is unknown, such as the length of episodes when none ended, is NaN."""
    row: dict[str, float] = {}
    for name, value in measured.items():
        vector = np.asarray(value, float)
        if vector.ndim == 0:
            row[name] = float(vector)
        else:
            row |= spread(name, objectives if len(vector) == len(objectives) else ["sum"], vector)
    return row


def _refuse_divergence(measured: Mapping[str, Any], step: int, task: Task) -> None:
    for name, value in measured.items():
        if not name.startswith("episode") and not np.isfinite(value).all():
            what = "the environment's rewards" if name == "reward" else f"the {name} of {task.algorithm}"
            raise InputError(
                f"{what} ceased to be finite before step {step}: look for NaN in the environment (evenhand check-env), "
                "or take a smaller learning_rate or reward_scale."
            )


def in_this_process(
    run: Run, seeds: list[int], checkpoint_seconds: float, report: Report, start: Start | None = None
) -> None:
    """One seed after another; Ctrl-C stops at a checkpoint. start: see `evenhand.envs.gym.vector.VectorEnv`."""
    importlib.import_module("polars")  # takes hold of Ctrl-C when it is imported, and must not take it from us
    with one_thread(), deferred_interrupt() as stop:
        prepare_jax()
        loop = loop_of(run, start)
        try:
            for seed in seeds:
                if train_seed(run, seed, loop, checkpoint_seconds, report, stop) is None:
                    raise KeyboardInterrupt
        finally:
            loop.close()


def in_processes(run: Run, seeds: list[int], jobs: int, checkpoint_seconds: float, report: Report) -> None:
    """`jobs` seeds at a time, each process taking the next seed when it is done with one."""
    # What this process could load, those that it starts may load too.
    argument = (str(run.path), run.named, run.module, checkpoint_seconds, run.step_timeout)
    failures, stopped = spread_out(_trainer, argument, seeds, jobs, report, run.folder.say, environments=[run.named])
    if failures:
        seed, problem = min(failures, key=lambda failure: failure[0])  # not the one that happened to come first
        others = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        said = f"seed {seed} could not be trained{others}: {problem.said}"
        if problem.of_environment:
            raise EnvironmentFailed(said, problem.full)
        raise InputError(said)
    if stopped and not all(run.complete(seed) for seed in seeds):
        raise KeyboardInterrupt


def _trainer(argument: tuple[str, str | None, str | None, float, float | int | None], say: Say) -> Perform:
    """What trains seeds of one run, in a process of its own."""
    path, named, module, checkpoint_seconds, step_timeout = argument
    run = Run(RunFolder.open(path), named, module=module, step_timeout=step_timeout)
    run.folder.say = say  # type: ignore[method-assign,assignment]  # the parent logs it
    loop = loop_of(run)

    def perform(seed: int, report: Report, stop: Stop) -> None:
        train_seed(run, seed, loop, checkpoint_seconds, report, stop)

    return perform


def loop_of(run: Run, start: Start | None = None) -> Any:
    """What trains its seeds; the same for all of them."""
    from evenhand.training.host_loop import loop_for

    return loop_for(run.training_env, run.task, run.request.workers, run.folder.say, start, run.step_timeout)
