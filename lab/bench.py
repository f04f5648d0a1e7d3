"""Measured speed: rows recorded on a GPU for everyone to read, and the one way in which they are recorded.

A recipe, `book/measurements/<stem>.py`, says what is timed. `measure` times it on a CUDA GPU and writes
`book/measurements/<gpu>/<stem>.csv`; `recorded` reads those rows anywhere.
"""

import csv
import difflib
import importlib.util
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lab.device import DEVICE, GPU, ON_CPU, REFERENCE_GPU
from lab.notebook import CourseError
from lab.roofline import arithmetic_ms, roof_share
from lab.stopwatch import Stopwatch, copy_of, spread, timed

ROOT = Path(__file__).parents[1]
MEASUREMENTS = ROOT / "book" / "measurements"

OURS = "triton"  # the variant of the host function that the course ships
ROOF = "copy"  # the variant that moves the same bytes and does nothing else
# The variants that others wrote; every further one is a rung of our own ladder.
PEERS = ("torch", "torch_compile", "cublas", "sdpa_flash", "sdpa_cudnn", "flex", "liger")
TORCH_TOLERANCE = 0.05  # of the elements: torch's error sets the others' tolerance, so its own is a check for sense
ROOF_TOLERANCE = 1.10  # a copy writes half of its bytes; an operation that mostly reads may pass it by a few percent


class MeasurementRefused(CourseError):
    """A measurement that would mislead, or that cannot be made here; the message says why and what to do."""


class NoRecord(CourseError):
    """No run of this operation was recorded on this GPU."""


class Unavailable(Exception):
    """Raised by a recipe's variant that cannot run here or at this size; its message is the reason."""


# Rows


@dataclass(frozen=True)
class Row:
    """One variant at one size: a line of `book/measurements/<gpu>/<stem>.csv`."""

    op: str
    variant: str
    shape: str  # "M=4096,N=8192"
    dtype: str  # "fp32", "tf32", "bf16", "fp16", "fp8"
    median_ms: float
    p20_ms: float
    p80_ms: float
    bytes: int  # that must cross device memory once
    flops: int
    gb_per_s: float  # 10**9 bytes a second
    tflop_per_s: float
    roof_share: float  # 1 is the speed of a copy of the same bytes, or the GPU's peak arithmetic if that is slower
    gpu: str
    driver: str
    torch: str
    triton: str
    date: str  # ISO 8601
    commit: str

    @property
    def sizes(self) -> dict[str, int]:
        """The shape as numbers: {"M": 4096, "N": 8192}."""
        return {name: int(size) for name, size in (part.split("=") for part in self.shape.split(","))}


COLUMNS = tuple(column.name for column in fields(Row))


def recorded(stem: str, gpu: str | None = None, folder: Path = MEASUREMENTS) -> list[Row]:
    """Return the rows recorded for one operation on one GPU. Raises NoRecord when there are none.

    gpu: the folder's name, such as "h200"; None for the GPU of this machine if it was measured, else the reference GPU.
    """
    if gpu is None:
        here = gpu_key(GPU.name)
        gpu = here if (folder / here / f"{stem}.csv").exists() else REFERENCE_GPU
    path = folder / gpu / f"{stem}.csv"
    if not path.exists():
        others = sorted(file.parent.name for file in folder.glob(f"*/{stem}.csv"))
        elsewhere = f"; there are runs on {', '.join(others)}" if others else ""
        raise NoRecord(
            f"{stem} is not recorded on {gpu}{elsewhere}. Record it on a machine with that GPU: tile measure {stem}"
        )
    return read_rows(path)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of one file. Raises ValueError, naming the line, for a file that `tile measure` did not write."""
    with path.open(newline="") as file:
        lines = csv.DictReader(file)
        if tuple(lines.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path}: the columns are not those of `tile measure`; measure again to replace the file")
        try:
            return [row_from(line) for line in lines]
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {lines.line_num}: {error}; measure again to replace the file") from error


def row_from(line: Mapping[str, str]) -> Row:
    """Return the row that one line of a file holds. Raises ValueError for a line that holds none."""
    if None in line or None in line.values():
        raise ValueError("too many or too few values")
    return Row(**{column.name: column.type(line[column.name]) for column in fields(Row)})


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Replace the file in one step, so that a run killed half-way leaves the last one's rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", newline="", delete=False) as file:
        try:
            lines = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            lines.writeheader()
            lines.writerows(asdict(row) for row in rows)
            file.flush()
            os.chmod(file.name, 0o644)  # a temporary file is private, a record is not
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def select(rows: Iterable[Row], **columns: str) -> list[Row]:
    """Return the rows whose columns have these values: `select(rows, variant="triton", dtype="bf16")`."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in columns.items())]


def one(rows: Iterable[Row], **columns: str) -> Row:
    """Return the only row whose columns have these values. Raises NoRecord when there is none, or more than one."""
    found = select(rows, **columns)
    if len(found) != 1:
        wanted = ", ".join(f"{name} {value}" for name, value in columns.items())
        raise NoRecord(f"{len(found) or 'no'} recorded rows have {wanted}, not one")
    return found[0]


def ratio(rows: Iterable[Row], variant: str, peer: str, **columns: str) -> float:
    """Return how many times as fast as `peer` the `variant` is at the one size that the columns name."""
    rows = list(rows)
    return one(rows, variant=peer, **columns).median_ms / one(rows, variant=variant, **columns).median_ms


def describe(rows: Sequence[Row]) -> str:
    """Return where and with what the rows were measured, for the corner of a figure."""
    row = rows[0]
    return f"{row.gpu} · driver {row.driver} · torch {row.torch} · triton {row.triton} · {row.date}"


def largest_copy(rows: Iterable[Row]) -> Row:
    """Return the copy of the most bytes: the memory bandwidth that this GPU really has. Raises NoRecord without one."""
    copies = select(rows, variant=ROOF)
    if not copies:
        raise NoRecord("no copy is recorded among these rows; measure again: tile measure vector_add")
    return max(copies, key=lambda row: row.bytes)


@dataclass(frozen=True)
class Standing:
    """How the course's own variant stands at one size."""

    ours: Row
    best: Row | None  # the fastest of PEERS
    torch: Row | None

    @property
    def against_best(self) -> float | None:
        """Our speed as a multiple of the best peer's; None where nothing else ran."""
        return self.best.median_ms / self.ours.median_ms if self.best else None

    @property
    def against_torch(self) -> float | None:
        """Our speed as a multiple of torch's; None where torch did not run."""
        return self.torch.median_ms / self.ours.median_ms if self.torch else None


def standings(rows: Sequence[Row]) -> list[Standing]:
    """Return one standing for each size and dtype, in the order of the rows."""
    result = []
    for ours in select(rows, variant=OURS):
        here = select(rows, shape=ours.shape, dtype=ours.dtype)
        peers = [row for row in here if row.variant in PEERS]
        best = min(peers, key=lambda row: row.median_ms, default=None)
        result.append(Standing(ours, best, next(iter(select(here, variant="torch")), None)))
    return result


# Recipes


@dataclass(frozen=True)
class TorchCompiled:
    """A variant that torch.compile builds anew for every workload, before the clock starts."""

    function: Callable

    def build(self) -> Callable:
        """Return the function, compiled at its first call for the shapes of that call."""
        torch._dynamo.reset()
        return torch.compile(self.function, dynamic=False)


@dataclass(frozen=True)
class Workload:
    """One size of an operation: `make(generator)` returns the inputs, on the GPU."""

    sizes: dict[str, int]
    dtype: str
    make: Callable[[torch.Generator], tuple]

    @property
    def shape(self) -> str:
        """The sizes as a row spells them: "M=4096,N=8192"."""
        return ",".join(f"{name}={size}" for name, size in self.sizes.items())


@dataclass(frozen=True)
class Recipe:
    """What to time: every variant on every workload. All functions take the workload's inputs.

    `reference` returns the right answer in float64 or float32: one tensor, or a tuple where variants return one, as of
    gradients. `bytes` and `flops` count what the operation cannot do without. The variants named in `calls` are also
    timed as Python sees them, from an idle GPU to the result. Where the operation is random,
    `as_drawn(expected, result)` returns the right answer for the choices that `result` shows.
    """

    op: str
    workloads: Sequence[Workload]
    variants: dict[str, Callable | TorchCompiled]
    reference: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    bytes: Callable[..., int]
    flops: Callable[..., int]
    calls: tuple[str, ...] = field(default=())
    as_drawn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None


def recipe(stem: str, folder: Path = MEASUREMENTS) -> Recipe:
    """Return what `book/measurements/<stem>.py` says to time. Raises MeasurementRefused for an unknown stem."""
    path = folder / f"{stem}.py"
    if not path.exists():
        known = sorted(file.stem for file in folder.glob("*.py"))
        close = difflib.get_close_matches(stem, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are recipes for {', '.join(known) or 'nothing yet'}."
        raise MeasurementRefused(f"there is no recipe book/measurements/{stem}.py; {hint}")
    spec = importlib.util.spec_from_file_location(f"measurements_{stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RECIPE


# Measuring


def measure(
    stem: str,
    out: Path | None = None,
    commit: str | None = None,
    console: Console | None = None,
    folder: Path = MEASUREMENTS,
) -> Path:
    """Time a recipe on this machine's GPU, write its rows below the folder `out` and return their file.

    Without `out` the rows join those of the course, and the page of measurements is written anew.
    `commit` names the code that is timed; without it, TILE_COMMIT or git does. Raises MeasurementRefused without a GPU,
    when a variant's result is wrong and when a time cannot be true; the rows of the last run then stay as they were.
    """
    if ON_CPU:
        raise MeasurementRefused(
            "kernels run on the CPU here, and its times say nothing about a GPU. Run tile measure on a machine with a "
            "CUDA GPU. The runs recorded so far are in book/measurements/."
        )
    todo = recipe(stem, folder)
    machine = facts(commit or os.environ.get("TILE_COMMIT") or commit_here())
    console = console or Console()
    stopwatch = Stopwatch()
    rows = []
    with progress_bar(console) as progress:
        task = progress.add_task(todo.op, total=len(todo.workloads))
        for workload in todo.workloads:
            progress.update(task, description=f"{todo.op} {workload.shape} {workload.dtype}", refresh=True)
            rows += measure_workload(todo, workload, stopwatch, machine, say=progress.console.print)
            progress.update(task, advance=1, refresh=True)
    path = Path(out or MEASUREMENTS) / gpu_key(machine["gpu"]) / f"{stem}.csv"
    write_rows(rows, path)
    if out is None:
        from lab.measurements import write_page  # that module reads rows through this one

        write_page()
    console.print(results_table(rows))
    console.print(f"{len(rows)} rows written to {path}")
    return path


def measure_workload(
    todo: Recipe, workload: Workload, stopwatch: Stopwatch, machine: dict[str, str], say: Callable[[str], None] = print
) -> list[Row]:
    """Return the rows of every variant at one size: none, and a line that says so, if it does not fit in memory."""
    try:
        inputs = workload.make(torch.Generator(DEVICE).manual_seed(0))
        cost = {"bytes": todo.bytes(*inputs), "flops": todo.flops(*inputs)}
        functions = checked_variants(todo, workload, inputs, say)
        calls = {name: lambda function=function: function(*inputs) for name, function in functions.items()}
        calls[ROOF] = copy_of(cost["bytes"])
        times = {name: spread(values) for name, values in timed(calls, todo.calls, stopwatch).items()}
    except torch.OutOfMemoryError:
        say(f"{workload.shape} {workload.dtype} left out: it does not fit in this GPU's memory")
        return []
    copy_ms = times[ROOF]["median_ms"]
    rows = [row_of(todo.op, name, workload, ms, cost, copy_ms, machine) for name, ms in times.items()]
    for row in rows:
        refuse_above_roof(row, copy_ms)
    return rows


def row_of(
    op: str,
    variant: str,
    workload: Workload,
    times: dict[str, float],
    cost: dict[str, int],
    copy_ms: float,
    machine: dict[str, str],
) -> Row:
    """Return the row of one variant, rounded to the digits that mean something."""
    seconds = times["median_ms"] / 1e3
    measured = {
        **times,
        "gb_per_s": cost["bytes"] / seconds / 1e9,
        "tflop_per_s": cost["flops"] / seconds / 1e12,
        "roof_share": roof_share(times["median_ms"], copy_ms, cost["flops"], workload.dtype, GPU),
    }
    rounded = {name: float(f"{value:.5g}") for name, value in measured.items()}
    return Row(op=op, variant=variant, shape=workload.shape, dtype=workload.dtype, **cost, **rounded, **machine)


def checked_variants(
    todo: Recipe, workload: Workload, inputs: tuple, say: Callable[[str], None] = print
) -> dict[str, Callable]:
    """Return the variants that run here, each with the right result on `inputs`.

    Raises MeasurementRefused for a wrong result or an error. Tolerance: twice torch's own error and a rounding step, of
    each element and of all together: the largest error says little where a few elements are large, as in gradients.
    """
    reference = todo.reference(*inputs)
    expected = joined(reference)
    own, functions = Errors(0.0, 0.0), {}
    for name in sorted(todo.variants, key=lambda name: name != "torch"):
        what = f"{name} at {workload.shape} {workload.dtype}"
        try:
            function, result = tried(todo.variants[name], inputs, parts(reference), what)
        except Unavailable as reason:
            say(f"{what} left out: {reason}")
            continue
        random = todo.as_drawn is not None and result.shape == expected.shape
        right = todo.as_drawn(expected, result) if random else expected
        allowed = errors_in(right, 0).times(TORCH_TOLERANCE) if name == "torch" else own.times(2)
        refuse_wrong(result, right, allowed, what)
        if name == "torch":
            own = errors_in(result, right)
        functions[name] = function
    return functions


def tried(
    variant: Callable | TorchCompiled, inputs: tuple, expected: tuple[torch.Tensor, ...], what: str
) -> tuple[Callable, torch.Tensor]:
    """Return a variant's function and its first result.

    Raises Unavailable for a variant that this machine does not have, MeasurementRefused for one that fails.
    """
    try:
        function = variant.build() if isinstance(variant, TorchCompiled) else variant
        poison_memory(inputs, expected)
        return function, joined(function(*inputs))
    except (Unavailable, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        if isinstance(error, ImportError) or isinstance(variant, TorchCompiled):
            raise Unavailable(reason) from error
        raise MeasurementRefused(f"nothing is recorded, since {what} raised {reason}") from error


def parts(result: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Return the tensors of a result."""
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)


def joined(result: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return a result as one tensor: of several, all elements in a row."""
    return result if isinstance(result, torch.Tensor) else torch.cat([t.flatten() for t in result])


def poison_memory(inputs: tuple, expected: tuple[torch.Tensor, ...]) -> None:
    """Leave NaN in the memory that the next results of these shapes will get, so that unwritten ones cannot pass."""
    floats = (value for value in inputs if isinstance(value, torch.Tensor) and value.is_floating_point())
    dtype = next((value.dtype for value in floats), expected[0].dtype)
    [torch.full(t.shape, math.nan, dtype=dtype, device=t.device) for t in expected]  # all at once, then none


class Errors(NamedTuple):
    """How far a result is off."""

    largest: float
    typical: float  # root of the mean square

    def times(self, factor: float) -> "Errors":
        """Return these errors, all multiplied by one factor."""
        return Errors(self.largest * factor, self.typical * factor)


def errors_in(result: torch.Tensor, right: torch.Tensor | int) -> Errors:
    """Return how far a result is off the right one, as large as numbers are off 0."""
    error = result.double() - right
    return Errors(error.abs().max().item(), error.square().mean().sqrt().item())


def refuse_wrong(result: torch.Tensor, expected: torch.Tensor, allowed: Errors, what: str) -> None:
    """Raise MeasurementRefused unless a result is within the allowed errors and a rounding step of the expected."""
    if result.shape != expected.shape:
        shapes = f"shape {tuple(result.shape)}, not {tuple(expected.shape)}"
        raise MeasurementRefused(f"nothing is recorded, since {what} returns {shapes}")
    look = "Look at its tests first: pytest tests/test_kernels"
    step = torch.finfo(result.dtype).eps
    error = (result.to(expected.dtype) - expected).abs()
    wrong = ~(error <= allowed.largest + step * expected.abs())  # NaN is wrong as well
    count = int(wrong.sum())
    if count:
        first = tuple(wrong.nonzero()[0].tolist())
        raise MeasurementRefused(
            f"nothing is recorded, since {what} gives {count} wrong elements, the first at {first}: "
            f"{result[first].item():g} instead of {expected[first].item():g}. {look}"
        )
    typical, budget = errors_in(error, 0).typical, allowed.typical + step * errors_in(expected, 0).typical
    if not typical <= budget:
        raise MeasurementRefused(
            f"nothing is recorded, since {what} is off by {typical:.2g} in the typical element, and {budget:.2g} is "
            f"what rounding explains. {look}"
        )


def refuse_above_roof(row: Row, copy_ms: float) -> None:
    """Raise MeasurementRefused for a time that memory or arithmetic units could not reach."""
    where = f"{row.variant} at {row.shape} {row.dtype}"
    again = "Look for work that was left out or not counted, or measure again on a quiet machine."
    cached = row.bytes <= GPU.l2_bytes
    if not cached and row.median_ms * ROOF_TOLERANCE < copy_ms:
        raise MeasurementRefused(
            f"nothing is recorded, since {where} took {row.median_ms:g} ms and a copy of the same bytes "
            f"{copy_ms:g} ms, which cannot be. {again}"
        )
    if row.variant != ROOF and row.median_ms < arithmetic_ms(row.flops, row.dtype, GPU):
        raise MeasurementRefused(
            f"nothing is recorded, since {where} reached {row.tflop_per_s:g} TFLOP/s, more than {GPU.name} can. {again}"
        )


# The machine


def facts(commit: str) -> dict[str, str]:
    """Return the columns that say where and with what a row was measured."""
    import triton  # after lab.device, which must come first

    return {
        "gpu": torch.cuda.get_device_name(DEVICE),
        "driver": driver_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": date.today().isoformat(),
        "commit": commit,
    }


def driver_version() -> str:
    """Return the version of the NVIDIA driver, or "unknown"."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"


def commit_here() -> str:
    """Return the commit of the working tree, with "-dirty" if it has changes. Raises MeasurementRefused without one."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise MeasurementRefused(
            "git names no commit here, and a row must say which code it timed: give --commit, or set TILE_COMMIT"
        ) from error


def gpu_key(name: str) -> str:
    """Return the folder of a GPU's rows: "NVIDIA H200" → "h200", "NVIDIA A100-SXM4-80GB" → "a100-sxm4-80gb"."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word not in ("nvidia", "geforce", "tesla", "")]
    return "-".join(words)


# What the person at the terminal sees


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def progress_bar(console: Console) -> Progress:
    """Return a bar that shows the workload being timed, how many are done and for how long."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Drawn between the workloads only: a thread that draws would disturb the host's side of the times.
    return Progress(*columns, console=console, auto_refresh=False)


def results_table(rows: Sequence[Row]) -> Table:
    """Return the short table that ends a measurement: our speed, and ours over the peers'."""
    table = Table(title=describe(rows) if rows else None, title_justify="left")
    for name in ("dtype", "shape", "GB/s", "TFLOP/s", "of the roof", "× torch", "× best peer"):
        table.add_column(name, justify="left" if name in ("dtype", "shape") else "right")
    for standing in standings(rows):
        ours = standing.ours
        table.add_row(
            ours.dtype,
            ours.shape,
            f"{ours.gb_per_s:.0f}",
            f"{ours.tflop_per_s:.2f}",
            f"{ours.roof_share:.1%}",
            f"{standing.against_torch:.2f}" if standing.torch else "",
            f"{standing.against_best:.2f} ({standing.best.variant})" if standing.best else "",
        )
    return table
