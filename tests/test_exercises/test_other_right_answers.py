"""Answers in other words are right too: the check goes by what Triton makes of `and`, `not`, `min` and `if`."""

import pytest
import torch
import triton
import triton.language as tl

from lab.check import judge


@triton.jit
def row_add_kernel(
    x_ptr, row_ptr, out_ptr, M, N, stride_xm, stride_xn, stride_row, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m < M)[:, None] and (offs_n < N)[None, :]
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask).to(tl.float32)
    row = tl.load(row_ptr + offs_n * stride_row, mask=offs_n < N).to(tl.float32)
    tl.store(out_ptr + offs_m[:, None] * N + offs_n[None, :], x + row[None, :], mask=mask)


def row_add(x, row):
    M, N = x.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 32))
    row_add_kernel[grid](x, row, out, M, N, *x.stride(), row.stride(0), BLOCK_M=16, BLOCK_N=32)
    return out


def clamped_add_by(kernel):
    """Return the answer to `clamped_add` that launches a kernel."""

    def clamped_add(x, y, low, high):
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        n = x.numel()
        kernel[(triton.cdiv(n, 256),)](x, y, out, n, x.stride(0), y.stride(0), low, high, BLOCK=256)
        return out

    return clamped_add


@triton.jit
def min_of_max_kernel(x_ptr, y_ptr, out_ptr, n, stride_x, stride_y, low, high, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs * stride_x, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs * stride_y, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, min(max(x + y, low), high), mask=mask)


@triton.jit
def not_and_or_kernel(x_ptr, y_ptr, out_ptr, n, stride_x, stride_y, low, high, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = not (offs >= n or offs < 0)
    x = tl.load(x_ptr + offs * stride_x, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs * stride_y, mask=mask).to(tl.float32)
    out = x + y
    out = tl.where(out < low, low, out)
    tl.store(out_ptr + offs, tl.where(not (out <= high), high, out), mask=mask)


@triton.jit
def ternary_kernel(x_ptr, y_ptr, out_ptr, n, stride_x, stride_y, low, high, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    left = n - start if n - start < BLOCK else tl.cast(BLOCK, tl.int64)
    offs = start + tl.arange(0, BLOCK)
    mask = offs - start < left
    x = tl.load(x_ptr + offs * stride_x, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs * stride_y, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, tl.clamp(x + y, low, high), mask=mask)


@triton.jit
def chained_kernel(x_ptr, y_ptr, out_ptr, n, stride_x, stride_y, low, high, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = 0 <= offs < n
    x = tl.load(x_ptr + offs * stride_x, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs * stride_y, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, tl.minimum(tl.maximum(x + y, low), high), mask=mask)


@triton.jit
def ternary_on_a_block_kernel(x_ptr, y_ptr, out_ptr, n, stride_x, stride_y, low, high, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs * stride_x, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs * stride_y, mask=mask).to(tl.float32)
    out = x + y
    tl.store(out_ptr + offs, low if out < low else out, mask=mask)


def test_and_between_masks():
    verdict = judge("row_add", row_add)
    assert verdict.passed, verdict.message


@pytest.mark.parametrize("kernel", [min_of_max_kernel, not_and_or_kernel, ternary_kernel], ids=lambda k: k.__name__)
def test_python_words_on_blocks(kernel):
    verdict = judge("clamped_add", clamped_add_by(kernel))
    assert verdict.passed, verdict.message


@pytest.mark.parametrize("kernel", [chained_kernel, ternary_on_a_block_kernel], ids=lambda k: k.__name__)
def test_what_no_gpu_takes_is_the_compilers_business(kernel):
    """The compiler refuses it for a GPU too, and nothing is said of masks."""
    verdict = judge("clamped_add", clamped_add_by(kernel))
    assert verdict.reason == "compiler", verdict.message
    assert "mask" not in verdict.cause
