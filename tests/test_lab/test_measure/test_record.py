"""What `tile measure` refuses, how it takes turns, and that a record survives everything."""

import io
import os
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from lab.device import DEVICE, ON_CPU, gpu_named
from lab.measure import record, stopwatch
from lab.measure.recipe import MeasurementRefused, Recipe, TorchCompiled, Unavailable, Workload, recipe
from lab.measure.record import facts, measure, measure_workload, poison_memory
from lab.measure.rows import (
    NoRecord,
    Row,
    describe,
    gpu_key,
    largest_copy,
    ratio,
    read_rows,
    recorded,
    standings,
    write_rows,
)

HEADER = (
    "op,variant,shape,dtype,median_ms,p20_ms,p80_ms,bytes,flops,gb_per_s,tflop_per_s,roof_share,"
    "gpu,driver,torch,triton,date,commit"
)
MACHINE = {
    "gpu": "NVIDIA H200",
    "driver": "580.1",
    "torch": "2.13.0",
    "triton": "3.7.1",
    "date": "2026-12-01",
    "commit": "abc",
}
LARGE = 2**26  # bytes, more than the L2 cache of the H200


def row(variant: str = "triton", shape: str = "N=4096", dtype: str = "fp32", median_ms: float = 1.5, **columns) -> Row:
    values = {"op": "double", "p20_ms": 1.25, "p80_ms": 2.0, "bytes": 49152, "flops": 4096, "gb_per_s": 32.8}
    values |= {"tflop_per_s": 0.002731, "roof_share": 0.5} | MACHINE | columns
    return Row(variant=variant, shape=shape, dtype=dtype, median_ms=median_ms, **values)


class FakeStopwatch:
    """Gives each function the time it is told to take, and keeps the order in which functions were timed."""

    def __init__(self, times: dict[str, float]):
        self.times, self.order = times, []

    def gpu_ms(self, call: Callable, repeats: int) -> list[float]:
        name = call()
        self.order.append(name)
        return [self.times[name]] * repeats

    def call_ms(self, call: Callable) -> float:
        return self.gpu_ms(call, 1)[0] + 1.0


class CallTimes:
    """A stopwatch for real functions: `median_ms` for every call, `copy_ms` for the copy."""

    def __init__(self, median_ms: float = 1.0, copy_ms: float = 1.0):
        self.median_ms, self.copy_ms = median_ms, copy_ms

    def gpu_ms(self, call: Callable, repeats: int) -> list[float]:
        copies = call.__qualname__.startswith("copy_of")
        return [self.copy_ms if copies else self.median_ms] * repeats

    def call_ms(self, call: Callable) -> float:
        return self.median_ms


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def recipe_of(variants: dict, byte_count: int = LARGE, flops: int = 64, **options) -> Recipe:
    workload = Workload({"N": 64}, "fp32", lambda generator: (torch.randn(64, generator=generator, device=DEVICE),))
    return Recipe(
        "double", [workload], variants, lambda x: 2 * x.double(), lambda x: byte_count, lambda x: flops, **options
    )


def measure_one(recipe: Recipe, clock=None, say: Callable = print) -> list[Row]:
    return measure_workload(recipe, recipe.workloads[0], clock or CallTimes(), MACHINE, say)


@pytest.fixture(autouse=True)
def beside_the_h200(monkeypatch):
    """Let the roof be the H200's, whatever this machine has."""
    monkeypatch.setattr(record, "GPU", gpu_named("h200"))


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Let `measure` believe in a GPU, and time with a fake stopwatch."""
    monkeypatch.setattr(record, "ON_CPU", False)
    monkeypatch.setattr(record, "Stopwatch", CallTimes)
    monkeypatch.setattr(record, "facts", lambda commit: MACHINE | {"commit": commit})


# Rows


def test_columns_stand_in_the_agreed_order(tmp_path):
    write_rows([row()], tmp_path / "double.csv")
    assert (tmp_path / "double.csv").read_text().splitlines()[0] == HEADER


def test_rows_come_back_as_they_were_written(tmp_path):
    rows = [row(), row("copy", shape="M=4096,N=8192", dtype="bf16", median_ms=1.2345e-3, gpu='odd, "quoted" name')]
    write_rows(rows, tmp_path / "h200" / "double.csv")
    assert recorded("double", "h200", folder=tmp_path) == rows
    assert rows[1].sizes == {"M": 4096, "N": 8192}


def test_a_missing_record_says_how_to_make_one(tmp_path):
    write_rows([row()], tmp_path / "t4" / "double.csv")
    with pytest.raises(NoRecord, match="on h200; there are runs on t4.*tile measure double"):
        recorded("double", "h200", folder=tmp_path)


def test_rows_of_the_gpu_here_come_before_those_of_the_reference(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.measure.rows.GPU", replace(gpu_named("h200"), name="NVIDIA L4"))
    write_rows([row()], tmp_path / "h200" / "double.csv")
    assert recorded("double", folder=tmp_path) == [row()]
    write_rows([row(gpu="NVIDIA L4")], tmp_path / "l4" / "double.csv")
    assert recorded("double", folder=tmp_path) == [row(gpu="NVIDIA L4")]


@pytest.mark.parametrize(
    "damage, complaint",
    [
        (lambda text: text.replace("median_ms", "mean_ms"), "the columns"),
        (lambda text: text.replace("1.5", "fast"), "line 2"),
        (lambda text: text.replace(",abc", ""), "line 2"),
        (lambda text: text.replace(",abc", ",abc,extra"), "line 2"),
    ],
)
def test_a_damaged_record_is_refused(tmp_path, damage, complaint):
    path = tmp_path / "double.csv"
    write_rows([row()], path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(ValueError, match=complaint):
        read_rows(path)


def test_a_write_that_dies_leaves_the_old_rows(tmp_path, monkeypatch):
    path = tmp_path / "double.csv"
    write_rows([row()], path)

    def out_of_disk(*names):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", out_of_disk)
    with pytest.raises(OSError, match="no space"):
        write_rows([row(median_ms=9.0)], path)
    assert read_rows(path) == [row()]
    assert [file.name for file in tmp_path.iterdir()] == ["double.csv"]


def test_ratio_is_how_many_times_as_fast():
    rows = [row("triton", median_ms=2.0), row("torch", median_ms=3.0), row("torch", shape="N=64", median_ms=9.0)]
    assert ratio(rows, "triton", "torch", shape="N=4096", dtype="fp32") == 1.5
    with pytest.raises(NoRecord, match="no recorded rows have variant liger"):
        ratio(rows, "triton", "liger", shape="N=4096")
    with pytest.raises(NoRecord, match="2 recorded rows have variant torch"):
        ratio(rows, "triton", "torch")


def test_standings_compare_with_the_best_peer_at_the_same_size():
    rows = [row("torch", median_ms=3.0), row("liger", median_ms=1.5), row("triton", median_ms=2.0)]
    rows += [row("copy", median_ms=1.0), row("liger_call", median_ms=0.5), row("liger", dtype="bf16", median_ms=0.1)]
    (standing,) = standings(rows)
    assert (standing.best.variant, standing.against_best, standing.against_torch) == ("liger", 0.75, 1.5)
    (alone,) = standings([row("triton")])
    assert alone.against_best is None and alone.against_torch is None


def test_the_bandwidth_is_that_of_the_largest_copy():
    rows = [row("copy", bytes=10), row("copy", bytes=30), row("triton", bytes=90)]
    assert largest_copy(rows) == rows[1]
    with pytest.raises(NoRecord, match="tile measure"):
        largest_copy(rows[2:])


def test_description_names_gpu_versions_and_date():
    assert describe([row()]) == "NVIDIA H200 · driver 580.1 · torch 2.13.0 · triton 3.7.1 · 2026-12-01"


@pytest.mark.parametrize(
    "name, key",
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("Tesla T4", "t4"),
    ],
)
def test_gpu_folder(name, key):
    assert gpu_key(name) == key


# Timing


def test_variants_take_turns_and_each_round_starts_with_another():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}
    stopwatch.interleaved(calls, rounds=3)
    assert order == list("abc" + "bca" + "cab")


def test_a_round_counts_as_its_median_and_the_launch_is_timed_apart():
    fake = FakeStopwatch({"torch": 3.0, "triton": 2.0})
    calls = {"torch": lambda: "torch", "triton": lambda: "triton"}
    times = stopwatch.timed(calls, ["triton"], fake)
    assert times == {"torch": [3.0] * 21, "triton": [2.0] * 21, "triton_call": [3.0] * 21}
    turns = fake.order[len(calls) :]
    assert turns[:7] == ["torch", "triton"] + ["triton"] * 5


def test_a_row_has_the_median_and_two_quantiles_of_the_rounds():
    assert stopwatch.spread([5.0, 1.0, 2.0, 4.0, 3.0]) == pytest.approx(
        {"median_ms": 3.0, "p20_ms": 1.8, "p80_ms": 4.2}
    )


# Measuring


def test_the_cpu_is_not_timed(monkeypatch, tmp_path):
    monkeypatch.setattr(record, "ON_CPU", True)
    with pytest.raises(MeasurementRefused, match="on the CPU.*CUDA GPU"):
        measure("vector_add", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_unknown_recipe_names_the_closest(tmp_path):
    (tmp_path / "softmax.py").write_text("")
    with pytest.raises(MeasurementRefused, match="did you mean softmax"):
        recipe("sofmax", folder=tmp_path)
    with pytest.raises(MeasurementRefused, match="there are recipes for softmax"):
        recipe("xyzzy", folder=tmp_path)


def test_rows_hold_what_was_measured():
    rows = {
        row.variant: row for row in measure_one(recipe_of({"triton": double}, calls=("triton",)), CallTimes(2.0, 1.0))
    }
    assert list(rows) == ["triton", "triton_call", "copy"]
    ours = rows["triton"]
    assert (ours.op, ours.shape, ours.dtype, ours.commit) == ("double", "N=64", "fp32", "abc")
    assert (ours.median_ms, ours.p20_ms, ours.p80_ms, ours.roof_share) == (2.0, 2.0, 2.0, 0.5)
    assert ours.gb_per_s == pytest.approx(LARGE / 2e-3 / 1e9, rel=1e-4)
    assert rows["copy"].roof_share == 1.0


@pytest.mark.parametrize(
    "wrong, complaint",
    [
        (lambda x: 3 * x + 5, "64 wrong elements, the first at"),
        (
            lambda x: torch.where(torch.arange(64, device=DEVICE) == 7, torch.nan, 2 * x),
            r"1 wrong elements, the first at \(7,\)",
        ),
        (lambda x: (2 * x)[:32], r"shape \(32,\), not \(64,\)"),
        (lambda x: x.cuda_is_missing(), "raised AttributeError"),
    ],
)
@pytest.mark.parametrize("variant", ["triton", "torch", "cublas"])
def test_a_wrong_variant_is_not_timed(wrong, complaint, variant):
    with pytest.raises(MeasurementRefused, match=f"nothing is recorded, since {variant} at N=64 fp32 .*{complaint}"):
        measure_one(recipe_of({variant: wrong}))


def test_one_large_error_of_torch_excuses_no_other():
    """As in causal gradients, where a few rows are far larger, and their errors, than all the rest."""

    def result(first, others):
        return lambda x: torch.where(torch.arange(64, device=DEVICE) == 0, first, others).to(x.dtype)

    recipe = recipe_of({"torch": result(1010.0, 2.0), "triton": result(1010.0, 2.0)})
    recipe = replace(recipe, reference=lambda x: result(1000.0, 2.0)(x.double()))
    assert len(measure_one(recipe)) == 3
    wrong = recipe.variants | {"triton": result(1000.0, -1.0)}
    with pytest.raises(MeasurementRefused, match=r"triton at N=64 fp32 is off by 3 in the typical element"):
        measure_one(replace(recipe, variants=wrong))


@pytest.mark.parametrize("wrong", [0, 1])
def test_every_tensor_of_a_result_is_compared(wrong):
    """As of gradients, which come as a tuple, and need not have one shape."""

    def both(x):
        return 2 * x, x[:32]

    def one_wrong(x):
        return tuple(t + 1 if i == wrong else t for i, t in enumerate(both(x)))

    recipe = replace(recipe_of({"torch": both, "triton": both}), reference=lambda x: both(x.double()))
    assert {row.variant for row in measure_one(recipe)} == {"torch", "triton", "copy"}
    with pytest.raises(MeasurementRefused, match="triton at N=64 fp32 gives (64|32) wrong elements"):
        measure_one(replace(recipe, variants={"torch": both, "triton": one_wrong}))


def test_torchs_own_error_widens_the_tolerance_but_only_twice():
    def off_by(step: float) -> Callable:
        return lambda x: 2 * x + step

    assert measure_one(recipe_of({"triton": off_by(1.9e-3), "torch": off_by(1e-3)}))
    with pytest.raises(MeasurementRefused, match="triton"):
        measure_one(recipe_of({"torch": off_by(1e-3), "triton": off_by(2.1e-3)}))
    with pytest.raises(MeasurementRefused, match="triton"):
        measure_one(recipe_of({"torch": double, "triton": off_by(1e-4)}))


def test_random_variants_are_checked_against_their_own_choices():
    def some_dropped(generator_seed: int, factor: float = 2.0) -> Callable:
        draws = torch.rand(64, generator=torch.Generator(DEVICE).manual_seed(generator_seed), device=DEVICE)
        return lambda x: torch.where(draws < 0.5, 0, factor * x)

    def as_drawn(expected: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        return torch.where(result == 0, 0, expected)

    right = {"torch": some_dropped(0), "triton": some_dropped(1)}
    assert measure_one(recipe_of(right, as_drawn=as_drawn))
    for wrong in (some_dropped(1, factor=2.01), lambda x: (2 * x)[:32]):
        with pytest.raises(MeasurementRefused, match="triton"):
            measure_one(recipe_of(right | {"triton": wrong}, as_drawn=as_drawn))


@pytest.mark.parametrize(
    "reason", [ImportError("No module named 'liger_kernel'"), Unavailable("takes at most 65536 columns")]
)
def test_a_missing_peer_is_left_out_with_a_line(reason):
    def liger(x):
        raise reason

    lines = []
    rows = measure_one(recipe_of({"liger": liger, "triton": double}), say=lines.append)
    assert [row.variant for row in rows] == ["triton", "copy"]
    assert len(lines) == 1 and lines[0].startswith("liger at N=64 fp32 left out: ") and str(reason) in lines[0]


def test_a_torch_compile_that_fails_is_left_out_with_its_reason(monkeypatch):
    def cannot_compile(variant: TorchCompiled) -> Callable:
        raise RuntimeError("Triton 9 is too new\nlong trace")

    monkeypatch.setattr(TorchCompiled, "build", cannot_compile)
    lines = []
    rows = measure_one(recipe_of({"torch_compile": TorchCompiled(double), "triton": double}), say=lines.append)
    assert [row.variant for row in rows] == ["triton", "copy"]
    assert lines == ["torch_compile at N=64 fp32 left out: RuntimeError: Triton 9 is too new"]


def test_a_size_that_does_not_fit_is_left_out_with_a_line():
    def too_large(x):
        raise torch.OutOfMemoryError("CUDA out of memory")

    lines = []
    assert measure_one(recipe_of({"triton": too_large}), say=lines.append) == []
    assert lines == ["N=64 fp32 left out: it does not fit in this GPU's memory"]


def test_faster_than_a_copy_is_refused():
    with pytest.raises(MeasurementRefused, match="triton at N=64 fp32 took 0.8 ms.*copy.* 1 ms, which cannot be"):
        measure_one(recipe_of({"triton": double}), CallTimes(0.8, 1.0))
    assert measure_one(recipe_of({"triton": double}), CallTimes(0.95, 1.0)), "reading is a little faster than writing"
    assert measure_one(recipe_of({"triton": double}, byte_count=2**20), CallTimes(0.8, 1.0)), "this fits in the cache"


def test_faster_than_the_arithmetic_units_is_refused():
    with pytest.raises(MeasurementRefused, match="TFLOP/s, more than NVIDIA H200 can"):
        measure_one(recipe_of({"triton": double}, flops=10**12), CallTimes(1.0, 1.0))


RECIPE_FILE = """
import torch
from lab.measure.recipe import Recipe, Workload
from lab.device import DEVICE

RECIPE = Recipe(
    "double", [Workload({"N": 64}, "fp32", lambda g: (torch.randn(64, generator=g, device=DEVICE),))],
    {"torch": lambda x: 2 * x, "triton": lambda x: TWICE * x}, lambda x: 2 * x.double(), lambda x: 2**26, lambda x: 64)
"""


def test_measure_writes_the_rows_and_says_where(on_a_gpu, tmp_path):
    (tmp_path / "double.py").write_text(RECIPE_FILE.replace("TWICE", "2"))
    console = Console(record=True, width=120, file=io.StringIO())
    path = measure("double", tmp_path / "out", commit="f00d", console=console, folder=tmp_path)
    assert path == tmp_path / "out" / "h200" / "double.csv"
    assert [(row.variant, row.commit) for row in read_rows(path)] == [
        (name, "f00d") for name in ("torch", "triton", "copy")
    ]
    said = console.export_text()
    assert "1.00 (torch)" in said and "3 rows written to" in said


def test_the_first_size_is_timed_twice_and_kept_once(on_a_gpu, tmp_path, monkeypatch):
    """While it is timed first, the processes that torch.compile starts slow Python down."""
    (tmp_path / "double.py").write_text(RECIPE_FILE.replace("TWICE", "2"))
    timed = []
    own = record.measure_workload
    monkeypatch.setattr(
        record,
        "measure_workload",
        lambda todo, workload, *a, **k: timed.append(own(todo, workload, *a, **k)) or timed[-1],
    )
    path = measure("double", tmp_path / "out", commit="f00d", console=Console(quiet=True), folder=tmp_path)
    assert len(timed) == 2 and read_rows(path) == timed[1]


def test_a_course_record_brings_its_page_along(on_a_gpu, tmp_path, monkeypatch):
    (tmp_path / "double.py").write_text(RECIPE_FILE.replace("TWICE", "2"))
    monkeypatch.setattr(record, "MEASUREMENTS", tmp_path)
    written = []
    monkeypatch.setattr(record, "write_page", lambda: written.append("page"))
    measure("double", commit="f00d", console=Console(quiet=True), folder=tmp_path)
    assert (tmp_path / "h200" / "double.csv").exists() and written == ["page"]


def test_a_refused_measurement_leaves_the_old_rows(on_a_gpu, tmp_path):
    (tmp_path / "double.py").write_text(RECIPE_FILE.replace("TWICE", "3"))
    write_rows([row()], tmp_path / "h200" / "double.csv")
    with pytest.raises(MeasurementRefused, match="triton at N=64"):
        measure("double", tmp_path, commit="f00d", console=Console(quiet=True), folder=tmp_path)
    assert recorded("double", folder=tmp_path) == [row()]


def test_the_commit_comes_from_the_environment_or_git(on_a_gpu, tmp_path, monkeypatch):
    (tmp_path / "double.py").write_text(RECIPE_FILE.replace("TWICE", "2"))
    quiet = {"console": Console(quiet=True), "folder": tmp_path}
    monkeypatch.setenv("TILE_COMMIT", "beef")
    assert read_rows(measure("double", tmp_path, **quiet))[0].commit == "beef"
    monkeypatch.delenv("TILE_COMMIT")
    monkeypatch.setattr(record, "ROOT", tmp_path)
    with pytest.raises(MeasurementRefused, match="give --commit, or set TILE_COMMIT"):
        measure("double", tmp_path, **quiet)


@pytest.mark.gpu
def test_an_unwritten_result_does_not_show_an_earlier_right_one():
    if ON_CPU:
        pytest.skip("needs a CUDA GPU: only its allocator is sure to hand out the same memory again")
    x = torch.randn(2**20, device="cuda")
    expected = 2 * x.double()
    double(x)
    assert torch.empty_like(x).equal(2 * x), "the allocator should hand out the memory that was freed last"
    poison_memory((x,), (expected, expected))
    assert all(result.isnan().all() for result in [torch.empty_like(x), torch.empty_like(x)])


@pytest.mark.gpu
def test_a_tiny_measurement_on_the_gpu(tmp_path):
    if ON_CPU:
        pytest.skip("needs a CUDA GPU")
    full = recipe("vector_add")
    small = replace(full, workloads=[work for work in full.workloads if work.sizes["N"] in (2**12, 2**20)])
    clock, machine = stopwatch.Stopwatch(), facts("test")
    for workload in small.workloads:
        rows = {row.variant: row for row in measure_workload(small, workload, clock, machine)}
        assert {"torch", "triton", "copy", "torch_call", "triton_call"} <= set(rows)
        assert all(0 < row.p20_ms <= row.median_ms <= row.p80_ms for row in rows.values())
        # Python's launch takes longer than the few microseconds the GPU needs.
        assert rows["triton_call"].median_ms > rows["triton"].median_ms
