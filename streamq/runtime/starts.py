"""A summary of the starts that rows of a source have, from which a start far ahead of all others can be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE = 256
"""How many rows of a table, evenly spread, stand for all when the middle start is looked for."""


class StartSummary:
    """How many rows there were, the least of their starts, and one in the middle of them; in ticks."""

    # no dataclass, for what that generates would travel with every stage
    def __init__(self, rows: int, least: int, middle: int):
        self.rows, self.least, self.middle = rows, least, middle


def summarize_starts(starts: pa.Array | pa.ChunkedArray) -> StartSummary | None:
    """Return the summary of some starts; None if there are none."""
    if not len(starts):
        return None
    values = starts.to_numpy()
    sample = values[:: max(1, len(values) // SAMPLE)]
    middle = (len(sample) - 1) // 2
    return StartSummary(len(values), int(values.min()), int(np.partition(sample, middle)[middle]))


def merge_summaries(a: StartSummary | None, b: StartSummary | None) -> StartSummary | None:
    """Return the summary of two sets of rows together; its middle start is that of the greater one."""
    if a is None or b is None:
        return a or b
    return StartSummary(a.rows + b.rows, min(a.least, b.least), a.middle if a.rows >= b.rows else b.middle)
