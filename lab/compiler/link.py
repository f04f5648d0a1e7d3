"""This side of the line to `lab.compiler.worker`: kernels packed into JSON, and the process that takes them."""

import ast
import dataclasses
import inspect
import json
import math
import os
import re
import select
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import IO

import triton.language as tl
from triton.experimental.gluon._runtime import GluonJITFunction
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.language.core import is_builtin
from triton.runtime.jit import ConstexprFunction, JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from lab.notebook import ROOT


class Parcel:
    """A kernel, the functions it calls and the values it names, as JSON from which the worker builds them again."""

    def __init__(self):
        self.functions: list[dict] = []  # a function stands after those it calls
        self.keys: dict[int, int] = {}

    def add(self, function) -> int:
        """Pack a jitted function with everything it names; return the key it goes by."""
        if id(function) in self.keys:
            return self.keys[id(function)]
        key = self.keys[id(function)] = len(self.keys)
        python = undecorated(function)
        file, line, source = source_of(python)
        decorator = decorator_of(function)
        options = vars(function)
        wanted = ("do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")
        packed = {
            "key": key,
            "name": python.__name__,
            "module": python.__module__ or "__main__",
            "decorator": decorator,
            "options": {name: options.get(name) for name in wanted} if decorator in ("jit", "gluon") else {},
            "file": file,
            "line": line,
            "source": source,
            "names": self.names(python, ast.parse(source)),
        }
        self.functions.append(packed)
        return key

    def names(self, function, tree: ast.Module) -> dict:
        """Return the packed globals and closure variables that a function names, in its body or its signature."""
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        attributes = frozenset(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        reachable = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        local = set(function.__code__.co_varnames)
        signature = {node.id for part in signature_parts(tree) for node in ast.walk(part) if isinstance(node, ast.Name)}
        named = (used - local | signature) & reachable.keys()
        return {name: self.encode(reachable[name], attributes) for name in sorted(named)}

    def encode(self, value, attributes: frozenset[str] = frozenset()):
        """Return a value as JSON; what Triton would refuse crosses as something that it refuses in the same words.

        attributes: the names that the function looks up in anything, which is all that is sent of a module.
        """
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (tuple, list)):
            return {"sequence": {"tuple": isinstance(value, tuple), "parts": [self.encode(part) for part in value]}}
        if isinstance(value, TensorDescriptor):
            return {"descriptor": {name: self.encode(part) for name, part in vars(value).items()}}
        if isinstance(value, (GluonDescriptor, NVMMASharedLayout)):
            kind = "gluon_descriptor" if isinstance(value, GluonDescriptor) else "shared_layout"
            made_from = [field.name for field in dataclasses.fields(value) if field.init]
            return {kind: {name: self.encode(getattr(value, name)) for name in made_from}}
        if hasattr(value, "data_ptr") and not isinstance(value, type):
            return {"tensor": tensor_facts(value)}
        if isinstance(value, tl.constexpr):
            return {"constexpr": self.encode(value.value)}
        if isinstance(value, tl.dtype) and not isinstance(value, (tl.pointer_type, tl.block_type)):
            return {"dtype": value.name}
        if isinstance(value, ModuleType):
            return self.encode_module(value, attributes)
        home = getattr(getattr(value, "fn", value), "__module__", None) or ""
        if home.split(".")[0] == "triton" and hasattr(value, "__name__"):
            return {"import": {"module": home, "name": value.__name__}}
        if isinstance(value, (JITFunction, ConstexprFunction)) or is_builtin(value):
            return {"function": self.add(value)}
        return {"python": value.__name__} if inspect.isroutine(value) else {"opaque": type(value).__name__}

    def encode_module(self, module: ModuleType, attributes: frozenset[str]) -> dict:
        """Return Triton's modules and math by name, any other as a bag of the members in use."""
        if module.__name__.split(".")[0] in ("triton", "math", "copy"):
            return {"import": {"module": module.__name__, "name": None}}
        members = {name: getattr(module, name) for name in sorted(attributes) if hasattr(module, name)}
        members = {name: member for name, member in members.items() if not isinstance(member, ModuleType)}
        return {"module": {"name": module.__name__, "members": {n: self.encode(m) for n, m in members.items()}}}


def undecorated(function):
    """Return the Python function inside a jitted one, or inside a builtin of the compiler's."""
    return function.__wrapped__ if is_builtin(function) else function.fn


def decorator_of(function) -> str:
    """Return how the worker names the decorator of a function."""
    if is_builtin(function):
        return "builtin"
    if isinstance(function, ConstexprFunction):
        return "constexpr_function"
    return "gluon" if isinstance(function, GluonJITFunction) else "jit"


def signature_parts(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the annotations and default values of the one function in a tree."""
    arguments = tree.body[0].args
    yield from (argument.annotation for argument in arguments.args if argument.annotation)
    yield from arguments.defaults


def source_of(function) -> tuple[str, int, str]:
    """Return the file, the line of `def` and the source of a function without its decorators."""
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        raise ValueError(
            f"the source of {function.__name__} cannot be found: define it in a file or a notebook cell, not with exec"
        ) from None
    text = textwrap.dedent("".join(lines))
    start = re.search(r"^def\s", text, re.MULTILINE).start()
    return function.__code__.co_filename, first + text[:start].count("\n"), text[start:]


def tensor_facts(tensor) -> dict:
    """Return what the compiler asks about a tensor, a traced view of one, or a reinterpreted one."""
    pointer = tensor.data_ptr() if callable(tensor.data_ptr) else tensor.data_ptr
    itemsize = getattr(tensor.dtype, "itemsize", None) or getattr(tensor, "itemsize", 0)
    return {
        "dtype": str(tensor.dtype),
        "floating": "float" in str(tensor.dtype),
        "itemsize": itemsize,
        "pointer": pointer % 16,
        "nbytes": math.prod(getattr(tensor, "shape", ())) * itemsize,
    }


class Worker:
    """The compiling process of this process: started when first needed, and again when something has ended it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.process: subprocess.Popen | None = None
        self.log: IO[bytes] | None = None

    def start(self) -> None:
        """Start the process without waiting for it."""
        if self.process and self.process.poll() is None:
            return
        self.stop()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  stays open as long as the process runs
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lab.compiler.worker"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            start_new_session=True,  # Ctrl-C at the terminal is meant for the parent alone
        )

    def stop(self) -> None:
        """End the process."""
        if self.process:
            self.process.kill()
            self.process.communicate()
            self.log.close()
        self.process = None

    def leave_to_parent(self) -> None:
        """Begin anew in a forked child: over the parent's pipes, replies would reach the wrong process."""
        if self.process:
            self.process.returncode = 0  # not this process's child, so nothing to wait for
        self.lock, self.process, self.log = threading.Lock(), None, None

    def ask(self, request: dict, timeout: float) -> dict:
        """Return the reply to a request.

        Raises TimeoutError after so many seconds, and EOFError with what was printed when the process dies of it.
        """
        line = json.dumps(request).encode() + b"\n"
        with self.lock:
            for _ in range(2):  # killed from outside, it deserves a second try
                try:
                    return json.loads(self.exchange(line, timeout))
                except (BrokenPipeError, EOFError):
                    printed = os.pread(self.log.fileno(), 1_000_000, 0).decode(errors="replace")
                    self.stop()
            raise EOFError(printed)

    def exchange(self, line: bytes, timeout: float) -> bytes:
        """Send one line and return the one that comes back; an unfinished exchange ends the process."""
        self.start()
        deadline = time.monotonic() + timeout
        reply = bytearray()
        replies = select.poll()
        replies.register(self.process.stdout, select.POLLIN | select.POLLHUP)
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
            while not reply.endswith(b"\n"):
                if not replies.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    raise TimeoutError
                part = os.read(self.process.stdout.fileno(), 1 << 20)
                if not part:
                    raise EOFError
                reply += part
        except (TimeoutError, KeyboardInterrupt):
            self.stop()
            raise
        return bytes(reply)
