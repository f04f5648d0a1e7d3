"""Run a program that is not to be trusted: without network, with nothing to read but the course, within limits.

bubblewrap gives it a file system, process list and network of its own; prlimit and a watchdog in this process end
whatever takes too much.
"""

import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING

from lab.notebook import CourseError
from lab.words import how_it_ended

if TYPE_CHECKING:
    from lab.check.executor import Crashed, TimedOut

TICK = 0.1  # seconds between two looks at what a sandbox takes
KEPT = 4000  # characters kept of what is printed
OVERTIME = "took too long"
START_SECONDS = 60.0  # to import torch and Triton on a busy machine
SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/sbin", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Limits:
    """What one submission may take."""

    task_seconds: float = 10.0  # of wall time for all runs of one answer, as in `lab.check`
    seconds: float = 120.0  # of wall time for all answers together
    notebook_seconds: float = 60.0  # of wall time for nbval
    memory: int = 4 << 30  # bytes resident at once, all processes of a sandbox together
    processes: int = 48  # at once
    output: int = 8 << 20  # bytes printed
    message: int = 64 << 20  # bytes sent back at once
    disk: int = 64 << 20  # bytes in each of /tmp and /dev/shm


def available() -> bool:
    """Return whether bubblewrap is here and may make sandboxes."""
    programs = shutil.which("bwrap"), shutil.which("prlimit")
    command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return all(programs) and subprocess.run(command, capture_output=True, timeout=10).returncode == 0


def require() -> None:
    """Raise CourseError where there can be no sandbox."""
    if not available():
        raise CourseError(
            "Submissions are programs of other people, and this machine cannot keep them apart from yours: bubblewrap "
            "is missing or may not be used. Install it (Debian and Ubuntu: apt install bubblewrap), or, on a machine "
            "that holds nothing you could lose, grade with `--no-sandbox`."
        )


def python_folders() -> list[Path]:
    """Return the folders that this Python and its packages need."""
    packages = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    packages += [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    folders = [sys.prefix, sys.base_prefix, *packages]
    found = {Path(folder) for folder in folders} | {Path(folder).resolve() for folder in folders}
    return sorted(folder for folder in found if folder.is_dir() and not folder.is_relative_to("/usr"))


def wrapped(command: list[str], readable: Iterable[Path], environment: dict[str, str], limits: Limits) -> list[str]:
    """Return the command that runs another in a sandbox where only `readable` is there to be read."""
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox", "--clearenv"]
    words += ["--ro-bind", "/usr", "/usr"]
    for path in SYSTEM:
        words += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind-try", path, path]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/dev/shm", "/tmp"):
        words += ["--size", str(limits.disk), "--tmpfs", folder]
    for path in [*python_folders(), *readable]:
        words += ["--ro-bind", str(path), str(path)]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
    for name, value in environment.items():
        words += ["--setenv", name, value]
    return [*words, "--", *command]


def limited(command: list[str], limits: Limits) -> list[str]:
    """Return the command that runs another with limits on each of its processes, behind the watchdog's on them all."""
    seconds = int(limits.seconds + limits.notebook_seconds)
    words = ["prlimit", f"--cpu={seconds}", f"--as={limits.memory + (16 << 30)}", f"--fsize={limits.disk}", "--core=0"]
    return [*words, "--nofile=1024", f"--nproc={16 * limits.processes}", "--", *command]


class Sandbox:
    """One program of `classroom.sandbox_main` in a sandbox, which takes requests and sends back bytes."""

    def __init__(self, role: str, course: Path, readable: Iterable[Path], limits: Limits, sandboxed: bool = True):
        """Start the program without waiting for it.

        role: what it is to be, see `classroom.sandbox_main`. course: the folder to import from; of that only what is
        `readable` can be seen. Without `sandboxed` it runs as any program does, with limits only on its time.
        """
        self.limits = limits
        self.output = ""
        self.reason = ""  # why the watchdog ended it
        self.deadline = time.monotonic() + START_SECONDS
        self.ready = self.ended = False
        self.scratch = None if sandboxed else tempfile.TemporaryDirectory(prefix="tile-", ignore_cleanup_errors=True)
        self.connection, theirs = Pipe()
        command = [sys.executable, "-m", "classroom.sandbox_main", role, str(theirs.fileno())]
        scratch = "/tmp" if self.scratch is None else self.scratch.name
        environment = self.environment(course, scratch)
        if sandboxed:
            command = wrapped(limited(command, limits), readable, environment, limits)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            env=environment,
            cwd=scratch,
            start_new_session=True,
        )
        theirs.close()
        self.threads = [threading.Thread(target=job, daemon=True) for job in (self.read_output, self.watch)]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def environment(course: Path, scratch: str) -> dict[str, str]:
        return {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
            "HOME": scratch,
            "TMPDIR": scratch,
            "TILE_STATE": f"{scratch}/state",
            "PYTHONPATH": str(course),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",  # what was printed before the end is kept
            "LANG": "C.UTF-8",
            # Marks must not hang on a GPU: every answer runs on the CPU, one thread each.
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
        }

    def ask(self, method: str, *arguments, seconds: float) -> bytes:
        """Return the reply to a request.

        Raises TimedOut when there is none after so many seconds, Crashed when the program has come to an end.
        """
        self.wait_until_ready()
        self.deadline = time.monotonic() + seconds
        try:
            self.connection.send((method, arguments))
            return self.connection.recv_bytes(self.limits.message)
        except (OSError, EOFError):
            raise self.ending(seconds) from None
        finally:
            self.deadline = float("inf")

    def wait_until_ready(self) -> None:
        """Return once the program has imported what it needs. Raises CourseError: no student is to blame for that."""
        if self.ready:
            return
        try:
            self.connection.recv_bytes(self.limits.message)
        except (OSError, EOFError):
            ended = self.ending(START_SECONDS)
            raise CourseError(
                f"A sandbox did not start ({ended}); it printed:\n{self.output[-500:]}\nIf nothing is wrong with the "
                "course, give this machine more memory or fewer workers, and run the same command again."
            ) from None
        self.ready, self.deadline = True, float("inf")

    def ending(self, seconds: float) -> "TimedOut | Crashed":
        """Return the error that says why there is no reply."""
        from lab.check.executor import Crashed, TimedOut  # with them comes the choice between GPU and CPU

        self.ended = True
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1)
        if self.process.poll() is None:
            self.stop("sent back what cannot be read")
        if self.reason == OVERTIME:
            return TimedOut(f"{seconds:g} s")
        return Crashed(self.reason or how_it_ended(as_signal(self.process.wait())))

    def read_output(self) -> None:
        """Keep the first characters of what is printed, and drop the rest up to the limit."""
        total = 0
        while chunk := self.process.stdout.read1(1 << 16):
            total += len(chunk)
            if len(self.output) < KEPT:
                self.output += chunk.decode(errors="replace")[:KEPT]
            if total > self.limits.output:
                self.stop(f"printed more than {self.limits.output >> 20} MiB")
                return

    def watch(self) -> None:
        """End the program when it takes too long, or with all it has started too much memory or too many processes."""
        while self.process.poll() is None:
            if time.monotonic() > self.deadline:
                return self.stop(OVERTIME)
            # Between two requests it has nothing to do; looking at it costs more.
            count, resident = usage(self.process.pid) if self.deadline < float("inf") else (0, 0)
            if resident > self.limits.memory:
                return self.stop(f"took more than {self.limits.memory >> 20:,} MiB of memory")
            if count > self.limits.processes:
                return self.stop(f"started more than {self.limits.processes} processes")
            time.sleep(TICK)

    def stop(self, reason: str) -> None:
        """End the program and all it has started, and keep why."""
        self.reason = self.reason or reason
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # of bubblewrap, with which its whole list of processes ends

    def close(self) -> None:
        """End the program, and wait until nothing of it is left."""
        self.ended = True
        self.stop("was closed")
        self.process.wait()
        self.connection.close()
        for thread in self.threads:
            thread.join(timeout=1)
        self.process.stdout.close()
        if self.scratch is not None:
            self.scratch.cleanup()

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *error) -> None:
        self.close()


def as_signal(status: int) -> int:
    """Return an exit status as `subprocess` has it: for bubblewrap, as for a shell, 128 + n means signal n."""
    return 128 - status if status - 128 in set(signal.Signals) else status


def usage(root: int) -> tuple[int, int]:
    """Return how many processes descend from one, and the bytes of memory that they hold together."""
    parents, resident = {}, {}
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{folder}/stat", "rb") as file:
                # The name, in parentheses, may hold spaces and parentheses itself.
                facts = file.read().rsplit(b")", 1)[1].split()
                parents[int(folder)], resident[int(folder)] = int(facts[1]), int(facts[21]) * PAGE
    family = {root}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    return len(family), sum(resident.get(pid, 0) for pid in family)
