"""Make a question of a case: the inputs of one call, what must come back, and how far off it may be."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from lab.check.inputs import Frozen, FrozenTensor, LiveInputs, freeze
from lab.device import DEVICE

if TYPE_CHECKING:
    from lab.task import Case, Task

FEW_ROUNDINGS = 4 * torch.finfo(torch.float32).eps  # relative
UNDERFLOW = 2.0**-100  # absolute: the smallest normal number of float32, 2**-126, times factors of up to 2**26


@dataclass(frozen=True)
class Expected:
    """What one result must be. Floating results may be off by `budget`; all else is exact."""

    value: torch.Tensor  # PyTorch's own result, in the dtype asked for
    exact: torch.Tensor  # the same in float64 (or as it is, where that is exact)
    budget: torch.Tensor | None
    reacts: torch.Tensor  # bool: the elements that change when an input does; all, where none is floating


@dataclass(frozen=True)
class Question:
    """One call of the answer: its inputs, and what must come back."""

    task: "Task"
    case: "Case"
    inputs: Frozen
    names: tuple[str, ...]
    expected: tuple[Expected, ...]
    several: bool  # the reference returns a tuple, so must the answer
    decisive: tuple[int, ...] = ()  # positions of floating arguments that results follow from, in this case

    def name(self, position: int) -> str:
        """Return the name of an argument."""
        return self.names[position] if position < len(self.names) else f"argument {position + 1}"

    def describe(self) -> str:
        """Return the arguments in words: "x: float32 [100], alpha = 2.5"."""
        return ", ".join(self.describe_argument(i, a) for i, a in enumerate(self.inputs.arguments)) or "no arguments"

    def describe_argument(self, position: int, argument) -> str:
        if not isinstance(argument, FrozenTensor):
            return f"{self.name(position)} = {argument!r}"
        dtype = str(argument.dtype).removeprefix("torch.")
        strides = "" if contiguous(argument) else f" with strides {list(argument.strides)}"
        return f"{self.name(position)}: {dtype} {list(argument.shape)}{strides}"


def contiguous(tensor: FrozenTensor) -> bool:
    """Return whether the elements of a tensor lie in order, without gaps."""
    stride = 1
    for size, actual in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if size > 1 and actual != stride:
            return False
        stride *= size
    return True


def pose(task: "Task", case: "Case", seed: int) -> Question:
    """Make the inputs of a case and work out what is right, all on private copies."""
    inputs = freeze(case.make(torch.Generator(DEVICE).manual_seed(seed)))
    own = call_reference(task, thawed(inputs))
    wide = [widened(argument) for argument in thawed(inputs)]
    exact = call_reference(task, wide)
    floating = [i for i, argument in enumerate(wide) if is_floating(argument)]
    moved = [call_reference(task, nudged(wide, inputs, i)) for i in floating]
    expected = tuple(expect(*values) for values in zip(own, exact, *moved, strict=True))
    names = tuple(inspect.signature(task.reference).parameters)
    decisive = tuple(i for i, values in zip(floating, moved, strict=True) if moves(exact, values))
    return Question(task, case, inputs, names, expected, isinstance(own, tuple), decisive)


def moves(exact, moved) -> bool:
    """Return whether results differ by more than the roundings of float64."""
    pairs = [(a.double(), b.double()) for a, b in zip(exact, moved, strict=True)]
    return any(bool(((a - b).abs() > 1e-12 * a.abs()).any()) for a, b in pairs)


def thawed(inputs: Frozen) -> tuple:
    """Return the arguments, made anew."""
    return LiveInputs(inputs).arguments


def call_reference(task: "Task", arguments) -> "list[torch.Tensor] | tuple[torch.Tensor, ...]":
    """Return what the reference returns, on the CPU: a tuple if it returns several tensors, else a list of one."""
    with torch.no_grad(), one_thread():
        value = task.reference(*arguments)
    return tuple(tensor.cpu() for tensor in value) if isinstance(value, (tuple, list)) else [value.cpu()]


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread: for small tensors, many threads take longer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def is_floating(argument) -> bool:
    return isinstance(argument, torch.Tensor) and argument.is_floating_point()


def widened(argument):
    """Return a floating tensor in float64, anything else as it is."""
    return argument.double() if is_floating(argument) else argument


def nudged(wide: list, inputs: Frozen, position: int) -> list:
    """Return the arguments with each element of one moved by a float32 rounding (by its own if it is float64)."""
    argument = wide[position]
    step = torch.finfo(torch.float64 if inputs.arguments[position].dtype == torch.float64 else torch.float32).eps
    signs = torch.randint(0, 2, argument.shape, generator=torch.Generator().manual_seed(position)) * 2 - 1
    return [*wide[:position], argument * (1 + step * signs.to(argument.device)), *wide[position + 1 :]]


def expect(own: torch.Tensor, exact: torch.Tensor, *moved: torch.Tensor) -> Expected:
    """Return what is right and how far one may be off.

    own: PyTorch's result in the dtype asked for; exact: the same in float64; moved: the same with one of the inputs
    moved by a float32 rounding. The budget of an element: twice PyTorch's own error there, or twice what the roundings
    come to (so that adding in another order is no mistake), and one rounding step of the output's dtype on top. The
    roundings of a few float32 operations are always granted: PyTorch may have been lucky there, and signs cancelled.
    So is 0 where a factor may have been too small for float32: exponentials end there, and GPUs flush subnormals.
    """
    if not own.is_floating_point():
        return Expected(own, own, None, torch.ones_like(own, dtype=torch.bool))
    exact = exact.double()
    moves = torch.zeros_like(exact) + sum((m.double() - exact).abs().nan_to_num(0, 0) for m in moved)
    roundings = torch.maximum(moves, FEW_ROUNDINGS * exact.abs()).nan_to_num(0, 0)
    own_error = (own.double() - exact).abs().nan_to_num(0, 0)
    finfo = torch.finfo(own.dtype)
    magnitude = exact.abs().clamp(min=finfo.smallest_normal, max=finfo.max)
    step = finfo.eps * torch.exp2(torch.floor(torch.log2(magnitude)))
    underflow = 0.0 if own.dtype == torch.float64 else UNDERFLOW
    budget = 2 * torch.maximum(own_error, roundings) + step + underflow
    return Expected(own, exact, budget, (moves > 0) | (not moved))


def excess_of(expected: Expected, actual: torch.Tensor) -> np.ndarray:
    """Return how far each element is beyond its budget: 0 where it is right, NaN where no distance can be told."""
    if expected.budget is None:
        return (actual != expected.value).double().numpy()
    actual, value = actual.double(), expected.value.double()
    error = (actual - expected.exact).abs()
    same = (actual == value) | (actual.isnan() & value.isnan())
    right = same | ((error <= expected.budget) & actual.isfinite())
    beyond = torch.where(error > expected.budget, error - expected.budget, float("nan"))
    return torch.where(right, 0.0, beyond).numpy()
