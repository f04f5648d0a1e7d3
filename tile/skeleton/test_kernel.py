"""STEM against its specification: one case a regime. Add those it can fail in."""

import pytest
import torch

from kernels.STEM import (
    BLOCK,
    DTYPES,
    STEM,
    STEM_bytes,
    STEM_flops,
    STEM_kernel,
    STEM_reference,
    launch_STEM,
)
from lab.check import judge
from lab.compiler import compiled
from lab.device import DEVICE, ON_CPU
from lab.task import Case, Task


def tensor(*shape: int, dtype: torch.dtype = torch.float32):
    """Return a maker of one tensor of normal random numbers."""
    return lambda generator: (
        torch.randn(shape, generator=generator, device=generator.device)
        .to(dtype)
        .to(DEVICE),
    )


def view_of(change, *shape: int):
    """Return a maker of a view of such a tensor."""
    return lambda generator: (change(tensor(*shape)(generator)[0]),)


def special_values(generator: torch.Generator):
    inf, nan = float("inf"), float("nan")
    return (torch.tensor([inf, -inf, nan, 0.0, -0.0, 3e38, 1e-45], device=DEVICE),)


CASES = [
    Case("one element", tensor(1)),
    Case("no dimensions", tensor()),
    Case("masked tail", tensor(BLOCK - 1)),
    Case("block exactly full", tensor(BLOCK)),
    Case("one past a block", tensor(BLOCK + 1), programs=2),
    Case("nothing divides anything", tensor(7, 11, 13, 3), programs=2),
    Case("empty", tensor(0)),
    Case("transposed", view_of(torch.t, 33, 5)),
    Case("sliced", view_of(lambda x: x[1:5, 2:7], 6, 9)),
    Case("stride 0", view_of(lambda x: x.expand(40), 1)),
    Case("infinities, NaN, zeros, the largest", special_values),
] + [Case(f"{dtype}", tensor(BLOCK + 29, dtype=dtype), programs=2) for dtype in DTYPES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_regimes(case):
    task = Task(
        "STEM", "2 * x", STEM_reference, (case,), 1, ("", "", ""), allows=("clone",)
    )
    verdict = judge(task, STEM, isolate=False)
    assert verdict.passed, verdict.message


def test_torch_compile_sees_one_graph():
    x = torch.arange(24.0, device=DEVICE).view(4, 6).t()
    torch._dynamo.reset()
    backend = "aot_eager" if ON_CPU else "inductor"
    fast = torch.compile(lambda x: STEM(x + 1) - 1, backend=backend, fullgraph=True)
    assert torch.equal(fast(x), 2 * x + 1)
    torch.library.opcheck(launch_STEM.operation, (x,))


def test_another_dtype_is_refused():
    with pytest.raises(ValueError, match="not torch.int32"):
        STEM(torch.ones(3, dtype=torch.int32, device=DEVICE))


def test_costs():
    x = torch.empty(1000, dtype=torch.bfloat16, device="meta")
    assert STEM_bytes(x) == 4000
    assert STEM_flops(x) == 1000


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100", "gfx942"])
def test_compiles_for(target):
    x = torch.empty(2**20, device="meta")
    assert compiled(STEM_kernel, x, x, 2**20, target=target, BLOCK=BLOCK).spills == 0
