"""The columns of a delta beside its payload, and of the rows in which sources hand events on."""

from __future__ import annotations

from typing import Final

LE: Final = "__le"
"""Start of the lifetime, int64 ticks."""
RE: Final = "__re"
"""End of the lifetime, int64 ticks; INFINITY while still open. Declared points have none: it is LE + 1."""
WEIGHT: Final = "__w"
"""+1 inserts, -1 takes back; int64. A table without the column holds inserts only."""
KEEP: Final = "__keep"
"""Whether a row passed the filters on its way; those that did not still move their source's progress."""
BAD: Final = "__bad"
"""Why a source row is no event; NULL for one that is. Rows of points have none: those without a start are no events."""
KIND: Final = "__kind"
"""insert, retract or cti, in the rows of a physical source."""
NEW_END: Final = "__new"
"""The end a retraction moves its event to."""
OPENS: Final = "__opens"
"""True for the start row, False for the end row of an edge event."""

INSERT, RETRACT, CTI = "insert", "retract", "cti"
