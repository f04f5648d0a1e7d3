"""How large something is along a line, over many powers of ten."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from lab.plots.axes import panel, write
from lab.plots.figure import GREY, PALETTE, WIDTH, Figure, coordinate
from lab.plots.theme import FAINT, canvas_of, themed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 96  # points of a curve; more would not show
DASHES = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.4, 1.2, 1.4)))  # so that no reader needs the colours


def curves(
    x,
    series: Mapping[str, object],
    *,
    title: str,
    x_label: str = "x",
    y_label: str = "",
    bounds: tuple[float, float] | None = None,
    marks: Mapping[str, float] | None = None,
    caption: str | None = None,
    alt: str | None = None,
) -> Figure:
    """Draw magnitudes over x on a logarithmic axis, each curve the largest value in its column of the picture.

    x: increasing numbers. series: name → as many magnitudes, at most four; 0 lies at the foot. bounds: the smallest and
    the largest value of the axis, by default those of the series. marks: name → a level drawn as a dashed grey line.
    """
    x = np.asarray(x, np.float64)
    arrays = {name: np.abs(np.asarray(values, np.float64)) for name, values in series.items()}
    low, high = powers_of(x, arrays, bounds)
    peaks = {name: peaks_of(x, values) for name, values in arrays.items()}
    height = 214 + 15.0 * (len(peaks) + len(marks or {}))
    with themed(height) as drawing:
        axes = panel(drawing, 44, 22, WIDTH - 8, 172)
        write(drawing, 0, 10, y_label, alpha=FAINT)
        for (name, points), colour, dash in zip(peaks.items(), PALETTE, DASHES, strict=False):
            at, values = zip(*points, strict=True)
            axes.plot(
                at, np.clip(values, 10.0**low, 10.0**high), color=colour, linestyle=dash, linewidth=1.8, label=name
            )
        for name, level in (marks or {}).items():
            axes.axhline(level, color=GREY, linestyle=(0, (4, 2.5)), linewidth=1.4, label=name)
        finish(axes, x, (low, high), x_label)
        drawing.legend(loc="lower left", bbox_to_anchor=(0.09, 0), borderpad=0, labelspacing=0.45)
        canvas = canvas_of(drawing)
    words = [in_words(name, points) for name, points in peaks.items()]
    levels = [f" {name} is {level:.2g}." for name, level in (marks or {}).items()]
    alt = alt or f"{title}. {'; '.join(words)}.{''.join(levels)}"
    caption = caption or "Each step of the vertical axis is a factor of ten or more; lower is smaller."
    return canvas.figure(height, title, caption, alt)


def powers_of(x: np.ndarray, arrays: Mapping[str, np.ndarray], bounds: tuple[float, float] | None) -> tuple[int, int]:
    """Return the powers of ten between which the axis lies. Raises ValueError for series that cannot be drawn."""
    if not 1 <= len(arrays) <= len(PALETTE):
        raise ValueError(f"curves draws one to {len(PALETTE)} curves, not {len(arrays)}: choose among them")
    if wrong := [name for name, values in arrays.items() if values.shape != x.shape or x.ndim != 1 or x.size < 2]:
        shape = arrays[wrong[0]].shape
        raise ValueError(f"{', '.join(wrong)}: give as many values as x has, at least two, not {shape}")
    positive = np.concatenate([values[(values > 0) & np.isfinite(values)] for values in arrays.values()])
    if bounds is None and not positive.size:
        raise ValueError("nothing here is larger than 0: a logarithmic axis needs bounds=(smallest, largest)")
    low, high = (math.log10(bound) for bound in bounds or (positive.min(), positive.max()))
    low, high = math.floor(low + 1e-9), math.ceil(high - 1e-9)
    return low, max(high, low + 1)


def peaks_of(x: np.ndarray, values: np.ndarray) -> list[tuple[float, float]]:
    """Return the largest value in each column, at the column's middle."""
    columns = [column for column in np.array_split(np.arange(x.size), min(COLUMNS, x.size)) if column.size]
    return [(float(x[column].mean()), float(np.nan_to_num(values[column], nan=np.inf).max())) for column in columns]


def finish(axes: "Axes", x: np.ndarray, powers: tuple[int, int], x_label: str) -> None:
    """Scale and label the axes: a round power of ten at every line."""
    low, high = powers
    axes.set_yscale("log")
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(10.0**low, 10.0**high)
    ticks = range(high, low - 1, -max(1, math.ceil((high - low) / 6)))
    axes.set_yticks([10.0**tick for tick in ticks], ["1" if tick == 0 else f"1e{tick}" for tick in ticks])
    axes.minorticks_off()
    axes.locator_params(axis="x", nbins=7, steps=[1, 2, 5, 10])
    axes.set_xlabel(x_label, alpha=FAINT, labelpad=3)


def in_words(name: str, points: list[tuple[float, float]]) -> str:
    at, value = max(points, key=lambda point: point[1])
    return f"{name}: at most {value:.2g}, near x = {coordinate(at)}; {points[-1][1]:.2g} at the right end"
