"""The data centre on real queues: the same decisions, observations and rewards, but the Linux kernel carries it all."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Float, Float32, Int

from evenhand import metrics
from evenhand.envs.datacenter.emulation.netlink import Counts
from evenhand.envs.datacenter.env import GOODPUT, Datacenter, DatacenterState
from evenhand.envs.datacenter.network import Network, NetworkFailed, Reading, check_system
from evenhand.envs.datacenter.signals import LEAST_RATE, observed, rewarded
from evenhand.envs.datacenter.simulator import PACKET, Queues, Route, busy, route
from evenhand.envs.datacenter.topology import LAYERS
from evenhand.envs.datacenter.traffic import Flows, Pattern, matrix
from evenhand.envs.datacenter.trust import BEHIND, DOUBTFUL, ENOUGH, LATE, SENT, STILL, UNEVEN, reasons, verdict
from evenhand.envs.datacenter.wiring import plan
from evenhand.envs.gym.gym_env import checked_action
from evenhand.errors import InputError

STEADY = 2.0
"""Packets: a backlog that changes by less only shows that packets come one by one."""
SLACK = 0.002
"""Seconds by which the sender may be behind at any moment."""
WRAP = 2**32
"""The kernel's counters have 32 bits."""


class Passing(NamedTuple):
    """Of each queue, the bytes that waited before and after a step, and those that were sent and dropped in it."""

    before: Float32[Any, "5 Q"]
    after: Float32[Any, "5 Q"]
    sent: Float32[Any, "5 Q"]
    dropped: Float32[Any, "5 Q"]


class EmulatedEnv(gymnasium.Env[np.ndarray, Any]):
    """`Datacenter` on an emulated network, in real time.

    model: the settings; what it simulates plays no part.
    time_scale: how many times faster everything goes: links have so many times their capacity, and a step lasts that
        much shorter. All numbers that come and go are those of the network as it would be at its own pace.

    A step ends an interval after the one before, whenever the rates came: they are in force from then on, and until
    then the last ones are; what was sent too much or too little by then is made good. A network is made by the first
    `reset` and lasts until `close`; a pickled environment keeps its settings and its random generator, and has to be
    reset.

    The info of a step has `delivered`, what arrived of each host's traffic in Mbit/s; `dropped`, packets; `lag`, the
    part of the interval that was over when the rates came; `late`, seconds by which they came too late;
    `sent_of_requested`, which is less than 1 where the machine was too slow for its senders; and, below 0.97, a
    `warning`. The last one has a `summary` of the episode, and says in its `warning` if that is not to be trusted.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 (Gymnasium's own declaration)
    real_time = True
    """Whoever steps several of these by turns is too late for most."""

    def __init__(self, model: Datacenter, time_scale: float | int = 1, render_mode: str | None = None) -> None:
        check_system()
        if not isinstance(time_scale, float | int) or not (math.isfinite(time_scale) and time_scale > 0):
            raise InputError(f"time_scale must be a positive number, such as 4, not {time_scale!r}.")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InputError(f'render_mode must be "rgb_array" or None, not {render_mode!r}.')
        if model.tree.edges > 254:
            raise InputError(f"an emulated network has addresses for 254 edge switches, and k = {model.k} needs more.")
        self.model = model
        self.time_scale = time_scale
        self.render_mode = render_mode
        self.observation_space, self.action_space, self.reward_space = (
            spaces.Box(box.low, box.high, dtype=np.float32)
            for box in (model.observation_space, model.action_space, model.reward_space)
        )
        self.objectives = model.objectives
        self.reward_dim = len(model.objectives)
        self.baselines = model.baselines
        self._spec: Any = None
        self._plan: dict[str, Any] | None = None
        self._network: Network | None = None
        self._begun = False

    @property
    def spec(self) -> Any:
        """What Gymnasium knows of it."""
        return self._spec

    @spec.setter
    def spec(self, spec: Any) -> None:
        """Two episodes on a real network are never the same, whatever was registered."""
        self._spec = None if spec is None else replace(spec, nondeterministic=True)

    # --- episodes

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, " O"], dict[str, Any]]:
        """Empty all queues; with fresh traffic, draw who sends to whom."""
        super().reset(seed=seed)
        model, hosts = self.model, self.model.tree.hosts
        self._begun = False
        self._route, flows = self._flows()
        self._start = self._before = self._begin(flows, int(self.np_random.integers(2**31)))
        self._signals = _signals(model, self._packet)
        self._rates = np.full(hosts, LEAST_RATE, np.float32)
        self._fill = np.zeros((len(LAYERS), hosts), np.float32)
        self._goodput = np.zeros(hosts)
        self._steps, self._steps_behind = 0, 0
        self._due: float | None = None
        self._missing, self._late = 0.0, 0.0
        self._lags: list[float] = []
        self._states: list[DatacenterState] = []
        nothing = Passing(*(np.zeros_like(self._fill) for _ in Passing._fields))
        observation, _ = self._signals(nothing, self._rates, self._fill, np.zeros(hosts, np.float32), self._route.queue)
        self._remember(np.zeros(hosts))
        self._begun = True
        return np.array(observation), {}

    def step(self, action: Any) -> tuple[Float32[np.ndarray, " O"], Any, bool, bool, dict[str, Any]]:
        """Put rates into force, and see what has become of the queues when the interval is over."""
        if not self._begun or self._network is None:
            raise gymnasium.error.ResetNeeded("reset the environment before the first step.")
        action = checked_action(self.action_space, action)
        before = self._before
        if self._due is None:  # nothing was sent since the reset, however long ago that was
            before = before._replace(time=time.monotonic())
        self._rates = np.clip(action, LEAST_RATE, self.model.capacity)
        share: Any = self._rates[self._route.source] * np.asarray(self._route.share)
        lag, late = self._hold(share * (1e6 / 8 * self.time_scale))
        try:
            after = self._network.read()
        except NetworkFailed:
            self.close()
            raise
        self._before = after
        self._steps += 1
        delivered, passing = self._delivered(before, after), self._passed(before, after)
        observation, reward = self._signals(
            passing, self._rates, self._fill, delivered.astype(np.float32), self._route.queue
        )
        self._fill = np.asarray(passing.after / self.model.port.limit, np.float32)
        self._goodput += delivered
        self._remember(delivered)
        info = self._info(before, after, lag, late) | {
            "delivered": delivered,
            "dropped": float(passing.dropped.sum()) / PACKET,
        }
        truncated = self._steps >= self.model.episode_steps
        if truncated:
            self._network.send(0.0)
            info["summary"] = self._summary()
            if info["summary"][DOUBTFUL]:
                info["warning"] = verdict(reasons(info["summary"]))
        # No step is exactly as long as it should be, so that a few packets more than in theory can be counted.
        return _within(self.observation_space, observation), _within(self.reward_space, reward), False, truncated, info

    def render(self) -> Any:
        """A picture of the episode so far."""
        if self.render_mode is None:
            gymnasium.logger.warn('nothing to render: make the environment with render_mode="rgb_array".')
            return None
        if not self._begun:
            raise gymnasium.error.ResetNeeded("reset the environment before there is anything to see.")
        return self.model.draw(self._states)

    def close(self) -> None:
        """End the network."""
        if self._network is not None:
            self._network.close()
            self._network = None
        self._begun = False

    # --- the network

    @property
    def _packet(self) -> int:
        assert self._plan is not None
        return int(self._plan["packet"])

    def _flows(self) -> tuple[Route, list[tuple[int, int]]]:
        model = self.model
        if not model.fresh_traffic:
            return model.route, list(model.flows)
        pattern = matrix(model.traffic, model.tree)
        assert isinstance(pattern, Pattern)  # the settings have been checked
        drawn = Flows(*map(np.asarray, pattern.draw(jax.random.key(int(self.np_random.integers(2**31))))))
        return route(drawn, model.paths), list(zip(*(part.tolist() for part in drawn), strict=True))

    def _begin(self, flows: list[tuple[int, int]], seed: int) -> Reading:
        """In the network that there is, if it is still there."""
        if self._network is not None:
            try:
                return self._network.begin(flows, seed)
            except NetworkFailed:
                self.close()
        model = self.model
        if self._plan is None:
            self._plan = plan(model.tree, model.paths, model.port, model.capacity, len(flows), self.time_scale)
        self._network = Network(self._plan)
        return self._network.begin(flows, seed)

    def _hold(self, rates: Float[np.ndarray, " F"]) -> tuple[float, float]:
        """Let the next interval begin where the last has ended, or now if too little is left of it; wait for its end.

        Gives the part of it that was over already and, where it began too late, by how many seconds at the network's
        own pace.
        """
        assert self._network is not None
        interval = self.model.interval / self.time_scale
        now = time.monotonic()
        start = now if self._due is None else self._due
        lag, late = (now - start) / interval, 0.0
        if lag > 0.5:
            start, late = now, now - start
        self._due = start + interval
        self._network.send(rates, start)
        time.sleep(max(0.0, self._due - time.monotonic()))
        return lag, late * self.time_scale

    # --- what was counted between two readings

    def _delivered(self, before: Reading, after: Reading) -> Float[np.ndarray, " H"]:
        """What arrived of each host's traffic, in Mbit/s."""
        packets = (after.delivered - before.delivered) % WRAP
        of_host = np.bincount(self._route.source, packets, self.model.tree.hosts)
        seconds = (after.time - before.time) * self.time_scale
        return np.asarray(of_host * (self._packet * 8 / 1e6 / seconds))

    def _passed(self, before: Reading, after: Reading) -> Passing:
        """What passed each queue, in bytes."""
        old, new = (dict(zip(Counts._fields, reading.counts.T.astype(int), strict=True)) for reading in (before, after))
        dropped = (new["drops"] - old["drops"]) % WRAP * self._packet
        columns = (old["waiting"], new["waiting"], new["bytes"] - old["bytes"], dropped)
        return Passing(*(np.asarray(column, np.float32).reshape(len(LAYERS), -1) for column in columns))

    def _info(self, before: Reading, after: Reading, lag: float, late: float) -> dict[str, Any]:
        """How well the machine kept up."""
        assert self._network is not None
        sent, missing = float((after.sent_bytes - before.sent_bytes).sum()), self._missing
        self._missing = self._not_sent(after, self._network.rates)
        self._lags.append(lag)
        self._late += late
        behind = max(0.0, self._missing - missing)
        share = sent / (sent + behind) if behind else 1.0
        info: dict[str, Any] = {"sent_of_requested": share, "lag": lag, "late": late}
        if share < ENOUGH:
            info["warning"] = (
                f"the senders sent only {share:.0%} of what they were asked to: the machine is too busy or too slow "
                "for this network, and what was seen in this step is not what the rates would have led to."
            )
            self._steps_behind += 1
        return info

    def _not_sent(self, reading: Reading, rates: Float[np.ndarray, " F"]) -> float:
        """Bytes that should have been sent since the episode began, but for the packets that are due next.

        The sender holds each of them back for up to the time between two.
        """
        sent = (reading.sent_bytes - self._start.sent_bytes).astype(float)
        owed = reading.requested - self._start.requested - sent
        return float(np.maximum(0.0, owed - 2 * self._packet - SLACK * rates).sum())

    def _summary(self) -> dict[str, float]:
        start, end = self._start, self._before
        sent = float((end.sent_bytes - start.sent_bytes).sum())
        machine = {
            SENT: sent / (sent + self._missing) if self._missing else 1.0,
            BEHIND: float(self._steps_behind),
            STILL: (end.still - start.still) / (end.time - start.time),
            UNEVEN: float(np.std(self._lags[1:] or [0.0])),  # the first are never late
            LATE: self._late,
        }
        return {
            **metrics.spread(GOODPUT, self._goodput / self._steps),
            **machine,
            DOUBTFUL: float(bool(reasons(machine))),
        }

    def _remember(self, delivered: Float[np.ndarray, " H"]) -> None:
        """Only pictures need the past."""
        if self.render_mode is not None:
            waiting: Any = self._fill * np.float32(self.model.port.limit)
            rates: Any = self._rates
            self._states.append(DatacenterState(waiting, waiting, rates, delivered, None, self._steps))  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        """A network cannot be sent anywhere: the copy has to be reset."""
        return self.__dict__ | {"_network": None, "_begun": False, "_signals": None, "_states": []}


def _within(space: Any, values: Any) -> Float32[np.ndarray, " n"]:
    return np.clip(np.asarray(values), space.low, space.high)


@lru_cache(maxsize=16)
def _signals(model: Datacenter, packet: int) -> Any:
    """The observation and the reward, compiled: the time that they take is time in which the last rates go on."""

    def of(
        passing: Passing,
        rates: Float[Any, " H"],
        fill: Float[Any, "5 Q"],
        delivered: Float[Any, " H"],
        queue: Int[Any, "5 F"],
    ) -> tuple[Any, Any]:
        seen = observed(_queues(passing, packet, model.port.service), rates, model.port, STEADY * packet)
        return seen, rewarded(model.reward, rates, fill, delivered, model.route._replace(queue=queue))

    return jax.jit(of)


def _queues(passing: Passing, packet: int, service: float) -> Queues:
    """As the simulator has them, in packets of the usual size.

    The kernel's own count of packets over limit has several looks for one packet, even for one that waits for the
    blink of an eye: the simulator's rule is applied to what it counts of packets instead.
    """
    before, after, sent, dropped = passing
    change = after - before
    waiting, still = (jnp.maximum(0.0, backlog - STEADY * packet) for backlog in (before, after))
    over = sent * busy(sent + dropped + change, waiting, still, service)
    return Queues(after, change, over / PACKET, dropped / PACKET)
