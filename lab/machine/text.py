"""Read the text of a TTIR module into operations, blocks and functions.

The text may come from anybody: nothing of it is ever run, and whatever cannot be read ends in `TextError`.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lab.machine.dtypes import DTYPES

LARGEST_BLOCK = 2**20  # elements of one block, the limit of Triton's own compiler
MOST_LINES = 60_000
LONGEST_LINE = 20_000  # characters, without those of strings: some patterns take time that grows with their square


class TextError(ValueError):
    """The text is no TTIR that can be read here; the message names the line."""


@dataclass(frozen=True)
class Type:
    """The type of a value: of one block, or of one number where `shape` is ().

    element: as TTIR spells it. dtype: how NumPy holds one element, addresses as int64; None for descriptors and the
    like. pointee: the dtype behind a pointer. block: the type of the block behind a descriptor or a block pointer.
    """

    shape: tuple[int, ...]
    element: str
    dtype: np.dtype | None
    pointee: np.dtype | None = None
    block: "Type | None" = None


class Place(NamedTuple):
    """Where something stands in a source file; `name` is the variable that it was assigned to."""

    file: str
    line: int
    column: int
    name: str


@dataclass
class Operation:
    """One operation: names of the values it makes and takes, attributes as text, types of its results."""

    name: str
    results: list[str]
    operands: list[str]
    attributes: dict[str, str]
    types: list[Type]
    text: str  # what follows the name, its strings by number
    location: str = "unknown"
    regions: "list[list[Block]]" = field(default_factory=list)
    successors: list[tuple[str, list[str]]] = field(default_factory=list)  # of a branch: label, what its block is given


@dataclass
class Block:
    """Operations that run one after the other."""

    label: str
    arguments: list[tuple[str, Type]] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


@dataclass
class Function:
    """A function of the module: its parameters, its blocks, and what it returns."""

    name: str
    parameters: list[tuple[str, Type]]
    results: list[Type]
    blocks: list[Block] = field(default_factory=list)


STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
LOCATION = re.compile(r" ?loc\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
HEAD = re.compile(r'(?:(%[^=]*?) = )?"?([a-z_]\w*(?:\.\w+)+)"?(.*)$')
ATTRIBUTE = re.compile(r"\b(\w+) = (array<i\d+(?:: )?[^>]*>|dense<[^>]*>|#\w+(?:\.\w+)?<[^>]*>|\$\d+|-?[\w.+-]+)")


class Module:
    """What a text holds: functions by name, the one that is launched, and where each operation came from."""

    def __init__(self, text: str):
        self.strings: list[str] = []
        self.locations: dict[str, str] = {}
        self.functions: dict[str, Function] = {}
        self.entry = ""
        self.types: dict[str, Type] = {}
        self.places: dict[str, tuple[Place, ...]] = {}
        self.at = 0
        try:
            self.lines = list(self.lines_of(text))
            while self.at < len(self.lines):
                self.read_function()
        except TextError:
            raise
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            line = self.lines[min(self.at, len(self.lines)) - 1][:120] if getattr(self, "lines", None) else ""
            raise TextError(f"cannot read {line!r} ({type(error).__name__})") from None
        if not self.entry:
            raise TextError("no public function to launch")

    # Text to lines

    def lines_of(self, text: str) -> Iterator[str]:
        """Yield the lines that hold operations, each string replaced by `$` and its number."""
        lines = text.split("\n")
        if len(lines) > MOST_LINES:
            raise TextError(f"{len(lines):,} lines are too many; {MOST_LINES:,} are read")
        for line in lines:
            line = STRING.sub(self.keep, line).strip() if '"' in line else line.strip()
            if len(line) > LONGEST_LINE:
                raise TextError(f"the line {line[:60]!r} … is too long")
            if line.startswith("#loc"):
                name, _, place = line.partition(" = loc(")
                self.locations[name] = place.removesuffix(")")
            elif line:
                yield line

    def keep(self, found: re.Match) -> str:
        """Return what stands for a string; the quotes around an operation's name only go."""
        before, after = (found.string[at : at + 1] for at in (max(0, found.start() - 1), found.end()))
        if after == "(" and before != "@" and HEAD.fullmatch(found[1]):
            return found[1]
        self.strings.append(found[1])
        return f"${len(self.strings) - 1}"

    def string(self, text: str) -> str:
        """Return the string that `$` and a number stand for."""
        return re.sub(r"\\([0-9A-Fa-f]{2}|.)", unescape, self.strings[int(text.removeprefix("$"))])

    # Lines to operations

    def read_function(self) -> None:
        line = self.lines[self.at]
        self.at += 1
        if not line.startswith("tt.func"):
            return
        line = LOCATION.sub("", line)
        head = re.fullmatch(
            r"tt\.func (?:(public|private) )?@([\w.$-]+)\((.*?)\)((?: -> .*?)?)(?: attributes \{.*\})? \{", line
        )
        if head is None:
            raise TextError(f"cannot read the function {line[:120]!r}")
        visibility, name, parameters, results = head.groups()
        function = Function(self.symbol(name), self.arguments(parameters), self.type_list(results.removeprefix(" -> ")))
        function.blocks = self.read_region()[0]
        self.functions[function.name] = function
        if visibility != "private":
            self.entry = function.name

    def symbol(self, text: str) -> str:
        return self.string(text) if text.startswith("$") else text

    def arguments(self, text: str) -> list[tuple[str, Type]]:
        """Return name and type of each argument in `%x: i32, %y: tensor<4xf32> {…}`."""
        pairs = (part.split(": ", 1) for part in split(text))
        return [(name.strip(), self.type(re.sub(r" \{.*\}$", "", kind))) for name, kind in pairs]

    def read_region(self) -> tuple[list[Block], str]:
        """Read blocks up to the line that closes them; return them and that line."""
        blocks = [Block("^bb0")]
        while True:
            if self.at >= len(self.lines):
                raise TextError("the text ends inside a function")
            line = self.lines[self.at]
            self.at += 1
            if line.startswith("}"):
                return blocks, line
            if line.startswith("^"):
                label, arguments = re.match(r"(\^\w+)(?:\((.*)\))?:", LOCATION.sub("", line)).groups()
                if blocks[-1].operations or blocks[-1].arguments or len(blocks) > 1:
                    blocks.append(Block(label))
                blocks[-1].label, blocks[-1].arguments = label, self.arguments(arguments or "")
            else:
                blocks[-1].operations.append(self.read_operation(line))

    def read_operation(self, line: str) -> Operation:
        bare, location = without_location(line)
        head = HEAD.match(bare)
        if head is None:
            raise TextError(f"cannot read the operation {line[:120]!r}")
        results, name, text = head.groups()
        regions, tail = [], bare
        while tail.endswith("{"):
            blocks, line = self.read_region()
            tail, location = without_location(line)
            regions.append(blocks)
        if regions and name.startswith("tt."):
            text += tail
        names = list(result_names(results or ""))
        operation = Operation(
            name=name,
            results=names,
            operands=VALUE.findall(text),
            attributes={key: self.string(v) if v.startswith("$") else v for key, v in ATTRIBUTE.findall(text)},
            types=self.result_types(name, text, len(names)),
            text=text,
            location=location,
            regions=regions,
        )
        if name in READERS:
            READERS[name](self, operation)
        return operation

    # Operations that print in a way of their own

    def read_predicate(self, operation: Operation) -> None:
        operation.attributes["predicate"] = operation.text.split(",")[0].strip()

    def read_for(self, operation: Operation) -> None:
        """Operands become first, end, step and the initial values; the block's arguments the index and the values."""
        head = operation.text.split(" -> ")[0]
        kind = re.search(r" : ([\w]+) (?:\{[^{}]*\} )?\{$", operation.text)
        index, *rest = VALUE.findall(head)
        pairs = rest[3:]
        types = [self.type(kind[1] if kind else "index"), *operation.types]
        operation.regions[0][0].arguments = list(zip([index, *pairs[::2]], types, strict=True))
        operation.operands = [*rest[:3], *pairs[1::2]]
        operation.attributes["unsigned"] = str(head.lstrip().startswith("unsigned"))

    def read_while(self, operation: Operation) -> None:
        """Operands become the initial values, the arguments of the first block what they are named inside."""
        head = re.match(r" *(?:\((.*?)\))? : \((.*?)\) -> ", operation.text)
        pairs = VALUE.findall(head[1] or "")
        operation.regions[0][0].arguments = list(zip(pairs[::2], self.type_list(head[2]), strict=True))
        operation.operands = pairs[1::2]

    def read_branch(self, operation: Operation) -> None:
        targets = re.findall(r"(\^\w+)(?:\(([^()]*?) : [^()]*\))?", operation.text)
        operation.successors = [(label, VALUE.findall(given)) for label, given in targets]
        operation.operands = operation.operands[:1] if operation.name == "cf.cond_br" else []

    def read_call(self, operation: Operation) -> None:
        operation.attributes["callee"] = self.symbol(re.match(r" @([\w.$-]+)\(", operation.text)[1])

    def read_words(self, operation: Operation) -> None:
        """Keep the bare words before the first operand, such as the axis of a program id or the kind of an atomic."""
        operation.attributes["word"] = re.match(r" ?(\w*)", operation.text)[1]

    def read_message(self, operation: Operation) -> None:
        operation.attributes["message"] = self.string(re.search(r"\$\d+", operation.text)[0])

    def result_types(self, name: str, text: str, count: int) -> list[Type]:
        """Return the types of an operation's results, which each operation prints in a way of its own."""
        if count == 0:
            return []
        text = re.sub(r" ?\(?\{$", "", text.rstrip()).rstrip()
        if name == "scf.for":
            return self.type_list(re.search(r"-> \((.*)\) +:", text)[1])
        if name == "arith.constant":
            return [self.type("i1" if text.strip() in ("true", "false") else text.rsplit(" : ", 1)[1])]
        if " -> " in text:
            return self.type_list(text.rsplit(" -> ", 1)[1]) * (count if name == "tt.split" else 1)
        if " to " in text:
            return self.type_list(text.rsplit(" to ", 1)[1])
        kinds = split(text.rsplit(" : ", 1)[1])
        if name in ("tt.make_tensor_descriptor", "tt.make_tensor_ptr", "tt.advance"):
            inner = kinds[-1].removeprefix("<").removesuffix(">")
            return [self.type(f"!tt.tensordesc<{inner}>")]
        kind = self.type(kinds[-1] if name == "arith.select" else kinds[0])
        if name == "tt.load":
            kind = kind.block or pointed_at(kind)
        if name in ("arith.cmpi", "arith.cmpf"):
            kind = Type(kind.shape, "i1", DTYPES["i1"])
        if name == "tt.unsplat":
            kind = Type((), kind.element, kind.dtype, kind.pointee)
        return [kind]

    # Types

    def type_list(self, text: str) -> list[Type]:
        """Return the types in `f32, i32` or `(f32, i32)`."""
        text = text.strip()
        if text.startswith("(") and text.endswith(")"):
            text = text[1:-1]
        return [self.type(part) for part in split(text)]

    def type(self, text: str) -> Type:
        """Return a type by its text. Raises TextError for one that is unknown or too large."""
        text = text.strip()
        if text not in self.types:
            self.types[text] = self.read_type(text)
        return self.types[text]

    def read_type(self, text: str) -> Type:
        if tensor := re.fullmatch(r"tensor<((?:\d+x)+)(.+)>", text):
            shape = tuple(int(size) for size in tensor[1].split("x")[:-1])
            inner = self.type(tensor[2].partition(", #")[0])
            if not 0 < math.prod(shape) <= LARGEST_BLOCK or inner.shape:
                raise TextError(f"{text[:60]} is no block that can be: Triton allows 1 to {LARGEST_BLOCK:,} elements")
            return Type(shape, inner.element, inner.dtype, inner.pointee)
        if descriptor := re.fullmatch(r"!tt\.tensordesc<(.*)>|!tt\.ptr<(tensor<.*>)(?:, \d+)?>", text):
            inner = descriptor[1] or descriptor[2]
            if not inner.startswith("tensor"):  # how later versions spell it
                inner = f"tensor<{inner}>"
            block = self.type(inner)
            return Type((), "descriptor", None, block.dtype, block)
        if pointer := re.fullmatch(r"!tt\.ptr<(.+?)(?:, \d+)?>", text):
            inner = self.type(pointer[1])
            return Type((), "pointer", DTYPES["i64"], inner.dtype)
        if text in DTYPES:
            return Type((), text, DTYPES[text])
        if signed := re.fullmatch(r"[su](i(?:8|16|32|64))", text):  # of descriptors alone
            return Type((), text, DTYPES[signed[1]])
        if re.fullmatch(r"[!\w.<>]+", text):
            return Type((), text, None)
        raise TextError(f"unknown type {text[:60]!r}")

    # Locations

    def place(self, location: str) -> Place:
        """Return where an operation stands, and the variable that its result was given to."""
        file, line, column, name = "", 0, 0, ""
        pending = [location]
        for _ in range(64):
            if not pending:
                break
            text = pending.pop(0)
            text = self.locations.get(text, text)
            if call := re.fullmatch(r"callsite\((\S+) at (\S+)\)", text):
                pending = [call[1], call[2], *pending]
            elif position := re.match(r"(\$\d+):(\d+):(\d+)", text):
                if not file:
                    file, line, column = self.string(position[1]), int(position[2]), int(position[3])
            elif named := re.fullmatch(r"(\$\d+)\((.+)\)", text):
                name = name or self.string(named[1])
                pending = [
                    named[2].removeprefix("loc(").removesuffix(")") if "loc(" in named[2] else named[2],
                    *pending,
                ]
        return Place(file, line, column, name)


READERS = {
    "arith.cmpi": Module.read_predicate,
    "arith.cmpf": Module.read_predicate,
    "scf.for": Module.read_for,
    "scf.while": Module.read_while,
    "cf.br": Module.read_branch,
    "cf.cond_br": Module.read_branch,
    "tt.call": Module.read_call,
    "tt.get_program_id": Module.read_words,
    "tt.get_num_programs": Module.read_words,
    "tt.atomic_rmw": Module.read_words,
    "tt.descriptor_reduce": Module.read_words,
    "tt.print": Module.read_message,
    "tt.assert": Module.read_message,
}


def pointed_at(kind: Type) -> Type:
    """Return the type of what a pointer, or a block of pointers, leads to."""
    element = next((name for name, dtype in DTYPES.items() if dtype == kind.pointee), "")
    return Type(kind.shape, element, kind.pointee)


def without_location(line: str) -> tuple[str, str]:
    """Return a line without the places it names, and the last of them."""
    head, found, place = line.rpartition(" loc(#")
    if found and place.endswith(")") and "loc(" not in head:
        return head, f"#{place[:-1]}"
    locations = LOCATION.findall(line)
    return LOCATION.sub("", line).rstrip(), locations[-1].strip() if locations else "unknown"


def result_names(text: str) -> Iterator[str]:
    """Yield the results in `%a, %b:2`: %a, %b#0, %b#1."""
    for name in text.split(", ") if text else ():
        name, _, count = name.strip().partition(":")
        if not count:
            yield name
        elif int(count) > 1000:
            raise TextError(f"{name} has too many results")
        else:
            yield from (f"{name}#{i}" for i in range(int(count)))


def split(text: str) -> list[str]:
    """Return the parts between the commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "<({[":
            depth += 1
        elif c in ">)}]" and text[i - 1 : i + 1] != "->":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def unescape(found: re.Match) -> str:
    """Return the character behind a backslash of MLIR: two hexadecimal digits, or the character itself."""
    return chr(int(found[1], 16)) if len(found[1]) == 2 else found[1]
