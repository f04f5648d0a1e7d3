"""The elementwise operations of TTIR on NumPy arrays, with the results that a GPU gives.

An operation is a row of `OPERATIONS`: its name in the TTIR text, and a builder that returns the function of arrays for
the dtypes at hand. Integers have no sign of their own, as in MLIR: arrays are signed, an unsigned operation views them.
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

import ml_dtypes
import numpy as np

Function = Callable[..., np.ndarray]
Builder = Callable[[Mapping[str, str], tuple[np.dtype, ...], np.dtype], Function]

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


def elementwise(
    name: str, attributes: Mapping[str, str], sources: tuple[np.dtype, ...], result: np.dtype
) -> Function | None:
    """Return the function of arrays that operation `name` is, or None for a name that is not here.

    `sources` and `result` are the element types of its operands and of its result; the function returns `result`, in
    the shape that the operands broadcast to, and leaves its arguments as they are. The caller silences NumPy's warnings
    about overflow, division by zero and invalid values.
    """
    build = OPERATIONS.get(name)
    return build and build(attributes, sources, np.dtype(result))


def reduction(name: str, dtype: np.dtype) -> np.ufunc | None:
    """Return the ufunc whose `reduce` and `accumulate` do what a region of operation `name` alone does, or None.

    Pass them `dtype`, for NumPy widens sums and products of small integers. Sums and products of types under 32 bits
    have none: NumPy adds fp16 in fp32, and bf16 one after the other, which stops counting at 256. Of +0 and -0, a
    reduction to the largest or smallest gives either.
    """
    if dtype == BOOL:
        return BOOLEAN_UFUNCS.get(name)
    if name in ROUNDING_UFUNCS:
        return ROUNDING_UFUNCS[name] if dtype in (F32, F64) else None
    return EXACT_UFUNCS.get(name)


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


# Builders: what turns a function of one kind of array into that of the dtypes at hand


def plain(function: Function) -> Builder:
    """Integers whose sign does not matter: one function for all, and one bit computes in int8."""

    def build(attributes, sources, result):
        return function if sources[0] != BOOL else signed(function)(attributes, sources, result)

    return build


def signed(function: Function) -> Builder:
    """Signed integers; True is -1."""

    def build(attributes, sources, result):
        if sources[0] != BOOL:
            return function
        return lambda *arrays: wrap(function(*map(as_signed, arrays)), result)

    return build


def unsigned(function: Function) -> Builder:
    def build(attributes, sources, result):
        return lambda *arrays: wrap(function(*map(as_unsigned, arrays)), result)

    return build


def counting_zeros(function: Function) -> Builder:
    def build(attributes, sources, result):
        return np.logical_not if result == BOOL else unsigned(function)(attributes, sources, result)

    return build


def floating(function: Function) -> Builder:
    """Floats computed in float32, or float64 where they are that, and rounded once."""

    def build(attributes, sources, result):
        if result in (F32, F64):
            return function
        return lambda *arrays: round_to(function(*map(widen, arrays)), result)

    return build


def in_double(function: Function) -> Builder:
    """Floats computed in float64 and rounded once."""

    def build(attributes, sources, result):
        if result == F64:
            return function
        return lambda *arrays: round_to(function(*(array.astype(F64) for array in arrays)), result)

    return build


def shifting(function: Function, view: Function, beyond: Function) -> Builder:
    """A shift; of one bit, any distance but 0 is `beyond` the width."""

    def build(attributes, sources, result):
        if result == BOOL:
            return beyond
        return lambda x, distance: wrap(function(view(x), view(distance)), result)

    return build


def fused(attributes, sources, result):
    if result == F64:
        return fused_multiply_add
    # A product of two shorter floats is exact in float64, and the sum rounded to odd leaves one rounding.
    return lambda x, y, z: round_to(to_odd(*two_sum(x.astype(F64) * y.astype(F64), z.astype(F64))), result)


def clamp(attributes, sources, result):
    propagates = attributes["propagateNan"] == "all"
    upper, lower = (minimum, maximum) if propagates else (minimum_number, maximum_number)
    return floating(lambda x, low, high: upper(lower(x, low), high))(attributes, sources, result)


def select(attributes, sources, result):
    bits = f"i{result.itemsize}"

    def choose(condition, yes, no):
        if condition.size < SMALL:
            return np.where(condition, yes, no)
        # Unlike np.where, this has no branch to mispredict.
        mask = condition.view(np.int8).astype(bits)
        np.negative(mask, out=mask)
        yes, no = yes.view(bits), no.view(bits)
        return (no ^ ((yes ^ no) & mask)).view(result)

    return choose


SMALL = 4096  # elements below which one NumPy call costs less than five

INTEGER_PREDICATES = {
    "eq": (np.equal, as_signed),
    "ne": (np.not_equal, as_signed),
    "slt": (np.less, as_signed),
    "sle": (np.less_equal, as_signed),
    "sgt": (np.greater, as_signed),
    "sge": (np.greater_equal, as_signed),
    "ult": (np.less, as_unsigned),
    "ule": (np.less_equal, as_unsigned),
    "ugt": (np.greater, as_unsigned),
    "uge": (np.greater_equal, as_unsigned),
}


def compare_integers(attributes, sources, result):
    compare, view = INTEGER_PREDICATES[attributes["predicate"]]
    if view is as_signed and sources[0] != BOOL:
        return compare
    return lambda x, y: compare(view(x), view(y))


# Ordered predicates are false where an operand is NaN, unordered ones are true.
FLOAT_PREDICATES = {
    "false": lambda x, y: np.not_equal(x, x) & False & np.equal(y, y),
    "oeq": np.equal,
    "ogt": np.greater,
    "oge": np.greater_equal,
    "olt": np.less,
    "ole": np.less_equal,
    "one": lambda x, y: (x < y) | (x > y),
    "ord": lambda x, y: (x == x) & (y == y),
    "ueq": lambda x, y: ~((x < y) | (x > y)),
    "ugt": lambda x, y: ~(x <= y),
    "uge": lambda x, y: ~(x < y),
    "ult": lambda x, y: ~(x >= y),
    "ule": lambda x, y: ~(x > y),
    "une": np.not_equal,
    "uno": lambda x, y: (x != x) | (y != y),
    "true": lambda x, y: np.equal(x, x) | True | np.equal(y, y),
}


def compare_floats(attributes, sources, result):
    compare = FLOAT_PREDICATES[attributes["predicate"]]
    if sources[0] in (F32, F64):
        return compare
    return lambda x, y: compare(widen(x), widen(y))


def convert_integer(view: Function) -> Builder:
    return lambda attributes, sources, result: lambda x: wrap(view(x), result)


def integer_to_float(view: Function) -> Builder:
    return lambda attributes, sources, result: lambda x: from_integer(view(x), result)


def float_to_integer(is_signed: bool) -> Builder:
    def build(attributes, sources, result):
        held = np.dtype(np.int8) if result == BOOL else result
        held = held if is_signed else UNSIGNED[held]
        return lambda x: wrap(to_integer(widen(x), held), result)

    return build


def float_to_float(attributes, sources, result):
    convert = truncate_to if attributes.get("rounding") == "rtz" else round_to
    if (sources[0], result) == (DTYPES["f8E5M2"], DTYPES["bf16"]):
        return lambda x: e5m2_as_numbers(x).astype(DTYPES["bf16"])
    return lambda x: convert(widen(x), result)


def e5m2_as_numbers(values: np.ndarray) -> np.ndarray:
    """Return fp8 as float32, its infinities and NaN as the numbers that would come next: so a GPU widens it to bf16."""
    bits = values.view(np.uint8)
    beyond = (1 + (bits & 3) / F32.type(4)) * F32.type(2**16)
    return np.where(bits & 0x7C == 0x7C, np.where(bits & 0x80, -beyond, beyond), widen(values)).astype(F32)


def reinterpret(attributes, sources, result):
    return lambda x: x.view(result)


def extern(attributes, sources, result):
    """A function of libdevice; what it returns is rounded, or taken as bits of the width asked for."""
    from lab.machine import libdevice  # which builds on this module

    function = libdevice.function(attributes["symbol"])
    if result in FLOATS:
        return lambda *arrays: round_to(function(*arrays), result)
    return lambda *arrays: wrap(np.asarray(function(*arrays)), result)


OPERATIONS: dict[str, Builder] = {
    "arith.addi": plain(np.add),
    "arith.subi": plain(np.subtract),
    "arith.muli": plain(np.multiply),
    "arith.andi": lambda attributes, sources, result: np.bitwise_and,
    "arith.ori": lambda attributes, sources, result: np.bitwise_or,
    "arith.xori": lambda attributes, sources, result: np.bitwise_xor,
    "arith.divsi": signed(divide_signed),
    "arith.remsi": signed(remainder_of(divide_signed)),
    "arith.floordivsi": signed(floor_divide),
    "arith.ceildivsi": signed(ceil_divide_signed),
    "arith.divui": unsigned(divide_unsigned),
    "arith.remui": unsigned(remainder_of(divide_unsigned)),
    "arith.ceildivui": unsigned(ceil_divide_unsigned),
    "arith.shli": shifting(np.left_shift, as_unsigned, lambda x, distance: x & ~distance),
    "arith.shrui": shifting(np.right_shift, as_unsigned, lambda x, distance: x & ~distance),
    "arith.shrsi": shifting(np.right_shift, as_signed, lambda x, distance: x | (distance & False)),
    "arith.maxsi": signed(np.maximum),
    "arith.minsi": signed(np.minimum),
    "arith.maxui": unsigned(np.maximum),
    "arith.minui": unsigned(np.minimum),
    "arith.addf": floating(np.add),
    "arith.subf": floating(np.subtract),
    "arith.mulf": floating(np.multiply),
    "arith.divf": floating(np.divide),
    "arith.remf": floating(np.fmod),
    "arith.negf": floating(np.negative),
    "arith.maxnumf": floating(maximum_number),
    "arith.minnumf": floating(minimum_number),
    "arith.maximumf": floating(maximum),
    "arith.minimumf": floating(minimum),
    "arith.cmpi": compare_integers,
    "arith.cmpf": compare_floats,
    "arith.select": select,
    "arith.extsi": convert_integer(as_signed),
    "arith.extui": convert_integer(as_unsigned),
    "arith.trunci": convert_integer(as_signed),
    "arith.index_cast": convert_integer(as_signed),
    "arith.index_castui": convert_integer(as_unsigned),
    "arith.sitofp": integer_to_float(as_signed),
    "arith.uitofp": integer_to_float(as_unsigned),
    "arith.fptosi": float_to_integer(is_signed=True),
    "arith.fptoui": float_to_integer(is_signed=False),
    "arith.extf": float_to_float,
    "arith.truncf": float_to_float,
    "arith.bitcast": reinterpret,
    # NumPy's float32 versions are within 4 units in the last place, as a GPU's are, and several times faster.
    "math.exp": floating(np.exp),
    "math.exp2": floating(np.exp2),
    "math.log": floating(np.log),
    "math.log2": floating(np.log2),
    "math.sqrt": floating(np.sqrt),
    "math.expm1": in_double(np.expm1),
    "math.log10": in_double(np.log10),
    "math.log1p": in_double(np.log1p),
    "math.rsqrt": in_double(lambda x: 1 / np.sqrt(x)),
    "math.cbrt": in_double(np.cbrt),
    "math.sin": in_double(np.sin),
    "math.cos": in_double(np.cos),
    "math.tan": in_double(np.tan),
    "math.asin": in_double(np.arcsin),
    "math.acos": in_double(np.arccos),
    "math.atan": in_double(np.arctan),
    "math.atan2": in_double(np.arctan2),
    "math.sinh": in_double(np.sinh),
    "math.cosh": in_double(np.cosh),
    "math.tanh": in_double(np.tanh),
    "math.asinh": in_double(np.arcsinh),
    "math.acosh": in_double(np.arccosh),
    "math.atanh": in_double(np.arctanh),
    "math.erf": in_double(erf),
    "math.erfc": in_double(erfc),
    "math.powf": in_double(np.power),
    "math.fpowi": in_double(np.power),
    "math.floor": floating(np.floor),
    "math.ceil": floating(np.ceil),
    "math.trunc": floating(np.trunc),
    "math.round": floating(round_half_away),
    "math.roundeven": floating(np.rint),
    "math.absf": floating(np.abs),
    "math.copysign": floating(np.copysign),
    "math.fma": fused,
    "math.absi": signed(np.abs),
    "math.ctlz": counting_zeros(leading_zeros),
    "math.cttz": counting_zeros(trailing_zeros),
    "math.ctpop": unsigned(population),
    "tt.precise_divf": floating(np.divide),
    "tt.precise_sqrt": floating(np.sqrt),
    "tt.mulhiui": unsigned(multiply_high),
    "tt.clampf": clamp,
    "tt.fp_to_fp": float_to_float,
    "tt.bitcast": reinterpret,
    "tt.extern_elementwise": extern,
}

BOOLEAN_UFUNCS = {
    "arith.addi": np.bitwise_xor,
    "arith.muli": np.bitwise_and,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.maxsi": np.bitwise_and,  # True is -1
    "arith.minsi": np.bitwise_or,
    "arith.maxui": np.bitwise_or,
    "arith.minui": np.bitwise_and,
}
ROUNDING_UFUNCS = {"arith.addf": np.add, "arith.mulf": np.multiply}
EXACT_UFUNCS = {
    "arith.addi": np.add,
    "arith.muli": np.multiply,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
}
