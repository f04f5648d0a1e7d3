"""Tables say what the rows say, mark the best, and fit the page."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lab.measure import code_table, recorded, standing_table, table
from lab.measure.rows import MEASUREMENTS, Row, read_rows
from lab.measure.tables import WIDEST

RECORDS = sorted(MEASUREMENTS.glob("*/*.csv"))
FACTS = ("NVIDIA H200", "580.1", "2.13.0", "3.7.1", "2026-12-01", "abc")


def row(variant: str, n: int, speed: float, dtype: str = "bf16") -> Row:
    ms = n / speed / 1e6
    return Row("add", variant, f"N={n},D=64", dtype, ms, ms, ms, n, n, speed, speed / 1e3, 0.954, *FACTS)


def test_a_table_reads_in_plain_text():
    made = table([{"kind": "wide", "time, ms": 1.2345, "loads": 4096}, {"kind": "narrow", "time, ms": 10, "loads": 16}])
    assert str(made).splitlines() == ["kind    time, ms  loads", "wide        1.23  4,096", "narrow        10     16"]
    assert repr(made) == str(made) == made._repr_mimebundle_()["text/plain"]
    assert made == table([("wide", 1.2345, 4096), ("narrow", 10, 16)], ("kind", "time, ms", "loads"))


def test_the_best_is_marked_in_text_and_bold_in_html():
    rows = [{"at": "a", "ms": 2.0, "GB/s": 10.0}, {"at": "b", "ms": 1.0, "GB/s": 30.0}]
    made = table(rows, best={"ms": min, "GB/s": max})
    assert str(made).splitlines()[1:] == ["a   2.00   10.0", "b   1.00*  30.0*", "* the best"]
    assert re.findall("<strong>(.*?)</strong>", made.html) == ["1.00", "30.0"]


def test_across_marks_the_best_of_each_row_and_passes_by_what_is_missing():
    rows = [{"at": 1, "ours": 2.0, "torch": 1.0}, {"at": 2, "ours": None, "torch": 3.0}]
    assert str(table(rows, across=["ours", "torch"])).splitlines()[1:3] == [" 1  2.00*   1.00", " 2          3.00*"]


def test_values_that_read_the_same_share_the_mark():
    made = table([{"ours": 777.96, "torch": 778.04}], across=["ours", "torch"])
    assert str(made).count("778*") == 2


def test_values_are_shown_as_a_reader_expects():
    (line,) = table(
        [{"a": True, "b": False, "c": None, "d": 0.954, "e": "x<y", "f": float("inf")}], formats={"d": ".0%"}
    ).rows
    assert line == ("yes", "no", "", "95%", "x<y", "inf")
    assert "x&lt;y" in table([{"e": "x<y"}]).html


def test_columns_of_numbers_and_of_percentages_end_at_the_right():
    made = table([("one", 1.5, "8%", True), ("two", 10, "82%", False)], ("a", "ms", "share", "right"))
    assert made.words == {0, 3}


def test_a_title_stands_above():
    made = table([{"a": 1}], title="Backward")
    assert str(made) == "Backward\na\n1" and re.search(r"<caption[^>]*>Backward</caption>", made.html)


def test_ratios_have_two_digits_after_the_point():
    assert table([(0.9994, 12.345)], ("× torch", "ms")).rows == (("1.00", "12.3"),)


def test_tables_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="all of them with the same heads"):
        table([{"a": 1}, {"b": 1}])
    with pytest.raises(ValueError, match="needs rows"):
        table([])
    with pytest.raises(ValueError, match="no column is called c; the heads are a, b"):
        table([{"a": 1, "b": 2}], best={"c": max})
    with pytest.raises(ValueError, match="is 120 columns wide, and a page shows 100"):
        table([{"a": "x" * 120}])


def test_standings_name_the_unit_the_shared_sizes_and_the_best():
    rows = [row(name, n, speed) for n in (4096, 100) for name, speed in (("torch", 50.0), ("triton", 100.0))]
    made = standing_table(rows)
    assert made.heads == ("GB/s at D 64", "ours", "torch", "× best peer", "of roof")
    assert made.rows == (("N 2¹²", "100", "50.0", "2.00", "95%"), ("N 100", "100", "50.0", "2.00", "95%"))
    assert made.best == {(0, 1), (1, 1)}


def test_standings_tell_dtypes_apart_and_leave_out_rungs_unless_asked():
    rows = [row(name, 64, speed) for name, speed in (("triton", 10.0), ("torch", 20.0), ("rung", 5.0))]
    rows += [replace(each, dtype="fp16") for each in rows]
    assert [line[0] for line in standing_table(rows).rows] == ["N 64, D 64, bf16", "N 64, D 64, fp16"]
    assert "rung" not in standing_table(rows).heads and "rung" in standing_table(rows, variants=["rung"]).heads


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_operation_fits_a_page(path):
    rows = read_rows(path)
    for dtype in dict.fromkeys(row.dtype for row in rows):
        text = str(standing_table([row for row in rows if row.dtype == dtype], y="tflop_per_s"))
        assert max(map(len, text.splitlines())) <= WIDEST


def test_equal_rows_give_equal_bytes():
    rows = recorded("gelu", "h200")
    assert standing_table(rows).html == standing_table(list(rows)).html


def test_compiled_kernels_stand_side_by_side():
    codes = {
        target: SimpleNamespace(registers=registers, spills=0, shared=65_536, num_warps=8, occupancy=0.125, count=len)
        for target, registers in (("sm_80", 168), ("sm_90", 116))
    }
    lines = str(code_table(codes, ["ex2"])).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "registers a thread",
        "values spilled",
        "shared memory a program, bytes",
        "warps a program",
        "occupancy",
        "ex2",
    ]
    assert lines[0].split() == ["sm_80", "sm_90"] and lines[1].split()[-2:] == ["168", "116"]
    assert lines[3].endswith("65,536  65,536") and lines[5].endswith("12%     12%") and lines[6].endswith("3       3")
