"""Answers computed in-process and judged by the oracle: what the tests of operators compare with histories made by hand."""

from __future__ import annotations

import datetime as dt
from typing import Any

import streamq as sq
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle
from streamq.time import instant_ticks

Row = tuple[Any, ...]


def answer(query: sq.Stream, until: int | dt.datetime | None = None) -> list[Row]:
    """Rows ``start, end, payload...`` (an open end is None) in order, once the oracle has found the same history."""
    found = query.to_arrow(until)
    assert_same_history(found, oracle(query.plan, query.tables, instant_ticks(until, query.schema.axis)))
    names = ["start", "end", *query.columns]
    return list(zip(*(found.column(n).to_pylist() for n in names), strict=True))


def spans(*rows: tuple[Any, ...]) -> sq.Stream:
    """Events ``start, end, name``, named by number unless told."""
    return sq.events([(row[0], row[1], {"e": row[2] if len(row) > 2 else f"e{i}"}) for i, row in enumerate(rows)])


def members(windowed: Any, until: int | None = None) -> list[Row]:
    """Windows and the names of their members, in one word."""
    rows = answer(windowed.select(e=sq.collect("e")), until)
    return [(*row[:-1], " ".join(row[-1])) for row in rows]


def counts(windowed: Any, until: int | None = None) -> list[Row]:
    return answer(windowed.select(n=sq.count()), until)
