"""Question one answer in a sandbox, as `lab.check` does, and read evidence from a process that may lie."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from classroom.sandbox import Sandbox
from lab.check.executor import TimedOut, do_nothing
from lab.check.inputs import Frozen
from lab.check.runner import Evidence
from lab.words import clean


@dataclass
class SandboxExecutor:
    """Runs one answer in a sandbox, within what is left of its time; an `Executor` of `lab.check`."""

    sandbox: Sandbox
    files: frozenset[str]  # the names that the student's cells go by
    seconds: float
    left: float = field(init=False)
    seen: Frozen | None = None  # the inputs of the last run
    waiting: Callable[[], None] = do_nothing  # never called: a bar shows how far a class has come

    def __post_init__(self):
        self.left = self.seconds

    @property
    def output(self) -> str:
        return self.sandbox.output

    def ask(self, method: str, *arguments) -> bytes:
        """Return the sandbox's reply to a request. Raises TimedOut and Crashed."""
        started = time.monotonic()
        self.sandbox.wait_until_ready()
        ready = time.monotonic()
        try:
            return self.sandbox.ask(method, *arguments, seconds=max(0.0, self.left))
        except TimedOut:
            raise TimedOut(f"{round(self.seconds, 1):g} s") from None
        finally:
            self.left -= time.monotonic() - max(started, ready)

    def run(self, inputs: Frozen, order: str | int | None = None) -> Evidence:
        """Return the evidence of one run. Raises TimedOut, Crashed, and anything for evidence that is malformed."""
        self.seen = inputs
        return evidence_from(self.ask("run", inputs, order), self.files)

    def objections(self) -> list[str]:
        """Return what a GPU's compiler, in the same sandbox, says against the kernels that ran."""
        return [str(text) for text in json.loads(self.ask("objections"))]


def evidence_from(reply: bytes, files: frozenset[str]) -> Evidence:
    """Return the evidence in a reply, with no file named but the student's cells: places are quoted from them."""
    evidence = Evidence.decode(reply)
    evidence.kernels = []  # source of theirs: it is compiled where it came from, never here
    places = (*evidence.widest, *evidence.memory, *evidence.operations, *evidence.out_of_bounds, *evidence.conflicts)
    for named in (evidence.error, *places):
        if named is not None and named["file"] not in files:
            named["file"], named["line"] = "", 0
    if evidence.error is not None:
        evidence.error["type"] = clean(str(evidence.error["type"]))[:100]
        evidence.error["message"] = clean(str(evidence.error["message"]))[:500]
    for fault in (*evidence.out_of_bounds, *evidence.conflicts):
        fault["text"] = clean(str(fault["text"]))[:500]
    for use in evidence.memory:
        use["name"] = clean(str(use["name"]))[:100]
    for loads in evidence.loads:
        loads["places"] = [[file, int(line)] for file, line in loads["places"] if file in files]
    for result in evidence.results:
        result.kind = clean(str(result.kind))[:100]
        result.store_lines = [[file, int(line)] for file, line in result.store_lines if file in files]
        result.overwrites = [[clean(str(name)), file, line] for name, file, line in result.overwrites if file in files]
    evidence.returned = clean(str(evidence.returned))[:100]
    return evidence
