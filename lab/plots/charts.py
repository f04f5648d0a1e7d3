"""Recorded measurements: speed over size, the ladder of versions, the roofline."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lab.plots.figure import BLUE, GREY, PALETTE, WIDTH, Canvas, Figure, listed

_LABELS = {"triton": "ours", "torch_compile": "torch.compile", "copy": "copy"}
_UNITS = {"gb_per_s": "GB/s", "tflop_per_s": "TFLOP/s"}
_MARKERS = ("circle", "square", "triangle", "diamond")


@dataclass(frozen=True)
class _Axes:
    """The plotting area: where a value lies on paper."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    left: float = 40
    top: float = 26
    right: float = 268
    bottom: float = 196

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + (value - low) / (high - low or 1) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.bottom - (value - low) / (high - low or 1) * (self.bottom - self.top)


def _variant(name: str) -> str:
    call = name.endswith("_call")
    name = name.removesuffix("_call")
    return _LABELS.get(name, name.replace("_", " ")) + (", one call" if call else "")


def _ticks(top: float) -> list[float]:
    """Return three to five round values from 0 up to at most `top`."""
    power = 10.0 ** math.floor(math.log10(top))
    step = next(power * part for part in (0.25, 0.5, 1, 2, 2.5) if top / (power * part) < 5)
    return [step * place for place in range(int(top / step + 1e-9) + 1)]


def _amount(value: float) -> str:
    """Write a measured amount to three digits: 4,310, 87.2, 0.912."""
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{round(value, 2 - math.floor(math.log10(abs(value))) if value else 0):,.{digits}f}"


def _power(value: float) -> str:
    """Write a size as a power of two where it is one."""
    exponent = math.log2(value)
    return f"2^{exponent:.0f}" if exponent == int(exponent) else f"{value:,.0f}"


def _spread_out(places: Sequence[float], gap: float, high: float) -> list[float]:
    """Move labels apart so that no two stand closer than `gap` and none lies past `high`; their order is kept."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    for previous, index in zip(order, order[1:], strict=False):
        moved[index] = max(moved[index], moved[previous] + gap)
    ceiling = high
    for index in reversed(order):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - gap
    return moved


def _marker(canvas: Canvas, shape: str, x: float, y: float, colour: str, *, hollow=False) -> None:
    paint = {"fill": "none" if hollow else colour, "stroke": colour, "stroke_width": "1.5"}
    if shape == "circle":
        canvas.add("circle", cx=float(x), cy=float(y), r=2.6, **paint)
        return
    corners = {
        "square": [(-2.3, -2.3), (2.3, -2.3), (2.3, 2.3), (-2.3, 2.3)],
        "triangle": [(0, -3.2), (3, 2.2), (-3, 2.2)],
        "diamond": [(0, -3.4), (3.4, 0), (0, 3.4), (-3.4, 0)],
    }[shape]
    canvas.path([(x + dx, y + dy) for dx, dy in corners], closed=True, **paint)


def _varying_size(rows: Sequence) -> str:
    """Return the one size that differs between rows, or `bytes` if several do."""
    names = [name for name in rows[0].sizes if len({row.sizes.get(name) for row in rows}) > 1]
    return names[0] if len(names) == 1 else "bytes" if names else next(iter(rows[0].sizes))


def throughput(
    rows: Sequence,
    variants: Sequence[str] | None = None,
    *,
    dtype: str | None = None,
    x: str | None = None,
    y: str = "gb_per_s",
    roof: str | float | None = "copy",
    launch_bound: float | None = None,
    caption: str | None = None,
    alt: str | None = None,
) -> Figure:
    """Draw speed over size, one line a variant, with the band from the 20th to the 80th percentile.

    rows: `lab.measure` rows of one operation. variants: which to draw, by default all but the roof and single calls.
    x: a size of the shape or `bytes`, by default the size that varies. y: `gb_per_s` or `tflop_per_s`.
    roof: a variant drawn as the limit, or a number in the unit of y. launch_bound: shade the sizes below this one,
    where launching takes the time.
    """
    rows = _of_one_dtype(rows, dtype)
    x = x or _varying_size(rows)
    found = list(dict.fromkeys(row.variant for row in rows))
    variants = list(variants or [name for name in found if name != roof and not name.endswith("_call")])
    if unknown := [name for name in variants if name not in found]:
        raise ValueError(f"no rows for {listed(unknown)}; these variants were measured: {listed(found)}")
    names = [*([roof] if roof in found else []), *variants]
    series = {name: _points([row for row in rows if row.variant == name], x, y) for name in names}
    limit = float(roof) if isinstance(roof, (int, float)) else None
    sizes = [point[0] for points in series.values() for point in points]
    top = max([point[3] for points in series.values() for point in points] + ([limit] if limit else []))
    axes = _Axes((math.log2(min(sizes)), math.log2(max(sizes))), (0, top * 1.04))
    canvas = Canvas()
    _throughput_axes(canvas, axes, x, _UNITS[y], launch_bound)
    _draw_series(canvas, axes, series, roof, limit)
    note = _corner(canvas, rows, 236)
    alt = alt or _throughput_in_words(series, x, _UNITS[y], limit, note)
    caption = caption or (
        f"Speed over size, {rows[0].dtype}: higher is faster. Each point is a median, its band the middle 60 % of runs"
        + ("; the dashed line is the roof, a plain copy of as many bytes" if roof in found else "")
        + ("; the dashed line is the roof" if limit else "")
        + (". In the shaded part the time goes into launching, not into moving bytes." if launch_bound else ".")
    )
    return canvas.figure(240, f"{rows[0].op}: {_UNITS[y]} over {x}", caption, alt)


def _of_one_dtype(rows: Sequence, dtype: str | None) -> list:
    known = list(dict.fromkeys(row.dtype for row in rows))
    chosen = [row for row in rows if dtype in (None, row.dtype)]
    if not chosen:
        raise ValueError(
            f"no rows{f' in {dtype}' if dtype else ''} to draw; these were measured: {listed(known or ['nothing'])}"
        )
    if dtype is None and len(known) > 1:
        raise ValueError(f"the rows are of {listed(known)}: choose one with dtype=")
    return chosen


def _points(rows: Sequence, x: str, y: str) -> list[tuple[float, float, float, float]]:
    """Return (size, median, low, high) of one variant, by size."""
    points = []
    for row in rows:
        speed = getattr(row, y)
        size = row.bytes if x == "bytes" else row.sizes[x]
        points.append((size, speed, speed * row.median_ms / row.p80_ms, speed * row.median_ms / row.p20_ms))
    return sorted(points)


def _throughput_axes(canvas: Canvas, axes: _Axes, x: str, unit: str, launch_bound: float | None) -> None:
    if launch_bound:
        edge = min(axes.x(math.log2(launch_bound)), axes.right)
        canvas.box(axes.left, axes.top, edge - axes.left, axes.bottom - axes.top, "currentColor", fill=0.07, stroke=0)
        canvas.text((axes.left + edge) / 2, axes.top + 14, "launch time", size=10, anchor="middle", faint=True)
    _y_axis(canvas, axes, unit)
    low, high = axes.x_range
    step = max(1, math.ceil((high - low) / 6))
    step += step % 2 if step > 1 else 0
    for exponent in range(math.ceil(low), math.floor(high) + 1, step):
        place = axes.x(exponent)
        canvas.line(place, axes.bottom, place, axes.bottom + 4, opacity=0.6)
        canvas.text(place, axes.bottom + 17, f"2^{exponent}", size=10, anchor="middle")
    label = {"bytes": "bytes read and written", "N": "N, elements"}.get(x, x)
    canvas.text(axes.right + 14, axes.bottom + 17, label, size=10, faint=True)
    canvas.line(axes.left, axes.bottom, axes.right, axes.bottom, opacity=0.6)


def _y_axis(canvas: Canvas, axes: _Axes, unit: str) -> None:
    for tick in _ticks(axes.y_range[1]):
        place = axes.y(tick)
        if tick:
            canvas.line(axes.left, place, axes.right, place, width=0.5, opacity=0.22)
        canvas.text(axes.left - 6, place + 3.5, f"{tick:,g}", size=10, anchor="end")
    canvas.text(axes.left - 6, axes.top - 14, unit, size=10, anchor="start" if len(unit) > 5 else "end", faint=True)


def _style(place: int, name: str, roof) -> tuple[str, str]:
    if name == roof:
        return GREY, "circle"
    return PALETTE[place % len(PALETTE)], _MARKERS[place % len(_MARKERS)]


def _draw_series(canvas: Canvas, axes: _Axes, series: Mapping, roof, limit: float | None) -> None:
    ours_first = sorted((name for name in series if name != roof), key=lambda name: name != "triton")
    styles = {name: _style(ours_first.index(name) if name != roof else 0, name, roof) for name in series}
    ends = {}
    for name in sorted(series, key=lambda name: (name == "triton", name != roof)):
        colour, marker = styles[name]
        curve = [(axes.x(math.log2(size)), axes.y(speed)) for size, speed, _, _ in series[name]]
        band = [(axes.x(math.log2(size)), axes.y(low)) for size, _, low, _ in series[name]]
        band += [(axes.x(math.log2(size)), axes.y(high)) for size, _, _, high in reversed(series[name])]
        if name != roof:
            canvas.path(band, closed=True, fill=colour, fill_opacity="0.18")
        canvas.path(
            curve,
            fill="none",
            stroke=colour,
            stroke_width="2",
            stroke_dasharray="5 3" if name == roof else None,
            stroke_linejoin="round",
        )
        for x, y in curve if name != roof else []:
            _marker(canvas, marker, x, y, colour)
        ends[name] = curve[-1]
    if limit is not None:
        canvas.line(axes.left, axes.y(limit), axes.right, axes.y(limit), GREY, 1.5, stroke_dasharray="5 3")
        ends[""] = (axes.right, axes.y(limit))
    _label_ends(canvas, axes, ends, styles, roof)


def _label_ends(canvas: Canvas, axes: _Axes, ends: Mapping, styles: Mapping, roof) -> None:
    places = _spread_out([y for _, y in ends.values()], 14, axes.bottom)
    for (name, (x, y)), place in zip(ends.items(), places, strict=True):
        colour = styles[name][0] if name else GREY
        canvas.path([(x + 4, y), (axes.right + 11, place)], fill="none", stroke=colour, stroke_width="1")
        label = "the roof" if not name else f"{_variant(name)} (roof)" if name == roof else _variant(name)
        canvas.text(axes.right + 14, place + 3.5, label, font_weight="600" if name == "triton" else None)


def _corner(canvas: Canvas, rows: Sequence, y: float) -> str:
    from lab.measure import describe  # lab.measure imports torch, which no other figure needs

    note = describe(rows)
    canvas.text(WIDTH, y, note, size=8.5, anchor="end", faint=True)
    return note


def _throughput_in_words(series: Mapping, x: str, unit: str, limit: float | None, note: str) -> str:
    words = []
    for name, points in series.items():
        ends = [f"{_amount(speed)} at {_power(size)}" for size, speed, _, _ in (points[0], points[-1])]
        words.append(f"{_variant(name)}: {', '.join(ends)}")
    roof = f" The roof is {_amount(limit)}." if limit else ""
    return f"Speed in {unit} over {x}. {'; '.join(words)}.{roof} Measured on {note}."


def ladder(
    rows: Sequence,
    variants: Sequence[str] | None = None,
    *,
    peers: Collection[str] = ("torch", "cublas", "copy"),
    y: str = "tflop_per_s",
    caption: str | None = None,
    alt: str | None = None,
) -> Figure:
    """Draw the versions of one kernel as bars, in order, each with its gain over the one before; peers are lines.

    rows: `lab.measure` rows of one shape and dtype. variants: the rungs in order, by default all but `peers`.
    """
    speeds = {row.variant: getattr(row, y) for row in rows}
    if len(speeds) != len(rows):
        raise ValueError("several rows have one variant: choose one shape and one dtype, as with lab.measure.select")
    rungs = list(variants or [name for name in speeds if name not in peers and not name.endswith("_call")])
    lines = [name for name in speeds if name in peers and name not in rungs]
    if missing := [name for name in rungs if name not in speeds]:
        raise ValueError(f"no rows for {listed(missing)}; these variants were measured: {listed(list(speeds))}")
    top = 18 + 12 * len(lines)
    canvas, left, span, pitch = Canvas(), 2, 340, 40
    scale = span / max(speeds[name] for name in [*rungs, *lines])
    foot = top + pitch * len(rungs)
    for place, name in enumerate(lines):
        x = left + speeds[name] * scale
        canvas.line(x, 14 + 12 * place, x, foot, GREY, 1.2, stroke_dasharray="4 3")
        side = "end" if x > WIDTH / 2 else "start"
        label = f"{_variant(name)} {_amount(speeds[name])}"
        canvas.text(x + (-4 if side == "end" else 4), 17 + 12 * place, label, size=10, anchor=side, faint=True)
    for place, name in enumerate(rungs):
        y0, width = top + place * pitch, speeds[name] * scale
        gain = f", × {_amount(speeds[name] / speeds[rungs[place - 1]])}" if place else ""
        canvas.text(left, y0 + 12, _variant(name), font_weight="600" if name == "triton" else None)
        canvas.text(left + 110, y0 + 12, f"{_amount(speeds[name])} {_UNITS[y]}{gain}", size=10.5, faint=True)
        canvas.box(left, y0 + 16, width, 14, BLUE, fill=0.85 if name == "triton" else 0.3, rx=2)
    note = _corner(canvas, rows, foot + 14)
    words = [f"{_variant(name)} {_amount(speeds[name])}" for name in [*rungs, *lines]]
    alt = alt or f"Speed in {_UNITS[y]} at {rows[0].shape}, {rows[0].dtype}: {'; '.join(words)}. Measured on {note}."
    caption = caption or (
        f"The rungs of the ladder in {_UNITS[y]} at {rows[0].shape}, {rows[0].dtype}, each with its gain over the last."
        + (" Dashed lines are the peers." if lines else "")
    )
    return canvas.figure(foot + 18, f"{rows[0].op}: the ladder", caption, alt)


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
    measured = {name: point if isinstance(point, tuple) else (point, None) for name, point in points.items()}
    low = min([balance / 16, *[intensity / 4 for intensity, _ in measured.values()]])
    high = max([balance * 8, *[intensity * 4 for intensity, _ in measured.values()]])
    slowest = min([low * gpu.bandwidth, *[speed / 2 for _, speed in measured.values() if speed]])
    axes = _Axes((math.log2(low), math.log2(high)), (math.log10(slowest), math.log10(peak * 2)), right=352.0)
    canvas = Canvas()
    _roofline_axes(canvas, axes, peak)
    roof = [(low, low * gpu.bandwidth), (balance, peak), (high, peak)]
    canvas.path(
        [(axes.x(math.log2(i)), axes.y(math.log10(s))) for i, s in roof], fill="none", stroke=GREY, stroke_width="2"
    )
    canvas.text(
        axes.right, axes.y(math.log10(peak)) - 6, f"{dtype}: {_amount(peak / 1e12)} TFLOP/s", size=10, anchor="end"
    )
    middle = math.sqrt(low * balance)
    x, y = axes.x(math.log2(middle)), axes.y(math.log10(middle * gpu.bandwidth))
    canvas.text(x - 7, y - 2, f"{_amount(gpu.bandwidth / 1e12)} TB/s", size=10, anchor="end")
    for place, (name, (intensity, speed)) in enumerate(measured.items()):
        limit = min(intensity * gpu.bandwidth, peak)
        x, y = axes.x(math.log2(intensity)), axes.y(math.log10(speed or limit))
        _marker(canvas, _MARKERS[place % 4], x, y, PALETTE[place % 4], hollow=speed is None)
        right = x + 6.5 * len(name) < axes.right
        canvas.text(x + (8 if right else 6), y + (12 if right else 17), name, anchor="start" if right else "end")
    words = [
        f"{name}: {_amount(intensity)} FLOP a byte, "
        + (
            f"{_amount(speed / 1e12)} TFLOP/s"
            if speed
            else f"at most {_amount(min(intensity * gpu.bandwidth, peak) / 1e12)} TFLOP/s"
        )
        for name, (intensity, speed) in measured.items()
    ]
    alt = alt or (
        f"Roofline of {gpu.name}, {dtype}: {_amount(gpu.bandwidth / 1e12)} TB/s up to {_amount(balance)} FLOP a byte, "
        f"then {_amount(peak / 1e12)} TFLOP/s. {'; '.join(words)}."
    )
    caption = caption or (
        f"The roof of {gpu.name}: on the slope memory decides, on the flat part arithmetic. Hollow marks are "
        "predictions, filled ones measurements; the gap below the roof is what is left to gain."
    )
    return canvas.figure(236, f"Roofline of {gpu.name}", caption, alt)


def _roofline_axes(canvas: Canvas, axes: _Axes, peak: float) -> None:
    for exponent in range(math.ceil(axes.y_range[0]), math.floor(math.log10(peak)) + 1):
        place = axes.y(exponent)
        canvas.line(axes.left, place, axes.right, place, width=0.5, opacity=0.22)
        canvas.text(axes.left - 6, place + 3.5, f"{10.0 ** (exponent - 12):g}", size=10, anchor="end")
    canvas.text(0, axes.top - 14, "TFLOP/s", size=10, faint=True)
    low, high = axes.x_range
    for exponent in range(math.ceil(low), math.floor(high) + 1, max(1, math.ceil((high - low) / 8))):
        place = axes.x(exponent)
        canvas.line(place, axes.bottom, place, axes.bottom + 4, opacity=0.6)
        label = f"{2**exponent}" if exponent >= 0 else f"1/{2**-exponent}"
        canvas.text(place, axes.bottom + 17, label, size=10, anchor="middle")
    canvas.line(axes.left, axes.bottom, axes.right, axes.bottom, opacity=0.6)
    canvas.text(axes.right, axes.bottom + 33, "FLOPs for each byte moved", size=10, anchor="end", faint=True)
