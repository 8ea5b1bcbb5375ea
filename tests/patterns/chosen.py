"""Patterns over events that are given as texts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import streamq as sq
from tests.judged import answer

Row = tuple[Any, ...]


def stream(text: str) -> sq.Stream:
    """Events ``at:name`` or ``at:name=value``."""
    items = [item.partition(":") for item in text.split()]
    named = [(int(at), *name.partition("=")[::2]) for at, _, name in items]
    columns = {"at": [at for at, _, _ in named], "n": [n for _, n, _ in named], "v": [int(v or 0) for _, _, v in named]}
    schema = pa.schema({"at": pa.int64(), "n": pa.string(), "v": pa.int64()})
    return sq.points(pa.table(columns, schema=schema), "at")


def query(pattern: str, where: str = "", **streams: str) -> sq.Stream:
    """The names of the events of a pattern's matches, with a column a variable."""
    text = f"EVENT E WHEN {pattern} {where and f'WHERE {where}'}"
    matches = sq.cedr(text, **{name: stream(events) for name, events in streams.items()})
    return matches.select(*(name for name in matches.columns if name.endswith("_n")))


def matches(pattern: str, where: str = "", **streams: str) -> list[str]:
    """Each match as the names of its events, in the order of variables, ``-`` where there is none; in alphabetical order."""
    return sorted(" ".join(n or "-" for n in row[2:]) for row in answer(query(pattern, where, **streams)))
