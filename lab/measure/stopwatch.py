"""Time on the GPU: calls with a cold cache, by turns, so that the peers of one run can be compared."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

import numpy as np
import torch

from lab.device import DEVICE

CALL = "_call"  # ends the name of a variant timed from Python on an idle GPU, launch included

ROUNDS = 21
ROUND_MS = 4.0  # GPU time that one variant may take in one round
MAX_REPEATS = 20
CALLS = 40  # of one variant in a round from an idle GPU: the first few find Python's code out of the CPU's caches


class Stopwatch:
    """Times calls on the GPU, each of them with nothing of its data in the L2 cache."""

    def __init__(self):
        # Zeros are written, not read: the lines they leave behind must be written back while the next call runs, which
        # stands for the lines that this call in its turn leaves unwritten.
        l2_bytes = torch.cuda.get_device_properties(DEVICE).L2_cache_size
        self.scratch = torch.empty(max(4 * l2_bytes, 2**28), dtype=torch.uint8, device=DEVICE)
        self.flush_ms = self.call_ms(self.scratch.zero_)

    def call_ms(self, call: Callable) -> float:
        """Return the milliseconds that Python waits for the result of one call on an idle GPU."""
        self.scratch.zero_()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3

    def gpu_ms(self, call: Callable, repeats: int) -> list[float]:
        """Return the milliseconds that each of `repeats` calls keeps the GPU busy.

        The GPU clears its cache for longer than the host needs to launch the call, so no launch is waited for.
        """
        flushes = math.ceil(2 * self.host_ms(call) / self.flush_ms)
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
        for start, end in events:
            for _ in range(flushes):
                self.scratch.zero_()
            start.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]

    def host_ms(self, call: Callable) -> float:
        """Return the milliseconds until one call returns to Python, its work perhaps still in the queue."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3


def interleaved(calls: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return one result a round of every call. Rounds take turns, so that a GPU that slows down slows all of them.

    Each round starts with another call, so that none always follows the same one.
    """
    names = list(calls)
    results = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(calls[name]())
    return results


def timed(calls: Mapping[str, Callable], from_idle: Iterable[str], stopwatch: Stopwatch) -> dict[str, list[float]]:
    """Return the milliseconds of every call, one a round; of those in `from_idle` again with the launch included."""
    rounds = {}
    for name, call in calls.items():
        single = median(stopwatch.gpu_ms(call, 5))
        repeats = min(MAX_REPEATS, max(1, int(ROUND_MS / single)))
        rounds[name] = lambda call=call, repeats=repeats: median(stopwatch.gpu_ms(call, repeats))
        if name in from_idle:
            rounds[name + CALL] = lambda call=call: median(stopwatch.call_ms(call) for _ in range(CALLS))
    return interleaved(rounds)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the three times of a row."""
    p20, median_ms, p80 = np.percentile(values, (20, 50, 80)).tolist()
    return {"median_ms": median_ms, "p20_ms": p20, "p80_ms": p80}


def copy_of(byte_count: int) -> Callable:
    """Return a call that moves `byte_count` bytes and does nothing else: half of them read, half of them written."""
    source = torch.empty(max(1, byte_count // 2), dtype=torch.uint8, device=DEVICE).random_()
    target = torch.empty_like(source)
    return lambda: target.copy_(source)
