"""Models to try things on: the paper's example, the counterexamples of docs/theory.md, and random ones of any size."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from evenhand.errors import InputError
from evenhand.exact.momdp import MOMDP


def state_dependence(gamma: float = 0.9, start: int = 0) -> MOMDP:
    """The paper's Example 3.2: s1 → s2 → s3 (absorbing), actions Up and Down, rewards scaled so that γ cancels.

    From s1, Up gives (7, 0) and Down nothing; from s2, Up gives (0, 7/γ) and Down (5/γ, 5/γ).
    """
    if not 0 < gamma < 1:
        raise InputError(f"the example divides by gamma, which must lie in (0, 1), not {gamma}.")
    rewards = np.zeros((3, 2, 2))
    rewards[0, 0] = 7, 0
    rewards[1, 0] = 0, 7 / gamma
    rewards[1, 1] = 5 / gamma, 5 / gamma
    move = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 1]])
    return MOMDP(np.stack([move, move]), rewards, np.eye(3)[_state(start, 3)])


def chain(n: int = 50, gamma: float = 0.99) -> MOMDP:
    """One objective on which the published error bound fails: a long walk to a better place.

    State 0 stays, for a reward just above γ^(n+1), or walks through n states without reward to G, which pays 1 and
    may return to 0. A γ-optimal policy stays for ever; an average-optimal one walks.
    """
    if n < 1:
        raise InputError(f"the walk must pass through at least one state, not {n}.")
    if not 0 < gamma < 1:
        raise InputError(f"gamma must lie in (0, 1), not {gamma}.")
    S = n + 2
    state = np.arange(S)
    walking = np.append(state[1:], 0)
    staying = np.where((state == 0) | (state == S - 1), state, walking)
    stay, walk = (sp.csr_array((np.ones(S), (state, to)), shape=(S, S)) for to in (staying, walking))
    rewards = np.zeros((S, 2, 1))
    rewards[0, 0] = np.nextafter(gamma ** (n + 1), 1) * (1 + 1e-6)
    rewards[-1] = 1
    return MOMDP([stay, walk], rewards, np.where(state == 0, 1.0, 0.0))


def stay_or_leave() -> MOMDP:
    """Multichain: stay in s1 for (1, 0) or leave for the absorbing s2, which pays (0, 1).

    In the long run every stationary policy does one or the other; tossing a coin at the start gives each user half.
    """
    stay, leave = np.array([[1.0, 0], [0, 1]]), np.array([[0.0, 1], [0, 1]])
    rewards = np.zeros((2, 2, 2))
    rewards[0, 0] = 1, 0
    rewards[1] = 0, 1
    return MOMDP(np.stack([stay, leave]), rewards, [1, 0])


def two_homes(with_refuge: bool = False, start: int = 0) -> MOMDP:
    """Two states, each of which pays one user while the policy stays; moving between them pays nothing.

    With a refuge, a third state that every state can move to pays (½, ½) to those who stay.
    """
    S = 3 if with_refuge else 2
    pay = np.array([[1, 0], [0, 1], [0.5, 0.5]])[:S]
    rewards = np.zeros((S, S, 2))
    for s in range(S):
        rewards[s, s] = pay[s]  # action a moves to state a; staying is what pays
    to = np.stack([np.tile(np.eye(S)[a], (S, 1)) for a in range(S)])
    return MOMDP(to, rewards, np.eye(S)[_state(start, S)])


def one_state() -> MOMDP:
    """One state, rewards (3, 0) or (0, 2): only a randomised choice, (2/5, 3/5), is fair: (1.2, 1.2)."""
    return MOMDP(np.ones((2, 1, 1)), [[[3, 0], [0, 2]]], [1])


def garnet(states: int = 1000, actions: int = 5, objectives: int = 4, branching: int = 5, seed: int = 0) -> MOMDP:
    """A random model: `branching` random successors for each state and action, rewards uniform on [0, 1]."""
    _positive(states=states, actions=actions, objectives=objectives, branching=branching)
    rng = _random(seed)
    rows = states * actions
    successors = rng.integers(states, size=(rows, branching), dtype=np.int32)
    weights = rng.standard_exponential((rows, branching))
    weights /= weights.sum(axis=1, keepdims=True)
    pointers = np.arange(0, rows * branching + 1, branching, dtype=np.int64)
    P = sp.csr_array((weights.ravel(), successors.ravel(), pointers), shape=(rows, states))
    rewards = rng.random((states, actions, objectives))
    return MOMDP.from_interleaved(P, rewards, np.full(states, 1 / states), copy=False)


def grid(side: int = 32, objectives: int = 4, slip: float = 0.1, seed: int = 0) -> MOMDP:
    """A side × side grid walked by one vehicle that serves several users: north, east, south, west or stay.

    A user sits at a random cell and is served well by a vehicle nearby: reward_i = exp(−8·distance/side). A move
    goes astray with probability `slip`, in any of the four directions. The vehicle starts in the middle.
    """
    _positive(side=side, objectives=objectives)
    if not 0 <= slip <= 1:
        raise InputError(f"slip is a probability, not {slip}.")
    rng = _random(seed)
    S, A = side * side, 5
    y, x = np.divmod(np.arange(S), side)
    to = np.stack(
        [
            np.clip(y + dy, 0, side - 1) * side + np.clip(x + dx, 0, side - 1)
            for dy, dx in ((-1, 0), (0, 1), (1, 0), (0, -1), (0, 0))
        ]
    )  # [A, S]
    state = np.arange(S)
    rows, columns, chances = [], [], []
    for a in range(A):
        for b in range(A):
            chance = (1 - slip) * (a == b) + slip / 4 * (b < 4 and a < 4)
            if a == 4:
                chance = float(b == 4)  # staying is always possible
            if chance:
                rows.append(state * A + a)
                columns.append(to[b])
                chances.append(np.full(S, chance))
    P = sp.csr_array((np.concatenate(chances), (np.concatenate(rows), np.concatenate(columns))), shape=(S * A, S))
    users = rng.random((objectives, 2)) * (side - 1)
    distance = np.hypot(y[:, None] - users[:, 0], x[:, None] - users[:, 1])
    rewards = np.repeat(np.exp(-8 * distance / side)[:, None, :], A, axis=1)
    initial = np.zeros(S)
    initial[(side // 2) * side + side // 2] = 1
    return MOMDP.from_interleaved(P, rewards, initial, copy=False)


def _positive(**counts: int) -> None:
    for name, count in counts.items():
        if not 1 <= count < 2**31:
            raise InputError(f"{name} must be at least 1 and less than 2^31, not {count}.")


def _random(seed: int) -> np.random.Generator:
    if seed < 0:
        raise InputError(f"seed must not be negative, but is {seed}.")
    return np.random.default_rng(seed)


def _state(start: int, S: int) -> int:
    if not 0 <= start < S:
        raise InputError(f"start must be a state from 0 to {S - 1}, not {start}.")
    return start
