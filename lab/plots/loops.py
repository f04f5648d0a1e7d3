"""What a loop over tiles visits, and what it keeps from one tile to the next."""

import math
from collections.abc import Sequence

import numpy as np

from lab.plots.figure import BLUE, GREY, ORANGE, WIDTH, Canvas, Figure, count

_LONGEST = 64  # queries or keys that can still be told apart
_LEFT, _RIGHT = 34.0, 352.0
_SCORES, _SUMS = (24.0, 116.0), (148.0, 226.0)  # top and bottom of the two panels


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
        f"{count(counts['whole'], 'tile')} without a mask",
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


def running(scores: Sequence[float], block: int, *, caption: str | None = None, alt: str | None = None) -> Figure:
    """Draw how online softmax goes over one row: its largest score so far, and the sum of powers that belongs to it.

    scores: the row, natural logarithms of the powers. block: how many of them a step takes.
    """
    row = np.asarray([float(score) for score in scores])
    if not 0 < len(row) <= _LONGEST or not np.isfinite(row).all():
        raise ValueError(f"running draws 1 to {_LONGEST} finite scores: choose fewer of these {len(row)}, or others")
    steps = _online(row, block)
    canvas, pitch = Canvas(), (_RIGHT - _LEFT) / len(row)
    _draw_scores(canvas, row, block, [top for top, *_ in steps], pitch)
    most = max(max(before, kept + added) for _, before, kept, added in steps)
    for place, (_, *amounts) in enumerate(steps):
        x, end = _LEFT + place * block * pitch, min(_RIGHT, _LEFT + (place + 1) * block * pitch)
        before, kept, added = (amount / most * (_SUMS[1] - _SUMS[0]) for amount in amounts)
        canvas.line(end, _SCORES[0] - 6, end, _SUMS[1], width=0.5, opacity=0.22)
        canvas.box(x + 3, _SUMS[1] - kept, end - x - 6, kept, GREY, fill=0.5, stroke=0)
        canvas.box(x + 3, _SUMS[1] - kept - added, end - x - 6, added, BLUE, fill=0.7, stroke=0)
        if before > kept:
            canvas.ghost(x + 3, _SUMS[1] - before, end - x - 6, before - kept)
        canvas.text((x + end) / 2, _SUMS[1] + 13, f"{amounts[1] + amounts[2]:.2f}", size=9.5, anchor="middle")
    canvas.line(_LEFT, _SUMS[1], _RIGHT, _SUMS[1], opacity=0.6)
    canvas.text(_LEFT, _SUMS[0] - 12, "the sum of powers, s, after each block", size=10, faint=True)
    words = [f"m = {top:.2f}, s = {kept + added:.2f}" for top, _, kept, added in steps]
    caption = caption or (
        f"One row of {len(row)} scores, {block} at a time. Above, the line is the largest so far. Below, each bar is "
        "the sum after a block: grey is what was kept of the last bar, blue what the block added, and the dashed box "
        "what the correction took away, wherever the line above rose."
    )
    alt = alt or f"Online softmax over {len(row)} scores, {block} at a time. After each block: {'; '.join(words)}."
    return canvas.figure(_SUMS[1] + 20, "The largest score and the sum as the loop goes", caption, alt)


def _draw_scores(canvas: Canvas, row: np.ndarray, block: int, tops: Sequence[float], pitch: float) -> None:
    """Draw every score as a dot, and the largest so far as a line."""
    scale = (_SCORES[1] - _SCORES[0] - 6) / (row.max() - row.min() or 1)
    dots = [
        (_LEFT + (place + 0.5) * pitch, _SCORES[1] - (score - row.min()) * scale) for place, score in enumerate(row)
    ]
    for x, y in dots:
        canvas.add("circle", cx=x, cy=y, r=1.8, fill=BLUE)
    ends = [min(_RIGHT, _LEFT + place * block * pitch) for place in range(len(tops) + 1)]
    levels = [_SCORES[1] - (top - row.min()) * scale for top in tops]
    stairs = [(x, y) for place, y in enumerate(levels) for x in ends[place : place + 2]]
    canvas.path(stairs, fill="none", stroke=ORANGE, stroke_width="2")
    canvas.text(_LEFT, 12, "scores, and the largest so far, m", size=10, faint=True)


def _online(row: np.ndarray, block: int) -> list[tuple[float, float, float, float]]:
    """Return after each block: the largest score so far, the sum before, what was kept of it, and what was added."""
    top, total, steps = -math.inf, 0.0, []
    for start in range(0, len(row), block):
        part = row[start : start + block]
        new_top = max(top, float(part.max()))
        kept, added = total * math.exp(top - new_top), float(np.exp(part - new_top).sum())
        steps.append((new_top, total, kept, added))
        top, total = new_top, kept + added
    return steps
