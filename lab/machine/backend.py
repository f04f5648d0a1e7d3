"""The machine as a backend of Triton: `kernel[grid](…)` on CPU tensors compiles to TTIR and runs on NumPy.

Nothing of Triton is replaced. A backend is what Triton has for new kinds of devices: a compiler, whose stages end at
TTIR here, and a driver, which is made the active one.
"""

import gc
import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import SimpleNamespace
from typing import Protocol

import numpy as np
from triton.backends import Backend, backends
from triton.backends.compiler import BaseBackend, GPUTarget, Language
from triton.backends.driver import DriverBase
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import Autotuner, driver
from triton.runtime.errors import OutOfResources

from lab.machine import cache
from lab.machine.descriptors import broken_rules
from lab.machine.execute import Kernel, Run
from lab.machine.faults import KernelError, Unsupported
from lab.machine.memory import TensorView
from lab.machine.record import Launch
from lab.machine.values import Descriptor

NAME = "numpy"
CAPABILITY = 90  # of the GPU whose rules kernels must keep here: a Hopper GPU's
MOST_THREADS = 1024
WARP = 32
PROPERTIES = {"max_shared_mem": 232_448, "multiprocessor_count": 132, "warpSize": WARP}  # of an H200
LARGEST_GRID = (2**31 - 1, 65_535, 65_535)


class Compiler(BaseBackend):
    """Takes a kernel to TTIR, as it was written: no pass removes a load or joins two."""

    # Specialise on what decides types only: whether a size is a multiple of 16 changes nothing here.
    supports_native_tensor_specialization = False

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return target.backend == NAME

    def __init__(self, target: GPUTarget):
        super().__init__(target)
        self.binary_ext = NAME
        self.cuda = CUDABackend(GPUTarget("cuda", target.arch, WARP))

    def hash(self) -> str:
        return f"{NAME}-{self.target.arch}-1"

    def parse_options(self, options: dict) -> object:
        """Return the options of a launch, which a GPU would take. Raises what the compiler for the GPU raises."""
        # The compiler's own test of overflows ends a kernel; here an address that wraps is a fault with a place.
        parsed = self.cuda.parse_options({**options, "sanitize_overflow": False})
        if parsed.num_warps * WARP > MOST_THREADS:
            raise OutOfResources(parsed.num_warps * WARP, MOST_THREADS, "threads")
        return parsed

    def pack_metadata(self, metadata) -> tuple:
        return ()

    def get_codegen_implementation(self, options) -> dict:
        return self.cuda.get_codegen_implementation(options)

    def get_module_map(self) -> dict:
        return self.cuda.get_module_map()

    def load_dialects(self, context) -> None:
        self.cuda.load_dialects(context)

    @staticmethod
    def parse_attr(description: str) -> list:
        return []

    @staticmethod
    def get_int_specialization(arg, **options) -> str:
        return ""

    get_tensor_specialization = get_int_specialization

    def add_stages(self, stages: dict, options, language=Language.TRITON) -> None:
        if language != Language.TRITON:
            raise Unsupported("a Gluon kernel is written for one GPU: it cannot run on the CPU")
        stages["ttir"] = lambda module, metadata: module
        stages[NAME] = finish


def finish(module, metadata: dict) -> bytes:
    """Return what is kept in Triton's cache: the text."""
    metadata.update(shared=0, name=module.get_entry_func_name(), tensordesc_meta=None)
    return str(module).encode()


@lru_cache(maxsize=1024)
def load(text: bytes) -> Kernel:
    return Kernel(text.decode())


# Launching


class Watcher(Protocol):
    """Whoever wants to see launches: `lab.trace`."""

    keeps_values: bool
    ones: bool  # whether lanes that no load gave a value hold 1 in its launches, and not poison

    def begin(self, launch: Launch) -> np.ndarray | None:
        """See a launch that begins, and return the order of its programs, None for all in theirs."""

    def end(self, launch: Launch) -> None:
        """See the end of a launch; what it did wrong is the watcher's from here on."""


watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)
tuning: ContextVar[bool] = ContextVar("tuning", default=False)
open_watchers: list[Watcher] = []  # of all threads, the last one opened last


def current_watcher() -> Watcher | None:
    """Return who watches this thread; for one that Python did not start, such as autograd's, whoever opened last."""
    own = watcher.get()
    foreign = isinstance(threading.current_thread(), threading._DummyThread)
    return own or (open_watchers[-1] if foreign and open_watchers else None)


@contextmanager
def watched_by(someone: Watcher) -> Iterator[None]:
    """Show someone the launches of this thread while the block runs. Blocks nest; the innermost one sees."""
    token = watcher.set(someone)
    open_watchers.append(someone)
    try:
        yield
    finally:
        open_watchers.remove(someone)
        watcher.reset(token)


@contextmanager
def active() -> Iterator[None]:
    """Run kernels on the machine while the block runs, where there is a GPU as well; tensors are copied and back.

    A tuned kernel runs in its first configuration: what was chosen here would be remembered for the GPU.
    """
    register()
    before, tune = driver._active, Autotuner.run
    driver.set_active(Driver())
    Autotuner.run = run_first_configuration
    try:
        yield
    finally:
        Autotuner.run = tune
        driver.set_active(before)


def run_first_configuration(tuner: Autotuner, *arguments, **named):
    chosen = tuner.configs[0]
    if chosen.pre_hook is not None:
        chosen.pre_hook({**dict(zip(tuner.arg_names, arguments, strict=False)), **named, **chosen.all_kwargs()})
    return tuner.fn.run(*arguments, **named, **chosen.all_kwargs())


class Launcher:
    """What launches a compiled kernel: called with the grid, what `load_binary` returned, and the arguments."""

    def __init__(self, source, metadata):
        self.source = source
        self.kinds = source.signature
        self.options = {name: getattr(metadata, name) for name in ("num_warps", "num_stages", "num_ctas", "maxnreg")}

    def __call__(self, x, y, z, stream, kernel: Kernel, packed, launch_metadata, enter, leave, *arguments) -> None:
        """Run the programs of a grid. Raises OutOfBoundsError, KernelError, and ValueError for a tensor elsewhere."""
        grid = three_sizes(x, y, z)
        if 0 in grid:
            return
        given = dict(zip(self.kinds, arguments, strict=True))
        with HostCopies() as copies:
            values, views = [], {}
            for name, kind in self.kinds.items():
                for part, view in flattened(name, given[name], kind, copies):
                    if view is not None:
                        views[len(values)] = view
                    values.append(part)
            tensors = {view.name: view for view in views.values()}
            about = Launch(
                kernel=self.source.fn.__name__,
                function=self.source.fn,
                grid=grid,
                tensors=tensors,
                arguments={name: value for name, value in given.items() if name not in tensors or is_descriptor(value)},
                constexprs={parameter.name for parameter in self.source.fn.params if parameter.is_constexpr},
                options=self.options,
                storages=copies.storages,
                tuning=tuning.get(),
            )
            if enter is not None:
                enter(launch_metadata)
            launch(kernel, about, values, views)
            if leave is not None:
                leave(launch_metadata)


def launch(kernel: Kernel, about: Launch, values: list, views: dict[int, TensorView]) -> None:
    """Run a kernel under whoever watches; without a watcher, raise the faults that a GPU would not forgive."""
    watching = current_watcher()
    run = Run(about.grid, views, elsewhere=live_tensors, faults=about.found)
    if watching is None:
        kernel.run(run, values, any_order(about.programs))
        run.faults.raise_strays()
        return
    order = watching.begin(about)
    about.keeps_values = watching.keeps_values
    run.record, run.ones = about, watching.ones
    try:
        kernel.run(run, values, order)
    finally:
        about.finish()
        watching.end(about)


@lru_cache(maxsize=16)
def any_order(programs: int) -> np.ndarray:
    """Return the programs of a launch in an order that means nothing and is the same every time."""
    return np.random.default_rng(programs).permutation(programs)


def three_sizes(*sizes: object) -> tuple[int, int, int]:
    """Return the sizes of a grid. Raises TypeError for other than whole numbers, ValueError beyond a GPU's limits."""
    try:
        sizes = tuple(map(operator.index, sizes))
    except TypeError:
        raise TypeError(f"a grid is a tuple of one to three whole numbers, such as (4,), not {sizes!r}") from None
    if any(size > most for size, most in zip(sizes, LARGEST_GRID, strict=True)) or min(sizes) < 0:
        limits = ", ".join(f"{most:,}" for most in LARGEST_GRID)
        raise ValueError(f"a grid of {sizes} cannot be launched: a GPU's axes end at {limits}")
    return sizes


def flattened(name: str, value, kind, copies: "HostCopies") -> Iterator[tuple[object, TensorView | None]]:
    """Yield (parameter, tensor behind it) for what an argument becomes: nothing for a constant, several for a tuple."""
    if isinstance(kind, tuple):
        for position, (part, inner) in enumerate(zip(value, kind, strict=True)):
            yield from flattened(f"{name}[{position}]", part, inner, copies)
    elif kind == "constexpr":
        return
    elif is_descriptor(value):
        view = copies.view(name, value.base, tuple(value.shape), tuple(value.strides))
        whole = copies.view(name, value.base, tuple(value.base.shape), tuple(value.base.stride()))
        view = view if view.extent <= whole.extent else whole
        shape, strides = (tuple(np.array([n]) for n in sizes) for sizes in (value.shape, value.strides))
        base = np.array([view.data_ptr])
        made = Descriptor(base, shape, strides, padding="nan" if value.padding == "nan" else "zero")
        for _, rule in broken_rules(made, tuple(value.block_shape), view.itemsize):
            raise KernelError(f"`{name}` is a descriptor with which a GPU cannot copy: {rule}")
        yield made, view
        yield from ((n, None) for n in (*value.shape, *value.strides))
    elif hasattr(value, "data_ptr"):
        tensor = getattr(value, "base", value)  # of Triton's TensorWrapper
        view = copies.view(name, tensor, tuple(tensor.shape), tuple(tensor.stride()))
        yield view.data_ptr, view
    else:
        yield value, None


def is_descriptor(value) -> bool:
    return hasattr(value, "block_shape") and hasattr(value, "base")


class HostCopies:
    """The memory that a launch works on: that of CPU tensors, and copies of that of tensors on a GPU."""

    def __init__(self):
        self.copied: dict[int, tuple] = {}  # address of a storage on a GPU → (its bytes as a tensor, their copy)
        self.storages: dict[int, tuple[int, int]] = {}  # address of a storage → where it lies on the CPU, and its bytes

    def view(self, name: str, tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorView:
        """Return what a pointer to a tensor may reach. Raises ValueError for one without memory."""
        try:
            # A fake tensor says that it is on the CPU; its storage does not.
            storage = tensor.untyped_storage()
            has_memory = storage.device.type in ("cpu", "cuda") and (tensor.data_ptr() != 0 or tensor.numel() == 0)
        except RuntimeError:  # of sparse and of functional tensors
            has_memory = False
        if not has_memory:
            raise ValueError(
                f"`{name}` is a tensor without memory ({tensor.device}): a kernel cannot be launched on it"
            )
        address = tensor.data_ptr()
        start = address - storage.data_ptr()
        if tensor.device.type == "cuda":
            address = self.copy(tensor) + start
        self.storages[storage.data_ptr()] = address - start, storage.nbytes()
        return TensorView(name, shape, strides, tensor.dtype, tensor.element_size(), address)

    def copy(self, tensor) -> int:
        """Copy the storage of a tensor to the CPU, unless it is there, and return its address."""
        import torch

        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.copied:
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))
            self.copied[storage.data_ptr()] = whole, whole.cpu()
        return self.copied[storage.data_ptr()][1].data_ptr()

    def __enter__(self) -> "HostCopies":
        return self

    def __exit__(self, *error) -> None:
        for whole, host in self.copied.values():
            whole.copy_(host)


def live_tensors() -> Iterator[TensorView]:
    """Yield the CPU memory of all tensors alive: an address that was passed as an integer may lead to any of them."""
    import torch

    for tensor in [each for each in gc.get_objects() if type(each) in (torch.Tensor, torch.nn.Parameter)]:
        if tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.numel():
            try:
                storage = tensor.untyped_storage()
                address = storage.data_ptr()
            except RuntimeError:  # without memory of its own, as those that vmap and torch.compile pass around
                continue
            yield TensorView("", (storage.nbytes(),), (1,), torch.uint8, 1, address)


# The driver


class NoClock:
    """In the place of a GPU's events and streams, which only a benchmark asks for."""

    def __getattr__(self, name: str):
        raise RuntimeError(
            "There is no GPU here, and how long the CPU takes says nothing about one: do_bench needs a CUDA GPU."
        )


class Driver(DriverBase):
    """Makes the CPU Triton's device. `capability`: the compute capability whose rules the compiler keeps to."""

    def __init__(self, capability: int = CAPABILITY):
        super().__init__()
        self.target = GPUTarget(NAME, capability, WARP)
        self.launcher_cls = Launcher
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {
                "max_shared_mem": 232_448,
                "multiprocessor_count": 132,
                "warpSize": WARP,
            },
            load_binary=lambda name, text, shared, device: (NAME, load(text), 0, 0, MOST_THREADS),
        )

    @classmethod
    def is_active(cls) -> bool:
        """Never of its own accord: `activate` decides."""
        return False

    def map_python_to_cpp_type(self, kind: str) -> str:
        return kind

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_active_torch_device(self):
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> str:
        return f"cpu-{self.target.arch}"  # the key of Triton's cache of kernels, beside the numbers of GPUs

    def set_current_device(self, device) -> None:
        """There is only one."""

    def get_current_stream(self, device) -> int:
        return 0

    def get_device_interface(self) -> NoClock:
        return NoClock()

    get_empty_cache_for_benchmark = get_device_interface

    def clear_cache(self, memory) -> None:
        """There is none to clear."""

    def get_benchmarker(self):
        """Return what autotuning ranks configurations by: each runs once, and the first one wins."""
        return benchmark


def benchmark(call, quantiles=(0.5,), **options) -> list[float]:
    token = tuning.set(True)
    try:
        call()
    finally:
        tuning.reset(token)
    return [0.0] * len(quantiles)


def activate() -> None:
    """Run every kernel of this process on the machine from now on, launched before or not."""
    register()
    cache.prepare()
    driver.set_active(Driver())


def register() -> None:
    """Make the machine known to Triton's compiler and to its autotuning, which would keep a GPU's clock for here."""
    backends.setdefault(NAME, Backend(Compiler, Driver))
    Autotuner.do_bench = property(clock_of)


def clock_of(tuner: Autotuner) -> Callable:
    """Return what ranks the configurations of a tuner: its own function, if it has one that needs no GPU."""
    timed = tuner.use_cuda_graph or (tuner.num_warmups, tuner.num_reps) != (None, None)
    if (timed or tuner._do_bench is None) and isinstance(driver.active, Driver):
        return benchmark
    return tuner._do_bench or driver.active.get_benchmarker()
