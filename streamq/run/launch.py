"""Start a prepared query, with its sinks and its trigger, as a Structured Streaming query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from streamq.run.checkpoint import Checkpoint
from streamq.run.micro_batches import REPORTS, RESULTS
from streamq.run.pacing import Pacer
from streamq.run.prepared_stream import PreparedStream
from streamq.run.run_arguments import RunArguments
from streamq.run.sinks.data_source import DataSourceSink
from streamq.run.sinks.split import SplitWriter
from streamq.run.trigger import Trigger
from streamq.runtime.event import LE, RE, WEIGHT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from streamq.compiler.results import Result


@dataclass(frozen=True, kw_only=True)
class Launch:
    """All that Spark needs to start a query; a run starts it once, and once more if its input ends.

    ``is_split``: rows are written micro-batch by micro-batch, by streamq and not by a sink of Spark's; only then may there be a
    ``pacer``.
    """

    prepared: PreparedStream
    checkpoint: Checkpoint
    arguments: RunArguments
    trigger: Trigger
    is_split: bool
    pacer: Pacer | None = None

    def start(self) -> StreamingQuery:
        """Start the query on its checkpoint, into its sink, or by a SplitWriter into several."""
        from streamq.compiler.egress import result_columns

        rows, results, sinks = self._counted_rows(), self.prepared.program.results, self.arguments.sinks
        if self.is_split:
            folder = self.arguments.late_sink
            late_sink = None if folder is None else DataSourceSink("parquet", {"path": folder})
            columns = [result_columns(result) for result in results]
            writer = SplitWriter(columns, sinks, late_sink, self.pacer).start(rows.writeStream)
        else:
            ((result, sink),) = zip(results, sinks, strict=True)
            writer = sink.start(result_columns(result).read(rows).writeStream)
        if self.arguments.name:
            writer = writer.queryName(self.arguments.name)
        writer = self.trigger.set_on(writer)
        return writer.outputMode("append").option("checkpointLocation", self.checkpoint.path).start()

    def _counted_rows(self) -> DataFrame:
        """Return the rows of the results; Spark's reports have their counts and, with stages, the texts of the buckets' reports.

        Spark plans the observed columns in each micro-batch, so the texts are collected, and what they hold is summed up here.
        """
        from pyspark.sql import functions as F

        program = self.prepared.program
        weights = [_weight(result) for result in program.results]
        counts: list[Column] = [
            F.sum(reduce(add, (F.greatest(w, F.lit(0)) for w in weights))).alias("inserted"),
            F.sum(reduce(add, (F.greatest(-w, F.lit(0)) for w in weights))).alias("retracted"),
        ]
        for name, channel in REPORTS.items() if program.stages else ():
            counts.append(F.collect_list(F.when(F.col("__channel") == channel, F.col("__report"))).alias(name))
        return self.prepared.rows.observe(RESULTS, *counts)


def _weight(result: Result) -> Column:
    """Return the weight of a result's row; NULL for a CTI, which has an empty lifetime, and for rows of other results."""
    from pyspark.sql import functions as F

    column = F.col if result.column is None else F.col(result.column).getField
    return F.when(column(RE) > column(LE), column(WEIGHT))
