"""What operators need beside their inputs to become DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamq.operators.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class BatchRun:
    """What lowering needs beside the plan: the tables by name and the bound on infinite lifetimes, in ticks.

    ``sources`` are the plan's, by table; ``made`` what has been lowered so far.
    """

    tables: Mapping[str, DataFrame]
    until: int | None = None
    sources: dict[str, Source] = field(default_factory=dict)
    made: dict[str, DataFrame] = field(default_factory=dict)

    def table(self, source: Source) -> DataFrame:
        """The DataFrame of a source."""
        return self.tables[source.table]
