"""attention_hopper: its code, read without a GPU; and its results, on a Hopper GPU."""

import functools
import math

import pytest
import torch

from kernels.attention.hopper import (
    BLOCK_D,
    BLOCK_M,
    BLOCK_N,
    DTYPES,
    HALF,
    STAGES,
    attention_hopper,
    attention_hopper_kernel,
    descriptor,
)
from kernels.launch import tensor_spec
from lab.compiler import compiled
from lab.device import DEVICE, ON_CPU

needs_hopper = pytest.mark.skipif(
    ON_CPU or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU: H100, H200 or GH200"
)


# Without a GPU


def placed(dtype):
    """Return what stands for a tensor [4, 32, 4096, BLOCK_D]."""
    return tensor_spec(torch.empty(4, 32, 4096, BLOCK_D, dtype=dtype, device="meta")).at(0)


@functools.cache
def compile_kernel(dtype=torch.bfloat16, causal=True):
    descriptors = (descriptor(placed(dtype), rows) for rows in (HALF, BLOCK_N, BLOCK_N, HALF))
    sizes = (4, 32, 1, 4096, 4096)
    lse = torch.empty(4, 32, 4096, device="meta")
    return compiled(attention_hopper_kernel, *descriptors, lse, 0.1, *sizes, 16, causal, STAGES, target="sm_90")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_compiles_without_spills(dtype, causal):
    code = compile_kernel(dtype, causal)
    assert code.spills == 0 and code.num_warps == 12
    assert code.count("wgmma.mma_async") > 0 and code.count("cp.async.bulk.tensor") >= 4
    assert code.count("setmaxnreg") > 0  # registers move from who fetches to who multiplies


def loops(sass):
    """Return, for each consumer, the instructions from the sum that its loop begins to where that sum has ended."""
    lines = sass.splitlines()
    begun = [i for i, line in enumerate(lines) if "DEPBAR.LE gsb0, 0x1" in line]
    return [lines[i : next(j for j in range(i, len(lines)) if "DEPBAR.LE gsb0, 0x0" in lines[j])] for i in begun]


@pytest.mark.parametrize("causal", [False, True])
def test_powers_are_taken_while_the_tensor_cores_multiply(causal):
    consumers = loops(compile_kernel(causal=causal).sass)
    assert len(consumers) == 2
    for meanwhile in consumers:
        assert sum("MUFU.EX2" in line for line in meanwhile) >= HALF * BLOCK_N // 128  # those of one thread


@pytest.mark.parametrize("causal", [False, True])
def test_powers_stay_until_the_tensor_cores_have_read_them(causal, overwritten):
    assert overwritten(compile_kernel(causal=causal).sass) == []


# On a Hopper GPU


def both(q, k, v, causal, scale):
    """Return attention and the log2 of the sums of powers, in the precision of q, by a formula of its own."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.mT * scale
    if causal:
        M, N = scores.shape[2:]
        hidden = torch.arange(N, device=q.device) > torch.arange(M, device=q.device)[:, None] + N - M
        scores = scores.masked_fill(hidden, -math.inf)
    lse = torch.logsumexp(scores.double(), 3) / math.log(2)
    out = torch.softmax(scores, 3).nan_to_num(0) @ v
    return out, torch.where(lse == -math.inf, math.inf, lse)


def check(q, k, v, causal, scale):
    out = torch.full(q.shape, math.nan, dtype=q.dtype, device=DEVICE)
    lse = torch.full(q.shape[:3], math.nan, device=DEVICE)
    attention_hopper(q, k, v, out, lse, causal, scale)
    exact, exact_lse = both(q.double(), k.double(), v.double(), causal, scale)
    allowed = 2 * (both(q, k, v, causal, scale)[0] - exact).abs().max() + torch.finfo(q.dtype).eps * exact.abs()
    assert ((out - exact).abs() <= allowed).all()
    assert torch.equal(lse == math.inf, exact_lse == math.inf)
    sees = exact_lse.isfinite()
    assert ((lse - exact_lse).abs() <= 2**-17 * (exact_lse.abs() + 8))[sees].all()


def values(generator, *shape, dtype):
    return torch.randn(shape, generator=generator, device=DEVICE).to(dtype)


SIZES = {
    "tiles exactly full": (1, 2, 2, BLOCK_M, BLOCK_N, BLOCK_D),
    "an odd number of tiles": (2, 4, 2, 200, 333, BLOCK_D),
    "an even number of tiles": (1, 2, 2, 300, 1000, BLOCK_D),
    "one past a tile": (1, 2, 1, BLOCK_M + 1, BLOCK_N + 1, BLOCK_D),
    "one query": (2, 3, 3, 1, 300, BLOCK_D),
    "one key": (1, 2, 2, 300, 1, BLOCK_D),
    "more queries than keys": (1, 2, 2, 400, 130, BLOCK_D),
    "D is 96": (1, 3, 3, 129, 500, 96),
    "D is 72": (1, 3, 1, 65, 290, 72),
    "more heads than are under way together": (3, 23, 23, 130, 140, BLOCK_D),
    "several tiles a program, of odd numbers of stages": (3, 23, 23, 700, 250, BLOCK_D),
    "several tiles a program, of even numbers of stages": (2, 40, 20, 520, 300, BLOCK_D),
}


@needs_hopper
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_results(sizes, dtype, causal):
    B, H, H_kv, M, N, D = sizes
    generator = torch.Generator(DEVICE).manual_seed(0)
    q = values(generator, B, H, M, D, dtype=dtype)
    k, v = (values(generator, B, H_kv, N, D, dtype=dtype) for _ in range(2))
    check(q, k, v, causal, 1 / math.sqrt(D))


@needs_hopper
def test_lengths_before_heads():
    generator = torch.Generator(DEVICE).manual_seed(0)
    q, k, v = (values(generator, 2, 300, 3, BLOCK_D, dtype=torch.bfloat16).transpose(1, 2) for _ in range(3))
    check(q, k, v, True, 0.1)


@needs_hopper
def test_no_value_reaches_beyond_its_head():
    generator = torch.Generator(DEVICE).manual_seed(0)
    q, k, v = (values(generator, 1, 3, 200, BLOCK_D, dtype=torch.float16) for _ in range(3))
    for t in (q, k, v):
        t[:, [0, 2]] = math.nan
    out, lse = torch.zeros_like(q), torch.zeros(1, 3, 200, device=DEVICE)
    attention_hopper(q, k, v, out, lse, False, 0.1)
    assert out[:, 1].isfinite().all() and out[:, [0, 2]].isnan().all()


@needs_hopper
def test_large_scores():
    """The largest power of a row is 1, however large its scores."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    q, k, v = (values(generator, 1, 2, 256, BLOCK_D, dtype=torch.bfloat16) for _ in range(3))
    check(q * 100, k * 100, v, False, 1.0)
