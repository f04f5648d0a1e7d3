"""Every operation of Triton's front end, from a kernel through the compiler to the machine, against references."""

import inspect
from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton._C.libtriton import ir

from lab.machine import backend
from lab.machine.faults import KernelError, Unsupported
from lab.trace import trace
from tests.test_lab.test_machine.operations import CASES, blank, differences, launch, originals

pytestmark = pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")


@pytest.fixture(autouse=True)
def on_the_machine():
    with backend.active():
        yield


@pytest.mark.parametrize("row", CASES, ids=lambda row: row.name)
def test_results(row):
    results = launch(row)
    before = originals(row)
    for name, tensor in results.items():
        wanted, error = (row.expected[name], row.error) if name in row.expected else (before[name], 0.0)
        assert not (found := differences(tensor, wanted, error)), f"{name}: {found}"


# What the table cannot hold


@triton.jit
def say(x_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * N + tl.arange(0, N))
    tl.device_print("x", x, tl.sum(x.to(tl.float32), 0).to(tl.bfloat16))
    if tl.program_id(0) == 1:
        tl.device_print("second")


def test_device_print_tells_program_by_program(capsys):
    x = torch.arange(254, 258, dtype=torch.int64).to(torch.uint8)
    say[(2,)](x, N=2)
    assert capsys.readouterr().out.splitlines() == [
        "pid (0, 0, 0) x: [254 255] 508.",
        "pid (1, 0, 0) x: [0 1] 1.",
        "pid (1, 0, 0) second",
    ]


@triton.jit
def claim(x_ptr, n, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.device_assert(x > 0, "x must be positive", mask=offs < n)


@pytest.mark.parametrize("x, holds", [([1, 1, 1, 0], True), ([1, 1, 0, 1], False)])
def test_device_assert_is_checked_when_debug_is_on(x, holds):
    x = torch.tensor(x, dtype=torch.int32)
    claim[(2,)](x, 3, N=2)
    if holds:
        claim[(2,)](x, 3, N=2, debug=True)
        return
    with pytest.raises(KernelError, match=f"program 1 fails its assertion, line {line_of(claim, 'assert')}: x must be"):
        claim[(2,)](x, 3, N=2, debug=True)


def line_of(kernel, text):
    """Return the number of the line of a kernel that holds a text."""
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


@triton.jit
def assembly(x_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    x = tl.inline_asm_elementwise("neg.s32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(x_ptr + tl.arange(0, N), x)


@triton.jit
def short_scales(x_ptr, scale_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N)[:, None] * N + tl.arange(0, N))
    scale = tl.load(scale_ptr + tl.arange(0, N)[:, None] * (N // 16) + tl.arange(0, N // 16))
    tl.store(x_ptr + tl.arange(0, N)[:, None] * N + tl.arange(0, N), tl.dot_scaled(x, scale, "e4m3", x, scale, "e4m3"))


def test_scales_that_a_hopper_gpu_does_not_take_are_refused():
    x = torch.zeros(32, 32, dtype=torch.float8_e4m3fn)
    with pytest.raises(Unsupported, match=rf"not f8E4M3FN, line {line_of(short_scales, 'dot_scaled')}$"):
        short_scales[(1,)](x, x, N=32)


REFUSED = {"create_inline_asm": (assembly, {"x_ptr": torch.zeros(4, dtype=torch.int32), "N": 4}, "inline_asm")}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named_with_its_line(name):
    kernel, arguments, text = REFUSED[name]
    with pytest.raises(
        Unsupported, match=rf"`tt\.\w+` is not carried out on the CPU: .*, line {line_of(kernel, text)}$"
    ):
        kernel[(1,)](**arguments)


@triton.jit
def take_turns(x_ptr, old_ptr, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(old_ptr + offs, tl.atomic_add(x_ptr + offs * 0, 1))


def test_atomics_on_one_element_follow_each_other_in_the_order_of_programs():
    x, old = torch.tensor([5]), blank(12, dtype=torch.int64)
    with trace():
        take_turns[(3,)](x, old, N=4)
    assert x.tolist() == [17] and old.tolist() == list(range(5, 17))


def test_without_a_trace_programs_have_no_order_but_the_same_every_time():
    results = []
    for _ in range(2):
        x, old = torch.tensor([5]), blank(48, dtype=torch.int64)
        take_turns[(12,)](x, old, N=4)
        results.append(old.tolist())
    assert results[0] == results[1] != sorted(results[0]) == list(range(5, 53))


@triton.jit
def follow_pointers(table_ptr, out_ptr, N: tl.constexpr):
    """Read through addresses that stand in memory."""
    offs = tl.arange(0, N)
    pointers = tl.load(table_ptr + offs).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + offs, tl.load(pointers) + tl.load(pointers + 1))
    addresses = (out_ptr + N + offs).to(tl.int64)
    tl.store(addresses.to(tl.pointer_type(tl.float32)), 3.5)


def test_addresses_in_memory_lead_to_tensors_that_were_not_passed():
    others, out = torch.randn(4, 3), blank(8)
    follow_pointers[(1,)](torch.tensor([row.data_ptr() for row in others]), out, N=4)
    assert torch.equal(out, torch.cat([others[:, 0] + others[:, 1], torch.full((4,), 3.5)]))


# The front end's own list

NO_OPERATIONS = {
    "create_block": "a place for operations",
    "create_block_with_parent": "a place for operations",
    "create_loc": "a place in the source",
    "create_name_loc": "a place in the source",
    "create_module": "what holds the functions",
    "create_tensor_descriptor_type": "a type",
}
ELSEWHERE = [
    (follow_pointers, {"table_ptr": torch.zeros(2, dtype=torch.int64), "out_ptr": torch.zeros(4), "N": 2}, {}),
    (say, {"x_ptr": torch.zeros(2), "N": 2}, {}),
    (claim, {"x_ptr": torch.zeros(2), "n": 1, "N": 2}, {"debug": True}),
]


def uncovered(names, used):
    return sorted(names - used - set(REFUSED) - set(NO_OPERATIONS))


def test_every_operation_that_a_kernel_can_create_is_covered(monkeypatch):
    used = set()

    def noting(name, make):
        def create(*arguments, **options):
            used.add(name)
            return make(*arguments, **options)

        return create

    names = {name for name in dir(ir.builder) if name.startswith("create_")}
    assert len(names) > 100
    for name in names:
        monkeypatch.setattr(ir.builder, name, noting(name, getattr(ir.builder, name)))
    monkeypatch.setattr(knobs.compilation, "always_compile", True)
    rows = {row.kernel: row for row in CASES}.values()
    for kernel, arguments, options in ELSEWHERE:
        triton.JITFunction(kernel.fn).warmup(**arguments, **options, grid=(1,))
    for row in (*rows, *CASES):
        if uncovered(names, used):
            launch(replace(row, kernel=triton.JITFunction(row.kernel.fn)))
    assert uncovered(names, used) == []
