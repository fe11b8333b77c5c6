"""The page of a study in a real browser: complete, silent, offline, readable, and right about any weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import browser
from evenhand.papers import theory
from evenhand.report.publishing import drawn, overview, publish_facts
from evenhand.report.study_page import claims_parts, study_page
from evenhand.report.study_pictures import curves_figure, figures_of
from evenhand.report.verdicts import claims_markdown
from evenhand.runs.metrics_file import Curve
from evenhand.studies.claims import Claim, Higher, Lower
from evenhand.studies.experiment import Experiment, Learner, Simple, Study, Test
from evenhand.studies.results import Setting, claims_record, record, verdicts
from evenhand.welfare import GGF

if browser.program() is None and not os.environ.get("CI"):
    pytest.skip("there is no Chromium on this machine: apt-get install chromium", allow_module_level=True)

RNG = np.random.default_rng(0)
USERS = ("north <1>", "east", "south")
MEANS = {"PPO": (9.0, 6.0, 0.5), "GGF-PPO": (4.0, 4.2, 3.9), "GGF10-PPO": (3.8, 3.9, 3.85), "random": (2.0, 2.1, 1.9)}
EXPERIMENT = Experiment(
    key="planted",
    title="Planted & known",
    env="planted",
    learners=(
        Learner(name="PPO", algo="ppo"),
        Learner(name="GGF-PPO", algo="ppo", welfare="ggf"),
        Learner(name="GGF10-PPO", algo="ppo", welfare="ggf:10"),
    ),
    simple=(Simple(name="random", policy="random"),),
    tests=(
        Test(name="gains", measure="average", episodes=5, arguments={}, about="what they gain"),
        Test(name="losses", measure="average", episodes=5, arguments={}, about="what they lose"),
    ),
    seeds=(100, 101, 102, 103, 104),
    about="Numbers that were made up, so that the right ranking is known.",
)
RETURNS = {name: np.array(mean) + RNG.normal(0, 0.05, (5, 3)) for name, mean in MEANS.items()}
SETTINGS = [
    Setting(EXPERIMENT, EXPERIMENT.tests[0], USERS, RETURNS, {"ggf:2": np.array([4.5, 4.5, 4.5])}),
    Setting(EXPERIMENT, EXPERIMENT.tests[1], USERS, {name: -z for name, z in RETURNS.items()}, {}),
]
CLAIMS = (
    Claim(
        text="Fair is better",
        parts=(Higher("GGF-PPO", "random", "ggf:2"),),
        source="here",
        settings=("planted/gains", "planted/losses"),
    ),
    Claim(
        text="Fair is more even",
        parts=(Lower("GGF-PPO", "PPO", "cv"),),
        source="here",
        settings=("planted/gains",),
        note="As planted.",
    ),
)
STUDY = Study(
    key="planted",
    title="A planted study",
    about="What is known.",
    experiments=(EXPERIMENT,),
    claims=CLAIMS,
    ratios=(2, 10),
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the planted study, as `publish` would write it."""
    folder = tmp_path_factory.mktemp("page")
    found = verdicts(CLAIMS, {setting.key: setting.returns for setting in SETTINGS})
    steps = np.arange(1, 41) * 100
    curves = [Curve(name, steps, RNG.normal(3, 0.1, (5, 40, 3))) for name in list(MEANS)[:3]]
    drawings = {"planted": [curves_figure(EXPERIMENT, curves, {"random": 2.0})]} | figures_of(STUDY, SETTINGS)
    text = study_page(STUDY, found, SETTINGS, drawn(drawings, folder), ["Scale: planted."], ["<p>By hand.</p>"])
    (folder / "index.html").write_text(text, "utf-8")
    return folder / "index.html"


@pytest.fixture(scope="module")
def shown(page: Path) -> Any:
    with browser.Browser() as opened:
        opened.open(page)
        yield opened


def ranking(shown: Any) -> list[tuple[str, float]]:
    rows = shown.run("[...document.querySelectorAll('#ranking tbody tr')].map(r => [...r.cells].map(c => c.innerText))")
    assert [row[0] for row in rows] == [str(i + 1) for i in range(len(rows))]
    return [(row[1], float(row[2].replace("−", "-"))) for row in rows]


def move(shown: Any, ratio: float) -> None:
    """As a person who drags the slider."""
    shown.run(
        f"(() => {{ const s = document.getElementById('ratio'); s.value = Math.log10({ratio}); "
        "s.dispatchEvent(new Event('input')); })()"
    )


def expected(setting: Setting, ratio: float) -> list[tuple[str, float]]:
    ggf = GGF.geometric(3, ratio)
    scores = {name: float(ggf.value(z).mean()) for name, z in setting.returns.items()}
    return sorted(scores.items(), key=lambda item: -item[1])


def test_nothing_is_complained_about_or_fetched(shown: Any) -> None:
    assert shown.complaints() == []
    assert shown.requests() == []


def test_a_page_cannot_fetch_or_run_anything_else(page: Path, tmp_path: Path) -> None:
    """Browsers hold the page to it: what is put in later is refused, and complained about."""
    added = '<script>window.ran = 1</script><img src="http://127.0.0.1:9/x.png">'
    changed = tmp_path / "changed.html"
    changed.write_text(page.read_text("utf-8").replace("</body>", f"{added}</body>"), "utf-8")
    with browser.Browser() as opened:
        opened.open(changed)
        assert opened.run("window.ran") is None
        assert len(opened.complaints()) >= 2


def test_claims_come_first(shown: Any) -> None:
    assert shown.run("document.querySelector('h2').innerText") == "Claims and verdicts"
    verdicts = shown.run("[...document.querySelectorAll('.claims .verdict')].map(v => v.innerText)")
    assert verdicts == ["holds", "does not hold", "holds"]
    seen = shown.run("document.querySelector('.claims details').textContent")
    assert "GGF score (weights 1/2^i) of GGF-PPO" in seen


def test_all_figures_are_there(shown: Any, page: Path) -> None:
    """On the page, and beside it as PNG and PDF."""
    names = shown.run("[...document.images].map(i => i.id)")
    per_test = ("ggf-2", "ggf-10", "average", "objectives", "minimum", "maximum", "cv", "lorenz", "price")
    wanted = ["planted-curves", *(f"planted-{test}-{kind}" for test in ("gains", "losses") for kind in per_test)]
    assert names == wanted
    assert shown.run("[...document.images].every(i => i.complete && i.naturalWidth > 100 && i.alt.length > 10)")
    for name in wanted:
        assert (page.parent / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (page.parent / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("ratio", [1.0, 1.5, 2.0, 10.0, 100.0])
@pytest.mark.parametrize("which", [0, 1])
def test_the_slider_computes_scores_and_ranking(shown: Any, which: int, ratio: float) -> None:
    setting = SETTINGS[which]
    shown.run(
        "(() => { const s = document.getElementById('setting'); "
        f"s.value = '{setting.key}'; s.dispatchEvent(new Event('change')); }})()"
    )
    move(shown, ratio)
    found, right = ranking(shown), expected(setting, ratio)
    assert [name for name, _ in found] == [name for name, _ in right]
    assert [score for _, score in found] == pytest.approx([score for _, score in right], abs=6e-4)
    assert f"1/{ratio:.2f}^i" in shown.run("document.getElementById('weights').innerText")


def test_the_ranking_depends_on_the_weights(shown: Any) -> None:
    """The average is for PPO, the worst-off user against it."""
    shown.run("document.getElementById('setting').selectedIndex = 0")
    move(shown, 1.0)
    assert ranking(shown)[0][0] == "PPO"
    shown.run("document.querySelector('button[data-ratio=\"10\"]').click()")
    assert ranking(shown)[0][0] == "GGF-PPO"
    assert shown.run("Number(document.getElementById('ratio').value)") == pytest.approx(1.0)


@pytest.mark.parametrize("width", [1280, 400])
def test_readable_on_a_desk_and_on_a_telephone(shown: Any, page: Path, width: int) -> None:
    """Nothing sticks out, no text is small, and what is wide scrolls by itself. The screenshot is for people."""
    shown.resize(width, 900)
    assert shown.run("document.documentElement.scrollWidth") <= width
    sizes = shown.run(
        "[...document.querySelectorAll('p, td, th, li, figcaption, summary, output')]"
        ".filter(e => e.offsetParent).map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12
    widths = shown.run("[...document.images].map(i => i.getBoundingClientRect().width)")
    assert min(widths) >= 0.3 * min(width, 1000)
    hidden = shown.run(
        "[...document.querySelectorAll('.claims .verdict')].filter(v => v.getBoundingClientRect().right > innerWidth)"
        ".length"
    )
    assert hidden == 0  # verdicts are seen without scrolling sideways
    shown.picture(page.parent / f"{width}.png")


def test_the_page_of_the_theory(tmp_path: Path) -> None:
    """Without settings there is nothing to choose, and no script."""
    facts = {part.key: (True, "planted") for claim in theory.CLAIMS for part in claim.parts}  # type: ignore[union-attr]
    found = verdicts(theory.CLAIMS, {theory.SETTING: facts})
    text = study_page(theory.STUDY, found, [], {}, [], [])
    assert "<script" not in text
    (tmp_path / "index.html").write_text(text, "utf-8")
    with browser.Browser(400) as opened:
        opened.open(tmp_path / "index.html")
        assert opened.complaints() == []
        assert opened.run("document.querySelectorAll('.verdict').length") == len(theory.CLAIMS)
        assert opened.run("document.documentElement.scrollWidth") <= 400


def test_the_overview_has_the_claims_of_all_parts_in_order(tmp_path: Path) -> None:
    facts = {part.key: (False, "planted") for claim in theory.CLAIMS for part in claim.parts}  # type: ignore[union-attr]
    for name in ("one", "two"):
        publish_facts(theory.STUDY, {theory.SETTING: facts}, {}, tmp_path / name, "evenhand reproduce theory")
    (tmp_path / "index.html").write_text(overview(tmp_path, ("two", "absent", "one")), "utf-8")
    with browser.Browser(400) as opened:
        opened.open(tmp_path / "index.html")
        assert opened.complaints() == []
        assert opened.run("document.querySelectorAll('.does-not-hold').length") == 2 * len(theory.CLAIMS)
        links = opened.run("[...document.querySelectorAll('h2 a')].map(a => a.getAttribute('href')).join()")
        assert links == "two/index.html,one/index.html"
        assert opened.run("document.documentElement.scrollWidth") <= 400


def test_what_programs_and_people_read_besides() -> None:
    found = verdicts(CLAIMS, {setting.key: setting.returns for setting in SETTINGS})
    numbers = record(STUDY, SETTINGS, found)
    assert numbers["settings"]["planted/gains"]["returns"]["PPO"] == RETURNS["PPO"].tolist()
    assert numbers["claims"][0]["verdicts"]["planted/losses"]["verdict"] == "does not hold"
    text = claims_markdown("A planted study", CLAIMS, found)
    assert "- planted/gains: **holds**" in text
    assert "1 does not hold" in claims_parts(claims_record(CLAIMS, found))[0]
