"""Rows that are told early: before the watermark reaches them, and corrected until they are final."""

from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from streamq.errors import PlanError
from streamq.run.rehearsal import Rehearsal

CARS = sq.events([(1, 3, {"v": 1}), (2, 4, {"v": 5}), (11, 12, {"v": 2})], name="cars", progress=sq.generate())
STAYS = sq.events(
    [sq.insert(1, None, v=3), sq.insert(12, None, v=1), sq.retract(1, None, 15, v=3), sq.cti(40)], name="stays"
)


def told(run: Rehearsal, batches: int) -> list[list[tuple[Any, ...]]]:
    """What each micro-batch of one item tells: kind, the value, start and end of a row."""
    rows = [run.arrive(**dict.fromkeys(run._named, 1)).to_pylist() for _ in range(batches)]
    return [[(r["kind"], r["n"], r["start"], r["end"]) for r in batch] for batch in rows]


def test_a_window_is_told_with_its_first_member() -> None:
    """
    cars      [1,3)                   [2,4)                              [11,12)
    [0,10)    + 1                     - 1  + 2                           nothing: it is as it was told
    """
    query = CARS.tumbling_window(10).select(n=sq.count())
    early = told(Rehearsal(query, output="changelog", early=True), 3)
    assert early[0] == [("insert", 1, 0, 10)]
    assert sorted(early[1]) == [("insert", 2, 0, 10), ("retract", 1, 0, 10)]
    assert early[2] == [("insert", 1, 10, 20)]
    assert told(Rehearsal(query, output="changelog"), 3) == [[], [], [("insert", 2, 0, 10)]]


def test_a_window_over_ends_that_may_move_is_told_at_its_end_and_corrected() -> None:
    """
    stays     [1,inf)   [12,inf)          [1,inf) -> [1,15)
    [0,10)              + forever         - forever  + 14
    """
    query = STAYS.tumbling_window(10).select(n=sq.max(sq.duration()))
    batches = told(Rehearsal(query, output="changelog"), 4)
    assert batches[:2] == [[], [("insert", None, 0, 10)]]
    assert sorted(batches[2], key=str) == [("insert", 14, 0, 10), ("retract", None, 0, 10)]


def test_final_rows_of_such_windows_wait_for_their_members() -> None:
    run = Rehearsal(STAYS.tumbling_window(10).select(n=sq.max(sq.duration())))
    assert [run.arrive(stays=1).num_rows for _ in range(4)] == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output": "final"}, "early=True with final rows, which are never early"),
        ({"output": "changelog", "consistency": "strong"}, "early=True lets rows go at once; this level"),
        ({"output": "changelog", "consistency": sq.level(3, None)}, "early=True lets rows go at once; this level"),
    ],
)
def test_what_holds_rows_back_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        CARS.explain(early=True, **arguments)


def test_a_word_is_no_truth_value() -> None:
    with pytest.raises(PlanError, match="early is True or False; found 'yes'"):
        CARS.explain(output="changelog", early="yes")  # type: ignore[arg-type]


def test_explain_says_so() -> None:
    text = CARS.tumbling_window(10).select(n=sq.count()).explanation("physical", output="changelog", early=True)
    assert "early: rows are told as soon as they are there, and corrected until they are final" in text
