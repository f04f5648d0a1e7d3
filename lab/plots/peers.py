"""How long the peers take beside ours, at every size of one operation."""

from collections.abc import Collection, Mapping, Sequence

from lab.plots.axes import OURS, corner, label_ends, looks, named, panel, ratio_axis, shape_labels, size_axis, write
from lab.plots.figure import BLUE, WIDTH, Canvas, Figure
from lab.plots.speeds import LEFT, RATIO, RIGHT, draw_times, size_label, span, times_of_ours
from lab.plots.theme import FAINT, canvas_of, themed


def against_peers(
    rows: Sequence, peers: Collection[str], *, caption: str | None = None, alt: str | None = None
) -> Figure:
    """Draw how long each peer takes at every size, where ours takes 1: over size, or shape by shape if several vary.

    rows: `lab.measure` rows of one operation, of one dtype or of several. peers: the variants to draw if they ran, such
    as `lab.measure.PEERS`.
    """
    dtypes = list(dict.fromkeys(row.dtype for row in rows if row.variant == OURS))
    if not dtypes:
        raise ValueError("there are no rows of `triton` here, so nothing to compare the peers with")
    found = list(dict.fromkeys(row.variant for row in rows))
    peers = [name for name in found if name in peers]
    if not peers:
        raise ValueError(f"none of these peers is in the rows; these variants were measured: {', '.join(found)}")
    per_dtype = {
        dtype: [row for row in rows if row.dtype == dtype and row.variant in (OURS, *peers)] for dtype in dtypes
    }
    over_size = len(rows[0].sizes) == 1 or all(len(set(row.sizes.values())) == 1 for row in rows)
    longest = max(len({row.shape for row in group}) for group in per_dtype.values())
    draw = lines_against if over_size and longest > 2 else dots_against
    canvas, height, note, shared = draw(per_dtype, peers)
    alt = alt or f"{against_in_words(per_dtype, peers)} Measured on {note}."
    caption = caption or (
        f"The time of each peer at every {'size' if over_size else 'shape'}, as a multiple of ours. Ours is the line "
        f"at 1; a mark beyond it takes longer.{shared}"
    )
    return canvas.figure(height, f"{named(rows[0].op)}: the time of each peer, ours = 1", caption, alt)


def against_in_words(per_dtype: Mapping, peers: Sequence[str]) -> str:
    """Return the range of each peer's times in each dtype."""
    words = []
    for dtype, rows in per_dtype.items():
        beside = times_of_ours(rows, peers, "bytes")
        ranges = [f"{named(name)} {span([time for _, time in line])}" for name, line in beside.items()]
        words.append(f"{dtype}: {', '.join(ranges)}.")
    return f"Time as a multiple of ours. {' '.join(words)}"


def lines_against(per_dtype: Mapping[str, Sequence], peers: Sequence[str]) -> tuple[Canvas, float, str, str]:
    """Draw one panel a dtype, with sizes along it; sizes that 16 does not divide are hollow marks beside the lines."""
    x = next(iter(next(iter(per_dtype.values()))[0].sizes))
    pitch, styles = 118, looks(peers)
    sizes = [row.sizes[x] for rows in per_dtype.values() for row in rows]
    height = pitch * len(per_dtype) + 24
    with themed(height) as drawing:
        for place, (dtype, rows) in enumerate(per_dtype.items()):
            write(drawing, 0, 10 + place * pitch, f"{dtype}: {RATIO}", alpha=FAINT)
            axes = panel(drawing, LEFT, 20 + place * pitch, RIGHT, 94 + place * pitch)
            size_axis(axes, sizes, size_label(rows, x) if place == len(per_dtype) - 1 else "")
            even = times_of_ours([row for row in rows if row.sizes[x] % 16 == 0], peers, x)
            odd = times_of_ours([row for row in rows if row.sizes[x] % 16], peers, x)
            ends = draw_times(axes, even, styles)
            for name, line in odd.items():
                colour, marker = styles[name]
                axes.plot(*zip(*line, strict=True), color=colour, marker=marker, linestyle="", fillstyle="none")
            ratio_axis(axes, [time for line in (*even.values(), *odd.values()) for _, time in line])
            label_ends(drawing, axes, ends)
        note = corner(drawing, rows)
        hollow = " Hollow marks are sizes that 16 does not divide." if any(size % 16 for size in sizes) else ""
        return canvas_of(drawing), height, note, hollow


def dots_against(per_dtype: Mapping[str, Sequence], peers: Sequence[str]) -> tuple[Canvas, float, str, str]:
    """Draw one line of marks for each shape, dtype by dtype."""
    ours = [row for rows in per_dtype.values() for row in rows if row.variant == OURS]
    labels, shared = shape_labels(ours)
    if len(per_dtype) > 1:
        labels = [f"{row.dtype}: {label}" for row, label in zip(ours, labels, strict=True)]
    styles, pitch, head = looks(peers), 15.0, 22.0
    foot = head + pitch * len(ours)
    with themed(foot + 46) as drawing:
        axes = panel(drawing, 8 + 5.2 * max(map(len, labels)), head, WIDTH - 8, foot)
        axes.axvline(1, color=BLUE)
        levels = {(row.shape, row.dtype): level for level, row in enumerate(ours)}
        times = {(row.shape, row.dtype): row.median_ms for row in ours}
        every = []
        for name in peers:
            mine = [row for rows in per_dtype.values() for row in rows if row.variant == name]
            mine = [row for row in mine if (row.shape, row.dtype) in times]
            across = [row.median_ms / times[row.shape, row.dtype] for row in mine]
            colour, marker = styles[name]
            down = [levels[row.shape, row.dtype] for row in mine]
            axes.plot(across, down, color=colour, marker=marker, linestyle="", label=named(name))
            every += across
        axes.set_yticks(range(len(ours)), labels, fontsize=9)
        axes.set_ylim(len(ours) - 0.5, -0.5)
        ratio_axis(axes, every, vertical=False)
        axes.set_xlabel(RATIO, alpha=FAINT, labelpad=3)
        drawing.legend(
            loc="upper left",
            bbox_to_anchor=(0, 1),
            ncols=5,
            handlelength=1,
            columnspacing=1.2,
            borderpad=0,
            handletextpad=0.3,
        )
        note = corner(drawing, next(iter(per_dtype.values())))
        fixed = ", ".join(f"{name} = {size}" for name, size in shared.items())
        return canvas_of(drawing), foot + 46, note, f" {fixed} throughout." if fixed else ""
