"""The compiling half of `lab.compiler`: a process of its own, which a kernel may crash or hang.

Kernels arrive as source text with the values they name, so that nothing of the caller's is imported here, neither torch
nor the notebook. One JSON request a line comes in on stdin, one JSON reply a line goes out on stdout; whatever the
compiler prints goes to stderr, which the parent has pointed at a file.
"""

import base64
import functools
import importlib
import io
import json
import linecache
import os
import re
import sys
import threading
import time
from dataclasses import asdict, dataclass
from types import ModuleType

os.environ.setdefault("TRITON_BACKENDS_IN_TREE", "1")  # finding the backends through package metadata costs 0.1 s

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.experimental import gluon
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.language._core import builtin as gluon_builtin
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.runtime.jit import create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from lab.machine import cache
from lab.refusal import refusal_of

STDERR = 2
STAGES = ("ttir", "ttgir", "llir", "ptx", "amdgcn")


@dataclass(frozen=True)
class StandDtype:
    """Prints like the torch or Triton dtype it stands for, which is all that Triton reads of it."""

    name: str
    is_floating_point: bool
    itemsize: int

    def __str__(self) -> str:
        return self.name


@functools.cache  # Triton remembers dtypes by their address, so that of one must never become that of another
def stand_dtype(name: str, floating: bool, itemsize: int) -> StandDtype:
    return StandDtype(name, floating, itemsize)


class StandTensor:
    """What the compiler asks of a tensor: its dtype, how its pointer is aligned, how many bytes lie behind it."""

    def __init__(self, dtype: str, floating: bool, itemsize: int, pointer: int, nbytes: int):
        self.dtype = stand_dtype(dtype, floating, itemsize)
        self.pointer, self.nbytes = pointer, nbytes

    def data_ptr(self) -> int:
        return self.pointer

    def ptr_range(self) -> int:
        return self.nbytes


def decode(value, functions: dict):
    """Return what `lab.compiler.Parcel.encode` packed: plain JSON as it is, anything else as {kind: content}."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "function":
        return functions.get(content)
    if kind == "tensor":
        return StandTensor(**content)
    if kind == "descriptor":
        return TensorDescriptor(**{name: decode(part, functions) for name, part in content.items()})
    if kind == "gluon_descriptor":
        return GluonDescriptor(**{name: decode(part, functions) for name, part in content.items()})
    if kind == "shared_layout":
        return NVMMASharedLayout(**{name: decode(part, functions) for name, part in content.items()})
    if kind == "sequence":
        parts = [decode(part, functions) for part in content["parts"]]
        return tuple(parts) if content["tuple"] else parts
    if kind == "constexpr":
        return tl.constexpr(decode(content, functions))
    if kind == "dtype":
        return tl.dtype(content)
    if kind == "import":
        module = importlib.import_module(content["module"])
        return getattr(module, content["name"]) if content["name"] else module
    if kind == "module":
        module = ModuleType(content["name"])
        vars(module).update({name: decode(member, functions) for name, member in content["members"].items()})
        return module
    if kind == "python":
        return plain_function(content)
    return type(content, (), {})()  # a value that cannot cross: the compiler refuses it by the name of its type


def plain_function(name: str):
    """Return a function of that name which nothing may call: a kernel cannot use Python functions."""

    def function(*arguments):
        raise TypeError(f"{name} is a Python function")

    function.__name__ = function.__qualname__ = name
    return function


def rebuild(packed: list[dict]) -> dict:
    """Return key → jitted function, each bound to the names it uses; helpers come before those that call them."""
    functions = {}
    for function in packed:
        names = {"__name__": function["module"]}
        names.update({name: decode(value, functions) for name, value in function["names"].items()})
        functions[function["key"]] = define(function, names)
    for function in packed:  # two functions that call each other: the second was not there yet
        for name, value in function["names"].items():
            if isinstance(value, dict) and "function" in value:
                functions[function["key"]].fn.__globals__[name] = functions[value["function"]]
    return functions


def define(function: dict, names: dict):
    """Return one function, compiled at its own file and line so that errors and line tables point there."""
    text = "\n" * (function["line"] - 1) + function["source"]
    linecache.cache[function["file"]] = (len(text), None, io.StringIO(text).readlines(), function["file"])
    exec(compile(text, function["file"], "exec", dont_inherit=True), names)
    decorators = {
        "jit": triton.jit,
        "gluon": gluon.jit,
        "constexpr_function": triton.constexpr_function,
        "builtin": gluon_builtin,
    }
    return decorators[function["decorator"]](names[function["name"]], **function["options"])


def compile_request(request: dict) -> dict:
    """Return the stages of a kernel for one target, specialized as a launch with these arguments would."""
    functions = rebuild(request["functions"])
    kernel = functions[request["kernel"]]
    target = GPUTarget(request["backend"], request["arch"], request["warp_size"])
    backend = make_backend(target)
    arguments = {name: decode(value, functions) for name, value in request["arguments"].items()}
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, options = bind(**arguments, **request["options"])
    if kernel.debug:
        options["debug"] = True
    options, signature, constexprs, attributes = kernel._pack_args(backend, options, bound, specialization, options)
    source = (GluonASTSource if kernel.is_gluon() else ASTSource)(kernel, signature, constexprs, attributes)
    built = triton.compile(source, target=target, options=options.__dict__)
    return {
        "stages": {stage: built.asm[stage] for stage in STAGES if stage in built.asm},
        "binary": base64.b64encode(built.asm[backend.binary_ext]).decode(),
        "name": built.metadata.name,
        "shared": built.metadata.shared,
        "num_warps": built.metadata.num_warps,
    }


def describe(error: BaseException, packed: list[dict], printed: str) -> dict:
    """Return the compiler's words and the place in the learner's own code that they are about."""
    found = asdict(refusal_of(error, {function["source"]: (function["file"], function["line"]) for function in packed}))
    printed_error = re.search(r"^(.*?):(\d+):\d+: error: (.*)$", printed, re.MULTILINE)
    if printed_error and not found["line"]:
        file, line, words = printed_error.groups()
        code = linecache.getline(file, int(line)).strip()
        found.update(words=words, file=file, line=int(line), code=code)
    return found


def answer(request: dict) -> dict:
    """Return the reply to one request: the stages, or an error described."""
    os.ftruncate(STDERR, 0)
    os.lseek(STDERR, 0, os.SEEK_SET)
    try:
        return compile_request(request)
    except (Exception, SystemExit) as error:  # what a kernel calls at compile time may exit
        sys.stderr.flush()
        printed = os.pread(STDERR, 1_000_000, 0).decode(errors="replace")
        return {"error": describe(error, request["functions"], printed)}


def follow(parent: int) -> None:
    """End this process once its parent is gone, even while a forked child still holds the pipe open."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


def serve() -> None:
    """Answer requests until stdin closes."""
    threading.Thread(target=follow, args=(os.getppid(),), daemon=True).start()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(STDERR, 1)
    cache.prepare()
    sys.modules["torch"] = ModuleType("torch")  # Triton imports it, 1.5 s, only to recognize its tensors
    sys.modules["torch"].Tensor = StandTensor
    for line in sys.stdin:
        replies.write(json.dumps(answer(json.loads(line))) + "\n")
        replies.flush()


if __name__ == "__main__":
    serve()
