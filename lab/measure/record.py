"""The one way in which times are recorded: a recipe's variants, each checked first, by turns on a CUDA GPU."""

import math
import os
import subprocess
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

import torch
import triton
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lab.device import DEVICE, GPU, ON_CPU
from lab.measure.page import write_page
from lab.measure.recipe import MeasurementRefused, Recipe, TorchCompiled, Unavailable, Workload, recipe
from lab.measure.roofline import arithmetic_ms, roof_share
from lab.measure.rows import MEASUREMENTS, ROOF, Row, describe, gpu_key, standings, write_rows
from lab.measure.stopwatch import Stopwatch, copy_of, spread, timed
from lab.notebook import ROOT
from lab.words import text_of

TORCH_TOLERANCE = 0.05  # of the elements: torch's error sets the others' tolerance, so its own is a check for sense
ROOF_TOLERANCE = 1.10  # a copy writes half of its bytes; an operation that mostly reads may pass it by a few percent


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
    # torch.compile, when first used, starts processes that slow Python's calls for seconds: these times are not kept.
    measure_workload(todo, todo.workloads[0], stopwatch, machine, say=lambda line: None)
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


# What the person at the terminal sees


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (text_of(error).strip().splitlines() or [type(error).__name__])[0]


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
