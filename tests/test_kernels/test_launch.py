"""A launcher tells a GPU's driver what Triton's own launch tells it: seen without a GPU, by a driver that listens."""

import os
import subprocess
import sys

import pytest
import triton

LISTENING = """
from contextlib import nullcontext
from types import SimpleNamespace

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia

heard = []


def listen(*arguments):
    *before, metadata, enter, leave, global_scratch, profile_scratch, annotations, signature, passed = arguments
    passed = [getattr(value, "pointer", value) for value in passed]
    heard.append([before, global_scratch, profile_scratch, annotations, signature, passed])  # hooks are left out


for name in ("ARG_CONSTEXPR", "ARG_KERNEL", "ARG_TUPLE"):
    setattr(nvidia, name, name)
nvidia.PyKernelArg = lambda nested_tuple, type: (nested_tuple, type)
utils = SimpleNamespace(
    launch=listen,
    build_signature_metadata=list,
    fill_tma_descriptor_tiled=lambda *facts: ("map", *map(str, facts)),
    get_device_properties=lambda device: {"max_shared_mem": 232448},
    load_binary=lambda *binary: ("module", "function", 168, 0, 1024),
)
triton.runtime.driver.set_active(SimpleNamespace(
    utils=utils, launcher_cls=nvidia.CudaLauncher, get_current_device=lambda: 0, get_current_stream=lambda device: 7,
    get_current_target=lambda: GPUTarget("cuda", 90, 32), get_active_torch_device=lambda: torch.device("cuda", 0),
))

torch.cuda.device = lambda device: nullcontext()  # which a CPU's PyTorch does not have

from functools import partial

from kernels import matmul as portable
from kernels.attention import backward as attention_backward
from kernels.attention import hopper as attention_hopper
from kernels.attention import hopper_backward as attention_backward_hopper
from kernels.launch import TensorSpec, launcher
from kernels.matmul import hopper as matmul_hopper

device = torch.device("cuda", 0)


def dense(*shape, dtype=torch.bfloat16):
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return TensorSpec(shape, tuple(strides), dtype, device, True)


def same(kernel, grid, tensors, rest, constants, described=(), **options):
    # rest: specs, or numbers
    placed = [t and t.at(4096 * (i + 1)) for i, t in enumerate(tensors)]
    sources = [describe(t) for describe, t in zip(described, placed)] or placed
    passed = [t.at(2**20 + 4096 * i) if isinstance(t, TensorSpec) else t for i, t in enumerate(rest)]
    kernel[grid](*sources, *passed, *constants, **options)
    launch = launcher(kernel, grid, tensors, tuple(passed), constants, described, **options)
    launch(placed, *passed)
    return heard[-1] == heard[-2] and len(heard[-1][-1]) >= len(constants)


for dtype, rounded in ((torch.bfloat16, False), (torch.float32, True)):
    k = 128 // dtype.itemsize
    constants = (256, 2, 4, 4 * dtype.itemsize // 2, 16, k, 4, True, False, "relu")
    blocks = (((64, k), rounded), ((64, k), rounded), ((64, 64), False))
    described = [partial(matmul_hopper.descriptor, block=block, rounded=flag) for block, flag in blocks]
    for bias in (None, dense(256, dtype=dtype)):
        square = 3 * (dense(256, 256, dtype=dtype),)
        print(same(matmul_hopper.matmul_hopper_kernel, (8, 1, 1), square, (bias,), constants, described, num_warps=4))
square = 4 * (dense(256, 256, dtype=torch.float16),)
sizes = (256, 256, 256, 256, 1, 256, 1, 256, 1, 64, 64, 32, 8, "gelu", "tf32")
print(same(portable.matmul_kernel, (16, 1, 1), square, (), sizes, num_warps=4, num_stages=3))

heads, row = dense(2, 4, 300, 128), dense(2, 4, 300, dtype=torch.float32)
sums = dense(2, 4, 300, 128, dtype=torch.float32)
described = [partial(attention_hopper.descriptor, rows=rows) for rows in (64, 128, 128, 64)]
constants = (2, 4, 1, 300, 300, 4, True, 2)
kernel = attention_hopper.attention_hopper_kernel
print(same(kernel, (24, 1, 1), 4 * (heads,), (row, 0.1), constants, described, num_warps=4))
blocks = ((64, 128), (64, 128), (64, 128), (64, 128), (64, 64))
described = [partial(attention_hopper.descriptor, rows=rows, columns=columns) for rows, columns in blocks]
kernel, rest = attention_backward_hopper.attention_backward_hopper_kernel, (row, row, heads, heads, 0.1, 0.2)
constants = (4, 1, 300, 300, True, 128, 2)
print(same(kernel, (24, 1, 1), (heads, heads, heads, heads, sums), rest, constants, described, num_warps=4))
tiles = attention_backward.Tiles(64, 64, 4, 2)
constants = (4, 300, 300, 1, True, 128, 64, 64, 128, True)
kernel, rest = attention_backward.attention_dk_dv_kernel, (row, row, heads, heads, 0.1)
print(same(kernel, (40, 1, 1), 4 * (heads,), rest, constants, tiles.described(), num_warps=4, num_stages=2))
"""


@pytest.mark.skipif(triton.__version__.startswith("3.6"), reason="its launcher is compiled against CUDA's library")
def test_a_launcher_passes_what_triton_passes():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-c", LISTENING]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout.split() == ["True"] * 8, run.stdout + run.stderr
