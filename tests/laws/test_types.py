"""A payload column may have any type: every verb takes it, or refuses it when the query is built, for every backend alike."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.errors import StreamqError
from streamq.run.rehearsal import Rehearsal
from streamq.testing.history import assert_same_history, from_changelog, net
from tests.each import each

MAP = pa.map_(pa.string(), pa.list_(pa.int64()))
ONE, TWO = [("a", [1, None]), ("b", [])], [("b", [2])]

VALUES: dict[str, pa.Array] = {
    "map": pa.array([ONE, TWO, list(reversed(ONE)), None, []], MAP),
    "map in a struct": pa.array([{"m": ONE}, {"m": TWO}, {"m": ONE}, None, {"m": None}], pa.struct([("m", MAP)])),
    "map in a list": pa.array([[ONE, TWO], [TWO], [ONE, TWO], None, []], pa.list_(MAP)),
    "struct": pa.array([{"x": 1, "y": "a"}, {"x": 2, "y": None}, {"x": 1, "y": "a"}, None, {"x": None, "y": ""}]),
    "struct without fields": pa.array([{}, {}, {}, None, {}], pa.struct([])),
    "list": pa.array([[1], [2, None], [1], None, []]),
    "list of structs": pa.array([[{"x": 0.5}], [{"x": float("nan")}, None], [{"x": 0.5}], None, []]),
    "binary": pa.array([b"\x00", b"b", b"\x00", None, b""]),
    "boolean": pa.array([True, False, True, None, False]),
    "tinyint": pa.array([1, -2, 1, None, 0], pa.int8()),
    "float": pa.array([0.1, -0.0, 0.1, None, 0.0], pa.float32()),
    "decimal": pa.array([Decimal("1.10"), Decimal(2), Decimal("1.10"), None, Decimal(0)], pa.decimal128(38, 2)),
    "date": pa.array([dt.date(2024, 1, 1), dt.date(1, 1, 1), dt.date(2024, 1, 1), None, dt.date(1970, 1, 1)]),
    "instant": pa.array([1, 2, 1, None, 0], pa.timestamp("us", "Asia/Tokyo")),
    "local time": pa.array([1, 2, 1, None, 0], pa.timestamp("us")),
    "duration": pa.array([1, 2, 1, None, -1], pa.duration("us")),
    "text": pa.array(["a", "b", "a", None, ""]),
    "dictionary": pa.array(["a", "b", "a", None, ""]).dictionary_encode(),
}

Use = Callable[[Any, Any], Any]


def _of(aggregate: Callable[[str], Any]) -> Use:
    return lambda s, t: s.group_by("k").tumbling_window(4).select(x=aggregate("x"))


PASSED: dict[str, Use] = {
    "itself": lambda s, t: s.where(sq.col("v") > 0).with_columns(y=sq.col("x")),
    "union": lambda s, t: s.union(t),
    "inner join": lambda s, t: s.join(t, on="k", suffixes=("", "_r")),
    "left join": lambda s, t: s.join(t, on="k", how="left", suffixes=("", "_r")),
    "anti join": lambda s, t: s.left_anti_join(t.shift(1), on="k"),
    "clip": lambda s, t: s.clip(t, on="k"),
    "to_signal": lambda s, t: s.to_signal("k"),
    "chop": lambda s, t: s.chop(2),
    "distinct_ids": lambda s, t: s.select("k", "v").distinct_ids(3, id="k"),
    "last_rows": lambda s, t: s.last_rows(2),
    "pairs of last rows": lambda s, t: s.windowed_join(t, on="k", rows=2, suffixes=("", "_r")),
    "rows_window": lambda s, t: s.rows_window(2).select(first=sq.first("x"), last=sq.last("x", where=sq.col("v") < 5)),
    "session_window": lambda s, t: s.group_by("k").session_window(2).select(all=sq.collect("x"), n=sq.count("x")),
    "snapshot_window": lambda s, t: s.snapshot_window().select(first=sq.first("x"), n=sq.sum("v")),
    "explode": lambda s, t: s.tumbling_window(4).select(all=sq.collect("x")).explode("all"),
}
"""Verbs that take a payload of any type ``x``."""

COMPARED: dict[str, Use] = {
    "group_by": lambda s, t: s.group_by("x").tumbling_window(4).select(n=sq.count()),
    "join by it": lambda s, t: s.join(t, on="x", suffixes=("", "_r")),
    "clip by it": lambda s, t: s.clip(t, on="x"),
    "to_signal by it": lambda s, t: s.to_signal("x"),
    "except_": lambda s, t: s.except_(t),
    "distinct_ids by it": lambda s, t: s.distinct_ids(3, id="x"),
    "last_rows by": lambda s, t: s.last_rows(1, key="x"),
    "rows_window by": lambda s, t: s.rows_window(2, order_by="x").select(n=sq.count()),
    "top_k whose ties it breaks": lambda s, t: s.tumbling_window(4).top_k(2, by="v", ties="break"),
    "top_k by it": lambda s, t: s.tumbling_window(4).top_k(1, by="x"),
    "join_table": lambda s, t: s.join_table(pa.table({"x": s.to_arrow()["x"].combine_chunks()}), on="x"),
    **{
        name: _of(getattr(sq, name))
        for name in ("min", "max", "sum", "avg", "count_distinct", "median", "first", "collect", "time_weighted_avg")
    },
}
"""Verbs that compare, order or compute with ``x``, which some types do not have."""


def streams(table: Any) -> tuple[sq.Stream, sq.Stream]:
    return tuple(sq.intervals(table, "from", "to", name=name) for name in "st")  # type: ignore[return-value]


def rows(kind: str) -> pa.Table:
    return pa.table(
        {"from": [1, 2, 2, 5, 6], "to": [4, 3, None, 7, 9], "k": ["a", "b", "a", "a", None], "v": [1, 2, 1, 5, 1]}
        | {"x": VALUES[kind]}
    )


def refused(kind: str, use: str) -> type[StreamqError] | None:
    """Return the error with which a use of a type is refused when it is built; None if it is taken."""
    try:
        {**PASSED, **COMPARED}[use](*streams(rows(kind)))
    except StreamqError as error:
        if use in PASSED:
            raise
        return type(error)
    return None


@pytest.mark.slow
@each(VALUES, {**PASSED, **COMPARED})
def test_every_type_in_every_verb(kind: str, use: str) -> None:
    """A batch and a changelog are one history, and a column of the type comes out as it went in."""
    if refused(kind, use):
        return
    query = {**PASSED, **COMPARED}[use](*streams(rows(kind)))
    whole = query.to_arrow()
    run = Rehearsal(query, OutputForm.CHANGELOG)
    changes = [run.arrive(), run.finish()]
    assert_same_history(net([from_changelog(pa.concat_tables(changes))]), whole)
    if "x" in query.columns and use in PASSED:
        assert whole.schema.field("x").type == query.tables["s"].schema.field("x").type
