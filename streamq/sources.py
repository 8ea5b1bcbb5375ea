"""The functions that make streams: from batch and streaming DataFrames, from Arrow tables, and from literal items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamq.choices import check_word
from streamq.errors import PlanError, column_names, sentence
from streamq.keywords import check_keywords
from streamq.literal import Item, literal_table
from streamq.operators import Edges, Intervals, Physical, Points, Source
from streamq.operators.change_data import check_operations, operations_to_edges
from streamq.operators.edges import edge_literal
from streamq.operators.input_table import input_table, source_name, table_fields
from streamq.operators.source import axis_of
from streamq.operators.source_policy import source_policy
from streamq.plan.keys import check_key
from streamq.plan.schema import Field, Schema, check_names
from streamq.progress.argument import ProgressArgument
from streamq.stream import Stream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@check_keywords
def points(
    df: DataFrame | pa.Table,
    time: str,
    *,
    id: str | Sequence[str] | None = None,
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read each row of ``df`` as a point: an event that lasts one tick, at the instant in column ``time``.

    ``df`` is a DataFrame, batch or streaming, or a ``pyarrow.Table``; a query over Arrow tables alone runs in-process,
    without Spark, by ``show()``, ``to_arrow()`` and ``to_pandas()``. ``time`` is a timestamp (ticks are microseconds; without
    a zone it is UTC), a date or an integer. It is consumed: expressions read it as ``sq.start()``. ``progress`` is
    ``sq.generate(delay)`` (default, with delay 0), ``sq.explicit()`` or another progress policy. ``late`` is the policy for
    items behind the CTI: "drop" (counted), "adjust" or "fail"; ``invalid`` that for rows without a time: "fail" (default in
    batch and in-process) or "drop" (counted; default in streams). Raises SourceError for a ``df`` that is no table,
    UnknownColumn, TypeMismatch, PlanError.

    ``id``, for sources that may deliver a row more than once, is a column, or several, that together with the start identify
    an event. A row equal to an earlier one is a duplicate: it is dropped and counted (``run.late``), whatever ``late`` is.
    Behind the CTI, where rows are forgotten, a duplicate is late like any other row. A row of the same id and start with
    another payload is no event: see ``invalid``; the first one stays, and within a micro-batch or batch the least by payload.
    NULLs are equal, as are NaNs, both zeros, and maps of equal entries. The id stays in the payload. Without ``id`` each of
    several equal rows is an event.

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
    policy = source_policy("points", axis_of(table.columns, (time,), "points"), progress, late, invalid)
    ids = _ids(id, table.columns, (time,), "points")
    return _stream(Points(source_name(name), table.columns, time, policy, ids), table.rows)


@check_keywords
def intervals(
    df: DataFrame | pa.Table,
    start: str,
    end: str,
    *,
    id: str | Sequence[str] | None = None,
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
    ids = _ids(id, table.columns, (start, end), "intervals")
    return _stream(Intervals(source_name(name), table.columns, start, end, policy, ids), table.rows)


@check_keywords
def edges(
    df: DataFrame | pa.Table,
    time: str,
    *,
    edge: str,
    key: str | Sequence[str],
    open: Any = "start",
    close: Any = "end",
    payload: str = "start",
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read events that begin with one row and end with another: a row with ``edge == open`` opens ``[t, inf)``.

    The next edge with the same ``key`` closes the event: a row with ``edge == close``, or another start. ``payload="end"``
    takes the other columns from the closing row when it arrives; results are then final only up to the earliest start that
    is still open. An end without an open start before it is no event: see ``invalid``. ``time`` and ``edge`` are consumed.
    The other arguments and the errors are those of :func:`points`.

    A source that may deliver a row more than once needs no ``id``: key, instant and edge identify the row. A row equal in
    all columns to an earlier one is a duplicate, dropped and counted (``run.late``), as for :func:`points`; a different one
    is no event.

    Tasks, in rows (at, what, task, host) where ``what`` is "start" or "end"::

        tasks = sq.edges(df, time="at", edge="what", key="task")
    """
    table = input_table(df, "edges")
    check_word(payload, ("start", "end"), "payload", "edges")
    policy = source_policy("edges", axis_of(table.columns, (time,), "edges"), progress, late, invalid)
    keys = column_names(key, "edges", "the key")
    for column in (time, edge):
        Schema(table.columns, "integer").require(column, "edges")
    if not keys or {time, edge} & set(keys):
        raise PlanError(sentence("edges", "the key needs columns other than time and edge", f"found {list(keys)}"))
    if edge_literal(open).digest == edge_literal(close).digest:
        raise PlanError(sentence("edges", "open and close are the same value", f"found {open!r}"))
    source = Edges(
        source_name(name),
        table.columns,
        time,
        edge,
        keys,
        open=edge_literal(open),
        close=edge_literal(close),
        payload_from=payload,
        policy=policy,
    )
    return _stream(source, table.rows)


@check_keywords
def signal(
    df: DataFrame | pa.Table,
    time: str,
    key: str | Sequence[str],
    *,
    id: str | Sequence[str] | None = None,
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read samples of a signal: each sample lives until the next strictly later sample of its ``key``.

    ``key`` is one column or several, NULLs being equal; ``()`` makes all rows one signal. The last sample of a key is still
    alive; samples of one key and instant all live, side by side. Equal values are not merged. It is the same as
    ``sq.points(df, time).to_signal(key)``: ``time`` is consumed, and the other arguments and the errors are those of
    :func:`points`. (docs/concepts.md, "Signals".)

    Temperatures, in rows (at, sensor, degrees)::

        temperatures = sq.signal(df, time="at", key="sensor")

        at       1    2    3    4    5    6
        sensor a |20            |21                [1,4) 20, [4,inf) 21
        sensor b      |7   |7             |8       [2,3) 7, [3,6) 7, [6,inf) 8
    """
    table = input_table(df, "signal")
    policy = source_policy("signal", axis_of(table.columns, (time,), "signal"), progress, late, invalid)
    keys = _keys(key, table.columns, (time,), "signal")
    ids = _ids(id, table.columns, (time,), "signal")
    return _stream(Points(source_name(name), table.columns, time, policy, ids), table.rows).to_signal(keys)


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
    check_operations(table.columns, op)
    keys = _keys(key, table.columns, (time, op), "changes")
    if not keys:
        raise PlanError(sentence("changes", "no key", "", "Name the columns that tell the table's rows apart."))
    open, close = edge_literal("start"), edge_literal("end")
    source = Edges(source_name(name), table.columns, time, op, keys, open=open, close=close, policy=policy)
    return _stream(source, operations_to_edges(table.rows, op))


@check_keywords
def physical(
    df: DataFrame | pa.Table,
    *,
    kind: str = "kind",
    start: str = "start",
    end: str = "end",
    new_end: str = "new_end",
    id: str | None = None,
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Read a physical stream: rows that insert events, retract them, or carry a CTI.

    ``kind`` holds "insert", "retract" or "cti". An insert is an event on ``[start, end)``; a retraction moves the end of an
    event to ``new_end``, or deletes the event if that equals ``start``; a CTI has its instant in ``start``. A retraction
    matches an event of the same ``id`` and end, if the stream has ids, else of the same start, end and payload; one without a
    match is no event: see ``invalid``. ``progress`` defaults to ``sq.explicit()``. The other arguments and the errors are
    those of :func:`points`.

    With ``id``, a column whose values identify events, rows may be delivered more than once. A second insert of an id, alive
    or deleted, is a duplicate, dropped and counted (``run.late``); if its start, end or payload differ, it is no event. A
    retraction that does not have the event's current end, but repeats one that was applied before, is a duplicate, too; an
    end may move to and fro if its retractions come in order. In batch all retractions count, unless an end would be left more
    often than it was reached: then equal ones count once. An event is remembered until the CTI has passed every finite end
    that it has had; repetitions after that are late. Without ``id`` each of several equal inserts is an event.

    This reads back a changelog that ``run(output="changelog", ctis=True)`` wrote; one without CTIs needs ``sq.generate``::

        corrected = sq.physical(spark.readStream.schema(changes.schema).parquet("changes"))

    If that run had a late sink, its files also have a column ``streamq_batch``, the number of the micro-batch, which is
    dropped.
    """
    table = input_table(df, "physical")
    axis = axis_of(table.columns, (start, end, new_end), "physical")
    policy = source_policy("physical", axis, progress, late, invalid, explicit_by_default=True)
    if not (id is None or isinstance(id, str)):
        raise PlanError(sentence("physical", "id is the name of one column", f"found {id!r}"))
    source = Physical(source_name(name), table.columns, kind, start, end, new_end, id=id, policy=policy)
    return _stream(source, table.rows)


@check_keywords
def events(
    items: Sequence[Item | tuple[Any, Any, Mapping[str, Any]]],
    *,
    schema: Mapping[str, str] | None = None,
    name: str | None = None,
    progress: ProgressArgument | None = None,
    late: str = "drop",
    invalid: str | None = None,
) -> Stream:
    """Make a literal stream of ``(start, end, payload)`` tuples, or of items from ``sq.insert``, ``sq.retract`` and ``sq.cti``.

    Starts and ends are all integers or all datetimes (naive ones are UTC); an event with end None is still alive. Items are
    in arrival order. A column has one type: whole numbers are bigint, and a payload without the column has NULL; ``schema``
    sets types that the values do not determine, as ``{"v": "double"}``. No column may be called start, end, kind or new_end.
    Such a stream runs in-process, without Spark, by ``show()`` and ``to_pandas()``, and on Spark by ``to_df()`` and
    ``run()``. As a stream it makes progress only by its ``sq.cti`` items, unless ``progress`` is ``sq.generate(delay)``.

    Raises SourceError, TypeMismatch. A row that is no event (its end not after its start, no start, a retraction that
    matches nothing) raises InvalidEvent when the query is answered, unless ``invalid="drop"``; ``run`` drops and counts it,
    unless ``invalid="fail"``.

    >>> import streamq as sq
    >>> sq.events([sq.insert(1, None, v=3), sq.retract(1, None, 10, v=3), sq.cti(20)]).show()
    v  start  end
    3      1   10
    """
    table, is_physical = literal_table(items, schema)
    fields = table_fields(table)
    axis = axis_of(fields, ("start",), "events")
    policy = source_policy("events", axis, progress, late, invalid, explicit_by_default=True)
    check_names([f.name for f in fields if f.name not in ("kind", "start", "end", "new_end")], "events")
    label = source_name(name)
    if is_physical:
        return _stream(Physical(label, fields, "kind", "start", "end", "new_end", policy=policy), table)
    return _stream(Intervals(label, fields, "start", "end", policy), table)


def _keys(
    key: str | Sequence[str], fields: tuple[Field, ...], consumed: tuple[str, ...], verb: str, what: str = "key"
) -> tuple[str, ...]:
    """Return the key's columns; raise PlanError if one is consumed, or if a payload column has a name of the lifetime's."""
    keys = column_names(key, verb, f"the {what}")
    schema = Schema(fields, "integer")
    for column in keys:
        check_key(schema.require(column, verb), column, verb)
        if column in consumed:
            wrong = f"column {column!r} is of the {what} and is consumed"
            raise PlanError(sentence(verb, wrong, "", f"Give it another {what}."))
    check_names([f.name for f in fields if f.name not in consumed], verb)
    return keys


def _ids(
    id: str | Sequence[str] | None, fields: tuple[Field, ...], consumed: tuple[str, ...], verb: str
) -> tuple[str, ...]:
    """Return the id's columns, checked like those of a key; empty without an id."""
    ids = () if id is None else _keys(id, fields, consumed, verb, "id")
    if id is not None and not ids:
        raise PlanError(sentence(verb, "no id", "", 'Name the column: id="trip_id".'))
    return ids


def _stream(source: Source, table: DataFrame | pa.Table) -> Stream:
    return Stream(source, {source.table: table})


__all__ = ["changes", "edges", "events", "intervals", "physical", "points", "signal"]
