"""Changes: reads the operations of change data capture; a version of a row lives from its change to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from streamq.errors import PlanError, TypeMismatch
from streamq.functions.text import CONCAT, LOWER
from streamq.keywords import check_keywords
from streamq.operators.input_table import input_table, source_name
from streamq.operators.source import AS_KIND, AS_START, axis_of, shown_columns
from streamq.operators.source_arguments import (
    ItemColumn,
    ItemRule,
    RowRefusal,
    SourcePolicy,
    TickColumn,
    beside_columns,
    key_columns,
    order_columns,
    refused_starts,
    source_policy,
)
from streamq.plan.expr import Call, Case, Col, Lit
from streamq.plan.node import ADDED, node
from streamq.plan.schema import Field, Schema, quote
from streamq.progress.promises import ProgressArgument
from streamq.runtime.event import LE, OPENS
from streamq.sources.edges import EdgeSource
from streamq.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSIONS = ("c", "r", "u", "insert", "update", "update_postimage", "update_after", "+i", "+u")
DELETES = ("d", "delete", "-d")
PREIMAGES = ("update_preimage", "update_before", "-u")
TRUNCATES = ("t", "truncate")
"""The operations, in lower case: Debezium's codes, the words of the feeds of Delta, Spark and Iceberg, and Flink's kinds of rows.

A preimage is no item: what it says ends by the change behind it.
"""

_KNOWN = ", ".join((*VERSIONS, *DELETES, *PREIMAGES))
_APART = "a truncate has no key, so read these rows apart, as sq.changes(the others).clip(sq.points(these, time=...))"


@node
class Changes(EdgeSource):
    """Reads the changes in ``table``: column ``op`` says what happened to the row of the table whose ``key`` it has.

    ``order_by``: the columns by which changes of one key and instant act.
    """

    table: str
    columns: tuple[Field, ...]
    time: str
    op: str
    key: tuple[str, ...]
    policy: SourcePolicy = SourcePolicy()
    order_by: tuple[str, ...] = field(default=(), metadata=ADDED)
    beside: tuple[str, ...] = field(default=(), metadata=ADDED)

    title = "changes"
    mover = "version"
    unmatched = (
        "a delete without a version before it; of one instant a delete acts first, unless order_by says otherwise"
    )

    @property
    def roles(self) -> dict[str, str]:
        return {self.time: AS_START, self.op: AS_KIND}

    def _schema(self) -> Schema:
        """Return the payload's schema; raise UnknownColumn without a column ``op``, TypeMismatch if it holds no strings."""
        kind = Schema(self.columns, "integer").require(self.op, "changes")
        if not isinstance(kind, t.StringType):
            raise TypeMismatch(
                "changes",
                f"column {self.op!r} holds no operations",
                f"found {kind.simpleString()}",
                f"They are strings: {_KNOWN}.",
            )
        return super()._schema()

    def detail(self) -> str:
        columns = shown_columns("key", self.key) + shown_columns("order_by", self.order_by)
        return f"{self.shown_name()}, op={self.op}, time={self.time}{columns}{shown_columns('beside', self.beside)}"

    def define_items(self) -> Iterable[ItemRule]:
        """Add ``__le``, the instant, and ``__opens``, true for a version and false for a delete; refuse other operations."""
        op = Call(LOWER, (Col(self.op),))
        is_unknown = Col(OPENS).is_null()
        shown = Case((Col(self.op).is_null(), Lit("NULL"), Call(CONCAT, (Lit("'"), Col(self.op), Lit("'")))))
        return (
            TickColumn(LE, self.time),
            ItemColumn(OPENS, Case((op.isin(*VERSIONS), Lit(True), op.isin(*DELETES), Lit(False), Lit(None)))),
            *refused_starts(),
            RowRefusal(is_unknown & op.isin(*TRUNCATES), Lit(_APART)),
            RowRefusal(is_unknown, Call(CONCAT, (Lit("unknown op "), shown, Lit(f", known are {_KNOWN}")))),
        )

    def on_spark(self, table: DataFrame, streaming: bool) -> DataFrame:
        """Return each change but preimages as an item."""
        from pyspark.sql import functions as F

        is_preimage = F.lower(F.col(quote(self.op))).isin(*PREIMAGES)
        return super().on_spark(table.where(~F.coalesce(is_preimage, F.lit(False))), streaming)

    def rows_in_arrow(self, table: pa.Table, streaming: bool) -> pa.Table:
        """Return each change but preimages as an item."""
        is_preimage = pc.is_in(pc.utf8_lower(table.column(self.op)), pa.array(PREIMAGES))
        return super().rows_in_arrow(table.filter(pc.invert(is_preimage)), streaming)


@check_keywords
def changes(
    df: DataFrame | pa.Table,
    op: str,
    time: str,
    key: str | Sequence[str],
    *,
    order_by: str | Sequence[str] = (),
    beside: str | Sequence[str] = (),
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read change data capture: each version of a row is an event from its change at ``time`` to its ``key``'s next change.

    The string column ``op`` says what happened, in upper or lower case:

    ============================================== =====================================================================
    ``c`` ``r`` ``u``, ``insert``, ``update``,     a version: opens ``[time, inf)``, ends the one before
    ``update_postimage``, ``update_after``, ``+I``
    ``+U``
    ``d``, ``delete``, ``-D``                      ends the version before; its other columns are not read
    ``update_preimage``, ``update_before``, ``-U`` ignored
    ============================================== =====================================================================

    These are Debezium's codes, the words of the feeds of Delta, Spark and Iceberg, and Flink's kinds of rows. Any other value is
    no event, nor is a delete without a version before it: see ``invalid``. Debezium's ``t``, a truncate, has no key, so it is no
    event either: read these rows apart, as points that end all versions (docs/concepts.md, "Changes of a table").

    Changes of one key and instant, such as those of a transaction, act in the order of ``order_by``, a column or several, NULLs
    first: the last one decides, and a row inserted and deleted at one instant is not there. Changes that are equal in these
    columns, or without them all of an instant, are a delete before a version; two versions that differ, or two deletes, are no
    events, neither of them. So an update that is one delete and one insert needs no order. The columns stay in the payload unless
    they are ``beside`` it. A change that is delivered again, equal in all columns but those in ``beside``, is a duplicate, as for
    :func:`edges`: no ``id`` is needed.

    ``time`` and ``op`` are consumed. The other arguments and the errors are those of :func:`points`; TypeMismatch is also
    raised if ``op`` holds no strings, or if ``key`` or ``order_by`` cannot be compared.
    (docs/concepts.md, "Changes of a table".)

    The price list of a shop, in rows (op, at, item, price)::

        prices = sq.changes(df, op="op", time="at", key="item")

        at        1    2    3    4    5
        item a    |c 5      |u 6      |d           [1,3) 5, [3,5) 6
        item b         |c 9                        [2,inf) 9
    """
    table = input_table(df, "changes")
    policy = source_policy("changes", axis_of(table.columns, (time,), "changes"), progress, late, invalid)
    keys = key_columns(key, table.columns, (time, op), "changes")
    if not keys:
        raise PlanError("changes", "no key", "", "Name the columns that tell the table's rows apart.")
    source = Changes(
        source_name(name),
        table.columns,
        time,
        op,
        keys,
        policy=policy,
        order_by=order_columns(order_by, table.columns, (time, op), "changes"),
        beside=beside_columns(beside, table.columns, (time, op, *keys), "changes"),
    )
    return Stream(source, {source.table: table.rows})
