"""Streams from DataFrames, batch or streaming by the same call, from Arrow tables, and literal streams."""

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
    """Events that last one tick: each row of ``df`` at the instant in column ``time``.

    ``df`` is a DataFrame, batch or streaming, or a ``pyarrow.Table``: a query over Arrow tables alone runs in-process,
    without Spark, by ``show()``, ``to_arrow()`` and ``to_pandas()``. ``time`` is a timestamp (ticks are microseconds; without
    a zone UTC), a date or an integer, and is consumed: in expressions it is ``sq.start()``. ``progress`` is
    ``sq.generate(delay)`` (default, delay 0) or ``sq.explicit()``; ``late`` what becomes of items behind the CTI: "drop"
    (counted), "adjust" or "fail"; ``invalid`` what becomes of rows without a time: "fail" (default in batch, and
    in-process) or "drop" (counted; default in streams). Raises SourceError for what is neither, UnknownColumn, TypeMismatch,
    PlanError.

    ``id``, for sources that may deliver a row more than once: a column, or several, that with the start name an event. A
    row equal to one that is there is a duplicate: it is left out and counted (``run.late``), whatever ``late`` says; behind
    the CTI, where rows are forgotten, it is late as any other. One of the same id and start that differs is no event: see
    ``invalid``; the first stays, within a micro-batch or batch the least by payload. NULLs are equal, as are NaNs, both zeros,
    and maps of equal entries. The id stays in the payload. Without one, equal rows are so many events.

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
    """Events on ``[start, end)``: a NULL end is still alive; ``start`` and ``end`` columns are consumed.

    A NULL start, or an end that is not after the start, is no event: see ``invalid``. With ``id``, rows of one id and start
    that differ in their end contradict each other as well. The other arguments and the errors are those of :func:`points`.

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
    """Events that begin with one row and end with another: per ``key``, a row with ``edge == open`` opens ``[t, inf)``.

    The key's next edge closes it: a row with ``edge == close``, or another start. ``payload="end"`` takes the other
    columns from the closing row once it is there; results are then final only up to the earliest start still open. An
    end without an open start before it is no event: see ``invalid``. ``time`` and ``edge`` are consumed. The other arguments
    and the errors are those of :func:`points`.

    No ``id`` is needed for a source that may deliver a row more than once: key, instant and edge name it. A row equal in
    all columns to one that is there is a duplicate, left out and counted (``run.late``), as for :func:`points`; one that
    differs is no event.

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
    """Samples of something that holds its value: each lives until the next strictly later sample of its ``key``.

    ``key`` is one column or several, NULLs being equal; ``()`` makes all rows one signal. The key's last sample is still
    alive; samples of one key and instant all live, side by side. Equal values are not merged. The same as
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
    """Change data capture: each version of a table's row, alive from its change at ``time`` to its ``key``'s next change.

    The string column ``op`` says what happened, in upper or lower case:

    =============================================================== ====================================================
    ``c`` ``r`` ``u``, ``insert``, ``update``, ``update_postimage`` a version: opens ``[time, inf)``, ends the one before
    ``d``, ``delete``                                               ends the version before; its other columns are not read
    ``update_preimage``                                             ignored
    =============================================================== ====================================================

    These are Debezium's codes and the ``_change_type`` of Delta's and Spark's change feeds. Any other value is no event
    ("neither a start nor an end"), nor is a delete without a version before it, nor a second version of a key at one
    instant: see ``invalid``. Of one instant the delete counts first: a row deleted and inserted at once begins anew, one
    inserted and deleted at once stays. Where keys change more than once an instant, ``time`` should be a finer column,
    such as the position in the log. A change that is delivered again, equal in all columns, is a duplicate, as for
    :func:`edges`: no ``id`` is needed.

    ``time`` and ``op`` are consumed. The other arguments and the errors are those of :func:`points`; TypeMismatch also
    where ``op`` holds no strings or ``key`` cannot be compared.
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
    """A physical stream: rows that insert ``[start, end)``, retract (to ``new_end``; at ``start``: delete) or promise (cti).

    ``kind`` holds "insert", "retract" or "cti", a CTI's time stands in ``start``. A retraction matches an event of the
    same ``id`` and end, if the stream has ids, else of the same start, end and payload; one that matches nothing is no event:
    see ``invalid``. ``progress`` defaults to ``sq.explicit()``. The other arguments and the errors are those of :func:`points`.

    An ``id`` names one event, so rows may be delivered more than once. An insert of an id that is there, alive or
    deleted, is a duplicate, left out and counted (``run.late``); if its start, end or payload differ it is no event. A
    retraction that does not name its event's end, but repeats one that was applied to it, is a duplicate too: an end may move
    to and fro if its retractions come in order. In batch all of them count, unless an end would be left more often than it
    was reached: then equal ones count once. An event is remembered until the CTI has passed every finite end that it has
    had; what is repeated behind that is late. Without ``id``, equal inserts are so many events.

    A changelog that ``run(output="changelog", ctis=True)`` wrote, read back; one without CTIs needs ``sq.generate``::

        corrected = sq.physical(spark.readStream.schema(changes.schema).parquet("changes"))

    Where there was a late sink as well, Spark reads a column ``streamq_batch`` too, the number of the micro-batch, which is
    left out here.
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
    """A literal stream: ``(start, end, payload)`` tuples, or items made by ``sq.insert``, ``sq.retract`` and ``sq.cti``.

    Starts and ends are all integers or all datetimes (naive ones are UTC); an end of None is still alive. Items stand in
    arrival order. A column is of one type: whole numbers are bigint, a payload that lacks it has NULL; ``schema`` gives
    what the values do not tell, as ``{"v": "double"}``. No column may be called start, end, kind or new_end. Such a stream
    runs in-process, without Spark, by ``show()`` and ``to_pandas()``, and on Spark by ``to_df()`` and ``run()``. As a stream
    it makes progress by its ``sq.cti`` items alone, unless ``progress`` says ``sq.generate(delay)``.

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
    """Return the key's columns; raises PlanError where one is consumed, or another column is called as the lifetime is."""
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
    """Return the id's columns, checked as a key's are; none where rows are delivered once."""
    ids = () if id is None else _keys(id, fields, consumed, verb, "id")
    if id is not None and not ids:
        raise PlanError(sentence(verb, "no id", "", 'Name the column: id="trip_id".'))
    return ids


def _stream(source: Source, table: DataFrame | pa.Table) -> Stream:
    return Stream(source, {source.table: table})


__all__ = ["changes", "edges", "events", "intervals", "physical", "points", "signal"]
