"""The checker, tested with answers that must pass and answers that must fail, each for its own reason."""

import inspect
import linecache
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from lab import check as checking
from lab import compiler
from lab.check import judge
from lab.check.diagnose import guess_by_place, guess_input, guess_transposed
from lab.check.executor import TimedOut, executor_for
from lab.check.finding import Finding
from lab.check.hypotheses import explains, guess_mistake, other_inputs, other_layouts
from lab.check.inputs import LiveInputs, freeze
from lab.check.question import excess_of, expect, pose
from lab.check.rerun import ALMOST_RIGHT
from lab.check.runner import Evidence, HostWatch, Result
from lab.check.verdict import Verdict, in_common, most_telling
from lab.device import DEVICE, ON_CPU
from lab.task import Case, Task

import triton  # isort: skip
import triton.language as tl  # isort: skip
from triton.tools.tensor_descriptor import TensorDescriptor  # isort: skip

on_cpu = pytest.mark.skipif(not ON_CPU, reason="the trace and the child process are for the CPU only")
on_gpu = pytest.mark.skipif(ON_CPU, reason="needs a CUDA GPU")

BLOCK = 32
MEMORY = {}


def randn(generator, *shape, dtype=torch.float32):
    return torch.randn(*shape, generator=generator, device=DEVICE).to(dtype)


def vectors(n, dtype=torch.float32):
    return lambda g: (randn(g, n, dtype=dtype), randn(g, n, dtype=dtype), 2.5)


SCALE_ADD = Task(
    name="scale_add",
    title="alpha * x + y",
    reference=lambda x, y, alpha: alpha * x + y,
    cases=(
        Case("exactly full", vectors(64), programs=2),
        Case("masked tail", vectors(100), programs=2),
        Case("half precision", vectors(40, torch.bfloat16)),
        Case("empty", vectors(0)),
    ),
    points=1,
    hints=("", "", ""),
)
COPY = Task(
    name="copy",
    title="a contiguous copy of a matrix",
    reference=lambda x: x.clone(memory_format=torch.contiguous_format),
    cases=(
        Case("contiguous", lambda g: (randn(g, 5, 7),)),
        Case("transposed", lambda g: (randn(g, 6, 4).t(),)),
        Case("expanded", lambda g: (randn(g, 1, 4).expand(3, 4),)),
        Case("past 2**31", lambda g: (far_apart(g),)),
    ),
    points=1,
    hints=("", "", ""),
)
TOTAL = Task(
    name="total",
    title="the sum of a vector of whole numbers",
    reference=lambda x: x.sum().reshape(1),
    cases=(Case("two blocks", lambda g: (torch.randint(0, 9, (64,), generator=g, device=DEVICE).float(),)),),
    points=1,
    hints=("", "", ""),
)


def far_apart(generator):
    """Return 2 × 16 bytes whose second row begins past 2**31; the bytes between are never touched."""
    x = torch.empty(2**31 + 64, dtype=torch.int8, device=DEVICE).as_strided((2, 16), (2**31 + 8, 1))
    return x.copy_(torch.randint(-9, 9, (2, 16), generator=generator, device=DEVICE))


@triton.jit
def scale_add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y, mask=mask)


def scale_add(x, y, alpha):
    out = torch.empty_like(x)
    if x.numel():
        scale_add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), alpha, BLOCK=BLOCK)
    return out


@triton.jit
def copy_kernel(x_ptr, out_ptr, M, N, stride_m, stride_n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_m + offs * stride_n, mask=offs < N)
    tl.store(out_ptr + row * N + offs, x, mask=offs < N)


def copy(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    copy_kernel[(x.shape[0],)](x, out, *x.shape, *x.stride(), BLOCK=16)
    return out


@triton.jit
def total_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + offs)))


def total(x):
    out = torch.zeros(1, device=x.device)
    total_kernel[(x.numel() // BLOCK,)](x, out, BLOCK=BLOCK)
    return out


@pytest.mark.parametrize("task, answer", [(SCALE_ADD, scale_add), (COPY, copy), (TOTAL, total)])
def test_right_answers_pass(task, answer):
    verdict = judge(task, answer)
    assert verdict.passed, str(verdict)
    assert str(verdict) == f"{task.name}: {len(task.cases)} of {len(task.cases)} cases pass"


def cpu_seconds() -> float:
    """Return the CPU time of this process, of those it has waited for, and of the compiler that it keeps."""
    user = system = 0
    if compiler.worker.process:
        facts = Path(f"/proc/{compiler.worker.process.pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
        user, system = map(int, facts[11:13])
    return sum(os.times()[:4]) + (user + system) / os.sysconf("SC_CLK_TCK")


def test_a_verdict_takes_no_more_than_a_second_of_a_core():
    judge(SCALE_ADD, scale_add)  # what is imported and started once is the first verdict's
    seconds = []
    for _ in range(3):
        start = cpu_seconds()
        judge(SCALE_ADD, scale_add)
        seconds.append(cpu_seconds() - start)
    assert min(seconds) < 1


# Answers that must fail


@triton.jit
def unmasked_store(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, alpha * tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask))


@triton.jit
def unmasked_load(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, alpha * tl.load(x_ptr + offs) + tl.load(y_ptr + offs), mask=offs < n)


@triton.jit
def one_short(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n - 1
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + tl.load(y_ptr + offs, mask=mask), mask=mask)


@triton.jit
def no_program_id(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, alpha * tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def no_y(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, alpha * tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@triton.jit
def divides_by_zero(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, (x - x) / (x - x), mask=offs < n)


@triton.jit
def writes_input(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(x_ptr + offs, alpha * tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


@triton.jit
def half_precision(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float16)
    tl.store(out_ptr + offs, alpha * x.to(tl.float32) + tl.load(y_ptr + offs, mask=mask), mask=mask)


@triton.jit
def loop_over_all(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask)
        tl.store(out_ptr + offs, alpha * x + tl.load(y_ptr + offs, mask=mask), mask=mask)


@triton.jit
def raises(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    tl.store(out_ptr + missing_name, alpha)  # noqa: F821


def launching(kernel):
    """Return the host function that launches a kernel over the blocks of its output."""

    def answer(x, y, alpha):
        out = torch.empty_like(x)
        if x.numel():
            kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), alpha, BLOCK=BLOCK)
        return out

    return answer


def one_program(x, y, alpha):
    out = torch.empty_like(x)
    loop_over_all[(1,)](x, y, out, x.numel(), alpha, BLOCK=BLOCK)
    return out


def small_grid(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(x.numel() // BLOCK,)](x, y, out, x.numel(), alpha, BLOCK=BLOCK)
    return out


def overwrites(x, y, alpha):
    out = launching(no_y)(x, y, alpha)
    return out.copy_(alpha * x + y)


def overwrites_through_numpy(x, y, alpha):
    out = launching(no_y)(x, y, alpha)
    out.numpy()[:] = alpha * x.numpy() + y.numpy()
    return out


def falls_back(x, y, alpha):
    try:
        return launching(raises)(x, y, alpha)
    except Exception:
        return alpha * x + y


def remembers(x, y, alpha):
    key = (x.data_ptr(), x.numel())
    if key not in MEMORY:
        MEMORY[key] = scale_add(x, y, alpha)
    return MEMORY[key]


def reuses_output(x, y, alpha):
    out = MEMORY.setdefault(("out", x.numel(), x.dtype), torch.empty_like(x))
    scale_add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), alpha, BLOCK=BLOCK)
    return out


def edits_input(x, y, alpha):
    x.zero_()
    y.zero_()
    return scale_add(x, y, alpha)


class Agreeable(torch.Tensor):
    """A tensor that equals everything."""

    def __eq__(self, other):
        return torch.ones(self.shape, dtype=torch.bool)


def loops(x, y, alpha):
    while True:
        pass


def segfaults(x, y, alpha):
    os.kill(os.getpid(), signal.SIGSEGV)


WRONG = {
    "not a function": (3, "not-callable", "an int"),
    "no mask on the store": (launching(unmasked_store), "out-of-bounds", "mask"),
    "no mask on the load": (launching(unmasked_load), "out-of-bounds", "mask"),
    "one short": (launching(one_short), "not-written", "one element early"),
    "no program id": (launching(no_program_id), "not-written", "program_id"),
    "grid too small": (small_grid, "not-written", "rounded up"),
    "forgets y": (launching(no_y), "wrong-values", "`y` is missing"),
    "NaN": (launching(divides_by_zero), "not-finite", "nan"),
    "edits x in the kernel": (launching(writes_input), "input-changed", "`x`"),
    "edits x in torch": (edits_input, "input-changed", "`x` and `y`"),
    "lower precision": (launching(half_precision), "wrong-values", "lower precision"),
    "one program": (one_program, "one-program", "side by side"),
    "a name that is nowhere": (launching(raises), "compiler", "missing_name misspelt"),
    "torch": (lambda x, y, alpha: alpha * x + y, "torch", "`mul`"),
    "torch after a failure": (falls_back, "torch", "`mul`"),
    "overwritten": (overwrites, "overwritten", "copy"),
    "overwritten by numpy": (overwrites_through_numpy, "overwritten", "after the last launch"),
    "no launch": (lambda x, y, alpha: torch.empty_like(x), "no-launch", "without launching"),
    "zeros": (lambda x, y, alpha: torch.zeros_like(x), "no-launch", "without launching"),
    "returns nothing": (lambda x, y, alpha: None, "not-a-tensor", "`return` is missing"),
    "subclass": (lambda x, y, alpha: scale_add(x, y, alpha).as_subclass(Agreeable), "not-a-tensor", "Agreeable"),
    "tuple": (lambda x, y, alpha: (scale_add(x, y, alpha),), "not-a-tensor", "1 value"),
    "shape": (lambda x, y, alpha: scale_add(x, y, alpha)[None], "shape", "[1, 64]"),
    "dtype": (lambda x, y, alpha: scale_add(x.double(), y.double(), alpha), "dtype", "float64"),
    "returns x": (lambda x, y, alpha: x, "returns-input", "`x`"),
    "returns a view of y": (lambda x, y, alpha: y[:], "returns-input", "`y`"),
    "remembers": (remembers, "stale", "old result"),
    "reuses its output": (reuses_output, "stale", "same memory"),
    "exits": (lambda x, y, alpha: sys.exit(0), "error", "sys.exit"),
    "exits at once": (lambda x, y, alpha: os._exit(0), "crashed", "exit status 0"),
    "segmentation fault": (segfaults, "crashed", "SIGSEGV"),
}


# What is found without the trace, and the reason given there.
WRONG_ON_GPU = {
    "no mask on the store": "guard",
    "one short": "not-finite",
    "forgets y": "wrong-values",
    "NaN": "not-finite",
    "lower precision": "wrong-values",
    "a name that is nowhere": "compiler",
    "edits x in the kernel": "input-changed",
    "torch": "torch",
    "overwritten": "overwritten",
    "zeros": "no-launch",
    "subclass": "not-a-tensor",
    "dtype": "dtype",
    "returns a view of y": "returns-input",
    "remembers": "stale",
    "exits": "error",
}


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", WRONG_ON_GPU)
def test_a_gpu_finds_what_needs_no_trace(name):
    verdict = judge(SCALE_ADD, WRONG[name][0])
    assert (verdict.passed, verdict.reason) == (False, WRONG_ON_GPU[name]), str(verdict)


def test_the_launch_of_a_kernel_that_was_compiled_before_is_seen():
    def launch_compiled(x, y, alpha):
        out, grid = torch.empty_like(x), (triton.cdiv(x.numel(), BLOCK), 1, 1)
        arguments = (x, y, out, x.numel(), alpha, BLOCK)
        if x.numel():
            scale_add_kernel.warmup(*arguments, grid=grid)[grid](*arguments)
        return out

    verdict = judge(SCALE_ADD, launch_compiled)
    assert verdict.passed, str(verdict)


@on_cpu
@pytest.mark.parametrize("name", WRONG)
def test_wrong_answers_fail_for_their_reason(name):
    answer, reason, words = WRONG[name]
    verdict = judge(SCALE_ADD, answer)
    assert not verdict.passed
    assert verdict.reason == reason, str(verdict)
    assert words.lower() in f"{verdict.message} {verdict.cause}".lower()
    assert words.lower() in " ".join(str(verdict).lower().split())


@on_cpu
def test_an_endless_loop_ends_in_a_verdict():
    start = cpu_seconds()
    assert judge(SCALE_ADD, loops, seconds=0.5).reason == "timeout"
    assert cpu_seconds() - start < 3
    assert judge(SCALE_ADD, scale_add).passed


@on_cpu
def test_the_message_names_case_elements_program_and_line():
    verdict = judge(SCALE_ADD, launching(unmasked_store))
    assert (verdict.case, verdict.cases_passed) == ("masked tail", 2)
    assert "this case fails as well: “half precision”" in str(verdict)
    assert verdict.inputs == "x: float32 [100], y: float32 [100], alpha = 2.5"
    assert "100" in verdict.message and "program 3" in verdict.message
    assert "tl.store(out_ptr + offs, alpha" in verdict.message


@triton.jit
def racing_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.load(out_ptr) + tl.sum(tl.load(x_ptr + offs)))


def racing(x):
    out = torch.zeros(1, device=x.device)
    racing_kernel[(x.numel() // BLOCK,)](x, out, BLOCK=BLOCK)
    return out


@triton.jit
def ticket_kernel(x_ptr, y_ptr, out_ptr, ticket_ptr, n, alpha, BLOCK: tl.constexpr):
    """Each program takes a ticket, and the block of that number."""
    ticket = tl.atomic_add(ticket_ptr, 1)
    offs = ticket * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=offs < n).to(tl.float32)
    late = tl.program_id(0) - ticket
    tl.store(out_ptr + offs, alpha * x + y + late, mask=offs < n)


@on_cpu
def test_a_result_that_depends_on_the_order_of_programs_is_found():
    def answer(x, y, alpha):
        out, ticket = torch.empty_like(x), torch.zeros(1, dtype=torch.int32, device=x.device)
        if x.numel():
            ticket_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, ticket, x.numel(), alpha, BLOCK=BLOCK)
        return out

    verdict = judge(SCALE_ADD, answer)
    assert verdict.reason == "order" and "no before" in verdict.cause, str(verdict)


@triton.jit
def leaves_loop(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(4):
        x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
        y = tl.load(y_ptr + offs, mask=offs < n).to(tl.float32)
        tl.store(out_ptr + offs, alpha * x + y, mask=offs < n)
        break


@on_cpu
def test_what_the_compiler_refuses_is_told_with_the_line_of_the_kernel():
    verdict = judge(SCALE_ADD, launching(leaves_loop))
    assert (verdict.reason, verdict.passed, verdict.cases_passed) == ("compiler", False, 1)  # the empty one
    lines, first = inspect.getsourcelines(leaves_loop.fn)
    line = first + next(number for number, text in enumerate(lines) if "break" in text)
    assert f"test_check.py, line {line}: `break`" in verdict.message and "Break" in verdict.message
    assert verdict.advice == ("What to do", "A GPU loop cannot be left early: put its condition into a mask.")
    assert not any("GPU" in note for note in verdict.notes)  # said once


@triton.jit
def adds_one(x):
    return x + NO_CONSTANT  # noqa: F821


@triton.jit
def asks_a_helper(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    tl.store(out_ptr, adds_one(tl.sum(tl.arange(0, BLOCK), axis=0)))


@triton.jit
def asks_the_library(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.arange(0, BLOCK), axis=1))


@triton.jit
def calls_python(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    tl.store(out_ptr, randn(x_ptr))


REFUSED = {
    "in a helper": (launching(asks_a_helper), "return x + NO_CONSTANT", "misspelt"),
    "in Triton's library": (launching(asks_the_library), "tl.sum(tl.arange(0, BLOCK), axis=1)", "change what it"),
    "of a Python function": (launching(calls_python), "tl.store(out_ptr, randn(x_ptr))", "Mark randn"),
}


@on_cpu
@pytest.mark.parametrize("name", REFUSED)
def test_the_innermost_line_of_the_learners_own_is_named(name):
    answer, code, advice = REFUSED[name]
    verdict = judge(SCALE_ADD, answer)
    assert (verdict.reason, verdict.cases_passed) == ("compiler", 1), str(verdict)
    assert code in verdict.message and advice in verdict.advice[1], str(verdict)


@triton.jit
def needs_too_much_shared_memory(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    pid, lanes = tl.program_id(0), tl.arange(0, 128)
    many = tl.arange(0, 512)
    zeros = tl.load(x_ptr + lanes[:, None] + many[None, :], mask=(lanes[:, None] < 0) & (many[None, :] < 0), other=0)
    product = tl.dot(zeros.to(tl.float32), tl.trans(zeros.to(tl.float32)))
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + y + tl.max(product), mask=offs < n)


@on_cpu
def test_what_only_a_gpu_refuses_fails_when_the_values_are_right():
    verdict = judge(SCALE_ADD, launching(needs_too_much_shared_memory))
    assert (verdict.reason, verdict.passed, verdict.cases_passed) == ("compiler", False, 4), str(verdict)
    assert verdict.message.startswith("the values are right here, but on a GPU, sm_80 would refuse needs_too_much")
    assert "on a GPU, sm_90 would refuse" in verdict.message and "bytes of shared memory" in verdict.message
    assert "change what it refuses" in verdict.advice[1]


@on_cpu
@pytest.mark.parametrize(
    "error, words",
    [
        (EOFError("LLVM ERROR: oh no"), "the compiler itself crashed (LLVM ERROR: oh no)"),
        (TimeoutError(), "still compiling after 60 s"),
    ],
    ids=["crashes", "hangs"],
)
def test_a_compiler_that_comes_to_no_end_costs_a_verdict(monkeypatch, error, words):
    def ask(request, timeout):
        raise error

    monkeypatch.setattr(compiler.worker, "ask", ask)
    verdict = judge(SCALE_ADD, scale_add)
    assert (verdict.reason, verdict.cases_passed) == ("compiler", 4)
    assert words in verdict.message and "sm_80 and sm_90" in verdict.message


@on_cpu
def test_a_kernel_comes_back_once_to_be_compiled():
    inputs = freeze((torch.ones(100), torch.ones(100), 2.0))
    with executor_for(scale_add, (), 10.0, isolate=True) as executor:
        sent = [[packed["name"] for packed in executor.run(inputs).kernels] for _ in range(2)]
        assert sent == [["scale_add_kernel"], []]
        assert executor.objections() == []


@on_cpu
def test_sums_across_programs_without_atomics_are_a_race():
    verdict = judge(TOTAL, racing)
    assert verdict.reason == "race" and "atomic_add" in verdict.cause


@triton.jit
def contiguous_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


def ignores_strides(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    contiguous_kernel[(1,)](x, out, x.numel(), BLOCK=64)
    return out


def test_ignored_strides_are_named():
    verdict = judge(COPY, ignores_strides)
    assert (verdict.reason, verdict.case) == ("wrong-values", "transposed")
    assert "side by side" in verdict.cause and "[1, 4]" in verdict.cause


@triton.jit
def narrow_kernel(x_ptr, out_ptr, N, stride_m, stride_n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    start = row * stride_m.to(tl.int32)
    tl.store(out_ptr + row * N + offs, tl.load(x_ptr + start + offs, mask=offs < N), mask=offs < N)


def narrow_offsets(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    narrow_kernel[(x.shape[0],)](x, out, x.shape[1], *x.stride(), BLOCK=16)
    return out


@on_cpu
def test_offsets_of_32_bits_are_named():
    task = Task("copy", "", COPY.reference, COPY.cases[-1:], 1, ("", "", ""))
    verdict = judge(task, narrow_offsets)
    assert verdict.reason == "int32-overflow", str(verdict)


def one_case(reference, make):
    """Return a task of a single case."""
    return Task("one_case", "", reference, (Case("", make),), 1, ("", "", ""))


@triton.jit
def nothing_then_squares(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    squares = tl.where(offs % BLOCK == BLOCK - 1, x, x * x)  # the last of each program is right
    tl.store(out_ptr + offs, tl.where(offs < BLOCK, 0.0, squares), mask=offs < n)


@on_cpu
@pytest.mark.parametrize("n", [2 * BLOCK, 4 * BLOCK])
def test_a_program_that_is_right_because_nothing_is_right_there_is_no_clue(n):
    def reference(x, y, alpha):
        return x.where(torch.arange(n, device=x.device) >= BLOCK, 0)

    verdict = judge(one_case(reference, vectors(n)), launching(nothing_then_squares))
    assert (verdict.reason, verdict.cause) == ("wrong-values", "")
    assert 'hint("one_case")' in str(verdict)


@triton.jit
def loads_the_first_block(x_ptr, out_ptr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + lanes, tl.load(x_ptr + lanes))


@on_cpu
def test_a_program_that_is_right_for_a_reason_is_a_clue():
    def answer(x):
        out = torch.empty_like(x)
        loads_the_first_block[(4,)](x, out, BLOCK=BLOCK)
        return out

    verdict = judge(one_case(lambda x: x.clone(), lambda g: (randn(g, 4 * BLOCK),)), answer)
    assert "every program reads elements 0 to 31 along axis 0 of `x`" in verdict.cause


@on_cpu
def test_an_old_result_that_is_right_by_luck_was_not_kept():
    def make(generator):
        x = torch.zeros(1, device=DEVICE)
        return x, x + (1 if generator.initial_seed() else -1), 2.5

    verdict = judge(one_case(lambda x, y, alpha: y.relu(), make), launching(no_y))
    assert verdict.reason == "wrong-values", str(verdict)


@on_cpu
def test_a_result_that_was_kept_is_stale_even_if_it_never_changes():
    zeros = one_case(SCALE_ADD.reference, lambda g: (torch.zeros(8, device=DEVICE), torch.zeros(8, device=DEVICE), 2.5))
    assert judge(zeros, remembers).reason == "stale"


@on_cpu
def test_a_wrong_result_of_no_dimension_is_judged():
    def answer(x):
        out = torch.zeros((), device=x.device)
        total_kernel[(1,)](x, out, BLOCK=BLOCK)
        return out

    verdict = judge(one_case(lambda x: x.sum(), lambda g: (randn(g, 2 * BLOCK),)), answer)
    assert verdict.reason == "wrong-values", str(verdict)


def test_blanks_are_named_without_running(tmp_path):
    file = tmp_path / "answer.py"
    file.write_text(
        "import triton.language as tl\nimport triton\n@triton.jit\ndef kernel(x_ptr, n):\n    # ____ in a comment\n"
        "    offs = ____ + tl.arange(0, 4)\n    tl.store(x_ptr, mask=____)\n\n"
        "def answer(x, y, alpha):\n    kernel[(____,)](x)\n\ndef empty(x):\n    '''Not yet.'''\n    pass\n"
    )
    names = {"__name__": "answer"}
    exec(compile(file.read_text(), str(file), "exec"), names)
    verdict = judge(SCALE_ADD, names["answer"])
    assert verdict.reason == "blank"
    assert [f"line {n}" in verdict.message for n in (4, 5, 6, 7, 10)] == [False, False, True, True, True]
    assert judge(SCALE_ADD, names["empty"]).reason == "blank"


@pytest.mark.parametrize("file", ["answer.py", "/tmp/ipykernel_7/1234.py"], ids=["file", "cell"])
def test_blanks_of_a_kernel_are_named_though_the_host_function_is_one_blank(tmp_path, monkeypatch, file):
    source = "def answer_kernel(x_ptr):\n    ____\n\n\ndef answer(x, y, alpha):\n    ____\n"
    others = "def answer_of_before():\n    ____\n"
    names = {"__name__": "answer"}
    for name, text in ((str(tmp_path / file), source), ("<another cell>", others)):
        monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(keepends=True), name))
        exec(compile(text, name, "exec"), names)
    verdict = judge(SCALE_ADD, names["answer"])
    assert verdict.message.startswith("2 lines with blanks are still to be filled in:"), str(verdict)
    assert "line 2: `____`" in verdict.message and "line 6: `____`" in verdict.message


CELLS = {  # what a learner runs after a cell that is right, whether in a notebook's kernel, and what the check says
    "a syntax error": ("def answer(x:\n    return x\n", "its last run ended in an error"),
    "a syntax error in the kernel": ("@jit\ndef answer_kernel(x):\n    return (x\n", "`answer_kernel` is still"),
    "an error before the function": ("nothing_of_that_name\ndef answer(x):\n    return x\n", "`answer` is still"),
    "another cell with an error": ("def another(x:\n", "passed"),
    "an error, then a right cell": ("def answer(x:\n", "passed"),
    "the function by its other name": ("def answer(x):\n    return 1\nanswer = first\n", "passed"),
}
FIRST_CELL = "def answer_kernel(x):\n    return x\ndef answer(x):\n    return answer_kernel(x)\nfirst = answer\n"
JUDGED = """
from lab.check.blanks import before_running
found = before_running(answer)
print(found.message if found else 'passed')
"""
IN_SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.history_manager.enabled = False
for cell in {cells!r}:
    shell.run_cell(cell, store_history=True)
"""


@pytest.mark.parametrize("name", CELLS)
def test_an_answer_whose_cell_did_not_run_is_not_judged(name):
    second, words = CELLS[name]
    again = [FIRST_CELL] if name == "an error, then a right cell" else []
    script = IN_SHELL.format(cells=[FIRST_CELL, second, *again, JUDGED])
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2]
    )
    assert words in done.stdout.splitlines()[-1], done.stdout + done.stderr


@on_cpu
def test_what_the_answer_prints_is_kept_and_fails_nothing(capfd):
    def chatty(x, y, alpha):
        print("hello <b>")
        warnings.warn("beware", stacklevel=1)
        os.write(1, b"from below\n")
        return scale_add(x, y, alpha)

    assert judge(SCALE_ADD, chatty).passed
    verdict = judge(SCALE_ADD, lambda x, y, alpha: print("hello <b>"))
    assert "hello <b>" in str(verdict) and "hello &lt;b&gt;" in verdict._repr_html_()
    assert capfd.readouterr() == ("", "")


@on_cpu
def test_forking_beside_threads_warns_nobody():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert judge(SCALE_ADD, scale_add).passed


@on_cpu
def test_in_process_gives_the_same_verdicts():
    assert judge(SCALE_ADD, scale_add, isolate=False).passed
    assert judge(SCALE_ADD, launching(unmasked_store), isolate=False).reason == "out-of-bounds"
    assert judge(SCALE_ADD, lambda x, y, alpha: alpha * x + y, isolate=False).reason == "torch"


def test_html_is_escaped_and_stands_alone():
    verdict = Verdict("t", False, 0, 1, reason="error", message="a < b & `c > d`", case="<i>")
    text = verdict._repr_html_()
    assert "A &lt; b &amp; <code>c &gt; d</code>" in text and "&lt;i&gt;" in text and "<i>" not in text


def test_a_wrong_value_comes_with_its_picture():
    assert "<svg" in judge(SCALE_ADD, launching(no_y))._repr_html_()


# As on a GPU


@triton.jit
def plain_words(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs >= 0) and (offs < n)
    x = tl.load(x_ptr + offs, mask=not (offs >= n)).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask or (offs < 0)).to(tl.float32)
    out = alpha * x + y
    tl.store(out_ptr + offs, min(out, 0.0) + max(out, 0.0), mask=mask)


@triton.jit
def wrong_words(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs >= n) or (offs < n - 1)
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, alpha * x + tl.load(y_ptr + offs, mask=mask), mask=mask)


@triton.jit
def sums_what_it_may_not_read(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=offs < n).to(tl.float32)
    nothing = tl.sum(x, axis=0) * 0.0
    tl.store(out_ptr + offs, alpha * x + y + nothing, mask=offs < n)


def made_inside(x, y, alpha):
    SHIFT: tl.constexpr = tl.constexpr(0.5)

    @triton.jit
    def unshifted(value):
        return value - SHIFT

    @triton.jit
    def inner_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
        offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
        y = tl.load(y_ptr + offs, mask=offs < n).to(tl.float32)
        tl.store(out_ptr + offs, unshifted(alpha * x + y + SHIFT), mask=offs < n)

    return launching(inner_kernel)(x, y, alpha)


def misspells_an_option(x, y, alpha):
    out = torch.empty_like(x)
    scale_add_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), alpha, BLOCK=BLOCK, num_warp=8)
    return out


@triton.jit
def table_kernel(table_ptr, dtype_ptr, n, alpha, BLOCK: tl.constexpr, SHARED: tl.constexpr):
    to: tl.constexpr = tl.pointer_type(dtype_ptr.dtype.element_ty)
    x_ptr, y_ptr = tl.load(table_ptr).to(to), tl.load(table_ptr + 1).to(to)
    out_ptr = tl.load(table_ptr + 2).to(to)
    begin = tl.program_id(0) * BLOCK
    offs = begin + tl.arange(0, 2 * BLOCK if SHARED else BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=offs < n).to(tl.float32)
    tl.store(out_ptr + offs, tl.where(offs < begin + BLOCK, alpha * x + y, 0.0), mask=offs < n)


def by_addresses(x, y, alpha, shared=False):
    out = torch.empty_like(x)
    table = torch.tensor([tensor.data_ptr() for tensor in (x, y, out)], device=x.device)
    if x.numel():
        grid = (triton.cdiv(x.numel(), BLOCK),)
        table_kernel[grid](table, x, x.numel(), alpha, BLOCK=BLOCK, SHARED=shared)
    return out


def by_addresses_then_numpy(x, y, alpha):
    out = by_addresses(x, y, 0.0)
    out.numpy()[:] = alpha * x.numpy() + y.numpy()
    return out


@on_cpu
@pytest.mark.parametrize("answer", [launching(plain_words), made_inside, by_addresses])
def test_what_a_gpu_takes_passes(answer):
    verdict = judge(SCALE_ADD, answer)
    assert verdict.passed, str(verdict)


NOT_ON_A_GPU = {
    "`or` of blocks": (launching(wrong_words), "not-written", "one element early"),
    "sums masked lanes": (launching(sums_what_it_may_not_read), "not-finite", "masked lanes of a load hold anything"),
    "an option that is none": (misspells_an_option, "compiler", "num_warp is neither a parameter"),
    "a race by addresses": (lambda x, y, alpha: by_addresses(x, y, alpha, shared=True), "race", "no argument"),
    "overwritten after addresses": (by_addresses_then_numpy, "overwritten", "after the last launch"),
}


@on_cpu
@pytest.mark.parametrize("name", NOT_ON_A_GPU)
def test_what_a_gpu_does_not_forgive_fails(name):
    answer, reason, words = NOT_ON_A_GPU[name]
    verdict = judge(SCALE_ADD, answer)
    assert (verdict.passed, verdict.reason) == (False, reason), str(verdict)
    assert words in f"{verdict.message} {verdict.cause}"


# Causes that evidence supports


@triton.jit
def exponential_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    e = tl.exp(tl.load(x_ptr + offs, mask=offs < n))
    tl.store(out_ptr + offs, e / (1 + e), mask=offs < n)


@triton.jit
def times_zero_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x * (x > 0).to(tl.float32), mask=offs < n)


@triton.jit
def nothing_over_nothing_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    seen = tl.where(offs >= BLOCK, 1.0, 0.0)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) * seen / seen, mask=offs < n)


@triton.jit
def adds_to_nothing_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(out_ptr + offs, mask=offs < n) + tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, total, mask=offs < n)


@triton.jit
def sums_masked_lanes_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out_ptr + row, tl.sum(tl.load(x_ptr + row * n + offs, mask=offs < n)))


@triton.jit
def skips_the_last_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out_ptr + row, tl.sum(tl.load(x_ptr + row * n + offs, mask=offs < n - 2, other=0)))


@triton.jit
def largest_or_zero_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out_ptr + row, tl.max(tl.load(x_ptr + row * n + offs, mask=offs < n, other=0)))


@triton.jit
def softplus_as_it_stands_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.log(1 + tl.exp(tl.load(x_ptr + offs, mask=offs < n))), mask=offs < n)


@triton.jit
def uses_nothing_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, tl.where(x == x, 0.0, x), mask=offs < n)


def elementwise(kernel):
    """Return the host function that launches a kernel over the elements of x."""

    def answer(x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
        return out

    return answer


def by_rows(kernel):
    """Return the host function that launches a kernel with a program for each row of x."""

    def answer(x, *others):
        out = torch.empty(len(x), device=x.device)
        kernel[(len(x),)](x, out, x.shape[1], BLOCK=BLOCK)
        return out

    return answer


def with_infinities(generator):
    x = randn(generator, 40)
    x[::5] = -float("inf")
    return (x,)


def ahead(x):
    return x.where(torch.arange(len(x), device=x.device) >= BLOCK, 0)


LANES = "masked lanes of a load hold anything"
CAUSES = {  # reference, inputs, answer → words of the cause, and words that would be false
    "an exponential overflows": (
        lambda x: x.sigmoid(),
        lambda g: (200 * randn(g, 100),),
        elementwise(exponential_kernel),
        "`tl.exp` is inf above 88.7",
        LANES,
    ),
    "zero times infinity": (
        lambda x: x.relu(),
        with_infinities,
        elementwise(times_zero_kernel),
        "it is finite when `x` is",
        LANES,
    ),
    "nothing is seen": (
        ahead,
        lambda g: (randn(g, 100),),
        elementwise(nothing_over_nothing_kernel),
        "0 is right there whatever the inputs hold",
        LANES,
    ),
    "nothing is seen where something is right": (
        lambda x: x.clone(),
        lambda g: (randn(g, 100),),
        elementwise(nothing_over_nothing_kernel),
        "which is it here?",
        LANES,
    ),
    "the output is read": (
        lambda x: x.clone(),
        lambda g: (randn(g, 100),),
        elementwise(adds_to_nothing_kernel),
        "the output is read before it is written",
        LANES,
    ),
    "masked lanes are summed": (
        lambda x: x.sum(1),
        lambda g: (randn(g, 3, 20),),
        by_rows(sums_masked_lanes_kernel),
        LANES,
        "which is it here?",
    ),
    "the last elements are not read": (
        lambda x: x.sum(1),
        lambda g: (randn(g, 3, 20),),
        by_rows(skips_the_last_kernel),
        "6 of 60 elements ((0, 18), (0, 19), (1, 18), (1, 19), …) of `x` were read by no program",
        "end of the offsets and the mask",
    ),
    "an argument is not loaded": (
        lambda x, y: (x * y).sum(1),
        lambda g: (randn(g, 3, 20), randn(g, 20)),
        by_rows(skips_the_last_kernel),
        "`y` is loaded by no program",
        "offsets",
    ),
    "every element is too small": (
        lambda x: x.exp().log1p(),
        lambda g: (-20 - randn(g, 40).abs(),),
        elementwise(softplus_as_it_stands_kernel),
        "",
        "does the kernel use what it loads",
    ),
    "every element is too small to stand one place beside": (
        lambda x: x.exp().log1p(),
        lambda g: (-20 - randn(g, 40).abs(),),
        elementwise(softplus_as_it_stands_kernel),
        "",
        "one place beside",
    ),
    "every element is 0": (
        lambda x: x.exp(),
        lambda g: (randn(g, 40),),
        elementwise(uses_nothing_kernel),
        "the result is 0 everywhere, whatever the inputs hold",
        "is missing",
    ),
    "a masked lane is the largest": (
        lambda x: x.amax(1),
        lambda g: (-randn(g, 3, 20).abs(),),
        by_rows(largest_or_zero_kernel),
        "does the 0 of a masked lane win?",
        "does the kernel use what it loads",
    ),
}


@on_cpu
@pytest.mark.parametrize("name", CAUSES)
def test_a_cause_is_told_where_evidence_supports_it(name):
    reference, make, answer, words, false_words = CAUSES[name]
    verdict = judge(one_case(reference, make), answer)
    assert verdict.reason in ("wrong-values", "not-finite")
    told = f"{verdict.cause} {verdict.known}"
    assert words in told and false_words not in told, str(verdict)


@triton.jit
def every_fault_kernel(x_ptr, out_ptr, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    out = tl.exp(x)
    if FAULT == "another formula that is close":
        out = out * (1 + 0.001 * x)
    elif FAULT == "few digits":
        out = out.to(tl.bfloat16).to(tl.float32)
    elif FAULT == "another way above a limit":
        out = tl.where(x > 1, 1.1 * out, out)
    elif FAULT == "an error that grows":
        out = out * (1 + tl.where(x > 0, 2e-5 * x, 0.0))
    elif FAULT == "the wrong sign":
        out = -out
    elif FAULT == "half":
        out = 0.5 * out
    elif FAULT == "a sum that looks like a factor":
        out = 1.04 * out + 0.01 * tl.where(offs % 2 == 0, out, 0.0)
    elif FAULT == "0 below 0":
        out = tl.where(x > 100, out, 0.0)
    tl.store(out_ptr + offs, out, mask=offs < n)


FAULTS = {  # what is wrong → words of the cause, "" where none is known
    "another formula that is close": "",
    "few digits": ALMOST_RIGHT,
    "another way above a limit": "what is wrong is where `x` is 1",
    "an error that grows": "",
    "the wrong sign": "every element has the wrong sign",
    "half": "every element is 0.5 times what it should be",
    "a sum that looks like a factor": "",
    "0 below 0": "the result is 0 everywhere, whatever the inputs hold",
}


@on_cpu
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_values_is_told_from_others_like_it(fault):
    def answer(x):
        out = torch.empty_like(x)
        every_fault_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), fault, BLOCK=BLOCK)
        return out

    verdict = judge(one_case(lambda x: x.exp(), lambda g: (2 * randn(g, 100),)), answer)
    assert verdict.reason == "wrong-values"
    assert verdict.cause.startswith(FAULTS[fault]) and bool(verdict.cause) == bool(FAULTS[fault]), str(verdict)


def test_nan_alone_explains_nothing():
    nan = torch.full((6,), float("nan"))
    some = torch.tensor([1.0, 2.0, float("nan"), 4.0, float("nan"), 6.0])
    right = torch.arange(1.0, 7.0)
    expected = expect(right, right.double(), 2 * right.double())
    assert not explains(nan.double(), expected, nan)
    assert not explains(some.double(), expected, some)  # what is finite is right
    assert explains(-some.double(), expected, -some)


def test_a_case_in_which_all_is_alike_is_not_shown_first():
    def questions(*makes):
        return [pose(one_case(lambda x: x.clone(), make), Case("", make), 0) for make in makes]

    def told(*makes):
        findings = [Finding("wrong-values", str(i), "", diagnose=lambda: "a cause") for i in range(len(makes))]
        return most_telling(list(zip(questions(*makes), findings, strict=True)))[0].message

    constant, single, narrow, clear = (
        lambda g: (torch.ones(4, 4, device=DEVICE),),
        lambda g: (randn(g, 1, 4),),
        lambda g: (randn(g, 4, 4, dtype=torch.bfloat16),),
        lambda g: (randn(g, 4, 4),),
    )
    assert told(constant, single, narrow, clear) == "3"
    assert told(constant, single, narrow) == "2"


def test_what_the_cases_that_fail_have_in_common_is_known():
    def cases(*shapes, dtype=torch.float32):
        makes = [lambda g, shape=shape: (randn(g, *shape, dtype=dtype),) for shape in shapes]
        return [pose(one_case(lambda x: x.sum(1), make), Case("", make), 0) for make in makes]

    short, long = cases((3, 20), (5, 32)), cases((3, 33), (4, 100))
    assert in_common(long, short).startswith("every case in which axis 1 of `x` has up to 32 elements passes")
    assert in_common(long, cases((3, 50))) == ""
    narrow = cases((3, 20), (5, 32), dtype=torch.bfloat16)
    assert in_common(narrow, short) == "all cases of bfloat16 fail, and all others pass."


@on_cpu
def test_what_torch_has_read_for_a_kernel_is_not_called_unread():
    def answer(x, y):
        return by_rows(skips_the_last_kernel)(x.clone())

    make = CAUSES["an argument is not loaded"][1]
    verdict = judge(one_case(lambda x, y: x.sum(1), make), answer)
    assert verdict.reason == "wrong-values" and "read by no program" not in verdict.cause, str(verdict)


@triton.jit
def limited_kernel(x_ptr, out_ptr, n, low, high, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, tl.maximum(tl.minimum(x, low), high), mask=offs < n)


@on_cpu
def test_a_result_that_is_an_argument_everywhere_names_it():
    def answer(x, low, high):
        out = torch.empty_like(x)
        limited_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), low, high, BLOCK=BLOCK)
        return out

    task = one_case(lambda x, low, high: x.clamp(low, high), lambda g: (randn(g, 40), -1.0, 2.0))
    verdict = judge(task, answer)
    assert "every element is 2, which is `high`" in verdict.cause, str(verdict)


@on_cpu
def test_a_reply_that_comes_late_is_not_the_next_ones():
    def sleeps(x):
        time.sleep(0.6)
        return x

    inputs = freeze((torch.ones(4),))
    with executor_for(sleeps, (), 0.3, isolate=True) as executor:
        for _ in range(2):
            with pytest.raises(TimedOut):
                executor.run(inputs)
            time.sleep(0.5)


# Results of the wrong form

HALVES = one_case(lambda x: (x.clone(), x.sum(1).int()), lambda g: (torch.ones(4, 8, device=DEVICE),))
ALIKE = one_case(lambda x, y: (2 * x, 3 * y), lambda g: (randn(g, 40), randn(g, 40)))
TWO = "the task returns 2 tensors, in this order: here float32 [4, 8] and int32 [4]."
FORMS = {  # task, answer → reason, words of the message, and words of the cause
    "one of two": (HALVES, lambda x: x.clone(), "not-a-tensor", "2 tensors must come back", TWO),
    "two places changed": (HALVES, lambda x: (x.sum(1).int(), x.clone()), "shape", "have changed places", TWO),
    "the dtype of no input": (
        HALVES,
        lambda x: (x.clone(), x.sum(1)),
        "dtype",
        "result 2 of 2 is float32; int32 is right",
        "`dtype=torch.int32`, which no input has here",
    ),
    "the dtype of an input": (
        SCALE_ADD,
        lambda x, y, alpha: scale_add(x.double(), y.double(), alpha),
        "dtype",
        "the result is float64",
        "`dtype=torch.float32`, which `x` and `y` have here",
    ),
    "the shape asked for": (HALVES, lambda x: (x.clone(), x.int()), "shape", "result 2 of 2", "the task asks for [4]"),
    "a tuple of one": (SCALE_ADD, lambda x, y, alpha: (x,), "not-a-tensor", "1 value", "one tensor, here float32 [64]"),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_form_that_the_task_asks_for_is_named(name):
    task, answer, reason, words, cause = FORMS[name]
    verdict = judge(task, answer)
    assert (verdict.reason, verdict.advice[0]) == (reason, "What to do")
    assert words in verdict.message and cause in verdict.cause, str(verdict)


@on_cpu
def test_two_results_alike_that_have_changed_places_are_named():
    def answer(x, y):
        return scale_add(y, y, 2.0), scale_add(x, x, 1.0)

    verdict = judge(ALIKE, answer)
    assert "result 1 of 2 holds what belongs into result 2" in verdict.cause, str(verdict)


# The pieces


def test_frozen_inputs_keep_strides_offsets_and_shared_memory():
    base = torch.arange(24.0).reshape(4, 6)
    live = LiveInputs(freeze([base[1:, ::2], base.t(), base[:1].expand(3, 6), 7])).arguments
    assert torch.equal(live[0], base[1:, ::2]) and live[0].stride() == (6, 2)
    assert torch.equal(live[1], base.t()) and live[2].stride() == (0, 1) and live[3] == 7
    live[1].fill_(5)
    assert (live[0] == 5).all() and (base == torch.arange(24.0).reshape(4, 6)).all()


def test_a_changed_byte_outside_the_view_is_noticed():
    inputs = LiveInputs(freeze([torch.zeros(8)[::2], torch.zeros(3)]))
    assert inputs.changed() == []
    inputs.arguments[0].as_strided((8,), (1,), inputs.arguments[0].storage_offset())[1] = 1
    assert inputs.changed() == [0]


def test_the_budget_lets_roundings_through_and_nothing_else():
    exact = torch.tensor([1.0, 1000.0, float("inf"), float("nan")], dtype=torch.float64)
    expected = expect(exact.float(), exact, exact)
    one_step = torch.nextafter(exact.float(), torch.tensor(9e9))
    assert (excess_of(expected, one_step)[:2] == 0).all()
    assert not (excess_of(expected, exact.float() * (1 + 1e-5))[:2] == 0).any()
    assert (excess_of(expected, exact.float())[2:] == 0).all()
    assert not (excess_of(expected, torch.tensor([float("nan")] * 3 + [1.0])) == 0).any()


def test_another_order_of_summation_is_no_mistake_but_ten_roundings_are():
    task = Task("three", "", lambda x, y, z: x + y + z, (), 1, ("", "", ""))
    question = pose(task, Case("", lambda g: tuple(randn(g, 5000) for _ in range(3))), 0)
    x, y, z = LiveInputs(question.inputs).arguments
    assert (excess_of(question.expected[0], (x + (y + z)).cpu()) == 0).all()
    rounding = 2**-23 * (x.abs() + y.abs() + z.abs())
    assert not (excess_of(question.expected[0], (x + y + z + 10 * rounding).cpu()) == 0).any()


def test_an_element_where_torch_was_lucky_is_no_stricter_than_the_rest():
    exact = torch.tensor([1.0, 1e-6], dtype=torch.float64)
    rounded = exact.float().double()
    expected = expect(exact.float(), rounded, rounded)  # no error of PyTorch's, no roundings
    assert (excess_of(expected, exact.float() * (1 + 8 * 2**-23)) == 0).all()
    assert not (excess_of(expected, exact.float() * (1 + 12 * 2**-23)) == 0).any()


def test_zero_is_right_where_a_factor_was_too_small_for_float32():
    exact = torch.tensor([-1.3e-41 * 900, 1e-30], dtype=torch.float64)
    excess = excess_of(expect(exact.float(), exact, exact), torch.zeros(2))
    assert excess[0] == 0 and excess[1] > 0
    assert (excess_of(expect(exact, exact, exact), torch.zeros(2, dtype=torch.float64)) > 0).all()


PLACES = {  # the program of each element, whether it is wrong, and what that tells
    "only program 0 is right": ([0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 1, 1]),
    "only the last program is wrong": ([0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1]),
    "only the first element of each program": ([0, 0, 1, 1, 2, 2], [1, 0, 1, 0, 1, 0]),
}


@pytest.mark.parametrize("words", PLACES)
def test_where_the_wrong_elements_are_tells_nothing_if_the_others_are_right_by_luck(words):
    owner, wrong = np.array(PLACES[words][0]), np.array(PLACES[words][1], dtype=bool)
    result, is_wrong = Result("tensor", (6,), owner=owner), torch.from_numpy(wrong)
    value = torch.arange(1, 7, dtype=torch.float64)

    def guess(value, moved):
        return guess_by_place(expect(value.float(), value, moved), result, wrong)

    constant = value.where(is_wrong, 7)
    assert words in guess(value, 2 * value)
    assert guess(value, value.where(~is_wrong, 0)) == ""  # no input changes what is right
    assert guess(constant, 2 * constant) == ""
    assert guess_by_place(expect(constant.long(), constant), result, wrong) == ""
    assert words in guess_by_place(expect(value.long(), value), result, wrong)


def test_one_element_a_program_is_clue_enough_if_it_is_right():
    value = torch.arange(1, 5, dtype=torch.float64)
    expected, result = expect(value.float(), value, 2 * value), Result("tensor", (4,), owner=np.arange(4))
    assert "only program 0 is right" in guess_by_place(expected, result, np.array([False, True, True, True]))
    assert guess_by_place(expected, result, np.array([True, True, True, True])) == ""


def guess_flat(question, expected, actual):
    return guess_mistake(question, expected, actual, (other_layouts,))


def twins(generator):
    x = randn(generator, 8)
    return x, x.clone()


def strangers(generator):
    return randn(generator, 8), randn(generator, 8)


@pytest.mark.parametrize(
    "reference, make, answer, guess",
    [
        (lambda x, y: x - 3 * y, strangers, lambda x, y: -2 * y, "`y` is used where `x` belongs."),
        (lambda x, y: (x, x - 3 * y), strangers, lambda x, y: -2 * x, "`x` is used where `y` belongs."),
        (lambda x, y: x - 3 * y, twins, lambda x, y: -2.005 * x, ""),
        (lambda x, y: x * y, strangers, lambda x, y: 1.003 * y * x, ""),
        (lambda x, y: 2 * x, strangers, lambda x, y: 2.005 * x, ""),
        (lambda x, y: (y, x + y), strangers, lambda x, y: y, ""),
    ],
    ids=["another", "another in the second result", "equal", "symmetric", "unused", "only another result is like it"],
)
def test_an_input_is_named_for_another_only_if_that_explains_the_answer(reference, make, answer, guess):
    question = pose(one_case(reference, make), Case("", make), 0)
    actual = answer(*LiveInputs(question.inputs).arguments).cpu()
    assert guess_mistake(question, question.expected[-1], actual, (other_inputs,)) == guess


@pytest.mark.parametrize("guess", [guess_flat, guess_input, guess_transposed])
def test_a_mistake_that_would_change_nothing_is_not_named(guess):
    def make(generator):
        x = randn(generator, 4, 4)
        return x + x.t(), randn(generator, 4, 4).t()

    question = pose(one_case(lambda x, y: x.clone(), make), Case("", make), 0)
    (expected,) = question.expected
    assert guess(question, expected, 1.003 * expected.value) == ""


def test_to_be_almost_right_explains_no_case_that_is_far_off():
    questions = [pose(SCALE_ADD, case, 0) for case in SCALE_ADD.cases[:2]]

    def told(*causes):
        findings = [Finding("wrong-values", "", cause) for cause in causes]
        finding, _ = most_telling(list(zip(questions, findings, strict=True)))
        return findings.index(finding), finding.cause

    assert told("", ALMOST_RIGHT) == (0, "")
    assert told("", "`y` is missing") == (1, "`y` is missing")
    assert told(ALMOST_RIGHT, ALMOST_RIGHT) == (0, ALMOST_RIGHT)


def test_evidence_travels_as_plain_text():
    result = Result("tensor", (2,), "bfloat16", "cpu", np.arange(4, dtype=np.uint8), owner=np.array([0, -1]))
    back = Evidence.decode(Evidence(results=[result], error={"line": 3}).encode())
    assert back.error == {"line": 3} and back.results[0].owner.tolist() == [0, -1]
    assert back.results[0].tensor.dtype == torch.bfloat16


# Showing it


def test_check_prints_one_line_and_records(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TILE_STATE", str(tmp_path))
    recorded = []
    monkeypatch.setattr("lab.task.find_task", lambda name: SCALE_ADD)
    monkeypatch.setattr("lab.progress.record", lambda task, answer="": recorded.append((task, answer)))
    checking.check("scale_add", scale_add)
    assert capsys.readouterr() == ("scale_add: 4 of 4 cases pass\n", "")
    assert recorded[0][0] == "scale_add" and "def scale_add_kernel" in recorded[0][1]
    checking.check("scale_add", launching(no_y))
    assert "Likely cause: `y` is missing" in capsys.readouterr().out
    assert len(recorded) == 1


def test_check_of_an_unknown_task_says_which_there_are(capsys):
    checking.check("scale_ad", scale_add)
    assert "scale_add" in capsys.readouterr().out


@triton.jit
def copy_by_descriptor_kernel(x_desc, out_desc, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    out_desc.store([row, 0], x_desc.load([row, 0]))


def copy_by_descriptor(x):
    out = torch.empty_like(x)
    descriptors = (TensorDescriptor.from_tensor(t, [1, 64]) for t in (x, out))
    copy_by_descriptor_kernel[(x.shape[0],)](*descriptors, BLOCK=64)
    return out


def test_a_kernel_of_tensor_descriptors_passes():
    rows = Case("rows", lambda g: (torch.randn(4, 64, generator=g, device=g.device),))
    task = Task("copy", "", lambda x: x.clone(), (rows,), 1, ("", "", ""))
    verdict = judge(task, copy_by_descriptor)
    assert verdict.passed and not verdict.notes, str(verdict)


def test_a_launch_without_its_jit_function_counts_as_well():
    watch, x = HostWatch(), torch.zeros(8, device=DEVICE)
    with watch.watching_launches():
        fill_kernel.warmup(x, N=8, grid=(1,))
        assert watch.launches == 0
        fill_kernel[(1,)](x, N=8)
        assert watch.launches == 1
        triton.runtime.driver.active.get_current_stream(0)  # as whoever starts a compiled kernel must
        assert watch.launches == 2
    triton.runtime.driver.active.get_current_stream(0)
    assert watch.launches == 2


@triton.jit
def fill_kernel(x_ptr, N: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, N), 1.0)


@pytest.mark.parametrize(
    "name", [None, ["scale_add"], 7, 10**5000, len, torch.ones(3), Case], ids=lambda value: type(value).__name__
)
def test_a_task_that_is_no_name_ends_in_a_sentence(name, capsys):
    checking.check(name, len)
    told = capsys.readouterr().out
    assert told.startswith("There is no task called ") and told.endswith(" lists them all.\n") and told.count("\n") == 1
