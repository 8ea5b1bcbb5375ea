"""Write one stream into several sinks: those of its results, and the late sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamq.run.failure import SINK_NOTE
from streamq.run.pacing import Pacer, readings_in
from streamq.run.sinks.sink import Sink, computed_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from streamq.compiler.results import Result


@dataclass(frozen=True)
class SplitWriter:
    """Writes the rows of each result, and the late rows, of each micro-batch into their own sinks.

    ``sinks`` are those of ``results``, in order. Each micro-batch has its own folder, so that a micro-batch that is processed
    again overwrites its earlier rows. A ``pacer`` pauses after each micro-batch.
    """

    results: Sequence[Result]
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
        """Write one micro-batch into all sinks in their order, late rows last.

        Of several results, an exception gets a note on the one whose sink raised it; the sinks after that are not written.
        """
        from streamq.compiler.egress import user_late_rows, user_rows

        for place, (result, sink) in enumerate(zip(self.results, self.sinks, strict=True), start=1):
            try:
                sink.write(user_rows(batch, result), number)
            except Exception as error:
                if len(self.results) > 1:
                    error.add_note(SINK_NOTE.format(place, len(self.results)))
                raise
        if self.late_sink is not None:
            self.late_sink.write(user_late_rows(batch), number)
        if self.pacer is not None:
            self.pacer.observe(readings_in(batch))


__all__ = ["SplitWriter"]
