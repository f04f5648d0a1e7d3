"""Rules of work: what an answer may do only once, and honest answers of odd style that no rule may refuse."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lab.check import judge
from lab.check.counts import Visits, blocks_stored, count_loads, count_memory, widest_accesses
from lab.check.inputs import LiveInputs, freeze
from lab.check.question import pose
from lab.device import DEVICE, ON_CPU
from lab.task import Case, Task, find_task
from lab.trace import trace
from tests.test_lab.edited import edited

import triton  # isort: skip
import triton.language as tl  # isort: skip

pytestmark = pytest.mark.skipif(not ON_CPU, reason="work is counted in the trace")

AGAIN = "tl.load(x_ptr + offs, mask=mask).to(tl.float32)"
STORE = "    tl.store(out_ptr + offs, out, mask=mask)"
IN_PAIRS = ("pid * BLOCK", "pid // 2 * BLOCK", "(triton.cdiv(n, 256),)", "(2 * triton.cdiv(n, 256),)")
WASTE = {  # task, edits → reason, words of the message, words of the cause
    "two programs a block": (
        ("silu", *IN_PAIRS),
        ("stored-twice", "all elements of the result were stored twice, by both programs, at", "does the work of all"),
    ),
    "blocks that overlap": (
        ("silu", "pid * BLOCK", "pid * 192", "triton.cdiv(n, 256)", "triton.cdiv(n, 192)"),
        ("stored-twice", "of the result were stored twice, element 192 by programs 0 and 1", "begins where the one"),
    ),
    "a store too early": (
        ("silu", STORE, f"    tl.store(out_ptr + offs, x, mask=mask)\n{STORE}"),
        ("stored-twice", "of the result were stored twice, element 0 by program 0", "when it is finished"),
    ),
    "an element of the second result": (
        ("attention_lse", "    lse = top", "    tl.store(lse_ptr + offs_m, total, mask=mask_m)\n    lse = top"),
        (
            "stored-twice",
            "all elements of result 2 of 2 were stored twice, element 0 by program 0, at",
            "when it is finished",
        ),
    ),
    "a load again": (
        ("silu", "x * tl.sigmoid(x)", f"x * tl.sigmoid({AGAIN})"),
        ("read-twice", "all elements of `x` were loaded twice, element 0 by program 0; once is enough, at", "variable"),
    ),
    "half of the programs store nothing": (
        ("silu", *IN_PAIRS, STORE, STORE.replace("mask=mask", "mask=mask & (pid % 2 == 0)")),
        ("read-twice", "were loaded twice, by both programs; once is enough", "a share of its own"),
    ),
    "a shared input again": (
        (
            "row_add",
            "x + row[None, :]",
            "x + row[None, :] / 2 + tl.load(row_ptr + offs_n * stride_row, mask=mask_n) / 2",
        ),
        ("read-twice", "program 0 loaded element 0 of `row` twice for 1 block that it stored", "load a block once"),
    ),
    "two launches": (
        ("silu", "    return out", "    silu_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)\n    return out"),
        ("launches", "launched `silu_kernel` twice; once is enough", "a grid that has a program for each part"),
    ),
    "the result read back": (
        ("silu", STORE, f"{STORE}\n    tl.device_assert(tl.load(out_ptr + offs, mask=mask, other=0) == out)"),
        ("memory", "a kernel loads 100 elements of the result that it has stored, at", "keep it in a variable"),
    ),
    "a copy": (
        ("silu", "n = x.numel()", "n, x = x.numel(), x.clone()"),
        ("host", "a kernel loads 100 elements from `x_ptr` that the host function put there", "must load the inputs"),
    ),
    "numbers from a list": (
        ("silu", "n = x.numel()", "n, x = x.numel(), torch.tensor(x.tolist(), dtype=x.dtype)"),
        ("host", "no kernel loaded `x`, and yet the result follows from it", "must load the inputs"),
    ),
    "numbers by way of NumPy": (
        ("softplus", "n = x.numel()", "n, x = x.numel(), torch.from_numpy(x.float().numpy() * 1).to(x.dtype)"),
        ("host", "no kernel loaded `x`, and yet the result follows from it", "must load the inputs"),
    ),
    "another dtype": (
        ("silu", "n = x.numel()", "n, x = x.numel(), x.float()"),
        ("torch", "the host function computes with torch: `to`, at", "the kernel is to do this"),
    ),
    "a sign that is turned for a look": (
        ("silu", "    return out", "    return torch._neg_view(torch._neg_view(out))"),
        ("torch", "`neg_view`", "the kernel is to do this"),
    ),
    "a block that is too large": (
        ("clamped_add", "BLOCK=256", "BLOCK=2048", "triton.cdiv(n, 256)", "triton.cdiv(n, 2048)"),
        ("block", "a program stores 2,048 elements at once, at", "take a smaller block"),
    ),
}


@pytest.mark.parametrize("name", WASTE)
def test_waste_is_told_with_what_was_counted(tmp_path, name):
    (task, *edits), (reason, words, cause) = WASTE[name]
    verdict = judge(task, edited(tmp_path, task, *edits))
    assert verdict.reason == reason, str(verdict)
    assert words in verdict.message and cause in verdict.cause, str(verdict)
    assert verdict.advice[0] == "What to do"


# Honest answers of odd style


@triton.jit
def silu_by_few_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
        tl.store(out_ptr + offs, x * tl.sigmoid(x), mask=offs < n)


def few_programs_that_stride(x):
    out = torch.empty_like(x)
    silu_by_few_kernel[(3,)](x, out, x.numel(), BLOCK=64)
    return out


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.jit
def silu_tuned_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, x * tl.sigmoid(x), mask=offs < n)


def tuned_in_two_dimensions(x):
    assert x.dim() == 1 and x.is_contiguous(), x.shape
    out, n = torch.zeros_like(x), x.numel()
    silu_tuned_kernel[lambda meta: (triton.cdiv(triton.cdiv(n, meta["BLOCK"]), 2), 2)](x, out, n)
    return out


def prints_its_input(x):
    print(x, x.tolist(), x[:1].numel() and x[0].item())
    return few_programs_that_stride(x)


@triton.jit
def silu_by_address_kernel(table_ptr, x_ptr, n, BLOCK: tl.constexpr):
    to: tl.constexpr = tl.pointer_type(x_ptr.dtype.element_ty)
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(tl.load(table_ptr).to(to) + offs, mask=offs < n).to(tl.float32)
    tl.store(tl.load(table_ptr + 1).to(to) + offs, x * tl.sigmoid(x), mask=offs < n)


def a_table_of_addresses(x):
    out = torch.empty_like(x)
    table = torch.tensor([x.data_ptr(), out.data_ptr()], device=x.device)
    silu_by_address_kernel[(triton.cdiv(x.numel(), 256),)](table, x, x.numel(), BLOCK=256)
    return out


@triton.jit
def silu_by_ticket_kernel(x_ptr, out_ptr, ticket_ptr, n, BLOCK: tl.constexpr):
    offs = tl.atomic_add(ticket_ptr, 1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, x * tl.sigmoid(x), mask=offs < n)


def whoever_comes_first(x):
    out, ticket = torch.empty_like(x), torch.zeros(1, dtype=torch.int32, device=x.device)
    silu_by_ticket_kernel[(triton.cdiv(x.numel(), 64),)](x, out, ticket, x.numel(), BLOCK=64)
    return out


@triton.jit
def expanded_row_kernel(x_ptr, row_ptr, out_ptr, M, N, sm, sn, sr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Each program takes all tiles of some columns, and loads the row as a whole tile each time."""
    offs_n = (tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    for start in range(0, M, BLOCK_M):
        offs_m = (start + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
        mask = (offs_m < M) & (offs_n < N)
        x = tl.load(x_ptr + offs_m * sm + offs_n * sn, mask=mask).to(tl.float32)
        row = tl.load(row_ptr + offs_m * 0 + offs_n * sr, mask=mask).to(tl.float32)
        tl.store(out_ptr + offs_m * N + offs_n, x + row, mask=mask)


def columns_by_loop(x, row):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(x.shape[1], 16),)
    expanded_row_kernel[grid](x, row, out, *x.shape, *x.stride(), row.stride(0), BLOCK_M=8, BLOCK_N=16)
    return out


@triton.jit
def few_tiles_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K, sam, sak, sbk, sbn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ALL: tl.constexpr = False,
):  # fmt: skip
    """A few programs share all tiles and load a step ahead. With ALL, each does all and stores its own."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first, step = (0, 1) if ALL else (tl.program_id(0), tl.num_programs(0))
    for tile in range(first, tiles_m * tiles_n, step):
        offs_m = (tile % tiles_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
        offs_n = (tile // tiles_m * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
        offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
        mask_m, mask_n = (offs_m < M)[:, None], (offs_n < N)[None, :]
        a_ptrs = a_ptr + offs_m[:, None] * sam + offs_k[None, :] * sak
        b_ptrs = b_ptr + offs_k[:, None] * sbk + offs_n[None, :] * sbn
        a = tl.load(a_ptrs, mask=mask_m & (offs_k < K)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_n & (offs_k < K)[:, None], other=0.0)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(BLOCK_K, K + BLOCK_K, BLOCK_K):
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a = tl.load(a_ptrs + k.to(tl.int64) * sak, mask=mask_m & (k + offs_k < K)[None, :], other=0.0)
            b = tl.load(b_ptrs + k.to(tl.int64) * sbk, mask=mask_n & (k + offs_k < K)[:, None], other=0.0)
        mask = mask_m & mask_n & (tile == tl.program_id(0)) if ALL else mask_m & mask_n
        tl.store(out_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=mask)


def few_programs_for_all_tiles(a, b, programs=2, ALL=False):
    (M, K), N = a.shape, b.shape[1]
    out, blocks = torch.empty(M, N, dtype=a.dtype, device=a.device), {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}
    few_tiles_kernel[(programs,)](a, b, out, M, N, K, *a.stride(), *b.stride(), **blocks, ALL=ALL)
    return out


def all_tiles_of_which_one_is_stored(a, b):
    tiles = triton.cdiv(a.shape[0], 16) * triton.cdiv(b.shape[1], 16)
    return few_programs_for_all_tiles(a, b, programs=tiles, ALL=True)


@triton.jit
def two_passes_kernel(x_ptr, target_ptr, out_ptr, N, stride_xm, BLOCK: tl.constexpr):
    """Each program goes over its row for the largest score, and then for the sum."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    low = -float("inf")
    top = low
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        top = tl.maximum(top, tl.max(tl.load(x_ptr + offs, mask=offs < N, other=low).to(tl.float32), 0))
    total = 0.0
    for start in range(0, N, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.exp(tl.load(x_ptr + offs, mask=offs < N, other=low).to(tl.float32) - top), 0)
    score = tl.load(x_ptr + tl.load(target_ptr + row)).to(tl.float32)
    tl.store(out_ptr + row, top - score + tl.log(total))


def two_passes_over_a_row(x, target):
    out = torch.empty(len(x), dtype=x.dtype, device=x.device)
    two_passes_kernel[(len(x),)](x, target, out, x.shape[1], x.stride(0), BLOCK=1024)
    return out


@triton.jit
def tile_order_at_once_kernel(out_ptr, tiles_m, tiles_n, GROUP: tl.constexpr):
    tile, lanes = tl.program_id(0), tl.arange(0, 2)
    first = tile // (GROUP * tiles_n) * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)
    place = tile - first * tiles_n
    tl.store(out_ptr + 2 * tile + lanes, tl.where(lanes == 0, first + place % rows, place // rows))


def row_and_column_at_once(shape, group, device):
    out = torch.full((shape[0] * shape[1], 2), -1, dtype=torch.int32, device=device)
    tile_order_at_once_kernel[(len(out),)](out, *shape, GROUP=group)
    return out


HONEST = [
    ("silu", few_programs_that_stride),
    ("silu", tuned_in_two_dimensions),
    ("silu", prints_its_input),
    ("silu", a_table_of_addresses),
    ("silu", whoever_comes_first),
    ("row_add", columns_by_loop),
    ("tile_product", few_programs_for_all_tiles),
    ("cross_entropy", two_passes_over_a_row),
    ("tile_order", row_and_column_at_once),
]
HONEST_EDITS = [  # with one's own block sizes
    ("matvec", "BLOCK_M=16, BLOCK_K=32", "BLOCK_M=8, BLOCK_K=128", "cdiv(M, 16)", "cdiv(M, 8)"),
    ("gated_product", "BLOCK_M=16, BLOCK_N=32, BLOCK_K=32", "BLOCK_M=32, BLOCK_N=16, BLOCK_K=64")
    + ("triton.cdiv(M, 16) * triton.cdiv(N, 32)", "triton.cdiv(M, 32) * triton.cdiv(N, 16)"),
    ("softcap_attention", "BLOCK_M=16, BLOCK_N=16", "BLOCK_M=32, BLOCK_N=64", "cdiv(M, 16)", "cdiv(M, 32)"),
    ("weighted_mean", "BLOCK=32", "BLOCK=128"),
    ("log_sum_exp", "BLOCK=128", "BLOCK=512"),
    ("clamped_add", "BLOCK=256", "BLOCK=1024", "cdiv(n, 256)", "cdiv(n, 1024)"),
]


@pytest.mark.parametrize("task, answer", HONEST, ids=lambda value: getattr(value, "__name__", value))
def test_an_honest_answer_passes(task, answer):
    verdict = judge(without_programs(task), answer)
    assert verdict.passed, str(verdict)


def test_tiles_that_are_worked_out_and_not_stored_are_waste():
    verdict = judge("tile_product", all_tiles_of_which_one_is_stored)
    assert verdict.reason == "read-twice" and "for 1 block that it stored" in verdict.message, str(verdict)


@pytest.mark.parametrize("task, edits", [(task, edits) for task, *edits in HONEST_EDITS])
def test_an_honest_block_size_passes(tmp_path, task, edits):
    verdict = judge(without_programs(task), edited(tmp_path, task, *edits))
    assert verdict.passed, str(verdict)


def without_programs(name: str) -> Task:
    """Return a task that asks for no number of programs: larger blocks need fewer."""
    task = find_task(name)
    return replace(task, cases=tuple(replace(case, programs=1) for case in task.cases))


# What a task allows


@triton.jit
def add_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + 1)


def adds_two(x):
    partial, out = torch.empty_like(x), torch.empty_like(x)
    add_kernel[(2,)](x, partial, BLOCK=16)
    add_kernel[(2,)](partial, out, BLOCK=16)
    return out


def adds_two_to_a_copy(x):
    return adds_two(x.clone())


def adds_two_in_place(x):
    out = torch.empty_like(x)
    add_kernel[(2,)](x, out, BLOCK=16)
    add_kernel[(2,)](out, out, BLOCK=16)
    return out


ADD_TWO = Task(
    "add_two", "", lambda x: x + 2, (Case("", lambda g: (torch.randn(32, generator=g, device=DEVICE),)),), 1, ("",) * 3
)


@pytest.mark.parametrize(
    "answer, allowed, reason",
    [
        (adds_two, {}, "launches"),
        (adds_two, {"launches": 2}, "memory"),
        (adds_two, {"launches": 2, "buffers": 1}, ""),
        (adds_two, {"launches": None, "buffers": 1}, ""),
        (adds_two_in_place, {"launches": 2}, "stored-twice"),
        (adds_two_in_place, {"launches": 2, "stores": 2}, ""),
        (adds_two_to_a_copy, {"launches": 2, "buffers": 1}, "host"),
        (adds_two_to_a_copy, {"launches": 2, "buffers": 1, "allows": ("clone",)}, ""),
        (adds_two_to_a_copy, {"launches": 2, "buffers": 1, "allows": ("torch.clone",)}, ""),
    ],
)
def test_a_task_says_what_it_allows(answer, allowed, reason):
    verdict = judge(replace(ADD_TWO, **allowed), answer)
    assert verdict.reason == reason, str(verdict)


@pytest.mark.parametrize("allowed, reason", [({"reads": {"x": 2}}, ""), ({"shared": ("x",)}, "read-twice")])
def test_an_input_is_read_as_often_as_its_task_allows(tmp_path, allowed, reason):
    again = edited(tmp_path, "silu", "x * tl.sigmoid(x)", f"x * tl.sigmoid({AGAIN})")
    assert judge(replace(find_task("silu"), **allowed), again).reason == reason


# The pieces


def test_lanes_of_one_access_count_once_and_accesses_add_up():
    visits = Visits(4)
    visits.add(np.array([0, 0, 1]), np.array([0, 0, 0]))
    visits.add(np.array([1, 1, 2]), np.array([1, 1, 0]))
    assert visits.times().tolist() == [1, 2, 1, 0]
    assert visits.visitors(1) == [0, 1] and visits.visitors(3) == []
    assert visits.busiest(np.array([1, 1]))["times"] == 1
    visits.add(np.array([2]), np.array([0]))
    assert visits.busiest(np.array([1, 1])) == {"times": 2, "blocks": 1, "program": 0, "element": 2}
    assert visits.busiest(np.array([3, 1])) == {"times": 1, "blocks": 1, "program": 1, "element": 1}
    assert Visits(4).busiest(np.array([1])) == {}


def counted_launch(x, answer):
    """Return the inputs and the trace of an answer called on one tensor."""
    inputs = LiveInputs(freeze((x,)))
    with trace(values=False) as log:
        answer(*inputs.arguments)
    return inputs, log


def test_elements_that_share_an_address_may_each_be_loaded():
    inputs, log = counted_launch(torch.ones(1).expand(32), adds_two)
    (loads,) = count_loads(inputs, log)
    assert loads["loaded"] and loads["times"] is None and loads["beyond"] == {}


def test_tensors_that_share_their_memory_are_not_counted():
    inputs = LiveInputs(freeze((torch.ones(64), torch.ones(64))))
    base = torch.ones(64)
    shared = LiveInputs(freeze((base[:32], base[32:])))
    _, log = counted_launch(torch.ones(32), adds_two)
    assert [loads["position"] for loads in count_loads(inputs, log)] == [0, 1]
    assert count_loads(shared, log) == []


def test_memory_is_told_by_its_use():
    inputs, log = counted_launch(torch.ones(32), adds_two_in_place)
    uses = [(use["use"], use["elements"], use["name"]) for use in count_memory(inputs, set(), set(), log)]
    assert uses == [("stored", 32, "out_ptr"), ("reread", 32, "x_ptr")]
    assert blocks_stored(log.launches[0]).tolist() == [1, 1]


@triton.jit
def rows_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, 4)[:, None], tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + 8 * rows + columns, mask=columns < 5 + rows, other=0)
    tl.store(out_ptr + 8 * rows + columns, x)


def test_the_widest_load_is_that_of_a_row_and_the_widest_store_is_that_of_a_block():
    _, log = counted_launch(torch.ones(32), lambda x: rows_kernel[(2,)](x, torch.empty(32), BLOCK=8))
    assert {access["kind"]: access["elements"] for access in widest_accesses(log)} == {"load": 8, "store": 32}


def test_an_argument_decides_only_where_the_result_follows_from_it():
    def make(generator):
        return torch.randn(8, generator=generator, device=DEVICE), torch.randn(8, generator=generator, device=DEVICE)

    task = replace(ADD_TWO, reference=lambda x, y: x.where(y == y, y), cases=(Case("", make),))
    assert pose(task, task.cases[0], 0).decisive == (0,)
