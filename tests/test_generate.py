"""What is generated is legal, varied, and understood by the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from streamq.compiler.operators import Physical, Union, WindowAggregate
from streamq.compiler.plan import Node, nodes
from streamq.testing.generate import (
    Arriving,
    Case,
    Row,
    bounds,
    cases,
    cuts,
    delay_for,
    edge_streams,
    interval_streams,
    late,
    physical_streams,
    point_streams,
    sources,
)
from streamq.testing.history import assert_same_history, fold_physical
from streamq.testing.queries import grids
from streamq.windows import Hopping

few = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
brief = settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
# what can be drawn at all: the first that is found will do
any_of_many = settings(max_examples=3_000, phases=[Phase.generate], database=None)
kinds = st.sampled_from(["int", "double", "decimal"])


def physical_rows(**given_as: Any) -> st.SearchStrategy[list[Row]]:
    return kinds.flatmap(lambda value: physical_streams(value=value, **given_as))


@brief
@given(physical_rows(explicit=True))
def test_no_item_breaks_a_cti(rows: list[Row]) -> None:
    assert late(rows) == []
    promises = [row["start"] for row in rows if row["kind"] == "cti"]
    assert promises == sorted(promises)


@brief
@given(st.booleans().flatmap(lambda ids: st.tuples(st.just(ids), physical_rows(ids=ids))))
def test_every_retraction_matches(drawn: tuple[bool, list[Row]]) -> None:
    ids, rows = drawn
    found = fold_physical(rows, id="id" if ids else None)
    deleted = sum(row["new_end"] == row["start"] for row in rows if row["kind"] == "retract")
    assert found.num_rows >= sum(row["kind"] == "insert" for row in rows) - deleted


@brief
@given(physical_rows(explicit=False, causal=True))
def test_a_causal_stream_folds_item_by_item(rows: list[Row]) -> None:
    living: Counter[str] = Counter()
    for row in rows:
        if row["kind"] == "retract":
            living[_event(row, "end")] -= 1
            assert living[_event(row, "end")] >= 0
        if row["kind"] == "insert" or row["new_end"] != row["start"]:
            living[_event(row, "end" if row["kind"] == "insert" else "new_end")] += 1
    folded = [{**row, "kind": "insert"} for row in fold_physical(rows).to_pylist()]
    assert +living == Counter(_event({**row, "end": _shown(row["end"])}, "end") for row in folded)


def _event(row: Row, end: str) -> str:
    return repr((row["start"], row[end], row["k"], row["v"]))


def _shown(end: int) -> int | None:
    return None if end == 2**63 - 1 else end


@few
@given(sources("s", "physical") | sources("s", "physical_ids"))
def test_the_oracle_folds_as_fold_physical_does(arriving: Arriving) -> None:
    assert isinstance(arriving.source, Physical)
    case = Case(arriving.source, tuple(("s", row) for row in arriving.rows), (len(arriving.rows),))
    folded = fold_physical(arriving.rows, arriving.source.id)
    if folded.num_rows:
        assert_same_history(case.answer(), folded)
    else:
        assert case.answer().num_rows == 0


@brief
@given(
    st.one_of(
        st.tuples(st.just("points"), point_streams()),
        st.tuples(st.just("intervals"), interval_streams()),
        st.tuples(st.just("edges"), edge_streams()),
        st.tuples(st.just("physical"), physical_streams(explicit=False)),
    )
)
def test_a_delay_that_keeps_every_item_on_time(drawn: tuple[str, list[Row]]) -> None:
    _, rows = drawn
    greatest: int | None = None
    delay = delay_for(rows)
    tight = delay == 0
    for row, bound in zip(rows, bounds(rows), strict=True):
        at = row["t"] if "t" in row else row["start"]
        if greatest is not None:
            assert bound >= greatest - delay
            tight |= bound == greatest - delay
        greatest = at if greatest is None else max(greatest, at)
    assert tight


@brief
@given(st.integers(0, 12).flatmap(lambda n: st.tuples(st.just(n), cuts(n))))
def test_cuts_are_partitions(drawn: tuple[int, tuple[int, ...]]) -> None:
    n, cut = drawn
    assert sum(cut) == n
    assert all(length > 0 for length in cut)


@few
@given(cases(values=("int", "double", "decimal")))
def test_the_oracle_answers_every_query_whatever_the_order(case: Case) -> None:
    found = case.answer()
    assert found.column_names == ["start", "end", *case.plan.schema.names]
    again = replace(case, arrival=case.arrival[::-1])
    assert_same_history(again.answer(), found)
    assert all(not late([row for of, row in case.arrival if of == name]) for name in case.sources)


@few
@given(cases())
def test_batches_are_the_tables_in_pieces(case: Case) -> None:
    for batches in (case.batches, case.with_cut().batches):
        for name, whole in case.tables.items():
            pieces = [batch[name] for batch in batches] or [whole]
            assert [row for piece in pieces for row in map(str, piece.to_pylist())] == list(map(str, whole.to_pylist()))
    assert repr(case).startswith("Case of\n  q0 = ")


def shapes(rows: list[Row]) -> set[str]:
    """What a physical stream has in it."""
    found = {"late retraction"} if any(_before_its_insert(rows, i) for i in range(len(rows))) else set()
    for row in rows:
        if row["kind"] == "retract":
            ends = (2**63 if row["end"] is None else row["end"], 2**63 if row["new_end"] is None else row["new_end"])
            deletes = ends[1] == row["start"]
            found.add("delete" if deletes else "extend" if ends[1] > ends[0] else "shorten")
        elif row["kind"] == "insert":
            found.add("infinite" if row["end"] is None else "point" if row["end"] == row["start"] + 1 else "interval")
            found.add("duplicate" if rows.count(row) > 1 else "single")
            found |= {"nan"} if row["v"] != row["v"] else {f"null {name}" for name in "kv" if row[name] is None}
    return found | ({"cti"} if any(row["kind"] == "cti" for row in rows) else set())


def _before_its_insert(rows: list[Row], i: int) -> bool:
    row = rows[i]
    before = [r for r in rows[:i] if r["kind"] == "insert" and r["start"] == row["start"]]
    return row["kind"] == "retract" and not before


@pytest.mark.parametrize(
    "shape",
    [
        *("shorten", "extend", "delete", "infinite", "point", "interval", "duplicate", "nan", "null k", "null v"),
        *("late retraction", "cti"),
    ],
)
def test_physical_streams_have_every_shape(shape: str) -> None:
    find(physical_streams(value="double"), lambda rows: shape in shapes(rows), settings=any_of_many)


@pytest.mark.parametrize(
    "wanted",
    [
        lambda w: w.hop > w.size,
        lambda w: w.hop < w.size and w.size % w.hop != 0,
        lambda w: w.offset < 0,
        lambda w: w.hop == w.size,
    ],
)
def test_windows_of_every_kind(wanted: Callable[[Hopping], bool]) -> None:
    find(grids(), wanted, settings=any_of_many)


@pytest.mark.parametrize(
    "wanted",
    [
        lambda plan: isinstance(plan, Union),
        lambda plan: sum(isinstance(n, WindowAggregate) for n in nodes(plan)) == 2,
        lambda plan: any(isinstance(n, WindowAggregate) and len(n.keys) == 2 for n in nodes(plan)),
    ],
)
def test_queries_of_every_kind(wanted: Callable[[Node], bool]) -> None:
    find(cases(), lambda case: wanted(case.plan), settings=any_of_many)
