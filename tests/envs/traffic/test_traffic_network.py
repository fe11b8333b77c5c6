"""The junction as SUMO gets it: roads, signals, the cache of files, and what happens without SUMO."""

from __future__ import annotations

import itertools
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from evenhand.envs.traffic import installation, network
from evenhand.envs.traffic.env import TrafficEnv
from evenhand.envs.traffic.junction import ARMS, LANE_LENGTH, LANES, MOVEMENTS, PHASE_LANES, PHASES, SPEED, Movement
from evenhand.errors import InputError

ROADS = pytest.mark.parametrize("roads", network.ROADS)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "evenhand" / "traffic"


def test_cars_drive_on_the_right() -> None:
    lanes = {"".join(movement): LANES[movement.lane] for movement in MOVEMENTS}
    assert lanes["NS"] == lanes["NW"] == "N straight and right"
    assert (lanes["NE"], lanes["ES"], lanes["SW"], lanes["WN"]) == ("N left", "E left", "S left", "W left")


def test_every_lane_has_one_phase_and_phases_share_no_way() -> None:
    assert sorted(itertools.chain(*PHASE_LANES)) == list(range(8))
    for phase, lanes in zip(PHASES, PHASE_LANES, strict=True):
        movements = [movement for movement in MOVEMENTS if movement.lane in lanes]
        assert {movement.origin for movement in movements} == set(phase[:2])
        assert len({movement.destination for movement in movements}) == len(movements)
        left = {(ARMS.index(m.destination) - ARMS.index(m.origin)) % 4 == 1 for m in movements}
        assert left == {phase.endswith("L") and not phase.endswith("SR")}


def test_signals_are_green_then_yellow_and_never_permissive() -> None:
    states = network.signals()
    assert len(states) == 9
    assert states[network.ALL_RED] == "r" * 12
    for phase in range(4):
        green, yellow = states[2 * phase : 2 * phase + 2]
        assert yellow == green.replace("G", "y")
        assert "g" not in green
        assert green.count("G") == (2 if PHASES[phase].endswith("L") else 4)


@ROADS
def test_netconvert_makes_of_it_what_was_meant(roads: network.Roads) -> None:
    root = ET.parse(network.compiled(roads)).getroot()
    lanes = {lane.get("id"): lane for lane in root.iter("lane")}
    for lane in range(8):
        found = lanes[network.way_in(roads, lane).name]
        assert float(found.get("length")) == LANE_LENGTH
        assert float(found.get("speed")) == SPEED
    signalled = {int(link.get("linkIndex")): link for link in root.iter("connection") if link.get("tl")}
    assert sorted(signalled) == list(range(12))
    for index, movement in enumerate(MOVEMENTS):
        link = signalled[index]
        start, end = network.way_in(roads, movement.lane), network.way_out(roads, movement)
        assert (link.get("from"), link.get("fromLane")) == (start.road, str(start.lane))
        assert (link.get("to"), link.get("toLane")) == (end.road, str(end.lane))
        turn = {1: "l", 2: "s", 3: "r"}[(ARMS.index(movement.destination) - ARMS.index(movement.origin)) % 4]
        assert link.get("dir", "").lower() == turn
    assert [phase.get("state") for phase in root.iter("phase")] == network.signals()


def test_both_kinds_of_road_have_the_same_ways_through_the_junction() -> None:
    def inside(roads: network.Roads) -> list[tuple[str | None, ...]]:
        lanes = ET.parse(network.compiled(roads)).getroot().iter("lane")
        return sorted(
            (lane.get("id"), lane.get("speed"), lane.get("length")) for lane in lanes if lane.get("id")[0] == ":"
        )

    assert inside("split") == inside("two-lane")


def test_split_roads_end_after_40_metres() -> None:
    root = ET.parse(network.compiled("split")).getroot()
    lengths = {float(lane.get("length")) for lane in root.iter("lane") if "_out" in lane.get("id")}
    assert lengths == {40.0}
    assert all(len(edge.findall("lane")) == 1 for edge in root.iter("edge"))


class TestCache:
    def test_a_file_is_made_once_and_found_by_its_content(self, cache: Path) -> None:
        path = network.compiled("split")
        assert path.parent == cache
        made = path.stat().st_mtime_ns
        assert network.compiled("split") == path
        assert path.stat().st_mtime_ns == made
        assert network.compiled("two-lane") != path
        assert {file.name for file in cache.iterdir()} == {path.name, network.compiled("two-lane").name}

    def test_processes_may_make_it_at_the_same_time(self, cache: Path) -> None:
        code = "from evenhand.envs.traffic import network; print(network.compiled('split').read_text().count('</net>'))"
        started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
        assert {process.communicate()[0] for process in started} == {"1\n"}
        assert [file.suffix for file in cache.iterdir()] == [".xml"]

    def test_without_a_cache_nothing_is_left_in_it(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EVENHAND_NO_CACHE", "1")
        assert network.compiled("split").is_file()
        assert not cache.exists()

    def test_a_folder_that_cannot_be_written_to(self, cache: Path) -> None:
        cache.parent.write_text("a file where a folder should be")
        with pytest.raises(InputError, match=r"cannot be written to .* XDG_CACHE_HOME"):
            network.compiled("split")


class TestInstallation:
    @pytest.mark.parametrize("missing", ["sumo", "libsumo"])
    def test_missing(self, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
        find = installation.importlib.util.find_spec
        monkeypatch.setattr(
            installation.importlib.util, "find_spec", lambda name: None if name == missing else find(name)
        )
        with pytest.raises(InputError, match=r"pip install 'evenhand\[traffic\]'") as refused:
            TrafficEnv()
        assert "\n" not in str(refused.value)

    def test_damaged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "libsumo", None)
        monkeypatch.setattr(installation, "check_installed", lambda: None)
        with pytest.raises(InputError, match="--force-reinstall libsumo"):
            installation.libsumo()
        with pytest.raises(InputError, match="without its program teleport"):
            installation.program("teleport")

    def test_no_variable_has_to_be_set(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("SUMO_HOME", "PROJ_LIB", "PROJ_DATA"):
            monkeypatch.delenv(name, raising=False)
        assert Movement("N", "S").lane == 0
        assert network.compiled("split").is_file()
