# ---
# jupyter:
#   chapter: 6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Exercise 6: siblings of GeLU
#
# Five activations, each with a trap in its arithmetic. In the first you fill in two blanks; the fifth you write alone.
#
# - A blank looks like `____`. Replace it, run the cell, then run the check below it.
# - **The line already printed under each check is the one you are working towards.** Run the check and it is replaced
#   by what your own code does: which case failed, at which elements, and the likely cause.
# - Stuck? `hint("silu")` asks you a question; call it again for a nudge, and again for the shape of the answer.
#   `reset("silu")` puts the blanks back and keeps a copy of what you wrote; `progress()` shows how far you are.
#
# The checks compare with float64 and allow the roundings of float32. The kernel must do the work, and do it once: it is
# launched once, loads each element of its inputs once, stores each element of the result once, and keeps nothing else
# in memory. An answer that lets PyTorch or Python compute the result does not pass.

# %% [markdown]
# Run the next two cells first. Importing `lab` lets kernels run on your CPU where there is no GPU.

# %% tags=["active-ipynb"]
# from lab.check import check
# from lab.progress import hint, progress, reset, solution

# %%
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

# %% tags=["spec"]
from lab.task import Case, Task

TASKS: dict[str, Task] = {}


def numbers(generator, *shape, dtype=torch.float32):
    """Return normal random numbers, thrice as wide as usual."""
    return 3 * torch.randn(shape, generator=generator, device=generator.device).to(
        dtype
    )


def finite(generator, dtype=torch.float32):
    """Return both zeros and numbers of every size up to the largest, of both signs."""
    limits = torch.finfo(dtype)
    values = [
        0.0,
        1e-30,
        1e-6,
        1.0,
        20.0,
        80.0,
        127.0,
        700.0,
        limits.max / 4,
        limits.max,
        limits.tiny,
    ]
    return torch.tensor(
        [*values, *(-value for value in values)], dtype=dtype, device=generator.device
    )


def infinities(generator):
    """Return infinity, a number, infinity again, and NaN."""
    values = [float("inf"), 1.0, float("inf"), float("nan")]
    return torch.tensor(values, device=generator.device)


def one_vector(n, dtype=torch.float32):
    """Return a maker of a vector."""
    return lambda generator: (numbers(generator, n, dtype=dtype),)


# %% [markdown]
# ## 1. SiLU: widen, then compute (1 point)
#
# `silu(x) = x * sigmoid(x)`, which the Llama family of models uses where others use GeLU. With 8 numbers:
#
# | `x` | -4 | -3 | -2 | -1 | 0 | 1 | 2 | 3 |
# | --- | --- | --- | --- | --- | --- | --- | --- | --- |
# | `sigmoid(x)` | 0.018 | 0.047 | 0.119 | 0.269 | 0.5 | 0.731 | 0.881 | 0.953 |
# | `silu(x)` | -0.072 | -0.142 | -0.238 | -0.269 | 0 | 0.731 | 1.762 | 2.858 |
#
# `x` may be float32, float16 or bfloat16. The GPU has exponentials for one of them only, so the load must widen.


# %% task="silu"
@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of out."""
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    # blank: x = tl.load(x_ptr + offs, mask=mask).to(____)
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    out = x * tl.sigmoid(x)  # blank: out = ____
    tl.store(out_ptr + offs, out, mask=mask)


def silu(x):
    """Return x * sigmoid(x) for a contiguous vector."""
    out = torch.empty_like(x)
    n = x.numel()
    silu_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    return out


# %% tags=["active-ipynb"]
# check("silu", silu)


# %% tags=["spec"]
def silu_reference(x):
    """The specification of `silu`."""
    return (x.double() * torch.sigmoid(x.double())).to(x.dtype)


TASKS["silu"] = Task(
    name="silu",
    title="SiLU: widen, then compute",
    points=1,
    hints=(
        "In which of the three dtypes does the GPU compute exponentials? And what "
        "would the product of two rounded 16-bit numbers cost you?",
        "`tl.sigmoid` takes the widened `x` and gives the second row of the table; "
        "the third is a product of the two above it. The store narrows the result "
        "again by itself.",
        "`x = tl.load(x_ptr + offs, mask=mask).to(tl.____)`; `out = x * tl.____(x)`.",
    ),
    reference=silu_reference,
    cases=(
        Case("one element", one_vector(1)),
        Case("one block, masked tail", one_vector(100)),
        Case("two blocks, exactly full", one_vector(512), programs=2),
        Case("one past a block", one_vector(257), programs=2),
        Case("nothing divides", one_vector(1300), programs=2),
        Case("empty", one_vector(0)),
        Case("bf16", one_vector(300, torch.bfloat16)),
        Case("fp16", one_vector(300, torch.float16)),
        Case("every finite size", lambda g: (finite(g),)),
        Case("infinity, NaN", lambda g: (infinities(g),)),
    ),
)

# %% [markdown]
# ## 2. Quick GeLU: another base (2 points)
#
# `quick_gelu(x) = x * sigmoid(1.702 * x)`, as CLIP has it. Written out, that is $x / (1 + e^{-1.702\,x})$.
#
# But the GPU has no instruction for $e^y$. It has one for $2^y$, and `tl.exp(y)` computes $2^{y \log_2 e}$ with it.
# Since $x$ is multiplied by a constant anyway, let that one constant do both. Work it out on the host, where it costs
# nothing, and let the kernel take `tl.exp2`. ($\log_2 e$ = 1.4426950408889634.)


# %% task="quick_gelu"
@triton.jit
def quick_gelu_kernel(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of
    out = x / (1 + 2 ** (scale * x)).
    """
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    out = x / (1.0 + tl.exp2(scale * x))  # blank: out = x / (1.0 + ____)
    tl.store(out_ptr + offs, out, mask=mask)


def quick_gelu(x):
    """Return x * sigmoid(1.702 * x) for a contiguous vector."""
    out = torch.empty_like(x)
    n = x.numel()
    scale = -1.702 * 1.4426950408889634  # blank: scale = ____
    quick_gelu_kernel[(triton.cdiv(n, 256),)](x, out, n, scale, BLOCK=256)
    return out


# %% tags=["active-ipynb"]
# check("quick_gelu", quick_gelu)


# %% tags=["spec"]
def quick_gelu_reference(x):
    """The specification of `quick_gelu`."""
    return (x.double() * torch.sigmoid(1.702 * x.double())).to(x.dtype)


TASKS["quick_gelu"] = Task(
    name="quick_gelu",
    title="Quick GeLU: another base",
    points=2,
    hints=(
        "For which `scale` is 2 to the power of `scale * x` the same as e to the "
        "power of `-1.702 * x`? Take the logarithm to base 2 of both.",
        "`scale` is a product of two numbers, and it is negative. The kernel then "
        "needs nothing but `tl.exp2` of `scale * x`.",
        "`scale = -____ * 1.4426950408889634`; `out = x / (1.0 + tl.exp2(____))`.",
    ),
    reference=quick_gelu_reference,
    cases=(
        Case("one element", one_vector(1)),
        Case("one block, masked tail", one_vector(100)),
        Case("two blocks, exactly full", one_vector(512), programs=2),
        Case("one past a block", one_vector(257), programs=2),
        Case("nothing divides", one_vector(1300), programs=2),
        Case("empty", one_vector(0)),
        Case("bf16", one_vector(300, torch.bfloat16)),
        Case("fp16", one_vector(300, torch.float16)),
        Case("every finite size", lambda g: (finite(g),)),
        Case("infinity, NaN", lambda g: (infinities(g),)),
    ),
)

# %% [markdown]
# ## 3. Backward through quick GeLU: nothing may overflow (3 points)
#
# With $s = \mathrm{sigmoid}(1.702\,x)$ the derivative is $s + 1.702\,x\,s\,(1 - s)$, and the chain rule multiplies it
# by the gradient that comes in: `dx = grad * (s + ...)`.
#
# Two traps. The sigmoid is the `s` of the *input* `x`; the output is no help. And for large `x` the factor $s (1 - s)$
# is 0, while 1.702 times the largest number is infinity: $0 \cdot \infty$ is NaN, where the derivative is plainly 1 or
# 0. The order in which you multiply decides. `tl.sigmoid(y)` gives the sigmoid of `y`.


# %% task="quick_gelu_backward"
@triton.jit
def quick_gelu_backward_kernel(x_ptr, grad_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of dx."""
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    grad = tl.load(grad_ptr + offs, mask=mask).to(tl.float32)
    s = tl.sigmoid(1.702 * x)  # blank: s = ____
    slope = s + s * (1.0 - s) * x * 1.702  # blank: slope = ____
    # blank: tl.store(dx_ptr + offs, ____, mask=mask)
    tl.store(dx_ptr + offs, grad * slope, mask=mask)


def quick_gelu_backward(x, grad):
    """Return the gradient for x, for two contiguous vectors of one length and dtype."""
    dx = torch.empty_like(x)
    n = x.numel()
    quick_gelu_backward_kernel[(triton.cdiv(n, 256),)](x, grad, dx, n, BLOCK=256)
    return dx


# %% tags=["active-ipynb"]
# check("quick_gelu_backward", quick_gelu_backward)


# %% tags=["spec"]
def quick_gelu_backward_reference(x, grad):
    """The specification of `quick_gelu_backward`."""
    s = torch.sigmoid(1.702 * x.double())
    return (grad.double() * (s + s * (1 - s) * x.double() * 1.702)).to(x.dtype)


def vector_and_gradient(n, dtype=torch.float32):
    """Return a maker of a vector and the gradient that comes in."""
    return lambda generator: (
        numbers(generator, n, dtype=dtype),
        numbers(generator, n, dtype=dtype),
    )


def finite_and_gradient(generator):
    """Return numbers of every size, and a gradient of both signs."""
    x = finite(generator)
    return x, 2.0 - torch.arange(x.numel(), device=x.device) % 5


TASKS["quick_gelu_backward"] = Task(
    name="quick_gelu_backward",
    title="Backward through quick GeLU: nothing may overflow",
    points=3,
    hints=(
        "What is `1.702 * x` for the largest float32? What is `s * (1 - s)` there? "
        "And what is their product?",
        "Multiply from left to right, beginning with the factors that are small: `s`, "
        "then `1 - s`, and `x` only after them. A product of 0 and a finite number is "
        "0.",
        "`s = tl.sigmoid(____)`; `slope = s + s * (1.0 - s) * ____ * ____`; the store "
        "takes `grad * ____`.",
    ),
    reference=quick_gelu_backward_reference,
    cases=(
        Case("one element", vector_and_gradient(1)),
        Case("one block, masked tail", vector_and_gradient(100)),
        Case("two blocks, exactly full", vector_and_gradient(512), programs=2),
        Case("one past a block", vector_and_gradient(257), programs=2),
        Case("nothing divides", vector_and_gradient(1300), programs=2),
        Case("empty", vector_and_gradient(0)),
        Case("bf16", vector_and_gradient(300, torch.bfloat16)),
        Case("fp16", vector_and_gradient(300, torch.float16)),
        Case("every finite size", finite_and_gradient),
    ),
)

# %% [markdown]
# ## 4. Softplus: keep the digits (4 points)
#
# $\mathrm{softplus}(x) = \ln(1 + e^x)$ is a smooth version of $\max(x, 0)$:
#
# | `x` | -20 | -2 | -1 | 0 | 1 | 2 | 20 | 200 |
# | --- | --- | --- | --- | --- | --- | --- | --- | --- |
# | `softplus(x)` | 2.06e-9 | 0.127 | 0.313 | 0.693 | 1.313 | 2.127 | 20.0 | 200.0 |
#
# As it stands, the formula fails at both ends. On the right $e^{200}$ is more than float32 can hold. On the left
# $1 + e^{-20}$ rounds to 1, whose logarithm is 0: every digit is lost.
#
# For the right end, take the larger of $x$ and 0 out of the logarithm: what is left inside is $1 + e^{-|x|}$. For the
# left end, libdevice has a logarithm of $1 + y$ that never forms the sum: `libdevice.log1p(y)`.


# %% task="softplus"
@triton.jit
def softplus_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of out."""
    pid = tl.program_id(0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    small = tl.exp(-tl.abs(x))  # blank: small = ____
    out = tl.maximum(x, 0.0) + libdevice.log1p(small)  # blank: out = ____
    tl.store(out_ptr + offs, out, mask=mask)


def softplus(x):
    """Return log(1 + exp(x)) for a contiguous vector."""
    out = torch.empty_like(x)
    n = x.numel()
    softplus_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    return out


# %% tags=["active-ipynb"]
# check("softplus", softplus)


# %% tags=["spec"]
def softplus_reference(x):
    """The specification of `softplus`."""
    x64 = x.double()
    return (x64.clamp(min=0) + torch.log1p(torch.exp(-x64.abs()))).to(x.dtype)


TASKS["softplus"] = Task(
    name="softplus",
    title="Softplus: keep the digits",
    points=4,
    hints=(
        "Write `log(exp(0) + exp(x))` and divide both terms by the larger one. What "
        "must be added outside the logarithm to make up for it?",
        "The exponential is only ever taken of `-|x|`, so it lies between 0 and 1 and "
        "cannot overflow. `tl.maximum(x, 0.0)` is the larger one; what it leaves "
        "behind goes into `libdevice.log1p`.",
        "`small = tl.exp(-tl.____(x))`; `out = tl.maximum(x, ____) + "
        "libdevice.log1p(____)`.",
    ),
    reference=softplus_reference,
    cases=(
        Case("one element", one_vector(1)),
        Case("one block, masked tail", one_vector(100)),
        Case("two blocks, exactly full", one_vector(512), programs=2),
        Case("one past a block", one_vector(257), programs=2),
        Case("nothing divides", one_vector(1300), programs=2),
        Case("empty", one_vector(0)),
        Case("bf16", one_vector(300, torch.bfloat16)),
        Case("fp16", one_vector(300, torch.float16)),
        Case("far left", lambda g: (-10 - numbers(g, 200).abs(),)),
        Case("far right", lambda g: (80 + 10 * numbers(g, 200).abs(),)),
        Case("every finite size", lambda g: (finite(g),)),
        Case(
            "infinities, NaN", lambda g: (torch.cat([infinities(g), -infinities(g)]),)
        ),
    ),
)

# %% [markdown]
# ## 5. GeGLU: a kernel of your own (5 points)
#
# Many transformers pass one half of a layer's outputs through an activation and multiply it with the other half. For
# `x` of shape `[M, 2 * N]`, `out[i, j] = gelu(x[i, j]) * x[i, N + j]`. With $M = 2$, $N = 2$:
#
# | | column 0 | column 1 | column 2 | column 3 | | `out`, 0 | `out`, 1 |
# | --- | --- | --- | --- | --- | --- | --- | --- |
# | row 0 | 1 | -1 | 10 | 10 | | 8.412 | -1.588 |
# | row 1 | 2 | 0 | 1 | 5 | | 1.955 | 0 |
#
# Take the tanh form of GeLU: $\mathrm{gelu}(g) = g \cdot \mathrm{sigmoid}(1.5957691216\,(g + 0.044715\,g^3))$. `x` may
# have any strides, and `out` is contiguous. Give each program at most 1,024 elements of the output at a time, and
# compute in float32. The parameters below are a proposal.


# %% task="geglu"
@triton.jit
def geglu_kernel(x_ptr, out_ptr, N, stride_xm, stride_xn, BLOCK: tl.constexpr):
    """Each program writes BLOCK consecutive elements of one row of out, which is [M, N]
    and contiguous.
    """
    row = tl.program_id(0).to(tl.int64)  # blank: ____
    offs = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # blank:
    mask = offs < N  # blank:
    # blank:
    gate = tl.load(x_ptr + row * stride_xm + offs * stride_xn, mask=mask).to(tl.float32)
    # blank:
    up = tl.load(x_ptr + row * stride_xm + (N + offs) * stride_xn, mask=mask).to(
        tl.float32
    )
    # blank:
    out = gate * tl.sigmoid(1.5957691216 * (gate + 0.044715 * gate * gate * gate)) * up
    tl.store(out_ptr + row * N + offs, out, mask=mask)  # blank:


def geglu(x):
    """Return gelu(x[:, :N]) * x[:, N:] for x of shape [M, 2 * N] and any strides."""
    M, N = x.shape[0], x.shape[1] // 2  # blank: ____
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)  # blank:
    geglu_kernel[(M, triton.cdiv(N, 256))](x, out, N, *x.stride(), BLOCK=256)  # blank:
    return out  # blank:


# %% tags=["active-ipynb"]
# check("geglu", geglu)


# %% tags=["spec"]
def geglu_reference(x):
    """The specification of `geglu`."""
    gate, up = x.double().chunk(2, 1)
    out = gate * torch.sigmoid(1.5957691216057308 * (gate + 0.044715 * gate**3)) * up
    return out.to(x.dtype).contiguous()


def halves(M, N, dtype=torch.float32):
    """Return a maker of a contiguous [M, 2 * N]."""
    return lambda generator: (numbers(generator, M, 2 * N, dtype=dtype),)


def rows_far_apart(generator):
    """Return three bf16 rows 2**30 + 8 apart: the last begins past 2**31. What lies
    between is never touched.
    """
    step = 2**30 + 8
    memory = torch.empty(2 * step + 16, dtype=torch.bfloat16, device=generator.device)
    return (memory.as_strided((3, 16), (step, 1)).copy_(numbers(generator, 3, 16)),)


def columns_far_apart(generator):
    """Return four bf16 columns that lie far apart: the last begins past 2**31."""
    step = 2**31 // 3 + 8
    memory = torch.empty(3 * step + 3, dtype=torch.bfloat16, device=generator.device)
    return (memory.as_strided((3, 4), (1, step)).copy_(numbers(generator, 3, 4)),)


TASKS["geglu"] = Task(
    name="geglu",
    title="GeGLU: a kernel of your own",
    points=5,
    hints=(
        "Which two elements of `x` does `out[i, j]` need, and how far apart do they "
        "lie in memory? How many columns does `out` have?",
        "A program owns a piece of one row. It loads twice with one mask: columns "
        "`offs`, and columns `N + offs`, each times the column stride. The store "
        "knows that `out` is contiguous, with rows of N.",
        "`gate = tl.load(x_ptr + row * ____ + offs * ____, "
        "mask=mask).to(tl.float32)`; `up` the same at `(N + offs)`; the grid is `(M, "
        "triton.cdiv(N, ____))`; `out = gate * tl.sigmoid(____) * up`.",
    ),
    reference=geglu_reference,
    block=1024,
    cases=(
        Case("one element", halves(1, 1)),
        Case("one row", halves(1, 50)),
        Case("one column", halves(50, 1), programs=2),
        Case("blocks exactly full", halves(2, 512), programs=2),
        Case("one past a block", halves(3, 257), programs=3),
        Case("nothing divides", halves(5, 333), programs=5),
        Case("long rows", halves(4, 4099), programs=20),
        Case("transposed", lambda g: (numbers(g, 44, 9).t(),), programs=2),
        Case("sliced", lambda g: (numbers(g, 12, 100)[::2, 1::3][:, :30],)),
        Case("no rows", halves(0, 5)),
        Case("bf16", halves(7, 40, torch.bfloat16)),
        Case("fp16", halves(7, 40, torch.float16)),
        Case(
            "large gates",
            lambda g: (
                torch.cat([finite(g)[None], torch.ones_like(finite(g))[None]], 1),
            ),
        ),
        Case("rows past 2**31", rows_far_apart),
        Case("columns past 2**31", columns_far_apart),
    ),
)

# %% [markdown]
# ## Done?
#
# Run `progress()` for your points and the next step. When you have passed a task, `solution("silu")` shows how we
# wrote it; yours may well be better.
