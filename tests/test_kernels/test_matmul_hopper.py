"""matmul_hopper: its code, read without a GPU; its helpers; and its results, on a Hopper GPU."""

import inspect
from types import FunctionType, SimpleNamespace

import numpy as np
import pytest
import torch

from kernels import matmul as portable
from kernels.launch import tensor_spec
from kernels.matmul import hopper
from kernels.matmul.hopper import (
    DTYPES,
    descriptor,
    fetchable,
    matmul_hopper,
    matmul_hopper_kernel,
    rows_of,
    tile_shape,
)
from lab.compiler import compiled
from lab.device import DEVICE, ON_CPU

needs_hopper = pytest.mark.skipif(
    ON_CPU or torch.cuda.get_device_capability() != (9, 0), reason="needs a Hopper GPU: H100, H200 or GH200"
)


# Without a GPU


def placeholder(dtype):
    """Return what stands for a tensor [4096, 4096]."""
    return tensor_spec(torch.empty(4096, 4096, dtype=dtype, device="meta")).at(0)


def compile_kernel(dtype, BLOCK_N=256, STAGES=3, a_by_rows=True, b_by_rows=True, bias=None, activation=None):
    BLOCK_K = 128 // dtype.itemsize
    square, out = (placeholder(kind) for kind in (dtype, portable.result_dtype(dtype)))
    descriptors = (
        descriptor(square, (64, BLOCK_K) if a_by_rows else (BLOCK_K, 64)),
        descriptor(square, (BLOCK_K, BLOCK_N) if b_by_rows else (BLOCK_N, BLOCK_K)),
        descriptor(out, (64, BLOCK_N)),
    )
    sizes = (4096, 32, 4096 // BLOCK_N, 4096 // BLOCK_K)
    constants = (16, BLOCK_K, STAGES, a_by_rows, b_by_rows, activation)
    return compiled(matmul_hopper_kernel, *descriptors, bias, *sizes, *constants, target="sm_90")


def looked_at(code):
    assert code.spills == 0 and code.num_warps == 12
    assert code.count("wgmma.mma_async") > 0 and code.count("cp.async.bulk.tensor") >= 4
    assert code.count("setmaxnreg") > 0  # registers move from who fetches to who multiplies


@pytest.mark.parametrize("activation", portable.ACTIVATIONS)
def test_activations_compile_without_spills(activation):
    looked_at(compile_kernel(torch.bfloat16, bias=torch.empty(4096, dtype=torch.bfloat16), activation=activation))


@pytest.mark.parametrize("by_rows", [(True, False), (False, True), (False, False)])
def test_layouts_compile_without_spills(by_rows):
    looked_at(compile_kernel(torch.float16, 256, 3, *by_rows))


@pytest.mark.parametrize("size", [8192, 1536, 512])
@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_compile_without_spills(size, dtype):
    tile = tile_shape(size, size, portable.result_dtype(dtype).itemsize, 132)
    code = compile_kernel(dtype, *tile, b_by_rows=dtype.itemsize == 2)
    looked_at(code)
    assert code.shared <= 227 * 1024


def test_tiles_grow_narrow_until_every_multiprocessor_has_one():
    sizes = 8192, 2048, 1536, 1024, 512
    assert [tile_shape(size, size, 2, 132) for size in sizes] == [(256, 3), (256, 3), (128, 6), (64, 8), (64, 8)]
    assert [tile_shape(size, size, 4, 132) for size in sizes] == [(128, 5), (128, 5), (128, 5), (64, 8), (64, 8)]


@pytest.mark.parametrize("name", ["tile_origin", "activate"])
def test_two_dialects_say_the_same(name):
    """All but the gelu, which has a formula of its own here."""
    ours = inspect.getsource(getattr(hopper, name).fn).replace("gluon", "triton").replace("gl.", "tl.")
    theirs = inspect.getsource(getattr(portable, name).fn)
    assert ours.split('"gelu"')[0] == theirs.split('"gelu"')[0]


def test_gelu_by_polynomial():
    shim = SimpleNamespace(abs=np.abs, exp2=np.exp2, minimum=np.minimum, where=np.where)
    gelu = FunctionType(hopper.gelu.fn.__code__, {"gl": shim})
    x = torch.linspace(-12, 12, 100_001, dtype=torch.float64)
    error = gelu(x.numpy()) - torch.nn.functional.gelu(x).numpy()
    assert np.abs(error).max() < 1e-7


FETCHED_IN_PLACE = {
    "rows": torch.randn(24, 16).half(),
    "columns": torch.randn(24, 16).half().t(),
    "rows of a wider matrix": torch.randn(24, 64).half()[:, 8:24],
    "an odd length, evenly spaced": torch.randn(24, 16).half()[:, :13],
}
COPIED = {
    "rows of odd length": torch.randn(9, 13).half(),
    "columns of odd length": torch.randn(9, 13).half().t(),
    "an odd start": torch.randn(24, 16).half()[:, 1:9],
    "every other column": torch.randn(24, 16).half()[:, ::2],
    "one row for all": torch.randn(1, 16).half().expand(24, 16),
    "one column for all": torch.randn(24, 1).half().expand(24, 16),
}


@pytest.mark.parametrize("t", FETCHED_IN_PLACE.values(), ids=FETCHED_IN_PLACE)
def test_what_is_fetched_where_it_lies(t):
    rows = rows_of(tensor_spec(t), (1, 0))
    assert fetchable(t, rows) is t and rows.axis == (1 if t.stride(1) == 1 else 0)
    assert torch.equal(as_fetched(t, rows), t)


@pytest.mark.parametrize("t", COPIED.values(), ids=COPIED)
@pytest.mark.parametrize("along", [(1, 0), (1,), (0,)])
def test_what_is_copied_first(t, along):
    rows = rows_of(tensor_spec(t), along)
    assert rows.axis in along and rows.strides[1] == 1 and rows.strides[0] * 2 % 16 == 0
    assert fetchable(t, rows).data_ptr() != t.data_ptr()
    assert torch.equal(as_fetched(t, rows), t)


def as_fetched(t, rows):
    """Return the matrix that TMA finds in what `fetchable` leaves in memory."""
    found = fetchable(t, rows).as_strided(rows.shape, rows.strides)
    return found if rows.axis == 1 else found.t()


def test_bytes_want_k_contiguous():
    assert rows_of(tensor_spec(FETCHED_IN_PLACE["rows"]), (0,)).copied
    assert rows_of(tensor_spec(FETCHED_IN_PLACE["columns"]), (1,)).copied


# On a Hopper GPU


def matrix(generator, rows, columns, dtype):
    return torch.randn(rows, columns, generator=generator, device=DEVICE).to(dtype)


# What tensor cores lose of 8-bit products on their way and of fp32 numbers at once, as shares of two vectors' lengths.
OWN_ROUNDING = {torch.float8_e4m3fn: 2**-12, torch.float32: 2**-10}


def wrong_by(out, a, b, bias=None, activation=None):
    """Return the error as a share of what the rounding of the result, or the tensor core's own for 8 bits, allows."""
    exact = a.double() @ b.double()
    exact = portable.ACTIVATIONS[activation](exact if bias is None else exact + bias.double())
    scale = (a.double().square().sum(1, keepdim=True) * b.double().square().sum(0)).sqrt()
    budget = torch.finfo(out.dtype).eps * exact.abs() + scale * OWN_ROUNDING.get(a.dtype, 2**-20)
    share = (out.double() - exact).abs() / budget
    return float("inf") if share.isnan().any() else share.max().item()


SHAPES = [
    (64, 64, 64),
    (128, 256, 64),
    (129, 130, 65),
    (1000, 1100, 1200),
    (257, 259, 261),
    (33, 2049, 70),
    (4096, 40, 96),
]


@needs_hopper
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results(shape, dtype):
    M, N, K = shape
    generator = torch.Generator(DEVICE).manual_seed(0)
    for layout in range(4):
        a = matrix(generator, M, K, dtype) if layout % 2 == 0 else matrix(generator, K, M, dtype).t()
        b = matrix(generator, K, N, dtype) if layout < 2 else matrix(generator, N, K, dtype).t()
        torch.full((M, N), float("nan"), device=DEVICE, dtype=torch.bfloat16)  # for the result to be written over
        out = matmul_hopper(a, b)
        assert out.is_contiguous() and out.shape == (M, N) and out.dtype == portable.result_dtype(dtype)
        assert wrong_by(out, a, b) <= 1, layout


@needs_hopper
@pytest.mark.parametrize("activation", portable.ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_epilogue(dtype, activation):
    generator = torch.Generator(DEVICE).manual_seed(0)
    a, b = matrix(generator, 300, 200, dtype), matrix(generator, 200, 500, dtype)
    memory = torch.randn(501, generator=generator, device=DEVICE).to(portable.result_dtype(dtype))
    for bias in (memory[:500], memory[1:], None):  # the second is not aligned
        for _ in range(2):  # the second time the compiled kernel is launched directly
            assert wrong_by(matmul_hopper(a, b, bias, activation), a, b, bias, activation) <= 1


@needs_hopper
def test_gelu_at_the_ends():
    """At -inf it is the limit, where torch.nn.functional.gelu multiplies infinity by zero."""
    infinity = float("inf")
    bias = torch.tensor([infinity, 300, 1, 0, -5, -300, -infinity, float("nan")], device=DEVICE)
    expected = torch.where(bias == -infinity, 0, torch.nn.functional.gelu(bias))
    zeros = torch.zeros(8, 8, dtype=torch.float16, device=DEVICE)
    out = matmul_hopper(zeros, zeros, bias.half(), "gelu")
    assert torch.allclose(out.float(), expected.expand(8, 8), rtol=2**-10, atol=2e-7, equal_nan=True)


@needs_hopper
def test_fp32_is_rounded_not_cut_off():
    a = torch.full((64, 64), 1 + 0.75 * 2**-10, device=DEVICE)
    one = torch.eye(64, device=DEVICE)
    for out in (matmul_hopper(a, one), matmul_hopper(one, a)):
        assert (out == 1 + 2**-10).all()


@needs_hopper
def test_new_matrices_in_old_places():
    """Descriptors are kept by address: what lies there, and in which shape, must still be seen."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    memory = matrix(generator, 512, 512, torch.float16)
    b = matrix(generator, 512, 512, torch.float16)
    for rows, columns in ((512, 512), (256, 512), (512, 512), (512, 256)):
        a = memory.flatten()[: rows * columns].view(rows, columns).normal_(generator=generator)
        assert wrong_by(matmul_hopper(a, b[:columns]), a, b[:columns]) <= 1


@needs_hopper
def test_more_tiles_than_programs():
    generator = torch.Generator(DEVICE).manual_seed(0)
    a, b = matrix(generator, 5000, 136, torch.bfloat16), matrix(generator, 136, 5000, torch.bfloat16)
    assert wrong_by(matmul_hopper(a, b), a, b) <= 1
