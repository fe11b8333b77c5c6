"""A column more: one entry of `metrics.STATISTICS`, and it is in tables, records, figures and claims."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

import evenhand as eh
from evenhand import report
from evenhand.errors import InputError
from evenhand.evaluation.result import Outcome
from evenhand.exact import examples
from evenhand.metrics import STATISTICS, Statistic
from evenhand.report.page import as_html
from evenhand.studies.claims import Higher, called, statistic
from evenhand.studies.executor import EXECUTORS, ExecutorKind, ThisMachine, executor_kind, register_executor
from evenhand.studies.experiment import Study
from evenhand.studies.results import summaries

GGF = eh.GGF.geometric(2)
FAIR = Outcome("fair", np.array([[0.4, 0.5], [0.5, 0.5], [0.6, 0.4], [0.5, 0.4]]))
PLAIN = Outcome("plain", np.array([[0.1, 0.9], [0.2, 0.8], [0.1, 0.7], [0.2, 0.9]]))


@pytest.fixture(autouse=True)
def distance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATISTICS, "distance", Statistic(lambda v, _: np.ptp(v, axis=-1), "dis\u00adtance", ".2f"))


def printed(table: object) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(table)
    return out.getvalue()


def test_it_is_in_tables_and_records() -> None:
    sheet = report.outcomes_sheet([FAIR, PLAIN], ["a", "b"], GGF)
    assert "tance" in printed(sheet.terminal())
    assert "0.68" in printed(sheet.terminal())  # (.8 + .6 + .6 + .7) / 4
    assert "dis\u00adtance" in as_html(sheet)
    record = report.outcome_record(PLAIN, ["a", "b"], GGF)
    assert record["distance"]["value"] == pytest.approx(0.675)


def test_it_is_in_solutions() -> None:
    model = examples.one_state()
    fair, plain = eh.solve(model, GGF, gamma=0.9), eh.solve(model, "utilitarian", gamma=0.9)
    assert "tance" in printed(report.who_gets_what(GGF, fair, plain))
    assert report.solution_record(plain, GGF)["distance"] == pytest.approx(float(np.ptp(plain.returns)))


def test_it_can_be_claimed_and_drawn() -> None:
    study = Study(key="k", title="t", about="", experiments=(), claims=())
    assert summaries(study) == ["ggf:2", "average", "minimum", "maximum", "cv", "distance"]
    assert called("distance") == "distance"
    assert statistic("distance", FAIR.returns).tolist() == pytest.approx([0.1, 0, 0.2, 0.1])
    seen = Higher("plain", "fair", "distance").judge({"plain": PLAIN.returns, "fair": FAIR.returns})
    assert seen.verdict == "holds"


def test_a_welfare_that_is_not_defined_has_one_answer() -> None:
    losses, nash = Outcome("losses", np.array([[1.0, -1.0], [1.0, 2.0]])), eh.Nash(2)
    assert np.isnan(statistic("nash", losses.returns)).tolist() == [True, False]
    assert np.isnan(report.outcome_record(losses, ["a", "b"], nash)["welfare"]["value"])
    assert np.isnan(eh.metrics.STATISTICS["welfare"].of(losses.returns[0], nash))


def test_an_executor_of_ones_own_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.studies.executor.EXECUTORS", dict(EXECUTORS))
    register_executor("mine", own := ExecutorKind(EXECUTORS["local"].connect))  # type: ignore[union-attr]
    assert executor_kind("mine") is own
    with own.connect(None, 3, 30.0) as executor:
        assert isinstance(executor, ThisMachine)
        assert executor.processes == 3
    with pytest.raises(InputError, match="there is an executor 'mine' already"):
        register_executor("mine", own)
    with pytest.raises(InputError, match="there is no executor 'min'"):
        executor_kind("min")
