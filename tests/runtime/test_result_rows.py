"""What leaves a query: pairs fold into retractions, CTIs keep their word, an upsert has one row a key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm, choose_word
from streamq.compiler.local import LocalRun
from streamq.compiler.results import choose_egress
from streamq.compiler.rewriter import rewrite
from streamq.errors import PlanError, QueryFailed
from streamq.operators import Where
from streamq.operators.alter_lifetime import AlterLifetime, Length, Start
from streamq.plan.node import Node, number_sources
from streamq.policies import MIDDLE, Level
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.hosts.result_rows import changelog_rows, folding, split_ctis, upsert_rows
from streamq.testing.arrival import comparable
from streamq.testing.case import Case
from streamq.testing.expectation import promises
from streamq.testing.folding import fold_physical
from streamq.testing.history import assert_same_history
from streamq.testing.scenario import drawing
from streamq.testing.validator import check_stream
from streamq.time import INFINITY
from tests.drawn.queries import composition
from tests.programs import compiled, written_changelog

Row = dict[str, Any]
STRONG = Level(None, None)
Delta = tuple[int, int, int, Any]
NAN = math.nan
XY = pa.struct({"x": pa.float64(), "y": pa.list_(pa.int8())})


def deltas(*rows: Delta, kind: pa.DataType | None = None) -> pa.Table:
    """Deltas ``(start, end, weight, v)``."""
    times = {n: pa.array([d[i] for d in rows], pa.int64()) for i, n in enumerate((LE, RE, WEIGHT))}
    return pa.table({"v": pa.array([d[3] for d in rows], kind), **times})


def changes(*rows: Delta, kind: pa.DataType | None = None) -> list[tuple[Any, ...]]:
    """Rows ``(kind, start, end, new_end, v)`` of their changelog."""
    changelog = changelog_rows(deltas(*rows, kind=kind))
    return [(r["kind"], r["start"], r["end"], r["new_end"], r["v"]) for r in changelog.to_pylist()]


# a changelog's rows


def test_a_pair_is_one_retraction() -> None:
    """An end moved forward, onward, to infinity and back; where only one half is there it is an insert or a deletion."""
    assert changes((1, INFINITY, -1, "a"), (1, 10, 1, "a")) == [("retract", 1, None, 10, "a")]
    assert changes((1, 10, 1, "a"), (1, 5, -1, "a")) == [("retract", 1, 5, 10, "a")]
    assert changes((1, 10, -1, "a"), (1, INFINITY, 1, "a")) == [("retract", 1, 10, None, "a")]
    assert changes((1, 10, -1, "a"), (2, 10, 1, "a")) == [("retract", 1, 10, 1, "a"), ("insert", 2, 10, None, "a")]
    assert changes((1, 10, -1, "a"), (1, 9, 1, "b")) == [("retract", 1, 10, 1, "a"), ("insert", 1, 9, None, "b")][::-1]


def test_rows_come_by_sync_time_and_the_cti_last() -> None:
    """Sync time is an insert's start, and of a retraction the earlier of both ends; the end of the stream is a row of its own."""
    rows = [(7, 9, 1, "c"), (1, 20, -1, "a"), (1, 8, 1, "a"), (3, 3, 1, None), (4, 6, 1, "b"), (2, 5, -1, "d")]
    assert [(kind, start) for kind, start, *_ in changes(*rows)] == [
        ("retract", 2),
        ("insert", 4),
        ("insert", 7),
        ("retract", 1),
        ("cti", 3),
    ]
    assert changes(*rows)[-1] == ("cti", 3, None, None, None)
    assert changes((INFINITY, INFINITY, 1, None), kind=pa.string()) == [("end", None, None, None, None)]
    assert changes((INFINITY, 9, 1, None), (3, 3, 1, None), kind=pa.string()) == [
        ("cti", 3, None, None, None),
        ("end", None, 9, None, None),
    ]
    rest, ctis = split_ctis(deltas(*rows))
    assert (rest.num_rows, ctis.to_pylist()) == (5, [{LE: 3, RE: 3}])


@pytest.mark.parametrize(
    ("one", "same", "other", "kind"),
    [
        (NAN, float("-nan"), 1.0, pa.float64()),
        (0.0, -0.0, NAN, pa.float32()),
        (None, None, 0, pa.int64()),
        ([0.0, None], [-0.0, None], [0.0], pa.list_(pa.float64())),
        ([], [], None, pa.list_(pa.string())),
        ({"x": NAN, "y": [1]}, {"x": NAN, "y": [1]}, {"x": NAN, "y": None}, XY),
        ([("a", 1.0)], [("a", 1.0)], [("a", None)], pa.map_(pa.string(), pa.float64())),
        (True, True, None, pa.bool_()),
        (None, None, None, pa.null()),
    ],
)  # fmt: skip
def test_payloads_are_equal_as_keys_are(one: Any, same: Any, other: Any, kind: pa.DataType) -> None:
    """NULL and NaN equal themselves, zeros each other, nested values by their parts; also in the middle of a table."""
    padded = deltas((0, 1, 1, other), (1, 9, -1, one), (1, 5, 1, same), (1, 7, 1, other), kind=kind)
    changelog = changelog_rows(padded.slice(1)).to_pylist()
    moved = ("retract", 1, 9, 7 if comparable(one) == comparable(other) else 5)
    assert moved in [(r["kind"], r["start"], r["end"], r["new_end"]) for r in changelog] or one is other
    assert comparable([r["v"] for r in changelog if r["kind"] == "retract"]) == (comparable(one),)
    assert len(changelog) == 2


def test_a_task_folds_what_it_has_at_once() -> None:
    """Batches of Arrow are no micro-batches: a pair may lie in two of them."""
    table = deltas((1, INFINITY, -1, "a"), (2, 3, 1, "b"), (1, 10, 1, "a"))
    changelog = pa.Table.from_batches(folding(changelog_rows, table.column_names)(table.to_batches(max_chunksize=1)))
    assert changelog.column("kind").to_pylist() == ["insert", "retract"]
    assert list(folding(changelog_rows, table.column_names)(table.slice(0, 0).to_batches())) == []


# CTIs


def written(run: LocalRun, deltas: pa.Table) -> list[Row]:
    """A micro-batch's rows, the CTIs last if they have moved."""
    return written_changelog(run, deltas).to_pylist()


def open_ends(draw: Any, stream: sq.Stream) -> sq.Stream:
    """What reads ends that may still move, right below the result."""
    plan: Node = stream.plan
    if draw(st.booleans()):
        plan = AlterLifetime(plan, Start(by=draw(st.integers(-3, 3))), Length())
    bound, least = draw(st.integers(0, 9)), draw(st.booleans())
    return stream._derive(Where(plan, sq.duration() > bound if least else sq.duration() <= bound))


ON_TIME = t.Intent(late="none", invalid=False, speculation=False, duplicates=False)
MOVING = [drawing(open_ends, t.stream(shape=shape)) for shape in ("edges", "physical", "physical_ids")]


@pytest.mark.slow
@given(
    case=st.one_of(*(t.concrete(scenario, ON_TIME) for scenario in (composition(1, 3), *MOVING))),
    buckets=st.sampled_from([1, 3]),
    restart=st.booleans(),
    slack=st.lists(st.sampled_from([0, 0, 1, None]), min_size=1, max_size=3),
    level=st.sampled_from([MIDDLE, STRONG]),
)
def test_a_changelog_keeps_its_ctis(
    case: Case, buckets: int, restart: bool, slack: list[int | None], level: Level
) -> None:
    """Any query, row by row in the order given: legal as a physical stream, and read back it is the answer.

    Under strong it is in order of sync time from its first row to its last.
    """
    case = replace(case, until=case.latest + 13)
    try:
        expected = case.answer()
    except QueryFailed:
        return
    program = compiled(rewrite(case.plan).plan, OutputForm.CHANGELOG, buckets=buckets, level=level, ctis=True)
    run = LocalRun(program, static=case.static)
    rows: list[Row] = []
    for batch, ctis in zip(case.batches, promises(case, slack), strict=True):
        rows += written(run, run.batch(batch, ctis))
        run = run.restart() if restart else run
    rows += written(run, run.finish(case.until))
    assert run.cti == INFINITY
    check_stream(rows, order="full" if level is STRONG else "chain")
    payload = [expected.schema.field(name) for name in case.plan.schema.names]
    times = [pa.field(name, pa.int64()) for name in ("start", "end", "new_end")]
    typed = pa.Table.from_pylist(rows, pa.schema([pa.field("kind", pa.string()), *times, *payload]))
    assert_same_history(fold_physical(typed), expected)


def test_ids_are_payload() -> None:
    """What keeps them gives a changelog that can be read back by id, or by all of the payload."""
    table = pa.table(
        {
            "kind": ["insert", "insert", "retract", "retract"],
            "start": [1, 1, 1, 1],
            "end": [9, 9, 9, 9],
            "new_end": [None, None, 5, 12],
            "id": [7, 8, 7, 8],
            "v": ["a", "b", None, None],
        }
    )
    query = sq.physical(table, id="id", name="s").where(sq.col("id") > 0)
    run = LocalRun(compiled(number_sources(query.plan)[0], OutputForm.CHANGELOG, buckets=2))
    parts = [changelog_rows(run.batch({"s": table.slice(at, 2)})) for at in (0, 2)]
    assert parts[1].select(["kind", "new_end", "id", "v"]).to_pylist() == [
        {"kind": "retract", "new_end": 5, "id": 7, "v": "a"},
        {"kind": "retract", "new_end": 12, "id": 8, "v": "b"},
    ]
    rows = pa.concat_tables(parts)
    expected = [{"start": 1, "end": 5, "id": 7, "v": "a"}, {"start": 1, "end": 12, "id": 8, "v": "b"}]
    for back in (sq.physical(rows), sq.physical(rows, id="id")):
        assert_same_history(back.to_arrow(), pa.Table.from_pylist(expected))


def test_an_output_that_a_plan_cannot_have() -> None:
    """Said at plan time, in the query's terms."""
    s = sq.events([(1, 5, {"k": "a", "v": 1})], name="s")
    counted = s.group_by("k").tumbling_window(4).select(n=sq.count())

    def refused(query: sq.Stream, output: str, ctis: bool = False) -> str:
        with pytest.raises(PlanError) as raised:
            choose_egress(query.plan, choose_word(OutputForm, output, "output", "run"), ctis=ctis, verb="run")
        return str(raised.value)

    assert refused(s, "update") == "run: output is 'final', 'changelog', 'upsert' or 'latest'; found 'update'."
    assert refused(s, "final", True) == "run: ctis=True goes with output='changelog'; found output='final'."
    message = (
        "run: a payload column called 'Kind'; output='changelog' has a column of that name. Rename it: q.rename({...})."
    )
    assert refused(s.select(Kind=sq.col("k")), "changelog") == message
    assert "a payload column called 'new_end'" in refused(s.select(new_end=sq.col("k")), "changelog")
    assert "a payload column called 'op'" in refused(counted.rename(n="op"), "upsert")
    needs = "run: output='upsert' needs a result with one row a group and start; "
    assert refused(s, "upsert").startswith(needs + "found intervals. It goes with the aggregates of a window")
    assert refused(counted.union(counted), "upsert").startswith(needs + "found union.")
    assert refused(counted.select("n"), "upsert") == needs + "the group's column 'k' is not among n. Keep it in select."
    for query in (
        s.group_by("k").rows_window(2, order_by="v").select(n=sq.count()),
        s.landmark_window(4, start=0, stamp="align").select(n=sq.count()),
    ):
        assert "windows may share a start" in refused(query, "upsert")
    for name, output in (("kind", "final"), ("op", "changelog"), ("new_end", "final")):
        assert choose_egress(s.select(**{name: sq.col("k")}).plan, OutputForm(output), verb="run").key == ()


# Results as upserts: the latest row of each key, and deletions.


# an upsert's rows


def upserts(*deltas: tuple[Any, ...], key: Sequence[str] = ("k",), **arguments: bool) -> list[tuple[Any, ...]]:
    """Deltas ``(start, end, weight, k, n)`` as rows ``(op, start, end, k, n)``."""
    names = (LE, RE, WEIGHT, "k", "n")
    table = pa.table({n: pa.array([m[i] for m in deltas]) for i, n in enumerate(names)})
    return [
        tuple(r[n] for n in ("op", "start", "end", "k", "n")) for r in upsert_rows(table, key, **arguments).to_pylist()
    ]


def test_a_key_has_the_last_state() -> None:
    deltas = [
        *((0, 10, -1, "a", 1), (0, 10, 1, "a", 2)),
        *((0, 10, -1, "b", 7), (20, INFINITY, 1, "b", 7)),
        *((5, 9, 1, "c", 1), (5, 9, -1, "c", 1)),
        *((0, 10, -1, None, 1), (0, 8, 1, None, 1)),
    ]
    assert upserts(*deltas) == [
        ("upsert", 0, 10, "a", 2),
        ("upsert", 0, 8, None, 1),
        ("delete", 0, None, "b", None),
        ("upsert", 20, None, "b", 7),
    ]
    with pytest.raises(RuntimeError, match="upsert: two rows of one key and start"):
        upserts((0, 10, 1, "a", 1), (0, 10, 1, "a", 2))


def test_a_row_that_was_there_stands_before_what_replaces_it() -> None:
    deltas = [
        *((0, 10, -1, "a", 1), (5, 15, 1, "a", 2)),
        *((7, 9, -1, "b", 7), (3, 4, 1, "c", 1)),
        *((0, 10, -1, None, 1), (0, 8, 1, None, 1)),
        *((1, 2, -1, "d", 1), (1, 2, 1, "d", 1)),
    ]
    assert upserts(*deltas, by_start=False, preimages=True) == [
        ("preimage", 0, 10, None, 1),
        ("upsert", 0, 8, None, 1),
        ("upsert", 3, 4, "c", 1),
        ("preimage", 0, 10, "a", 1),
        ("upsert", 5, 15, "a", 2),
        ("preimage", 7, 9, "b", 7),
        ("delete", None, None, "b", None),
    ]
    assert upserts(*deltas, by_start=True, preimages=True) == [
        ("preimage", 0, 10, None, 1),
        ("upsert", 0, 8, None, 1),
        ("preimage", 0, 10, "a", 1),
        ("delete", 0, None, "a", None),
        ("upsert", 3, 4, "c", 1),
        ("upsert", 5, 15, "a", 2),
        ("preimage", 7, 9, "b", 7),
        ("delete", 7, None, "b", None),
    ]


@sq.udo("n bigint", properties=[sq.one_output_per_group])
def one_row(v: Any) -> list[int]:
    return [len(v)]


@sq.udo("n bigint", time_sensitive=True, properties=[sq.one_output_per_group])
def one_timed_row(events: Any, window: Any) -> list[int]:
    return [len(events)]


@sq.udo("n bigint")
def any_rows(v: Any) -> Any:
    return [len(v)]


WINDOWS = sq.events([(1, 2, {"k": "a", "v": 1})], name="s").group_by("k").tumbling_window(5)


@pytest.mark.parametrize("operator", [one_row, one_timed_row])
def test_an_operator_that_promises_one_row_a_window_has_the_key_of_its_aggregate(operator: Any) -> None:
    windows = sq.events([(1, 2, {"k": "a", "v": 1})], name="s").group_by("k").tumbling_window(5, stamp="align")
    query = windows.select(operator("v")).select("n", key=sq.col("k"))
    assert choose_egress(query.plan, OutputForm.UPSERT, verb="run").key == ("key", "start")


def test_other_operators_are_refused() -> None:
    refused = {
        "any_rows may give several rows a window. Declare properties=": WINDOWS.select(any_rows("v")),
        "rows of one_timed_row have lifetimes of their own. Say stamp='align'": WINDOWS.select(one_timed_row("v")),
        "found explode": WINDOWS.select(all=sq.collect("v")).explode("all"),
    }
    for wrong, query in refused.items():
        with pytest.raises(PlanError, match=wrong):
            choose_egress(query.plan, OutputForm.UPSERT, verb="run")
