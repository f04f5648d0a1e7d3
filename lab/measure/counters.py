"""What the GPU itself counts while a kernel runs, read by NVIDIA's profiler `ncu`, recorded beside the times.

    python -m lab.measure.counters matmul row_by_row pipelined --shape M=8192,N=8192,K=8192 --dtype bf16

profiles one launch of each variant of a recipe and writes `book/measurements/<gpu>/counters/<stem>.csv`.
"""

import argparse
import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from lab.device import DEVICE, ON_CPU
from lab.measure.recipe import MeasurementRefused, Workload, recipe
from lab.measure.record import commit_here, facts
from lab.measure.rows import MEASUREMENTS, gpu_key

# Column → the profiler's name for it
METRICS = {
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "l2_read_bytes": "lts__t_sectors_op_read.sum",  # in sectors of 32 bytes
    "memory_read_bytes": "dram__bytes_read.sum",
    "nanoseconds": "gpu__time_duration.sum",
}
SECTOR = 32
COLUMNS = ("op", "variant", "shape", "dtype", *METRICS, "gpu", "driver", "torch", "triton", "date", "commit")
NCU_PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")


def counters(stem: str, gpu: str = "h200", folder: Path = MEASUREMENTS) -> list[dict[str, str | float]]:
    """Return the counters recorded for one operation on one GPU, one dictionary a variant; numbers as floats."""
    with (folder / gpu / "counters" / f"{stem}.csv").open(newline="") as file:
        return [{name: float(v) if name in METRICS else v for name, v in row.items()} for row in csv.DictReader(file)]


def record(stem: str, variants: Sequence[str], shape: str, dtype: str, out: Path, commit: str | None = None) -> Path:
    """Profile one launch of each variant, write the counters below `out` and return the file.

    Raises MeasurementRefused without a GPU or without ncu, and when a variant makes more launches than one.
    """
    if ON_CPU:
        raise MeasurementRefused("there is no GPU here whose counters could be read; run this on a machine with one")
    ncu = shutil.which("ncu") or shutil.which("ncu", path=":".join(NCU_PLACES))
    if ncu is None:
        raise MeasurementRefused("ncu was not found: install NVIDIA Nsight Compute, which reads the GPU's counters")
    command = [ncu, "--csv", "--print-units=base", "--clock-control=none", "--profile-from-start=off"]
    command += [f"--metrics={','.join(METRICS.values())}", sys.executable, "-m", "lab.measure.counters"]
    command += [stem, *variants, "--shape", shape, "--dtype", dtype, "--run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    launches = launches_in(done.stdout)
    if len(launches) != len(variants):
        words = (done.stdout + done.stderr).strip()[-600:]
        raise MeasurementRefused(f"ncu saw {len(launches)} launches of {len(variants)} variants, and said: {words}")
    machine = facts(commit or commit_here())
    path = out / gpu_key(machine["gpu"]) / "counters" / f"{stem}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        lines = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        lines.writeheader()
        for variant, values in zip(variants, launches, strict=True):
            lines.writerow({"op": stem, "variant": variant, "shape": shape, "dtype": dtype, **values, **machine})
    return path


def launches_in(printed: str) -> list[dict[str, str]]:
    """Return the metrics of each launch, by column, from what ncu prints with --csv."""
    table = printed[printed.find('"ID"') :] if '"ID"' in printed else ""
    columns = {metric: column for column, metric in METRICS.items()}
    launches: dict[str, dict[str, str]] = {}
    for line in csv.DictReader(io.StringIO(table)):
        column = columns[line["Metric Name"]]
        value = float(line["Metric Value"].replace(",", "")) * (SECTOR if column == "l2_read_bytes" else 1)
        launches.setdefault(line["ID"], {})[column] = f"{value:.6g}"
    return list(launches.values())


def run(stem: str, variants: Sequence[str], shape: str, dtype: str) -> None:
    """Launch every variant once to compile it, and once more for the profiler."""
    todo = recipe(stem)
    workload: Workload = next(one for one in todo.workloads if (one.shape, one.dtype) == (shape, dtype))
    inputs = workload.make(torch.Generator(DEVICE).manual_seed(0))
    for variant in variants:
        todo.variants[variant](*inputs)
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        todo.variants[variant](*inputs)
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stem")
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--shape", required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--out", type=Path, default=MEASUREMENTS)
    parser.add_argument("--commit")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        run(given.stem, given.variants, given.shape, given.dtype)
        return
    try:
        path = record(given.stem, given.variants, given.shape, given.dtype, given.out, given.commit)
    except MeasurementRefused as refusal:
        sys.exit(f"{refusal}")
    print(f"counters of {len(given.variants)} variants written to {path}")


if __name__ == "__main__":
    main()
