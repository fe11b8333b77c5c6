"""What people read: tables in the terminal, pictures, a page, and the same numbers as plain data for programs."""

from evenhand.report.pictures import draw_comparison, draw_outcomes
from evenhand.report.solutions import (
    BOUNDS,
    STATUS,
    bound_record,
    bounds_footnotes,
    bounds_table,
    remarks,
    solution_record,
    violated,
    who_gets_what,
)
from evenhand.report.tables import (
    estimate,
    facts_sheet,
    outcome_record,
    outcomes_record,
    outcomes_sheet,
    price,
    scaled,
    summary,
    table_notes,
)
from evenhand.report.text import as_json, duration

__all__ = [
    "BOUNDS",
    "STATUS",
    "as_json",
    "bound_record",
    "bounds_footnotes",
    "bounds_table",
    "draw_comparison",
    "draw_outcomes",
    "duration",
    "estimate",
    "facts_sheet",
    "outcome_record",
    "outcomes_record",
    "outcomes_sheet",
    "price",
    "remarks",
    "scaled",
    "solution_record",
    "summary",
    "table_notes",
    "violated",
    "who_gets_what",
]
