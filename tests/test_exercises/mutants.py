"""Small edits of the official answers: each makes a wrong answer, or one that is as good.

A mutant's name tells the kind of the edit, what stood there and what stands there now. It does not change with lines
or layout.
"""

import ast
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations
from typing import Any

text = ast.unparse
Edit = tuple[str, str]  # its kind, and the code that takes the place of an expression or statement

COMPARISONS = {
    ast.Lt: ("<=", ">", ">="),
    ast.LtE: ("<", ">=", ">"),
    ast.Gt: (">=", "<", "<="),
    ast.GtE: (">", "<=", "<"),
    ast.Eq: ("!=", ">="),
    ast.NotEq: ("==",),
}
OPERATORS = {
    ast.Add: ("-",),
    ast.Sub: ("+",),
    ast.Mult: ("+", "/"),
    ast.Div: ("*",),
    ast.FloorDiv: ("%", "*"),
    ast.Mod: ("//",),
    ast.Pow: ("*",),
    ast.BitAnd: ("|",),
    ast.BitOr: ("&",),
}
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)  # their operands may not change places
CALLS = {
    "tl.max": "tl.min",
    "tl.maximum": "tl.minimum",
    "tl.minimum": "tl.maximum",
    "tl.sum": "tl.max",
    "tl.exp": "tl.exp2",
    "tl.exp2": "tl.exp",
    "tl.log": "tl.log2",
    "tl.floor": "tl.ceil",
}
UNARY = ("tl.exp", "tl.exp2", "tl.log", "tl.abs", "tl.floor", "tl.sigmoid", "libdevice.log1p")
LOW = ("tl.bfloat16", "tl.float16")
NEUTRAL = ("0.0", "1.0", "-float('inf')", "float('inf')")  # what `other=` may be
LEAF = (ast.Name, ast.Constant, ast.Attribute, ast.UnaryOp)
ROOT = re.compile(r"\b(\w+_ptr)s?\b")


@dataclass(frozen=True)
class Mutant:
    """An edited answer to a task: the code of its cell."""

    task: str
    name: str
    source: str


@dataclass
class Place:
    """Where an expression or statement stands in its parent, and the place of that one."""

    parent: ast.AST
    name: str
    index: int | None
    above: "Place | None"

    @property
    def node(self) -> Any:
        value = getattr(self.parent, self.name)
        return value if self.index is None else value[self.index]

    @node.setter
    def node(self, new: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.name, new)
        else:
            getattr(self.parent, self.name)[self.index] = new

    def shown(self) -> "Place":
        """Return the place whose code tells a reader where this is: a name or a number alone does not."""
        place = self
        while isinstance(place.node, LEAF) and place.above is not None and isinstance(place.above.node, ast.expr):
            place = place.above
        return place


@dataclass
class Names:
    """What the names in one function stand for: conditions, strides, floating values, and what loops carry."""

    in_kernel: bool
    masks: set[str]
    strides: set[str]
    floats: set[str]
    carried: set[str]


def mutants_of(task: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of an answer, each text once."""
    tree = ast.parse(source)
    known, counts = {text(tree)}, dict[str, int]()
    for function in tree.body:
        assert isinstance(function, ast.FunctionDef)
        names = names_of(function)
        if text(function).count(".to(tl.float32)") > 1:
            bare = text(WithoutCasts().visit(deepcopy(function)))
            yield Mutant(task, f"every cast dropped: {function.name}", text(tree).replace(text(function), bare) + "\n")
        for place in places(function):
            before, shown = place.node, place.shown()
            shown_before = text(shown.node)
            for kind, code in edits(place, names):
                place.node = parsed(code, isinstance(before, ast.stmt))
                edited, shown_after = text(tree), text(shown.node)
                place.node = before
                if edited not in known:
                    known.add(edited)
                    name = f"{kind}: {shown_before} → {shown_after}"
                    counts[name] = counts.get(name, 0) + 1
                    yield Mutant(task, name + f" ({counts[name]})" * (counts[name] > 1), edited + "\n")


class WithoutCasts(ast.NodeTransformer):
    """Drops every `.to(tl.float32)`."""

    def visit_Call(self, call: ast.Call) -> ast.expr:
        self.generic_visit(call)
        cast = isinstance(call.func, ast.Attribute) and call.func.attr == "to" and text(call.args[0]) == "tl.float32"
        return call.func.value if cast else call  # type: ignore[attr-defined]


def parsed(code: str, statement: bool) -> ast.AST:
    return ast.parse(code).body[0] if statement else ast.parse(code, mode="eval").body


def places(function: ast.FunctionDef) -> Iterator[Place]:
    """Yield the place of every statement and expression in the body of a function."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    queue = [Place(function, "body", function.body.index(node), None) for node in body]
    while queue:
        place = queue.pop(0)
        yield place
        for name, value in ast.iter_fields(place.node):
            for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(node, (ast.expr, ast.stmt)):
                    queue.append(Place(place.node, name, index, place))
                elif isinstance(node, ast.keyword):
                    queue.append(Place(node, "value", None, place))


def names_of(function: ast.FunctionDef) -> Names:
    """Return what the names of a function stand for."""
    parameters = {argument.arg for argument in function.args.args}
    strides = {name for name in parameters if name.startswith("stride")}
    before = {target for node in function.body for target in targets(node)}
    names = Names(bool(function.decorator_list), set(), strides, set(), before)
    for _ in range(2):  # what a loop carries is known only after its body
        for node in ast.walk(function):
            for target, value in assigned(node):
                if is_condition(value):
                    names.masks.add(target)
                elif is_float(value, names.floats):
                    names.floats.add(target)
    return names


def assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names and values of an assignment."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, node.value
    elif isinstance(node, ast.Assign):
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=True))
        yield from ((each.id, its) for each, its in pairs if isinstance(each, ast.Name))


def targets(node: ast.AST) -> list[str]:
    """Return the names that a statement assigns."""
    each = [node.target] if isinstance(node, ast.AugAssign) else node.targets if isinstance(node, ast.Assign) else []
    return [name.id for target in each for name in ast.walk(target) if isinstance(name, ast.Name)]


def is_condition(value: ast.expr) -> bool:
    return isinstance(value, ast.Compare) or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitAnd))


def is_float(value: ast.expr, floats: set[str]) -> bool:
    """Return whether a value in a kernel is floating, as far as its code tells."""
    if is_condition(value):
        return False
    return any(
        (isinstance(node, ast.Name) and node.id in floats)
        or (isinstance(node, ast.Constant) and isinstance(node.value, float))
        or (isinstance(node, ast.Attribute) and text(node) in ("tl.float32", "tl.load", "tl.rand"))
        for node in ast.walk(value)
    )


def edits(place: Place, names: Names) -> Iterator[Edit]:
    """Yield the edits of the expression or statement at a place."""
    node = place.node
    match node:
        case ast.Compare(left, [operator], [right]):
            for sign in COMPARISONS[type(operator)]:
                yield "comparison", f"({text(left)}) {sign} ({text(right)})"
            yield "off by one", f"{text(left)} {text_of(operator)} ({text(right)}) - 1"
        case ast.BinOp(left, operator, right):
            yield from of_operation(text(left), operator, text(right))
        case ast.UnaryOp(ast.USub(), operand):
            yield "sign dropped", text(operand)
            if text(operand) == "float('inf')":
                yield "infinity to 0", "0.0"
        case ast.IfExp(_, body, orelse):
            yield "choice dropped", text(body)
            yield "choice dropped", text(orelse)
        case ast.Constant(bool() | str() | None):
            pass
        case ast.Constant() if isinstance(place.parent, ast.keyword) and str(place.parent.arg).isupper():
            pass  # a block size: another is as right, or none at all
        case ast.Constant(value):
            yield from of_number(value)
        case ast.Name(name, ast.Load()) if names.in_kernel:
            yield from of_name(name, names)
        case ast.Attribute():
            yield from of_dtype(text(node))
        case ast.Subscript(value, ast.Tuple(index)) if len(index) == 2:
            yield "axes exchanged", f"{text(value)}[{text(index[1])}, {text(index[0])}]"
        case ast.Tuple(elements, ast.Load()) if not names.in_kernel and not is_constant(elements):
            yield from of_grid([text(element) for element in elements])
        case ast.Call():
            yield from of_call(node, names)
        case ast.stmt():
            yield from of_statement(place, names)


def is_constant(values: list[ast.expr]) -> bool:
    """Return whether values are numbers, or blocks filled with one."""
    calls = [value for value in values if isinstance(value, ast.Call)]
    numbers = [value for value in values if isinstance(value, (ast.Constant, ast.UnaryOp))]
    filled = [call for call in calls if text(call.func) in ("tl.zeros", "tl.full")]
    return len(numbers) + len(filled) == len(values)


def text_of(operator: ast.cmpop | ast.operator) -> str:
    """Return the sign of an operator."""
    one = ast.Name("a")
    node = ast.Compare(one, [operator], [one]) if isinstance(operator, ast.cmpop) else ast.BinOp(one, operator, one)
    return text(node).split()[1]


def of_operation(left: str, operator: ast.operator, right: str) -> Iterator[Edit]:
    """Yield the edits of `left operator right`."""
    for sign in OPERATORS[type(operator)]:
        yield "operator", f"({left}) {sign} ({right})"
    if isinstance(operator, ORDERED):
        yield "operands exchanged", f"({right}) {text_of(operator)} ({left})"
    kind = "half of a mask dropped" if isinstance(operator, ast.BitAnd) else "operand dropped"
    yield kind, left
    yield kind, right


def of_number(value: int | float) -> Iterator[Edit]:
    yield "constant + 1", repr(value + 1)
    if isinstance(value, float) and value:
        yield "constant times 1.002", f"{value * 1.002:.12g}"
    yield "constant to 0", repr(type(value)(0))


def of_name(name: str, names: Names) -> Iterator[Edit]:
    if name in names.masks:
        for other in sorted(names.masks - {name}):
            yield "mask exchanged", other
    if name in names.strides:
        yield "stride to 1", "1"
        for other in sorted(names.strides - {name}):
            yield "stride exchanged", other


def of_dtype(name: str) -> Iterator[Edit]:
    if name == "tl.float32":
        for low in LOW:
            yield "low precision", low
    elif name.endswith(".dtype"):
        yield "dtype", "torch.float32"
    elif name == "torch.float32":
        yield "dtype", "torch.bfloat16"


def of_grid(elements: list[str]) -> Iterator[Edit]:
    """Yield the edits of a tuple of a host function, such as a grid: one element 1, or two exchanged."""
    for index in range(len(elements)):
        yield "element to 1", tuple_of(["1" if i == index else element for i, element in enumerate(elements)])
    for changed in exchanges(elements):
        yield "elements exchanged", tuple_of(changed)


def tuple_of(elements: list[str]) -> str:
    return f"({', '.join(elements)},)"


def exchanges(items: list) -> Iterator[list]:
    """Yield the list with any two of its items exchanged."""
    for one, other in combinations(range(len(items)), 2):
        changed = list(items)
        changed[one], changed[other] = items[other], items[one]
        yield changed


def of_call(call: ast.Call, names: Names) -> Iterator[Edit]:
    """Yield the edits of a call."""
    function, arguments = text(call.func), [text(argument) for argument in call.args]
    if function in CALLS:
        yield "function", text(with_parts(call, func=parsed(CALLS[function], False)))
    if isinstance(call.func, ast.Attribute) and call.func.attr == "to":
        kind = ".to(tl.int64) dropped" if arguments == ["tl.int64"] else "cast dropped"
        yield kind, text(call.func.value)
    if function in ("tl.cdiv", "triton.cdiv"):
        yield "floored", " // ".join(f"({argument})" for argument in arguments)
        yield "halved", f"tl.cdiv({text(call)}, 2)" if names.in_kernel else f"triton.cdiv({text(call)}, 2)"
        yield "doubled", f"2 * {text(call)}"
    if function == "triton.next_power_of_2":
        yield "halved", f"{text(call)} // 2"
    if function == "range":
        yield from of_range(*arguments)
    if function == "tl.program_id":
        yield "program ignored", f"0 * {text(call)}"
    if function.endswith(".stride"):
        yield ("stride to 1", "1") if arguments else ("strides reversed", f"{text(call)}[::-1]")
    if function == "tl.where":
        yield "choices exchanged", f"tl.where({arguments[0]}, {arguments[2]}, {arguments[1]})"
        yield "choice dropped", arguments[1]
    if function in ("tl.maximum", "tl.minimum", "tl.trans", *UNARY):
        for argument in arguments:
            yield "call dropped", argument
    if function == "tl.store" and is_float(call.args[1], names.floats):
        for low in LOW:
            yield "result rounded", text(with_parts(call, args=[call.args[0], rounded(call.args[1], low)]))
    yield from of_keywords(call)
    yield from of_arguments(call, arguments)


def with_parts(call: ast.Call, **parts) -> ast.Call:
    """Return a copy of a call of which some parts are others."""
    changed = deepcopy(call)
    for name, value in parts.items():
        setattr(changed, name, value)
    return changed


def of_range(first: str, end: str, step: str) -> Iterator[Edit]:
    """Yield loops that end too early, or leave steps out."""
    for steps in (1, 2, 3):
        yield f"{steps} steps at most", f"range({first}, tl.minimum({end}, {first} + {steps} * {step}), {step})"
    yield "first step skipped", f"range({first} + {step}, {end}, {step})"
    yield "last step skipped", f"range({first}, {end} - {step}, {step})"
    yield "every second step", f"range({first}, {end}, 2 * {step})"


def of_keywords(call: ast.Call) -> Iterator[Edit]:
    """Yield calls without one of their keywords, and with another `other=`."""
    for index, keyword in enumerate(call.keywords):
        others = call.keywords[:index] + call.keywords[index + 1 :]
        assert keyword.arg is not None
        if not keyword.arg.isupper() and keyword.arg != "device":  # a CPU has one device
            yield f"{keyword.arg}= dropped", text(with_parts(call, keywords=others))
        if keyword.arg == "other":
            for value in NEUTRAL:
                changed = ast.keyword("other", parsed(value, False))  # type: ignore[arg-type]
                yield "other= exchanged", text(with_parts(call, keywords=[*others, changed]))


def of_arguments(call: ast.Call, arguments: list[str]) -> Iterator[Edit]:
    """Yield calls with two arguments exchanged that may be of one type."""
    if text(call.func) in ("tl.where", "tl.maximum", "tl.minimum", "range", "tl.store"):
        return
    for one, other in combinations(range(len(arguments)), 2):
        if alike(call.args[one], call.args[other]):
            changed = list(call.args)
            changed[one], changed[other] = call.args[other], call.args[one]
            yield "arguments exchanged", text(with_parts(call, args=changed))


def alike(one: ast.expr, other: ast.expr) -> bool:
    """Return whether two arguments look as if they were of one type."""
    if isinstance(one, ast.Name) and isinstance(other, ast.Name):
        return one.id.isupper() == other.id.isupper() and one.id.endswith("_ptr") == other.id.endswith("_ptr")
    return type(one) is type(other)


def of_statement(place: Place, names: Names) -> Iterator[Edit]:
    """Yield the edits of a statement: a low precision in what it assigns, or its loss where the name has a value."""
    node = place.node
    if isinstance(node, ast.AugAssign):
        yield "line dropped", "pass"
        yield "plain assignment", f"{text(node.target)} = {text(node.value)}"
        for sign in OPERATORS[type(node.op)]:
            yield "operator", f"{text(node.target)} {sign}= {text(node.value)}"
    elif isinstance(place.parent, ast.For) and set(targets(node)) <= names.carried:
        yield "line dropped", "pass"
    for target, value in assigned(node):
        if names.in_kernel and target in names.floats and not is_constant([value]):
            whole = f"{target} {text_of(node.op)} ({text(value)})" if isinstance(node, ast.AugAssign) else None
            expression = parsed(whole, False) if whole else value
            for low in LOW:
                yield "rounded", f"{target} = {text(back(rounded(expression, low), value))}"


def rounded(value: Any, low: str) -> ast.expr:
    """Return the expression `value.to(low)`."""
    return parsed(f"({text(value)}).to({low})", False)  # type: ignore[return-value]


def back(value: ast.expr, before: ast.expr) -> ast.expr:
    """Return a rounded expression in the type it had: float32, or that of the tensor a bare load is from."""
    bare = isinstance(before, ast.Call) and text(before.func) == "tl.load"
    root = ROOT.search(text(before)) if bare else None
    return rounded(value, f"{root[1]}.dtype.element_ty" if root else "tl.float32")
