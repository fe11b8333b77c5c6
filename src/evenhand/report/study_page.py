"""The page of a study: claims and verdicts first, then scores for any weights, figures, and how it was all run.

One file with its script and data inside, which needs no network and asks for none.
"""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from evenhand.report.page import as_html, heading, page, paragraph
from evenhand.report.study_pictures import WIDE, Figure
from evenhand.report.tables import outcomes_sheet
from evenhand.report.verdicts import outcomes_of
from evenhand.studies.claims import HOLDS, IN_WORDS, LEAST_SEEDS, Judged
from evenhand.studies.experiment import Experiment, Study
from evenhand.studies.results import Setting, claims_record
from evenhand.welfare import welfare as named_welfare

STYLE = """
body { max-width: 76rem; } body > p { max-width: 62rem; }
.verdict { display: inline-block; padding: .05rem .5rem; border-radius: 1rem; font-size: .85rem; white-space: nowrap; }
.holds { background: #d7f0dc; color: #12491f; } .does-not-hold { background: #f9d9d6; color: #7a1710; }
.undecided { background: #f3ecd2; color: #5c4a06; }
.claims td { text-align: left; } .claims td:first-child { white-space: normal; min-width: 14rem; }
.claims th { text-align: left; font-size: .85rem; } .claims td, .claims th { padding: .35rem .5rem; }
@media (max-width: 700px) {
  .claims thead { display: none; } .claims tr, .claims td { display: block; border: 0; padding: .15rem 0; }
  .claims tr { border-bottom: 1px solid #ccc; padding: .6rem 0; } .claims td:empty { display: none; }
  #ranking .bars, #ranking th:last-child { display: none; } #ranking :is(td, th) { padding: .35rem; }
  .claims td[data-setting]::before { content: attr(data-setting) " "; font-size: .85rem; color: #555; }
}
details { margin: .3rem 0; } summary { cursor: pointer; color: #444; font-size: .9rem; }
details li { font-size: .9rem; margin: .2rem 0; } .seen { max-width: 46rem; }
figure { margin: 0; break-inside: avoid; } figcaption { font-size: .85rem; color: #444; margin: 0 0 .8rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); gap: 1rem; }
.figures .wide-figure { grid-column: 1 / -1; overflow-x: auto; }
.wide-figure img { min-width: 38rem; width: 100%; } .figures img { width: 100%; }
.choice { display: flex; flex-wrap: wrap; gap: .6rem 1.2rem; align-items: center; margin: 1rem 0; }
.choice label, .choice select, .choice input { max-width: 100%; } .choice input[type=range] { width: 18rem; }
#weights { font-variant-numeric: tabular-nums; font-size: .9rem; color: #444; }
#ranking { width: 100%; } #ranking :is(td, th):nth-child(2) { text-align: left; }
#ranking .bars { width: 45%; } .bar { background: #0072B2; height: .9rem; min-width: 1px; }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
dt { font-weight: 600; } dd { margin: 0 0 .5rem; } .hyper { font-size: .8rem; }
"""


def study_page(
    study: Study,
    found: Sequence[Mapping[str, Judged]],
    settings: Sequence[Setting],
    figures: Mapping[str, Sequence[tuple[Figure, str]]],
    about: Sequence[str],
    how: Sequence[str],
) -> str:
    """The whole page.

    figures: by setting or experiment, each with its SVG. about: paragraphs for the beginning. how: HTML of the end.
    """
    parts = [paragraph(study.about), *map(paragraph, about), heading("Claims and verdicts")]
    parts += claims_parts(claims_record(study.claims, found))
    if settings:
        parts += _chooser(settings)
    for experiment in study.experiments:
        parts += [heading(experiment.title), paragraph(experiment.about)]
        parts.append(figure_grid(figures.get(experiment.key, ())))
        for setting in settings:
            if setting.experiment.key == experiment.key:
                parts.append(f"<h3>{escape(setting.test.about or setting.test.name)}</h3>")
                parts.append(figure_grid(figures.get(setting.key, ())))
                parts += _table(study, setting)
    for key, drawn in figures.items():
        if not any(key.split("/")[0] == experiment.key for experiment in study.experiments):
            parts += [heading(key), figure_grid(drawn)]
    parts += [heading("How this was run"), *how]
    script = ""
    if settings:
        parts.append(f'<script type="application/json" id="study-data">{_embedded(_data(settings))}</script>')
        script = resources.files("evenhand.report").joinpath("study.js").read_text("utf-8")
    return page(f"{study.title}: claims, verdicts and figures", parts, STYLE, script)


def claims_parts(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of claims, with what was seen to be unfolded, and what is to be known about those that are in doubt.

    claims: as `evenhand.studies.results.claims_record` gives them, and files have them.
    """
    columns = list(dict.fromkeys(setting for claim in claims for setting in claim["verdicts"]))
    head = "".join(f"<th scope='col'>{escape(column.replace('/', ': '))}</th>" for column in columns)
    rows = []
    for claim in claims:
        by = claim["verdicts"]
        cells = "".join(
            f'<td data-setting="{escape(column.replace("/", ": "))}">{_badge(by[column]["verdict"])}</td>'
            if column in by
            else "<td></td>"
            for column in columns
        )
        text = f"{escape(claim['claim'])}<br><small>{escape(claim['source'])}</small>{_seen(claim)}"
        rows.append(f"<tr><td>{text}</td>{cells}</tr>")
    counts = Counter(found["verdict"] for claim in claims for found in claim["verdicts"].values())
    summary = ", ".join(f"{counts[verdict]} {words}" for verdict, words in IN_WORDS.items())
    return [
        paragraph(
            f"{len(claims)} claims in {len(columns)} {'setting' if len(columns) == 1 else 'settings'}: {summary}."
        ),
        f'<div class="wide"><table class="claims"><thead><tr><th scope="col">claim</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>",
        *map(paragraph, explanations(claims)),
    ]


def explanations(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is to be known about claims that do not hold everywhere, each thing once."""
    doubtful = [claim for claim in claims if any(found["verdict"] != HOLDS for found in claim["verdicts"].values())]
    return list(dict.fromkeys(claim["note"] for claim in doubtful if claim["note"]))


def rules() -> list[str]:
    """How verdicts about sampled quantities come about."""
    return [
        paragraph(
            "A claim is a set of comparisons, and holds if all of them do. A comparison holds if the 95 % interval of "
            "the difference of the means over seeds (stratified bootstrap, BCa) and that of the probability of "
            "improvement both lie on the side claimed; it does not hold if both lie on the other side, or if there is "
            "no difference at all. Anything else is undecided at this scale. One comparison that does not hold is "
            "enough for a claim not to."
        ),
        paragraph(
            f"With fewer than {LEAST_SEEDS} seeds nothing is decided. Intervals are not corrected for how many claims "
            "there are: of twenty differences that do not exist, one may be found. Test episodes have random numbers "
            "of their own, none of which occurs in training, and the seeds are none of those with which "
            "hyperparameters were searched."
        ),
    ]


def how_parts(experiments: Sequence[Experiment], runs: Mapping[str, Any], came: Mapping[str, Any]) -> list[str]:
    """Seeds, tests, hyperparameters, versions and machines.

    runs: by experiment and learner, one run of it.
    """
    parts = []
    for experiment in experiments:
        arguments = ", ".join(f"{k} = {v}" for k, v in experiment.arguments.items()) or "as they are by default"
        tests = "; ".join(
            f"{test.name}: {test.episodes} episodes for each seed"
            + "".join(f", {k} = {v}" for k, v in test.arguments.items())
            for test in experiment.tests
        )
        items = {
            "environment": f"{experiment.env}, settings {arguments}",
            "seeds": f"{len(experiment.seeds)}: {_ranges(experiment.seeds)}",
            "tests": tests,
            "preset": experiment.preset,
        }
        listed = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in items.items())
        parts.append(f"<h3>{escape(experiment.title)}</h3><dl>{listed}</dl>")
        rows = []
        for learner in experiment.learners:
            run = runs.get(f"{experiment.key}/{learner.name}")
            if run is not None:
                asked = run.request
                training = "".join(f", {k} = {v} while training" for k, v in asked.training.items())
                numbers = ", ".join(f"{k} = {_short(v)}" for k, v in asked.settings.items())
                rows.append(
                    f"<dt>{escape(learner.name)}: {asked.steps:,} steps{escape(training)}</dt>"
                    f'<dd class="hyper">{escape(numbers)}</dd>'
                )
        if rows:
            parts.append(f"<details><summary>Hyperparameters</summary><dl>{''.join(rows)}</dl></details>")
    for version in came["versions"]:
        packages = ", ".join(f"{name} {number}" for name, number in version["packages"].items())
        machine = f"{version['cpu']}, {version['cores']} cores, {version['platform']}"
        parts.append(paragraph(f"Versions: Python {version['python']}, {packages}. Machine: {machine}."))
    if math.isfinite(came["core_hours"]):
        parts.append(
            paragraph(f"Training and testing took {came['core_hours']:.2f} core-hours, where it was not interrupted.")
        )
    return parts


def figure_grid(figures: Sequence[tuple[Figure, str]]) -> str:
    """Pictures with captions, side by side where there is room."""
    if not figures:
        return ""
    made = []
    for figure, svg in figures:
        data = base64.b64encode(svg.encode()).decode()
        kind = ' class="wide-figure"' if figure.width == WIDE else ""
        made.append(
            f'<figure{kind}><img id="{escape(figure.name)}" alt="{escape(figure.caption)}" '
            f'src="data:image/svg+xml;base64,{data}"><figcaption>{escape(figure.caption)}</figcaption></figure>'
        )
    return f'<div class="figures">{"".join(made)}</div>'


def _badge(verdict: str) -> str:
    return f'<span class="verdict {verdict.replace(" ", "-")}">{escape(IN_WORDS[verdict])}</span>'


def _seen(claim: Mapping[str, Any]) -> str:
    lists = []
    for setting, judged in claim["verdicts"].items():
        items = "".join(
            f"<li>{escape(IN_WORDS[finding['verdict']])}: {escape(finding['text'])}.</li>" for finding in judged["seen"]
        )
        lists.append(f"<p>{escape(setting.replace('/', ': '))}</p><ul>{items}</ul>")
    return f'<details><summary>what was seen</summary><div class="seen">{"".join(lists)}</div></details>'


def _chooser(settings: Sequence[Setting]) -> list[str]:
    options = "".join(f'<option value="{escape(setting.key)}">{escape(setting.title)}</option>' for setting in settings)
    return [
        heading("Choose the weights"),
        paragraph(
            "The GGF sorts what the users get and weights it by 1, 1/r, 1/r², …, the largest weight for whoever gets "
            "least. With r = 1 it is the average; the larger r, the more the worst-off user counts. Scores are means "
            "over seeds with 95 % intervals."
        ),
        '<div class="choice"><label>Results <select id="setting">'
        f"{options}</select></label>"
        f'<label>r <input type="range" id="ratio" min="0" max="2" step="any" value="{math.log10(2)}"></label>'
        '<button type="button" data-ratio="1">r = 1</button><button type="button" data-ratio="2">r = 2</button>'
        '<button type="button" data-ratio="10">r = 10</button><output id="weights"></output></div>',
        '<div class="wide"><table id="ranking"><thead><tr><th scope="col">rank</th><th scope="col">method</th>'
        '<th scope="col">GGF score</th><th scope="col">interval</th><th scope="col"></th></tr></thead>'
        "<tbody></tbody></table></div>",
    ]


def _table(study: Study, setting: Setting) -> list[str]:
    welfare = named_welfare(f"ggf:{study.ratios[0]}", len(setting.objectives))
    table = outcomes_sheet(outcomes_of(setting), setting.objectives, welfare, prices=True)
    return [
        *map(paragraph, setting.doubts),
        "<details><summary>The numbers</summary>"
        + paragraph(
            f"welfare: GGF score with weights 1/{study.ratios[0]}^i. ±: 95 % interval of the mean over seeds "
            "(Student's t). Price of fairness: what is lost of the largest average."
        )
        + as_html(table)
        + "</details>",
    ]


def _data(settings: Sequence[Setting]) -> dict[str, Any]:
    """What the script needs: returns of every seed, and Student's quantiles by the number of seeds."""
    from scipy import special

    counts = {len(z) for setting in settings for z in setting.returns.values()}
    return {
        "settings": {
            setting.key: {
                "objectives": list(setting.objectives),
                "returns": {method: [list(map(float, row)) for row in z] for method, z in setting.returns.items()},
            }
            for setting in settings
        },
        "quantiles": {str(n): float(special.stdtrit(n - 1, 0.975)) for n in sorted(counts) if n > 1},
    }


def _embedded(data: Any) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _ranges(seeds: Sequence[int]) -> str:
    whole = list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]} to {seeds[-1]}" if whole and len(seeds) > 1 else ", ".join(map(str, seeds))
