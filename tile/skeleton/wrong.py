"""Answers that the check must reject, each for its reason. Write 15 or more."""

import torch
import triton
import triton.language as tl

from lab.task import wrong


def launch(kernel, x, out=None, programs=None, BLOCK=256):
    """Run a kernel with the parameters of the official one and return its output."""
    out = torch.empty_like(x) if out is None else out
    grid = (triton.cdiv(x.numel(), BLOCK) if programs is None else programs,)
    kernel[grid](x, out, x.numel(), BLOCK=BLOCK)
    return out


@triton.jit
def right_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, 2 * x + 1, mask=offs < n)


@triton.jit
def unmasked_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, 2 * x + 1)


@wrong("STEM_plus_one", reason="out-of-bounds")
def no_mask_on_the_store(x):
    return launch(unmasked_kernel, x)


@wrong("STEM_plus_one", reason="not-written")
def skips_the_tail(x):
    return launch(right_kernel, x, programs=x.numel() // 256)


@triton.jit
def twice_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, 2 * x, mask=offs < n)


@wrong("STEM_plus_one", reason="wrong-values")
def forgets_the_one(x):
    return launch(twice_kernel, x)


@wrong("STEM_plus_one", reason="torch")
def lets_torch_do_it(x):
    return 2 * x + 1
