"""softmax against its specification: forward and backward, every kernel of the ladder, and the errors it must raise."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from kernels import softmax as module
from kernels.ladders.softmax import softmax_eager, softmax_persistent_kernel, softmax_row_kernel
from kernels.softmax import (
    DTYPES,
    HELD,
    SHORT,
    backward_plan_for,
    plan_for,
    softmax,
    softmax_backward_kernel,
    softmax_backward_online_kernel,
    softmax_backward_pieces_kernel,
    softmax_bytes,
    softmax_flops,
    softmax_online_kernel,
    softmax_pieces_kernel,
    softmax_reference,
    softmax_rows_kernel,
)
from lab.check import judge
from lab.compiler import compiled
from lab.device import DEVICE, ON_CPU
from lab.task import Case, Task
from lab.trace import trace

INF, NAN = float("inf"), float("nan")
on_cpu = pytest.mark.skipif(not ON_CPU, reason="only the machine on the CPU can be traced")


def values(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return random values around 20: their powers are too large to be added without subtracting the maximum."""
    return (20 + torch.randn(shape, generator=generator, device=generator.device)).to(dtype).to(DEVICE)


def rows(*shape, dtype=torch.float32, dim=-1):
    return lambda generator: (values(generator, *shape, dtype=dtype), dim)


def given_values(*numbers, dtype=torch.float32):
    return lambda generator: (torch.tensor(numbers, dtype=dtype, device=DEVICE), -1)


def with_row(N, value, first=0, last=None):
    """Return a maker of two rows of N elements, of which the second holds `value` from `first` to before `last`."""

    def make(generator):
        x = values(generator, 2, N)
        x[1, first:last] = value
        return x, -1

    return make


def laid_out(change, *shape, dim=-1):
    return lambda generator: (change(values(generator, *shape)), dim)


CASES = [
    Case("one element", rows(1)),
    Case("no dimensions", rows()),
    Case("padding is -inf, not 0", given_values(-5.0, -6.0, -7.0)),
    Case("many short rows", rows(700, 3), programs=2),
    Case("rows of one element", rows(1500, 1), programs=2),
    Case("one row short of a full program", rows(31, 64), programs=2),
    Case("short rows, exactly full", rows(3, SHORT), programs=3),
    Case("one past a short row", rows(3, SHORT + 1), programs=3),
    Case("781, then 1000 in this process", rows(3, 781), programs=3),
    Case("1000, after 781 in this process", rows(3, 1000), programs=3),
    Case("pieces, masked tail", rows(2, 4095), programs=2),
    Case("pieces, exactly full", rows(2, 8192), programs=2),
    Case("larger pieces", rows(2, 8193), programs=2),
    Case("the longest row held", rows(2, HELD), programs=2),
    Case("one past the longest row held", rows(2, HELD + 1), programs=2),
    Case("looped, exactly full", rows(2, 4 * 8192), programs=2),
    Case("46,336", rows(1, 46_336)),
    Case("one past larger blocks", rows(1, 65_537)),
    Case("102,400", rows(1, 102_400)),
    Case("131,072", rows(1, 131_072)),
    Case("nothing divides anything", rows(7, 11, 13, 3), programs=2),
    Case("empty", rows(0)),
    Case("no rows", rows(0, 128)),
    Case("empty rows", rows(128, 0)),
    Case("dim 0", rows(37, 5, dim=0)),
    Case("a dim in the middle", rows(3, 37, 5, dim=1)),
    Case("a dim from the end", rows(3, 37, 5, dim=-2)),
    Case("transposed", laid_out(torch.t, 3, 4, dim=1)),
    Case("transposed, the other dim", laid_out(torch.t, 3, 4, dim=0)),
    Case("sliced columns", laid_out(lambda x: x[:, 3:40], 5, 50)),
    Case("every other column", laid_out(lambda x: x[:, ::2], 5, 50)),
    Case("every other row", laid_out(lambda x: x[::2], 6, 50)),
    Case("offset start", laid_out(lambda x: x[1:], 51)),
    Case("a row expanded over rows", laid_out(lambda x: x.expand(9, 50), 1, 50)),
    Case("a column expanded over columns", laid_out(lambda x: x.expand(9, 50), 9, 1)),
    Case("channels last", laid_out(lambda x: x.to(memory_format=torch.channels_last), 2, 3, 4, 5, dim=1)),
    Case("lazily negated", laid_out(torch._neg_view, 4, 50)),
    Case("a row of -inf", with_row(50, -INF)),
    Case("a row of -inf in pieces", with_row(1500, -INF)),
    Case("a row of -inf in a loop", with_row(HELD + 300, -INF)),
    Case("-inf but for the first element", with_row(HELD + 300, -INF, first=1)),
    Case("-inf but for the last element", with_row(HELD + 300, -INF, last=-1)),
    Case("NaN", given_values(1.0, NAN, 2.0)),
    Case("NaN in a piece", with_row(1500, NAN, first=1400, last=1401)),
    Case("NaN in a loop", with_row(HELD + 300, NAN, first=HELD, last=HELD + 1)),
    Case("+inf", given_values(1.0, INF, 2.0)),
    Case("+inf in a loop", with_row(HELD + 300, INF, first=HELD, last=HELD + 1)),
    Case("both infinities", given_values(-INF, INF, 2.0)),
    Case("the ends of fp32", given_values(3.4e38, -3.4e38, 0.0, 3.4e38)),
    Case("the ends of fp16", given_values(65504.0, -65504.0, 65504.0, dtype=torch.float16)),
    Case("large and close together", given_values(1e5, 1e5 + 0.25, 1e5 - 1)),
    Case("both zeros", given_values(0.0, -0.0)),
] + [Case(f"{dtype}, {N}", rows(3, N, dtype=dtype)) for dtype in DTYPES for N in (100, 1500, HELD + 300)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_regimes(case):
    # PyTorch's own softmax, so that its own error sets the budget; what is right comes from float64 all the same.
    reads = {"x": 2}  # for the sum and for the result, where a row does not fit
    eager = lambda x, dim: torch.softmax(x, dim)  # noqa: E731
    task = Task("softmax", "softmax(x)", eager, (case,), 1, ("", "", ""), allows=("clone",), reads=reads)
    verdict = judge(task, softmax, isolate=False)
    assert verdict.passed, verdict.message


@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_any_shape_strides_and_dim(data):
    shape = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    step = data.draw(st.integers(1, 3))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    x = values(generator, *shape, step)[..., 0].permute(order).requires_grad_()
    y = softmax(x, dim)
    assert y.shape == x.shape
    torch.testing.assert_close(y, softmax_reference(x, dim))
    grad = values(generator, *shape).permute(order)
    (ours,) = torch.autograd.grad(y, x, grad)
    torch.testing.assert_close(ours, torch.autograd.grad(torch.softmax(x, dim), x, grad)[0])


# Accuracy


def assert_as_exact_as_torch(actual: torch.Tensor, own: torch.Tensor, exact: torch.Tensor) -> None:
    """Fail unless every error is within twice torch's largest one, plus a rounding step."""
    own_error = (own.double() - exact).abs().max()
    error = (actual.double() - exact).abs()
    budget = 2 * own_error + torch.finfo(actual.dtype).eps * exact.abs()
    wrong = ~(error <= budget)
    assert not wrong.any(), f"{int(wrong.sum())} elements, off by at most {(error / budget).max():.2f} budgets"


MAGNITUDES = {
    "about 1": (1.0, 0.0),
    "about 30": (30.0, 0.0),
    "close to 10,000": (1.0, 1e4),
    "close to -10,000": (3.0, -1e4),
}


@pytest.mark.parametrize("N", [100, 1500, HELD + 300])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale, shift", MAGNITUDES.values(), ids=MAGNITUDES)
def test_error_budget(scale, shift, dtype, N):
    """Subtract first, then scale for exp2: scaling first would round numbers that are large."""
    generator = torch.Generator(DEVICE).manual_seed(N)
    x = (scale * torch.randn(16, N, generator=generator, device=DEVICE) + shift).to(dtype)
    assert_as_exact_as_torch(softmax(x), torch.softmax(x, -1), torch.softmax(x.double(), -1))


@pytest.mark.parametrize("N", [1, 3, 100, SHORT + 1, HELD, HELD + 1, 65_537])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient(dtype, N):
    generator = torch.Generator(DEVICE).manual_seed(N)
    x, grad = values(generator, 16, N, dtype=dtype), values(generator, 16, N, dtype=dtype) - 20
    (ours,) = torch.autograd.grad(softmax(x.requires_grad_()), x, grad)
    (own,) = torch.autograd.grad(torch.softmax(x, -1), x, grad)
    wide = x.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(torch.softmax(wide, -1), wide, grad.double())
    assert ours.dtype == dtype
    assert_as_exact_as_torch(ours, own, exact)


def test_gradient_of_a_sum_is_nothing():
    """The gradient that arrives is one number expanded over both dimensions."""
    x = torch.randn(3, 50, device=DEVICE, requires_grad=True)
    softmax(x).sum().backward()
    assert x.grad.abs().max() < 1e-7


def test_gradient_along_dim_0():
    x = torch.randn(40, 3, dtype=torch.double, device=DEVICE).float().requires_grad_()
    weight = torch.randn(40, 3, device=DEVICE)
    (softmax(x, 0) * weight).sum().backward()
    y = torch.softmax(x.detach().double(), 0)
    torch.testing.assert_close(x.grad.double(), y * (weight - (y * weight).sum(0)), rtol=1e-5, atol=1e-6)


def test_a_second_gradient_is_refused():
    x = torch.randn(3, 5, device=DEVICE, requires_grad=True)
    for loss in (softmax(x).square().sum(), softmax(x).sum()):  # whose gradient is constant: 0 would be wrong
        (grad,) = torch.autograd.grad(loss, x, create_graph=True)
        with pytest.raises(RuntimeError, match="softmax has no second derivative"):
            (grad.square().sum() + x.sum()).backward()


# torch.compile


def test_torch_compile_sees_one_graph():
    def block(x):
        return softmax(2 * x, 0) + softmax(x) + 1

    torch._dynamo.reset()
    fast = torch.compile(block, backend="aot_eager" if ON_CPU else "inductor", fullgraph=True)
    results = []
    for function in (fast, block):
        x = torch.linspace(-3, 3, 60, device=DEVICE).view(6, 10).requires_grad_()
        out = function(x)
        results.append((out.detach(), *torch.autograd.grad(out.square().sum(), x)))
    torch.testing.assert_close(*results)


def test_torch_compile_knows_the_strides():
    wide = torch.randn(6, 20, device=DEVICE)[:, :10]
    for x, dim in ((wide, 1), (wide, 0), (torch.randn(3, 4, 5, device=DEVICE), 1), (wide[0, 0], 0)):
        torch.library.opcheck(module.softmax_forward.operation, (x, dim))
        torch.library.opcheck(module.softmax_backward.operation, (x, x, dim))


# The ladder

LADDER = {
    "row": (softmax_row_kernel, lambda M: M, {"BLOCK": 128}),
    "rows": (softmax_rows_kernel, lambda M: -(-M // 4), {"ROWS": 4, "BLOCK": 128}),
    "persistent": (softmax_persistent_kernel, lambda M: 2, {"BLOCK": 128, "STAGES": 3}),
    "persistent, more programs than rows": (softmax_persistent_kernel, lambda M: 5, {"BLOCK": 128, "STAGES": 3}),
    "one piece": (softmax_pieces_kernel, lambda M: M, {"BLOCK": 128, "PIECES": 1}),
    "pieces": (softmax_pieces_kernel, lambda M: M, {"BLOCK": 32, "PIECES": 4}),
    "one turn": (softmax_online_kernel, lambda M: M, {"BLOCK": 128}),
    "online": (softmax_online_kernel, lambda M: M, {"BLOCK": 32}),
}
BACKWARD_LADDER = {
    "rows": (softmax_backward_kernel, lambda M: -(-M // 4), {"ROWS": 4, "BLOCK": 128}),
    "one piece": (softmax_backward_pieces_kernel, lambda M: M, {"BLOCK": 128, "PIECES": 1}),
    "pieces": (softmax_backward_pieces_kernel, lambda M: M, {"BLOCK": 32, "PIECES": 4}),
    "one turn": (softmax_backward_online_kernel, lambda M: M, {"BLOCK": 128}),
    "online": (softmax_backward_online_kernel, lambda M: M, {"BLOCK": 32}),
}


def between_guards(M: int, N: int, stride: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return memory full of sevens, and a matrix in its middle whose rows lie `stride` apart."""
    memory = torch.full((M * stride + 128,), 7.0, device=DEVICE)
    return memory, memory.as_strided((M, N), (stride, 1), 64)


@pytest.mark.parametrize("N", [1, 32, 33, 100, 128])
@pytest.mark.parametrize("kernel, programs, options", LADDER.values(), ids=LADDER)
def test_every_rung(kernel, programs, options, N):
    M = 3
    x = torch.randn(M, 140, device=DEVICE)[:, :N]
    memory, out = between_guards(M, N, 131)
    kernel[(programs(M),)](x, out, M, N, x.stride(0), out.stride(0), **options)
    torch.testing.assert_close(out, softmax_reference(x))
    out.fill_(7.0)
    assert (memory == 7.0).all()


@pytest.mark.parametrize("N", [1, 33, 100, 128])
@pytest.mark.parametrize("kernel, programs, options", BACKWARD_LADDER.values(), ids=BACKWARD_LADDER)
def test_every_backward_rung(kernel, programs, options, N):
    M = 3
    y = torch.softmax(torch.randn(M, 140, device=DEVICE)[:, :N], 1)
    grad = torch.randn(M, 150, device=DEVICE)[:, :N]
    memory, out = between_guards(M, N, 131)
    kernel[(programs(M),)](y, grad, out, M, N, y.stride(0), grad.stride(0), out.stride(0), **options)
    torch.testing.assert_close(out, y * (grad - (y * grad).sum(1, keepdim=True)))
    out.fill_(7.0)
    assert (memory == 7.0).all()


@on_cpu
@pytest.mark.parametrize("kernel, programs, options", [*LADDER.values(), *BACKWARD_LADDER.values()])
def test_offsets_past_two_to_the_31(kernel, programs, options):
    """Three rows of bytes so far apart that the last begins past 2**31; the pages between are never touched."""
    stride = 2**30 + 64
    x = torch.empty(2 * stride + 128, dtype=torch.int8).as_strided((3, 128), (stride, 1))
    x.copy_(torch.arange(384).view(3, 128) % 5)
    inputs = (x,) if kernel in [rung[0] for rung in LADDER.values()] else (x, torch.ones(3, 128))
    out = torch.zeros(3, 128)
    with trace() as t:
        kernel[(programs(3),)](*inputs, out, 3, 128, *(t.stride(0) for t in (*inputs, out)), **options)
    assert not t.out_of_bounds
    expected = torch.softmax(x.float(), 1) if len(inputs) == 1 else x * (1 - x.float().sum(1, keepdim=True))
    torch.testing.assert_close(out, expected)


# What moves


@on_cpu
@pytest.mark.parametrize("N", [100, 1500, HELD])
def test_a_row_that_is_held_crosses_once(N):
    x = torch.randn(3, N)
    with trace() as t:
        softmax(x)
    assert t.bytes_moved == softmax_bytes(x)


@on_cpu
def test_a_row_that_is_not_held_is_read_twice_but_for_its_first_block():
    x = torch.randn(2, HELD + 300)
    block = plan_for(x.shape[1]).options["BLOCK"]
    with trace() as t:
        softmax(x)
    assert t.bytes_moved == softmax_bytes(x) + (x.numel() - 2 * block) * x.element_size()


@on_cpu
def test_only_an_input_whose_rows_have_gaps_is_copied():
    memory = torch.randn(6, 6)
    for x, dim, copied in [
        (memory, 1, False),
        (memory[::2, 1:5], 1, False),
        (memory, 0, True),
        (memory[:, ::2], 1, True),
    ]:
        with trace() as t:
            softmax(x, dim)
        assert (t.launches[0].tensors["x_ptr"].data_ptr != x.data_ptr()) == copied


def test_eager_moves_eight_elements_for_two():
    """The comments in `softmax_eager` and the chapter count 8MN + 4M; here every operation is weighed as it runs."""

    class Scales(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            self.elements += sum(t.numel() for t in (*args, result) if isinstance(t, torch.Tensor))
            return result

    M, N = 5, 7
    x = torch.randn(M, N, device=DEVICE)
    with Scales() as scales:
        y = softmax_eager(x)
    assert scales.elements == 8 * M * N + 4 * M
    torch.testing.assert_close(y, softmax_reference(x))


# How the work is shared out


@pytest.mark.parametrize(
    "plan_of, short, pieces",
    [
        (plan_for, softmax_rows_kernel, softmax_pieces_kernel),
        (backward_plan_for, softmax_backward_kernel, softmax_backward_pieces_kernel),
    ],
)
@pytest.mark.parametrize("N", [1, 2, 3, 100, 1024, 1025, 4096, 8192, 8193, 12_672, HELD, HELD + 1, 65_536, 10**6])
def test_plans(plan_of, short, pieces, N):
    kernel, rows, options = plan_of(N)
    block = options["BLOCK"]
    assert block & (block - 1) == 0
    assert rows == options.get("ROWS", 1)
    if kernel is short:
        assert rows * block == SHORT and block >= N > block // 2
    elif kernel is pieces:
        assert 0 <= options["PIECES"] * block - N < block
    else:
        assert N > HELD and block < N
    assert rows * block * options.get("PIECES", 1) <= 64 * 32 * options["num_warps"], "more than 64 elements a thread"


# What it refuses

X = torch.ones(3, 4, device=DEVICE)
REFUSED = {
    "a list": (([[1.0]],), TypeError, "a tensor, not list"),
    "a dim that is no integer": ((X, 1.0), TypeError, "an integer, not float"),
    "a dim that is a truth value": ((X, True), TypeError, "an integer, not bool"),
    "a dim too large": ((X, 2), ValueError, r"shape \(3, 4\), not 2"),
    "a dim too small": ((X, -3), ValueError, r"shape \(3, 4\), not -3"),
    "a dim of nothing": ((X[0, 0], 1), ValueError, r"shape \(\), not 1"),
    "integers": ((X.int(),), ValueError, "not torch.int32"),
    "float64": ((X.double(),), ValueError, "not torch.float64"),
    "complex": ((X.to(torch.complex64),), ValueError, "not torch.complex64"),
    "sparse": ((X.to_sparse(),), ValueError, "torch.sparse_coo"),
}


@pytest.mark.parametrize("arguments, error, message", REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        softmax(*arguments)


def test_costs():
    x = torch.empty(10, 100, dtype=torch.bfloat16, device="meta")
    assert softmax_bytes(x) == 4000
    assert softmax_flops(x) == 5000


# On a GPU, and for one


@pytest.mark.gpu
@pytest.mark.skipif(ON_CPU, reason="needs a CUDA GPU and 14 GB of its memory")
def test_more_than_two_to_the_31_elements():
    x = torch.randn(2**31 // 1000 + 5, 1000, dtype=torch.float16, device=DEVICE)
    y = softmax(x)
    torch.testing.assert_close(y[-9:], torch.softmax(x[-9:], 1))


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_runs_on_the_device_of_its_input():
    x = torch.randn(3, 100, device="cuda:1")
    assert torch.cuda.current_device() == 0
    torch.testing.assert_close(softmax(x), torch.softmax(x, 1))


@pytest.mark.parametrize("N", [256, 4096, 12_672, 32_768, 131_072])
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100", "gfx942"])
def test_compiles_for(target, N):
    x = torch.empty(64, N, dtype=torch.bfloat16, device="meta")
    kernel, _, options = plan_for(N)
    code = compiled(kernel, x, x, 64, N, N, N, target=target, **options)
    assert code.spills == 0
    if target.startswith("sm_"):
        assert code.count("ld.global.v4") == code.count("ld.global"), "some loads are narrower than 16 bytes"
    kernel, _, options = backward_plan_for(N)
    assert compiled(kernel, x, x, x, 64, N, N, N, N, target=target, **options).spills == 0
