"""A launch, one program at a time."""

from collections.abc import Iterable, Mapping

import numpy as np

from lab.plots.figure import BLUE, WIDTH, Canvas, Figure
from lab.plots.tensors import (
    as_grid,
    colour_of,
    element_offsets,
    last_launch,
    past_the_end,
    short,
    spans,
    touched_by,
    whole_blocks,
)
from lab.words import code_marked, counted, listed

_STEP = """
(() => {
  const figure = document.currentScript.closest("figure");
  const [back, next] = figure.querySelectorAll("button");
  const slider = figure.querySelector("input");
  const words = [...figure.querySelectorAll("li")];
  const go = step => {
    step = Math.min(Math.max(step, 0), words.length - 1);
    slider.value = step;
    slider.setAttribute("aria-valuetext", words[step].dataset.name);
    for (const part of figure.querySelectorAll("[data-step]")) {
      const at = Number(part.dataset.step);
      part.style.display = at === step || (at < step && "stays" in part.dataset) ? "" : "none";
    }
  };
  back.onclick = () => go(Number(slider.value) - 1);
  next.onclick = () => go(Number(slider.value) + 1);
  slider.oninput = () => go(Number(slider.value));
  figure.onkeydown = event => {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    event.preventDefault();
    go(Number(slider.value) + (event.key === "ArrowLeft" ? -1 : 1));
  };
  figure.querySelector("ol").style.listStyle = "none";
  figure.querySelector("ol").style.padding = 0;
  figure.querySelector("ol").style.minHeight = "3.2em";
  back.parentElement.hidden = false;
  back.parentElement.style.display = "flex";
  go(0);
})();
"""

_BUTTON = (
    "font:inherit;color:inherit;background:none;border:1px solid currentColor;border-radius:.5em;"
    "min-width:44px;min-height:40px;cursor:pointer"
)


def stepper(trace, *, values: Mapping | None = None, caption: str | None = None, alt: str | None = None) -> Figure:
    """Show a launch program by program, in the order it ran: offsets, mask, what is loaded and stored, what is done.

    trace: a launch, or a trace whose last launch is meant; at most 64 programs. values: the tensors behind the kernel's
    arguments by name (`_ptr` optional), so that lanes show numbers and not addresses. Without scripts the figure shows
    the first program, and all of them in words.
    """
    launch = last_launch(trace)
    programs = list(dict.fromkeys(access.program for access in launch.accesses))
    if not 1 <= len(programs) <= 64:
        raise ValueError(
            f"stepper draws 1 to 64 programs, and this trace has {len(programs):,}: trace a smaller launch"
        )
    frames = [[access for access in launch.accesses if access.program == program] for program in programs]
    names = list(dict.fromkeys(access.tensor for access in launch.accesses if access.tensor))
    values = {name: _numbers_of(values, name) for name in names} if values else {}
    canvas, height = Canvas(), 0.0
    if all(access.offsets.ndim == 1 and access.offsets.size == frames[0][0].offsets.size for access in launch.accesses):
        height = _lane_tables(canvas, launch, frames, values) + 22
    for name in names:
        height = _memory(canvas, launch, name, frames, height) + 14
    words = [_program_in_words(launch, accesses) for accesses in frames]
    items = "".join(
        f'<li data-step="{step}" data-name="program {program}">{code_marked(text)}</li>'
        for step, (program, text) in enumerate(zip(programs, words, strict=True))
    )
    controls = (
        '<div data-lm-suppress-shortcuts="true">'
        f'<div hidden style="gap:.8em;align-items:center;margin-top:.8em">'
        f'<button type="button" aria-label="previous program" style="{_BUTTON}">◀</button>'
        f'<input type="range" min="0" max="{len(programs) - 1}" value="0" aria-label="program" '
        f'style="flex:1;min-width:0;height:40px;accent-color:{BLUE}">'
        f'<button type="button" aria-label="next program" style="{_BUTTON}">▶</button></div>'
        f'<ol aria-live="polite" style="margin:.6em 0 0;padding-left:1.6em">{items}</ol></div><script>{_STEP}</script>'
    )
    caption = caption or (
        "Step through the programs with the buttons, the slider or the arrow keys. Strong boxes belong to the program "
        "that runs, tinted ones to those that are done, dashed ones to lanes that the mask switches off."
    )
    title = f"{launch.kernel}, one program at a time"
    told = words if len(words) <= 4 else [*words[:2], words[-1]]
    alt = alt or f"{launch.kernel} runs {counted(len(programs), 'program')}. {' '.join(told)}".replace("`", "")
    return canvas.figure(height - 8, title, caption, alt, controls)


def _numbers_of(values: Mapping, name: str) -> np.ndarray | None:
    """Return the tensor given for an argument as float64, or None."""
    value = values.get(name, values.get(short(name)))
    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    return None if value is None else np.asarray(value, np.float64)


def _values_at(view, values: np.ndarray | None, access) -> list[str]:
    """Return what each lane reads or writes: the value where the tensor is known, else the element's address."""
    if values is None or not values.size:
        return [f"[{offset}]" for offset in access.offsets.tolist()]
    known = dict(zip(element_offsets(view).reshape(-1).tolist(), values.reshape(-1).tolist(), strict=True))
    return [f"{known[offset]:.3g}" if offset in known else "?" for offset in access.offsets.tolist()]


def _lane_tables(canvas: Canvas, launch, frames: list[list], values: Mapping) -> float:
    """Draw one table of lanes for each program, one on top of the other, and return their height."""
    lanes = frames[0][0].offsets.size
    columns = list(range(lanes)) if lanes <= 8 else [0, 1, 2, 3, 4, None, lanes - 2, lanes - 1]
    alike = all(np.array_equal(access.offsets, frame[0].offsets) for frame in frames for access in frame)
    for step, accesses in enumerate(frames):
        frame = Canvas()
        frame.text(0, 12, f"program {accesses[0].program}", size=13, font_weight="600")
        mask = ["true" if on else "false" for on in accesses[-1].mask.tolist()]
        rows = [("offset", "", [str(offset) for offset in accesses[0].offsets.tolist()], None)] if alike else []
        rows.append(("mask", "", mask, accesses[-1]))
        for access in accesses[:6]:
            texts = _lane_texts(launch, access, values if alike else {})
            rows.append((access.kind, short(access.tensor or "?"), texts, access))
        for row, cells in enumerate(rows):
            _lane_row(frame, 26 + 25 * row, columns, cells, colour_of(accesses[0].program))
        canvas.group(frame, data_step=step, **({"style": "display:none"} if step else {}))
    return 26 + 25 * (1 + alike + max(min(len(accesses), 6) for accesses in frames))


def _lane_texts(launch, access, values: Mapping) -> list[str]:
    if access.tensor is None:
        return [f"[{offset}]" for offset in access.offsets.tolist()]
    return _values_at(launch.tensors[access.tensor], values.get(access.tensor), access)


def _lane_row(canvas: Canvas, y: float, columns: list, row: tuple, colour: str) -> None:
    verb, name, texts, access = row
    left, size = 68, (WIDTH - 68) / len(columns)
    canvas.text(0, y + 14, verb, faint=True)
    canvas.text(62, y + 14, name, anchor="end", font_weight="600")
    for place, lane in enumerate(columns):
        x = left + place * size
        on = access is None or (lane is not None and bool(access.mask[lane]))
        if lane is not None and name:
            draw = canvas.box if on else canvas.ghost
            draw(x + 1.5, y, size - 3, 20, **({"colour": colour, "fill": 0.22} if on else {}), rx=3)
        text = "…" if lane is None else texts[lane] if on or not name else ""
        canvas.text(x + size / 2, y + 14, text, size=10.5, anchor="middle", faint=not on)


def _memory(canvas: Canvas, launch, name: str, frames: list[list], top: float) -> float:
    """Draw one tensor as boxes, with the part of each program, and return where the drawing ends."""
    view = launch.tensors[name]
    offsets = as_grid(element_offsets(view))
    if offsets.size > 4096:
        raise ValueError(
            f"stepper draws up to 4,096 elements a tensor, and `{name}` has {offsets.size:,}: trace a smaller launch"
        )
    ghosts = [
        [tuple(cell) for access in frame if access.tensor == name for cell in past_the_end(view, access)]
        for frame in frames
    ]
    cells = _fold(offsets.shape, ghosts, frames)
    columns, rows = 1 + max(x for x, _ in cells.values()), 1 + max(y for _, y in cells.values())
    size = min((WIDTH - 68) / columns, 14.0)
    gap = min(size * 0.12, 1.2)
    canvas.text(62, top + min(size, 14) * 0.5 + 4, short(name), anchor="end", font_weight="600")

    def draw(target: Canvas, indices: Iterable, **style) -> None:
        corners = [(68 + x * size + gap, top + y * size + gap) for x, y in (cells[index] for index in indices)]
        target.squares(corners, size - 2 * gap, **style)

    inside = [index for index in cells if index[0] < offsets.shape[0] and index[1] < offsets.shape[1]]
    draw(canvas, inside, fill="none", stroke="currentColor", stroke_width="0.5", opacity="0.5")
    for step, accesses in enumerate(frames):
        mine = list(map(tuple, np.argwhere(np.isin(offsets, touched_by(accesses, name))).tolist()))
        colour, hidden = colour_of(accesses[0].program), {"style": "display:none"} if step else {}
        draw(canvas, mine, fill=colour, fill_opacity="0.3", data_step=step, data_stays="", **hidden)
        draw(canvas, mine, fill=colour, data_step=step, **hidden)
        masked = sorted({_padded(cell) for cell in ghosts[step]})
        draw(
            canvas,
            masked,
            fill="none",
            stroke="currentColor",
            stroke_width="0.8",
            stroke_dasharray="2 1.5",
            data_step=step,
            **hidden,
        )
    return top + rows * size


def _padded(cell: tuple) -> tuple[int, int]:
    return (0, int(cell[0])) if len(cell) < 2 else (int(cell[0]), int(cell[1]))


def _fold(shape: tuple[int, int], ghosts: list[list], frames: list[list]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the place (column, row) of each element and each masked lane: one long row is folded at whole blocks."""
    outside = {_padded(cell) for group in ghosts for cell in group if len(cell) <= 2}
    cells = [(row, column) for row in range(shape[0]) for column in range(shape[1])] + sorted(outside)
    if shape[0] > 1:
        return {(row, column): (column, row) for row, column in cells}
    columns = whole_blocks(max(frames[0][0].offsets.shape or (1,)), 40)
    return {(row, column): (column % columns, column // columns) for row, column in cells}


def _program_in_words(launch, accesses: list) -> str:
    """Say it in words: `Program 3 loads x 24 to 27 and stores out 24 to 27; the mask switches 4 lanes off`."""
    verbs = {"load": "loads", "store": "stores", "atomic": "updates"}
    phrases = []
    for kind, name in dict.fromkeys((access.kind, access.tensor) for access in accesses):
        offsets = touched_by([access for access in accesses if access.kind == kind], name)
        where = _place(launch.tensors[name], offsets) if name else "outside every tensor"
        phrases.append(f"{verbs[kind]} `{short(name)}` {where}" if name else f"{verbs[kind]} {where}")
    masked = max(int((~access.mask).sum()) for access in accesses)
    off = f"; the mask switches {counted(masked, 'lane')} off" if masked else ""
    return f"Program {accesses[0].program} {listed(phrases)}{off}."


def _place(view, offsets: np.ndarray) -> str:
    """Say where in the tensor these offsets lie: `24 to 27`, `rows 0 to 3, columns 4 to 7`."""
    if not offsets.size:
        return "nowhere"
    if len(view.shape) != 2:
        return spans(offsets)
    rows, columns = np.nonzero(np.isin(element_offsets(view), offsets))
    return f"rows {spans(rows)}, columns {spans(columns)}"
