"""Intervals: each row is an event on ``[start, end)``; an event with a NULL end is still alive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from streamq.errors import PlanError, sentence
from streamq.keywords import check_keywords
from streamq.operators.input_table import input_table, source_name
from streamq.operators.source import (
    AS_END,
    AS_START,
    InsertSource,
    axis_of,
    source_schema,
)
from streamq.operators.source_arguments import (
    ItemRule,
    RowRefusal,
    SourcePolicy,
    TickColumn,
    beside_columns,
    id_columns,
    refused_starts,
    source_policy,
)
from streamq.plan.expr import Col, Lit
from streamq.plan.node import ADDED, Traits, node
from streamq.plan.schema import INTERVAL, Field, Schema
from streamq.progress.promises import ProgressArgument
from streamq.runtime.event import LE, RE
from streamq.stream import Stream
from streamq.time import INFINITY

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@node
class Intervals(InsertSource):
    """Reads each row of ``table`` as an event from column ``start`` to column ``end``.

    With ``ids``, rows of equal ids and start are one event.
    """

    table: str
    columns: tuple[Field, ...]
    start: str
    end: str
    policy: SourcePolicy = SourcePolicy()
    ids: tuple[str, ...] = field(default=(), metadata=ADDED)
    beside: tuple[str, ...] = field(default=(), metadata=ADDED)

    title = "intervals"

    @property
    def roles(self) -> dict[str, str]:
        return {self.start: AS_START, self.end: AS_END}

    def _schema(self) -> Schema:
        """Return the schema: the other columns, and the axis of start and end; raise PlanError if these are one column."""
        if self.start == self.end:
            raise PlanError(
                sentence(
                    "intervals",
                    "start and end are the same column",
                    f"found {self.start!r}",
                    "Events of one instant are sq.points(df, time=...).",
                )
            )
        return source_schema(self, axis_of(self.columns, (self.start, self.end), "intervals"), INTERVAL, "intervals")

    def _traits(self) -> Traits:
        return Traits(infinite=True)

    def detail(self) -> str:
        return f"{self.shown_name()}, start={self.start}, end={self.end}{self.shown_ids()}"

    def define_items(self) -> Iterable[ItemRule]:
        """Add ``__le`` and ``__re``; refuse rows without a valid start, or whose end is not after it."""
        return (
            TickColumn(LE, self.start),
            TickColumn(RE, self.end, INFINITY),
            *refused_starts(),
            RowRefusal(Col(RE) <= Col(LE), Lit("end not after start")),
        )


@check_keywords
def intervals(
    df: DataFrame | pa.Table,
    start: str,
    end: str,
    *,
    id: str | Sequence[str] | None = None,
    beside: str | Sequence[str] = (),
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read each row of ``df`` as an event on ``[start, end)``; an event with a NULL end is still alive.

    The columns ``start`` and ``end`` are consumed. A row with a NULL start, or with an end that is not after the start, is no
    event: see ``invalid``. With ``id``, rows of one id and start must also have equal ends. The other arguments and the
    errors are those of :func:`points`.

    Sessions, some of them still open (their ``logout`` is NULL)::

        sessions = sq.intervals(df, start="login", end="logout")
    """
    table = input_table(df, "intervals")
    policy = source_policy("intervals", axis_of(table.columns, (start, end), "intervals"), progress, late, invalid)
    ids = id_columns(id, table.columns, (start, end), "intervals")
    aside = beside_columns(beside, table.columns, (start, end, *ids), "intervals")
    source = Intervals(source_name(name), table.columns, start, end, policy, ids, aside)
    return Stream(source, {source.table: table.rows})
