"""Whether a busy machine is noticed: what is sent when rates come late, the verdict, and where it is said."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from emulation import needs_network
from evenhand import cli
from evenhand.envs.datacenter import Datacenter
from evenhand.envs.datacenter import calibration as network_calibration
from evenhand.envs.datacenter.calibration import Course, PolicyCompared
from evenhand.envs.datacenter.trust import DOUBTFUL, LATE, LIMITS, SENT, STILL, UNEVEN, doubts, reasons, verdict
from evenhand.evaluation.result import mean_facts

FINE = {SENT: 1.0, STILL: 0.0, UNEVEN: 0.01, LATE: 0.0}
LOOP = "import time\nprint(flush=True)\nend = time.monotonic() + 100\nwhile time.monotonic() < end: pass"
LOOPS_PER_PROCESSOR = 5


@contextlib.contextmanager
def busy_machine() -> Iterator[None]:
    """Several loops for each processor, which run already, and end in the end."""
    count = LOOPS_PER_PROCESSOR * len(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-I", "-S", "-c", LOOP], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for loop in loops:
            assert loop.stdout is not None
            loop.stdout.readline()
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
            assert loop.stdout is not None
            loop.stdout.close()


# The verdict


class TestVerdict:
    def test_a_quiet_machine(self) -> None:
        assert reasons(FINE) == []

    @pytest.mark.parametrize("name", LIMITS)
    def test_each_limit_is_enough(self, name: str) -> None:
        bound = LIMITS[name].bound
        assert reasons(FINE | {name: bound}) == []
        beyond = bound + (-0.001 if LIMITS[name].least else 0.001)
        assert len(reasons(FINE | {name: beyond})) == 1
        assert len(reasons(FINE | {name: float("nan")})) == 1

    def test_senders_that_catch_up_are_doubted_all_the_same(self) -> None:
        """As measured with a learned policy before late rates were made good, when the score was 17 % off."""
        assert reasons({SENT: 0.9957, STILL: 0.073}) == ["the senders stood still for 7% of the time"]

    def test_what_is_unknown_is_not_doubted(self) -> None:
        assert reasons({"goodput CV": 0.3}) == []
        assert reasons({SENT: 0.5}) == ["only 50.0% was sent of what was requested"]

    def test_in_a_sentence(self) -> None:
        said = verdict(reasons(FINE | {UNEVEN: 0.3, LATE: 0.25}))
        assert said.startswith(
            "not to be trusted: the times at which rates came differ by 30% of a step, rates came so late that steps "
            "were begun anew, 0.25 s in all. "
        )

    def test_of_several_policies(self) -> None:
        counted = {
            "one": FINE | {DOUBTFUL: 0.0},
            "two": FINE | {STILL: 0.5, DOUBTFUL: 1.0},
            "three": FINE | {DOUBTFUL: 0.25},
            "simulated": {"goodput CV": 0.1},
        }
        two, three, remedy = doubts(counted)
        assert two == "two: not to be trusted (the senders stood still for 50% of the time)."
        assert three == "three: not to be trusted in 25% of the episodes."
        assert "repeat these when it has less to do" in remedy
        assert doubts({"one": counted["one"], "simulated": counted["simulated"]}) == []


# The network


class TestNetwork:
    def test_rates_that_come_late_are_made_good(self, made: Any) -> None:
        """The end of a pulse is heard of three times as late as it should be: it has still asked for its own bytes."""
        env = Datacenter("stride:4")
        network = made(env)
        start = network.begin(env.flows, 0)
        rate, pulse = 500_000.0, 0.05
        begun = time.monotonic()
        network.send(rate, begun)
        time.sleep(3 * pulse)
        network.send(0.0, begun + pulse)
        deadline = time.monotonic() + 20
        asked = np.inf
        while np.max(asked) > 1.5 * rate * pulse and time.monotonic() < deadline:
            asked = network.read().requested - start.requested
        np.testing.assert_allclose(asked, rate * pulse, atol=1.0)
        debt = network.read()
        assert (debt.sent_bytes - start.sent_bytes > asked).any()  # what was too much cannot be called back
        network.send(rate)
        while (network.read().sent_bytes <= debt.sent_bytes).any():
            assert time.monotonic() < deadline
        after = network.read()
        sent = (after.sent_bytes - start.sent_bytes).astype(float)
        assert (sent <= after.requested - start.requested + 2 * 1500 * 1.1).all()  # but it is paid back first

    @needs_network
    def test_a_busy_machine_is_noticed_and_it_is_said(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Of evaluations and by the doctor."""

        def play(steps: int) -> eh.Evaluation:
            return eh.evaluate_policy("datacenter-emulated", "equal share", 1, arguments={"episode_steps": steps})

        def doctor() -> Any:
            cli.main(["doctor", "emulated", "--json"])
            return json.loads(capsys.readouterr().out)["emulated"]

        play(2)  # what is imported and compiled once need not be so while the machine is busy
        doctor()
        with busy_machine():
            played = play(40)
            for _ in range(5):  # it looks for half a second only
                told = doctor()
                if told["severity"] == "warning":
                    break
        assert played.facts[DOUBTFUL].tolist() == [1]
        said = doubts(mean_facts({"equal share": [played]}))
        assert said[0].startswith("equal share: not to be trusted (")
        assert "What is seen on it now is not to be trusted: the senders stood still" in told["explanation"]


# Where it is said


def test_it_is_said_when_a_run_is_shown_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(tmp_path / name) for name in ("one", "two")]
    words = ["train", "datacenter", "--steps", "64", "--seeds", "1", "--algo", "a2c", "--set", "envs=2", "-o", runs[0]]
    assert cli.main(words) == 0
    assert DOUBTFUL not in capsys.readouterr().out
    shutil.copytree(*runs)
    file = Path(runs[1]) / "evaluations" / "seed-0.json"
    kept = json.loads(file.read_text())
    episodes = len(kept["length"])
    kept["facts"] = {STILL: [0.5] * episodes, DOUBTFUL: [1.0] * episodes}
    file.write_text(json.dumps(kept))
    page = tmp_path / "page.html"
    assert cli.main(["resume", runs[1]]) == 0
    assert "not to be trusted (the senders stood still for 50% of the time)" in " ".join(
        capsys.readouterr().out.split()
    )
    assert cli.main(["compare", *runs, "--html", str(page)]) == 0
    assert "not to be trusted (the senders stood still for 50% of the time)" in " ".join(
        capsys.readouterr().out.split()
    )
    assert "not to be trusted (the senders stood still" in page.read_text()
    for words in (["resume", runs[1]], ["compare", *runs]):
        assert cli.main([*words, "--json"]) == 0
        assert any(DOUBTFUL in note for note in json.loads(capsys.readouterr().out)["notes"])


def test_it_is_said_by_calibrate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    course = Course(np.zeros(4), np.ones((4, 16)), np.zeros(4), np.ones((4, 16)))

    def compare(*_: Any) -> Iterator[PolicyCompared]:
        for policy, why in (("trusted", ()), ("doubted", ("the senders stood still for 50% of the time",))):
            yield PolicyCompared("random", policy, course, course, 100.0, 1.0, 0.0, 0.0, 0.0, why, 3 if why else 1)

    monkeypatch.setattr(network_calibration, "compare", compare)
    assert cli.main(["calibrate", "datacenter"]) == 1
    shown = capsys.readouterr().out
    assert "Not to be trusted: 1 of 2 pairs" in " ".join(shown.split())
    assert [line.split()[-1] for line in shown.splitlines() if line.strip().startswith(("trusted", "doubted"))] == [
        "✓",
        "?",
    ]
    assert cli.main(["calibrate", "datacenter", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["within"]
    assert not found["trusted"]
    assert [pair["doubts"] for pair in found["pairs"]] == [[], ["the senders stood still for 50% of the time"]]
