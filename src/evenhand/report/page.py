"""One page for a browser: text, tables and pictures in a single file, and nothing from a network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path

from evenhand.report.text import Sheet

STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; max-width: 62rem; margin: 2.5rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
img { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; text-align: right; vertical-align: top; }
th { border-bottom: 2px solid #888; vertical-align: bottom; }
td { border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
small { color: #666; white-space: nowrap; }
code { background: #f3f3f3; padding: .1rem .3rem; }
"""


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def heading(text: str) -> str:
    """A heading within the page."""
    return f"<h2>{escape(text)}</h2>"


def command(text: str) -> str:
    """A line to type."""
    return f"<p><code>{escape(text)}</code></p>"


def picture(path: Path, description: str) -> str:
    """A PNG file, put into the page itself."""
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<p><img alt="{escape(description)}" src="data:image/png;base64,{data}"></p>'


def as_html(sheet: Sheet) -> str:
    """A table."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in ("", *sheet.headings))
    body = "\n".join(
        f"<tr><td>{escape(row.name)}</td>{''.join(f'<td>{_entry(*entry)}</td>' for entry in row.entries)}</tr>"
        for row in sheet.rows
    )
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def page(title: str, parts: Sequence[str], style: str = "", script: str = "") -> str:
    """The whole page. Nothing may be fetched, and nothing run but the script given, which browsers are told as well."""
    body = "\n".join(parts)
    runs = (
        f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'; " if script else ""
    )
    end = f"<script>{script}</script>\n" if script else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; {runs}img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f"{body}\n{end}</body>\n</html>\n"
    )


def _entry(value: str, interval: str) -> str:
    return f"{escape(value)}<br><small>{escape(interval)}</small>" if interval else escape(value)
