"""Which elements of an output are wrong."""

import math

import numpy as np

from lab.plots.figure import ORANGE, WIDTH, Canvas, Figure, coordinate
from lab.plots.tensors import block_of, runs_of, spans, whole_blocks
from lab.words import counted


def error_map(error, owner=None, *, name: str = "out", caption: str | None = None, alt: str | None = None) -> Figure:
    """Show which elements of an output are wrong, and whose they are.

    error: how far each element is beyond what is allowed, shaped like the output; 0 is right, NaN is wrong. owner: the
    program that stored each element, shaped like the output, -1 where none did (`launch.owner`). Long rows are folded,
    big outputs are thinned: a cell is wrong if anything in it is.
    """
    error = np.asarray(error, np.float64)
    owner = np.zeros(error.shape, np.int64) if owner is None else np.asarray(owner)
    if owner.shape != error.shape:
        raise ValueError(f"error has shape {error.shape} and owner {owner.shape}: give both the output's shape")
    if not error.size:
        raise ValueError("an empty output has no error to draw")
    wrong, flat = ~(error == 0), error.ndim < 2
    alt = alt or _error_in_words(name, wrong, owner)
    columns = _error_columns(owner.reshape(-1)) if flat else error.shape[-1]
    wrong, missing, exists, programs = (
        _folded(array.reshape(-1), columns, fill)
        for array, fill in ((wrong, False), (owner == -1, False), (np.ones(error.shape, bool), False), (owner, -2))
    )
    steps = (-(-wrong.shape[0] // 32), -(-wrong.shape[1] // 64))
    wrong, missing, exists = (_thinned(array, steps) for array in (wrong, missing, exists))
    thin = programs[:: steps[0], :: steps[1]]
    parted = 1 < len(np.unique(owner)) == len(np.unique(thin[exists]))
    caption = caption or (
        "A cross marks a wrong element"
        + (f" (each cell stands for {steps[0] * steps[1]:,})" if steps != (1, 1) else "")
        + (", a ring one that no program stored" if missing.any() else "")
        + ("; lines part the programs." if parted else ".")
    )
    labels = [f"{row * steps[0] * columns:,}" for row in range(len(wrong))] if flat else None
    return _draw_error_map(
        wrong, missing, thin if parted else None, exists, labels, f"Wrong elements of {name}", caption, alt
    )


def _error_columns(owner: np.ndarray) -> int:
    """Return how many elements of a one-dimensional output to draw in a row: whole blocks where they fit."""
    block = block_of(owner)
    if owner.size <= 1024 or block < 64:
        return whole_blocks(block, 16 if owner.size <= 128 else 32 if owner.size <= 1024 else 64)
    return min(block, 64 * math.ceil(math.sqrt(owner.size) / 64))


def _folded(array: np.ndarray, columns: int, fill) -> np.ndarray:
    """Break one long row into rows of `columns`, the last one filled up."""
    rows = -(-array.size // columns)
    return np.concatenate([array, np.full(rows * columns - array.size, fill, array.dtype)]).reshape(rows, columns)


def _thinned(array: np.ndarray, steps: tuple[int, int]) -> np.ndarray:
    """Return whether anything is true in each cell of steps[0] by steps[1] elements."""
    array = np.logical_or.reduceat(array, np.arange(0, array.shape[0], steps[0]), axis=0)
    return np.logical_or.reduceat(array, np.arange(0, array.shape[1], steps[1]), axis=1)


def _error_in_words(name: str, wrong: np.ndarray, owner: np.ndarray) -> str:
    words = [f"{int(wrong.sum()):,} of {counted(wrong.size, 'element')} of {name} are wrong"]
    if wrong.any() and wrong.ndim == 1:
        words.append(f": {spans(np.flatnonzero(wrong))}")
    elif wrong.any():
        words.append(f"; the first at {tuple(np.argwhere(wrong)[0].tolist())}")
    programs = np.unique(owner[wrong & (owner >= 0)])
    if len(programs) and len(np.unique(owner)) > 1:
        words.append(f"; stored by program{'s' if len(programs) > 1 else ''} {spans(programs)}")
    missing = int((owner < 0).sum())
    return "".join([*words, f"; {missing:,} were stored by no program." if missing else "."])


def _draw_error_map(wrong, missing, owner, exists, labels, title, caption, alt) -> Figure:
    rows, columns = wrong.shape
    left, top = (48, 4) if labels else (2, 4)
    size = min((WIDTH - left - 4) / columns, 20.0)
    canvas = Canvas()

    def corners(cells: np.ndarray) -> list[tuple[float, float]]:
        return [(left + column * size, top + row * size) for row, column in np.argwhere(cells).tolist()]

    canvas.add("path", d=_areas(exists & ~wrong, left, top, size), fill="currentColor", fill_opacity="0.06")
    canvas.add("path", d=_areas(wrong, left, top, size), fill=ORANGE, fill_opacity="0.25")
    ring, cross = _ring(size), _cross(size)
    rings = [f"M{coordinate(x)} {coordinate(y)}{ring}" for x, y in corners(missing)]
    crosses = [f"M{coordinate(x)} {coordinate(y)}{cross}" for x, y in corners(wrong)]
    thick = f"{max(size * 0.1, 0.8):.2g}"
    canvas.add("path", d="".join(rings), fill="none", stroke="currentColor", stroke_width="0.8", opacity="0.7")
    canvas.add("path", d="".join(crosses), stroke=ORANGE, stroke_width=thick, stroke_linecap="round")
    if owner is not None:
        canvas.add("path", d=_borders(owner, exists, left, top, size), stroke="currentColor", stroke_width="1.2")
    every = max(1, math.ceil(11 / size))
    for row, label in enumerate(labels or []):
        if row % every == 0:
            canvas.text(left - 6, top + row * size + size / 2 + 3.5, label, size=9, anchor="end", faint=True)
    return canvas.figure(top + rows * size + 4, title, caption, alt)


def _areas(cells: np.ndarray, left: float, top: float, size: float) -> str:
    """Return the path around each run of these cells in a row."""
    steps = []
    for row, line in enumerate(cells):
        for first, last in runs_of(np.flatnonzero(line)):
            x, y, width = left + first * size, top + row * size, coordinate((last + 1 - first) * size)
            steps.append(f"M{coordinate(x)} {coordinate(y)}h{width}v{coordinate(size)}h-{width}z")
    return "".join(steps)


def _ring(size: float) -> str:
    """Return the path of a ring in the middle of a cell, from its upper left corner."""
    radius, width = coordinate(size * 0.3), coordinate(size * 0.6)
    half = f"a{radius} {radius} 0 1 0"
    return f"m{coordinate(size * 0.2)} {coordinate(size * 0.5)}{half} {width} 0{half} -{width} 0"


def _cross(size: float) -> str:
    """Return the path of a cross in the middle of a cell, from its upper left corner."""
    margin, width = coordinate(size * 0.26), coordinate(size * 0.48)
    return f"m{margin} {margin}l{width} {width}m0 -{width}l-{width} {width}"


def _borders(owner: np.ndarray, exists: np.ndarray, left: float, top: float, size: float) -> str:
    """Return the path of the borders between the cells of different programs."""
    right = np.argwhere((owner[:, 1:] != owner[:, :-1]) & exists[:, 1:]).tolist()
    below = np.argwhere((owner[1:] != owner[:-1]) & exists[1:]).tolist()
    steps = [f"M{coordinate(left + (c + 1) * size)} {coordinate(top + r * size)}v{coordinate(size)}" for r, c in right]
    steps += [f"M{coordinate(left + c * size)} {coordinate(top + (r + 1) * size)}h{coordinate(size)}" for r, c in below]
    return "".join(steps)
