"""Measured speed: rows recorded on a GPU for everyone to read, and what they are compared with.

`recorded` reads the rows of an operation anywhere; `lab.measure.record` writes them, on a CUDA GPU.
"""

from lab.measure.rows import (
    OURS,
    PEERS,
    ROOF,
    NoRecord,
    Row,
    describe,
    largest_copy,
    one,
    ratio,
    recorded,
    select,
    standings,
)
from lab.measure.tables import code_table, standing_table, table

__all__ = [
    "OURS",
    "PEERS",
    "ROOF",
    "NoRecord",
    "Row",
    "code_table",
    "describe",
    "largest_copy",
    "one",
    "ratio",
    "recorded",
    "select",
    "standing_table",
    "standings",
    "table",
]
