"""Work spread over processes: what fails or dies costs itself alone."""

import json
import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import dask
import psutil
import pytest

from classroom import cluster
from classroom.cluster import AHEAD, WorkersDied, spread
from lab.notebook import CourseError


def square(number: int) -> int:
    if number == 4:
        raise ValueError("four")
    return number * number


def die(path: str) -> str:
    """Kill the worker: always, or, where the path ends in "once", at the first try."""
    if path and not (path.endswith("once") and os.path.exists(path)):
        Path(path).touch()
        os._exit(1)
    return path


def listening() -> set[str]:
    """Return the addresses at which this process and all that it started listen."""
    own = psutil.Process()
    sockets = [socket for one in (own, *own.children(recursive=True)) for socket in one.net_connections("inet")]
    return {socket.laddr.ip for socket in sockets if socket.status == psutil.CONN_LISTEN}


def test_nothing_listens_beyond_this_machine():
    """Neither scheduler, workers and their nannies, nor the page that shows them."""
    seen = [listening() for _ in spread(square, [1, 2, 3], workers=2)]
    assert seen[0] == {"127.0.0.1"}


def test_a_large_submission_and_a_dead_worker_leave_the_terminal_alone(capfd: pytest.CaptureFixture):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert [length for _, length in spread(len, [b"x" * (12 << 20)], workers=1)] == [12 << 20]
        assert [str(error) for _, error in spread(os._exit, [1], workers=1)] != []
    assert [str(one.message) for one in warned] == []
    assert capfd.readouterr() == ("", "")


def level_of(name: str) -> int:
    return logging.getLogger(name).getEffectiveLevel()


def test_a_worker_is_silent_from_its_start():
    assert [level for _, level in spread(level_of, ["distributed.worker"], workers=1)] == [logging.CRITICAL]


def test_every_item_comes_back_and_a_failure_is_its_own():
    found = dict(spread(square, range(8), workers=2))
    assert isinstance(found.pop(4), ValueError)
    assert found == {number: number * number for number in (0, 1, 2, 3, 5, 6, 7)}


def test_a_dead_worker_costs_a_retry_and_a_deadly_item_only_itself(tmp_path: Path):
    once, always = str(tmp_path / "once"), str(tmp_path / "always")
    found = dict(spread(die, ["", once, always], workers=1))
    assert found[""] == "" and found[once] == once
    assert isinstance(found[always], WorkersDied)


def test_items_are_taken_only_as_workers_come_free():
    taken = []

    def items():
        for number in range(10, 20):
            taken.append(number)
            yield number

    for count, _ in enumerate(spread(square, items(), workers=1), start=1):
        assert len(taken) <= count + AHEAD


def test_nothing_to_do_starts_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "connected", None)
    assert list(spread(square, [])) == []


def test_nobody_at_the_schedulers_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("distributed.Client", None)  # which would try again and again, for half a minute
    with pytest.raises(CourseError, match="No Dask scheduler answers at tcp://127.0.0.1:9 .*Start one with"):
        list(spread(square, [1], scheduler="tcp://127.0.0.1:9"))


def test_a_scheduler_that_dies_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture):
    file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "--no-dashboard", "--scheduler-file", file], **quiet) as running:
        while not file.exists() or not file.read_text():
            time.sleep(0.1)
        address = json.loads(file.read_text())["address"]
        threading.Timer(3, running.kill).start()
        with dask.config.set({"distributed.comm.timeouts.connect": "1s"}), pytest.raises(CourseError) as told:
            list(spread(square, [3], scheduler=address))  # it has no workers
    assert f"at {address} no longer answers" in str(told.value) and "\n" not in str(told.value)
    assert capfd.readouterr() == ("", "")


def test_a_scheduler_elsewhere():
    from distributed import LocalCluster

    place = {"processes": False, "protocol": "tcp://", "dashboard_address": ":0"}
    with LocalCluster(n_workers=1, threads_per_worker=1, **place) as running:
        assert dict(spread(square, [3], scheduler=running.scheduler_address)) == {3: 9}
