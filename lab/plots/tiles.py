"""In which order the tiles of a matrix are computed, and what the programs that run together share."""

from collections.abc import Mapping, Sequence

from lab.plots.figure import BLUE, ORANGE, WIDTH, Canvas, Figure
from lab.words import counted


def tile_order(
    orders: Mapping[str, Sequence[tuple[int, int]]],
    programs: int,
    *,
    caption: str | None = None,
    alt: str | None = None,
) -> Figure:
    """Show which tiles the first `programs` programs compute in each order, and which parts of both inputs they need.

    orders: name → the (row, column) of every tile, in the order of the programs. Two orders of one matrix fit a line.
    """
    sizes = {(1 + max(row for row, _ in order), 1 + max(column for _, column in order)) for order in orders.values()}
    if len(sizes) != 1 or not 1 <= len(orders) <= 2:
        raise ValueError(
            f"tile_order draws one or two orders of one matrix, and was given {len(orders)} of {len(sizes)}"
        )
    ((rows, columns),) = sizes
    if rows > 16 or columns > 16:
        raise ValueError(f"tile_order draws up to 16 by 16 tiles, and was given {rows} by {columns}")
    canvas, pitch = Canvas(), WIDTH / len(orders)
    size = min((pitch - 40) / columns, 16.0)
    words = []
    for place, (name, order) in enumerate(orders.items()):
        now = list(order[:programs])
        _draw_order(canvas, place * pitch, size, name, order, now)
        needed = (len({row for row, _ in now}), len({column for _, column in now}))
        words.append(
            f"{name}: {counted(programs, 'tile')} need {counted(needed[0], 'row')} of a "
            f"and {counted(needed[1], 'column')} of b, {sum(needed)} strips"
        )
        canvas.text(place * pitch + 22, 52 + rows * size, f"{needed[0]} + {needed[1]} = {sum(needed)} strips", size=11)
    caption = caption or (
        f"Each square is a tile of `out`; filled are the tiles of the first {counted(programs, 'program')}, numbered "
        "in order. Beside and above are the strips of `a` and `b` that these must fetch: the fewer, the better."
    )
    alt = alt or f"Order of {rows} by {columns} tiles. {'; '.join(words)}."
    return canvas.figure(58 + rows * size, "Which tiles run together", caption, alt)


def _draw_order(canvas: Canvas, x: float, size: float, name: str, order: Sequence, now: Sequence) -> None:
    left, top, gap = x + 22, 36, 1.0
    canvas.text(x + 22, 11, name, font_weight="600")
    for row, column in order:
        number = now.index((row, column)) if (row, column) in now else None
        corner = (left + column * size + gap, top + row * size + gap)
        canvas.box(*corner, size - 2 * gap, size - 2 * gap, BLUE, fill=0 if number is None else 0.3, stroke=0.8)
        if number is not None:
            canvas.text(corner[0] + size / 2 - gap, corner[1] + size / 2 + 2, str(number), size=7, anchor="middle")
    for row in {row for row, _ in order}:
        on = row in {row for row, _ in now}
        canvas.box(x + 8, top + row * size + gap, 9, size - 2 * gap, ORANGE, fill=0.8 if on else 0, stroke=0.6)
    for column in {column for _, column in order}:
        on = column in {column for _, column in now}
        canvas.box(left + column * size + gap, top - 14, size - 2 * gap, 9, ORANGE, fill=0.8 if on else 0, stroke=0.6)
    canvas.text(x, top + 10, "a", size=9, faint=True)
    canvas.text(left - 12, top - 6, "b", size=9, faint=True)
