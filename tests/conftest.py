"""What all tests share: how they explore, Ctrl-C, compiled programs; and emulated networks that are closed in the end.

evenhand is imported only when a test begins: types are checked in what is imported after pytest's own start.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from evenhand.envs.datacenter import Datacenter

# What helpers assert is shown in full, too.
pytest.register_assert_rewrite(*(path.stem for path in Path(__file__).with_name("helpers").glob("*.py")))

# How long an example takes says something about the machine only.
settings.register_profile("repeat", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", settings.get_profile("repeat"), derandomize=False, print_blob=True)
settings.load_profile("repeat")  # `make fuzz` chooses the other one

LONGEST = (
    *("test_unruly", "test_ray", "test_solve", "test_emulated_env", "test_training", "test_agents"),
    *("test_learning", "test_cli_learning", "test_study", "test_strangers_files", "test_traffic_training"),
    *("test_traffic_standin", "test_species", "test_report", "test_search", "test_datacenter_env", "test_policy_file"),
    *("test_algorithms", "test_revisions", "test_model", "test_old_runs"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest come first, or in the end all would have to wait for one of them."""
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(autouse=True, scope="session")
def usual_ctrl_c() -> Iterator[None]:
    """A background job ignores Ctrl-C, and so does all that it starts: what tests interrupt has to hear it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is compiled and prepared once serves all tests and the processes that they start, and nobody else."""
    from evenhand.runs.pool import prepare_jax

    own = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "cache"))
        prepare_jax()
        yield


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
