"""Rows that are delivered more than once: what an id is, and what becomes of rows that repeat others."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.compiler.local import LocalRun
from streamq.errors import PlanError, StreamqError, TypeMismatch, UnknownColumn
from tests.judged import Row, answer
from tests.programs import compiled


def test_an_id_is_part_of_a_plan_only_where_it_is_given() -> None:
    df = t.table("t bigint, k string, v double", [])
    plain, named = sq.points(df, "t", name="s"), sq.points(df, "t", id="k", name="s")
    assert plain.plan.digest != named.plan.digest and not named.plan.traits.retracts
    assert "ids" not in plain.to_json() and '"ids": ["k"]' in named.to_json()
    for stream in (plain, named):
        assert sq.from_json(stream.to_json(), {"s": stream}).plan.digest == stream.plan.digest
    assert (plain.plan.detail(), named.plan.detail()) == ("s, time=t", "s, time=t, id=[k]")


@pytest.mark.parametrize(
    ("id", "error", "message"),
    [
        ("ks", UnknownColumn, "no column 'ks'; .* Did you mean 'k'"),
        ("t", PlanError, "column 't' is of the id and is consumed. Give it another id."),
        ("tags", TypeMismatch, "cannot group by column 'tags'; found map<string,string>"),
        ((), PlanError, 'no id. Name the column: id="trip_id"'),
    ],
)
@pytest.mark.parametrize("source", ["points", "signal"])
def test_what_is_no_id(source: str, id: Any, error: type[StreamqError], message: str) -> None:
    given = {"key": "k"} if source == "signal" else {}
    with pytest.raises(error, match=f"^{source}: {message}"):
        getattr(sq, source)(t.table("t bigint, k string, tags map<string,string>", []), "t", id=id, **given)


def test_the_id_of_a_physical_stream_is_a_column_of_its_payload_without_maps() -> None:
    kinds = "kind string, start bigint, end bigint, new_end bigint, tags map<string,string>"
    with pytest.raises(TypeMismatch, match="^physical: cannot match by column 'tags'"):
        sq.physical(t.table(kinds, []), id="tags")
    with pytest.raises(UnknownColumn, match="^physical: no column 'start'"):
        sq.physical(t.table(kinds, []), id="start")
    with pytest.raises(PlanError, match=r"^physical: id is the name of one column; found \['tags'\]"):
        sq.physical(t.table(kinds, []), id=["tags"])
    with pytest.raises(
        TypeMismatch, match="^physical: column 'kind' holds no kinds of rows; it is a int. A kind is 'insert'"
    ):
        sq.physical(t.table(kinds.replace("kind string", "kind int"), []))
    with pytest.raises(PlanError, match="^name: not a name for a source; found 5"):
        sq.physical(t.table(kinds, []), name=5)


KEYS = {
    "array": pa.array([[1.5, float("nan")], [0.0], [], None] * 2),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": 2, "b": ""}, None] * 2),
    "deep": pa.array([[{"a": [1]}], [{"a": []}], [], None] * 2),
}


@pytest.mark.parametrize(
    "kind", [pytest.param("array", marks=pytest.mark.slow), "struct", pytest.param("deep", marks=pytest.mark.slow)]
)
def test_keys_and_ids_that_are_arrays_and_structs(kind: str) -> None:
    """Wherever rows are grouped, matched, ordered or told apart."""
    table = pa.table({"at": range(8), "what": ["start"] * 4 + ["end"] * 4, "k": KEYS[kind], "v": range(8)})
    points = table.drop_columns("what")
    s = sq.points(points, time="at").set_duration(6)
    other = s.select(k=sq.col("k"), w=sq.col("v") * 10)
    tasks = sq.edges(table, time="at", edge="what", key="k")
    assert len(answer(tasks)) == 4
    assert len(answer(sq.points(pa.concat_tables([points, points]), time="at", id="k"))) == 8
    assert len(answer(sq.signal(points, time="at", key="k"))) == 8
    assert len(answer(s.distinct_ids(9, id="k"))) == 4
    assert len(answer(s.group_by("k").tumbling_window(20).select(n=sq.count()))) == 4
    assert len(answer(s.group_by("k").session_window(9).top_k(1, by="v", ties="break"))) == 4
    assert answer(s.tumbling_window(20).select(n=sq.count_distinct("k"))) == [(0, 20, 3)]
    assert len(answer(s.join(other, on="k"))) == 12
    assert len(answer(s.left_anti_join(other, on="k"))) == 2
    assert len(answer(s.windowed_join(other, on="k", size=20))) == 12
    assert len(answer(s.clip(other, on="k"))) == 8
    assert len(answer(s.join_table(points.select(["k"]).slice(0, 4), on="k"))) == 6
    assert len(answer(s.except_(s.shift(0)))) == 0
    assert len(answer(s.rows_window(2, order_by="k").select(n=sq.sum("v")))) == 7


# columns beside the events

SENT = {
    "kind": ["insert", "insert", "insert", "retract", "retract"],
    "start": [1, 1, 4, 4, 4],
    "end": pa.array([9, 9, 9, 9, 9], pa.int64()),
    "new_end": pa.array([None, None, None, 6, 6], pa.int64()),
    "no": [7, 7, 8, 8, 8],
    "offset": [1, 2, 3, 4, 5],
    "at.partition": ["p", "q", "p", "p", "p"],
}
ASIDE = ["offset", "at.partition"]


READ: dict[str, tuple[list[str], dict[str, str]]] = {
    "points": (["start"], {"id": "no"}),
    "intervals": (["start", "end"], {"id": "no"}),
    "signal": (["start"], {"key": "no", "id": "no"}),
    "edges": (["end"], {"edge": "kind", "key": "no", "open": "insert", "close": "retract"}),
    "physical": ([], {"id": "no"}),
}
"""Of each kind of source its columns of times, and its other columns."""


def sent(kind: str, table: pa.Table, **options: Any) -> sq.Stream:
    """A source of that kind over the columns of SENT that it takes; its rows come several times, at other offsets."""
    times, others = READ[kind]
    if kind == "physical":
        return sq.physical(table, **others, **options)
    inserts = table if kind == "edges" else table.filter(pa.compute.equal(table["kind"], "insert"))
    taken = dict.fromkeys([*times, *(name for name in others.values() if name in SENT), "no", *ASIDE])
    return getattr(sq, kind)(inserts.select([*taken]), *times, **others, **options)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("kind", "lives"),
    [
        ("points", [(1, 2, 7), (4, 5, 8)]),
        ("intervals", [(1, 9, 7), (4, 9, 8)]),
        ("signal", [(1, None, 7), (4, None, 8)]),
        ("physical", [(1, 9, 7), (4, 6, 8)]),
    ],
)
def test_rows_that_differ_beside_the_events_alone_are_equal(kind: str, lives: list[Row]) -> None:
    """At once, and delivered again in a later micro-batch; the late output shows the columns, of which progress reads one."""
    table = pa.table(SENT)
    assert answer(sent(kind, table, beside=ASIDE)) == lives
    with pytest.raises(StreamqError, match="differ|two events of one id"):
        sent(kind, table).to_arrow()
    query = sent(kind, table, beside=ASIDE, name="s", progress=sq.generate(per="at.partition"))
    run = LocalRun(compiled(query.plan, "final", buckets=2, late_output=True))
    wanted = query.tables["s"]
    for n in range(wanted.num_rows):
        run.batch({"s": wanted.slice(n, 1)})
    run.finish()
    set_aside = [row for late in run.late for row in late.to_pylist()]
    first, again = set_aside[0], {json.loads(row["payload"])["offset"] for row in set_aside}
    assert again == ({2, 5} if kind == "physical" else {2})
    assert json.loads(first["payload"]) == {"no": 7, "offset": 2, "at.partition": "q"}


def test_columns_beside_the_events_are_no_payload() -> None:
    query = sent("edges", pa.table(SENT).slice(1), beside=ASIDE, name="s")
    assert query.columns == ["no"]
    assert "beside=[offset, at.partition]" in query.plan.detail()
    again = sq.from_json(query.to_json(), query.tables)
    assert again.plan == query.plan
    with pytest.raises(
        UnknownColumn, match="'offset'.*: it is beside the events, at hand for per= and the late output"
    ):
        query.where(sq.col("offset") > 1)
    for beside, message in (
        ("no", "edges: column 'no' makes the events, so it cannot be beside them"),
        (["offset", "offset"], "edges: column 'offset' is in beside twice"),
    ):
        with pytest.raises(PlanError, match=message):
            sent("edges", pa.table(SENT), beside=beside)
    with pytest.raises(UnknownColumn, match="edges: no column 'zone'"):
        sent("edges", pa.table(SENT), beside="zone")
    with pytest.raises(PlanError, match="edges: column 'end' is in order_by and is consumed"):
        sent("edges", pa.table(SENT), order_by="end")
