"""Every elementwise operation against exact references: Python's integers and fractions, its math module, torch."""

import math
import operator
import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from lab.machine import arithmetic
from lab.machine.arithmetic import elementwise, reduction
from lab.machine.dtypes import DTYPES, poison

INF, NAN = math.inf, math.nan
INTEGERS = ["i1", "i8", "i16", "i32", "i64"]


@pytest.fixture(autouse=True)
def silence():
    with np.errstate(all="ignore"):
        yield


def call(name, arrays, result, **attributes):
    """Run an operation as the executor does; its arguments must come out as they went in."""
    before = [array.tobytes() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    function = elementwise(name, attributes, tuple(array.dtype for array in arrays), DTYPES[result])
    value = function(*arrays)
    assert [array.tobytes() for array in arrays] == before
    assert value.dtype == DTYPES[result]
    assert value.shape == np.broadcast_shapes(*(array.shape for array in arrays))
    return value


# Integers


def bits_of(kind):
    return int(kind[1:])


def wrapped(value, kind):
    """Return an integer modulo the width of `kind`, as NumPy holds it: signed, and one bit as 0 or 1."""
    bits = bits_of(kind)
    value %= 2**bits
    return value if kind == "i1" or value < 2 ** (bits - 1) else value - 2**bits


def as_signed(value, bits):
    value %= 2**bits
    return value - 2**bits if value >> (bits - 1) else value


def edges(kind):
    bits = bits_of(kind)
    if bits == 1:
        return [0, 1]
    around = [0, 1, 2, 3, 7, bits - 1, bits, bits + 1, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2 ** (bits // 2), 100]
    generator = random.Random(0)
    values = [*around, *(-value for value in around), *(generator.getrandbits(bits) for _ in range(8))]
    return sorted({wrapped(value, kind) for value in values})


def integers(kind):
    return list(range(-128, 128)) if kind == "i8" else edges(kind)


def truncated(x, y):
    return -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def high_product(x, y, bits):
    return x * y >> bits


def signed_binary(reference):
    return lambda x, y, bits: reference(as_signed(x, bits), as_signed(y, bits))


def unsigned_binary(reference):
    return lambda x, y, bits: reference(x % 2**bits, y % 2**bits)


def without_zero(reference):
    """Leave out division by zero, which MLIR leaves undefined and a test of its own pins."""
    return lambda x, y: None if y == 0 else reference(x, y)


INTEGER_BINARY = {
    "arith.addi": signed_binary(operator.add),
    "arith.subi": signed_binary(operator.sub),
    "arith.muli": signed_binary(operator.mul),
    "arith.andi": signed_binary(operator.and_),
    "arith.ori": signed_binary(operator.or_),
    "arith.xori": signed_binary(operator.xor),
    "arith.divsi": signed_binary(truncated),
    "arith.remsi": signed_binary(lambda x, y: x - truncated(x, y) * y),
    "arith.floordivsi": signed_binary(without_zero(operator.floordiv)),
    "arith.ceildivsi": signed_binary(without_zero(lambda x, y: -(-x // y))),
    "arith.divui": unsigned_binary(lambda x, y: x // y if y else -1),
    "arith.remui": unsigned_binary(lambda x, y: x % y if y else x),
    "arith.ceildivui": unsigned_binary(without_zero(lambda x, y: -(-x // y))),
    "arith.shli": lambda x, y, bits: x << min(y % 2**bits, bits),
    "arith.shrui": lambda x, y, bits: x % 2**bits >> min(y % 2**bits, bits),
    "arith.shrsi": lambda x, y, bits: as_signed(x, bits) >> min(y % 2**bits, bits),
    "arith.maxsi": signed_binary(max),
    "arith.minsi": signed_binary(min),
    "arith.maxui": unsigned_binary(max),
    "arith.minui": unsigned_binary(min),
    "tt.mulhiui": lambda x, y, bits: (x % 2**bits) * (y % 2**bits) >> bits,
}


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", INTEGER_BINARY)
def test_integers_wrap_and_divide_like_a_gpu(name, kind):
    rows, columns = integers(kind), edges(kind)
    x, y = np.array(rows, DTYPES[kind])[:, None], np.array(columns, DTYPES[kind])[None]
    if name == "tt.mulhiui" and kind not in ("i32", "i64"):
        pytest.skip("Triton multiplies 32 and 64 bits only")
    got = call(name, [x, y], kind).tolist()
    for row, values in zip(rows, got, strict=True):
        for column, value in zip(columns, values, strict=True):
            expected = INTEGER_BINARY[name](row, column, bits_of(kind))
            assert expected is None or value == wrapped(expected, kind), (row, column)


@pytest.mark.parametrize("name", ["arith.floordivsi", "arith.ceildivsi", "arith.ceildivui"])
def test_rounded_division_by_zero_gives_minus_one(name):
    x = np.array([0, 5, -5], np.int32)
    assert call(name, [x, np.zeros(1, np.int32)], "i32").tolist() == [-1, -1, -1]


INTEGER_UNARY = {
    "math.absi": lambda x, bits: abs(as_signed(x, bits)),
    "math.ctlz": lambda x, bits: bits - (x % 2**bits).bit_length(),
    "math.cttz": lambda x, bits: ((x & -x) % 2**bits).bit_length() - 1 if x else bits,
    "math.ctpop": lambda x, bits: bin(x % 2**bits).count("1"),
}


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", INTEGER_UNARY)
def test_integers_of_one_operand(name, kind):
    values = integers(kind)
    got = call(name, [np.array(values, DTYPES[kind])], kind).tolist()
    assert got == [wrapped(INTEGER_UNARY[name](value, bits_of(kind)), kind) for value in values]


INTEGER_COMPARISONS = {
    **{"eq": signed_binary(operator.eq), "ne": signed_binary(operator.ne)},
    **{"slt": signed_binary(operator.lt), "sle": signed_binary(operator.le)},
    **{"sgt": signed_binary(operator.gt), "sge": signed_binary(operator.ge)},
    **{"ult": unsigned_binary(operator.lt), "ule": unsigned_binary(operator.le)},
    **{"ugt": unsigned_binary(operator.gt), "uge": unsigned_binary(operator.ge)},
}


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("predicate", INTEGER_COMPARISONS)
def test_integer_comparisons(predicate, kind):
    values = edges(kind)
    x = np.array(values, DTYPES[kind])
    got = call("arith.cmpi", [x[:, None], x[None]], "i1", predicate=predicate).tolist()
    compare = INTEGER_COMPARISONS[predicate]
    assert got == [[compare(a, b, bits_of(kind)) for b in values] for a in values]


INTEGER_CASTS = {
    "arith.extsi": as_signed,
    "arith.index_cast": as_signed,
    "arith.trunci": as_signed,
    "arith.extui": lambda x, bits: x % 2**bits,
    "arith.index_castui": lambda x, bits: x % 2**bits,
}


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("name", INTEGER_CASTS)
def test_casts_between_integers(name, source):
    values = integers(source)
    for target in [*INTEGERS, "index"]:
        result = "i64" if target == "index" else target
        got = call(name, [np.array(values, DTYPES[source])], target).tolist()
        assert got == [wrapped(INTEGER_CASTS[name](value, bits_of(source)), result) for value in values], target


# Floats: name → digits of the significand in bits, exponent of the smallest normal, largest finite value
FORMATS = {
    "f16": (11, -14, 65504),
    "bf16": (8, -126, 2**128 - 2**120),
    "f32": (24, -126, 2**128 - 2**104),
    "f64": (53, -1022, 2**1024 - 2**971),
    "f8E4M3FN": (4, -6, 448),
    "f8E5M2": (3, -14, 57344),
    "f8E4M3B11FNUZ": (4, -10, 30),
    "f8E4M3FNUZ": (4, -7, 240),
    "f8E5M2FNUZ": (3, -15, 57344),
}
WIDE = ["f16", "bf16", "f32", "f64"]
FP8 = [kind for kind in FORMATS if kind.startswith("f8")]


def rounded(exact, kind, to_whole=round):
    """Round a fraction to a float format: to nearest even, or as `to_whole` rounds a fraction to an integer."""
    digits, smallest, largest = FORMATS[kind]
    if exact == 0:
        return 0.0
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    quantum = Fraction(2) ** (max(exponent, smallest) - digits + 1)
    value = to_whole(size / quantum) * quantum
    if value > largest:
        value = largest if kind in FP8 or to_whole is not round else INF
    return math.copysign(float(value), 1 if exact > 0 else -1)


def converted(x, kind, to_whole=round):
    """Return a Python float or integer in a format, by `rounded` where it is finite."""
    if isinstance(x, float) and not math.isfinite(x):
        return math.copysign(FORMATS[kind][2], x) if kind in FP8 and not math.isnan(x) else x
    return rounded(Fraction(x), kind, to_whole) or math.copysign(0.0, x)


def decoded(byte, kind):
    """Return what a byte means in an fp8 format, by its definition."""
    digits, smallest, largest = FORMATS[kind]
    sign = -1 if byte & 0x80 else 1
    exponent, mantissa = (byte & 0x7F) >> (digits - 1), byte & (2 ** (digits - 1) - 1)
    if kind.endswith("FNUZ") and byte == 0x80:
        return NAN
    value = math.ldexp(mantissa + (2 ** (digits - 1) if exponent else 0), max(exponent, 1) - 1 + smallest - digits + 1)
    if value > largest:
        is_infinite = kind == "f8E5M2" and mantissa == 0
        return sign * INF if is_infinite else NAN
    return sign * value


def floats(kind, count=24):
    """Return an array of a format's edge values and of random bits, finite ones of every size."""
    digits, smallest, largest = FORMATS[kind]
    dtype = DTYPES[kind]
    if kind in FP8:
        return np.arange(256, dtype=np.uint8).view(dtype)
    tiny = math.ldexp(1.0, smallest - digits + 1)
    near_one = math.ldexp(1.0, 1 - digits)
    edge = [0.0, 1.0, 1 + near_one, 1.5, 3.0, 0.1, 0.5, 2.5, float(largest), tiny, 3 * tiny, math.ldexp(1.0, smallest)]
    edge = np.array([*edge, INF, NAN]).astype(dtype)
    bits = np.dtype(f"u{dtype.itemsize}")
    drawn = np.random.default_rng(0).integers(0, 2 ** (8 * dtype.itemsize), count, dtype=bits, endpoint=False)
    return np.concatenate([edge, -edge, drawn.view(dtype)])


def as_python(array):
    return array.astype(np.float64).tolist()


def check(got, expected, case=None):
    """Compare arrays of floats with nested lists of Python floats: bit for bit, but for which NaN it is."""
    got, expected = np.asarray(got.astype(np.float64)), np.array(expected, np.float64)
    same = (got == expected) & (np.signbit(got) == np.signbit(expected)) | np.isnan(got) & np.isnan(expected)
    assert same.all(), (case, np.argwhere(~same)[:5].tolist(), got[~same][:5], expected[~same][:5])


def zero_as(value, kind):
    return 0.0 if kind.endswith("FNUZ") and value == 0 else value


def divided(x, y):
    if y:
        return x / y
    return NAN if x == 0 or math.isnan(x) else math.copysign(INF, x) * math.copysign(1, y)


def modulo(x, y):
    try:
        return math.fmod(x, y)
    except ValueError:
        return NAN


def exact_binary(operation, in_floats):
    """Round the exact result once; operands that are not finite, and zero results, follow float64's own rules."""

    def reference(x, y, kind):
        if not (math.isfinite(x) and math.isfinite(y)) or (y == 0 and in_floats is divided):
            return converted(in_floats(x, y), kind)
        exact = operation(Fraction(x), Fraction(y))
        return rounded(exact, kind) or math.copysign(0.0, exact or in_floats(x, y))

    return reference


def total_order(x):
    return x, math.copysign(1, x)


def best_number(choose):
    def reference(x, y, kind):
        numbers = [value for value in (x, y) if not math.isnan(value)]
        return choose(numbers, key=total_order) if numbers else NAN

    return reference


def best_or_nan(choose):
    return lambda x, y, kind: NAN if math.isnan(x) or math.isnan(y) else choose(x, y, key=total_order)


QUOTIENT = exact_binary(operator.truediv, divided)
FLOAT_BINARY = {
    "arith.addf": exact_binary(operator.add, operator.add),
    "arith.subf": exact_binary(operator.sub, operator.sub),
    "arith.mulf": exact_binary(operator.mul, operator.mul),
    "arith.divf": QUOTIENT,
    "tt.precise_divf": QUOTIENT,
    "arith.remf": lambda x, y, kind: modulo(x, y),
    "arith.maxnumf": best_number(max),
    "arith.minnumf": best_number(min),
    "arith.maximumf": best_or_nan(max),
    "arith.minimumf": best_or_nan(min),
    "math.copysign": lambda x, y, kind: math.copysign(x, y),
}


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("name", FLOAT_BINARY)
def test_floats_round_once(name, kind):
    values = floats(kind)
    x = as_python(values)
    expected = [[FLOAT_BINARY[name](a, b, kind) for b in x] for a in x]
    check(call(name, [values[:, None], values[None]], kind), expected)


@pytest.mark.parametrize("name", ["arith.addf", "arith.mulf", "arith.maxnumf"])
@pytest.mark.parametrize("kind", FP8)
def test_fp8_rounds_once(name, kind):
    values, some = floats(kind), floats(kind)[[0, 1, 7, 8, 56, 60, 120, 126, 127, 128, 129, 200, 255]]
    reference = FLOAT_BINARY[name]
    expected = [
        [zero_as(converted(reference(a, b, "f64"), kind), kind) for b in as_python(some)] for a in as_python(values)
    ]
    check(call(name, [values[:, None], some[None]], kind), expected)


# With broadcast operands, as the executor passes them, and large enough for every path.
@pytest.mark.parametrize("kind", ["f32", "i32", "i1", "bf16", "i64"])
def test_select(kind):
    generator = np.random.default_rng(0)
    for shape in [(3, 5), (2, 70, 71)]:
        yes = generator.integers(0, 100, shape).astype(DTYPES[kind])
        for no in (yes[..., ::-1], yes[:1, ..., :1]):
            for condition in (generator.integers(0, 2, shape).astype(bool), np.ones((1,) * len(shape), bool)):
                got = call("arith.select", [condition, yes, no], kind)
                lanes = zip(*(a.ravel().tolist() for a in np.broadcast_arrays(condition, yes, no)), strict=True)
                assert got.ravel().tolist() == [a if c else b for c, a, b in lanes]


ORDERED = {"oeq": operator.eq, "ogt": operator.gt, "oge": operator.ge, "olt": operator.lt, "ole": operator.le}
FLOAT_COMPARISONS = {
    "false": lambda x, y, has_nan: False,
    "true": lambda x, y, has_nan: True,
    "ord": lambda x, y, has_nan: not has_nan,
    "uno": lambda x, y, has_nan: has_nan,
    "one": lambda x, y, has_nan: not has_nan and x != y,
    "une": lambda x, y, has_nan: has_nan or x != y,
    **{name: lambda x, y, has_nan, f=f: not has_nan and f(x, y) for name, f in ORDERED.items()},
    **{"u" + name[1:]: lambda x, y, has_nan, f=f: has_nan or f(x, y) for name, f in ORDERED.items()},
}


@pytest.mark.parametrize("kind", ["f8E5M2", "f8E4M3FNUZ", *WIDE])
def test_float_comparisons(kind):
    assert set(FLOAT_COMPARISONS) == set(arithmetic.FLOAT_PREDICATES)
    values = floats(kind, 4)[::7] if kind in FP8 else floats(kind, 4)
    x = as_python(values)
    for predicate, compare in FLOAT_COMPARISONS.items():
        got = call("arith.cmpf", [values[:, None], values[None]], "i1", predicate=predicate).tolist()
        assert got == [[compare(a, b, math.isnan(a) or math.isnan(b)) for b in x] for a in x], predicate


@pytest.mark.parametrize("kind", WIDE)
def test_clamp(kind):
    values, bounds = floats(kind), floats(kind, 0)[::3]
    operands = values[:, None, None], bounds[None, :, None], bounds[None, None]
    for mode, low_of, high_of in (
        ("all", best_or_nan(max), best_or_nan(min)),
        ("none", best_number(max), best_number(min)),
    ):
        got = call("tt.clampf", list(operands), kind, propagateNan=mode)
        b = as_python(bounds)
        expected = [[[high_of(low_of(x, low, kind), high, kind) for high in b] for low in b] for x in as_python(values)]
        check(got, expected, mode)


def exact_fma(x, y, z, kind):
    if not all(map(math.isfinite, (x, y, z))):
        return x * y + z if not math.isfinite(x) or not math.isfinite(y) else z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        sign_of_product = math.copysign(1, x) * math.copysign(1, y)
        is_negative = z == 0 and sign_of_product < 0 and math.copysign(1, z) < 0 and 0 in (x, y)
        return -0.0 if is_negative else 0.0
    return rounded(exact, kind) or math.copysign(0.0, exact)


def hard_for_fma(kind):
    """Return x, y, z whose x * y + z lies next to the middle between two floats, or next to zero."""
    digits = FORMATS[kind][0]
    generator = random.Random(0)
    rows = []
    for _ in range(400):
        x, y = (math.ldexp(generator.getrandbits(digits) | 1, generator.randint(-8, 2)) for _ in range(2))
        product = Fraction(x) * Fraction(y)
        near = rounded(-product, kind) * generator.choice([1, 1, 2.0**digits, 2.0 ** (digits + 1), 2.0**-digits])
        rows.append((x, y, near))
    return [np.array(column).astype(DTYPES[kind]) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("kind", WIDE)
def test_fma_rounds_once(kind):
    values = floats(kind, 12)[::2]
    grid = [np.ravel(array) for array in np.meshgrid(values, values, values)]
    for operands in (grid, hard_for_fma(kind)):
        lanes = list(zip(*map(as_python, operands), strict=True))
        check(call("math.fma", operands, kind), [exact_fma(*lane, kind) for lane in lanes], lanes)


EXACT_UNARY = {
    "arith.negf": lambda x, kind: -x,
    "math.absf": lambda x, kind: abs(x),
    "math.floor": lambda x, kind: whole(x, math.floor),
    "math.ceil": lambda x, kind: whole(x, math.ceil),
    "math.trunc": lambda x, kind: whole(x, math.trunc),
    "math.roundeven": lambda x, kind: whole(x, round),
    "math.round": lambda x, kind: whole(x, lambda v: math.trunc(Fraction(v) + Fraction(1 if v > 0 else -1, 2))),
    "math.sqrt": lambda x, kind: exact_sqrt(x, kind),
    "tt.precise_sqrt": lambda x, kind: exact_sqrt(x, kind),
}


def whole(x, to_whole):
    return math.copysign(to_whole(x), x) if math.isfinite(x) else x


def exact_sqrt(x, kind):
    """Round the square root once: an integer root with 60 digits to spare, made odd where it is not exact."""
    if not x > 0 or x == INF:
        return NAN if x < 0 else x
    scaled = Fraction(x) * 4**1200
    root = math.isqrt(scaled.numerator // scaled.denominator)
    root |= root * root != scaled
    return rounded(Fraction(root, 2**1200), kind)


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("name", EXACT_UNARY)
def test_exact_functions(name, kind):
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 8388609, 4503599627370497]).astype(DTYPES[kind])
    values = np.concatenate([floats(kind), halves, np.nextafter(halves.astype(np.float64), 0).astype(DTYPES[kind])])
    check(call(name, [values], kind), [EXACT_UNARY[name](x, kind) for x in as_python(values)], as_python(values))


# Conversions


def between(kind):
    """Return float64 values on the midpoints between neighbours of a format, also subnormal ones, and just beside."""
    digits, smallest, largest = FORMATS[kind]
    generator = random.Random(1)
    half = Fraction(2) ** (Fraction(largest).numerator.bit_length() - digits - 1)
    values = [0.0, float(largest), float(largest + half / 2) if kind != "f64" else INF]
    values += [float(largest + half)] if kind != "f64" else []
    for exponent in [smallest, smallest, smallest + 1, -1, 0, 3]:
        odds = [2 * generator.getrandbits(generator.randint(1, digits)) + 1 for _ in range(12)]
        values += [math.ldexp(odd, exponent - digits) for odd in odds]
    beside = [math.nextafter(value, towards) for value in values for towards in (0.0, INF)]
    return [sign * value for value in (*values, *beside) for sign in (1, -1)] + [INF, -INF, NAN]


def sources_of(source, target):
    """Return an array of `source` with its own edge values, and those near the midpoints of `target`."""
    near = np.array(between(target))
    if source != "f64":
        near = near.astype(np.float32)
        near = np.concatenate([near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(INF))])
    return np.concatenate([floats(source), near.astype(DTYPES[source])])


CASTS = [
    (source, target)
    for source in FORMATS
    for target in FORMATS
    if source != target and (source in WIDE or target in WIDE)
]


@pytest.mark.parametrize("source, target", CASTS)
def test_conversions_between_floats(source, target):
    values = sources_of(source, target)
    x = as_python(values)
    if (source, target) == ("f8E5M2", "bf16"):
        values = values[np.isfinite(values.astype(np.float32))]
        x = as_python(values)
    names = ["tt.fp_to_fp", "arith.truncf" if FORMATS[source] > FORMATS[target] else "arith.extf"]
    for name in names:
        check(call(name, [values], target), [zero_as(converted(v, target), target) for v in x], x)
    got = call("tt.fp_to_fp", [values], target, rounding="rtne")
    check(got, [zero_as(converted(v, target), target) for v in x], x)
    got = call("tt.fp_to_fp", [values], target, rounding="rtz")
    check(got, [zero_as(converted(v, target, math.trunc), target) for v in x], x)


@pytest.mark.parametrize("kind", FP8)
def test_every_fp8_byte_converts_by_its_definition(kind):
    every = np.arange(256, dtype=np.uint8).view(DTYPES[kind])
    for target in WIDE:
        if (kind, target) != ("f8E5M2", "bf16"):
            got = call("tt.fp_to_fp", [every], target)
            check(got, [decoded(byte, kind) for byte in range(256)])


def test_fp8_widens_to_bf16_as_on_an_h200():
    """Of e5m2, what follows the largest number is infinity and NaN, but in bf16 it stays a number."""
    every = np.arange(256, dtype=np.uint8).view(DTYPES["f8E5M2"])
    got = as_python(call("tt.fp_to_fp", [every], "bf16"))
    assert got[0x7C:0x80] == [65536.0, 81920.0, 98304.0, 114688.0]
    assert got[0xFC:] == [-65536.0, -81920.0, -98304.0, -114688.0]
    assert got[:0x7C] == [decoded(byte, "f8E5M2") for byte in range(0x7C)]


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("name", ["arith.sitofp", "arith.uitofp"])
def test_integers_become_floats_with_one_rounding(name, source):
    bits = bits_of(source)
    values = integers(source)
    if bits > 8:
        # On and beside the middle between two floats, where a detour through float64 rounds twice.
        middles = [(2**d + 1) << (bits - 3 - d) for _, (d, _, _) in FORMATS.items() if d < bits - 3]
        values = values + [wrapped(sign * m + e, source) for m in middles for sign in (1, -1) for e in (-1, 0, 1)]
    meaning = as_signed if name == "arith.sitofp" else lambda value, bits: value % 2**bits
    for target in FORMATS:
        got = call(name, [np.array(values, DTYPES[source])], target)
        check(got, [converted(meaning(value, bits), target) for value in values], (target, values))


@pytest.mark.parametrize("source", ["f8E4M3FN", "f8E5M2", *WIDE])
@pytest.mark.parametrize("name", ["arith.fptosi", "arith.fptoui"])
def test_floats_become_integers_as_on_an_h200(name, source):
    """Saturating, 8 bits as the lower half of 16; NaN of float64, and in 64 bits any NaN, is the least integer."""
    for target in INTEGERS[1:]:  # a condition is a comparison with 0, not a conversion
        bits = max(16, bits_of(target))
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if name == "arith.fptosi" else (0, 2**bits - 1)
        near = [float(v) for bound in (low, high) for v in (bound, bound - 1, bound + 1, bound - 0.5, bound + 0.5)]
        values = np.concatenate([floats(source), np.array([*near, 127, 128, -129, 255, 256]).astype(DTYPES[source])])
        nan = 2 ** (bits - 1) if source == "f64" or bits == 64 else 0
        for x, got in zip(as_python(values), call(name, [values], target).tolist(), strict=True):
            limited = nan if math.isnan(x) else high if x >= high else low if x <= low else math.trunc(x)
            assert got == wrapped(limited, target), (x, target)
    inside = np.array([1.75, -0.875, 3.0]).astype(DTYPES[source])
    assert call(name, [inside], "i32").tolist() == [1, 0, 3]


@pytest.mark.parametrize("name", ["arith.bitcast", "tt.bitcast"])
def test_bitcasts_keep_the_bits(name):
    for kind in ("f16", "bf16", "f32", "f64", *FP8):
        values = floats(kind)
        got = call(name, [values], f"i{8 * values.dtype.itemsize}")
        assert got.tobytes() == values.tobytes()
        assert call(name, [got], kind).tobytes() == values.tobytes()


# Functions

# Name → (reference in float64, units in the last place allowed in float32)
FAST, CLOSE = 4, 0.51
FUNCTIONS = {
    "math.exp": (torch.exp, FAST),
    "math.exp2": (torch.exp2, FAST),
    "math.log": (torch.log, FAST),
    "math.log2": (torch.log2, FAST),
    "math.log10": (torch.log10, CLOSE),
    "math.expm1": (torch.expm1, CLOSE),
    "math.log1p": (torch.log1p, CLOSE),
    "math.rsqrt": (torch.rsqrt, CLOSE),
    "math.cbrt": (lambda x: torch.sign(x) * x.abs() ** (1 / 3), CLOSE),
    "math.sin": (torch.sin, CLOSE),
    "math.cos": (torch.cos, CLOSE),
    "math.tan": (torch.tan, CLOSE),
    "math.asin": (torch.asin, CLOSE),
    "math.acos": (torch.acos, CLOSE),
    "math.atan": (torch.atan, CLOSE),
    "math.sinh": (torch.sinh, CLOSE),
    "math.cosh": (torch.cosh, CLOSE),
    "math.tanh": (torch.tanh, CLOSE),
    "math.asinh": (torch.asinh, CLOSE),
    "math.acosh": (torch.acosh, CLOSE),
    "math.atanh": (torch.atanh, CLOSE),
    "math.erf": (lambda x: x.clone().apply_(math.erf), CLOSE),
    "math.erfc": (lambda x: x.clone().apply_(math.erfc), CLOSE),
}


def error_in_units(got, exact, kind):
    """Return the largest error in units in the last place; results that are not finite must be the same."""
    digits, smallest, largest = FORMATS[kind]
    got = got.astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(got) & np.isfinite(exact) & (abs(exact) <= float(largest))
        assert (np.isnan(got) == np.isnan(exact)).all()
        assert np.isinf(got[np.isinf(exact)]).all() and (abs(exact) >= float(largest))[np.isinf(got)].all()
        assert (np.sign(got) == np.sign(exact))[np.isinf(got)].all()
        unit = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 1, smallest) - digits + 1)
        return np.max(abs(got - exact)[finite] / unit[finite], initial=0.0)


def arguments(kind):
    values = np.random.default_rng(0).normal(size=2000) * np.logspace(-5, 2, 2000)
    return np.concatenate([floats(kind), values.astype(DTYPES[kind]), (1 + values * 1e-3).astype(DTYPES[kind])])


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, kind):
    reference, units = FUNCTIONS[name]
    values = arguments(kind)
    exact = reference(torch.from_numpy(values.astype(np.float64))).numpy()
    budget = {"f32": units, "f64": 8 if name != "math.cbrt" else 200}.get(kind, 0.51 + 4 / 2**8)
    assert error_in_units(call(name, [values], kind), exact, kind) <= budget


def power(x, y):
    return torch.pow(torch.from_numpy(x), torch.from_numpy(y)).numpy()


@pytest.mark.parametrize("kind", WIDE)
def test_functions_of_two_operands(kind):
    x, y = floats(kind)[:, None], floats(kind)[None]
    wide = [np.broadcast_to(array, (x.size, x.size)).astype(np.float64) for array in (x, y)]
    units = 4 if kind == "f64" else 0.51
    assert error_in_units(call("math.powf", [x, y], kind), power(*wide), kind) <= units
    exact = torch.atan2(*map(torch.from_numpy, wide)).numpy()
    assert error_in_units(call("math.atan2", [x, y], kind), exact, kind) <= units
    exponents = np.array([0, 1, -1, 2, 3, -5, 20], np.int32)[None]
    exact = power(wide[0][:, :7], np.broadcast_to(exponents, (x.size, 7)).astype(np.float64))
    assert error_in_units(call("math.fpowi", [x, exponents], kind), exact, kind) <= units


def test_extern_rounds_to_the_result():
    values = arguments("f32")
    exact = torch.tanh(torch.from_numpy(values.astype(np.float64))).numpy()
    got = call("tt.extern_elementwise", [values], "f32", symbol="__nv_tanhf")
    assert error_in_units(got, exact, "f32") <= 0.51
    got = call("tt.extern_elementwise", [np.array([1e20, -5, NAN], np.float32)], "i32", symbol="__nv_float2uint_rz")
    assert got.tolist() == [-1, 0, 0]
    with pytest.raises(NotImplementedError, match="__nv_unheard_of"):
        elementwise("tt.extern_elementwise", {"symbol": "__nv_unheard_of"}, (DTYPES["f32"],), DTYPES["f32"])


# The whole


def test_erf_without_torch(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    got = call("math.erf", [np.array([0.5, -2.0, NAN])], "f64")
    check(got, [math.erf(0.5), math.erf(-2.0), NAN])


def test_every_operation_is_tested():
    alone = {"arith.select", "arith.cmpi", "arith.cmpf", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui"}
    alone |= {"arith.extf", "arith.truncf", "arith.bitcast", "tt.bitcast", "tt.fp_to_fp", "tt.clampf", "math.fma"}
    alone |= {"math.powf", "math.atan2", "math.fpowi", "tt.extern_elementwise"}
    tables = (INTEGER_BINARY, INTEGER_UNARY, INTEGER_CASTS, FLOAT_BINARY, EXACT_UNARY, FUNCTIONS)
    assert alone.union(*tables) == set(arithmetic.OPERATIONS)
    assert set(INTEGER_COMPARISONS) == set(arithmetic.INTEGER_PREDICATES)


def test_an_unknown_name_is_none():
    assert elementwise("arith.mulsi_extended", {}, (DTYPES["i32"],) * 2, DTYPES["i32"]) is None
    assert reduction("arith.subi", DTYPES["i32"]) is None
    assert reduction("arith.maxui", DTYPES["i32"]) is None


REDUCED = sorted(set(arithmetic.BOOLEAN_UFUNCS) | set(arithmetic.EXACT_UFUNCS) | set(arithmetic.ROUNDING_UFUNCS))


@pytest.mark.parametrize("name", REDUCED)
def test_reductions_do_what_the_operation_does_in_turn(name):
    kinds = ("f16", "bf16", "f32", "f64") if name[-1] == "f" else INTEGERS
    for kind in kinds:
        values = floats(kind, 6) if name[-1] == "f" else np.array(edges(kind) * 2, DTYPES[kind])
        ufunc = reduction(name, DTYPES[kind])
        if ufunc is None:
            assert kind in ("f16", "bf16") or name in ("arith.maxui", "arith.minui")
            continue
        for order in (values, values[::-1], values[np.isfinite(values.astype(np.float64))]):
            expected = order[:1]
            for position in range(1, len(order)):
                expected = call(name, [expected, order[position : position + 1]], kind)
            got = ufunc.reduce(order[None], axis=1, dtype=DTYPES[kind])
            assert got.dtype == DTYPES[kind]
            assert np.allclose(got.astype(np.float64), expected.astype(np.float64), rtol=1e-6, equal_nan=True), kind
            assert ufunc.accumulate(order, dtype=DTYPES[kind]).dtype == DTYPES[kind]


@pytest.mark.parametrize("kind", DTYPES)
def test_poison(kind):
    value = poison(DTYPES[kind])
    assert np.asarray(value).dtype == DTYPES[kind]
    if kind in FORMATS:
        assert math.isnan(float(value))
    else:
        assert int(value) == 2 ** max(1, np.asarray(value).dtype.itemsize * 8 - 1) - 1 or kind == "i1" and value
