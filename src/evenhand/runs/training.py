"""Training runs: from a request to a run folder with policies, whatever interrupts it.

A run trains one or more seeds. Several seeds are spread over the cores, one process each; every seed's numbers depend
on the request and the seed alone, not on how many there are or how often the run was stopped and resumed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.children import leave_if_run_again
from evenhand.disk import memory, read_json
from evenhand.errors import InputError
from evenhand.progress import TrainingProgress
from evenhand.runs.checkpoint import Checkpoint, load_newest, newest_record, save_checkpoint
from evenhand.runs.folder import RunFolder, new_run_path
from evenhand.runs.metrics import Metrics, read_table, spread
from evenhand.runs.pool import Report
from evenhand.runs.request import Request, whole
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
    step_timeout: float | int | None = None,
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
    step_timeout: seconds that a step of an environment may take, for environments that may hang: its worker process is
        then started anew, and the episodes that it was at are cut off. By default any time.

    Ctrl-C stops at a checkpoint, and at once where it is pressed again; `evenhand.resume` goes on from there, also
    after a kill.
    """
    leave_if_run_again()
    request, made = checked_request(
        env, algo, welfare, steps, seeds, arguments, training, settings, preset, workers, episodes
    )
    path = Path(folder) if folder is not None else new_run_path(request.name, algo, request.welfare)
    # What it is to import was named just now.
    run = Run(RunFolder.create(path, request), made, trust=True, step_timeout=step_timeout)
    run.go_on(jobs=jobs, progress=progress, checkpoint_seconds=checkpoint_seconds)
    return run


def resume(
    folder: str | os.PathLike[str],
    *,
    env: Any = None,
    trust: bool = False,
    jobs: int | None = None,
    progress: bool | None = None,
    checkpoint_seconds: float | int = CHECKPOINT_SECONDS,
    step_timeout: float | int | None = None,
) -> Run:
    """Go on with a run where it was interrupted; one that is finished is left as it is.

    env: needed again if the run was started from Python with an environment that has no name, or if its name asks to
        import a module, which a folder may not do by itself.
    trust: let the folder import what it names, which runs code.
    step_timeout: as for `train`.
    """
    leave_if_run_again()
    run = Run(RunFolder.open(folder), env, trust, step_timeout=step_timeout)
    run.go_on(jobs=jobs, progress=progress, checkpoint_seconds=checkpoint_seconds)
    return run


def load(folder: str | os.PathLike[str], seed: int | None = None, *, env: Any = None, trust: bool = False) -> Policy:
    """The policy that a run has learnt so far; of several seeds, the first unless one is named.

    env, trust: as for `resume`.
    """
    return Run(RunFolder.open(folder), env, trust).policy(seed)


@dataclasses.dataclass
class Run:
    """A training run and its folder."""

    folder: RunFolder
    _env: Any = None
    """The environment, its name or what makes it, in place of what the folder says."""
    trust: bool = False
    """Whether the folder may choose what is imported."""
    module: str | None = None
    """Imported in place of the module that the folder names."""
    step_timeout: float | int | None = None
    """Seconds that a step may take (see `evenhand.envs.vector.VectorEnv`)."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.folder.path

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds asked."""
        return self.folder.seeds

    @property
    def request(self) -> Request:
        """What was asked."""
        return self.folder.request

    @property
    def welfare(self) -> Welfare:
        """What is maximised."""
        return self.request.social_welfare

    @property
    def name(self) -> str:
        """What people call it, as in GGF-PPO."""
        return self.request.method

    @cached_property
    def env(self) -> Any:
        """The environment, as it is tested."""
        return self.resolved({})

    @cached_property
    def training_env(self) -> Any:
        """The environment, as the policies are trained on."""
        return self.resolved(self.request.training)

    @cached_property
    def task(self) -> Task:
        """The algorithm and its hyperparameters."""
        env = self.training_env
        _check_actions(self.request.algo, self.request.name, env.action_space)
        return self._task(env.observation_space.n, env.action_space)

    def _task(self, observation_size: int, actions: Any) -> Task:
        from evenhand.loops import Task

        return Task(self.request.algo, self.request.config, self.welfare, observation_size, actions)

    @property
    def updates(self) -> int:
        """Rollouts of each seed: the steps asked, rounded up."""
        return -(-self.folder.steps // self.request.config.steps_per_update)

    @property
    def named(self) -> str | None:
        """The name of the environment, by which other processes can make it; None if it has none."""
        if self._env is not None:
            return self._env if isinstance(self._env, str) else None
        return self.request.env

    def resolved(self, more: Mapping[str, Any]) -> Any:
        """The run's environment with other settings; a folder cannot choose what is imported for it."""
        from evenhand.envs import import_module, installed_only, resolve

        env = self._env if self._env is not None else self.request.env
        if env is None:
            raise InputError(
                f"{self.path} was trained on an environment that only its Python program can make: "
                "hand it over again, as in evenhand.load(folder, env=...)."
            )
        arguments = {**self.request.arguments, **more}
        if self._env is not None:
            found = resolve(env, {} if _is_made(env) else arguments)
        elif self.module is not None:
            env = env.rpartition(":")[2]
            import_module(self.module, env)
            found = resolve(env, arguments)
        elif self.trust:
            found = resolve(env, arguments)
        else:
            self._refuse_import(arguments)
            with installed_only():
                found = resolve(env, arguments)
        if len(found.objectives) != len(self.request.objectives):
            raise InputError(
                f"{self.path} is a run for {len(self.request.objectives)} users, but {self.request.name} has "
                f"{len(found.objectives)}."
            )
        return found

    def _refuse_import(self, arguments: Mapping[str, Any]) -> None:
        from evenhand.envs import module_to_import

        env = self.request.env
        module = module_to_import(env, arguments) if env else None
        if module is not None:
            raise InputError(
                f"{self.path} asks for the environment {env!r}, for which the module {module!r} would be imported, and "
                f"its code run. If you know it, name it yourself: --env-module {module}, in Python env={env!r}; or say "
                "--trust, in Python trust=True."
            )

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
        self._check_timeout()
        with self.folder.locked():
            missing = [seed for seed in self.seeds if not self.complete(seed)]
            if not missing:
                return
            self.folder.record_versions()
            _check_memory(self.training_env, self.task)
            total = self.updates * self.task.config.steps_per_update
            with TrainingProgress(missing, total, self.request.objectives, progress) as bar:
                self.folder.echo = bar.say
                try:
                    jobs = min(jobs or cores(), len(missing))
                    if jobs > 1 and self.named is not None and start is None:
                        in_processes(self, missing, jobs, float(checkpoint_seconds), bar.update)
                    else:
                        in_this_process(self, missing, float(checkpoint_seconds), bar.update, start)
                finally:
                    self.folder.echo = None

    def _check_timeout(self) -> None:
        from evenhand.envs.host import HostEnv
        from evenhand.envs.vector import check_timeout

        check_timeout(self.step_timeout)
        if self.step_timeout is not None and not isinstance(self.training_env, HostEnv):
            raise InputError(f"{self.request.name} is compiled, and its steps cannot hang: leave step_timeout out.")

    def complete(self, seed: int) -> bool:
        """Whether a seed is trained and tested."""
        tested = self.request.episodes == 0 or self.folder.evaluation(f"seed-{seed}").exists()
        return tested and self.folder.finished(seed)

    def train_seed(
        self, seed: int, loop: Loop, checkpoint_seconds: float, report: Report, stop: Callable[[], bool]
    ) -> bool:
        """Train one seed to the end, or until `stop` says so; whether it is done."""
        from evenhand.loops import CutShort
        from evenhand.runs.policy_file import Spaces

        folder, task = self.folder, self.task
        per_update, of = task.config.steps_per_update, self.updates
        every = max(1, min(of // ROWS, MOST_STEPS_PER_ROW // per_update))
        objectives = self.request.objectives
        extra = {"spaces": Spaces.of(self.training_env).record()}
        with folder.locked(seed, PATIENCE):
            state = loop.start(seed)
            found = load_newest(folder.checkpoints(seed), state, folder.say)
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
                        state, facts = loop.advance(state, updates, of)
                    except CutShort as cut:
                        if done + cut.updates:
                            metrics.write()
                            step = (done + cut.updates) * per_update
                            save_checkpoint(folder.checkpoints(seed), step, cut.state, {"updates": done + cut.updates})
                        raise cut.why from None
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
                        save_checkpoint(folder.checkpoints(seed), step, state, {"updates": done, **extra})
                        saved = time.monotonic()
                    if stopping and done < of:
                        return False
            if self.request.episodes:
                testing = {"seed": seed, "phase": "testing", "step": done * per_update}
                report(testing)
                self.test(seed, self.request.episodes, progress=lambda share: report({**testing, "share": share}))
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
        """Write a seed's policy into one safetensors file, which NumPy alone can run (docs/deploy.md).

        No environment is made, except for runs of versions that did not keep what acting needs to know of it.
        """
        from evenhand.loops import learnt_template
        from evenhand.runs.policy_file import Spaces, export_policy

        seed = self.seeds[0] if seed is None else seed
        record = newest_record(self.folder.checkpoints(seed), self.folder.say)
        if record is None:
            raise InputError(f"{self.path} has no checkpoint of seed {seed} yet.")
        try:
            kept = record.extra.get("spaces")
            spaces = None if kept is None else Spaces.from_record(kept)
        except InputError as error:
            raise InputError(f"checkpoint {record.path.name} is damaged: {error}") from None
        spaces = Spaces.of(self.training_env) if spaces is None else spaces
        _check_actions(self.request.algo, self.request.name, spaces.actions)
        task = self._task(spaces.observation_size, spaces.actions)
        found = load_newest(self.folder.checkpoints(seed), learnt_template(task), lambda _: None, part=True)
        if found is None:
            raise InputError(f"{self.path} has no checkpoint of seed {seed} any more.")
        about = {"environment": self.request.name, "steps": found.step}
        name = f"{self.name} seed {seed}"
        return export_policy(task, found.tree.agent, spaces, self.request.objectives, name, path, about)

    def play(self, seed: int, episodes: int, progress: Callable[[float], None] | None = None) -> Evaluation:
        """Play test episodes with a seed's policy. progress: as for `evaluate_policy`."""
        from evenhand.judge import evaluate_policy

        return evaluate_policy(
            self.env,
            self.policy(seed),
            episodes,
            self.task.config.gamma,
            seed,
            workers=self.request.workers,
            step_timeout=self.step_timeout,
            say=self.folder.say,
            progress=progress,
        )

    def keep(self, seed: int, result: Evaluation) -> None:
        """Keep test episodes in the folder, as those of a seed."""
        self.folder.write_json(self.folder.evaluation(f"seed-{seed}"), result.record())

    def test(self, seed: int, episodes: int, progress: Callable[[float], None] | None = None) -> Evaluation:
        """Play test episodes with a seed's policy, and keep the result."""
        result = self.play(seed, episodes, progress)
        self.keep(seed, result)
        return result

    def evaluations(self) -> dict[int, Evaluation]:
        """The tests that were kept, by seed."""
        files = {seed: self.folder.evaluation(f"seed-{seed}") for seed in self.seeds}
        return {seed: read_evaluation(file, self.request) for seed, file in files.items() if file.exists()}

    def metrics(self) -> Any:
        """The metrics of all seeds, as a Polars table."""
        import polars as pl

        files = {seed: self.folder.metrics(seed) for seed in self.seeds}
        tables = [read_table(file).with_columns(seed=pl.lit(seed)) for seed, file in files.items() if file.exists()]
        if not tables:
            raise InputError(f"{self.path} has no metrics yet.")
        if any(table.schema != tables[0].schema for table in tables):
            raise InputError(f"the metrics of {self.path} are damaged: those of its seeds have different columns.")
        return pl.concat(tables)


def read_evaluation(file: Path, request: Request | None = None) -> Evaluation:
    """Test episodes that were kept. request: that of the run they should be of."""
    from evenhand.judge import Evaluation

    content = read_json(file)
    try:
        found = Evaluation.from_record(content)
    except InputError as error:
        raise InputError(f"{file} is damaged: {error}") from None
    if request is not None and found.objectives != request.objectives:
        raise InputError(f"{file} is damaged: its users are others than those of the run.")
    return found


def _updates(found: Checkpoint, per_update: int) -> int:
    """How many updates a checkpoint has behind it."""
    done: Any = found.extra.get("updates")
    if not whole(done, 0) or done * per_update != found.step:
        raise InputError(f"checkpoint {found.path.name} is damaged: its updates are not those of its steps.")
    return int(done)


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
) -> tuple[Request, Any]:
    """Check everything before any work starts; the request, and the environment where a name does not tell it."""
    from evenhand.envs import factory, resolve
    from evenhand.envs.host import HostEnv
    from evenhand.runs.settings import ALGORITHMS

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
    _check_actions(algo, name, resolved.action_space)
    if steps is not None and (isinstance(steps, bool) or not math.isfinite(steps) or steps != int(steps)):
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
    request = Request.asked(
        env=env if isinstance(env, str) else None,
        name=name,
        arguments=given,
        training=training,
        objectives=list(resolved.objectives),
        algo=algo,
        welfare=chosen.name,
        preset=preset,
        settings=dataclasses.asdict(found.config),
        steps=found.steps,
        seeds=_seeds(seeds),
        workers=workers,
        episodes=episodes,
    )
    return request, None if isinstance(env, str) else env


def _is_made(env: Any) -> bool:
    """Whether it is an environment, and not what makes one."""
    return not isinstance(env, (str, type)) and not callable(env)


def _taken(env: Any, given: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Of a preset's arguments for training, those that can be handed over and that the user has not set."""
    return {} if _is_made(env) else {name: value for name, value in more.items() if name not in given}


def _check_actions(algo: str, name: str, space: Any) -> None:
    """Refuse actions that an algorithm cannot choose among."""
    from evenhand.types import Box

    if algo == "dqn" and isinstance(space, Box):
        raise InputError(f"dqn needs a finite number of actions, and those of {name} are continuous: use ppo or a2c.")
    if isinstance(space, Box) and not space.bounded:
        raise InputError(f"the actions of {name} have no bounds: give its action space finite ones.")


def _check_memory(env: Any, task: Task) -> None:
    """Refuse, before it is tried, what this machine cannot hold: the state of a run, and the steps of an update."""
    import jax

    from evenhand.loops import template

    state = sum(math.prod(leaf.shape) * 4 for leaf in jax.tree.leaves(template(env, task)))
    steps = 4 * task.config.steps_per_update * (2 * task.observation_size + len(env.objectives))
    if state + steps > memory():
        raise InputError(
            f"this run would take {(state + steps) / 2**30:,.0f} GiB of memory, and this machine has "
            f"{memory() / 2**30:,.0f}: take fewer envs, a shorter rollout, or smaller networks."
        )


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
