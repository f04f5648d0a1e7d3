"""The trace and the guard, tried with right kernels and with wrong ones of every kind."""

import gc
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from lab.device import DEVICE, ON_CPU
from lab.machine.faults import KernelError
from lab.machine.record import Ledger
from lab.trace import Access, Int32OverflowError, OutOfBoundsError, trace

pytestmark = pytest.mark.skipif(not ON_CPU, reason="the trace watches the CPU: kernels run on the GPU")


def line_of(kernel, text: str) -> int:
    """Return the line of this file where a kernel's code contains `text`."""
    lines = Path(__file__).read_text().splitlines()
    start = kernel.fn.__code__.co_firstlineno
    return next(number for number in range(start, len(lines)) if text in lines[number - 1])


def filled(*shape: int, dtype=torch.float32) -> torch.Tensor:
    count = int(np.prod(shape))
    return torch.arange(count, device=DEVICE).to(dtype).reshape(shape)


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, stride_x, stride_out, BLOCK: tl.constexpr):
    """Copy BLOCK elements, masked."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs * stride_out, tl.load(x_ptr + offs * stride_x, mask=mask), mask=mask)


@triton.jit
def unmasked_store_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Copy BLOCK elements; the store lacks its mask."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x)


@triton.jit
def unmasked_load_kernel(x_ptr, out_ptr, n, shift, BLOCK: tl.constexpr):
    """Copy BLOCK elements from `shift` further on; the load lacks its mask."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs + shift)
    tl.store(out_ptr + offs, x, mask=offs < n)


def test_a_right_kernel_leaves_a_clean_log():
    x, out = filled(100), torch.empty(100, device=DEVICE)
    with trace() as t:
        copy_kernel[(4,)](x, out, 100, 1, 1, BLOCK=32, num_warps=2)
    (launch,) = t.launches
    assert torch.equal(out, x)
    assert (launch.kernel, launch.grid, launch.programs, launch.function) == ("copy_kernel", (4, 1, 1), 4, copy_kernel)
    assert launch.arguments == {"n": 100, "stride_x": 1, "stride_out": 1, "BLOCK": 32}
    assert launch.constexprs == {"BLOCK"}
    assert launch.options == {"num_warps": 2, "num_stages": 3, "num_ctas": 1, "maxnreg": None}
    assert list(launch.tensors) == ["x_ptr", "out_ptr"] and launch.tensors["x_ptr"].shape == (100,)
    assert [(a.kind, a.tensor, a.program) for a in launch.accesses[6:]] == [
        ("load", "x_ptr", 3),
        ("store", "out_ptr", 3),
    ]
    last: Access = launch.accesses[-1]
    assert last.offsets.tolist() == list(range(96, 128)) and last.mask.sum() == 4
    assert last.file == __file__ and last.line == line_of(copy_kernel, "tl.store")
    assert (t.bytes_loaded, t.bytes_stored, t.bytes_moved, t.bytes_needed) == (400, 400, 800, 800)
    assert t.out_of_bounds == t.conflicts == []
    assert launch.owner("out_ptr").tolist() == [i // 32 for i in range(100)]
    assert launch.owner("x_ptr").tolist() == [-1] * 100
    assert launch.touched("x_ptr", "load").tolist() == [1] * 100
    with pytest.raises(KeyError, match="copy_kernel has no tensor `y_ptr`; it has x_ptr, out_ptr"):
        launch.owner("y_ptr")


def test_an_unmasked_store_is_stopped_and_told():
    whole = torch.full((200,), -1.0, device=DEVICE)
    x, out = filled(100), whole[:100]
    with trace() as t:
        unmasked_store_kernel[(4,)](x, out, 100, BLOCK=32)
    (fault,) = t.out_of_bounds
    line = line_of(unmasked_store_kernel, "tl.store")
    assert (fault.cause, fault.kind, fault.tensor, fault.program) == ("out-of-bounds", "store", "out_ptr", 3)
    assert (fault.elements.tolist(), fault.count, fault.file, fault.line) == (list(range(100, 128)), 28, __file__, line)
    where = f"past the end of `out_ptr` (elements 100 to 127), line {line}"
    assert str(fault) == f"program 3 stores 28 elements {where}: is the store masked?"
    assert torch.equal(out, x) and (whole[100:] == -1).all()


def test_an_unmasked_load_yields_nan():
    x, out = filled(100), torch.empty(128, device=DEVICE)
    with trace() as t:
        unmasked_load_kernel[(4,)](x, out, 128, 0, BLOCK=32)
    assert [(f.kind, f.program, f.count) for f in t.out_of_bounds] == [("load", 3, 28)]
    assert out[100:].isnan().all() and torch.equal(out[:100], x)


def test_a_negative_offset_is_told():
    x, out = filled(64), torch.empty(64, device=DEVICE)
    with trace() as t:
        unmasked_load_kernel[(2,)](x, out, 64, -3, BLOCK=32)
    (fault,) = t.out_of_bounds
    assert fault.elements.tolist() == [-3, -2, -1] and "before the start of `x_ptr`" in str(fault)


def test_without_a_trace_the_launch_raises_at_its_end():
    whole = torch.full((200,), -1.0, device=DEVICE)
    with pytest.raises(OutOfBoundsError, match="program 3 stores 28 elements past the end of `out_ptr`"):
        unmasked_store_kernel[(4,)](filled(100), whole[:100], 100, BLOCK=32)
    assert whole[:100].tolist() == list(range(100)) and (whole[100:] == -1).all()


def test_the_neighbour_in_the_same_storage_is_outside():
    both = torch.zeros(64, device=DEVICE)
    with trace() as t:
        unmasked_store_kernel[(1,)](both[:30], both[32:62], 30, BLOCK=32)
        unmasked_load_kernel[(1,)](both[:30], both[32:], 30, 0, BLOCK=32)
    assert [(f.kind, f.tensor, f.elements.tolist()) for f in t.out_of_bounds] == [
        ("store", "out_ptr", [30, 31]),
        ("load", "x_ptr", [30, 31]),
    ]


def test_strided_and_expanded_tensors():
    x, out = filled(8)[::2], torch.zeros(12, device=DEVICE)[::3]
    with trace() as t:
        copy_kernel[(2,)](x, out, 4, 2, 3, BLOCK=2)
        copy_kernel[(2,)](filled(1).expand(4), out, 4, 0, 3, BLOCK=2)
        copy_kernel[(2,)](x, out, 4, 2, 4, BLOCK=2)
    strided, expanded, wrong = t.launches
    assert t.bytes_needed == 32 + 20 + 16 + 12 and strided.owner("out_ptr").tolist() == [0, 0, 1, 1]
    assert strided.faults == expanded.faults == []
    assert expanded.touched("x_ptr", "load").tolist() == [2, 2, 2, 2]
    assert [f.elements.tolist() for f in wrong.faults] == [[12]]


@triton.jit
def shared_element_kernel(out_ptr, BLOCK: tl.constexpr, SAME: tl.constexpr):
    """Each program writes one element more than its own."""
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, 2 * BLOCK)
    value = offs if SAME else offs + pid
    tl.store(out_ptr + offs, value, mask=offs <= (pid + 1) * BLOCK)


@pytest.mark.parametrize("same", [True, False], ids=["same value", "different values"])
def test_two_programs_that_store_one_element(same):
    out = torch.zeros(17, dtype=torch.int32, device=DEVICE)
    with trace() as t:
        shared_element_kernel[(4,)](out, BLOCK=4, SAME=same)
    assert t.out_of_bounds == []
    assert [(f.cause, f.other, f.program, f.elements.tolist(), f.same_value) for f in t.conflicts] == [
        ("write-write", 0, 1, [4], same),
        ("write-write", 1, 2, [8], same),
        ("write-write", 2, 3, [12], same),
    ]
    assert "programs 0 and 1 both store element 4 of `out_ptr`" in str(t.conflicts[0])


@triton.jit
def crowded_kernel(out_ptr):
    """All programs store 1 into the same element, but for the last one."""
    last = tl.program_id(0) == tl.num_programs(0) - 1
    tl.store(out_ptr, tl.where(last, 2.0, 1.0))


def test_meetings_without_harm_hide_none_that_has():
    with trace() as t:
        crowded_kernel[(100,)](torch.zeros(1, device=DEVICE))
    harmful = [(fault.other, fault.program) for fault in t.conflicts if not fault.same_value]
    assert harmful == [(98, 99)] and len(t.conflicts) > 30


@triton.jit
def running_sum_kernel(out_ptr):
    """Add the element before one's own, as if the program before had finished."""
    pid = tl.program_id(0)
    before = tl.load(out_ptr + pid)
    tl.store(out_ptr + pid + 1, before + 1)


def test_reading_what_a_neighbour_writes():
    results, conflicts = [], []
    for order in (None, "reversed", 1):
        out = torch.zeros(9, device=DEVICE)
        with trace(order=order) as t:
            running_sum_kernel[(8,)](out)
        results.append(out.tolist())
        conflicts.append({(f.cause, f.program, f.other) for f in t.conflicts})
    assert results == [[0] + [1] * 8] * 3  # none waits for another
    assert conflicts == [{("read-write", p, p - 1) for p in range(1, 8)}] * 3
    sentences = [str(fault) for fault in t.conflicts]
    assert any(s.startswith("program 1 loads element 1 of `out_ptr`, which program 0 writes") for s in sentences)


@triton.jit
def add_up_kernel(x_ptr, total_ptr, plain_ptr, BLOCK: tl.constexpr, PLAIN: tl.constexpr):
    """Add a block into one total, atomically; PLAIN: then overwrite it."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total_ptr, tl.sum(tl.load(x_ptr + offs)))
    if PLAIN:
        tl.store(total_ptr, 0.0)


def test_atomics_do_not_conflict_among_themselves():
    x, total = filled(64), torch.zeros(1, device=DEVICE)
    with trace(order=3) as t:
        add_up_kernel[(4,)](x, total, total, BLOCK=16, PLAIN=False)
    assert total.item() == 64 * 63 / 2 and t.conflicts == []
    assert t.launches[0].touched("total_ptr", "atomic").tolist() == [4]
    with trace() as t:
        add_up_kernel[(4,)](x, total, total, BLOCK=16, PLAIN=True)
    assert {f.cause for f in t.conflicts} == {"write-write"}


@triton.jit
def transpose_kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    """Transpose one tile of a contiguous [M, N] matrix."""
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    tl.store(out_ptr + offs_m[:, None] + offs_n[None, :] * M, x, mask=mask)


def test_a_grid_of_two_axes_counts_x_first():
    x, out = filled(5, 7), torch.empty(7, 5, device=DEVICE)
    with trace(order="reversed") as t:
        transpose_kernel[(2, 2)](x, out, 5, 7, BLOCK=4)
    (launch,) = t.launches
    assert torch.equal(out, x.t()) and t.conflicts == t.out_of_bounds == []
    assert list(dict.fromkeys(access.program for access in launch.accesses)) == [3, 2, 1, 0]
    rows, columns = np.indices((7, 5))
    assert (launch.owner("out_ptr") == columns // 4 + 2 * (rows // 4)).all()


@triton.jit
def descriptor_kernel(out_ptr, x_desc, BLOCK: tl.constexpr):
    """Copy one tile through a tensor descriptor."""
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = x_desc.load([pid * BLOCK, 0])
    tl.store(out_ptr + (pid * BLOCK + offs[:, None]) * BLOCK + offs[None, :], x)


def test_tensor_descriptors_pass_the_same_hooks():
    whole = filled(14, 4)  # x lies inside the memory that out_ptr may reach
    x, out = whole[8:], whole
    with trace() as t:
        descriptor_kernel[(2,)](out, TensorDescriptor.from_tensor(x, [4, 4]), BLOCK=4)
    load = t.launches[0].accesses[2]
    assert (load.kind, load.tensor, load.program, int(load.mask.sum())) == ("load", "x_desc", 1, 8)
    assert load.line == line_of(descriptor_kernel, "x_desc.load")
    assert t.out_of_bounds == [] and torch.equal(out[:4], filled(14, 4)[8:12])


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_kernel(out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """Write ones."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + offs, 1.0)
    else:
        tl.store(out_ptr + offs, 1.0, mask=offs < n)


def test_tuned_kernels_are_one_launch():
    out = torch.zeros(40, device=DEVICE)
    with trace() as t:
        tuned_kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](out, 40)
    assert [(launch.kernel, launch.programs) for launch in t.launches] == [("tuned_kernel", 3)]
    assert out.tolist() == [1.0] * 40 and t.out_of_bounds == []


@triton.jit
def helper(x):
    tl.device_assert(x != 1, "one is too many")
    return x


@triton.jit
def failing_kernel(out_ptr):
    """Store 1, and fail in a helper in the second program."""
    pid = tl.program_id(0)
    tl.store(out_ptr + pid, 1.0)
    tl.store(out_ptr + pid, helper(pid))


def test_a_kernel_that_gives_up_leaves_everything_as_it_was():
    out = torch.zeros(4, device=DEVICE)
    message = f"^program 1 fails its assertion, line {line_of(helper, 'device_assert')}: one is too many"
    with pytest.raises(KernelError, match=message), trace() as t:
        failing_kernel[(4,)](out, debug=True)
    assert out.tolist() == [1] * 4
    assert [(a.kind, a.program) for a in t.launches[0].accesses] == [("store", program) for program in range(4)]
    copy_kernel[(1,)](filled(4), out, 4, 1, 1, BLOCK=4)
    assert out.tolist() == [0, 1, 2, 3] and len(t.launches) == 1


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.jit
def tuned_copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Copy n elements; the load lacks its mask."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs), mask=offs < n)


def test_what_only_tries_a_configuration_counts_if_it_did_something_wrong():
    grid = lambda meta: (triton.cdiv(48, meta["BLOCK"]),)  # noqa: E731  as launches are written
    with trace() as t:
        tuned_copy_kernel[grid](filled(64), torch.empty(64, device=DEVICE), 48)
    assert len(t.launches) == 1 and t.bytes_stored == 4 * 48 and t.out_of_bounds == []
    tuned_copy_kernel.cache.clear()
    with trace() as t:
        tuned_copy_kernel[grid](filled(48), torch.empty(48, device=DEVICE), 48)
    assert [launch.arguments["BLOCK"] for launch in t.launches] == [32, 16]
    assert [fault.elements.tolist() for fault in t.out_of_bounds] == [list(range(48, 64))]


@triton.jit
def select_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """Read even lanes from x, odd ones from y, by a pointer that belongs to neither."""
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(tl.where(offs % 2 == 0, x_ptr + offs, y_ptr + offs)))


def test_a_chosen_pointer_belongs_to_the_tensor_that_holds_it():
    x, y, out = filled(8), filled(7), torch.empty(8, device=DEVICE)
    with trace() as t:
        select_kernel[(1,)](x, y, out, BLOCK=8)
    loads = [(a.tensor, int(a.mask.sum())) for a in t.launches[0].accesses if a.kind == "load"]
    assert sorted(loads)[0] == ("x_ptr", 4) and sum(lanes for _, lanes in loads) == 8
    assert [(f.kind, f.count) for f in t.out_of_bounds] == [("load", 1)]


@triton.jit
def table_kernel(table_ptr, BLOCK: tl.constexpr, SHARED: tl.constexpr):
    """Copy a block from the tensor at the first address of a table to that at the second; SHARED: all store one."""
    pid = tl.program_id(0)
    x_ptr = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    out_ptr = tl.load(table_ptr + 1).to(tl.pointer_type(tl.float32))
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + (offs % BLOCK if SHARED else offs), tl.load(x_ptr + offs))


def test_memory_that_is_no_argument_is_watched_all_the_same():
    x, out = filled(8), torch.zeros(8, device=DEVICE)
    table = torch.tensor([x.data_ptr(), out.data_ptr()], device=DEVICE)
    with trace() as t:
        table_kernel[(2,)](table, BLOCK=4, SHARED=False)
        out.neg_()
    assert torch.equal(t.snapshot(out), x) and t.conflicts == t.out_of_bounds == []
    assert (t.bytes_loaded, t.bytes_stored) == (2 * 16 + 32, 32)
    with trace() as t:
        table_kernel[(2,)](table, BLOCK=4, SHARED=True)
    (fault,) = t.conflicts
    assert (fault.cause, fault.program, fault.other) == ("write-write", 1, 0) and not fault.same_value
    assert "programs 0 and 1 both store memory of a tensor that is no argument" in str(fault)


@triton.jit
def narrow_kernel(out_ptr, n, BLOCK: tl.constexpr):
    """Write ones at offsets computed in int32."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 1, mask=offs < n)


@triton.jit
def wide_kernel(out_ptr, n, BLOCK: tl.constexpr):
    """Write ones at offsets computed in int64."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 1, mask=offs < n)


def test_an_offset_past_31_bits_is_told():
    n = 2**31 + 100
    out = torch.empty(n, dtype=torch.int8, device=DEVICE)  # memory that nobody touches costs nothing
    grid, last = (triton.cdiv(n, 1024),), triton.cdiv(n, 1024) - 1
    with trace(programs=[0, last]) as t:
        narrow_kernel[grid](out, n, BLOCK=1024)
    (fault,) = t.out_of_bounds
    assert (fault.cause, fault.program, fault.stray) == ("int32-overflow", last, True)
    assert fault.line == line_of(narrow_kernel, "offs = ") and "2**31 - 1 in int32" in str(fault)
    with trace(programs=[0, last]) as t:
        wide_kernel[grid](out, n, BLOCK=1024)
    assert t.out_of_bounds == t.conflicts == [] and t.bytes_moved == 1024 + 100
    assert out[-100:].tolist() == [1] * 100
    with pytest.raises(ValueError, match="too many elements"):
        t.launches[0].owner("out_ptr")


@triton.jit
def row_kernel(out_ptr, row, stride, M, BLOCK: tl.constexpr):
    """Write one element in each of BLOCK rows from `row` on, with an int32 product."""
    rows = row + tl.arange(0, BLOCK)
    tl.store(out_ptr + (rows * stride)[:, None], 1, mask=(rows < M)[:, None])


def test_a_product_that_wraps_back_inside_is_told_unless_masked():
    virtual = torch.empty(2**33, dtype=torch.int8, device=DEVICE)
    with trace() as t:
        row_kernel[(1,)](virtual, 2**16 - 2, 2**16 + 1, 2**16, BLOCK=4)
    (fault,) = t.out_of_bounds
    assert (fault.cause, fault.count) == ("int32-overflow", 2)
    with trace() as t:
        row_kernel[(1,)](virtual, 2**15 - 2, 2**16, 2**15, BLOCK=4)
    assert t.out_of_bounds == []
    with pytest.raises(Int32OverflowError):
        row_kernel[(1,)](virtual, 2**16 - 2, 2**16 + 1, 2**16, BLOCK=4)


@triton.jit
def far_kernel(x_ptr, out_ptr, stride, N, BLOCK: tl.constexpr, CHOSEN: tl.constexpr):
    """Copy one row of N elements; CHOSEN: take the first row where the offset of the second has wrapped."""
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    start = x_ptr + row * stride
    if CHOSEN:
        start = tl.where(row * stride < 0, x_ptr, start)
    tl.store(out_ptr + row * N + offs, tl.load(start + offs, mask=offs < N), mask=offs < N)


@pytest.mark.parametrize("chosen", [False, True])
def test_an_offset_that_wraps_is_followed_through_pointers(chosen):
    x, out = torch.empty(2**31 + 64, dtype=torch.int8, device=DEVICE), torch.empty(3, 16, device=DEVICE)
    x[:16] = 1
    with trace() as t:
        far_kernel[(3,)](x, out, 2**30 + 8, 16, BLOCK=16, CHOSEN=chosen)
    if chosen:
        assert t.out_of_bounds == [] and out[2].tolist() == [1] * 16
    else:
        assert [(fault.cause, fault.program) for fault in t.out_of_bounds] == [("int32-overflow", 2)]
        assert t.out_of_bounds[0].line == line_of(far_kernel, "start = x_ptr + row")


def test_the_snapshot_shows_what_was_overwritten_afterwards():
    x, out, other = filled(8), torch.zeros(2, 8, device=DEVICE), torch.zeros(8, device=DEVICE)
    with trace() as t:
        copy_kernel[(1,)](x, out[1], 8, 1, 1, BLOCK=8)
        out[1].mul_(2)
    assert torch.equal(t.snapshot(out[1]), x) and torch.equal(t.snapshot(out)[0], torch.zeros(8))
    assert t.snapshot(out).stride() == out.stride()
    assert t.snapshot(other) is None and t.snapshot(x) is None


def test_shuffled_orders_repeat_and_differ():
    def order_of(order):
        with trace(order=order) as t:
            copy_kernel[(16,)](filled(64), torch.empty(64, device=DEVICE), 64, 1, 1, BLOCK=4)
        return list(dict.fromkeys(access.program for access in t.launches[0].accesses))

    assert order_of(1) == order_of(1) != order_of(2)
    assert sorted(order_of(1)) == order_of(None) == order_of("reversed")[::-1] == list(range(16))
    with pytest.raises(ValueError, match="'backwards'"), trace(order="backwards"):
        pass


def test_an_empty_tensor_has_no_inside():
    with pytest.raises(OutOfBoundsError, match="past the end of `x_ptr`"):
        unmasked_load_kernel[(1,)](torch.empty(0, device=DEVICE), filled(4), 4, 0, BLOCK=4)


def test_a_ledger_in_pages_counts_like_a_dense_one(monkeypatch):
    generator = np.random.default_rng(0)
    dense, paged = Ledger(2**18), Ledger(2**18)
    paged.dense = None
    for value in range(1, 20):
        units = generator.integers(0, 2**18, 500)
        dense[units] = value
        paged[units] = value
        probe = generator.integers(0, 2**18, 500)
        assert (dense[probe] == paged[probe]).all()
    assert dense.count() == paged.count() > 9000


def test_a_thousand_programs_trace_in_a_moment():
    n = 1000 * 1024
    x, out = filled(n), torch.empty(n, device=DEVICE)
    gc.collect()
    start = time.process_time()
    with trace() as t:
        copy_kernel[(1000,)](x, out, n, 1, 1, BLOCK=1024)
    needed = t.bytes_needed
    assert time.process_time() - start < 3.0  # 0.5 s on a quiet laptop
    assert needed == t.bytes_moved == 8 * n


@pytest.mark.parametrize("order", [[1], 2.5, "forward", "", -1, torch.ones(3), len], ids=str)
def test_an_odd_order_ends_in_a_sentence(order):
    with pytest.raises(ValueError, match="order is .*; it must be None, 'reversed' or a whole number"), trace(order):
        pass


@pytest.mark.parametrize(
    "programs", [3, 10**5000, "sm", [0.5], [None], len, torch.ones(3)], ids=lambda value: type(value).__name__
)
def test_odd_programs_end_in_a_sentence(programs):
    with pytest.raises(ValueError, match="programs is .*; it must be a list of ids"), trace(programs=programs):
        pass


def test_programs_may_come_from_anything_that_counts():
    for programs in (range(2), iter([0, 1]), {0, 1}, torch.tensor([0, 1]), np.arange(2)):
        with trace(programs=programs) as t:
            pass
        assert sorted(t.programs) == [0, 1]


@pytest.mark.parametrize("thing", [None, [1], 7, "x", len], ids=lambda value: type(value).__name__)
def test_a_snapshot_of_no_tensor_ends_in_a_sentence(thing):
    with trace() as t:
        pass
    with pytest.raises(TypeError, match="^snapshot takes a tensor, not "):
        t.snapshot(thing)
