"""The page of measurements, `book/measurements.md`, written from the recorded rows: no number on it is typed by hand.

`tile measure` writes it anew; so does `python -m lab.measure.page`.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from lab.device import gpu_named
from lab.measure.rows import MEASUREMENTS, OURS, Row, Standing, describe, largest_copy, read_rows, select, standings
from lab.measure.stopwatch import CALL
from lab.notebook import ROOT

PAGE = MEASUREMENTS.with_suffix(".md")

INTRODUCTION = """\
# Measurements

Every time in this course was taken by one command, `tile measure`, and every sentence and figure that quotes one is
drawn from the rows it wrote. How it measures:

- All variants run in one process and take turns, so that a GPU that slows down slows all of them. A time is the median
  of 21 rounds.
- Before each call the L2 cache is overwritten, and the work is queued ahead: the time is the GPU's own, without the
  wait for Python.
- The roof is a plain copy of as many bytes, timed in the same run. An operation that mostly reads may pass it by a few
  percent, since writing is a little slower than reading.
- A variant whose result is wrong is not timed, and neither is one that seems to outrun the roof.

In the tables **best peer** is the fastest variant that is not ours, and a ratio above 1 means that ours is faster.
"""

RECORD_YOUR_OWN = """\
## Measure your own GPU

On a machine with a CUDA GPU, `tile measure vector_add` takes about a minute. It writes a file beside these and this
page with it. With `--out FOLDER` it writes elsewhere and leaves both as they are.
"""

DOWNLOAD = (
    "All variants, the spread of each time and the versions: {{download}}`{stem}.csv <measurements/{gpu}/{stem}.csv>`."
)


def page(folder: Path = MEASUREMENTS) -> str:
    """Return the whole page in MyST Markdown."""
    parts = [INTRODUCTION]
    for gpu in sorted(path for path in folder.iterdir() if any(path.glob("*.csv"))):
        records = {path.stem: read_rows(path) for path in sorted(gpu.glob("*.csv"))}
        parts.append(gpu_section(records))
        parts += [operation_section(gpu.name, stem, rows) for stem, rows in records.items()]
    return "\n".join([*parts, RECORD_YOUR_OWN])


def write_page(folder: Path = MEASUREMENTS, path: Path = PAGE) -> Path:
    """Write the page and return its path."""
    path.write_text(page(folder), encoding="utf-8")
    return path


def gpu_section(records: dict[str, list[Row]]) -> str:
    """Return the heading of one GPU and what its memory really gives."""
    rows = [row for record in records.values() for row in record]
    copy = largest_copy(rows)
    sentence = f"A copy of {gigabytes(copy.bytes)} runs at {copy.gb_per_s / 1e3:.2f} TB/s, reading and writing counted"
    try:
        bandwidth = gpu_named(copy.gpu.split()[-1]).bandwidth / 1e9
    except ValueError:
        return f"## {copy.gpu}\n\n{sentence}.\n"
    share = copy.gb_per_s / bandwidth
    return f"## {copy.gpu}\n\n{sentence}: {share:.0%} of the {bandwidth / 1e3:.1f} TB/s on the data sheet.\n"


def operation_section(gpu: str, stem: str, rows: Sequence[Row]) -> str:
    """Return one operation's tables: how fast ours is, at each size, beside the best peer and the roof."""
    lines = [f"### {stem}", "", *chapter_link(stem), describe(rows), ""]
    for dtype in dict.fromkeys(row.dtype for row in rows):
        lines += [*table([standing for standing in standings(rows) if standing.ours.dtype == dtype], dtype), ""]
    lines += [*launch_sentence(rows), DOWNLOAD.format(gpu=gpu, stem=stem), ""]
    return "\n".join(lines)


def table(standings_of_dtype: Sequence[Standing], dtype: str) -> list[str]:
    """Return the lines of one table, narrow enough for a phone."""
    unit = "TFLOP/s" if any(is_arithmetic(standing.ours) for standing in standings_of_dtype) else "GB/s"
    lines = [f"| {dtype}: size | {unit} | of the roof | × best peer |", "| :-- | --: | --: | --: |"]
    for standing in standings_of_dtype:
        ours = standing.ours
        rate = f"{ours.tflop_per_s:,.0f}" if unit == "TFLOP/s" else f"{ours.gb_per_s:,.0f}"
        peer = f"{standing.against_best:.2f} ({standing.best.variant})" if standing.best else ""
        lines.append(f"| {readable(ours.sizes)} | {rate} | {ours.roof_share:.0%} | {peer} |")
    return lines


def is_arithmetic(row: Row) -> bool:
    """Return whether a row's bytes carry so many FLOPs that arithmetic is the better measure of its speed."""
    return row.flops > 10 * row.bytes


def launch_sentence(rows: Sequence[Row]) -> list[str]:
    """Return a paragraph on what a call costs Python at the smallest size, where that was timed."""
    calls = [row for row in rows if row.variant.endswith(CALL)]
    if not calls:
        return []
    first = min(calls, key=lambda row: row.bytes)
    smallest = select(calls, shape=first.shape, dtype=first.dtype)
    gpu_ms = select(rows, shape=first.shape, dtype=first.dtype, variant=OURS)[0].median_ms
    waits = ", ".join(f"{row.median_ms * 1e3:.0f} µs ({row.variant.removesuffix(CALL)})" for row in smallest)
    return [
        f"The smallest size keeps the GPU busy for {gpu_ms * 1e3:.1f} µs. Called from Python on an idle GPU, its "
        f"result is there after {waits}: nearly all of that is the launch.",
        "",
    ]


def chapter_link(stem: str) -> list[str]:
    """Return a link to the chapter of this operation, if there is one, under the chapter's own title."""
    for path in sorted(ROOT.glob(f"notebooks/*_{stem}.ipynb")):
        first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
        title = first.strip().splitlines()[0].lstrip("# ")
        return [f"Chapter [{title}](../notebooks/{path.name}).", ""]
    return []


def readable(sizes: dict[str, int]) -> str:
    """Return sizes as a person writes them: "N = 2²⁰", "M = 4,096, N = 781"."""
    return ", ".join(f"{name} = {power_of_two(size) or f'{size:,}'}" for name, size in sizes.items())


def power_of_two(size: int) -> str:
    """Return "2²⁰" for a large power of two, else nothing."""
    if size < 2**12 or size & (size - 1):
        return ""
    return "2" + str(size.bit_length() - 1).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def gigabytes(count: int) -> str:
    """Return a number of bytes in units of 10**9."""
    return f"{count / 1e9:.1f} GB"


if __name__ == "__main__":
    print(f"{write_page().relative_to(ROOT)} written")
