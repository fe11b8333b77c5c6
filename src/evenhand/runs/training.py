"""Training runs: from a request to a run folder with policies, whatever interrupts it.

A run trains one or more seeds. Several seeds are spread over the cores, one process each; every seed's numbers depend
on the request and the seed alone, not on how many there are or how often the run was stopped and resumed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.errors import InputError
from evenhand.progress import TrainingProgress
from evenhand.runs.checkpoint import load_newest, save_checkpoint
from evenhand.runs.folder import RunFolder, new_run_path
from evenhand.runs.metrics import Metrics, spread
from evenhand.runs.pool import Report
from evenhand.runs.settings import check_name, settings
from evenhand.welfare import Utilitarian, Welfare
from evenhand.welfare import welfare as named_welfare

if TYPE_CHECKING:
    from evenhand.envs.vector import Start
    from evenhand.judge import Evaluation, Policy
    from evenhand.loops import Loop, Task

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
) -> Run:
    """Train policies that maximise the welfare of an environment's users, one for each seed.

    env: an environment or its name (see `evenhand.envs.resolve`), and `arguments` for it; `training` are arguments
        that differ while training, such as shorter episodes, and replace the preset's.
    algo: "ppo", "a2c" or "dqn". welfare: what to maximise, as an object or as text.
    seeds: how many, or which. settings: hyperparameters that differ from the preset's.
    folder: where to keep the run; by default a new folder in `runs`.
    jobs: seeds trained at the same time, by default one per core. workers: processes that step each seed's
        environments, for environments that are slow and not compiled.
    episodes: test episodes for each seed after training; 0 for none.
    progress: whether to show a progress bar; by default if standard error is a terminal.
    checkpoint_seconds: the most that a kill can cost.

    Ctrl-C stops at a checkpoint; `evenhand.resume` goes on from there, also after a kill.
    """
    request, made = checked_request(
        env, algo, welfare, steps, seeds, arguments, training, settings, preset, workers, episodes
    )
    path = Path(folder) if folder is not None else new_run_path(request["name"], algo, request["welfare"])
    run = Run(RunFolder.create(path, request), made)
    run.go_on(jobs=jobs, progress=progress, checkpoint_seconds=checkpoint_seconds)
    return run


def resume(
    folder: str | os.PathLike[str],
    *,
    env: Any = None,
    jobs: int | None = None,
    progress: bool | None = None,
    checkpoint_seconds: float | int = CHECKPOINT_SECONDS,
) -> Run:
    """Go on with a run where it was interrupted; one that is finished is left as it is.

    env: needed again if the run was started from Python with an environment that has no name.
    """
    run = Run(RunFolder.open(folder), env)
    run.go_on(jobs=jobs, progress=progress, checkpoint_seconds=checkpoint_seconds)
    return run


def load(folder: str | os.PathLike[str], seed: int | None = None, *, env: Any = None) -> Policy:
    """The policy that a run has learnt so far; of several seeds, the first unless one is named."""
    return Run(RunFolder.open(folder), env).policy(seed)


@dataclasses.dataclass
class Run:
    """A training run and its folder."""

    folder: RunFolder
    _env: Any = None
    """The environment or what makes it, where the folder alone cannot tell."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.folder.path

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds asked."""
        return self.folder.seeds

    @cached_property
    def request(self) -> dict[str, Any]:
        """What was asked."""
        return self.folder.request

    @cached_property
    def welfare(self) -> Welfare:
        """What is maximised."""
        return named_welfare(self.request["welfare"], len(self.request["objectives"]))

    @cached_property
    def env(self) -> Any:
        """The environment, as it is tested."""
        return self._resolved({})

    @cached_property
    def training_env(self) -> Any:
        """The environment, as the policies are trained on."""
        return self._resolved(self.request["training"])

    @cached_property
    def task(self) -> Task:
        """The algorithm and its hyperparameters."""
        from evenhand.agents import ALGORITHMS
        from evenhand.loops import Task

        config = {k: tuple(v) if isinstance(v, list) else v for k, v in self.request["settings"].items()}
        env = self.training_env
        return Task(
            self.request["algo"],
            ALGORITHMS[self.request["algo"]].Config(**config),
            self.welfare,
            env.observation_space.n,
            env.action_space,
        )

    @property
    def updates(self) -> int:
        """Rollouts of each seed: the steps asked, rounded up."""
        return -(-self.folder.steps // self.task.config.steps_per_update)

    def _resolved(self, more: Mapping[str, Any]) -> Any:
        from evenhand.envs import resolve

        asked = self.request
        if asked["env"] is None and self._env is None:
            raise InputError(
                f"{self.path} was trained on an environment that only its Python program can make: "
                "hand it over again, as in evenhand.load(folder, env=...)."
            )
        if asked["env"] is None:
            return resolve(self._env, _taken(self._env, asked["arguments"], more))
        return resolve(asked["env"], asked["arguments"] | more)

    # Training

    def go_on(
        self,
        jobs: int | None = None,
        progress: bool | None = None,
        checkpoint_seconds: float | int = CHECKPOINT_SECONDS,
        start: Start | None = None,
    ) -> None:
        """Train what is not trained yet, and test it.

        start: what starts the processes that step the environments, if not this machine alone (see
            `evenhand.envs.vector.VectorEnv`); seeds are then trained one after another.
        """
        from evenhand.runs.pool import cores, in_processes, in_this_process

        if jobs is not None and jobs < 1:
            raise InputError(f"there must be at least one job, not {jobs}.")
        with self.folder.locked():
            missing = [seed for seed in self.seeds if not self.complete(seed)]
            if not missing:
                return
            self.folder.record_versions()
            total = self.updates * self.task.config.steps_per_update
            with TrainingProgress(missing, total, self.request["objectives"], progress) as bar:
                self.folder.echo = bar.say
                try:
                    jobs = min(jobs or cores(), len(missing))
                    if jobs > 1 and self.request["env"] is not None and start is None:
                        in_processes(self, missing, jobs, float(checkpoint_seconds), bar.update)
                    else:
                        in_this_process(self, missing, float(checkpoint_seconds), bar.update, start)
                finally:
                    self.folder.echo = None

    def complete(self, seed: int) -> bool:
        """Whether a seed is trained and tested."""
        tested = self.request["episodes"] == 0 or self.folder.evaluation(f"seed-{seed}").exists()
        return tested and self.folder.finished(seed)

    def train_seed(
        self, seed: int, loop: Loop, checkpoint_seconds: float, report: Report, stop: Callable[[], bool]
    ) -> bool:
        """Train one seed to the end, or until `stop` says so; whether it is done."""
        folder, task = self.folder, self.task
        per_update, of = task.config.steps_per_update, self.updates
        every = max(1, min(of // ROWS, MOST_STEPS_PER_ROW // per_update))
        objectives = self.request["objectives"]
        with folder.locked(seed, PATIENCE):
            state = loop.start(seed)
            found = load_newest(folder.checkpoints(seed), state, folder.say)
            done = 0
            if found is not None:
                state, done = loop.resumed(found.tree), found.extra["updates"]
            report({"seed": seed, "phase": "compiling", "step": done * per_update})
            seconds = loop.compile(state) if done < of else 0.0
            report({"seed": seed, "phase": "training", "step": done * per_update, "compiled": seconds})
            metrics = Metrics(folder.seed_folder(seed) / "metrics.parquet", _columns(task, objectives), folder.say)
            with metrics:
                metrics.resume_at(found.step if found is not None else -1)
                saved = time.monotonic()
                while done < of:
                    began = time.perf_counter()
                    updates = min(every - done % every, of - done)
                    state, facts = loop.advance(state, updates, of)
                    done += updates
                    step = done * per_update
                    speed = updates * per_update / (time.perf_counter() - began)
                    _refuse_divergence(facts, step, task)
                    metrics.add(step, _row(facts, objectives), {"steps per second": speed})
                    reward = np.asarray(facts["reward"], float)
                    report({"seed": seed, "phase": "training", "step": step, "speed": speed, "reward": reward.tolist()})
                    stopping = stop()
                    if done == of or stopping or time.monotonic() - saved >= checkpoint_seconds:
                        metrics.write()
                        save_checkpoint(folder.checkpoints(seed), step, state, {"updates": done})
                        saved = time.monotonic()
                    if stopping and done < of:
                        return False
            if self.request["episodes"]:
                report({"seed": seed, "phase": "testing", "step": done * per_update})
                self.test(seed, self.request["episodes"])
        report({"seed": seed, "phase": "done", "step": done * per_update})
        return True

    # Results

    def policy(self, seed: int | None = None) -> Policy:
        """What a seed has learnt, by its newest checkpoint."""
        from evenhand.judge import Policy
        from evenhand.loops import template

        seed = self.seeds[0] if seed is None else seed
        like = template(self.training_env, self.task)
        found = load_newest(self.folder.checkpoints(seed), like, self.folder.say)
        if found is None:
            raise InputError(f"{self.path} has no checkpoint of seed {seed} yet.")
        return Policy(self.env, self.task, self.task.agent.acting(found.tree.agent), f"{self.name} seed {seed}")

    def export(self, path: str | os.PathLike[str], seed: int | None = None) -> Path:
        """Write a seed's policy into one safetensors file, which NumPy alone can run (docs/deploy.md)."""
        from evenhand.runs.policy_file import export_policy

        seed = self.seeds[0] if seed is None else seed
        about = {"environment": self.request["name"], "steps": self.folder.progress(seed).step}
        return export_policy(self.policy(seed), path, about)

    @property
    def name(self) -> str:
        """What people call it, as in GGF-PPO."""
        algo = self.request["algo"].upper()
        if isinstance(self.welfare, Utilitarian):
            return algo
        return f"{self.request['welfare'].split(':')[0].upper()}-{algo}"

    def test(self, seed: int, episodes: int, name: str | None = None) -> Evaluation:
        """Play test episodes with a seed's policy, and keep the result."""
        from evenhand.judge import evaluate_policy

        result = evaluate_policy(self.env, self.policy(seed), episodes, self.task.config.gamma, seed)
        self.folder.write_json(self.folder.evaluation(name or f"seed-{seed}"), result.record())
        return result

    def evaluations(self) -> dict[int, Evaluation]:
        """The tests that were kept, by seed."""
        import json

        from evenhand.judge import Evaluation

        found = {}
        for seed in self.seeds:
            file = self.folder.evaluation(f"seed-{seed}")
            if file.exists():
                found[seed] = Evaluation.from_record(json.loads(file.read_text("utf-8")))
        return found

    def metrics(self) -> Any:
        """The metrics of all seeds, as a Polars table."""
        import polars as pl

        tables = []
        for seed in self.seeds:
            file = self.folder.seed_folder(seed) / "metrics.parquet"
            if file.exists():
                tables.append(pl.read_parquet(file).with_columns(seed=pl.lit(seed)))
        if not tables:
            raise InputError(f"{self.path} has no metrics yet.")
        return pl.concat(tables)


# From what a person says to a request


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
) -> tuple[dict[str, Any], Any]:
    """Check everything before any work starts; the request, and the environment where a name does not tell it."""
    from evenhand.envs import factory, resolve
    from evenhand.envs.host import HostEnv
    from evenhand.runs.settings import ALGORITHMS
    from evenhand.types import Box

    check_name("algorithm", algo, ALGORITHMS)
    given = dict(arguments or {})
    name = factory(env, given)[0]
    resolved = resolve(env, given)
    D = len(resolved.objectives)
    chosen = named_welfare(welfare, D) if isinstance(welfare, str) else welfare
    if chosen.D != D:
        raise InputError(f"{name} has {D} users ({', '.join(resolved.objectives)}), but the welfare is for {chosen.D}.")
    if D == 1:
        chosen = Utilitarian(1)  # one user: all welfares agree
    if algo == "dqn" and isinstance(resolved.action_space, Box):
        raise InputError(f"dqn needs a finite number of actions, and those of {name} are continuous: use ppo or a2c.")
    if isinstance(resolved.action_space, Box) and not resolved.action_space.bounded:
        raise InputError(f"the actions of {name} have no bounds: give its action space finite ones.")
    if steps is not None and (isinstance(steps, bool) or steps != int(steps)):
        raise InputError(f"steps must be a whole number, not {steps!r}.")
    fair = not isinstance(chosen, Utilitarian)
    found = settings(algo, name, fair, preset, changes, None if steps is None else int(steps))
    training = dict(training) if training else _taken(env, given, found.training)
    if workers and not isinstance(resolved, HostEnv):
        raise InputError(f"{name} is compiled and needs no worker processes: leave workers at 0.")
    if workers < 0 or episodes < 0:
        raise InputError(f"workers and episodes must not be negative, not {workers} and {episodes}.")
    if training:
        resolve(env, given | training)
    request = {
        "env": env if isinstance(env, str) else None,
        "name": name,
        "arguments": given,
        "training": training,
        "objectives": list(resolved.objectives),
        "algo": algo,
        "welfare": chosen.name,
        "preset": preset,
        "settings": dataclasses.asdict(found.config),
        "steps": found.steps,
        "seeds": _seeds(seeds),
        "workers": workers,
        "episodes": episodes,
    }
    return request, None if isinstance(env, str) else env


def _taken(env: Any, given: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Of a preset's arguments for training, those that can be handed over and that the user has not set."""
    made = not isinstance(env, (str, type)) and not callable(env)
    return {} if made else {name: value for name, value in more.items() if name not in given}


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, int):
        if seeds < 1:
            raise InputError(f"there must be at least one seed, not {seeds}.")
        return list(range(seeds))
    chosen = [int(seed) for seed in seeds]
    if not chosen or min(chosen) < 0 or len(set(chosen)) < len(chosen):
        raise InputError(f"seeds must be different whole numbers from 0, not {list(seeds)}.")
    return chosen


# Rows of metrics


def _columns(task: Task, objectives: Sequence[str]) -> list[str]:
    from evenhand.loops import report_shapes

    shapes = report_shapes(task, len(objectives))
    return list(_row({name: np.zeros(shape) for name, shape in shapes.items()}, objectives))


def _row(facts: Mapping[str, Any], objectives: Sequence[str]) -> dict[str, float]:
    """Vectors become one column per user; what is unknown, such as the length of episodes when none ended, is NaN."""
    row: dict[str, float] = {}
    for name, value in facts.items():
        vector = np.asarray(value, float)
        if vector.ndim == 0:
            row[name] = float(vector)
        else:
            row |= spread(name, objectives if len(vector) == len(objectives) else ["sum"], vector)
    return row


def _refuse_divergence(facts: Mapping[str, Any], step: int, task: Task) -> None:
    for name, value in facts.items():
        if not name.startswith("episode") and not np.isfinite(value).all():
            what = "the environment's rewards" if name == "reward" else f"the {name} of {task.algorithm}"
            raise InputError(
                f"{what} ceased to be finite before step {step}: look for NaN in the environment (evenhand check-env), "
                "or take a smaller learning_rate or reward_scale."
            )


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """While open, the first Ctrl-C only makes the function given say True; the second one takes effect at once."""
    pressed = threading.Event()

    def note(number: int, frame: Any) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    in_charge = threading.current_thread() is threading.main_thread()
    if in_charge and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
        try:
            yield pressed.is_set
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    else:
        yield pressed.is_set
