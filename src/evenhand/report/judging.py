"""What learned policies are held against: simple policies, the exact optimum where it is known, and each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from evenhand.errors import InputError
from evenhand.report.learning import MEASURES, Curve, Outcome, outcome_record
from evenhand.runs.request import Request
from evenhand.welfare import Welfare

# What plays episodes imports JAX, which the program's help need not wait for: here too it is imported where it is used.

MOST_ACTIONS = 8
"""Up to so many actions, each has a policy that always takes it."""
CUT_OFF = 1e-3
"""The part of a discounted return that may lie beyond the end of an episode for it to count as endless."""
LONG = 1000
"""Steps of an episode, from which on its average is nearly that of the long run."""
EPISODES = 50


@dataclass(frozen=True)
class Reference:
    """The fairest that any policy can be, by the exact solver."""

    returns: Float[np.ndarray, " D"]
    welfare: float
    note: str


def baselines(env: Any) -> Iterator[tuple[str, Any]]:
    """Policies that need no learning, with their names: at random, and always the same action.

    An environment may bring better ones of its own, which then take the place of the latter.
    env: as `evenhand.envs.resolve` gives it.
    """
    from evenhand.types import Box

    yield "random", "random"
    own = getattr(env, "baselines", ())
    if own:
        yield from ((policy.name, policy) for policy in own)
    elif isinstance(env.action_space, Box):
        yield from ((f"always {name}", share) for name, share in (("low", 0.0), ("middle", 0.5), ("high", 1.0)))
    elif env.action_space.n <= MOST_ACTIONS:
        names = action_names(env)
        for action in range(env.action_space.n):
            yield f"always {names[action] if names else action}", action


def cycles(
    env: Any, holds: Sequence[int], episodes: int, seed: int = 0, say: Callable[[str], None] = lambda _: None
) -> dict[int, Any]:
    """Test episodes of the fixed cycle of a traffic light, by how many decisions each phase is held.

    env: traffic, as `evenhand.envs.resolve` gives it. The same seed gives the same traffic to all of them.
    """
    from evenhand.envs.traffic.policies import FixedCycle
    from evenhand.judge import evaluate_policy

    if not any(isinstance(policy, FixedCycle) for policy in getattr(env, "baselines", ())):
        raise InputError("only traffic lights have phases that can take turns: evenhand cycle traffic.")
    policies = [FixedCycle(hold) for hold in holds]
    found = {}
    for policy in policies:
        say(f"playing {episodes} test episodes with the policy {policy.name}")
        found[policy.hold] = evaluate_policy(env, policy, episodes, seed=seed)
    return found


def best_cycle(tests: Mapping[int, Any], welfare: Welfare) -> int:
    """Of the cycles tested, the hold with the greatest welfare; of equal ones the shortest."""
    return max(sorted(tests), key=lambda hold: tests[hold].summary(welfare)["welfare"])


def facts(name: str, tests: Sequence[Any]) -> dict[str, dict[str, float]]:
    """What else the environment counted in test episodes, on average, by the policy's name; empty if nothing."""
    counted = {fact: float(np.mean([test.facts[fact].mean() for test in tests])) for fact in tests[0].facts}
    return {name: counted} if counted else {}


def doubts(counted: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What is to be said of emulated networks for which the machine was too busy or too slow."""
    if not counted:
        return []
    from evenhand.envs.datacenter.trust import DOUBTFUL, reasons

    said = []
    for name, facts in counted.items():
        if (share := facts.get(DOUBTFUL, 0.0)) > 0:
            which = "" if share == 1 else f" in {share:.0%} of the episodes"
            why = f" ({', '.join(reasons(facts))})" if reasons(facts) else ""
            said.append(f"{name}: {DOUBTFUL}{which}{why}.")
    if said:
        said.append("The machine was too busy or too slow for the network: repeat these when it has less to do.")
    return said


def backend_of(name: str, arguments: Mapping[str, Any]) -> str | None:
    """On which backend an environment of ours runs; None if it has only one."""
    usual = {"datacenter": "simulated", "traffic": "sumo"}.get(name)
    return None if usual is None else str(arguments.get("backend", usual))


def try_out(env: Any) -> None:
    """Begin an episode and leave it, so that what is missing on this machine is said before any work."""
    from evenhand.envs.host import HostEnv

    if isinstance(env, HostEnv) and env.real_time:
        made = env.make()
        try:
            made.reset(seed=0)
        finally:
            made.close()


def action_names(env: Any) -> Sequence[str] | None:
    """What the actions of an environment are called, where it says so."""
    from evenhand.envs.species import ACTIONS, Species

    return ACTIONS if isinstance(env, Species) else getattr(env, "action_names", None)


def reference(env: Any, welfare: Welfare, measure: str, gamma: float, lengths: Any) -> Reference | str:
    """The exact optimum of an environment, or in words why there is none.

    lengths: of the test episodes, in steps.
    """
    from evenhand.envs.species import Species

    if not isinstance(env, Species):
        return "there is an exact optimum for species only."
    from evenhand.envs.species_reference import SpeciesReference

    shortest, mean = int(np.min(lengths)), float(np.mean(lengths))
    if measure == "discounted":
        if gamma**shortest > CUT_OFF:
            return f"episodes of {shortest} steps are too short for the exact optimum at γ = {gamma:g}."
        optimum, scale = SpeciesReference(env).discounted(welfare, gamma), 1.0
        note = f"exact optimum: of a finite model of {_about(env)}, proven to {optimum.gap:.0e}."
    else:
        if shortest < LONG:
            return f"episodes of {shortest} steps are too short for the exact optimum, which is that of the long run."
        optimum, scale = SpeciesReference(env).average(welfare), mean if measure == "return" else 1.0
        note = f"exact optimum: in the long run, of a finite model of {_about(env)}, proven to {optimum.gap:.0e}."
    returns = scale * optimum.returns
    return Reference(returns, float(welfare.value(returns)), note)


def _about(env: Any) -> str:
    response = env.response if isinstance(env.response, str) else "this"
    return f"species with a {response} response"


def kept_tests(run: Any, say: Callable[[str], None]) -> dict[int, Any]:
    """The test episodes that a finished run has kept, by seed; what it lacks is played now, and kept if possible."""
    for seed in run.seeds:
        progress = run.folder.progress(seed)
        if not progress.finished:
            raise InputError(
                f"{run.path} is not finished (seed {seed}: {progress.step:,} of {progress.steps:,} steps): "
                f"evenhand resume {run.path} goes on with it."
            )
    found = run.evaluations()
    for seed in run.seeds:
        if seed not in found:
            say(f"playing {EPISODES} test episodes of {run.path}, seed {seed}")
            found[seed] = run.play(seed, EPISODES)
            try:
                run.keep(seed, found[seed])
            except (InputError, OSError) as error:
                say(f"what was played could not be kept: {error}")
    return found


def outcome(name: str, tests: Sequence[Any], measure: str, kind: str = "run") -> Outcome:
    """Evaluations, one for each seed, as a row of a table."""
    return Outcome(name, np.stack([test.returns(measure) for test in tests]), kind)


def curve(name: str, run: Any) -> Curve | None:
    """The rewards per step of all seeds of a run while it was trained; None if they are lost."""
    try:
        table = run.metrics()
    except InputError:
        return None
    columns = [f"reward/{objective}" for objective in run.request.objectives]
    if not set(columns) <= set(table.columns):
        return None
    by_seed = [part.select("step", *columns).to_numpy() for _, part in table.group_by("seed", maintain_order=True)]
    steps = [part[:, 0] for part in by_seed]
    if not all(np.array_equal(steps[0], other) for other in steps[1:]):
        return None
    return Curve(name, steps[0].astype(int), np.stack([part[:, 1:] for part in by_seed]))


def names(runs: Sequence[Any]) -> list[str]:
    """What to call runs in one table: GGF-PPO, and the folder too where that would not tell them apart."""
    called = [run.name for run in runs]
    return [
        f"{name} ({run.path.name})" if called.count(name) > 1 else name for name, run in zip(called, runs, strict=True)
    ]


def same_environment(runs: Sequence[Any]) -> None:
    """Refuse runs whose numbers have nothing to do with each other."""
    first = runs[0]
    for run in runs[1:]:
        if _environment(run.request) != _environment(first.request):
            raise InputError(
                f"only runs of the same environment can be compared, but {first.path} is of "
                f"{_environment(first.request)} and {run.path} of {_environment(run.request)}."
            )


def _environment(request: Request) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in sorted(request.arguments.items()))
    return f"{request.name} ({arguments})" if arguments else request.name


def measure_of(asked: str | None, tests: Sequence[Any]) -> str:
    """The one asked for, or sums where any episode ended by itself, and averages otherwise."""
    return asked or ("return" if any(test.natural_measure == "return" for test in tests) else "average")


def meaning(measure: str, run: Any) -> str:
    """A measure in words, for a run."""
    gamma = f", γ = {run.request.config.gamma:g}" if measure == "discounted" else ""
    return MEASURES[measure] + gamma


def record(run: Any, found: Sequence[Outcome], measure: str, welfare: Welfare, optimum: float | None) -> dict[str, Any]:
    """A table of outcomes, for programs."""
    objectives = list(run.request.objectives)
    return {
        "environment": run.request.name,
        "objectives": objectives,
        "measure": measure,
        "gamma": run.request.config.gamma,
        "welfare": welfare.name,
        "policies": [outcome_record(outcome, objectives, welfare, optimum) for outcome in found],
    }


def listed(words: Any, most: int = 8) -> str:
    """The first few words."""
    words = list(words)
    return ", ".join(words[:most]) + (", …" if len(words) > most else "")
