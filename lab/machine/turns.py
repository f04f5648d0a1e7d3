"""Programs that wait for each other take turns: each has a thread, of which one at a time goes on."""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lab.machine.faults import KernelError

if TYPE_CHECKING:
    from lab.machine.execute import Run

PATIENCE = 1000  # turns of loops before the next program gets its chance
WAITING = 200  # for how many turns one counts in a loop that may wait for another program
MOST_TURNS = 4000  # chances in a row without any program coming to its end or changing memory
MOST_AT_ONCE = 512  # programs that have begun and not ended


class Stopped(BaseException):
    """Ends the thread of a program whose launch is over."""


class Turns:
    """Runs `count` programs one after the other; one that goes round in a loop lets others begin and go on."""

    def __init__(self, start: Callable[[int], None], count: int, run: "Run"):
        self.start, self.count, self.run = start, count, run
        self.here = threading.local()
        self.back = threading.Semaphore(0)
        self.error: BaseException | None = None
        self.over = False
        self.programs: list[Program] = []  # that have begun and not ended

    def finish(self) -> None:
        """Run all programs to their end. Raises what one of them raises, and KernelError where none can go on."""
        waiting: deque[Program] = deque()
        begun = idle = changes = 0
        with self.pausing():
            try:
                while begun < self.count or waiting:
                    if begun < self.count and len(waiting) < MOST_AT_ONCE:
                        program, idle = Program(self, begun), 0
                        self.programs.append(program)
                        begun += 1
                    else:
                        program = waiting.popleft()
                    if self.go_on(program):
                        self.programs.remove(program)
                        idle = 0
                    else:
                        waiting.append(program)
                        idle = idle + 1 if changes == self.run.changes else 0
                    changes = self.run.changes
                    if idle > MOST_TURNS:
                        raise KernelError("the programs wait for each other, and none can go on")
            finally:
                self.over = True
                for program in self.programs:
                    program.turn.release()
                    program.thread.join()

    def go_on(self, program: "Program") -> bool:
        """Let one program run until it ends or waits; return whether it ended."""
        program.turn.release()
        self.back.acquire()
        if self.error is not None:
            raise self.error
        return program.ended

    @contextmanager
    def pausing(self):
        before, self.run.pause = self.run.pause, self.pause
        try:
            yield
        finally:
            self.run.pause = before

    def pause(self, weight: int) -> None:
        """Called by the running program in each turn of a loop."""
        program = self.here.program
        program.turns += weight
        if program.turns >= PATIENCE and not self.over:
            program.turns = 0
            self.back.release()
            program.turn.acquire()
        if self.over:
            raise Stopped


class Program:
    """One program and its thread."""

    def __init__(self, turns: Turns, number: int):
        self.turns, self.ended = 0, False
        self.turn = threading.Semaphore(0)

        def live():
            self.turn.acquire()
            turns.here.program = self
            try:
                if not turns.over:
                    turns.start(number)
            except Stopped:
                pass
            except BaseException as error:
                turns.error = error
            self.ended = True
            turns.back.release()

        self.thread = threading.Thread(target=live, daemon=True)
        self.thread.start()
