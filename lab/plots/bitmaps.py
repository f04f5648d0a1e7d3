"""Yes and no, side by side."""

from collections.abc import Mapping

import numpy as np

from lab.plots.figure import BLUE, WIDTH, Canvas, Figure
from lab.words import counted, listed


def bitmaps(
    masks: Mapping[str, object], *, title: str = "Masks", caption: str | None = None, alt: str | None = None
) -> Figure:
    """Draw masks next to each other, so that the eye can look for patterns.

    masks: name → two-dimensional booleans (a tensor or an array), at most four. True is painted.
    """
    arrays = {name: _two_dimensional(name, mask) for name, mask in masks.items()}
    if not 1 <= len(arrays) <= 4:
        raise ValueError(f"bitmaps draws one to four masks side by side, not {len(arrays)}: choose among them")
    gap = 12.0
    side = (WIDTH - gap * (len(arrays) - 1)) / len(arrays)
    canvas, height = Canvas(), 0.0
    for place, (name, mask) in enumerate(arrays.items()):
        left, cell = place * (side + gap), side / mask.shape[1]
        canvas.text(left, 11, name)
        canvas.add("path", d=_runs(mask, left, 18, cell), stroke=BLUE, stroke_width=cell)
        canvas.box(left, 18, side, mask.shape[0] * cell, "currentColor", stroke=0.5, opacity=0.6)
        height = max(height, 18 + mask.shape[0] * cell)
    words = [
        f"{name}, {mask.shape[0]} by {mask.shape[1]}, {counted(int(mask.sum()), 'cell')} painted"
        for name, mask in arrays.items()
    ]
    alt = alt or f"Masks side by side: {'; '.join(words)}."
    caption = caption or f"A painted cell is true. From left to right: {listed(list(arrays))}."
    return canvas.figure(height + 1, title, caption, alt)


def _two_dimensional(name: str, mask) -> np.ndarray:
    array = np.asarray(mask.cpu() if hasattr(mask, "cpu") else mask, bool)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"the mask {name!r} has shape {array.shape}: give it rows and columns")
    return array


def _runs(mask: np.ndarray, left: float, top: float, cell: float) -> str:
    """Return a path with one stroke for each run of true cells in a row, `cell` thick."""
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8))
    steps = []
    for row, edge in enumerate(edges):
        y = top + (row + 0.5) * cell
        for start, stop in zip(np.flatnonzero(edge > 0), np.flatnonzero(edge < 0), strict=True):
            steps.append(f"M{left + start * cell:.2f} {y:.2f}h{(stop - start) * cell:.2f}")
    return "".join(steps)
