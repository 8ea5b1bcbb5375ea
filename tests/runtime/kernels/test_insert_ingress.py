"""Ingress of an insert-only source: final rows, late policies, rows that are delivered again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import Invalid
from streamq.errors import InvalidEvent
from streamq.policies import MIDDLE, Level
from streamq.runtime.kernel import ADJUST, Arrival, Clock, Judge
from streamq.runtime.kernels.insert_ingress import InsertIngressKernel, repetitions
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.time import Grid
from tests.each import each
from tests.runtime.kernels.arrivals import Arrivals, Row

STAYS = "start bigint, end bigint, id bigint, v double"


def stays(*batches: list[Row], level: Level = MIDDLE, **policy: Any) -> tuple[Arrivals, list[list[Row]]]:
    """The run, and what each micro-batch gives."""
    policy = {"progress": sq.generate(10), **policy}
    source = sq.intervals(t.table(STAYS, []), "start", "end", id="id", name="s", **policy)
    run = Arrivals(source, STAYS, buckets=3, level=level)
    return run, [run.send(*batch) for batch in batches]


def test_a_repetition_is_taken_once_and_nothing_is_ever_taken_back() -> None:
    again = (20, 30, 7, 1.0)
    live, out = stays([again, again], [(21, 22, 7, 1.0), again], [(40, 41, 8, 1.0)], [again])
    assert out == [[(20, 30, 7, 1)], [(21, 22, 7, 1)], [(40, 41, 8, 1)], []]
    assert live.counted == {"duplicates": 3}
    repeated = {"source": "s", "reason": "duplicate", "start": 20, "end": 30, "payload": '{"id": 7, "v": 1.0}'}
    rows = [{name: value for name, value in row.items() if value is not None} for row in live.set_aside]
    assert rows == [repeated] * 3


LIVING, NEXT = (20, 90, 7, 1.0), [(60, 61, 8, 1.0)]
COMES_AGAIN: dict[str, tuple[dict[str, Any], list[list[Row]], list[Row], dict[str, int]]] = {
    # the event still lives at c, and so an adjusted repetition would be a second one
    **{
        f"a duplicate before it is late, {late}": ({"late": late}, [[LIVING, *NEXT], [LIVING]], [], {"duplicates": 1})
        for late in ("drop", "adjust", "fail")
    },
    # what acts from c on is known by its own start; what is dropped leaves nothing to be adjusted later
    "adjusted once": (
        {"late": "adjust"},
        [NEXT, [LIVING, LIVING], [LIVING]],
        [(50, 90, 7, 1)],
        {"adjusted": 1, "duplicates": 2},
    ),
    "dropped once": ({}, [NEXT, [LIVING], [LIVING]], [], {"dropped": 1, "duplicates": 1}),
    # history is remembered for ten ticks only: what is behind that is adjusted, unless it is known
    "at a weak level": (
        {"progress": sq.generate(1_000), "level": Level(0, 10)},
        [[LIVING, *NEXT], [LIVING, (20, 30, 9, 1.0)]],
        [],
        {"duplicates": 1, "dropped": 1},
    ),
    # of rows of one id and start that differ the least by end and payload stays; at another start it is another event
    "those that differ": (
        {},
        [[(1, 9, 7, 2.0), (1, 8, 7, 3.0), (1, 8, 7, 2.0), (2, 8, 7, 2.0)], [(1, 9, 7, 2.0), (1, 8, 7, 2.0)]],
        [],
        {"invalid": 3, "duplicates": 1},
    ),
}


@pytest.mark.parametrize("name", COMES_AGAIN)
def test_what_comes_again(name: str) -> None:
    policy, batches, later, counted = COMES_AGAIN[name]
    live, out = stays(*batches, **policy)
    assert ([row for rows in out[1:] for row in rows], live.counted) == (later, counted)
    if name == "those that differ":
        assert out[0] == [(1, 8, 7, 1), (2, 8, 7, 1)]
        assert {r["reason"] for r in live.set_aside} == {"two rows of one id and start that differ", "duplicate"}


def test_rows_of_one_id_and_start_that_differ_fail() -> None:
    with pytest.raises(InvalidEvent, match="source s: a row is no event: two rows of one id and start that differ"):
        stays([(1, 9, 7, 2.0)], [(1, 9, 7, 3.0)], invalid="fail")


def test_c_is_rounded_down_for_what_is_forgotten_too() -> None:
    """c = 59 judges as 50 in front of windows of ten: what ends at 55 could come again on time."""
    kernel, baskets = InsertIngressKernel(False, Grid(10, 10, 0), ("id",)), Baskets(DictStore())
    rows, judge = pa.table({"id": [7], "__le": [51], "__re": [55]}), Judge("s", ADJUST, Invalid.FAIL)
    given = []
    for before, after in ((0, 59), (59, 59)):
        out = kernel.advance(
            baskets.scoped("x"), [Arrival(0, rows, judge, before)], Clock(before, after, before, after)
        )
        given.append((0 if out.table is None else out.table.num_rows, out.totals.counts))
    assert given == [(1, {}), (0, {"s|duplicates": 1})]


NAN = float("nan")
WHOLE, DOUBLE, PAIRS = pa.int64(), pa.float64(), pa.map_(pa.string(), pa.int64())
ENTRIES = [("a", 1), ("b", None)]
REPETITIONS: list[tuple[list[Any], pa.DataType, str]] = [
    ([3, 2, 2, 3], WHOLE, "!.=!"),
    ([], WHOLE, ""),
    # values are equal as keys are, and NULL is least
    ([None, None], WHOLE, ".="),
    ([NAN, NAN], DOUBLE, ".="),
    ([0.0, -0.0], DOUBLE, ".="),
    ([None, NAN, 0.0], DOUBLE, ".!!"),
    (["b", "a", "a"], pa.string(), "!.="),
    # values without an order in Arrow; the order of a map's entries says nothing
    ([[1, None], [1, None], [1]], pa.list_(WHOLE), "!!."),
    ([{"x": NAN}, {"x": NAN}], pa.struct([("x", DOUBLE)]), ".="),
    ([ENTRIES, ENTRIES[::-1]], PAIRS, ".="),
    ([[("a", 1)], [("a", 2)], [], None], PAIRS, "!!!."),
    ([[[("a", 1)]], [[("a", 1)]]], pa.list_(PAIRS), ".="),
]
"""Values of rows of one id, their type, and what becomes of each: ``.`` stands, ``=`` repeats, ``!`` contradicts."""


def marks(values: list[Any], kind: pa.DataType, held: list[Any] | None = None, ids: list[Any] | None = None) -> str:
    def table(some: list[Any], whose: list[Any]) -> pa.Table:
        return pa.table({"id": pa.array(whose, pa.int64()), "v": pa.array(some, kind)})

    known = None if held is None else table(held, [7] * len(held))
    repeated, contrary = repetitions(table(values, ids or [7] * len(values)), known, ["id"], ["v"])
    return "".join("=" if a else "!" if b else "." for a, b in zip(repeated, contrary, strict=True))


@each(REPETITIONS)
def test_the_least_row_of_an_id_stands_and_equal_ones_repeat_it(case: tuple[list[Any], pa.DataType, str]) -> None:
    values, kind, expected = case
    assert marks(values, kind) == expected


def test_rows_of_several_ids_and_rows_that_are_held() -> None:
    assert marks([3, 3], WHOLE, ids=[1, 2]) == ".."
    assert marks([3, 3, 4], WHOLE, ids=[None, None, 1]) == ".=.", "NULL is an id"
    assert marks([2, 3], WHOLE, held=[3]) == "!=", "what is held stands"
    assert marks([2], WHOLE, held=[]) == "."
