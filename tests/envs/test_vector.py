"""N environments at once: in this process, in workers, and when things go wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import faulty_envs
from evenhand.envs import resolve
from evenhand.envs.gym.failures import EnvironmentFailed
from evenhand.envs.gym.host_env import HostEnv
from evenhand.envs.gym.stepper import Seeds
from evenhand.envs.gym.vector import RESTARTS_IN_A_ROW, VectorEnv
from evenhand.errors import InputError
from processes import alive, running, until

# Several environments of MO-Gymnasium give their bounds in double precision.
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")


def trajectory(env: HostEnv, N: int, seed: int, workers: int, steps: int) -> list[np.ndarray]:
    """Everything that is seen in some steps with random actions."""
    rng = np.random.default_rng(1)
    space = env.action_space
    seen = []
    with VectorEnv(env, N, seed, workers) as environments:
        seen.append(environments.reset())
        for _ in range(steps):
            actions = rng.integers(space.n, size=N) if not hasattr(space, "low") else rng.normal(size=(N, space.n))
            seen.extend(environments.step(actions)[:5])
    return seen


@pytest.mark.parametrize("name", ["Pendulum-v1", "resource-gathering-v0"])
def test_workers_give_the_same_numbers_as_this_process(name: str) -> None:
    env = resolve(name)
    assert isinstance(env, HostEnv)
    here = trajectory(env, 5, 3, 0, 60)
    there = trajectory(env, 5, 3, 2, 60)
    for ours, theirs in zip(here, there, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_seed_decides_and_environments_differ() -> None:
    env = HostEnv.of(faulty_envs.Sound)
    first, again, other = (trajectory(env, 6, seed, 0, 30) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    assert len(np.unique(first[0], axis=0)) > 1


def test_more_environments_leave_the_others_as_they_were() -> None:
    env = HostEnv.of(faulty_envs.Sound)
    with VectorEnv(env, 2, 7) as few, VectorEnv(env, 5, 7) as many:
        np.testing.assert_array_equal(few.reset(), many.reset()[:2])


def test_seeds_fit_in_31_bits_and_depend_on_everything() -> None:
    drawn = [Seeds(*numbers).draw() for numbers in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]]
    assert len({*drawn}) == 4
    assert all(0 <= number < 2**31 for pair in drawn for number in pair)


class TestEpisodes:
    def test_final_observation_is_what_the_step_led_to(self) -> None:
        env = HostEnv.of(faulty_envs.Sound)
        copy = faulty_envs.Sound()
        seed, _ = Seeds(4, 0, 0).draw()
        with VectorEnv(env, 1, 4) as environments:
            np.testing.assert_array_equal(environments.reset()[0], copy.reset(seed=seed)[0])
            for step in range(1, 2 * faulty_envs.LIMIT + 1):
                result = environments.step([step % 2])
                observation, reward, terminated, truncated, info = copy.step(step % 2)
                np.testing.assert_array_equal(result.final_observation[0], observation)
                np.testing.assert_array_equal(result.reward[0], reward)
                assert (bool(result.terminated[0]), bool(result.truncated[0])) == (terminated, truncated)
                assert truncated == (step % faulty_envs.LIMIT == 0)
                assert result.info == ([info] if truncated else [])
                after = copy.reset()[0] if truncated else observation
                np.testing.assert_array_equal(result.observation[0], after)

    def test_a_time_limit_truncates_and_a_fall_terminates(self) -> None:
        with VectorEnv(resolve("CartPole-v1"), 4, 0) as environments:
            environments.reset()
            falls = [environments.step(np.zeros(4, int)) for _ in range(12)]
        assert any(step.terminated.any() for step in falls)
        assert not any(step.truncated.any() for step in falls)
        with VectorEnv(resolve("Pendulum-v1"), 2, 0) as environments:
            environments.reset()
            steps = [environments.step(np.zeros((2, 1))) for _ in range(200)]
        assert steps[-1].truncated.all()
        assert not any(step.truncated.any() or step.terminated.any() for step in steps[:-1])

    def test_results_are_the_callers_to_keep(self) -> None:
        with VectorEnv(HostEnv.of(faulty_envs.SameArray), 3, 0) as environments:
            kept = [environments.reset()] + [environments.step([1, 1, 1]).observation for _ in range(10)]
        assert len({observation.tobytes() for observation in kept}) > 1

    def test_rewards_are_one_column_per_user(self) -> None:
        for env, D in [("deep-sea-treasure-v0", 2), ("fruit-tree-v0", 6), ("CartPole-v1", 1)]:
            with VectorEnv(resolve(env), 3, 0) as environments:
                environments.reset()
                step = environments.step([0, 0, 0])
            assert step.reward.shape == (3, D)
            assert step.reward.dtype == np.float32

    def test_lists_and_whole_numbers_are_good_rewards(self) -> None:
        with VectorEnv(HostEnv.of(faulty_envs.RewardAsList), 2, 0) as environments:
            environments.reset()
            assert environments.step([0, 1]).reward.shape == (2, 3)

    def test_actions_arrive_in_the_environments_own_form(self) -> None:
        for make in (faulty_envs.Vectors, faulty_envs.Numbers, faulty_envs.Switches):
            env = HostEnv.of(make)
            assert len(trajectory(env, 2, 0, 0, 25)) == 1 + 25 * 5  # the environments look at their actions themselves

    def test_wide_and_unusual_actions_are_clipped(self) -> None:
        with VectorEnv(HostEnv.of(faulty_envs.Vectors), 1, 0) as environments:
            environments.reset()
            step = environments.step(np.array([[-9.0, 0.5, 9.0, 3.0]]))
        np.testing.assert_array_equal(step.observation, np.array([[-2, 0.5, 3, 3]], np.float32))


class TestMistakes:
    def test_wrong_numbers(self) -> None:
        env = HostEnv.of(faulty_envs.Sound)
        for N, seed, workers in [(0, 0, 0), (1, -1, 0), (1, 0, -1)]:
            with pytest.raises(InputError, match="N must be at least 1"):
                VectorEnv(env, N, seed, workers)

    def test_actions_of_another_shape(self) -> None:
        with VectorEnv(HostEnv.of(faulty_envs.Sound), 2, 0) as environments:
            environments.reset()
            with pytest.raises(InputError, match=r"shape \(3,\), not \(2,\)"):
                environments.step([0, 1, 0])

    def test_a_step_before_the_reset(self) -> None:
        with (
            VectorEnv(HostEnv.of(faulty_envs.Sound), 1, 0) as environments,
            pytest.raises(InputError, match="reset"),
        ):
            environments.step([0])

    def test_actions_that_are_not_numbers(self) -> None:
        with VectorEnv(HostEnv.of(faulty_envs.Vectors), 1, 0) as environments:
            environments.reset()
            with pytest.raises(InputError, match="diverged"):
                environments.step(np.full((1, 4), np.nan))

    def test_closing_twice(self) -> None:
        environments = VectorEnv(HostEnv.of(faulty_envs.Sound), 1, 0)
        environments.close()
        environments.close()


def take_steps(environments: VectorEnv, steps: int) -> None:
    for _ in range(steps):
        environments.step(np.ones(environments.N, int))


def until_error(env: HostEnv, workers: int) -> None:
    with VectorEnv(env, 3, 0, workers) as environments:
        environments.reset()
        take_steps(environments, 30)


NAN_REWARD = r"environment 0 of NanReward, step 7 of its episode \(7 in all\): component 1 of the reward \(bob\) is nan"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (faulty_envs.NanReward, NAN_REWARD),
        (faulty_envs.InfiniteObservation, "environment 0 of .*, step 5 of its .*entry 2 of the observation is inf"),
        (faulty_envs.WrongRewardLength, "environment 0 of .*, step 4 of .*3 numbers, one for each user, but is array"),
        (faulty_envs.OneRewardForThree, r"environment 0 of .*, step 1 of .*3 numbers, one for each user, but is 1\.0"),
        (faulty_envs.RewardOfText, "3 numbers, one for each user, but is .*much"),
        (faulty_envs.ObservationOfWrongShape, r"environment 0 of .*, step 3 of .*shape \(1,\), but its space \(5,\)"),
        (faulty_envs.NanFirstObservation, "step 0 of its episode .*entry 0 of the first observation is nan"),
    ],
)
def test_bad_numbers_never_reach_the_learner(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"(?s){message}"):
        until_error(HostEnv.of(make, make.__name__), workers=0)


def test_nor_do_they_from_another_process() -> None:
    with pytest.raises(InputError, match=NAN_REWARD):
        until_error(HostEnv.of(faulty_envs.NanReward, "NanReward"), workers=2)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environments_own_error_comes_with_its_traceback(workers: int) -> None:
    with pytest.raises(EnvironmentFailed, match=r"(?s)step 5 of .*it failed.*faulty_envs.py.*the wheel came off"):
        until_error(HostEnv.of(faulty_envs.FailsInStep), workers)


def test_errors_when_resetting() -> None:
    with pytest.raises(EnvironmentFailed, match=r"(?s)could not be reset.*no simulator"):
        until_error(HostEnv.of(faulty_envs.FailsInReset), workers=0)


def test_after_an_error_a_reset_is_needed() -> None:
    with VectorEnv(HostEnv.of(faulty_envs.FailsInStep), 1, 0) as environments:
        environments.reset()
        for _ in range(4):
            environments.step([0])
        with pytest.raises(EnvironmentFailed):
            environments.step([0])
        with pytest.raises(InputError, match="reset"):
            environments.step([0])
        environments.reset()
        environments.step([0])


class TestWorkers:
    def test_what_cannot_be_pickled_is_refused_before_anything_starts(self) -> None:
        env = HostEnv.of(lambda: faulty_envs.Sound())
        with pytest.raises(InputError, match="workers=0"):
            VectorEnv(env, 2, 0, workers=1)
        VectorEnv(env, 2, 0).close()

    def test_from_the_first_step_to_the_end(self) -> None:
        """Infos come without what cannot be sent, workers hear no interrupt, and closing ends them."""
        with VectorEnv(HostEnv.of(faulty_envs.TellsItsProcess), 3, 0, workers=2) as environments:
            environments.reset()
            for _ in range(faulty_envs.LIMIT):
                step = environments.step([0, 0, 0])
            workers = [worker.remote.process for worker in environments._stepping._workers]  # type: ignore[attr-defined]
            pids = [process.pid for process in workers]
            for process in workers:
                os.kill(process.pid, signal.SIGINT)
            assert not environments.step([0, 0, 0]).truncated.any()
            assert all(process.is_alive() for process in workers)
        assert len(step.info) == 3
        assert [info["pid"] for info in step.info] == [pids[0], pids[1], pids[1]]
        assert len({os.getpid(), *pids}) == 3
        assert "function" not in step.info[0]
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)

    def test_a_killed_worker_is_replaced(self, caplog: pytest.LogCaptureFixture) -> None:
        said: list[str] = []
        with VectorEnv(HostEnv.of(faulty_envs.Sound), 4, 0, workers=2, warn=said.append) as environments:
            before = environments.reset()
            for _ in range(3):
                before = environments.step(np.ones(4, int)).observation
            victim = environments._stepping._workers[1].remote.process.pid  # type: ignore[attr-defined]
            os.kill(victim, signal.SIGKILL)
            until(lambda: not alive(victim))
            step = environments.step(np.ones(4, int))
            np.testing.assert_array_equal(step.truncated, [False, False, True, True])
            assert not step.terminated.any()
            np.testing.assert_array_equal(step.final_observation[2:], before[2:])
            np.testing.assert_array_equal(step.reward[2:], np.zeros((2, 3)))
            assert step.info == [{"lost": "its worker process ended"}] * 2
            fresh = faulty_envs.Sound().reset(seed=Seeds(0, 2, 1).draw()[0])[0]
            np.testing.assert_array_equal(step.observation[2], fresh)
            ends = [environments.step(np.ones(4, int)).truncated for _ in range(faulty_envs.LIMIT)]
            np.testing.assert_array_equal(np.sum(ends, axis=0), [1, 1, 1, 1])
        assert len(said) == 1
        assert "environments 2 to 3" in said[0]
        assert "SIGKILL" in said[0]
        assert not caplog.text

    def test_a_worker_that_keeps_dying_is_given_up(self, caplog: pytest.LogCaptureFixture) -> None:
        """Restarts are logged, unless asked otherwise."""
        with VectorEnv(HostEnv.of(faulty_envs.DiesInStep), 1, 0, workers=1) as environments:
            environments.reset()
            with pytest.raises(EnvironmentFailed, match="3 restarts in a row"):
                take_steps(environments, 50)
        assert len([said for said in caplog.messages if "started anew" in said]) == RESTARTS_IN_A_ROW

    def test_forgetting_to_close_ends_the_processes_too(self) -> None:
        environments = VectorEnv(HostEnv.of(faulty_envs.Sound), 1, 0, workers=1)
        environments.reset()
        worker = environments._stepping._workers[0].remote.process.pid  # type: ignore[attr-defined]
        del environments
        assert not Path(f"/proc/{worker}").exists()

    def test_workers_import_no_jax(self) -> None:
        code = "import sys, evenhand.envs.gym.worker; print('jax' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


HELPERS = Path(__file__).parents[1] / "helpers"
SCRIPT = """
    import os, signal, sys
    sys.path.insert(0, {helpers!r})
    import faulty_envs
    from evenhand.envs.gym.host_env import HostEnv
    from evenhand.envs.gym.vector import VectorEnv

    def run():
        environments = VectorEnv(HostEnv.of(faulty_envs.{env}), 2, 0, workers=2)
        environments.reset()
        print(*[worker.remote.process.pid for worker in environments._stepping._workers], flush=True)
        {then}

    {guard}run()
"""


def script(tmp_path: Path, env: str, then: str, guard: str = 'if __name__ == "__main__": ') -> Any:
    then = textwrap.indent(textwrap.dedent(then).strip(), "    ").strip()
    text = textwrap.dedent(SCRIPT).format(helpers=str(HELPERS), env=env, then=then, guard=guard)
    (tmp_path / "script.py").write_text(text)
    return running([sys.executable, tmp_path / "script.py"])


linux = pytest.mark.skipif(
    "CI" not in os.environ and not Path("/proc/self/stat").exists(), reason="looks at processes through /proc"
)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("env", ["Sound", "Hangs"])
def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path, env: str) -> None:
    with script(tmp_path, env, "environments.step([0, 0]); import time; time.sleep(100)") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        workers = [int(word) for word in process.stdout.readline().split()]
        assert len(workers) == 2
        time.sleep(0.2)  # usually in the middle of a step
        process.kill()
        until(lambda: not any(map(alive, workers)))
        assert process.stderr.read() == ""  # Python's resource tracker would name what was left over
    assert not list(Path("/dev/shm").glob(f"pym-{process.pid}-*"))


@linux
@pytest.mark.slow
def test_an_interrupt_goes_to_the_parent_only(tmp_path: Path) -> None:
    then = """
        try:
            print("stepping", flush=True)
            while True: environments.step([0, 0])
        except KeyboardInterrupt:
            environments.close(); print("closed")
    """
    with script(tmp_path, "Slow", then) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while process.stdout.readline() != "stepping\n":
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: to everyone
        assert process.wait() == 0
        assert process.stdout.read() == "closed\n"
        assert process.stderr.read() == ""


@linux
@pytest.mark.slow
@pytest.mark.parametrize(("then", "guard"), [("pass", ""), ("sys.exit(0)", 'if __name__ == "__main__": ')])
def test_ending_without_closing_leaves_nothing_behind(tmp_path: Path, then: str, guard: str) -> None:
    """Nor does a script need a guard."""
    with script(tmp_path, "Sound", f"globals()['kept'] = environments; {then}", guard) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        workers = [int(word) for word in process.stdout.readline().split()]
        assert len(workers) == 2
        assert process.wait() == 0
        assert process.stderr.read() == ""
        assert process.stdout.read() == ""  # the main program was not run again
        until(lambda: not any(map(alive, workers)))


def test_switches_are_numbered() -> None:
    env = HostEnv.of(faulty_envs.Switches)
    with VectorEnv(env, 6, 0) as environments:
        environments.reset()
        for _ in range(faulty_envs.LIMIT):
            step = environments.step(range(6))
    taken = [tuple(info["action"]) for info in step.info]
    assert taken == [(0, 10), (0, 11), (0, 12), (1, 10), (1, 11), (1, 12)]
    assert all(info["action"].dtype == spaces.MultiDiscrete([2]).dtype for info in step.info)
