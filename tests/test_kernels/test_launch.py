"""Launcher tells a GPU's driver what Triton's own launch tells it: seen without a GPU, by a driver that listens."""

import os
import subprocess
import sys

import pytest
import triton

LISTENING = """
import sys, types
from types import SimpleNamespace
sys.modules["lab.device"] = types.ModuleType("lab.device")  # which would choose the interpreter

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

from kernels import matmul as portable
from kernels import matmul_hopper as hopper
from kernels.launch import Address, Launcher


def same(kernel, grid, descriptors, rest, **options):
    kernel[grid](*descriptors, *rest, **options)
    launch = Launcher(kernel, grid, (*descriptors, *rest), **options)
    launch(*launch.encode(*descriptors), *rest)
    return heard[-1] == heard[-2] and len(heard[-1][-1]) >= len(rest)


def descriptors(dtype, rounded):
    square = (256, 256), (256, 1)
    k = 128 // dtype.itemsize
    blocks = ((64, k), (64, k), (64, 64))
    flags = (rounded, rounded, False)
    places = zip((4096, 8192, 12288), blocks, flags, strict=True)
    return [hopper.descriptor(place, dtype, *square, block, flag) for place, block, flag in places]


for dtype, rounded in ((torch.bfloat16, False), (torch.float32, True)):
    constants = (256, 2, 4, 4 * dtype.itemsize // 2, 16, 128 // dtype.itemsize, 4, True, False, "relu")
    for bias in (None, Address(16384, dtype)):
        arguments = (bias, *constants)
        print(same(hopper.matmul_hopper_kernel, (8, 1, 1), descriptors(dtype, rounded), arguments, num_warps=4))
pointers = [Address(place, torch.float16) for place in (4096, 8192, 12288, 16384)]
sizes = (256, 256, 256, 256, 1, 256, 1, 256, 1, 64, 64, 32, 8, "gelu", "tf32")
print(same(portable.matmul_kernel, (16, 1, 1), [], (*pointers, *sizes), num_warps=4, num_stages=3))
"""


@pytest.mark.skipif(triton.__version__.startswith("3.6"), reason="its launcher is compiled against CUDA's library")
def test_a_launcher_passes_what_triton_passes():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-c", LISTENING]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert run.stdout.split() == ["True"] * 5, run.stdout + run.stderr
