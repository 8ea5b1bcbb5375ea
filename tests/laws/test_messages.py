"""Messages and explain name what a user wrote: whatever the query and the mistake, no column is there by a name of streamq's."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import streamq as sq
from streamq import col
from streamq import testing as t
from streamq.errors import StreamqError, StreamqWarning
from streamq.plan.schema import Schema
from tests.algebra import QUERIES, SIZES
from tests.each import each
from tests.laws.test_operators import OPERATORS
from tests.window_modules import per_value

OWN = re.compile(r"__\w|\bx\d\b|[.@]@|@\.|@[a-z]|#\d|object at 0x|, 'unchanged'|, 'align'")
"""What only streamq calls something: columns that begin with two underscores, those of patterns, arguments, options."""

PAYLOAD = {"k": "string", "v": "int", "w": "double"}
ROWS = [(at, at + 3, {"k": "ab"[at % 2], "v": at, "w": 0.5}) for at in range(6)]

Query = Callable[[Any, Any, Any], Any]

SOAK = bool(os.environ.get("STREAMQ_SOAK"))

fails = sq.uda("bigint", name="fails")(lambda values: 1 // 0)
fails_on_any = sq.uda("bigint", name="fails_on_any")(lambda *values: 1 // 0)
fails_on_any_step = sq.udso("y bigint", name="fails_on_any_step", initial=0)(lambda state, *values: 1 // 0)
fails_on_events = sq.udo("y bigint", name="fails_on_events", time_sensitive=True)(lambda events, window: [(1, 2, 3, 4)])
fails_on_one = sq.udf("bigint", name="fails_on_one")(lambda value: 1 // 0)
fails_on_a_step = sq.udso("y bigint", name="fails_on_a_step", initial=0)(lambda state, value: 1 // 0)


def text(pattern: str) -> Query:
    return lambda s, t, z: sq.cedr(f"EVENT E WHEN {pattern}", A=s, B=t)


def of_group(sub_plan: Callable[[Any], Any]) -> Query:
    return lambda s, t, z: s.group_by("k").apply(sub_plan)


EVERY: dict[str, Query] = {
    **QUERIES,
    "a pattern": text("SEQUENCE(A AS a, B AS b, 5) WHERE CorrelationKey(k, EQUAL)"),
    "a pattern with ids": text("ATLEAST(2, A AS a, B AS b, A AS c, 5) AS m WHERE a.v < b.v OUTPUT m.id AS i, a.v AS v"),
    "a pattern that selects": text("SEQUENCE(A AS a FIRST CONSUME, B AS b, 5) WHERE a.v < b.v"),
    "a pattern without": text(
        "UNLESS(NOT(B AS n, SEQUENCE(A AS a, B AS b, 5)), A AS c, 3) WHERE n.v = a.v AND c.v = b.v"
    ),
    "a pattern of at most": text("ATMOST(2, A AS a, B AS b, 5) WHERE a.v < b.v"),
    "a pattern that is cancelled": text("CANCEL_WHEN(SEQUENCE(A AS a, B AS b, 5), B AS c) WHERE c.v = a.v"),
    "a pattern in groups": of_group(lambda g: sq.cedr("EVENT E WHEN SEQUENCE(A AS a, B AS b, 5)", A=g, B=g)),
    "a module in groups": of_group(lambda g: g.hopping_window(6, 3).select(per_value("v"))),
    "a join in groups": of_group(
        lambda g: g.join(g.tumbling_window(5).select(m=sq.avg("v")), where=lambda e, m: e.v > m.m)
    ),
    "groups in groups": of_group(
        lambda g: g.group_by("v").apply(lambda h: h.left_anti_join(h.shift(2)).tumbling_window(5).select(n=sq.count()))
    ),
}

OVER: dict[str, Callable[[sq.Stream, str], Any]] = {
    "an unknown column": lambda q, c: q.where(col("nope") > 1),
    "an unknown column of an aggregate": lambda q, c: q.tumbling_window(5).select(y=sq.sum("nope")),
    "an unknown key": lambda q, c: q.group_by("nope").tumbling_window(5).select(y=sq.count()),
    "a comparison of types": lambda q, c: q.where(col(c) == sq.start().cast("date")),
    "a sum of a text": lambda q, c: q.select(y=col(c) + "text"),
    "no condition": lambda q, c: q.where(sq.start()),
    "a unit of another axis": lambda q, c: q.tumbling_window("5 minutes").select(y=sq.count()),
    "columns that clash": lambda q, c: q.join(q, on=c),
    "an order by nothing": lambda q, c: q.rows_window(3, order_by="nope").select(y=sq.count()),
    "a union of others": lambda q, c: q.union(q.select(nope=col(c))),
    "a module over nothing": lambda q, c: q.tumbling_window(5).select(fails("nope")),
    "rows beside an aggregate": lambda q, c: q.tumbling_window(5).select(fails_on_events(c), y=sq.count()),
    "rows with a name": lambda q, c: q.tumbling_window(5).select(y=fails_on_events(c)),
    "rows outside of a window": lambda q, c: q.where(fails_on_events(c)),
    "a filter of rows": lambda q, c: q.tumbling_window(5).select(fails_on_events(c, where=sq.start())),
    "upsert of rows": lambda q, c: q.tumbling_window(5).select(fails_on_events(c)).explanation(output="upsert"),
    "a mistake in a group": lambda q, c: q.group_by(c).apply(
        lambda g: g.join(g, suffixes=("", "_r")).where(col("nope") > 1)
    ),
    "a clash in a group": lambda q, c: q.group_by(c).apply(lambda g: g.join(g)),
}
"""Mistakes over a query, of which one column is known, that are errors where they are written."""

RUNNING: dict[str, Callable[[sq.Stream, str], Any]] = {
    "a function": lambda q, c: q.select(y=fails_on_one(c)),
    "a module": lambda q, c: q.group_by(c).tumbling_window(5).select(y=fails(c)),
    "a module of any arguments": lambda q, c: q.tumbling_window(5).select(y=fails_on_any(c, sq.start())),
    "steps of any arguments": lambda q, c: q.to_points().scan(fails_on_any_step(c, sq.start())),
    "a module in a group": lambda q, c: q.group_by(c).apply(lambda g: g.tumbling_window(5).select(y=fails(c))),
    "a module in a group that is joined": lambda q, c: q.group_by(c).apply(
        lambda g: g.join(g.snapshot_window().select(fails_on_events(c)), suffixes=("", "_r"))
    ),
    "steps in a group": lambda q, c: q.to_points().group_by(c).apply(lambda g: g.scan(fails_on_a_step(c))),
}
"""What fails over a query as it runs."""

ALWAYS = ("a function", "a module in a group")


def in_turn(name: str) -> dict[str, Callable[[sq.Stream, str], Any]]:
    """The faults to try over a query: those for every query, and one of the others in turn, in a soak all."""
    first, others = list(EVERY).index(name), [fault for fault in RUNNING if fault not in ALWAYS]
    some = others if SOAK else [others[first % len(others)]]
    return {fault: RUNNING[fault] for fault in (*ALWAYS, *some)}


def streams(schema: dict[str, str]) -> tuple[sq.Stream, sq.Stream]:
    rows = [(start, end, {n: v if schema[n] == PAYLOAD[n] else None for n, v in payload.items() if n in schema})
            for start, end, payload in ROWS]  # fmt: skip
    return sq.events(rows, schema=schema, name="s"), sq.events(rows, schema=schema, name="t")


def built(name: str, schema: dict[str, str] = PAYLOAD) -> Any:
    one, two = streams(schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamqWarning)
        return EVERY[name](one, two, SIZES)


def plain(query: sq.Stream) -> sq.Stream:
    """A query with the verbs of streams: conditions of patterns are others."""
    return query.select(*query.columns)


def message(make: Callable[[], Any]) -> str:
    """What is said of a mistake; nothing where it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StreamqWarning)
            make()
    except StreamqError as error:
        return str(error)
    return ""


def key_of(schema: Schema) -> str | None:
    """The first column that a query may be grouped by."""
    return next((f.name for f in schema.fields if f.type.simpleString() in ("string", "int", "bigint")), None)


@each(EVERY)
def test_a_mistake_over_a_query_is_told_in_its_words(name: str) -> None:
    query = plain(built(name))
    column = key_of(query.schema)
    if column is None:
        return
    messages = {mistake: message(lambda make=make: make(query, column)) for mistake, make in OVER.items()}
    assert not {mistake: text for mistake, text in messages.items() if OWN.search(text)}
    assert all(
        messages[mistake] for mistake in ("an unknown column", "rows beside an aggregate", "a mistake in a group")
    )
    assert all("nope" in messages[m] for m in OVER if "unknown" in m or "nothing" in m)


@each(EVERY, PAYLOAD)
def test_a_query_over_other_columns_says_which(name: str, column: str) -> None:
    """Without a column, and with one of another type, it is an error that names it, or none."""
    without = message(lambda: built(name, {n: kind for n, kind in PAYLOAD.items() if n != column}))
    other = message(lambda: built(name, {**PAYLOAD, column: "string" if PAYLOAD[column] != "string" else "double"}))
    for text in (without, other):
        assert not OWN.search(text)
    assert not without or f"{column}" in without


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_what_fails_over_a_query_names_what_it_read(name: str) -> None:
    query = plain(built(name))
    column = key_of(query.schema)
    if column is None or not query.to_arrow().num_rows:
        return
    texts = {fault: message(lambda make=make: make(query, column).to_arrow()) for fault, make in in_turn(name).items()}
    assert not {fault: text for fault, text in texts.items() if OWN.search(text)}
    assert "fails_on_one: it failed" in texts["a function"]
    assert f", {column} = " in texts["a module in a group"]


@pytest.mark.parametrize("name", EVERY)
def test_explain_shows_no_column_by_streamqs_own_name(name: str) -> None:
    query = built(name)
    for mode in ("logical", "rules", "incremental", "physical"):
        # parts that are read twice are numbered, @1
        assert not OWN.search(re.sub(r"(?m)@\d+( |$)", "", query.explanation(mode)))


def test_a_condition_shows_columns_of_the_right_side_that_the_result_lacks_by_their_own_names() -> None:
    a, b = (sq.events([(1, 3, {"v": 1})], name=name) for name in "ab")
    assert "where v < right.v\n" in a.left_anti_join(b, where=lambda l, r: l.v < r.v).explanation("logical")
    with pytest.raises(sq.errors.TypeMismatch, match=r"found bigint in v \+ right\.v"):
        a.join(b, how="semi", where=lambda l, r: l.v + r.v)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_mistakes_over_drawn_queries(name: str) -> None:
    @settings(max_examples=3, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(t.concrete(OPERATORS[name]))
    def law(case: Any) -> None:
        column = key_of(case.query.schema)
        for make in OVER.values() if column is not None else ():
            assert not OWN.search(message(lambda make=make: make(plain(case.query), column)))
        assert not OWN.search(re.sub(r"(?m)@\d+( |$)", "", case.query.explanation()))

    law()
