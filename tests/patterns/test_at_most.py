"""ATMOST: which events crowd others, and what consuming makes of that."""

from __future__ import annotations

import pyarrow as pa

import streamq as sq
from tests.judged import answer
from tests.patterns.chosen import matches


def test_what_was_consumed_crowds_no_more() -> None:
    """
    A  a1 1  a2 2  a3 3
    B                    b1 4
    """
    events = {"A": "1:a1 2:a2 3:a3", "B": "4:b1"}
    assert matches("ATMOST(1, A AS x, B AS y, 3)", **events) == ["a1 -"]
    assert matches("ATMOST(1, A AS x CONSUME, B AS y, 3)", **events) == ["- b1", "a1 -", "a2 -", "a3 -"]
    assert matches("ATMOST(1, A AS x, B AS y CONSUME, 2)", **events) == ["a1 -"]


def test_events_of_one_instant_crowd_each_other_until_they_are_consumed() -> None:
    assert matches("ATMOST(1, A AS x CONSUME, 3)", A="1:a1 1:a2 3:a3") == []
    assert matches("ATMOST(2, A AS x, 3)", A="1:a1 1:a2 2:a3 3:a4") == ["a1", "a2"]
    assert matches("ATMOST(2, A AS x CONSUME, 3)", A="1:a1 1:a2 2:a3 3:a4") == ["a1", "a2", "a3", "a4"]


def test_an_event_counts_once_though_it_fits_two_parameters() -> None:
    assert matches("ATMOST(1, A AS x, A AS y, 3)", A="1:a1 5:a2") == ["- a1", "- a2", "a1 -", "a2 -"]
    assert matches("ATMOST(1, A AS x, A AS y, 3)", "y.v > 1", A="1:a1=1 2:a2=2 9:a3=2") == ["- a3", "a1 -", "a3 -"]


def test_an_event_without_a_key_crowds_none() -> None:
    keys = [None, None, "k", "k"]
    stream = sq.points(pa.table({"at": [1, 2, 3, 4], "k": keys, "j": ["k"] * 4}), "at")
    key = "WHERE CorrelationKey(k, EQUAL)"
    none = stream.where(sq.col("j") > "k")
    one = sq.cedr(f"EVENT E WHEN ATMOST(1, A AS x, B AS y, 9) {key} OUTPUT x.Vs AS x, y.Vs AS y", A=stream, B=none)
    assert [row[2:] for row in answer(one)] == [(1, None), (2, None), (3, None)]
    two = sq.cedr(f"EVENT E WHEN ATMOST(1, A AS x, A AS y, 9) {key} OUTPUT x.Vs AS x, y.Vs AS y", A=stream)
    assert sorted(row[0] for row in answer(two)) == [1, 1, 2, 2, 3, 3]
