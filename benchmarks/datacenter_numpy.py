"""The data-centre simulator in plain NumPy, for one environment: the same equations, to time the compiled one against.

It knows nothing of evenhand but the path table. A test holds it against the original.
"""

from collections.abc import Sequence

import numpy as np

PACKET, LEAST_RATE, STEADY, NO_QUEUE = 1500, 0.01, 1.0, -1


class DatacenterNumpy:
    def __init__(
        self,
        flows: Sequence[tuple[int, int]],
        paths: np.ndarray,
        reward: str = "paper",
        interval: float = 0.05,
        capacity: float = 10,
    ) -> None:
        self._hosts, self._capacity, self._reward = len(paths), capacity, reward
        source, destination = np.array(flows).T
        self._source = source
        self._share = 1 / np.bincount(source)[source]
        self._layers = []
        for queues in paths[source, destination].T:
            members = np.flatnonzero(queues != NO_QUEUE)
            self._layers.append((members, queues[members]))
        self._service = capacity * 1e6 / 8 * interval
        self._limit = max(4e6 * capacity / 1e3, 4e5)

    def reset(self) -> np.ndarray:
        self._backlog = np.zeros((5, len(self._source)))
        self._waiting = np.zeros((5, self._hosts))
        self._rates = np.full(self._hosts, LEAST_RATE)
        return np.concatenate([np.zeros(20 * self._hosts), self._rates])

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The next observation and the reward."""
        rates = np.clip(action, LEAST_RATE, self._capacity)
        reward = self._gained(rates)
        arriving = rates[self._source] * self._share * (self._service / self._capacity)
        seen = np.zeros((4, 5, self._hosts))
        for layer, (members, queue) in enumerate(self._layers):
            a, b = arriving[members], self._backlog[layer, members]
            arrived = np.bincount(queue, a, self._hosts)
            waiting = np.bincount(queue, b, self._hosts)
            accepted = np.minimum(arrived, self._limit + self._service - waiting)
            present = waiting + accepted
            leaving = np.minimum(present, self._service)
            kept, served = accepted / np.maximum(arrived, 1e-20), leaving / np.maximum(present, 1e-20)
            there = b + kept[queue] * a
            arriving[members] = served[queue] * there
            self._backlog[layer, members] = there - arriving[members]
            after = present - leaving
            spare = np.maximum(self._service - arrived, 1.0)
            busy = np.where(waiting + arrived > self._service, 1.0, waiting / spare)
            change = after - waiting
            self._waiting[layer] = after
            seen[0, layer] = after / self._limit
            seen[1, layer] = np.where(np.abs(change) < STEADY, 0.0, np.sign(change))
            busy *= np.minimum(np.maximum(waiting, after) / PACKET, 1.0)
            seen[2, layer] = busy * self._service / PACKET
            seen[3, layer] = (arrived - accepted) / PACKET
        return np.concatenate([seen.ravel(), rates]), reward

    def _gained(self, rates: np.ndarray) -> np.ndarray:
        fill = self._waiting / self._limit
        if self._reward == "paper":
            return rates * (1 - 2 * fill.max())
        fullest = np.zeros(self._hosts)
        for layer, (members, queue) in enumerate(self._layers):
            np.maximum.at(fullest, self._source[members], fill[layer, queue])
        return rates * (1 - 2 * fullest)
