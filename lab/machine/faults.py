"""What a kernel did that a GPU would not forgive, in one sentence each."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

MOST_FAULTS = 32  # of one kind at one tensor in one launch: a kernel without a mask may fault in every program
MOST_ELEMENTS = 4096  # kept of one fault


@dataclass
class Fault:
    """One thing that a program did wrong; `str` is one sentence about it.

    cause: "out-of-bounds", "int32-overflow", "write-write" or "read-write".
    kind, of the access: "load", "store" or "atomic".
    elements: offsets from the tensor's first element, int64, sorted, at most `MOST_ELEMENTS` of `count`.
    """

    cause: str
    kind: str
    tensor: str | None
    program: int
    other: int | None
    elements: np.ndarray
    count: int
    file: str
    line: int
    extent: int = 0  # of the tensor, in elements
    stray: bool = False  # whether the access left the tensor
    same_value: bool = False  # of two stores

    def __str__(self) -> str:
        return SENTENCES[self.cause](self)


def counted(fault: Fault) -> str:
    """Say how many elements, and which: "28 elements of `out_ptr` (100 to 127)"."""
    first, last = int(fault.elements[0]), int(fault.elements[-1])
    if not fault.tensor:
        return "memory of a tensor that is no argument"
    if fault.count == 1:
        return f"element {first} of `{fault.tensor}`"
    return f"{fault.count} elements of `{fault.tensor}` ({first} to {last})"


VERBS = {"load": "loads", "store": "stores", "atomic": "updates"}


def say_out_of_bounds(fault: Fault) -> str:
    verb = VERBS[fault.kind]
    if fault.tensor is None:
        return f"program {fault.program} {verb} where no tensor is, line {fault.line}: is the pointer an argument?"
    first, last = int(fault.elements[0]), int(fault.elements[-1])
    beyond, before = last >= fault.extent, first < 0
    which = f"element {first}" if fault.count == 1 else f"elements {first} to {last}"
    number = f"{fault.count} element{'s' if fault.count > 1 else ''}"
    if not beyond and not before:
        return (
            f"program {fault.program} {verb} {number} of `{fault.tensor}` ({which}) at an address that is no multiple "
            f"of the bytes it {verb} at once, line {fault.line}: was the pointer cast to a wider type?"
        )
    where = "outside" if beyond and before else "past the end of" if beyond else "before the start of"
    advice = f"is the {fault.kind} masked?" if beyond else "can an offset be negative?"
    return f"program {fault.program} {verb} {number} {where} `{fault.tensor}` ({which}), line {fault.line}: {advice}"


def say_overflow(fault: Fault) -> str:
    return (
        f"program {fault.program} computes offsets past 2**31 - 1 in int32, line {fault.line}: they wrap, and the "
        f"{fault.kind} reaches {counted(fault)}; widen one factor with .to(tl.int64) before multiplying"
    )


def say_write_write(fault: Fault) -> str:
    value = "the same value" if fault.same_value else "different values"
    return (
        f"programs {fault.other} and {fault.program} both store {counted(fault)}, with {value}, line {fault.line}: "
        "does each program have elements of its own?"
    )


def say_read_write(fault: Fault) -> str:
    return (
        f"program {fault.program} loads {counted(fault)}, which program {fault.other} writes in the same launch, "
        f"line {fault.line}: programs run in no fixed order, so neither can wait for the other"
    )


SENTENCES = {
    "out-of-bounds": say_out_of_bounds,
    "int32-overflow": say_overflow,
    "write-write": say_write_write,
    "read-write": say_read_write,
}


class OutOfBoundsError(RuntimeError):
    """A launch reached outside its tensors; `faults` says where. Nothing was stored there."""

    def __init__(self, faults: list[Fault]):
        super().__init__(str(faults[0]))
        self.faults = faults


class Int32OverflowError(OutOfBoundsError):
    """A launch computed an offset in int32 that does not fit, and used it."""


class Unsupported(NotImplementedError):
    """The kernel holds an operation that this machine does not carry out; the message names it and its line."""


class KernelError(RuntimeError):
    """The kernel itself gave up: an assertion failed, a limit was passed."""


@dataclass
class Faults:
    """The faults of one launch; what one program does wrong at one line is one fault."""

    found: list[Fault] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        """Add a fault, or widen the one that its program has already at this line."""
        for known in self.found:
            if key_of(known) == key_of(fault):
                elements = np.union1d(known.elements, fault.elements)
                known.count = max(known.count, len(elements), fault.count)
                known.elements = elements[:MOST_ELEMENTS]
                known.stray |= fault.stray
                known.same_value &= fault.same_value
                return
        alike = sum(
            key_of(known)[:3] == key_of(fault)[:3] and known.same_value == fault.same_value for known in self.found
        )
        if alike < MOST_FAULTS:
            self.found.append(fault)

    def add_by_program(self, programs: np.ndarray, elements: np.ndarray, **facts) -> None:
        """Add a fault for each program. programs, elements: of each lane, int64."""
        order = list(dict.fromkeys(programs.tolist()))
        for program in order[:MOST_FAULTS]:
            its = np.unique(elements[programs == program])
            self.add(Fault(program=program, elements=its[:MOST_ELEMENTS], count=len(its), **facts))

    def of(self, *causes: str) -> Iterable[Fault]:
        """Return the faults with one of these causes."""
        return [fault for fault in self.found if fault.cause in causes]

    def raise_strays(self) -> None:
        """Raise OutOfBoundsError where an access left its tensor, Int32OverflowError where an offset wrapped."""
        if overflows := self.of("int32-overflow"):
            raise Int32OverflowError(overflows)
        if strays := self.of("out-of-bounds"):
            raise OutOfBoundsError(strays)


def key_of(fault: Fault) -> tuple:
    return fault.cause, fault.kind, fault.tensor, fault.program, fault.other, fault.file, fault.line
