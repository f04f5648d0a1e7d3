"""A driver that listens: what would be told to a Hopper GPU, where there is none. For processes of their own.

Importing this module makes it Triton's driver, and lets `kernels` take tensors on the CPU for tensors on the GPU.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia

from kernels import launch as launch_module
from kernels.launch import TensorSpec, launcher

heard = []


def listen(*arguments):
    """Keep what a launch says: Triton 3.6 has all in a row, 3.7 the kernel's arguments in a tuple at the end."""
    if isinstance(arguments[-1], (tuple, list)):
        *before, metadata, enter, leave, global_scratch, profile_scratch, annotations, signature, passed = arguments
    else:
        *before, metadata, launch_metadata, enter, leave = arguments[:13]
        global_scratch, profile_scratch, annotations, signature = *before[7:9], None, None
        before, passed = [*before, metadata], arguments[13:]
    passed = [value.data_ptr() if hasattr(value, "data_ptr") else value for value in passed]
    heard.append([before, global_scratch, profile_scratch, annotations, signature, passed])  # hooks are left out


for name in ("ARG_CONSTEXPR", "ARG_KERNEL", "ARG_TUPLE"):
    setattr(nvidia, name, name)
nvidia.PyKernelArg = lambda **facts: tuple(facts.values())
if triton.__version__.startswith("3.6"):  # where a launcher is a C module that is compiled for each signature
    nvidia.library_dirs = list
    nvidia.compile_module_from_src = lambda **source: SimpleNamespace(launch=listen)
utils = SimpleNamespace(
    launch=listen,
    build_signature_metadata=list,
    fill_tma_descriptor=lambda *facts: ("map", *map(str, facts)),
    fill_tma_descriptor_tiled=lambda *facts: ("map", *map(str, facts)),
    get_device_properties=lambda device: {"max_shared_mem": 232448},
    load_binary=lambda *binary: ("module", "function", 168, 0, 1024),
)
triton.runtime.driver.set_active(
    SimpleNamespace(
        utils=utils,
        launcher_cls=nvidia.CudaLauncher,
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 7,
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_active_torch_device=lambda: torch.device("cuda", 0),
    )
)
torch.cuda.device = lambda device: nullcontext()  # which a CPU's PyTorch does not have

launch_module.is_nvidia = lambda device: True
launch_module.bind_context = lambda: None
device = torch.device("cuda", 0)


def dense(*shape, dtype=torch.bfloat16):
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return TensorSpec(shape, tuple(strides), dtype, device, True)


def same(kernel, grid, tensors, rest, constants, described=(), **options):
    # rest: specs, or numbers
    placed = [t and t.at(4096 * (i + 1)) for i, t in enumerate(tensors)]
    sources = [describe(t) for describe, t in zip(described, placed, strict=True)] if described else placed
    passed = [t.at(2**20 + 4096 * i) if isinstance(t, TensorSpec) else t for i, t in enumerate(rest)]
    kernel[grid](*sources, *passed, *constants, **options)
    launch = launcher(kernel, grid, tensors, tuple(passed), constants, described, **options)
    launch(placed, *passed)
    return heard[-1] == heard[-2] and len(heard[-1][-1]) >= len(constants)
