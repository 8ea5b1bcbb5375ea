"""Changes: reads the operations of change data capture as edges; a version of a row lives from its change to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as t

from streamq.errors import PlanError, TypeMismatch, sentence
from streamq.keywords import check_keywords
from streamq.operators.input_table import input_table, source_name
from streamq.operators.source import axis_of
from streamq.operators.source_arguments import key_columns
from streamq.operators.source_policy import source_policy
from streamq.plan.schema import Field, Schema, quote
from streamq.progress.argument import ProgressArgument
from streamq.sources.edges import Edges, edge_literal
from streamq.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# Debezium's codes, the words, and the _change_type of Delta's and Spark's change feeds; compared in lower case
_OPENING = ("c", "r", "u", "insert", "update", "update_postimage")
_CLOSING = ("d", "delete")
_PREIMAGE = "update_preimage"


def _check_operations(fields: tuple[Field, ...], op: str) -> None:
    """Raise UnknownColumn if there is no column ``op``, TypeMismatch if it holds no strings."""
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


def _operations_to_edges(table: DataFrame | pa.Table, op: str) -> DataFrame | pa.Table:
    """Return the table with "start" or "end" for each operation in column ``op``, NULL for an unknown one; without preimages.

    Operations may be written in capitals.
    """
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


@check_keywords
def changes(
    df: DataFrame | pa.Table,
    op: str,
    time: str,
    key: str | Sequence[str],
    *,
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read change data capture: each version of a row is an event from its change at ``time`` to its ``key``'s next change.

    The string column ``op`` says what happened, in upper or lower case:

    =============================================================== ====================================================
    ``c`` ``r`` ``u``, ``insert``, ``update``, ``update_postimage`` a version: opens ``[time, inf)``, ends the one before
    ``d``, ``delete``                                               ends the version before; its other columns are not read
    ``update_preimage``                                             ignored
    =============================================================== ====================================================

    These are Debezium's codes and the ``_change_type`` of Delta's and Spark's change feeds. Any other value is no event
    ("neither a start nor an end"), nor is a delete without a version before it, nor a second version of a key at one
    instant: see ``invalid``. At one instant a delete comes before an insert: a row deleted and inserted at the same instant
    has a new version, one inserted and deleted at the same instant stays. If keys change more than once at an instant,
    ``time`` should be a finer column, such as the position in the log. A change that is delivered again, equal in all
    columns, is a duplicate, as for :func:`edges`: no ``id`` is needed.

    ``time`` and ``op`` are consumed. The other arguments and the errors are those of :func:`points`; TypeMismatch is also
    raised if ``op`` holds no strings or ``key`` cannot be compared.
    (docs/concepts.md, "Changes of a table".)

    The price list of a shop, in rows (op, at, item, price)::

        prices = sq.changes(df, op="op", time="at", key="item")

        at        1    2    3    4    5
        item a    |c 5      |u 6      |d           [1,3) 5, [3,5) 6
        item b         |c 9                        [2,inf) 9
    """
    table = input_table(df, "changes")
    policy = source_policy("changes", axis_of(table.columns, (time,), "changes"), progress, late, invalid)
    _check_operations(table.columns, op)
    keys = key_columns(key, table.columns, (time, op), "changes")
    if not keys:
        raise PlanError(sentence("changes", "no key", "", "Name the columns that tell the table's rows apart."))
    open, close = edge_literal("start"), edge_literal("end")
    source = Edges(source_name(name), table.columns, time, op, keys, open=open, close=close, policy=policy)
    return Stream(source, {source.table: _operations_to_edges(table.rows, op)})
