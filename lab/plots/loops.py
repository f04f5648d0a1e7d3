"""What a loop over tiles visits."""

import math

import numpy as np

from lab.plots.figure import BLUE, ORANGE, WIDTH, Canvas, Figure
from lab.words import counted

_LONGEST = 64  # queries or keys that can still be told apart


def visits(seen, block: tuple[int, int], *, caption: str | None = None, alt: str | None = None) -> Figure:
    """Draw which tiles of a matrix of scores a loop must visit, and which of them need a mask.

    seen: two-dimensional booleans (a tensor or an array): which query sees which key. block: queries, keys of a tile.
    """
    seen = np.asarray(seen.cpu() if hasattr(seen, "cpu") else seen, bool)
    if seen.ndim != 2 or not 0 < min(seen.shape) <= max(seen.shape) <= _LONGEST:
        raise ValueError(f"visits draws 1 to {_LONGEST} queries and keys, not a mask of shape {seen.shape}")
    (M, N), (BLOCK_M, BLOCK_N) = seen.shape, block
    size = min((WIDTH - 40) / (math.ceil(N / BLOCK_N) * BLOCK_N), 8.0)
    canvas, left, top = Canvas(), 30.0, 24.0
    counts = {"whole": 0, "masked": 0, "skipped": 0}
    for row in range(0, M, BLOCK_M):
        for column in range(0, N, BLOCK_N):
            tile = seen[row : row + BLOCK_M, column : column + BLOCK_N]
            kind = "skipped" if not tile.any() else "whole" if tile.all() and tile.shape == block else "masked"
            counts[kind] += 1
            corner = (left + column * size, top + row * size)
            _draw_visit(canvas, kind, corner, (BLOCK_N * size, BLOCK_M * size), tile, size)
    foot = top + math.ceil(M / BLOCK_M) * BLOCK_M * size
    canvas.text(left, 14, "keys", size=10, faint=True)
    canvas.text(left - 8, top, "queries", size=10, anchor="end", faint=True, transform=f"rotate(-90 {left - 8} {top})")
    words = [
        f"{counted(counts['whole'], 'tile')} without a mask",
        f"{counts['masked']} with one",
        f"{counts['skipped']} never touched",
    ]
    canvas.text(left, foot + 18, " · ".join(words), size=10.5)
    caption = caption or (
        f"Each square is a tile of {BLOCK_M} queries by {BLOCK_N} keys; dark is what a query sees. Filled tiles need "
        "no mask, those with an orange border do, and the loop ends before the dashed ones."
    )
    alt = alt or f"{M} queries and {N} keys in tiles of {BLOCK_M} by {BLOCK_N}: {', '.join(words)}."
    return canvas.figure(foot + 24, "Tiles that a loop visits", caption, alt)


def _draw_visit(canvas: Canvas, kind: str, corner: tuple[float, float], sides: tuple[float, float], tile, size) -> None:
    x, y = corner[0] + 1.5, corner[1] + 1.5
    width, height = sides[0] - 3, sides[1] - 3
    if kind == "skipped":
        canvas.ghost(x, y, width, height)
        return
    if kind == "whole":
        canvas.box(x, y, width, height, BLUE, fill=0.55, stroke=0.8)
        return
    cells = [(corner[0] + column * size, corner[1] + row * size) for row, column in zip(*np.nonzero(tile), strict=True)]
    canvas.squares(cells, size, fill=BLUE, fill_opacity="0.55")
    canvas.box(x, y, width, height, ORANGE, stroke=1.4)
