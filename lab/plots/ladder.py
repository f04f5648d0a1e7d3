"""The versions of one kernel, rung by rung."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from lab.plots.axes import OURS, UNITS, amount, corner, named, panel, shape_of, write
from lab.plots.figure import BLUE, GREY, WIDTH, Figure
from lab.plots.speeds import DASHED
from lab.plots.theme import FAINT, canvas_of, themed
from lab.words import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

LEFT, RIGHT, PITCH, LINE = 124.0, 352.0, 32.0, 13.0


def ladder(
    rows: Sequence,
    variants: Sequence[str] | None = None,
    *,
    peers: Collection[str] = ("torch", "cublas", "copy"),
    y: str = "tflop_per_s",
    caption: str | None = None,
    alt: str | None = None,
) -> Figure:
    """Draw the versions of one kernel as bars, in order, each with its gain over the one before; peers are lines.

    rows: `lab.measure` rows of one shape and dtype. variants: the rungs in order, by default all but `peers`.
    """
    speeds = {row.variant: getattr(row, y) for row in rows}
    if len(speeds) != len(rows):
        raise ValueError("several rows have one variant: choose one shape and one dtype, as with lab.measure.select")
    rungs = list(variants or [name for name in speeds if name not in peers and not name.endswith("_call")])
    if missing := [name for name in rungs if name not in speeds]:
        raise ValueError(f"no rows for {listed(missing)}; these variants were measured: {', '.join(speeds)}")
    lines = {name: speeds[name] for name in speeds if name in peers and name not in rungs}
    top = 6 + LINE * len(lines)
    foot = top + PITCH * len(rungs)
    with themed(foot + 48) as drawing:
        axes = panel(drawing, LEFT, top, RIGHT, foot)
        draw_rungs(drawing, axes, {name: speeds[name] for name in rungs}, UNITS[y], top)
        axes.set_xlim(0, max([speeds[name] for name in rungs] + list(lines.values())) * 1.02)
        axes.set_xlabel(UNITS[y], alpha=FAINT, labelpad=3)
        draw_peers(drawing, axes, lines)
        note = corner(drawing, rows)
        canvas = canvas_of(drawing)
    place = f"{shape_of(rows[0])}, {rows[0].dtype}"
    words = [f"{named(name)} {amount(speeds[name])}" for name in [*rungs, *lines]]
    alt = alt or f"Speed in {UNITS[y]} at {place}: {'; '.join(words)}. Measured on {note}."
    caption = caption or (
        f"The rungs of the ladder in {UNITS[y]} at {place}, each with its gain over the last."
        + (" Dashed lines are the peers." if lines else "")
    )
    return canvas.figure(foot + 48, f"{named(rows[0].op)}: the ladder", caption, alt)


def draw_rungs(drawing: "Drawing", axes: "Axes", speeds: Mapping[str, float], unit: str, top: float) -> None:
    """Draw a bar for each rung; its name, its speed and its gain stand left of the bars, where no line crosses them."""
    names = list(speeds)
    for place, name in enumerate(names):
        axes.barh(place, speeds[name], height=0.62, color=BLUE, alpha=0.9 if name == OURS else 0.4, linewidth=0)
        gain = f", × {amount(speeds[name] / speeds[names[place - 1]])}" if place else ""
        y = top + (place + 0.5) * PITCH
        write(drawing, 0, y - 1, named(name), weight="bold" if name == OURS else "normal")
        write(drawing, 0, y + 10.5, f"{amount(speeds[name])} {unit}{gain}", size=9, alpha=FAINT)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=5, steps=[1, 2, 2.5, 5, 10])
    axes.xaxis.set_major_formatter("{x:,g}")


def draw_peers(drawing: "Drawing", axes: "Axes", lines: Mapping[str, float]) -> None:
    """Draw a dashed line for each peer, the fastest with the highest label, so that no line meets another's label."""
    from matplotlib.lines import Line2D

    height, frame = drawing.get_figheight() * 72, axes.get_window_extent()
    for place, (name, speed) in enumerate(sorted(lines.items(), key=lambda line: -line[1])):
        x, y = float(axes.transData.transform((speed, 0))[0]), 12 + LINE * place
        run = ([x / WIDTH] * 2, [1 - (y - 9) / height, frame.y0 / height])
        drawing.add_artist(Line2D(*run, color=GREY, linewidth=1.4, linestyle=DASHED, transform=drawing.transFigure))
        write(drawing, x - 4, y, f"{named(name)} {amount(speed)}", ha="right", alpha=FAINT)
