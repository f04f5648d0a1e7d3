"""The elementwise operations of TTIR on NumPy arrays, with the results that a GPU gives.

An operation is a row of `OPERATIONS`: its name in the TTIR text, and a builder that returns the function of arrays for
the dtypes at hand.
"""

from collections.abc import Callable, Mapping

import numpy as np

from lab.machine import libdevice
from lab.machine.dtypes import (
    BOOL,
    DTYPES,
    F32,
    F64,
    FLOATS,
    UNSIGNED,
    Function,
    as_signed,
    as_unsigned,
    ceil_divide_signed,
    ceil_divide_unsigned,
    divide_signed,
    divide_unsigned,
    erf,
    erfc,
    floor_divide,
    from_integer,
    fused_multiply_add,
    leading_zeros,
    maximum,
    maximum_number,
    minimum,
    minimum_number,
    multiply_high,
    population,
    remainder_of,
    round_half_away,
    round_to,
    to_integer,
    to_odd,
    trailing_zeros,
    truncate_to,
    two_sum,
    widen,
    wrap,
)

Builder = Callable[[Mapping[str, str], tuple[np.dtype, ...], np.dtype], Function]


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
