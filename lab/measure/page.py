"""The page of measurements, `book/measurements.md`, written from the recorded rows: no number on it is typed by hand.

With it are written its pictures, and the one on the landing page. `tile measure` writes all of them anew; so does
`python -m lab.measure.page`.
"""

import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from lab import plots
from lab.device import REFERENCE_GPU, gpu_named
from lab.measure.rows import MEASUREMENTS, OURS, PEERS, Row, Standing, largest_copy, read_rows, select, standings
from lab.measure.stopwatch import CALL
from lab.notebook import ROOT
from lab.plots.axes import named

PAGE = MEASUREMENTS.with_suffix(".md")
STATIC = PAGE.parent / "static"

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

In the pictures ours is the line at 1, and every mark is the time that a peer takes as a multiple of ours: above 1 ours
is faster. In the tables **best peer** is the fastest variant that is not ours, and its ratio is the lowest mark of that
size.
"""

RECORD_YOUR_OWN = """\
## Measure your own GPU

On a machine with a CUDA GPU, `tile measure vector_add` takes about a minute. It writes a file beside these and this
page with it. With `--out FOLDER` it writes elsewhere and leaves both as they are.
"""

PICTURE = """\
:::{{div}} measured
```{{raw}} html
:file: static/{path}
```
:::
"""

DOWNLOAD = (
    "All variants, the spread of each time and the versions: {{download}}`{stem}.csv <measurements/{gpu}/{stem}.csv>`."
)


def page(folder: Path = MEASUREMENTS) -> str:
    """Return the whole page in MyST Markdown."""
    parts = [INTRODUCTION]
    for gpu, records in recorded_on(folder).items():
        parts.append(gpu_section(records))
        parts += [operation_section(gpu, stem, rows) for stem, rows in records.items()]
    return "\n".join([*parts, RECORD_YOUR_OWN])


def recorded_on(folder: Path) -> dict[str, dict[str, list[Row]]]:
    """Return the rows of every operation on every GPU: folder of the GPU → stem → rows."""
    gpus = sorted(path for path in folder.iterdir() if any(path.glob("*.csv")))
    return {gpu.name: {path.stem: read_rows(path) for path in sorted(gpu.glob("*.csv"))} for gpu in gpus}


def pictures(folder: Path = MEASUREMENTS) -> dict[str, str]:
    """Return every picture that is drawn from the rows: its path below `book/static` → SVG."""
    drawn = {}
    for gpu, records in recorded_on(folder).items():
        for stem, rows in records.items():
            if beside_peers(rows):
                drawn[picture_path(gpu, stem)] = plots.against_peers(rows, PEERS).svg
        if gpu == REFERENCE_GPU:
            places = {stem: standings(rows) for stem, rows in records.items()}
            drawn["standing.svg"] = plots.standing(places, title="Where you will stand at the end").svg
    return {path: f"{svg}\n" for path, svg in drawn.items()}


def picture_path(gpu: str, stem: str) -> str:
    """Return where the picture of an operation lies, below `book/static`."""
    return f"measurements/{gpu}/{stem}.svg"


def beside_peers(rows: Sequence[Row]) -> bool:
    """Return whether ours and at least one peer were measured."""
    return any(standing.best for standing in standings(rows))


def write_page(folder: Path = MEASUREMENTS, path: Path = PAGE, static: Path = STATIC) -> Path:
    """Write the page and its pictures, and return the page's path.

    A machine without Matplotlib, as one that only measures may be, keeps the pictures that are there.
    """
    path.write_text(page(folder), encoding="utf-8")
    if find_spec("matplotlib"):
        drawn = pictures(folder)
        for old in static.glob("measurements/*/*.svg"):
            old.unlink()
        for place, svg in drawn.items():
            (static / place).parent.mkdir(parents=True, exist_ok=True)
            (static / place).write_text(svg, encoding="utf-8")
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
    """Return one operation's picture and tables: how fast ours is, at each size, beside the peers and the roof."""
    lines = [f"### {stem}", "", *chapter_link(stem), versions(rows), ""]
    lines += [PICTURE.format(path=picture_path(gpu, stem))] if beside_peers(rows) else []
    for dtype in dict.fromkeys(row.dtype for row in rows):
        lines += [*table([standing for standing in standings(rows) if standing.ours.dtype == dtype], dtype), ""]
    lines += [*launch_sentence(rows), DOWNLOAD.format(gpu=gpu, stem=stem), ""]
    return "\n".join(lines)


def versions(rows: Sequence[Row]) -> str:
    """Return a sentence on what the rows were recorded with, and one on what the course installs if that is other."""
    row = rows[0]
    recorded = f"Recorded with torch {row.torch} and Triton {row.triton}, driver {row.driver}, on {row.date}"
    installed = pinned("torch"), pinned("triton")
    if (row.torch.split("+")[0], row.triton) == installed:
        return f"{recorded}: the versions that the course installs."
    return f"{recorded}; the course installs torch {installed[0]} and Triton {installed[1]}."


def pinned(package: str) -> str:
    """Return the version of a package that the course installs."""
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    return re.search(rf"^{package}==([\w.]+)", text, re.MULTILINE)[1]


def table(standings_of_dtype: Sequence[Standing], dtype: str) -> list[str]:
    """Return the lines of one table, narrow enough for a phone."""
    unit = "TFLOP/s" if any(is_arithmetic(standing.ours) for standing in standings_of_dtype) else "GB/s"
    lines = [f"| {dtype}: size | {unit} | of the roof | × best peer |", "| :-- | --: | --: | --: |"]
    for standing in standings_of_dtype:
        ours = standing.ours
        rate = f"{ours.tflop_per_s:,.0f}" if unit == "TFLOP/s" else f"{ours.gb_per_s:,.0f}"
        peer = f"{standing.against_best:.2f} ({named(standing.best.variant)})" if standing.best else ""
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
