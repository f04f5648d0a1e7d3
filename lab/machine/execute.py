"""A kernel that can be launched: a text of TTIR, read and laid out, run in sets of programs that fit the caches."""

import functools
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lab.machine.assembly import MISFITS, Assembly
from lab.machine.faults import Faults, KernelError
from lab.machine.memory import TensorView
from lab.machine.plan import Plan
from lab.machine.text import Module, TextError
from lab.machine.turns import Turns
from lab.machine.values import FIRST, RUN, as_value

CHUNK = 2**18  # elements of the largest value that a set of programs may have together: more would leave the caches


@dataclass
class Run:
    """One launch. views: the tensors by number of their parameter. record: who watches, if anybody does."""

    grid: tuple[int, int, int]
    views: dict[int, TensorView]
    record: Any = None
    ones: bool = False  # whether lanes that no load gave a value hold 1, and not poison
    deadline: float = math.inf  # of time.monotonic
    elsewhere: Callable[[], Iterable[TensorView]] = tuple  # memory that only an integer can lead to
    faults: Faults = field(default_factory=Faults)
    pause: Callable[[int], None] = lambda weight: None  # called by a program in each turn of a loop
    changes: int = 0  # of memory: how often a program stored something, or an atomic made a difference

    @functools.cached_property
    def reachable(self) -> list[TensorView]:
        """The memory that a pointer made from an integer may reach."""
        return [*self.views.values(), *self.elsewhere()]

    def program_ids(self, axis: int, ids: np.ndarray) -> np.ndarray:
        """Return the programs' place in the grid along an axis."""
        x, y, _ = self.grid
        return (ids % x if axis == 0 else ids // x % y if axis == 1 else ids // (x * y)).astype(np.int32)

    def turn(self, weight: int = 1) -> None:
        """Called in each turn of a loop: end a launch that has run for too long. Raises KernelError."""
        self.pause(weight)
        if self.deadline != math.inf and time.monotonic() > self.deadline:
            raise KernelError("the kernel was stopped: it ran longer than it may")


class Kernel:
    """A kernel that can be launched: `run(grid, arguments, …)`.

    text: a TTIR module. Raises TextError where it cannot be read, Unsupported for what cannot be carried out.
    """

    def __init__(self, text: str):
        try:
            self.plan = Plan(Module(text))
        except TextError:
            raise
        except (*MISFITS, RecursionError) as error:
            raise TextError(f"the text contradicts itself: {type(error).__name__}, {error}") from error
        self.largest = max((math.prod(value.type.shape) for value in self.plan.values), default=1)
        self.names = self.plan.names

    @functools.cached_property
    def plain(self) -> "Assembly":
        return Assembly(self.plan)

    @functools.cached_property
    def named(self) -> "Assembly":
        """The kernel with a step behind each variable, which shows the record its value."""
        return Assembly(self.plan, name_values=True)

    def run(self, run: Run, arguments: list, order: np.ndarray | None = None) -> None:
        """Run the programs of a launch, all or those of `order`; faults are left in `run`.

        arguments: for each parameter a number, or a Descriptor; for pointers the address. Raises KernelError.
        """
        assembly = self.named if run.record is not None and run.record.keeps_values else self.plain
        env = assembly.template.copy()
        env[RUN] = run
        for parameter, argument in zip(self.plan.parameters, arguments, strict=True):
            env[FIRST + parameter.number] = as_value(argument, parameter.type)
        count = math.prod(run.grid) if order is None else len(order)

        def start(first: int, end: int) -> None:
            ids = np.arange(first, end) if order is None else np.asarray(order[first:end], np.int64)
            assembly.start(env.copy(), ids)

        if assembly.waits and count > 1:
            Turns(lambda each: start(each, each + 1), count, run).finish()
            return
        chunk = max(1, CHUNK // self.largest)
        for first in range(0, count, chunk):
            start(first, min(first + chunk, count))
            run.turn()
