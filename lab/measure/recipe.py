"""A recipe, `book/measurements/<stem>.py`: which variants of an operation are timed, at which sizes, against what."""

import difflib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from lab.measure.rows import MEASUREMENTS
from lab.notebook import CourseError


class MeasurementRefused(CourseError):
    """A measurement that would mislead, or that cannot be made here; the message says why and what to do."""


class Unavailable(Exception):
    """Raised by a recipe's variant that cannot run here or at this size; its message is the reason."""


@dataclass(frozen=True)
class TorchCompiled:
    """A variant that torch.compile builds anew for every workload, before the clock starts."""

    function: Callable

    def build(self) -> Callable:
        """Return the function, compiled at its first call for the shapes of that call."""
        torch._dynamo.reset()
        return torch.compile(self.function, dynamic=False)


@dataclass(frozen=True)
class Workload:
    """One size of an operation: `make(generator)` returns the inputs, on the GPU."""

    sizes: dict[str, int]
    dtype: str
    make: Callable[[torch.Generator], tuple]

    @property
    def shape(self) -> str:
        """The sizes as a row spells them: "M=4096,N=8192"."""
        return ",".join(f"{name}={size}" for name, size in self.sizes.items())


@dataclass(frozen=True)
class Recipe:
    """What to time: every variant on every workload. All functions take the workload's inputs.

    `reference` returns the right answer in float64 or float32: one tensor, or a tuple where variants return one, as of
    gradients. `bytes` and `flops` count what the operation cannot do without. The variants named in `calls` are also
    timed as Python sees them, from an idle GPU to the result. Where the operation is random,
    `as_drawn(expected, result)` returns the right answer for the choices that `result` shows.
    """

    op: str
    workloads: Sequence[Workload]
    variants: dict[str, Callable | TorchCompiled]
    reference: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    bytes: Callable[..., int]
    flops: Callable[..., int]
    calls: tuple[str, ...] = field(default=())
    as_drawn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None


def recipe(stem: str, folder: Path = MEASUREMENTS) -> Recipe:
    """Return what `book/measurements/<stem>.py` says to time. Raises MeasurementRefused for an unknown stem."""
    path = folder / f"{stem}.py"
    if not path.exists():
        known = sorted(file.stem for file in folder.glob("*.py"))
        close = difflib.get_close_matches(stem, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are recipes for {', '.join(known) or 'nothing yet'}."
        raise MeasurementRefused(f"there is no recipe book/measurements/{stem}.py; {hint}")
    spec = importlib.util.spec_from_file_location(f"measurements_{stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RECIPE
