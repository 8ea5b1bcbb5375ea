"""Streams of lifetimes, and what their windows count."""

from __future__ import annotations

from typing import Any

import streamq as sq
from tests.judged import Row, answer


def spans(*rows: tuple[Any, ...]) -> sq.Stream:
    """Events ``start, end, name``, named by number unless told."""
    return sq.events([(row[0], row[1], {"e": row[2] if len(row) > 2 else f"e{i}"}) for i, row in enumerate(rows)])


def members(windowed: Any, until: int | None = None) -> list[Row]:
    """Windows and the names of their members, in one word."""
    rows = answer(windowed.select(e=sq.collect("e")), until)
    return [(*row[:-1], " ".join(row[-1])) for row in rows]


def counts(windowed: Any, until: int | None = None) -> list[Row]:
    return answer(windowed.select(n=sq.count()), until)
