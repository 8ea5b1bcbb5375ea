"""Sources without retractions: points, each alive for one tick, and intervals; an event with a NULL end is still alive.

The event of a signal's point lives until the next sample of its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from streamq.errors import PlanError, check_keywords
from streamq.operators.input_table import Rows, input_table, source_name
from streamq.operators.source import AS_END, AS_START, InsertSource, axis_of, source_schema
from streamq.operators.source_arguments import (
    ItemRule,
    RowRefusal,
    SourcePolicy,
    TickColumn,
    beside_columns,
    id_columns,
    key_columns,
    order_columns,
    refused_starts,
    source_policy,
)
from streamq.plan.expr import Col, Lit
from streamq.plan.node import ADDED, Traits, node
from streamq.plan.schema import INTERVAL, POINT, Field, Schema
from streamq.progress_policies import ProgressArgument
from streamq.runtime.deltas import LAST_POINT, LE, RE
from streamq.stream import Stream
from streamq.time import INFINITY


@node
class Points(InsertSource):
    """Reads each row of ``table`` as a point at column ``time``; with ``ids``, rows of equal ids and start are one event."""

    table: str
    columns: tuple[Field, ...]
    time: str
    policy: SourcePolicy = SourcePolicy()
    ids: tuple[str, ...] = field(default=(), metadata=ADDED)
    beside: tuple[str, ...] = field(default=(), metadata=ADDED)
    zone: str | None = field(default=None, metadata=ADDED)

    title = "points"

    @property
    def roles(self) -> dict[str, str]:
        return {self.time: AS_START}

    def _schema(self) -> Schema:
        return source_schema(self, axis_of(self.columns, (self.time,), "points"), POINT, "points")

    def _traits(self) -> Traits:
        return Traits()

    def detail(self) -> str:
        return f"{self.shown_name()}, time={self.time}{self.shown_ids()}"

    def define_items(self) -> Iterable[ItemRule]:
        """Add ``__le``; the end is implied, one tick later. Refuse rows without a valid start."""
        return TickColumn(LE, self.time), *refused_starts(LAST_POINT)

    def item_columns(self, streaming: bool) -> dict[str, str]:
        """Return ``__le``, in batch also ``__re``, and why a row is refused; a stream mostly refuses by the start alone."""
        columns = super().item_columns(streaming)
        if streaming and not self.has_malformed:
            return {LE: columns[LE]}
        return columns | {RE: f"{columns[LE]} + 1L"}


@check_keywords
def points(
    df: Rows,
    time: str,
    *,
    id: str | Sequence[str] | None = None,
    beside: str | Sequence[str] = (),
    zone: str | None = None,
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read each row of ``df`` as a point: an event that lasts one tick, at the instant in column ``time``.

    ``df`` is a DataFrame of Spark's, batch or streaming, a connector such as ``sq.files(...)``, or anything that offers its rows
    as Arrow: Arrow tables, frames of pandas and Polars, relations of DuckDB, which are read now. A query without Spark's
    DataFrames runs in-process, without Spark, by ``show()``, ``to_arrow()`` and ``to_pandas()``. ``time`` is a timestamp (ticks
    are microseconds), a date or an integer. It is consumed: expressions read it as ``sq.start()``. ``zone``, as
    "Europe/Berlin", is the time zone of timestamps without one, and of dates, which are else in UTC: of a time that clocks show
    twice it is the first, and one that they leave out is read as if they had not been changed yet.
    ``progress`` is ``sq.generate(delay)`` (default, with delay 0), ``sq.explicit()`` or another progress policy. ``late`` is
    the policy for items behind the CTI: "drop" (counted), "adjust" or "fail"; ``invalid`` that for rows without a time:
    "fail" (default in batch and in-process) or "drop" (a stream counts them, in-process a warning does; default in streams).
    Raises SourceError for a ``df`` that is no table, UnknownColumn, TypeMismatch, PlanError.

    ``id``, for sources that may deliver a row more than once, is a column, or several, that together with the start identify
    an event. A row equal to an earlier one is a duplicate: it is dropped and counted (``run.late``), whatever ``late`` is.
    Behind the CTI, where rows are forgotten, a duplicate is late like any other row. A row of the same id and start with
    another payload is no event: see ``invalid``; the first one stays, and within a micro-batch or batch the least by payload.
    NULLs are equal, as are NaNs, both zeros, and maps of equal entries. The id stays in the payload. Without ``id`` each of
    several equal rows is an event.

    ``beside``, for what the transport adds to a row, such as its partition and offset, is a column, or several, outside of the
    payload: rows that differ in these alone are equal, so a producer's repetition stays a duplicate, and no expression reads
    them. They are at hand for ``per`` of ``sq.generate``, and in the late output they stand in ``payload``.

    Readings, up to ten minutes out of order::

        readings = sq.points(df, time="taken_at", progress=sq.generate("10 minutes"))

    >>> import pyarrow as pa
    >>> import streamq as sq
    >>> sq.points(pa.table({"at": [4, 1], "v": [20, 21]}), time="at").show()
     v  start  end
    21      1    2
    20      4    5
    """
    table = input_table(df, "points")
    policy = source_policy(
        "points", axis_of(table.columns, (time,), "points"), progress, late, invalid, parts=table.parts
    )
    ids = id_columns(id, table.columns, (time,), "points")
    aside = beside_columns(beside, table, (time, *ids), "points")
    source = Points(source_name(name), table.columns, time, policy, ids, aside, zone)
    return Stream(source, {source.table: table.rows})


@check_keywords
def signal(
    df: Rows,
    time: str,
    key: str | Sequence[str],
    *,
    order_by: str | Sequence[str] = (),
    id: str | Sequence[str] | None = None,
    beside: str | Sequence[str] = (),
    zone: str | None = None,
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read samples of a signal: each sample lives until the next strictly later sample of its ``key``.

    ``key`` is one column or several, NULLs being equal; ``()`` makes all rows one signal. The last sample of a key is still
    alive; samples of one key and instant all live, side by side, unless ``order_by``, a column or several, puts them in order:
    then the last one lives. Equal values are not merged. It is the same as ``sq.points(df, time).to_signal(key, order_by)``:
    ``time`` is consumed, and the other arguments and the errors are those of :func:`points`. (docs/concepts.md, "Signals".)

    Temperatures, in rows (at, sensor, degrees)::

        temperatures = sq.signal(df, time="at", key="sensor")

        at       1    2    3    4    5    6
        sensor a |20            |21                [1,4) 20, [4,inf) 21
        sensor b      |7   |7             |8       [2,3) 7, [3,6) 7, [6,inf) 8
    """
    table = input_table(df, "signal")
    policy = source_policy(
        "signal", axis_of(table.columns, (time,), "signal"), progress, late, invalid, parts=table.parts
    )
    keys = key_columns(key, table.columns, (time,), "signal")
    ids = id_columns(id, table.columns, (time,), "signal")
    aside = beside_columns(beside, table, (time, *keys, *ids), "signal")
    order = order_columns(order_by, table.columns, (time, *aside), "signal")
    source = Points(source_name(name), table.columns, time, policy, ids, aside, zone)
    return Stream(source, {source.table: table.rows}).to_signal(keys, order_by=order)


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
    zone: str | None = field(default=None, metadata=ADDED)

    title = "intervals"

    @property
    def roles(self) -> dict[str, str]:
        return {self.start: AS_START, self.end: AS_END}

    def _schema(self) -> Schema:
        """Return the schema: the other columns, and the axis of start and end; raise PlanError if these are one column."""
        if self.start == self.end:
            raise PlanError(
                "intervals",
                "start and end are the same column",
                f"found {self.start!r}",
                "Events of one instant are sq.points(df, time=...).",
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
    df: Rows,
    start: str,
    end: str,
    *,
    id: str | Sequence[str] | None = None,
    beside: str | Sequence[str] = (),
    zone: str | None = None,
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
    policy = source_policy(
        "intervals", axis_of(table.columns, (start, end), "intervals"), progress, late, invalid, parts=table.parts
    )
    ids = id_columns(id, table.columns, (start, end), "intervals")
    aside = beside_columns(beside, table, (start, end, *ids), "intervals")
    source = Intervals(source_name(name), table.columns, start, end, policy, ids, aside, zone)
    return Stream(source, {source.table: table.rows})
