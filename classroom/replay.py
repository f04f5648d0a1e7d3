"""Repeat what a transcript says an answer did, on inputs that the answer never saw; kernels are read first.

The process of an answer can be made to report anything: its evidence is good enough to fail by, not to pass by. Here
nothing of the student's runs but kernels, rebuilt from their source, and those only if they are nothing but Triton.
"""

import ast
import base64
import builtins
import importlib
import io
import json
import linecache
import math
import zlib
from types import ModuleType

import torch
import triton
import triton.language as tl
from triton.compiler.code_generator import CodeGenerator
from triton.runtime.jit import ConstexprFunction, JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from classroom.transcript import MOVES
from lab import compiler
from lab.check.executor import InProcessExecutor
from lab.check.inputs import GUARD, Frozen
from lab.check.runner import Runner

JITTED = (JITFunction, ConstexprFunction)
# Python's own that a kernel may name; all else it needs comes from Triton.
BUILTINS = ("abs", "bool", "float", "int", "isinstance", "len", "list", "max", "min", "print", "range", "str", "tuple")
REFLECTION = CodeGenerator.builtin_namespace.keys() - {*BUILTINS}  # which Triton's compiler offers of its own accord
MODULES = ("triton", "triton.language", "triton.language.math", "triton.language.extra", "math")
LIBDEVICE = "triton.language.extra.libdevice"
OF_TRITON = ("cdiv", "language", "next_power_of_2")
DECORATION = ("do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")
LAUNCHING = (
    *("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "default_dot_input_precision"),
    *("max_num_imprecise_acc_default", "launch_pdl", "launch_cooperative_grid", "debug"),
)
STATEMENTS = (
    ast.FunctionDef, ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Return,
    ast.Assert, ast.Pass, ast.Break, ast.Continue,
)  # fmt: skip
REFUSED = (ast.Lambda, ast.GeneratorExp, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.DictComp, ast.SetComp)
ATTRIBUTES = frozenset(
    name
    for kind in (tl.tensor, tl.dtype, tl.pointer_type, tl.block_type, tl.constexpr, tl.tensor_descriptor)
    for name in dir(kind)
    if not name.startswith("_")
) | {"block_shape", "dtype", "element_ty", "shape", "strides", "type", "value"}


class Refused(Exception):
    """A kernel is more, or less, than Triton; the message says where."""


# Reading a kernel before it runs


def is_open(module: ModuleType) -> bool:
    """Return whether a kernel may look into a module."""
    return module.__name__ in MODULES or module.__name__.startswith("triton.language.extra.")


def is_harmless(value) -> bool:
    """Return whether a kernel may use what it has found in a module of Triton's."""
    of_language = str(getattr(value, "__module__", "")).startswith("triton.language")
    return (
        isinstance(value, (*JITTED, tl.dtype, tl.constexpr, bool, int, float, str))
        or tl.core.is_builtin(value)
        or getattr(value, "__module__", None) == LIBDEVICE  # empty functions, in whose place the compiler has others
        or (isinstance(value, type) and of_language)
        or value in (triton.cdiv, triton.next_power_of_2)
        or (callable(value) and getattr(math, getattr(value, "__name__", ""), None) is value)
    )


def member(module: ModuleType, name: str):
    """Return what a kernel gets for `module.name`. Raises Refused for what it must not reach."""
    value = getattr(module, name, None)
    if module is triton and name not in OF_TRITON:
        raise Refused(f"`triton.{name}` is nothing that a kernel can use")
    if isinstance(value, ModuleType):
        if is_open(value):
            return value
    elif is_harmless(value):
        return value
    raise Refused(f"`{module.__name__}.{name}` is nothing that a kernel can use")


def read(source: str, names: dict[str, object]) -> None:
    """Return when a kernel is one function that does nothing but compute with Triton. Raises Refused.

    names: what stands behind the names that are not its own.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"its source cannot be read: {error}") from None
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef) or tree.body[0].decorator_list:
        raise Refused("its source is not one function")
    for node in ast.walk(tree):
        read_node(node, names, inner=node is not tree.body[0])


def read_node(node: ast.AST, names: dict[str, object], inner: bool) -> None:
    where = f"line {getattr(node, 'lineno', 1)}"
    if isinstance(node, ast.stmt) and not isinstance(node, STATEMENTS) or isinstance(node, REFUSED):
        raise Refused(f"`{type(node).__name__}` on {where} is Python, not Triton")
    if isinstance(node, ast.FunctionDef) and inner:
        raise Refused(f"a function within the function, on {where}, is Python, not Triton")
    if isinstance(node, ast.Name) and (node.id.startswith("__") or node.id in REFLECTION):
        raise Refused(f"`{node.id}` on {where} is Python's own")
    if isinstance(node, ast.Attribute):
        read_attribute(node, names, where)


def read_attribute(node: ast.Attribute, names: dict[str, object], where: str) -> None:
    if node.attr.startswith("__"):
        raise Refused(f"`.{node.attr}` on {where} is Python's own")
    module = module_of(node.value, names)
    if module is not None:
        if is_open(module):
            member(module, node.attr)
    elif node.attr not in ATTRIBUTES:
        raise Refused(f"`.{node.attr}` on {where} is nothing that a block of numbers has")


def module_of(node: ast.expr, names: dict[str, object]) -> ModuleType | None:
    """Return the module that an expression names, if it names one."""
    if isinstance(node, ast.Name):
        value = names.get(node.id)
    elif isinstance(node, ast.Attribute) and (outer := module_of(node.value, names)) is not None:
        value = member(outer, node.attr) if is_open(outer) else getattr(outer, node.attr, None)
    else:
        return None
    return value if isinstance(value, ModuleType) else None


# From a transcript back to kernels and tensors


class Kernels:
    """The functions of a transcript, rebuilt from their source."""

    def __init__(self, packed: list[dict]):
        self.built: dict[int, object] = {}
        self.lines: dict[str, list[str]] = {}  # of each cell
        for function in packed:
            names = {name: self.decode(value) for name, value in function["names"].items()}
            self.built[function["key"]] = self.define(function, names)
        for function in packed:  # two functions that call each other: the second was not there yet
            for name, value in function["names"].items():
                if isinstance(value, dict) and "function" in value:
                    self.built[function["key"]].fn.__globals__[name] = self.built[value["function"]]

    def define(self, function: dict, names: dict[str, object]):
        """Return one function from its source, which is read first."""
        source, line = function["source"], min(max(int(function["line"]), 1), 1 << 16)
        read(source, names)
        file = self.remember(str(function["file"]), line, source)
        scope = names | {"__name__": "student", "__builtins__": {name: getattr(builtins, name) for name in BUILTINS}}
        exec(compile("\n" * (line - 1) + source, file, "exec", dont_inherit=True), scope)
        made = scope[ast.parse(source).body[0].name]
        if function["decorator"] == "constexpr_function":
            jitted = triton.constexpr_function(made)
        else:
            jitted = triton.jit(made, **{name: function["options"].get(name) for name in DECORATION})
        # Triton looks for the source at its line, where another function's may stand; only this one was read.
        jitted._unsafe_update_src(source)
        return jitted

    def remember(self, file: str, line: int, source: str) -> str:
        """Put source where Python looks for a cell's, beside the cell's other functions. Return the cell's name."""
        file = file if file.startswith("<") and file.endswith(">") else "<student>"
        lines, new = self.lines.setdefault(file, []), io.StringIO(source).readlines()
        lines += ["\n"] * (line - 1 + len(new) - len(lines))
        lines[line - 1 : line - 1 + len(new)] = new
        linecache.cache[file] = (len(lines), None, lines, file)
        return file

    def decode(self, value, place=None):
        """Return what `PlacingParcel.encode` packed; `place` makes a tensor of a place, where there may be any."""
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "place" and place is not None:
            return place(content)
        if kind == "function":
            return self.built.get(content)
        if kind == "sequence":
            parts = [self.decode(part, place) for part in content["parts"]]
            return tuple(parts) if content["tuple"] else parts
        if kind == "descriptor" and place is not None:
            return TensorDescriptor(**{name: self.decode(part, place) for name, part in content.items()})
        if kind == "constexpr":
            return tl.constexpr(self.decode(content))
        if kind == "dtype":
            return tl.dtype(content)
        if kind == "import":
            return imported(content["module"], content["name"])
        if kind == "module":
            module = ModuleType("student")
            members = {str(name): self.decode(member) for name, member in content["members"].items()}
            # Its own name among them: the compiler has others in the place of Triton's modules.
            vars(module).update({name: value for name, value in members.items() if not name.startswith("__")})
            return module
        if kind == "python":
            return python_function(str(content))
        if kind == "torch":
            return torch_constant(str(content))
        if kind == "device":
            return torch.device("cpu")
        return type(str(content), (), {})()  # a value that cannot cross: what it is used in fails


def imported(module: str, name: str | None):
    """Return one of Triton's modules, or what a kernel may use of its language. Raises Refused."""
    if module not in MODULES and not module.startswith("triton.language."):
        raise Refused(f"`{module}` is nothing that a kernel can use")
    found = importlib.import_module(module)
    if name is None:
        if is_open(found):
            return found
    elif is_harmless(value := getattr(found, name)):
        return value
    raise Refused(f"`{module}` is nothing that a kernel can use")


def torch_constant(name: str):
    """Return torch's dtype, layout or memory format of that name. Raises Refused."""
    value = getattr(torch, name, None)
    if not isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        raise Refused(f"`torch.{name}` is no dtype")
    return value


def python_function(name: str):
    """Return a function of that name which fails when it is called: no kernel can call Python."""

    def function(*arguments, **named):
        raise Refused(f"`{name}` is a Python function: mark it with @triton.jit")

    function.__name__ = function.__qualname__ = name
    return function


class Repetition:
    """A host function that repeats the events of a transcript on its own inputs."""

    def __init__(self, transcript: dict, allows: tuple[str, ...]):
        if transcript["problem"]:
            raise Refused(str(transcript["problem"]))
        self.transcript = transcript
        self.repeatable = {name.removeprefix("torch.").strip("_") for name in (*MOVES, *allows)}
        self.kernels = Kernels(transcript["functions"])
        self.buffers: list[torch.Tensor] = []  # of the inputs, with their guard bands
        self.storages: list[torch.Tensor] = []  # bytes

    def __call__(self, *inputs):
        sizes = self.transcript["storages"][len(self.buffers) :]
        self.storages = [buffer[GUARD:-GUARD] for buffer in self.buffers]
        self.storages += [torch.empty(size + -size % 16, dtype=torch.uint8) for size in sizes]
        for event in self.transcript["events"]:
            getattr(self, f"repeat_{event['kind']}")(event)
        results = [self.place(place) for place in self.transcript["results"]]
        kind = self.transcript["returned"]
        return {"tuple": tuple, "list": list}[kind](results) if kind in ("tuple", "list") else results[0]

    def place(self, place: dict) -> torch.Tensor:
        """Return the tensor that lies at a place."""
        dtype = torch_constant(place["dtype"])
        storage = self.storages[place["storage"]]
        whole = storage[: storage.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        offset = whole.storage_offset() + place["offset"] // dtype.itemsize
        return whole.as_strided(place["shape"], place["strides"], offset)

    def decode(self, value):
        return self.kernels.decode(value, self.place)

    def arguments(self, event: dict) -> tuple[list, dict]:
        named = {str(name): self.decode(value) for name, value in event["named"].items()}
        return [self.decode(value) for value in event["arguments"]], named

    def repeat_launch(self, event: dict) -> None:
        arguments, named = self.arguments(event)
        kernel = self.kernels.built[event["kernel"]]
        for name in named:
            if name not in kernel.arg_names and name not in LAUNCHING:
                raise Refused(f"a launch with `{name}` cannot be repeated")
        kernel[tuple(event["grid"])](*arguments, **named)

    def repeat_write(self, event: dict) -> None:
        """Put into memory what was there: the same on every input, so that it cannot hold a result."""
        if event["storage"] < len(self.buffers):
            raise Refused("it writes into its inputs")
        storage = self.storages[event["storage"]]
        data = zlib.decompressobj().decompress(base64.b64decode(event["data"]), storage.numel())
        contents = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        storage[: len(data)].copy_(contents)

    def repeat_torch(self, event: dict) -> None:
        if event["name"].strip("_") not in self.repeatable:
            raise Refused(f"`torch.{event['name']}` is not allowed")
        arguments, named = self.arguments(event)
        made = getattr(getattr(torch.ops.aten, event["name"]), event["overload"] or "default")(*arguments, **named)
        for place, value in zip(event["results"], made if isinstance(made, (tuple, list)) else [made], strict=True):
            self.place(place).copy_(value)


class Replay:
    """Repeats transcripts, one after the other, and gives evidence of what came of it."""

    def __init__(self):
        self.begin(())

    def begin(self, allows: tuple[str, ...]) -> None:
        """Begin with another answer; host functions of its task may use these torch operations."""
        self.runner = Runner(None, allows)
        self.executor = InProcessExecutor(self.runner)

    def replay(self, transcript: str, inputs: Frozen, order) -> bytes:
        """Return the evidence of a repetition, or why there is none."""
        try:
            repetition = Repetition(json.loads(transcript), self.runner.allows)
        except Refused as refused:
            return json.dumps({"refused": str(refused)}).encode()
        except Exception as error:  # made up by whoever sent it
            return json.dumps({"refused": f"{type(error).__name__}: {error}"}).encode()

        def function(*arguments):
            repetition.buffers = self.runner.inputs.buffers
            return repetition(*arguments)

        self.runner.function = function
        return self.executor.run(inputs, order).encode()

    def objections(self) -> list[str]:
        """Return what the compiler for the GPU says against the kernels of this answer."""
        return self.executor.objections()

    def leave(self) -> None:
        """End what this process has started."""
        compiler.worker.stop()
