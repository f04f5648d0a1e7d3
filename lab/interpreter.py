"""Repairs to Triton's CPU interpreter, so that a kernel computes here what it computes on a GPU.

What stock Triton 3.6 and 3.7 get wrong, and `repair` puts right: bf16 arithmetic works on bit patterns, and its casts
truncate; `libdevice` functions return nothing; autotuning and `do_bench` ask for a GPU driver; the names of the
interpreter's own module leak into the module of the kernel; and each call of `tl.sum` or `tl.cdiv` patches the language
anew, which is slow.

Import `lab.device` rather than this module: it settles that Triton interprets before Triton is imported.
"""

import dataclasses
import functools
import inspect
import math
import re
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import numpy as np
import triton
import triton.language as tl
import triton.testing
from ml_dtypes import bfloat16
from triton.language.extra import libdevice as generic_libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter as upstream
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import TensorHandle
from triton.runtime.jit import JITFunction

TESTED_VERSIONS = ("3.6", "3.7")


@functools.cache
def repair() -> None:
    """Repair Triton's interpreter in this process; a second call does nothing.

    Warns once when this Triton is none of `TESTED_VERSIONS`, and repairs it all the same.
    """
    version = ".".join(triton.__version__.split(".")[:2])
    if version not in TESTED_VERSIONS:
        warnings.warn(
            f"The interpreter repairs were tested with Triton {' and '.join(TESTED_VERSIONS)}, not with "
            f"{triton.__version__}. If a kernel misbehaves, install the versions of requirements.txt.",
            stacklevel=2,
        )
    upstream._get_np_dtype = numpy_dtype
    upstream.ReduceOps.sum = sum_along_axis
    upstream.FunctionRewriter._compile_and_exec = compile_kernel
    upstream.InterpretedFunction.__call__ = call_device_function
    upstream._patch_lang = lambda kernel: InterpretedLanguage()
    use_builder(Builder)


@functools.cache
def replace_driver() -> None:
    """Do without a GPU's driver where every kernel is interpreted; a second call does nothing."""
    for owner, name, function in libdevice_bindings():
        setattr(owner, name, function)
    Autotuner.do_bench = property(autotuning_benchmark)
    triton.testing.do_bench = do_bench
    triton.testing.do_bench_cudagraph = do_bench


@contextmanager
def interpreting() -> Iterator[None]:
    """Interpret what is launched inside the block, on a machine that otherwise compiles kernels for its GPU."""
    repair()
    changes = [
        (JITFunction, "run", lambda kernel, *args, **options: interpreted(kernel.fn).run(*args, **options)),
        (JITFunction, "__call__", lambda function, *args, **kwargs: interpreted(function.fn)(*args, **kwargs)),
        (Autotuner, "run", run_without_tuning),
        *libdevice_bindings(),
    ]
    compiled = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, function in changes:
            setattr(owner, name, function)
        yield
    finally:
        for owner, name, function in compiled:
            setattr(owner, name, function)


@functools.cache
def interpreted(function: Callable) -> upstream.InterpretedFunction:
    """Return the Python function below a jitted one as the interpreter runs it."""
    return upstream.InterpretedFunction(function)


def run_without_tuning(tuner: Autotuner, *args, **options):
    """Launch the first configuration: neither trying the others nor remembering this one would mean anything."""
    return tuner.fn.run(*args, **options, **tuner.configs[0].all_kwargs())


def use_builder(builder: type) -> None:
    """Let `builder`, a subclass of Triton's InterpreterBuilder, carry out every operation of a kernel."""
    upstream.InterpreterBuilder = builder
    upstream.interpreter_builder.__class__ = builder
    upstream.interpreter_builder.options = dataclasses.replace(
        upstream.interpreter_builder.options,
        # Its findings are dropped unless `debug` is set, and it triples the cost of integer arithmetic.
        sanitize_overflow=False,
    )


# Bf16

stock_numpy_dtype = upstream._get_np_dtype
numpy_dtypes: dict[tl.dtype, np.dtype] = {tl.bfloat16: np.dtype(bfloat16)}


def numpy_dtype(dtype: tl.dtype) -> np.dtype:
    """Return the NumPy type that holds one element of a Triton type; pointers are uint64."""
    scalar = dtype.scalar
    if isinstance(scalar, tl.pointer_type):
        return np.dtype(np.uint64)
    if scalar not in numpy_dtypes:
        numpy_dtypes[scalar] = stock_numpy_dtype(scalar)
    return numpy_dtypes[scalar]


def sum_along_axis(operation: upstream.ReduceOps, tensor: tl.tensor) -> tl.tensor:
    """Sum a tensor along `operation.axis`.

    bf16 is summed in fp32 and rounded once: NumPy would round after every addition, and never count past 256.
    """
    data = tensor.handle.data
    if data.dtype == bfloat16:
        data = data.astype(np.float32)
    return operation.to_tensor(np.sum(data, axis=operation.axis, keepdims=operation.keep_dims), tensor.dtype)


class Builder(upstream.InterpreterBuilder):
    """Triton's interpreter builder, with bf16 that computes and with libdevice."""

    def get_bf16(self, value: float) -> TensorHandle:
        return TensorHandle(np.array([value], dtype=bfloat16), tl.bfloat16)

    def cast_impl(self, source: TensorHandle, target: tl.dtype) -> TensorHandle:
        return TensorHandle(source.data.astype(numpy_dtype(target)), target.scalar)

    def create_fp_to_fp(self, source: TensorHandle, target: tl.dtype, rounding) -> TensorHandle:
        """Convert between float types; to bf16 it rounds to nearest even unless told to truncate."""
        to_nearest = rounding is None or rounding == upstream._ir.ROUNDING_MODE.RTNE
        if target.scalar == tl.bfloat16 and source.dtype.scalar.primitive_bitwidth > 8 and to_nearest:
            return self.cast_impl(source, target)
        return super().create_fp_to_fp(source, target, rounding)

    def create_dot(self, a: TensorHandle, b: TensorHandle, acc: TensorHandle, *options) -> TensorHandle:
        """Multiply matrices; bf16 operands are exact in fp32, where NumPy has a fast product."""
        a, b = (
            TensorHandle(operand.data.astype(np.float32), tl.float32) if operand.data.dtype == bfloat16 else operand
            for operand in (a, b)
        )
        return super().create_dot(a, b, acc, *options)

    def create_fma(self, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
        if z.data.dtype != bfloat16:
            return super().create_fma(x, y, z)
        product = x.data.astype(np.float32) * y.data.astype(np.float32)
        return TensorHandle((product + z.data.astype(np.float32)).astype(bfloat16), tl.bfloat16)

    def create_atomic_rmw(self, operation, pointers, value, mask, semantic, scope) -> TensorHandle:
        """Read, modify and write each active lane; bf16 one lane after the other, for Triton's own loop refuses it."""
        if value.data.dtype != bfloat16:
            return super().create_atomic_rmw(operation, pointers, value, mask, semantic, scope)
        combine = BF16_ATOMICS[operation]
        old = np.zeros(pointers.data.shape, dtype=bfloat16)
        values = np.broadcast_to(value.data, old.shape)
        for lane in np.argwhere(mask.data).tolist():
            lane = tuple(lane)
            address = pointers.data[lane].reshape(1)
            before = upstream._interpreter.load(address, np.ones(1, bool), np.zeros(1, bfloat16), np.dtype(bfloat16))
            upstream._interpreter.store(address, combine(before, values[lane].reshape(1)), np.ones(1, bool))
            old[lane] = before[0]
        return TensorHandle(old, tl.bfloat16)

    def create_extern_elementwise(self, library, path, symbol, arguments, result, is_pure) -> TensorHandle:
        """Call the NumPy counterpart of a libdevice symbol such as `__nv_tanhf`."""
        data = libdevice_function(symbol)(*(argument.data for argument in arguments))
        return TensorHandle(np.asarray(data).astype(numpy_dtype(result)), result.scalar)


BF16_ATOMICS = {
    upstream._ir.ATOMIC_OP.FADD: np.add,
    upstream._ir.ATOMIC_OP.MAX: np.maximum,
    upstream._ir.ATOMIC_OP.MIN: np.minimum,
    upstream._ir.ATOMIC_OP.XCHG: lambda old, new: new,
}


# Libdevice


def libdevice_bindings() -> list[tuple[ModuleType, str, Callable]]:
    """Return (module, name, function) that let `libdevice` call its CUDA versions with the interpreter's semantic."""
    functions = inspect.getmembers(cuda_libdevice, tl.core.is_builtin)
    bound = {name: bind_semantic(function) for name, function in functions}
    modules = (cuda_libdevice, generic_libdevice)
    return [(module, name, bound[name]) for module in modules for name in bound if hasattr(module, name)]


def bind_semantic(function):
    @functools.wraps(function)
    def bound(*args, _semantic=None, **kwargs):
        return function(*args, **kwargs, _semantic=upstream.interpreter_semantic)

    return bound


def each_element(function):
    """Return `function` of floats as a function of arrays: NaN outside its domain, infinity past the range."""

    def guarded(*values):
        try:
            return function(*values)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return np.vectorize(guarded, otypes=[np.float64])


def inverse_normal_cdf(p: float) -> float:
    if p in (0.0, 1.0):
        return math.inf if p else -math.inf
    return statistics.NormalDist().inv_cdf(p) if 0.0 < p < 1.0 else math.nan


def inverse_erf(x: float) -> float:
    guess = inverse_normal_cdf((x + 1) / 2) / math.sqrt(2)
    if not math.isfinite(guess):
        return guess
    # One step of Newton's method: near 0 the guess has lost the digits that x + 1 rounded away.
    return guess - (math.erf(guess) - x) * math.sqrt(math.pi) / 2 * math.exp(guess * guess)


def high_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = a.dtype.itemsize * 8
    return ((a.astype(object) * b.astype(object)) >> bits).astype(a.dtype)


def leading_zeros(x: np.ndarray) -> np.ndarray:
    bits = x.dtype.itemsize * 8
    return bits - np.vectorize(lambda value: (int(value) & (2**bits - 1)).bit_length(), otypes=[np.int32])(x)


# libdevice name without its prefix and its type suffix → NumPy function. Floats arrive as float64.
LIBDEVICE = {
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
    "llrint": np.rint,
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "llround": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "fdim": lambda x, y: np.where(x > y, x - y, np.where(np.isnan(x + y), np.nan, 0.0)),
    "fdivide": np.divide,
    "fma": lambda x, y, z: x * y + z,
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)),
    "finite": np.isfinite,
    "isfinite": np.isfinite,
    "logb": lambda x: np.where(x == 0, -np.inf, np.frexp(x)[1] - 1.0),
    "ilogb": lambda x: np.frexp(x)[1] - 1,
    "exp10": lambda x: np.power(10.0, x),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2.0)),
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2.0)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "norm3d": lambda *xs: np.sqrt(sum(x * x for x in xs)),
    "norm4d": lambda *xs: np.sqrt(sum(x * x for x in xs)),
    "erf": each_element(math.erf),
    "erfc": each_element(math.erfc),
    "erfinv": each_element(inverse_erf),
    "erfcinv": each_element(lambda x: -inverse_normal_cdf(x / 2) / math.sqrt(2)),
    "normcdf": each_element(lambda x: math.erfc(-x / math.sqrt(2)) / 2),
    "normcdfinv": each_element(inverse_normal_cdf),
    "lgamma": each_element(lambda x: math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)),
    "tgamma": each_element(math.gamma),
    "nextafter": np.nextafter,
    "int_as_float": lambda x: x.view(np.float32),
    "uint_as_float": lambda x: x.view(np.float32),
    "float_as_int": lambda x: x.view(np.int32),
    "float_as_uint": lambda x: x.view(np.uint32),
    "longlong_as_double": lambda x: x.view(np.float64),
    "double_as_longlong": lambda x: x.view(np.int64),
    "popc": np.bitwise_count,
    "popcll": np.bitwise_count,
    "clz": leading_zeros,
    "clzll": leading_zeros,
    **dict.fromkeys(("mulhi", "umulhi", "mul64hi", "umul64hi"), high_product),
}
# IEEE operations with the rounding in their name; NumPy rounds to nearest.
for kind in "fd":
    LIBDEVICE |= {f"{kind}add_rn": np.add, f"{kind}sub_rn": np.subtract, f"{kind}mul_rn": np.multiply}
    LIBDEVICE |= {f"{kind}div_rn": np.divide, f"{kind}rcp_rn": np.reciprocal, f"{kind}sqrt_rn": np.sqrt}
LIBDEVICE |= {"fma_rn": LIBDEVICE["fma"], "fmaf_rn": LIBDEVICE["fma"], "frsqrt_rn": LIBDEVICE["rsqrt"]}

DEPENDS_ON_WIDTH = ("nextafter", "float_as_int", "float_as_uint")
ROUNDINGS = {"n": np.rint, "z": np.trunc, "d": np.floor, "u": np.ceil}


@functools.cache
def libdevice_function(symbol: str):
    """Return the array function for a libdevice symbol; it computes fp32 in float64, which leaves one rounding.

    Raises NotImplementedError for a symbol that has no counterpart here.
    """
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    to_integer = re.fullmatch(r"(?:float|double)2u?(?:int|ll|ll)_r([nzdu])", name.replace("2ull", "2ll"))
    if to_integer:
        return ROUNDINGS[to_integer[1]]
    if re.fullmatch(r"(?:double|u?int|u?ll)2(?:float|double)_rn", name):
        return np.asarray
    if name not in LIBDEVICE and name[-1] in "fd":
        name = name[:-1]
    if name not in LIBDEVICE:
        raise NotImplementedError(f"libdevice's {symbol} has no counterpart in the interpreter; it needs a GPU")
    function = LIBDEVICE[name]
    if name in DEPENDS_ON_WIDTH:
        return function
    return lambda *arrays: function(*(a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays))


# Autotuning and timing


def autotuning_benchmark(tuner: Autotuner):
    """Return what ranks a tuner's configurations: its own `do_bench`, or one that lets the first configuration win.

    Seconds spent in the interpreter say nothing about a GPU, so running every configuration would only cost time.
    """
    if tuner._do_bench and not (tuner.num_warmups or tuner.num_reps or tuner.use_cuda_graph):
        return tuner._do_bench
    return lambda call, quantiles: [0.0] * len(quantiles)


def do_bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
    """Return the wall time of `fn` in ms on the CPU, in the form of `triton.testing.do_bench`.

    Calls `fn` once to warm up, then for about `rep` ms. It says how long the interpreter takes, nothing about a GPU.
    """
    fn()
    times = []
    while not times or sum(times) < rep:
        for tensor in grad_to_none or ():
            tensor.grad = None
        start = time.perf_counter()
        fn()
        times.append((time.perf_counter() - start) * 1e3)
    return triton.testing._summarize_statistics(times, quantiles, return_mode)


# The language, patched once a launch


stock_patch_lang = upstream._patch_lang


@functools.cache
def language_changes() -> list[tuple[object, str, object, object]]:
    """Return (owner, attribute, original, interpreted) for all that interpretation changes in `triton.language`."""
    kernel = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})  # whose module imports all of the language
    scope = stock_patch_lang(kernel)
    originals = {(owner, name): original for owner, name, original in reversed(scope._changes)}
    interpreted = {(owner, name): getattr(owner, name) for owner, name in originals}
    # 3.6 converts a one-element array by int(), which NumPy 2.4 refuses: no loop could run.
    interpreted[tl.tensor, "__index__"] = lambda tensor: int(tensor.handle.data.item())
    scope.restore()
    return [(*place, originals[place], interpreted[place]) for place in originals]


class InterpretedLanguage:
    """While one of these is open, `triton.language` interprets. They nest; only the outermost costs time."""

    depth = 0

    def __init__(self):
        if InterpretedLanguage.depth == 0:
            for owner, name, _, interpreted in language_changes():
                setattr(owner, name, interpreted)
        InterpretedLanguage.depth += 1

    def restore(self) -> None:
        InterpretedLanguage.depth -= 1
        if InterpretedLanguage.depth:
            return
        for owner, name, original, _ in language_changes():
            if original is upstream._MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.restore()


def call_device_function(function: upstream.InterpretedFunction, *args, **kwargs):
    """Call a jitted function from inside a kernel; its exceptions pass through as they are.

    Raises RuntimeError outside a kernel, as the compiler's own does.
    """
    if InterpretedLanguage.depth == 0:
        raise RuntimeError("a kernel is launched with its grid in square brackets, `kernel[grid](…)`, not called")
    with InterpretedLanguage():
        return function.rewrite()(*args, **kwargs)


def compile_kernel(rewriter: upstream.FunctionRewriter, tree):
    """Return the rewritten kernel, in its own module's names plus the one name that the rewriting needs."""
    names = dict(rewriter.kwargs)
    rewriter.fn.__globals__["interpreter_semantic"] = upstream.interpreter_semantic
    exec(compile(tree, rewriter.filename, "exec"), rewriter.fn.__globals__, names)
    return names[rewriter.fn.__name__]
