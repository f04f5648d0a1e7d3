"""gelu and bias_gelu against their specifications, and every rung's error against float64 over the whole range."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import kernels.elementwise
import kernels.gelu
from kernels.gelu import (
    APPROXIMATIONS,
    DTYPES,
    ROWS,
    backward_tile_of,
    bias_gelu,
    bias_gelu_backward_kernel,
    bias_gelu_bytes,
    bias_gelu_flops,
    bias_gelu_kernel,
    bias_gelu_reference,
    block_of,
    forms_of,
    gelu,
    gelu_backward_kernel,
    gelu_bytes,
    gelu_exp2,
    gelu_exp2_slope,
    gelu_flops,
    gelu_kernel,
    gelu_long,
    gelu_long_slope,
    gelu_reference,
    gelu_short,
    gelu_short_slope,
    tile_of,
)
from kernels.ladders.gelu import (
    gelu_erf,
    gelu_libdevice_erf,
    gelu_libdevice_exp,
    gelu_libdevice_tanh,
    gelu_polynomial,
    gelu_sigmoid,
)
from lab.check import judge
from lab.compiler import CompileError, compiled
from lab.device import DEVICE, ON_CPU
from lab.measure.memory import kept_bytes
from lab.task import Case, Task
from lab.trace import trace

INF, NAN = math.inf, math.nan
BLOCK = block_of(torch.float32)
EXACT = [gelu_erf, gelu_libdevice_erf, gelu_polynomial, gelu_short, gelu_long]
TANH = [gelu_libdevice_tanh, gelu_sigmoid, gelu_libdevice_exp, gelu_exp2]


def values(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return random values between -4 and 4."""
    return 8 * (torch.rand(shape, generator=generator, device=generator.device) - 0.5).to(dtype).to(DEVICE)


def vector(*shape, approximate="none", dtype=torch.float32):
    return lambda generator: (values(generator, *shape, dtype=dtype), approximate)


def special(dtype):
    """Return the ends of a dtype's range, both zeros, infinities and NaN."""
    limits = torch.finfo(dtype)
    ends = [limits.max, -limits.max, limits.tiny, -limits.tiny, limits.max / 4, -limits.max / 4]
    return torch.tensor([0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, -5.0, -10.0, *ends], dtype=dtype, device=DEVICE)


LAYOUTS = {
    "transposed": lambda g: values(g, 33, 5).t(),
    "channels last": lambda g: values(g, 2, 3, 4, 5).to(memory_format=torch.channels_last),
    "sliced": lambda g: values(g, 6, 9)[1:5, ::2],
    "offset start": lambda g: values(g, 101)[1:],
    "stride 0": lambda g: values(g, 1).expand(40),
    "a row expanded over rows": lambda g: values(g, 1, 37).expand(29, 37),
    "lazily negated": lambda g: torch.complex(values(g, 9), values(g, 9)).conj().imag,
}
CASES = [
    Case("one element", vector(1)),
    Case("no dimensions", vector()),
    Case("masked tail", vector(BLOCK - 1)),
    Case("block exactly full", vector(BLOCK)),
    Case("one past a block", vector(BLOCK + 1), programs=2),
    Case("nothing divides anything", vector(7, 11, 13, 3), programs=2),
    Case("empty", vector(0)),
    Case("empty rows", vector(0, 128)),
    *(Case(name, lambda g, make=make: (make(g), "none")) for name, make in LAYOUTS.items()),
    *(Case(f"{d}, {a}", vector(2 * BLOCK + 29, dtype=d, approximate=a)) for d in DTYPES for a in APPROXIMATIONS),
    *(Case(f"ends of {d}, {a}", lambda g, d=d, a=a: (special(d), a)) for d in DTYPES for a in APPROXIMATIONS),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_regimes(case):
    task = Task("gelu", "x times Phi(x)", gelu_reference, (case,), 1, ("", "", ""), allows=("copy",))
    verdict = judge(task, gelu, isolate=False)
    assert verdict.passed, verdict.message


@pytest.mark.parametrize("approximate", APPROXIMATIONS)
@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_infinities_and_nan_are_as_in_pytorch(value, approximate):
    for dtype in DTYPES:
        x = torch.tensor([value], dtype=dtype, device=DEVICE)
        assert str(gelu(x, approximate).item()) == str(F.gelu(x, approximate=approximate).item())


def test_a_large_odd_size_gives_its_tail_a_launch(monkeypatch):
    x = torch.randn(3 * BLOCK + 5, device=DEVICE)
    expected = gelu(x)
    monkeypatch.setattr(kernels.elementwise, "LARGE", BLOCK)
    kernels.gelu.forward_for.cache_clear()  # what was decided for x before
    assert torch.equal(gelu(x), expected)
    if ON_CPU:
        with trace() as t:
            gelu(x)
        assert [launch.programs for launch in t.launches] == [3, 1]
        assert t.launches[0].arguments["n"] % 16 == 0
    kernels.gelu.forward_for.cache_clear()


@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_any_layout_comes_back_as_pytorch_lays_it_out(data):
    shape = data.draw(st.lists(st.integers(0, 9), max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    x = torch.randn([shape[axis] for axis in order], device=DEVICE).permute([order.index(i) for i in range(len(shape))])
    x.requires_grad_()
    out = gelu(x)
    strides = zip(shape, out.stride(), F.gelu(x).stride(), strict=True)
    assert all(ours == theirs for size, ours, theirs in strides if size > 1) or out.numel() == 0
    grad = torch.randn(shape, device=DEVICE)
    torch.testing.assert_close(out, F.gelu(x))
    ours, theirs = (torch.autograd.grad(y, x, grad)[0] for y in (out, F.gelu(x)))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


# Errors in ulps: the distance of two neighbouring numbers of the result's dtype


def everything(dtype: torch.dtype) -> torch.Tensor:
    """Return every finite number of 16 bits; of 32 bits, many of those between -14 and 10 and near 0."""
    if dtype == torch.float32:
        small = torch.logspace(-30, 1, 20000, device=DEVICE)
        return torch.cat([torch.linspace(-14, 10, 60000, device=DEVICE), small, -small])
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32, device=DEVICE).to(torch.int16)
    return bits.view(dtype)[bits.view(dtype).isfinite()]


def rung(form, x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    gelu_kernel[(-(-x.numel() // BLOCK),)](x, out, x.numel(), FORM=form, BLOCK=BLOCK)
    return out


def ulps(result: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Return how far a result is off, 0 where too little is left to hold all the digits."""
    limits = torch.finfo(result.dtype)
    exponent = torch.frexp(exact.abs().clamp(min=limits.tiny))[1] - 1
    off = (result.double() - exact).abs() / torch.ldexp(torch.full_like(exact, limits.eps), exponent)
    return torch.where(exact.abs() > 16 * limits.tiny, off, 0)


@pytest.mark.parametrize("approximate", APPROXIMATIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits_are_right_to_the_last_but_a_hundredth(dtype, approximate):
    """Half an ulp is what rounding itself costs."""
    x = everything(dtype)
    exact = gelu_reference(x.double(), approximate)
    # The tanh form has an exponent that grows with the cube of x, and in bf16 there is room to see it rounded.
    assert ulps(gelu(x, approximate), exact).max() < 0.52


def test_float32_keeps_nearly_all_its_digits_in_the_whole_range():
    x = everything(torch.float32)
    exact = gelu_reference(x.double())
    assert ulps(gelu(x), exact).max() < 9
    assert (gelu(x).double() - exact).abs().max() < 8e-7  # most of it is the last digit of numbers near 10


def test_float32_in_the_tanh_form_loses_digits_only_as_the_result_vanishes():
    x = everything(torch.float32)
    off = ulps(gelu(x, "tanh"), gelu_reference(x.double(), "tanh"))
    u = math.sqrt(8 / math.pi) * (x + 0.044715 * x**3).double()  # what the exponential is taken of, and rounded before
    assert (off < 5 + 3 * u.abs().clamp(max=90)).all()
    assert off[x > -1].max() < 5


@pytest.mark.parametrize("approximate", APPROXIMATIONS)
def test_pytorch_loses_every_digit_of_negative_results(approximate):
    x = torch.tensor([-6.0, -8.0], device=DEVICE)
    exact = gelu_reference(x.double(), approximate)
    assert ulps(F.gelu(x, approximate=approximate), exact).min() > 1e5
    assert ulps(gelu(x, approximate), exact).max() < 200


@pytest.mark.parametrize("approximate, forms", [("none", EXACT), ("tanh", TANH)], ids=APPROXIMATIONS)
def test_every_rung_computes_its_form_and_not_the_other(approximate, forms):
    """The two differ by 4.73e-4, a hundred times as much as any rung may be off."""
    x = everything(torch.float32)
    exact = gelu_reference(x.double(), approximate)
    other = gelu_reference(x.double(), "tanh" if approximate == "none" else "none")
    assert (exact - other).abs().max().item() == pytest.approx(4.73e-4, rel=0.01)
    for form in forms:
        assert (rung(form, x).double() - exact).abs().max() < 4e-6, form


def test_one_plus_erf_is_what_loses_the_digits():
    x = torch.tensor([-6.0], device=DEVICE)
    exact = gelu_reference(x.double())
    assert ulps(rung(gelu_erf, x), exact) > 1e5
    assert ulps(rung(gelu_polynomial, x), exact) < 100


@pytest.mark.parametrize("approximate", APPROXIMATIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_finite_number_overflows(dtype, approximate):
    x = torch.cat([everything(dtype), special(dtype)])
    x = x[x.isfinite()].requires_grad_()
    out = gelu(x, approximate)
    assert out.isfinite().all()
    assert (out >= -0.171).all() and (out <= x.clamp(min=0)).all()
    (slope,) = torch.autograd.grad(out.sum(), x)
    assert slope.isfinite().all()
    assert slope.min() > -0.13 and slope.max() < 1.14


# Gradients


def slope_reference(x: torch.Tensor, approximate: str) -> torch.Tensor:
    """Return the derivative in float64, by autograd through the specification."""
    x = x.double().requires_grad_()
    return torch.autograd.grad(gelu_reference(x, approximate).sum(), x)[0]


@pytest.mark.parametrize("approximate", APPROXIMATIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_belong_to_their_form(dtype, approximate):
    """The slopes of the two forms differ by more than 7e-4: neither can pass for the other."""
    x = everything(dtype)
    x = x[x.abs() < 14].requires_grad_()
    (slope,) = torch.autograd.grad(gelu(x, approximate).sum(), x)
    exact = slope_reference(x.detach(), approximate)
    other = slope_reference(x.detach(), "tanh" if approximate == "none" else "none")
    assert (exact - other).abs().max() > 7e-4
    rounding = torch.finfo(dtype).eps / 2 if dtype != torch.float32 else 0
    assert ((slope.double() - exact).abs() <= 6e-6 + rounding * exact.abs()).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_any_layout(layout):
    generator = torch.Generator(DEVICE).manual_seed(1)
    x = LAYOUTS[layout](generator).detach().requires_grad_()
    grad = values(generator, *x.shape)
    (ours,) = torch.autograd.grad(gelu(x), x, grad)
    torch.testing.assert_close(ours.double(), slope_reference(x.detach(), "none") * grad, atol=5e-6, rtol=1e-5)
    (of_sum,) = torch.autograd.grad(gelu(x).sum(), x)  # whose own gradient is one number with strides of 0
    torch.testing.assert_close(of_sum.double(), slope_reference(x.detach(), "none"), atol=1e-6, rtol=1e-5)


def test_only_x_is_kept_for_backward():
    x = torch.randn(2**16, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    assert kept_bytes(gelu, x) == 0


@pytest.mark.parametrize("operation", [gelu, lambda x: bias_gelu(x, x)], ids=["gelu", "bias_gelu"])
def test_a_gradient_of_a_gradient_is_refused_rather_than_wrong(operation):
    x = torch.randn(5, device=DEVICE, requires_grad=True)
    (grad,) = torch.autograd.grad(operation(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="gelu has no second derivative"):
        (grad.sum() + x.sum()).backward()


# With a bias


def layer(*shape, approximate="none", dtype=torch.float32):
    return lambda g: (values(g, *shape, dtype=dtype), values(g, shape[-1], dtype=dtype), approximate)


BIAS_CASES = [
    Case("one element", layer(1, 1)),
    Case("one row", layer(50)),
    Case("one column", layer(3000, 1), programs=2),
    Case("two columns", layer(300, 2)),
    Case("tile exactly full", layer(4, 512)),
    Case("one past a tile", layer(5, 513), programs=4),
    Case("nothing divides anything", layer(3, 7, 5, 11)),
    Case("no rows", layer(0, 8)),
    Case("no columns", layer(8, 0)),
    Case("transposed", lambda g: (values(g, 33, 70).t(), values(g, 33), "none")),
    Case("sliced", lambda g: (values(g, 40, 100)[::2, 1::3], values(g, 66)[::2], "none")),
    Case("rows that no stride can join", lambda g: (values(g, 4, 3, 8).transpose(0, 1), values(g, 8), "none")),
    Case("stride 0", lambda g: (values(g, 1, 9).expand(6, 9), values(g, 1).expand(9), "none")),
    Case("lazily negated", lambda g: (LAYOUTS["lazily negated"](g), LAYOUTS["lazily negated"](g), "none")),
    *(Case(f"{d}, {a}", layer(9, 40, dtype=d, approximate=a)) for d in DTYPES for a in APPROXIMATIONS),
    *(Case(f"ends of {d}", lambda g, d=d: (special(d), special(d).flip(0), "tanh")) for d in DTYPES),
]


@pytest.mark.parametrize("case", BIAS_CASES, ids=lambda case: case.name)
def test_bias_regimes(case):
    allowed = {"allows": ("clone",), "shared": ("bias",)}
    task = Task("bias_gelu", "gelu of a sum", bias_gelu_reference, (case,), 1, ("", "", ""), **allowed)
    verdict = judge(task, bias_gelu, isolate=False)
    assert verdict.passed, verdict.message


@pytest.mark.parametrize(
    "dtype, approximate",
    [(torch.float32, "none"), (torch.float32, "tanh"), (torch.float16, "tanh"), (torch.bfloat16, "none")],
    ids=str,
)
@pytest.mark.parametrize("shape", [(1, 1), (ROWS + 1, 3), (5, 513), (5, 272), (2, 3, 8), (3, 2 * ROWS, 4)], ids=str)
def test_bias_gradients(shape, dtype, approximate):
    generator = torch.Generator(DEVICE).manual_seed(2)
    x, bias, grad = (values(generator, *size, dtype=dtype) for size in (shape, shape[-1:], shape))
    grad = grad.transpose(0, -1).contiguous().transpose(0, -1)
    out = bias_gelu(x.requires_grad_(), bias.requires_grad_(), approximate)
    dx, dbias = torch.autograd.grad(out, (x, bias), grad)
    exact = slope_reference(x.detach().double() + bias.detach().double(), approximate) * grad.double()
    rounding = torch.finfo(dtype).eps / 2
    budget = 1e-5 * grad.abs().double()
    assert ((dx.double() - exact).abs() <= rounding * exact.abs() + budget).all()
    exact, budget = (t.reshape(-1, shape[-1]).sum(0) for t in (exact, budget))
    assert ((dbias.double() - exact).abs() <= rounding * exact.abs() + budget).all()
    assert dx.dtype == dbias.dtype == dtype and dx.shape == x.shape and dbias.shape == bias.shape


def test_bias_gradients_of_a_transposed_x_a_sum_and_nothing():
    x, bias = torch.randn(8, 300, device=DEVICE).t().requires_grad_(), torch.randn(8, device=DEVICE, requires_grad=True)
    dx, dbias = torch.autograd.grad(bias_gelu(x, bias).sum(), (x, bias))
    expected = torch.autograd.grad(F.gelu(x.double() + bias.double()).sum(), (x, bias))
    torch.testing.assert_close((dx, dbias), expected)
    for shape in ((0, 8), (8, 0)):
        x, bias = torch.randn(shape, device=DEVICE, requires_grad=True), torch.randn(shape[1], device=DEVICE)
        dx, dbias = torch.autograd.grad(bias_gelu(x, bias.requires_grad_()).sum(), (x, bias))
        assert dx.shape == shape and torch.equal(dbias, torch.zeros(shape[1], device=DEVICE))


def test_the_same_sum_for_the_bias_every_time():
    x, bias = torch.randn(1000, 5, device=DEVICE), torch.randn(5, device=DEVICE, requires_grad=True)
    first, second = (torch.autograd.grad(bias_gelu(x, bias).sum(), bias)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_the_sum_with_the_bias_is_neither_kept_nor_rounded():
    x = torch.randn(512, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.randn(64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    assert kept_bytes(bias_gelu, x, bias) == 0
    assert kept_bytes(lambda x, bias: F.gelu(x + bias), x, bias) == x.nbytes
    exact = bias_gelu_reference(x.double(), bias.double())
    ours, eager = ((y.double() - exact).abs().mean() for y in (bias_gelu(x, bias), F.gelu(x + bias)))
    assert ours < eager / 1.2


# torch.compile


def test_torch_compile_sees_one_graph():
    def block(x, bias):
        return bias_gelu(gelu(2 * x, "tanh"), bias) + 1

    torch._dynamo.reset()
    fast = torch.compile(block, backend="aot_eager" if ON_CPU else "inductor", fullgraph=True)
    inputs = torch.randn(30, 8, device=DEVICE), torch.randn(8, device=DEVICE)
    results = []
    for function in (fast, block):
        x, bias = (t.clone().requires_grad_() for t in inputs)
        out = function(x, bias)
        out.sum().backward()
        results.append((out.detach(), x.grad, bias.grad))
    torch.testing.assert_close(*results)


def test_torch_compile_knows_the_strides():
    x, bias = torch.randn(4, 6, device=DEVICE).t(), torch.randn(8, device=DEVICE)[::2]
    for function, arguments in (
        (kernels.gelu.gelu_forward, (x, "none")),
        (kernels.gelu.gelu_backward, (x, x.contiguous(), "tanh")),
        (kernels.gelu.bias_gelu_forward, (x, bias, "none")),
        (kernels.gelu.bias_gelu_backward, (x, bias, x, "none")),
    ):
        torch.library.opcheck(function.operation, arguments)


# Errors and costs


ONES = torch.ones(3, device=DEVICE)
REFUSED = {
    "a list": (gelu, ([1.0],), TypeError, "gelu takes a tensor, not list"),
    "integers": (gelu, (ONES.int(),), ValueError, "not torch.int32"),
    "float64": (gelu, (ONES.double(),), ValueError, "not torch.float64"),
    "sparse": (gelu, (ONES.to_sparse(),), ValueError, "torch.sparse_coo"),
    "a third form": (gelu, (ONES, "sigmoid"), ValueError, "approximate must be one of none, tanh, not 'sigmoid'"),
    "no form": (gelu, (ONES, None), ValueError, "not None"),
    "a bias that is a list": (bias_gelu, (ONES, [1.0]), TypeError, "bias_gelu takes a tensor, not list"),
    "a bias too short": (bias_gelu, (ONES, ONES[:2]), ValueError, r"\(2,\) for \(3,\)"),
    "a bias for one column": (bias_gelu, (ONES, ONES[:1]), ValueError, r"\(1,\) for \(3,\)"),
    "a bias of two dimensions": (bias_gelu, (ONES[None], ONES[None]), ValueError, r"\(1, 3\) for \(1, 3\)"),
    "nothing to add a bias to": (bias_gelu, (ONES[0], ONES), ValueError, r"\(3,\) for \(\)"),
    "two dtypes": (bias_gelu, (ONES, ONES.half()), ValueError, "not torch.float32 and torch.float16"),
    "two devices": (bias_gelu, (ONES, ONES.to("meta")), ValueError, "on one device, not"),
}


@pytest.mark.parametrize("function, arguments, error, message", REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused(function, arguments, error, message):
    with pytest.raises(error, match=message):
        function(*arguments)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_runs_on_the_device_of_its_input():
    x = torch.ones(100, 4, device="cuda:1", requires_grad=True)
    assert torch.cuda.current_device() == 0
    gelu(bias_gelu(x, x.detach()[0])).sum().backward()
    assert x.grad.device == x.device and x.grad.isfinite().all()


@pytest.mark.gpu
@pytest.mark.skipif(ON_CPU, reason="needs a CUDA GPU and 20 GB of its memory")
def test_more_than_two_to_the_31_elements():
    N = 2**16
    x = torch.ones(2**15 + 1, N, dtype=torch.bfloat16, device=DEVICE)
    x[-1] = 2
    bias = torch.zeros(N, dtype=torch.bfloat16, device=DEVICE)
    one, two = gelu(torch.tensor([1.0, 2.0], dtype=torch.bfloat16, device=DEVICE))
    for out in (gelu(x), bias_gelu(x, bias)):
        assert (out[:-1] == one).all() and (out[-1] == two).all()


def test_costs():
    x, bias = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in ((10, 100), 100))
    assert gelu_bytes(x) == 4000 and bias_gelu_bytes(x, bias) == 4200
    assert gelu_flops(x) == 4000 and gelu_flops(x, "tanh") == 9000 and bias_gelu_flops(x, bias) == 5000


# What the compiler makes of it


def code_of(form, dtype=torch.bfloat16, target="sm_90"):
    x = torch.empty(2**20, device="meta", dtype=dtype)
    return compiled(gelu_kernel, x, x, 2**20, FORM=form, BLOCK=block_of(dtype), target=target)


def instructions(form) -> float:
    """Return how many instructions a thread runs for each of its 16 elements."""
    sass = code_of(form).view("sass", lines=10**6).splitlines()
    return sum("NOP" not in line for line in sass) / 16


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100", "gfx942"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_compiles_for(target, dtype):
    x = torch.empty(2**20, device="meta", dtype=dtype)
    for approximate in APPROXIMATIONS:
        form, slope = forms_of(dtype, approximate)
        arguments = {"BLOCK": block_of(dtype), "target": target}
        assert compiled(gelu_kernel, x, x, 2**20, FORM=form, **arguments).spills == 0
        assert compiled(gelu_backward_kernel, x, x, x, 2**20, SLOPE=slope, **arguments).spills == 0


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100", "gfx942"])
@pytest.mark.parametrize("N", [512, 513])
def test_bias_compiles_for(target, N):
    x, partial = torch.empty(512, N, device="meta", dtype=torch.bfloat16), torch.empty(4, N, device="meta")
    forward = (x, x[0], x, 512, N, N, 1, 1)
    backward = (x, x[0], x, x, partial, 512, N, N, 1, 1, N, 1)
    for approximate in APPROXIMATIONS:
        form, slope = forms_of(x.dtype, approximate)
        assert compiled(bias_gelu_kernel, *forward, FORM=form, **tile_of(N), target=target).spills == 0
        options = {"SLOPE": slope, "ROWS": ROWS, **backward_tile_of(N), "target": target}
        assert compiled(bias_gelu_backward_kernel, *backward, **options).spills == 0


@pytest.mark.parametrize("form", EXACT + TANH, ids=lambda form: form.fn.__name__)
def test_every_rung_takes_half_precision_because_the_kernel_widens_it_first(form):
    for dtype in (torch.float16, torch.bfloat16):
        assert code_of(form, dtype).spills == 0


def test_libdevice_refuses_half_precision():
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    @triton.jit
    def narrow_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        offs = tl.arange(0, BLOCK)
        tl.store(out_ptr + offs, libdevice.tanh(tl.load(x_ptr + offs)))

    x = torch.empty(64, device="meta", dtype=torch.bfloat16)
    with pytest.raises(CompileError, match="float32 first"):
        compiled(narrow_kernel, x, x, BLOCK=64)


def test_the_shipped_forms_leave_an_h200_time_to_wait_for_memory():
    """28 instructions an element take as long as 4 bytes do: 132 * 128 a clock at 1.98 GHz, and 4.8 TB/s."""
    assert instructions(gelu_exp2) < instructions(gelu_sigmoid) < instructions(gelu_libdevice_exp)
    assert instructions(gelu_short) < 23 < 27 < instructions(gelu_erf)
    assert instructions(gelu_short) < instructions(gelu_polynomial) - 5


def test_libdevice_is_linked_in_and_gone():
    linked = code_of(gelu_libdevice_tanh)
    assert "__nv_tanhf" in linked.ttgir and "call float @__nv" not in linked.llir
    assert code_of(gelu_short).count("div.approx.ftz.f32") == 16
    assert code_of(gelu_polynomial).count("div.full.f32") == 16


@pytest.mark.parametrize("slope", [gelu_short_slope, gelu_long_slope, gelu_exp2_slope], ids=lambda s: s.fn.__name__)
def test_a_slope_needs_one_division(slope):
    x = torch.empty(2**20, device="meta", dtype=torch.bfloat16)
    code = compiled(gelu_backward_kernel, x, x, x, 2**20, SLOPE=slope, BLOCK=block_of(x.dtype))
    assert code.count("MUFU.RCP") == 16
