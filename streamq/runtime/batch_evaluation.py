"""An evaluator as a function for Spark's ``applyInArrow``: the whole result over the whole histories of one bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.event import LE, RE
from streamq.runtime.lateness import LATE_SCHEMA, QuarantineRows
from streamq.time import MINUS_INFINITY

BUCKET, PORT, UNTIL = "__bucket", "__port", "__until"
"""The bucket of an event, the number of its input, and the bound on windows without number, the same in every row."""

ASIDE = "__aside"
"""The column of the rows that modules have set aside, as in the late output; NULL in rows of the result."""

ASIDE_TYPE = pa.struct(list(LATE_SCHEMA))


def port_column(number: int) -> str:
    """The struct that holds an input's columns."""
    return f"__port{number}"


@dataclass(frozen=True)
class BatchEvaluation:
    """``evaluator`` over the events of a bucket: inputs with columns as in ``inputs``, a result as in ``result``.

    sets_aside: events that modules fail for come behind the result, in ``__aside``.
    """

    evaluator: Any
    inputs: tuple[pa.Schema, ...]
    result: pa.Schema
    sets_aside: bool = False

    def rows(self, events: pa.Table) -> pa.Table:
        """The result over the events of one bucket, with ``__port`` and ``__until``."""
        histories = [self._history(events, number) for number in range(len(self.inputs))]
        until = events.column(UNTIL)[0].as_py()
        if not self.sets_aside:
            rows = self.evaluator.rows(histories, MINUS_INFINITY, until)
            return rows.select(self.result.names).cast(self.result)
        aside = QuarantineRows()
        rows = self.evaluator.rows(histories, MINUS_INFINITY, until, aside=aside)
        rows = rows.select(self.result.names).cast(self.result)
        rows = rows.append_column(ASIDE, pa.nulls(rows.num_rows, ASIDE_TYPE))
        structs = pa.table({ASIDE: aside.rows.to_struct_array().cast(ASIDE_TYPE)})
        return pa.concat_tables([rows, structs], promote_options="default")

    def _history(self, events: pa.Table, number: int) -> pa.Table:
        alone = len(self.inputs) == 1
        mine = events if alone else events.filter(pc.equal(events.column(PORT), number))
        columns = mine.column(port_column(number)).combine_chunks()
        payload = {field.name: pc.struct_field(columns, field.name).cast(field.type) for field in self.inputs[number]}
        return pa.table({LE: mine.column(LE), RE: mine.column(RE), **payload})


__all__ = ["ASIDE", "ASIDE_TYPE", "BUCKET", "PORT", "UNTIL", "BatchEvaluation", "port_column"]
