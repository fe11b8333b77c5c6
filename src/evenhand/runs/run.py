"""Training runs as they lie in their folders: what was asked, the policies of each seed, and how they were tested."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.disk import read_json
from evenhand.envs.registry import import_module, installed_only, module_to_import, resolve
from evenhand.errors import InputError, Say
from evenhand.evaluation.result import Evaluation
from evenhand.runs.checkpoint import newest_record
from evenhand.runs.folder import RunFolder
from evenhand.runs.metrics_file import Curve, curve_in, read_table
from evenhand.runs.request import OWN, Request, check_actions, is_made
from evenhand.welfare import Welfare

if TYPE_CHECKING:
    from evenhand.evaluation.policy import Policy
    from evenhand.training.task import Task


def load(
    folder: str | os.PathLike[str],
    seed: int | None = None,
    *,
    env: Any = None,
    welfare: Welfare | None = None,
    trust: bool = False,
) -> Policy:
    """The policy that a run has learnt so far; of several seeds, the first unless one is named.

    env, welfare, trust: as for `resume`.
    """
    return Run(RunFolder.open(folder), env, trust, _welfare=welfare).policy(seed)


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
    """Seconds that a step may take (see `evenhand.envs.gym.vector.VectorEnv`)."""
    _welfare: Welfare | None = None
    """What is maximised, where no text stands for it."""

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
        found = self._welfare or self.request.social_welfare
        if found is None:
            name = self.request.welfare.removeprefix(OWN)
            raise InputError(
                f"{self.path} was trained for the welfare {name!r}, which only its Python program has: hand it over "
                "again, as in evenhand.load(folder, welfare=...)."
            )
        if len(self.request.objectives) != found.D:
            raise InputError(
                f"{self.path} is a run for {len(self.request.objectives)} users, the welfare for {found.D}."
            )
        return found

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
        env = self.training_env  # first, since it may import what the rest asks for
        return self._task(env.observation_space.n, env.action_space)

    def _task(self, observation_size: int, actions: Any) -> Task:
        from evenhand.training.task import Task

        config = self.request.config
        check_actions(self.request.algo, self.request.name, actions)
        return Task(self.request.algo, config, self.welfare, observation_size, actions)

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
        env = self._env if self._env is not None else self.request.env
        if env is None:
            raise InputError(
                f"{self.path} was trained on an environment that only its Python program can make: "
                "hand it over again, as in evenhand.load(folder, env=...)."
            )
        arguments = {**self.request.arguments, **more}
        if self._env is not None:
            found = resolve(env, {} if is_made(env) else arguments)
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
        env = self.request.env
        module = module_to_import(env, arguments) if env else None
        if module is not None:
            raise InputError(
                f"{self.path} asks for the environment {env!r}, for which the module {module!r} would be imported, and "
                f"its code run. If you know it, name it yourself: --env-module {module}, in Python env={env!r}; or say "
                "--trust, in Python trust=True."
            )

    def complete(self, seed: int) -> bool:
        """Whether a seed is trained and tested."""
        tested = self.request.episodes == 0 or self.folder.evaluation(f"seed-{seed}").exists()
        return tested and self.folder.finished(seed)

    # Results

    def policy(self, seed: int | None = None) -> Policy:
        """What a seed has learnt, by its newest checkpoint."""
        from evenhand.training.loop import template

        seed = self.seeds[0] if seed is None else seed
        like = template(self.training_env, self.task)
        found = self.folder.newest(seed, like)
        if found is None:
            raise InputError(f"{self.path} has no checkpoint of seed {seed} yet.")
        return self.policy_of(seed, found.tree.agent)

    def policy_of(self, seed: int, agent: Any) -> Policy:
        """The policy of a state of the algorithm."""
        from evenhand.evaluation.policy import Policy

        return Policy(self.env, self.task, self.task.agent.acting(agent), f"{self.name} seed {seed}")

    def export(self, path: str | os.PathLike[str], seed: int | None = None) -> Path:
        """Write a seed's policy into one safetensors file, which NumPy alone can run (docs/deploy.md).

        No environment is made, except for runs of versions that did not keep what acting needs to know of it.
        """
        from evenhand.runs.policy_file import Spaces, export_policy
        from evenhand.training.loop import learnt_template

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
        task = self._task(spaces.observation_size, spaces.actions)
        found = self.folder.newest(seed, learnt_template(task), lambda _: None, part=True)
        if found is None:
            raise InputError(f"{self.path} has no checkpoint of seed {seed} any more.")
        about = {"environment": self.request.name, "steps": found.step}
        name = f"{self.name} seed {seed}"
        return export_policy(task, found.tree.agent, spaces, self.request.objectives, name, path, about)

    def play(
        self,
        seed: int,
        episodes: int,
        progress: Callable[[float], None] | None = None,
        policy: Policy | None = None,
    ) -> Evaluation:
        """Play test episodes with a seed's policy: the one given, or what it has saved. progress: its share done."""
        from evenhand.evaluation.playing import evaluate_policy

        return evaluate_policy(
            self.env,
            policy or self.policy(seed),
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

    def test(
        self,
        seed: int,
        episodes: int,
        progress: Callable[[float], None] | None = None,
        policy: Policy | None = None,
    ) -> Evaluation:
        """The same, and keep the result."""
        result = self.play(seed, episodes, progress, policy)
        self.keep(seed, result)
        return result

    def evaluations(self) -> dict[int, Evaluation]:
        """The tests that were kept, by seed."""
        files = {seed: self.folder.evaluation(f"seed-{seed}") for seed in self.seeds}
        return {seed: read_evaluation(file, self.request) for seed, file in files.items() if file.exists()}

    def tests(self, say: Say, episodes: int = 50) -> dict[int, Evaluation]:
        """The tests that a finished run has kept, by seed; what it lacks is played now, and kept if possible."""
        for seed in self.seeds:
            progress = self.folder.progress(seed)
            if not progress.finished:
                raise InputError(
                    f"{self.path} is not finished (seed {seed}: {progress.step:,} of {progress.steps:,} steps): "
                    f"evenhand resume {self.path} goes on with it."
                )
        found = self.evaluations()
        for seed in self.seeds:
            if seed not in found:
                say(f"playing {episodes} test episodes of {self.path}, seed {seed}")
                found[seed] = self.play(seed, episodes)
                try:
                    self.keep(seed, found[seed])
                except (InputError, OSError) as error:
                    say(f"what was played could not be kept: {error}")
        return found

    def curve(self, name: str) -> Curve | None:
        """The rewards per step of all seeds while they were trained; None if they are lost."""
        try:
            return curve_in(self.metrics(), name, self.request.objectives)
        except InputError:
            return None

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
    content = read_json(file)
    try:
        found = Evaluation.from_record(content)
    except InputError as error:
        raise InputError(f"{file} is damaged: {error}") from None
    if request is not None and found.objectives != request.objectives:
        raise InputError(f"{file} is damaged: its users are others than those of the run.")
    return found
