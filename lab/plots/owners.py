"""Which program stores which elements."""

from collections.abc import Mapping, Sequence

import numpy as np

from lab.plots.figure import WIDTH, Canvas, Figure, coordinate
from lab.plots.tensors import (
    accesses_of,
    as_grid,
    block_of,
    colour_of,
    last_launch,
    past_the_end,
    short,
    spans,
    view_of,
    whole_blocks,
)
from lab.words import counted


def ownership(trace, tensor: str = "out", *, caption: str | None = None, alt: str | None = None) -> Figure:
    """Show which program stores which elements of `tensor`, with the lanes that the mask switches off drawn hollow.

    trace: a launch, or a trace whose last launch is meant. tensor: the name of the kernel's argument, `_ptr` optional.
    """
    launch = last_launch(trace)
    tensor = tensor if tensor in launch.tensors else f"{tensor}_ptr"
    view, stores = view_of(launch, tensor), accesses_of(launch, tensor, ("store", "atomic"))
    if not stores:
        raise ValueError(f"no program of {launch.kernel} stores into `{tensor}`: name a tensor that it writes")
    owner = launch.owner(tensor)
    ghosts = {}
    for access in stores:
        ghosts.setdefault(access.program, []).extend(map(tuple, past_the_end(view, access).tolist()))
    ghosts = {program: sorted(set(cells)) for program, cells in ghosts.items() if cells}
    name = short(tensor)
    alt = alt or _ownership_in_words(name, owner, ghosts)
    title = f"Which program stores which elements of {name}"
    if owner.ndim < 2 and owner.size > 128:
        return _ownership_list(owner.reshape(-1), ghosts, name, title, caption, alt)
    if owner.ndim < 2:
        return _ownership_cells(owner.reshape(-1), ghosts, name, title, caption, alt)
    return _ownership_grid(as_grid(owner), ghosts if owner.ndim == 2 else {}, name, title, caption, alt)


def _ownership_in_words(name: str, owner: np.ndarray, ghosts: Mapping[int, Sequence]) -> str:
    programs = np.unique(owner[owner >= 0])
    shape = " by ".join(f"{size:,}" for size in owner.shape)
    words = [f"`{name}` has {shape} elements, stored by {counted(len(programs), 'program')}."]
    for program in programs if len(programs) <= 4 else [*programs[:2], programs[-1]]:
        where = np.nonzero(owner == program)
        axes = ("elements",) if owner.ndim == 1 else ("rows", "columns") if owner.ndim == 2 else ()
        places = ", ".join(f"{axis} {spans(index)}" for axis, index in zip(axes, where, strict=False))
        masked = len(ghosts.get(int(program), ()))
        tail = f"; {counted(masked, 'lane')} past the end {'is' if masked == 1 else 'are'} masked" if masked else ""
        words.append(f"Program {program} stores {places or counted(len(where[0]), 'element')}{tail}.")
    missing = int((owner < 0).sum())
    if missing:
        words.append(f"{counted(missing, 'element')} {'is' if missing == 1 else 'are'} stored by no program.")
    return " ".join(words).replace("`", "")


def _ownership_cells(owner, ghosts, name, title, caption, alt) -> Figure:
    overhang = {cell[0]: program for program, cells in ghosts.items() for cell in cells}
    whose = np.full(max([owner.size, *[cell + 1 for cell in overhang]]), -1)
    whose[: owner.size] = owner
    for cell, program in overhang.items():
        whose[cell] = program
    block = block_of(owner)
    columns = min(whole_blocks(block, 16), whose.size)
    size = min(WIDTH / columns, 34.0)
    height = size * 0.86
    canvas = Canvas()
    for element, program in enumerate(whose.tolist()):
        row, column = divmod(element, columns)
        x, y, hollow = column * size, 16 + row * (height + 24), element >= owner.size or program < 0
        if hollow:
            canvas.ghost(x + 1, y, size - 2, height, rx=3)
        else:
            canvas.box(x + 1, y, size - 2, height, colour_of(program), fill=0.22, rx=3)
        canvas.text(x + size / 2, y + height / 2 + 3.5, str(element), size=9.5, anchor="middle", faint=hollow)
        if program >= 0 and (column == 0 or program != whose[element - 1]):
            canvas.text(x + 1.5, y - 5, f"program {program}" if block * size > 56 else str(program), size=10)
    rows = -(-whose.size // columns)
    caption = caption or (
        f"Each box is one element of `{name}`, numbered by its place in memory; "
        "colour and label say which program stores it."
        + (" Dashed boxes lie past the end: the mask switches these lanes off." if overhang else "")
    )
    return canvas.figure(16 + rows * (height + 24) - 22, title, caption, alt)


def _ownership_list(owner, ghosts, name, title, caption, alt) -> Figure:
    programs = np.unique(owner[owner >= 0]).tolist()
    shown = programs if len(programs) <= 6 else [*programs[:3], None, *programs[-2:]]
    widest = max(
        int((owner == program).sum()) + len(ghosts.get(program, ())) for program in shown if program is not None
    )
    canvas, left, span, pitch = Canvas(), 78, 130, 24
    for row, program in enumerate(shown):
        y = row * pitch + 2
        if program is None:
            canvas.text(left, y + 12, f"⋮   {len(programs) - 5:,} more programs", faint=True)
            continue
        mine, masked = np.flatnonzero(owner == program), len(ghosts.get(program, ()))
        width = span * len(mine) / widest
        canvas.text(0, y + 12, f"program {program:,}")
        canvas.box(left, y, width, 16, colour_of(program), fill=0.22, rx=3)
        if masked:
            canvas.ghost(left + width + 1, y, span * masked / widest, 16, rx=3)
        canvas.text(left + span + 12, y + 12, spans(mine, 1), faint=True)
    caption = caption or (
        f"Each bar is one program's share of `{name}`, with the elements it stores."
        + (" The dashed part lies past the end: the mask switches these lanes off." if ghosts else "")
    )
    return canvas.figure(len(shown) * pitch, title, caption, alt)


def _rectangle(owner: np.ndarray, program: int) -> tuple[int, int, int, int] | None:
    """Return the (top, left, bottom, right) that the program's elements fill, the last two excluded; None if none."""
    rows, columns = np.nonzero(owner == program)
    top, left, bottom, right = rows.min(), columns.min(), rows.max() + 1, columns.max() + 1
    return (int(top), int(left), int(bottom), int(right)) if len(rows) == (bottom - top) * (right - left) else None


def _ownership_grid(owner, ghosts, name, title, caption, alt) -> Figure:
    cells = [cell for group in ghosts.values() for cell in group]
    rows = max([owner.shape[0], *[row + 1 for row, _ in cells]])
    columns = max([owner.shape[1], *[column + 1 for _, column in cells]])
    scale_x = min(316 / columns, 28.0)
    scale_y = scale_x if rows * scale_x <= 380 else 380 / rows
    left, top = (WIDTH - columns * scale_x) / 2, 18
    canvas = Canvas()
    programs = np.unique(owner[owner >= 0]).tolist()
    rectangles = [_rectangle(owner, program) for program in programs] if len(programs) <= 400 else [None]
    if None in rectangles:
        _paint(canvas, owner, left, top, scale_x, scale_y)
    else:
        for program, (first, start, last, stop) in zip(programs, rectangles, strict=True):
            x, y, width, height = (
                left + start * scale_x,
                top + first * scale_y,
                (stop - start) * scale_x,
                (last - first) * scale_y,
            )
            canvas.box(x + 0.75, y + 0.75, width - 1.5, height - 1.5, colour_of(program), fill=0.22, rx=2)
            label = f"program {program}" if width > 70 else str(program)
            if width > 7 * len(str(program)) + 2 and height > 13:
                canvas.text(x + width / 2, y + height / 2 + 4, label, anchor="middle")
    if scale_x >= 6 and scale_y >= 6:
        _rule(canvas, owner.shape, left, top, scale_x, scale_y)
        for row, column in sorted(set(cells)):
            canvas.ghost(left + column * scale_x + 1, top + row * scale_y + 1, scale_x - 2, scale_y - 2)
    canvas.text(left, 11, f"{owner.shape[1]:,} columns →", size=10, faint=True)
    turned = {"anchor": "end", "transform": f"rotate(-90 {coordinate(left - 7)} {top})"}
    canvas.text(left - 7, top, f"← {owner.shape[0]:,} rows", size=10, faint=True, **turned)
    caption = caption or (
        f"`{name}`, row by row; colour and number say which program stores each part."
        + (" Dashed boxes lie past the edge: the mask switches these lanes off." if cells and scale_x >= 6 else "")
    )
    return canvas.figure(top + rows * scale_y + 4, title, caption, alt)


def _rule(canvas: Canvas, shape: tuple[int, int], left: float, top: float, scale_x: float, scale_y: float) -> None:
    """Draw the faint lines between elements."""
    rows, columns = shape
    steps = [
        f"M{coordinate(left + c * scale_x)} {coordinate(top)}v{coordinate(rows * scale_y)}" for c in range(1, columns)
    ]
    steps += [
        f"M{coordinate(left)} {coordinate(top + r * scale_y)}h{coordinate(columns * scale_x)}" for r in range(1, rows)
    ]
    canvas.add("path", d="".join(steps), fill="none", stroke="currentColor", stroke_width="0.5", opacity="0.22")


def _paint(canvas: Canvas, owner: np.ndarray, left: float, top: float, scale_x: float, scale_y: float) -> None:
    """Colour each element by its owner, thinned to at most 64 a side."""
    rows = np.linspace(0, owner.shape[0], min(owner.shape[0], 64) + 1).astype(int)
    columns = np.linspace(0, owner.shape[1], min(owner.shape[1], 64) + 1).astype(int)
    for first, last in zip(rows[:-1], rows[1:], strict=True):
        for start, stop in zip(columns[:-1], columns[1:], strict=True):
            x, y = left + start * scale_x, top + first * scale_y
            width, height = (stop - start) * scale_x, (last - first) * scale_y
            program = int(owner[first, start])
            if program < 0:
                continue
            canvas.box(x, y, width, height, colour_of(program), fill=0.4, stroke=0)
            if width > 18 and height > 12:
                canvas.text(x + width / 2, y + height / 2 + 3.5, str(program), size=9.5, anchor="middle")
