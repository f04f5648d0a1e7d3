# Right answers to `scale_add`, each in a style of its own: all must pass.

# %% another block size, and more warps
@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y, mask=mask)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), alpha, BLOCK=64, num_warps=2)
    return out


# %% helper functions, on the host and in the kernel
BLOCK_SIZE = 128
EVEN = tl.constexpr(1)


@triton.jit
def my_offsets(BLOCK: tl.constexpr):
    return tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def fused(x, y, alpha):
    """Multiply, then add."""
    return alpha * x + y * EVEN


@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr = 128):
    offs = my_offsets(BLOCK)
    mask = offs < n
    x, y = tl.load(x_ptr + offs, mask=mask, other=0.0), tl.load(y_ptr + offs, mask=mask, other=0.0)
    result = fused(x.to(tl.float32), y.to(tl.float32), alpha)
    tl.store(out_ptr + offs, result.to(out_ptr.dtype.element_ty), mask=mask)


def programs(n: int) -> int:
    return (n + BLOCK_SIZE - 1) // BLOCK_SIZE


def scale_add(x: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    assert x.shape == y.shape
    result = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if programs(x.numel()):
        scale_add_kernel[(programs(x.numel()),)](x, y, result, x.numel(), alpha)
    return result


# %% autotune, with the grid as a function
@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y, mask=mask)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    n = x.numel()
    scale_add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, alpha)
    return out


# %% autotune, with a configuration that is too large
@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=64), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y, mask=mask)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel(), alpha)
    return out


# %% autotune of sums, which begin at zero each time
@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"], reset_to_zero=["sums_ptr"]
)
@triton.jit
def sums_kernel(x_ptr, y_ptr, sums_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    if tl.program_id(1) == 0:
        tl.atomic_add(sums_ptr + offs, alpha * tl.load(x_ptr + offs, mask=mask).to(tl.float32), mask=mask)
    else:
        tl.atomic_add(sums_ptr + offs, tl.load(y_ptr + offs, mask=mask).to(tl.float32), mask=mask)


@triton.jit
def rounded_kernel(sums_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(sums_ptr + offs, mask=offs < n), mask=offs < n)


def scale_add(x, y, alpha):
    n = x.numel()
    sums, out = torch.zeros(n, dtype=torch.float32, device=x.device), torch.empty_like(x)
    sums_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]), 2)](x, y, sums, n, alpha)
    rounded_kernel[(triton.cdiv(n, 256),)](sums, out, n, BLOCK=256)
    return out


# %% heuristics, arguments by name
@triton.heuristics({"BLOCK": lambda arguments: 256 if arguments["n"] > 512 else 128})
@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y, mask=mask)


def scale_add(x, y, alpha):
    out = torch.zeros_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
    scale_add_kernel[grid](x_ptr=x, y_ptr=y, out_ptr=out, n=x.numel(), alpha=alpha)
    return out


# %% 用中文写的注释和名字
# 每个程序处理 256 个连续的元素。
@triton.jit
def scale_add_kernel(x指针, y指针, 输出指针, n, alpha, 块: tl.constexpr):
    """每个程序写 块 个元素。"""
    位置 = tl.program_id(0).to(tl.int64) * 块 + tl.arange(0, 块)
    掩码 = 位置 < n  # 最后一个块
    x = tl.load(x指针 + 位置, mask=掩码).to(tl.float32)
    y = tl.load(y指针 + 位置, mask=掩码).to(tl.float32)
    tl.store(输出指针 + 位置, alpha * x + y, mask=掩码)


def scale_add(x, y, alpha):
    输出 = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, 输出, x.numel(), alpha, 块=256)
    return 输出


# %% text that ends lines and pages in other ways than Python
TITLE = "one twothree"

@triton.jit
def half(x, n: tl.constexpr):
    return x / n


@triton.jit(do_not_specialize=["n"], noinline=False)
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    last = n.to(tl.int64)
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < last
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, half(2 * (alpha * x + y), 2), mask=mask)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% another algorithm: a few programs that stride through the vector
@triton.jit
def strided_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    step = tl.num_programs(0) * BLOCK
    for start in range(first, n, step):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
        y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
        tl.store(out_ptr + offs, tl.fma(x, alpha + tl.zeros_like(x), y), mask=mask)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    strided_kernel[(min(4, triton.cdiv(x.numel(), 64)),)](x, y, out, x.numel(), alpha, BLOCK=64)
    return out


# %% two launches, with memory between them
@triton.jit
def scale_kernel(x_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, alpha * tl.load(x_ptr + offs, mask=offs < n).to(tl.float32), mask=offs < n)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + offs, mask=offs < n), tl.load(y_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x.to(tl.float32) + y.to(tl.float32), mask=offs < n)


def scale_add(x, y, alpha):
    n = x.numel()
    scaled = torch.full((n + 3,), 7.0, dtype=torch.float32, device=x.device)[3:]
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(n, 256),)](x, scaled, n, alpha, BLOCK=256)
    add_kernel[(triton.cdiv(n, 256),)](scaled, y, out, n, BLOCK=256)
    return out


# %% copies its inputs first, and works on float32
@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, alpha * tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


def scale_add(x, y, alpha):
    a, b = x.clone().float(), y.contiguous().to(torch.float32)
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](a, b, out, x.numel(), alpha, BLOCK=256)
    return out


# %% magics, prints and a cell that fails at its end
%load_ext autoreload
import numpy as np, math


@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y, mask=mask)


def scale_add(x, y, alpha):
    print(f"called with {x.shape}")
    out = torch.empty_like(x)
    scale_add_kernel[(math.ceil(x.numel() / 256), 1)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


!ls
x = scale_add(torch.ones(4), torch.ones(4), 2.0)
undefined_name

# %% a grid of two dimensions, whose programs still own what they write
@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, DTYPE: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.static_assert(BLOCK >= 16, "too small")
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    if WIDE:
        x, y = x.to(DTYPE), y.to(DTYPE)
    out = (alpha * x + y).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + offs, out, mask=mask)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 256), 2)
    scale_add_kernel[grid](x, y, out, x.numel(), alpha, tl.float32, WIDE=True, BLOCK=128)
    return out
