"""Kernels launched on the CPU as anywhere: `kernel[grid](…)` gives what a GPU gives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
import triton.testing
from triton.language.extra import libdevice

from lab.device import DEVICE, ON_CPU
from lab.machine.faults import OutOfBoundsError

pytestmark = pytest.mark.skipif(not ON_CPU, reason="kernels run on the GPU")
ROOT = Path(__file__).parents[3]


# Bf16


@triton.jit
def bf16_kernel(x_ptr, y_ptr, sum_ptr, product_ptr, quotient_ptr, less_ptr, largest_ptr, N: tl.constexpr):
    """Do arithmetic on one block of N bf16 numbers."""
    offs = tl.arange(0, N)
    x, y = tl.load(x_ptr + offs), tl.load(y_ptr + offs)
    tl.store(sum_ptr + offs, x + y)
    tl.store(product_ptr + offs, x * y)
    tl.store(quotient_ptr + offs, x / y)
    tl.store(less_ptr + offs, x < y)
    tl.store(largest_ptr + offs, tl.where(x > 0, tl.full([N], 2.0, tl.bfloat16), tl.maximum(x, y)))


def test_bf16_arithmetic_equals_torch():
    torch.manual_seed(0)
    x, y = torch.randn(2, 1024, device=DEVICE).bfloat16()
    outputs = [torch.empty_like(x) for _ in range(5)]
    outputs[3] = outputs[3].bool()
    bf16_kernel[(1,)](x, y, *outputs, N=1024)
    expected = [x + y, x * y, x / y, x < y, torch.where(x > 0, 2.0, torch.maximum(x, y)).bfloat16()]
    assert all(map(torch.equal, outputs, expected))


@triton.jit
def cast_kernel(x_ptr, bf16_ptr, back_ptr, truncated_ptr, integer_ptr, N: tl.constexpr):
    """Cast one block of N fp32 numbers to bf16 and on."""
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(bf16_ptr + offs, x.to(tl.bfloat16))
    tl.store(back_ptr + offs, x.to(tl.bfloat16).to(tl.float32))
    tl.store(truncated_ptr + offs, x.to(tl.bfloat16, fp_downcast_rounding="rtz"))
    tl.store(integer_ptr + offs, x.to(tl.bfloat16).to(tl.int32))


def test_bf16_casts_equal_torch():
    torch.manual_seed(0)
    x = torch.randn(1024, device=DEVICE) * 100
    x[:3] = torch.tensor([1 + 0.75 * 2**-7, float("inf"), 3.4e38])
    rounded, back, truncated, integer = x.bfloat16(), torch.empty_like(x), x.bfloat16(), x.int()
    rounded, truncated, integer = (torch.zeros_like(t) for t in (rounded, truncated, integer))
    cast_kernel[(1,)](x, rounded, back, truncated, integer, N=1024)
    assert torch.equal(rounded, x.bfloat16())
    assert torch.equal(back, x.bfloat16().float())
    assert torch.equal(truncated.view(torch.int16), (x.view(torch.int32) >> 16).short())
    assert torch.equal(integer[3:], x.bfloat16().int()[3:])


@triton.jit
def reduce_kernel(x_ptr, sum_ptr, max_ptr, min_ptr, atomic_ptr, N: tl.constexpr):
    """Reduce N bf16 numbers in four ways."""
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(sum_ptr, tl.sum(x))
    tl.store(max_ptr, tl.max(x))
    tl.store(min_ptr, tl.min(x))
    old = tl.atomic_add(atomic_ptr + offs % 2, x)
    tl.store(x_ptr + offs, old)


def test_bf16_reductions_and_atomics():
    x = torch.ones(1024, dtype=torch.bfloat16, device=DEVICE)
    x[5] = -3.0
    results = [torch.zeros(2, dtype=torch.bfloat16, device=DEVICE) for _ in range(4)]
    reduce_kernel[(1,)](x, *results, N=1024)
    assert [result[0].item() for result in results] == [1020.0, 1.0, -3.0, 256.0]  # where bf16 stops counting by one
    assert x[:4].tolist() == [0.0, 0.0, 1.0, 1.0]


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    """Multiply two N by N matrices."""
    offs = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c_ptr + offs, tl.dot(tl.load(a_ptr + offs), tl.load(b_ptr + offs)))


def test_bf16_dot_is_exact_on_small_integers():
    torch.manual_seed(0)
    a, b = torch.randint(-4, 5, (2, 16, 16), device=DEVICE).bfloat16()
    c = torch.empty(16, 16, device=DEVICE)
    dot_kernel[(1,)](a, b, c, N=16)
    assert torch.equal(c, a.float() @ b.float())


@triton.jit
def scale_kernel(x_ptr, out_ptr, alpha):
    """Multiply one number by alpha."""
    tl.store(out_ptr, tl.load(x_ptr) * alpha)


def test_bf16_times_a_number_is_fp32():
    out = torch.zeros(1, device=DEVICE)
    scale_kernel[(1,)](torch.tensor([3.0], dtype=torch.bfloat16, device=DEVICE), out, 0.3)
    assert out.item() == torch.tensor(0.3).item() * 3


# The language


@triton.jit
def libdevice_kernel(x_ptr, out_ptr, N: tl.constexpr):
    """Row i of out holds the i-th function of x."""
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, libdevice.tanh(x))
    tl.store(out_ptr + N + offs, libdevice.erf(x))
    tl.store(out_ptr + 2 * N + offs, libdevice.expm1(x))
    tl.store(out_ptr + 3 * N + offs, libdevice.rsqrt(x))
    tl.store(out_ptr + 4 * N + offs, libdevice.pow(libdevice.abs(x), x))
    tl.store(out_ptr + 5 * N + offs, libdevice.fast_expf(x))
    tl.store(out_ptr + 6 * N + offs, libdevice.erfinv(x / 8))
    tl.store(out_ptr + 7 * N + offs, libdevice.isnan(x).to(tl.float32))
    tl.store(out_ptr + 8 * N + offs, libdevice.float2int_rn(x).to(tl.float32))


def test_libdevice_computes_what_torch_computes():
    x = torch.linspace(-7, 7, 64, device=DEVICE)
    out = torch.empty(9, 64, device=DEVICE)
    libdevice_kernel[(1,)](x, out, N=64)
    expected = [
        x.tanh(),
        x.erf(),
        x.expm1(),
        x.rsqrt(),
        x.abs().pow(x),
        x.exp(),
        (x / 8).erfinv(),
        x.isnan(),
        x.round(),
    ]
    for row, value in zip(out, expected, strict=True):
        torch.testing.assert_close(row, value.float(), rtol=2e-6, atol=1e-6, equal_nan=True)


@triton.jit
def loop_kernel(out_ptr, n):
    """Count to n, the bound known only at run time."""
    count = 0
    for _ in range(n):
        count += 1
    tl.store(out_ptr, count)


def test_a_loop_with_a_run_time_bound():
    out = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    loop_kernel[(1,)](out, 7)
    assert out.item() == 7


@triton.jit
def twice_kernel(out_ptr, n):
    """Store twice a number."""
    tl.store(out_ptr, n + n)


def test_an_integer_of_33_bits():
    out = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    twice_kernel[(1,)](out, 2**31 + 16)
    assert out.item() == 2**32 + 32


@triton.jit
def words_kernel(out_ptr, N: tl.constexpr):
    """Row i of out holds the i-th combination of two conditions, or of two numbers."""
    offs = tl.arange(0, N)
    a, b = offs % 2 == 0, offs % 3 == 0
    tl.store(out_ptr + offs, (a and b).to(tl.int32))
    tl.store(out_ptr + N + offs, (a or b).to(tl.int32))
    tl.store(out_ptr + 2 * N + offs, (not a).to(tl.int32))
    tl.store(out_ptr + 3 * N + offs, min(offs, 5))
    tl.store(out_ptr + 4 * N + offs, max(offs, N - offs))


@pytest.mark.filterwarnings("ignore:Logical operators", "ignore:builtin (min|max)")
def test_words_of_python_work_lane_by_lane():
    out, offs = torch.empty(5, 16, dtype=torch.int32, device=DEVICE), torch.arange(16, device=DEVICE)
    words_kernel[(1,)](out, N=16)
    a, b = offs % 2 == 0, offs % 3 == 0
    expected = [a & b, a | b, ~a, offs.clamp(max=5), torch.maximum(offs, 16 - offs)]
    assert torch.equal(out, torch.stack([row.int() for row in expected]))


def scaled_by(factor: float):
    """Return a kernel that multiplies by what stands here, not in its module."""
    FACTOR = tl.constexpr(factor)

    @triton.jit
    def helper(x):
        return x * FACTOR

    @triton.jit
    def kernel(x_ptr):
        tl.store(x_ptr, helper(tl.load(x_ptr)))

    return kernel


def test_a_kernel_made_in_a_function_sees_its_constants():
    x = torch.ones(1, device=DEVICE)
    scaled_by(3.0)[(1,)](x)
    scaled_by(5.0)[(1,)](x)
    assert x.item() == 15


# Memory


@triton.jit
def fill_kernel(out_ptr, BLOCK: tl.constexpr):
    """Write a block of ones."""
    tl.store(out_ptr + tl.arange(0, BLOCK), 1.0)


def test_a_store_past_the_end_is_stopped():
    whole = torch.zeros(4, device=DEVICE)
    with pytest.raises(OutOfBoundsError, match="program 0 stores 2 elements past the end of `out_ptr`"):
        fill_kernel[(1,)](whole[:2], BLOCK=4)
    assert whole.tolist() == [1, 1, 0, 0]


@triton.jit
def total_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Sum n elements; the masked ones hold anything."""
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr, tl.sum(x))
    tl.store(out_ptr + 1, tl.max(x))
    tl.store(out_ptr + 2, tl.min(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int8])
def test_masked_lanes_hold_anything_but_zero(dtype):
    out = torch.zeros(3, dtype=dtype, device=DEVICE)
    total_kernel[(1,)](torch.ones(5, dtype=dtype, device=DEVICE), out, 5, BLOCK=8)
    if dtype.is_floating_point:
        assert out[0].isnan()
    else:
        assert out[0] != 5 and out[1] > 1 and out[2] < 0


@triton.jit
def gather_kernel(table_ptr, out_ptr, BLOCK: tl.constexpr):
    """Each program copies a block of the tensor whose address is at its place in a table."""
    pid, offs = tl.program_id(0), tl.arange(0, BLOCK)
    x_ptr = tl.load(table_ptr + pid).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + pid * BLOCK + offs, tl.load(x_ptr + offs))


def test_a_tensor_of_addresses_leads_to_tensors():
    parts = [torch.randn(8, device=DEVICE) for _ in range(3)]
    table, out = torch.tensor([part.data_ptr() for part in parts], device=DEVICE), torch.empty(24, device=DEVICE)
    gather_kernel[(3,)](table, out, BLOCK=8)
    assert torch.equal(out, torch.cat(parts))
    with pytest.raises(OutOfBoundsError, match="program 0 loads 8 elements"):
        gather_kernel[(1,)](torch.tensor([64], device=DEVICE), out, BLOCK=8)  # where no tensor is


# Launching

tried = []


@triton.jit
def numbers_kernel(out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Write the numbers up to n."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + offs, offs)
    else:
        tl.store(out_ptr + offs, offs, mask=offs < n)


def tuned(**options):
    """Return the kernel with three configurations, the first of which takes too many threads."""
    configs = [triton.Config({"BLOCK": 8}, num_warps=64), triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})]
    heuristic = triton.heuristics(
        {"EVEN": lambda given: tried.append(given["BLOCK"]) or given["n"] % given["BLOCK"] == 0}
    )
    return triton.autotune(configs, key=["n"], **options)(heuristic(numbers_kernel))


def only_count(call, quantiles):
    call()
    return [float(-len(tried))] * 3


@pytest.mark.parametrize("options, chosen", [({}, 16), ({"do_bench": only_count}, 32), ({"warmup": 1, "rep": 1}, 16)])
@pytest.mark.filterwarnings("ignore:warmup, rep, and use_cuda_graph")
def test_autotuning_tries_every_configuration_and_takes_the_first_that_runs(options, chosen):
    tried.clear()
    kernel, out = tuned(**options), torch.zeros(40, dtype=torch.int32, device=DEVICE)
    for _ in range(2):
        kernel[lambda given: (triton.cdiv(40, given["BLOCK"]),)](out, 40)
        assert out.tolist() == list(range(40)) and kernel.best_config.kwargs == {"BLOCK": chosen}
    assert tried == [8, 16, 32, chosen, chosen]


def test_do_bench_needs_a_gpu():
    with pytest.raises(RuntimeError, match="do_bench needs a CUDA GPU"):
        triton.testing.do_bench(lambda: None, rep=1)


def test_a_kernel_can_be_compiled_ahead_and_launched_later():
    out = torch.zeros(4, device=DEVICE)
    compiled = fill_kernel.warmup(torch.float32, BLOCK=4, grid=(1,))
    assert out.tolist() == [0] * 4
    compiled[(1, 1, 1)](out, 4)
    assert out.tolist() == [1] * 4


@pytest.mark.parametrize("options", [{"num_warp": 8}, {"blocks": 2}])
def test_an_option_that_is_none_is_refused(options):
    with pytest.raises(KeyError, match=f"{next(iter(options))} was specified but unrecognised"):
        fill_kernel[(1,)](torch.zeros(4, device=DEVICE), BLOCK=4, **options)


# Other processes

PROGRAM = """
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs) * 2)

{first}
import torch
import lab.device

x = torch.ones(4)
kernel[(1,)](x, N=4)
assert x.tolist() == [2] * 4
"""
FIRST = {
    "triton": "",
    "an optimizer": "import torch\ntorch.optim.SGD([torch.nn.Parameter(torch.ones(1))])",
    "torch.compile": "import torch\nassert torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)).item() == 2",
}


def run_program(text: str, **environment) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=120)


def in_file(folder: Path, text: str, **environment) -> subprocess.CompletedProcess:
    """Run a program from a file: Triton reads the source of kernels."""
    file = folder / "program.py"
    file.write_text(text)
    return run_program(f"import runpy; runpy.run_path({str(file)!r})", **environment)


@pytest.mark.parametrize("first", FIRST)
def test_whatever_was_imported_first_is_no_matter(tmp_path, first):
    done = in_file(tmp_path, PROGRAM.format(first=FIRST[first]))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_variable_of_the_interpreter_is_not_needed_and_said_to_be_so(tmp_path):
    done = in_file(tmp_path, "import lab.device" + PROGRAM.format(first=""), TRITON_INTERPRET="1")
    assert done.returncode == 0 and done.stderr.startswith("TRITON_INTERPRET is not needed"), done.stderr
    assert done.stderr.count("\n") == 1


def test_a_triton_that_interprets_already_is_refused(tmp_path):
    done = in_file(tmp_path, PROGRAM.format(first=""), TRITON_INTERPRET="1")
    assert done.returncode != 0 and "Restart Python without that variable" in done.stderr
