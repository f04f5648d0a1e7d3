"""Spread work over processes with Dask: all cores of this machine, or a cluster that is running elsewhere."""

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from lab.notebook import CourseError

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
DEATHS = 3  # of workers that had the same item, after which the item is to blame
CONNECT_SECONDS = 10
DASK_PORT = 8786
SETTINGS = {
    "distributed.scheduler.allowed-failures": DEATHS - 1,
    # A worker starts sandboxes of its own; its memory is theirs to limit.
    "distributed.worker.daemon": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
}


def spread(
    function: Callable[[Item], Any],
    items: Iterable[Item],
    *,
    scheduler: str | None = None,
    workers: int | None = None,
) -> Iterator[tuple[Item, Any]]:
    """Yield (item, what `function(item)` returned, or the exception it ended in) as each is done, in any order.

    An item whose worker dies is tried again, elsewhere, at most DEATHS times in all. `scheduler` is the address of a
    running Dask scheduler, whose workers must have the course installed; without one there are as many local workers as
    `workers` or the cores say. Raises CourseError when the scheduler does not answer.
    """
    from distributed import as_completed

    with connected(scheduler, workers) as client:
        # Item by item, for a worker's death to cost no other item's work; never cached, for the run may differ.
        futures = {client.submit(function, item, pure=False): item for item in items}
        # Results are fetched at once: one that still lay with a worker would die with it.
        for future, result in as_completed(futures, loop=client.loop, with_results=True, raise_errors=False):
            yield futures.pop(future), result if future.status == "finished" else future.exception()
            future.release()


@contextmanager
def connected(scheduler: str | None, workers: int | None) -> "Iterator[Client]":
    """Yield a client of a running scheduler, or of workers of this machine that end with it. Raises CourseError."""
    import dask
    from distributed import Client, LocalCluster

    if scheduler is not None:
        knock(scheduler)
    with dask.config.set(SETTINGS), ExitStack() as stack:
        place = scheduler or stack.enter_context(
            LocalCluster(
                n_workers=workers or len(os.sched_getaffinity(0)),
                threads_per_worker=1,
                memory_limit=None,
                host="127.0.0.1",
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )
        )
        yield stack.enter_context(Client(place, set_as_default=False))


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
