"""Literal streams: reads events and items that are written in a program, by way of an Arrow table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from streamq.errors import SourceError, check_keywords
from streamq.operators.input_table import source_name, table_fields, with_spark_types
from streamq.operators.source import axis_of
from streamq.operators.source_arguments import source_policy
from streamq.plan.schema import check_names
from streamq.plan.spark_types import parse_type
from streamq.progress_policies import ProgressArgument
from streamq.sources.insert_only import Intervals
from streamq.sources.physical import Physical
from streamq.stream import Stream
from streamq.time import INFINITY, MINUS_INFINITY, check_microseconds, plain_integer

Time = int | dt.datetime | None


@dataclass(frozen=True)
class Item:
    """One item of a literal physical stream."""

    kind: str
    start: Time
    end: Time = None
    new_end: Time = None
    payload: tuple[tuple[str, Any], ...] = ()


@check_keywords
def insert(start: Time, end: Time = None, /, **payload: Any) -> Item:
    """Return an item that inserts an event on ``[start, end)``; with end None the event is still alive."""
    return Item("insert", start, end, None, tuple(payload.items()))


@check_keywords
def retract(start: Time, end: Time, new_end: Time, /, **payload: Any) -> Item:
    """Return an item that moves the end of the event ``[start, end)`` with this payload to ``new_end``.

    With ``new_end`` equal to ``start`` the event is deleted.
    """
    return Item("retract", start, end, new_end, tuple(payload.items()))


@check_keywords
def cti(time: Time, /) -> Item:
    """Return a CTI: the promise that no later item has a sync time before ``time``."""
    return Item("cti", time)


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

    Starts and ends are all integers or all datetimes (naive ones are UTC); an event with end None, or pandas' NaT, is still
    alive. Items are in arrival order. A column has one type: whole numbers are bigint, and a payload without the column has
    NULL; ``schema`` sets types that the values do not determine, as ``{"v": "double"}``. No column may be called start, end,
    kind or new_end. Such a stream runs in-process, without Spark, by ``show()`` and ``to_pandas()``, and on Spark by
    ``to_df()`` and ``run()``. As a stream it makes progress only by its ``sq.cti`` items, unless ``progress`` is
    ``sq.generate(delay)``.

    Raises SourceError, TypeMismatch, and TimeError for a time that is finer than a microsecond. A row that is no event (its end
    not after its start, no start, a retraction that matches nothing) raises InvalidEvent when the query is answered, unless
    ``invalid="drop"``; ``run`` drops and counts it, unless ``invalid="fail"``.

    >>> import streamq as sq
    >>> sq.events([sq.insert(1, None, v=3), sq.retract(1, None, 10, v=3), sq.cti(20)]).show()
    v  start  end
    3      1   10
    """
    table, is_physical = _literal_table(items, schema)
    fields = table_fields(table)
    axis = axis_of(fields, ("start",), "events")
    policy = source_policy("events", axis, progress, late, invalid, explicit_by_default=True)
    label = source_name(name)
    if is_physical:
        return Stream(Physical(label, fields, "kind", "start", "end", "new_end", policy=policy), {label: table})
    return Stream(Intervals(label, fields, "start", "end", policy), {label: table})


def _literal_table(rows: Any, schema: Any) -> tuple[pa.Table, bool]:
    """Return the items as a table, and True if it is a physical stream, with columns kind and new_end, not plain intervals.

    ``schema`` maps payload columns to Spark's names of types, or is None; the type of any other column follows from its values. A
    value that an item lacks is NULL. Raises SourceError for rows, values or a schema of another form.
    """
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes | Mapping):
        hint = "Write sq.events([(start, end, {...}), ...])."
        raise SourceError("events", "not a list of events", f"found {rows!r}", hint)
    if schema is not None and not isinstance(schema, Mapping):
        raise SourceError("events", "schema gives types by name", f"found {schema!r}", "As {'v': 'double'}.")
    items = [_item(row) for row in rows]
    is_physical = any(i.kind != "insert" for i in items)
    axis = _time_type(items)
    columns: dict[str, pa.Array] = {"kind": pa.array([i.kind for i in items], pa.string())} if is_physical else {}
    columns["start"] = _time_column([i.start for i in items], axis)
    columns["end"] = _time_column([i.end for i in items], axis)
    if is_physical:
        columns["new_end"] = _time_column([i.new_end for i in items], axis)
    types = dict(schema or {})
    payloads = [dict(i.payload) for i in items]
    names = dict.fromkeys([*(n for payload in payloads for n in payload), *types])
    for name in names:
        if name in columns or name in ("kind", "new_end"):
            wrong = f"a payload column called {name!r}"
            raise SourceError("events", wrong, "that is the item's own", "Give it another name.")
    check_names(names, "events")
    for name in names:
        columns[name] = _payload_column(name, [payload.get(name) for payload in payloads], types.get(name))
    return with_spark_types(pa.table(columns), "events"), is_physical


def _item(row: Any) -> Item:
    """Return a row of ``sq.events`` as an item, with Python integers; raise SourceError for a row of another form."""
    match row:
        case Item():
            item = row
        case (start, end, Mapping() as payload) if isinstance(row, tuple):
            item = Item("insert", start, end, None, tuple(payload.items()))
        case (start, end) if isinstance(row, tuple) and not isinstance(end, Mapping):
            item = Item("insert", start, end)
        case _:
            hint = (
                "Write (start, end, {...}), with end None while it is alive, "
                "sq.insert(...), sq.retract(...) or sq.cti(...)."
            )
            raise SourceError("events", "not an event", f"found {row!r}", hint)
    return replace(item, **{name: _instant(getattr(item, name)) for name in ("start", "end", "new_end")})


def _instant(value: Any) -> Any:
    """Return a start or an end with Python integers; pandas' NaT, as None, is no instant.

    Raises TimeError for one finer than a microsecond.
    """
    if isinstance(value, dt.datetime) and value != value:
        return None
    check_microseconds(value, "events")
    return plain_integer(value)


def _time_type(items: Sequence[Item]) -> pa.DataType:
    """Return the type of starts and ends: timestamps if there is a datetime, else integers.

    Raises SourceError unless all are integers of 64 bits or all are datetimes.
    """
    times = [time for i in items for time in (i.start, i.end, i.new_end) if time is not None]
    are_datetimes = any(isinstance(time, dt.datetime) for time in times)
    for time in times:
        if isinstance(time, bool) or not isinstance(time, dt.datetime if are_datetimes else int):
            wrong = "starts and ends are all integers or all datetimes"
            raise SourceError("events", wrong, f"found {time!r}")
        if isinstance(time, int) and not MINUS_INFINITY <= time <= INFINITY:
            raise SourceError("events", "an instant beyond 64 bits", f"found {time!r}")
    return pa.timestamp("us", tz="UTC") if are_datetimes else pa.int64()


def _time_column(times: list[Time], axis: pa.DataType) -> pa.Array:
    """Return starts or ends as a column; a datetime without a zone is in UTC."""
    zoned = [t.replace(tzinfo=dt.UTC) if isinstance(t, dt.datetime) and t.tzinfo is None else t for t in times]
    return pa.array(zoned, axis)


def _check_precision(value: Any) -> None:
    """Raise TimeError for a payload value, or a part of it, that is finer than a microsecond: Arrow would cut it off."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            _check_precision(part)
    elif isinstance(value, dt.datetime | dt.timedelta):
        check_microseconds(value, "events")


def _payload_column(name: str, values: list[Any], spark_type: str | None) -> pa.Array:
    """Return the values of a payload column as an array of ``spark_type``; None: of the type that follows from the values.

    Raises SourceError if the values do not fit the type or have several types, if a text has half a surrogate pair, or if all are
    NULL and there is no type; and TypeMismatch if there is no type of that name.
    """
    from streamq.runtime.arrow.arrow_types import arrow_type

    for value in values:
        _check_precision(value)
    try:
        column = pa.array(values, None if spark_type is None else arrow_type(parse_type(spark_type)))
    except OverflowError as error:
        wrong = f"column {name!r} holds an integer beyond 64 bits"
        hint = f"Give it a type: schema={{{name!r}: 'decimal(38,0)'}}, and decimal.Decimal values."
        raise SourceError("events", wrong, "", hint) from error
    except UnicodeEncodeError as error:
        wrong = f"column {name!r} holds a text with half a surrogate pair"
        raise SourceError("events", wrong, f"found {error.object[error.start]!r}") from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise SourceError("events", f"column {name!r} mixes types", str(error).splitlines()[0]) from error
    if pa.types.is_null(column.type):
        hint = f"Give it one: schema={{{name!r}: 'double'}}."
        raise SourceError("events", f"column {name!r} has only NULLs", "no type can be told", hint)
    return column
