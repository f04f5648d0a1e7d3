"""Rows of recorded measurements: reading, choosing and comparing them."""

import csv
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from lab.device import GPU, REFERENCE_GPU
from lab.notebook import ROOT, CourseError

MEASUREMENTS = ROOT / "book" / "measurements"

OURS = "triton"  # the variant of the host function that the course ships
ROOF = "copy"  # the variant that moves the same bytes and does nothing else
# The variants that others wrote; every further one is a rung of our own ladder.
PEERS = ("torch", "torch_compile", "cublas", "sdpa_flash", "sdpa_cudnn", "flex", "liger")


class NoRecord(CourseError):
    """No run of this operation was recorded on this GPU."""


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

    @property
    def origin(self) -> str:
        """Where and with what the row was measured, for the corner of a figure."""
        return f"{self.gpu} · driver {self.driver} · torch {self.torch} · triton {self.triton} · {self.date}"


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
    """Return where and with what the rows were measured."""
    return rows[0].origin


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


def gpu_key(name: str) -> str:
    """Return the folder of a GPU's rows: "NVIDIA H200" → "h200", "NVIDIA A100-SXM4-80GB" → "a100-sxm4-80gb"."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word not in ("nvidia", "geforce", "tesla", "")]
    return "-".join(words)
