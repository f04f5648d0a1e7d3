"""A model of a cache: the order in which tiles are computed, what programs ask of memory, what a cache can spare it."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence


def grouped(tiles_m: int, tiles_n: int, group: int = 1) -> list[tuple[int, int]]:
    """Return every tile of a matrix as (row, column): down `group` rows of tiles, then one column on. 1: row by row."""
    return [
        (row, column)
        for first in range(0, tiles_m, group)
        for column in range(tiles_n)
        for row in range(first, min(first + group, tiles_m))
    ]


def in_step(
    order: Sequence[tuple[int, int]], steps: int, programs: int, a_bytes: int, b_bytes: int
) -> Iterator[tuple[Hashable, int]]:
    """Yield what a product asks of memory, as (block, its bytes), if `programs` at a time go along K side by side.

    order: the tile of each program. In each step a program fetches one block of a, `a_bytes`, and one of b, `b_bytes`.
    """
    for first in range(0, len(order), programs):
        for k in range(steps):
            for row, column in order[first : first + programs]:
                yield ("a", row, k), a_bytes
                yield ("b", k, column), b_bytes


def fetched(requests: Iterable[tuple[Hashable, int]], capacity: int) -> tuple[int, int]:
    """Return the bytes asked for, and those that memory must deliver past a cache of `capacity` bytes.

    The cache keeps what was used last (LRU), whole blocks of it.
    """
    cache: OrderedDict[Hashable, int] = OrderedDict()
    asked = delivered = held = 0
    for block, size in requests:
        asked += size
        if block in cache:
            cache.move_to_end(block)
            continue
        delivered += size
        held += size
        cache[block] = size
        while held > capacity:
            held -= cache.popitem(last=False)[1]
    return asked, delivered
