"""A late output is held against what is counted and what the model sets aside: a row too many, too few, or another is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.runtime.time.lateness import LATE_SCHEMA
from streamq.testing.arrival import Item
from streamq.testing.backends import execute
from streamq.testing.case import Case
from streamq.testing.execution import BATCH, SPARK, STREAM, WRITTEN, Execution
from streamq.testing.expectation import expectation
from streamq.testing.history import WrongOutput
from streamq.testing.trial import with_late_sinks
from tests.judges.late_output import check_late_output

LATE = Execution(STREAM, late_output=True)
SPANS = sq.intervals(
    t.table("start bigint, end bigint, k string", []),
    start="start",
    end="end",
    name="s",
    progress=sq.generate(0),
    late="adjust",
    invalid="drop",
)
ARRIVED = [("insert", 10, 20, "a"), ("insert", 2, 15, "b"), ("insert", 1, 5, "c"), ("insert", 12, 12, "d")]
CASE = Case(SPANS.plan, tuple(("s", Item(kind, le, re, payload={"k": k})) for kind, le, re, k in ARRIVED), (1, 1, 1, 1))
COUNTS = {"s|adjusted": 1, "s|dropped": 1, "s|invalid": 1}

ROWS: list[dict[str, Any]] = [
    {"source": "s", "reason": "adjusted", "start": 2, "end": 15, "late_by": 8, "payload": '{"k": "b"}'},
    {"source": "s", "reason": "dropped", "start": 1, "end": 5, "late_by": 9, "payload": '{"k": "c"}'},
    {"source": "s", "reason": "end not after start", "start": 12, "end": 12, "late_by": None, "payload": '{"k": "d"}'},
]


def held(rows: list[dict[str, Any]]) -> None:
    check_late_output(CASE, [pa.Table.from_pylist(rows, LATE_SCHEMA)], COUNTS, expectation(CASE, LATE))


def test_a_run_on_spark_has_a_late_sink_where_not_all_is_taken_as_it_comes() -> None:
    ways = (Execution(SPARK), Execution(SPARK, started=WRITTEN), Execution(BATCH))
    assert [how.late_output for how in with_late_sinks((CASE, ways))[1]] == [True, False, False]
    on_time = replace(CASE, arrival=CASE.arrival[:1], cut=(1,))
    assert not any(how.late_output for how in with_late_sinks((on_time, ways))[1])


def test_what_goes_to_a_late_output_is_what_is_set_aside() -> None:
    assert execute(CASE, LATE).num_rows == 2
    held(ROWS)


@pytest.mark.parametrize(
    ("place", "change", "wrong"),
    [
        (0, None, "1 rows of s are counted as adjusted, but the late output has 0"),
        (2, None, "1 rows of s are counted as invalid, but the late output has 0"),
        (0, {"start": 10}, r"the late output has the row \[10, 15\) of s, counted as adjusted"),
        (1, {"end": 6}, r"the late output has the row \[1, 6\) of s, counted as dropped, 9 ticks late"),
        (1, {"late_by": 8}, r"the late output has the row \[1, 5\) of s, counted as dropped, 8 ticks late"),
        (1, {"kind": "retract"}, r"the late output has the row retract \[1, 5\) of s, counted as dropped"),
        (1, {"new_end": 4}, r"the late output has the row \[1, 5\) -> 4 of s, counted as dropped"),
        (2, {"end": 11}, r"the late output has the row \[12, 11\) of s, counted as invalid"),
        (1, {"payload": '{"k": "b"}'}, "which did not arrive at s"),
        (1, {"payload": '{"j": "c"}'}, "which did not arrive at s"),
    ],
)
def test_another_late_output_is_wrong(place: int, change: dict[str, Any] | None, wrong: str) -> None:
    rows = [*ROWS[:place], *([] if change is None else [{**ROWS[place], **change}]), *ROWS[place + 1 :]]
    with pytest.raises(WrongOutput, match=wrong):
        held(rows)
