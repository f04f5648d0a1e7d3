"""The page of measurements says what the recorded rows say, and the rows hang together."""

import re

import pytest

from lab.measure.page import PAGE, STATIC, page, pictures, pinned, readable, versions, write_page
from lab.measure.rows import MEASUREMENTS, ROOF, Row, read_rows, recorded, select, write_rows

RECORDS = sorted(MEASUREMENTS.glob("*/*.csv"))

COLUMNS = {"driver": "580.1", "torch": "2.13.0", "triton": "3.7.1", "date": "2026-12-01", "commit": "abc"}


def row(variant: str, median_ms: float, **columns) -> Row:
    values = {
        "op": "mul",
        "shape": "N=1048576",
        "dtype": "bf16",
        "p20_ms": median_ms,
        "p80_ms": median_ms,
        "bytes": 10**9,
    }
    values |= {
        "flops": 10**6,
        "gb_per_s": 1e3 / median_ms,
        "tflop_per_s": 1e-3,
        "roof_share": 0.5,
        "gpu": "NVIDIA H200",
    }
    return Row(variant=variant, median_ms=median_ms, **(values | COLUMNS | columns))


def test_the_page_is_written_from_the_rows():
    written = PAGE.read_text(encoding="utf-8")
    assert written == page(), "book/measurements.md is stale; write it anew: python -m lab.measure.page"


def test_the_pictures_are_drawn_from_the_rows():
    drawn = pictures()
    lying = {path.relative_to(STATIC).as_posix() for path in STATIC.glob("measurements/*/*.svg")} | {"standing.svg"}
    assert lying == set(drawn), "pictures of book/static are missing or too many: python -m lab.measure.page"
    for path, svg in drawn.items():
        written = (STATIC / path).read_text(encoding="utf-8")
        assert written == svg, f"book/static/{path} is stale; write it anew: python -m lab.measure.page"


def test_every_picture_is_shown():
    shown = re.findall(r":file: static/(\S+)", page() + (PAGE.parent / "index.md").read_text(encoding="utf-8"))
    assert set(pictures()) <= set(shown)


def test_writing_takes_away_the_pictures_of_rows_that_are_gone(tmp_path):
    rows = [row("torch", 1.0), row("triton", 0.5), row(ROOF, 0.25)]
    write_rows(rows, tmp_path / "rows" / "h200" / "mul.csv")
    old = tmp_path / "static" / "measurements" / "h200" / "gone.svg"
    old.parent.mkdir(parents=True)
    old.touch()
    write_page(tmp_path / "rows", tmp_path / "page.md", tmp_path / "static")
    assert [path.name for path in old.parent.iterdir()] == ["mul.svg"]
    assert "ours" in (old.parent / "mul.svg").read_text() and (tmp_path / "static" / "standing.svg").exists()


def test_a_machine_without_matplotlib_writes_the_page_alone(tmp_path, monkeypatch):
    write_rows([row("torch", 1.0), row("triton", 0.5), row(ROOF, 0.25)], tmp_path / "rows" / "h200" / "mul.csv")
    monkeypatch.setattr("lab.measure.page.find_spec", lambda name: None)
    write_page(tmp_path / "rows", tmp_path / "page.md", tmp_path / "static")
    assert "### mul" in (tmp_path / "page.md").read_text() and not (tmp_path / "static").exists()


def test_versions_stand_beside_those_of_the_course():
    told = versions([row("triton", 0.5, torch="2.11.0+cu130", triton="3.6.0")])
    assert told.startswith("Recorded with torch 2.11.0+cu130 and Triton 3.6.0, driver 580.1, on 2026-12-01; the course")
    assert told.endswith(f"installs torch {pinned('torch')} and Triton {pinned('triton')}.")
    same = row("triton", 0.5, torch=f"{pinned('torch')}+cu130", triton=pinned("triton"))
    assert versions([same]).endswith(": the versions that the course installs.")


def test_every_number_comes_from_a_row(tmp_path):
    rows = [row("torch", 1.0), row("triton", 0.5), row(ROOF, 0.25), row("triton_call", 0.75)]
    write_rows(rows, tmp_path / "h200" / "mul.csv")
    text = page(tmp_path)
    assert "## NVIDIA H200" in text and "### mul" in text
    assert "| N = 2²⁰ | 2,000 | 50% | 2.00 (torch) |" in text
    assert "A copy of 1.0 GB runs at 4.00 TB/s, reading and writing counted: 83% of the 4.8 TB/s" in text
    assert "busy for 500.0 µs" in text and "after 750 µs (triton)" in text
    assert "<measurements/h200/mul.csv>" in text


def test_arithmetic_is_told_in_tflops(tmp_path):
    rows = [row("triton", 0.5, flops=10**12, tflop_per_s=512.3, shape="M=4096,N=781"), row(ROOF, 0.25)]
    write_rows(rows, tmp_path / "h200" / "mul.csv")
    assert "| bf16: size | TFLOP/s |" in page(tmp_path)
    assert "| M = 2¹², N = 781 | 512 | 50% |  |" in page(tmp_path)


def test_a_gpu_without_data_sheet_has_its_section_too(tmp_path):
    write_rows([row("triton", 0.5, gpu="NVIDIA X1"), row(ROOF, 0.25, gpu="NVIDIA X1")], tmp_path / "x1" / "mul.csv")
    assert "## NVIDIA X1\n\nA copy of 1.0 GB runs at 4.00 TB/s, reading and writing counted.\n" in page(tmp_path)


@pytest.mark.parametrize(
    "sizes, text",
    [({"N": 2**28}, "N = 2²⁸"), ({"M": 42963, "N": 781}, "M = 42,963, N = 781"), ({"N": 1024}, "N = 1,024")],
)
def test_sizes_read_well(sizes, text):
    assert readable(sizes) == text


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recorded_rows_hang_together(path):
    rows = read_rows(path)
    assert len({(row.variant, row.shape, row.dtype) for row in rows}) == len(rows), "a row stands twice"
    for row in rows:
        assert row.op == path.stem
        assert row.p20_ms <= row.median_ms <= row.p80_ms
        assert row.gb_per_s == pytest.approx(row.bytes / row.median_ms / 1e6, rel=1e-3)
        assert row.tflop_per_s == pytest.approx(row.flops / row.median_ms / 1e9, rel=1e-3)
        assert len(select(rows, variant=ROOF, shape=row.shape, dtype=row.dtype)) == 1, (
            "no copy of the same run to compare with"
        )
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row.date)


def test_vector_add_is_as_fast_as_promised():
    rows = recorded("vector_add")
    for ours in select(rows, variant="triton"):
        torch_ms = select(rows, variant="torch", shape=ours.shape, dtype=ours.dtype)[0].median_ms
        if ours.sizes["N"] >= 2**24:
            assert torch_ms / ours.median_ms >= 0.98
        if ours.sizes["N"] == 2**28:
            assert ours.roof_share >= 0.98
