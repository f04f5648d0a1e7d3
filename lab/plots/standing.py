"""Where our kernels stand beside the best that others wrote, all operations in one picture."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from lab.plots.axes import corner, named, panel, ratio_axis, write
from lab.plots.figure import BLUE, GREY, WIDTH, Figure
from lab.plots.speeds import span
from lab.plots.theme import FAINT, canvas_of, themed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEFT, RIGHT, TOP, PITCH = 138.0, 310.0, 20.0, 29.0
# What PyTorch calls, where that is one library's kernel.
LIBRARIES = {("matmul", "torch"): "cuBLAS", ("matmul gelu", "torch"): "cuBLAS, then GeLU"}


def standing(
    places: Mapping[str, Sequence], *, title: str, caption: str | None = None, alt: str | None = None
) -> Figure:
    """Draw for each operation how many times as fast as its best peer ours is, over all of its recorded sizes.

    places: stem → the `lab.measure.standings` of one operation. The largest gain stands on top.
    """
    ratios, peers = gains(places)
    foot = TOP + PITCH * len(ratios)
    with themed(foot + 48) as drawing:
        axes = panel(drawing, LEFT, TOP, RIGHT, foot)
        draw_gains(axes, ratios)
        for place, (name, group) in enumerate(ratios.items()):
            y = TOP + (place + 0.5) * PITCH
            write(drawing, 0, y - 1, name)
            write(drawing, 0, y + 10, ", ".join(peers[name]), size=8.5, alpha=FAINT)
            write(drawing, WIDTH, y + 3.5, f"{median(group):.2f} ×", ha="right", weight="bold")
        write(drawing, 0, 9, "operation, and its best peers", alpha=FAINT)
        write(drawing, WIDTH, 9, "median", alpha=FAINT, ha="right")
        note = corner(drawing, [place.ours for group in places.values() for place in group])
        canvas = canvas_of(drawing)
    words = "; ".join(f"{name} {median(group):.2f} ({span(group)})" for name, group in ratios.items())
    alt = alt or f"Our speed as a multiple of the best peer's, median and range: {words}. Measured on {note}."
    caption = caption or (
        "Our speed as a multiple of the best peer's: right of the line ours is faster. A bar spans all recorded sizes, "
        "small and odd ones too; the dot is the median."
    )
    return canvas.figure(foot + 48, title, caption, alt)


def gains(places: Mapping[str, Sequence]) -> tuple[dict[str, list[float]], dict[str, list[str]]]:
    """Return for each operation its ratios to the best peer, the largest gain first, and who was the best somewhere."""
    ratios, peers = {}, {}
    for stem, group in places.items():
        name, found = named(stem), [place for place in group if place.best]
        if found:
            ratios[name] = [place.against_best for place in found]
            best = sorted({place.best.variant for place in found})
            peers[name] = [
                LIBRARIES.get((name, variant), "PyTorch" if variant == "torch" else named(variant)) for variant in best
            ]
    return dict(sorted(ratios.items(), key=lambda item: -median(item[1]))), peers


def draw_gains(axes: "Axes", ratios: Mapping[str, Sequence[float]]) -> None:
    """Draw a bar from the worst to the best size and a dot at the median."""
    for place, group in enumerate(ratios.values()):
        axes.plot([min(group), max(group)], [place, place], color=BLUE, alpha=0.35, linewidth=7, solid_capstyle="butt")
        axes.plot(median(group), place, color=BLUE, marker="o", markersize=8)
    axes.axvline(1, color=GREY, linewidth=1.4, zorder=1)
    axes.set_ylim(len(ratios) - 0.5, -0.5)
    axes.set_yticks([])
    ratio_axis(axes, [ratio for group in ratios.values() for ratio in group], vertical=False)
    axes.set_xlabel("our speed ÷ the best peer's", alpha=FAINT, labelpad=3)
