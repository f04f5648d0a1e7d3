"""What online softmax keeps from one block to the next."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lab.plots.axes import panel, write
from lab.plots.figure import BLUE, GREY, ORANGE, WIDTH, Figure
from lab.plots.theme import FAINT, INK, canvas_of, themed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST = 64  # scores that can still be told apart
HEIGHT = 262


def running(scores: Sequence[float], block: int, *, caption: str | None = None, alt: str | None = None) -> Figure:
    """Draw how online softmax goes over one row: its largest score so far, and the sum of powers that belongs to it.

    scores: the row, natural logarithms of the powers. block: how many of them a step takes.
    """
    row = np.asarray([float(score) for score in scores])
    if not 0 < len(row) <= LONGEST or not np.isfinite(row).all():
        raise ValueError(f"running draws 1 to {LONGEST} finite scores: choose fewer of these {len(row)}, or others")
    steps = online(row, block)
    edges = [min(place * block, len(row)) for place in range(len(steps) + 1)]
    with themed(HEIGHT) as drawing:
        upper, lower = panel(drawing, 34, 22, WIDTH - 8, 112), panel(drawing, 34, 146, WIDTH - 8, 228)
        write(drawing, 0, 10, "scores, and the largest so far, m", alpha=FAINT)
        write(drawing, 0, 134, "the sum of powers, s, after each block", alpha=FAINT)
        draw_scores(upper, row, edges, [top for top, *_ in steps])
        draw_sums(lower, edges, steps)
        for axes in (upper, lower):
            axes.vlines(edges[1:-1], 0, 1, color=INK, alpha=0.2, linewidth=0.6, transform=axes.get_xaxis_transform())
            axes.set_xlim(0, len(row))
        canvas = canvas_of(drawing)
    words = [f"m = {top:.2f}, s = {kept + added:.2f}" for top, _, kept, added in steps]
    caption = caption or (
        f"One row of {len(row)} scores, {block} at a time. Above, the line is the largest so far. Below, each bar is "
        "the sum after a block: grey is what was kept of the last bar, blue what the block added, and the dashed box "
        "what the correction took away, wherever the line above rose."
    )
    alt = alt or f"Online softmax over {len(row)} scores, {block} at a time. After each block: {'; '.join(words)}."
    return canvas.figure(HEIGHT, "The largest score and the sum as the loop goes", caption, alt)


def draw_scores(axes: "Axes", row: np.ndarray, edges: Sequence[int], tops: Sequence[float]) -> None:
    """Draw every score as a dot, and the largest so far as a line."""
    axes.plot(np.arange(len(row)) + 0.5, row, color=BLUE, marker="o", markersize=3.5, linestyle="")
    axes.stairs(tops, edges, baseline=None, color=ORANGE, linewidth=2)
    room = 0.08 * (row.max() - row.min()) or 1
    axes.set_ylim(row.min() - room, row.max() + room)
    axes.locator_params(axis="y", nbins=4, steps=[1, 2, 5, 10])
    axes.set_xticks([])


def draw_sums(axes: "Axes", edges: Sequence[int], steps: Sequence[tuple[float, float, float, float]]) -> None:
    """Draw after each block what was kept of the sum, what the block added, and dashed what the correction took."""
    middles = [(left + right) / 2 for left, right in zip(edges[:-1], edges[1:], strict=True)]
    widths = [0.8 * (right - left) for left, right in zip(edges[:-1], edges[1:], strict=True)]
    for middle, width, (_, before, kept, added) in zip(middles, widths, steps, strict=True):
        axes.bar(middle, kept, width, color=GREY, alpha=0.5, linewidth=0)
        axes.bar(middle, added, width, bottom=kept, color=BLUE, alpha=0.7, linewidth=0)
        if before > kept:
            look = {"edgecolor": INK, "linestyle": (0, (2, 2)), "linewidth": 0.8, "alpha": 0.6}
            axes.bar(middle, before - kept, width, bottom=kept, facecolor="none", **look)
    axes.set_ylim(0, 1.04 * max(max(before, kept + added) for _, before, kept, added in steps))
    axes.locator_params(axis="y", nbins=4, steps=[1, 2, 5, 10])
    axes.set_xticks(middles, [f"{kept + added:.2f}" for _, _, kept, added in steps], fontsize=9)
    axes.tick_params(axis="x", length=0)


def online(row: np.ndarray, block: int) -> list[tuple[float, float, float, float]]:
    """Return after each block: the largest score so far, the sum before, what was kept of it, and what was added."""
    top, total, steps = -math.inf, 0.0, []
    for start in range(0, len(row), block):
        part = row[start : start + block]
        new_top = max(top, float(part.max()))
        kept, added = total * math.exp(top - new_top), float(np.exp(part - new_top).sum())
        steps.append((new_top, total, kept, added))
        top, total = new_top, kept + added
    return steps
