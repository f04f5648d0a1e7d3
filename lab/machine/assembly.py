"""The closures of a plan: each operation is one call of NumPy for many programs at once.

Every value has a leading axis of programs, of length 1 while all of them agree; its other axes may have length 1 too,
where a broadcast would repeat them. Control flow masks nothing: where programs part, values are narrowed to those that
go on together.
"""

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from lab.machine.arithmetic import elementwise, reduction
from lab.machine.blocks import BLOCKWISE, LAYOUT, accumulate, halves, numbers, same
from lab.machine.descriptors import block_addresses, boundary, broken_offsets, broken_rules, first_of, offset_slots
from lab.machine.faults import KernelError, Unsupported
from lab.machine.memory import MemoryStep, undefined
from lab.machine.overflow import (
    EXACT,
    extremes,
    is_checked,
    merge_wrapped,
    pass_on,
    pass_on_chosen,
    without_wrapped,
    wrap,
)
from lab.machine.plan import (
    Plan,
    Section,
    Step,
    Value,
    all_inputs,
    all_steps,
    captured,
    captured_by,
    ends,
    is_volatile,
    used_by,
)
from lab.machine.turns import WAITING
from lab.machine.values import (
    FIRST,
    RUN,
    WRAPPED,
    Closure,
    Closures,
    Descriptor,
    Environment,
    full,
    literal,
    merge,
    pick,
    row_steps,
    slot,
)

LARGEST_KNOWN = 2**28  # bytes of values that are computed once for all launches of a kernel
# What an operation may raise whose values do not fit together, which Triton's compiler rules out.
MISFITS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError)
NOTHING = {  # what a GPU needs and a machine that runs operation by operation does not
    *("ttg.barrier", "gpu.barrier", "llvm.intr.assume", "scf.yield", "scf.condition", "tt.return", "name"),
    *("tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return", "cf.br", "cf.cond_br"),
}
ATOMICS = {
    "fadd": "arith.addf", "add": "arith.addi", "max": "arith.maxsi", "min": "arith.minsi", "umax": "arith.maxui",
    "umin": "arith.minui", "and": "arith.andi", "or": "arith.ori", "xor": "arith.xori", "exch": "",
}  # fmt: skip


class Assembly:
    """The closures of a plan, in order. Each takes the environment and the ids of the programs that take part.

    name_values: whether a closure behind each variable shows its value to the record.
    """

    def __init__(self, plan: Plan, name_values: bool = False):
        self.plan = plan
        self.name_values = name_values
        self.template: Environment = [None] * (FIRST + len(plan.values))
        self.known: set[int] = set()  # slots of the template that hold a value
        self.room = LARGEST_KNOWN
        self.waits = False
        with np.errstate(all="ignore"):
            self.sections = self.assemble_all(plan.sections)

    def start(self, env: Environment, ids: np.ndarray) -> None:
        """Run the kernel for some programs."""
        with np.errstate(all="ignore"):
            self.run_sections(self.plan.sections, self.sections, env, ids, [])

    def carry_out(self, closures: Closures, env: Environment, ids: np.ndarray) -> None:
        """Run closures one after the other. Raises KernelError where the values of a step do not fit together."""
        try:
            for closure, dead, step in closures:  # noqa: B007
                closure(env, ids)
                for each in dead:
                    env[each] = None
        except MISFITS as error:
            raise self.misfit(step, error) from error

    def misfit(self, step: Step, error: Exception) -> KernelError:
        place = self.plan.place(step)
        where = f", line {place.line}" if place.line else ""
        return KernelError(f"`{step.name}` cannot be carried out{where}: {error or type(error).__name__}")

    # One step

    def assemble_all(self, sections: list[Section]) -> list[Closures]:
        """Return the closures of sections that jump to each other, and so may use each other's values."""
        needed = [captured_by([section]) for section in sections]
        return [
            self.assemble(section, set().union(*needed[:number], *needed[number + 1 :]))
            for number, section in enumerate(sections)
        ]

    def assemble(self, section: Section, kept: Iterable[Value] = ()) -> Closures:
        """Return the closures of a section; slots in `kept` are of use after it."""
        closures: list[tuple[Closure, Step]] = []
        for step, following in zip(section.steps, [*section.steps[1:], None], strict=False):
            try:
                made = self.closures(step)
                if made and self.is_known(step):
                    for closure in made:
                        closure(self.template, None)
                    self.known.update(slot(value) for value in step.outputs)
                    self.room -= sum(self.template[slot(value)].nbytes for value in step.outputs)
                else:
                    closures += [(closure, step) for closure in made]
            except MISFITS as error:
                raise self.misfit(step, error) from error
            if self.name_values and not (following and self.assigned(step) == self.assigned(following)):
                closures += [(closure, step) for closure in self.naming(step)]
        last_use: dict[int, int] = {}
        own = {slot(value) for step in section.steps for value in step.outputs} - self.known
        for number, (_, step) in enumerate(closures):
            for value in used_by(step):
                last_use[slot(value)] = number
        for value in (*ends(section), *kept):
            last_use.pop(slot(value), None)
        dead: dict[int, list[int]] = {}
        for each, number in last_use.items():
            if each in own:
                dead.setdefault(number, []).append(each)
        return [(closure, tuple(dead.get(number, ())), step) for number, (closure, step) in enumerate(closures)]

    def is_known(self, step: Step) -> bool:
        """Return whether a step gives the same in every launch."""
        pure = step.name in ("arith.constant", "tt.make_range") or (
            step.inputs and (step.name in LAYOUT or step.name.startswith(("arith.", "math.")))
        )
        known = all(slot(value) in self.known for value in step.inputs)
        return bool(pure) and known and self.room > 0 and not is_checked(step)

    def closures(self, step: Step) -> list[Closure]:
        """Return what carries out a step, and before it what lays rows of addresses out for a step that needs them."""
        if step.name in NOTHING:
            return []
        method = METHODS.get(step.name)
        if method is not None:
            return [method(self, step)]
        before, slots = [], []
        for value in step.inputs:
            closure, place = self.laid_out(value, step)
            before += [closure] if closure else []
            slots.append(place)
        return [*before, self.pure(step, self.function(step), slots)]

    def laid_out(self, value: Value, step: Step) -> tuple[Closure | None, int]:
        """Return the slot of a value for a step, and what must run to fill it: rows of addresses may be kept short."""
        if not value.is_row or (
            step.name in ("tt.broadcast", "tt.expand_dims", "tt.bitcast") and step.outputs[0].is_row
        ):
            return None, slot(value)
        source, (target,) = slot(value), self.new_slots(1)
        steps = row_steps(value)

        def lay_out(env, ids):
            env[target] = env[source] + steps

        return lay_out, target

    def new_slots(self, count: int) -> list[int]:
        """Return slots for what is no value of the plan."""
        self.template += [None] * count
        return list(range(len(self.template) - count, len(self.template)))

    def function(self, step: Step) -> Callable[..., np.ndarray]:
        """Return the function of arrays that a step without effects is. Raises Unsupported."""
        make = LAYOUT.get(step.name) or BLOCKWISE.get(step.name)
        if make is not None:
            try:
                return make(step)
            except NotImplementedError as error:
                raise self.unsupported(step, str(error)) from None
        if step.name in ("tt.bitcast", "arith.bitcast") and step.outputs[0].type.pointee is not None:
            return same(step)
        sources = tuple(value.type.dtype for value in step.inputs)
        found = None
        results = [value.type.dtype for value in step.outputs]
        # To NumPy, None equals float64.
        if len(results) == 1 and all(dtype is not None for dtype in (*sources, *results)):
            try:
                found = elementwise(step.name, step.operation.attributes, sources, results[0])
            except NotImplementedError as error:
                raise self.unsupported(step, str(error)) from None
        if found is None:
            raise self.unsupported(step)
        if step.name == "arith.select" and not step.inputs[0].type.shape and step.outputs[0].type.shape:
            ones = (1,) * len(step.outputs[0].type.shape)
            return lambda c, a, b: found(c.reshape(c.shape[:1] + ones), a, b)
        return found

    def unsupported(self, step: Step, what: str = "") -> Unsupported:
        place = self.plan.place(step)
        why = UNSUPPORTED.get(step.name, "")
        words = what or f"`{step.name}` is not carried out on the CPU{why}"
        return Unsupported(f"{words}, line {place.line}" if place.line else words)

    def pure(self, step: Step, function: Callable, slots: list[int]) -> Closure:
        """Return the closure that puts function(inputs) into the output's place."""
        target = slot(step.outputs[0])
        if is_checked(step):
            return self.checked(step, function, *slots)
        if step.outputs[0].counts or step.outputs[0].type.pointee is not None:
            return self.passing_on(step, function, slots)
        if len(slots) == 1:
            (a,) = slots

            def closure(env, ids):
                env[target] = function(env[a])

        elif len(slots) == 2:
            a, b = slots

            def closure(env, ids):
                env[target] = function(env[a], env[b])

        else:

            def closure(env, ids):
                env[target] = function(*[env[each] for each in slots])

        return closure

    # Offsets that do not fit

    def checked(self, step: Step, function: Callable, a: int, b: int) -> Closure:
        """Return the closure of an int32 sum, difference or product in an address, which notices what does not fit."""
        target, place = slot(step.outputs[0]), self.plan.place(step)
        exact = EXACT[step.name]
        known_a, known_b = (value.bounds for value in step.inputs)

        def closure(env, ids):
            x, y = env[a], env[b]
            env[target] = result = function(x, y)
            low_x, high_x = known_a or extremes(x)
            low_y, high_y = known_b or extremes(y)
            corners = exact(low_x, low_y), exact(low_x, high_y), exact(high_x, low_y), exact(high_x, high_y)
            if env[WRAPPED]:
                pass_on(env, (a, b), target)
            if min(corners) < -(2**31) or max(corners) >= 2**31:
                lanes = exact(x.astype(np.int64), y.astype(np.int64)) != result
                if lanes.any():
                    wrap(env, target, lanes, place)

        return closure

    def passing_on(self, step: Step, function: Callable, slots: list[int]) -> Closure:
        """Return the closure of a step through which an overflow goes on towards an address."""
        target = slot(step.outputs[0])
        layout = function if step.name in LAYOUT else None
        chooses = step.name == "arith.select"

        def closure(env, ids):
            env[target] = function(*[env[each] for each in slots])
            if env[WRAPPED] and chooses:
                pass_on_chosen(env, *slots, target)
            elif env[WRAPPED]:
                pass_on(env, slots, target, layout)

        return closure

    # What has an effect, or needs to know the programs

    def constant(self, step: Step) -> Closure:
        value, target = self.constant_of(step), slot(step.outputs[0])

        def closure(env, ids):
            env[target] = value

        return closure

    def constant_of(self, step: Step) -> np.ndarray:
        text = re.sub(r"\$\d+", lambda found: f'"{self.plan.module.string(found[0])}"', step.operation.text)
        return literal(text, step.outputs[0].type)

    def make_range(self, step: Step) -> Closure:
        start, end = (int(step.operation.attributes[name]) for name in ("start", "end"))
        value, target = np.arange(start, end, dtype=np.int32)[None], slot(step.outputs[0])

        def closure(env, ids):
            env[target] = value

        return closure

    def poison(self, step: Step) -> Closure:
        target, kind = slot(step.outputs[0]), step.outputs[0].type
        value = None if kind.dtype is None else undefined(kind.dtype).reshape(1, *(1,) * len(kind.shape))

        def closure(env, ids):
            env[target] = value

        return closure

    def program_id(self, step: Step) -> Closure:
        target, axis = slot(step.outputs[0]), "xyz".index(step.operation.attributes["word"])

        def closure(env, ids):
            env[target] = env[RUN].program_ids(axis, ids)

        return closure

    def num_programs(self, step: Step) -> Closure:
        target, axis = slot(step.outputs[0]), "xyz".index(step.operation.attributes["word"])

        def closure(env, ids):
            env[target] = np.array([env[RUN].grid[axis]], np.int32)

        return closure

    def add_pointer(self, step: Step) -> Closure:
        pointer, offset = step.inputs
        output = step.outputs[0]
        size = output.type.pointee.itemsize
        a, b, target = slot(pointer), slot(offset), slot(output)
        steps = row_steps(pointer) if pointer.is_row and not output.is_row else None
        is_row = output.is_row

        def closure(env, ids):
            address, by = env[a], env[b]
            if is_row:
                address, by = address[..., :1], by[..., :1]
            elif steps is not None:
                address = address + steps
            env[target] = address + by.astype(np.int64) * size
            if env[WRAPPED]:
                pass_on(env, (a, b), target)

        return closure

    def split(self, step: Step) -> Closure:
        source, shape, (left, right) = slot(step.inputs[0]), step.inputs[0].type.shape, map(slot, step.outputs)

        def closure(env, ids):
            value = full(env[source], shape)
            env[left], env[right] = value[..., 0], value[..., 1]

        return closure

    # Memory

    def access(self, kind: str, step: Step, pointer: Value) -> MemoryStep:
        place = self.plan.place(step)
        kind_of = pointer.type
        return MemoryStep(kind, kind_of.pointee, kind_of.shape, pointer.origin, pointer.is_row, place.file, place.line)

    def load(self, step: Step) -> Closure:
        pointer, *rest = step.inputs
        if pointer.type.block is not None:
            return self.load_block(step, self.block_offsets, boundary(step), step.operation.attributes.get("padding"))
        access, target = self.access("load", step, pointer), slot(step.outputs[0])
        at, mask_at = slot(pointer), slot(rest[0]) if rest else None
        other_at = slot(rest[1]) if len(rest) > 1 else None

        def closure(env, ids):
            run, address, mask = reach(env, access, at, mask_at, ids)
            env[target] = access.load(run, address, mask, None if other_at is None else env[other_at], ids)

        return closure

    def store(self, step: Step) -> Closure:
        pointer, value, *rest = step.inputs
        if pointer.type.block is not None:
            return self.store_block(step, self.block_offsets, boundary(step))
        access = self.access("store", step, pointer)
        at, value_at, mask_at = slot(pointer), slot(value), slot(rest[0]) if rest else None

        def closure(env, ids):
            run, address, mask = reach(env, access, at, mask_at, ids, env[value_at])
            access.store(run, address, env[value_at], mask, ids)

        return closure

    def atomic(self, step: Step, change: Callable, operands: list[Value], mask: Value | None) -> Closure:
        pointer = step.inputs[0]
        access, target = self.access("atomic", step, pointer), slot(step.outputs[0])
        at, mask_at = slot(pointer), mask and slot(mask)
        slots, wanted = [slot(value) for value in operands], self.is_used(step.outputs[0])

        def closure(env, ids):
            run, address, mask = reach(env, access, at, mask_at, ids)
            env[target] = access.update(run, address, change, [env[each] for each in slots], mask, ids, wanted)

        return closure

    def atomic_rmw(self, step: Step) -> Closure:
        _, value, *rest = step.inputs
        change = self.change(step, value.type.dtype)
        return self.atomic(step, change, [value], rest[0] if rest else None)

    def change(self, step: Step, dtype: np.dtype) -> Callable:
        """Return what an atomic does with the old value and the given one."""
        word, block = step.operation.attributes["word"], step.inputs[0].type.block
        unsigned = block is not None and block.element.startswith("ui") and word in ("max", "min")
        name = ATOMICS.get("u" + word if unsigned else word)
        if name is None:
            raise self.unsupported(step)
        if not name:
            return lambda old, new: new
        name = name.replace("addi", "addf") if dtype.kind != "i" and name == "arith.addi" else name
        return reduction(name, dtype) or elementwise(name, {}, (dtype, dtype), dtype)

    def atomic_cas(self, step: Step) -> Closure:
        bits = np.dtype(f"u{step.outputs[0].type.dtype.itemsize}")

        def change(old, expected, new):
            return np.where(old.view(bits) == expected.view(bits), new, old)

        return self.atomic(step, change, step.inputs[1:3], None)

    @functools.cached_property
    def used(self) -> set[int]:
        return {value.number for value in all_inputs(self.plan.sections)}

    def is_used(self, value: Value) -> bool:
        return value.number in self.used or self.name_values

    # Descriptors and block pointers

    def make_descriptor(self, step: Step) -> Closure:
        """Both `tt.make_tensor_descriptor` and `tt.make_tensor_ptr`, which has offsets as well."""
        base, *rest = map(slot, step.inputs)
        block, place = step.outputs[0].type.block, self.plan.place(step)
        rank = len(block.shape)
        padding = "nan" if step.operation.attributes.get("padding") == "2" else "zero"
        target = slot(step.outputs[0])

        def closure(env, ids):
            parts = [env[each] for each in rest]
            shape, strides, offsets = parts[:rank], parts[rank : 2 * rank], parts[2 * rank :]
            env[target] = made = Descriptor(env[base], tuple(shape), tuple(strides), tuple(offsets), padding)
            if offsets and env[WRAPPED]:
                pass_on(env, rest[2 * rank :], target)
            if not offsets:
                for wrong, rule in broken_rules(made, block.shape, block.dtype.itemsize):
                    raise KernelError(
                        f"program {first_of(wrong, ids)} makes a descriptor with which a GPU cannot copy, "
                        f"line {place.line}: {rule}"
                    )

        return closure

    def advance(self, step: Step) -> Closure:
        source, *by = map(slot, step.inputs)
        target = slot(step.outputs[0])

        def closure(env, ids):
            block = env[source]
            moved = tuple(offset + env[each] for offset, each in zip(block.offsets, by, strict=True))
            env[target] = block._replace(offsets=moved)
            if env[WRAPPED]:
                pass_on(env, (source, *by), target)

        return closure

    def block_offsets(self, step: Step) -> Callable:
        """Return how to find a descriptor and the offsets of the block that a load or store is about."""
        at = slot(step.inputs[0])
        return lambda env, ids: (env[at], env[at].offsets)

    def given_offsets(self, step: Step) -> Callable:
        """Return the same for a descriptor, whose offsets a GPU must be able to copy from or to."""
        at, place = slot(step.inputs[0]), self.plan.place(step)
        block = step.inputs[0].type.block
        slots = offset_slots(step)
        verb = "loads" if step.name == "tt.descriptor_load" else "stores"

        def find(env, ids):
            offsets = tuple(env[each] for each in slots)
            if env[WRAPPED] and not env[WRAPPED].keys().isdisjoint(slots):
                return env[at], offsets
            for wrong, rule in broken_offsets(offsets, block.dtype.itemsize, is_load=verb == "loads"):
                raise KernelError(
                    f"program {first_of(wrong, ids)} {verb} a block that a GPU cannot copy, line {place.line}: {rule}"
                )
            return env[at], offsets

        return find

    def block_access(self, kind: str, step: Step) -> tuple[MemoryStep, tuple[int, ...]]:
        value = step.inputs[0]
        block, place = value.type.block, self.plan.place(step)
        return MemoryStep(kind, block.dtype, block.shape, value.origin, False, place.file, place.line), block.shape

    def load_block(self, step: Step, find: Callable, checked: Iterable[int], padding: str | None = None) -> Closure:
        access, shape = self.block_access("load", step)
        find, slots, target, kind = find(step), offset_slots(step), slot(step.outputs[0]), step.outputs[0].type

        def closure(env, ids):
            run, (block, offsets) = env[RUN], find(env, ids)
            address, mask = block_addresses(block, offsets, shape, access.size, checked)
            if env[WRAPPED]:
                mask = without_wrapped(env, slots, access, address, mask, ids)
            if run.record is not None:
                run.record.access(run, access, address, mask, ids)
            wanted = {"1": "zero", "2": "nan"}.get(padding or "", block.padding)
            other = undefined(access.dtype)[:1] if wanted == "nan" else np.zeros(1, access.dtype)
            loaded = access.load(run, address, mask, other, ids)
            env[target] = full(loaded, shape).reshape(len(loaded), *kind.shape)

        return closure

    def store_block(self, step: Step, find: Callable, checked: Iterable[int]) -> Closure:
        access, shape = self.block_access("store", step)
        find, slots = find(step), offset_slots(step)
        value = next(v for v in step.inputs[1:] if v.type.shape)
        value_at = slot(value)

        def closure(env, ids):
            run, (block, offsets) = env[RUN], find(env, ids)
            address, mask = block_addresses(block, offsets, shape, access.size, checked)
            if env[WRAPPED]:
                mask = without_wrapped(env, slots, access, address, mask, ids)
            given = full(env[value_at], value.type.shape)
            given = given.reshape(len(given), *shape)
            if run.record is not None:
                run.record.access(run, access, address, mask, ids, given)
            access.store(run, address, given, mask, ids)

        return closure

    def descriptor_load(self, step: Step) -> Closure:
        return self.load_block(step, self.given_offsets, range(len(step.inputs[0].type.block.shape)))

    def descriptor_store(self, step: Step) -> Closure:
        return self.store_block(step, self.given_offsets, range(len(step.inputs[0].type.block.shape)))

    def descriptor_reduce(self, step: Step) -> Closure:
        access, shape = self.block_access("atomic", step)
        find, value = self.given_offsets(step), next(v for v in step.inputs[1:] if v.type.shape)
        change, value_at, slots = self.change(step, access.dtype), slot(value), offset_slots(step)

        def closure(env, ids):
            run, (block, offsets) = env[RUN], find(env, ids)
            address, mask = block_addresses(block, offsets, shape, access.size, range(len(shape)))
            if env[WRAPPED]:
                mask = without_wrapped(env, slots, access, address, mask, ids)
            if run.record is not None:
                run.record.access(run, access, address, mask, ids)
            access.update(run, address, change, [full(env[value_at], shape)], mask, ids, False)

        return closure

    def rows_of(self, step: Step, kind: str) -> tuple[MemoryStep, Callable]:
        """Return the access of a descriptor's gather or scatter, and the function that finds addresses and mask."""
        descriptor, value = step.inputs[0], step.outputs[0] if step.outputs else step.inputs[-1]
        place, at = self.plan.place(step), slot(descriptor)
        shape = value.type.shape
        access = MemoryStep(kind, value.type.dtype, shape, descriptor.origin, False, place.file, place.line)
        rows_at, column_at = (slot(v) for v in step.inputs[1:3])

        def find(env, ids):
            block, rows = env[at], env[rows_at].astype(np.int64)[..., None]
            columns = env[column_at].astype(np.int64)[:, None, None] + np.arange(shape[1])
            height, width = (size.astype(np.int64)[:, None, None] for size in block.shape)
            down, right = (stride.astype(np.int64)[:, None, None] for stride in block.strides)
            address = block.base[:, None, None] + (rows * down + columns * right) * access.size
            mask = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
            if env[WRAPPED]:
                mask = without_wrapped(env, (rows_at, column_at), access, address, mask, ids)
            return address, mask

        return access, find

    def descriptor_gather(self, step: Step) -> Closure:
        access, find = self.rows_of(step, "load")
        target = slot(step.outputs[0])

        def closure(env, ids):
            run, (address, mask) = env[RUN], find(env, ids)
            if run.record is not None:
                run.record.access(run, access, address, mask, ids)
            env[target] = access.load(run, address, mask, np.zeros(1, access.dtype), ids)

        return closure

    def descriptor_scatter(self, step: Step) -> Closure:
        access, find = self.rows_of(step, "store")
        value_at = slot(step.inputs[-1])

        def closure(env, ids):
            run, (address, mask) = env[RUN], find(env, ids)
            if run.record is not None:
                run.record.access(run, access, address, mask, ids, env[value_at])
            access.store(run, address, env[value_at], mask, ids)

        return closure

    # Along an axis

    def region(self, step: Step) -> tuple[Callable, np.ufunc | None]:
        """Return the function (run, left and right values) → values that a region is, and a ufunc equal to it."""
        (sections,) = step.bodies
        closures = self.assemble_all(sections)
        if {slot(value) for value in captured(step)} - self.known:
            raise self.unsupported(step, f"a function given to `{step.name}` must not use other values of the kernel")
        given = [slot(value) for value in sections[0].arguments]
        results = self.new_slots(len(step.outputs))

        def function(run, values):
            env = self.template.copy()
            env[RUN] = replace(run, record=None)  # lanes are no programs: nobody is shown their variables
            for place, value in zip(given, values, strict=True):
                env[place] = value
            self.run_sections(sections, closures, env, np.arange(len(values[0])), results)
            return [env[each] for each in results]

        return function, self.ufunc(sections)

    def ufunc(self, sections: list[Section]) -> np.ufunc | None:
        """Return the ufunc that does what a region of a single operation does."""
        if len(sections) != 1 or len(sections[0].steps) != 2:
            return None
        step, last = sections[0].steps
        if step.inputs != sections[0].arguments or last.inputs != step.outputs:
            return None
        return reduction(step.name, step.outputs[0].type.dtype)

    def reduce(self, step: Step) -> Closure:
        function, ufunc = self.region(step)
        axis = int(step.operation.attributes["axis"]) + 1
        shape, slots, targets = step.inputs[0].type.shape, list(map(slot, step.inputs)), list(map(slot, step.outputs))

        def closure(env, ids):
            values = [env[each] for each in slots]
            if ufunc is not None:
                x = values[0]
                if x.shape[axis] != shape[axis - 1]:
                    x = np.broadcast_to(x, (*x.shape[:axis], shape[axis - 1], *x.shape[axis + 1 :]))
                env[targets[0]] = ufunc.reduce(x, axis=axis, dtype=x.dtype)
                return
            count = max(map(len, values))
            values = [np.moveaxis(np.broadcast_to(x, (count, *shape)), axis, 0) for x in values]
            while (length := len(values[0])) > 1:
                values = halves(functools.partial(function, env[RUN]), values, length // 2)
            for target, value in zip(targets, values, strict=True):
                env[target] = value[0]

        return closure

    def scan(self, step: Step) -> Closure:
        function, ufunc = self.region(step)
        axis = int(step.operation.attributes["axis"]) + 1
        back = step.operation.attributes.get("reverse") == "true"
        shape, slots, targets = step.inputs[0].type.shape, list(map(slot, step.inputs)), list(map(slot, step.outputs))

        def closure(env, ids):
            values = [env[each] for each in slots]
            count = max(map(len, values))
            values = [np.moveaxis(np.broadcast_to(x, (count, *shape)), axis, 0) for x in values]
            values = [x[::-1] if back else x for x in values]
            if ufunc is not None:
                values = [ufunc.accumulate(values[0], axis=0, dtype=values[0].dtype)]
            else:
                values = accumulate(functools.partial(function, env[RUN]), values)
            for target, value in zip(targets, values, strict=True):
                env[target] = np.moveaxis(value[::-1] if back else value, 0, axis)

        return closure

    def map_elements(self, step: Step) -> Closure:
        (sections,) = step.bodies
        closures = self.assemble_all(sections)
        pack = int(step.operation.attributes.get("pack", "1"))
        if {slot(value) for value in captured(step)} - self.known:
            raise self.unsupported(step, f"a function given to `{step.name}` must not use other values of the kernel")
        given = [slot(value) for value in sections[0].arguments]
        results = self.new_slots(len(step.outputs) * pack)
        shape, slots, targets = step.inputs[0].type.shape, list(map(slot, step.inputs)), list(map(slot, step.outputs))

        def closure(env, ids):
            inner = self.template.copy()
            inner[RUN] = replace(env[RUN], record=None)
            count = max(len(env[each]) for each in slots)
            lanes = [np.broadcast_to(env[each], (count, *shape)).reshape(-1, pack) for each in slots]
            for place, value in zip(given, [x[:, i] for x in lanes for i in range(pack)], strict=True):
                inner[place] = value
            self.run_sections(sections, closures, inner, np.arange(len(lanes[0])), results)
            for number, target in enumerate(targets):
                its = results[number * pack : (number + 1) * pack]
                parts = [np.broadcast_to(inner[each], len(lanes[0])) for each in its]
                env[target] = np.stack(parts, axis=-1).reshape(count, *shape)

        return closure

    # Words and claims

    def print(self, step: Step) -> Closure:
        slots, kinds = list(map(slot, step.inputs)), [value.type for value in step.inputs]
        signed = numbers(step.operation.attributes.get("isSigned", "")) or [1] * len(slots)
        message = step.operation.attributes["message"]

        def closure(env, ids):
            run = env[RUN]
            for number in np.argsort(ids, kind="stable").tolist():
                place = tuple(int(run.program_ids(axis, ids[number : number + 1])[0]) for axis in range(3))
                texts = []
                for each, kind, has_sign in zip(slots, kinds, signed, strict=True):
                    value = full(env[each], kind.shape)
                    value = value[number if len(value) > 1 else 0]
                    value = value if has_sign or value.dtype.kind != "i" else value.view(f"u{value.dtype.itemsize}")
                    texts.append(np.array2string(value.astype(np.float32) if value.dtype.isbuiltin == 2 else value))
                print(f"pid {place}{message}{' '.join(texts)}")

        return closure

    def claim(self, step: Step) -> Closure:
        at, place, message = slot(step.inputs[0]), self.plan.place(step), step.operation.attributes["message"]

        def closure(env, ids):
            holds = env[at].reshape(len(env[at]), -1).all(1)
            if not holds.all():
                program = int(ids[int((~holds).argmax())])
                raise KernelError(f"program {program} fails its assertion, line {place.line}: {message}")

        return closure

    # Control flow

    def sides(self, step: Step) -> list[list]:
        return [self.assemble(section) for (section,) in step.bodies]

    def handing_over(self, pairs: Iterable[tuple[Value, Value]]) -> list[tuple[int, int, np.ndarray | None]]:
        """Return (from, to, steps of a row to be laid out) for values that are handed into a region or out of it."""
        return [
            (slot(source), slot(target), row_steps(source) if source.is_row and not target.is_row else None)
            for source, target in pairs
        ]

    def branch(self, step: Step) -> Closure:
        condition, closures = slot(step.inputs[0]), self.sides(step)
        needed = [sorted(slot(value) for value in captured_by([section])) for (section,) in step.bodies]
        moves = [self.handing_over(zip(ends(section), step.outputs, strict=False)) for (section,) in step.bodies]
        targets = list(map(slot, step.outputs))

        def closure(env, ids):
            taken = env[condition]
            if len(taken) == 1 or taken.all() or not taken.any():
                side = 0 if taken[0] else 1
                if side < len(closures):
                    self.carry_out(closures[side], env, ids)
                    move(env, env, moves[side])
                return
            results = []
            for side, keep in enumerate((taken, ~taken)):
                if side < len(closures):
                    inner = self.narrow(env, needed[side], keep)
                    self.carry_out(closures[side], inner, ids[keep])
                    move(inner, inner, moves[side])
                    results.append((inner, np.flatnonzero(keep)))
            collect(env, results, targets, len(ids))

        return closure

    def narrow(self, env: Environment, slots: Iterable[int], keep: np.ndarray) -> Environment:
        """Return an environment with some of the values, for some of the programs."""
        inner = self.template.copy()
        inner[RUN] = env[RUN]
        for each in (WRAPPED, *slots):
            inner[each] = pick(env[each], keep)
        return inner

    def count_loop(self, step: Step) -> Closure:
        (body,) = step.bodies[0]
        index, *inside = body.arguments
        closures = self.assemble(body)
        first, end, by = (slot(value) for value in step.inputs[:3])
        at, dtype = slot(index), index.type.dtype
        unsigned = step.operation.attributes["unsigned"] == "True"
        needed = sorted({slot(value) for value in captured_by([body])} | {end, by})
        enter = self.handing_over(zip(step.inputs[3:], inside, strict=True))
        again = self.handing_over(zip(ends(body), inside, strict=True))
        leave = self.handing_over(zip(inside, step.outputs, strict=True))
        carried = [slot(value) for value in inside]
        view = (lambda x: x.view(f"u{x.dtype.itemsize}")) if unsigned else (lambda x: x)

        def closure(env, ids):
            run = env[RUN]
            start, stop, stride = view(env[first]), view(env[end]), view(env[by])
            if (stride <= 0).any():
                raise KernelError("a loop's step must be positive")
            move(env, env, enter)
            if len(start) == len(stop) == len(stride) == 1:
                for turn in range(int(start[0]), int(stop[0]), int(stride[0])):
                    env[at] = np.array([turn], dtype)
                    self.carry_out(closures, env, ids)
                    move(env, env, again)
                    run.turn()
                move(env, env, leave)
                return
            inner, here, place = env, ids, np.arange(len(ids))
            results: list[tuple[Environment, np.ndarray]] = []
            current = np.broadcast_to(env[first], len(ids)).copy()
            while True:
                live = view(current) < view(inner[end])
                if not live.all():
                    gone = np.broadcast_to(~live, len(here))
                    results.append((self.narrow(inner, carried, gone), place[gone]))
                    live = ~gone
                    if not live.any():
                        break
                    inner = self.narrow(inner, [*needed, *carried], live)
                    here, place, current = here[live], place[live], current[live]
                inner[at] = current
                self.carry_out(closures, inner, here)
                move(inner, inner, again)
                current = current + inner[by]
                run.turn()
            collect(env, results, carried, len(ids))
            move(env, env, leave)

        return closure

    def while_loop(self, step: Step) -> Closure:
        (before,), (after,) = step.bodies
        weight = 1
        if any(each.name.startswith("tt.atomic") or is_volatile(each) for each in all_steps([before, after])):
            self.waits, weight = True, WAITING
        test, body = self.assemble(before), self.assemble(after)
        condition, *passed = ends(before)
        needed = sorted(slot(value) for value in captured_by([before, after]))
        enter = self.handing_over(zip(step.inputs, before.arguments, strict=True))
        go_on = self.handing_over(zip(passed, after.arguments, strict=True))
        again = self.handing_over(zip(ends(after), before.arguments, strict=True))
        leave = self.handing_over(zip(passed, step.outputs, strict=True))
        taken, targets = slot(condition), [slot(value) for value in step.outputs]
        carried = [slot(value) for value in before.arguments]

        def closure(env, ids):
            run = env[RUN]
            move(env, env, enter)
            inner, here, place = env, ids, np.arange(len(ids))
            results: list[tuple[Environment, np.ndarray]] = []
            while True:
                self.carry_out(test, inner, here)
                live = np.broadcast_to(inner[taken], len(here))
                if not live.all():
                    gone = ~live
                    move(inner, inner, leave)
                    results.append((self.narrow(inner, targets, gone), place[gone]))
                    if not live.any():
                        break
                    inner = self.narrow(inner, [*needed, *carried, *(slot(value) for value in passed)], live)
                    here, place = here[live], place[live]
                move(inner, inner, go_on)
                self.carry_out(body, inner, here)
                move(inner, inner, again)
                run.turn(weight)
            collect(env, results, targets, len(ids))

        return closure

    def call(self, step: Step) -> Closure:
        """A call of a function that returns from several places."""
        (sections,) = step.bodies
        closures = self.assemble_all(sections)
        targets = list(map(slot, step.outputs))

        def closure(env, ids):
            self.run_sections(sections, closures, env, ids, targets)

        return closure

    def run_sections(
        self, sections: list[Section], closures: list, env: Environment, ids: np.ndarray, targets: list[int]
    ) -> None:
        """Run a function's body, and put what it returns into `targets`.

        The set of programs that waits at the first section goes first, so that sets meet where their ways join.
        """
        outer = env
        if len(sections) == 1:
            self.carry_out(closures[0], env, ids)
            move(env, env, self.handing_to(ends(sections[0]), targets))
            return
        waiting: dict[int, list] = {0: [(np.arange(len(ids)), env)]}
        results = []
        while waiting:
            number = min(waiting)
            place, env = self.meet(waiting.pop(number))
            self.carry_out(closures[number], env, ids[place])
            env[RUN].turn()
            last = sections[number].steps[-1]
            if not last.targets:
                env = env.copy()
                move(env, env, self.handing_to(last.inputs, targets))
                results.append((env, place))
                continue
            keeps = [np.ones(len(place), bool)]
            if len(last.targets) > 1:
                taken = np.broadcast_to(env[slot(last.inputs[0])], len(place))
                keeps = [taken, ~taken]
            for (to, given), keep in zip(last.targets, keeps, strict=True):
                if keep.any():
                    inner = env.copy() if keep.all() else [pick(value, keep) for value in env]
                    move(inner, inner, self.handing_to(given, map(slot, sections[to].arguments)))
                    waiting.setdefault(to, []).append((place[keep], inner))
        collect(outer, results, targets, len(ids))

    def handing_to(self, values: Iterable[Value], targets: Iterable[int]) -> list[tuple[int, int, np.ndarray | None]]:
        """Return the same for values that are handed to slots where rows are laid out."""
        return [
            (slot(value), target, row_steps(value) if value.is_row else None)
            for value, target in zip(values, targets, strict=True)
        ]

    def meet(self, sets: list[tuple[np.ndarray, Environment]]) -> tuple[np.ndarray, Environment]:
        """Return sets of programs that have come to the same place as one."""
        if len(sets) == 1:
            return sets[0]
        places = [place for place, _ in sets]
        everyone = np.sort(np.concatenate(places))
        where = [np.searchsorted(everyone, place) for place in places]
        env = self.template.copy()
        env[WRAPPED] = merge_wrapped([env[WRAPPED] for _, env in sets], where, len(everyone))
        for number, values in enumerate(zip(*(env for _, env in sets), strict=True)):
            if any(value is None for value in values) or number == WRAPPED:
                continue
            if all(value is values[0] for value in values) and not (
                isinstance(values[0], np.ndarray) and len(values[0]) > 1
            ):
                env[number] = values[0]
            else:
                env[number] = merge(list(values), where, len(everyone))
        return everyone, env

    # What a person who traces wants to see

    def assigned(self, step: Step) -> tuple:
        """Return what tells one assignment from another: steps on the way to a variable's value bear its name too."""
        place = self.plan.module.place(step.operation.location)
        return place.file, place.line, place.name

    def naming(self, step: Step) -> list[Closure]:
        """Return closures that show the record the variable to which a step's result was given."""
        place = self.plan.module.place(step.operation.location)
        where = self.plan.place(step)
        values = step.inputs if step.name == "name" else step.outputs
        if not place.name or place.file != where.file or len(values) != 1 or values[0].type.dtype is None:
            return []
        value, at, name, line = values[0], slot(values[0]), place.name, place.line
        steps, shape = row_steps(value) if value.is_row else 0, value.type.shape

        def closure(env, ids):
            if env[RUN].record is not None:
                env[RUN].record.value(name, line, shape, env[at] + steps if value.is_row else env[at], ids)

        return [closure]


def move(source: Environment, target: Environment, moves: list[tuple[int, int, np.ndarray | None]]) -> None:
    """Hand values over, all at the same time."""
    if not moves:
        return
    values = [source[a] if steps is None else source[a] + steps for a, _, steps in moves]
    wrapped = source[WRAPPED]
    found = [wrapped.get(a) for a, _, _ in moves] if wrapped else ()
    for (_, b, _), value in zip(moves, values, strict=True):
        target[b] = value
    for (_, b, _), lanes in zip(moves, found, strict=False):
        if lanes is None:
            wrapped.pop(b, None)
        else:
            wrapped[b] = lanes


def collect(env: Environment, results: list[tuple[Environment, np.ndarray]], targets: list[int], count: int) -> None:
    """Put together what sets of programs, each with its places among `count` programs, have in some slots."""
    places = [place for _, place in results]
    for target in targets:
        env[target] = merge([inner[target] for inner, _ in results], places, count)
    wrapped = merge_wrapped([inner[WRAPPED] for inner, _ in results], places, count)
    if wrapped or env[WRAPPED]:
        before, after = env[WRAPPED] or {}, wrapped or {}
        env[WRAPPED] = {at: lanes for at, lanes in before.items() if at not in targets}
        env[WRAPPED] |= {at: lanes for at, lanes in after.items() if at in targets}


def reach(env: Environment, access: MemoryStep, at: int, mask_at: int | None, ids: np.ndarray, value=None):
    """Return the launch, the addresses and the mask of an access that begins, after the record has seen it.

    Lanes whose offset has wrapped around are masked off. value: what is stored.
    """
    run, address, mask = env[RUN], env[at], active(env, mask_at)
    if env[WRAPPED]:
        mask = without_wrapped(env, (at,), access, address, mask, ids)
    if run.record is not None:
        run.record.access(run, access, address, mask, ids, value)
    return run, address, mask


def active(env: Environment, mask_at: int | None) -> np.ndarray | None:
    """Return the mask of an access, None where it lets everything through."""
    if mask_at is None or env[mask_at].all():
        return None
    return env[mask_at]


METHODS: dict[str, Callable[[Assembly, Step], Closure]] = {
    "arith.constant": Assembly.constant,
    "tt.make_range": Assembly.make_range,
    "ub.poison": Assembly.poison,
    "tt.get_program_id": Assembly.program_id,
    "tt.get_num_programs": Assembly.num_programs,
    "tt.addptr": Assembly.add_pointer,
    "tt.split": Assembly.split,
    "tt.load": Assembly.load,
    "tt.store": Assembly.store,
    "tt.atomic_rmw": Assembly.atomic_rmw,
    "tt.atomic_cas": Assembly.atomic_cas,
    "tt.make_tensor_descriptor": Assembly.make_descriptor,
    "tt.make_tensor_ptr": Assembly.make_descriptor,
    "tt.advance": Assembly.advance,
    "tt.descriptor_load": Assembly.descriptor_load,
    "tt.descriptor_store": Assembly.descriptor_store,
    "tt.descriptor_reduce": Assembly.descriptor_reduce,
    "tt.descriptor_gather": Assembly.descriptor_gather,
    "tt.descriptor_scatter": Assembly.descriptor_scatter,
    "tt.reduce": Assembly.reduce,
    "tt.scan": Assembly.scan,
    "tt.map_elementwise": Assembly.map_elements,
    "tt.print": Assembly.print,
    "tt.assert": Assembly.claim,
    "tt.call": Assembly.call,
    "scf.if": Assembly.branch,
    "scf.for": Assembly.count_loop,
    "scf.while": Assembly.while_loop,
}


UNSUPPORTED = {
    "tt.elementwise_inline_asm": ": assembly is for one GPU alone",
}
