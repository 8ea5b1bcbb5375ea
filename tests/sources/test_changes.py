"""Changes: the words of every feed, and what is no change."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import InvalidEvent, TypeMismatch
from tests.judged import answer


def changes(*rows: tuple[str | None, int, int | None, str | None], **options: Any) -> sq.Stream:
    columns = dict(zip(("op", "at", "id", "v"), zip(*rows, strict=True), strict=True))
    return sq.changes(pa.table(columns), op="op", time="at", key="id", name="prices", **options)


@pytest.mark.parametrize(
    "words",
    [
        ("c", None, "u", "d"),
        ("r", None, "U", "D"),
        ("insert", "update_preimage", "update_postimage", "delete"),
        ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE"),
        ("+I", "-U", "+U", "-D"),
    ],
)
def test_the_words_of_every_feed(words: tuple[str, str | None, str, str]) -> None:
    made, before, after, gone = words
    rows = [(made, 1, 7, "a"), (after, 3, 7, "b"), (gone, 6, 7, None), (made, 2, 8, "c")]
    query = changes(*rows, *([(before, 3, 7, "a")] if before else []))
    assert answer(query) == [(1, 3, 7, "a"), (2, None, 8, "c"), (3, 6, 7, "b")]
    assert sq.from_json(query.to_json(), query.tables).plan == query.plan


def test_errors_speak_of_changes() -> None:
    created = ("c", 1, 7, "a")
    for rows, message in (
        ([("x", 3, 7, "b")], r"unknown op 'x', known are c, r, u, .*, -u \(start 3\); first: {'id': 7, 'v': 'b'}"),
        ([("t", 3, None, None)], r"a truncate has no key, so read these rows apart, as .*clip\(sq.points\("),
        ([("d", 3, 7, None), ("d", 4, 7, None)], "a delete without a version before it"),
        (
            [("c", 3, 8, "b"), ("d", 3, 8, None)],
            "a delete without .*; of one instant a delete acts first, unless order_by",
        ),
        ([("u", 3, 7, "b"), ("u", 3, 7, "c")], "two changes of one key at one instant that differ, without order_by"),
    ):
        with pytest.raises(InvalidEvent, match=f"source prices: a row is no event: {message}"):
            changes(created, *rows).to_arrow()
    table = pa.table({"op": ["u", "u"], "at": [3, 3], "id": [7, 7], "v": ["b", "c"], "lsn": [5, 5]})
    with pytest.raises(InvalidEvent, match="two changes of one key at one instant that differ, equal in lsn"):
        sq.changes(table, op="op", time="at", key="id", order_by="lsn").to_arrow()
    with pytest.raises(
        TypeMismatch, match="changes: column 'at' holds no operations; found bigint. They are strings: c,"
    ):
        sq.changes(pa.table({"at": [1], "op": ["c"], "id": [1]}), op="at", time="at", key="id")
