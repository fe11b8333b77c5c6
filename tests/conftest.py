"""What tests of the emulated network share: networks and environments that are closed in the end.

evenhand is imported only when a test begins: types are checked in what is imported after pytest's own start.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from evenhand.envs.datacenter import Datacenter


@pytest.fixture(scope="module")
def possible() -> None:
    """Namespaces can be made here; in CI they must be."""
    from evenhand.envs.datacenter.network import trial
    from evenhand.errors import InputError

    try:
        trial()
    except InputError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))


@pytest.fixture
def made(possible: None) -> Iterator[Any]:
    """Makes networks, and closes them."""
    from emulation import planned
    from evenhand.envs.datacenter.network import Network

    with contextlib.ExitStack() as stack:

        def make(env: Datacenter, time_scale: float | int = 1) -> Network:
            network = Network(planned(env, time_scale))
            stack.callback(network.close)
            return network

        yield make


@pytest.fixture
def emulated(possible: None) -> Iterator[Any]:
    """Makes environments, and closes them."""
    import gymnasium

    from evenhand.envs.datacenter.emulated import EmulatedEnv

    with contextlib.ExitStack() as stack:

        def make(**settings: Any) -> EmulatedEnv:
            env = gymnasium.make("evenhand/datacenter-v0", backend="emulated", **settings).unwrapped
            assert isinstance(env, EmulatedEnv)
            stack.callback(env.close)
            return env

        yield make
