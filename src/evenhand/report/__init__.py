"""What people read: tables in the terminal, pictures, a page, and the same numbers as plain data for programs."""

from evenhand.report.exact import (
    BOUNDS,
    STATUS,
    bound_record,
    bounds_footnotes,
    bounds_table,
    remarks,
    solution_record,
    violated,
    welfare_of,
    who_gets_what,
)
from evenhand.report.learning import (
    MEASURES,
    Curve,
    Outcome,
    estimate,
    facts_table,
    outcome_record,
    outcomes_table,
    price,
    scaled,
    summary,
    table_notes,
)
from evenhand.report.pictures import draw_comparison, draw_outcomes
from evenhand.report.text import as_json, duration

__all__ = [
    "BOUNDS",
    "MEASURES",
    "STATUS",
    "Curve",
    "Outcome",
    "as_json",
    "bound_record",
    "bounds_footnotes",
    "bounds_table",
    "draw_comparison",
    "draw_outcomes",
    "duration",
    "estimate",
    "facts_table",
    "outcome_record",
    "outcomes_table",
    "price",
    "remarks",
    "scaled",
    "solution_record",
    "summary",
    "table_notes",
    "violated",
    "welfare_of",
    "who_gets_what",
]
