"""vector_add against its specification: a table with one row a regime, random layouts, and the errors it must raise."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.elementwise import LARGE
from kernels.vector_add import (
    BLOCK,
    DTYPES,
    add,
    vector_add,
    vector_add_bytes,
    vector_add_flops,
    vector_add_kernel,
    vector_add_reference,
)
from lab.check import judge
from lab.compiler import compiled
from lab.device import DEVICE, ON_CPU
from lab.task import Case, Task
from lab.trace import trace


def values(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return random values that use the range of the dtype a little: both signs, and both truth values."""
    return (3 * torch.randn(shape, generator=generator, device=generator.device)).to(dtype).to(DEVICE)


def pair(*shape, dtype=torch.float32):
    return lambda generator: (values(generator, *shape, dtype=dtype), values(generator, *shape, dtype=dtype))


def complex_values(generator, *shape):
    return values(generator, *shape, dtype=torch.complex64)


def channels_last(x):
    return x.to(memory_format=torch.channels_last)


def special_values(generator):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([inf, -inf, inf, nan, -0.0, 0.0, 3e38, 1e-45], device=DEVICE)
    y = torch.tensor([1.0, 1.0, -inf, 1.0, -0.0, -0.0, 3e38, 1e-45], device=DEVICE)
    return x, y


CASES = [
    Case("one element", pair(1)),
    Case("no dimensions", pair()),
    Case("masked tail", pair(BLOCK - 1)),
    Case("block exactly full", pair(BLOCK)),
    Case("one past a block", pair(BLOCK + 1), programs=2),
    Case("nothing divides anything", pair(7, 11, 13, 3), programs=2),
    Case("empty", pair(0)),
    Case("empty rows", pair(0, 128)),
    Case("large and odd: the tail has a launch of its own", pair(LARGE + 5), programs=2),
    Case("both transposed", lambda g: (values(g, 33, 5).t(), values(g, 33, 5).t())),
    Case("one transposed", lambda g: (values(g, 3, 2).t(), values(g, 2, 3))),
    Case("channels last", lambda g: (channels_last(values(g, 2, 3, 4, 5)), values(g, 2, 3, 4, 5))),
    Case("every other element", lambda g: (values(g, 16)[::2], values(g, 8))),
    Case("both sliced", lambda g: (values(g, 6, 9)[1:5, 2:7], values(g, 4, 10)[:, ::2])),
    Case("stride 0", lambda g: (values(g, 1).expand(4), values(g, 1).expand(4))),
    Case("a row expanded over rows", lambda g: (values(g, 1, 37).expand(29, 37), values(g, 29, 37))),
    Case("one tensor twice", lambda g: (values(g, 50),) * 2),
    Case("offset start", lambda g: (values(g, 101)[1:], values(g, 101)[:-1])),
    Case("infinities, NaN, signed zero", special_values),
    Case("lazily conjugated", lambda g: (complex_values(g, 40).conj(), complex_values(g, 40))),
    Case("lazily negated", lambda g: (complex_values(g, 40).conj().imag, values(g, 40))),
] + [Case(f"{dtype}", pair(BLOCK + 29, dtype=dtype), programs=2) for dtype in DTYPES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_regimes(case):
    task = Task("vector_add", "x + y", vector_add_reference, (case,), 1, ("", "", ""), allows=("copy",), launches=2)
    verdict = judge(task, vector_add, isolate=False)
    assert verdict.passed, verdict.message


@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_any_shape_and_strides(data):
    shape = data.draw(st.lists(st.integers(0, 9), max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    step = data.draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    x = values(generator, *shape)
    back = [order.index(axis) for axis in range(len(shape))]
    y = values(generator, *(shape[axis] for axis in order), step)[..., 0].permute(back)
    assert torch.equal(vector_add(x, y), x + y)


def test_layout_follows_the_dense_input():
    x = torch.ones(3, 2, device=DEVICE)
    assert vector_add(x.t(), x.t()).stride() == x.t().stride()
    assert vector_add(x[:, :1].expand(3, 2), x).stride() == x.stride()


@pytest.mark.skipif(not ON_CPU, reason="only the machine on the CPU can be traced")
def test_only_the_input_in_another_layout_is_copied():
    x, y = torch.ones(4, 3).t(), torch.ones(3, 4)
    with trace() as t:
        vector_add(x, y)
    (launch,) = t.launches
    assert launch.tensors["x_ptr"].data_ptr == x.data_ptr()
    assert launch.tensors["y_ptr"].data_ptr != y.data_ptr()
    with trace() as t:
        vector_add(y, y)
    assert t.launches[0].tensors["y_ptr"].data_ptr == y.data_ptr()


def test_torch_compile_sees_one_graph():
    x = torch.arange(24.0, device=DEVICE).view(4, 6).t()
    torch._dynamo.reset()
    backend = "aot_eager" if ON_CPU else "inductor"
    fast = torch.compile(lambda x: vector_add(2 * x, x) + 1, backend=backend, fullgraph=True)
    assert torch.equal(fast(x), 3 * x + 1)
    torch.library.opcheck(add.operation, (x.contiguous(), x))


def test_a_neighbour_stays_untouched():
    memory = torch.full((16,), 7.0, device=DEVICE)
    x = torch.ones(5, device=DEVICE)
    vector_add_kernel[(1,)](x, x, memory[4:9], 5, BLOCK=8)
    assert memory.tolist() == [7.0] * 4 + [2.0] * 5 + [7.0] * 7


@pytest.mark.skipif(not ON_CPU, reason="only the machine on the CPU can be traced")
def test_offsets_past_two_to_the_31():
    """Run only the last two programs of a grid over 2.2 GB of address space, of which three pages are ever touched."""
    n = 2**31 + 100
    memory = torch.empty(n, dtype=torch.int8)
    last = n // BLOCK
    memory[(last - 1) * BLOCK :] = 3
    with trace(programs={last - 1, last}) as t:
        vector_add_kernel[(last + 1,)](memory, memory, memory, n, BLOCK=BLOCK)
    assert not t.out_of_bounds
    assert memory[(last - 1) * BLOCK :].unique().tolist() == [6]


@pytest.mark.gpu
@pytest.mark.skipif(ON_CPU, reason="needs a CUDA GPU and 7 GB of its memory")
def test_more_than_two_to_the_31_elements():
    x = torch.randint(-60, 60, (2**31 + 12345,), dtype=torch.int8, device=DEVICE)
    out = vector_add(x, x)
    assert torch.equal(out[-20000:], 2 * x[-20000:]) and torch.equal(out[:20000], 2 * x[:20000])


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_runs_on_the_device_of_its_inputs():
    x = torch.ones(100, device="cuda:1")
    assert torch.cuda.current_device() == 0
    assert vector_add(x, x).device == x.device and vector_add(x, x).sum() == 200


@pytest.mark.gpu
@pytest.mark.skipif(ON_CPU, reason="needs a CUDA GPU")
def test_one_cpu_and_one_cuda_tensor():
    with pytest.raises(ValueError, match="one device, not cpu and cuda"):
        vector_add(torch.ones(3), torch.ones(3, device=DEVICE))


ONES = torch.ones(3, device=DEVICE)
REFUSED = {
    "a list": (([1.0], ONES), TypeError, "two tensors, not list and Tensor"),
    "a number": ((ONES, 1.0), TypeError, "two tensors, not Tensor and float"),
    "shapes": ((ONES, torch.ones(4, device=DEVICE)), ValueError, r"one shape, not \(3,\) and \(4,\)"),
    "shapes that would broadcast": ((ONES, ONES[:1]), ValueError, r"one shape, not \(3,\) and \(1,\)"),
    "dtypes": ((ONES, ONES.half()), ValueError, "one dtype, not torch.float32 and torch.float16"),
    "devices": ((ONES, ONES.to("meta")), ValueError, "one device"),
    "a dtype torch.add refuses": ((ONES.to(torch.float8_e5m2),) * 2, ValueError, "not torch.float8_e5m2"),
    "sparse": ((ONES.to_sparse(),) * 2, ValueError, "torch.sparse_coo"),
}


@pytest.mark.parametrize("arguments, error, message", REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        vector_add(*arguments)


def test_costs():
    x = torch.empty(1000, dtype=torch.bfloat16, device="meta")
    assert vector_add_bytes(x, x) == 6000
    assert vector_add_flops(x, x) == 1000


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100", "gfx942"])
def test_compiles_for(target):
    x = torch.empty(2**20, device="meta")
    code = compiled(vector_add_kernel, x, x, x, 2**20, target=target, BLOCK=BLOCK)
    assert code.spills == 0
    if target.startswith("sm_"):
        # BLOCK floats of x and y over 4 warps of 32 threads, 4 to an instruction
        assert code.count("ld.global.v4") == 2 * BLOCK // (4 * 32 * 4)
