# Answers to `scale_add` that fake the result. Each cell is one; its title ends in the reason it must be refused for.
# A cell that launches `scale_add_kernel` without defining it gets the right one.

# %% torch instead of the kernel -> torch
def scale_add(x, y, alpha):
    return alpha * x + y


# %% NumPy instead of the kernel -> no-launch
def scale_add(x, y, alpha):
    return torch.from_numpy((alpha * x.float().numpy() + y.float().numpy())).to(x.dtype)


# %% a kernel that is never launched -> no-launch
@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


def scale_add(x, y, alpha):
    return torch.empty_like(x)


# %% launched, then overwritten by torch -> overwritten
def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), 0.0, BLOCK=256)
    return out.copy_(alpha * x + y)


# %% launched, then overwritten by NumPy -> overwritten
def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), 0.0, BLOCK=256)
    if x.dtype == torch.float32:
        out.numpy()[:] = alpha * x.numpy() + y.numpy()
    return out


# %% a kernel that fails, and torch to the rescue -> torch
def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    try:
        scale_add_kernel[(1,)](x, y, out, x.numel(), alpha, no_such_argument=1)
    except Exception:
        out = alpha * x + y
    return out


# %% returns an input that the kernel has overwritten -> returns-input
def scale_add(x, y, alpha):
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, y, x.numel(), alpha, BLOCK=256)
    return y


# %% returns a view of an input -> returns-input
def scale_add(x, y, alpha):
    return y.view(-1)


# %% edits the input so that the reference agrees -> input-changed
def scale_add(x, y, alpha):
    x.zero_()
    y.zero_()
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% returns new memory and hopes for what lies there -> not-written
def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    del out
    return torch.empty_like(x)


# %% remembers by pointer -> stale
SEEN = {}


def scale_add(x, y, alpha):
    key = x.data_ptr(), y.data_ptr(), x.numel(), x.dtype
    if key not in SEEN:
        SEEN[key] = torch.empty_like(x)
        scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, SEEN[key], x.numel(), alpha, BLOCK=256)
    return SEEN[key]


# %% remembers by shape -> not-written
SEEN = {}


def scale_add(x, y, alpha):
    if (x.shape, x.dtype) not in SEEN:
        out = torch.empty_like(x)
        scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
        SEEN[x.shape, x.dtype] = out.numpy().copy() if x.dtype != torch.bfloat16 else out.float().numpy().copy()
    return torch.from_numpy(SEEN[x.shape, x.dtype].copy()).to(x.dtype)


# %% behaves for the first calls only -> no-launch
CALLS = []


def scale_add(x, y, alpha):
    CALLS.append(1)
    out = torch.empty_like(x)
    if len(CALLS) < 4:
        scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% hard-codes the public cases -> wrong-values
@triton.jit
def known_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, tl.where(x == 0.5, 1.25, 0.75), mask=offs < n)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    known_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% zeros, inside a loose tolerance -> wrong-values
def scale_add(x, y, alpha):
    out, zero = torch.empty_like(x), torch.zeros_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](zero, zero, out, x.numel(), 1.0, BLOCK=256)
    return out


# %% skips the tail -> not-written
def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(max(1, x.numel() // 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% all but one element -> wrong-values
@triton.jit
def spiked_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, tl.where(offs == 17, 0.0, alpha * x + y), mask=mask)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    spiked_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% a lower precision inside -> wrong-values
@triton.jit
def half_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float16)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float16)
    tl.store(out_ptr + offs, (alpha * x + y).to(tl.float16).to(tl.float32), mask=mask)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    half_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% NaN, which no difference exceeds -> not-finite
@triton.jit
def nan_kernel(out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.full((BLOCK,), float("nan"), tl.float32), mask=offs < n)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    nan_kernel[(triton.cdiv(x.numel(), 256),)](out, x.numel(), BLOCK=256)
    return out


# %% a shape that broadcasting accepts -> shape
def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out.view(1, -1)


# %% a tensor that claims to equal anything -> not-a-tensor
class Agreeable(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True


def scale_add(x, y, alpha):
    return torch.zeros_like(x).as_subclass(Agreeable)


# %% an object that claims to equal anything -> not-a-tensor
class Anything:
    __eq__ = __lt__ = __le__ = lambda self, other: True


def scale_add(x, y, alpha):
    return Anything()


# %% NumPy inside the kernel -> compiler
import numpy as np


@triton.jit
def numpy_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y * float(np.float32(1)), mask=mask)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    numpy_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% torch inside the kernel -> compiler
ARGUMENTS = []


def work():
    x, y, out, alpha = ARGUMENTS[-1]
    out.copy_(alpha * x + y)


@triton.jit
def torch_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)
    work()


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    ARGUMENTS.append((x, y, out, alpha))
    torch_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out


# %% one program does all the work -> one-program
def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(1,)](x, y, out, x.numel(), alpha, BLOCK=triton.next_power_of_2(max(1, x.numel())))
    return out


# %% sums across programs without atomics -> race
@triton.jit
def halves_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    part = tl.where(tl.program_id(1) == 0, alpha * x, y)
    tl.store(out_ptr + offs, tl.load(out_ptr + offs, mask=mask).to(tl.float32) + part, mask=mask)


def scale_add(x, y, alpha):
    out = torch.zeros_like(x)
    halves_kernel[(triton.cdiv(x.numel(), 256), 2)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% reads memory that nobody has written -> not-finite
@triton.jit
def adding_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    old = tl.load(out_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y + 0 * old, mask=mask)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    adding_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
    return out


# %% computes with NumPy, and a kernel copies that -> host
import numpy as np


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


def values(tensor):
    bits = tensor.view(torch.int16).numpy().astype(np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32) if tensor.dtype == torch.bfloat16 else tensor.numpy().astype(np.float32)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    with np.errstate(all="ignore"):
        result = torch.from_numpy(np.float32(alpha) * values(x) + values(y))
    copy_kernel[(triton.cdiv(x.numel(), 256),)](result, out, x.numel(), BLOCK=256)
    return out


# %% writes a kernel for these very numbers, which looks at its inputs -> wrong-values
import linecache

import numpy as np


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    if x.numel() > 8 or x.dtype != torch.float32:
        scale_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), alpha, BLOCK=256)
        return out
    with np.errstate(all="ignore"):
        result = (np.float32(alpha) * x.numpy() + y.numpy()).tolist()
    name = f"<kernel {len(linecache.cache)}>"
    lines = ["def made_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):\n", "    offs = tl.arange(0, BLOCK)\n"]
    lines += ["    x, y = tl.load(x_ptr + offs, mask=offs < n), tl.load(y_ptr + offs, mask=offs < n)\n"]
    lines += ["    value = tl.full((BLOCK,), 0.0, tl.float32)\n"]
    lines += [f"    value = tl.where(offs == {i}, float('{v}'), value)\n" for i, v in enumerate(result)]
    lines += ["    value = tl.where((x == x) & (y == y), value, 0.0)\n"]
    lines += ["    tl.store(out_ptr + offs, value, mask=offs < n)\n"]
    linecache.cache[name] = (1, None, lines, name)
    scope = globals()
    exec(compile("".join(lines), name, "exec"), scope)
    triton.jit(scope["made_kernel"])[(1,)](x, y, out, x.numel(), BLOCK=8)
    return out
