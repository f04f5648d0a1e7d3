"""Every figure: what it says, that it is safe to put on any page, and that it never changes by itself."""

import itertools
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import triton

from lab.device import DEVICE, ON_CPU, gpu_named
from lab.measure.cache import grouped
from lab.measure.rows import PEERS, Row, standings
from lab.plots import (
    Figure,
    against_peers,
    bitmaps,
    curves,
    error_map,
    ladder,
    ownership,
    roofline,
    running,
    standing,
    stepper,
    throughput,
    tile_order,
    visits,
)
from lab.plots.figure import GREY, PALETTE, coordinate
from lab.plots.tensors import past_the_end, spans
from lab.trace import trace

import triton.language as tl  # isort: skip

SVG = "{http://www.w3.org/2000/svg}"
needs_trace = pytest.mark.skipif(not ON_CPU, reason="only the machine on the CPU can be traced")


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, 2 * tl.load(x_ptr + offs, mask=mask), mask=mask)


@triton.jit
def tile_kernel(x_ptr, out_ptr, M, N, stride_xm, stride_xn, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (offs_m < M) & (offs_n < N)
    x = tl.load(x_ptr + offs_m * stride_xm + offs_n * stride_xn, mask=mask)
    tl.store(out_ptr + offs_m * N + offs_n, x, mask=mask)


def doubled(n, block):
    x = torch.arange(n, dtype=torch.float32, device=DEVICE)
    out = torch.empty_like(x)
    with trace() as t:
        double_kernel[(triton.cdiv(n, block),)](x, out, n, BLOCK=block)
    return t, x, out


def tiled(x, block=4):
    out = torch.empty(x.shape, device=DEVICE)
    with trace() as t:
        grid = tuple(triton.cdiv(size, block) for size in x.shape)
        tile_kernel[grid](x, out, *x.shape, *x.stride(), BLOCK=block)
    return t


def row(variant, n, speed, dtype="fp32"):
    ms = 12 * n / speed / 1e6
    facts = ("NVIDIA H200", "580", "2.11.0", "3.6.0", "2026-11-29", "abc")
    return Row("add", variant, f"N={n}", dtype, ms, ms / 1.1, ms * 1.1, 12 * n, n, speed, speed / 12e3, 0.9, *facts)


ROWS = [
    row(variant, 2**exponent, min(top, 2.0 ** (exponent - 8)))
    for variant, top in (("copy", 4300), ("torch", 4200), ("triton", 4250), ("triton_call", 3000))
    for exponent in range(12, 29, 4)
]

SHAPES = [
    replace(row(variant, 2**20, speed), shape=f"M={m},N=64")
    for variant, speed in (("copy", 4300), ("torch", 3000), ("liger", 3500), ("triton", 4000))
    for m in (4096, 781)
]


def charts():
    yield throughput(ROWS, launch_bound=2**16)
    yield throughput(ROWS, ["triton"], roof=4800, x="bytes")
    yield against_peers(ROWS, PEERS)
    yield against_peers(SHAPES, PEERS)
    yield standing({"add": standings(ROWS), "shapes": standings(SHAPES)}, title="all")
    yield ladder([row("naive", 64, 10), row("triton", 64, 90), row("torch", 64, 80)], y="gb_per_s")
    yield roofline({"add": 1 / 12, "matmul": (1000, 6e14)}, gpu_named("h200"), dtype="bf16")
    yield error_map([0, 0, 1, math.nan], [0, 0, 1, 1])
    yield error_map(np.ones((300, 500)))
    yield curves(np.arange(300.0), {"a": np.arange(300.0), "b": np.full(300, 7.0)}, title="t", marks={"ten": 10})
    yield bitmaps({"few": np.eye(5, dtype=bool), "all": torch.ones(3, 8)})
    yield tile_order({"row by row": grouped(9, 9), "in groups": grouped(9, 9, 3)}, 9)
    yield visits(torch.ones(40, 56).tril(16), (8, 8))
    yield running(range(10), 4)


def traced():
    for n, block in ((28, 8), (5000, 1024)):
        t, x, out = doubled(n, block)
        yield ownership(t)
    t, x, out = doubled(28, 8)
    yield stepper(t, values={"x": x, "out": out})
    t = tiled(torch.arange(130.0).view(10, 13))
    yield ownership(t)
    yield stepper(t)


def figures():
    return [*charts(), *(traced() if ON_CPU else ())]


def root(figure):
    return ElementTree.fromstring(figure.svg)


def texts(figure):
    return ["".join(text.itertext()) for text in root(figure).iter(f"{SVG}text")]


# Every figure


def test_every_figure_is_well_formed_and_names_itself():
    for figure in figures():
        svg = root(figure)
        title, desc = svg.find(f"{SVG}title"), svg.find(f"{SVG}desc")
        assert svg.get("role") == "img"
        assert svg.get("aria-labelledby").split() == [title.get("id"), desc.get("id")]
        assert title.text and desc.text == figure.alt
        assert figure.html.count("<figure") == figure.html.count("<figcaption") == 1
        bundle = figure._repr_mimebundle_()
        assert bundle == {"text/html": figure.html, "text/plain": figure.alt}


def test_every_colour_is_the_page_s_own_or_of_the_palette():
    for figure in figures():
        used = set(re.findall(r'(?:fill|stroke)="([^"]+)"', figure.svg))
        assert used <= {"none", "currentColor", GREY, *PALETTE}
        for text in root(figure).iter(f"{SVG}text"):
            assert text.get("fill") == "currentColor"
        assert "font-family" not in figure.svg


def test_nothing_is_fetched():
    for figure in figures():
        assert not re.search(r'(?:src|href)=|url\(|@import|https?://(?!www\.w3\.org/2000/svg")', figure.html)


def test_nothing_is_drawn_outside_the_picture():
    for figure in figures():
        svg = root(figure)
        width, height = map(float, svg.get("viewBox").split()[2:])
        assert all(0 < float(text.get("y")) < height for text in svg.iter(f"{SVG}text"))
        for box in svg.iter(f"{SVG}rect"):
            x, y, across, down = (float(box.get(name)) for name in ("x", "y", "width", "height"))
            assert x >= -0.1 and x + across <= width + 0.2 and y >= -0.1 and y + down <= height + 0.2


def test_two_figures_on_a_page_share_no_id():
    found = [name for figure in figures() for name in re.findall(r' id="([^"]+)"', figure.html)]
    assert len(found) == len(set(found))


def test_equal_data_give_equal_bytes_in_another_process_which_needs_no_torch():
    code = (
        "import sys; from lab.plots import error_map; print(error_map([0, 1, 0], [0, 0, 1]).html);"
        "print(sorted({'torch', 'triton'} & set(sys.modules)))"
    )
    options = {"capture_output": True, "text": True, "timeout": 60, "check": True, "cwd": Path(__file__).parents[2]}
    there = subprocess.run([sys.executable, "-c", code], **options).stdout
    assert there == error_map([0, 1, 0], [0, 0, 1]).html + "\n[]\n"


def test_words_of_others_are_escaped():
    figure = error_map([1], name="<script>", caption="a & `<b>`", alt="<img>")
    assert "<script>" not in figure.html and "<img>" not in figure.html
    assert "a &amp; <code>&lt;b&gt;</code>" in figure.html


def test_a_saved_picture_stands_alone(tmp_path):
    path = tmp_path / "figure.svg"
    error_map([0, 1]).save(path)
    svg = ElementTree.parse(path).getroot()
    assert svg.tag == f"{SVG}svg" and "prefers-color-scheme:dark" in svg.find(f"{SVG}style").text


# Colour


def linear(colour):
    channels = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    light = [float(linear(colour) @ [0.2126, 0.7152, 0.0722]) + 0.05 for colour in (one, other)]
    return max(light) / min(light)


def lab_colour(rgb):
    """Return CIE L*a*b* of linear sRGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.clip(to_xyz @ rgb / [0.9505, 1, 1.089], 0.008856, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


# Machado, Oliveira and Fernandes 2009, severity 1, on linear sRGB.
BLINDNESS = {
    "none": np.eye(3),
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


@pytest.mark.parametrize("page", ["#ffffff", "#111111", "#121212"])
@pytest.mark.parametrize("colour", [*PALETTE, GREY])
def test_colours_show_on_light_and_dark_pages(colour, page):
    assert contrast(colour, page) >= 3


@pytest.mark.parametrize("eyes", BLINDNESS)
def test_colours_are_told_apart_by_colour_blind_readers(eyes):
    seen = [lab_colour(np.array(BLINDNESS[eyes]) @ linear(colour)) for colour in PALETTE]
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) >= 15


# Ownership


@needs_trace
def test_ownership_numbers_every_element_and_leaves_masked_lanes_hollow():
    figure = ownership(doubled(28, 8)[0])
    assert [text for text in texts(figure) if text.isdigit()] == [str(element) for element in range(32)]
    assert [text for text in texts(figure) if "program" in text] == [f"program {program}" for program in range(4)]
    assert len([box for box in root(figure).iter(f"{SVG}rect") if box.get("stroke-dasharray")]) == 4
    assert "Program 3 stores elements 24 to 27; 4 lanes past the end are masked." in figure.alt


@needs_trace
def test_ownership_of_a_long_tensor_shows_the_first_and_the_last_programs():
    figure = ownership(doubled(10_000, 1024)[0], "out_ptr")
    assert [text for text in texts(figure) if text.startswith("program")] == [f"program {p}" for p in (0, 1, 2, 8, 9)]
    assert any("5 more programs" in text for text in texts(figure))
    assert "Program 9 stores elements 9,216 to 9,999; 240 lanes past the end are masked." in figure.alt


@needs_trace
def test_ownership_of_a_matrix_shows_tiles_and_lanes_past_both_edges():
    figure = ownership(tiled(torch.arange(30.0).view(5, 6)))
    assert len([box for box in root(figure).iter(f"{SVG}rect") if not box.get("stroke-dasharray")]) == 4
    assert len([box for box in root(figure).iter(f"{SVG}rect") if box.get("stroke-dasharray")]) == 8 * 8 - 30
    assert "Program 3 stores rows 4, columns 4 to 5; 14 lanes past the end are masked." in figure.alt


@needs_trace
def test_ownership_says_which_tensors_can_be_asked_for():
    t = doubled(28, 8)[0]
    with pytest.raises(ValueError, match="no program of double_kernel stores into `x_ptr`"):
        ownership(t, "x")
    with pytest.raises(ValueError, match="no tensor `y_ptr`; its tensors are `x_ptr` and `out_ptr`"):
        ownership(t, "y")
    with trace() as nothing, pytest.raises(ValueError, match="holds no launch"):
        ownership(nothing)


@needs_trace
def test_lanes_past_the_end_are_found_in_transposed_tensors():
    launch = tiled(torch.arange(30.0).view(6, 5).T).launches[0]
    loads = [access for access in launch.accesses if access.kind == "load"]
    assert [len(past_the_end(launch.tensors["x_ptr"], access)) for access in loads] == [0, 12, 8, 14]


# One program at a time


@needs_trace
def test_stepper_has_a_frame_and_a_sentence_for_each_program():
    t, x, out = doubled(28, 8)
    figure = stepper(t, values={"x": x, "out_ptr": out})
    assert figure.html.count("<li") == 4 and 'max="3"' in figure.html
    shown = [part for part in root(figure).iter() if part.get("data-step") == "0" and part.get("style") is None]
    hidden = [part for part in root(figure).iter() if part.get("data-step") not in (None, "0")]
    assert shown and hidden and all(part.get("style") == "display:none" for part in hidden)
    last = next(group for group in root(figure).iter(f"{SVG}g") if group.get("data-step") == "3")
    cells = ["".join(text.itertext()) for text in last.iter(f"{SVG}text")]
    assert cells[cells.index("offset") + 2 :][:8] == [str(offset) for offset in range(24, 32)]
    assert cells[cells.index("store") + 2 :][:8] == ["48", "50", "52", "54", "", "", "", ""]
    assert "<code>x</code> 24 to 27 and stores <code>out</code> 24 to 27; the mask switches 4 lanes off" in figure.html


@needs_trace
def test_stepper_shows_the_order_in_which_programs_ran():
    x = torch.zeros(28, device=DEVICE)
    with trace(order="reversed") as t:
        double_kernel[(4,)](x, torch.empty_like(x), 28, BLOCK=8)
    assert re.findall(r'data-name="program (\d)"', stepper(t).html) == ["3", "2", "1", "0"]


@needs_trace
def test_stepper_shows_addresses_where_it_knows_no_values():
    assert "[25]" in texts(stepper(doubled(28, 8)[0]))


@needs_trace
def test_stepper_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match="this trace has 100: trace a smaller launch"):
        stepper(doubled(800, 8)[0])
    with pytest.raises(ValueError, match="has 5,000: trace a smaller launch"):
        stepper(doubled(5000, 1024)[0])


# Errors


def test_error_map_crosses_what_is_wrong_and_rings_what_was_never_stored():
    figure = error_map([0, 0, 3, math.nan, 0, 0], [0, 0, 0, 1, 1, -1])
    assert (
        "2 of 6 elements of out are wrong: 2 to 3; stored by programs 0 to 1; 1 were stored by no program."
        in figure.alt
    )
    paths = [path.get("d") for path in root(figure).iter(f"{SVG}path")]
    assert sum(path.count("l") == 4 for path in paths) == 1  # two strokes a cross
    assert "a ring one that no program stored" in figure.caption


def test_error_map_of_a_big_output_keeps_a_single_wrong_element():
    error = np.zeros((3000, 2000))
    error[1234, 777] = 1e-6
    figure = error_map(error)
    assert "1 of 6,000,000 elements of out are wrong; the first at (1234, 777)" in figure.alt
    assert len(figure.html) < 100_000 and ElementTree.fromstring(figure.svg) is not None
    assert sum(path.get("stroke") == PALETTE[1] for path in root(figure).iter(f"{SVG}path")) == 1


def test_error_map_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"error has shape \(2,\) and owner \(3,\)"):
        error_map([0, 1], [0, 0, 0])
    with pytest.raises(ValueError, match="empty output"):
        error_map([])


# Tiles


def test_tile_order_counts_the_strips_that_are_needed():
    figure = tile_order({"rows": grouped(4, 4), "groups": grouped(4, 4, 2)}, 4)
    assert "rows: 4 tiles need 1 row of a and 4 columns of b, 5 strips" in figure.alt
    assert {"1 + 4 = 5 strips", "2 + 2 = 4 strips", "0", "3"} <= set(texts(figure))


def test_tile_order_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match="one or two orders of one matrix"):
        tile_order({"a": grouped(4, 4), "b": grouped(5, 4)}, 4)
    with pytest.raises(ValueError, match="up to 16 by 16 tiles"):
        tile_order({"a": grouped(20, 4)}, 4)


def test_visits_tells_whole_tiles_from_those_with_a_mask_and_those_left_out():
    figure = visits(np.tri(6, 10, 4, dtype=bool), (2, 4))
    assert "6 queries and 10 keys in tiles of 2 by 4: 4 tiles without a mask, 3 with one, 2 never touched" in str(
        figure
    )
    dashed = [box for box in root(figure).iter(f"{SVG}rect") if box.get("stroke-dasharray")]
    assert len(dashed) == 2
    # A tile that sticks out past the last query or key needs a mask though every pair in it is seen.
    assert "2 tiles without a mask, 4 with one, 0 never" in str(visits(np.ones((5, 6)), (2, 4)))


@pytest.mark.parametrize("seen", [np.ones((65, 4)), np.ones((0, 4)), np.ones(4)])
def test_visits_refuses_what_it_cannot_draw(seen):
    with pytest.raises(ValueError, match="1 to 64 queries and keys"):
        visits(seen, (4, 4))


def test_bitmaps_paint_what_is_true():
    figure = bitmaps({"half": np.array([[1, 1, 0, 1], [0, 0, 0, 1]], bool), "none": np.zeros((2, 4), bool)})
    painted, empty = (path.get("d") for path in root(figure).iter(f"{SVG}path"))
    cell = (360 - 12) / 2 / 4
    assert [float(length) / cell for length in re.findall(r"h([\d.]+)", painted)] == pytest.approx([2, 1, 1])
    assert empty == ""
    assert "half, 2 by 4, 4 cells painted; none, 2 by 4, 0 cells painted" in str(figure)


@pytest.mark.parametrize("masks", [{}, {str(name): np.ones((2, 2)) for name in range(5)}, {"flat": np.ones(4)}])
def test_bitmaps_refuse_what_does_not_fit(masks):
    with pytest.raises(ValueError, match="one to four masks|rows and columns"):
        bitmaps(masks)


# Words


@pytest.mark.parametrize(
    ("numbers", "said"),
    [([5], "5"), ([0, 1, 2], "0 to 2"), ([0, 2, 3], "0 and 2 to 3"), (range(0, 2000, 4), "0, 4, 8 and 497 more")],
)
def test_spans(numbers, said):
    assert spans(np.array(numbers)) == said


def test_numbers_are_short_and_never_minus_zero():
    assert [coordinate(value) for value in (1.0, 1.26, -0.04, 1234.56)] == ["1", "1.3", "0", "1234.6"]


def test_a_figure_prints_as_its_text_alternative():
    assert repr(Figure("<svg></svg>", "t", "c", "what it shows")) == "what it shows"
