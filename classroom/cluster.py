"""Spread work over processes with Dask: all cores of this machine, or a cluster that is running elsewhere."""

import itertools
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from lab.notebook import CourseError

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
DEATHS = 3  # of workers that had the same item, after which the item is to blame
AHEAD = 2  # items that a worker has at once: one to do, and one to begin with at once
CONNECT_SECONDS = 10
DASK_PORT = 8786
SETTINGS = {
    "distributed.scheduler.allowed-failures": DEATHS - 1,
    "distributed.admin.large-graph-warning-threshold": "1 TB",  # a large submission is no mistake of the teacher's
    # A worker logs as it starts, before Dask silences it.
    "distributed.nanny.pre-spawn-environ.DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "critical",
    # A worker starts sandboxes of its own; its memory is theirs to limit.
    "distributed.worker.daemon": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
}


class WorkersDied(Exception):
    """Every worker that had an item died."""


def spread(
    function: Callable[[Item], Any],
    items: Iterable[Item],
    *,
    scheduler: str | None = None,
    workers: int | None = None,
) -> Iterator[tuple[Item, Any]]:
    """Yield (item, what `function(item)` returned, or the exception it ended in) as each is done, in any order.

    Items are taken only as workers come free. One whose worker dies is tried again, elsewhere, at most DEATHS times in
    all, and then ends in WorkersDied. `scheduler` is the address of a
    running Dask scheduler, whose workers must have the course installed; without one there are as many local workers as
    `workers` or the cores say. Raises CourseError when the scheduler does not answer.
    """
    from distributed import KilledWorker, as_completed

    waiting, sent = iter(items), {}
    first = list(itertools.islice(waiting, 1))
    if not first:
        return  # without starting any worker
    waiting = itertools.chain(first, waiting)
    with connected(scheduler, workers) as client:
        # Results are fetched at once: one that still lay with a worker would die with it.
        done = as_completed(loop=client.loop, with_results=True, raise_errors=False)
        while True:
            room = AHEAD * max(1, len(client.nthreads())) - len(sent)
            for item in itertools.islice(waiting, max(0, room)):
                # One by one, so that a death costs no other item; never from a cache, for work may differ in time.
                future = client.submit(function, item, pure=False)
                sent[future] = item
                done.add(future)
            if not sent:
                return
            future, result = next(done)
            if future.status != "finished":
                result = future.exception()
            if isinstance(result, KilledWorker):
                result = WorkersDied(f"{DEATHS} workers, one after the other, died of it")
            yield sent.pop(future), result
            future.release()


@contextmanager
def connected(scheduler: str | None, workers: int | None) -> "Iterator[Client]":
    """Yield a client of a running scheduler, or of workers of this machine that end with it. Raises CourseError."""
    import dask
    from distributed import Client, LocalCluster
    from distributed.utils import silence_logging_cmgr

    if scheduler is not None:
        knock(scheduler)
    try:
        with dask.config.set(SETTINGS), silence_logging_cmgr(logging.CRITICAL), ExitStack() as stack:
            place = scheduler or stack.enter_context(
                LocalCluster(
                    n_workers=workers or len(os.sched_getaffinity(0)),
                    threads_per_worker=1,
                    memory_limit=None,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",  # a port alone would be open to the whole network
                    silence_logs=logging.CRITICAL,
                )
            )
            yield stack.enter_context(Client(place, set_as_default=False))
    except (OSError, CancelledError) as error:
        if scheduler is None:
            raise
        raise CourseError(
            f"The Dask scheduler at {scheduler} no longer answers ({error}). Every mark that was done is kept: start "
            "the scheduler again, and run the same command."
        ) from None


def knock(scheduler: str) -> None:
    """Raise CourseError, saying how to go on, when nobody listens at the address of a scheduler."""
    try:
        address = urlsplit(scheduler if "://" in scheduler else f"tcp://{scheduler}")
        socket.create_connection((address.hostname, address.port or DASK_PORT), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise CourseError(
            f"No Dask scheduler answers at {scheduler} ({error}). Start one with `dask scheduler` and its workers with "
            "`dask worker ADDRESS --nthreads 1`, or leave `--scheduler` out to grade on this machine."
        ) from None
