"""How large something is along a line, over many powers of ten."""

import math
from collections.abc import Mapping

import numpy as np

from lab.plots.figure import GREY, PALETTE, Canvas, Figure, number

_COLUMNS = 96  # points of a curve; more would not show
_LEFT, _TOP, _RIGHT, _BOTTOM = 44.0, 24.0, 350.0, 196.0
_DASHES = (None, "7 3", "2 2.5", "9 3 2 3")  # so that no reader needs the colours


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
    if not 1 <= len(arrays) <= len(PALETTE):
        raise ValueError(f"curves draws one to {len(PALETTE)} curves, not {len(arrays)}: choose among them")
    if wrong := [name for name, values in arrays.items() if values.shape != x.shape or x.ndim != 1 or x.size < 2]:
        raise ValueError(
            f"{', '.join(wrong)}: give as many values as x has, at least two, not {arrays[wrong[0]].shape}"
        )
    positive = np.concatenate([values[(values > 0) & np.isfinite(values)] for values in arrays.values()])
    if bounds is None and not positive.size:
        raise ValueError("nothing here is larger than 0: a logarithmic axis needs bounds=(smallest, largest)")
    low, high = (math.log10(bound) for bound in bounds or (positive.min(), positive.max()))
    low, high = math.floor(low + 1e-9), math.ceil(high - 1e-9)
    high = max(high, low + 1)
    canvas = Canvas()

    def across(value: float) -> float:
        return _LEFT + (value - x[0]) / (x[-1] - x[0]) * (_RIGHT - _LEFT)

    def up(power: float) -> float:
        return _BOTTOM - (min(max(power, low), high) - low) / (high - low) * (_BOTTOM - _TOP)

    _axes(canvas, across, up, x, (low, high), x_label, y_label)
    for name, level in (marks or {}).items():
        y = up(math.log10(level))
        canvas.line(_LEFT, y, _RIGHT, y, GREY, 1.2, stroke_dasharray="4 3")
        canvas.text(_RIGHT, y - 4, name, size=9.5, anchor="end", faint=True)
    peaks = {name: _peaks(x, values) for name, values in arrays.items()}
    for place, (name, points) in enumerate(peaks.items()):
        colour, dash = PALETTE[place], _DASHES[place]
        path = [(across(at), up(math.log10(value) if value > 0 else low)) for at, value in points]
        canvas.path(
            path, fill="none", stroke=colour, stroke_width="1.8", stroke_dasharray=dash, stroke_linejoin="round"
        )
        y = _BOTTOM + 48 + 15 * place
        canvas.line(_LEFT, y - 3.5, _LEFT + 26, y - 3.5, colour, 1.8, stroke_dasharray=dash)
        canvas.text(_LEFT + 32, y, name)
    words = [_in_words(name, points) for name, points in peaks.items()]
    levels = [f" {name} is {level:.2g}." for name, level in (marks or {}).items()]
    alt = alt or f"{title}. {'; '.join(words)}.{''.join(levels)}"
    caption = caption or "Each step of the vertical axis is a factor of ten or more; lower is smaller."
    return canvas.figure(_BOTTOM + 40 + 15 * len(peaks), title, caption, alt)


def _peaks(x: np.ndarray, values: np.ndarray) -> list[tuple[float, float]]:
    """Return the largest value in each column, at the column's middle."""
    columns = [column for column in np.array_split(np.arange(x.size), min(_COLUMNS, x.size)) if column.size]
    return [(float(x[column].mean()), float(np.nan_to_num(values[column], nan=np.inf).max())) for column in columns]


def _axes(canvas: Canvas, across, up, x: np.ndarray, powers: tuple[int, int], x_label: str, y_label: str) -> None:
    step = max(1, math.ceil((powers[1] - powers[0]) / 6))
    for power in range(powers[0], powers[1] + 1, step):
        y = up(power)
        canvas.line(_LEFT, y, _RIGHT, y, width=0.5, opacity=0.22)
        label = "1" if power == 0 else f"1e{power}"
        canvas.text(_LEFT - 5, y + 3.5, label, size=10, anchor="end")
    canvas.text(_LEFT - 5, _TOP - 12, y_label, size=10, faint=True)
    span = float(x[-1] - x[0])
    unit = 10.0 ** math.floor(math.log10(span / 3))
    pitch = next(unit * part for part in (1, 2, 5, 10) if span / (unit * part) <= 7)
    for place in range(math.ceil(x[0] / pitch - 1e-9), math.floor(x[-1] / pitch + 1e-9) + 1):
        at = across(place * pitch)
        canvas.line(at, _BOTTOM, at, _BOTTOM + 4, opacity=0.6)
        canvas.text(at, _BOTTOM + 16, number(place * pitch).replace("-", "\N{MINUS SIGN}"), size=10, anchor="middle")
    canvas.line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, opacity=0.6)
    canvas.text((_LEFT + _RIGHT) / 2, _BOTTOM + 30, x_label, size=10, anchor="middle", faint=True)


def _in_words(name: str, points: list[tuple[float, float]]) -> str:
    at, value = max(points, key=lambda point: point[1])
    return f"{name}: at most {value:.2g}, near x = {number(at)}; {points[-1][1]:.2g} at the right end"
