"""The fluid model against what one can work out by hand, the conservation of bytes, and a plain NumPy version."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.envs.datacenter import Datacenter, FatTree, path_table, simulator
from evenhand.envs.datacenter.simulator import PACKET, Passed, Port, Route
from evenhand.envs.datacenter.traffic import Flows

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from datacenter_numpy import DatacenterNumpy

TREE = FatTree(4)
PATHS = path_table(TREE, 0)
PORT = simulator.port(10, 0.05)
EDGE_TO_HOST = 4


def route(*pairs: tuple[int, int]) -> Route:
    return simulator.route(Flows(*np.array(pairs).T), PATHS)


def sent(route: Route, mbits: list[float]) -> jnp.ndarray:
    """Bytes that flows send in a step of 0.05 s at so many Mbit/s each."""
    return jnp.array(mbits, jnp.float32) * 6250


def run(route: Route, mbits: list[float], steps: int, port: Port = PORT) -> list[Passed]:
    backlog, seen = jnp.zeros(route.queue.shape), []
    step = jax.jit(lambda backlog: simulator.passed(backlog, sent(route, mbits), route.queue, TREE.hosts, port))
    for _ in range(steps):
        seen.append(step(backlog))
        backlog = seen[-1].backlog
    return seen


def test_the_port_by_hand() -> None:
    """10 Mbit/s are 62,500 bytes in 0.05 s; the limit is 4e6 · 0.01 bytes, but at least 4e5."""
    assert pytest.approx((62_500, 400_000)) == PORT
    assert simulator.port(1000, 0.001) == pytest.approx((125_000, 4_000_000))


def test_a_host_shares_its_rate_among_its_flows() -> None:
    assert route((0, 1), (0, 5), (3, 0), (0, 7)).share.tolist() == pytest.approx([1 / 3, 1 / 3, 1, 1 / 3])


def test_what_fits_arrives_at_once() -> None:
    for step in run(route((0, 15), (1, 14), (2, 3)), [4.0, 5.0, 10.0], 3):
        np.testing.assert_allclose(step.delivered, [25_000, 31_250, 62_500])
        assert not step.backlog.any()
        assert not step.queues.dropped.any()
        assert not step.queues.over_limit.any()


def test_a_queue_fills_at_the_excess_rate_and_then_drops_in_proportion() -> None:
    """Hosts 0 and 2 send 9 and 6 Mbit/s to host 1, whose port carries 10: 5 Mbit/s = 31,250 bytes a step too many.

    After 12.8 steps the queue is full, and 31,250 bytes a step are dropped, 3 of 5 parts of them host 0's.
    """
    seen = run(route((0, 1), (2, 1)), [9.0, 6.0], 40)
    for number, step in enumerate(seen[:12], 1):
        assert float(step.queues.backlog[EDGE_TO_HOST, 1]) == pytest.approx(number * 31_250, rel=1e-5)
        assert float(step.queues.change[EDGE_TO_HOST, 1]) == pytest.approx(31_250, rel=1e-4)
        assert float(step.queues.dropped.sum()) == pytest.approx(0, abs=1e-3)
        assert float(step.queues.over_limit[EDGE_TO_HOST, 1]) == pytest.approx(62_500 / PACKET)
    assert float(seen[12].queues.backlog[EDGE_TO_HOST, 1]) == pytest.approx(400_000)
    last = seen[-1]
    assert float(last.queues.dropped[EDGE_TO_HOST, 1]) == pytest.approx(31_250 / PACKET, rel=1e-3)
    assert float(last.queues.change[EDGE_TO_HOST, 1]) == pytest.approx(0, abs=0.1)
    np.testing.assert_allclose(last.delivered, [62_500 * 0.6, 62_500 * 0.4], rtol=1e-3)
    np.testing.assert_allclose(last.backlog[EDGE_TO_HOST], [240_000, 160_000], rtol=1e-3)
    others = np.delete(np.asarray(last.queues.backlog).ravel(), EDGE_TO_HOST * 16 + 1)
    assert not others.any()


def test_a_queue_empties_at_the_spare_rate() -> None:
    """100,000 bytes wait and 4 Mbit/s arrive: 37,500 bytes fewer with every step, for 2.67 steps."""
    one = route((0, 1))
    backlog = jnp.zeros((5, 1)).at[EDGE_TO_HOST, 0].set(100_000)
    for left, busy in ((62_500, 1.0), (25_000, 1.0), (0, 25_000 / 37_500), (0, 0.0)):
        step = simulator.passed(backlog, sent(one, [4.0]), one.queue, TREE.hosts, PORT)
        backlog = step.backlog
        assert float(backlog[EDGE_TO_HOST, 0]) == pytest.approx(left, abs=0.1)
        assert float(step.queues.over_limit[EDGE_TO_HOST, 1]) == pytest.approx(busy * 62_500 / PACKET, abs=1e-3)


def test_two_flows_on_one_uplink_then_apart() -> None:
    """The narrow place is the shared link up: 10 + 10 Mbit/s go in and 5 + 5 come out, which fill no later queue."""
    first, second = next(
        ((0, a), (1, b)) for a in range(4, 16) for b in range(4, 16) if a != b and PATHS[0, a, 0] == PATHS[1, b, 0]
    )
    last = run(route(first, second), [10.0, 10.0], 30)[-1]
    np.testing.assert_allclose(last.delivered, [31_250, 31_250], rtol=1e-4)
    np.testing.assert_allclose(last.backlog[0], [200_000, 200_000], rtol=1e-4)
    assert not np.asarray(last.backlog[1:]).any()


passed = jax.jit(lambda backlog, sent, queue: simulator.passed(backlog, sent, queue, TREE.hosts, PORT))


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_bytes_are_conserved(seed: int, per_host: int) -> None:
    """For each queue and each flow: what is sent is delivered, dropped or still waiting."""
    env = Datacenter(f"flows:{per_host}", traffic_seed=seed, routing_seed=seed)
    random = np.random.default_rng(seed)
    backlog = jnp.zeros((5, len(env.flows)))
    total, dropped = np.zeros(len(env.flows)), 0.0
    delivered = np.zeros(len(env.flows))
    for _ in range(25):
        sending = random.uniform(0, 62_500, len(env.flows)).astype(np.float32)
        after = passed(backlog, jnp.asarray(sending), env.route.queue)
        np.testing.assert_allclose(after.queues.backlog.sum(), after.backlog.sum(), rtol=1e-5)
        assert float(after.backlog.min()) >= 0
        assert float(after.queues.backlog.max()) <= 400_000 * (1 + 1e-5)
        assert float(after.queues.dropped.min()) >= 0
        backlog = after.backlog
        total += sending
        delivered += np.asarray(after.delivered)
        dropped += float(after.queues.dropped.sum()) * PACKET
    waiting = np.asarray(backlog, float).sum(axis=0)
    assert total.sum() == pytest.approx(delivered.sum() + dropped + waiting.sum(), rel=1e-5)
    assert (delivered + waiting <= total * (1 + 1e-5) + 1).all()


@pytest.mark.parametrize(("traffic", "reward"), [("staggered:0.2,0.3", "paper"), ("flows:3", "path-local")])
def test_the_numpy_version_is_the_same(traffic: str, reward: str) -> None:
    """The one that the benchmark runs beside it: the same observations and rewards, but for rounding."""
    env = Datacenter(traffic, reward=reward, traffic_seed=3)
    plain = DatacenterNumpy(env.flows, env.paths, reward, env.interval, env.capacity)
    state, observation = env.reset(jax.random.key(0))
    np.testing.assert_allclose(plain.reset(), observation)
    random, step = np.random.default_rng(0), jax.jit(env.step)
    for _ in range(60):
        rates = random.uniform(0, 10, 16).astype(np.float32)
        after = step(state, rates, jax.random.key(0))
        observed, gained = plain.step(rates)
        state = after.state
        np.testing.assert_allclose(gained, after.reward, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(observed, after.observation, rtol=1e-3, atol=2e-2)
