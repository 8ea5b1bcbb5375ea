"""The columns of a delta beside its payload, and of the rows in which sources hand events on."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streamq.time import INFINITY, MINUS_INFINITY

LE: Final = "__le"
"""Start of the lifetime, int64 ticks."""
RE: Final = "__re"
"""End of the lifetime, int64 ticks; INFINITY while still open. Declared points have none: it is LE + 1."""
WEIGHT: Final = "__w"
"""+1 inserts, -1 takes back; int64. A table without the column holds inserts only."""
KEEP: Final = "__keep"
"""Whether a row passed the filters on its way; those that did not still move their source's progress."""
BAD: Final = "__bad"
"""Why a source row is no event; NULL for one that is. Rows of points may have none: their start tells."""
KIND: Final = "__kind"
"""insert, retract or cti, in the rows of a physical source."""
NEW_END: Final = "__new"
"""The end a retraction moves its event to."""
OPENS: Final = "__opens"
"""True for the start row, False for the end row of an edge event; NULL for a row that is neither, which is no event."""

INSERT, RETRACT, CTI = "insert", "retract", "cti"

NO_START = "null start"
TOO_EARLY = "a start at -2^63, before the first instant of the time axis"
TOO_LATE = "a start too late to last a tick of the time axis"
"""Why a row is no event for its start alone: -2^63 means no instant inside, and 2^63 - 1 no end."""

LAST_POINT: Final = INFINITY - 2
"""The last instant of a point, which ends a tick later, and not never."""


def start_reasons(le: Any, last: int = INFINITY - 1) -> pa.Array:
    """Why each start is none, NULL where it is one; ``last`` is the last that there may be."""
    late = pc.if_else(pc.fill_null(pc.greater(le, last), False), TOO_LATE, pa.scalar(None, pa.string()))
    early = pc.if_else(pc.fill_null(pc.equal(le, MINUS_INFINITY), False), TOO_EARLY, late)
    return pc.if_else(pc.is_null(le), NO_START, early)
