"""The most that a GPU can compute with what its memory brings."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lab.plots.axes import amount, panel, write
from lab.plots.figure import GREY, PALETTE, WIDTH, Figure
from lab.plots.theme import FAINT, canvas_of, themed
from lab.words import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TERA = 1e12


def roofline(
    points: Mapping[str, float | tuple[float, float]],
    gpu,
    *,
    dtype: str = "fp32",
    caption: str | None = None,
    alt: str | None = None,
) -> Figure:
    """Draw the most that a GPU can compute at each intensity, and where operations stand under that roof.

    points: name → FLOPs for each byte, for a prediction, drawn hollow on the roof itself; or name → (FLOPs for each
    byte, FLOP/s) for a measurement. gpu: a `lab.device.Gpu`.
    """
    if not gpu.peak_flops.get(dtype):
        raise ValueError(
            f"no {dtype} peak is known for {gpu.name}; known are {listed(list(gpu.peak_flops) or ['none'])}"
        )
    peak, balance = gpu.peak_flops[dtype], gpu.peak_flops[dtype] / gpu.bandwidth
    placed = {name: point if isinstance(point, tuple) else (point, None) for name, point in points.items()}
    low = min([balance / 16, *[intensity / 4 for intensity, _ in placed.values()]])
    high = max([balance * 8, *[intensity * 4 for intensity, _ in placed.values()]])
    height = 214 + 15.0 * len(placed)
    with themed(height) as drawing:
        axes = panel(drawing, 40, 24, WIDTH - 8, 172)
        write(drawing, 0, 11, "TFLOP/s", alpha=FAINT)
        axes.plot([low, balance, high], [low * gpu.bandwidth / TERA, peak / TERA, peak / TERA], color=GREY)
        finish(axes, low, high, placed, dtype, gpu)
        draw_points(axes, placed, gpu.bandwidth, peak)
        drawing.legend(loc="lower left", bbox_to_anchor=(0.09, 0), borderpad=0, labelspacing=0.45, handlelength=1)
        canvas = canvas_of(drawing)
    alt = alt or in_words(placed, gpu, dtype, balance)
    caption = caption or (
        f"The roof of {gpu.name}: on the slope memory decides, on the flat part arithmetic. Hollow marks are "
        "predictions, filled ones measurements; the gap below the roof is what is left to gain."
    )
    return canvas.figure(height, f"Roofline of {gpu.name}, {dtype}", caption, alt)


def draw_points(axes: "Axes", placed: Mapping, bandwidth: float, peak: float) -> None:
    """Draw each operation below the roof, or hollow on it."""
    for place, (name, (intensity, speed)) in enumerate(placed.items()):
        y = (speed or min(intensity * bandwidth, peak)) / TERA
        look = {
            "color": PALETTE[place % 4],
            "marker": "osD^"[place % 4],
            "fillstyle": "none" if speed is None else "full",
        }
        axes.plot(intensity, y, label=name, linestyle="", zorder=3, **look)


def finish(axes: "Axes", low: float, high: float, placed: Mapping, dtype: str, gpu) -> None:
    """Scale and label the axes, and name both parts of the roof."""
    peak = gpu.peak_flops[dtype]
    slowest = min([low * gpu.bandwidth, *[speed / 2 for _, speed in placed.values() if speed]]) / TERA
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(slowest, peak / TERA * 3)
    exponents = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1, 2)
    axes.set_xticks([2.0**e for e in exponents], [f"{2**e}" if e >= 0 else f"1/{2**-e}" for e in exponents])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlabel("FLOPs for each byte moved", alpha=FAINT, labelpad=3)
    axes.annotate(
        f"{dtype}: {amount(peak / TERA)} TFLOP/s", (high, peak / TERA), (0, 6), textcoords="offset points", ha="right"
    )
    middle = math.sqrt(low * peak / gpu.bandwidth)
    bandwidth = f"{amount(gpu.bandwidth / TERA)} TB/s"
    axes.annotate(bandwidth, (middle, middle * gpu.bandwidth / TERA), (-8, 4), textcoords="offset points", ha="right")


def in_words(placed: Mapping, gpu, dtype: str, balance: float) -> str:
    """Return the chart's text alternative."""
    peak, words = gpu.peak_flops[dtype], []
    for name, (intensity, speed) in placed.items():
        most = min(intensity * gpu.bandwidth, peak)
        rate = f"{amount(speed / TERA)} TFLOP/s" if speed else f"at most {amount(most / TERA)} TFLOP/s"
        words.append(f"{name}: {amount(intensity)} FLOP a byte, {rate}")
    return (
        f"Roofline of {gpu.name}, {dtype}: {amount(gpu.bandwidth / TERA)} TB/s up to {amount(balance)} FLOP a byte, "
        f"then {amount(peak / TERA)} TFLOP/s. {'; '.join(words)}."
    )
