"""A summary of the starts of a source's rows, by which a start far ahead of all others is detected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE = 256
"""The number of rows of a table, evenly spread, from which the middle start is taken."""


class StartSummary:
    """The number of rows, the least of their starts, and a start in the middle of them; in ticks."""

    # no dataclass, because its generated methods would be shipped with every stage
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
    """Return the summary of two sets of rows together; its middle start is that of the larger set."""
    if a is None or b is None:
        return a or b
    return StartSummary(a.rows + b.rows, min(a.least, b.least), a.middle if a.rows >= b.rows else b.middle)
