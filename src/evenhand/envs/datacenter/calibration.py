"""How close the data centre's simulator comes to real queues: the same policies in both, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from evenhand.envs.datacenter.backends import datacenter
from evenhand.envs.datacenter.policies import BackOff, RandomRates
from evenhand.envs.datacenter.trust import LATE, SENT, STILL, UNEVEN, reasons
from evenhand.envs.simulator_check import CheckRow, SimulatorCheck
from evenhand.errors import InputError, Say

MATRICES = ("staggered:0.2,0.3", "hotspot:2,3", "random")
LIMITS: Mapping[str, float] = {
    "queue": 0.02,  # mean difference of the fullest queue, of its limit
    "correlation": 0.99,  # at least, where there is congestion
    "reward": 0.2,  # mean difference of a host's reward, where rates go to 10
    "dropped": 0.1,  # share
    "delivered": 0.03,  # share
    "delivered in overload": 0.1,
}
CONGESTED = 0.02
"""Of its limit: where the fullest queue varies by less (standard deviation), there is nothing to correlate."""
SOME_DROPS = 0.01
"""Of the packets sent: fewer drops are chance."""
OVERLOAD = 0.05
"""Of the packets sent: with more drops the network is overloaded."""
TRIES = 3
"""Of an episode that is not to be trusted, the first among them."""


class Course(NamedTuple):
    """What happened in an episode, step by step."""

    fullest: Float[np.ndarray, " T"]
    """Queue, of its limit, after the step."""
    reward: Float[np.ndarray, "T H"]
    dropped: Float[np.ndarray, " T"]
    """Packets."""
    delivered: Float[np.ndarray, "T H"]
    """Mbit/s."""


@dataclass(frozen=True)
class PolicyCompared:
    """One policy with one matrix, in both."""

    matrix: str
    policy: str
    emulated: Course
    simulated: Course
    packets: float
    """That the hosts were to send."""
    sent: float
    """The share of them that was sent."""
    still: float
    """The share of the time in which the senders stood still."""
    uneven: float
    """How much the times at which rates came differ, of a step."""
    late: float
    """Seconds by which rates came too late, in all."""
    doubts: tuple[str, ...]
    """Why the emulated episode is not to be trusted; nothing if it is."""
    tries: int

    @property
    def queue(self) -> float:
        """The mean difference of the fullest queue."""
        return float(np.abs(self.emulated.fullest - self.simulated.fullest).mean())

    @property
    def correlation(self) -> float:
        """Of the fullest queue, over time; NaN without congestion."""
        if min(course.fullest.std() for course in (self.emulated, self.simulated)) < CONGESTED:
            return float("nan")
        return float(np.corrcoef(self.emulated.fullest, self.simulated.fullest)[0, 1])

    @property
    def reward(self) -> float:
        """The mean difference of a host's reward in a step."""
        return float(np.abs(self.emulated.reward - self.simulated.reward).mean())

    @property
    def dropped(self) -> float:
        """By which share more packets were dropped in the emulated network; NaN where hardly any are in either."""
        real, model = (float(course.dropped.sum()) for course in (self.emulated, self.simulated))
        return float("nan") if max(real, model) < SOME_DROPS * self.packets else real / max(model, 1.0) - 1

    @property
    def delivered(self) -> float:
        """By which share more was delivered in the emulated network."""
        return float(self.emulated.delivered.sum() / self.simulated.delivered.sum() - 1)

    @property
    def overloaded(self) -> bool:
        """Whether much is dropped."""
        return bool(self.simulated.dropped.sum() > OVERLOAD * self.packets)

    def beyond(self) -> list[str]:
        """The names of the limits that are not kept."""
        delivered = LIMITS["delivered in overload" if self.overloaded else "delivered"]
        kept = {
            "queue": self.queue <= LIMITS["queue"],
            "correlation": not self.correlation < LIMITS["correlation"],
            "reward": self.reward <= LIMITS["reward"],
            "dropped": not abs(self.dropped) > LIMITS["dropped"],
            "delivered": abs(self.delivered) <= delivered,
        }
        return [name for name, fine in kept.items() if not fine]

    def record(self) -> dict[str, Any]:
        """For programs."""
        numbers = ("queue", "correlation", "reward", "dropped", "delivered", "sent", "still", "uneven", "late", "tries")
        return {
            "matrix": self.matrix,
            "policy": self.policy,
            **{name: getattr(self, name) for name in numbers},
            "overloaded": self.overloaded,
            "beyond": self.beyond(),
            "doubts": list(self.doubts),
        }


def compare(settings: Mapping[str, Any], seed: int = 0, say: Say = lambda _: None) -> Iterator[PolicyCompared]:
    """Play six policies with three matrices, or with the one of the settings, in both.

    settings: those of `evenhand.envs.datacenter.backends.datacenter`, without the backend.
    """
    if "backend" in settings:
        raise InputError("both backends are compared: leave the setting backend out.")
    if settings.get("fresh_traffic"):
        raise InputError("both backends must have the same traffic: leave the setting fresh_traffic out.")
    for matrix in (settings["traffic"],) if "traffic" in settings else MATRICES:
        env: Any = datacenter(backend="emulated", **{**settings, "traffic": matrix})
        try:
            constant = [policy for policy in env.baselines if policy.name != "GGF optimum"]
            hosts, queues, capacity = env.model.tree.hosts, env.model.tree.queues, float(env.model.capacity)
            for policy in (*constant, RandomRates(hosts, capacity, seed), BackOff(hosts, queues, capacity)):
                say(f"{matrix}: {policy.name}")
                tries: list[PolicyCompared] = []
                while not tries or (tries[-1].doubts and len(tries) < TRIES):
                    tries.append(_compared(env, matrix, policy, seed, len(tries) + 1))
                yield min(tries, key=lambda found: (len(found.doubts), found.late, -found.sent))
        finally:
            env.close()


def _compared(env: Any, matrix: str, policy: Any, seed: int, tries: int) -> PolicyCompared:
    queues, capacity = env.model.tree.queues, env.model.capacity
    observation, info = env.reset(seed=seed)
    rates: list[Any] = []
    rows: list[Any] = []
    truncated = False
    while not truncated:
        rates.append(chosen(policy, observation, len(rates), capacity))
        observation, reward, _, truncated, info = env.step(rates[-1])
        rows.append((observation[:queues].max(), reward, info["dropped"], info["delivered"]))
    packets = float(np.sum(rates)) * 1e6 / 8 * env.model.interval / 1500
    summary = info["summary"]
    return PolicyCompared(
        matrix,
        policy.name,
        _course(rows),
        simulated(env.model, policy),
        packets,
        sent=summary[SENT],
        still=summary[STILL],
        uneven=summary[UNEVEN],
        late=summary[LATE],
        doubts=tuple(reasons(summary)),
        tries=tries,
    )


def simulated(model: Any, policy: Any) -> Course:
    """An episode of the simulator."""
    key, step = jax.random.key(0), jax.jit(model.step)
    queues = model.tree.queues
    state, observation = model.reset(key)
    rows = []
    for number in range(model.episode_steps):
        after = step(state, chosen(policy, np.asarray(observation), number, model.capacity), key)
        state, observation = after.state, np.asarray(after.observation)
        dropped = observation[3 * queues : 4 * queues].sum()
        rows.append((observation[:queues].max(), after.reward, dropped, state.delivered))
    return _course(rows)


def chosen(policy: Any, observation: Any, step: int, capacity: float | int) -> Float[np.ndarray, " H"]:
    """The rates that a policy chooses for what it sees."""
    return np.clip(policy.decide(observation, step), 0, capacity).astype(np.float32)


def _course(rows: list[Any]) -> Course:
    return Course(*(np.array(column, float) for column in zip(*rows, strict=True)))


NOTHING = "–"


def calibrate(
    settings: Mapping[str, Any],
    play: Callable[..., Any],
    episodes: int | None = None,
    seed: int = 0,
    say: Say = lambda _: None,
) -> SimulatorCheck:
    """All of it, in a table and for programs (see `evenhand.envs.registry.Domain.calibration`)."""
    if episodes is not None:
        raise InputError("a data centre is compared step by step, in one episode each: leave --episodes out.")
    found = list(compare(settings, seed, say))
    beyond, doubted = [pair for pair in found if pair.beyond()], [pair for pair in found if pair.doubts]
    rows, matrix = [], None
    for pair in found:
        if pair.matrix != matrix:
            matrix = pair.matrix
            rows.append(CheckRow((matrix,), "bold", True))
        numbers = (
            f"{pair.queue:.4f}",
            _or_nothing(pair.correlation, "{:.4f}"),
            f"{pair.reward:.3f}",
            _or_nothing(pair.dropped, "{:+.1%}"),
            f"{pair.delivered:+.1%}",
            f"{pair.sent:.3f}",
            f"{pair.still:.0%}",
            f"{pair.uneven:.0%}",
            f"{pair.late:.2f}",
        )
        rows.append(CheckRow((f"  {pair.policy}", *numbers, "?" if pair.doubts else "✗" if pair.beyond() else "✓")))
    notes = [
        f"All limits are kept ({len(found)} pairs of a matrix and a policy)."
        if not beyond
        else "Not within the limits: "
        + "; ".join(f"{pair.matrix}, {pair.policy} ({', '.join(pair.beyond())})" for pair in beyond)
        + "."
    ]
    if again := sum(pair.tries - 1 for pair in found):
        notes.append(f"{again} episodes were played again, because the machine was too busy or too slow for them.")
    if doubted:
        notes.append(
            f"Not to be trusted: {len(doubted)} of {len(found)} pairs (?), for which it was so even then. The "
            "differences are partly the machine's: repeat this when it has less to do."
        )
    differences = ("queue", "corre-\nlation", "reward", "dropped", "deli-\nvered")
    return SimulatorCheck(
        title="The simulator beside the emulated network",
        about=f"differences, of an episode each: {', '.join(dict.fromkeys(pair.matrix for pair in found))}",
        headings=("", *differences, "sent /\nasked", "still", "un-\neven", "late\ns", " "),
        rows=tuple(rows),
        notes=tuple(notes),
        record={
            "arguments": dict(settings),
            "seed": seed,
            "limits": dict(LIMITS),
            "pairs": [pair.record() for pair in found],
            "within": not beyond,
            "trusted": not doubted,
        },
        good=not beyond and not doubted,
    )


def _or_nothing(value: float, form: str) -> str:
    return NOTHING if math.isnan(value) else form.format(value)
