"""The rows of a connector as a static table of a stream, read again by a worker once they are too old for a micro-batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from streamq.connectors.connector import Connector
from streamq.plan.lowering import map_in_arrow
from streamq.runtime.hosts.shipping import packed


@dataclass
class RefreshedRows:
    """Reads all rows of a connector, without Spark, and again once they are ``seconds`` old; a worker keeps them so long."""

    connector: Connector
    seconds: float
    rows: pa.Table | None = None
    read_at: float = 0.0

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            now = time.monotonic()
            if self.rows is None or now - self.read_at >= self.seconds:
                self.rows, self.read_at = self.connector.in_memory("join_table"), now
            yield from self.rows.to_batches()


def refreshed_frame(spark: SparkSession, connector: Connector, seconds: float) -> DataFrame:
    """Return the rows of a connector as a DataFrame that reads them when it is computed, in each micro-batch, in one task.

    Spark's readers list files once, when a stream starts. Raises what ``in_memory`` raises, because workers would.
    """
    connector.in_memory("join_table")
    columns = t.StructType([t.StructField(field.name, field.type) for field in connector.fields])
    return map_in_arrow(spark.range(0, 1, 1, 1), packed(RefreshedRows(connector, seconds)), columns)
