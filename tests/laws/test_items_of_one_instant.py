"""Items of one key and instant: their order decides, and neither the order of arrival nor the cut does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.testing.history import assert_same_history, net
from streamq.testing.oracle import oracle
from tests.programs import compiled

SCHEMA = "at bigint, op string, k string, v bigint, lsn bigint"
Row = tuple[int, str, str, int | None, int | None]
few = st.sampled_from([None, 1, 2, 3])
some_rows = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ud"), st.sampled_from("ab"), few, few), max_size=9)
orders = st.sampled_from([{}, {"order_by": "lsn"}, {"order_by": "lsn", "beside": "lsn"}, {"order_by": ["v", "lsn"]}])


def changes(rows: list[Row], **options: Any) -> sq.Stream:
    return sq.changes(t.table(SCHEMA, rows), op="op", time="at", key="k", name="s", **options)


def edges(rows: list[Row], **options: Any) -> sq.Stream:
    return sq.edges(t.table(SCHEMA, rows), "at", edge="op", key="k", open="u", close="d", name="s", **options)


def ends(rows: list[Row], **options: Any) -> sq.Stream:
    return edges(rows, payload="end", **options)


def signal(rows: list[Row], **options: Any) -> sq.Stream:
    if options.get("beside"):
        options["beside"] = "op"
    return sq.signal(t.table(SCHEMA, rows), "at", "k", name="s", **options)


@pytest.mark.slow
@pytest.mark.parametrize("source", [changes, edges, ends, signal], ids=lambda source: source.__name__)
@given(rows=some_rows, options=orders, data=st.data())
def test_every_arrival_and_every_cut_give_the_answer_of_the_whole(
    source: Any, rows: list[Row], options: dict[str, Any], data: st.DataObject
) -> None:
    """What was said of an item is taken back if another one of its instant voids it or comes after it; so are the counts."""
    query = source(rows, invalid="drop", progress=sq.generate(10), **options)
    assert_same_history(query.to_arrow(), oracle(query.plan, query.tables))
    counted = []
    for arrived in (rows, data.draw(st.permutations(rows))):
        run = LocalRun(compiled(query.plan, OutputForm.CHANGELOG, buckets=2))
        lengths = data.draw(st.lists(st.integers(1, 4))) if counted else []
        out, left = [], list(arrived)
        for length in [*lengths, len(rows) + 1]:
            part, left = left[:length], left[length:]
            out.append(run.batch({"s": t.table(SCHEMA, part)}))
        assert_same_history(net([*out, run.finish()]), oracle(query.plan, query.tables))
        counted.append(sum((Counter(totals) for totals in run.totals.values()), Counter()))
    assert counted[0] == counted[1]


def acted(rows: list[Row]) -> list[tuple[Any, ...]]:
    """The versions of rows whose positions all differ, change after change as a database makes them."""
    events, living = [], {}
    for at, op, k, v, lsn in sorted(rows, key=lambda row: (row[0], row[4])):
        if k in living:
            start, *version = living.pop(k)
            events += [(start, at, k, *version)] if start < at else []
        if op == "u":
            living[k] = (at, v, lsn)
    return sorted([*events, *((start, None, k, v, lsn) for k, (start, v, lsn) in living.items())], key=repr)


@given(rows=some_rows.flatmap(lambda rows: st.permutations([(*row[:4], n) for n, row in enumerate(rows)])))
def test_the_last_change_of_an_instant_decides(rows: list[Row]) -> None:
    """Deletes of nothing are left out; there is no other row that is no event."""
    query = changes(rows, order_by="lsn", invalid="drop")
    found = [tuple(row[n] for n in ("start", "end", "k", "v", "lsn")) for row in query.to_arrow().to_pylist()]
    assert sorted(found, key=repr) == acted(rows)
