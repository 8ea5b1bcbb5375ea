"""The columns of a delta beside its payload, and those of the rows in which sources deliver events."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streamq.time import INFINITY, MINUS_INFINITY

LE: Final = "__le"
"""Start of the lifetime, int64 ticks."""
RE: Final = "__re"
"""End of the lifetime, int64 ticks; INFINITY while open. Declared points lack the column: their end is LE + 1."""
WEIGHT: Final = "__w"
"""Weight, int64: +1 inserts, -1 retracts. A table without the column holds inserts only."""
WAKES: Final = "__wakes"
"""The instant at which the events for which a row stands are read one by one; INFINITY for a row that is an event."""
KEEP: Final = "__keep"
"""True if a row passed the filters of its path; the other rows still move their source's progress."""
BAD: Final = "__bad"
"""The reason why a source row is no event, NULL for events. Rows of points may lack the column: their start decides."""
KIND: Final = "__kind"
"""The kind of a row of a physical source: insert, retract or cti."""
NEW_END: Final = "__new"
"""The end to which a retraction moves its event."""
OPENS: Final = "__opens"
"""True for the start row of an edge event, False for its end row; NULL for a row that is neither, and so is invalid."""

NOW: Final = "__now"
"""The time of the row's micro-batch, the instant at which it was begun with, in microseconds since 1970."""
_BESIDE: Final = "__beside_"

INSERT, RETRACT, CTI = "insert", "retract", "cti"

NO_START = "null start"
TOO_EARLY = "a start at -2^63, before the first instant of the time axis"
TOO_LATE = "a start too late to last a tick of the time axis"
"""The reasons why a start alone makes a row invalid: -2^63 and 2^63 - 1 are not instants, the latter means no end."""

LAST_POINT: Final = INFINITY - 2
"""The last instant of a point: it ends a tick later, and a tick later still is INFINITY."""


def start_reasons(le: Any, last: int = INFINITY - 1) -> pa.Array:
    """Return the reason why each start is invalid, NULL if it is valid; ``last`` is the last valid start."""
    late = pc.if_else(pc.fill_null(pc.greater(le, last), False), TOO_LATE, pa.scalar(None, pa.string()))
    early = pc.if_else(pc.fill_null(pc.equal(le, MINUS_INFINITY), False), TOO_EARLY, late)
    return pc.if_else(pc.is_null(le), NO_START, early)


def beside_column(name: str) -> str:
    """Return the name that items have for a column beside their event; it is a plain word, whatever ``name`` is."""
    return f"{_BESIDE}{name.encode().hex()}"


def beside_names(items: pa.Table) -> dict[str, str]:
    """Return the columns of items beside their events, each with its name in the source's table."""
    columns = [column for column in items.column_names if column.startswith(_BESIDE)]
    return {column: bytes.fromhex(column.removeprefix(_BESIDE)).decode() for column in columns}


def without_beside(items: pa.Table) -> pa.Table:
    """Return items without the columns beside their events."""
    return items.drop_columns([*beside_names(items)])
