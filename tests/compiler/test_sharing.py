"""A kernel shares the stage of another if its rows stay in their bucket, and Arrow computes the steps between as Spark does."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

import streamq as sq
from streamq.compiler.options import Placement
from streamq.compiler.rewriter import rewrite
from streamq.compiler.staged_plan import StagedPlan
from streamq.operators.step import is_exact
from streamq.plan.expr import as_expr
from streamq.plan.node import number_sources
from streamq.plan.schema import Field, Schema
from streamq.runtime.hosts.hosted_kernel import InnerPath, RenamedColumns
from tests.each import each
from tests.programs import compiled

C = sq.col
COLUMNS = "k string, j string, n bigint, x double"


def stream(name: str = "s", columns: str = COLUMNS, **policy: Any) -> sq.Stream:
    return sq.intervals(table(f"start bigint, end bigint, {columns}"), "start", "end", name=name, **policy)


def points(name: str, columns: str = COLUMNS, **how: Any) -> sq.Stream:
    return sq.points(table(f"at bigint, {columns}"), "at", name=name, **how)


def table(columns: str) -> Any:
    kinds = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "double": pa.float64()}
    return pa.table({name: pa.array([], kinds[kind]) for name, kind in (c.split() for c in columns.split(", "))})


S = stream()
SUMS = S.group_by("k").tumbling_window(10).select(n=sq.sum("n"))
SESSIONS = points("p").group_by("k", "j").session_window(4).select(n=sq.count(), x=sq.max("x"))


def sessions(s: sq.Stream) -> sq.Stream:
    return s.group_by("k").session_window(2).select(n=sq.count())


def again(s: sq.Stream, *keys: str) -> sq.Stream:
    return s.group_by(*keys or ("k",)).tumbling_window(20).select(n=sq.sum("n"))


def program_of(query: sq.Stream, **options: Any) -> StagedPlan:
    return compiled(rewrite(number_sources(query.plan)[0]).plan, **options)


def sizes(program: StagedPlan) -> list[int]:
    """The number of kernels of each stage."""
    return [len(stage.hosted) for stage in program.stages]


T = points("t")

SHARED = {
    "windows on windows": again(again(SUMS)),
    "another name for the key": SUMS.select(key=C("k"), n=C("n"))
    .group_by("key")
    .snapshot_window()
    .select(n=sq.max("n")),
    "steps between": again(SUMS.where((C("n") > 3) & C("k").is_not_null()).shift(2).select("k", n=C("n") * 2 + 1)),
    "a case, on durations": again(SUMS.extend(3).to_points().with_columns(n=sq.when(C("n") == 3, 4).otherwise(5))),
    "two keys": again(SESSIONS, "k", "j"),
    "no key": S.tumbling_window(4).select(n=sq.count()).snapshot_window().select(n=sq.max("n")),
    "pairs of a window's rows": SUMS.join(SUMS.shift(10), on="k", suffixes=("", "_r")),
    "a window and a source": SUMS.join(T, on="k", suffixes=("", "_r")),
    "a join's key": again(points("p").join(T, on="k", suffixes=("", "_r"))),
    "an anti join's key": again(points("p").left_anti_join(T, on="k")),
    "a clipped event's key": sessions(points("p").clip(T, on="k")),
    "a sample's key": S.to_signal(key="k").group_by("k").snapshot_window().select(n=sq.sum("n")),
    "the best rows": SUMS.group_by("k")
    .snapshot_window()
    .top_k(1, by="n")
    .group_by("k")
    .session_window(2)
    .select(m=sq.count()),
    "an id": sessions(points("p", id="k")),
    "an alert over a moving average": T.join(
        T.group_by("k").hopping_window(60, 1).select(m=sq.avg("x")), on="k", suffixes=("", "_r")
    ).where(C("x") > C("m") * 2),
    "an as-of join with a tolerance": points("p").join(T.set_duration(10).clip(T, on="k"), on="k", suffixes=("", "_r")),
    "what waits until it is final": points("p").join(T.to_signal(key="k"), on="k", suffixes=("", "_r")).select("n"),
    "rows cut one by one": again(SUMS.to_points().shift(1).chop(5)),
    "a quotient": again(SUMS.where(C("n") / 2 > 1)),
    "floats are added": again(SESSIONS.where(C("x") + 1 > 2), "k", "j"),
    "a median over windows that end": SUMS.group_by("k").tumbling_window(20).select(n=sq.median("n")),
}


@each(SHARED.items())
def test_kernels_on_the_same_groups_share_a_stage(case: tuple[str, sq.Stream]) -> None:
    program = program_of(case[1])
    kernels = sum(sizes(program))
    assert kernels > 1 and sizes(program) == [kernels]
    lines = [line for title in program.titles.values() for line in title]
    assert not any(line.startswith("not in the stage") for line in lines)


@sq.udf("bigint")
def doubled(v: int) -> int:
    return 2 * v


APART = {
    "other keys": (again(SESSIONS, "k"), "rows are spread by k here, by k, j there"),
    "keys in another order": (again(SESSIONS, "j", "k"), "rows are spread by j, k here, by k, j there"),
    "a key on rows of one bucket": (
        again(S.tumbling_window(4).select(k=sq.max("k"), n=sq.count())),
        "rows are spread by k here, by no key there",
    ),
    "one bucket on rows with a key": (
        SUMS.snapshot_window().select(n=sq.max("n")),
        "rows are spread by no key here, by k there",
    ),
    "a key that is computed": (
        again(SUMS.select("n", k=sq.when(C("n") > 2, C("k")))),
        "rows are spread by k here, by k",
    ),
    "a column that takes the key's name": (again(SESSIONS.select("n", k=C("j")), "k"), "rows are spread by k here"),
    "a key of another type": (
        again(points("b", "k int, n bigint").join(points("c", "k bigint, m bigint"), on="k", suffixes=("", "_r"))),
        "the rows there are not spread by groups",
    ),
    "windows of events without an end": (again(S.to_signal(key="k")), "each bucket hears the endpoints in all others"),
    "a function of the user's": (again(SUMS.with_columns(n=doubled("n"))), "Spark computes select"),
    "a cast": (again(SUMS.with_columns(n=C("n").cast("int"))), "Spark computes select"),
    "a source read by other keys": (
        T.join(T.group_by("j").session_window(2).select(n=sq.count()), on="j", suffixes=("", "_r")).left_anti_join(
            T, on="k"
        ),
        "the rows there are not spread by groups",
    ),
    "a source read by a float": (
        T.left_anti_join(T.set_duration(3), on="x"),
        "the rows there are not spread by groups",
    ),
    "a decimal": (again(SUMS.where(C("n") > Decimal("1.5"))), "Spark computes where"),
    "a length that is computed": (
        sessions(SUMS.set_duration(C("n").cast("decimal(20, 2)").cast("bigint"))),
        "Spark computes alter_lifetime",
    ),
    "arguments that are computed": (
        SUMS.group_by("k").tumbling_window(20).select(n=sq.sum(C("n").cast("decimal(20, 2)"))),
        "Spark computes the arguments",
    ),
}


@each(APART.items())
def test_kernels_whose_rows_may_move_or_that_spark_must_feed_do_not(case: tuple[str, tuple[sq.Stream, str]]) -> None:
    query, why = case[1]
    program = program_of(query)
    assert len(sizes(program)) > 1
    lines = [line for title in program.titles.values() for line in title]
    assert any(line.startswith("not in the stage of (") and f"because {why}" in line for line in lines), lines


def test_a_kernel_comes_behind_the_last_of_its_inputs() -> None:
    """A pair of rows of one stage and the next is in the next one, to which the others' rows are sent."""
    other = again(SESSIONS, "k")
    program = program_of(SUMS.join(other, on="k", suffixes=("", "_r")))
    assert sizes(program) == [2, 2]
    (join,) = [hosted for hosted in program.stages[1].hosted if hosted.name.startswith("inner")]
    assert sorted(channel.inner is None for channel in join.channels) == [False, True]
    lines = [line for title in program.titles.values() for line in title]
    assert any("because another input is there only now" in line for line in lines)


def test_a_kernel_sends_what_others_read_outside_its_stage() -> None:
    program = program_of(SUMS.select("n").union(again(SUMS).select("n")))
    assert [hosted.sends for hosted in program.stages[0].hosted] == [True, True]
    program = program_of(again(SUMS))
    assert [hosted.sends for hosted in program.stages[0].hosted] == [False, True]
    assert [relation.number for relation in program.made_at(1)] == [1]


def test_a_result_with_ctis_has_a_stage_of_one_bucket_behind() -> None:
    program = program_of(again(SUMS), ctis=True)
    assert sizes(program) == [2, 1] and program.buckets(1, 2) == 1


def test_kernels_stay_in_the_stages_that_have_their_state() -> None:
    """A checkpoint from before kernels shared stages, or of a query in which they could not."""
    query = again(SUMS)
    names = [hosted.name for stage in program_of(query).stages for hosted in stage.hosted]
    placement = Placement(by_name={name: place for place, name in enumerate(names)}, stages=2, sources=("s",))
    program = program_of(query, placement=placement)
    assert sizes(program) == [1, 1]
    assert program.stages[0].hosted[0].sends and program.stages[1].hosted[0].channels[0].inner is None
    assert any("because its state is in this one" in line for line in program.titles[names[1]])


def test_plain_columns_need_no_evaluator_of_expressions() -> None:
    ((channel,),) = program_of(again(SUMS)).stages[0].inner_channels.values()
    assert isinstance(channel.inner, InnerPath)
    assert {type(step) for step in channel.inner.steps} == {RenamedColumns}


ROW = Schema(
    tuple(
        Field(name, kind)
        for name, kind in (
            ("i", t.IntegerType()), ("n", t.LongType()), ("x", t.DoubleType()), ("d", t.DecimalType(5, 2)),
            ("s", t.StringType()), ("b", t.BooleanType()),
        )
    ),
    "integer",
)  # fmt: skip
EXACT = [
    C("x"), C("n") + C("i"), C("n") * 2 - 1, C("n") == C("i"), C("x") < C("x"), C("s") >= "a", C("d") == C("d"),
    ~C("b") | (C("n") > 3) & C("x").is_null(), C("n").isin(1, 2), sq.functions.coalesce("n", sq.lit(0)), sq.start() < sq.end(),
    sq.when(C("b"), C("s")).otherwise("z"), C("n").eq_null_safe(3),
    sq.lit(1).cast("bigint"), C("i").cast("bigint"), C("n").cast("double"),
    C("x") + 1, C("x") * C("n"), C("n") / 2, C("x") % C("x"), C("n") % 2, C("n") == C("x"),
    sq.functions.coalesce("n", "x"),
]  # fmt: skip
NOT_EXACT = [
    C("d") * 2, C("d") / 2, C("x") + C("d"), -C("n"), C("n").cast("string"), C("n").cast("int"),
    C("x").cast("bigint"), C("d") < C("n"),
    sq.lit(dt.datetime(2026, 1, 1)), C("d") == Decimal("1.50"),
    sq.when(C("b"), C("n")).otherwise(1), sq.functions.upper("s"), doubled("n"),
]  # fmt: skip


@each(EXACT)
def test_an_expression_of_columns_integers_and_truth_values_is_exact(expr: Any) -> None:
    assert is_exact(as_expr(expr), ROW)


@each(NOT_EXACT)
def test_an_expression_that_rounds_casts_or_calls_others_is_not(expr: Any) -> None:
    assert not is_exact(as_expr(expr), ROW)
