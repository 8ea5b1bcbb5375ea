"""Sources: what signal and changes are made of, Arrow tables, what is wrong with a table, told where the user wrote it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import types as t

import streamq as sq
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
from streamq.operators.source_arguments import SourcePolicy
from streamq.plan.spark_types import parse_type
from streamq.progress_policies import GeneratedCtis
from tests.judged import answer


@dataclass(frozen=True)
class Columns:
    """As much of a DataFrame as is looked at before Spark is needed: its columns."""

    schema: t.StructType
    isStreaming: bool = False

    def select(self, *columns: Any) -> Columns:
        raise NotImplementedError


def columns(**kinds: Any) -> Columns:
    return Columns(t.StructType([t.StructField(name, parse_type(kind)) for name, kind in kinds.items()]))


TABLE = {"t": "bigint", "op": "string", "k": "string", "v": "double", "tags": t.MapType(t.StringType(), t.StringType())}


def test_signal_is_points_made_a_signal_and_its_policy_is_the_sources() -> None:
    df = columns(t="bigint", k="string", v="double")
    policy = {"progress": sq.generate(5), "late": "fail", "invalid": "drop"}
    signal = sq.signal(df, "t", "k", name="s", **policy)
    assert signal.plan.digest == sq.points(df, "t", name="s", **policy).to_signal("k").plan.digest
    assert signal.plan.input.policy == SourcePolicy(progress=GeneratedCtis(5), late="fail", invalid="drop")


@pytest.mark.parametrize(
    ("source", "arguments", "error", "message"),
    [
        ("signal", {"time": "at"}, UnknownColumn, "no column 'at'; there are: t, op, k, v, tags"),
        ("signal", {"time": "v"}, TypeMismatch, "column 'v' is no time; found double"),
        ("signal", {"key": ["k", "ks"]}, UnknownColumn, "no column 'ks'; .* Did you mean 'k'"),
        ("signal", {"key": "tags"}, TypeMismatch, "cannot group by column 'tags'; found map<string,string>"),
        ("signal", {"key": "t"}, PlanError, "column 't' is of the key and is consumed"),
        ("signal", {"late": "maybe"}, PlanError, "late is 'drop', 'adjust' or 'fail'; found 'maybe'"),
        ("changes", {"time": "op"}, TypeMismatch, "column 'op' is no time; found string"),
        ("changes", {"op": "change"}, UnknownColumn, "no column 'change'; there are: t, op, k, v, tags"),
        ("changes", {"op": "v"}, TypeMismatch, "column 'v' holds no operations; found double. They are strings: c, r"),
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
    for rows, error in (
        ([], "found list. Give a DataFrame of Spark, pandas or Polars, or an Arrow table"),
        (pl.LazyFrame({"t": [1], "k": ["a"]}), r"found polars LazyFrame. Compute it first: frame.collect\(\)."),
        (pl.Series([1]), None),
        (pd.DataFrame({"t": [1], "k": ["a"], "o": [object()]}), None),
    ):
        wrong = "not a DataFrame; " + error if error else f"no table of the {type(rows).__module__.split('.')[0]} "
        with pytest.raises(SourceError, match=f"^signal: {wrong}"):
            sq.signal(rows, "t", "k")
    mixed = pd.DataFrame({"t": [1, 2], "k": ["a", 1]})
    with pytest.raises(SourceError, match=r"^signal: no table of the pandas DataFrame; .* column k with type object"):
        sq.signal(mixed, "t", "k")
    with pytest.raises(AmbiguousColumn, match="^signal: column 't' twice in the pandas frame"):
        sq.signal(pd.DataFrame([[1, 2, 3]], columns=["t", "k", "t"]), "t", "k")


# in-process, over Arrow tables


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


@pytest.mark.parametrize("op", ["x", None])
def test_an_unknown_operation_is_no_event(op: str | None) -> None:
    table = LOG.set_column(1, "op", pa.array(["c", op, *LOG["op"].to_pylist()[2:]], pa.string()))
    shown = "NULL" if op is None else f"'{op}'"
    with pytest.raises(
        InvalidEvent, match=f"source changes\\d+: .*: unknown op {shown}, known are c, r, u, insert, .* -u "
    ):
        sq.changes(table, "op", "at", "id").to_arrow()
    rows = lived(sq.changes(table, "op", "at", "id", invalid="drop"))
    assert rows == [(1, 5, 1, 5), (2, 3, 2, 9), (3, None, 2, 8)]


def lived(stream: sq.Stream) -> list[tuple[Any, ...]]:
    return [tuple(row[n] for n in ("start", "end", *stream.columns)) for row in stream.to_arrow().to_pylist()]


NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("times", "kind", "start"),
    [
        ([NOON], pa.timestamp("us", "UTC"), NOON),
        ([NOON], pa.timestamp("s", "Europe/Berlin"), NOON),
        ([NOON.replace(tzinfo=None)], pa.timestamp("ms"), NOON),
        ([NOON.date()], pa.date32(), NOON.replace(hour=0)),
        ([-2_000], pa.timestamp("ns", "UTC"), dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - dt.timedelta(microseconds=2)),
        ([7], pa.int16(), 7),
    ],
    ids=str,
)
def test_times_of_every_arrow_type(times: list[Any], kind: pa.DataType, start: Any) -> None:
    points = sq.points(pa.table({"t": pa.array(times, kind), "v": [1]}), "t")
    assert [row[0] for row in lived(points)] == [start]


def test_columns_of_other_arrow_types_are_taken_as_sparks() -> None:
    table = pa.table(
        {
            "t": [1],
            "word": pa.array(["a"], pa.dictionary(pa.int32(), pa.large_string())),
            "list": pa.array([[1]], pa.large_list(pa.int16())),
            "at": pa.array([1_000], pa.timestamp("ns")),
        }
    )
    points = sq.points(table, "t", name="p")
    assert points.schema.describe() == "word string, list array<smallint>, at timestamp_ntz; point on integer"
    assert points.tables["p"].schema.types == [pa.int64(), pa.string(), pa.list_(pa.int16()), pa.timestamp("us")]
    assert lived(points) == [(1, 2, "a", [1], dt.datetime(1970, 1, 1, microsecond=1))]


def test_the_same_table_twice_is_one_source() -> None:
    table = pa.table({"t": [1, 4], "v": [1, 2]})
    one, two = (sq.points(table, "t", name="p") for _ in range(2))
    assert answer(one.union(two.where(sq.col("v") > 1))) == [(1, 2, 1), (4, 5, 2), (4, 5, 2)]


MONTHS = pa.month_day_nano_interval()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table([[1], [2]], ["t", "T"]), "column 't' twice in the table; there are: t, T. Rename one"),
        (
            pa.table({"t": [1], "v": [None]}),
            "column 'v' has no type; all its values are NULL. Cast it, as table.column",
        ),
        (
            pa.table({"t": [1], "v": pa.array([None], MONTHS)}),
            "column 'v' is of a type .*; found month_day_nano_interval",
        ),
        (
            pa.table({"t": pa.array([2**60], pa.timestamp("s", "UTC"))}),
            r"column 't' does not fit timestamp\[us, tz=UTC\]; ",
        ),
    ],
    ids=["twice", "null", "months", "far"],
)
def test_arrow_tables_that_cannot_be_taken(table: pa.Table, message: str) -> None:
    with pytest.raises(StreamqError, match=f"^points: {message}"):
        sq.points(table, "t")
    with pytest.raises(StreamqError, match=f"^join_table: {message}"):
        sq.events([(1, 2, {"t": 1})]).join_table(table, on="t")


def test_starts_at_the_ends_of_time_are_no_events() -> None:
    """-2^63 means "nothing yet" inside and 2^63 - 1 "never"; ``host_cases.py`` has every kind of source there."""
    for instant, why in ((-(2**63), r"at -2\^63, before the first instant"), (2**63 - 1, "too late to last a tick")):
        with pytest.raises(InvalidEvent, match=f"points1: a row is no event: a start {why}"):
            sq.points(pa.table({"at": [instant]}), time="at").to_arrow()


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
        PlanError,
        match=r"points: the index of a pandas frame, without a name.* The frame itself, instead of an Arrow table",
    ):
        sq.points(pa.Table.from_pandas(late), time="at")
    assert answer(sq.points(late, time="at")) == [(2, 3, 2), (3, 4, 3)]
    assert sq.points(late.rename_axis("row"), time="at").columns == ["v", "row"]
    assert sq.points(pa.Table.from_pandas(late), time="__index_level_0__").columns == ["at", "v"]


def test_the_number_of_a_micro_batch_is_no_payload() -> None:
    """A folder that a run has written beside a late sink tells it as a column."""
    items = pa.table({"kind": ["insert", "retract"], "start": [1, 1], "end": [9, 9], "new_end": [None, 4], "v": [7, 7]})
    assert answer(sq.physical(items.append_column("streamq_batch", pa.array([0, 1])))) == [(1, 4, 7)]
    with pytest.raises(PlanError, match="select: a payload column called 'streamq_batch'"):
        sq.points(pa.table({"at": [1], "v": [2]}), time="at").select(streamq_batch=sq.col("v"))
