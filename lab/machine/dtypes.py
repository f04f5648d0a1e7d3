"""Arrays of the element types that a GPU has: their dtypes, rounding, and functions of integers and floats.

Integers have no sign of their own, as in MLIR: arrays are signed, an unsigned operation views them.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np

Function = Callable[..., np.ndarray]

DTYPES = {
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "index": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "f8E4M3B11FNUZ": np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    "f8E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
}
BOOL, F16, F32, F64 = (DTYPES[name] for name in ("i1", "f16", "f32", "f64"))
UNSIGNED = {DTYPES[f"i{bits}"]: np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}
FLOATS = {dtype for name, dtype in DTYPES.items() if "f" in name}
LARGEST_FP8 = {dtype: float(ml_dtypes.finfo(dtype).max) for dtype in FLOATS if dtype.itemsize == 1}
FP8_VALUES = {dtype: np.arange(256, dtype=np.uint8).view(dtype).astype(F32) for dtype in LARGEST_FP8}
WITHOUT_NEGATIVE_ZERO = {dtype for name, dtype in DTYPES.items() if name.endswith("FNUZ")}


def poison(dtype: np.dtype) -> np.generic:
    """Return what a lane without a value holds: NaN, True, or the largest integer, which is odd."""
    if dtype == BOOL:
        return np.True_
    if dtype in FLOATS:
        return np.array(np.nan, np.float32).astype(dtype)[()]
    return dtype.type(np.iinfo(dtype).max)


# Rounding


def step(values: np.ndarray, outward: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Move float32 or float64 `values` by one unit in the last place, away from zero or towards it, `where` true."""
    bits = values.view(f"i{values.dtype.itemsize}")
    return (bits + np.where(outward, where, -where.astype(bits.dtype))).astype(bits.dtype).view(values.dtype)


def to_odd(values: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Round the exact sum `values + error` to odd: of the two floats around it, the one whose last bit is set.

    `values` is the sum rounded to nearest. A later rounding to a type at least two bits shorter is then the only one.
    """
    is_even = values.view(f"i{values.dtype.itemsize}") & 1 == 0
    inexact = (error > 0) | (error < 0)
    return step(values, (error > 0) != np.signbit(values), is_even & inexact)


def two_sum(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x + y rounded, and the error of that rounding (Knuth's TwoSum)."""
    total = x + y
    y_part = total - x
    return total, (x - (total - y_part)) + (y - y_part)


def two_product(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x * y rounded in float64, and the error of that rounding (Dekker's product, Veltkamp's splitting)."""
    product = x * y
    x_high, x_low = split(x)
    y_high, y_low = split(y)
    return product, x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)


def split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


def widen(values: np.ndarray) -> np.ndarray:
    """Return floats as float32 or float64, exactly."""
    if values.dtype in (F32, F64):
        return values
    return FP8_VALUES[values.dtype][values.view(np.uint8)] if values.dtype in FP8_VALUES else values.astype(F32)


def round_to(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round float32 or float64 to nearest even, once; fp8 saturates at its largest finite value."""
    if dtype in (F16, F32, F64):
        return values.astype(dtype, copy=False)
    if values.dtype == F64:
        # ml_dtypes goes through float32, which would round twice.
        nearest = values.astype(F32)
        values = to_odd(nearest, values - nearest)
    if dtype in LARGEST_FP8:
        values = np.clip(values, -F32.type(LARGEST_FP8[dtype]), F32.type(LARGEST_FP8[dtype]))
    return values.astype(dtype)


def truncate_to(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round float32 or float64 towards zero."""
    nearest = round_to(values, dtype)
    bits = nearest.view(UNSIGNED[DTYPES[f"i{dtype.itemsize * 8}"]])
    too_far = np.abs(nearest.astype(values.dtype)) > np.abs(values)
    bits = bits - too_far.astype(bits.dtype)
    if dtype in WITHOUT_NEGATIVE_ZERO:
        # Where a zero with a sign would be, these types have their NaN.
        bits = np.where(too_far & (bits == 0x80), bits.dtype.type(0), bits)
    return bits.view(dtype)


def to_integer(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Truncate float32 or float64 to an integer `dtype`, saturating, as a GPU does.

    8 bits are the lower half of 16. NaN gives 0, or the bit pattern of the least integer: 64 bits always, from float64
    all others as well.
    """
    if dtype.itemsize == 1:
        return to_integer(values, np.dtype(f"{dtype.kind}2")).astype(dtype)
    limits = np.iinfo(dtype)
    inside = (values >= limits.min) & (values < float(limits.max + 1))
    if inside.all():
        return values.astype(dtype)
    integers = np.where(inside, values, 0).astype(dtype)
    outside = np.where(values > 0, dtype.type(limits.max), dtype.type(limits.min))
    has_pattern = dtype.itemsize == 8 or values.dtype == F64
    nan = np.array([1 << (width(dtype) - 1) if has_pattern else 0], f"u{dtype.itemsize}").view(dtype)
    return np.where(np.isnan(values), nan, np.where(inside, integers, outside))


def from_integer(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round signed or unsigned integers to a float type, once."""
    if dtype in (F32, F64):
        return values.astype(dtype)
    if values.dtype.itemsize == 8:
        # float64 holds 53 bits: fold what lies below the top 53 into the last of them, which rounds to odd.
        folded = (values >> 11 | (values & 2047 != 0)) << 11
        values = np.where((values >> 53 == 0) | (values >> 53 == -1), values, folded)
    return round_to(values.astype(F64), dtype)


# Integers


def as_signed(values: np.ndarray) -> np.ndarray:
    return -values.view(np.int8) if values.dtype == BOOL else values


def as_unsigned(values: np.ndarray) -> np.ndarray:
    return values.view(np.uint8) if values.dtype == BOOL else values.view(UNSIGNED[values.dtype])


def wrap(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return integers modulo the width of `dtype`, as that type."""
    if dtype == BOOL:
        return (values & 1).astype(BOOL)
    return values.view(dtype) if values.dtype.itemsize == dtype.itemsize else values.astype(dtype)


def width(dtype: np.dtype) -> int:
    return 1 if dtype == BOOL else dtype.itemsize * 8


def divide_unsigned(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    quotient = x // y
    by_zero = y == 0
    return np.where(by_zero, ~quotient.dtype.type(0), quotient) if by_zero.any() else quotient


def divide_signed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Divide towards zero: the magnitudes, then the sign, so that INT_MIN / -1 wraps; by zero it gives -1."""
    unsigned = UNSIGNED[x.dtype]
    magnitude = (np.abs(x).view(unsigned) // np.abs(y).view(unsigned)).view(x.dtype)
    sign = (x ^ y) >> (width(x.dtype) - 1)
    quotient = (magnitude ^ sign) - sign
    by_zero = y == 0
    return np.where(by_zero, x.dtype.type(-1), quotient) if by_zero.any() else quotient


def remainder_of(divide: Function) -> Function:
    """Return the remainder that belongs to a division; by zero it is the dividend."""
    return lambda x, y: x - divide(x, y) * y


def floor_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    quotient = divide_signed(x, y)
    rest = x - quotient * y
    return quotient - ((rest != 0) & ((rest ^ y) < 0) & (y != 0))


def ceil_divide_signed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    quotient = divide_signed(x, y)
    rest = x - quotient * y
    return quotient + ((rest != 0) & ((rest ^ y) >= 0) & (y != 0))


def ceil_divide_unsigned(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    quotient = divide_unsigned(x, y)
    return quotient + ((x != quotient * y) & (y != 0))


def multiply_high(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the upper half of the product of two unsigned integers."""
    if x.dtype.itemsize < 8:
        bits = width(x.dtype)
        return (x.astype(np.uint64) * y.astype(np.uint64) >> np.uint64(bits)).astype(x.dtype)
    half, low = np.uint64(32), np.uint64(2**32 - 1)
    middle = (x >> half) * (y & low) + ((x & low) * (y & low) >> half)
    carry = (x & low) * (y >> half) + (middle & low)
    return (x >> half) * (y >> half) + (middle >> half) + (carry >> half)


def leading_zeros(x: np.ndarray) -> np.ndarray:
    """Count the zero bits above the highest set bit of unsigned integers."""
    bits = width(x.dtype)
    for distance in (1, 2, 4, 8, 16, 32):
        if distance < bits:
            x = x | x >> x.dtype.type(distance)
    return (bits - np.bitwise_count(x)).astype(x.dtype)


def trailing_zeros(x: np.ndarray) -> np.ndarray:
    """Count the zero bits below the lowest set bit of unsigned integers; of 0, all of its bits."""
    return np.bitwise_count(~x & (x - x.dtype.type(1))).astype(x.dtype)


def population(x: np.ndarray) -> np.ndarray:
    return np.bitwise_count(x).astype(x.dtype)


# Floats


def with_signed_zeros(choose: np.ufunc, both_zero: Function) -> Function:
    """Return a maximum or minimum with +0 above -0, which NumPy leaves open: `both_zero` decides between two zeros."""

    def chosen(x, y):
        values = choose(x, y)
        is_zero = values == 0
        if not is_zero.any():
            return values
        is_zero &= x == y
        return np.where(is_zero, both_zero(x, y), values) if is_zero.any() else values

    return chosen


# Of zeros, -0 + -0 alone is -0.
maximum, maximum_number = (with_signed_zeros(choose, np.add) for choose in (np.maximum, np.fmax))
minimum, minimum_number = (with_signed_zeros(choose, lambda x, y: -(-x - y)) for choose in (np.minimum, np.fmin))


def fused_multiply_add(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return x * y + z of float64, rounded once (Boldo and Melquiond, "Emulation of FMA", 2008)."""
    high, low = two_product(x, y)
    upper, upper_error = two_sum(z, low)
    total, total_error = two_sum(high, upper)
    result = total + to_odd(*two_sum(upper_error, total_error))
    factors = np.isfinite(x) & np.isfinite(y)
    has_errors = factors & np.isfinite(z) & (x != 0) & (y != 0)
    # A product past the range must not meet an infinite z as an infinity.
    result = np.where(has_errors, result, np.where(factors & np.isinf(z), z, x * y + z))
    # The errors of the largest operands would overflow, those of the smallest vanish.
    extreme = has_errors & (is_extreme(x) | is_extreme(y) | is_extreme(z))
    operands = np.broadcast_arrays(x, y, z)
    for lane in zip(*np.nonzero(extreme), strict=True):
        result[lane] = exact_multiply_add(*(float(operand[lane]) for operand in operands))
    return result


def is_extreme(x: np.ndarray) -> np.ndarray:
    return (abs(x) > 2.0**400) | ((abs(x) < 2.0**-400) & (x != 0))


def exact_multiply_add(x: float, y: float, z: float) -> float:
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        # A sum that is exactly zero, or rounds to it, keeps the sign that floats would give it.
        return float(exact) or (x * y + z if exact == 0 else 0.0 * (1 if exact > 0 else -1))
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def round_half_away(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    return np.copysign(whole + np.copysign(abs(x - whole) >= 0.5, x).astype(x.dtype), x)


def special(name: str, fallback: Callable[[float], float] | None = None) -> Function:
    """Return the function `name` of `torch.special` on float64 arrays, or `fallback` where torch is not installed."""

    def evaluate(x):
        try:
            import torch
        except ModuleNotFoundError:
            if fallback is None:
                raise
            return np.vectorize(fallback, otypes=[F64])(x)
        return getattr(torch.special, name)(torch.from_numpy(np.array(x, F64))).numpy()

    return evaluate


erf, erfc = special("erf", math.erf), special("erfc", math.erfc)
