"""Programs that part and meet, wait for each other, and launches that meet: threads, hooks, Ctrl-C."""

import _thread
import signal
import threading
import time

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from triton import knobs
from triton.runtime import driver

from lab.machine import backend, execute, turns
from lab.machine.faults import KernelError
from lab.trace import trace


@pytest.fixture(autouse=True)
def on_the_machine():
    with backend.active():
        yield


# Programs that part and meet again


@triton.jit
def branches_in_branches(x_ptr, out_ptr, n, N: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + pid * N + offs)
    top = tl.max(x, 0)
    low, high = top, x
    if top > n:
        if top % 2 == 0:
            low, high = top - n, x * 2
        else:
            high = x - top
            if tl.min(x, 0) < 0:
                low = low * 3
    elif top < 0:
        tl.store(out_ptr + pid * N + offs, x)
        low = -top
    tl.store(out_ptr + pid * N + offs, high + low, mask=offs < N - 1)


@triton.jit
def loops_of_other_lengths(x_ptr, out_ptr, n, N: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, N)
    pointers = x_ptr + pid * N + offs
    x = tl.load(pointers)
    first, last = tl.min(x, 0), tl.max(x, 0)
    acc = x * 0
    count = pid
    for i in range(first, last, pid % 3 + 1):
        acc += x * i
        if i % 4 == n % 4:
            for j in range(count % 3):
                acc -= j + tl.load(pointers)
        else:
            count += 1
    tl.store(out_ptr + pid * N + offs, acc + count)


@triton.jit
def returns_early(x_ptr, out_ptr, n, N: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + pid * N + offs)
    if tl.sum(x, 0) < n:
        tl.store(out_ptr + pid * N + offs, -1)
        return
    if pid % 2 == 0:
        x += n
        if tl.max(x, 0) > 20:
            return
    tl.store(out_ptr + pid * N + offs, x)


@triton.jit
def collatz(x_ptr, out_ptr, n, N: tl.constexpr):
    pid = tl.program_id(0)
    x = tl.max(tl.load(x_ptr + pid * N + tl.arange(0, N)), 0)
    steps, tile = 0, tl.arange(0, N)
    while (x > 1) & (steps < n + 30):
        if x % 2 == 0:
            x = x // 2
            tile += x
        else:
            x = 3 * x + 1
        steps += 1
    tl.store(out_ptr + pid * N + tl.arange(0, N), steps * 1000 + tile + x)


@triton.jit
def several_returns(x, n):
    if x > 2 * n:
        return x - n
    if x > n:
        y = x * 3
        if y % 2 == 0:
            return y
    while x > 3:
        x -= 4
    return x


@triton.jit
def block_of_either(x, offs, n):
    if tl.max(x, 0) > n:
        return x + offs
    return x * 0 - n


@triton.jit
def calls_that_part(x_ptr, out_ptr, n, N: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + pid * N + offs)
    a = several_returns(tl.max(x, 0), n)
    b = several_returns(tl.min(x, 0) + pid, n)
    tl.store(out_ptr + pid * N + offs, block_of_either(x, offs, n) + a * 100 + b)


@triton.jit
def pointers_of_either(x_ptr, out_ptr, n, N: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, N)
    pointers = x_ptr + offs
    if pid % 2 == 1:
        pointers += pid * N
    else:
        pointers = x_ptr + (N - 1 - offs)
    total = tl.load(pointers) * 0
    while tl.max(total, 0) < n:
        total += tl.load(pointers) + 9
        if pid % 3 == 0:
            pointers = x_ptr + pid * N + offs
    tl.store(out_ptr + pid * N + offs, total)


PARTING = (branches_in_branches, loops_of_other_lengths, returns_early, collatz, calls_that_part, pointers_of_either)


@pytest.mark.parametrize("kernel", PARTING, ids=lambda kernel: kernel.__name__)
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_whole_grid_at_once_gives_what_one_program_at_a_time_gives(kernel, data):
    programs, n = data.draw(st.integers(1, 9)), data.draw(st.integers(-3, 12))
    numbers = data.draw(st.lists(st.integers(-8, 12), min_size=4 * programs, max_size=4 * programs))
    x = torch.tensor(numbers, dtype=torch.int32)
    results = []
    for chunk in (execute.CHUNK, 12, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(execute, "CHUNK", chunk)
            results.append(torch.full((4 * programs,), 77, dtype=torch.int32))
            kernel[(programs,)](x, results[-1], n, N=4)
    assert torch.equal(results[0], results[2]) and torch.equal(results[1], results[2])


def test_branches_in_branches_against_python():
    rows = torch.tensor([[1, 2, 9, 4], [8, 1, 2, 3], [7, 1, 2, -3], [-1, -2, -3, -4], [5, 5, 5, 5]], dtype=torch.int32)
    out = torch.full((5, 4), 77, dtype=torch.int32)
    branches_in_branches[(5,)](rows, out, 5, N=4)
    assert out.tolist() == [
        [1 - 9 + 9, 2 - 9 + 9, 9, 77], [8 * 2 + 3, 2 + 3, 4 + 3, 77], [7 - 7 + 21, 1 - 7 + 21, 2 - 7 + 21, 77],
        [0, -1, -2, -4], [10, 10, 10, 77],
    ]  # fmt: skip


# Programs that wait for each other


@triton.jit
def add_under_a_lock(lock_ptr, total_ptr, x_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + tl.program_id(0) * N + offs)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(total_ptr + offs, tl.load(total_ptr + offs) * 2 + x)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


def test_a_spin_lock():
    x, lock, total = torch.ones(40, 4), torch.zeros(1, dtype=torch.int32), torch.zeros(4)
    add_under_a_lock[(20,)](lock, total, x, N=4)
    assert total.tolist() == [2**20 - 1] * 4 and lock.item() == 0


@triton.jit
def wait_for_a_neighbour(flag_ptr, out_ptr, BY: tl.constexpr):
    pid = tl.program_id(0)
    last = tl.num_programs(0) - 1
    value = 1
    if (pid > 0) & (BY == -1) | (pid < last) & (BY == 1):
        while tl.load(flag_ptr + pid + BY, volatile=True) == 0:
            pass
        value = tl.load(out_ptr + pid + BY) + 1
    tl.store(out_ptr + pid, value)
    tl.atomic_xchg(flag_ptr + pid, 1)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_program_that_waits_for_the_one_before_or_behind(by):
    flags, out = torch.zeros(30, dtype=torch.int32), torch.zeros(30, dtype=torch.int32)
    wait_for_a_neighbour[(30,)](flags, out, BY=by)
    assert out.tolist() == list(range(1, 31))[::-by]


@triton.jit
def meet_at_a_barrier(count_ptr, x_ptr, out_ptr):
    pid = tl.program_id(0)
    tl.store(x_ptr + pid, pid)
    tl.atomic_add(count_ptr, 1)
    while tl.atomic_add(count_ptr, 0) < tl.num_programs(0):
        pass
    tl.store(out_ptr + pid, tl.load(x_ptr + tl.num_programs(0) - 1 - pid))


def test_all_programs_meet_at_a_barrier():
    count, x, out = (torch.zeros(50, dtype=torch.int32) for _ in range(3))
    meet_at_a_barrier[(50,)](count, x, out)
    assert out.tolist() == list(range(50))[::-1]


@triton.jit
def pass_a_ball(ball_ptr, n):
    pid = tl.program_id(0)
    for i in range(n):
        while tl.load(ball_ptr, volatile=True) != 2 * i + pid:
            pass
        tl.store(ball_ptr, 2 * i + pid + 1)


def test_programs_that_change_memory_go_on_however_often_they_wait(monkeypatch):
    monkeypatch.setattr(turns, "MOST_TURNS", 10)
    ball = torch.zeros(1, dtype=torch.int32)
    pass_a_ball[(2,)](ball, 100)
    assert ball.item() == 200


@triton.jit
def wait_for_nobody(flag_ptr):
    if tl.program_id(0) != 1:
        while tl.atomic_cas(flag_ptr, 7, 7) != 7:
            pass


def test_a_deadlock_ends(monkeypatch):
    go_on, chances, threads = turns.Turns.go_on, [], threading.active_count()
    monkeypatch.setattr(turns.Turns, "go_on", lambda self, program: chances.append(program) or go_on(self, program))
    with pytest.raises(KernelError, match="the programs wait for each other, and none can go on"):
        wait_for_nobody[(3,)](torch.zeros(1, dtype=torch.int32))
    assert len(chances) <= turns.MOST_TURNS + 10 and threading.active_count() == threads


@triton.jit
def fail_while_others_wait(flag_ptr):
    if tl.program_id(0) == 2:
        tl.device_assert(tl.program_id(0) == 0, "not this one")
    while tl.atomic_cas(flag_ptr, 7, 7) != 7:
        pass


def test_an_error_ends_those_that_wait():
    threads = threading.active_count()
    with pytest.raises(KernelError, match="program 2 fails its assertion"):
        fail_while_others_wait[(4,)](torch.zeros(1, dtype=torch.int32), debug=True)
    assert threading.active_count() == threads


# Launches that meet


@triton.jit
def add_number(x_ptr, number, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs) + number)


@triton.jit
def scale_number(x_ptr, number, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    for _ in range(3):
        x = x * number
    tl.store(x_ptr + offs, x)


def test_two_threads_launch_different_kernels_at_once():
    tensors, logs = [torch.ones(64), torch.ones(64)], [None, None]

    def launch_often(which, kernel, number):
        with trace(values=False) as logs[which]:
            for _ in range(40):
                kernel[(4,)](tensors[which], number, N=16)

    threads = [
        threading.Thread(target=launch_often, args=arguments)
        for arguments in ((0, add_number, 2.0), (1, scale_number, -1.0))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tensors[0].tolist() == [81.0] * 64 and tensors[1].tolist() == [1.0] * 64
    for log, kernel in zip(logs, ("add_number", "scale_number"), strict=True):
        assert [launch.kernel for launch in log.launches] == [kernel] * 40
        assert all(launch.bytes_of("store") == 256 and not launch.faults for launch in log.launches)


def tuned(hook):
    return triton.autotune([triton.Config({"N": 4}, pre_hook=lambda arguments: hook())], key=[])(add_number)


def hooked(hook):
    kernel = triton.JITFunction(add_number.fn)
    kernel.add_pre_run_hook(lambda *arguments, **options: hook())
    return kernel


@pytest.mark.parametrize("make, options", [(tuned, {}), (hooked, {"N": 4})])
def test_a_launch_from_a_hook_of_another(make, options):
    inner, outer = torch.zeros(8), torch.zeros(8)
    kernel = make(lambda: scale_number[(2,)](inner.fill_(1), 2.0, N=4))
    with trace() as t:
        kernel[(2,)](outer, 1.0, **options)
    assert inner.tolist() == [8.0] * 8 and outer.tolist() == [1.0] * 8
    assert [launch.kernel for launch in t.launches] == ["scale_number", "add_number"]


def test_a_launch_while_another_has_begun():
    inner, outer = torch.zeros(8), torch.zeros(8)
    begun = []

    def enter(metadata):
        begun.append(metadata)
        if len(begun) == 1:
            scale_number[(2,)](inner.fill_(1), 2.0, N=4)

    knobs.runtime.launch_enter_hook.add(enter)
    try:
        add_number[(2,)](outer, 1.0, N=4)
    finally:
        knobs.runtime.launch_enter_hook.remove(enter)
    assert len(begun) == 2 and inner.tolist() == [8.0] * 8 and outer.tolist() == [1.0] * 8


@triton.jit
def go_on_for_ever(x_ptr, flag_ptr, WAITS: tl.constexpr):
    tl.store(x_ptr + tl.program_id(0), 1.0)
    if WAITS:
        while tl.atomic_cas(flag_ptr, 7, 7) != 7:
            pass
    else:
        for _ in range(2**31 - 1):
            tl.store(x_ptr + tl.program_id(0), 2.0)


@pytest.fixture
def interruptible():
    """A shell lets what it runs in the background ignore Ctrl-C, and so would these tests for ever."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("traced", [False, True])
def test_an_interruption_leaves_everything_as_it_was(waits, traced, interruptible):
    x, flag, threads = torch.zeros(4), torch.zeros(1, dtype=torch.int32), threading.active_count()
    go_on_for_ever.warmup(x, flag, WAITS=waits, grid=(1,))
    before = driver.active
    noticed = threading.Event()

    def interrupt():
        wait = 0.3
        while not noticed.wait(wait):
            _thread.interrupt_main(signal.SIGINT)
            wait = 5.0  # Python drops one that comes while it finalises an object

    interruption = threading.Thread(target=interrupt)
    interruption.start()
    with pytest.raises(KeyboardInterrupt):
        if traced:
            with trace(programs=[0, 1], values=False):
                go_on_for_ever[(2,)](x, flag, WAITS=waits)
        else:
            go_on_for_ever[(2,)](x, flag, WAITS=waits)
    noticed.set()
    interruption.join()
    assert driver.active is before and backend.current_watcher() is None and not backend.open_watchers
    assert threading.active_count() == threads
    x.zero_()
    time.sleep(0.05)
    assert not x.any()
    add_number[(1,)](x, 3.0, N=4)
    assert x.tolist() == [3.0] * 4


class Tripled(torch.autograd.Function):
    """Adds in both directions with kernels."""

    @staticmethod
    def forward(ctx, x):
        out = x.clone()
        add_number[(2,)](out, 3.0, N=4)
        return out

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        scale_number[(2,)](gradient, 2.0, N=4)
        return gradient


def test_a_backward_pass_inside_a_trace_is_recorded():
    x = torch.zeros(8, requires_grad=True)
    with trace() as t:
        Tripled.apply(x).sum().backward()
    assert [launch.kernel for launch in t.launches] == ["add_number", "scale_number"]
    assert x.grad.tolist() == [8.0] * 8 and t.launches[1].bytes_of("load") == 32


@triton.jit
def largest_pair(a, b):
    larger = tl.maximum(a, b)
    return larger


@triton.jit
def reduce_with_names(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    top = tl.reduce(x, 0, largest_pair)
    tl.store(out_ptr, top)


def test_variables_of_a_reduction_are_no_variables_of_a_program():
    out = torch.zeros(1)
    with trace() as t:
        reduce_with_names[(1,)](torch.arange(8.0), out, N=8)
    assert t.values("top")[0] == 7 and [value.tolist() for value in t.values("x")] == [list(range(8))]
    with pytest.raises(KeyError, match="has no variable `larger`"):
        t.values("larger")
