"""The charts: what they show, that no label is crossed, and that equal data give equal bytes anywhere."""

import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from lab import measure
from lab.device import gpu_named
from lab.measure.rows import MEASUREMENTS, PEERS, Row, read_rows, standings
from lab.plots import against_peers, curves, ladder, roofline, running, standing, throughput
from lab.plots.axes import OURS, amount, looks, spread
from lab.plots.figure import GREY, PALETTE

ROOT = Path(__file__).parents[3]
SVG = "{http://www.w3.org/2000/svg}"


def row(variant, n, speed, dtype="fp32"):
    ms = 12 * n / speed / 1e6
    facts = ("NVIDIA H200", "580", "2.11.0", "3.6.0", "2026-11-29", "abc")
    return Row("add", variant, f"N={n}", dtype, ms, ms / 1.1, ms * 1.1, 12 * n, n, speed, speed / 12e3, 0.9, *facts)


ROWS = [
    row(variant, 2**exponent, min(top, 2.0 ** (exponent - 8)))
    for variant, top in (("copy", 4300), ("torch", 4200), ("triton", 4250), ("triton_call", 3000))
    for exponent in range(12, 29, 4)
]


def root(figure):
    return ElementTree.fromstring(figure.svg)


def texts(figure):
    return ["".join(text.itertext()) for text in root(figure).iter(f"{SVG}text")]


def shapes(figure, tag="path", **attributes):
    """Return the parts of a figure whose attributes have these values."""
    wanted = {name.replace("_", "-"): value for name, value in attributes.items()}
    parts = root(figure).iter(f"{SVG}{tag}")
    return [part for part in parts if all(part.get(name) == value for name, value in wanted.items())]


def corners(path):
    """Return the points of a path of straight lines, where it stands."""
    shift = re.findall(r"-?[\d.]+", path.get("transform") or "translate(0 0)")
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.get("d"))]
    return np.array(numbers).reshape(-1, 2) + np.array([float(number) for number in shift])


# Every chart of the course, from what is recorded


def charts_to_draw():
    """Give the name of each chart and how to draw it."""
    records = {path.stem: read_rows(path) for path in sorted(MEASUREMENTS.glob("h200/*.csv"))}
    for stem, rows in records.items():
        yield f"{stem}, against its peers", partial(against_peers, rows, PEERS)
        for dtype in dict.fromkeys(row.dtype for row in rows):
            here = [row for row in rows if row.dtype == dtype and not row.variant.endswith("_call")]
            y = "tflop_per_s" if here[0].flops > 10 * here[0].bytes else "gb_per_s"
            names = [name for name in dict.fromkeys(row.variant for row in here) if name in (OURS, *PEERS)]
            yield f"{stem}, {dtype}", partial(throughput, here, names, x="bytes", y=y, launch_bound=2**20)
            last = [row for row in here if row.shape == here[-1].shape]
            yield f"{stem}, {dtype}, ladder", partial(ladder, last, peers=(*PEERS, "copy"), y=y)
    places = {stem: standings(rows) for stem, rows in records.items()}
    yield "standing", partial(standing, places, title="all")
    alike = [row(name, 2**exponent, 1000) for name in (OURS, *PEERS) for exponent in (12, 20)]
    yield "coinciding", partial(throughput, alike, roof=1010.0)
    yield "running", partial(running, range(10), 4)
    points = {"add": 1 / 12, "matmul": (1000, 6e14)}
    yield "roofline", partial(roofline, points, gpu_named("h200"), dtype="bf16")
    x = np.arange(300.0)
    series = {"a": x, "b": np.full(300, 7.0)}
    yield "curves", partial(curves, x, series, title="t", y_label="error", marks={"ten": 10})


CHARTS = dict(charts_to_draw())


@cache
def chart(name):
    return CHARTS[name]()


def box(text):
    """Return left, top, right and bottom of a text, in a font that is wider than most."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    size = float(text.get("font-size"))
    font = FontProperties(family="DejaVu Sans", size=size, weight=text.get("font-weight") or "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(text.text, font, ismath=False)
    start = {"start": 0, "middle": width / 2, "end": width}[text.get("text-anchor") or "start"]
    x, y = float(text.get("x")) - start, float(text.get("y"))
    return x, y - 0.74 * size, x + width, y + 0.2 * size


def crosses(start, end, frame):
    """Return whether a line passes through a box: whether some stretch of it lies within all four sides."""
    enter, leave = 0.0, 1.0
    for at, step, low, high in zip(start, end - start, frame[:2], frame[2:], strict=True):
        low, high = low + 0.5, high - 0.5
        if abs(step) < 1e-9:
            if not low < at < high:
                return False
            continue
        near, far = sorted(((low - at) / step, (high - at) / step))
        enter, leave = max(enter, near), min(leave, far)
    return enter < leave


@pytest.mark.parametrize("name", CHARTS)
def test_no_two_texts_meet_and_none_leaves_the_picture(name):
    svg = root(chart(name))
    width, height = map(float, svg.get("viewBox").split()[2:])
    boxes = {(text.text, place): box(text) for place, text in enumerate(svg.iter(f"{SVG}text")) if text.text}
    for (left, top, right, bottom), words in zip(boxes.values(), boxes, strict=True):
        assert left >= -1 and top >= -1 and right <= width + 1 and bottom <= height + 1, words
    for (one, a), (other, b) in combinations(boxes.items(), 2):
        apart = a[2] <= b[0] + 0.5 or b[2] <= a[0] + 0.5 or a[3] <= b[1] + 0.5 or b[3] <= a[1] + 0.5
        assert apart, (one, other)


@pytest.mark.parametrize("name", CHARTS)
def test_no_line_crosses_a_text(name):
    svg = root(chart(name))
    boxes = {text.text: box(text) for text in svg.iter(f"{SVG}text") if text.text}
    for path in svg.iter(f"{SVG}path"):
        if path.get("stroke") is None or "C" in path.get("d"):
            continue
        points = corners(path)
        for start, end in zip(points[:-1], points[1:], strict=True):
            crossed = [text for text, frame in boxes.items() if crosses(start, end, frame)]
            assert not crossed, (crossed, path.get("stroke"), path.get("d"))


@pytest.mark.parametrize("name", CHARTS)
def test_nothing_of_a_chart_leaves_the_picture(name):
    svg = root(chart(name))
    width, height = map(float, svg.get("viewBox").split()[2:])
    for path in svg.iter(f"{SVG}path"):
        if "C" not in path.get("d"):
            points = corners(path)
            assert (points >= -1).all() and (points <= [width + 1, height + 1]).all(), path.get("d")


@pytest.mark.parametrize("name", CHARTS)
def test_charts_carry_no_font_style_id_or_link_of_matplotlib(name):
    svg = chart(name).svg
    assert not re.search(r"font-family|clip-path|<defs|<style|<use|matplotlib|#010203|xlink", svg)
    assert "currentColor" in svg and 'role="img"' in svg


# Bytes

DRAW = """
from lab.measure import recorded
from lab.plots import curves, running, throughput, ladder
rows = [row for row in recorded("gelu", "h200") if row.dtype == "bf16"]
last = [row for row in rows if row.shape == "N=268435456" and not row.variant.endswith("_call")]
figures = [throughput(rows, ["torch", "triton"]), ladder(last, y="gb_per_s"), running(range(10), 4)]
figures += [curves(range(1, 90), {"a": range(1, 90)}, title="t")]
drawing = "".join(figure.html for figure in figures)
"""


def drawn_elsewhere(**environment):
    done = subprocess.run(
        [sys.executable, "-c", f"{DRAW}print(drawing)"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "drawing says something, which a notebook would show"
    return done.stdout


def test_a_fresh_process_with_other_hashes_and_no_home_draws_the_same_bytes(tmp_path):
    (tmp_path / "matplotlibrc").write_text("font.size: 30\naxes.grid: False\nsvg.fonttype: path\n")
    here = {}
    exec(DRAW, here)
    nowhere = {"HOME": "/proc/nowhere", "MPLCONFIGDIR": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere"}
    assert drawn_elsewhere(PYTHONHASHSEED="1", **nowhere) == here["drawing"] + "\n"
    assert drawn_elsewhere(PYTHONHASHSEED="2", MATPLOTLIBRC=str(tmp_path)) == here["drawing"] + "\n"


def test_drawing_leaves_the_reader_s_matplotlib_as_it_was():
    import logging

    import matplotlib

    before = dict(matplotlib.rcParams), logging.getLogger("matplotlib").level
    running(range(10), 4)
    assert before == (dict(matplotlib.rcParams), logging.getLogger("matplotlib").level)


def test_importing_the_plots_imports_no_matplotlib():
    code = "import sys, lab.plots; print({'matplotlib', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "set()\n"


# Throughput


def test_throughput_labels_its_lines_and_leaves_out_single_calls():
    figure = throughput(ROWS)
    assert {"torch", "ours", "copy (roof)", "GB/s", "2¹²", "2²⁸"} <= set(texts(figure))
    assert "ours, one call" not in texts(figure)
    assert "ours: 16.0 at 2^12, 4,250 at 2^28" in figure.alt
    assert any("NVIDIA H200" in text and "2026-11-29" in text for text in texts(figure))


def test_throughput_draws_every_point_of_every_line():
    figure = throughput(ROWS)
    lines = [path for path in shapes(figure, fill="none") if path.get("stroke") in (*PALETTE, GREY)]
    ours = [path for path in lines if path.get("stroke") == PALETTE[0] and len(corners(path)) == 5]
    torch = [path for path in lines if path.get("stroke") == PALETTE[1] and len(corners(path)) == 5]
    (roof,) = [path for path in lines if path.get("stroke") == GREY and len(corners(path)) == 5]
    assert len(ours) == 1 and len(torch) == 2  # above, and below as a multiple of our time
    rising = [corners(path)[:, 1] for path in (*ours, torch[0], roof)]
    assert all((np.diff(heights) <= 0).all() for heights in rising)
    assert len(shapes(figure, "circle", fill=PALETTE[0])) == 5


def test_throughput_shows_the_time_of_the_others_beside_ours():
    figure = throughput(ROWS)
    assert {"time, ours = 1", "torch 1.01"} <= set(texts(figure))
    assert "Time as a multiple of ours: torch 1.00 to 1.01." in figure.alt
    assert "time, ours = 1" not in texts(throughput(ROWS, ["torch"]))


def test_throughput_of_one_dtype_only():
    both = [*ROWS, row("torch", 2**12, 10, "bf16")]
    with pytest.raises(ValueError, match="fp32 and bf16: choose one with dtype="):
        throughput(both)
    with pytest.raises(ValueError, match="no rows in fp8 to draw; these were measured: fp32 and bf16"):
        throughput(both, dtype="fp8")
    with pytest.raises(ValueError, match="no rows for liger; these variants were measured: copy, torch, triton"):
        throughput(ROWS, ["liger"])


def test_our_variant_has_one_name():
    assert OURS == measure.OURS


def test_peers_keep_their_looks_and_rungs_take_what_is_left():
    assert looks(["torch", OURS])["torch"] == looks(["liger", "torch"])["torch"]
    found = looks([OURS, "torch", "rung", "other"])
    assert len({colour for colour, _ in found.values()}) == 4


def test_labels_are_moved_apart_and_keep_their_order():
    assert spread([10, 11, 50], 12, 0, 100) == [10, 22, 50]
    assert spread([99, 98, 10], 12, 0, 100) == [100, 88, 10]


# Beside the peers


def test_against_peers_tells_the_range_of_each():
    rows = [row("triton", 2**12, 100), row("torch", 2**12, 50), row("triton", 2**20, 400), row("torch", 2**20, 500)]
    rows += [row("triton", 2**20 + 1, 400), row("torch", 2**20 + 1, 100), row("rung", 2**20, 1)]
    figure = against_peers([*rows, row("triton", 2**16, 10), row("torch", 2**16, 10)], PEERS)
    assert "fp32: torch 0.80 to 4.00. Measured on NVIDIA H200" in figure.alt
    hollow = [path for path in shapes(figure, fill="none") if "translate" in (path.get("transform") or "")]
    assert len([path for path in hollow if path.get("stroke") == PALETTE[1]]) == 1  # the size that 16 does not divide
    assert "Hollow marks are sizes that 16 does not divide." in figure.caption


def test_against_peers_names_the_shapes_where_several_sizes_vary():
    rows = [
        replace(row(name, 64, 10), shape=f"B=4,N={n},causal={c}")
        for name in ("triton", "torch")
        for n, c in ((4096, 0), (4096, 1), (781, 1))
    ]
    figure = against_peers(rows, PEERS)
    assert {"N 2¹²", "N 2¹², causal", "N 781, causal"} <= set(texts(figure))
    assert "B = 4 throughout." in figure.caption


def test_against_peers_refuses_rows_without_ours_or_peers():
    with pytest.raises(ValueError, match="no rows of `triton`"):
        against_peers([row("torch", 64, 10)], PEERS)
    with pytest.raises(ValueError, match="none of these peers is in the rows; these variants were measured: triton"):
        against_peers([row("triton", 64, 10)], PEERS)


def test_standing_puts_the_largest_median_on_top():
    small = [row(name, n, speed) for name, n, speed in (("triton", 64, 10), ("torch", 64, 20))]
    large = [row(name, n, speed) for name, n, speed in (("triton", 64, 30), ("torch", 64, 20), ("liger", 64, 10))]
    figure = standing({"gelu": standings(small), "matmul": standings(large)}, title="all")
    assert "matmul 1.50 (1.50); gelu 0.50 (0.50)" in figure.alt
    words = texts(figure)
    assert words.index("matmul") < words.index("gelu") and {"1.50 ×", "0.50 ×", "cuBLAS"} <= set(words)


# Ladder and roofline


def test_ladder_tells_the_gain_of_each_rung():
    rows = [row("naive", 64, 10), row("grouped", 64, 40), row("triton", 64, 90), row("torch", 64, 80)]
    found = set(texts(ladder(rows, y="gb_per_s")))
    assert {"10.0 GB/s", "40.0 GB/s, × 4.00", "90.0 GB/s, × 2.25", "torch 80.0"} <= found
    with pytest.raises(ValueError, match="choose one shape and one dtype"):
        ladder(rows + rows)


def test_ladder_draws_bars_as_long_as_the_speeds_and_peers_beside_them():
    rows = [row("naive", 64, 10), row("triton", 64, 90), row("torch", 64, 80)]
    figure = ladder(rows, y="gb_per_s")
    bars = [corners(path) for path in shapes(figure, fill=PALETTE[0])]
    widths = [bar[:, 0].max() - bar[:, 0].min() for bar in bars]
    (line,) = [corners(path) for path in shapes(figure, stroke=GREY)]
    assert widths[1] / widths[0] == pytest.approx(9, rel=0.01)
    assert (line[0, 0] - bars[0][:, 0].min()) / widths[0] == pytest.approx(8, rel=0.01)


def test_roofline_draws_predictions_on_the_roof_and_measurements_below():
    gpu = SimpleNamespace(name="toy", bandwidth=1e12, peak_flops={"fp32": 1e13})
    figure = roofline({"add": 0.1, "gemm": (100, 5e12)}, gpu)
    assert "add: 0.100 FLOP a byte, at most 0.100 TFLOP/s; gemm: 100 FLOP a byte, 5.00 TFLOP/s" in figure.alt
    assert {mark.get("fill") for mark in shapes(figure, "circle")} == {"none"}
    with pytest.raises(ValueError, match="no bf16 peak is known for toy; known are fp32"):
        roofline({"add": 0.1}, gpu, dtype="bf16")


# Running sums


def test_running_shows_the_sum_before_and_after_each_correction():
    figure = running([0.0, 0.0, math.log(2), 0.0, 0.0], 2)
    assert "After each block: m = 0.00, s = 2.00; m = 0.69, s = 2.50; m = 0.69, s = 3.00" in str(figure)
    assert [word for word in texts(figure) if re.fullmatch(r"\d\.\d\d", word)] == ["2.00", "2.50", "3.00"]
    (lost,) = [corners(path) for path in shapes(figure, fill="none") if path.get("stroke-dasharray")]
    kept = [corners(path) for path in shapes(figure, fill=GREY)][1]
    height = kept[:, 1].max() - kept[:, 1].min()
    assert lost[:, 1].max() - lost[:, 1].min() == pytest.approx(height, abs=0.2)  # of 2, a half is left


@pytest.mark.parametrize("scores", [[], [0.0] * 65, [0.0, math.inf]])
def test_running_refuses_what_it_cannot_draw(scores):
    with pytest.raises(ValueError, match="1 to 64 finite scores"):
        running(scores, 4)


# Curves


def test_curves_keep_the_peak_of_every_column_and_stand_on_powers_of_ten():
    x, error = np.linspace(-8, 4, 960), np.full(960, 1e-6)
    error[500] = 1e-2
    figure = curves(x, {"flat": error, "none": np.zeros(960)}, title="Error", bounds=(1e-8, 1), marks={"bf16": 2**-9})
    lines = [[path for path in shapes(figure, stroke=colour) if len(corners(path)) > 3] for colour in PALETTE[:2]]
    (flat,), (none,) = [[corners(path) for path in group] for group in lines]
    assert len(flat) == len(none) == 96
    foot, top = 172, 22
    assert flat[0, 1] == pytest.approx(foot - (foot - top) * 2 / 8, abs=0.06)  # 1e-6 is two of eight powers up
    assert flat[:, 1].argmin() == 50 and flat[:, 1].min() == pytest.approx(top + (foot - top) * 2 / 8, abs=0.06)
    assert set(none[:, 1]) == {foot}
    assert "flat: at most 0.01, near x = -1.7" in str(figure) and "bf16 is 0.002" in str(figure)
    assert {"flat", "none", "bf16"} <= set(texts(figure))


@pytest.mark.parametrize(
    ("series", "message"),
    [
        ({}, "one to 4 curves, not 0"),
        ({"short": np.ones(3)}, "short: give as many values as x has"),
        ({"zero": np.zeros(9)}, "a logarithmic axis needs bounds"),
    ],
)
def test_curves_refuse_what_they_cannot_draw(series, message):
    with pytest.raises(ValueError, match=message):
        curves(np.arange(9.0), series, title="t")


@pytest.mark.parametrize(
    ("value", "text"),
    [(4312, "4,310"), (87.21, "87.2"), (0.9124, "0.912"), (0.9998, "1.00"), (0, "0"), (1e-9, "1e-09"), (-2.5, "-2.50")],
)
def test_amounts_have_three_digits(value, text):
    assert amount(value) == text
