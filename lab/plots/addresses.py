"""Which addresses each program touches."""

from collections.abc import Sequence

import numpy as np

from lab.plots.figure import WIDTH, Canvas, Figure
from lab.plots.tensors import accesses_of, colour_of, last_launch, short, spans, view_of

SECTOR = 32  # bytes: the smallest piece of memory a GPU fetches


def access_map(
    trace, tensor: str, *, programs: Sequence[int] | None = None, caption: str | None = None, alt: str | None = None
) -> Figure:
    """Show which addresses of `tensor` each program touches, and how much of the memory it must fetch it really uses.

    trace: a launch, or a trace whose last launch is meant. programs: which ones to draw; by default the first eight.
    """
    launch = last_launch(trace)
    tensor = tensor if tensor in launch.tensors else f"{tensor}_ptr"
    view = view_of(launch, tensor)
    touched: dict[int, list[np.ndarray]] = {}
    for access in accesses_of(launch, tensor, ("load", "store", "atomic")):
        touched.setdefault(access.program, []).append(access.offsets[access.mask].reshape(-1))
    shown = [program for program in (programs or list(touched)[:8]) if program in touched]
    elements = {program: np.unique(np.concatenate(touched[program])) for program in shown}
    elements = {program: found for program, found in elements.items() if found.size}
    if not elements:
        raise ValueError(
            f"none of these programs touches `{tensor}`: choose among {spans(np.array(list(touched) or [0]))}"
        )
    return _draw_access_map(launch, view, short(tensor), elements, caption, alt)


def _draw_access_map(launch, view, name: str, elements: dict[int, np.ndarray], caption, alt) -> Figure:
    first = min(int(found[0]) for found in elements.values()) * view.itemsize
    last = (max(int(found[-1]) for found in elements.values()) + 1) * view.itemsize
    canvas, left, span, pitch = Canvas(), 72, 226, 22
    scale = span / (last - first)
    canvas.text(WIDTH, 10, "of each sector used", size=9.5, anchor="end", faint=True)
    used = {program: _share_of_sectors(view, found) for program, found in elements.items()}
    for row, (program, found) in enumerate(elements.items()):
        y = 20 + row * pitch
        canvas.text(0, y + 11, f"program {program:,}")
        canvas.line(left, y + 7, left + span, y + 7, width=0.5, opacity=0.35)
        for start, width, density in _bars((found * view.itemsize - first) * scale, view.itemsize * scale):
            canvas.box(left + start, y, width, 14, colour_of(program), fill=round(max(density, 0.12), 2), stroke=1)
        canvas.text(WIDTH, y + 11, f"{used[program]:.0%}".replace("%", " %"), anchor="end")
    foot = 20 + len(elements) * pitch + 12
    canvas.text(left, foot, f"byte {first:,}", size=9.5, faint=True)
    canvas.text(left + span, foot, f"{last:,}", size=9.5, anchor="end", faint=True)
    caption = caption or (
        f"Left to right are the addresses of `{name}`; a bar is what one program touches, paler where it skips some. "
        f"A GPU fetches memory in sectors of {SECTOR} bytes: neighbours use all of each, scattered ones waste most."
    )
    words = [
        f"program {program} {spans(found)} ({used[program]:.0%} of the sectors used)"
        for program, found in elements.items()
    ]
    alt = alt or f"Elements of {name} touched by each program of {launch.kernel}: {'; '.join(words)}."
    return canvas.figure(foot + 4, f"Addresses of {name} touched by each program", caption, alt)


def _share_of_sectors(view, elements: np.ndarray) -> float:
    addresses = view.data_ptr + elements * view.itemsize
    sectors = np.union1d(addresses // SECTOR, (addresses + view.itemsize - 1) // SECTOR)
    return len(elements) * view.itemsize / (len(sectors) * SECTOR)


def _bars(starts: np.ndarray, width: float) -> list[tuple[float, float, float]]:
    """Join boxes that stand closer than half a unit on paper into bars: (start, width, how much of it is covered)."""
    breaks = np.flatnonzero(np.diff(starts) > width + 0.5)
    firsts, lasts = np.concatenate([[0], breaks + 1]), np.concatenate([breaks, [len(starts) - 1]])
    bars = []
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        length = float(starts[last] - starts[first]) + width
        bars.append((float(starts[first]), max(length, 0.5), (last - first + 1) * width / length))
    return bars
