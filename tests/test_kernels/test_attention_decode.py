"""attention_decode against float64: parts of any length, heads that share keys, and how many parts there are."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import attention as choosing
from kernels.attention import attention_eager, attention_reference
from kernels.attention import decode as module
from kernels.attention.decode import (
    FEW,
    LEAST,
    attention_decode,
    attention_merge_kernel,
    attention_part_kernel,
    keys_of_a_part,
    stages_for,
    suits_decode,
    tile_shape,
)
from kernels.attention.hopper import DTYPES
from kernels.launch import tensor_spec
from lab.compiler import TARGETS, compiled
from lab.device import DEVICE, ON_CPU
from lab.trace import trace


@pytest.fixture(autouse=True)
def afresh():
    """Forget launchers that were made while something was patched."""
    module.launchers_for.cache_clear()
    yield
    module.launchers_for.cache_clear()


def inputs(B, H, H_kv, M, N, D, dtype=torch.float16):
    generator = torch.Generator(DEVICE).manual_seed(0)
    shapes = ((B, H, M, D), (B, H_kv, N, D), (B, H_kv, N, D))
    return [torch.randn(shape, generator=generator, device=DEVICE).to(dtype) for shape in shapes]


def logarithms(q, k, causal, scale):
    """Return the log2 of the sum of powers of each query, +inf where it sees no key."""
    scores = q.double() @ k.double().repeat_interleave(q.shape[1] // k.shape[1], 1).mT * scale
    if causal:
        scores = scores.masked_fill(~choosing.visible(*scores.shape[2:], q.device), -math.inf)
    lse = scores.logsumexp(3) / math.log(2)
    return lse.masked_fill(lse == -math.inf, math.inf).float()


def check(q, k, v, causal, scale=0.25):
    """Fail unless errors are within twice PyTorch's largest and a rounding step."""
    out = torch.full(q.shape, math.nan, dtype=q.dtype, device=DEVICE)
    lse = torch.full(q.shape[:3], math.nan, device=DEVICE)
    attention_decode(q, k, v, out, lse, causal, scale)
    exact = attention_reference(q.double(), k.double(), v.double(), causal, scale)
    budget = 2 * (attention_eager(q, k, v, causal, scale) - exact).abs().max() + torch.finfo(q.dtype).eps * exact.abs()
    assert ((out - exact).abs() <= budget).all()
    torch.testing.assert_close(lse, logarithms(q, k, causal, scale), rtol=1e-5, atol=1e-4)


SIZES = {
    "one query": (2, 4, 2, 1, 300, 16),
    "one key": (1, 2, 2, 3, 1, 16),
    "parts exactly full": (1, 2, 1, 2, 512, 32),
    "one key past a part": (1, 2, 2, 2, 257, 32),
    "more queries than keys": (1, 2, 2, 9, 4, 16),
    "rows that no power of two divides": (1, 6, 2, 5, 130, 16),
    "more rows than a tile": (1, 16, 1, 5, 100, 16),
    "heads of 40": (1, 2, 2, 3, 100, 40),
    "heads of 17": (1, 2, 2, 3, 100, 17),
    "heads of 256": (1, 2, 1, 2, 70, 256),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_results(sizes, causal):
    check(*inputs(*sizes), causal)


@pytest.mark.parametrize("keys", [64, 128, 1024])
@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_any_length(dtype, keys, monkeypatch):
    """The smallest make 35 parts, which are merged in two goes."""
    monkeypatch.setattr(module, "keys_of_a_part", lambda *arguments: keys)
    check(*inputs(1, 4, 2, 3, 2200, 16, dtype), True)


@given(data=st.data())
@settings(deadline=None, max_examples=12)
def test_any_shape(data):
    B, H_kv, share = (data.draw(st.integers(1, 3)) for _ in range(3))
    M, N = data.draw(st.integers(1, FEW)), data.draw(st.integers(1, 400))
    check(*inputs(B, H_kv * share, H_kv, M, N, 16), data.draw(st.booleans()))


def test_strides():
    q, k, v = inputs(2, 4, 2, 3, 300, 16)
    lengths_first = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    check(*lengths_first, True)
    check(q, torch.cat((k, v), 3)[..., :16], v[:, :1].expand(v.shape), True)


def test_large_scores_and_negative_scales():
    q, k, v = inputs(1, 2, 2, 2, 300, 16)
    check(q, 1000 * k, v, False)
    check(q, k, v, True, scale=-0.5)


def test_a_part_of_nan_and_infinities_spoils_its_query_alone():
    q, k, v = inputs(1, 1, 1, 2, 300, 16)
    q[0, 0, 0] = math.nan
    out, lse = torch.empty_like(q), torch.empty(1, 1, 2, device=DEVICE)
    attention_decode(q, k, v, out, lse, False, 0.25)
    assert out[0, 0, 0].isnan().all() and out[0, 0, 1].isfinite().all()


@pytest.mark.skipif(not ON_CPU, reason="two gigabytes that are hardly touched: on a CPU")
def test_rows_and_heads_far_apart():
    q, k, v = inputs(1, 1, 1, 1, 2, 16)
    far = torch.empty(2**30 + 16, dtype=torch.float16).as_strided((1, 1, 2, 16), (0, 0, 2**30, 1))
    far.copy_(k)
    check(q, far, v, False)
    check(q, far.as_strided((1, 2, 1, 16), (0, 2**30, 0, 1))[:, 1:].expand(1, 1, 2, 16), v, False)


def test_which_queries_are_few(monkeypatch):
    def on(capability, M, dtype=torch.float16, device="cuda", B=1, N=5):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        q, k = (torch.empty(B, 2, rows, 64, dtype=dtype, device="meta") for rows in (M, N))
        return suits_decode(*(tensor_spec(t)._replace(device=torch.device(device)) for t in (q, k)))

    assert on((8, 0), 1) and on((9, 0), FEW) and on((9, 4), 4)
    assert not on((9, 0), FEW + 1) and not on((7, 5), 1) and not on((9, 0), 1, torch.float32)
    assert not on((9, 0), 1, device="cpu") and not on((9, 0), 1, N=0)
    assert on((9, 0), 1, B=32_767) and not on((9, 0), 1, B=32_768)


def test_parts_fill_the_gpu_and_none_is_tiny(monkeypatch):
    properties = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    cuda = torch.device("cuda")
    assert keys_of_a_part(32_768, 8, cuda) == 1024  # 32 parts of 8 heads: 256 programs for 264 places
    assert keys_of_a_part(4096, 8, cuda) == LEAST
    assert keys_of_a_part(4096, 128, cuda) == 2048
    assert keys_of_a_part(4096, 1000, cuda) == 2048  # halves
    assert keys_of_a_part(10, 1, cuda) == 64


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_90", "sm_100", "gfx942"])
@pytest.mark.parametrize("D, rows", [(64, 4), (128, 4), (128, 64), (256, 32)])
def test_compiles_without_spills(D, rows, target, monkeypatch):
    limit = TARGETS[target].shared_per_program
    properties = SimpleNamespace(shared_memory_per_block_optin=limit)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    q = torch.empty(4, 32, 1, D, dtype=torch.bfloat16, device="meta")
    k = torch.empty(4, 8, 4096, D, dtype=torch.bfloat16, device="meta")
    part = torch.empty(4, 4, 8, 4, D, device="meta")
    blocks = tile_shape(rows, D)
    strides = (stride for t in (q, k, k) for stride in t.stride()[:3])
    constants = (0.1, 8, 4, 1, 4096, 1024, *strides, D, False, *blocks)
    stages = stages_for(*blocks, torch.device("cuda"))
    code = compiled(
        attention_part_kernel, q, k, k, part, part[..., 0], *constants, target=target, num_warps=4, num_stages=stages
    )
    assert code.spills == 0 and code.shared <= limit
    assert rows > 16 or code.asm.count("v_mfma" if target == "gfx942" else "mma.sync") > 0
    code = compiled(
        attention_merge_kernel, part, part[..., 0], q, part[..., 0], 4, D, 4, blocks[2], target=target, num_warps=4
    )
    assert code.spills == 0


@pytest.mark.skipif(not ON_CPU, reason="only the machine on the CPU can be traced")
def test_no_offset_of_a_query_wraps_past_two_to_the_31():
    """Bytes, of which only those that are read are ever touched."""
    M, D, stride = 16, 32, 150_000_000
    q = torch.empty((M - 1) * stride + D, dtype=torch.float8_e5m2).as_strided((1, 1, M, D), (0, 0, stride, 1))
    k = torch.zeros(1, 1, 32, D).to(torch.float8_e5m2)
    parts = torch.empty(1, 1, 1, M, D)
    strides = (stride for t in (q, k, k) for stride in t.stride()[:3])
    with trace() as t:
        attention_part_kernel[(1, 1, 1)](
            q, k, k, parts, parts[..., 0].clone(), 0.1, 1, 1, M, 32, 32, *strides,
            D=D, IS_CAUSAL=False, BLOCK_M=16, BLOCK_N=32, BLOCK_D=D,
        )  # fmt: skip
    (access,) = [one for one in t.launches[0].accesses if one.tensor == "q_ptr"]
    assert int(access.offsets[access.mask].max()) == (M - 1) * stride + D - 1
