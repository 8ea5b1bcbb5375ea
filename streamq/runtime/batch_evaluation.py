"""An evaluator as a function for Spark's ``applyInArrow``: the whole result over the whole histories of one bucket."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.evaluator import Evaluator
from streamq.runtime.event import LE, RE
from streamq.time import MINUS_INFINITY

BUCKET, PORT, UNTIL = "__bucket", "__port", "__until"
"""The bucket of an event, the number of its input, and the bound on windows without number, the same in every row."""


def port_column(number: int) -> str:
    """The struct that holds an input's columns."""
    return f"__port{number}"


@dataclass(frozen=True)
class BatchEvaluation:
    """``evaluator`` over the events of a bucket: inputs with columns as in ``inputs``, a result as in ``result``."""

    evaluator: Evaluator
    inputs: tuple[pa.Schema, ...]
    result: pa.Schema

    def rows(self, events: pa.Table) -> pa.Table:
        """The result over the events of one bucket, with ``__port`` and ``__until``."""
        histories = [self._history(events, number) for number in range(len(self.inputs))]
        rows = self.evaluator.rows(histories, MINUS_INFINITY, events.column(UNTIL)[0].as_py())
        return rows.select(self.result.names).cast(self.result)

    def _history(self, events: pa.Table, number: int) -> pa.Table:
        alone = len(self.inputs) == 1
        mine = events if alone else events.filter(pc.equal(events.column(PORT), number))
        columns = mine.column(port_column(number)).combine_chunks()
        payload = {field.name: pc.struct_field(columns, field.name).cast(field.type) for field in self.inputs[number]}
        return pa.table({LE: mine.column(LE), RE: mine.column(RE), **payload})


__all__ = ["BUCKET", "PORT", "UNTIL", "BatchEvaluation", "port_column"]
