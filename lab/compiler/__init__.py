"""What the GPU compiler makes of a kernel, on a machine with or without a GPU.

`compiled(kernel, *arguments)` gives every stage from Triton's own IR to machine code, and the registers, shared memory
and occupancy that decide how fast it can be. A helper process does the work (`lab.compiler.worker`), so that whatever
crashes or hangs the compiler ends that process alone; it starts at first use, or ahead of time by `start()`.
"""

import atexit
import base64
import inspect
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import index

import triton
from triton.runtime.jit import JITFunction

from lab.compiler.link import Parcel, Worker
from lab.compiler.listing import contains_in_order, keep_lines, mnemonic, readable_lines
from lab.refusal import advice_on, tool_words, useful_part
from lab.show import place
from lab.words import LAYERS, counted, shown, text_of

TIMEOUT = 60.0  # seconds one kernel may take to compile


# What the hardware of a target allows


@dataclass(frozen=True)
class Limits:
    """What one streaming multiprocessor (AMD: compute unit) holds; sizes in bytes, registers of 32 bits."""

    warps: int
    programs: int
    shared: int
    shared_per_program: int
    shared_reserved: int = 1024  # taken by the system in each program
    shared_unit: int = 128
    registers: int = 65536
    register_unit: int = 256  # registers are given to a warp in multiples of this
    warp_size: int = 32


# Sources: CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability"; for the units, the CUDA
# occupancy calculator; for gfx942, AMD's "CDNA3 Instruction Set Architecture".
TARGETS = {
    "sm_75": Limits(32, 16, 64 * 1024, 64 * 1024, shared_reserved=0, shared_unit=256),
    "sm_80": Limits(64, 32, 164 * 1024, 163 * 1024),
    "sm_86": Limits(48, 16, 100 * 1024, 99 * 1024),
    "sm_89": Limits(48, 24, 100 * 1024, 99 * 1024),
    "sm_90": Limits(64, 32, 228 * 1024, 227 * 1024),
    "sm_100": Limits(64, 32, 228 * 1024, 227 * 1024),
    "sm_120": Limits(48, 24, 100 * 1024, 99 * 1024),
    "gfx942": Limits(
        32,
        32,
        64 * 1024,
        64 * 1024,
        shared_reserved=0,
        shared_unit=512,
        registers=131072,
        register_unit=512,
        warp_size=64,
    ),
}
THREADS = 1024  # of one program, on every target
SCHEDULERS = 4  # of one multiprocessor; each has a quarter of the registers and of the warps


def occupancy(target: str, registers: int, shared: int, num_warps: int) -> float:
    """Return the share of a multiprocessor's warps that can be resident at once.

    registers: 32-bit registers of one thread; shared: bytes of shared memory of one program.
    """
    limits = limits_of(target)
    per_warp = round_up(max(registers, 1) * limits.warp_size, limits.register_unit)
    warps = min(limits.warps, limits.registers // SCHEDULERS // per_warp * SCHEDULERS)
    taken = round_up(shared + limits.shared_reserved, limits.shared_unit)
    by_shared = limits.shared // taken if taken else limits.programs
    return min(warps // num_warps, limits.programs, by_shared) * num_warps / limits.warps


def limits_of(target: str) -> Limits:
    """Return what a target allows. Raises ValueError for an unknown one, whatever it is."""
    if not isinstance(target, str) or target not in TARGETS:
        raise ValueError(f"unknown target {shown(target)}: choose from {', '.join(TARGETS)}")
    return TARGETS[target]


def round_up(number: int, unit: int) -> int:
    return math.ceil(number / unit) * unit


# What comes back


@dataclass(frozen=True, repr=False)
class Compiled:
    """A kernel as compiled for one target: the text of every stage, and what it takes of the hardware."""

    kernel: str
    target: str
    num_warps: int
    shared: int  # bytes of shared memory of one program
    stages: dict[str, str] = field(hash=False)
    binary: bytes

    @property
    def ttir(self) -> str:
        """Triton IR: the kernel as Triton reads it, on whole blocks."""
        return self.stage("ttir")

    @property
    def ttgir(self) -> str:
        """Triton GPU IR: the same, with a layout that says which thread holds which elements."""
        return self.stage("ttgir")

    @property
    def llir(self) -> str:
        """LLVM IR: one thread's work, in scalars."""
        return self.stage("llir")

    @property
    def ptx(self) -> str:
        """PTX: NVIDIA's portable assembly, with any number of registers."""
        return self.stage("ptx")

    @property
    def asm(self) -> str:
        """The assembly of the target: PTX for NVIDIA, AMD GCN for AMD."""
        return self.stage("amdgcn" if self.target.startswith("gfx") else "ptx")

    @cached_property
    def sass(self) -> str:
        """SASS: the machine code that an NVIDIA GPU runs, disassembled."""
        if self.target.startswith("gfx"):
            raise ValueError(f"SASS is NVIDIA's; for {self.target} read .asm")
        return self.run_tool(triton.knobs.nvidia.nvdisasm.path, "-c", "-ndf")

    @property
    def registers(self) -> int:
        """32-bit registers of one thread."""
        return self.resources["REG"]

    @property
    def spills(self) -> int:
        """32-bit values that each thread keeps in slow local memory because its registers ran out."""
        return (self.resources["STACK"] + self.resources["LOCAL"]) // 4

    @property
    def occupancy(self) -> float:
        """Share of a multiprocessor's warps that can be resident at once: 1.0 hides memory latency best."""
        return occupancy(self.target, self.registers, self.shared, self.num_warps)

    def count(self, instruction: str) -> int:
        """Return how many instructions of that name stand in the code; the parts between dots may have others between.

        Names in capitals are looked up in SASS ("LDG.E.128"), others in the assembly: "ld.global.v4" counts
        `ld.global.L1::evict_last.v4.b32` too.
        """
        if not isinstance(instruction, str):
            raise TypeError(f"count takes the name of an instruction, such as 'LDG.E', not {shown(instruction)}")
        wanted = instruction.split(".")
        text = self.sass if instruction.isupper() else self.asm
        found = (mnemonic(line).split(".") for line in text.splitlines())
        return sum(parts[0] == wanted[0] and contains_in_order(parts, wanted) for parts in found)

    def view(self, stage: str, about: str | Sequence[str] | None = None, lines: int = 20) -> str:
        """Return an excerpt of a stage that a person can read: no line tables, no declarations, registers shortened.

        stage: "ttir", "ttgir", "llir", "ptx", "sass" or "asm".
        about: keep only the lines with one of these words, and labels and branches, so that loops show; None for all.
        lines: at most this many.
        """
        words = (about,) if isinstance(about, str) else () if about is None else about
        if not isinstance(words, (tuple, list)) or not all(isinstance(word, str) for word in words):
            raise TypeError(f"about is {shown(about)}; it must be a word, a list of words or None")
        if not isinstance(lines, int):
            raise TypeError(f"lines is {shown(lines)}; it must be a whole number")
        readable = list(readable_lines(self.stage(stage)))
        excerpt = list(keep_lines(readable, words) if words else readable)
        left = len(excerpt) - lines
        return "\n".join(excerpt[:lines] + [f"… {counted(left, 'more line')}"] * (left > 0))

    def stage(self, name: str) -> str:
        """Return the text of a stage by name. Raises ValueError for one that this target does not have."""
        if name in ("sass", "asm"):
            return getattr(self, name)
        if name not in self.stages:
            raise ValueError(f"{self.target} has no stage {name!r}: choose from {', '.join([*self.stages, 'asm'])}")
        return self.stages[name]

    @cached_property
    def resources(self) -> dict[str, int]:
        """What the finished binary says it takes: REG a thread, STACK and LOCAL bytes a thread."""
        if self.target.startswith("gfx"):
            facts = dict(re.findall(r"\.(\w+_count|private_segment_fixed_size):\s+(\d+)", self.asm))
            return {"REG": int(facts["vgpr_count"]), "STACK": 4 * int(facts["vgpr_spill_count"]), "LOCAL": 0}
        usage = self.run_tool(triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage")
        return {name: int(number) for name, number in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage)}

    def run_tool(self, tool: str, *options: str) -> str:
        """Return what one of the NVIDIA tools in Triton's wheel prints about the binary. Raises CompileError."""
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(self.binary)
            file.flush()
            try:
                done = subprocess.run([tool, *options, file.name], capture_output=True, text=True, check=True)
            except subprocess.CalledProcessError as error:
                raise CompileError(self.kernel, self.target, tool_words(error)) from None
            except OSError as error:
                words = f"{os.path.basename(tool)} cannot be run: {error.strerror}"
                raise CompileError(self.kernel, self.target, words) from None
        return done.stdout

    def __repr__(self) -> str:
        warps = counted(self.num_warps, "warp")
        return (
            f"{self.kernel} for {self.target}: {self.registers} registers a thread, {self.spills} spilled, "
            f"{self.shared:,} bytes of shared memory a program, {warps}, occupancy {self.occupancy:.0%}"
        )


# What the compiler refuses


class CompileError(Exception):
    """The compiler refused a kernel. The message gives the place, the line, the compiler's words and what they mean."""

    def __init__(self, kernel: str, target: str, words: str, file: str = "", line: int = 0, code: str = ""):
        self.kernel, self.target = kernel, target
        self.words = words  # of the compiler, whole
        self.file, self.line, self.code = file, line, code  # "", 0 and "" where the compiler names no place
        super().__init__(f"{target} refuses {self.reason}")

    @property
    def reason(self) -> str:
        """The message without the target, one sentence a line."""
        where = f"{self.kernel}, {place(self.file)} line {self.line}: {self.code}" if self.line else self.kernel
        return "\n".join(filter(None, (where, useful_part(self.words), self.advice)))

    @property
    def advice(self) -> str:
        """What to do about it, "" when the compiler's words are not among the frequent ones."""
        return advice_on(self.words, self.code)


worker = Worker()
os.register_at_fork(after_in_child=worker.leave_to_parent)
atexit.register(worker.stop)


# What one calls


def start() -> None:
    """Start the compiler in the background, so that the first `compiled` or `objections` need not wait for it."""
    worker.start()


def compiled(
    kernel,
    *arguments,
    target: str = "sm_90",
    num_warps: int | None = None,
    num_stages: int | None = None,
    **named,
) -> Compiled:
    """Return a kernel compiled for a target, as a launch with these arguments would compile it there.

    kernel: a @triton.jit function, also under @triton.autotune (its first configuration counts) or @triton.heuristics.
    arguments, named: what the launch passes. Of tensors only dtype and alignment matter: device "meta" will do.
    target: one of `TARGETS`. num_warps, num_stages: 4 and 3 unless the configuration says otherwise.
    Raises CompileError when the compiler refuses the kernel or it needs more shared memory than the target has,
    TypeError for arguments that do not fit, and ValueError for an unknown target or a kernel whose source is lost.
    """
    limits_of(target)
    function, values, options = bind(kernel, arguments, named)
    for name, count in (("num_warps", num_warps), ("num_stages", num_stages)):
        if count is not None:
            options[name] = whole_number(name, count)
    return compile_packed(pack(function, values, options), target)


def whole_number(name: str, value: object) -> int:
    """Return an option of a launch as an int. Raises TypeError, naming it, for what is no whole number."""
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{name} is {shown(value)}; it must be a whole number") from None


def objections(kernels: Iterable[dict], targets: Sequence[str] = ("sm_80", "sm_90")) -> list[str]:
    """Return what the compiler says against packed kernels, one text per reason; empty when every target takes them."""
    texts: dict[str, None] = {}
    for packed in kernels:
        refused: dict[str, list[str]] = {}
        for target in targets:
            try:
                compile_packed(packed, target)
            except CompileError as error:
                refused.setdefault(error.reason, []).append(target)
        texts |= {f"{' and '.join(where)} would refuse {reason}": None for reason, where in refused.items()}
    return list(texts)


def pack_launch(launch) -> dict:
    """Return what `objections` needs of a traced launch, as plain data that can be sent to another process.

    Raises ValueError for a kernel whose source is lost. What else stands in the way becomes an objection.
    """
    given = {**launch.tensors, **launch.arguments}
    values = {name: given[name] for name in launch.function.arg_names}
    known = ("num_warps", "num_stages", "num_ctas", "maxnreg")
    options = {name: launch.options[name] for name in known if launch.options.get(name) is not None}
    try:
        return pack(launch.function, values, options)
    except ValueError:
        raise
    except Exception as error:  # a kernel may name any object, and its file may have changed
        problem = f"it cannot be read ({type(error).__name__}: {text_of(error)})"
        return {"name": launch.function.fn.__name__, "problem": problem}


def bind(kernel, arguments: tuple, named: dict) -> tuple[object, dict, dict]:
    """Return the jitted function under a kernel's decorators, its arguments by name, and the options of the launch."""
    layers = [kernel]
    while not isinstance(layers[-1], JITFunction):
        if len(layers) > LAYERS or not hasattr(layers[-1], "fn"):
            raise TypeError(f"{shown(kernel)} is not a kernel: pass a function decorated with @triton.jit")
        layers.append(layers[-1].fn)
    function = layers[-1]
    signature = inspect.signature(function.fn)
    options = {name: value for name, value in named.items() if name not in signature.parameters}
    values = {name: value for name, value in named.items() if name in signature.parameters}
    values.update(signature.bind_partial(*arguments).arguments)
    for layer in layers[:-1]:
        if isinstance(layer, triton.runtime.Autotuner):
            for name, value in layer.configs[0].all_kwargs().items():
                (values if name in signature.parameters else options).setdefault(name, value)
        elif isinstance(layer, triton.runtime.Heuristics):
            for name, choose in layer.values.items():
                values.setdefault(name, choose({**values, **options}))
    try:
        bound = signature.bind(**values)
    except TypeError as error:
        raise TypeError(f"{function.fn.__name__}: {text_of(error)}; pass what a launch passes") from None
    bound.apply_defaults()
    return function, dict(bound.arguments), options


def pack(function, values: dict, options: dict) -> dict:
    """Return a jitted function as JSON: its source and all that it names, its arguments by name, its options."""
    parcel = Parcel()
    return {
        "name": function.fn.__name__,
        "kernel": parcel.add(function),
        "arguments": {name: parcel.encode(value) for name, value in values.items()},
        "functions": parcel.functions,
        "options": options,
    }


def compile_packed(packed: dict, target: str) -> Compiled:
    """Return what the worker makes of a packed kernel. Raises CompileError, also when the worker crashes or hangs."""
    kernel = packed["name"]
    if "problem" in packed:
        raise CompileError(kernel, target, packed["problem"])
    backend, arch = ("cuda", int(target[3:])) if target.startswith("sm_") else ("hip", target)
    message = {**packed, "backend": backend, "arch": arch, "warp_size": TARGETS[target].warp_size}
    try:
        reply = worker.ask(message, TIMEOUT)
    except TimeoutError:
        raise CompileError(kernel, target, f"still compiling after {TIMEOUT:.0f} s: try smaller blocks") from None
    except (ValueError, TypeError, RecursionError) as error:  # numbers of 5,000 digits, lists that hold themselves
        raise CompileError(kernel, target, f"an argument cannot be passed on: {text_of(error)}") from None
    except EOFError as error:
        words = useful_part(text_of(error)) or "nothing printed"
        raise CompileError(kernel, target, f"the compiler itself crashed ({words}): try another block size") from None
    if "error" in reply:
        raise CompileError(kernel, target, **reply["error"])
    refuse_too_large(kernel, target, reply)
    binary = base64.b64decode(reply["binary"])
    return Compiled(kernel, target, reply["num_warps"], reply["shared"], reply["stages"], binary)


def refuse_too_large(kernel: str, target: str, reply: dict) -> None:
    """Raise CompileError when a compiled program needs more than one multiprocessor of the target has for it."""
    limits = TARGETS[target]
    threads = reply["num_warps"] * limits.warp_size
    for need, limit, what in (
        (reply["shared"], limits.shared_per_program, "bytes of shared memory"),
        (threads, THREADS, "threads"),
    ):
        if need > limit:
            raise CompileError(kernel, target, f"needs {need:,} {what}, and one program may have {limit:,}")
