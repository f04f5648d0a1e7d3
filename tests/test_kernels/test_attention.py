"""attention against its specification: a table with one row a regime, gradients, every rung, every configuration."""

import pytest
import torch
import torch.nn.functional as F
import triton
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.attention import (
    DTYPES,
    attention,
    attention_bytes,
    attention_eager,
    attention_flops,
    attention_forward,
    attention_plain,
    attention_reference,
    visible,
)
from kernels.attention import forward as module
from kernels.attention.backward import attention_backward
from kernels.attention.common import LOG2_E, descriptor, padded, readable
from kernels.attention.forward import (
    CONFIGS,
    CPU_CONFIG,
    DESCRIPTOR_CONFIGS,
    SCALAR_CONFIG,
    attention_descriptor_kernel,
    attention_kernel,
    shared_bytes,
)
from kernels.gpu import WITH_COPY_ENGINE
from kernels.ladders.attention import attention_causal_kernel, attention_tile_kernel
from kernels.launch import tensor_spec
from lab.check import judge
from lab.compiler import TARGETS, compiled
from lab.device import DEVICE, ON_CPU
from lab.task import Case, Task
from lab.trace import trace

INF, NAN = float("inf"), float("nan")
on_cpu = pytest.mark.skipif(not ON_CPU, reason="only the machine on the CPU can be traced")


def values(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator, device=generator.device).to(DEVICE)


def heads(B, H, M, N, D, *rest, kv=None, dtype=torch.float32):
    """Return a maker of q, [B, H, M, D], and of k and v, [B, kv or H, N, D]."""

    def make(generator):
        q, k, v = (values(generator, B, heads, n, D) for heads, n in ((H, M), (kv or H, N), (kv or H, N)))
        # Above 0, so that a sum that happens to be near 0 is not asked for in more digits than its terms have.
        return *(x.to(dtype) for x in (q, k, v.abs() + 1)), *rest

    return make


def changed(change, *sizes, **named):
    """Return a maker of what `change` makes of the tensors of `heads`."""
    return lambda generator: change(*heads(*sizes, **named)(generator))


def lengths_first(x):
    """Return the same values laid out as a model projects them: [B, length, H, D] in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def columns(x):
    """Return the same values with D far apart and lengths side by side."""
    return x.transpose(2, 3).contiguous().transpose(2, 3)


def packed(generator):
    """q, k and v as one projection leaves them, [B, length, 3, H, D]."""
    q, k, v = values(generator, 2, 19, 3, 2, 16).permute(2, 0, 3, 1, 4)
    return q, k, v.abs_().add_(1)


def with_nan_behind(q, k, v):
    """Return k and v at the start of memory that goes on with NaN."""

    def moved(x):
        memory = torch.full((x.numel() + 512,), NAN, device=x.device)
        return memory[: x.numel()].view(x.shape).copy_(x)

    return q, moved(k), moved(v)


def put(x, value, *place):
    x[place] = value
    return x


CASES = [
    Case("one query, one key, one element", heads(1, 1, 1, 1, 1)),
    Case("one key", heads(1, 2, 20, 1, 16), programs=2),
    Case("one query", heads(2, 2, 1, 35, 16), programs=4),
    Case("one query, causal: it sees all", heads(2, 2, 1, 35, 16, True), programs=4),
    Case("20 keys, no tile of 16 divides them", heads(2, 2, 20, 20, 16), programs=8),
    Case("20 keys, causal", heads(1, 2, 20, 20, 16, True), programs=2),
    Case("tiles exactly full", heads(1, 2, 32, 32, 16), programs=4),
    Case("tiles exactly full, causal", heads(1, 2, 32, 32, 16, True), programs=4),
    Case("one past a tile", heads(1, 1, 33, 33, 16), programs=3),
    Case("one past a tile, causal", heads(1, 1, 33, 33, 16, True), programs=3),
    Case("one short of a tile, causal", heads(1, 1, 31, 31, 16, True), programs=2),
    Case("nothing divides anything", heads(2, 3, 18, 37, 24), programs=6),
    Case("nothing divides anything, causal", heads(2, 3, 18, 37, 24, True), programs=6),
    Case("2 queries, 5 keys, causal", heads(1, 1, 2, 5, 16, True)),
    Case("5 queries, 2 keys, causal: three see nothing", heads(1, 1, 5, 2, 16, True)),
    Case("5 queries, 2 keys", heads(1, 1, 5, 2, 16)),
    Case("a tile of queries that sees nothing", heads(1, 2, 50, 20, 16, True), programs=4),
    Case("the diagonal meets no corner of a tile", heads(1, 1, 30, 41, 16, True), programs=2),
    Case("the diagonal ends one key short of a tile", heads(1, 1, 18, 32, 16, True), programs=2),
    Case("the diagonal begins after a tile", heads(1, 1, 18, 33, 16, True), programs=2),
    Case("the diagonal ends one key into a tile", heads(1, 1, 18, 19, 16, True), programs=2),
    Case("a diagonal wider than a tile of keys", heads(1, 1, 40, 47, 16, True), programs=3),
    Case("not causal, then causal in this process", heads(1, 1, 20, 20, 16, False)),
    Case("causal, after not causal in this process", heads(1, 1, 20, 20, 16, True)),
    *(Case(f"D is {D}", heads(1, 1, 18, 21, D, D % 3 == 0)) for D in (2, 40, 80, 96, 128, 256)),
    Case("two query heads share a key head", heads(2, 4, 18, 21, 16, True, kv=2), programs=8),
    Case("all query heads share a key head", heads(2, 3, 18, 21, 16, kv=1), programs=6),
    Case("a key head for three, D padded", heads(1, 6, 5, 21, 24, True, kv=2), programs=6),
    Case("lengths before heads", changed(lambda *t: (*map(lengths_first, t), True), 2, 2, 18, 21, 16)),
    Case("only v in another layout", changed(lambda q, k, v: (q, k, lengths_first(v)), 2, 2, 18, 21, 16)),
    Case("only k in another layout", changed(lambda q, k, v: (q, lengths_first(k), v), 2, 2, 18, 21, 16)),
    Case("D far apart", changed(lambda *t: tuple(map(columns, t)), 1, 2, 18, 21, 16)),
    Case("every other element of D", changed(lambda *t: tuple(x[..., ::2] for x in t), 1, 2, 18, 21, 32)),
    Case("one element of many", changed(lambda *t: tuple(x[..., 3:4] for x in t), 1, 2, 18, 21, 16)),
    Case("every other query and key", changed(lambda *t: tuple(x[:, :, 1::2] for x in t), 1, 2, 36, 42, 16)),
    Case("sliced everywhere", changed(lambda *t: tuple(x[1:, 1:, 2:, 3:19] for x in t), 2, 3, 20, 23, 20)),
    Case("packed", packed),
    Case("keys the same for all heads", changed(lambda q, k, v: (q, k[:, :1].expand_as(k), v), 1, 2, 20, 20, 16)),
    Case("one key, over and over", changed(lambda q, k, v: (q, k[:, :, :1].expand_as(v), v), 1, 1, 20, 20, 16)),
    Case("one value along D", changed(lambda q, k, v: (q, k, v[..., :1].expand_as(k)), 1, 1, 20, 20, 16)),
    Case("q is k is v", lambda g: (values(g, 1, 2, 20, 16).abs(),) * 3),
    Case("lazily negated", changed(lambda *t: tuple(torch._neg_view(-x) for x in t), 1, 2, 18, 21, 16)),
    Case("NaN behind k and v", changed(with_nan_behind, 1, 1, 20, 20, 16)),
    Case("NaN behind k and v, causal", changed(lambda *t: (*with_nan_behind(*t), True), 1, 1, 20, 20, 12)),
    Case("a scale", heads(1, 1, 20, 20, 16, False, 0.5)),
    Case("an integer for a scale", heads(1, 1, 20, 20, 16, False, 1)),
    Case("a scale below 0", heads(1, 1, 20, 20, 16, True, -0.5)),
    Case("a scale of 0: all keys weigh the same", heads(1, 1, 20, 20, 16, True, 0.0)),
    Case("a scale that is 0 in fp32", heads(1, 1, 20, 20, 16, True, 1e-46)),
    Case("a scale below 0 that is 0 in fp32", heads(1, 1, 20, 20, 16, True, -1e-46)),
    Case("all scores the same", changed(lambda q, k, v: (0 * q, k, v), 1, 1, 20, 20, 16)),
    Case("the largest score last", changed(lambda q, k, v: (q, put(k, 9.0, 0, 0, -1), v), 1, 1, 16, 40, 16)),
    Case("scores far below 0", changed(lambda q, k, v: (q.abs(), -k.abs() - 9, v), 1, 1, 16, 40, 16, kv=1)),
    Case("scores of thousands", changed(lambda q, k, v: (64 * q.round(), 16 * k.round(), v), 1, 1, 16, 40, 16)),
    Case("NaN in a query", changed(lambda q, k, v: (put(q, NAN, 0, 0, 3, 5), k, v), 1, 1, 20, 20, 16)),
    Case("NaN in the last key", changed(lambda q, k, v: (q, put(k, NAN, 0, 0, -1, 5), v, True), 1, 1, 20, 20, 16)),
    Case("an infinite query", changed(lambda q, k, v: (put(q, INF, 0, 0, 3, 5), k, v), 1, 1, 20, 20, 16)),
    Case("no keys: zeros", heads(1, 2, 20, 0, 16)),
    Case("no keys, causal", heads(1, 2, 20, 0, 16, True)),
    Case("no queries", heads(1, 2, 0, 20, 16, True)),
    Case("no batch", heads(0, 2, 20, 20, 16)),
    Case("no heads", changed(lambda *t: tuple(x[:, :0] for x in t), 1, 2, 20, 20, 16)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_regimes(case):
    """In fp32: the error of PyTorch's own operations sets the budget."""
    allowed = {"allows": ("neg", "mul", "clone"), "shared": ("k", "v"), "buffers": 1}  # the log-sum-exp, for backward
    task = Task("attention", "attention", attention_eager, (case,), 1, ("", "", ""), **allowed)
    verdict = judge(task, attention, isolate=False)
    assert verdict.passed, verdict.message


# 16 bits: one of two roundings of a weight can be lucky, so the largest error sets the budget


def assert_as_exact_as_torch(actual: torch.Tensor, own: torch.Tensor, exact: torch.Tensor) -> None:
    """Fail unless every error is within twice torch's largest one, a rounding step, and a few of fp32 sums."""
    own_error = (own.double() - exact).abs().max()
    error = (actual.double() - exact).abs()
    sums = 8 * torch.finfo(torch.float32).eps * exact.abs().max()
    budget = 2 * own_error + torch.finfo(actual.dtype).eps * exact.abs() + sums
    wrong = ~(error <= budget)
    assert not wrong.any(), f"{int(wrong.sum())} elements, off by at most {(error / budget).max():.2f} budgets"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("D", [64, 72])
@pytest.mark.parametrize("dtype", DTYPES)
def test_error_budget(dtype, D, causal):
    N = 70 if ON_CPU else 1000
    q, k, v = heads(2, 2, N, N, D, dtype=dtype)(torch.Generator(DEVICE).manual_seed(0))
    out = attention(q, k, v, causal)
    assert out.dtype == dtype and out.is_contiguous()
    exact = attention_reference(q.double(), k.double(), v.double(), causal)
    assert_as_exact_as_torch(out, F.scaled_dot_product_attention(q, k, v, is_causal=causal), exact)


@given(data=st.data())
@settings(deadline=None, max_examples=15 if ON_CPU else 4)  # a GPU compiles for every D
def test_any_lengths_strides_and_scale(data):
    B, kv, group, N, D = (data.draw(st.integers(1, most)) for most in (2, 2, 2, 35, 20))
    M = data.draw(st.integers(0, 35))
    generator = torch.Generator(DEVICE).manual_seed(data.draw(st.integers(0, 99)))

    def tensor(H, length):
        order = data.draw(st.permutations(range(4)))
        steps = [data.draw(st.integers(1, 2)) for _ in range(4)]
        sizes = [(B, H, length, D)[axis] * steps[axis] for axis in order]
        x = values(generator, *sizes).permute([order.index(axis) for axis in range(4)])
        return x[tuple(slice(None, None, step) for step in steps)].requires_grad_()

    q, k, v = tensor(group * kv, M), tensor(kv, N), tensor(kv, N)
    causal, scale = data.draw(st.booleans()), data.draw(st.sampled_from([None, 0.7, 0.0, -0.3]))
    out, expected = (function(q, k, v, causal, scale) for function in (attention, attention_reference))
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    grad = values(generator, *out.shape)
    ours, exact = (torch.autograd.grad(result, (q, k, v), grad) for result in (out, expected))
    torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-4)


# Gradients


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "dtype, M, N", [*((dtype, 20, 20) for dtype in DTYPES), (torch.float32, 9, 25), (torch.float32, 25, 9)]
)
def test_gradients(dtype, M, N, causal):
    """Two batches of four heads, of which two read each key head: an offset that forgets one of them shows."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    q, k, v = (x.requires_grad_() for x in heads(2, 4, M, N, 24, kv=2, dtype=dtype)(generator))
    grad = values(generator, *q.shape).to(dtype)
    ours = torch.autograd.grad(attention(q, k, v, causal), (q, k, v), grad)
    own = torch.autograd.grad(attention_eager(q, k, v, causal), (q, k, v), grad)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    exact = torch.autograd.grad(attention_reference(*wide, causal), wide, grad.double())
    for result, torchs, right in zip(ours, own, exact, strict=True):
        assert result.dtype == dtype
        assert_as_exact_as_torch(result, torchs, right)


def test_a_query_that_sees_nothing_has_no_gradient():
    q, k, v = (x.requires_grad_() for x in heads(1, 1, 5, 2, 16)(torch.Generator(DEVICE).manual_seed(0)))
    attention(q, k, v, causal=True).sum().backward()
    assert (q.grad[:, :, :3] == 0).all() and (q.grad[:, :, 4:] != 0).any()
    assert k.grad.isfinite().all() and v.grad.isfinite().all()


@pytest.mark.parametrize("wanted", range(3))
def test_the_gradient_of_one_input_alone(wanted):
    inputs = heads(1, 1, 20, 20, 16)(torch.Generator(DEVICE).manual_seed(0))
    inputs[wanted].requires_grad_()
    for function in (attention, attention_reference):
        function(*inputs, True).square().sum().backward()
    grad, inputs[wanted].grad = inputs[wanted].grad / 2, None
    attention(*inputs, True).square().sum().backward()
    torch.testing.assert_close(inputs[wanted].grad, grad, rtol=1e-4, atol=1e-5)


def test_a_second_gradient_is_refused():
    q, k, v = heads(1, 1, 5, 5, 16)(torch.Generator(DEVICE).manual_seed(0))
    q.requires_grad_()
    for loss in (attention(q, k, v).square().sum(), attention(q, k, v).sum()):  # whose gradient is constant
        (grad,) = torch.autograd.grad(loss, q, create_graph=True)
        with pytest.raises(RuntimeError, match="attention has no second derivative"):
            (grad.square().sum() + q.sum()).backward()


def test_the_logarithm_of_the_sum_of_powers():
    """What the backward pass builds on: base 2, and +inf where a query sees nothing."""
    q, k, v = heads(1, 2, 30, 21, 16)(torch.Generator(DEVICE).manual_seed(0))
    _, lse = attention_forward(q, k, v, True, 0.5)
    scores = (0.5 * q.double() @ k.double().mT).masked_fill(~visible(30, 21, DEVICE), -INF)
    expected = (scores.logsumexp(3) * LOG2_E.value).float()
    assert lse.dtype == torch.float32 and lse.shape == (1, 2, 30)
    assert (lse[:, :, :9] == INF).all()
    torch.testing.assert_close(lse[:, :, 9:], expected[:, :, 9:], rtol=1e-5, atol=1e-5)


# torch.compile


def test_torch_compile_sees_one_graph():
    def block(q, k, v):
        return attention(2 * q, k, v, causal=True, scale=-0.5) + attention(q, k, v)

    torch._dynamo.reset()
    fast = torch.compile(block, backend="aot_eager" if ON_CPU else "inductor", fullgraph=True)
    inputs = heads(2, 4, 20, 30, 16, kv=2)(torch.Generator(DEVICE).manual_seed(0))
    results = []
    for function in (fast, block):
        leaves = [lengths_first(t).requires_grad_() for t in inputs]
        out = function(*leaves)
        results.append((out.detach(), *torch.autograd.grad(out.square().sum(), leaves)))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("D", [16, 40, 128])
def test_torch_compile_knows_the_results(D):
    q, k, v = heads(2, 4, 20, 30, D, kv=2, dtype=torch.float16)(torch.Generator(DEVICE).manual_seed(0))
    q = lengths_first(q)
    torch.library.opcheck(attention_forward.operation, (q, k, v, True, 0.5))
    out, lse = attention_forward(q, k, v, True, 0.5)
    torch.library.opcheck(attention_backward.operation, (q, q, k, v, out, lse, True, 0.5))


# The rungs

TILE = {"BLOCK_M": 16, "BLOCK_N": 32}


def strides_of(*tensors):
    return [stride for t in tensors for stride in t.stride()[:3]]


def by_tiles(kernel):
    def run(q, k, v, out, causal):
        B, H, M, D = q.shape
        sizes = (D**-0.5, H, M, k.shape[2], *strides_of(q, k, v, out))
        kernel[(triton.cdiv(M, 16), B * H)](q, k, v, out, *sizes, D=D, IS_CAUSAL=causal, **TILE)

    return run


def by_powers_of_two(q, k, v, out, causal):
    launch_kernel(q, k, v, out, causal, TILE)


def launch_kernel(q, k, v, out, causal, options):
    """Launch the portable kernel; the rows of `out` lie side by side, and its log-sum-exps are thrown away."""
    B, H, M, D = q.shape
    sizes = (D**-0.5 * LOG2_E.value, H, H // k.shape[1], M, k.shape[2], *strides_of(q, k, v))
    grid = (triton.cdiv(M, options["BLOCK_M"]) * B * H,)
    lse = torch.empty(q.shape[:3], device=q.device)
    attention_kernel[grid](q, k, v, out, lse, *sizes, D=D, BLOCK_D=padded(D), IS_CAUSAL=causal, **options)


def by_descriptors(q, k, v, out, causal):
    launch_descriptors(q, k, v, out, causal, TILE)


def launch_descriptors(q, k, v, out, causal, options):
    """Launch the kernel for the copy engine in the same way."""
    B, H, M, D = q.shape
    rows = [options[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_N", "BLOCK_M")]
    descriptors = map(descriptor, (q, k, v, out), rows)
    sizes = (D**-0.5 * LOG2_E.value, H, H // k.shape[1], M, k.shape[2])
    grid = (triton.cdiv(M, options["BLOCK_M"]) * B * H,)
    lse = torch.empty(q.shape[:3], device=q.device)
    attention_descriptor_kernel[grid](*descriptors, lse, *sizes, BLOCK_D=padded(D), IS_CAUSAL=causal, **options)


RUNGS = {
    "tile": by_tiles(attention_tile_kernel),
    "causal": by_tiles(attention_causal_kernel),
    "exp2": by_powers_of_two,
    "descriptor": by_descriptors,
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("M, N", [(24, 72), (40, 24), (32, 64)])
@pytest.mark.parametrize("rung", RUNGS)
def test_rungs(rung, M, N, causal):
    q, k, v = heads(2, 2, M, N, 16, dtype=torch.float16)(torch.Generator(DEVICE).manual_seed(0))
    memory = torch.full((q.numel() + 512,), 7.0, dtype=q.dtype, device=DEVICE)
    out = memory[256:-256].view(q.shape).fill_(NAN)
    RUNGS[rung](q, k, v, out, causal)
    exact = attention_reference(q.double(), k.double(), v.double(), causal)
    assert_as_exact_as_torch(out, attention_eager(q, k, v, causal), exact)
    out.fill_(7.0)
    assert (memory == 7.0).all()


@on_cpu
@pytest.mark.parametrize("rung", RUNGS)
def test_rungs_read_what_they_need(rung):
    """The first rung reads every key for every tile of queries, the others only as far as the diagonal."""
    q, k, v = heads(1, 2, 64, 64, 32, dtype=torch.float16)(torch.Generator().manual_seed(0))
    with trace() as t:
        RUNGS[rung](q, k, v, torch.empty_like(q), True)
    # Keys read by the four tiles of 16 queries, in tiles of 32.
    keys = 4 * 64 if rung == "tile" else 32 + 32 + 64 + 64
    assert t.bytes_loaded == 2 * (64 + 2 * keys) * 32 * 2
    assert not t.out_of_bounds and not t.conflicts


@on_cpu
def test_forward_moves_what_must_cross_once_and_keys_again_for_every_tile():
    q, k, v = heads(1, 4, 32, 48, 24, kv=2)(torch.Generator().manual_seed(0))
    with trace() as t:
        attention(q, k, v)
    lse = q[..., 0].numel() * 4
    again = (2 * 2 - 1) * (k.numel() + v.numel()) * 4  # two tiles of queries in each of the two heads of a group
    assert t.bytes_moved == attention_bytes(q, k, v) + lse + again


def test_eager_passes_four_times_over_its_matrices():
    """The comments in `attention_eager` and the chapter count 4MN elements; here every operation is weighed."""

    class Scales(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            tensors = [t for t in (*args, result) if isinstance(t, torch.Tensor)]
            if len({t.data_ptr() for t in tensors}) == len(tensors):  # not a view
                self.elements += sum(t.numel() for t in tensors if t.shape[-2:] == (M, N))
            return result

    M, N = 33, 21
    q, k, v = heads(1, 2, M, N, 16)(torch.Generator(DEVICE).manual_seed(0))
    with Scales() as scales:
        attention_eager(q, k, v)
    assert scales.elements == 4 * M * N * 2


# Offsets past 2**31: of such memory only the pages that are read are ever touched


@pytest.mark.parametrize("axis", range(3), ids=["batches", "heads", "rows"])
@pytest.mark.parametrize("rung", ["tile", "causal", "exp2"])
def test_offsets_past_two_to_the_31(rung, axis):
    strides = [64, 32, 16, 1]
    strides[axis] = 2**31 + 64
    memory = torch.empty(2**31 + 512, dtype=torch.float16, device=DEVICE)
    x = memory.as_strided((2, 2, 2, 16), strides)
    x.copy_(values(torch.Generator(DEVICE).manual_seed(0), *x.shape).abs())
    out = torch.empty(x.shape, dtype=x.dtype, device=DEVICE)
    RUNGS[rung](x, x, x, out, False)
    torch.testing.assert_close(out, attention_reference(x, x, x), rtol=1e-3, atol=1e-3)


@on_cpu
def test_a_result_of_more_than_two_to_the_31_elements():
    M = 2**23 + 16
    q, k, v = heads(1, 1, 1, 20, 256, dtype=torch.float16)(torch.Generator().manual_seed(0))
    out = torch.empty(1, 1, M, 256, dtype=torch.float16)
    tiles = triton.cdiv(M, 64)
    with trace(programs=[tiles - 1]):
        launch_kernel(q.expand_as(out), k, v, out, False, {"BLOCK_M": 64, "BLOCK_N": 32})
    torch.testing.assert_close(out[:, :, -1:], attention_reference(q, k, v), rtol=1e-3, atol=1e-3)


# Configurations

ON_DEMAND = [SCALAR_CONFIG, CPU_CONFIG]
EVERY_CONFIG = [
    *((launch_kernel, D, config) for D, configs in CONFIGS.items() for config in configs),
    *((launch_descriptors, D, config) for D, configs in DESCRIPTOR_CONFIGS.items() for config in configs),
    *((launch_kernel, 64, config) for config in ON_DEMAND),
]


def in_words(parameter):
    """Return a part of the name of a test, the same in every process."""
    return parameter.__name__ if callable(parameter) else str(parameter).replace(", num_ctas: 1", "")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("launch, D, config", EVERY_CONFIG, ids=in_words)
def test_every_configuration(launch, D, config, causal):
    """No length is a multiple of a tile, and the diagonal crosses tiles anywhere."""
    if not ON_CPU and shared_bytes(config, D, torch.bfloat16) > module.shared_limit(DEVICE):
        pytest.skip("it needs more shared memory than this GPU has")
    BLOCK_M, BLOCK_N = config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]
    sizes = (1, 1 if ON_CPU else 4, BLOCK_M + 5, 2 * BLOCK_N + 9, D)
    q, k, v = heads(*sizes, kv=1, dtype=torch.bfloat16)(torch.Generator(DEVICE).manual_seed(0))
    out = torch.full_like(q, NAN)
    launch(q, k, v, out, causal, config.all_kwargs())
    exact = attention_reference(q.double(), k.double(), v.double(), causal)
    assert_as_exact_as_torch(out, attention_eager(q, k, v, causal), exact)


def chosen_for(D, target, monkeypatch, described=False, dtype=torch.bfloat16):
    """Return what `config_for` chooses on a GPU of this kind."""
    capability = (9, 4) if target == "gfx942" else divmod(int(target.removeprefix("sm_")), 10)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(module, "shared_limit", lambda device: TARGETS[target].shared_per_program)
    return module.config_for.__wrapped__(described, D, dtype, torch.device("cuda"))


@pytest.mark.parametrize("target", TARGETS)
def test_configurations_fit(target, monkeypatch):
    for D in (1, 16, 40, 64, 65, 96, 128, 129, 256):
        config = chosen_for(D, target, monkeypatch)
        assert shared_bytes(config, D, torch.bfloat16) <= TARGETS[target].shared_per_program
        assert chosen_for(D, target, monkeypatch, dtype=torch.float32) is SCALAR_CONFIG
        if target in ("sm_90", "sm_100"):
            config = chosen_for(D, target, monkeypatch, described=True)
            assert shared_bytes(config, D, torch.bfloat16) <= TARGETS[target].shared_per_program


def test_the_copy_engine_gets_what_it_can_read():
    """Rows of D = 40 lie 80 bytes apart, of D = 36 not a multiple of 16."""
    x = torch.zeros(2, 4, 20, 40, dtype=torch.bfloat16, device=DEVICE)
    for good in (
        x,
        x[:, :, 1:],
        x[..., 8:16],
        lengths_first(x),
        x[:1],
        x[:1, :1].as_strided((1, 1, 20, 40), (7, 7, 40, 1)),
    ):
        assert readable(good)
    for bad in (x[..., 4:], x[..., :36].contiguous(), x[:, :1].expand(x.shape), x[:, :, :0], x[..., ::8]):
        assert not readable(bad)


# The compiler


def compile_kernel(target, D, config, causal, dtype=torch.bfloat16):
    q = torch.empty(4, 32, 4096, D, dtype=dtype, device="meta")
    lse = torch.empty(4, 32, 4096, device="meta")
    options = {"D": D, "BLOCK_D": padded(D), "IS_CAUSAL": causal, **config.all_kwargs()}
    return compiled(
        attention_kernel, q, q, q, q, lse, 0.1, 32, 1, 4096, 4096, *strides_of(q, q, q), target=target, **options
    )


@pytest.mark.parametrize(
    "target, D",
    [*(("sm_80", D) for D in (64, 96, 128, 256)), ("sm_86", 96), ("sm_120", 96), ("sm_90", 64)]
    + [(target, D) for target in ("sm_100", "gfx942") for D in (64, 128)],
)
def test_compiles_for(target, D, monkeypatch):
    config = chosen_for(D, target, monkeypatch)
    code = compile_kernel(target, D, config, causal=True)
    assert code.spills == 0
    assert code.shared <= shared_bytes(config, D, torch.bfloat16)
    instruction = {"sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma", "gfx942": "v_mfma"}.get(target, "mma.sync")
    assert code.asm.count(instruction) > 0
    assert target == "gfx942" or code.count("cp.async") > 0, "the next keys do not arrive while these are multiplied"


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_compiles_without_tensor_cores(dtype, monkeypatch):
    config = chosen_for(128, "sm_75", monkeypatch, dtype=dtype)
    assert compile_kernel("sm_75", 128, config, causal=True, dtype=dtype).spills == 0


@pytest.mark.parametrize(
    "target, D, causal",
    [
        *(("sm_90", D, True) for D in (64, 96, 128, 256)),
        *(("sm_90", D, False) for D in (64, 128)),
        ("sm_100", 128, True),
    ],
)
def test_the_descriptor_rung_uses_the_copy_engine(target, D, causal, monkeypatch):
    config = chosen_for(D, target, monkeypatch, described=True)
    BLOCK_M, BLOCK_N = config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]
    q = torch.empty(4, 32, 4096, D, dtype=torch.bfloat16, device="meta")
    lse = torch.empty(4, 32, 4096, device="meta")
    descriptors = [descriptor(q, n) for n in (BLOCK_M, BLOCK_N, BLOCK_N, BLOCK_M)]
    options = {"IS_CAUSAL": causal, "BLOCK_D": padded(D), **config.all_kwargs()}
    sizes = (0.1, 32, 1, 4096, 4096)
    code = compiled(attention_descriptor_kernel, *descriptors, lse, *sizes, target=target, **options)
    assert code.spills == 0
    assert code.shared <= shared_bytes(config, D, torch.bfloat16)
    assert code.count("cp.async.bulk.tensor") > 0 and code.count("ld.global") == 0
    assert code.count("wgmma.mma_async" if target == "sm_90" else "tcgen05.mma") > 0


def test_powers_of_two_cost_one_multiply_add_and_one_instruction():
    """The second rung multiplies twice for every score; in the third, the scale rides on the subtraction."""
    q = torch.empty(4, 32, 4096, 64, dtype=torch.bfloat16, device="meta")
    options = {"D": 64, "IS_CAUSAL": False, "BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3}
    sizes = (0.1, 32, 4096, 4096, *strides_of(q, q, q, q))
    before = compiled(attention_causal_kernel, q, q, q, q, *sizes, target="sm_90", **options)
    after = compile_kernel("sm_90", 64, triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_warps=8), causal=False)
    scores = 2 * 128 * 64 // (8 * 32)  # of one thread, in both loops
    assert after.count("MUFU.EX2") == before.count("MUFU.EX2") >= scores
    assert after.count("FFMA") >= scores
    assert before.count("FMUL") - after.count("FMUL") >= scores


# What it refuses, and what it costs

Q = torch.ones(2, 4, 3, 16, device=DEVICE)
K = torch.ones(2, 2, 5, 16, device=DEVICE)
REFUSED = {
    "a list": (([[1.0]], K, K), TypeError, "q is a list"),
    "a number": ((Q, K, 1.0), TypeError, "v is a float"),
    "three dimensions": ((Q[0], K[0], K[0]), ValueError, r"not \(4, 3, 16\)"),
    "k and v differ": ((Q, K, K[:, :, :4]), ValueError, r"and \(2, 2, 4, 16\)"),
    "batches": ((Q, K[:1], K[:1]), ValueError, r"not \(2, 4, 3, 16\), \(1, 2, 5, 16\)"),
    "D": ((Q, K[..., :8], K[..., :8]), ValueError, r"\(2, 2, 5, 8\)"),
    "heads": ((Q[:, :3], K, K), ValueError, "the 3 heads of q must be a multiple of the 2 heads"),
    "no key heads": ((Q, K[:, :0], K[:, :0]), ValueError, "multiple of the 0 heads"),
    "a long head": ((Q.repeat(1, 1, 1, 17), K.repeat(1, 1, 1, 17), K.repeat(1, 1, 1, 17)), ValueError, "not 272"),
    "an empty head": ((Q[..., :0], K[..., :0], K[..., :0]), ValueError, "1 to 256 elements, not 0"),
    "fp16 and fp32": ((Q.half(), K, K), ValueError, "k has torch.float32, q torch.float16"),
    "fp64": ((Q.double(), K.double(), K.double()), ValueError, "q has torch.float64$"),
    "devices": ((Q, K.to("meta"), K), ValueError, "k on meta"),
    "sparse": ((Q, K, K.to_sparse()), ValueError, "v is torch.sparse_coo"),
    "causal as a number": ((Q, K, K, 1), TypeError, "causal must be True or False, not a int"),
    "scale as text": ((Q, K, K, False, "1"), TypeError, "scale must be a number or None, not a str"),
    "scale as a truth value": ((Q, K, K, False, True), TypeError, "not a bool"),
    "an infinite scale": ((Q, K, K, False, INF), ValueError, "finite, not inf"),
    "NaN for a scale": ((Q, K, K, False, NAN), ValueError, "finite, not nan"),
}


@pytest.mark.parametrize("arguments, error, message", REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        attention(*arguments)


@pytest.mark.parametrize("M, N", [(1, 1), (5, 5), (2, 5), (5, 2), (1, 7), (7, 1), (3, 0)])
def test_costs(M, N):
    q, k, v = heads(2, 6, M, N, 16, kv=3, dtype=torch.bfloat16)(torch.Generator(DEVICE))
    assert attention_bytes(q, k, v) == 2 * (2 * 12 * M + 2 * 6 * N) * 16
    assert attention_flops(q, k, v) == 4 * 12 * M * N * 16
    assert attention_flops(q, k, v, True) == 4 * 12 * int(visible(M, N).sum()) * 16


# On a GPU


@pytest.mark.gpu
@pytest.mark.skipif(ON_CPU, reason="needs a CUDA GPU")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("D", [40, 64, 128, 256])
@pytest.mark.parametrize("M, N", [(1, 4001), (999, 2001), (2001, 999)])
def test_many_keys(M, N, D, causal):
    q, k, v = heads(2, 4, M, N, D, kv=2, dtype=torch.bfloat16)(torch.Generator(DEVICE).manual_seed(0))
    described = module.suits_descriptors(*map(tensor_spec, (q, k, v)))
    assert described == (torch.cuda.get_device_capability() in WITH_COPY_ENGINE)
    exact = attention_reference(q.double(), k.double(), v.double(), causal)
    own = attention_eager(q, k, v, causal)
    assert_as_exact_as_torch(attention(q, k, v, causal), own, exact)
    # Whatever `attention` chose here, the kernels that serve elsewhere must be right as well.
    plain, _ = attention_plain(q, k, v, causal, D**-0.5)
    assert_as_exact_as_torch(plain, own, exact)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_runs_on_the_device_of_its_inputs():
    q = torch.randn(1, 2, 300, 64, device="cuda:1", dtype=torch.float16)
    assert torch.cuda.current_device() == 0
    out = attention(q, q, q)
    assert out.device == q.device
    torch.testing.assert_close(out, attention_reference(q, q, q), rtol=2e-3, atol=2e-3)
