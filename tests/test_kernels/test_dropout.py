"""dropout against its specification, and its random numbers against what chance allows.

Seeds are fixed, so every run sees the same numbers. A limit of six standard deviations would fail one honest generator
in 500 million.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import kernels.dropout
from kernels.dropout import (
    CALLS,
    DTYPES,
    dropout,
    dropout_bytes,
    dropout_flops,
    dropout_kernel,
    dropout_reference,
    keep_reference,
    philox_reference,
    threshold_of,
)
from kernels.ladders.dropout import BLOCK, dropout_four_kernel, dropout_one_kernel, dropout_stored_kernel
from lab.check import judge
from lab.compiler import compiled
from lab.device import DEVICE, ON_CPU
from lab.measure.memory import kept_bytes
from lab.task import Case, Task
from lab.trace import trace

SHARE = 8 * CALLS  # elements of one program
LIMIT = 6  # standard deviations


def values(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return normal random values."""
    return torch.randn(shape, generator=generator, device=generator.device).to(dtype).to(DEVICE)


def vector(*shape, p=0.3, seed=1234567890123, dtype=torch.float32):
    return lambda generator: (values(generator, *shape, dtype=dtype), p, seed)


def ones(n: int, **options) -> torch.Tensor:
    return torch.ones(n, device=DEVICE, **options)


def special(p: float, seed: int = 3):
    """Return every value that a product with 0 would spoil, many times, so that some of each are dropped."""
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([inf, -inf, nan, -0.0, 0.0, 3e38, 1e-45, 1.0], device=DEVICE).repeat(5)
    return lambda generator: (x, p, seed)


CASES = [
    Case("one element", vector(1)),
    Case("no dimensions", vector()),
    Case("fewer than a call gives", vector(7)),
    Case("one more than a call gives", vector(9)),
    Case("masked tail", vector(SHARE - 1)),
    Case("block exactly full", vector(SHARE)),
    Case("one past a block", vector(SHARE + 1), programs=2),
    Case("nothing divides anything", vector(7, 11, 13, 3), programs=2),
    Case("empty", vector(0)),
    Case("empty rows", vector(0, 128)),
    Case("transposed", lambda g: (values(g, 33, 5).t(), 0.3, 5)),
    Case("channels last", lambda g: (values(g, 2, 3, 4, 5).to(memory_format=torch.channels_last), 0.3, 5)),
    Case("sliced", lambda g: (values(g, 6, 9)[1:5, ::2], 0.3, 5)),
    Case("offset start", lambda g: (values(g, 101)[1:], 0.3, 5)),
    Case("stride 0", lambda g: (values(g, 1).expand(40), 0.3, 5)),
    Case("a row expanded over rows", lambda g: (values(g, 1, 37).expand(29, 37), 0.3, 5), programs=2),
    Case("infinities, NaN, signed zero", special(0.5)),
    Case("p is 0", special(0)),
    Case("p is 1", special(1)),
    Case("p is nearly 0", vector(300, p=1e-9)),
    Case("p is nearly 1", vector(300, p=1 - 1e-9)),
    Case("p no multiple of a step", vector(300, p=1 / 3)),
    Case("p is True", vector(30, p=True)),
    *(Case(f"seed {seed}", vector(40, seed=seed)) for seed in (0, 1, 16, -1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1)),
    *(Case(f"{dtype}", vector(SHARE + 29, dtype=dtype), programs=2) for dtype in DTYPES),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_regimes(case):
    task = Task("dropout", "zero or scale", dropout_reference, (case,), 1, ("", "", ""), allows=("clone",))
    verdict = judge(task, dropout, isolate=False)
    assert verdict.passed, verdict.message


@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_the_mask_follows_the_logical_index_whatever_the_strides(data):
    shape = data.draw(st.lists(st.integers(0, 9), max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    p, seed = data.draw(st.floats(0, 1)), data.draw(st.integers(-(2**63), 2**64 - 1))
    memory = torch.ones([shape[axis] for axis in order] + [2], device=DEVICE)[..., 0]
    x = memory.permute([order.index(i) for i in range(len(shape))])
    out = dropout(x, p, seed)
    assert out.is_contiguous()
    assert torch.equal(out != 0, keep_reference(x, p, seed))


# Which elements are dropped


def test_one_seed_gives_one_mask():
    x = ones(15).view(3, 5)
    assert torch.equal(dropout(x, 0.5, 42), dropout(x, 0.5, 42))


@pytest.mark.parametrize("calls", [32, 64, 1024])
def test_the_mask_does_not_depend_on_the_block_size(calls):
    x, out = ones(3000), torch.empty(3000, device=DEVICE)
    dropout_kernel[(-(-3000 // (8 * calls)),)](x, out, 3000, 0, 7, threshold_of(0.4), 1.0, CALLS=calls)
    assert torch.equal(out != 0, dropout(x, 0.4, 7) != 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_mask_does_not_depend_on_dtype_or_length(dtype):
    assert torch.equal(dropout(ones(100, dtype=dtype), 0.5, 7) != 0, dropout(ones(2000), 0.5, 7)[:100] != 0)


def test_a_large_odd_size_gives_its_tail_a_launch_and_keeps_its_mask(monkeypatch):
    x = ones(3 * SHARE + 5)
    expected = dropout(x, 0.5, 7)
    monkeypatch.setattr(kernels.dropout, "LARGE", SHARE)
    kernels.dropout.launch_for.cache_clear()  # what was decided for x before
    assert torch.equal(dropout(x, 0.5, 7), expected)
    if ON_CPU:
        with trace() as t:
            dropout(x, 0.5, 7)
        assert [launch.programs for launch in t.launches] == [3, 1]
        assert t.launches[0].arguments["n"] % 16 == 0
    kernels.dropout.launch_for.cache_clear()


@pytest.mark.parametrize("far", [32, pytest.param(36, marks=pytest.mark.gpu)])
def test_elements_far_apart_get_different_numbers(far):
    """Run one program at the far end of an address space of which only a few pages are touched."""
    if far > 32 and ON_CPU:
        pytest.skip("needs a CUDA GPU and 69 GB of its memory")
    n = 2**far + SHARE
    memory = torch.empty(n, dtype=torch.int8, device=DEVICE)
    masks = []
    for first in (0, 2**far // SHARE):
        piece = memory[first * SHARE : (first + 1) * SHARE].fill_(1)
        dropout_kernel[(1,)](memory, memory, n, first, 7, threshold_of(0.5), 1.0, CALLS=CALLS)
        masks.append(piece != 0)
    words = philox_reference(7, torch.arange(2 ** (far - 3), 2 ** (far - 3) + CALLS, device=DEVICE))
    halves = torch.stack((words & 0xFFFF, words >> 16), -1).flatten()
    assert torch.equal(masks[1], halves >= threshold_of(0.5))
    assert abs((masks[0] == masks[1]).double().mean().item() - 0.5) < LIMIT * 0.5 / math.sqrt(SHARE)


def test_steps_of_a_training_run():
    x = ones(1000).requires_grad_()
    masks = []
    for seed in (1, 2):
        x.grad = None
        out = dropout(x, 0.5, seed)
        out.sum().backward()
        assert torch.equal(x.grad, out)  # of ones, so the gradient is what forward multiplied with
        masks.append(out != 0)
    assert not torch.equal(*masks)


# Chances


def deviation(hits: torch.Tensor, chance: float) -> float:
    """Return by how many standard deviations the share of true elements differs from its chance."""
    n = hits.numel()
    return abs(hits.sum().item() - n * chance) / math.sqrt(n * chance * (1 - chance))


def mask(seed: int, n: int = 2**18, p: float = 0.5, rounds: int = 10) -> torch.Tensor:
    """Return which of n elements the kernel keeps; large blocks are fewer programs for a CPU."""
    x, out = ones(n, dtype=torch.float16), torch.empty(n, dtype=torch.float16, device=DEVICE)
    arguments = {"CALLS": 4096, "ROUNDS": rounds} if ON_CPU else {"CALLS": CALLS, "ROUNDS": rounds}
    dropout_kernel[(n // (8 * arguments["CALLS"]),)](x, out, n, 0, seed, threshold_of(p), 1.0, **arguments)
    return out != 0


def test_the_generator_gives_the_published_answers():
    """The known answers that come with Random123, for a counter and a key of zeros."""
    zero = torch.zeros(1, dtype=torch.int64)
    assert philox_reference(0, zero)[0].tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox_reference(0, zero, rounds=7)[0].tolist() == [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]


def test_a_quarter_of_4096_is_dropped():
    assert abs((dropout(ones(4096), 0.25, 1) != 0).double().mean().item() - 0.75) < 0.03


@pytest.mark.parametrize("p", [1 / 65536, 0.01, 0.1, 0.25, 0.5, 0.9])
def test_the_kept_share_is_one_minus_p(p):
    """Among so many elements several meet the threshold exactly: they are kept."""
    kept = mask(11, p=p)
    assert torch.equal(kept, keep_reference(kept, p, 11))
    assert deviation(kept, 1 - threshold_of(p) / 65536) < LIMIT


@pytest.mark.parametrize("p", [1e-9, 1 / 65536, 0.1, 1 / 3, 0.5, 0.99999, 1 - 1e-9])
def test_the_mean_is_kept_and_p_is_off_by_half_a_step_at_most(p):
    threshold = threshold_of(p)
    scale = dropout(ones(64), p, 0).max().item() or kernels.dropout.scale_of(threshold)
    assert (1 - threshold / 65536) * scale == pytest.approx(1, rel=1e-6)
    assert 0 < threshold < 65536
    if 1 / 65536 <= p <= 65535 / 65536:
        assert abs(threshold / 65536 - p) <= 0.5 / 65536


@pytest.mark.parametrize("name, numbers", [("high byte", lambda h: h >> 8), ("low byte", lambda h: h & 0xFF)])
@pytest.mark.parametrize("seed", [0, 1, 2**40 + 1])
def test_numbers_are_uniform(seed, name, numbers):
    """Chi-squared over 256 classes: mean 255, variance 2 * 255."""
    words = philox_reference(seed, torch.arange(2**16))
    halves = torch.stack((words & 0xFFFF, words >> 16), -1).flatten()
    counts = torch.bincount(numbers(halves), minlength=256).double()
    expected = halves.numel() / 256
    assert abs(((counts - expected) ** 2 / expected).sum().item() - 255) < LIMIT * math.sqrt(2 * 255)


def between_neighbours(kept: torch.Tensor, distance: int) -> float:
    """Return how far the agreement of elements at a distance is from that of two coins."""
    return deviation(kept[distance:] == kept[:-distance], 0.5)


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 7, 8, 16, 64, 1024])
def test_neighbours_and_rows_are_independent(distance):
    assert between_neighbours(mask(5), distance) < LIMIT


@pytest.mark.parametrize("other", [6, 4, 5 ^ 2**31, 5 + 2**32, 5 + 2**62, -5])
def test_seeds_are_independent(other):
    assert deviation(mask(5) == mask(other), 0.5) < LIMIT


@pytest.mark.parametrize("rounds, passes", [(2, False), (3, False), (7, True), (10, True)])
def test_too_few_rounds_are_noticed(rounds, passes):
    kept, after = mask(5, rounds=rounds), mask(6, rounds=rounds)
    worst = max([deviation(kept == after, 0.5)] + [between_neighbours(kept, distance) for distance in range(1, 65)])
    assert (worst < LIMIT) is passes


# The other rungs


def rung(kernel, n: int, p: float, seed: int, **sizes) -> torch.Tensor:
    """Return which of n ones a rung with a 32-bit number an element keeps."""
    x, out = ones(n), torch.empty(n, device=DEVICE)
    kernel[(-(-n // 1024),)](x, out, n, seed, p, 1 / (1 - p), **sizes)
    assert set(out.unique().tolist()) <= {0.0, torch.tensor(1 / (1 - p)).item()}
    return out != 0


def test_one_and_four_numbers_a_call():
    first = philox_reference(7, torch.arange(3000, device=DEVICE))[:, 0]
    one = rung(dropout_one_kernel, 3000, 0.3, 7, BLOCK=BLOCK)
    assert torch.equal(one, uniform(first) >= 0.3)
    all_four = philox_reference(7, torch.arange(750, device=DEVICE)).flatten()
    four = rung(dropout_four_kernel, 3000, 0.3, 7, CALLS=BLOCK // 4)
    assert torch.equal(four, uniform(all_four) >= 0.3)


def uniform(words: torch.Tensor) -> torch.Tensor:
    """Return what tl.rand makes of 32-bit words: float32 in [0, 1)."""
    signed = torch.where(words >= 2**31, words - 2**32, words)
    return torch.where(signed < 0, -signed - 1, signed).float() * 4.6566127342e-10


def test_a_stored_mask():
    x, out = torch.tensor([1.0, math.inf, math.nan, 4.0] * 9, device=DEVICE), torch.empty(36, device=DEVICE)
    keep = torch.arange(36, device=DEVICE) % 4 == 3
    dropout_stored_kernel[(1,)](x, keep, out, 36, 2.0, BLOCK=64)
    assert out.tolist() == [0.0, 0.0, 0.0, 8.0] * 9


# Gradients and torch.compile


def test_gradients_of_any_layout():
    x = torch.randn(6, 8, device=DEVICE).t().requires_grad_()
    keep = keep_reference(x, 0.5, 3)
    grad = torch.randn(6, 8, device=DEVICE).t()
    assert torch.equal(torch.autograd.grad(dropout(x, 0.5, 3), x, grad)[0], torch.where(keep, 2 * grad, 0))
    assert torch.equal(torch.autograd.grad(dropout(x, 0.5, 3).sum(), x)[0], torch.where(keep, 2.0, 0.0))


def test_gradients_of_gradients():
    x = torch.randn(50, device=DEVICE, requires_grad=True)
    (grad,) = torch.autograd.grad((dropout(x, 0.5, 3) ** 3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    torch.testing.assert_close(second, torch.where(keep_reference(x, 0.5, 3), 48 * x, 0.0).detach())


def test_torch_compile_sees_one_graph_and_any_seed():
    def layer(x, p, seed):
        return dropout(2 * x, p, seed) + 1

    torch._dynamo.reset()
    fast = torch.compile(layer, backend="aot_eager" if ON_CPU else "inductor", fullgraph=True)
    for p, seed in [(0.25, 1), (0.25, 2), (0.25, 2**40), (0.5, 2**64 - 1), (1.0, -5)]:
        x, y = (torch.linspace(-3, 3, 100, device=DEVICE).requires_grad_() for _ in range(2))
        out, expected = fast(x, p, seed), layer(y, p, seed)
        torch.testing.assert_close(out, expected)
        out.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


def test_torch_compile_keeps_strides():
    torch.library.opcheck(kernels.dropout.drop.operation, (torch.randn(4, 6, device=DEVICE).t(), 0.5, 3))


# Memory


def torch_dropout(x: torch.Tensor) -> torch.Tensor:
    """What F.dropout calls on a GPU in training."""
    return torch.native_dropout(x, 0.5, True)[0]


def test_nothing_is_kept_for_backward():
    x = torch.randn(2**20, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    assert kept_bytes(torch_dropout, x) == 2**20
    assert kept_bytes(lambda x: dropout(x, 0.5, 1), x) == 0
    if x.is_cuda:
        assert kept_bytes(lambda x: F.dropout(x, 0.5), x) == 2**20


# Errors and costs


ONES = torch.ones(3, device=DEVICE)
REFUSED = {
    "a list": (([1.0], 0.5, 1), TypeError, "a tensor, not list"),
    "integers": ((ONES.int(), 0.5, 1), ValueError, "not torch.int32"),
    "float64": ((ONES.double(), 0.5, 1), ValueError, "not torch.float64"),
    "sparse": ((ONES.to_sparse(), 0.5, 1), ValueError, "torch.sparse_coo"),
    "p below 0": ((ONES, -0.1, 1), ValueError, r"p must be in \[0, 1\], not -0.1"),
    "p above 1": ((ONES, 1.1, 1), ValueError, r"p must be in \[0, 1\], not 1.1"),
    "p NaN": ((ONES, math.nan, 1), ValueError, "not nan"),
    "p text": ((ONES, "half", 1), TypeError, "p must be a number, not str"),
    "seed 1.5": ((ONES, 0.5, 1.5), TypeError, "seed must be an int, not float 1.5"),
    "seed None": ((ONES, 0.5, None), TypeError, "seed must be an int, not NoneType"),
    "seed True": ((ONES, 0.5, True), TypeError, "seed must be an int, not bool True"),
    "seed too large": ((ONES, 0.5, 2**64), ValueError, "64 bits, not 18446744073709551616"),
    "seed too small": ((ONES, 0.5, -(2**63) - 1), ValueError, "64 bits"),
}


@pytest.mark.parametrize("arguments, error, message", REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        dropout(*arguments)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_runs_on_the_device_of_its_input():
    x = torch.ones(100, device="cuda:1")
    assert torch.cuda.current_device() == 0
    assert torch.equal(dropout(x, 0.5, 1).cpu(), dropout(x.to("cuda:0"), 0.5, 1).cpu())


@pytest.mark.gpu
@pytest.mark.skipif(ON_CPU, reason="needs a CUDA GPU and 9 GB of its memory")
def test_more_than_two_to_the_31_elements():
    n = 2**31 + 12345
    out = dropout(torch.ones(n, dtype=torch.bfloat16, device=DEVICE), 0.5, 7)
    calls = torch.arange(2**28 - 100, n // 8, device=DEVICE)
    words = philox_reference(7, calls)
    keep = torch.stack((words & 0xFFFF, words >> 16), -1).flatten() >= threshold_of(0.5)
    assert torch.equal(out[8 * (2**28 - 100) : n // 8 * 8] != 0, keep)


def test_costs():
    x = torch.empty(1000, dtype=torch.bfloat16, device="meta")
    assert dropout_bytes(x) == 4000
    assert dropout_flops(x) == 1000


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100", "gfx942"])
def test_compiles_for(target):
    x, n = torch.empty(2**20, device="meta", dtype=torch.bfloat16), 2**20
    code = compiled(dropout_kernel, x, x, n, 0, 2**40, 2**15, 2.0, CALLS=CALLS, target=target)
    assert code.spills == 0
    if target.startswith("sm_"):
        # Eight elements of two bytes are one load of a thread, and their numbers one call: two products a round.
        assert code.count("ld.global.v4") == code.count("st.global.v4") == 1
        assert code.count("mul.hi") <= 20


def test_one_number_an_element_multiplies_more_than_six_times_as_often():
    x, n = torch.empty(2**20, device="meta", dtype=torch.bfloat16), 2**20
    eight = compiled(dropout_kernel, x, x, n, 0, 2**40, 2**15, 2.0, CALLS=CALLS)
    one = compiled(dropout_one_kernel, x, x, n, 2**40, 0.5, 2.0, BLOCK=BLOCK)
    assert one.count("mul.hi") > 6 * eight.count("mul.hi")
