"""Every symbol of Triton's libdevice, called with the types that Triton gives it.

The references are mpmath (which torch brings along, through SymPy), fractions and Python's integers.
"""

import inspect
import math
import random
import re
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import triton.language as tl
from triton.language.extra.cuda import libdevice as cuda

from lab.machine import libdevice
from lab.machine.arithmetic import elementwise
from lab.machine.dtypes import DTYPES

INF, NAN = math.inf, math.nan
KINDS = {"fp32": "f32", "fp64": "f64", "int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64"}
DIGITS = {"fp32": (24, -126), "fp64": (53, -1022)}
SYMBOL = re.compile(r'\(\s*((?:core\.dtype\("\w+"\),?\s*)+)\):\s*\(\s*"(__nv_\w+)",\s*core\.dtype\(\s*"(\w+)"\)\s*\)')


def signatures():
    """Return {symbol: (operand types, result type)}, read from the source of Triton's module."""
    found = SYMBOL.findall(inspect.getsource(cuda))
    return {symbol: (re.findall(r'"(\w+)"', operands), result) for operands, symbol, result in found}


SIGNATURES = signatures()
WITHOUT_COUNTERPART = []


@pytest.fixture(autouse=True)
def silence():
    with np.errstate(all="ignore"):
        yield


def call(symbol, columns):
    """Call a symbol with columns of Python numbers; return a list of numbers of the type Triton declares."""
    operands, result = SIGNATURES[symbol]
    pairs = zip(columns, operands, strict=True)
    arrays = [np.array(column, dtype(kind)).view(DTYPES[KINDS[kind]]) for column, kind in pairs]
    function = elementwise(
        "tt.extern_elementwise", {"symbol": symbol}, tuple(array.dtype for array in arrays), DTYPES[KINDS[result]]
    )
    before = [array.tobytes() for array in arrays]
    got = function(*arrays)
    assert [array.tobytes() for array in arrays] == before
    assert got.dtype == DTYPES[KINDS[result]] and got.shape == arrays[0].shape
    return got.view(dtype(result)).tolist()


def dtype(kind):
    return np.dtype(kind.replace("fp", "float"))


def test_every_builtin_function_is_read():
    functions = inspect.getmembers(cuda, tl.core.is_builtin)
    assert len(functions) > 150
    for name, function in functions:
        symbols = re.findall(r"__nv_\w+", inspect.getsource(function))
        assert symbols and set(symbols) <= set(SIGNATURES), name


def test_the_symbols_without_a_counterpart():
    missing = []
    for symbol in SIGNATURES:
        try:
            libdevice.function(symbol)
        except NotImplementedError as error:
            assert symbol in str(error)
            missing.append(symbol)
    assert missing == WITHOUT_COUNTERPART


@pytest.mark.parametrize("symbol", ["__nv_unheard_of", "__nv_", "tanh_approx", "__nv_fadd_rx"])
def test_an_unknown_symbol_is_named(symbol):
    with pytest.raises(NotImplementedError, match=symbol):
        libdevice.function(symbol)


# Functions of floats: name → (reference, arguments, units in the last place of float64 allowed)

mp = mpmath.mp.clone()
mp.prec = 200
ALL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.3, -2.7, 1e-30, 3.0, 10.0, -10.25, 88.0, INF, -INF, NAN]
PROBABILITY = [0.0, 1.0, 0.5, 1e-20, 0.01, 0.3, 0.7, 0.99, 1 - 2**-20, -0.5, 1.5, NAN]
SIGNED = [0.0, 1.0, -1.0, 0.5, -0.9, 1e-20, 0.3, 0.99, 1.5, NAN]
FIRST, SECOND = (0.0, -0.0, 1.0, -2.5, 7.0, 1e-20, INF, NAN), (0.0, 1.0, -3.0, 0.75, 2.0, INF, -INF, NAN)
PAIRS = [(x, y) for x in FIRST for y in SECOND]
BESSEL = [0.0, 1e-10, 0.1, 1.0, 2.5, 8.0, 8.5, 20.0, 100.5]


def half_away(x):
    return x if not math.isfinite(x) else math.copysign(math.floor(abs(Fraction(x)) + Fraction(1, 2)), x)


def whole(to_whole):
    return lambda x: math.copysign(to_whole(x), x) if math.isfinite(x) else x


def log(base):
    return lambda x: -INF if x == 0 else NAN if x < 0 else mp.log(x, base)


def gamma(x):
    if x == 0:
        return math.copysign(INF, x)
    return NAN if x == -INF or (x < 0 and x == math.floor(x)) else mp.gamma(x)


def log_of_gamma(x):
    return INF if x in (INF, -INF) or (x <= 0 and x == math.floor(x)) else mp.log(abs(mp.gamma(x)))


def turns(function):
    return lambda x: function(mp.mpf(x)) if math.isfinite(x) else NAN


def quotient(x, y):
    if y == 0:
        return NAN if x == 0 else math.copysign(INF, x)  # of PAIRS, whose zero divisor is +0
    return x / y


def ieee_remainder(x, y):
    return NAN if math.isinf(x) or y == 0 else math.remainder(x, y)


def c_fmod(x, y):
    return NAN if math.isinf(x) or y == 0 else math.fmod(x, y)


def normal_inverse(p):
    if not 0 < p < 1:
        return {0.0: -INF, 1.0: INF}.get(p, NAN)
    return inverse_erf(2 * mp.mpf(p) - 1) * mp.sqrt(2)


def inverse_erf(x):
    return mp.erfinv(x) if abs(x) < 1 else {1: INF, -1: -INF}.get(x, NAN)


def inverse_erfc(x):
    return inverse_erf(1 - mp.mpf(x)) if 0 < x < 2 else {0.0: INF, 2.0: -INF}.get(x, NAN)


def scaled_erfc(x):
    return 0.0 if x == INF else INF if x < -27 else mp.erfc(x) * mp.exp(mp.mpf(x) ** 2)


def in_domain(inside, function):
    return lambda x: function(x) if inside(x) else NAN


def reciprocal(function):
    def compute(*xs):
        value = function(*xs)
        if math.isinf(value):
            return math.copysign(0.0, value)
        return math.copysign(INF, xs[0] if len(xs) == 1 else 1) if value == 0 else 1 / mp.mpf(value)

    return compute


def root_of_squares(*xs):
    return INF if any(map(math.isinf, xs)) else mp.sqrt(sum(mp.mpf(x) ** 2 for x in xs))


def cube_root(x):
    return x if x == 0 or math.isinf(x) else mp.cbrt(abs(x)) * int(math.copysign(1, x))


def power(x, y):
    if x > 0 and math.isfinite(x) and math.isfinite(y):
        return mp.power(x, y)
    if x == 0 and y < 0:
        return math.copysign(INF, x) if y % 2 == 1 else INF
    try:
        return math.pow(x, y)
    except ValueError:
        return NAN


def exponent(x):
    return -INF if x == 0 else math.frexp(x)[1] - 1 if math.isfinite(x) else abs(x)


def second_kind(order, x):
    return -INF if x == 0 else mp.bessely(order, x)


INSIDE = {"unit": lambda x: -1 <= x <= 1, "from one": lambda x: x >= 1, "positive": lambda x: x >= 0}
UNARY = {
    **{name: (getattr(mp, name), ALL[:12], 2) for name in ("exp", "sinh", "cosh", "tan")},
    **{
        name: (getattr(mp, name), ALL[:13], 2)
        for name in ("sin", "cos", "tanh", "atan", "asinh", "erf", "erfc", "expm1")
    },
    **{name: (in_domain(INSIDE["unit"], getattr(mp, name)), SIGNED, 2) for name in ("asin", "acos")},
    "atanh": (in_domain(lambda x: abs(x) < 1, mp.atanh), [0.0, 0.5, -0.9, 1e-20, 1.5, NAN], 2),
    "acosh": (in_domain(INSIDE["from one"], mp.acosh), [1.0, 1.5, 10.0, 1e20, 0.5, NAN], 2),
    "exp2": (lambda x: mp.power(2, x), ALL[:13], 2),
    "exp10": (lambda x: mp.power(10, x), ALL[:12], 2),
    "log": (log(mp.e), ALL[:14], 2),
    "log2": (log(2), ALL[:14], 2),
    "log10": (log(10), ALL[:14], 2),
    "log1p": (lambda x: -INF if x == -1 else NAN if x < -1 else mp.log1p(x), ALL[:13], 2),
    "sqrt": (in_domain(INSIDE["positive"], mp.sqrt), ALL[:14], 0.51),
    "rsqrt": (reciprocal(in_domain(INSIDE["positive"], mp.sqrt)), ALL[:13], 2),
    "frsqrt_rn": (reciprocal(in_domain(INSIDE["positive"], mp.sqrt)), ALL[:13], 2),
    "cbrt": (cube_root, ALL[:15], 2),
    "rcbrt": (reciprocal(cube_root), ALL[:13], 2),
    "sinpi": (turns(mp.sinpi), [*ALL, 1e6, 1e6 + 0.25, -7.0, 2.5], 2),
    "cospi": (turns(mp.cospi), [*ALL, 1e6, 1e6 + 0.25, -7.0, 2.5], 2),
    "floor": (whole(math.floor), ALL, 0),
    "ceil": (whole(math.ceil), ALL, 0),
    "trunc": (whole(math.trunc), ALL, 0),
    "rint": (whole(round), [*ALL, 1.5, 2.5], 0),
    "nearbyint": (whole(round), [*ALL, 1.5, 2.5], 0),
    "round": (half_away, [*ALL, 2.5, 0.49999999999999994, 8388609.0, 2.0**52 + 1], 0),
    "fabs": (abs, ALL, 0),
    "saturate": (lambda x: 0.0 if not x > 0 else min(x, 1.0), ALL[2:], 0),
    "logb": (exponent, [*ALL, 1e-40, -5.0], 0),
    "erfinv": (inverse_erf, SIGNED, 2),
    "erfcinv": (inverse_erfc, [*PROBABILITY, 1.9, 2.0], 8),
    "erfcx": (scaled_erfc, [0.0, 1.0, -1.0, 0.3, 5.0, 30.0, 1e6, -5.0, NAN], 4),
    "normcdf": (lambda x: mp.ncdf(x), [0.0, 1.0, -1.0, 3.0, -10.0, 0.3], 64),
    "normcdfinv": (normal_inverse, PROBABILITY, 8),
    "lgamma": (log_of_gamma, [*ALL, 0.1, 4.5, 50.0, -3.0, -0.7], 8),
    "tgamma": (gamma, [0.0, -0.0, 1.0, 0.5, 5.0, 10.5, -0.5, -2.7, -3.0, 30.0, INF, -INF, NAN], 8),
    "j0": (lambda x: mp.besselj(0, x), [*BESSEL, -2.5], None),
    "j1": (lambda x: mp.besselj(1, x), [*BESSEL, -2.5], None),
    "y0": (lambda x: second_kind(0, x), BESSEL, None),
    "y1": (lambda x: second_kind(1, x), BESSEL, None),
    "cyl_bessel_i0": (lambda x: mp.besseli(0, x), [*BESSEL[:-1], -2.5], 8),
    "cyl_bessel_i1": (lambda x: mp.besseli(1, x), [*BESSEL[:-1], -2.5], 8),
}
SEVERAL = {
    "atan2": (math.atan2, PAIRS, 2),
    "copysign": (math.copysign, PAIRS, 0),
    "hypot": (root_of_squares, PAIRS, 2),
    "rhypot": (reciprocal(root_of_squares), PAIRS, 2),
    "fmod": (c_fmod, PAIRS, 0),
    "remainder": (ieee_remainder, [*PAIRS, (2.5, 1.0), (3.5, 1.0), (1e30, 3.0), (-5.0, 2.0), (1.0, 1e-30)], 0),
    "fdim": (lambda x, y: x - y if x > y else 0.0, PAIRS, 0),
    "fdivide": (quotient, PAIRS, 1),
    "pow": (power, PAIRS, 2),
    "norm3d": (root_of_squares, [(*pair, z) for pair in PAIRS for z in (0.5, -3.0)], 2),
    "norm4d": (root_of_squares, [(*pair, z, 1e-3) for pair in PAIRS for z in (0.5, -3.0)], 2),
    "rnorm3d": (reciprocal(root_of_squares), [(*pair, 0.5) for pair in PAIRS], 2),
    "rnorm4d": (reciprocal(root_of_squares), [(*pair, 1.5, -2.0) for pair in PAIRS], 2),
    "powi": (power, [(x, n) for x in (2.5, -3.0, 0.0) for n in (0, 1, 5, -2)], 2),
    "ldexp": (math.ldexp, [(x, n) for x in (2.5, -3.0, 0.0, INF) for n in (0, 5, -140)], 0),
    "scalbn": (math.ldexp, [(x, n) for x in (2.5, -3.0, 0.0, INF) for n in (0, 5, -140)], 0),
    "jn": (mp.besselj, [(n, x) for n in (0, 1, 2, 5, 30) for x in (*BESSEL, -2.5)], None),
    "yn": (second_kind, [(n, x) for n in (0, 1, 2, 5, 9) for x in BESSEL], None),
}


def symbols_of(name):
    """Return the symbols of a float function: both precisions, and the fast version."""
    return [s for s in (f"__nv_{name}", f"__nv_{name}f", f"__nv_fast_{name}f") if s in SIGNATURES]


BESSEL_ERROR = 1e-8  # what torch.special leaves of float64's 16 digits; float32 has 7


def as_float(value):
    value = complex(value) if isinstance(value, mp.mpc) else value
    return NAN if isinstance(value, complex) else float(value)


def close(got, exact, kind, units):
    """Whether a result is within `units` of the last place; without units, near enough beside 1, as CUDA promises."""
    exact_value = as_float(exact)
    if not math.isfinite(exact_value) or not math.isfinite(got):
        limit = float(np.finfo(dtype(kind)).max)
        overflows = math.isinf(got) and abs(exact_value) >= limit and (got > 0) == (exact_value > 0)
        return overflows or (math.isnan(got) and math.isnan(exact_value))
    digits, smallest = DIGITS[kind]
    unit = Fraction(2) ** (max(math.frexp(exact_value)[1] - 1, smallest) - digits + 1)
    if units is None:
        return abs(got - exact_value) <= BESSEL_ERROR * max(1, abs(exact_value)) + (unit if kind == "fp32" else 0)
    allowed = units if kind == "fp64" else min(units, Fraction(51, 100))
    error = abs(mp.mpf(got) - (exact if isinstance(exact, mp.mpf) else mp.mpf(exact_value)))
    if exact_value == 0 and got == 0 and not isinstance(exact, mp.mpf):
        return math.copysign(1, got) == math.copysign(1, exact_value)
    return error <= float(allowed) * float(unit)


IGNORES_NAN = {"pow", "saturate", "copysign", "hypot", "rhypot", "norm3d", "norm4d", "rnorm3d", "rnorm4d"}


@pytest.mark.parametrize("name", [*UNARY, *SEVERAL])
def test_functions_of_floats(name):
    reference, rows, units = (UNARY | SEVERAL)[name]
    rows = [row if isinstance(row, tuple) else (row,) for row in rows]
    assert symbols_of(name)
    for symbol in symbols_of(name):
        operands, result = SIGNATURES[symbol]
        columns = zip(zip(*rows, strict=True), operands, strict=True)
        columns = [np.array(column, dtype(kind)).tolist() for column, kind in columns]
        for row, got in zip(zip(*columns, strict=True), call(symbol, columns), strict=True):
            is_nan = name not in IGNORES_NAN and any(map(math.isnan, row))
            exact = NAN if is_nan else reference(*row)
            assert close(got, exact, result, units), (symbol, row, got, exact)


# Roundings in a direction

DIRECTIONS = {"n": round, "z": math.trunc, "d": math.floor, "u": math.ceil}
LARGEST = {"fp32": 2**128 - 2**104, "fp64": 2**1024 - 2**971}


def rounded(exact, kind, direction):
    """Round a fraction to a float type in a direction."""
    digits, smallest = DIGITS[kind]
    if exact == 0:
        return 0.0
    size = abs(exact)
    power_of_two = size.numerator.bit_length() - size.denominator.bit_length()
    power_of_two -= size < Fraction(2) ** power_of_two
    quantum = Fraction(2) ** (max(power_of_two, smallest) - digits + 1)
    value = DIRECTIONS[direction](exact / quantum) * quantum
    if abs(value) > LARGEST[kind]:
        stays = {"n": False, "z": True, "d": exact > 0, "u": exact < 0}[direction]
        return (LARGEST[kind] if stays else INF) * (1 if exact > 0 else -1)
    return float(value)


def root(x, kind, direction):
    """Round a square root: an integer root with digits to spare, made odd where it is not exact."""
    scaled = Fraction(x) * 4**1200
    integer = math.isqrt(scaled.numerator // scaled.denominator)
    integer |= integer * integer != scaled
    return rounded(Fraction(integer, 2**1200), kind, direction)


EXACT = {
    "add": (2, lambda x, y: x + y),
    "sub": (2, lambda x, y: x - y),
    "mul": (2, lambda x, y: x * y),
    "div": (2, lambda x, y: x / y),
    "rcp": (1, lambda x: 1 / x),
    "sqrt": (1, None),
    "fma": (3, lambda x, y, z: x * y + z),
}


def drawn(kind, count, seed):
    """Return finite floats that are not zero, of every size, as Python floats."""
    generator = random.Random(seed)
    digits, smallest = DIGITS[kind]
    edges = [1.0, 3.0, float(LARGEST[kind]), math.ldexp(1.0, smallest - digits + 1), math.ldexp(1.0, smallest)]
    powers = [generator.randint(smallest - 5, -smallest) - digits for _ in range(count)]
    near = [math.ldexp(generator.getrandbits(digits) | 1, generator.randint(-3, 3) - digits) for _ in range(count)]
    wide = [math.ldexp(generator.getrandbits(digits) | 1, power_of_two) for power_of_two in powers]
    values = np.array([*edges, *near, *wide], dtype(kind))
    generator.shuffle(values)
    return [
        value if generator.random() < 0.5 else -value for value in values.tolist() if value and math.isfinite(value)
    ]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", EXACT)
def test_arithmetic_rounds_in_a_direction(name, direction):
    count, exact = EXACT[name]
    for kind in ("fp32", "fp64"):
        prefix = kind == "fp32" and "f" or "d"
        symbol = (
            f"__nv_fma{'f' * (kind == 'fp32')}_r{direction}" if name == "fma" else f"__nv_{prefix}{name}_r{direction}"
        )
        columns = [drawn(kind, 40, seed) for seed in range(count)]
        length = min(map(len, columns))
        columns = [column[:length] for column in columns]
        if name == "sqrt":
            columns = [[abs(x) for x in columns[0]]]
        for row, got in zip(zip(*columns, strict=True), call(symbol, columns), strict=True):
            if name == "sqrt":
                expected = root(*row, kind, direction)
            else:
                expected = rounded(exact(*map(Fraction, row)), kind, direction)
            assert got == expected, (symbol, row)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_special_values_pass_through_every_direction(direction):
    got = call(f"__nv_fadd_r{direction}", [[INF, INF, NAN, 1.0], [1.0, -INF, 0.0, -INF]])
    assert str(got) == "[inf, nan, nan, -inf]"
    assert str(call(f"__nv_fdiv_r{direction}", [[1.0, 0.0], [0.0, 0.0]])) == "[inf, nan]"
    assert str(call(f"__nv_drcp_r{direction}", [[0.0, -0.0, INF]])) == "[inf, -inf, 0.0]"
    assert str(call(f"__nv_fsqrt_r{direction}", [[0.0, -1.0, INF]])) == "[0.0, nan, inf]"


WIDTHS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
WIDTHS |= {f"u{kind}": (0, high - low) for kind, (low, high) in WIDTHS.items()}
C_TYPES = {"int": "int32", "uint": "uint32", "ll": "int64", "ull": "uint64", "float": "fp32", "double": "fp64"}
CONVERSIONS = {
    symbol: match.groups()
    for symbol in SIGNATURES
    if (match := re.fullmatch(r"__nv_(u?int|u?ll|float|double)2(u?int|u?ll|float|double)_r([nzdu])", symbol))
}


def integer_edges(kind):
    low, high = WIDTHS[kind]
    middles = [
        2**k + delta for k in (24, 25, 30, 53, 54, 62) for delta in (-1, 0, 1, 2 ** max(k - 24, 0), 2 ** max(k - 53, 0))
    ]
    values = {0, 1, 7, 100, low, low + 1, high, high - 1, high // 2, *middles, *(-value for value in middles), -1, -5}
    return sorted(value for value in values if low <= value <= high)


@pytest.mark.parametrize("symbol", CONVERSIONS)
def test_conversions_round_in_their_direction(symbol):
    source, target, direction = (C_TYPES.get(part, part) for part in CONVERSIONS[symbol])
    if source in WIDTHS:
        values = integer_edges(source)
        assert call(symbol, [values]) == [rounded(Fraction(value), target, direction) for value in values]
    elif target == "fp32":
        values = [*drawn("fp64", 60, 0), *(1 + x * 2.0**-24 for x in (0.5, 1, 1.5, -0.5))]
        assert call(symbol, [values]) == [rounded(Fraction(value), target, direction) for value in values]
        assert str(call(symbol, [[INF, -INF, NAN]])) == "[inf, -inf, nan]"
    else:
        low, high = WIDTHS[target]
        values = [0.5, -0.5, 1.5, 2.5, -1.75, 1e9, -3e9, 3e9, 1e19, 1e30, -1e30, INF, -INF, 2.0**31, -(2.0**63)]
        values = np.array(values, dtype(source)).tolist()
        limits = {INF: high, -INF: low}
        expected = [
            limits.get(x) if math.isinf(x) else min(max(DIRECTIONS[direction](Fraction(x)), low), high) for x in values
        ]
        declared = SIGNATURES[symbol][1]
        wrapped = [
            value - 2 ** (high.bit_length()) * (declared[0] != "u" and value > WIDTHS[declared][1])
            for value in expected
        ]
        assert call(symbol, [values]) == wrapped
        bits = 64 if target.endswith("64") else 32
        assert call(symbol, [[NAN]]) == [-(2 ** (bits - 1)) if source == "fp64" or bits == 64 else 0]


# Integers and bits


def signed(value, bits):
    value %= 2**bits
    return value - 2**bits if value >> (bits - 1) else value


def byte_perm(x, y, selector):
    octets = (x % 2**32).to_bytes(4, "little") + (y % 2**32).to_bytes(4, "little")
    return int.from_bytes([octets[selector >> 4 * place & 7] for place in range(4)], "little")


def bits_of(x, form):
    return int.from_bytes(np.array(x, form).tobytes(), "little")


def double_of(high, low):
    return np.frombuffer(((high % 2**32) << 32 | low % 2**32).to_bytes(8, "little"), np.float64).item()


def reversed_bits(bits):
    return lambda x: int(f"{x % 2**bits:0{bits}b}"[::-1], 2)


# Symbol without its prefix → the result, of any size: it wraps to the declared type.
INTEGER = {
    "abs": abs,
    "llabs": abs,
    "clz": lambda x: 32 - (x % 2**32).bit_length(),
    "clzll": lambda x: 64 - (x % 2**64).bit_length(),
    "popc": lambda x: bin(x % 2**32).count("1"),
    "popcll": lambda x: bin(x % 2**64).count("1"),
    "ffs": lambda x: (x & -x).bit_length(),
    "ffsll": lambda x: (x & -x).bit_length(),
    "brev": reversed_bits(32),
    "brevll": reversed_bits(64),
    "byte_perm": byte_perm,
    **{name: lambda x, y: x * y >> 32 for name in ("mulhi", "umulhi")},
    **{name: lambda x, y: x * y >> 64 for name in ("mul64hi", "umul64hi")},
    "mul24": lambda x, y: signed(x, 24) * signed(y, 24),
    "umul24": lambda x, y: (x % 2**24) * (y % 2**24),
    **{name: lambda x, y: (x + y) >> 1 for name in ("hadd", "uhadd")},
    **{name: lambda x, y: (x + y + 1) >> 1 for name in ("rhadd", "urhadd")},
    **{name: lambda x, y, z: abs(x - y) + z for name in ("sad", "usad")},
}


@pytest.mark.parametrize("name", INTEGER)
def test_integers(name):
    operands, result = SIGNATURES[f"__nv_{name}"]
    edges = [integer_edges(kind) for kind in operands]
    generator = random.Random(0)
    rows = [[generator.choice(values) for values in edges] for _ in range(400)]
    bits = int(result[-2:])
    for row, got in zip(rows, call(f"__nv_{name}", list(zip(*rows, strict=True))), strict=True):
        expected = INTEGER[name](*row)
        assert got == (expected % 2**bits if result[0] == "u" else signed(expected, bits)), row


DOUBLES = [0.0, -0.0, 1.0, -2.5, 1e-310, 1.7e308, INF, -INF]
FLOAT_BITS = {
    "float_as_int": (DOUBLES, lambda x: signed(bits_of(x, np.float32), 32)),
    "float_as_uint": (DOUBLES, lambda x: signed(bits_of(x, np.float32), 32)),
    "double_as_longlong": (DOUBLES, lambda x: signed(bits_of(x, np.float64), 64)),
    "double2hiint": (DOUBLES, lambda x: signed(bits_of(x, np.float64) >> 32, 32)),
    "double2loint": (DOUBLES, lambda x: signed(bits_of(x, np.float64), 32)),
    "int_as_float": ([0, 1, -5, 2**30], lambda x: np.array(x, np.int32).tobytes()),
    "uint_as_float": ([0, 1, 2**31, 2**30], lambda x: np.array(x, np.uint32).tobytes()),
    "longlong_as_double": ([0, 1, -(2**63), 2**62], lambda x: np.array(x, np.int64).tobytes()),
    "isnanf": ([*DOUBLES, NAN], math.isnan),
    "isnand": ([*DOUBLES, NAN], math.isnan),
    "isinff": ([*DOUBLES[:5], INF, -INF, NAN], math.isinf),
    "isinfd": ([*DOUBLES, NAN], math.isinf),
    "finitef": ([*DOUBLES[:5], INF, NAN], math.isfinite),
    "isfinited": ([*DOUBLES, NAN], math.isfinite),
    "signbitf": (DOUBLES, lambda x: math.copysign(1, x) < 0),
    "signbitd": (DOUBLES, lambda x: math.copysign(1, x) < 0),
    **dict.fromkeys(("llrint", "llrintf"), ([0.5, 1.5, -2.5, 1e30, -INF, NAN], lambda x: saturated(x, round))),
    **dict.fromkeys(("llround", "llroundf"), ([0.5, 1.5, -2.5, 1e30, -INF, NAN], lambda x: saturated(x, half_away))),
    **dict.fromkeys(("ilogb", "ilogbf"), ([1.0, 5.0, -0.3, 1e-40, 0.0, INF, NAN], lambda x: integer_exponent(x))),
}


def saturated(x, to_whole):
    if not math.isfinite(x):
        return WIDTHS["int64"][x > 0]  # NaN becomes the least integer
    return min(max(int(to_whole(x)), -(2**63)), 2**63 - 1)


def integer_exponent(x):
    if math.isnan(x) or x == 0:
        return -(2**31)
    return math.frexp(x)[1] - 1 if math.isfinite(x) else 2**31 - 1


@pytest.mark.parametrize("name", FLOAT_BITS)
def test_bits_of_floats(name):
    values, reference = FLOAT_BITS[name]
    (operand,), result = SIGNATURES[f"__nv_{name}"]
    values = np.array(values, dtype(operand)).tolist()
    got = call(f"__nv_{name}", [values])
    got = [np.array(x, dtype(result)).tobytes() for x in got] if result in DIGITS else got
    assert got == [reference(x) for x in values]


def test_doubles_in_halves():
    for row in [(0, 1), (-1, -2), (1072693248, 0), (2146435072, 0), (-2147483648, 5)]:
        (got,) = call("__nv_hiloint2double", [[half] for half in row])
        assert np.array(got).tobytes() == np.array(double_of(*row)).tobytes()
    for x in (3.0, -0.7, 1e300):
        (got,) = call("__nv_rcp64h", [[x]])
        assert bits_of(got, np.float64) % 2**32 == 0 and abs(got * x - 1) < 2.0**-19


@pytest.mark.parametrize("symbol, form", [("__nv_nextafterf", np.float32), ("__nv_nextafter", np.float64)])
def test_the_next_float_is_one_in_the_bits_away(symbol, form):
    for x in (1.0, 1.5, 2.0, 1e-30):
        (up,), (down,) = call(symbol, [[x], [INF]]), call(symbol, [[x], [-1.0]])
        assert bits_of(up, form) - bits_of(x, form) == bits_of(x, form) - bits_of(down, form) == 1
    assert call(symbol, [[1.0], [1.0]]) == [1.0]


@pytest.mark.parametrize("symbol, kind", [("__nv_fmaf", "fp32"), ("__nv_fma", "fp64")])
def test_fma_rounds_once(symbol, kind):
    columns = [column[:80] for column in (drawn(kind, 40, seed) for seed in range(3))]
    expected = [rounded(Fraction(x) * Fraction(y) + Fraction(z), kind, "n") for x, y, z in zip(*columns, strict=True)]
    assert call(symbol, columns) == expected


def test_every_symbol_is_tested():
    tested = {symbol for name in UNARY | SEVERAL for symbol in symbols_of(name)} | set(CONVERSIONS)
    tested |= {f"__nv_{name}" for name in INTEGER | FLOAT_BITS}
    tested |= {f"__nv_{kind}{name}_r{way}" for kind in "fd" for name in EXACT if name != "fma" for way in DIRECTIONS}
    tested |= {f"__nv_fma{kind}_r{way}" for kind in ("", "f") for way in DIRECTIONS}
    tested |= {"__nv_fma", "__nv_fmaf", "__nv_nextafter", "__nv_nextafterf", "__nv_hiloint2double", "__nv_rcp64h"}
    assert tested == set(SIGNATURES)
