"""A kernel laid out for execution: its calls expanded, its values numbered, and what can be known before it runs.

Of each value: how it grows along its axes, so that a row of addresses is one slice; which arguments a pointer can come
from, so that an access is held to its own tensor; and whether it counts towards an address, so that an overflow there
is noticed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lab.machine.text import Block, Function, Module, Operation, Place, TextError, Type
from lab.machine.verify import fits

MOST_STEPS = 25_000  # operations after all calls are expanded: a text could double them with each call
DEEPEST_CALL = 100
LIBRARY = "/triton/language/"  # what stands there was written by Triton's authors: blame whoever called it
ANYWHERE = None  # the origin of a pointer that was made from an integer
NOWHERE: frozenset[int] = frozenset()


@dataclass(eq=False)
class Value:
    """One value of the plan.

    growth: by how much it grows from one index to the next along each axis, None where that varies or is unknown.
    constant: the integer that every element is. bounds: the least and the greatest integer it can be. origin: the
    numbers of the parameters that a pointer can have been derived from. counts: whether it is part of an address.
    """

    number: int
    type: Type
    growth: tuple[int | None, ...]
    constant: int | None = None
    bounds: tuple[int, int] | None = None
    origin: frozenset[int] | None = NOWHERE
    counts: bool = False

    @property
    def is_row(self) -> bool:
        """Whether it is kept as the first address of each row: the others follow, element by element."""
        shape = self.type.shape
        return self.type.pointee is not None and len(shape) > 0 and shape[-1] > 1 and self.growth[-1] == 1

    @property
    def facts(self) -> tuple:
        return self.growth, self.constant, self.bounds, self.origin

    def learn(self, other: "Value") -> None:
        """Take over what is known of another value that this one is equal to."""
        self.growth, self.constant, self.bounds, self.origin = other.facts

    def meet(self, other: "Value") -> bool:
        """Keep what is known of both; return whether that is less than before."""
        before = self.facts
        pairs = zip(self.growth, other.growth, strict=True)
        self.growth = tuple(mine if mine == theirs else None for mine, theirs in pairs)
        self.constant = self.constant if self.constant == other.constant else None
        self.bounds = self.bounds if self.bounds == other.bounds else None
        self.origin = union(self.origin, other.origin)
        return self.facts != before


def union(a: frozenset[int] | None, b: frozenset[int] | None) -> frozenset[int] | None:
    return ANYWHERE if a is ANYWHERE or b is ANYWHERE else a | b


@dataclass(eq=False)
class Step:
    """One operation at one place of the plan."""

    operation: Operation
    inputs: list[Value]
    outputs: list[Value]
    calls: tuple[str, ...]  # locations of the calls that led here, the outermost first
    bodies: "list[list[Section]]" = field(default_factory=list)
    targets: "list[tuple[int, list[Value]]]" = field(default_factory=list)  # of a branch: section, what it is given

    @property
    def name(self) -> str:
        return self.operation.name


@dataclass(eq=False)
class Section:
    """Steps that run one after the other, and the values that whoever comes here brings."""

    arguments: list[Value]
    steps: list[Step] = field(default_factory=list)


class Plan:
    """The kernel of a module, ready to be turned into functions of arrays."""

    def __init__(self, module: Module):
        self.module = module
        self.values: list[Value] = []
        self.count = 0
        kernel = module.functions[module.entry]
        self.parameters = [self.value(kind) for _, kind in kernel.parameters]
        self.names = [name.removeprefix("%") for name, _ in kernel.parameters]
        for number, parameter in enumerate(self.parameters):
            parameter.origin = frozenset([number])
        scope = {name: value for (name, _), value in zip(kernel.parameters, self.parameters, strict=True)}
        self.sections = self.expand(kernel.blocks, scope, ())
        Facts().of_sections(self.sections)
        self.mark_addresses()

    def value(self, kind: Type) -> Value:
        value = Value(len(self.values), kind, (None,) * len(kind.shape))
        self.values.append(value)
        return value

    # Operations to steps

    def expand(self, blocks, scope: dict[str, Value], calls: tuple[str, ...]) -> list[Section]:
        """Return the sections for some blocks, in which `scope` says what names mean."""
        scope = dict(scope)
        sections = []
        blocks = list(reachable(blocks))
        for block in blocks:
            section = Section([self.value(kind) for _, kind in block.arguments])
            scope.update((name, value) for (name, _), value in zip(block.arguments, section.arguments, strict=True))
            sections.append(section)
        labels = {block.label: number for number, block in enumerate(blocks)}
        pending = []
        for block, section in zip(blocks, sections, strict=True):
            for operation in block.operations:
                steps = self.steps(operation, scope, calls)
                section.steps += steps
                pending += [(steps[-1], labels[label], given) for label, given in operation.successors]
        for step, number, given in pending:
            step.targets.append((number, [scope[name] for name in given]))
            self.verify(step, zip(sections[number].arguments, step.targets[-1][1], strict=True))
        for section in sections:
            leaves = [step.name in LEAVES for step in section.steps]
            if any(leaves[:-1]) or (len(sections) > 1 and not any(leaves)):
                raise TextError("a block must say where to go on as it ends, and nowhere else")
        return sections

    def verify(self, step: Step, pairs: Iterable[tuple[Value, Value]]) -> None:
        """Raise TextError where a step's values do not fit together, or a value cannot be another one that it gets."""
        if not fits(step) or any(target.type != source.type for target, source in pairs):
            place = self.place(step)
            where = f", line {place.line}" if place.line else ""
            raise TextError(f"the types of `{step.name}` do not fit together{where}")

    def steps(self, operation: Operation, scope: dict[str, Value], calls: tuple[str, ...]) -> list[Step]:
        """Return the steps of one operation: those of the function's body for a call of straight-line code."""
        self.count += 1
        if self.count > MOST_STEPS:
            raise TextError(f"the kernel has more than {MOST_STEPS:,} operations")
        try:
            inputs = [scope[name] for name in operation.operands]
        except KeyError as name:
            raise TextError(f"{operation.name} uses {name}, which nothing defines before") from None
        if operation.name == "tt.call":
            body = self.expand_call(operation, inputs, calls)
            if len(body) == 1 and len(ends(body[0])) == len(operation.results):
                scope.update(zip(operation.results, ends(body[0]), strict=True))
                naming = Operation("name", [], [], {}, [], "", operation.location)
                return [*body[0].steps[:-1], Step(naming, ends(body[0]), [], calls)]
            bodies = [body]
        else:
            bodies = [self.expand(blocks, scope, calls) for blocks in operation.regions]
        outputs = [self.value(kind) for kind in operation.types]
        scope.update(zip(operation.results, outputs, strict=True))
        step = Step(operation, inputs, outputs, calls, bodies)
        self.verify(step, joins(step))
        return [step]

    def expand_call(self, operation: Operation, inputs: list[Value], calls: tuple[str, ...]) -> list[Section]:
        name = operation.attributes["callee"]
        if name not in self.module.functions or len(calls) > DEEPEST_CALL:
            raise TextError(f"the call of {name} leads nowhere")
        function: Function = self.module.functions[name]
        if len(function.parameters) != len(inputs):
            raise TextError(f"{name} is called with {len(inputs)} arguments and takes {len(function.parameters)}")
        if any(value.type != kind for value, (_, kind) in zip(inputs, function.parameters, strict=True)):
            raise TextError(f"{name} is called with arguments of other types than it takes")
        scope = {name: value for (name, _), value in zip(function.parameters, inputs, strict=True)}
        return self.expand(function.blocks, scope, (*calls, operation.location))

    # What an operation is to the person who wrote it

    def place(self, step: Step) -> Place:
        """Return where a step stands in the innermost code that is not Triton's own."""
        own = self.module.place(step.operation.location)
        for place in (own, *(self.module.place(call) for call in reversed(step.calls))):
            if place.file and LIBRARY not in place.file:
                return place._replace(name=own.name)
        return own

    # Which values become addresses

    def mark_addresses(self) -> None:
        """Set `counts` on every integer that some address is computed from by adding and multiplying."""
        sources_of: dict[Value | None, list[Value]] = {}
        for target, sources in self.flows(self.sections):
            sources_of.setdefault(target, []).extend(sources)
        pending = list(sources_of.get(None, ()))
        while pending:
            value = pending.pop()
            if not value.counts:
                value.counts = True
                pending += sources_of.get(value, ())

    def flows(self, sections: list[Section]) -> Iterator[tuple[Value | None, list[Value]]]:
        """Yield (value, what it is computed from) where an overflow would pass on; None for an address itself."""
        for section in sections:
            for step in section.steps:
                name, inputs, outputs = step.name, step.inputs, step.outputs
                if name == "tt.addptr":
                    yield None, inputs[1:]
                elif name.startswith("tt.descriptor_") or name in ("tt.advance", "tt.make_tensor_ptr"):
                    written = name in ("tt.descriptor_store", "tt.descriptor_reduce", "tt.descriptor_scatter")
                    places = inputs[1:-1] if written else inputs[1:]
                    yield None, [value for value in places if value.type.element == "i32"]
                elif name in PASSES_ON:
                    yield outputs[0], inputs[PASSES_ON[name] :]
                for body in step.bodies:
                    yield from self.flows(body)
                for target, source in joins(step):
                    yield target, [source]


def reachable(blocks: list[Block]) -> Iterator[Block]:
    """Yield the blocks that can be come to from the first one, in their order."""
    by_label = {block.label: block for block in blocks}
    pending, found = [blocks[0].label], set()
    while pending:
        label = pending.pop()
        if label not in found:
            found.add(label)
            pending += [target for operation in by_label[label].operations for target, _ in operation.successors]
    return (block for block in blocks if block.label in found)


PASSES_ON = {  # operation → its first input that counts
    **dict.fromkeys(("arith.addi", "arith.subi", "arith.muli", "arith.extsi", "arith.bitcast", "tt.splat"), 0),
    **dict.fromkeys(("tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"), 0),
    "arith.select": 1,
}


def joins(step: Step) -> Iterator[tuple[Value, Value]]:
    """Yield (value, another that it can be) for the values that a step hands into its bodies and out of them."""
    if step.name == "scf.for":
        (body,) = step.bodies[0]
        for given, inside, after, out in zip(
            step.inputs[3:], body.arguments[1:], ends(body), step.outputs, strict=True
        ):
            yield from ((inside, given), (inside, after), (out, inside))
    elif step.name == "scf.while":
        (before,), (after,) = step.bodies
        passed = ends(before)[1:]
        yield from zip(before.arguments, step.inputs, strict=True)
        yield from zip(before.arguments, ends(after), strict=True)
        yield from zip(after.arguments, passed, strict=True)
        yield from zip(step.outputs, passed, strict=True)
    elif step.name == "scf.if":
        for (side,) in step.bodies:
            yield from zip(step.outputs, ends(side), strict=True)
    elif step.name == "tt.call":
        for section in step.bodies[0]:
            if section.steps and section.steps[-1].name == "tt.return":
                yield from zip(step.outputs, ends(section), strict=True)
    for body in step.bodies:
        for section in body:
            last = section.steps[-1] if section.steps else None
            for number, given in last.targets if last else ():
                yield from zip(body[number].arguments, given, strict=True)


def ends(section: Section) -> list[Value]:
    """Return what the last step of a section hands on. A region that hands on nothing may end in any step."""
    last = section.steps[-1] if section.steps else None
    return last.inputs if last and last.name in TERMINATORS else []


LEAVES = {"cf.br", "cf.cond_br", "tt.return", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return"}
TERMINATORS = {
    *("scf.yield", "scf.condition", "tt.return", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return"),
    "cf.cond_br",
}


class Facts:
    """Fills in what is known of values, from the first step to the last; loops until nothing changes any more.

    Whoever comes back to a loop inside of another one knows less than before, never more: it goes on from what it had.
    """

    def __init__(self):
        self.seen: set[Step | Section] = set()  # loops, and functions by their first section

    def comes_first(self, place: Step | Section) -> bool:
        """Return whether this is the first visit to a place."""
        first = place not in self.seen
        self.seen.add(place)
        return first

    def of_sections(self, sections: list[Section]) -> None:
        """Learn about all values of a function's body or a region."""
        if len(sections) > 1:
            self.of_branches(sections)
            return
        for step in sections[0].steps:
            self.of_step(step)

    def of_branches(self, sections: list[Section]) -> None:
        """Learn about sections that jump to each other; their arguments keep their origin only."""
        if self.comes_first(sections[0]):
            for section in sections:
                for argument in section.arguments:
                    argument.origin = NOWHERE
        changed = True
        while changed:
            changed = False
            for section in sections:
                for step in section.steps:
                    self.of_step(step)
                for number, given in section.steps[-1].targets:
                    for argument, value in zip(sections[number].arguments, given, strict=True):
                        changed |= argument.meet(value)

    def of_step(self, step: Step) -> None:
        learn = getattr(self, "of_" + step.name.rpartition(".")[2], None)
        if learn is not None:
            learn(step)
        elif step.bodies:
            for body in step.bodies:
                self.of_sections(body)
        if learn is None and step.outputs:
            for output in step.outputs:
                flat = bool(step.inputs) and not step.bodies and all(is_flat(value, output) for value in step.inputs)
                output.growth = ((0,) if flat else (None,)) * len(output.type.shape)
                output.origin = ANYWHERE

    def of_constant(self, step: Step) -> None:
        (output,) = step.outputs
        literal = step.operation.text.rsplit(" : ", 1)[0].removeprefix(" dense<").removesuffix(">").strip()
        if "[" not in literal and not literal.startswith("$"):
            output.growth = (0,) * len(output.type.shape)
        if literal.lstrip("-").isdigit():
            output.constant = int(literal)
            output.bounds = output.constant, output.constant

    def of_make_range(self, step: Step) -> None:
        start, end = (int(step.operation.attributes[name]) for name in ("start", "end"))
        step.outputs[0].growth = (1,)
        step.outputs[0].bounds = start, end - 1

    def of_splat(self, step: Step) -> None:
        (value,), (output,) = step.inputs, step.outputs
        output.learn(value)
        output.growth = (0,) * len(output.type.shape)

    def of_expand_dims(self, step: Step) -> None:
        (value,), (output,) = step.inputs, step.outputs
        axis = int(step.operation.attributes["axis"])
        output.learn(value)
        output.growth = (*value.growth[:axis], 0, *value.growth[axis:])

    def of_broadcast(self, step: Step) -> None:
        step.outputs[0].learn(step.inputs[0])

    of_extsi = of_broadcast

    def of_bitcast(self, step: Step) -> None:
        (value,), (output,) = step.inputs, step.outputs
        if value.type.dtype == output.type.dtype:
            output.learn(value)
        if output.type.pointee is not None and value.type.pointee != output.type.pointee:
            output.growth = tuple(0 if growth == 0 else None for growth in value.growth)

    def of_reshape(self, step: Step) -> None:
        step.outputs[0].origin = step.inputs[0].origin

    of_trans = of_unsplat = of_make_tensor_descriptor = of_make_tensor_ptr = of_advance = of_reshape

    def of_select(self, step: Step) -> None:
        _, a, b = step.inputs
        (output,) = step.outputs
        output.origin = union(a.origin, b.origin)
        output.growth = tuple(0 if x == y == 0 else None for x, y in zip(a.growth, b.growth, strict=True))

    def of_addptr(self, step: Step) -> None:
        self.of_addi(step)
        step.outputs[0].origin = step.inputs[0].origin

    def of_addi(self, step: Step, sign: int = 1) -> None:
        (a, b), (output,) = step.inputs, step.outputs
        pairs = zip(a.growth, b.growth, strict=True)
        output.growth = tuple(None if x is None or y is None else x + sign * y for x, y in pairs)

    def of_subi(self, step: Step) -> None:
        self.of_addi(step, -1)

    def of_muli(self, step: Step) -> None:
        (a, b), (output,) = step.inputs, step.outputs
        output.growth = tuple(
            0 if x == y == 0 else scaled(x, b.constant) if b.constant is not None else scaled(y, a.constant)
            for x, y in zip(a.growth, b.growth, strict=True)
        )

    def of_for(self, step: Step) -> None:
        (body,) = step.bodies[0]
        learn = Value.learn if self.comes_first(step) else Value.meet
        for given, inside in zip(step.inputs[3:], body.arguments[1:], strict=True):
            learn(inside, given)
            inside.bounds = None
        while True:
            self.of_sections(step.bodies[0])
            changed = [inside.meet(after) for inside, after in zip(body.arguments[1:], ends(body), strict=True)]
            if not any(changed):
                break
        for output, inside in zip(step.outputs, body.arguments[1:], strict=True):
            output.learn(inside)

    def of_while(self, step: Step) -> None:
        """Learn where pointers come from; what else a loop carries may change in any way."""
        (before,), (after,) = step.bodies
        if self.comes_first(step):
            for value in (*before.arguments, *after.arguments, *step.outputs):
                value.origin = NOWHERE
        while True:
            for body in step.bodies:
                self.of_sections(body)
            changed = [target.meet(source) for target, source in joins(step)]
            if not any(changed):
                break

    def of_if(self, step: Step) -> None:
        for body in step.bodies:
            self.of_sections(body)
        for output, *others in zip(step.outputs, *(ends(section) for (section,) in step.bodies), strict=False):
            output.learn(others[0])
            for other in others[1:]:
                output.meet(other)

    def of_call(self, step: Step) -> None:
        self.of_sections(step.bodies[0])
        returns = [ends(section) for section in step.bodies[0] if ends_in_return(section)]
        for output, *others in zip(step.outputs, *returns, strict=True):
            output.learn(others[0])
            for other in others[1:]:
                output.meet(other)


def is_flat(value: Value, like: Value) -> bool:
    """Return whether all elements of a value are equal, and it has the shape of another."""
    return value.type.shape == like.type.shape and set(value.growth) <= {0}


def scaled(growth: int | None, factor: int | None) -> int | None:
    return None if growth is None or factor is None else growth * factor


def ends_in_return(section: Section) -> bool:
    return bool(section.steps) and section.steps[-1].name == "tt.return"


# Walks over a plan


def all_steps(sections: Iterable[Section]) -> Iterable[Step]:
    for section in sections:
        for step in section.steps:
            yield step
            for body in step.bodies:
                yield from all_steps(body)


def all_inputs(sections: Iterable[Section]) -> Iterable[Value]:
    for step in all_steps(sections):
        yield from step.inputs
        for _, given in step.targets:
            yield from given


def captured_by(sections: Iterable[Section]) -> set[Value]:
    """Return the values that sections use and do not make."""
    sections = list(sections)
    made = {value for step in all_steps(sections) for value in step.outputs}
    for section in (*sections, *(s for step in all_steps(sections) for body in step.bodies for s in body)):
        made.update(section.arguments)
    return set(all_inputs(sections)) - made


def captured(step: Step) -> set[Value]:
    return set().union(*(captured_by(body) for body in step.bodies))


def used_by(step: Step) -> list[Value]:
    """Return all values that a step needs, in itself or in its regions."""
    given = [value for _, values in step.targets for value in values]
    return [*step.inputs, *given, *captured(step), *step.outputs]


def is_volatile(step: Step) -> bool:
    return step.name == "tt.load" and step.operation.attributes.get("isVolatile") == "true"
