"""What the oracle makes of the rows of sources, against histories computed by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import types as t

from streamq.errors import InvalidEvent
from streamq.expressions import duration, start
from streamq.operators import Select
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.expr import Lit
from streamq.progress_policies import ExplicitCtis
from streamq.sources.edges import Edges
from streamq.sources.insert_only import Intervals, Points
from streamq.sources.physical import Physical
from streamq.testing.folding import fold_physical
from streamq.testing.oracle import oracle
from tests.testing.by_oracle import DOUBLE, LONG, NAN, STRING, answer, fields, intervals, shown

# sources


def test_points_live_for_one_tick_and_keep_duplicates() -> None:
    plan = Points("s", fields(at=LONG, v=LONG), "at")
    assert answer(plan, [(3, 1), (3, 1), (-2, 2)]) == [(-2, -1, 2), (3, 4, 1), (3, 4, 1)]


def test_an_interval_without_an_end_is_alive() -> None:
    assert answer(intervals(v=LONG), [(1, 5, 1), (2, None, 2)]) == [(1, 5, 1), (2, None, 2)]


@pytest.mark.parametrize("row", [(None, 5, 1), (5, 5, 1), (6, 5, 1)])
def test_rows_that_are_no_events_fail_or_are_dropped(row: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidEvent, match="no event"):
        answer(intervals(v=LONG), [row])
    forgiving = Intervals("s", fields(start=LONG, end=LONG, v=LONG), "start", "end", SourcePolicy(invalid="drop"))
    assert answer(forgiving, [row, (1, 2, 3)]) == [(1, 2, 3)]


def test_rows_of_one_id_and_start_are_one_event() -> None:
    """Equal rows are one, NaN being NaN and NULL NULL; of others the least by end and payload is the event."""
    given = fields(start=LONG, end=LONG, id=LONG, v=DOUBLE)
    plan = Intervals("s", given, "start", "end", ids=("id",))
    rows = [(1, 5, 7, NAN), (1, 5, 7, NAN), (2, 5, 7, NAN), (1, 5, None, None), (1, 5, None, None), (1, 5, 8, 0.0)]
    assert [row[:3] for row in answer(plan, [*rows, (1, 5, 8, -0.0)])] == [
        (1, 5, None),
        (1, 5, 7),
        (1, 5, 8),
        (2, 5, 7),
    ]
    forgiving = Intervals("s", given, "start", "end", SourcePolicy(invalid="drop"), ("id",))
    for other in ((1, 4, 7, 2.0), (1, 4, 7, None)):
        with pytest.raises(InvalidEvent, match="two rows of one id and start that differ"):
            answer(plan, [(1, 5, 7, 1.0), other])
        assert answer(forgiving, [(1, 5, 7, 1.0), (1, 4, 7, 3.0), other]) == [other]
    points = Points("s", fields(at=LONG, id=LONG), "at", ids=("id",))
    assert answer(points, [(3, 1), (3, 1), (4, 1), (3, 2)]) == [(3, 4, 1), (3, 4, 2), (4, 5, 1)]


def test_equal_edges_are_one() -> None:
    rows = [(1, "start", "a", 1), (1, "start", "a", 1), (5, "end", "a", 2), (5, "end", "a", 2), (5, "start", "a", 2)]
    assert answer(edges(invalid="fail"), rows) == [(1, 5, "a", 1), (5, None, "a", 2)]
    assert answer(edges("end", "fail"), rows) == [(1, 5, "a", 2), (5, None, "a", 2)]


def test_times_are_ticks_of_timestamps() -> None:
    plan = Points("s", fields(at=t.TimestampType(), v=LONG), "at")
    given = pa.table({"at": pa.array([5], pa.timestamp("us", "UTC")), "v": [1]})
    assert shown(oracle(plan, {"s": given})) == [(5, 6, 1)]
    assert shown(oracle(plan, {"s": pd.DataFrame({"at": [5], "v": [1]})})) == [(5, 6, 1)]
    stamped = Select(plan, (("at", start()), ("lives", duration())))
    assert oracle(stamped, {"s": given})["at"].cast(pa.int64()).to_pylist() == [5]
    assert oracle(stamped, {"s": given}).schema.field("at").type == pa.timestamp("us", "UTC")


def edges(payload_from: str = "start", invalid: str = "drop") -> Edges:
    columns = fields(at=LONG, edge=STRING, k=STRING, v=LONG)
    return Edges(
        "s", columns, "at", "edge", ("k",), Lit("start"), Lit("end"), payload_from, SourcePolicy(invalid=invalid)
    )


def test_the_next_edge_of_a_key_closes_a_start() -> None:
    rows = [(9, "end", "a", 4), (1, "start", "a", 1), (2, "start", None, 5), (5, "end", "a", 2), (5, "start", "a", 3)]
    assert answer(edges(), rows) == [(1, 5, "a", 1), (2, None, None, 5), (5, 9, "a", 3)]
    assert answer(edges("end"), rows) == [(1, 5, "a", 2), (2, None, None, 5), (5, 9, "a", 4)]


def test_a_second_start_closes_the_first_whose_payload_stays() -> None:
    rows = [(1, "start", "a", 1), (4, "start", "a", 2), (6, "end", "a", 3)]
    assert answer(edges("end"), rows) == [(1, 4, "a", 1), (4, 6, "a", 3)]


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([(3, "end", "a", 1)], []),
        ([(3, "end", "a", 1), (3, "start", "a", 2)], [(3, None, "a", 2)]),
        ([(1, "start", "a", 1), (3, "end", "a", 2), (5, "end", "a", 3)], [(1, 3, "a", 1)]),
        ([(1, "start", "a", 1), (3, "end", "a", 2), (3, "end", "a", 3)], [(1, None, "a", 1)]),
        ([(1, "start", "a", 2), (1, "start", "a", 1), (1, "start", "b", 9)], [(1, None, "b", 9)]),
        ([(1, "begin", "a", 1), (2, None, "a", 1), (None, "start", "a", 1)], []),
    ],
)
def test_edges_without_a_place_in_their_chain(rows: list[tuple[Any, ...]], left: list[tuple[Any, ...]]) -> None:
    assert answer(edges(), rows) == left
    with pytest.raises(InvalidEvent):
        answer(edges(invalid="fail"), rows)


def physical(id: str | None = None, invalid: str | None = None, **payload: t.DataType) -> Physical:
    columns = fields(kind=STRING, start=LONG, end=LONG, new_end=LONG, **payload)
    return Physical(
        "s", columns, "kind", "start", "end", "new_end", id, SourcePolicy(progress=ExplicitCtis(), invalid=invalid)
    )


CHAIN = [("insert", 1, None, None), ("retract", 1, None, 10), ("retract", 1, 10, 5), ("insert", 4, 9, None)]
"""Table 1 of the StreamInsight papers: E0 shortened twice, E1."""


def test_published_folding_in_any_order() -> None:
    rows = [(*item, p) for item, p in zip(CHAIN, ("P1", "P1", "P1", "P2"), strict=True)]
    rows.append(("cti", 7, None, None, None))
    for order in (rows, rows[::-1], rows[2:] + rows[:2]):
        assert answer(physical(p=STRING), order) == [(1, 5, "P1"), (4, 9, "P2")]
        named = [
            dict(zip(("kind", "start", "end", "new_end", "p"), row, strict=True)) for row in order if row[0] != "cti"
        ]
        assert shown(fold_physical(named)) == [(1, 5, "P1"), (4, 9, "P2")]


def test_a_retraction_takes_one_of_equal_events() -> None:
    rows = [("insert", 1, 5, None, 1), ("insert", 1, 5, None, 1), ("retract", 1, 5, 1, 1), ("insert", 2, 3, None, NAN)]
    rows += [("retract", 2, 3, None, NAN)]
    assert answer(physical(v=LONG), rows[:3]) == [(1, 5, 1)]
    assert answer(physical(v=DOUBLE), rows[3:])[0][:2] == (2, None)


def test_an_id_names_one_event() -> None:
    plan = physical("n", n=LONG, p=STRING)
    chain = [("insert", 1, 5, None, 1, "a"), ("retract", 1, 5, 9, 1, "a"), ("retract", 1, 9, 7, 1, "a")]
    assert answer(plan, chain * 2) == [(1, 7, 1, "a")]
    assert answer(plan, [*chain, *chain[1:], chain[1]]) == [(1, 7, 1, "a")]
    to_and_fro = [chain[0], chain[1], ("retract", 1, 9, 5, 1, "a"), chain[1]]
    assert answer(plan, to_and_fro) == [(1, 9, 1, "a")]
    deleted = [chain[0], ("retract", 1, 5, 1, 1, "a")]
    assert answer(plan, deleted * 2) == []
    for other in (("insert", 2, 5, None, 1, "a"), ("insert", 1, 6, None, 1, "a"), ("insert", 1, 5, None, 1, "b")):
        with pytest.raises(InvalidEvent, match="two events of one id"):
            answer(plan, [chain[0], other])
        assert answer(physical("n", "drop", n=LONG, p=STRING), [other, chain[0]]) == [(1, 5, 1, "a")]


def test_a_retraction_by_id_needs_no_payload() -> None:
    rows = [("insert", 1, 5, None, 1, "a"), ("insert", 1, 5, None, 2, "b"), ("retract", 1, 5, 9, 2, None)]
    assert answer(physical("n", n=LONG, p=STRING), rows) == [(1, 5, 1, "a"), (1, 9, 2, "b")]


@pytest.mark.parametrize(
    ("extra", "left"),
    [
        (("retract", 1, 6, 2, 1), [(1, 5, 1)]),
        (("retract", 1, 5, 2, 2), [(1, 5, 1)]),
        (("retract", 1, 5, 0, 1), [(1, 5, 1)]),
        (("insert", None, 5, None, 1), [(1, 5, 1)]),
        (("update", 1, 5, 7, 1), [(1, 5, 1)]),
    ],
)
def test_physical_rows_that_match_nothing(extra: tuple[Any, ...], left: list[tuple[Any, ...]]) -> None:
    rows = [("insert", 1, 5, None, 1), extra]
    with pytest.raises(InvalidEvent):
        answer(physical(v=LONG), rows)
    with pytest.raises(InvalidEvent):
        fold_physical([dict(zip(("kind", "start", "end", "new_end", "v"), row, strict=True)) for row in rows])
    assert answer(physical(invalid="drop", v=LONG), rows) == left


def test_what_follows_from_a_dropped_retraction_goes_with_it() -> None:
    rows = [("insert", 1, 5, None, 1), ("retract", 1, 5, 3, 1), ("retract", 1, 5, 8, 1), ("retract", 1, 8, 9, 1)]
    assert answer(physical(invalid="drop", v=LONG), rows) == [(1, 3, 1)]


def test_a_walk_that_no_insert_begins_matches_nothing() -> None:
    loop = [{"kind": "retract", "start": 1, "end": a, "new_end": b, "v": 1} for a, b in ((5, 7), (7, 5))]
    with pytest.raises(InvalidEvent, match="matches nothing"):
        fold_physical(loop)
    assert fold_physical([*loop, {"kind": "insert", "start": 1, "end": 7, "v": 1}]).num_rows == 1
