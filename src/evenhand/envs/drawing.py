"""Small pictures for `render`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import UInt8


def line_plot(lines: Mapping[str, Any], across: str) -> UInt8[np.ndarray, "height width 3"]:
    """Named lines as a small image, without any window or state of matplotlib's."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, values in lines.items():
        axes.plot(values, label=name, linewidth=1.5, marker="." if len(values) == 1 else "")
    axes.set_xlabel(across)
    axes.set_ylim(bottom=0 if all(np.min(values, initial=0) >= 0 for values in lines.values()) else None)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", ncols=len(lines), frameon=False, bbox_to_anchor=(0, 1.15))
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.array(canvas.buffer_rgba())[:, :, :3].copy()  # type: ignore[no-untyped-call]
