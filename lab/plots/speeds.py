"""How fast each variant is over size, and how long the others take beside ours."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lab.plots.axes import (
    OURS,
    UNITS,
    End,
    amount,
    corner,
    label_ends,
    looks,
    named,
    panel,
    ratio_axis,
    size_axis,
    write,
)
from lab.plots.figure import BLUE, GREY, Figure
from lab.plots.theme import FAINT, INK, canvas_of, themed
from lab.words import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LEFT, RIGHT = 40.0, 254.0  # of the axes; right of them stand the labels
DASHED = (0, (4, 2.5))
RATIO = "time, ours = 1"


def throughput(
    rows: Sequence,
    variants: Sequence[str] | None = None,
    *,
    dtype: str | None = None,
    x: str | None = None,
    y: str = "gb_per_s",
    roof: str | float | None = "copy",
    launch_bound: float | None = None,
    caption: str | None = None,
    alt: str | None = None,
) -> Figure:
    """Draw speed over size, one line a variant, and below it how long each takes where ours takes 1.

    rows: `lab.measure` rows of one operation. variants: which to draw, by default all but the roof and single calls.
    x: a size of the shape or `bytes`, by default the size that varies. y: `gb_per_s` or `tflop_per_s`.
    roof: a variant drawn as the limit, or a number in the unit of y. launch_bound: shade the sizes below this one,
    where launching takes the time.
    """
    rows = of_one_dtype(rows, dtype)
    x = x or varying_size(rows)
    found = list(dict.fromkeys(row.variant for row in rows))
    variants = list(variants or [name for name in found if name != roof and not name.endswith("_call")])
    if unknown := [name for name in variants if name not in found]:
        raise ValueError(f"no rows for {listed(unknown)}; these variants were measured: {', '.join(found)}")
    series = {name: points(rows, name, x, y) for name in ([roof] if roof in found else []) + variants}
    limit = float(roof) if isinstance(roof, (int, float)) else None
    beside = times_of_ours(rows, [name for name in variants if name != OURS], x) if OURS in variants else {}
    with themed(330 if beside else 226) as drawing:
        sizes = [point[0] for line in series.values() for point in line]
        write(drawing, 0, 10, UNITS[y], alpha=FAINT)
        upper = panel(drawing, LEFT, 22, RIGHT, 182)
        size_axis(upper, sizes, "" if beside else size_label(rows, x))
        label_ends(drawing, upper, draw_speeds(upper, series, roof, limit))
        shade(drawing, upper, launch_bound, "launch time")
        if beside:
            write(drawing, 0, 202, RATIO, alpha=FAINT)
            lower = panel(drawing, LEFT, 212, RIGHT, 286)
            size_axis(lower, sizes, size_label(rows, x))
            label_ends(drawing, lower, draw_times(lower, beside, looks(variants)))
            shade(drawing, lower, launch_bound)
        note = corner(drawing, rows)
        canvas = canvas_of(drawing)
    caption = caption or throughput_caption(rows, roof in found, limit, bool(beside), launch_bound)
    alt = alt or throughput_in_words(series, beside, x, UNITS[y], limit, note)
    return canvas.figure(330 if beside else 226, f"{named(rows[0].op)}: speed over size, {rows[0].dtype}", caption, alt)


def of_one_dtype(rows: Sequence, dtype: str | None) -> list:
    """Return the rows of one dtype. Raises ValueError where there are none, or a choice is left open."""
    known = list(dict.fromkeys(row.dtype for row in rows))
    chosen = [row for row in rows if dtype in (None, row.dtype)]
    if not chosen:
        wanted = f" in {dtype}" if dtype else ""
        raise ValueError(f"no rows{wanted} to draw; these were measured: {listed(known or ['nothing'])}")
    if dtype is None and len(known) > 1:
        raise ValueError(f"the rows are of {listed(known)}: choose one with dtype=")
    return chosen


def varying_size(rows: Sequence) -> str:
    """Return the one size that differs between rows, or `bytes` if several do."""
    names = [name for name in rows[0].sizes if len({row.sizes.get(name) for row in rows}) > 1]
    return names[0] if len(names) == 1 else "bytes" if names else next(iter(rows[0].sizes))


def size_label(rows: Sequence, x: str) -> str:
    """Return what the axis of sizes counts."""
    if x == "bytes":
        return "bytes read and written"
    square = len(rows[0].sizes) > 1 and all(len(set(row.sizes.values())) == 1 for row in rows)
    return f"{' = '.join(rows[0].sizes) if square else x}, elements"


def points(rows: Sequence, variant: str, x: str, y: str) -> list[tuple[float, float, float, float]]:
    """Return (size, median, low, high) of one variant, by size."""
    mine = [row for row in rows if row.variant == variant]
    speeds = [(row.bytes if x == "bytes" else row.sizes[x], getattr(row, y), row) for row in mine]
    spreads = [
        (size, speed, speed * row.median_ms / row.p80_ms, speed * row.median_ms / row.p20_ms)
        for size, speed, row in speeds
    ]
    return sorted(spreads)


def times_of_ours(rows: Sequence, variants: Sequence[str], x: str) -> dict[str, list[tuple[float, float]]]:
    """Return for each variant (size, its time as a multiple of ours), where both ran."""
    ours = {(row.shape, row.dtype): row.median_ms for row in rows if row.variant == OURS}
    times: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.variant in variants and (row.shape, row.dtype) in ours:
            size = row.bytes if x == "bytes" else row.sizes[x]
            times.setdefault(row.variant, []).append((size, row.median_ms / ours[row.shape, row.dtype]))
    return {name: sorted(times[name]) for name in variants if name in times}


def draw_speeds(axes: "Axes", series: Mapping, roof, limit: float | None) -> list[End]:
    """Draw the lines, each with the band of its spread, ours above the others, and return where they end."""
    styles, ends = looks(name for name in series if name != roof), []
    for name in sorted(series, key=lambda name: (name == OURS, name != roof)):
        sizes, speeds, low, high = zip(*series[name], strict=True)
        if name == roof:
            axes.plot(sizes, speeds, color=GREY, linestyle=DASHED)
            ends.append(End(f"{named(name)} (roof)", sizes[-1], speeds[-1], GREY))
            continue
        colour, marker = styles[name]
        axes.fill_between(sizes, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(sizes, speeds, color=colour, marker=marker)
        ends.append(End(named(name), sizes[-1], speeds[-1], colour, name == OURS))
    if limit is not None:
        axes.axhline(limit, color=GREY, linestyle=DASHED)
        ends.append(End(f"roof, {amount(limit)}", max(end.x for end in ends), limit, GREY))
    top = max([point[3] for line in series.values() for point in line] + [limit or 0])
    axes.set_ylim(0, top * 1.05)
    axes.locator_params(axis="y", nbins=5, steps=[1, 2, 2.5, 5, 10])
    axes.yaxis.set_major_formatter("{x:,g}")
    return ends


def draw_times(axes: "Axes", beside: Mapping, styles: Mapping) -> list[End]:
    """Draw each variant's time as a multiple of ours, which is the line at 1, and return where the lines end."""
    ends = [End("ours", max(size for line in beside.values() for size, _ in line), 1, BLUE, True)]
    axes.axhline(1, color=BLUE)
    for name, line in beside.items():
        colour, marker = styles[name]
        axes.plot(*zip(*line, strict=True), color=colour, marker=marker, linewidth=1.6)
        ends.append(End(f"{named(name)} {line[-1][1]:.2f}", *line[-1], colour))
    ratio_axis(axes, [time for line in beside.values() for _, time in line])
    return ends


def shade(drawing: "Drawing", axes: "Axes", launch_bound: float | None, label: str = "") -> None:
    """Shade the sizes below `launch_bound`, with a label above the axes where there is room for one."""
    left, right = axes.get_xlim()
    if launch_bound and launch_bound > left:
        axes.axvspan(left, min(launch_bound, right), color=INK, alpha=0.06, linewidth=0)
        start, end = (float(axes.transData.transform((size, 0))[0]) for size in (left, min(launch_bound, right)))
        if label and end - start > 80:
            top = drawing.get_figheight() * 72 - axes.get_window_extent().y1
            write(drawing, (start + end) / 2 + 10, top - 5, label, alpha=FAINT, ha="center")


def throughput_caption(rows: Sequence, copy: bool, limit: float | None, beside: bool, launch_bound) -> str:
    """Return how to read the chart."""
    parts = [
        f"{'Above, speed' if beside else 'Speed'} over size, {rows[0].dtype}: higher is faster. "
        "Each point is a median, its band the middle 60 % of runs"
    ]
    parts += ["; the dashed line is the roof, a plain copy of as many bytes"] * copy
    parts += ["; the dashed line is the roof"] * (limit is not None)
    parts += [". Below, the time of each as a multiple of ours: above 1 it takes longer than ours"] * beside
    parts += [". In the shaded part the time goes into launching, not into moving bytes"] * bool(launch_bound)
    return "".join([*parts, "."])


def throughput_in_words(series: Mapping, beside: Mapping, x: str, unit: str, limit: float | None, note: str) -> str:
    """Return the chart's text alternative."""
    words = []
    for name, line in series.items():
        ends = [f"{amount(speed)} at {power_in_words(size)}" for size, speed, *_ in (line[0], line[-1])]
        words.append(f"{named(name)}: {', '.join(ends)}")
    roof = f" The roof is {amount(limit)}." if limit else ""
    times = "; ".join(f"{named(name)} {span([time for _, time in line])}" for name, line in beside.items())
    ratios = f" Time as a multiple of ours: {times}." if times else ""
    return f"Speed in {unit} over {x}. {'; '.join(words)}.{roof}{ratios} Measured on {note}."


def power_in_words(size: float) -> str:
    """Write a size for a screen reader: 2^20, 4,097."""
    exponent = math.log2(size)
    return f"2^{exponent:.0f}" if exponent == int(exponent) else f"{size:,.0f}"


def span(values: Sequence[float]) -> str:
    """Return "0.98 to 1.34", or "1.34"."""
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"
