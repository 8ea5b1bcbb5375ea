"""Write one stream into several sinks: those of its results, and the late sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamq.compiler.egress import ResultColumns, user_late_rows
from streamq.run.failure import raised_in_sink
from streamq.run.pacing import Pacer, readings_in
from streamq.run.sinks.sink import Sink, computed_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class SplitWriter:
    """Writes the rows of each result, and the late rows, of each micro-batch into their own sinks.

    ``sinks`` are those of the results, in order, ``columns`` those of their rows. Each micro-batch has its own folder, so that a
    micro-batch that is processed again overwrites its earlier rows. A ``pacer`` pauses after each micro-batch. Spark Connect
    sends all of this to the server, where streamq need not be installed: its functions import nothing of streamq when called.
    """

    columns: Sequence[ResultColumns]
    sinks: Sequence[Sink]
    late_sink: Sink | None
    pacer: Pacer | None

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Return a ``writeStream`` that writes into all the sinks."""
        write, pacer = computed_once(self._write), self.pacer
        if pacer is None:
            return writer.foreachBatch(write)

        def write_and_pause(batch: DataFrame, number: int) -> None:
            write(batch, number)
            pacer.pause()

        return writer.foreachBatch(write_and_pause)

    def _write(self, batch: DataFrame, number: int) -> None:
        """Write one micro-batch into all sinks in their order, late rows last; after one that fails no other is written."""
        for place, (columns, sink) in enumerate(zip(self.columns, self.sinks, strict=True), start=1):
            with raised_in_sink("the sink" if len(self.sinks) == 1 else f"the sink of result {place}"):
                sink.write(columns.read(batch), number)
        if self.late_sink is not None:
            with raised_in_sink("the late sink"):
                self.late_sink.write(user_late_rows(batch), number)
        if self.pacer is not None:
            self.pacer.observe(readings_in(batch))


__all__ = ["SplitWriter"]
