"""Where an answer runs: in a forked process that may loop, crash or print what it likes, or in this one."""

import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import contextmanager, suppress
from multiprocessing import Pipe

import torch

from lab import compiler
from lab.check.inputs import Frozen
from lab.check.runner import Evidence, Runner
from lab.device import DEVICE

SHOWN_OUTPUT = 2000  # characters kept of what the answer prints
COMPILE_SECONDS = 60.0  # for all of an answer's kernels
TICK = 0.25  # seconds between two signs of life while waiting


class TimedOut(Exception):
    """The answer did not return in time."""


class Crashed(Exception):
    """The process of the answer ended; the text says how."""


class Child:
    """A forked process that runs one answer, so that this one survives whatever it does.

    Frozen inputs go in, evidence comes back, within `seconds` for all runs together. `waiting` is called now and then
    meanwhile.
    """

    def __init__(self, function: Callable, allows: Iterable[str], seconds: float):
        compiler.start()  # it warms up while the answer runs
        self.seconds = self.left = seconds
        self.waiting: Callable[[], None] = lambda: None
        self.output = ""
        self.connection, theirs = Pipe()
        output, their_output = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # Python 3.12 warns of forking beside threads; the child touches none of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
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

    def run(self, frozen: Frozen, order=None) -> Evidence:
        """Return the evidence of one run. Raises TimedOut or Crashed."""
        return Evidence.decode(self.ask("run", frozen, order))

    def objections(self) -> list[str]:
        """Return what a GPU's compiler says. The child knows the kernels, this process has the warm compiler.

        The compiler has its own time: a slow one is not the answer's fault. Raises TimedOut or Crashed.
        """
        self.left = COMPILE_SECONDS
        return json.loads(self.ask("objections"))

    def ask(self, method: str, *arguments) -> bytes:
        """Send one request, compile what the child wants compiled meanwhile, and return the reply."""
        if self.pid is None:
            raise Crashed("has ended")
        try:
            self.connection.send((method, arguments))
            while True:
                self.wait()
                kind, reply = self.connection.recv_bytes().split(b":", 1)
                if kind == b"reply":
                    return reply
                self.connection.send(compile_for_child(json.loads(reply)))
        except (EOFError, ConnectionError):
            raise Crashed(self.end()) from None

    def wait(self) -> None:
        """Wait for a message. Raises TimedOut when the time of all runs together is over."""
        started = time.monotonic()
        left = self.left
        while not self.connection.poll(max(0.0, min(left, TICK))):
            if left <= 0:
                raise TimedOut(f"{self.seconds:g} s")
            self.waiting()
            left = self.left - (time.monotonic() - started)
        self.left -= time.monotonic() - started

    def end(self) -> str:
        """Wait for the dying child and say how it ended."""
        status = os.waitpid(self.pid, 0)[1]
        self.pid = None
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            return f"was killed by {signal.Signals(number).name} ({signal.strsignal(number)})"
        return f"ended with exit status {os.WEXITSTATUS(status)}"

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


def compile_for_child(request: dict) -> "dict | Exception":
    """Return the compiler's reply, or what it failed with, for the child to raise."""
    try:
        return compiler.worker.ask(request, compiler.TIMEOUT)
    except (EOFError, TimeoutError) as error:
        return error


class CompilerRelay:
    """Stands in the child for the compiler's worker, which talks to the parent alone."""

    def __init__(self, connection):
        self.connection = connection

    def ask(self, request: dict, timeout: float) -> dict:
        """Have the parent ask its worker, and return the reply."""
        self.connection.send_bytes(b"compile:" + json.dumps(request).encode())
        reply = self.connection.recv()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def stop(self) -> None:
        """Nothing to stop here."""


def serve(runner: Runner, connection, output: int, seconds: float) -> None:
    """The child's life: answer requests until the parent hangs up. Never returns."""
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        gc.freeze()  # the parent's objects are not this process's to finalise
        torch.set_num_threads(1)  # OpenMP's threads did not survive the fork
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = open(1, "w", buffering=1, errors="replace")  # noqa: SIM115  open for as long as the process lives
        sys.stderr = open(2, "w", buffering=1, errors="replace")  # noqa: SIM115
        faulthandler.enable(sys.stderr)
        compiler.worker = CompilerRelay(connection)
        while True:
            method, arguments = connection.recv()
            signal.alarm(int(seconds) + 5 if method == "run" else 0)  # the parent may die, and nobody else end a loop
            reply = getattr(runner, method)(*arguments)
            signal.alarm(0)
            sys.stdout.flush()
            connection.send_bytes(b"reply:" + (reply.encode() if method == "run" else json.dumps(reply).encode()))
    except EOFError:
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(70)


class InProcess:
    """The same interface without a fork: on a CUDA GPU, whose context no child can use, and where there is no fork."""

    output, waiting = "", None

    def __init__(self, function: Callable, allows: Iterable[str]):
        runner = Runner(function, allows)
        self.run, self.objections = runner.run, runner.objections

    def close(self) -> None:
        """Nothing to end."""


@contextmanager
def place_to_run(function: Callable, allows: Iterable[str], seconds: float, isolate: bool):
    """Yield where an answer runs: a child process if asked for and possible, else this process."""
    forks = isolate and hasattr(os, "fork") and DEVICE.type == "cpu"
    place = Child(function, allows, seconds) if forks else InProcess(function, allows)
    try:
        yield place
    finally:
        place.close()
