"""Loads, stores and atomics of the machine: what a GPU leaves undefined, and where it would reach outside."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.tools.tensor_descriptor import TensorDescriptor

from lab.machine import backend, execute
from lab.machine.faults import Int32OverflowError, KernelError, OutOfBoundsError

ROOT = Path(__file__).parents[3]
GUARD = 7  # what stands around a tensor, and must stand there afterwards
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


@pytest.fixture(autouse=True)
def on_the_machine():
    with backend.active():
        yield


def guarded(size, dtype=torch.float32):
    """Return (tensor of a size, the larger one that it lies in, with guard bands on both sides)."""
    whole = torch.full((size + 64,), GUARD).to(dtype)
    return whole[32 : 32 + size], whole


def intact(whole):
    """Return whether the guard bands of a tensor are as they were."""
    return bool((whole[:32].double() == GUARD).all() and (whole[-32:].double() == GUARD).all())


def line_of(kernel, text):
    """Return the number of the line of a kernel that holds a text."""
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def faults_of(launch, error=OutOfBoundsError):
    """Return (program, kind, tensor, elements, line) of each fault of a launch, which must be refused with `error`."""
    with pytest.raises(error) as refusal:
        launch()
    assert type(refusal.value) is error
    faults = sorted(refusal.value.faults, key=lambda fault: fault.program)  # programs run in no order
    return [(f.program, f.kind, f.tensor, f.elements.tolist(), f.line) for f in faults]


# What is undefined


@triton.jit
def load_some(x_ptr, out_ptr, n, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n))


@triton.jit
def load_every_second(x_ptr, out_ptr, n, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs * 2, mask=offs < n))


@pytest.mark.parametrize("kernel, reach", [(load_some, 1), (load_every_second, 2)], ids=["rows", "lanes"])
@pytest.mark.parametrize("dtype", (*FLOATS, *SIGNED, *UNSIGNED, torch.bool), ids=str)
def test_lanes_that_are_masked_off_hold_poison(dtype, kernel, reach):
    x, out = torch.ones(16).to(dtype), torch.zeros(8).to(dtype)
    kernel[(1,)](x, out, 3, N=8)
    assert out[:3].double().tolist() == [1, 1, 1]
    rest = out[3:]
    if dtype in FLOATS:
        assert rest.double().isnan().all()
    elif dtype == torch.bool:
        assert rest.all()
    else:
        # Neither a sum nor a maximum nor a minimum hides them, and they are odd.
        signed = rest.view(SIGNED[rest.element_size().bit_length() - 1]).long()
        most = 2 ** (8 * rest.element_size() - 1) - 1
        assert signed.abs().eq(most).all() and signed.max() > 0 > signed.min() and (signed % 2).all()


@triton.jit
def load_with_zero(x_ptr, out_ptr, n, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n, other=0))


@triton.jit
def sum_some(x_ptr, out_ptr, n, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + offs, mask=offs < n), 0))


def test_other_stands_where_a_mask_is_false_and_poison_spoils_a_sum():
    x, out = torch.ones(8), torch.full((8,), -1.0)
    load_with_zero[(1,)](x[:3], out, 3, N=8)
    assert out.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    sum_some[(1,)](x[:3], out, 3, N=8)
    assert out[0].isnan()


# Outside of a tensor


@triton.jit
def copy(x_ptr, out_ptr, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, x)


def test_loads_and_stores_past_the_end_are_refused_and_nothing_is_written_there():
    x, out = torch.arange(10.0), torch.zeros(12)
    assert faults_of(lambda: copy[(4,)](x, guarded(16)[0], N=4)) == [
        (2, "load", "x_ptr", [10, 11], line_of(copy, "tl.load")),
        (3, "load", "x_ptr", [12, 13, 14, 15], line_of(copy, "tl.load")),
    ]
    out, whole = guarded(10)
    assert faults_of(lambda: copy[(4,)](torch.arange(16.0), out, N=4)) == [
        (2, "store", "out_ptr", [10, 11], line_of(copy, "tl.store")),
        (3, "store", "out_ptr", [12, 13, 14, 15], line_of(copy, "tl.store")),
    ]
    assert out.tolist() == list(range(10)) and intact(whole)


@triton.jit
def read_at(pointer, offs):
    return tl.load(pointer + offs)


@triton.jit
def through_a_helper(x_ptr, out_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out_ptr + offs, read_at(x_ptr + 1, offs))


@triton.jit
def in_a_loop(x_ptr, out_ptr, n, N: tl.constexpr):
    offs = tl.arange(0, N)
    acc = tl.zeros([N], tl.float32)
    pointers = x_ptr + offs
    for _ in range(n):
        acc += tl.load(pointers)
        pointers += N
    tl.store(out_ptr + offs, acc)


@triton.jit
def in_a_while(x_ptr, out_ptr, n, N: tl.constexpr):
    offs = tl.arange(0, N)
    acc = tl.zeros([N], tl.float32)
    while n > 0:
        acc += tl.load(x_ptr + offs * n)
        n -= 1
    tl.store(out_ptr + offs, acc)


@triton.jit
def on_one_side(x_ptr, out_ptr, n, N: tl.constexpr):
    offs = tl.arange(0, N)
    pid = tl.program_id(0)
    pointers = x_ptr + offs
    if pid == 2:
        pointers += n
    tl.store(out_ptr + pid * N + offs, tl.load(pointers))


@triton.jit
def one_of_two(x_ptr, out_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out_ptr + offs, tl.load(tl.where(offs < 2, x_ptr + offs, y_ptr + offs)))


@triton.jit
def before_the_start(x_ptr, out_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs - 2))


@triton.jit
def on_both_sides(x_ptr, out_ptr, N: tl.constexpr):
    offs = tl.arange(0, N) * 5 - 4
    tl.store(out_ptr + tl.arange(0, N), tl.load(x_ptr + offs))


@triton.jit
def gathered(x_ptr, out_ptr, at_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out_ptr + offs, tl.load(x_ptr + tl.load(at_ptr + offs)))


@triton.jit
def as_wider(x_ptr, out_ptr, N: tl.constexpr):
    pairs = tl.load(x_ptr.to(tl.pointer_type(tl.int64)) + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, N), pairs.to(tl.float32))


@triton.jit
def as_narrower(x_ptr, out_ptr, N: tl.constexpr):
    halves = tl.load(x_ptr.to(tl.pointer_type(tl.int16)) + N + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, N), halves.to(tl.float32))


@triton.jit
def column(x_ptr, out_ptr, stride, N: tl.constexpr):
    rows, columns = tl.arange(0, N), tl.arange(0, 2)
    tile = tl.load(x_ptr + rows[:, None] * stride + columns[None, :], mask=rows[:, None] < 3)
    tl.store(out_ptr + rows, tl.sum(tl.where(rows[:, None] < 3, tile, 0), 1))


STRAYS = {
    "through a helper": (through_a_helper, 4, {"N": 4}, 1, [(0, [4], (read_at, "tl.load"))]),
    "in a loop": (in_a_loop, 10, {"n": 3, "N": 4}, 1, [(0, [10, 11], (in_a_loop, "tl.load"))]),
    "in a while": (in_a_while, 8, {"n": 3, "N": 4}, 1, [(0, [9], (in_a_while, "tl.load"))]),
    "on one side": (on_one_side, 8, {"n": 6, "N": 4}, 4, [(2, [8, 9], (on_one_side, "tl.load"))]),
    "before the start": (before_the_start, 8, {"N": 4}, 1, [(0, [-2, -1], (before_the_start, "tl.load"))]),
    "on both sides": (on_both_sides, 8, {"N": 4}, 1, [(0, [-4, 11], (on_both_sides, "tl.load"))]),
    "gathered": (gathered, 8, {"at_ptr": torch.tensor([0, 8, -1, 7]), "N": 4}, 1,
                 [(0, [-1, 8], (gathered, "x_ptr + tl.load"))]),
    "as a wider type": (as_wider, 7, {"N": 4}, 1, [(0, [7], (as_wider, "int64"))]),
    "as a narrower type": (as_narrower, 3, {"N": 4}, 1, [(0, [3], (as_narrower, "int16"))]),
    "a column": (column, 17, {"stride": 8, "N": 4}, 1, [(0, [17], (column, "tl.load"))]),
}  # fmt: skip


@pytest.mark.parametrize("name", STRAYS)
def test_a_stray_load_is_refused_with_program_element_and_line(name):
    kernel, size, constants, programs, wanted = STRAYS[name]
    x, out = guarded(size)[0], torch.zeros(16)
    assert faults_of(lambda: kernel[(programs,)](x, out, **constants)) == [
        (program, "load", "x_ptr", elements, line_of(*place)) for program, elements, place in wanted
    ]


def test_a_pointer_to_one_of_two_tensors_is_held_to_both():
    x, y, out = torch.arange(2.0), torch.arange(4.0) * 10, torch.zeros(4)
    one_of_two[(1,)](x, out, y, N=4)
    assert out.tolist() == [0, 1, 20, 30]
    faults = faults_of(lambda: one_of_two[(1,)](x, out, y[:3], N=4))
    assert faults == [(0, "load", "y_ptr", [3], line_of(one_of_two, "tl.where"))]


@triton.jit
def update_past_the_end(x_ptr, N: tl.constexpr):
    tl.atomic_add(x_ptr + tl.program_id(0) * N + tl.arange(0, N), 1.0)


def test_a_stray_atomic_is_refused_and_changes_nothing_outside():
    x, whole = guarded(6)
    faults = faults_of(lambda: update_past_the_end[(2,)](x, N=4))
    assert faults == [(1, "atomic", "x_ptr", [6, 7], line_of(update_past_the_end, "atomic_add"))]
    assert x.tolist() == [GUARD + 1] * 6 and intact(whole)


@triton.jit
def from_the_wrong_tensor(x_ptr, y_ptr, distance, ROW: tl.constexpr):
    if ROW:
        tl.store(x_ptr + distance + tl.arange(0, 4), 1.0)
    else:
        tl.store(x_ptr + distance, 1.0)


@pytest.mark.parametrize("row", [True, False])
def test_a_pointer_from_one_tensor_must_not_lead_into_another(row):
    whole = torch.zeros(64)
    x, y = whole[:8], whole[32:40]
    faults = faults_of(lambda: from_the_wrong_tensor[(1,)](x, y, 32, ROW=row))
    wanted = [32, 33, 34, 35] if row else [32]
    assert faults == [(0, "store", "x_ptr", wanted, line_of(from_the_wrong_tensor, "arange" if row else "e, 1.0"))]
    assert not whole.any()


@triton.jit
def through_integers(x_ptr, y_ptr, distance):
    address = x_ptr.to(tl.int64) + distance * 4
    tl.store(address.to(tl.pointer_type(tl.float32)), 1.0)


def test_an_integer_made_a_pointer_may_lead_into_any_tensor_but_not_between_them():
    x, y = torch.zeros(4), torch.zeros(4)
    through_integers[(1,)](x, y, (y.data_ptr() - x.data_ptr()) // 4 + 2)
    assert y.tolist() == [0, 0, 1, 0] and not x.any()
    with pytest.raises(OutOfBoundsError, match=f"program 0 stores .* line {line_of(through_integers, 'tl.store')}"):
        through_integers[(1,)](x, y, 2**40)


def test_tensors_without_memory_do_not_disturb_a_search_through_all_tensors():
    x, y = torch.zeros(4), torch.zeros(4)
    without_memory = [torch._efficientzerotensor(4), torch._to_functional_tensor(torch.zeros(4))]

    def inside(batched):
        without_memory.append(batched)
        through_integers[(1,)](x, y, (y.data_ptr() - x.data_ptr()) // 4 + 2)
        return batched

    torch.vmap(inside)(torch.zeros(3, 4))
    assert y.tolist() == [0, 0, 1, 0] and len(without_memory) == 3


def test_a_tensor_ends_where_its_last_element_is_whatever_its_storage():
    x = torch.arange(64.0)[:16].view(4, 4)[:, :2]  # its last element is 13
    with pytest.raises(OutOfBoundsError, match=r"2 elements past the end of `x_ptr` \(elements 14 to 15\)"):
        copy[(4,)](x, torch.zeros(16), N=4)
    assert faults_of(lambda: copy[(1,)](torch.ones(1).expand(8), torch.zeros(8), N=2))[0][2:4] == ("x_ptr", [1])
    out, whole = guarded(0)
    assert faults_of(lambda: copy[(1,)](torch.ones(8), out, N=2))[0][1:4] == ("store", "out_ptr", [0, 1])
    assert intact(whole)


@triton.jit
def copy_strided(x_ptr, out_ptr, stride, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs * stride))


def test_strides_of_0_and_below():
    x, out = torch.arange(8.0), torch.zeros(4)
    copy_strided[(1,)](torch.tensor([3.0]).expand(4), out, 0, N=4)
    assert out.tolist() == [3, 3, 3, 3]
    faults = faults_of(lambda: copy_strided[(1,)](x[4:], out, -1, N=4))
    assert faults == [(0, "load", "x_ptr", [-3, -2, -1], line_of(copy_strided, "tl.load"))]


@triton.jit
def load_misaligned(x_ptr, out_ptr, by, N: tl.constexpr):
    words = (x_ptr + by).to(tl.pointer_type(tl.int32))
    tl.store(out_ptr + tl.arange(0, N), tl.load(words + tl.arange(0, N)))


@triton.jit
def load_rows_misaligned(x_ptr, out_ptr, by, N: tl.constexpr):
    rows = (x_ptr + tl.arange(0, N)[:, None] * by).to(tl.pointer_type(tl.int32))
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(rows + tl.arange(0, N)[None, :], mask=at < 3 * N - 1))


def test_an_address_is_a_multiple_of_what_is_loaded_there():
    data = torch.arange(64, dtype=torch.uint8)
    out = torch.zeros(4, dtype=torch.int32)
    for x, by in ((data, 4), (data[1:], 3)):
        load_misaligned[(1,)](x, out, by, N=4)
        assert out.view(torch.uint8).tolist() == list(range(4, 20))
    for x, by in ((data, 2), (data[1:], 4), (data[3:], 0)):
        with pytest.raises(OutOfBoundsError, match=f"no multiple of the bytes it loads at once.*{line_of_load()}"):
            load_misaligned[(1,)](x, out, by, N=4)
    out = torch.zeros(16, dtype=torch.int32)
    load_rows_misaligned[(1,)](data, out, 12, N=4)
    assert out[4:8].view(torch.uint8).tolist() == list(range(12, 28))
    for by in (6, 7):
        with pytest.raises(OutOfBoundsError, match="no multiple of the bytes it loads at once"):
            load_rows_misaligned[(1,)](data, out, by, N=4)


def line_of_load():
    return f"line {line_of(load_misaligned, 'tl.load')}"


# Descriptors


@triton.jit
def copy_by_descriptor(
    x_ptr, out_ptr, rows, columns, stride, from_row, from_column, to_row, to_column, M: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Copy one block, which begins one row later and lands 4 columns further with each program."""
    source = tl.make_tensor_descriptor(x_ptr, [rows, columns], [stride, 1], [M, N])
    target = tl.make_tensor_descriptor(out_ptr, [rows, columns], [stride, 1], [M, N])
    tile = source.load([from_row + tl.program_id(0), from_column])
    target.store([to_row, to_column + 4 * tl.program_id(0)], tile)


KEEPS = {"rows": 8, "columns": 12, "stride": 16, "from_row": 0, "from_column": 0, "to_row": 0, "to_column": 0}


def descriptor_launch(x=None, grid=1, **changes):
    """Launch the kernel above with arguments that keep every rule, but for those given; return what it wrote to."""
    out = torch.zeros(512)
    copy_by_descriptor[(grid,)](torch.arange(512.0) if x is None else x, out, **{**KEEPS, **changes}, M=2, N=4)
    return out


def test_a_descriptor_that_keeps_every_rule():
    out = descriptor_launch(from_row=-1, from_column=8, to_row=7, to_column=8)
    assert out.nonzero().ravel().tolist() == []
    out = descriptor_launch(from_row=1, from_column=8, to_row=7, to_column=4, grid=2)
    assert out[116:124].tolist() == [24, 25, 26, 27, 40, 41, 42, 43] and int(out.count_nonzero()) == 8


RULES = {
    "base": ({"x": torch.arange(512.0)[1:]}, "source = ", "its tensor must begin at a multiple of 16 bytes"),
    "stride": ({"stride": 14}, "source = ", "all its strides but the last must be multiples of 16 bytes, 4 elements"),
    "no rows": ({"rows": 0}, "source = ", "each of its axes must have an element"),
    "no columns": ({"columns": -4}, "source = ", "each of its axes must have an element"),
    "column": ({"from_column": 3}, "source.load", "its last offset must be a multiple of 16 bytes, 4 elements"),
    "column of a store": ({"to_column": 2}, "target.store", "its last offset must be a multiple of 16 bytes, 4 elem"),
    "negative row": ({"to_row": -1}, "target.store", "only a load may begin at a negative offset"),
    "negative column": ({"to_column": -4}, "target.store", "only a load may begin at a negative offset"),
}


@pytest.mark.parametrize("name", RULES)
def test_a_descriptor_that_a_gpu_does_not_take_is_refused(name):
    changes, text, rule = RULES[name]
    with pytest.raises(KernelError, match=f"^program 0 .*, line {line_of(copy_by_descriptor, text)}: {rule}"):
        descriptor_launch(**changes)


@triton.jit
def store_at_odd_columns(x_ptr):
    target = tl.make_tensor_descriptor(x_ptr, [4, 16], [16, 1], [1, 4])
    target.store([0, 2 * tl.program_id(0)], tl.zeros([1, 4], tl.float32))


def test_the_program_that_breaks_a_rule_is_named():
    with pytest.raises(KernelError, match="^program 1 stores a block that a GPU cannot copy, line"):
        store_at_odd_columns[(4,)](torch.ones(64))


@triton.jit
def load_by(source, out_ptr, row, N: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, 2 * N), tl.reshape(source.load([row, 0]), [2 * N]))


@pytest.mark.parametrize(
    "change, rule",
    [
        ({"base": torch.arange(64.0)[1:]}, "its tensor must begin at a multiple of 16 bytes"),
        ({"strides": (6, 1)}, "all its strides but the last must be multiples of 16 bytes"),
        ({"strides": (8, 2)}, "its last stride must be 1"),
        ({"shape": (0, 8)}, "each of its axes must have an element"),
    ],
)
def test_a_descriptor_from_outside_that_a_gpu_does_not_take_is_refused(change, rule):
    source = TensorDescriptor.from_tensor(torch.arange(64.0).view(8, 8), [2, 4])
    load_by[(1,)](source, out := torch.zeros(8), 1, N=4)
    assert out.tolist() == [8, 9, 10, 11, 16, 17, 18, 19]
    for name, value in change.items():
        setattr(source, name, value)
    with pytest.raises(KernelError, match=f"^`source` is a descriptor with which a GPU cannot copy: {rule}"):
        load_by[(1,)](source, out, 1, N=4)


def test_a_descriptor_whose_block_is_too_narrow_is_refused():
    source = TensorDescriptor.from_tensor(torch.arange(64.0).view(8, 8), [2, 2])
    with pytest.raises(KernelError, match="^`source` is .*: the last axis of its block must hold 16 bytes or more"):
        load_by[(1,)](source, torch.zeros(4), 1, N=2)


def test_a_descriptor_that_claims_more_than_its_tensor_is_held_to_the_tensor():
    faults = faults_of(lambda: descriptor_launch(torch.arange(24.0), from_row=0, grid=2))
    line = line_of(copy_by_descriptor, "source.load")
    assert faults == [(1, "load", "x_ptr", [32, 33, 34, 35], line)]
    source = TensorDescriptor.from_tensor(torch.arange(64.0).view(8, 8), [2, 4])
    source.shape = (20, 8)
    faults = faults_of(lambda: load_by[(1,)](source, torch.zeros(8), 7, N=4))
    assert faults == [(0, "load", "source", [64, 65, 66, 67], line_of(load_by, "source.load"))]


# Offsets that do not fit into 32 bits


@triton.jit
def offsets_of(first, size, N: tl.constexpr):
    return (tl.program_id(0) + first) * size + tl.arange(0, N)


@triton.jit
def read_far(x_ptr, out_ptr, first, size, end, N: tl.constexpr):
    offs = offsets_of(first, size, N)
    x = tl.load(x_ptr + offs, mask=tl.program_id(0) + first < end, other=0)
    tl.store(out_ptr + tl.arange(0, N), x)


@triton.jit
def write_far(x_ptr, first, size, N: tl.constexpr):
    row = tl.program_id(0) + first
    tl.store(x_ptr + row * size + tl.arange(0, N), 1.0)


@triton.jit
def count_far(x_ptr, n, N: tl.constexpr):
    offs = tl.arange(0, N)
    for _ in range(n):
        offs += 2**30
    tl.atomic_add(x_ptr + offs, 1.0)


@triton.jit
def either_far(x_ptr, out_ptr, first, N: tl.constexpr):
    pid = tl.program_id(0)
    start = 0
    if pid > 1:
        start = first * 65536
    tl.store(out_ptr + pid * N + tl.arange(0, N), tl.load(x_ptr + start + tl.arange(0, N)))


@triton.jit
def row_far(source, out_ptr, first, N: tl.constexpr):
    row = first * 65536
    tl.store(out_ptr + tl.arange(0, 2 * N), tl.reshape(source.load([row, 0]), [2 * N]))


@triton.jit
def far_or_near(pid, first):
    if pid > 1:
        return pid * 0 + first * 65536
    if pid == 1:
        return pid
    return first * 0


@triton.jit
def returned_far(x_ptr, out_ptr, first, N: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, N)
    tl.store(out_ptr + pid * N + offs, tl.load(x_ptr + far_or_near(pid, first) + offs))


@triton.jit
def left_early(x_ptr, out_ptr, first, N: tl.constexpr):
    pid = tl.program_id(0)
    start = (pid - 2) * first * 65536
    if pid == 3:
        return
    tl.store(out_ptr + pid * N + tl.arange(0, N), tl.load(x_ptr + start + tl.arange(0, N)))


@triton.jit
def counted_far(x_ptr, out_ptr, first, N: tl.constexpr):
    pid = tl.program_id(0)
    start = 0
    for _ in range(pid):
        start += first * 32768
    tl.store(out_ptr + pid * N + tl.arange(0, N), tl.load(x_ptr + start * 2 + tl.arange(0, N), mask=pid != 1))


@triton.jit
def found_far(x_ptr, out_ptr, first, N: tl.constexpr):
    pid = tl.program_id(0)
    start, turns = 0, 0
    while turns < pid:
        start += first * 32768
        turns += 2
    tl.store(out_ptr + pid * N + tl.arange(0, N), tl.load(x_ptr + start * 2 + tl.arange(0, N)))


PARTED = {  # → programs whose offsets wrap, and the line
    either_far: ([2, 3], "65536"),
    returned_far: ([2, 3], (far_or_near, "65536")),
    left_early: ([0, 1], "65536"),
    counted_far: ([2, 3], "32768"),
    found_far: ([1, 2, 3], "32768"),
}


@pytest.mark.parametrize("chunk", [1, 2**18])
@pytest.mark.parametrize("kernel", PARTED, ids=lambda kernel: kernel.__name__)
def test_offsets_that_wrap_in_some_programs_are_told_of_these(kernel, chunk, monkeypatch):
    monkeypatch.setattr(execute, "CHUNK", chunk)
    programs, text = PARTED[kernel]
    faults = overflow_of(lambda: kernel[(4,)](torch.arange(64.0), torch.zeros(64), 65536, N=4))
    assert [fault[0] for fault in faults] == programs
    assert {fault[4] for fault in faults} <= {line_of(*(text if isinstance(text, tuple) else (kernel, text)))}


def overflow_of(launch):
    return faults_of(launch, Int32OverflowError)


def test_offsets_that_wrap_are_told_with_the_line_where_they_are_computed():
    x, out = torch.arange(64.0), torch.zeros(64)
    line = line_of(offsets_of, "* size")
    (fault,) = overflow_of(lambda: read_far[(2,)](x, out, 32767, 65536, 2**30, N=4))
    assert fault[:3] + fault[4:] == (1, "load", "x_ptr", line) and fault[3][0] == -(2**31)
    # 65536 * 65536 wraps to 0: back inside.
    faults = overflow_of(lambda: read_far[(1,)](x, out, 65536, 65536, 2**30, N=4))
    assert faults == [(0, "load", "x_ptr", [0, 1, 2, 3], line)]
    faults = overflow_of(lambda: write_far[(2,)](x, 65535, 65536, N=4))
    assert [fault[0] for fault in faults] == [0, 1] and faults[1][3] == [0, 1, 2, 3]
    assert {fault[4] for fault in faults} == {line_of(write_far, "row * size")}
    assert torch.equal(x, torch.arange(64.0))
    faults = overflow_of(lambda: count_far[(1,)](x, 4, N=4))
    assert faults == [(0, "atomic", "x_ptr", [0, 1, 2, 3], line_of(count_far, "2**30"))]
    source = TensorDescriptor.from_tensor(x.view(8, 8), [2, 4])
    faults = overflow_of(lambda: row_far[(1,)](source, out, 65536, N=4))
    assert [fault[2] for fault in faults] == ["source"] and faults[0][4] == line_of(row_far, "65536")


def test_masked_lanes_may_wrap():
    x, out = torch.arange(64.0), torch.full((4,), -1.0)
    read_far[(1,)](x, out, 65536, 65536, 10, N=4)
    assert not out.any()


@triton.jit
def hash_and_draw(x_ptr, out_ptr, drawn_ptr, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    mixed = (offs + 7) * 1664525 + 1013904223
    mixed = (mixed ^ (mixed >> 16)) * 2654435
    tl.store(out_ptr + offs, tl.load(x_ptr + (mixed & 15)) + mixed)
    tl.store(drawn_ptr + offs, tl.randint(offs * 1000003, offs))


def test_what_wraps_and_is_no_offset_is_not_told():
    x, out, drawn = torch.arange(16, dtype=torch.int32), torch.zeros(64, dtype=torch.int32), torch.zeros(64).int()
    hash_and_draw[(8,)](x, out, drawn, N=8)
    mixed = ((torch.arange(64) + 7) * 1664525 + 1013904223).int()
    mixed = ((mixed ^ (mixed >> 16)).long() * 2654435).int()
    assert torch.equal(out, (mixed.long() + (mixed & 15)).int()) and len(drawn.unique()) > 60


@triton.jit
def touch_last(x_ptr, n, WIDE: tl.constexpr):
    pid = tl.program_id(0) + n
    if WIDE:
        pid = pid.to(tl.int64)
    offs = pid * 65536 + 65528 + tl.arange(0, 8)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs) + 1)


def test_a_tensor_of_more_than_2_31_elements():
    x = torch.empty(2**31 + 65536, dtype=torch.int8)  # of which few pages are ever touched
    x[-8:] = 0
    touch_last[(1,)](x, 32768, WIDE=True)
    assert x[-8:].tolist() == [1] * 8
    assert overflow_of(lambda: touch_last[(1,)](x, 32768, WIDE=False))[0][4] == line_of(touch_last, "65528")
    with pytest.raises(OutOfBoundsError, match=rf"elements {2**31 + 2**17 - 8} to {2**31 + 2**17 - 1}\)"):
        touch_last[(1,)](x, 32769, WIDE=True)
    assert x[-8:].tolist() == [1] * 8


# What cannot be launched


MEMORYLESS = {
    "meta": lambda: torch.zeros(8, device="meta"),
    "fake": lambda: FakeTensorMode().from_tensor(torch.zeros(8)),
    "sparse": lambda: torch.eye(8).to_sparse(),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", MEMORYLESS.values(), ids=MEMORYLESS)
def test_tensors_without_memory_are_refused(make):
    for arguments in ((make(), torch.zeros(8)), (torch.zeros(8), make())):
        with pytest.raises(ValueError, match="`(x|out)_ptr` is a tensor without memory .*cannot be launched"):
            copy[(2,)](*arguments, N=4)


def test_grids():
    x, out = torch.arange(8.0), torch.zeros(8)
    for grid in ((0,), (2, 0), (2, 1, 0)):
        copy[grid](x, out, N=4)
    assert not out.any()
    copy[(torch.tensor(2),)](x, out, N=4)
    assert torch.equal(out, x)
    for grid in ((1, 65536), (1, 1, 65536), (2**31,), (-1,)):
        with pytest.raises(ValueError, match="cannot be launched: a GPU's axes end at 2,147,483,647, 65,535, 65,535"):
            copy[grid](x, out, N=4)
    for grid in ((2.0,), ("2",), (None,)):
        with pytest.raises(TypeError, match="a grid is a tuple of one to three whole numbers"):
            copy[grid](x, out, N=4)


# Memory


@triton.jit
def double_all(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) * 2, mask=offs < n)


@triton.jit
def double_backwards(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + BLOCK - 1 - tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) * 2, mask=offs < n)


@triton.jit
def double_in_one_program(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) * 2, mask=offs < n)


MEMORY = {double_all: (1024, 2**14), double_backwards: (512, 2**15), double_in_one_program: (2**20, 1)}


def most_memory_used():
    """Return the most bytes that this process has ever held at once."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def measure_memory():
    """Print for each kernel by how many bytes a launch on two tensors of 64 MB raised the most memory ever used."""
    with backend.active():
        for kernel, (block, programs) in MEMORY.items():
            kernel[(1,)](torch.ones(block), torch.zeros(block), block, BLOCK=block)
            before = most_memory_used()
            x, out = torch.ones(2**24 - 5), torch.zeros(2**24 - 5)
            kernel[(programs,)](x, out, len(x), BLOCK=block)
            assert out.min() == out.max() == 2
            print(most_memory_used() - before)
            del x, out


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux alone says how much memory was used at most")
def test_memory_of_a_launch():
    program = "from tests.test_lab.test_machine.test_memory import measure_memory; measure_memory()"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    grown = [int(number) for number in done.stdout.split()]
    assert len(grown) == len(MEMORY) and 2**27 <= sum(grown) < 2 * 2**27 + 200 * 2**20
