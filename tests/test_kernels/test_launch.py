"""A launcher tells a GPU's driver what Triton's own launch tells it: seen without a GPU, by a driver that listens."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import kernels.launch
from kernels.gradients import wants_gradient
from kernels.launch import knows, launcher, tensor_spec

KERNELS = """
from functools import partial

import torch
import triton

from tests.test_kernels.listening import dense, same
from kernels import matmul as portable
from kernels.attention import backward as attention_backward
from kernels.attention import hopper as attention_hopper
from kernels.attention import hopper_backward as attention_backward_hopper
from kernels.matmul import hopper as matmul_hopper

rounds = not triton.__version__.startswith("3.6")  # Triton's own descriptors: ours always do
for dtype, rounded in ((torch.bfloat16, False), (torch.float32, rounds)):
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

OPERATIONS = """
import sys

import torch

import kernels.launch
from tests.test_kernels.listening import heard
from kernels.dropout import dropout
from kernels.gelu import bias_gelu, gelu
from kernels.matmul import matmul
from kernels.softmax import softmax
from kernels.vector_add import vector_add

x, rows = torch.randn(4096), torch.randn(8, 512)
CALLS = {
    "vector_add": lambda: vector_add(x, x),
    "softmax": lambda: softmax(rows),
    "gelu": lambda: gelu(x),
    "bias_gelu": lambda: bias_gelu(rows, rows[0]),
    "dropout": lambda: dropout(x, 0.5, 1234),
    "matmul": lambda: matmul(rows, rows.t()),
}


def told(call):
    # addresses of results differ from call to call
    del heard[:]
    call()
    (facts,) = heard
    *others, passed = facts
    return [*others, ["address" if isinstance(value, int) and value > 2**20 else value for value in passed]]
"""


def run(program: str) -> list[str]:
    """Run a program in a process of its own, and return the words that it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


def test_a_launcher_passes_what_triton_passes():
    assert run(KERNELS) == ["True"] * 8


def test_operations_pass_what_triton_passes():
    program = """
ours = {name: told(call) for name, call in CALLS.items()}
kernels.launch.knows = lambda version: False
for module in list(sys.modules.values()):
    if getattr(module, "__name__", "").startswith("kernels"):
        for thing in vars(module).values():
            if hasattr(thing, "cache_clear"):
                thing.cache_clear()
for name, call in CALLS.items():
    print(told(call) == ours[name], "address" in ours[name][-1])
"""
    assert run(OPERATIONS + program) == ["True"] * 12


def test_every_launch_asks_the_driver_for_the_stream():
    """The check counts launches there, and torch.cuda.stream changes the answer."""
    program = """
active = kernels.launch.DRIVERS.active
for name, call in CALLS.items():
    call()
    active.get_current_stream = lambda device: 23
    print(23 in told(call)[0])
    active.get_current_stream = lambda device: 7
"""
    assert run(OPERATIONS + program) == ["True"] * 6


def test_a_call_is_few_steps():
    """Functions that Python calls from a call to its launch: a measure of time that no load of the machine changes."""
    program = """
for name, call in CALLS.items():
    call()
    count = 0

    def step(frame, event, argument):
        global count
        count += event in ("call", "c_call")

    sys.setprofile(step)
    call()
    sys.setprofile(None)
    print(name, count)
"""
    words = run(OPERATIONS + program)
    steps = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert max(steps.values()) <= 60


# Versions of Triton


def test_another_version_takes_the_public_launch_and_says_so_once(monkeypatch):
    monkeypatch.setattr(kernels.launch, "is_nvidia", lambda device: True)
    monkeypatch.setattr(kernels.launch.triton, "__version__", "3.99.0")
    knows.cache_clear()
    launched = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *arguments, **options: launched.append((grid, arguments, options))

    x = torch.ones(3)
    with pytest.warns(UserWarning, match="With 3.99.0 they take Triton's public launch") as said:
        for _ in range(2):
            launch = launcher(Kernel(), (1, 1, 1), (tensor_spec(x),), (5,), (16,), num_warps=2)
            launch((x,), 7)
    assert len(said) == 1
    assert launched == [((1, 1, 1), (x, 7, 16), {"num_warps": 2})] * 2


def test_another_version_still_gets_descriptors(monkeypatch):
    monkeypatch.setattr(kernels.launch, "knows", lambda version: False)
    monkeypatch.setattr(kernels.launch, "is_nvidia", lambda device: True)
    launched = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *arguments: launched.append(arguments)

    x, y = torch.ones(3), torch.ones(4)
    described = (lambda t: ("descriptor", t), lambda t: ("another", t))
    launcher(Kernel(), (1, 1, 1), (tensor_spec(x), tensor_spec(y)), (), (16,), described)((x, y))
    assert launched == [(("descriptor", x), ("another", y), 16)]


def test_another_driver_gets_tensors_and_not_addresses(monkeypatch):
    """As the machine beside a GPU does, when it is the first to see tensors of some spec."""
    monkeypatch.setattr(kernels.launch, "is_nvidia", lambda device: True)
    monkeypatch.setattr(kernels.launch, "DRIVERS", SimpleNamespace(active=SimpleNamespace(launcher_cls=object)))
    launched = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *arguments: launched.append(arguments)

    x = torch.ones(3)
    launcher(Kernel(), (1, 1, 1), (tensor_spec(x),), (), (16,))((x,))
    assert launched == [(x, 16)]


@pytest.mark.parametrize("version, known", [("3.6.0", True), ("3.7.1", True), ("3.8.0", False), ("3.70.0", False)])
@pytest.mark.filterwarnings("ignore:The kernels know")
def test_known_versions(version, known):
    assert knows(version) is known


# Gradients


def test_autograd_is_asked_only_where_a_gradient_is_wanted():
    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    assert not wants_gradient(x) and wants_gradient(w) and wants_gradient(x, w)
    with torch.no_grad():
        assert not wants_gradient(w)
    with torch.autograd.forward_ad.dual_level():
        assert wants_gradient(x)


# Experimental parts of Triton


def test_importing_the_operations_imports_no_experiment():
    program = """
import sys
from kernels import attention, dropout, elementwise, gelu, matmul, softmax, vector_add
from kernels.ladders import attention, dropout, gelu, matmul, softmax, vector_add

print(*[name for name in sys.modules if name.startswith("triton.experimental")], "none")
"""
    assert run(program) == ["none"]
