"""Tables of arrivals and timings: ours, those of other people, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from evenhand.envs.traffic.demand import PERIOD, STATIONARY, Arrivals, day, demand, length
from evenhand.envs.traffic.env import TrafficEnv
from evenhand.envs.traffic.sumo import routes_xml
from evenhand.envs.traffic.timing import TIMINGS, timing
from evenhand.errors import InputError

CSV = """origin, destination, probability, from, to
N, S, 0.5, 0, 100
N, S, 0.25, 100, 200
E, W, 0.1, 0, 200
S, N, 1, 0, 200
W, E, 0, 0, 200
"""
TOML = """
[[arrivals]]
origin = "N"
destination = "S"
probability = 0.5
to = 100

[[arrivals]]   # later
origin = "N"
destination = "S"
probability = 0.25
from = 100
to = 200

[[arrivals]]
origin = "E"
destination = "W"
probability = 0.1
to = 200

[[arrivals]]
origin = "S"
destination = "N"
probability = 1
to = 200

[[arrivals]]
origin = "W"
destination = "E"
probability = 0
to = 200
"""
TABLE = (
    Arrivals("N", "S", 0.5, 0, 100),
    Arrivals("N", "S", 0.25, 100, 200),
    Arrivals("E", "W", 0.1, 0, 200),
    Arrivals("S", "N", 1, 0, 200),
    Arrivals("W", "E", 0, 0, 200),
)


def test_the_papers_table() -> None:
    found = {arrivals.origin + arrivals.destination: arrivals.probability for arrivals in demand("stationary")}
    assert found == {
        "NS": 0.5, "NW": 0.5, "NE": 0.3, "SN": 0.15, "SE": 0.15, "SW": 0.3,
        "EW": 0.3, "EN": 0.3, "ES": 0.08, "WE": 0.1, "WS": 0.1, "WN": 0.08,
    }  # fmt: skip
    assert math.isinf(length(STATIONARY))


def test_the_day_has_four_parts() -> None:
    parts = [{a.origin + a.destination: a.probability for a in day() if a.start == i * PERIOD} for i in range(4)]
    assert length(day()) == 100_000
    assert parts[0] == {a.origin + a.destination: a.probability for a in STATIONARY}
    assert parts[1] == pytest.approx({way: 0.6 * p for way, p in parts[0].items()})
    assert parts[3] == pytest.approx({way: 0.15 * p for way, p in parts[0].items()})
    # The axes are swapped, and left turns stay left turns.
    assert {way: parts[2][way] for way in ("EW", "EN", "ES")} == {"EW": 0.5, "EN": 0.5, "ES": 0.3}
    assert sum(parts[2][way] for way in ("NS", "NE", "NW", "SN", "SE", "SW")) == pytest.approx(0.28 + 0.68)


@pytest.mark.parametrize(("name", "text"), [("table.csv", CSV), ("table.toml", TOML)])
def test_own_tables(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert demand(path) == demand(str(path)) == TABLE
    env = TrafficEnv(demand=str(path))
    assert env._scenario.seconds == 200  # as long as the table says


def test_a_table_without_times_is_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("origin,destination,probability\nN,S,0.1\nE,W,0.1\n\nS,N,0.1\nW,E,0.1\n")
    assert [(a.start, a.stop) for a in demand(path)] == [(0, math.inf)] * 4


def test_a_table_in_python() -> None:
    assert demand(iter(TABLE)) == TABLE
    with pytest.raises(InputError, match="arrivals 2: there is no arm 'X'"):
        demand([TABLE[0], Arrivals("X", "S", 0.5)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("S, N, 1, 0", "X, N, 1, 0"), "line 5: there is no arm 'X'; the origin is N, E, S or W"),
        (("S, N, 1, 0", "S, north, 1, 0"), "line 5: there is no arm 'north'; the destination"),
        (("E, W, 0.1", "E, E, 0.1"), "line 4: cars cannot turn round"),
        (("E, W, 0.1", "E, W, 1.1"), "line 4: the probability .* between 0 and 1, not at 1.1"),
        (("E, W, 0.1", "E, W, -0.1"), "line 4: the probability .* not at -0.1"),
        (("E, W, 0.1", "E, W, nan"), "line 4: probability must be a number, not 'nan'"),
        (("E, W, 0.1", "E, W, often"), "line 4: probability must be a number, not 'often'"),
        (("E, W, 0.1", ", W, 0.1"), "line 4: the origin is missing"),
        (("E, W, 0.1, 0, 200", "E, W"), "line 4: there should be 5 values"),
        (("E, W, 0.1, 0, 200", "E, W, 0.1, 0, 200, 7"), "line 4: there should be 5 values"),
        (("E, W, 0.1, 0", "E, W, 0.1, 300"), "line 4: the time must begin at 0 or later .* from 300 to 200"),
        (("E, W, 0.1, 0", "E, W, 0.1, -1"), "line 4: the time must begin at 0 or later"),
        (("0.25, 100, 200", "0.25, 99, 200"), "line 3: the cars from N to S .* 0 to 100 s, which overlaps 99 to 200 s"),
        (("W, E, 0, 0, 200\n", ""), "table.csv: no cars come from W; .* a line for W and probability 0"),
        (("origin, ", "start, "), "line 1: there is no column 'origin'"),
        ((CSV, ""), "line 1: there is no column 'origin'"),
    ],
)
def test_bad_tables_name_the_line(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "table.csv"
    assert change[0] in CSV
    path.write_text(CSV.replace(*change))
    with pytest.raises(InputError, match=message) as refused:
        TrafficEnv(demand=str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('origin = "E"', 'origin = "Q"'), "line 15: there is no arm 'Q'"),
        (('origin = "E"\n', ""), "line 15: the origin is missing"),
        (('origin = "E"', 'origin = "E"\ncolour = "red"'), "line 15: there is no 'colour' of arrivals"),
        (("probability = 0.5", "probability = true"), "line 2: probability must be a number, not True"),
        (("probability = 0.5", "probability = "), "is not TOML"),
        (("[[arrivals]]   # later", "[later]"), r"should consist of \[\[arrivals\]\]"),
    ],
)
def test_bad_toml(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "table.toml"
    assert change[0] in TOML
    path.write_text(TOML.replace(*change))
    with pytest.raises(InputError, match=message):
        demand(path)


def test_toml_without_headings_counts_entries(tmp_path: Path) -> None:
    path = tmp_path / "table.toml"
    path.write_text('arrivals = [{origin = "N", destination = "N", probability = 1}]')
    with pytest.raises(InputError, match="entry 1: cars cannot turn round"):
        demand(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"demand must be stationary, day, or a table in a .csv or .toml file, not 'night'"
    ):
        demand("night")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        demand(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file"):
        demand(tmp_path / "binary.csv")


def test_the_first_arrivals_come_while_it_warms_up_and_all_others_later() -> None:
    text = routes_xml(TABLE, 126, "split")
    assert 'id="NS0" route="NS" probability="0.5" begin="0.00" end="226.00"' in text
    assert 'route="NS" probability="0.25" begin="226.00" end="326.00"' in text
    assert 'route="WE"' not in text  # nobody comes
    assert 'edges="N_in0 S_out0"' in text
    assert 'end="1000000000.00"' in routes_xml(STATIONARY, 126, "two-lane")


class TestTiming:
    def test_the_three_of_the_paper(self) -> None:
        assert timing("fixed") == (4, 10, 14)
        assert timing("literal") == (4, 10, 10)
        assert timing("authors") == (6, 14, 20)

    def test_own(self) -> None:
        assert timing("fixed", yellow=3, kept=20) == (3, 10, 20)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"timing": "slow"}, f"timing must be {', '.join(TIMINGS)}, not 'slow'"),
            ({"yellow": 2}, "2 s of yellow are too short"),
            ({"yellow": 0}, "yellow must be a whole number of seconds from 1"),
            ({"green": -5}, "green must be a whole number of seconds"),
            ({"kept": 10_000}, "kept must be .* to 600"),
            ({"episode_seconds": 10}, "episode_seconds must be .* at least 14, the length of one decision, not 10"),
            ({"warm_up": -1}, "warm_up must be .* at least 0, not -1"),
            ({"render_mode": "human"}, "render_mode must be"),
        ],
    )
    def test_impossible(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(InputError, match=message):
            TrafficEnv(**arguments)
