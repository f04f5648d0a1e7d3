"""Programs that wait for each other take turns: each has a thread, of which one at a time goes on."""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.machine.execute import Run

PATIENCE = 50  # turns of a loop before the next program gets its chance
MOST_TURNS = 20_000  # chances in a row without any program coming to its end
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

    def finish(self) -> None:
        """Run all programs to their end. Raises what one of them raises, and KernelError where none can go on."""
        from lab.machine.execute import KernelError

        waiting: deque[Program] = deque()
        begun = idle = 0
        with self.pausing():
            try:
                while begun < self.count or waiting:
                    if begun < self.count and len(waiting) < MOST_AT_ONCE and (not waiting or idle >= len(waiting)):
                        program, idle = Program(self, begun), 0
                        begun += 1
                    else:
                        program = waiting.popleft()
                    if self.go_on(program):
                        idle = 0
                    else:
                        waiting.append(program)
                        idle += 1
                    if idle > MOST_TURNS:
                        raise KernelError("the programs wait for each other, and none can go on")
            finally:
                self.over = True
                for program in waiting:
                    self.go_on(program)

    def go_on(self, program: "Program") -> bool:
        """Let one program run until it ends or waits; return whether it ended."""
        program.turn.release()
        self.back.acquire()
        if self.error is not None and not self.over:
            raise self.error
        return program.ended

    @contextmanager
    def pausing(self):
        before, self.run.pause = self.run.pause, self.pause
        try:
            yield
        finally:
            self.run.pause = before

    def pause(self) -> None:
        """Called by the running program in each turn of a loop."""
        program = self.here.program
        program.turns += 1
        if program.turns % PATIENCE == 0:
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

        threading.Thread(target=live, daemon=True).start()
