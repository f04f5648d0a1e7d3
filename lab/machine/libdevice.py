"""CUDA's library of device functions, libdevice, on NumPy arrays.

Functions of float32 are computed in float64 and return float64, which leaves the caller one rounding. A function whose
purpose is the rounding, or the bits, works in its own type. Integers arrive signed; a function of unsigned ones views
them as such.
"""

import functools
import math
import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from lab.machine.dtypes import (
    as_unsigned,
    erf,
    erfc,
    from_integer,
    fused_multiply_add,
    leading_zeros,
    multiply_high,
    population,
    round_half_away,
    special,
    to_integer,
    to_odd,
    trailing_zeros,
    two_sum,
)

Function = Callable[..., np.ndarray]


@functools.cache
def function(symbol: str) -> Function:
    """Return the array function for a symbol such as `__nv_tanhf`.

    Raises NotImplementedError for a symbol that has no counterpart here.
    """
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    for pattern, build in FAMILIES.items():
        if match := re.fullmatch(pattern, name):
            return build(*match.groups())
    stem = name if name in IN_OWN_TYPE or name in IN_DOUBLE else name[:-1] if name[-1:] in ("f", "d") else name
    if stem in IN_OWN_TYPE:
        return IN_OWN_TYPE[stem]
    if stem not in IN_DOUBLE:
        raise NotImplementedError(f"libdevice's {symbol} has no counterpart on the CPU; it needs a GPU")
    compute = IN_DOUBLE[stem]
    return lambda *arrays: compute(*(a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays))


# Rounding in a direction

ROUND_TO_WHOLE = {"n": np.rint, "z": np.trunc, "d": np.floor, "u": np.ceil}
INTEGERS = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}
FLOATS = {"float": np.float32, "double": np.float64}


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return x * y + z of float32 or float64, rounded once to that type."""
    if x.dtype == np.float64:
        return fused_multiply_add(x, y, z)
    x, y, z = (operand.astype(np.float64) for operand in (x, y, z))
    return to_odd(*two_sum(x * y, z)).astype(np.float32)


# Name → (the result rounded to nearest, the exact one minus that, of fractions).
ROUNDED = {
    "add": (np.add, lambda r, x, y: x + y - r),
    "sub": (np.subtract, lambda r, x, y: x - y - r),
    "mul": (np.multiply, lambda r, x, y: x * y - r),
    "div": (np.divide, lambda r, x, y: x / y - r if y else 0),
    "rcp": (np.reciprocal, lambda r, x: 1 / x - r if x else 0),
    "sqrt": (np.sqrt, lambda r, x: x - r * r),
    "fma": (fma, lambda r, x, y, z: x * y + z - r),
}


def excess(exact_minus: Callable, result: float, *operands: float) -> int:
    """Return the sign of the exact result minus the rounded one; 0 where either is not a number on the line."""
    if not all(map(math.isfinite, operands)) or math.isnan(result):
        return 0
    if math.isinf(result):
        return 0 if exact_minus(0, *map(Fraction, operands)) == 0 else -1 if result > 0 else 1
    difference = exact_minus(Fraction(result), *map(Fraction, operands))
    return (difference > 0) - (difference < 0)


def directed(nearest: Function, exact_minus: Callable, rounding: str) -> Function:
    """Return a function rounded to nearest (n), down (d), up (u) or towards zero (z).

    Directions but the first compare exact fractions, lane by lane: slow, and never off by one.
    """
    if rounding == "n":
        return nearest

    def compute(*operands):
        result = np.asarray(nearest(*operands))
        sign_of = functools.partial(excess, exact_minus)
        sign = np.vectorize(sign_of, otypes=[np.int8])(*(v.astype(object) for v in (result, *operands)))
        towards = {"d": -np.inf, "u": np.inf, "z": 0}[rounding]
        moves = {"d": sign < 0, "u": sign > 0, "z": sign * np.sign(result) < 0}[rounding]
        return np.where(moves, np.nextafter(result, result.dtype.type(towards)), result)

    return compute


def operation(name: str, rounding: str) -> Function:
    return directed(*ROUNDED[name], rounding)


def float_to_integer(target: str, rounding: str) -> Function:
    dtype = np.dtype(INTEGERS[target])
    return lambda x: to_integer(ROUND_TO_WHOLE[rounding](x), dtype)


def integer_to_float(source: str, target: str, rounding: str) -> Function:
    def nearest(x):
        return from_integer(x, np.dtype(FLOATS[target]))

    convert = directed(nearest, lambda r, x: x - r, rounding)
    return lambda x: convert(x.view(INTEGERS[source]))


def double_to_float(rounding: str) -> Function:
    return directed(lambda x: x.astype(np.float32), lambda r, x: x - r, rounding)


# A symbol without `__nv_` → builder, called with what the groups matched.
FAMILIES = {
    r"[fd](add|sub|mul|div|rcp|sqrt)_r([nzdu])": operation,
    r"(fma)f?_r([nzdu])": operation,
    r"(?:float|double)2(u?int|u?ll)_r([nzdu])": float_to_integer,
    r"(u?int|u?ll)2(float|double)_r([nzdu])": integer_to_float,
    r"double2float_r([nzdu])": double_to_float,
}


# Integers


def of_unsigned(compute: Function) -> Function:
    return lambda *arrays: compute(*map(as_unsigned, arrays))


def multiply_high_signed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    high = multiply_high(as_unsigned(x), as_unsigned(y)).view(x.dtype)
    # An operand read as unsigned is 2**bits too large where it is negative.
    return high - np.where(x < 0, y, 0) - np.where(y < 0, x, 0)


def reverse_bits(x: np.ndarray) -> np.ndarray:
    unsigned = as_unsigned(x)
    octets = np.ascontiguousarray(unsigned.byteswap())[..., None].view(np.uint8)
    reversed_octets = np.packbits(np.unpackbits(octets, axis=-1, bitorder="little"), axis=-1, bitorder="big")
    return reversed_octets.view(x.dtype)[..., 0]


def permute_bytes(x: np.ndarray, y: np.ndarray, selector: np.ndarray) -> np.ndarray:
    """Pick four of the eight bytes of x (the low ones) and y, by the low three bits of each nibble of `selector`."""
    octets = as_unsigned(x).astype(np.uint64) | as_unsigned(y).astype(np.uint64) << np.uint64(32)
    selector = as_unsigned(selector).astype(np.uint64)
    picked = np.uint64(0)
    for place in range(4):
        shift = (selector >> np.uint64(4 * place) & np.uint64(7)) * np.uint64(8)
        picked = picked | (octets >> shift & np.uint64(0xFF)) << np.uint64(8 * place)
    return picked.astype(np.uint32).view(np.int32)


def sum_of_difference(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    return (np.maximum(x, y) - np.minimum(x, y)).view(z.dtype) + z


def from_halves(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return (high.astype(np.int64) << 32 | as_unsigned(low)).view(np.float64)


# Floats


def each_element(compute: Callable[..., float]) -> Function:
    """Return a function of floats as a function of arrays: NaN outside its domain, infinity past the range."""

    def guarded(*values):
        try:
            return compute(*values)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return np.vectorize(guarded, otypes=[np.float64])


def gamma(x: np.ndarray) -> np.ndarray:
    zero_is_pole = np.where(x == 0, np.copysign(np.inf, x), 0.0)
    return np.where(x == 0, zero_is_pole, each_element(math.gamma)(x))


def remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return x minus the multiple of y nearest to it, exactly; of two as near, the even multiple."""
    size = abs(y)
    rest = np.fmod(abs(x), 2 * size)
    above_half = rest > size - rest
    rest = np.where(above_half, rest - size, rest)
    rest = np.where(above_half & (rest >= size - rest), rest - size, rest)
    return np.where(np.signbit(x), -rest, rest)


def quarter_turns(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of quarter turns nearest to x half turns, modulo 4, and the angle that is left, in radians."""
    x = np.fmod(x, 2.0)
    quarters = np.rint(2 * x)
    return quarters, np.pi * (x - quarters / 2)


def sine_of_turns(x: np.ndarray) -> np.ndarray:
    quarters, angle = quarter_turns(x)
    value = np.where(quarters % 2 == 0, np.sin(angle), np.cos(angle))
    value = np.where(quarters % 4 >= 2, -value, value)
    return np.where(value == 0, np.copysign(0.0, x), value)


def cosine_of_turns(x: np.ndarray) -> np.ndarray:
    quarters, angle = quarter_turns(x)
    value = np.where(quarters % 2 == 0, np.cos(angle), np.sin(angle))
    return np.where((quarters % 4 == 1) | (quarters % 4 == 2), -value, value) + 0.0


def exponent(x: np.ndarray) -> np.ndarray:
    """Return floor(log2(|x|)) as a float."""
    values = np.where(np.isfinite(x), np.frexp(x)[1] - 1.0, abs(x))
    return np.where(x == 0, -np.inf, values)


def integer_exponent(x: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x), np.iinfo(np.int32).min, to_integer(exponent(x), np.dtype(np.int32)))


def high_reciprocal(x: np.ndarray) -> np.ndarray:
    """Return 1 / x without the lower half of its bits."""
    return ((1 / x).view(np.int64) & ~0xFFFFFFFF).view(np.float64)


def norm(*xs: np.ndarray) -> np.ndarray:
    return functools.reduce(np.hypot, xs)


def positive_difference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(x > y, x - y, np.where(np.isnan(x + y), np.nan, 0.0))


def inverse_erfc(x: np.ndarray) -> np.ndarray:
    # Each formula keeps its digits on its own side.
    return np.where(x < 0.5, special("ndtri")(x / 2) / -math.sqrt(2), special("erfinv")(1 - x))


def bessel_first(n: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return J_n(x) for n >= 0: forward recurrence where it is stable, below x, and Miller's backward one above."""
    n, x = np.broadcast_arrays(n, x)
    size = abs(x)
    value = np.where(n == 0, special("bessel_j0")(x), special("bessel_j1")(x))
    upward = recur(special("bessel_j0")(size), special("bessel_j1")(size), n, size)
    value = np.where(
        n > 1, np.where(size > n, upward, miller(n, size)) * np.where((x < 0) & (n % 2 == 1), -1, 1), value
    )
    return np.where(n < 0, np.nan, value)


def bessel_second(n: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return Y_n(x) for n >= 0."""
    n, x = np.broadcast_arrays(n, x)
    first, second = special("bessel_y0")(x), special("bessel_y1")(x)
    value = np.where(n == 0, first, np.where(n == 1, second, recur(first, second, n, x)))
    value = np.where(np.isnan(value) & (x >= 0), np.where(np.isinf(x), 0.0, -np.inf), value)
    return np.where(n < 0, np.nan, value)


def recur(first: np.ndarray, second: np.ndarray, n: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the Bessel function of order n from those of orders 0 and 1."""
    value = second
    for order in range(1, int(n.max(initial=1))):
        first, second = second, 2 * order / x * second - first
        value = np.where(n == order + 1, second, value)
    return value


def miller(n: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return J_n(x) for 0 <= x <= n: down from an order where it vanishes, scaled so that J_0 + 2 J_2 + … is 1."""
    largest = int(n.max(initial=1))
    start = largest + 20 + math.isqrt(60 * largest)
    above, here, value, total = (np.full(x.shape, start_value) for start_value in (0.0, 1e-300, 0.0, 0.0))
    for order in range(start, 0, -1):
        above, here = here, 2 * order / x * here - above
        value = np.where(n == order - 1, here, value)
        total = total + (2 if order > 1 else 1) * here * (order % 2)
        large = abs(here) > 1e100
        scale = np.where(large, 1e-100, 1.0)
        above, here, value, total = above * scale, here * scale, value * scale, total * scale
    # Below that the recurrence overflows, and the function, at most x * x / 8, has no digit left to get right.
    return np.where(x < 1e-100, 0.0, value / total)


# Name without its prefix and its type's suffix → NumPy function. Floats arrive as float64.
IN_DOUBLE = {
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1")},
    **{name: getattr(np, name) for name in ("log", "log2", "log10", "log1p", "sqrt", "cbrt", "hypot", "floor", "ceil")},
    **{name: getattr(np, name) for name in ("trunc", "rint", "isnan", "isinf", "signbit", "copysign", "ldexp", "fmod")},
    **{"a" + name: getattr(np, "arc" + name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")},
    "abs": np.abs,
    "fabs": np.abs,
    "llabs": np.abs,
    "pow": np.power,
    "powi": np.power,
    "scalbn": np.ldexp,
    "nearbyint": np.rint,
    "round": round_half_away,
    "remainder": remainder,
    "fdim": positive_difference,
    "fdivide": np.divide,
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)),
    "finite": np.isfinite,
    "isfinite": np.isfinite,
    "logb": exponent,
    "ilogb": integer_exponent,
    "llrint": lambda x: to_integer(np.rint(x), np.dtype(np.int64)),
    "llround": lambda x: to_integer(round_half_away(x), np.dtype(np.int64)),
    "exp10": lambda x: np.power(10.0, x),
    "sinpi": sine_of_turns,
    "cospi": cosine_of_turns,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "frsqrt_rn": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "norm3d": norm,
    "norm4d": norm,
    "rhypot": lambda *xs: 1 / norm(*xs),
    "rnorm3d": lambda *xs: 1 / norm(*xs),
    "rnorm4d": lambda *xs: 1 / norm(*xs),
    "rcp64h": high_reciprocal,
    "erf": erf,
    "erfc": erfc,
    "erfcx": special("erfcx"),
    "erfinv": special("erfinv"),
    "erfcinv": inverse_erfc,
    "normcdf": lambda x: erfc(-x / math.sqrt(2)) / 2,
    "normcdfinv": special("ndtri"),
    "lgamma": special("gammaln", lambda x: math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)),
    "tgamma": gamma,
    # Torch's Bessel functions J and Y are right to about 2e-9, for float64 too.
    "j0": special("bessel_j0"),
    "j1": special("bessel_j1"),
    "jn": bessel_first,
    "y0": special("bessel_y0"),
    "y1": special("bessel_y1"),
    "yn": bessel_second,
    "cyl_bessel_i0": special("i0"),
    "cyl_bessel_i1": special("i1"),
}

IN_OWN_TYPE = {
    "fma": fma,
    "nextafter": np.nextafter,
    "int_as_float": lambda x: x.view(np.float32),
    "uint_as_float": lambda x: x.view(np.float32),
    "float_as_int": lambda x: x.view(np.int32),
    "float_as_uint": lambda x: x.view(np.int32),
    "longlong_as_double": lambda x: x.view(np.float64),
    "double_as_longlong": lambda x: x.view(np.int64),
    "double2hiint": lambda x: (x.view(np.int64) >> 32).astype(np.int32),
    "double2loint": lambda x: x.view(np.int64).astype(np.int32),
    "hiloint2double": from_halves,
    "popc": of_unsigned(population),
    "popcll": of_unsigned(population),
    "clz": of_unsigned(leading_zeros),
    "clzll": of_unsigned(leading_zeros),
    "ffs": lambda x: np.where(x == 0, 0, trailing_zeros(as_unsigned(x)).view(x.dtype) + 1),
    "ffsll": lambda x: np.where(x == 0, 0, trailing_zeros(as_unsigned(x)).view(x.dtype) + 1),
    "brev": reverse_bits,
    "brevll": reverse_bits,
    "byte_perm": permute_bytes,
    "mulhi": multiply_high_signed,
    "mul64hi": multiply_high_signed,
    "umulhi": of_unsigned(multiply_high),
    "umul64hi": of_unsigned(multiply_high),
    "mul24": lambda x, y: (x << 8 >> 8) * (y << 8 >> 8),
    "umul24": lambda x, y: (x & 0xFFFFFF) * (y & 0xFFFFFF),
    "hadd": lambda x, y: (x & y) + ((x ^ y) >> 1),
    "rhadd": lambda x, y: (x | y) - ((x ^ y) >> 1),
    "uhadd": of_unsigned(lambda x, y: (x & y) + ((x ^ y) >> 1)),
    "urhadd": of_unsigned(lambda x, y: (x | y) - ((x ^ y) >> 1)),
    "sad": sum_of_difference,
    "usad": of_unsigned(sum_of_difference),
}
