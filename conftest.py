"""What every test run shares, nbval's over the notebooks too."""

import os
import tempfile
import time
from queue import Empty

import pytest
from nbval.kernel import RunningKernel

POLL_SECONDS = 1.0

get_message = RunningKernel.get_message


def get_message_while_alive(self: RunningKernel, stream: str, timeout: float | None = None) -> dict:
    """Return the kernel's next message; unlike nbval's own, notice a dead kernel within a second."""
    end = time.monotonic() + (float("inf") if timeout is None else timeout)
    while True:
        try:
            return get_message(self, stream, timeout=max(0.0, min(POLL_SECONDS, end - time.monotonic())))
        except Empty:
            if not self.is_alive():
                raise RuntimeError("The kernel died while it ran this cell.") from None
            if time.monotonic() >= end:
                raise


def pytest_configure(config: pytest.Config) -> None:
    """Watch nbval's kernels, and keep what checks record apart from the learner's own progress.

    With several workers, the cells of a notebook go to one of them: they need one kernel.
    """
    RunningKernel.get_message = get_message_while_alive
    if config.getoption("dist", "no") == "load":
        config.option.dist = "loadfile"
    state = tempfile.TemporaryDirectory(prefix="tile-state-")
    config.add_cleanup(state.cleanup)
    os.environ["TILE_STATE"] = state.name
