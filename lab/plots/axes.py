"""What charts of measurements share: how variants are named and coloured, axes of sizes, labels beside lines."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lab.plots.figure import BLUE, GREEN, GREY, ORANGE, PALETTE, PINK, WIDTH
from lab.plots.theme import FAINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

OURS = "triton"
LABELS = {
    "triton": "ours",
    "torch_compile": "torch.compile",
    "sdpa_flash": "FlashAttn-2",
    "sdpa_cudnn": "cuDNN",
    "flex": "Flex",
    "liger": "Liger",
}
UNITS = {"gb_per_s": "GB/s", "tflop_per_s": "TFLOP/s"}
# A peer looks the same in every chart. Those that share a look never run side by side.
LOOKS = {
    OURS: (BLUE, "o"),
    "torch": (ORANGE, "s"),
    "torch_compile": (GREEN, "^"),
    "sdpa_cudnn": (GREEN, "^"),
    "liger": (PINK, "D"),
    "sdpa_flash": (PINK, "D"),
    "flex": (GREY, "v"),
}
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class End(NamedTuple):
    """Where a line ends, in the axes' own numbers, and what to write beside it."""

    label: str
    x: float
    y: float
    colour: str
    bold: bool = False


def named(variant: str) -> str:
    """Return how a variant is called in a figure."""
    call = variant.endswith("_call")
    variant = variant.removesuffix("_call")
    return LABELS.get(variant, variant.replace("_", " ")) + (", one call" if call else "")


def looks(variants: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the colour and the marker of each variant: a peer's own, and one that is still free for a rung."""
    variants = list(variants)
    taken = [LOOKS[name] for name in variants if name in LOOKS]
    free = [look for look in zip(PALETTE, "osD^", strict=True) if look[0] not in [colour for colour, _ in taken]]
    free = free or [(GREY, marker) for marker in "vPX*"]
    rungs = [name for name in variants if name not in LOOKS]
    return {name: LOOKS[name] if name in LOOKS else free[rungs.index(name) % len(free)] for name in variants}


def amount(value: float) -> str:
    """Write a measured amount to three digits: 4,310, 87.2, 0.912, 1e-09."""
    if abs(value) < 1e-3:
        return f"{value:.3g}"
    value = float(f"{value:.3g}")
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def power(size: int) -> str:
    """Write a large size as a power of two where it is one: 2²⁰, 4,097, 781."""
    return raised(size.bit_length() - 1) if size >= 2**12 and size & (size - 1) == 0 else f"{size:,}"


def shape_of(row) -> str:
    """Return a row's shape as a person writes it: "M = 4,096, N = 781"."""
    return ", ".join(f"{name} = {power(size)}" for name, size in row.sizes.items())


def raised(exponent: int) -> str:
    """Return "2²⁰" for 20."""
    return "2" + str(exponent).translate(SUPERSCRIPTS)


def panel(drawing: "Drawing", left: float, top: float, right: float, bottom: float) -> "Axes":
    """Return axes at a place in units from the upper left corner of the drawing."""
    height = drawing.get_figheight() * 72
    return drawing.add_axes((left / WIDTH, 1 - bottom / height, (right - left) / WIDTH, (bottom - top) / height))


def write(drawing: "Drawing", x: float, y: float, text: str, **more) -> None:
    """Write text with its baseline at a place in units from the upper left corner of the drawing."""
    drawing.text(x / WIDTH, 1 - y / (drawing.get_figheight() * 72), text, **more)


def corner(drawing: "Drawing", rows: Sequence) -> str:
    """Write where and with what the rows were measured in the lower right corner, and return that."""
    note = max(rows, key=lambda row: row.date).origin
    write(drawing, WIDTH, drawing.get_figheight() * 72 - 4, note, size=8, ha="right", alpha=FAINT)
    return note


def size_axis(axes: "Axes", sizes: Iterable[float], label: str) -> None:
    """Make the horizontal axis one of sizes in powers of two; without a label it has no numbers either."""
    low, high = (math.log2(size) for size in (min(sizes), max(sizes)))
    margin = 0.03 * (high - low) or 0.5
    axes.set_xscale("log", base=2)
    axes.set_xlim(2 ** (low - margin), 2 ** (high + margin))
    step = max(1, math.ceil((high - low) / 7))
    step += step % 2 if step > 1 else 0
    exponents = range(math.ceil(low), math.floor(high) + 1, step)
    axes.set_xticks([2.0**exponent for exponent in exponents], [raised(exponent) for exponent in exponents])
    axes.minorticks_off()
    axes.set_xlabel(label, alpha=FAINT, labelpad=3)
    axes.tick_params(labelbottom=bool(label))


def ratio_axis(axes: "Axes", ratios: Sequence[float], *, vertical: bool = True) -> None:
    """Make one axis show ratios around 1: plain numbers, and powers where they lie far apart."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

    axis, limit = (axes.yaxis, axes.set_ylim) if vertical else (axes.xaxis, axes.set_xlim)
    low, high = min([*ratios, 0.95]), max([*ratios, 1.1])
    if far := high / low > 5:
        (axes.set_yscale if vertical else axes.set_xscale)("log", base=2)
    margin = (high / low) ** 0.06 if far else 0.06 * (high - low)
    limit(*((low / margin, high * margin) if far else (low - margin, high + margin)))
    marks = [mark for mark in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64) if low / margin <= mark <= high * margin]
    axis.set_major_locator(FixedLocator(marks) if far else MaxNLocator(4, steps=[1, 2, 5, 10]))
    digits = 0 if high - low > 3 else 1 if high - low > 0.4 else 2
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if far else f"{value:.{digits}f}"))
    axis.set_minor_formatter(NullFormatter())


def label_ends(drawing: "Drawing", axes: "Axes", ends: Sequence[End], gap: float = 12.5) -> None:
    """Write a label beside the end of each line, right of the axes, where no line runs and no two labels meet."""
    from matplotlib.lines import Line2D

    height = drawing.get_figheight() * 72
    frame = axes.get_window_extent()
    places = [axes.transData.transform((end.x, end.y)) for end in ends]
    heights = spread([float(y) for _, y in places], gap, frame.y0, max(frame.y1, frame.y0 + gap * (len(ends) - 1)))
    for end, (x, y), level in zip(ends, places, heights, strict=True):
        run = ([(x + 5) / WIDTH, (frame.x1 + 9) / WIDTH], [y / height, level / height])
        drawing.add_artist(Line2D(*run, color=end.colour, linewidth=1, alpha=0.6, transform=drawing.transFigure))
        weight = "bold" if end.bold else "normal"
        write(drawing, frame.x1 + 12, height - level + 3.5, end.label, weight=weight)


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move places apart so that no two stand closer than `gap` and all lie between the limits; their order is kept."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = [max(place, low) for place in places]
    for previous, index in zip(order, order[1:], strict=False):
        moved[index] = max(moved[index], moved[previous] + gap)
    ceiling = high
    for index in reversed(order):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - gap
    return moved


def shape_labels(rows: Sequence) -> tuple[list[str], Mapping[str, int]]:
    """Return a short name for the shape of each row, and the sizes that all of them share and no name repeats."""
    names = list(dict.fromkeys(name for row in rows for name in row.sizes))
    alike = len({row.shape for row in rows}) == 1
    shared = {
        name: rows[0].sizes[name] for name in names if not alike and len({row.sizes.get(name) for row in rows}) == 1
    }
    flags = {name for name in names if {row.sizes.get(name) for row in rows} == {0, 1}}

    def part(name: str, size: int) -> str:
        return name * size if name in flags else f"{name} {power(size)}"

    kept = [{name: size for name, size in row.sizes.items() if name not in shared} for row in rows]
    return [", ".join(filter(None, (part(*item) for item in sizes.items()))) for sizes in kept], shared
