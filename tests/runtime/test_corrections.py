"""What was reported is corrected by what arrives late or is taken back: by exactly the rows that change, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.sources.literal import Item
from tests.programs import compiled

Deltas = list[tuple[Any, ...]]


def items(name: str, *given: Item) -> sq.Stream:
    """A stream in which a row may be a hundred ticks late; it holds a retraction so that its items may be taken back."""
    spare = (sq.insert(-99, 1, k=0), sq.retract(-99, 1, -99, k=0))
    return sq.events([*spare, *given], name=name, progress=sq.generate(100))


def told(query: Callable[[sq.Stream, sq.Stream], sq.Stream], *batches: tuple[str, Item]) -> list[Deltas]:
    """The deltas ``start, end, weight`` of micro-batches of one item each of stream l or r."""
    run = LocalRun(compiled(rewrite(query(items("l"), items("r")).plan).plan, OutputForm.CHANGELOG, buckets=1))
    out = []
    for name, item in batches:
        table = items(name, item).tables[name].slice(2)
        found = run.batch({name: table}).to_pylist()
        out.append(sorted((r["__le"], None if r["__re"] == 2**63 - 1 else r["__re"], r["__w"]) for r in found))
    assert not run.totals
    return out


LEFT, NOW = ("l", sq.insert(1, 10, k=1)), ("r", sq.insert(50, 51, k=2))


@pytest.mark.parametrize(
    ("query", "cut"),
    [
        (lambda a, b: a.join(b, on="k", how="anti"), [(1, 4), (6, 10)]),
        (lambda a, b: a.except_(b), [(1, 4), (6, 10)]),
        (lambda a, b: a.clip(b, on="k"), [(1, 4)]),
    ],
    ids=["anti join", "except_", "clip"],
)
def test_a_late_right_event_splits_a_reported_left_piece(query: Any, cut: list[tuple[int, int]]) -> None:
    """
    left    [1,10)            reported as it is
    right       [4,6)         comes late, and is taken back again
    """
    late, gone = ("r", sq.insert(4, 6, k=1)), ("r", sq.retract(4, 6, 4, k=1))
    further = ("l", sq.insert(60, 61, k=3))
    found = told(query, LEFT, NOW, further, late, gone)
    whole = (1, 10)
    assert (*whole, 1) in [row for deltas in found[:3] for row in deltas], "reported before the right event came"
    assert found[3] == sorted([(*whole, -1), *((*piece, 1) for piece in cut)])
    assert found[4] == sorted([(*whole, 1), *((*piece, -1) for piece in cut)])


def test_a_late_event_joins_two_reported_sessions_and_leaves_two_when_it_is_taken_back() -> None:
    """
    events  [1,2)        [9,10)          gap 5: sessions [1,6) [9,14)
    late           [5,6)                 one session [1,14)
    """
    found = told(
        lambda a, b: a.session_window(5).select(n=sq.count()).union(b.session_window(5).select(n=sq.count())),
        ("l", sq.insert(1, 2, k=1)),
        ("l", sq.insert(9, 10, k=1)),
        ("l", sq.insert(60, 61, k=1)),
        ("r", sq.insert(60, 61, k=1)),
        ("l", sq.insert(5, 6, k=1)),
        ("l", sq.retract(5, 6, 5, k=1)),
    )
    assert [row for deltas in found[:4] for row in deltas if row[0] < 20] == [(1, 6, 1), (9, 14, 1)]
    assert found[4] == [(1, 6, -1), (1, 14, 1), (9, 14, -1)]
    assert found[5] == [(1, 6, 1), (1, 14, -1), (9, 14, 1)]
