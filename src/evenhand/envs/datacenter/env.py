"""Data-centre bandwidth: how fast may each host send, so that queues stay short and all get their share?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from evenhand.envs.datacenter import allocation, simulator
from evenhand.envs.datacenter.policies import ConstantRates
from evenhand.envs.datacenter.signals import (
    LEAST_RATE,
    REWARDS,
    ROUNDING,
    observation_bounds,
    observed,
    rewarded,
)
from evenhand.envs.datacenter.simulator import Port, Queues, Route
from evenhand.envs.datacenter.topology import LAYERS, FatTree, path_table
from evenhand.envs.datacenter.traffic import Flows, Pattern, matrix
from evenhand.envs.drawing import line_plot
from evenhand.errors import InputError
from evenhand.types import Box, PRNGKey, Step
from evenhand.welfare import GGF

GOODPUT = "goodput"
"""Of each host, in Mbit/s."""


class DatacenterState(NamedTuple):
    """What waits in the network, and what the controller allowed last."""

    backlog: Float[Array, "5 F"]
    """Bytes of each flow in its queue of each layer."""
    waiting: Float[Array, "5 Q"]
    """The same by queue."""
    rates: Float[Array, " H"]
    """In force, in Mbit/s."""
    delivered: Float[Array, " H"]
    """What arrived in the last step of each host's traffic, in Mbit/s: its goodput."""
    queue: Int[Array, "5 F"] | None
    """The paths of this episode's flows, where every episode has traffic of its own."""
    step: Int[Array, ""]


@dataclass(frozen=True)
class Datacenter:
    """Set the bandwidth of each host of a fat-tree network, several times a second.

    Every flow wants to send as fast as its host's link allows, all the time, so that what a host sends is what it is
    allowed to send, shared equally among its flows. An episode is only ever truncated.
    """

    traffic: str = "staggered:0.2,0.3"
    """Who sends to whom: staggered:0.2,0.3 (with these probabilities to the same edge switch, to the same pod),
    stride:4, random, bijection, hotspot:2,3 (two hot hosts with three senders each), flows:2 (so many per host), or a
    CSV file with the columns src and dst, as Iroko has them."""
    traffic_seed: int = 0
    """Which of the matrices of a random pattern."""
    fresh_traffic: bool = False
    """Whether every episode draws a matrix of its own; then traffic_seed plays no part."""
    routing_seed: int = 0
    """Which of equal paths the flows take."""
    reward: str = "paper"
    """paper: a − 2 a max q, a the host's rate in Mbit/s and q how full the queues were when it was chosen; path-local:
    the same, but of the queues that the host's flows pass; goodput: what is delivered of the host's traffic, in
    Mbit/s."""
    interval: float | int = 0.05
    """Seconds of a step."""
    episode_steps: int = 200
    """Steps until an episode is truncated."""
    k: int = 4
    """Ports of a switch: there are k³/4 hosts."""
    capacity: float | int = 10
    """Mbit/s of every link."""
    flows: tuple[tuple[int, int], ...] = field(init=False, repr=False)
    """Source and destination of each flow; with fresh traffic, those of one example. Part of what the environment is: a
    file may change."""

    def __post_init__(self) -> None:
        if self.reward not in REWARDS:
            raise InputError(f"reward must be {', '.join(REWARDS)}, not {self.reward!r}.")
        for name in ("interval", "capacity"):
            value = getattr(self, name)
            if not isinstance(value, float | int) or not (np.isfinite(value) and value > 0):
                raise InputError(f"{name} must be a positive number, not {value!r}.")
        for name in ("traffic_seed", "routing_seed", "episode_steps"):
            if not isinstance(getattr(self, name), int):
                raise InputError(f"{name} must be a whole number, not {getattr(self, name)!r}.")
        if self.capacity < LEAST_RATE:
            raise InputError(f"capacity must be at least {LEAST_RATE} Mbit/s, what a host may send at least.")
        if self.episode_steps < 1:
            raise InputError(f"an episode needs at least one step, not {self.episode_steps}.")
        if not isinstance(self.traffic, str):
            raise InputError(f"traffic must be a text such as staggered:0.2,0.3, not {self.traffic!r}.")
        asked = matrix(self.traffic, self.tree)
        if self.fresh_traffic and not (isinstance(asked, Pattern) and asked.random):
            raise InputError(f"{self.traffic} is always the same traffic: fresh_traffic needs a random pattern.")
        source, destination = asked.draw(jax.random.key(self.traffic_seed)) if isinstance(asked, Pattern) else asked
        object.__setattr__(self, "flows", tuple(zip(source.tolist(), destination.tolist(), strict=True)))

    # --- constants, computed once

    @cached_property
    def tree(self) -> FatTree:
        """The network."""
        return FatTree(self.k)

    @cached_property
    def paths(self) -> Int[np.ndarray, "H H 5"]:
        """The queues between any two hosts."""
        return path_table(self.tree, self.routing_seed)

    @cached_property
    def route(self) -> Route:
        """The paths of `flows`."""
        return simulator.route(Flows(*np.array(self.flows).T), self.paths)

    @cached_property
    def port(self) -> Port:
        """Of every link."""
        return simulator.port(self.capacity, self.interval)

    @cached_property
    def baselines(self) -> tuple[ConstantRates, ...]:
        """All at full rate; and, where the traffic is known, the best rates that leave the queues empty.

        The GGF is that with weights 1, 1/2, 1/4, … .
        """
        full = ConstantRates.of("maximum", np.full(self.tree.hosts, self.capacity))
        if self.fresh_traffic:
            return (full,)
        usage = allocation.usage(self.route, self.tree.hosts)
        equal = allocation.equal_share(usage, self.capacity)
        least = min(LEAST_RATE, float(equal.min()))
        best = {
            "equal share": equal,
            "max-min fair": allocation.max_min(usage, self.capacity),
            "GGF optimum": allocation.ggf(usage, self.capacity, GGF.geometric(self.tree.hosts).weights, least),
            "utilitarian optimum": allocation.utilitarian(usage, self.capacity, least),
        }
        return (full, *(ConstantRates.of(name, rates) for name, rates in best.items()))

    # --- the environment

    @property
    def objectives(self) -> tuple[str, ...]:
        """The hosts."""
        return tuple(f"host {number}" for number in range(1, self.tree.hosts + 1))

    @property
    def observation_space(self) -> Box:
        """See `evenhand.envs.datacenter.signals.observed`."""
        low, high = observation_bounds(self.tree, self.port, self.capacity)
        return Box.of(low, high, len(low))

    @property
    def action_space(self) -> Box:
        """A rate for each host, in Mbit/s; 0.01 is the least that is put into force."""
        return Box.of(0, self.capacity, self.tree.hosts)

    @property
    def reward_space(self) -> Box:
        """From everything at full rate into full queues to everything at full rate into empty ones."""
        most = self.capacity * (1 + ROUNDING)
        if self.reward == "goodput":  # what waits of one host's flows can arrive by several links at once
            return Box.of(0, most * int(np.bincount(self.route.source).max()), self.tree.hosts)
        return Box.of(-most, most, self.tree.hosts)

    def reset(self, key: PRNGKey) -> tuple[DatacenterState, Float[Array, " O"]]:
        """Empty queues, and every host at the least rate."""
        hosts = self.tree.hosts
        queue = None
        if self.fresh_traffic and isinstance(pattern := matrix(self.traffic, self.tree), Pattern):
            queue = jnp.asarray(simulator.route(pattern.draw(key), self.paths).queue, jnp.int32)
        nothing = jnp.zeros((len(LAYERS), hosts))
        rates = jnp.full(hosts, LEAST_RATE, jnp.float32)
        backlog = jnp.zeros((len(LAYERS), len(self.flows)))
        state = DatacenterState(backlog, nothing, rates, jnp.zeros(hosts), queue, jnp.int32(0))
        return state, observed(Queues(nothing, nothing, nothing, nothing), rates, self.port)

    def step(self, state: DatacenterState, action: Float[Array, " H"], key: PRNGKey) -> Step:
        """Put rates into force for one interval."""
        del key
        hosts, port = self.tree.hosts, self.port
        route = self.route if state.queue is None else self.route._replace(queue=state.queue)
        rates = jnp.clip(jnp.asarray(action, jnp.float32), LEAST_RATE, self.capacity)
        bytes_per_mbit = port.service / self.capacity  # sent in a step at 1 Mbit/s
        sent = rates[route.source] * (route.share * np.float32(bytes_per_mbit))
        backlog, arrived, queues = simulator.passed(state.backlog, sent, route.queue, hosts, port)
        delivered = jnp.zeros(hosts).at[route.source].add(arrived) / bytes_per_mbit
        after = DatacenterState(backlog, queues.backlog, rates, delivered, state.queue, state.step + 1)
        return Step(
            state=after,
            observation=observed(queues, rates, port),
            reward=rewarded(self.reward, rates, state.waiting / port.limit, delivered, route),
            terminated=jnp.array(False),
            truncated=after.step >= self.episode_steps,
        )

    def facts(self, state: DatacenterState) -> dict[str, Float[Array, " H"]]:
        """What tables show beside the rewards: what arrived of each host's traffic."""
        return {GOODPUT: state.delivered}

    def draw(self, history: Sequence[DatacenterState]) -> UInt8[np.ndarray, "height width 3"]:
        """A picture of the episode so far."""
        lines: dict[str, Any] = {
            "fullest queue": [np.max(state.waiting) / self.port.limit for state in history],
            "mean rate / capacity": [np.mean(state.rates) / self.capacity for state in history],
            "mean goodput / capacity": [np.mean(state.delivered) / self.capacity for state in history],
        }
        return line_plot(lines, across="step")
