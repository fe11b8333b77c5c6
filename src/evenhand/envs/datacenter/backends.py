"""What carries the traffic of the data centre: the compiled simulator, or an emulated network."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evenhand.envs.datacenter.env import Datacenter
from evenhand.errors import InputError

if TYPE_CHECKING:
    from evenhand.envs.datacenter.emulated import EmulatedEnv

BACKENDS = ("simulated", "emulated")


@dataclass(frozen=True)
class Backend:
    """Settings beside those of `Datacenter`."""

    backend: str = "simulated"
    """What carries the traffic: simulated, a compiled model; or emulated, real queues of the Linux kernel, in real
    time."""
    time_scale: float | int = 1
    """How many times faster an emulated network goes: with 4, links have four times their capacity and a step lasts a
    fourth of its interval."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InputError(f"backend must be {' or '.join(BACKENDS)}, not {self.backend!r}.")
        if self.backend == "simulated" and self.time_scale != 1:
            raise InputError("only an emulated network has a time_scale: the simulator goes as fast as it can.")


def datacenter(
    backend: str = "simulated", time_scale: float | int = 1, render_mode: str | None = None, **settings: Any
) -> Datacenter | EmulatedEnv:
    """The pure environment of the simulator, or a Gymnasium environment of the emulated network."""
    chosen = Backend(backend, time_scale)
    model = Datacenter(**settings)
    if chosen.backend == "simulated":
        return model
    from evenhand.envs.datacenter.emulated import EmulatedEnv

    return EmulatedEnv(model, chosen.time_scale, render_mode)


# Whoever checks arguments sees all that there are.
datacenter.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in (
            *inspect.signature(Datacenter).parameters.values(),
            *list(inspect.signature(datacenter).parameters.values())[:3],
        )
    ]
)
