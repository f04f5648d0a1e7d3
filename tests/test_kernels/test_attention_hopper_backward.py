"""attention_backward_hopper: its code, read without a GPU; and its results, on a Hopper GPU."""

import functools
import math

import pytest
import torch

from kernels.attention.backward import attention_backward, attention_backward_reference
from kernels.attention.hopper import DTYPES, descriptor
from kernels.attention.hopper_backward import (
    BLOCK_MS,
    BLOCK_N,
    HALF,
    STAGES,
    attention_backward_hopper,
    attention_backward_hopper_kernel,
)
from kernels.gpu import is_hopper
from kernels.launch import tensor_spec
from lab.compiler import compiled
from lab.device import DEVICE, ON_CPU

needs_hopper = pytest.mark.skipif(
    ON_CPU or not is_hopper(torch.device("cuda:0")), reason="needs a Hopper GPU: H100, H200 or GH200"
)


# Without a GPU


def placed(dtype):
    """Return what stands for a tensor [4, 32, 4096, 128]."""
    return tensor_spec(torch.empty(4, 32, 4096, 128, dtype=dtype, device="meta")).at(0)


@functools.cache
def compile_kernel(BLOCK_D, dtype=torch.bfloat16, causal=True, H_kv=32):
    rows = (BLOCK_MS[BLOCK_D], HALF, HALF, BLOCK_MS[BLOCK_D])
    sources = (descriptor(placed(dtype), n, BLOCK_D) for n in rows)
    sums = descriptor(placed(torch.float32), 64, 64)
    row = torch.empty(4, 32, 4096, device="meta")
    gradient = torch.empty(4, H_kv, 4096, BLOCK_D, dtype=dtype, device="meta")
    sizes = (H_kv, 32 // H_kv, 4096, 4096)
    return compiled(
        attention_backward_hopper_kernel, *sources, sums, row, row, gradient, gradient, 0.1, 0.1, *sizes, causal,
        BLOCK_D, STAGES, target="sm_90",
    )  # fmt: skip


@pytest.mark.parametrize("H_kv", [32, 8])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("BLOCK_D", BLOCK_MS)
def test_compiles_nearly_without_spills(BLOCK_D, dtype, causal, H_kv):
    """A thread of a consumer holds 208 numbers of tiles in its 240 registers."""
    code = compile_kernel(BLOCK_D, dtype, causal, H_kv)
    assert code.spills <= 16 and code.num_warps == 12
    assert code.count("cp.reduce.async.bulk.tensor") > 0 and code.count("setmaxnreg") > 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("BLOCK_D", BLOCK_MS)
def test_products_run_beside_the_rest(BLOCK_D, causal):
    """Where the compiler does not see through their order, it waits for every single product."""
    sass = compile_kernel(BLOCK_D, causal=causal).sass
    assert sass.count("HGMMA") >= 64
    assert sass.count("WARPGROUP.DEPBAR") == 2 * 5  # of each consumer one before the loop and four in it


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("BLOCK_D", BLOCK_MS)
def test_weights_stay_until_the_tensor_cores_have_read_them(BLOCK_D, causal, overwritten):
    assert overwritten(compile_kernel(BLOCK_D, causal=causal).sass) == []


SASS = """
.L_x_1:
        /*0010*/                   HGMMA.64x128x16.F32.BF16 R24, R184, gdesc[UR8], R24, gsb0 ;
        /*0020*/                   HGMMA.64x64x16.F32.BF16 R88, gdesc[UR8], R88, gsb0 ;
        /*0030*/                   {first} ;
        /*0040*/                   WARPGROUP.DEPBAR.LE gsb0, 0x1 ;
        /*0050*/                   {second} ;
        /*0060*/               @P0 BRA `(.L_x_1) ;
"""


def test_overwritten_registers_are_found(overwritten):
    harmless = "STS [R1], R184"
    assert overwritten(SASS.format(first=harmless, second="MOV R184, R2")) == []
    for bad in ("MOV R187, R2", "LDS.64 R183, [R1]", "IMAD.WIDE R183, R1, R2", "@P1 FMUL R185, R1, R2"):
        assert len(overwritten(SASS.format(first=bad, second=harmless))) == 1, bad
    crossing = SASS.format(first=harmless, second=harmless).replace("0x1 ;", "0x2 ;")
    assert len(overwritten(crossing)) == 1


# On a Hopper GPU


def inputs(B, H, H_kv, M, N, D, dtype):
    generator = torch.Generator(DEVICE).manual_seed(0)
    shapes = ((B, H, M, D), (B, H, M, D), (B, H_kv, N, D), (B, H_kv, N, D))
    return [torch.randn(shape, generator=generator, device=DEVICE).to(dtype) for shape in shapes]


def way_there(q, k, v, causal, scale):
    """Return attention and the log2 of the sums of powers, in the precision of q."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.mT * scale
    if causal:
        M, N = scores.shape[2:]
        hidden = torch.ones(M, N, dtype=torch.bool, device=q.device).triu(1 + N - M)
        scores = scores.masked_fill(hidden, -math.inf)
    lse = torch.logsumexp(scores.double(), 3) / math.log(2)
    return torch.softmax(scores, 3).nan_to_num(0) @ v, lse.masked_fill(lse == -math.inf, math.inf).float()


def gradients(grad, q, k, v, causal, scale):
    """Return what `attention_backward_hopper` writes, over NaN."""
    out, lse = way_there(q.double(), k.double(), v.double(), causal, scale)
    delta = (out * grad).sum(3).float()
    results = [torch.full(t.shape, math.nan, dtype=q.dtype, device=q.device) for t in (q, k, v)]
    attention_backward_hopper(grad, q, k, v, lse, delta, *results, causal, scale)
    return results


def check(grad, q, k, v, causal, scale):
    """Fail unless errors are within twice PyTorch's largest, a rounding step, and what fp32 leaves of dP - delta."""
    of_difference = (
        2**-23 * scale * grad.double().abs().sum(3).max() * v.abs().max() * max(q.abs().max(), k.abs().max())
    )
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    own = torch.autograd.grad(way_there(*leaves, causal, scale)[0], leaves, grad)
    exact = attention_backward_reference(grad, q, k, v, causal, scale)
    found = gradients(grad, q, k, v, causal, scale)
    for name, ours, torchs, right in zip(("dq", "dk", "dv"), found, own, exact, strict=True):
        rounding = torch.finfo(q.dtype).eps * right.abs().max() + of_difference
        budget = 2 * (torchs.double() - right).abs().max() + rounding
        error = (ours.double() - right).abs().max()
        assert error <= budget, f"{name} is off by {error:.2e}, {error / budget:.2f} budgets"


SIZES = {
    "tiles exactly full": (1, 2, 2, 128, BLOCK_N, 128),
    "an odd number of tiles": (2, 4, 4, 310, 333, 128),
    "an even number of tiles": (1, 2, 2, 250, 500, 128),
    "one past a tile": (1, 2, 2, 129, BLOCK_N + 1, 128),
    "one query": (2, 3, 3, 1, 300, 128),
    "one key": (1, 2, 2, 300, 1, 128),
    "more queries than keys": (1, 2, 2, 400, 130, 128),
    "heads of 64": (2, 3, 3, 300, 200, 64),
    "heads of 64, fewer queries than a tile": (2, 3, 3, 70, 200, 64),
    "heads of 40": (1, 3, 3, 129, 300, 40),
    "heads of 72": (1, 3, 3, 129, 300, 72),
    "heads of 96": (1, 3, 3, 129, 300, 96),
    "three heads share one, an odd number of tiles": (2, 6, 2, 320, 200, 128),
    "eight heads share one": (2, 8, 1, 200, 300, 64),
    "more programs than multiprocessors": (3, 40, 40, 200, 300, 64),
}


@needs_hopper
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_results(sizes, dtype, causal):
    check(*inputs(*sizes, dtype), causal, 1 / math.sqrt(sizes[-1]))


@needs_hopper
@pytest.mark.parametrize("shift", [30, -30])
def test_scores_far_from_zero(shift):
    """Far below, the powers of keys past the last one overflow."""
    grad, q, k, v = inputs(1, 2, 2, 100, 70, 64, torch.float16)
    check(grad, q + 3, k + shift / 3, v, False, 1.0)


@needs_hopper
def test_lengths_before_heads():
    grad, q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in inputs(2, 3, 3, 300, 200, 128, DTYPES[0]))
    check(grad, q, k, v, True, 0.1)


@needs_hopper
def test_no_value_reaches_beyond_its_head():
    grad, q, k, v = inputs(1, 3, 3, 200, 150, 128, torch.bfloat16)
    for t in (grad, q, k, v):
        t[:, [0, 2]] = math.nan
    for t in gradients(grad, q, k, v, False, 0.1):
        assert t[:, 1].isfinite().all() and t[:, [0, 2]].isnan().all()


@needs_hopper
@pytest.mark.parametrize("deterministic", [False, True])
def test_serves_attention_backward_unless_every_run_must_give_the_same_bits(deterministic, monkeypatch):
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: deterministic)
    grad, q, k, v = inputs(1, 4, 2, 200, 300, 128, torch.bfloat16)
    out, lse = way_there(q, k, v, True, 0.1)
    served = []
    monkeypatch.setattr(
        "kernels.attention.hopper_backward.attention_backward_hopper", lambda *arguments: served.append(1)
    )
    attention_backward(grad, q, k, v, out.to(q.dtype), lse, True, 0.1)
    assert len(served) == (not deterministic)
