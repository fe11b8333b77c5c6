"""Tables, pictures and pages of what was learnt, and the demo that shows all of them."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import evenhand as eh
from evenhand import demo, report
from evenhand.envs.optimum import Reference, reference_of
from evenhand.envs.species.env import Species
from evenhand.errors import InputError
from evenhand.evaluation.result import Outcome
from evenhand.report import page
from evenhand.runs.folder import RunFolder
from evenhand.runs.metrics_file import Curve
from small_requests import asked
from written_pages import Reader, is_png, small

__all__ = ["small"]

GGF = eh.GGF.geometric(2)
FAIR = Outcome("GGF-PPO", np.array([[0.4, 0.5], [0.5, 0.4], [0.6, 0.6]]))
PLAIN = Outcome("PPO", np.array([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]]))
BEST = Outcome("exact optimum", np.array([[0.6, 0.6]]), "exact")


def printed(table: Any, width: int = 80) -> str:
    shown = io.StringIO()
    Console(file=shown, width=width).print(table)
    return shown.getvalue()


# Numbers


def test_each_seed_is_judged_by_itself() -> None:
    found = report.summary(FAIR, GGF)
    scores = np.array([(2 * 0.4 + 0.5) / 3, (2 * 0.4 + 0.5) / 3, 0.6])
    assert found["welfare"].value == pytest.approx(scores.mean())
    half = 4.302652729749462 * scores.std(ddof=1) / math.sqrt(3)  # Student's t of two degrees of freedom
    assert found["welfare"].high - found["welfare"].value == pytest.approx(half)
    assert found["minimum"].value == pytest.approx(1.4 / 3)  # not 0.5, the least of the means
    assert found["cv"].value == pytest.approx((2 * 0.05 / 0.45 + 0) / 3)


def test_what_is_not_defined_is_left_open() -> None:
    losses = Outcome("losses", np.array([[-1.0, 2.0]]))
    assert math.isnan(report.summary(losses, GGF)["cv"].value)
    assert math.isnan(report.summary(losses, eh.Nash(2))["welfare"].value)
    assert math.isnan(report.scaled(report.summary(losses, GGF)["welfare"], -1.0).value)
    assert "–" in printed(report.outcomes_sheet([losses], ["a", "b"], eh.Nash(2)).terminal())


def test_the_price_is_what_is_lost_of_the_best_sum() -> None:
    assert report.price(PLAIN, PLAIN).value == pytest.approx(0)
    poor = Outcome("poor", np.array([[0.25, 0.25]]))
    assert report.price(poor, PLAIN).value == pytest.approx(0.5)


# Tables


def test_the_table_has_intervals_and_parts_of_the_optimum_within_80_columns() -> None:
    text = printed(report.outcomes_sheet([FAIR, PLAIN, BEST], ["otters", "abalone"], GGF, optimum=0.6).terminal())
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    rows = [line.split() for line in text.splitlines()]
    assert ["GGF-PPO", "0.500", "0.500", "0.489", "0.500", "0.467", "0.533", "0.074", "81.5", "%"] in rows
    assert ["exact", "optimum", *["0.600"] * 6, "0.000", "100.0", "%"] in rows
    assert text.count("±") == 16
    notes = report.table_notes([FAIR, PLAIN, BEST], ["otters", "abalone"], GGF)
    assert any("3 seeds" in note for note in notes)


def test_the_table_shows_prices() -> None:
    text = printed(
        report.outcomes_sheet(
            [PLAIN, Outcome("poor", np.array([[0.25, 0.25]]))], ["a", "b"], GGF, prices=True
        ).terminal()
    )
    assert re.search(r"^ poor .* 50\.0 %", text, re.MULTILINE)


def test_many_users_are_left_to_programs() -> None:
    users = [f"user {i}" for i in range(20)]
    many = Outcome("many", np.arange(20.0)[None])
    table = report.outcomes_sheet([many], users, eh.GGF.geometric(20)).terminal()
    assert "user" not in printed(table)
    assert any("20 users" in note for note in report.table_notes([many], users, eh.GGF.geometric(20)))
    record = report.outcome_record(many, users, eh.GGF.geometric(20))
    assert record["users"]["user 19"]["value"] == 19
    assert json.loads(report.as_json(record))["users"]["user 19"]["low"] is None


# Pictures and pages


def test_pictures_are_drawn(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    curves = [Curve(name, np.arange(1, 201) * 1000, rng.random((3, 200, 2))) for name in ("GGF-PPO", "PPO")]
    report.draw_outcomes([FAIR, PLAIN, BEST], ["otters", "abalone"], tmp_path / "a.png", curves=curves, title="T")
    many = [Outcome(f"policy {i}", rng.normal(size=(1, 30))) for i in range(12)]
    users = [f"somebody {i}" for i in range(30)]
    curve = Curve("many", np.array([1]), rng.random((1, 1, 30)))
    report.draw_outcomes(many, users, tmp_path / "b.png", curves=[curve])
    assert is_png(tmp_path / "a.png")
    assert is_png(tmp_path / "b.png")
    with pytest.raises(InputError, match="cannot be written"):
        report.draw_outcomes([FAIR], ["a", "b"], tmp_path / "c.xyz")


def test_a_page_needs_nothing_and_runs_nothing(tmp_path: Path) -> None:
    report.draw_outcomes([FAIR, PLAIN], ["a", "b"], tmp_path / "p.png")
    evil = Outcome("<script>alert(1)</script>", np.array([[1.0, 2.0]]))
    table = page.as_html(report.outcomes_sheet([FAIR, evil], ["a<b", "c&d"], GGF))
    parts = [page.heading("<i>"), table, page.picture(tmp_path / "p.png", 'a "picture"'), page.command("x > y")]
    read = Reader(page.page("<title>", parts))
    assert "script" not in read.tags
    assert [link[:22] for link in read.links] == ["data:image/png;base64,"]
    for text in ("<script>alert(1)</script>", "a<b", "welfare", "minimum", "±", "x > y"):
        assert text in read.text.replace("\u00ad", "")
    assert read.tags.count("tr") == 3


# The exact reference


def test_there_is_a_reference_only_where_it_means_something() -> None:
    species = Species(response="strong")
    assert reference_of(object(), GGF, "average", 0.99, [3650]) is None
    assert "too short" in str(reference_of(species, GGF, "discounted", 0.99, [3650, 200]))
    assert "too short" in str(reference_of(species, GGF, "average", 0.99, [200]))
    found = reference_of(species, GGF, "discounted", 0.99, [3650])
    assert isinstance(found, Reference)
    assert GGF.value(found.returns) == pytest.approx(0.4806, abs=1e-3)
    assert "strong response" in found.note


# The demo; `make soak` lets it tell its story


def test_the_demo_removes_only_what_it_made(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = Path("demo/runs/ppo")
    mine.mkdir(parents=True)
    (mine / "thesis.txt").write_text("ten years of work")
    assert demo.main() == 2
    assert "move it away first" in capsys.readouterr().err
    assert (mine / "thesis.txt").exists()
    shutil.rmtree(mine)
    RunFolder.create(mine, asked(welfare="utilitarian"))
    assert demo.main() == 2
    assert (mine / "run.json").exists()
    shutil.rmtree(mine)
    RunFolder.create("elsewhere", asked(welfare="utilitarian", arguments=demo.ARGUMENTS))
    mine.symlink_to(Path("elsewhere").resolve())
    assert demo.main() == 2
    assert Path("elsewhere/run.json").exists()


def test_a_demo_under_way_is_left_alone(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder.create("demo/runs/ggf-ppo", asked(arguments=demo.ARGUMENTS))
    with folder.locked():
        assert demo.main() == 2
    assert "is being trained by" in capsys.readouterr().err
    assert (folder.path / "run.json").exists()


def test_a_training_that_fails_is_said(small: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(demo, "STEPS", 5)
    assert demo.main() == 2
    assert "fewer than ppo takes" in capsys.readouterr().err


def test_facts_go_down_the_longer_side() -> None:
    """Few policies are columns, and many are rows; what is not known of one is left out."""

    def headings(facts: dict[str, dict[str, float]]) -> list[str]:
        return [str(column.header) for column in report.facts_sheet(facts).terminal().columns]

    assert headings({"one": {"a": 1.0, "b": 2.0}, "two": {"a": 3.0}}) == ["", "one", "two"]
    many = {name: {"a": 1.0} for name in ("one", "two", "three")} | {"four": {"b": 1.0}}
    assert headings(many) == ["", "a", "b"]
    out = io.StringIO()
    Console(file=out, width=80).print(report.facts_sheet(many).terminal())
    assert re.search(r"four +– +1", out.getvalue())
