"""signal and changes: what they are made of, and what is wrong with a table, told where the user wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema

import streamq as sq
from streamq.errors import AmbiguousColumn, PlanError, SourceError, StreamqError, TypeMismatch, UnknownColumn
from streamq.policies import SourcePolicy
from streamq.schema import SIGNAL, parse_type
from streamq.stream import Stream


@dataclass(frozen=True)
class Columns:
    """As much of a DataFrame as is looked at before Spark is needed: its columns."""

    schema: t.StructType
    isStreaming: bool = False

    def select(self, *columns: Any) -> Columns:
        raise NotImplementedError


def columns(**kinds: str) -> Columns:
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
    assert made.plan.input.policy == SourcePolicy(5, "fail", "drop")  # type: ignore[attr-defined]


TABLE = {"t": "bigint", "op": "string", "k": "string", "v": "double", "tags": "array<string>"}


@pytest.mark.parametrize(
    ("source", "arguments", "error", "message"),
    [
        ("signal", {"time": "at"}, UnknownColumn, "no column 'at'; there are: t, op, k, v, tags"),
        ("signal", {"time": "v"}, TypeMismatch, "column 'v' is no time; found double"),
        ("signal", {"key": ["k", "ks"]}, UnknownColumn, "no column 'ks'; .* Did you mean 'k'"),
        ("signal", {"key": "tags"}, TypeMismatch, "cannot group by column 'tags'; found array<string>"),
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


def test_literal_tables_are_no_dataframes() -> None:
    with pytest.raises(SourceError, match="signal: not a DataFrame; found pyarrow Table. .* use sq.events"):
        sq.signal(SAMPLES, "t", "k")
    with pytest.raises(SourceError, match="changes: not a DataFrame; found list"):
        sq.changes([], "op", "t", "k")  # type: ignore[arg-type]
