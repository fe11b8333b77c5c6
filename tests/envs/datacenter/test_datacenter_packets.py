"""The fluid model against a simulation of single packets, which shares nothing with it but the paths."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evenhand.envs.datacenter import Datacenter
from evenhand.envs.datacenter.simulator import PACKET
from evenhand.envs.datacenter.topology import NO_QUEUE

STEPS = 100


class Seen(NamedTuple):
    fullest: np.ndarray
    """How full the fullest queue is at the end of each step."""
    goodput: float
    """Of all hosts together, in Mbit/s."""
    dropped: float
    """Packets."""


def in_packets(env: Datacenter, rates: np.ndarray) -> Seen:
    """Hosts send packets at almost regular times; every port is a first-in, first-out queue of bytes."""
    random = np.random.default_rng(0)
    speed, limit = env.capacity * 1e6 / 8, env.port.limit  # bytes per second, bytes
    hops = [
        [layer * 16 + int(queue) for layer, queue in enumerate(path) if queue != NO_QUEUE] for path in env.route.queue.T
    ]
    gaps = PACKET / (rates[env.route.source] * env.route.share * 1e6 / 8)
    done = np.zeros(env.tree.queues)  # when each port will have sent what it has
    events = [(random.uniform(0, gap), flow, -1) for flow, gap in enumerate(gaps)]
    heapq.heapify(events)
    fullest: list[float] = []
    delivered = dropped = 0
    while True:
        now, flow, hop = heapq.heappop(events)
        while now >= (at := (len(fullest) + 1) * env.interval):
            fullest.append(float(np.maximum(done - at, 0).max() * speed / limit))
            if len(fullest) == STEPS:
                return Seen(np.array(fullest), delivered * PACKET * 8e-6 / (STEPS * env.interval), dropped)
        if hop < 0:  # a new packet
            heapq.heappush(events, (now + gaps[flow] * random.uniform(0.9, 1.1), flow, -1))
            hop = 0
        if hop == len(hops[flow]):
            delivered += 1
            continue
        queue = hops[flow][hop]
        if max(0.0, done[queue] - now) * speed + PACKET > limit:
            dropped += 1
            continue
        done[queue] = max(done[queue], now) + PACKET / speed
        heapq.heappush(events, (done[queue], flow, hop + 1))


def as_fluid(env: Datacenter, rates: np.ndarray) -> Seen:
    def one(state: object, _: None) -> tuple[object, tuple[jax.Array, jax.Array, jax.Array]]:
        after = env.step(state, jnp.asarray(rates, jnp.float32), jax.random.key(0))
        seen = after.observation[: 4 * env.tree.queues].reshape(4, -1)
        return after.state, (seen[0].max(), after.state.delivered.sum(), seen[3].sum())

    fullest, goodput, dropped = jax.lax.scan(one, env.reset(jax.random.key(0))[0], None, STEPS)[1]
    return Seen(np.asarray(fullest), float(goodput.mean()), float(dropped.sum()))


@pytest.mark.parametrize(
    ("traffic", "rates"),
    [
        ("staggered:0.2,0.3", np.full(16, 10.0)),
        ("hotspot", np.linspace(2, 10, 16)),
        ("random", np.full(16, 5.5)),
        ("flows:2", np.linspace(10, 2, 16)),
    ],
)
def test_the_same_queues_goodput_and_drops(traffic: str, rates: np.ndarray) -> None:
    env = Datacenter(traffic)
    fluid, packets = as_fluid(env, rates), in_packets(env, rates)
    assert packets.dropped > 1000  # there is congestion
    assert np.abs(fluid.fullest - packets.fullest).mean() < 0.01
    assert np.corrcoef(fluid.fullest, packets.fullest)[0, 1] > 0.99
    assert fluid.goodput == pytest.approx(packets.goodput, rel=0.03)
    assert fluid.dropped == pytest.approx(packets.dropped, rel=0.1)


def test_rates_that_fit_leave_short_queues_in_packets_too() -> None:
    """Where links are just full, the irregular times of packets make short queues that a fluid does not know."""
    env = Datacenter("hotspot")
    fair = np.array(next(policy.rates for policy in env.baselines if policy.name == "max-min fair"))
    fluid, packets = as_fluid(env, fair), in_packets(env, fair)
    assert fluid.fullest.max() < 1e-5
    assert packets.fullest.max() < 0.04
    assert packets.dropped == fluid.dropped == 0
    assert fluid.goodput == pytest.approx(packets.goodput, rel=0.01)
