"""Sources: what signal and changes are made of, Arrow tables, what is wrong with a table, told where the user wrote it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from streamq.compiler.local import LocalRun
from streamq.errors import (
    AmbiguousColumn,
    InvalidEvent,
    PlanError,
    SourceError,
    StreamqError,
    TimeError,
    TypeMismatch,
    UnknownColumn,
)
from streamq.plan.schema import SIGNAL
from streamq.plan.spark_types import parse_type
from streamq.policies import SourcePolicy
from streamq.run.rehearsal import Rehearsal
from streamq.stream import Stream
from tests.judged import answer
from tests.programs import compiled


@dataclass(frozen=True)
class Columns:
    """As much of a DataFrame as is looked at before Spark is needed: its columns."""

    schema: t.StructType
    isStreaming: bool = False

    def select(self, *columns: Any) -> Columns:
        raise NotImplementedError


def columns(**kinds: Any) -> Columns:
    return Columns(t.StructType([t.StructField(name, parse_type(kind)) for name, kind in kinds.items()]))


def lifetimes(table: pa.Table, key: str | tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The lifetimes that ``sq.signal`` gives the rows of a table, in-process."""
    made = sq.signal(Columns(from_arrow_schema(table.schema)), time="t", key=key, name="samples")
    assert made.schema.shape == SIGNAL
    found = Stream(made.plan, {"samples": table}).to_arrow().to_pylist()
    return [(r["k"], r["v"], r["start"], r["end"]) for r in found]


# k     t  1    2    3    4    5    6
# a       |20            |21
# b            |7   |9             |8
#              |5
SAMPLES = pa.table({"t": [4, 1, 3, 2, 6, 2], "k": ["a", "a", "b", "b", "b", "b"], "v": [21, 20, 9, 7, 8, 5]})


def test_a_sample_lives_until_the_next_strictly_later_one_of_its_key() -> None:
    assert lifetimes(SAMPLES, "k") == [
        ("a", 20, 1, 4),
        ("b", 5, 2, 3),
        ("b", 7, 2, 3),
        ("b", 9, 3, 6),
        ("a", 21, 4, None),
        ("b", 8, 6, None),
    ]


def test_equal_values_stay_apart_and_null_is_a_key() -> None:
    table = pa.table({"t": [1, 3, 2], "k": pa.array([None, None, "a"]), "v": [5, 5, 5]})
    assert lifetimes(table, "k") == [(None, 5, 1, 3), ("a", 5, 2, None), (None, 5, 3, None)]


def test_no_key_makes_one_signal_and_several_columns_one_key() -> None:
    assert [end for *_, end in lifetimes(SAMPLES, ())] == [2, 3, 3, 4, 6, None]
    assert all(end is None for *_, end in lifetimes(SAMPLES, ("k", "v")))


def test_signal_is_points_made_a_signal_and_its_policy_is_the_sources() -> None:
    df = columns(t="bigint", k="string", v="double")
    policy = {"progress": sq.generate(5), "late": "fail", "invalid": "drop"}
    made = sq.signal(df, "t", "k", name="s", **policy)
    assert made.plan.digest == sq.points(df, "t", name="s", **policy).to_signal("k").plan.digest
    assert made.plan.input.policy == SourcePolicy(delay=5, late="fail", invalid="drop")  # type: ignore[attr-defined]


TABLE = {"t": "bigint", "op": "string", "k": "string", "v": "double", "tags": t.MapType(t.StringType(), t.StringType())}


@pytest.mark.parametrize(
    ("source", "arguments", "error", "message"),
    [
        ("signal", {"time": "at"}, UnknownColumn, "no column 'at'; there are: t, op, k, v, tags"),
        ("signal", {"time": "v"}, TypeMismatch, "column 'v' is no time; found double"),
        ("signal", {"key": ["k", "ks"]}, UnknownColumn, "no column 'ks'; .* Did you mean 'k'"),
        ("signal", {"key": "tags"}, TypeMismatch, "cannot group by column 'tags'; found map<string,string>"),
        ("signal", {"key": "t"}, PlanError, "column 't' is of the key and is consumed"),
        ("signal", {"late": "maybe"}, PlanError, "late is 'drop', 'adjust' or 'fail'; found 'maybe'"),
        ("changes", {"time": "at"}, UnknownColumn, "no column 'at'"),
        ("changes", {"time": "op"}, TypeMismatch, "column 'op' is no time; found string"),
        ("changes", {"op": "change"}, UnknownColumn, "no column 'change'; there are: t, op, k, v, tags"),
        ("changes", {"op": "v"}, TypeMismatch, "column 'v' holds no operations; found double. They are strings: c, r"),
        ("changes", {"key": "id"}, UnknownColumn, "no column 'id'"),
        ("changes", {"key": "tags"}, TypeMismatch, "cannot group by column 'tags'"),
        ("changes", {"key": ["k", "op"]}, PlanError, "column 'op' is of the key and is consumed"),
        ("changes", {"key": []}, PlanError, "no key. Name the columns that tell the table's rows apart"),
        ("changes", {"invalid": "adjust"}, PlanError, "invalid is 'drop' or 'fail'; found 'adjust'"),
    ],
)
def test_what_is_wrong_is_told_at_the_users_line(
    source: str, arguments: dict[str, Any], error: type[StreamqError], message: str
) -> None:
    given = {"time": "t", "key": "k"} | ({"op": "op"} if source == "changes" else {}) | arguments
    with pytest.raises(error, match=f"^{source}: {message}"):
        getattr(sq, source)(columns(**TABLE), **given)


@pytest.mark.parametrize("source", ["signal", "changes"])
def test_names_that_clash(source: str) -> None:
    given = {"time": "t", "key": "k"} | ({"op": "op"} if source == "changes" else {})
    with pytest.raises(PlanError, match=f"^{source}: a payload column called 'End'"):
        getattr(sq, source)(columns(**TABLE, End="bigint"), **given)
    with pytest.raises(AmbiguousColumn, match=f"^{source}: column 'k' twice in the DataFrame"):
        getattr(sq, source)(columns(**TABLE, K="bigint"), **given)
    with pytest.raises(PlanError, match="name: not a name for a source"):
        getattr(sq, source)(columns(**TABLE), **given, name="")


def test_what_is_no_table_is_told_what_to_do() -> None:
    frame = pd.DataFrame({"t": [1], "k": ["a"]})
    with pytest.raises(
        SourceError, match="^signal: not a DataFrame; found pandas DataFrame. Give pyarrow.Table.from_p"
    ):
        sq.signal(frame, "t", "k")
    with pytest.raises(SourceError, match="^changes: not a DataFrame; found list. Give a Spark .* or a pyarrow Table"):
        sq.changes([], "op", "t", "k")  # type: ignore[arg-type]
    assert sq.signal(pa.Table.from_pandas(frame), "t", "k").columns == ["k"]


# in-process, over Arrow tables


def test_points_and_intervals_of_arrow_tables() -> None:
    table = pa.table({"from": [4, 1], "to": [6, None], "k": ["a", "b"]})
    assert answer(sq.points(table, "from").drop("to")) == [(1, 2, "b"), (4, 5, "a")]
    assert answer(sq.intervals(table, "from", "to")) == [(1, None, "b"), (4, 6, "a")]


def test_edges_and_physical_of_arrow_tables() -> None:
    log = pa.table({"t": [1, 5, 3], "what": ["on", "off", "on"], "k": ["a", "a", "b"], "v": [1, 2, 3]})
    made = sq.edges(log, "t", edge="what", key="k", open="on", close="off", payload="end")
    assert answer(made) == [(1, 5, "a", 2), (3, None, "b", 3)]
    schema = pa.schema([("kind", pa.string()), *((n, pa.int64()) for n in ("start", "end", "new_end", "v"))])
    rows = [("insert", 1, None, None, 3), ("retract", 1, None, 10, 3), ("CTI", 20, None, None, None)]
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    assert lived(sq.physical(table)) == [(1, 10, 3)]


def test_a_signal_of_an_arrow_table() -> None:
    found = answer(sq.signal(SAMPLES, "t", "k"))
    assert [(k, v, start, end) for start, end, k, v in found] == lifetimes(SAMPLES, "k")


# id     at  1    2    3    4    5    6
# 1         |c 5      |u 6      |d
# 2              |R 9 |preimage 9, postimage 8
LOG = pa.table(
    {
        "at": [1, 3, 5, 2, 3, 3],
        "op": ["c", "U", "delete", "R", "update_preimage", "update_postimage"],
        "id": [1, 1, 1, 2, 2, 2],
        "price": [5, 6, None, 9, 9, 8],
    }
)


def test_changes_of_an_arrow_table() -> None:
    found = answer(sq.changes(LOG, "op", "at", "id"))
    assert found == [(1, 3, 1, 5), (2, 3, 2, 9), (3, 5, 1, 6), (3, None, 2, 8)]


@pytest.mark.parametrize("op", ["x", None])
def test_an_unknown_operation_is_no_event(op: str | None) -> None:
    table = LOG.set_column(1, "op", pa.array(["c", op, *LOG["op"].to_pylist()[2:]], pa.string()))
    with pytest.raises(InvalidEvent, match="neither a start nor an end"):
        sq.changes(table, "op", "at", "id").to_arrow()
    found = lived(sq.changes(table, "op", "at", "id", invalid="drop"))
    assert found == [(1, 5, 1, 5), (2, 3, 2, 9), (3, None, 2, 8)]


def lived(made: sq.Stream) -> list[tuple[Any, ...]]:
    return [tuple(row[n] for n in ("start", "end", *made.columns)) for row in made.to_arrow().to_pylist()]


NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("times", "kind", "start"),
    [
        ([NOON], pa.timestamp("us", "UTC"), NOON),
        ([NOON], pa.timestamp("s", "Europe/Berlin"), NOON),
        ([NOON.replace(tzinfo=None)], pa.timestamp("ms"), NOON),
        ([NOON.date()], pa.date32(), NOON.replace(hour=0)),
        ([-1_500], pa.timestamp("ns", "UTC"), dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - dt.timedelta(microseconds=2)),
        ([7], pa.int16(), 7),
    ],
    ids=str,
)
def test_times_of_every_arrow_type(times: list[Any], kind: pa.DataType, start: Any) -> None:
    made = sq.points(pa.table({"t": pa.array(times, kind), "v": [1]}), "t")
    assert [row[0] for row in lived(made)] == [start]


def test_columns_of_other_arrow_types_are_taken_as_sparks() -> None:
    table = pa.table(
        {
            "t": [1],
            "word": pa.array(["a"], pa.dictionary(pa.int32(), pa.large_string())),
            "list": pa.array([[1]], pa.large_list(pa.int16())),
            "at": pa.array([1_001], pa.timestamp("ns")),
        }
    )
    made = sq.points(table, "t", name="p")
    assert made.schema.describe() == "word string, list array<smallint>, at timestamp_ntz; point on integer"
    assert made.tables["p"].schema.types == [pa.int64(), pa.string(), pa.list_(pa.int16()), pa.timestamp("us")]
    assert lived(made) == [(1, 2, "a", [1], dt.datetime(1970, 1, 1, microsecond=1))]


def test_the_same_table_twice_is_one_source() -> None:
    table = pa.table({"t": [1, 4], "v": [1, 2]})
    one, two = (sq.points(table, "t", name="p") for _ in range(2))
    assert answer(one.union(two.where(sq.col("v") > 1))) == [(1, 2, 1), (4, 5, 2), (4, 5, 2)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table([[1], [2]], ["t", "T"]), "column 't' twice in the table; there are: t, T. Rename one"),
        (
            pa.table({"t": [1], "v": [None]}),
            "column 'v' has no type; all its values are NULL. Cast it, as table.column",
        ),
        (pa.table({"t": [1], "v": pa.array([1], pa.uint64())}), "column 'v' is of a type .*; found uint64. Cast it"),
        (
            pa.table({"t": pa.array([2**60], pa.timestamp("s", "UTC"))}),
            r"column 't' does not fit timestamp\[us, tz=UTC\]; ",
        ),
    ],
    ids=["twice", "null", "uint64", "far"],
)
def test_arrow_tables_that_cannot_be_taken(table: pa.Table, message: str) -> None:
    with pytest.raises(StreamqError, match=f"^points: {message}"):
        sq.points(table, "t")
    with pytest.raises(StreamqError, match=f"^join_table: {message}"):
        sq.events([(1, 2, {"t": 1})]).join_table(table, on="t")


def test_what_is_no_event_in_an_arrow_table() -> None:
    table = pa.table({"t": [1, None], "v": [1, 2]})
    with pytest.raises(InvalidEvent, match="null start"):
        sq.points(table, "t").show()
    assert lived(sq.points(table, "t", invalid="drop")) == [(1, 2, 1)]


# rows that are delivered more than once

STAYS = {"at": [1, 1, 2, 1, 4], "til": [6, 6, 5, 6, 6], "no": [7, 7, 7, 7, 8], "k": ["a", "a", "a", "a", "b"]}
LOGGED = {"at": [1, 1, 5, 5, 5], "op": ["start", "start", "end", "start", "end"], "k": ["a"] * 5, "v": [1, 1, 1, 2, 1]}
MOVES = {
    "kind": ["insert", "retract", "insert", "retract"],
    "start": [1] * 4,
    "end": [9, 9, 9, 9],
    "new_end": pa.array([None, 4, None, 4], pa.int64()),
    "no": [7] * 4,
}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            lambda: sq.points(pa.table(STAYS), "at", id="no").drop("til"),
            [(1, 2, 7, "a"), (2, 3, 7, "a"), (4, 5, 8, "b")],
        ),
        (lambda: sq.intervals(pa.table(STAYS), "at", "til", id="no"), [(1, 6, 7, "a"), (2, 5, 7, "a"), (4, 6, 8, "b")]),
        (
            lambda: sq.signal(pa.table(STAYS), "at", "k", id=["no", "k"]).drop("til"),
            [(1, 2, 7, "a"), (2, None, 7, "a"), (4, None, 8, "b")],
        ),
        (lambda: sq.edges(pa.table(LOGGED), "at", edge="op", key="k"), [(1, 5, "a", 1), (5, None, "a", 2)]),
        (
            lambda: sq.changes(pa.table({**LOGGED, "op": ["c", "C", "d", "u", "d"]}), "op", "at", "k"),
            [(1, 5, "a", 1), (5, None, "a", 2)],
        ),
        (lambda: sq.physical(pa.table(MOVES), id="no"), [(1, 4, 7)]),
    ],
    ids=["points", "intervals", "signal", "edges", "changes", "physical"],
)
def test_rows_delivered_more_than_once(source: Any, expected: list[tuple[Any, ...]]) -> None:
    """All at once, where rows that are no events fail; the oracle agrees."""
    assert answer(source()) == expected


@pytest.mark.parametrize("kind", ["points", "intervals", "signal"])
def test_ids_in_micro_batches(kind: str) -> None:
    """In one micro-batch, in a later one, and behind the CTI; nothing is held back, and nothing taken back."""
    empty = pa.table({"at": pa.array([], pa.int64()), "til": pa.array([], pa.int64()), "no": pa.array([], pa.int64())})
    progress = sq.generate(5)
    s = {
        "points": lambda: sq.points(empty, time="at", id="no", name="s", progress=progress).select("no"),
        "intervals": lambda: sq.intervals(empty, "at", "til", id="no", name="s", progress=progress),
        "signal": lambda: sq.signal(empty, "at", (), id="no", name="s", progress=progress).select("no"),
    }[kind]()

    def rows(*given: tuple[int, int]) -> dict[str, pa.Table]:
        times, numbers = zip(*given, strict=True)
        return {"s": pa.table({"at": times, "til": [at + 1 for at in times], "no": numbers})}

    run = LocalRun(compiled(s.plan, "final", buckets=2))
    parts = [rows((1, 7), (1, 7), (2, 8)), rows((2, 8), (4, 9)), rows((20, 10), (4, 9)), rows((1, 7), (21, 11))]
    out = [run.batch(part) for part in parts]
    if kind != "signal":
        assert [table.num_rows for table in out] == [2, 1, 1, 1], "final as it comes"
    out.append(run.finish())
    assert sorted(n for table in out for n in table.column("no").to_pylist()) == [7, 8, 9, 10, 11]
    counted = {key: n for found in run.totals.values() for key, n in found.items()}
    assert counted == {"s|duplicates": 3, "s|dropped": 1}


def test_an_id_is_part_of_a_plan_only_where_it_is_given() -> None:
    df = columns(t="bigint", k="string", v="double")
    plain, named = sq.points(df, "t", name="s"), sq.points(df, "t", id="k", name="s")
    assert plain.plan.digest != named.plan.digest and not named.plan.traits.retracts
    assert "ids" not in plain.to_json() and '"ids": ["k"]' in named.to_json()
    for made in (plain, named):
        assert sq.from_json(made.to_json(), {"s": made}).plan.digest == made.plan.digest
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
        getattr(sq, source)(columns(**TABLE), "t", id=id, **given)


def test_the_id_of_a_physical_stream_is_a_column_of_its_payload_without_maps() -> None:
    kinds = dict.fromkeys(("start", "end", "new_end"), "bigint") | {
        "kind": "string",
        "tags": t.MapType(t.StringType(), t.StringType()),
    }
    with pytest.raises(TypeMismatch, match="^physical: cannot match by column 'tags'"):
        sq.physical(columns(**kinds), id="tags")
    with pytest.raises(UnknownColumn, match="^physical: no column 'start'"):
        sq.physical(columns(**kinds), id="start")
    with pytest.raises(PlanError, match=r"^physical: id is the name of one column; found \['tags'\]"):
        sq.physical(columns(**kinds), id=["tags"])
    with pytest.raises(
        TypeMismatch, match="^physical: column 'kind' holds no kinds of rows; it is a int. A kind is 'insert'"
    ):
        sq.physical(columns(**kinds | {"kind": "int"}))
    with pytest.raises(PlanError, match="^name: not a name for a source; found 5"):
        sq.physical(columns(**kinds), name=5)


LAST = 2**63 - 1
ENDS = [-LAST - 1, -LAST, LAST - 2, LAST - 1, LAST]


def at_the_ends_of_time(instants: list[int], invalid: str) -> dict[str, Stream]:
    """Each instant as a start of every kind of source, a row a payload ``v``; an edge beside it, and an end and a CTI."""
    v = list(range(len(instants)))
    points = pa.table({"at": instants, "v": v})
    stays = pa.table({"a": instants, "b": pa.nulls(len(v), pa.int64()), "v": v})
    edges = pa.table({"at": instants, "what": ["start"] * len(v), "v": v})
    rows = pa.table({"kind": ["insert"] * len(v), "start": instants, "end": stays["b"], "new_end": stays["b"], "v": v})
    ctis = rows.set_column(0, "kind", pa.array(["cti"] * len(v))).slice(0, 1)
    return {
        "points": sq.points(points, time="at", invalid=invalid),
        "intervals": sq.intervals(stays, start="a", end="b", invalid=invalid),
        "edges": sq.edges(edges, time="at", edge="what", key="v", invalid=invalid),
        "physical": sq.physical(pa.concat_tables([ctis, rows]), invalid=invalid),
    }


@pytest.mark.parametrize("kind", ["points", "intervals", "edges", "physical"])
def test_starts_at_the_ends_of_time(kind: str) -> None:
    """-2^63 means "nothing yet" inside and 2^63 - 1 "never": no event starts there, and a point ends before "never"."""
    good = [-LAST, LAST - 2, *([] if kind == "points" else [LAST - 1])]
    found = answer(at_the_ends_of_time(ENDS, "drop")[kind])
    assert [(start, end) for start, end, _ in found] == [(t, t + 1 if kind == "points" else None) for t in good]
    for instant in set(ENDS) - set(good):
        why = r"a start at -2\^63, before the first instant" if instant < 0 else "a start too late to last a tick"
        with pytest.raises(InvalidEvent, match=f"{kind}1: a row is no event: {why}"):
            answer(at_the_ends_of_time([instant], "fail")[kind])


@pytest.mark.parametrize("kind", ["points", "intervals", "edges", "physical"])
def test_starts_at_the_ends_of_time_in_micro_batches(kind: str) -> None:
    query = at_the_ends_of_time(ENDS, "drop")[kind].shift(0)
    run = Rehearsal(query)
    rows = [run.arrive(**{f"{kind}1": 1}) for _ in range(len(ENDS) + (kind == "physical"))] + [run.finish()]
    assert sorted(pa.concat_tables(rows)["v"].to_pylist()) == [1, 2, *([] if kind == "points" else [3])]
    assert run.metrics["sources"][f"{kind}1"]["invalid"] == (3 if kind == "points" else 2)


def test_instants_and_integers_beyond_64_bits() -> None:
    for items in (
        [(2**63, None, {"v": 1})],
        [(-(2**70), 5, {"v": 1})],
        [sq.insert(1, 5, v=1), sq.retract(1, 5, 2**63, v=1)],
    ):
        with pytest.raises(SourceError, match="events: an instant beyond 64 bits; found"):
            sq.events(items)
    with pytest.raises(SourceError, match="events: column 'v' holds an integer beyond 64 bits. Give it a type"):
        sq.events([(1, 5, {"v": 2**63})])
    s = sq.events([(1, None, {"v": 1})])
    for until in (2**63 - 1, 2**70, -(2**63)):
        with pytest.raises(TimeError, match="until: an instant beyond the time axis; found"):
            s.chop(5).to_arrow(until=until)
        with pytest.raises(TimeError, match="landmark_window: an instant beyond the time axis; found"):
            s.landmark_window(5, start=until)


def test_the_index_of_a_filtered_frame() -> None:
    frame = pd.DataFrame({"at": [1, 2, 3], "v": [1, 2, 3]})
    late = frame[frame["at"] > 1]
    with pytest.raises(
        PlanError, match=r"points: the index of a pandas frame.*from_pandas\(df, preserve_index=False\)"
    ):
        sq.points(pa.Table.from_pandas(late), time="at")
    assert answer(sq.points(pa.Table.from_pandas(late, preserve_index=False), time="at")) == [(2, 3, 2), (3, 4, 3)]
    assert sq.points(pa.Table.from_pandas(late.rename_axis("row")), time="at").columns == ["v", "row"]
    assert sq.points(pa.Table.from_pandas(late), time="__index_level_0__").columns == ["at", "v"]


def test_the_number_of_a_micro_batch_is_no_payload() -> None:
    """A folder that a run has written beside a late sink tells it as a column."""
    items = pa.table({"kind": ["insert", "retract"], "start": [1, 1], "end": [9, 9], "new_end": [None, 4], "v": [7, 7]})
    assert answer(sq.physical(items.append_column("streamq_batch", pa.array([0, 1])))) == [(1, 4, 7)]
    with pytest.raises(PlanError, match="select: a payload column called 'streamq_batch'"):
        sq.points(pa.table({"at": [1], "v": [2]}), time="at").select(streamq_batch=sq.col("v"))


KEYS = {
    "array": pa.array([[1.5, float("nan")], [0.0], [], None] * 2),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": 2, "b": ""}, None] * 2),
    "deep": pa.array([[{"a": [1]}], [{"a": []}], [], None] * 2),
}


@pytest.mark.parametrize("kind", KEYS)
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
