"""Values that are changes of a row in the envelope of Debezium: the row before and after a change, and what has changed it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from streamq.connectors.connector import CHANGE_TYPE, COMMITTED
from streamq.connectors.messages import ValueFormat, row_schema
from streamq.errors import PlanError
from streamq.plan.schema import Field

DEBEZIUM = "debezium"
"""The only envelope."""

BEFORE, AFTER, OP, AT = "before", "after", "op", "ts_ms"
"""The parts of a change: its row before and after, its code, and the instant in milliseconds."""

OF_ROWS = ("c", "r", "u", "d")
"""The codes of changes of a row, the last of which is a deletion."""


OF_CHANGES = (Field(CHANGE_TYPE, t.StringType()), Field(COMMITTED, t.TimestampType()))
"""The columns that an envelope adds to those of its rows."""


@dataclass(frozen=True)
class DebeziumFormat(ValueFormat):
    """Changes as Debezium writes them, in the form ``inner``, also as ``payload`` beside a ``schema``, as of Connect.

    A row is that after the change, of a deletion that before it, with the columns CHANGE_TYPE, its code, and COMMITTED, the
    instant in the database, ``source.ts_ms``, or where there is none, ``ts_ms``, that of Debezium.
    """

    inner: ValueFormat

    has_tombstones = True

    def rows(self, values: pa.Array, fields: tuple[Field, ...]) -> pa.Table:
        of_row = fields[: -len(OF_CHANGES)]
        table = self.inner.rows(values, _columns_of_changes(of_row)).combine_chunks()
        payload = table.column("payload")
        is_wrapped = payload.is_valid()

        def part(name: str) -> pa.ChunkedArray:
            return pc.if_else(is_wrapped, pc.struct_field(payload, name), table.column(name))

        op, before, after = part(OP), part(BEFORE), part(AFTER)
        is_deletion = pc.fill_null(pc.equal(op, OF_ROWS[-1]), False)
        has_row = pc.if_else(is_deletion, before.is_valid(), after.is_valid())
        if op.null_count or pc.any(pc.and_(pc.is_in(op, pa.array(OF_ROWS)), pc.invert(has_row))).as_py():
            raise pa.ArrowInvalid("no change of a row")
        columns = {
            field.name: pc.if_else(is_deletion, pc.struct_field(before, field.name), pc.struct_field(after, field.name))
            for field in of_row
        }
        at = pc.coalesce(pc.struct_field(part("source"), AT), part(AT)).cast(pa.timestamp("ms", "UTC"))
        return pa.table({**columns, CHANGE_TYPE: op, COMMITTED: at}).cast(row_schema(fields))

    def wrong(self, value: bytes, fields: tuple[Field, ...]) -> str:
        of_row = fields[: -len(OF_CHANGES)]
        array = pa.array([value], pa.binary())
        try:
            table = self.inner.rows(array, _columns_of_changes(of_row))
        except pa.ArrowException:
            return self.inner.wrong(value, _columns_of_changes(of_row))
        (row,) = table.to_pylist()
        change = row["payload"] or row
        op, image = change[OP], BEFORE if change[OP] == OF_ROWS[-1] else AFTER
        if op is None:
            return f"no {OP}, so no change of Debezium's"
        return f"{AT} is no instant" if op not in OF_ROWS or change[image] else f"{OP} is {op!r}, and no row {image} it"


def rows_of_changes(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """Return the columns of the rows, from those of their changes; raise PlanError if these have no row after a change."""
    row = next((field.type for field in fields if field.name == AFTER), None)
    if not isinstance(row, t.StructType):
        there = f"there are {', '.join(field.name for field in fields)}"
        raise PlanError("kafka", f"values without {AFTER!r} are no changes of Debezium's", there, "Leave envelope out.")
    return tuple(Field(field.name, field.dataType) for field in row)


def change_columns(row: t.StructType, source: t.StructType) -> t.StructType:
    """Return the columns of a change of rows with these columns."""
    kinds = {BEFORE: row, AFTER: row, OP: t.StringType(), AT: t.LongType(), "source": source}
    return t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])


def _columns_of_changes(of_row: tuple[Field, ...]) -> tuple[Field, ...]:
    """Return the columns of changes of rows, and the same once more within ``payload``."""
    row = t.StructType([t.StructField(field.name, field.type) for field in of_row])
    change = change_columns(row, t.StructType([t.StructField(AT, t.LongType())]))
    return (*(Field(field.name, field.dataType) for field in change), Field("payload", change))
