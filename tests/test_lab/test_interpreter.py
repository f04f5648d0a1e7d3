"""Each repair of the interpreter: right here, wrong on stock Triton."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from lab.device import DEVICE, INTERPRETED

import triton  # isort: skip: after lab.device, which decides between GPU and interpreter
import triton.language as tl  # isort: skip
from triton.language.extra import libdevice  # isort: skip

from lab import interpreter

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="the interpreter is not in use: kernels run on the GPU")
ROOT = Path(__file__).parents[2]

STOCK_FAILS = {
    "bf16 addition": """
@triton.jit
def kernel(x_ptr, out_ptr, n: tl.constexpr):
    offs = tl.arange(0, n)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(x_ptr + offs))

out = torch.zeros(2, dtype=torch.bfloat16)
kernel[(1,)](torch.tensor([2.5, -5.0], dtype=torch.bfloat16), out, 2)
assert out.tolist() == [5.0, -10.0]
""",
    "bf16 rounding": """
@triton.jit
def kernel(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr).to(tl.bfloat16))

out = torch.zeros(1, dtype=torch.bfloat16)
kernel[(1,)](torch.tensor([1 + 0.75 * 2**-7]), out)
assert out.item() == 1.0078125
""",
    "bf16 times a scalar is fp32": """
@triton.jit
def kernel(x_ptr, out_ptr, alpha):
    tl.store(out_ptr, tl.load(x_ptr) * alpha)

out = torch.zeros(1)
kernel[(1,)](torch.tensor([3.0], dtype=torch.bfloat16), out, 0.3)
assert out.item() == torch.tensor(0.3).item() * 3
""",
    "libdevice": """
from triton.language.extra import libdevice

@triton.jit
def kernel(x_ptr, out_ptr):
    tl.store(out_ptr, libdevice.tanh(tl.load(x_ptr)))

out = torch.zeros(1)
kernel[(1,)](torch.tensor([0.5]), out)
assert abs(out.item() - 0.46211716) < 1e-7
""",
    "autotune": """
@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.jit
def kernel(out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, offs, mask=offs < n)

out = torch.zeros(40, dtype=torch.int32)
kernel[lambda meta: (triton.cdiv(40, meta["BLOCK"]),)](out, 40)
assert out.tolist() == list(range(40)) and kernel.best_config.kwargs == {"BLOCK": 16}
""",
    "do_bench": """
import triton.testing
assert len(triton.testing.do_bench(lambda: None, rep=1, quantiles=[0.5, 0.2, 0.8])) == 3
""",
    "names stay in the interpreter": """
@triton.jit
def kernel(out_ptr):
    tl.store(out_ptr, 1.0)

kernel[(1,)](torch.zeros(1))
assert "np" not in globals()
""",
    "an integer of 33 bits": """
@triton.jit
def kernel(out_ptr, n):
    tl.store(out_ptr, n + n)

out = torch.zeros(1, dtype=torch.int64)
kernel[(1,)](out, 2**31 + 16)
assert out.item() == 2**32 + 32
""",
    "an unmasked store": """
@triton.jit
def kernel(out_ptr):
    tl.store(out_ptr + tl.arange(0, 4), 1.0)

whole = torch.zeros(4)
try:
    kernel[(1,)](whole[:2])
except RuntimeError:
    pass
assert whole.tolist() == [1, 1, 0, 0]
""",
}


RUN_ALL = """
import json, pathlib, runpy, sys

failed = []
for script in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    try:
        runpy.run_path(str(script))
    except BaseException as error:
        failed.append(int(script.stem))
print("\\nfailed", json.dumps(failed), flush=True)
os._exit(0)  # stock Triton has corrupted the heap by now
"""


def failures(folder: Path, start: str) -> set[str]:
    """Run every snippet in one fresh process that begins with `start`; return the names of those that fail."""
    for number, code in enumerate(STOCK_FAILS.values()):
        script = f"import torch\nimport triton\nimport triton.language as tl\n{code}"
        (folder / f"{number:02}.py").write_text(script)
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", f"import os\n{start}\n{RUN_ALL}", str(folder)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert "\nfailed" in result.stdout, result.stderr
    return {list(STOCK_FAILS)[number] for number in json.loads(result.stdout.split("\nfailed")[1])}


@pytest.fixture(scope="module")
def stock_failures(tmp_path_factory):
    return failures(tmp_path_factory.mktemp("stock"), "import triton")


@pytest.fixture(scope="module")
def our_failures(tmp_path_factory):
    return failures(tmp_path_factory.mktemp("ours"), "import lab.device")


@pytest.mark.parametrize("name", STOCK_FAILS)
def test_stock_triton_needs_the_repair(name, stock_failures, our_failures):
    assert name in stock_failures
    assert name not in our_failures


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


def test_libdevice_without_a_counterpart_says_so():
    with pytest.raises(NotImplementedError, match="__nv_j0f"):
        interpreter.libdevice_function("__nv_j0f")


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


def test_the_language_is_restored_after_a_launch():
    loop_kernel[(1,)](torch.zeros(1, dtype=torch.int32, device=DEVICE), 1)
    assert all(map(tl.core.is_builtin, (tl.load, tl.core.add, tl.tensor.__add__)))
    assert isinstance(tl.range, type) and not hasattr(tl.tensor, "__index__")


def test_an_unknown_triton_gives_one_warning(monkeypatch):
    monkeypatch.setattr(interpreter, "TESTED_VERSIONS", ("1.0",))
    monkeypatch.setattr(interpreter, "use_builder", lambda builder: None)
    for owner, name in [
        (interpreter.upstream.FunctionRewriter, "_compile_and_exec"),
        (interpreter.upstream.InterpretedFunction, "__call__"),
        (interpreter.upstream, "_patch_lang"),
    ]:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        interpreter.repair.__wrapped__()
    assert [str(warning.message).count("\n") for warning in caught] == [0]
    assert "requirements.txt" in str(caught[0].message)
