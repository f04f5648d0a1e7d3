"""matmul against its specification: a table with one row a regime, the rungs of its ladder, the errors it raises."""

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels import matmul as module
from kernels.ladders import matmul as ladder
from kernels.ladders.matmul import (
    matmul_autotuned_kernel,
    matmul_element_kernel,
    matmul_increment_kernel,
    matmul_persistent_kernel,
    matmul_tile_kernel,
    prune,
)
from kernels.matmul import (
    ACTIVATIONS,
    CONFIGS,
    DTYPES,
    SCALAR_CONFIG,
    SHORT_CONFIGS,
    matmul,
    matmul_bytes,
    matmul_flops,
    matmul_kernel,
    matmul_reference,
    result_dtype,
    shared_bytes,
    tile_origin,
)
from lab.check import judge
from lab.compiler import TARGETS, compiled
from lab.device import DEVICE, ON_CPU
from lab.measure.cache import grouped
from lab.task import Case, Task


def values(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return quarters from -2 to 2: their products and short sums are exact in fp32, so no order of adding is wrong."""
    return (torch.randint(-8, 9, shape, generator=generator, device=generator.device) / 4).to(dtype).to(DEVICE)


def product(M, K, N, dtype=torch.float32):
    return lambda g: (values(g, M, K, dtype=dtype), values(g, K, N, dtype=dtype))


def with_bias(dtype, activation):
    return lambda g: (*product(40, 50, 70, dtype)(g), values(g, 70, dtype=result_dtype(dtype)), activation)


def nan_behind_a(g):
    memory = torch.full((16 * 20 + 64,), float("nan"), device=g.device)
    a = memory[: 16 * 20].view(16, 20)
    return a.copy_(values(g, 16, 20)), values(g, 20, 16)


def complex_product(g):
    """Their conjugates' imaginary parts are negative in the tensor's flags, not in its memory."""
    return [torch.complex(t, t) for t in (*product(8, 9, 10)(g), values(g, 10))]


def infinite_values(g):
    a, b = product(8, 8, 8)(g)
    a[0, 0], a[1, 1], b[2, 2] = float("inf"), float("nan"), -float("inf")
    return a, b


CASES = [
    Case("one element", product(1, 1, 1)),
    Case("one row of a", product(1, 1, 128), programs=2),
    Case("a column of b", product(70, 33, 1), programs=2),
    Case("smaller than any tile", product(3, 7, 64)),
    Case("tiles exactly full", product(64, 64, 64), programs=2),
    Case("one past a tile in M, N and K", product(33, 33, 65), programs=2),
    Case("one short of a tile", product(31, 63, 31)),
    Case("nothing divides anything", product(37, 53, 71), programs=2),
    Case("NaN in memory behind a", nan_behind_a),
    Case("K is 0", lambda g: (values(g, 5, 0), values(g, 0, 7))),
    Case("M is 0", product(0, 5, 7)),
    Case("N is 0", product(5, 7, 0)),
    Case("a transposed", lambda g: (values(g, 50, 40).t(), values(g, 50, 30))),
    Case("b transposed", lambda g: (values(g, 40, 50), values(g, 30, 50).t())),
    Case("both transposed", lambda g: (values(g, 50, 40).t(), values(g, 30, 50).t())),
    Case("both sliced", lambda g: (values(g, 50, 60)[3:40, 5:46], values(g, 90, 80)[::2, 1::3][:41])),
    Case("a expanded over rows", lambda g: (values(g, 1, 40).expand(35, 40), values(g, 40, 20))),
    Case("a expanded over K", lambda g: (values(g, 35, 1).expand(35, 40), values(g, 40, 20))),
    Case("a times itself", lambda g: (values(g, 40, 40),) * 2),
    Case("imaginary parts of conjugates", lambda g: tuple(t.conj().imag for t in complex_product(g))),
    Case("infinities and NaN", infinite_values),
    Case("bias, strided", lambda g: (*product(9, 20, 40)(g), values(g, 80)[::2])),
    Case("activation without bias", lambda g: (*product(9, 20, 40)(g), None, "relu")),
    Case("fp32 in full precision", lambda g: (*product(9, 20, 40)(g), None, None, "ieee")),
]
WIDE_DTYPES = [dtype for dtype in DTYPES if dtype.itemsize > 1]
CASES += [Case(f"{dtype}", product(40, 50, 70, dtype), programs=2) for dtype in WIDE_DTYPES]
EXACT = (None, "relu", "leaky_relu")
CASES += [Case(f"{dtype} {name}", with_bias(dtype, name)) for dtype in WIDE_DTYPES for name in EXACT]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_regimes(case):
    allowed = {"allows": ("clone",), "shared": ("a", "b", "bias")}  # a clone of a strided bias
    task = Task("matmul", "a @ b", matmul_reference, (case,), 1, ("", "", ""), **allowed)
    verdict = judge(task, matmul, isolate=False)
    assert verdict.passed, verdict.message


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_epilogue(dtype, activation):
    """Apart from the table: fp32 knows the far end of a gelu to 1e-6 only, and `judge` asks for a GPU without fp8."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    a, b, bias, _ = with_bias(dtype, activation)(generator)
    out = matmul(a, b, bias, activation)
    assert out.dtype == result_dtype(dtype)
    assert torch.allclose(out, matmul_reference(a, b, bias, activation), rtol=torch.finfo(out.dtype).eps, atol=1e-6)


def test_large_enough_for_a_kernel_of_its_own_on_hopper():
    a, b = product(257, 259, 261)(torch.Generator(DEVICE).manual_seed(0))
    assert torch.equal(matmul(a.half(), b.half()), matmul_reference(a.half(), b.half()))


@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_any_shape_and_strides(data):
    M, K, N = (data.draw(st.integers(0, 40)) for _ in range(3))
    generator = torch.Generator(DEVICE).manual_seed(data.draw(st.integers(0, 99)))

    def matrix(rows, columns):
        step_row, step_column = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
        if data.draw(st.booleans()):
            return values(generator, columns * step_column, rows * step_row)[::step_column, ::step_row].t()
        return values(generator, rows * step_row, columns * step_column)[::step_row, ::step_column]

    a, b = matrix(M, K), matrix(K, N)
    assert torch.equal(matmul(a, b), matmul_reference(a, b))


def error_of(result: torch.Tensor, exact: torch.Tensor) -> float:
    return (result.double() - exact).abs().max().item()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_random_values_are_as_right_as_torch(dtype):
    """511 and nothing rounder, as in triton-lang/triton#5990; twice torch's own error and a rounding step."""
    size = 511 if dtype == torch.float16 or not ON_CPU else 129
    generator = torch.Generator(DEVICE).manual_seed(0)
    a, b = (torch.randn(size, size, generator=generator, device=DEVICE).to(dtype) for _ in range(2))
    exact = a.double() @ b.double()
    step = torch.finfo(dtype).eps * exact.abs().max().item()
    assert error_of(matmul(a, b), exact) <= 2 * error_of(a @ b, exact) + step


def test_fp32_adds_up_in_full_precision():
    """Eight roundings of the sum of magnitudes: cuBLAS adds in another order, so its own error is no measure."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    a, b = (torch.randn(129, 129, generator=generator, device=DEVICE) for _ in range(2))
    error = (matmul(a, b, precision="ieee").double() - a.double() @ b.double()).abs()
    assert (error <= 8 * 2**-24 * (a.abs().double() @ b.abs().double())).all()


def test_tf32_keeps_ten_bits():
    generator = torch.Generator(DEVICE).manual_seed(0)
    a, b = (torch.randn(100, 100, generator=generator, device=DEVICE) for _ in range(2))
    error = (matmul(a, b, precision="tf32").double() - a.double() @ b.double()).abs()
    assert (error <= 2 * 2**-10 * (a.abs().double() @ b.abs().double())).all()


def test_precision_follows_torch(monkeypatch):
    seen = []
    monkeypatch.setattr(module, "product_for", lambda *looks: lambda *tensors: seen.append(looks[-1]))
    a = torch.ones(2, 2, device=DEVICE)
    for setting in ("highest", "high", "highest"):
        torch.set_float32_matmul_precision(setting)
        matmul(a, a)
    assert seen == ["ieee", "tf32", "ieee"]


def test_what_was_decided_for_one_call_is_kept_for_those_that_look_like_it(monkeypatch):
    asked = []
    module.product_for.cache_clear()
    monkeypatch.setattr(module, "check_operands", lambda *looks: asked.append(looks))
    a, b = product(39, 23, 17)(torch.Generator(DEVICE).manual_seed(0))
    memory = torch.empty(39 * 23 + 1, device=DEVICE)
    unaligned = memory[1:].view(39, 23).copy_(a)
    for known, left in enumerate((a, unaligned, a.t().contiguous().t(), a.half()), start=1):
        for _ in range(2):
            right = b.to(left.dtype)
            assert torch.equal(matmul(left, right), matmul_reference(left, right))
        assert len(asked) == known


# torch.compile


def test_torch_compile_sees_one_graph():
    def block(a, b, bias):
        return matmul(2 * a, b.t(), bias, "gelu") + matmul(a, a.t(), precision="ieee").sum()

    torch._dynamo.reset()
    fast = torch.compile(block, backend="aot_eager" if ON_CPU else "inductor", fullgraph=True)
    inputs = (torch.randn(size, device=DEVICE) for size in ((20, 8), (30, 8), (30,)))
    inputs = [t.half() for t in inputs]
    torch.testing.assert_close(fast(*inputs), block(*inputs))


def test_torch_compile_knows_the_result():
    a, b = torch.randn(20, 8, device=DEVICE), torch.randn(30, 8, device=DEVICE).t()
    torch.library.opcheck(module.multiply.operation, (a, b, None, None, "ieee"))


# Offsets past 2**31: float8 has one byte an element, and only the pages that hold one are ever touched


@pytest.mark.parametrize("strides", [(2**31 + 64, 1), (1, 2**26)], ids=["rows far apart", "columns far apart"])
def test_offsets_past_two_to_the_31(strides):
    memory = torch.empty(2**31 + 2**30 + 4096, dtype=torch.float8_e4m3fn, device=DEVICE)
    a = memory.as_strided((2, 48), strides)
    generator = torch.Generator(DEVICE).manual_seed(0)
    a.copy_(values(generator, 2, 48))
    b = values(generator, 48, 40, dtype=a.dtype)
    assert torch.equal(matmul(a, b).float(), matmul_reference(a, b).float())


# The order of tiles


@triton.jit
def order_kernel(row_ptr, column_ptr, tiles_m, tiles_n, GROUP_M: tl.constexpr, BLOCK: tl.constexpr):
    tile = tl.arange(0, BLOCK)
    row, column = tile_origin(tile, tiles_m, tiles_n, GROUP_M)
    tl.store(row_ptr + tile, row, mask=tile < tiles_m * tiles_n)
    tl.store(column_ptr + tile, column, mask=tile < tiles_m * tiles_n)


def order(tiles_m: int, tiles_n: int, group: int) -> list[tuple[int, int]]:
    row, column = torch.empty(2, tiles_m * tiles_n, dtype=torch.int32, device=DEVICE).unbind()
    order_kernel[(1,)](row, column, tiles_m, tiles_n, GROUP_M=group, BLOCK=512)
    return list(zip(row.tolist(), column.tolist(), strict=True))


@pytest.mark.parametrize("group", range(1, 9))
def test_every_tile_has_one_program(group):
    for tiles_m in range(1, 21):
        for tiles_n in range(1, 21):
            tiles = [(row, column) for row in range(tiles_m) for column in range(tiles_n)]
            found = order(tiles_m, tiles_n, group)
            assert sorted(found) == tiles, (tiles_m, tiles_n)
            assert found == grouped(tiles_m, tiles_n, group)


def test_groups_go_down_before_they_go_on():
    assert order(3, 2, 2) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    assert order(2, 3, 1) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


# The rungs

TILE = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}


def by_elements(a, b, out, sizes, strides):
    matmul_element_kernel[(out.numel(),)](a, b, out, *sizes[1:], *strides, BLOCK_K=32)


def by_tiles(kernel, **constants):
    def run(a, b, out, sizes, strides):
        grid = (triton.cdiv(sizes[0], 16) * triton.cdiv(sizes[1], 32),)
        kernel[grid](a, b, *([None] if constants else []), out, *sizes, *strides, **TILE, **constants)

    return run


def persistently(a, b, out, sizes, strides):
    blocks = ([16, 32], [32, 32], [16, 32])
    descriptors = [TensorDescriptor.from_tensor(t, block) for t, block in zip((a, b, out), blocks, strict=True)]
    matmul_persistent_kernel[(2,)](*descriptors, *sizes, **TILE, GROUP_M=2)


def autotuned(a, b, out, sizes, strides):
    def grid(meta):
        return (triton.cdiv(sizes[0], meta["BLOCK_M"]) * triton.cdiv(sizes[1], meta["BLOCK_N"]),)

    matmul_autotuned_kernel[grid](a, b, None, out, *sizes, *strides, GROUP_M=8, ACTIVATION=None, PRECISION="tf32")


RUNGS = {
    "element": by_elements,
    "tile": by_tiles(matmul_tile_kernel),
    "increment": by_tiles(matmul_increment_kernel),
    "row by row": by_tiles(matmul_kernel, GROUP_M=1, ACTIVATION=None, PRECISION="tf32"),
    "grouped": by_tiles(matmul_kernel, GROUP_M=8, ACTIVATION=None, PRECISION="tf32"),
    "persistent": persistently,
    "autotuned": autotuned,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("rung", RUNGS)
def test_rungs(rung, dtype):
    """Three tiles by two, none of them full."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    a, b = product(40, 72, 56, dtype)(generator)
    memory = torch.full((40, 64), float("nan"), dtype=dtype, device=DEVICE)
    out = memory[:, :56]
    RUNGS[rung](a, b, out, (*out.shape, a.shape[1]), (*a.stride(), *b.stride(), *out.stride()))
    assert torch.equal(out, matmul_reference(a, b))
    assert memory[:, 56:].isnan().all()


# Configurations


@pytest.mark.parametrize("limit", [64 * 1024, 100 * 1024, 227 * 1024])
def test_no_configuration_needs_more_shared_memory_than_there_is(limit, monkeypatch):
    for place in (module, ladder):
        monkeypatch.setattr(place, "shared_limit", lambda device: limit)
    for dtype in DTYPES:
        kept = prune(CONFIGS, {"a_ptr": torch.empty(1, dtype=dtype)})
        assert kept and all(shared_bytes(config, dtype.itemsize) <= limit for config in kept)
        for M, N in ((8192, 8192), (512, 512), (16, 4096), (4096, 1)):
            chosen = chosen_for(M, N, dtype, monkeypatch)
            assert shared_bytes(chosen, dtype.itemsize) <= limit


def chosen_for(M, N, dtype, monkeypatch, capability=(8, 0)):
    class Properties:
        multi_processor_count = 108

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    return module.config_for.__wrapped__(M, N, dtype, "tf32", torch.device("cuda"))


def test_configurations_follow_the_shape(monkeypatch):
    monkeypatch.setattr(module, "shared_limit", lambda device: 227 * 1024)
    assert chosen_for(8192, 8192, torch.float16, monkeypatch) is CONFIGS[0]
    assert chosen_for(1024, 1024, torch.float16, monkeypatch).kwargs["BLOCK_N"] < 256
    assert chosen_for(16, 4096, torch.float16, monkeypatch) is SHORT_CONFIGS[0]
    assert chosen_for(8192, 8192, torch.float16, monkeypatch, capability=(7, 5)) is SCALAR_CONFIG


def test_shared_bytes_are_no_less_than_the_compiler_takes():
    for config in (CONFIGS[0], CONFIGS[3], SHORT_CONFIGS[0]):
        assert compile_kernel("sm_90", torch.bfloat16, config).shared <= shared_bytes(config, 2)


# The compiler


def compile_kernel(target, dtype, config, activation=None, precision="tf32"):
    a = torch.empty(4096, 4096, dtype=dtype, device="meta")
    out = torch.empty(4096, 4096, dtype=result_dtype(dtype), device="meta")
    sizes = (*[4096] * 3, *[4096, 1] * 3)
    options = {"GROUP_M": 8, "ACTIVATION": activation, "PRECISION": precision, **config.all_kwargs()}
    return compiled(matmul_kernel, a, a, out, out, *sizes, target=target, **options)


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100", "gfx942"])
def test_compiles_for(target):
    limit = TARGETS[target].shared_per_program
    fitting = [config for config in CONFIGS[1:] if shared_bytes(config, 2) <= limit]
    config = SCALAR_CONFIG if target == "sm_75" else fitting[0]
    code = compile_kernel(target, torch.float16, config, "gelu")
    assert code.spills == 0
    instruction = {"sm_80": "mma.sync", "sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma"}.get(target)
    assert instruction is None or code.count(instruction) > 0
    assert target not in ("sm_80", "sm_90") or code.count("cp.async") > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_short_matrix_leaves_no_register_spilled(dtype):
    config = next(config for config in SHORT_CONFIGS if shared_bytes(config, dtype.itemsize) <= 227 * 1024)
    assert compile_kernel("sm_90", dtype, config).spills == 0


def test_the_persistent_rung_uses_the_copy_engine():
    x = torch.empty(4096, 4096, dtype=torch.bfloat16, device="meta")
    descriptors = [TensorDescriptor.from_tensor(x, block) for block in ([128, 64], [64, 256], [128, 256])]
    blocks = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8}
    code = compiled(matmul_persistent_kernel, *descriptors, 4096, 4096, 4096, target="sm_90", **blocks)
    assert code.count("cp.async.bulk.tensor") > 0 and code.count("wgmma.mma_async") > 0 and code.spills == 0


# What it refuses, and what it costs

ONES = torch.ones(3, 3, device=DEVICE)
REFUSED = {
    "a list": (([[1.0]], ONES), TypeError, "a is a list"),
    "a number": ((ONES, 1.0), TypeError, "b is a float"),
    "a vector": ((ONES, ONES[0]), ValueError, r"not \(3, 3\) and \(3,\)"),
    "a batch": ((ONES[None], ONES), ValueError, r"not \(1, 3, 3\) and \(3, 3\)"),
    "inner sizes": ((ONES, ONES[:2]), ValueError, r"not \(3, 3\) and \(2, 3\)"),
    "fp16 and fp32": ((ONES.half(), ONES), ValueError, "not torch.float16 and torch.float32"),
    "fp64": ((ONES.double(), ONES.double()), ValueError, "not torch.float64"),
    "devices": ((ONES, ONES.to("meta")), ValueError, "one device"),
    "sparse": ((ONES.to_sparse(), ONES), ValueError, "a is torch.sparse_coo"),
    "a short bias": ((ONES, ONES, ONES[0, :2]), ValueError, r"bias must be \[3\] of torch.float32, not \(2,\)"),
    "bias dtype": ((ONES, ONES, ONES[0].half()), ValueError, "of torch.float16"),
    "bias device": ((ONES, ONES, ONES[0].to("meta")), ValueError, "bias on meta"),
    "activation": ((ONES, ONES, None, "tanh"), ValueError, "'gelu', not 'tanh'"),
    "precision": ((ONES, ONES, None, None, "bf16"), ValueError, "'tf32', not 'bf16'"),
}


@pytest.mark.parametrize("arguments, error, message", REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        matmul(*arguments)


def test_costs():
    a, b = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in ((10, 20), (20, 30)))
    assert matmul_bytes(a, b) == 2 * (200 + 600 + 300)
    assert matmul_flops(a, b) == 2 * 10 * 20 * 30
    assert matmul_bytes(a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)) == 200 + 600 + 2 * 300


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_runs_on_the_device_of_its_inputs():
    a = torch.ones(300, 300, device="cuda:1", dtype=torch.float16)
    assert torch.cuda.current_device() == 0
    for rows in (300, 3):
        out = matmul(a[:rows], a)
        assert out.device == a.device and (out == 300).all()
