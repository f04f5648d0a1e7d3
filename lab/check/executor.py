"""Where an answer runs: in a forked process that may loop, crash or print what it likes, or in this process."""

import faulthandler
import gc
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import NoReturn, Protocol

import torch

from lab import compiler
from lab.check.inputs import Frozen
from lab.check.runner import Evidence, Runner
from lab.device import DEVICE
from lab.words import how_it_ended

SHOWN_OUTPUT = 2000  # characters kept of what the answer prints
TICK = 0.25  # seconds between two signs of life while waiting


class TimedOut(Exception):
    """The answer did not return in time; the text says how much it had."""


class Crashed(Exception):
    """The process of the answer ended; the text says how."""


class Executor(Protocol):
    """Runs one answer again and again for whoever judges it: `ForkExecutor`, `InProcessExecutor`, `SandboxExecutor`."""

    waiting: Callable[[], None]  # called now and then while another process is waited for

    @property
    def output(self) -> str:
        """The beginning of what the answer has printed, where that can be told from what others print."""

    def run(self, inputs: Frozen, order: str | int | None = None) -> Evidence:
        """Call the answer on private copies of the inputs, and return what happened.

        order: the order of its programs, as `lab.trace.trace` takes it. An exception of the answer's is evidence.
        Raises TimedOut when the time for all runs together is over, and Crashed when the process it ran in has ended.
        """

    def objections(self) -> list[str]:
        """Return what a GPU's compiler says against the kernels that ran, one text per reason; nothing on a GPU.

        Raises TimedOut or Crashed where the process that is asked does not reply.
        """


class ForkExecutor:
    """Runs an answer in a forked process, so that this one survives whatever it does.

    Inputs go in, evidence comes back, within `seconds` for all runs together. What is to be compiled comes with the
    evidence, and this process has it compiled: the compiler's time is not the answer's.
    """

    def __init__(self, function: Callable, allows: Iterable[str], seconds: float):
        compiler.start()  # it warms up while the answer runs
        self.seconds = self.left = seconds
        self.waiting: Callable[[], None] = do_nothing
        self.output = ""
        self.kernels: list[dict] = []  # that ran, packed for the compiler
        self.connection, theirs = Pipe()
        output, their_output = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # Python 3.12 warns of forking beside threads; the child touches none of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid: int | None = os.fork()
        if self.pid == 0:
            self.connection.close()
            os.close(output)
            serve(Runner(function, allows), theirs, their_output, seconds)
        theirs.close()
        os.close(their_output)
        self.reader = threading.Thread(target=self.read_output, args=(output,), daemon=True)
        self.reader.start()

    def read_output(self, descriptor: int) -> None:
        """Keep the first characters the child prints and drop the rest, so that it never waits for a reader."""
        with open(descriptor, "rb", buffering=0) as stream:
            while chunk := stream.read(1 << 16):
                if len(self.output) < SHOWN_OUTPUT:
                    self.output += chunk.decode(errors="replace")[:SHOWN_OUTPUT]

    def run(self, inputs: Frozen, order: str | int | None = None) -> Evidence:
        """Return the evidence of one run. Raises TimedOut or Crashed."""
        return self.ask(inputs, order, studies=False)

    def study(self, inputs: Frozen, order: str | int | None = None) -> Evidence | None:
        """Return the evidence of one run more, which tells why the answer is wrong; None when there is no time left."""
        if self.left < self.seconds / 2:
            return None
        try:
            return self.ask(inputs, order, studies=True)
        except (TimedOut, Crashed):
            return None

    def ask(self, inputs: Frozen, order: str | int | None, studies: bool) -> Evidence:
        """Return the child's evidence. Raises TimedOut, also ever after, for a late reply is not the next one's."""
        if self.pid is None:
            raise Crashed("has ended")
        if self.left <= 0:
            raise TimedOut(f"{self.seconds:g} s")
        try:
            self.connection.send((inputs, order, studies))
            self.wait()
            evidence = Evidence.decode(self.connection.recv_bytes())
        except (EOFError, ConnectionError):
            raise Crashed(self.end(self.pid)) from None
        self.kernels += evidence.kernels
        return evidence

    def objections(self) -> list[str]:
        """Return what a GPU's compiler says against the kernels that ran."""
        return compiler.objections(self.kernels)

    def wait(self) -> None:
        """Wait for a message. Raises TimedOut when the time of all runs together is over."""
        started = time.monotonic()
        left = self.left
        while not self.connection.poll(max(0.0, min(left, TICK))):
            if left <= 0:
                self.left = 0.0
                raise TimedOut(f"{self.seconds:g} s")
            self.waiting()
            left = self.left - (time.monotonic() - started)
        self.left -= time.monotonic() - started

    def end(self, pid: int) -> str:
        """Wait for the dying process and say how it ended."""
        status = os.waitpid(pid, 0)[1]
        self.pid = None
        return how_it_ended(os.waitstatus_to_exitcode(status))

    def close(self) -> None:
        """End the child and everything it started."""
        self.connection.close()
        if self.pid is not None:
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):
                    kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = None
        self.reader.join(timeout=1)


def do_nothing() -> None:
    """Wait in silence."""


def serve(runner: Runner, connection: Connection, output: int, seconds: float) -> NoReturn:
    """Run the answer on whatever inputs come, in the forked process, until the parent hangs up."""
    try:
        settle(output)
        while True:
            inputs, order, studies = connection.recv()
            signal.alarm(int(seconds) + 5)  # the parent may die, and nobody else end a loop
            evidence = runner.study(inputs, order) if studies else runner.run(inputs, order)
            signal.alarm(0)
            sys.stdout.flush()
            connection.send_bytes(evidence.encode())
    except EOFError:
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(70)


def settle(output: int) -> None:
    """Make a forked process one of its own: its group, its threads, and `output` for whatever it prints."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    gc.freeze()  # the parent's objects are not this process's to finalise
    torch.set_num_threads(1)  # OpenMP's threads did not survive the fork
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = open(1, "w", buffering=1, errors="replace")  # noqa: SIM115  open for as long as the process lives
    sys.stderr = open(2, "w", buffering=1, errors="replace")  # noqa: SIM115
    faulthandler.enable(sys.stderr)


class InProcessExecutor:
    """Runs an answer in this process: on a CUDA GPU, whose context no fork can use, and inside a sandbox."""

    def __init__(self, runner: Runner):
        self.runner = runner
        self.output = ""  # what is printed stays where it is
        self.waiting: Callable[[], None] = do_nothing
        self.kernels: list[dict] = []  # that ran, packed for the compiler

    def run(self, inputs: Frozen, order: str | int | None = None) -> Evidence:
        """Return the evidence of one run."""
        evidence = self.runner.run(inputs, order)
        self.kernels += evidence.kernels
        return evidence

    def study(self, inputs: Frozen, order: str | int | None = None) -> Evidence:
        """Return the evidence of one run more, which tells why the answer is wrong."""
        evidence = self.runner.study(inputs, order)
        self.kernels += evidence.kernels
        return evidence

    def objections(self) -> list[str]:
        """Return what a GPU's compiler says against the kernels that ran."""
        return compiler.objections(self.kernels)


@contextmanager
def executor_for(function: Callable, allows: Iterable[str], seconds: float, isolate: bool) -> Iterator[Executor]:
    """Yield what runs an answer: a forked process if asked for and possible, else this process."""
    if not (isolate and hasattr(os, "fork") and DEVICE.type == "cpu"):
        yield InProcessExecutor(Runner(function, allows))
        return
    executor = ForkExecutor(function, allows, seconds)
    try:
        yield executor
    finally:
        executor.close()
