"""attention_backward against float64: a table with one row a regime, every choice of tiles, and its compiled code."""

import math
from typing import NamedTuple

import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import backward as module
from kernels.attention.backward import (
    FETCHED,
    LOADED,
    SCALAR,
    Tiles,
    attention_backward,
    attention_backward_plain,
    attention_backward_reference,
    attention_dk_dv_kernel,
    attention_dq_kernel,
    fetchable,
    row_sums,
    shared_bytes,
    tiles_for,
)
from kernels.attention.common import DTYPES, padded
from lab.compiler import TARGETS, compiled
from lab.device import DEVICE, ON_CPU
from lab.trace import trace

on_cpu = pytest.mark.skipif(not ON_CPU, reason="only the machine on the CPU can be traced")


class Inputs(NamedTuple):
    """Of one call; B and both numbers of heads are 1, 2 and 2 unless a case says otherwise."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    grad: torch.Tensor
    causal: bool
    scale: float


def inputs(M, N, D, causal=False, dtype=torch.float32, B=1, H=2, heads_kv=2, scale=None) -> Inputs:
    generator = torch.Generator(DEVICE).manual_seed(0)
    shapes = ((B, H, M, D), (B, heads_kv, N, D), (B, heads_kv, N, D), (B, H, M, D))
    tensors = (torch.randn(shape, generator=generator, device=DEVICE).to(dtype) for shape in shapes)
    return Inputs(*tensors, causal, 1 / math.sqrt(D) if scale is None else scale)


def forward(q, k, v, causal, scale) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the result in the dtype of q and, in fp32, the base-2 logarithm of each row's sum of powers."""
    k, v = (t.double().repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = scale * q.double() @ k.mT
    if causal:
        M, N = scores.shape[2:]
        hidden = torch.ones(M, N, dtype=torch.bool, device=q.device).triu(1 + N - M)
        scores = scores.masked_fill(hidden, -math.inf)
    lse = torch.logsumexp(scores, -1) / math.log(2)
    out = torch.softmax(scores, -1).nan_to_num(0) @ v
    return out.to(q.dtype), lse.masked_fill(lse == -math.inf, math.inf).float()


def gradients(x: Inputs, function=attention_backward) -> tuple[torch.Tensor, ...]:
    """Return what `attention_backward` makes of these inputs, written over NaN."""
    out, lse = forward(x.q, x.k, x.v, x.causal, x.scale)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "empty_like", lambda t, **options: torch.full_like(t, math.nan, **options))
        return function(x.grad, x.q, x.k, x.v, out, lse, x.causal, x.scale)


def autograd_of_torch(x: Inputs) -> tuple[torch.Tensor, ...]:
    """Return the gradients that PyTorch finds in the dtype of the inputs, whose error sets the budget."""
    q, k, v = (t.detach().requires_grad_() for t in (x.q, x.k, x.v))
    k_each, v_each = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = q @ k_each.mT * x.scale
    if x.causal:
        M, N = scores.shape[2:]
        hidden = torch.ones(M, N, dtype=torch.bool, device=q.device).triu(1 + N - M)
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, -1).masked_fill(hidden, 0)
    else:
        weights = torch.softmax(scores, -1)
    return torch.autograd.grad(weights @ v_each, (q, k, v), x.grad)


def magnitudes(x: Inputs) -> tuple[float, ...]:
    """Return the largest sum of the magnitudes that are added up for an element of dq, of dk and of dv."""
    group = x.q.shape[1] // x.k.shape[1]
    q, k, v, grad = (t.double().abs() for t in (x.q, x.k, x.v, x.grad))
    k_each, v_each = (t.double().repeat_interleave(group, 1) for t in (x.k, x.v))
    out, lse = (t.double() for t in forward(x.q, x.k, x.v, x.causal, x.scale))
    weights = torch.exp2(x.scale / math.log(2) * x.q.double() @ k_each.mT - lse[..., None])
    grad_scores = weights * (grad @ v_each.abs().mT + (out * x.grad).abs().sum(-1, keepdim=True))
    sums = x.scale * grad_scores @ k_each.abs(), x.scale * grad_scores.mT @ q, weights.mT @ grad
    return tuple(t.max().item() * (group if i else 1) for i, t in enumerate(sums))


def assert_right(x: Inputs, found: tuple[torch.Tensor, ...] | None = None) -> None:
    """Fail unless all errors are within twice torch's largest one, a rounding step, and what lse in fp32 leaves."""
    exact = attention_backward_reference(x.grad, x.q, x.k, x.v, x.causal, x.scale)
    _, lse = forward(x.q, x.k, x.v, x.causal, x.scale)
    of_lse = 2**-23 * (1 + lse.masked_fill(lse == math.inf, 0).abs().max())
    compared = zip(found or gradients(x), autograd_of_torch(x), exact, magnitudes(x), x, strict=False)
    for name, (ours, own, right, magnitude, like) in zip(("dq", "dk", "dv"), compared, strict=True):
        assert ours.shape == like.shape and ours.dtype == like.dtype and ours.is_contiguous(), name
        rounding = torch.finfo(ours.dtype).eps * right.abs().max() + of_lse * magnitude
        budget = 2 * (own.double() - right).abs().max() + rounding
        error = (ours.double() - right).abs().max()
        assert error <= budget, f"{name} is off by {error:.2e}, {error / budget:.2f} budgets"


SIZES = {
    "one element": (1, 1, 1),
    "one query": (1, 70, 32),
    "one key": (70, 1, 32),
    "tiles exactly full": (64, 64, 64),
    "one past a tile": (33, 65, 64),
    "one short of a tile": (31, 63, 64),
    "fewer rows than any tile": (5, 7, 16),
    "20 keys, 16 a tile": (20, 20, 16),
    "more keys than queries": (50, 130, 32),
    "more queries than keys": (130, 50, 32),
    "one key more than full tiles see": (128, 129, 32),
    "one query short of seeing full tiles": (130, 128, 32),
    "two queries, five keys": (2, 5, 16),
    "five queries, two keys": (5, 2, 16),
    "heads of 40": (37, 53, 40),
    "heads of 80": (37, 53, 80),
    "heads of 96": (37, 53, 96),
    "heads of 17, at no multiple of 16 bytes": (37, 53, 17),
    "heads of 128": (70, 40, 128),
    "heads of 256": (40, 40, 256),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_sizes(size, causal):
    assert_right(inputs(*size, causal))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("D", [40, 64])
def test_dtypes(D, dtype, causal):
    """Whatever `attention_backward` chooses here, the kernels that serve elsewhere must be right as well."""
    x = inputs(75, 105, D, causal, dtype, B=2, H=3, heads_kv=3)
    assert_right(x)
    assert_right(x, gradients(x, attention_backward_plain))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads_kv", [1, 2, 6])
def test_query_heads_share_key_heads(heads_kv, causal):
    assert_right(inputs(40, 50, 16, causal, B=2, H=6, heads_kv=heads_kv))


def test_causal_at_a_shape_seen_without():
    for causal in (False, True, False):
        assert_right(inputs(70, 70, 32, causal))


@pytest.mark.parametrize("scale", [1e-3, 0.5, 3.0])
def test_scales(scale):
    assert_right(inputs(40, 50, 32, True, scale=scale))


@pytest.mark.parametrize("shift", [30, -30])
def test_scores_far_from_zero(shift):
    """Far above and their powers overflow, far below and those of keys past the last one do, unless lse is right."""
    x = inputs(40, 50, 32)
    assert_right(x._replace(q=x.q + 30, k=x.k + shift))


def test_rows_that_see_nothing_have_no_gradient():
    x = inputs(130, 50, 32, True)
    dq, dk, dv = gradients(x)
    assert (dq[:, :, :80] == 0).all() and (dq[:, :, 80:] != 0).any()
    later = x._replace(q=x.q[:, :, 80:], grad=x.grad[:, :, 80:])
    assert_right(later, (dq[:, :, 80:].contiguous(), dk, dv))


EMPTY = {
    "no queries": {"M": 0, "N": 5},
    "no keys": {"M": 5, "N": 0},
    "no batch": {"M": 5, "N": 5, "B": 0},
    "no heads": {"M": 5, "N": 5, "H": 0, "heads_kv": 0},
}


@pytest.mark.parametrize("sizes", EMPTY.values(), ids=EMPTY)
def test_empty(sizes):
    x = inputs(D=16, **{"causal": True, **sizes})
    out, lse = torch.zeros_like(x.q), x.q.new_full(x.q.shape[:3], math.inf)
    found = attention_backward(x.grad, x.q, x.k, x.v, out, lse, x.causal, x.scale)
    for gradient, like in zip(found, x, strict=False):
        assert gradient.shape == like.shape and (gradient == 0).all()


LAYOUTS = {
    "length before heads": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "batch innermost but for a head": lambda t: t.permute(2, 1, 0, 3).contiguous().permute(2, 1, 0, 3),
    "every other row": lambda t: t.repeat_interleave(2, 2)[:, :, ::2],
    "part of wider rows": lambda t: torch.cat((t, t), 3)[..., : t.shape[3]],
    "part of wider rows, at no multiple of 16 bytes": lambda t: torch.nn.functional.pad(t, (3, 2))[..., 3:-2],
    "elements far apart": lambda t: t.mT.contiguous().mT,
    "one head for all": lambda t: t[:, :1].expand(t.shape),
    "one row for all": lambda t: t[:, :, :1].expand(t.shape),
    "one element for all": lambda t: t[:1, :1, :1, :1].expand(t.shape),
    "lazily negated": torch._neg_view,
}


@pytest.mark.parametrize("fetch", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(layout, fetch, monkeypatch):
    """V in another layout than K; and of the gradient that arrives too: that of a sum is one element for all."""
    monkeypatch.setattr(module, "fetches", lambda *arguments: fetch)
    x = inputs(20, 33, 24, True, B=2)
    for names in (("q", "v"), ("k", "grad")):
        assert_right(x._replace(**{name: layout(getattr(x, name)) for name in names}))


@given(data=st.data())
@settings(deadline=None, max_examples=12)
def test_any_shape(data):
    B, heads_kv, group = (data.draw(st.integers(1, 2)) for _ in range(3))
    M, N = (data.draw(st.integers(1, 70)) for _ in range(2))
    D = data.draw(st.sampled_from((16, 24, 40)))
    causal = data.draw(st.booleans())
    assert_right(inputs(M, N, D, causal, B=B, H=heads_kv * group, heads_kv=heads_kv))


def test_every_run_gives_the_same_bits(monkeypatch):
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    x = inputs(70, 90, 64, True, torch.float16, H=4)
    first, second = gradients(x), gradients(x)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_row_sums():
    x = inputs(37, 53, 24, B=2)
    delta = row_sums(x.q, x.grad)
    assert torch.allclose(delta, (x.q * x.grad).sum(-1), atol=1e-5)
    assert torch.equal(delta, row_sums(x.q, x.grad.transpose(1, 2).contiguous().transpose(1, 2)))


# How the work is cut up

TABLES = {"fetched": FETCHED, "loaded": LOADED, "scalar": SCALAR}
CHOICES = [
    (name, most, tiles) for name, table in TABLES.items() for most, choices in table.items() for tiles in choices
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("table, D, tiles", CHOICES, ids=str)
def test_every_choice_of_tiles(table, D, tiles, causal, monkeypatch):
    """At lengths that no tile divides, in heads that fill the tiles' rows."""
    dtype = torch.float32 if table == "scalar" else torch.float16
    limit = TARGETS["sm_90"].shared_per_program if ON_CPU else shared_limit()
    if shared_bytes(*tiles, D, dtype) > limit:
        pytest.skip("this GPU has too little shared memory")
    monkeypatch.setattr(module, "tiles_for", lambda *arguments: tiles)
    monkeypatch.setattr(module, "fetches", lambda *arguments: table == "fetched")
    x = inputs(150, 170, D, causal, dtype, H=1, heads_kv=1)
    assert_right(x, gradients(x, attention_backward_plain))


def shared_limit() -> int:
    return torch.cuda.get_device_properties(DEVICE).shared_memory_per_block_optin


DEVICES = {
    "H200": ((9, 0), 227 * 1024),
    "B200": ((10, 0), 227 * 1024),
    "A100": ((8, 0), 163 * 1024),
    "RTX 4090": ((8, 9), 99 * 1024),
    "RTX 5090": ((12, 0), 99 * 1024),
    "T4": ((7, 5), 64 * 1024),
}


def tiles_on(name, D, dtype, monkeypatch) -> tuple[Tiles, Tiles]:
    capability, limit = DEVICES[name]

    class Properties:
        shared_memory_per_block_optin = limit

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    return tiles_for(D, dtype, torch.device("cuda"))


@pytest.mark.parametrize("name", DEVICES)
def test_tiles_fit_the_device(name, monkeypatch):
    for dtype in DTYPES:
        for D in (1, 16, 64, 65, 128) + (256,) * ((name, dtype) != ("T4", torch.float32)):
            tiles = tiles_on(name, D, dtype, monkeypatch)
            assert shared_bytes(*tiles, D, dtype) <= DEVICES[name][1]


def test_tiles_of_known_devices(monkeypatch):
    assert tiles_on("H200", 128, torch.bfloat16, monkeypatch) == FETCHED[128][0]
    assert tiles_on("A100", 80, torch.float16, monkeypatch) == LOADED[128][0]
    assert tiles_on("A100", 64, torch.float32, monkeypatch) == SCALAR[128][0]
    assert tiles_on("RTX 5090", 64, torch.bfloat16, monkeypatch) == LOADED[64][0]
    with pytest.raises(ValueError, match="heads of 256 elements of torch.float32 needs more than 65,536 bytes"):
        tiles_on("T4", 256, torch.float32, monkeypatch)


IN_PLACE = {
    "contiguous": torch.empty(2, 3, 24, 16),
    "length before heads": torch.empty(2, 24, 3, 16).transpose(1, 2),
    "part of wider rows": torch.empty(2, 3, 24, 64)[..., 8:24],
    "one batch of a strange stride": torch.empty(900).as_strided((1, 3, 24, 12), (7, 300, 12, 1)),
}
COPIED = {
    "rows of odd length": torch.randn(2, 3, 24, 13),
    "an odd start": torch.randn(2, 3, 24, 16)[..., 1:13],
    "every other element": torch.randn(2, 3, 24, 32)[..., ::2],
    "one head for all": torch.randn(2, 1, 24, 16).expand(2, 3, 24, 16),
}


@pytest.mark.parametrize("t", IN_PLACE.values(), ids=IN_PLACE)
def test_what_is_fetched_where_it_lies(t):
    assert fetchable(t) is t


@pytest.mark.parametrize("t", COPIED.values(), ids=COPIED)
def test_what_is_copied_first(t):
    copy = fetchable(t)
    assert torch.equal(copy, t) and copy.data_ptr() != t.data_ptr()
    assert all(stride * t.element_size() % 16 == 0 for stride in copy.stride()[:3]) and copy.stride(3) == 1


@on_cpu
def test_tiles_that_nobody_sees_are_not_computed():
    """Of 4 x 4 tiles of 16 queries by 16 keys, causal needs ten."""
    x = inputs(64, 64, 16, True, H=1, heads_kv=1)
    tiles = Tiles(16, 16, 4, 1)
    with pytest.MonkeyPatch.context() as patch, trace() as t:
        patch.setattr(module, "tiles_for", lambda *arguments: (tiles, tiles))
        gradients(x)
    by_keys, by_queries = t.launches[1:]
    rows = 16 * 16  # elements of a tile of rows
    for launch, streamed in ((by_keys, ("q_source", "grad_source")), (by_queries, ("k_source", "v_source"))):
        for name in streamed:
            loads = [access for access in launch.accesses if access.tensor == name]
            assert sum(int(access.mask.sum()) for access in loads) == 10 * rows


@on_cpu
@pytest.mark.parametrize("heads, length", [(1, 2**26 + 40), (17, 2**22 + 40)], ids=["in a long head", "in many heads"])
def test_no_offset_wraps_past_two_to_the_31(heads, length):
    """Bytes, of which only the pages of the last tile are ever touched."""
    long, short = (torch.empty(1, heads, rows, 32, dtype=torch.float8_e5m2) for rows in (length, 40))
    options = {
        "HEADS_PER_KV": 1,
        "IS_CAUSAL": False,
        "D": 32,
        "BLOCK_D": 32,
        "BLOCK_M": 64,
        "BLOCK_N": 64,
        "FETCH": False,
    }
    tiles = length // 64 + 1
    result = torch.empty_like(long)
    row = torch.empty(1, heads, length)
    with trace(programs=[(heads - 1) * tiles]) as t:  # of the tiles of a head the last goes first
        sizes = (0.25, heads, length, 40)
        attention_dq_kernel[(heads * tiles,)](long, short, short, long, row, row, result, *sizes, **options)
    with trace(programs=[heads * tiles - 1]) as u:
        sizes = (0.25, heads, 40, length)
        attention_dk_dv_kernel[(heads * tiles,)](short, long, long, short, row, row, result, result, *sizes, **options)
    used = {"q_source": t, "grad_source": t, "dq_ptr": t, "k_source": u, "v_source": u, "dk_ptr": u, "dv_ptr": u}
    for name, traced in used.items():
        assert last_offset(traced, name) == long.numel() - 1, name
    assert last_offset(t, "lse2_ptr") == last_offset(t, "delta_ptr") == row.numel() - 1


def last_offset(traced, name: str) -> int:
    """Return the largest offset into a tensor that the one launch used."""
    (launch,) = traced.launches
    return max(int(access.offsets[access.mask].max()) for access in launch.accesses if access.tensor == name)


# The compiler


def compile_passes(target, D, tiles, dtype=torch.float16, causal=True, fetch=False):
    """Return the code of both passes at a length that 16 divides."""
    x = torch.empty(2, 4, 1024, D, dtype=dtype, device="meta")
    row = torch.empty(2, 4, 1024, device="meta")
    constants = {"HEADS_PER_KV": 1, "IS_CAUSAL": causal, "D": D, "BLOCK_D": padded(D), "FETCH": fetch, "target": target}
    sizes = (0.125, 4, 1024, 1024)
    by_keys, by_queries = ((*(describe(x) if fetch else x for describe in one.described()), row, row) for one in tiles)
    return (
        compiled(attention_dk_dv_kernel, *by_keys, x, x, *sizes, **constants, **tiles[0]._asdict()),
        compiled(attention_dq_kernel, *by_queries, x, *sizes, **constants, **tiles[1]._asdict()),
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("D", FETCHED)
def test_hopper_fetches_and_multiplies(D, causal):
    """A few bytes are spilled where tiles that spill none were measured to be slower; by Triton 3.6 a few more."""
    tiles = FETCHED[D][0]
    by_keys, by_queries = compile_passes("sm_90", D, tiles, torch.bfloat16, causal, fetch=True)
    few = 64 if triton.__version__.startswith("3.6") else 32
    assert by_keys.spills <= (few if D <= 128 else 0) and by_queries.spills == 0
    for code in (by_keys, by_queries):
        assert code.count("cp.async.bulk.tensor") > 0 and code.count("wgmma.mma_async") > 0
        assert code.shared <= shared_bytes(*tiles, D, torch.bfloat16)


def test_hopper_spills_much_of_a_tile_too_large():
    """Twice the keys for as many warps."""
    by_keys, _ = compile_passes("sm_90", 128, (Tiles(64, 128, 4, 2), Tiles(64, 64, 4, 2)), fetch=True)
    assert by_keys.spills > 300


@pytest.mark.parametrize("D", LOADED)
def test_ampere_spills_nothing(D):
    for tiles in LOADED[D]:
        for code in compile_passes("sm_80", D, tiles):
            assert code.spills == 0 and code.count("mma.sync") > 0
            assert code.count("cp.async") > 0 or tiles[0].num_stages == 1
            assert code.shared <= shared_bytes(*tiles, D, torch.float16)


@pytest.mark.parametrize("D", SCALAR)
def test_fp32_spills_nothing(D):
    for code in compile_passes("sm_80", D, SCALAR[D][0], torch.float32):
        assert code.spills == 0 and code.shared <= shared_bytes(*SCALAR[D][0], D, torch.float32)


OTHERS = {
    "sm_75": (64, SCALAR[128][0], False),
    "sm_86": (128, LOADED[128][0], False),
    "sm_100": (128, FETCHED[128][0], True),
    "gfx942": (128, LOADED[128][1], False),
}


@pytest.mark.parametrize("target", OTHERS)
def test_compiles_for(target):
    D, tiles, fetch = OTHERS[target]
    assert all(code.spills == 0 for code in compile_passes(target, D, tiles, fetch=fetch))


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_runs_on_the_device_of_its_inputs():
    x = inputs(70, 90, 64, True, torch.float16)
    moved = Inputs(*(t.to("cuda:1") for t in x[:4]), x.causal, x.scale)
    assert torch.cuda.current_device() == 0
    for there, here in zip(gradients(moved), gradients(x), strict=True):
        assert there.device == moved.q.device
        torch.testing.assert_close(there.to(here.device), here)
    plain = (gradients(where, attention_backward_plain) for where in (moved, x))
    assert all(torch.equal(there.to(here.device), here) for there, here in zip(*plain, strict=True))
