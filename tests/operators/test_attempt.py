"""Attempt: an event for which a user's function fails is set aside whole; the others go on as if it had never been."""

from __future__ import annotations

import json
from typing import Any

import pytest

import streamq as sq
from streamq import col
from streamq.errors import ModuleFailed, PlanError, StreamqError, StreamqWarning

inverse = sq.udf("double", name="inverse", on_error="quarantine")(lambda v: 1 / v)
strict = sq.udf("double", name="strict")(lambda v: 1 / v)
S = sq.events([(1, 5, {"v": 0, "w": "a"}), (2, None, {"v": 4, "w": "b"}), (3, 4, {"v": 0, "w": "c"})])


def rows(query: sq.Stream) -> list[tuple[Any, ...]]:
    """The answer, which says that something is set aside."""
    with pytest.warns(StreamqWarning, match=r"to_arrow: \d event\(s\) are set aside and left out, of inverse"):
        return [tuple(row.values()) for row in query.to_arrow().to_pylist()]


def aside(query: sq.Stream) -> list[tuple[Any, ...]]:
    """What is set aside: start, end, payload."""
    table = query.quarantine().to_arrow().to_pylist()
    return [(row["start"], row["end"], *json.loads(row["payload"]).values()) for row in table]


FAILED = [(1, 5, 0, "a"), (3, 4, 0, "c")]


def test_an_event_that_fails_has_no_row_and_is_set_aside_whole() -> None:
    query = S.select("w", x=inverse("v"))
    assert rows(query) == [("b", 0.25, 2, None)]
    assert aside(query) == FAILED
    (first, _) = query.quarantine().to_arrow().to_pylist()
    assert first["reason"] == "ZeroDivisionError: division by zero; of v = 0"
    assert (first["source"], first["group"], first["window_start"]) == ("inverse", "{}", None)


def test_it_goes_in_filters_and_in_columns_beside_others() -> None:
    assert rows(S.where(inverse("v") > 0.1)) == [(4, "b", 2, None)]
    assert rows(S.with_columns(x=inverse("v"), y=inverse("v") + sq.start())) == [(4, "b", 0.25, 2.25, 2, None)]
    assert rows(S.group_by(x=inverse("v")).tumbling_window(10).select(n=sq.count())) == [(0.25, 1, 0, 10)]


def test_an_event_on_which_nothing_depends_is_not_set_aside() -> None:
    """A branch that is not taken, the right of an AND whose left is false, a row filtered out before."""
    for query in (
        S.select(x=sq.when(col("v") != 0, inverse("v"))),
        S.where((col("v") != 0) & (inverse("v") > 0)),
        S.where(col("v") != 0).select(x=inverse("v")),
    ):
        assert aside(query) == []


def test_other_errors_fail_the_query() -> None:
    with pytest.raises(ModuleFailed, match="strict: it failed"):
        S.select(x=strict("v") + inverse("v")).show()
    with pytest.raises(StreamqError, match="REMAINDER_BY_ZERO"):
        S.select(x=inverse(col("v") % col("v"))).show()


def test_of_a_stream_that_takes_back_what_was_taken_back_is_not_set_aside() -> None:
    s = sq.events(
        [sq.insert(1, 9, v=0), sq.insert(2, 3, v=0), sq.retract(1, 9, 4, v=0), sq.retract(2, 3, 2, v=0)],
        schema={"v": "bigint"},
    )
    assert aside(s.select(x=inverse("v"))) == [(1, 4, 0)]


def test_over_the_results_of_a_window_it_goes_in_a_select_behind() -> None:
    w = S.tumbling_window(5)
    with pytest.raises(PlanError, match="inverse: what it fails for is set aside as an event, and here there are"):
        w.select(x=inverse(sq.sum("v")))
    assert rows(S.where(col("v") == 0).tumbling_window(5).select(n=sq.sum("v")).select(x=inverse("n"))) == []


def test_a_scan_of_the_same_name_does_not_attempt_its_arguments() -> None:
    scan = sq.udso("x double", name="inverse", initial=None, on_error="quarantine")(lambda last, v: (v, [v]))
    with pytest.raises(PlanError, match=r"inverse: what it fails for is set aside in select, .* in scan"):
        S.to_points().scan(scan(inverse("v")))
