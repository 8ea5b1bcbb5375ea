"""Batch form of an evaluator, for Spark's ``applyInArrow``: the whole result over the whole histories of one bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.event import LE, RE
from streamq.runtime.groups import number_groups
from streamq.runtime.lateness import LATE_SCHEMA, QuarantineRows
from streamq.time import MINUS_INFINITY

BUCKET, PORT, UNTIL = "__bucket", "__port", "__until"
"""Columns of an event: its bucket, its input's number, and the bound on endless windows, the same in every row."""

ASIDE = "__aside"
"""The column of the rows that modules have set aside, as in the late output; NULL in rows of the result."""

ASIDE_TYPE = pa.struct(list(LATE_SCHEMA))


def port_column(number: int) -> str:
    """Return the name of the struct that holds an input's columns."""
    return f"__port{number}"


@dataclass(frozen=True)
class BatchEvaluation:
    """An ``evaluator`` over the events of a bucket, with the columns of its ``inputs`` and of its ``result``.

    sets_aside: events for which modules fail follow the result, in ``__aside``.
    """

    evaluator: Any
    inputs: tuple[pa.Schema, ...]
    result: pa.Schema
    sets_aside: bool = False

    def rows(self, events: pa.Table) -> pa.Table:
        """Return the result over the events, at least one, of a bucket, which have ``__port`` and ``__until``.

        Events set aside follow as rows in which only ``__aside`` is not NULL.
        """
        histories = [self._history(events, number) for number in range(len(self.inputs))]
        histories = number_groups(histories, self.evaluator.group_columns)
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
        """Return the events of an input as its evaluator reads them: lifetimes, and the columns of the input's struct."""
        alone = len(self.inputs) == 1
        mine = events if alone else events.filter(pc.equal(events.column(PORT), number))
        columns = mine.column(port_column(number)).combine_chunks()
        payload = {field.name: pc.struct_field(columns, field.name).cast(field.type) for field in self.inputs[number]}
        return pa.table({LE: mine.column(LE), RE: mine.column(RE), **payload})


__all__ = ["ASIDE", "ASIDE_TYPE", "BUCKET", "PORT", "UNTIL", "BatchEvaluation", "port_column"]
