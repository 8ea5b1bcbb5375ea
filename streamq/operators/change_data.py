"""The operations of change data capture, as the starts and ends of edges: a version of a row lives from one to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as t

from streamq.errors import TypeMismatch, sentence
from streamq.plan.schema import Field, Schema, quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# Debezium's codes, the words, and the _change_type of Delta's and Spark's change feeds; compared in lower case
_OPENING = ("c", "r", "u", "insert", "update", "update_postimage")
_CLOSING = ("d", "delete")
_PREIMAGE = "update_preimage"


def check_operations(fields: tuple[Field, ...], op: str) -> None:
    """Raise UnknownColumn, or TypeMismatch for a column that cannot hold operations."""
    kind = Schema(fields, "integer").require(op, "changes")
    if not isinstance(kind, t.StringType):
        raise TypeMismatch(
            sentence(
                "changes",
                f"column {op!r} holds no operations",
                f"found {kind.simpleString()}",
                "They are strings: c, r, u, d, insert, update, delete, update_preimage, update_postimage.",
            )
        )


def operations_to_edges(table: DataFrame | pa.Table, op: str) -> DataFrame | pa.Table:
    """Write "start" and "end" for operations, NULL for one that is neither; leave preimages out."""
    import pyarrow as pa

    if isinstance(table, pa.Table):
        import pyarrow.compute as pc

        operations = pc.utf8_lower(table.column(op))
        opens, closes = (pc.is_in(operations, pa.array(words)) for words in (_OPENING, _CLOSING))
        edges = pc.if_else(opens, "start", pc.if_else(closes, "end", pa.scalar(None, pa.string())))
        table = table.set_column(table.column_names.index(op), op, edges)
        return table.filter(pc.fill_null(pc.not_equal(operations, _PREIMAGE), True))
    from pyspark.sql import functions as F

    operation = F.lower(F.col(quote(op)))
    edge = F.when(operation.isin(*_OPENING), F.lit("start")).when(operation.isin(*_CLOSING), F.lit("end"))
    return table.where(~operation.eqNullSafe(_PREIMAGE)).withColumn(op, edge)


__all__ = ["check_operations", "operations_to_edges"]
