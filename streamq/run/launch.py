"""The start of a run: a prepared query with its sinks and its trigger as a Structured Streaming query of Spark's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamq.run.arguments import RunArguments
from streamq.run.checkpoint import Checkpoint
from streamq.run.micro_batches import RESULTS
from streamq.run.prepared import PreparedStream
from streamq.run.sinks import SplitWriter, write_to
from streamq.run.trigger import Trigger
from streamq.runtime.event import LE, RE, WEIGHT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, kw_only=True)
class Launch:
    """All that Spark needs to start a query: a run starts it once, or once more where its input has ended."""

    prepared: PreparedStream
    checkpoint: Checkpoint
    arguments: RunArguments
    trigger: Trigger

    def start(self) -> StreamingQuery:
        """Start the query on its checkpoint."""
        from streamq.compiler.egress import user_rows

        rows, schema, egress = self._counted_rows(), self.prepared.program.plan.schema, self.prepared.egress
        sink, late_sink = self.arguments.sink, self.arguments.late_sink
        if late_sink is not None:
            writer = SplitWriter(schema, egress, sink, late_sink).write_to(rows.writeStream)
        else:
            writer = write_to(user_rows(rows, schema, egress).writeStream, sink)
        if self.arguments.name:
            writer = writer.queryName(self.arguments.name)
        writer = self.trigger.set_on(writer)
        return writer.outputMode("append").option("checkpointLocation", self.checkpoint.path).start()

    def _counted_rows(self) -> DataFrame:
        """Return the query's rows, of which Spark's reports then count the results and what is late or no event."""
        from pyspark.sql import functions as F

        # a CTI travels as an empty lifetime
        weight = F.when(F.col(RE) > F.col(LE), F.col(WEIGHT))
        counts: list[Column] = [
            F.sum(F.when(weight > 0, weight)).alias("inserted"),
            F.sum(F.when(weight < 0, -weight)).alias("retracted"),
        ]
        program = self.prepared.program
        for reason in program.late_reasons if program.stages else ():
            counts.append(F.sum(F.when(F.col("__total_key") == reason, F.col("__total"))).alias(reason))
        return self.prepared.results.observe(RESULTS, *counts)
