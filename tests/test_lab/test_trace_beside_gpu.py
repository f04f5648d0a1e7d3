"""The trace where kernels run on a GPU: what is launched inside its block runs on the CPU, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lab.device import DEVICE, ON_CPU
from lab.trace import trace

ROOT = Path(__file__).parents[2]

PRETEND_GPU = """
import types
import torch
torch.cuda.is_available = lambda: True
torch.cuda.get_device_properties = lambda index: types.SimpleNamespace(name="NVIDIA H200")
"""

PROGRAM = """
from lab.device import ON_CPU
from lab.trace import trace

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def with_its_sum(x):
    return libdevice.tanh(x) + tl.sum(x, 0)

@triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 16})], key=[])
@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(out_ptr + offs, with_its_sum(x))

assert not ON_CPU
x, out = torch.randn(12), torch.empty(12)
with trace() as t:
    kernel[lambda meta: (triton.cdiv(12, meta["BLOCK"]),)](x, out, 12)
torch.testing.assert_close(out[:8], x[:8].tanh() + x[:8].sum())
print(t.launches[0].owner("out_ptr").tolist(), t.out_of_bounds[0].count, kernel.cache)
try:
    with_its_sum(x)
except RuntimeError as error:
    print(error)
"""


def test_launches_in_the_block_run_on_the_cpu_and_leave_the_gpu_alone(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PRETEND_GPU + PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    owners, refusal = done.stdout.splitlines()
    assert owners == "[0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1] 4 {}"
    assert "outside of the scope of a kernel" in refusal


@pytest.mark.gpu
@pytest.mark.skipif(ON_CPU, reason="needs a CUDA GPU")
def test_tensors_on_the_gpu_get_what_the_cpu_stored():
    from kernels.vector_add import vector_add

    x = torch.arange(100.0, device=DEVICE)
    with trace() as t:
        out = vector_add(x, x)
    assert torch.equal(out, 2 * x) and t.bytes_moved == 1200
    assert torch.equal(vector_add(x, out), 3 * x)
