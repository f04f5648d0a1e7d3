"""Kernels that use each operation of Triton's front end, with inputs and what must come out.

The references are torch, Python's integers and fractions, or NumPy written in another way than the machine.
`test_operations` runs the table on the machine, `test_beside_gpu` on the machine and on a GPU.
"""

import itertools
import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language import core
from triton.language.extra import libdevice
from triton.tools.mxfp import MXFP4Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

INF, NAN = math.inf, math.nan


class OnTensor(NamedTuple):
    """An argument that becomes a tensor descriptor on the host."""

    tensor: torch.Tensor
    block: tuple[int, ...]
    padding: str = "zero"


@dataclass(frozen=True)
class Case:
    """One launch. arguments: by name, constants too. expected: what tensors hold afterwards; others stay as they are.

    error: how far a result may be from `expected`, relative to the largest magnitude in it; 0 asks for the same bits.
    beside: the same between the machine and a GPU. refused: why a GPU's compiler does not take it.
    """

    name: str
    kernel: triton.JITFunction
    arguments: dict[str, object]
    expected: dict[str, torch.Tensor]
    grid: tuple[int, ...] = (1,)
    error: float = 0.0
    beside: float = 0.0
    refused: str = ""


CASES: list[Case] = []


def case(kernel, arguments, expected, name="", **facts):
    """Add a row to the table."""
    title = kernel.__name__ + (f"-{name}" if name else "")
    expected = {key: torch.as_tensor(value) for key, value in expected.items()}
    CASES.append(Case(title, kernel, arguments, expected, **{"beside": facts.get("error", 0.0), **facts}))


def case_of_outs(kernel, arguments, results, name="", **facts):
    """Add a row to the table for a kernel that stores each of these results to one of its tuple `outs`."""
    outs = tuple(blank(*result.shape, dtype=result.dtype) for result in results)
    case(kernel, {**arguments, "outs": outs}, {f"outs[{i}]": result for i, result in enumerate(results)}, name, **facts)


def launch(row: Case, device="cpu", **options) -> dict[str, torch.Tensor]:
    """Launch a case on copies of its tensors and return these, by name."""
    tensors: dict[str, torch.Tensor] = {}

    def placed(name, value):
        if isinstance(value, torch.Tensor):
            tensors[name] = value.to(device, copy=True)
            return tensors[name]
        if isinstance(value, OnTensor):
            return TensorDescriptor.from_tensor(placed(name, value.tensor), list(value.block), padding=value.padding)
        if isinstance(value, tuple):
            return tuple(placed(f"{name}[{i}]", part) for i, part in enumerate(value))
        return value

    given = {name: placed(name, value) for name, value in row.arguments.items()}
    row.kernel[row.grid](**given, **options)
    return {name: tensor.cpu() for name, tensor in tensors.items()}


def originals(row: Case) -> dict[str, torch.Tensor]:
    """Return the tensors of a case as they are before the launch."""
    found: dict[str, torch.Tensor] = {}

    def collect(name, value):
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, OnTensor):
            found[name] = value.tensor
        elif isinstance(value, tuple):
            for i, part in enumerate(value):
                collect(f"{name}[{i}]", part)

    for name, value in row.arguments.items():
        collect(name, value)
    return found


def differences(actual: torch.Tensor, wanted: torch.Tensor, error: float = 0.0) -> str:
    """Return in words where two tensors differ by more than `error`, "" if nowhere. NaN equals NaN alone."""
    assert actual.dtype == wanted.dtype and actual.shape == wanted.shape, (actual.dtype, wanted.dtype, actual.shape)
    floats = actual.is_floating_point()
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[actual.element_size()]
    same = actual.contiguous().view(bits) == wanted.contiguous().view(bits)
    if floats:
        a, b = actual.double(), wanted.double()
        same |= a.isnan() & b.isnan()
        if error:
            finite = b[b.isfinite()].abs()
            scale = finite.max().item() if finite.numel() else 0.0
            same |= ((a - b).abs() <= error * scale) | (a == b)
    if same.all():
        return ""
    at = tuple((~same).nonzero()[0].tolist())
    return f"{(~same).sum()} of {same.numel()} differ, first at {at}: {actual[at]} for {wanted[at]}"


def blank(*shape, dtype=torch.float32):
    """Return a tensor that nobody has written to: every byte is the same odd number."""
    count = math.prod(shape) * dtype.itemsize
    if dtype == torch.bool:
        return torch.ones(shape, dtype=torch.bool)
    return torch.full((count,), 0x55, dtype=torch.uint8).view(dtype).reshape(shape)


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def whole(*shape, low=-(2**31), high=2**31, dtype=torch.int32, seed=0):
    """Return random integers from low to high - 1."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def tensor_of(values, dtype):
    """Return numbers or bit patterns as a tensor; integers wrap into the width of their type."""
    if dtype == torch.bool or dtype.is_floating_point:
        return torch.tensor(values, dtype=torch.float64 if dtype.is_floating_point else dtype).to(dtype)
    size = dtype.itemsize
    return torch.from_numpy(np.array([value % 2 ** (8 * size) for value in values], f"u{size}")).view(dtype)


INTEGERS = {
    name: getattr(torch, name)
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}  # fmt: skip
FLOATS = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
FP8 = {torch.float8_e4m3fn, torch.float8_e5m2}
NUMBERS = {"bool": torch.bool, **INTEGERS, **FLOATS}


def bits_of(dtype):
    return 1 if dtype == torch.bool else 8 * dtype.itemsize


def is_signed(dtype):
    return dtype.is_signed and dtype != torch.bool


def range_of(dtype):
    bits = bits_of(dtype)
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed(dtype) else (0, 2**bits - 1)


def wrapped(value, dtype):
    """Return an integer as one of this type."""
    bits = bits_of(dtype)
    value %= 2**bits
    return value - 2**bits if is_signed(dtype) and value >> (bits - 1) else value


def edges(dtype):
    """Return 16 values of an integer type, those at its ends among them."""
    low, high = range_of(dtype)
    if dtype == torch.bool:
        return [0, 1] * 8
    around = [0, 1, 2, 3, 5, 7, 100, 42, high, high - 1, low, low + 1, high // 2, high // 3]
    return [wrapped(value, dtype) for value in [*around, -1, -7]]


def pairs_of(values):
    """Return all pairs as two lists."""
    return tuple(map(list, zip(*itertools.product(values, values), strict=True)))


SPECIALS = [0.0, -0.0, 1.0, -1.0, 2.5, -3.5, 0.1, 7.0, INF, -INF, NAN, 1e-3, 300.0, -448.0, 6e4, 1e-7]


# Integers and floats in expressions


@triton.jit
def binary(x_ptr, y_ptr, outs, FUNCTIONS: tl.constexpr, N: tl.constexpr):
    """Store FUNCTIONS[i](x, y) to outs[i]."""
    offs = tl.arange(0, N)
    x, y = tl.load(x_ptr + offs), tl.load(y_ptr + offs)
    for i in tl.static_range(len(outs)):
        tl.store(outs[i] + offs, FUNCTIONS[i](x, y))


@triton.jit
def unary(x_ptr, outs, FUNCTIONS: tl.constexpr, N: tl.constexpr):
    """Store FUNCTIONS[i](x) to outs[i]."""
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    for i in tl.static_range(len(outs)):
        tl.store(outs[i] + offs, FUNCTIONS[i](x))


def binary_case(name, x, y, results, **facts):
    """results: function of the kernel → what it must store."""
    arguments = {"x_ptr": x, "y_ptr": y, "FUNCTIONS": tuple(results), "N": len(x)}
    case_of_outs(binary, arguments, results.values(), name, **facts)


def unary_case(name, x, results, **facts):
    case_of_outs(unary, {"x_ptr": x, "FUNCTIONS": tuple(results), "N": len(x)}, results.values(), name, **facts)


@triton.jit
def add(x, y):
    return x + y


@triton.jit
def sub(x, y):
    return x - y


@triton.jit
def mul(x, y):
    return x * y


@triton.jit
def floordiv(x, y):
    return x // y


@triton.jit
def mod(x, y):
    return x % y


@triton.jit
def bit_and(x, y):
    return x & y


@triton.jit
def bit_or(x, y):
    return x | y


@triton.jit
def bit_xor(x, y):
    return x ^ y


@triton.jit
def shift_left(x, y):
    return x << (y & (x.dtype.primitive_bitwidth - 1)).to(x.dtype)


@triton.jit
def shift_right(x, y):
    return x >> (y & (x.dtype.primitive_bitwidth - 1)).to(x.dtype)


@triton.jit
def largest(x, y):
    return tl.maximum(x, y)


@triton.jit
def smallest(x, y):
    return tl.minimum(x, y)


@triton.jit
def largest_or_nan(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smallest_or_nan(x, y):
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def equal(x, y):
    return x == y


@triton.jit
def unequal(x, y):
    return x != y


@triton.jit
def less(x, y):
    return x < y


@triton.jit
def less_or_equal(x, y):
    return x <= y


@triton.jit
def greater(x, y):
    return x > y


@triton.jit
def greater_or_equal(x, y):
    return x >= y


@triton.jit
def high_half(x, y):
    return tl.umulhi(x, y)


def truncated(x, y):
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


INTEGER_OPERATIONS = {
    add: lambda x, y, bits: x + y,
    sub: lambda x, y, bits: x - y,
    mul: lambda x, y, bits: x * y,
    bit_and: lambda x, y, bits: x & y,
    bit_or: lambda x, y, bits: x | y,
    bit_xor: lambda x, y, bits: x ^ y,
    shift_left: lambda x, y, bits: x << (y % bits),
    shift_right: lambda x, y, bits: x >> (y % bits),
    largest: lambda x, y, bits: max(x, y),
    smallest: lambda x, y, bits: min(x, y),
    high_half: lambda x, y, bits: (x % 2**bits) * (y % 2**bits) >> bits,
}
DIVISIONS = {
    floordiv: lambda x, y, bits: truncated(x, y),
    mod: lambda x, y, bits: x - truncated(x, y) * y,
}
COMPARISONS = {
    equal: lambda x, y: x == y,
    unequal: lambda x, y: x != y,
    less: lambda x, y: x < y,
    less_or_equal: lambda x, y: x <= y,
    greater: lambda x, y: x > y,
    greater_or_equal: lambda x, y: x >= y,
}


def add_integer_cases():
    for kind, dtype in INTEGERS.items():
        pairs = list(itertools.product(edges(dtype), edges(dtype)))
        # MLIR leaves division by zero and of the least number by -1 open; test_arithmetic pins what comes out.
        divisible = [(x, y) for x, y in pairs if y and (x, y) != (range_of(dtype)[0], -1)]
        divisible += [(7, 3)] * (256 - len(divisible))
        for title, operations, given in (("", INTEGER_OPERATIONS, pairs), ("division-", DIVISIONS, divisible)):
            results = {
                operation: tensor_of([function(x, y, bits_of(dtype)) for x, y in given], dtype)
                for operation, function in operations.items()
                if operation is not high_half or bits_of(dtype) >= 32
            }
            x, y = (tensor_of(values, dtype) for values in zip(*given, strict=True))
            binary_case(title + kind, x, y, results)


def add_comparison_cases():
    for kind, dtype in NUMBERS.items():
        if bits_of(dtype) < 16 and kind not in INTEGERS:
            continue
        values = tensor_of(SPECIALS if dtype.is_floating_point else edges(dtype), dtype).tolist()
        xs, ys = pairs_of(values)
        results = {
            operation: torch.tensor([function(x, y) for x, y in zip(xs, ys, strict=True)])
            for operation, function in COMPARISONS.items()
        }
        binary_case(f"comparison-{kind}", tensor_of(xs, dtype), tensor_of(ys, dtype), results)


@triton.jit
def divide(x, y):
    return x / y


@triton.jit
def divide_exactly(x, y):
    return tl.div_rn(x, y)


@triton.jit
def remainder(x, y):
    return x % y


def add_float_cases():
    with np.errstate(all="ignore"):
        exact = {add: np.add, sub: np.subtract, mul: np.multiply}
        chosen = {largest: np.fmax, smallest: np.fmin, largest_or_nan: np.maximum, smallest_or_nan: np.minimum}
        divisions = {divide: np.divide, remainder: np.fmod}
        for kind in ("f16", "bf16", "f32", "f64"):
            dtype = FLOATS[kind]
            xs, ys = pairs_of(SPECIALS)
            x, y = tensor_of(xs, dtype), tensor_of(ys, dtype)
            a, b = (value.to(torch.float64 if kind == "f64" else torch.float32).numpy() for value in (x, y))
            results = {operation: function(a, b) for operation, function in {**exact, **chosen}.items()}
            unlike_zeros = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
            for operation in chosen:
                zero = a.dtype.type(0.0 if operation in (largest, largest_or_nan) else -0.0)
                results[operation] = np.where(unlike_zeros, zero, results[operation])
            if kind == "f32":
                results[divide_exactly] = np.divide(a, b)
            binary_case(
                kind, x, y, {operation: torch.from_numpy(result).to(dtype) for operation, result in results.items()}
            )
            if kind in ("f32", "f64"):
                # A GPU's division is within 2 units in the last place, and its remainder is computed from that.
                x, y = normal(256, dtype=dtype), normal(256, dtype=dtype, seed=1)
                results = {
                    operation: torch.from_numpy(function(x.numpy(), y.numpy()))
                    for operation, function in divisions.items()
                }
                binary_case(f"division-{kind}", x, y, results, beside=2.0**-20)


@triton.jit
def negate(x):
    return -x


@triton.jit
def invert(x):
    return ~x


@triton.jit
def negation(x):
    return not x


@triton.jit
def absolute(x):
    return tl.abs(x)


def add_unary_cases():
    functions = {negate: lambda x: -x, invert: lambda x: ~x, absolute: abs}
    for kind, dtype in INTEGERS.items():
        x = edges(dtype)
        results = {operation: tensor_of(list(map(function, x)), dtype) for operation, function in functions.items()}
        unary_case(kind, tensor_of(x, dtype), results)
    for kind in ("f16", "bf16", "f32", "f64"):
        x = tensor_of(SPECIALS, FLOATS[kind])
        unary_case(kind, x, {negate: 0 - x, absolute: x.abs()})  # Triton's minus subtracts from +0


@triton.jit
def exponential(x):
    return tl.exp(x)


@triton.jit
def exponential_of_two(x):
    return tl.exp2(x)


@triton.jit
def logarithm(x):
    return tl.log(x)


@triton.jit
def logarithm_of_two(x):
    return tl.log2(x)


@triton.jit
def sine(x):
    return tl.sin(x)


@triton.jit
def cosine(x):
    return tl.cos(x)


@triton.jit
def root(x):
    return tl.sqrt(x)


@triton.jit
def exact_root(x):
    return tl.sqrt_rn(x)


@triton.jit
def inverse_root(x):
    return tl.rsqrt(x)


@triton.jit
def error_function(x):
    return tl.erf(x)


@triton.jit
def round_down(x):
    return tl.floor(x)


@triton.jit
def round_up(x):
    return tl.ceil(x)


@triton.jit
def logistic(x):
    return tl.sigmoid(x)


@triton.jit
def hyperbolic(x):
    return libdevice.tanh(x)


@triton.jit
def fused(x):
    return tl.fma(x, x, -x)


FUNCTIONS = {
    exponential: torch.exp,
    exponential_of_two: torch.exp2,
    logarithm: torch.log,
    logarithm_of_two: torch.log2,
    sine: torch.sin,
    cosine: torch.cos,
    root: torch.sqrt,
    inverse_root: torch.rsqrt,
    error_function: torch.erf,
    logistic: torch.sigmoid,
    hyperbolic: torch.tanh,
    fused: lambda x: x * x - x,
}


def add_function_cases():
    x = torch.cat([tensor_of([0.0, -0.0, 1.0, 0.5, INF, NAN, 1e-30, 2.0], torch.float32), normal(56).abs() * 4])
    unary_case("functions", x, {operation: function(x.double()).float() for operation, function in FUNCTIONS.items()},
               error=2.0**-21)  # fmt: skip
    unary_case("rounding", x, {round_down: x.floor(), round_up: x.ceil(), exact_root: x.double().sqrt().float()})


@core.builtin
def compared(x, y, predicate, _semantic=None):
    """Compare by a predicate of MLIR that no operator of Triton's language stands for."""
    make = getattr(_semantic.builder, f"create_fcmp{core._unwrap_if_constexpr(predicate)}")
    return core.tensor(make(x.handle, y.handle), core.block_type(core.int1, x.type.shape))


@triton.jit
def by_predicate(x_ptr, y_ptr, outs, PREDICATES: tl.constexpr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x, y = tl.load(x_ptr + offs), tl.load(y_ptr + offs)
    for i in tl.static_range(len(outs)):
        tl.store(outs[i] + offs, compared(x, y, PREDICATES[i]))


def add_predicate_cases():
    xs, ys = pairs_of(SPECIALS)
    names = {"GT": greater, "GE": greater_or_equal, "LT": less, "LE": less_or_equal, "EQ": equal, "NE": unequal}
    expected = {}
    for ordered, (name, operation) in itertools.product("OU", names.items()):
        expected[ordered + name] = torch.tensor([
            ordered == "U" if x != x or y != y else COMPARISONS[operation](x, y) for x, y in zip(xs, ys, strict=True)
        ])  # fmt: skip
    x, y = tensor_of(xs, torch.float32), tensor_of(ys, torch.float32)
    arguments = {"x_ptr": x, "y_ptr": y, "PREDICATES": tuple(expected), "N": 256}
    case_of_outs(by_predicate, arguments, expected.values())


@triton.jit
def choose(x_ptr, y_ptr, out_ptr, low, high, N: tl.constexpr, PROPAGATE: tl.constexpr):
    offs = tl.arange(0, N)
    x, y = tl.load(x_ptr + offs), tl.load(y_ptr + offs)
    nan: tl.constexpr = tl.PropagateNan.ALL if PROPAGATE else tl.PropagateNan.NONE
    limited = tl.clamp(x, low, high, propagate_nan=nan)
    tl.store(out_ptr + offs, limited)
    tl.store(out_ptr + N + offs, tl.where(x > y, x, y))
    tl.store(out_ptr + 2 * N + offs, tl.where(low > high, x, y))


def add_choice_cases():
    xs, ys = pairs_of(SPECIALS)
    x, y = tensor_of(xs, torch.float32), tensor_of(ys, torch.float32)
    for propagate in (False, True):
        limited = x.clamp(-1.5, 2.0)
        limited = limited if propagate else torch.where(x.isnan(), -1.5, limited)
        case(choose, {"x_ptr": x, "y_ptr": y, "out_ptr": blank(768), "low": -1.5, "high": 2.0, "N": 256,
                      "PROPAGATE": propagate},
             {"out_ptr": torch.cat([limited, torch.where(x > y, x, y), y])}, f"nan-{propagate}")  # fmt: skip


add_integer_cases()
add_comparison_cases()
add_float_cases()
add_unary_cases()
add_function_cases()
add_predicate_cases()
add_choice_cases()


# Conversions


@triton.jit
def convert(x_ptr, outs, N: tl.constexpr):
    """Store x as each of the types of outs."""
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    for i in tl.static_range(len(outs)):
        tl.store(outs[i] + offs, x.to(outs[i].dtype.element_ty))


@triton.jit
def convert_towards_zero(x_ptr, outs, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    for i in tl.static_range(len(outs)):
        tl.store(outs[i] + offs, x.to(outs[i].dtype.element_ty, fp_downcast_rounding="rtz"))


@triton.jit
def reinterpret(x_ptr, outs, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    for i in tl.static_range(len(outs)):
        tl.store(outs[i] + offs, x.to(outs[i].dtype.element_ty, bitcast=True))


@lru_cache
def finite_values(dtype):
    """Return the finite values of a float type of 8 or 16 bits that are not negative, in order."""
    bits = torch.arange(2 ** (bits_of(dtype) - 1), dtype=torch.int32)
    values = bits.to(torch.uint8 if bits_of(dtype) == 8 else torch.int16).view(dtype).double()
    return values[values.isfinite()].tolist()


def nearest(value, dtype, towards_zero=False):
    """Return a number rounded once to a float type, ties to even; fp8 saturates, as a GPU's conversion does."""
    if isinstance(value, float) and not math.isfinite(value):
        saturates = bits_of(dtype) == 8 and not math.isnan(value)
        return math.copysign(finite_values(dtype)[-1], value) if saturates else value
    sign = -1.0 if math.copysign(1.0, value) < 0 else 1.0
    if dtype == torch.float64:
        return float(value)
    if dtype == torch.float32:
        with np.errstate(over="ignore"):
            return round_integer(value, 24) if isinstance(value, int) else float(np.float32(value))
    value, values = abs(value), finite_values(dtype)
    at = bisect_left(values, value)
    if at == len(values):
        largest_one, step = values[-1], values[-1] - values[-2]
        beyond = bits_of(dtype) != 8 and not towards_zero and value >= largest_one + step / 2
        return sign * (INF if beyond else largest_one)
    if values[at] == value:
        return sign * values[at]
    low, high = values[at - 1], values[at]
    to_low, to_high = Fraction(value) - Fraction(low), Fraction(high) - Fraction(value)
    down = towards_zero or to_low < to_high or (to_low == to_high and (at - 1) % 2 == 0)
    return sign * (low if down else high)


def round_integer(value, digits):
    """Return an integer rounded to so many binary digits, ties to even, as a float."""
    excess = max(0, abs(value).bit_length() - digits)
    rounded = round(Fraction(value, 2**excess)) * 2**excess
    return float(rounded)


def converted(value, source, target):
    """Return what a value is in another type: integers wrap, floats saturate into integers of 16 bits or more.

    8 bits are the lower half of 16. NaN becomes the least integer in 64 bits, and from float64 everywhere; else 0.
    """
    if target == source:
        return value
    if target == torch.bool:
        return value != 0
    if (source, target) == (torch.float8_e5m2, torch.bfloat16) and not math.isfinite(value):
        return next_numbers(value)
    if target.is_floating_point:
        return nearest(value, target)
    if not source.is_floating_point:
        return wrapped(int(value), target)
    low, high = range_of({torch.int8: torch.int16, torch.uint8: torch.uint16}.get(target, target))
    if math.isnan(value):
        return (
            wrapped(1 << (max(16, 8 * target.itemsize) - 1), target)
            if source == torch.float64 or high >= 2**63 - 1
            else 0
        )
    return wrapped(low if value < low else high if value > high else int(value), target)


def next_numbers(value):
    """Return what infinity and the NaN of e5m2 are in bf16, where a GPU takes them for the numbers that come next."""
    return math.copysign(114688.0 if math.isnan(value) else 65536.0, value)


def sources_of(dtype):
    """Return values of a type at which conversions differ."""
    if not dtype.is_floating_point:
        return edges(dtype)
    numbers = [0.0, -0.0, 1.0, -1.5, 2.5, -2.5, 127.6, -129.0, 255.5, 448.0, 464.0, -465.0, 65504.0, 65520.0, 1e9, -3e9]
    numbers += [2.0**31, -(2.0**31), 2.0**63, 2.0**64, 1e30, INF, -INF, NAN, 2.0**-9, 2.0**-10, 3 * 2.0**-11, 2.0**-16,
                2.0**-17, 2.0**-24, 2.0**-25, 1e-40, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-23, 1 + 2.0**-11,
                1 + 2.0**-11 + 2.0**-23, 1 + 2.0**-4, 1 + 3 * 2.0**-4, 1 + 2.0**-3, 57344.0, -61441.0]  # fmt: skip
    if dtype == torch.float64:
        numbers += [1 + 2.0**-24 + 2.0**-50, 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-11 + 2.0**-40, 1e300, 2.0**53 + 2]
    numbers += [0.7] * (64 - len(numbers))
    return tensor_of(numbers, dtype).double().tolist()


def add_conversion_cases():
    for kind, source in NUMBERS.items():
        values = sources_of(source)
        x = tensor_of(values, source)
        # Triton converts fp8 to and from floats alone, and a GPU's compiler not all of these.
        targets = [target for target in NUMBERS.values() if not {source, target} & FP8]
        rare = []
        if source.is_floating_point:
            rare = [target for target in FLOATS.values() if is_rare(source, target)]
            targets = [t for t in NUMBERS.values() if t not in rare and (t.is_floating_point or source not in FP8)]
        if rare:
            add_conversion(x, values, rare, f"{kind}-rare", "a GPU's compiler has no such conversion of fp8")
        add_conversion(x, values, targets, kind)


def is_rare(source, target):
    others = {source, target} - FP8
    return source != target and (not others or (torch.float64 in others and len(others) == 1))


def add_conversion(x, values, targets, name, refused=""):
    results = [tensor_of([converted(value, x.dtype, target) for value in values], target) for target in targets]
    case_of_outs(convert, {"x_ptr": x, "N": len(values)}, results, name, refused=refused)


def add_truncation_cases():
    values = sources_of(torch.float32)
    finite = [value if math.isfinite(value) else 0.3 for value in values]
    x = tensor_of(finite, torch.float32)
    results = [tensor_of([nearest(v, t, True) for v in x.tolist()], t) for t in (torch.float16, torch.bfloat16)]
    case_of_outs(convert_towards_zero, {"x_ptr": x, "N": 64}, results, "f32")


def add_reinterpretation_cases():
    for bits, kinds in {
        8: ["int8", "uint8", "e4m3", "e5m2"],
        16: ["int16", "uint16", "f16", "bf16"],
        32: ["int32", "uint32", "f32"],
        64: ["int64", "uint64", "f64"],
    }.items():
        patterns = [0, 1, 2**bits - 1, 2 ** (bits - 1), 2 ** (bits - 1) - 1, 0x55 % 2**bits, 3 << (bits - 3), 12345]
        for kind in kinds:
            x = tensor_of(patterns, INTEGERS[f"int{bits}"])
            results = [x.view(NUMBERS[other]) for other in kinds if other != kind]
            case_of_outs(reinterpret, {"x_ptr": x.view(NUMBERS[kind]), "N": 8}, results, kind)


add_conversion_cases()
add_truncation_cases()
add_reinterpretation_cases()


# Memory


@triton.jit
def copy_masked(x_ptr, y_ptr, z_ptr, n, other, N: tl.constexpr):
    """Copy n elements: with `other` behind them to y, and nothing behind them to z."""
    offs = tl.program_id(0) * N + tl.arange(0, N)
    mask = offs < n
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=mask, other=other, eviction_policy="evict_last"))
    x = tl.load(x_ptr + offs, mask=mask, volatile=True)
    tl.store(z_ptr + offs, x, mask=mask, cache_modifier=".cg")


@triton.jit
def copy_number(x_ptr, y_ptr, flag, N: tl.constexpr):
    """Copy single elements, under masks of one number."""
    tl.store(y_ptr, tl.load(x_ptr + 1))
    tl.store(y_ptr + 1, tl.load(x_ptr + 2, mask=flag > 0, other=7))
    tl.store(y_ptr + 2, tl.load(x_ptr + 3, mask=flag > 1, other=7))
    tl.store(y_ptr + 3, tl.load(x_ptr), mask=flag > 1)
    for i in tl.static_range(N):
        tl.store(y_ptr + 4 + i, i)


@triton.jit
def copy_tile(x_ptr, y_ptr, rows, columns, stride_xm, stride_xn, M: tl.constexpr, N: tl.constexpr):
    """Copy a matrix of any strides tile by tile, on a grid of two axes."""
    offs_m = tl.program_id(0) * M + tl.arange(0, M)
    offs_n = tl.program_id(1) * N + tl.arange(0, N)
    mask = (offs_m[:, None] < rows) & (offs_n[None, :] < columns)
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask, other=0)
    tl.store(y_ptr + offs_m[:, None] * columns + offs_n[None, :], x, mask=mask)


@triton.jit
def choose_pointers(x_ptr, y_ptr, out_ptr, flag, N: tl.constexpr):
    """Read from one of two tensors: chosen by a number, by an if, and for each element."""
    offs = tl.arange(0, N)
    pointer = tl.where(flag > 0, x_ptr, y_ptr)
    tl.store(out_ptr + offs, tl.load(pointer + offs))
    if flag > 0:  # noqa: SIM108
        pointer = y_ptr
    else:
        pointer = x_ptr
    tl.store(out_ptr + N + offs, tl.load(pointer + offs))
    pointers = tl.where(offs % 3 == 0, x_ptr + offs, y_ptr + offs)
    tl.store(out_ptr + 2 * N + offs, tl.load(pointers))


@triton.jit
def as_other_width(x_ptr, out_ptr, N: tl.constexpr):
    """Read float32 through a pointer to bytes, and bytes through a pointer to int32."""
    offs = tl.arange(0, N)
    tl.store(out_ptr + offs, tl.load(x_ptr.to(tl.pointer_type(tl.uint8)) + offs).to(tl.int32))
    tl.store(out_ptr + N + offs, tl.load(x_ptr.to(tl.pointer_type(tl.int32)) + offs))


def add_memory_cases():
    for kind, dtype in NUMBERS.items():
        x = tensor_of(([0, 1, 1, 0, 1] if dtype == torch.bool else [1, 2, 3, 5, 7]) * 6, dtype)
        other = True if dtype == torch.bool else 9.0 if dtype.is_floating_point else 9
        behind = tensor_of([other] * 34, dtype)
        case(copy_masked, {"x_ptr": x, "y_ptr": blank(64, dtype=dtype), "z_ptr": blank(64, dtype=dtype), "n": 30,
                           "other": other, "N": 16},
             {"y_ptr": torch.cat([x.view(torch.uint8), behind.view(torch.uint8)]).view(dtype),
              "z_ptr": torch.cat([x.view(torch.uint8), blank(64, dtype=dtype)[30:].view(torch.uint8)]).view(dtype)},
             kind, grid=(4,))  # fmt: skip
    x = torch.arange(10, 14, dtype=torch.int32)
    case(copy_number, {"x_ptr": x, "y_ptr": blank(6, dtype=torch.int32), "flag": 1, "N": 2},
         {"y_ptr": torch.tensor([11, 12, 7, 0x55555555, 0, 1], dtype=torch.int32)})  # fmt: skip
    matrix = normal(33, 20)
    for name, (stride_m, stride_n, view) in {
        "rows": (20, 1, matrix),
        "columns": (1, 33, matrix.view(20, 33).t()),
        "repeated": (0, 1, matrix[:1].expand(33, 20)),
        "every-second": (20, 2, matrix[:, ::2]),
    }.items():
        rows, columns = view.shape
        case(copy_tile, {"x_ptr": matrix, "y_ptr": blank(rows, columns), "rows": rows, "columns": columns,
                         "stride_xm": stride_m, "stride_xn": stride_n, "M": 16, "N": 8},
             {"y_ptr": view.contiguous()}, name, grid=(3, 3))  # fmt: skip
    x, y = normal(16), normal(16, seed=1)
    for flag in (0, 1):
        first, second = (x, y) if flag else (y, x)
        mixed = torch.where(torch.arange(16) % 3 == 0, x, y)
        case(choose_pointers, {"x_ptr": x, "y_ptr": y, "out_ptr": blank(48), "flag": flag, "N": 16},
             {"out_ptr": torch.cat([first, second, mixed])}, str(flag))  # fmt: skip
    case(as_other_width, {"x_ptr": x, "out_ptr": blank(32, dtype=torch.int32), "N": 16},
         {"out_ptr": torch.cat([x.view(torch.uint8)[:16].int(), x.view(torch.int32)])})  # fmt: skip


add_memory_cases()


# Layout


@triton.jit
def rearrange(x_ptr, y_ptr, outs, M: tl.constexpr, N: tl.constexpr):
    offs_m, offs_n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :])
    y = tl.load(y_ptr + offs_n)
    flat, half = tl.arange(0, M * N), tl.arange(0, M * N // 2)
    tl.store(outs[0] + flat, tl.ravel(x + y))
    tl.store(outs[1] + flat, tl.ravel(tl.trans(x)))
    tl.store(outs[2] + flat, tl.reshape(x, (M * N,)))
    cube = tl.reshape(x, (2, M // 2, N))
    tl.store(outs[3] + flat, tl.ravel(tl.permute(cube, (2, 0, 1))))
    low, high = tl.split(tl.reshape(x, (M, N // 2, 2)))
    tl.store(outs[4] + half, tl.ravel(low))
    tl.store(outs[5] + half, tl.ravel(high))
    tl.store(outs[6] + flat, tl.ravel(tl.join(low, high)))
    tl.store(outs[7] + flat, tl.ravel(tl.interleave(high, low)))
    tl.store(outs[8] + flat, tl.ravel(tl.broadcast_to(tl.expand_dims(y, 0), (M, N))))
    tl.store(outs[9] + flat, tl.ravel(tl.full((M, N), 2.5, tl.float32) + tl.zeros((M, 1), tl.float32)))
    tl.store(outs[10] + flat, tl.ravel(tl.flip(x, 1)))
    tl.store(outs[11] + flat, tl.ravel(tl.flip(x, 0)))
    tl.store(outs[12] + tl.arange(0, 2 * N), tl.sort(tl.cat(y, y + 1, can_reorder=True)))
    tl.store(outs[13] + tl.arange(0, 2), tl.join(tl.sum(y), tl.max(y)))
    tl.store(outs[14], tl.reshape(tl.load(y_ptr + tl.arange(0, 1)), (1, 1)).item())


def add_layout_cases():
    for rows, columns in ((4, 8), (16, 4)):
        x, y = whole(rows, columns, low=-99, high=99).float(), torch.arange(columns).float()
        low, high = x[:, ::2], x[:, 1::2]
        results = [
            x + y, x.t(), x, x.view(2, rows // 2, columns).permute(2, 0, 1), low, high, x,
            torch.stack([high, low], 2), y.expand(rows, columns), torch.full((rows, columns), 2.5), x.flip(1),
            x.flip(0), torch.cat([y, y + 1]).sort().values, torch.stack([y.sum(), y.max()]), y[:1],
        ]  # fmt: skip
        arguments = {"x_ptr": x, "y_ptr": y, "M": rows, "N": columns}
        case_of_outs(rearrange, arguments, [result.reshape(-1) for result in results], f"{rows}x{columns}")


@triton.jit
def pick_from(x_ptr, index_ptr, outs, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    offs_m, offs_n, offs_k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :])
    along_rows = tl.load(index_ptr + offs_m[:, None] * K + offs_k[None, :])
    tl.store(outs[0] + offs_m[:, None] * K + offs_k[None, :], tl.gather(x, along_rows, 1))
    along_columns = tl.load(index_ptr + offs_k[:, None] * N + offs_n[None, :]) % M
    tl.store(outs[1] + offs_k[:, None] * N + offs_n[None, :], tl.gather(x, along_columns, 0))


@triton.jit
def count_values(x_ptr, counts_ptr, some_ptr, n, N: tl.constexpr, BINS: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    bins = tl.program_id(0) * BINS + tl.arange(0, BINS)
    tl.store(counts_ptr + bins, tl.histogram(x, BINS))
    tl.store(some_ptr + bins, tl.histogram(x, BINS, mask=offs < n))


def add_picking_cases():
    for kind in ("int32", "f32", "f16"):
        x = whole(8, 32, low=-99, high=99).to(NUMBERS[kind])
        index = whole(32, 32, low=0, high=32)
        results = x.gather(1, index[:8].long()), x.gather(0, index.long() % 8)
        case_of_outs(pick_from, {"x_ptr": x, "index_ptr": index, "M": 8, "N": 32, "K": 32}, results, kind)
    x = whole(128, low=0, high=16)
    counts = torch.stack([part.bincount(minlength=16) for part in x.view(4, 32)]).int()
    kept = torch.where(torch.arange(128) < 75, x, 16)
    some = torch.stack([part.bincount(minlength=17)[:16] for part in kept.view(4, 32)]).int()
    case(count_values, {"x_ptr": x, "counts_ptr": blank(4, 16, dtype=torch.int32),
                        "some_ptr": blank(4, 16, dtype=torch.int32), "n": 75, "N": 32, "BINS": 16},
         {"counts_ptr": counts, "some_ptr": some}, grid=(4,))  # fmt: skip


add_layout_cases()
add_picking_cases()


# Reductions, scans, sorting


@triton.jit
def reduce_floats(x_ptr, outs, M: tl.constexpr, N: tl.constexpr):
    offs_m, offs_n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :])
    tl.store(outs[0] + offs_m, tl.sum(x, 1))
    tl.store(outs[1] + offs_n, tl.sum(x, 0))
    tl.store(outs[2], tl.sum(x))
    tl.store(outs[3] + offs_m, tl.max(x, 1))
    tl.store(outs[4] + offs_n, tl.min(x, 0))
    tl.store(outs[5] + offs_m, tl.argmax(x, 1))
    tl.store(outs[6] + offs_n, tl.argmin(x, 0))
    value, index = tl.min(x, 1, return_indices=True, keep_dims=True)
    tl.store(outs[7] + offs_m[:, None], value)
    tl.store(outs[8] + offs_m[:, None], index)


@triton.jit
def reduce_integers(x_ptr, outs, M: tl.constexpr, N: tl.constexpr):
    offs_m, offs_n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :])
    tl.store(outs[0] + offs_m, tl.sum(x, 1))
    tl.store(outs[1] + offs_n, tl.max(x, 0))
    tl.store(outs[2] + offs_m, tl.min(x, 1))
    tl.store(outs[3] + offs_m, tl.xor_sum(x, 1))
    tl.store(outs[4] + offs_n, tl.reduce_or(x, 0))
    tl.store(outs[5] + offs_m, tl.argmax(x, 1))
    tl.store(outs[6] + offs_n, tl.argmin(x, 0))
    tl.store(outs[7] + offs_m, tl.sum((x > 0), 1))


@triton.jit
def line_after(a, b, c, d):
    """Apply x → a x + b and then x → c x + d, as one line."""
    return a * c, b * c + d


@triton.jit
def complex_product(a, b, c, d):
    return a * c - b * d, a * d + b * c


@triton.jit
def combine_pairs(x_ptr, y_ptr, outs, M: tl.constexpr, N: tl.constexpr):
    """Reduce by a function that may change sides, and scan by one that must not."""
    offs_m, offs_n = tl.arange(0, M), tl.arange(0, N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    x, y = tl.load(x_ptr + offs), tl.load(y_ptr + offs)
    a, b = tl.reduce((x, y), 1, complex_product)
    tl.store(outs[0] + offs_m, a + 0.0)  # no zero keeps a sign, which depends on the order
    tl.store(outs[1] + offs_m, b + 0.0)
    a, b = tl.associative_scan((x, y), 1, line_after)
    tl.store(outs[2] + offs, a)
    tl.store(outs[3] + offs, b)
    a, b = tl.associative_scan((x, y), 0, line_after)
    tl.store(outs[4] + offs, a)
    tl.store(outs[5] + offs, b)
    a, b = tl.associative_scan((x, y), 1, line_after, reverse=True)
    tl.store(outs[6] + offs, a)
    tl.store(outs[7] + offs, b)


@triton.jit
def larger(x, y):
    return tl.where(x > y, x, y)


@triton.jit
def smaller(x, y):
    return tl.where(x < y, x, y)


@triton.jit
def scan(x_ptr, outs, M: tl.constexpr, N: tl.constexpr):
    offs_m, offs_n = tl.arange(0, M), tl.arange(0, N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    x = tl.load(x_ptr + offs)
    tl.store(outs[0] + offs, tl.cumsum(x, 0))
    tl.store(outs[1] + offs, tl.cumsum(x, 1))
    tl.store(outs[2] + offs, tl.cumsum(x, 1, reverse=True))
    tl.store(outs[3] + offs, tl.cumprod(x, 1))
    tl.store(outs[4] + offs, tl.associative_scan(x, 1, larger))
    tl.store(outs[5] + offs, tl.associative_scan(x, 0, smaller, reverse=True))


@triton.jit
def order(x_ptr, outs, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    offs_m, offs_n, offs_k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    offs = offs_m[:, None] * N + offs_n[None, :]
    x = tl.load(x_ptr + offs)
    tl.store(outs[0] + offs, tl.sort(x))
    tl.store(outs[1] + offs, tl.sort(x, descending=True))
    tl.store(outs[2] + offs_m[:, None] * K + offs_k[None, :], tl.topk(x, K))


def add_reduction_cases():
    for kind in ("f16", "bf16", "f32", "f64"):
        dtype = FLOATS[kind]
        x = whole(16, 8, low=-3, high=4).to(dtype) / 4  # sums are exact, and there are ties
        case_of_outs(reduce_floats, {"x_ptr": x, "M": 16, "N": 8}, reduced_floats(x), f"exact-{kind}")
    for kind, error in {"f16": 2.0**-8, "bf16": 2.0**-5, "f32": 2.0**-21, "f64": 2.0**-50}.items():
        x = normal(16, 64).abs().to(FLOATS[kind])
        case_of_outs(reduce_floats, {"x_ptr": x, "M": 16, "N": 64}, reduced_floats(x), f"random-{kind}", error=error)
    for kind, dtype in INTEGERS.items():
        values = whole(64, low=-(2**62), high=2**62, dtype=torch.int64).tolist() + [*range_of(dtype)] * 32
        values = np.array([wrapped(value, dtype) for value in values], object).reshape(16, 8)
        total = dtype if bits_of(dtype) >= 32 else (torch.int32 if is_signed(dtype) else torch.uint32)
        index = torch.int32
        results = [
            (values.sum(1), total), (values.max(0), dtype), (values.min(1), dtype),
            (np.bitwise_xor.reduce(values, 1), dtype), (np.bitwise_or.reduce(values, 0), dtype),
            (values.argmax(1), index), (values.argmin(0), index), ((values > 0).sum(1), index),
        ]  # fmt: skip
        results = [tensor_of(list(map(int, result)), dtype) for result, dtype in results]
        x = tensor_of(values.ravel().tolist(), dtype)
        case_of_outs(reduce_integers, {"x_ptr": x, "M": 16, "N": 8}, results, kind)


def reduced_floats(x):
    sums = [x.double().sum(1), x.double().sum(0), x.double().sum().view(1)]
    least_of_row = x.amin(1, keepdim=True)
    places = [
        first(x == x.amax(1, keepdim=True), 1),
        first(x == x.amin(0, keepdim=True), 0),
        first(x == least_of_row, 1),
    ]
    return [*(total.to(x.dtype) for total in sums), x.amax(1), x.amin(0), *places[:2], least_of_row.view(-1), places[2]]


def first(true, axis):
    """Return the first index along an axis at which a tensor is true."""
    return true.int().argmax(axis).int()


def along_lines(x, y, axis, reverse=False):
    """Return the composition of the lines up to each place along an axis, one after the other in float64."""
    a, b = (np.moveaxis(v.double().numpy(), axis, 0) for v in (x, y))
    a, b = (v[::-1].copy() if reverse else v.copy() for v in (a, b))
    for i in range(1, len(a)):
        a[i], b[i] = a[i - 1] * a[i], b[i - 1] * a[i] + b[i]
    return tuple(torch.from_numpy(np.moveaxis(v[::-1] if reverse else v, 0, axis).copy()).float() for v in (a, b))


def add_scan_cases():
    x, y = whole(8, 16, low=0, high=2).float() * 2 - 1, whole(8, 16, low=-1, high=2, seed=1).float()
    a, b = along_lines(x, y, 1)
    product = torch.complex(x, y).prod(1)
    results = [product.real + 0.0, product.imag + 0.0, a, b, *along_lines(x, y, 0), *along_lines(x, y, 1, reverse=True)]
    case_of_outs(combine_pairs, {"x_ptr": x, "y_ptr": y, "M": 8, "N": 16}, results)
    for kind in ("int8", "int32", "int64", "uint32", "f16", "bf16", "f32", "f64"):
        dtype = NUMBERS[kind]
        x = whole(8, 16, low=1 if kind == "uint32" else -2, high=3)
        x = torch.where(x == 0, 1, x).to(dtype)
        exact = np.array(x.double().tolist(), object) if dtype.is_floating_point else np.array(x.tolist(), object)
        # Sums of short integers are computed in 32 bits; products wrap in their own type.
        results = [exact.cumsum(0), exact.cumsum(1), exact[:, ::-1].cumsum(1)[:, ::-1], exact.cumprod(1),
                   np.maximum.accumulate(exact, 1), np.minimum.accumulate(exact[::-1], 0)[::-1]]  # fmt: skip
        results = [tensor_of(result.ravel().tolist(), dtype).reshape(8, 16) for result in results]
        case_of_outs(scan, {"x_ptr": x, "M": 8, "N": 16}, results, kind)


def add_order_cases():
    for kind in ("int8", "int32", "uint32", "int64", "f16", "f32", "bf16", "f64"):
        dtype = NUMBERS[kind]
        low, high = (0, 100) if not dtype.is_signed else (-100, 100)
        x = whole(4, 32, low=low, high=high, dtype=torch.int64)
        if dtype.is_floating_point:
            x = x.double()
            x[0, :4] = torch.tensor([INF, -INF, 0.5, 1e-3])
        up = x.sort(1).values
        down = up.flip(1)
        results = [up.to(dtype), down.to(dtype), down[:, :4].contiguous().to(dtype)]
        case_of_outs(order, {"x_ptr": x.to(dtype), "M": 4, "N": 32, "K": 4}, results, kind)


add_reduction_cases()
add_scan_cases()
add_order_cases()


# Matrix products


@triton.jit
def load_tile(x_ptr, M: tl.constexpr, N: tl.constexpr):
    return tl.load(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])


@triton.jit
def store_tile(x_ptr, x, M: tl.constexpr, N: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], x)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    a, b, c = load_tile(a_ptr, M, K), load_tile(b_ptr, K, N), load_tile(c_ptr, M, N)
    out = tl.dot(a, b, c, input_precision=PRECISION, out_dtype=out_ptr.dtype.element_ty)
    store_tile(out_ptr, out, M, N)


@triton.jit
def products(a_ptr, b_ptr, out_ptr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    a = tl.reshape(load_tile(a_ptr, B * M, K), (B, M, K))
    b = tl.reshape(load_tile(b_ptr, B * K, N), (B, K, N))
    store_tile(out_ptr, tl.reshape(tl.dot(a, b), (B * M, N)), B * M, N)


def cut(x):
    """Return float32 without the 13 bits of the fraction that a tensor core does not read."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def add_product_cases():
    M, N, K = 16, 32, 64
    for name, (kind, out, precision) in {
        "ieee": ("f32", "f32", "ieee"), "tf32": ("f32", "f32", "tf32"), "tf32x3": ("f32", "f32", "tf32x3"),
        "bf16x6": ("f32", "f32", "bf16x6"), "f16": ("f16", "f32", "ieee"), "bf16": ("bf16", "f32", "ieee"),
        "f16-in-f16": ("f16", "f16", "ieee"), "e4m3": ("e4m3", "f32", "ieee"), "e5m2": ("e5m2", "f32", "ieee"),
        "f64": ("f64", "f64", "ieee"), "int8": ("int8", "int32", "ieee"),
    }.items():  # fmt: skip
        dtype, result = NUMBERS[kind], NUMBERS[out]
        sizes = {"M": M, "N": N, "K": K, "PRECISION": precision}
        # Small integers leave nothing to round, in whatever order they are added.
        most = 128 if kind == "int8" else 4
        a, b = (whole(*shape, low=-most, high=most, seed=seed) for seed, shape in enumerate([(M, K), (K, N)]))
        c = whole(M, N, low=-9, high=9, seed=2)
        tensors = {
            "a_ptr": a.to(dtype),
            "b_ptr": b.to(dtype),
            "c_ptr": c.to(result),
            "out_ptr": blank(M, N, dtype=result),
        }
        case(product, {**tensors, **sizes}, {"out_ptr": (a.long() @ b.long() + c).to(result)}, f"{name}-exact")
        if kind != "int8":
            a, b, c = normal(M, K).to(dtype), normal(K, N, seed=1).to(dtype), normal(M, N, seed=2).to(result)
            wanted = (cut(a) if precision == "tf32" else a).double() @ (cut(b) if precision == "tf32" else b).double()
            # A Hopper GPU adds products of fp8 up with 14 bits, and those of tf32 without rounding to nearest.
            error = {"f16-in-f16": 2.0**-11, "f64": 2.0**-50}.get(name, 2.0**-21)
            beside = {"e4m3": 2.0**-11, "e5m2": 2.0**-11, "f16-in-f16": 2.0**-8}.get(name, 2.0**-18)
            tensors = {"a_ptr": a, "b_ptr": b, "c_ptr": c, "out_ptr": blank(M, N, dtype=result)}
            case(product, {**tensors, **sizes}, {"out_ptr": (wanted + c.double()).to(result)}, f"{name}-random",
                 error=error, beside=beside)  # fmt: skip
    for kind in ("f32", "f16"):
        a, b = (whole(3, *shape, low=-4, high=4).to(FLOATS[kind])[:2] for shape in ((16, 32), (32, 16)))
        tensors = {"a_ptr": a.reshape(32, 32), "b_ptr": b.reshape(64, 16), "out_ptr": blank(32, 16)}
        wanted = (a.float() @ b.float()).reshape(32, 16)
        case(products, {**tensors, "B": 2, "M": 16, "N": 16, "K": 32}, {"out_ptr": wanted}, kind)


@triton.jit
def scaled_product(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    A_FORMAT: tl.constexpr, B_FORMAT: tl.constexpr, A_K_PACK: tl.constexpr, B_K_PACK: tl.constexpr,
    A_SHAPE: tl.constexpr, B_SHAPE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    a, b = load_tile(a_ptr, A_SHAPE[0], A_SHAPE[1]), load_tile(b_ptr, B_SHAPE[0], B_SHAPE[1])
    a_scale = None if a_scale_ptr is None else load_tile(a_scale_ptr, M, K // 32)
    b_scale = None if b_scale_ptr is None else load_tile(b_scale_ptr, N, K // 32)
    out = tl.dot_scaled(
        a, a_scale, A_FORMAT, b, b_scale, B_FORMAT, fast_math=FAST, lhs_k_pack=A_K_PACK, rhs_k_pack=B_K_PACK
    )  # fmt: skip
    store_tile(out_ptr, out, M, N)


def operand_of(form, shape, pack_axis, seed):
    """Return a random operand of a scaled product as it lies in memory, and its values."""
    generator = torch.Generator().manual_seed(seed)
    if form == "e2m1":
        nibbles = torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8)
        number = MXFP4Tensor(size=shape)
        number.data = nibbles
        even, odd = (nibbles.index_select(pack_axis, torch.arange(i, shape[pack_axis], 2)) for i in (0, 1))
        return even | odd << 4, number.to(torch.float32).double()
    dtype = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": torch.bfloat16, "fp16": torch.float16}[
        form
    ]
    values = torch.randn(shape, generator=generator).to(dtype)
    return values, values.double()


def add_scaled_product_cases():
    M, N, K = 32, 16, 64
    generator = torch.Generator().manual_seed(0)
    for a_form, b_form, a_pack, b_pack, special in (
        ("e2m1", "e2m1", True, True, None), ("e2m1", "e2m1", False, False, None), ("e4m3", "e5m2", True, True, None),
        ("e5m2", "e2m1", True, True, None), ("bf16", "e2m1", True, True, None), ("e2m1", "fp16", True, True, None),
        ("e4m3", "e4m3", True, True, 255), ("e4m3", "e4m3", True, True, 0),
    ):  # fmt: skip
        a, a_values = operand_of(a_form, (M, K), 1 if a_pack else 0, 1)
        b, b_values = operand_of(b_form, (K, N), 0 if b_pack else 1, 2)
        scales = [torch.randint(120, 134, (size, K // 32), generator=generator, dtype=torch.uint8) for size in (M, N)]
        a_scale, b_scale = (
            None if form in ("bf16", "fp16") else scale for form, scale in zip((a_form, b_form), scales, strict=True)
        )
        if special is not None:
            a_scale[3, 1] = special
        factors = []
        for values, scale in ((a_values, a_scale), (b_values.t(), b_scale)):
            if scale is not None:
                power = torch.where(scale == 0, 0.0, 2.0 ** (scale.double() - 127))
                values = values * torch.where(scale == 255, NAN, power).repeat_interleave(32, 1)
            factors.append(values)
        wanted = (factors[0] @ factors[1].t()).float()
        name = f"{a_form}-{b_form}-{'k' if a_pack else 'm'}{'' if special is None else f'-{special}'}"
        case(scaled_product, {
                "a_ptr": a, "a_scale_ptr": a_scale, "b_ptr": b, "b_scale_ptr": b_scale, "out_ptr": blank(M, N), "M": M,
                "N": N, "K": K, "A_FORMAT": a_form, "B_FORMAT": b_form, "A_K_PACK": a_pack, "B_K_PACK": b_pack,
                "A_SHAPE": tuple(a.shape), "B_SHAPE": tuple(b.shape), "FAST": special == 0},
             {"out_ptr": wanted}, name, error=2.0**-20, beside=2.0**-16,
             refused="" if a_pack else "a Hopper GPU's compiler fails on rows that share bytes")  # fmt: skip


add_product_cases()
add_scaled_product_cases()


# Random numbers


@triton.jit
def draw(seed, outs, first, N: tl.constexpr):
    offs = first + tl.arange(0, N)
    at = tl.arange(0, N)
    tl.store(outs[0] + at, tl.randint(seed, offs))
    tl.store(outs[1] + at, tl.rand(seed, offs))
    tl.store(outs[2] + at, tl.randn(seed, offs))
    a, b, c, d = tl.randint4x(seed, offs)
    tl.store(outs[3] + at, a)
    tl.store(outs[4] + at, b)
    tl.store(outs[5] + at, c)
    tl.store(outs[6] + at, d)


def philox(seed, offset):
    """Return four random numbers of 32 bits (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)."""
    word = 2**32 - 1
    counter = [offset & word, offset >> 32 & word, 0, 0]
    key = [seed & word, seed >> 32 & word]
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [b >> 32 ^ counter[1] ^ key[0], b & word, a >> 32 ^ counter[3] ^ key[1], a & word]
        key = [key[0] + 0x9E3779B9 & word, key[1] + 0xBB67AE85 & word]
    return counter


def uniform(number):
    signed = number - 2**32 if number >> 31 else number
    return np.float32(-signed - 1 if signed < 0 else signed) * np.float32(4.6566127342e-10)


def add_random_cases():
    for seed, start in ((0, 0), (1234567, 10), (-5, 2**31 - 70), (2**40 + 3, 2**32 + 1)):
        numbers = [philox(seed, start + i) for i in range(64)]
        pairs = [(max(1e-7, float(uniform(a))), float(uniform(b))) for a, b, _, _ in numbers]
        normals = [math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v) for u, v in pairs]
        words = [torch.from_numpy(np.array(word, np.uint32)) for word in zip(*numbers, strict=True)]
        uniforms = torch.tensor([uniform(a) for a, _, _, _ in numbers])
        results = [words[0], uniforms, torch.tensor(normals).float(), *words]
        case_of_outs(draw, {"seed": seed, "first": start, "N": 64}, results, f"{seed}-{start}", error=2.0**-19)


add_random_cases()


# Atomics


@triton.jit
def update_integers(x_ptrs, y_ptr, outs, n, N: tl.constexpr):
    """Let every element of its own tensor take part in one atomic of each kind, and store what was there before."""
    offs = tl.program_id(0) * N + tl.arange(0, N)
    y, mask = tl.load(y_ptr + offs), offs < n
    tl.store(outs[0] + offs, tl.atomic_add(x_ptrs[0] + offs, y, mask=mask), mask=mask)
    tl.store(outs[1] + offs, tl.atomic_max(x_ptrs[1] + offs, y, mask=mask, sem="relaxed"), mask=mask)
    tl.store(outs[2] + offs, tl.atomic_min(x_ptrs[2] + offs, y, mask=mask, scope="cta"), mask=mask)
    tl.store(outs[3] + offs, tl.atomic_and(x_ptrs[3] + offs, y, mask=mask), mask=mask)
    tl.store(outs[4] + offs, tl.atomic_or(x_ptrs[4] + offs, y, mask=mask), mask=mask)
    tl.store(outs[5] + offs, tl.atomic_xor(x_ptrs[5] + offs, y, mask=mask), mask=mask)
    tl.store(outs[6] + offs, tl.atomic_xchg(x_ptrs[6] + offs, y, mask=mask), mask=mask)
    tl.store(outs[7] + offs, tl.atomic_cas(x_ptrs[7] + offs, (offs % 5).to(y.dtype), y))


@triton.jit
def update_floats(x_ptrs, y_ptr, outs, n, ALL: tl.constexpr, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    y, mask = tl.load(y_ptr + offs), offs < n
    tl.store(outs[0] + offs, tl.atomic_add(x_ptrs[0] + offs, y, mask=mask), mask=mask)
    if ALL:
        tl.store(outs[1] + offs, tl.atomic_max(x_ptrs[1] + offs, y, mask=mask), mask=mask)
        tl.store(outs[2] + offs, tl.atomic_min(x_ptrs[2] + offs, y, mask=mask), mask=mask)
        tl.store(outs[3] + offs, tl.atomic_xchg(x_ptrs[3] + offs, y, mask=mask), mask=mask)


@triton.jit
def update_together(total_ptr, most_ptr, bits_ptr, count_ptr, x_ptr, N: tl.constexpr):
    """Let all programs and lanes meet at a few elements."""
    pid = tl.program_id(0)
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + pid * N + offs)
    tl.atomic_add(total_ptr + offs % 4, x)
    tl.atomic_max(most_ptr + offs % 2, x)
    tl.atomic_xor(bits_ptr + offs * 0, x)
    tl.atomic_add(count_ptr, 1)
    if tl.atomic_add(count_ptr + 1, 1) == tl.num_programs(0) - 1:
        tl.store(count_ptr + 2, 99)


def add_atomic_cases():
    for kind in ("int32", "uint32", "int64", "uint64"):
        dtype = INTEGERS[kind]
        x, y = edges(dtype) * 2, [wrapped(3 * v + 1, dtype) for v in edges(dtype)[::-1]] * 2
        x = x[:16] + [i % 5 for i in range(16)]
        n = 29
        after = [
            [wrapped(a + b, dtype) for a, b in zip(x, y, strict=True)], list(map(max, x, y)), list(map(min, x, y)),
            [a & b for a, b in zip(x, y, strict=True)], [a | b for a, b in zip(x, y, strict=True)],
            [a ^ b for a, b in zip(x, y, strict=True)], y,
        ]  # fmt: skip
        swapped = [b if a == i % 5 else a for i, (a, b) in enumerate(zip(x, y, strict=True))]
        expected = {f"x_ptrs[{i}]": tensor_of(new[:n] + x[n:], dtype) for i, new in enumerate(after)}
        untouched = tensor_of([0x5555555555555555 % 2 ** bits_of(dtype)] * 3, dtype)
        old = torch.cat([tensor_of(x[:n], dtype).view(torch.uint8), untouched.view(torch.uint8)]).view(dtype)
        expected |= {f"outs[{i}]": old for i in range(7)}
        expected |= {"x_ptrs[7]": tensor_of(swapped, dtype), "outs[7]": tensor_of(x, dtype)}
        case(update_integers, {"x_ptrs": tuple(tensor_of(x, dtype) for _ in range(8)), "y_ptr": tensor_of(y, dtype),
                               "outs": tuple(blank(32, dtype=dtype) for _ in range(8)), "n": n, "N": 16},
             expected, kind, grid=(2,))  # fmt: skip
    for kind in ("f16", "bf16", "f32", "f64"):
        dtype = FLOATS[kind]
        everything = kind in ("f32", "f64")
        x, y = normal(32, dtype=dtype), normal(32, dtype=dtype, seed=1)
        x[:4], y[:4] = torch.tensor([1.0, -1.0, INF, -0.5]), torch.tensor([-2.0, -3.0, 1.0, 0.25])
        after = [(x.double() + y.double()).to(dtype), x.maximum(y), x.minimum(y), y][: 4 if everything else 1]
        inside = torch.arange(32) < 30
        expected = {f"x_ptrs[{i}]": torch.where(inside, new, x) for i, new in enumerate(after)}
        expected |= {f"outs[{i}]": torch.where(inside, x, blank(32, dtype=dtype)) for i in range(len(after))}
        case(update_floats, {"x_ptrs": tuple(x.clone() for _ in after), "y_ptr": y,
                             "outs": tuple(blank(32, dtype=dtype) for _ in after), "n": 30, "ALL": everything, "N": 16},
             expected, kind, grid=(2,))  # fmt: skip
    x = whole(5, 16)
    total = x.long().view(5, 4, 4).sum((0, 1))
    expected = {
        "total_ptr": tensor_of(total.tolist(), torch.int32),
        "most_ptr": x.view(5, 8, 2).amax((0, 1)),
        "bits_ptr": tensor_of([int(np.bitwise_xor.reduce(x.numpy().ravel()))], torch.int32),
        "count_ptr": torch.tensor([5, 5, 99], dtype=torch.int32),
    }
    zeros = {name: torch.zeros(len(value), dtype=torch.int32) for name, value in expected.items()}
    case(update_together, {**zeros, "most_ptr": torch.full((2,), -(2**31), dtype=torch.int32), "x_ptr": x, "N": 16},
         expected, grid=(5,))  # fmt: skip


add_atomic_cases()


# Descriptors and block pointers


@triton.jit
def copy_by_descriptors(
    x_ptr, y_ptr, shape, strides, BLOCK: tl.constexpr, FROM: tl.constexpr, TO: tl.constexpr, PADDING: tl.constexpr
):  # fmt: skip
    """Load one block with a descriptor that is made here and store it with another."""
    source = tl.make_tensor_descriptor(x_ptr, shape, strides, BLOCK.value, padding_option=PADDING)
    target = tl.make_tensor_descriptor(y_ptr, shape, strides, BLOCK.value)
    target.store(TO.value, source.load(FROM.value))


@triton.jit
def copy_by_arguments(source, target, FROM: tl.constexpr, TO: tl.constexpr):
    target.store(TO.value, source.load(FROM.value))


def moved_block(x, y, block, start, to, padding):
    """Return y after the block of x at `start` was stored at `to`, element by element."""
    result = y.clone()
    for index in itertools.product(*map(range, block)):
        a, b = ([o + i for o, i in zip(offsets, index, strict=True)] for offsets in (start, to))
        if all(0 <= i < n for i, n in zip(b, y.shape, strict=True)):
            inside = all(0 <= i < n for i, n in zip(a, x.shape, strict=True))
            result[tuple(b)] = x[tuple(a)] if inside else padding
    return result


def add_descriptor_cases():
    for shape, block, start, to in (
        ((40,), (16,), (32,), (28,)),
        ((13, 20), (8, 16), (-3, 8), (8, 0)),
        ((3, 13, 20), (2, 8, 8), (2, 8, 16), (1, 0, 0)),
        ((2, 3, 5, 8), (1, 2, 4, 8), (1, 2, -1, 0), (0, 0, 2, 4)),
        ((2, 2, 3, 5, 8), (1, 1, 2, 4, 4), (1, 1, 2, 3, 4), (0, 1, 1, 2, 0)),
    ):
        for padding in ("zero", "nan") if len(shape) == 2 else ("zero",):
            x, y = normal(*shape), blank(*shape)
            wanted = moved_block(x, y, block, start, to, NAN if padding == "nan" else 0.0)
            name = f"rank-{len(shape)}-{padding}"
            case(copy_by_arguments, {"source": OnTensor(x, block, padding), "target": OnTensor(y, block), "FROM": start,
                                     "TO": to},
                 {"target": wanted}, name)  # fmt: skip
            # Strides must be multiples of 16 bytes. Sizes need not, but the copy engine stores 16 bytes at a time.
            narrow, wanted = (*shape[:-1], shape[-1] - 4), y.clone()
            inside = slice(0, narrow[-1])
            wanted[..., inside] = moved_block(
                x[..., inside], y[..., inside], block, start, to, NAN if padding == "nan" else 0.0
            )
            case(copy_by_descriptors, {"x_ptr": x, "y_ptr": y, "shape": narrow, "strides": x.stride(), "BLOCK": block,
                                       "FROM": start, "TO": to, "PADDING": padding},
                 {"y_ptr": wanted}, name)  # fmt: skip
    for kind in ("int8", "int16", "int32", "uint32", "int64", "f16", "bf16", "f64", "e4m3"):
        x = whole(9, 32, low=0, high=100).to(NUMBERS[kind])
        y = blank(9, 32, dtype=x.dtype)
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
        wanted, width = y.clone(), 32 if x.element_size() == 1 else 32 - 16 // x.element_size()
        inside = moved_block(x.view(bits)[:, :width], y.view(bits)[:, :width], (4, 16), (6, 0), (7, 16), 0)
        wanted.view(bits)[:, :width] = inside
        case(copy_by_descriptors, {"x_ptr": x, "y_ptr": y, "shape": (9, width), "strides": (32, 1), "BLOCK": (4, 16),
                                   "FROM": (6, 0), "TO": (7, 16), "PADDING": "zero"},
             {"y_ptr": wanted}, kind)  # fmt: skip


@triton.jit
def reduce_by_descriptors(x_ptr, sums, mosts, leasts, M: tl.constexpr, N: tl.constexpr):
    x = load_tile(x_ptr, M, N)
    at = tl.program_id(0) * 2
    sums.atomic_add([at, 0], x)
    mosts.atomic_max([at, 0], x)
    leasts.atomic_min([at, 0], x)


@triton.jit
def combine_by_descriptors(x_ptr, y_ptr, shape, M: tl.constexpr, N: tl.constexpr):
    x = load_tile(x_ptr, M, N)
    y = tl.make_tensor_descriptor(y_ptr, [shape, N], [N, 1], [M, N])
    y.atomic_and([0, 0], x)
    y.atomic_or([M, 0], x)
    y.atomic_xor([2 * M, 0], x)


@triton.jit
def add_by_descriptors(x_ptr, sums, M: tl.constexpr, N: tl.constexpr):
    sums.atomic_add([tl.program_id(0) * 2, 0], load_tile(x_ptr, M, N))


def add_descriptor_reduction_cases():
    for kind in ("int32", "uint32"):
        dtype = INTEGERS[kind]
        low, high = range_of(dtype)
        x, y = (
            whole(*shape, low=low, high=high, dtype=torch.int64, seed=i) for i, shape in enumerate([(4, 8), (7, 8)])
        )
        results = {name: y.clone() for name in ("sums", "mosts", "leasts")}
        for program in range(3):
            for i in range(4):
                at = 2 * program + i
                if at < 7:
                    results["sums"][at] += x[i]
                    results["mosts"][at] = results["mosts"][at].maximum(x[i])
                    results["leasts"][at] = results["leasts"][at].minimum(x[i])
        results = {name: tensor_of(value.ravel().tolist(), dtype).view(7, 8) for name, value in results.items()}
        before = tensor_of(y.ravel().tolist(), dtype).view(7, 8)
        case(reduce_by_descriptors, {"x_ptr": tensor_of(x.ravel().tolist(), dtype).view(4, 8),
                                     **{name: OnTensor(before, (4, 8)) for name in results}, "M": 4, "N": 8},
             results, kind, grid=(3,))  # fmt: skip
        y = tensor_of(whole(88, low=low, high=high, dtype=torch.int64, seed=2).tolist(), dtype).view(11, 8)
        x = tensor_of(x.ravel().tolist(), dtype).view(4, 8)
        bits = [v.view(torch.int32) for v in (y, x)]
        wanted = torch.cat([bits[0][:4] & bits[1], bits[0][4:8] | bits[1], bits[0][8:] ^ bits[1][:3]]).view(dtype)
        case(combine_by_descriptors, {"x_ptr": x, "y_ptr": y, "shape": 11, "M": 4, "N": 8}, {"y_ptr": wanted}, kind)
    for kind in ("f16", "bf16", "f32"):
        x, y = whole(4, 8, low=-9, high=9).to(FLOATS[kind]), whole(7, 8, low=-9, high=9, seed=1).to(FLOATS[kind])
        wanted = y.clone()
        for program in range(3):
            rows = wanted[2 * program : 2 * program + 4]
            rows += x[: len(rows)]
        case(add_by_descriptors, {"x_ptr": x, "sums": OnTensor(y, (4, 8)), "M": 4, "N": 8}, {"sums": wanted}, kind,
             grid=(3,))  # fmt: skip


@triton.jit
def gather_rows(source, rows_ptr, out_ptr, column, N: tl.constexpr, WIDTH: tl.constexpr):
    rows = tl.load(rows_ptr + tl.arange(0, N))
    store_tile(out_ptr, source.gather(rows, column), N, WIDTH)


@triton.jit
def scatter_rows(target, rows_ptr, x_ptr, column, N: tl.constexpr, WIDTH: tl.constexpr):
    rows = tl.load(rows_ptr + tl.arange(0, N))
    target.scatter(load_tile(x_ptr, N, WIDTH), rows, column)


def add_row_cases():
    x = normal(20, 32)
    rows = torch.tensor([3, 19, 0, 3, 20, -1, 7, 12], dtype=torch.int32)
    inside = (rows >= 0) & (rows < 20)
    padded = torch.cat([x, torch.zeros(20, 16)], 1)
    refused = "rows are gathered by hardware that Hopper GPUs lack"
    for column in (0, 24):
        wanted = torch.where(inside[:, None], padded[rows.clamp(0, 19), column : column + 16], 0.0)
        case(gather_rows, {"source": OnTensor(x, (1, 16)), "rows_ptr": rows, "out_ptr": blank(8, 16), "column": column,
                           "N": 8, "WIDTH": 16},
             {"out_ptr": wanted}, str(column), refused=refused)  # fmt: skip
    values, target = normal(8, 16, seed=1), blank(20, 32)
    rows = torch.tensor([3, 19, 0, 4, 20, -1, 7, 12], dtype=torch.int32)
    wanted = target.clone()
    for row, value in zip(rows.tolist(), values, strict=True):
        if 0 <= row < 20:
            wanted[row, 24:] = value[:8]
    case(scatter_rows, {"target": OnTensor(target, (1, 16)), "rows_ptr": rows, "x_ptr": values, "column": 24, "N": 8,
                        "WIDTH": 16},
         {"target": wanted}, refused=refused)  # fmt: skip


@triton.jit
def walk_by_blocks(x_ptr, y_ptr, z_ptr, rows, columns, M: tl.constexpr, N: tl.constexpr, PADDING: tl.constexpr):
    """Copy a matrix in steps of N columns to y, and its transpose to z, with block pointers."""
    first = tl.program_id(0) * M
    x_block = tl.make_block_ptr(x_ptr, (rows, columns), (columns, 1), (first, 0), (M, N), (1, 0))
    y_block = tl.make_block_ptr(y_ptr, (rows + 8, columns + 8), (columns + 8, 1), (first, 0), (M, N), (1, 0))
    z_block = tl.make_block_ptr(z_ptr, (columns, rows), (rows, 1), (0, first), (N, M), (1, 0))
    for _ in range(0, tl.cdiv(columns, N)):
        x = tl.load(x_block, boundary_check=(0, 1), padding_option=PADDING)
        tl.store(y_block, x, boundary_check=(0, 1))
        tl.store(z_block, tl.trans(x), boundary_check=(0, 1))
        x_block = tl.advance(x_block, (0, N))
        y_block = tl.advance(y_block, (0, N))
        z_block = z_block.advance((N, 0))


def add_block_pointer_cases():
    for padding in ("zero", "nan"):
        x = normal(20, 13)
        y = blank(28, 21)
        y[:24, :16] = 0.0 if padding == "zero" else NAN
        y[:20, :13] = x
        tensors = {"x_ptr": x, "y_ptr": blank(28, 21), "z_ptr": blank(13, 20)}
        case(walk_by_blocks, {**tensors, "rows": 20, "columns": 13, "M": 8, "N": 8, "PADDING": padding},
             {"y_ptr": y, "z_ptr": x.t().contiguous()}, padding, grid=(3,))  # fmt: skip


add_block_pointer_cases()


# Functions of single elements


@triton.jit
def collatz_step(x, y):
    if x % 2 == 0:
        return x // 2, y
    else:
        return 3 * x + 1, y + 1


@triton.jit
def pair_step(x0, x1, y0, y1):
    """Two elements at a time, of two blocks: what comes out is in the same order."""
    if x0 > x1:
        return x0 + y0, x1 - y1, y0, y1
    else:
        return x1, x0, y1, y0


@triton.jit
def map_elements(x_ptr, y_ptr, outs, N: tl.constexpr):
    offs = tl.arange(0, N)
    x, y = tl.load(x_ptr + offs), tl.load(y_ptr + offs)
    a, b = tl.map_elementwise(collatz_step, x, y)
    tl.store(outs[0] + offs, a)
    tl.store(outs[1] + offs, b)
    a, b = tl.map_elementwise(pair_step, x, y, pack=2)
    tl.store(outs[2] + offs, a)
    tl.store(outs[3] + offs, b)


def add_map_cases():
    x, y = whole(128, low=0, high=50), whole(128, low=0, high=50, seed=1)
    even = x % 2 == 0
    results = [torch.where(even, x // 2, 3 * x + 1), torch.where(even, y, y + 1)]
    (x0, x1), (y0, y1) = x.view(64, 2).t(), y.view(64, 2).t()
    down = x0 > x1
    results.append(torch.stack([torch.where(down, x0 + y0, x1), torch.where(down, x1 - y1, x0)], 1).ravel())
    results.append(torch.stack([torch.where(down, y0, y1), torch.where(down, y1, y0)], 1).ravel())
    case_of_outs(map_elements, {"x_ptr": x, "y_ptr": y, "N": 128, "num_warps": 1}, results)


add_map_cases()


# Control flow


@triton.jit
def three_axes(out_ptr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    width, height, depth = tl.num_programs(0), tl.num_programs(1), tl.num_programs(2)
    tl.store(
        out_ptr + x + width * (y + height * z), x + 10 * y + 100 * z + 1000 * width + 10000 * height + 100000 * depth
    )


@triton.jit
def loops(x_ptr, out_ptr, n, N: tl.constexpr):
    """Loops of as many turns as the number of the program, and others."""
    pid = tl.program_id(0)
    offs = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for i in range(pid):
        total += tl.load(x_ptr + i * N + offs)
    for i in range(n, pid, -1):
        total += i
    for i in tl.range(pid, n, 2, num_stages=3):
        for j in tl.static_range(2):
            total += i * (j + 1)
    k = pid
    while k < n:
        if k % 3 == 0:
            total *= 2
        elif k % 3 == 1:
            total -= k
            if pid % 2 == 0:
                total += 0.5
        k += 2
    tl.store(out_ptr + pid * N + offs, total)


def loops_reference(x, programs, n):
    rows = []
    for pid in range(programs):
        total = x[:pid].sum(0) + sum(range(pid + 1, n + 1)) + 3 * sum(range(pid, n, 2))
        for k in range(pid, n, 2):
            if k % 3 == 0:
                total = total * 2
            elif k % 3 == 1:
                total = total - k + (0.5 if pid % 2 == 0 else 0)
        rows.append(total)
    return torch.stack(rows)


@triton.jit
def branches(x_ptr, out_ptr, n, N: tl.constexpr):
    """Nested ifs with values, an early return, and an if without else."""
    pid = tl.program_id(0)
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + pid * N + offs)
    if pid >= n:
        return
    first = tl.max(x, 0)
    if first > 0:
        scale = 2.0
        if pid % 2 == 0:
            scale, x = 3.0, x + 1
    else:
        scale = -1.0
    if pid == 3:
        tl.store(out_ptr + pid * N + offs, x)
        return
    if first > 5:
        x = x * 0 + pid
    tl.store(out_ptr + pid * N + offs, x * scale)


def branches_reference(x, n):
    out = blank(*x.shape)
    for pid in range(n):
        row, first = x[pid], x[pid].max()
        if first > 0:
            scale, row = (3.0, row + 1) if pid % 2 == 0 else (2.0, row)
        else:
            scale = -1.0
        if pid != 3:
            row = (torch.full_like(row, pid) if first > 5 else row) * scale
        out[pid] = row
    return out


@triton.jit(noinline=True)
def sum_and_difference(x, y):
    return x + y, x - y


@triton.jit(noinline=True)
def sign_of(x):
    if x > 0:
        return 1
    if x < 0:
        return -1
    return 0


@triton.jit
def early(x):
    if x > 10:
        return x - 10
    return x + 10


@triton.jit
def pair_of(numbers, FACTOR: tl.constexpr):
    return numbers[0] * FACTOR, (numbers[1], numbers[0])


@triton.jit
def calls(x_ptr, pair, out_ptr, N: tl.constexpr):
    """Functions with several results, tuples, and functions that are not inlined."""
    pid = tl.program_id(0)
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + pid * N + offs)
    top = tl.max(x, 0)
    a, b = sum_and_difference(top, pid)
    c, swapped = pair_of(pair, 3)
    c += a * 100 + b + sign_of(top) * 10000 + early(top) * 100000
    tl.store(out_ptr + pid * N + offs, x + c + swapped[0] * 7 + swapped[1])


def calls_reference(x, pair):
    rows = []
    for pid, row in enumerate(x):
        top = int(row.max())
        sign, shifted = (top > 0) - (top < 0), top - 10 if top > 10 else top + 10
        number = (top + pid) * 100 + top - pid + sign * 10000 + shifted * 100000
        rows.append(row + number + pair[0] * 3 + pair[1] * 7 + pair[0])
    return torch.stack(rows)


@triton.jit
def hints(x_ptr, out_ptr, n, N: tl.constexpr):
    """What only helps a GPU's compiler changes nothing."""
    offs = tl.max_contiguous(tl.multiple_of(tl.arange(0, N), N), N)
    tl.assume(n > 0)
    tl.static_assert(N > 1)
    x = tl.load(x_ptr + tl.max_constancy(offs * n, 1))
    tl.debug_barrier()
    tl.store(out_ptr + offs, x)


def add_control_cases():
    x, y, z = (v.int() for v in torch.meshgrid(torch.arange(4), torch.arange(3), torch.arange(2), indexing="ij"))
    wanted = (x + 10 * y + 100 * z + 1000 * 4 + 10000 * 3 + 100000 * 2).permute(2, 1, 0).contiguous()
    case(three_axes, {"out_ptr": blank(2, 3, 4, dtype=torch.int32)}, {"out_ptr": wanted}, grid=(4, 3, 2))
    x = whole(8, 16, low=-9, high=9).float()
    case(
        loops, {"x_ptr": x, "out_ptr": blank(8, 16), "n": 9, "N": 16}, {"out_ptr": loops_reference(x, 8, 9)}, grid=(8,)
    )
    x = whole(8, 16, low=-9, high=9).float()
    x[2], x[5] = -x[2].abs(), x[5].clamp(max=3)
    case(
        branches,
        {"x_ptr": x, "out_ptr": blank(8, 16), "n": 6, "N": 16},
        {"out_ptr": branches_reference(x, 6)},
        grid=(8,),
    )
    x = whole(6, 8, low=-9, high=20)
    x[1], x[2] = -x[1].abs() - 1, -x[2].abs()
    x[2, 0] = 0
    case(calls, {"x_ptr": x, "pair": (5, 11), "out_ptr": blank(6, 8, dtype=torch.int32), "N": 8},
         {"out_ptr": calls_reference(x, (5, 11))}, grid=(6,))  # fmt: skip
    x = normal(16)
    case(hints, {"x_ptr": x, "out_ptr": blank(16), "n": 1, "N": 16}, {"out_ptr": x})


add_control_cases()

# A GPU on which a descriptor breaks a rule fails every launch after it: these rows come last.
add_descriptor_cases()
add_descriptor_reduction_cases()
add_row_cases()
