"""The batch backend = the oracle, sampled: random queries over random histories, with every rule on, with none, with some."""

from __future__ import annotations

import datetime as dt
import operator
import random
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType

import streamq as sq
from streamq import testing as t
from streamq.choices import Anchor, LengthKind
from streamq.compiler import batch
from streamq.compiler.batch import lower_in_batch
from streamq.errors import InvalidEvent
from streamq.functions.logic import GREATEST
from streamq.operators import AlterLifetime, interval_join
from streamq.operators.alter_lifetime import Length, Start
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.operator import BatchForms, BatchRun
from streamq.plan.expr import Call, Col, Lit
from streamq.plan.footprint import NO_RATES
from streamq.plan.node import Node, nodes
from streamq.testing.backends import frame
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle
from streamq.time import INFINITY
from tests.drawn.queries import composition
from tests.operators.test_batch_forms import without_ends

QUERIES = composition(2, 5)
BATCH = t.Profile(examples=0, batch=1, streams=0, shrinking=120)


def test_random_queries_compiled(spark: SparkSession) -> None:
    t.verify(QUERIES, profile=BATCH)


def test_random_queries_interpreted(spark: SparkSession, plain: None) -> None:
    t.verify(QUERIES, profile=BATCH, seed=1)


def test_windows_of_lifetimes_without_an_end_go_as_far_as_time_has_come(spark: SparkSession) -> None:
    """What was taken back, what filters drop and CTIs count, moved as operators move progress."""
    physical = t.table(
        "kind string, start bigint, end bigint, new_end bigint, v int",
        [
            ("insert", 1, None, None, 1),
            ("insert", 27, 28, None, 9),
            ("retract", 27, 28, 27, 9),
            ("cti", 31, None, None, 0),
        ],
    )
    intervals = t.table("a bigint, b bigint, v int", [(1, None, 1), (22, 23, 9)])
    tables = {"s": physical, "i": intervals}
    frames = {name: frame(spark, table) for name, table in tables.items()}
    s, i = sq.physical(frames["s"], name="s"), sq.intervals(frames["i"], "a", "b", name="i")
    few = i.where(sq.col("v") < 5)
    queries = [
        s.alter_lifetime(sq.start() * 2).shift(-3).tumbling_window(10).select(n=sq.count()),
        s.union(few).group_by("v").landmark_window(10, start=0).select(n=sq.count()),
        few.chop(9).select(n=sq.col("v").cast("bigint")),
        s.windowed_join(few, size=10, suffixes=("", "_b")).select(n=sq.col("v").cast("bigint")),
    ]
    query = queries[0]
    for other in queries[1:]:
        query = query.union(other.select(n=sq.col("n").cast("bigint")))
    expected = oracle(query.plan, tables)
    assert expected.num_rows > 12
    assert_same_history(query.to_df().toArrow(), expected)


LEAST = -(2**63) + 1


def test_windows_at_the_ends_of_the_axis_are_cut_there(spark: SparkSession) -> None:
    schema = pa.schema([("from", pa.int64()), ("to", pa.int64()), ("k", pa.int64())])
    rows = [(LEAST, LEAST + 4, 1), (INFINITY - 5, INFINITY - 1, 2)]
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    frame = spark.createDataFrame(table.to_pylist(), from_arrow_schema(schema))
    s = sq.intervals(frame, start="from", end="to", name="s")
    windows = (
        *(s.hopping_window(10, hop) for hop in (10, 4)),
        *(s.tumbling_window(10, offset=offset, stamp="point_at_end") for offset in (3, 9)),
        s.sliding_window(10),
        s.session_window(10),
        s.landmark_window(4, start=3, period=10, stamp="align"),
    )
    lengths = (
        Length(LengthKind.FIXED, 3),
        Length(LengthKind.GIVEN, expr=Lit(None).cast("bigint")),
        Length(LengthKind.GIVEN, expr=Call(GREATEST, (Col("k"), Lit(2, LongType())))),
    )
    starts = [Start(anchor, by) for anchor in (Anchor.LE, Anchor.RE) for by in (-9, 0, 9)]
    moved = [s._derive(AlterLifetime(s.plan, start, length)) for start in starts for length in lengths]
    others = (s.shift(-9), s.extend(9), s.windowed_join(s.select(j=sq.lit("k")), size=7, hop=3), *moved)
    query = (
        s.chop(10, offset=4)
        .select(n=sq.col("k"))
        .union(*(o.select(n=sq.col("k")) for o in others), *(w.select(n=sq.count()) for w in windows))
    )
    found = query.to_df(until=INFINITY - 1).toArrow()
    assert_same_history(found, oracle(query.plan, {"s": table}, INFINITY - 1))
    # the distance of the first event from the landmark is no bigint
    early = t.table("from bigint, to bigint", [(LEAST, 100), (6, 9)])
    s = sq.intervals(spark.createDataFrame(early.to_pylist()), start="from", end="to", name="s")
    landmarks = s.landmark_window(10, start=5).select(n=sq.count())
    answer = landmarks.to_df(until=30).toArrow()
    assert answer.num_rows == 3
    assert_same_history(answer, oracle(landmarks.plan, {"s": early}, 30))


def test_a_chain_of_altered_lifetimes_is_planned_in_linear_time(spark: SparkSession) -> None:
    """Pushed below each other the steps' filters would be written out ten times as long at each: ten steps never came back."""
    table = t.table("start timestamp, end timestamp, v int", [(1_000_000 * n, 1_000_000 * n + 5, n) for n in range(3)])
    second = dt.timedelta(seconds=1)

    def chained(stays: sq.Stream) -> sq.Stream:
        for i in range(10):
            stays = (
                stays.extend(second) if i % 2 else stays.alter_lifetime(sq.start() + second, duration=sq.duration() * 2)
            )
        return stays

    found = chained(sq.intervals(frame(spark, table), start="start", end="end")).to_df().toArrow()
    t.assert_same_history(found, chained(sq.intervals(table, start="start", end="end")).to_arrow())


def test_points_that_meet_are_one_row_of_except(spark: SparkSession) -> None:
    """And are no points any more: what comes after it reads their ends."""
    tables = {"l": t.table("t bigint, v int", [(1, 7), (2, 7), (2, 7)]), "r": t.table("t bigint, v int", [(5, 7)])}
    left, right = (sq.points(frame(spark, table), "t", name=name) for name, table in tables.items())
    query = left.except_(right).snapshot_window().select(n=sq.count())
    expected = oracle(query.plan, tables)
    assert [(row["start"], row["end"], row["n"]) for row in expected.to_pylist()] == [(1, 2, 1), (2, 3, 2)]
    assert_same_history(query.to_df().toArrow(), expected)


def test_an_observer_sees_the_frames_of_every_node(spark: SparkSession) -> None:
    seen: dict[str, int] = {}

    class Counting:
        def rows_in(self, node: Node, port: int, rows: DataFrame) -> None:
            seen[f"into {node.title}"] = rows.count()

        def rows_out(self, node: Node, rows: DataFrame) -> None:
            seen[node.title] = rows.count()

    table = t.table("a bigint, b bigint, v int", [(1, 4, 1), (2, 9, 7), (3, 5, 9)])
    query = sq.intervals(frame(spark, table), "a", "b", name="s").where(sq.col("v") > 5).to_signal("v")
    lower_in_batch(query.plan, BatchRun({"s": query.tables["s"]}), Counting())
    assert seen == {"intervals": 3, "into where": 3, "where": 2, "into to_signal": 2, "to_signal": 2}


def test_files_are_read_for_the_columns_that_a_query_reads(spark: SparkSession, tmp_path: Path) -> None:
    """A row that is no event is shown with these; with ids all columns tell rows apart."""
    rows = t.table("at bigint, v int, w int, k string", [(1, 2, 3, "a"), (None, 7, 8, "b")])
    frame(spark, rows).coalesce(1).write.parquet(str(tmp_path / "in"))
    source = sq.points(spark.read.parquet(str(tmp_path / "in")), "at", name="s")
    query = source.where(sq.col("k") < "c").tumbling_window(5).select(total=sq.sum("v"))

    def columns_read(query: sq.Stream) -> str:
        plan = query.to_df()._jdf.queryExecution().executedPlan().toString()
        (read,) = set(re.findall(r"ReadSchema: struct<(.*?)>", plan))
        return str(read)

    assert columns_read(query) == "at:bigint,v:int,k:string"
    # of two readings each has the columns of both
    assert (
        columns_read(source.where(sq.col("k") < "c").select("v").union(source.select("v")))
        == "at:bigint,v:int,k:string"
    )
    assert columns_read(source.select("v").union(source.select(v=sq.col("w")).shift(3))) == "at:bigint,v:int,w:int"
    assert columns_read(source) == "at:bigint,v:int,w:int,k:string"
    with pytest.raises(InvalidEvent, match=r"null start \(start NULL\); first: {'v': 7, 'k': 'b'}\."):
        query.to_pandas()


def test_a_scan_takes_the_filters_of_starts_and_ends(spark: SparkSession, tmp_path: Path) -> None:
    """Columns of every kind of time become filters of files, or of folders, also below windows; a NULL start still fails."""
    hour = "timestamp'2024-01-01' + make_interval(0, 0, 0, 0, cast(id AS int))"
    columns = [f"{hour} AS at", f"{hour} + interval 5 hours AS till", f"cast({hour} AS timestamp_ntz) AS local"]
    columns += ["cast(id AS int) AS n", f"to_date({hour}) AS day"]
    hours = spark.range(96).selectExpr(*columns).unionAll(spark.sql("SELECT NULL, NULL, NULL, NULL, NULL"))
    hours.write.partitionBy("day").parquet(str(tmp_path / "in"))
    table = spark.read.parquet(str(tmp_path / "in"))
    noon = dt.datetime(2024, 1, 3, 12, tzinfo=dt.UTC)
    after, until = sq.start() >= noon, sq.start() < noon + dt.timedelta(hours=3)

    def points(time: str, invalid: str = "drop") -> sq.Stream:
        return sq.points(table, time=time, name=time, invalid=invalid)

    def filters(query: sq.Stream) -> str:
        plan = query.to_df()._jdf.queryExecution()
        text = spark.sparkContext._jvm.org.apache.spark.sql.api.python.PythonSQLUtils.explainString(plan, "formatted")
        return " ".join(re.findall(r"(?:PushedFilters|PartitionFilters): (.*)", text))

    spans = sq.intervals(table, start="at", end="till", name="spans", invalid="drop")
    counts = points("at").where(after & until).tumbling_window("1 hour").select(n=sq.count())
    for query, expected, count in (
        (counts, "LessThanOrEqual(at,2024-01-03 14:59:59.999999)", 3),
        (points("at").where(after).where(until), "GreaterThanOrEqual(at,2024-01-03 12:00:00.0)", 3),
        (spans.where(sq.end() <= noon), "LessThanOrEqual(till,2024-01-03 12:00:00.0)", 56),
        (points("local").where(after & until), "GreaterThanOrEqual(local,2024-01-03T12:00)", 3),
        (points("n").where(sq.start() >= 90), "GreaterThanOrEqual(n,90)", 6),
        (points("day").where(sq.start() > noon), ">= 2024-01-04)", 24),
    ):
        assert expected in filters(query)
        assert query.to_df().count() == count
    failing = points("at", invalid="fail").where(after)
    assert "Or(GreaterThanOrEqual(at,2024-01-03 12:00:00.0),IsNull(at))" in filters(failing)
    with pytest.raises(InvalidEvent):
        failing.to_pandas()


def test_filters_of_starts_and_ends_keep_what_they_ask_for(spark: SparkSession, plain: None) -> None:
    """Each comparison with a constant, in both orders, of starts and of ends, of which some are missing."""
    lives = t.table(
        "a bigint, b bigint, k string", [(1, 3, "a"), (2, None, "b"), (3, 5, "c"), (5, 9, "d"), (6, None, "e")]
    )
    source = sq.intervals(frame(spark, lives), "a", "b", name="lives")
    compare = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq)
    asked = [(one, part, swap) for one in compare for part in (sq.start(), sq.end()) for swap in (False, True)]
    conditions = [one(5, part) if swap else one(part, 5) for one, part, swap in asked]
    for is_met in conditions:
        # one by one: what several queries read is not narrowed
        query = source.where(is_met)
        assert_same_history(query.to_df().toArrow(), oracle(query.plan, {"lives": lives}))


def test_a_hint_and_expected_rows_choose_another_form_and_not_another_answer(spark: SparkSession) -> None:
    """Three kinds of windows are asked, and those that can take the form; ``test_merging.py`` compares the forms of merging."""
    points = t.table("at bigint, k bigint, v bigint", [(7 * i % 90, i % 3, i) for i in range(60)])
    lives = t.table("a bigint, b bigint, v bigint", [(i, i + 1 + i % 7, i) for i in range(0, 90, 2)])
    s = sq.points(frame(spark, points), "at", name="s").group_by("k")
    i = sq.intervals(frame(spark, lives), "a", "b", name="i")
    hopping = s.hopping_window(60, 10).select(n=sq.count(), m=sq.max("v"))
    others = (
        i.hopping_window(25, 10).select(n=sq.count(), m=sq.max("v")),
        i.snapshot_window().select(n=sq.count(), m=sq.sum("v")),
    )
    parts = [other.select("n", "m", k=sq.lit(7).cast("bigint")).select("k", "n", "m") for other in others]
    query = hopping.union(*parts)
    want = oracle(query.plan, {"s": points, "i": lives})
    for form in ("direct", "evaluated"):
        assert_same_history(query.to_df(form=form).toArrow(), want)
    sparse = sq.Expected(rows=100, every=10, distinct={"k": 1_000})
    answers = [
        hopping.to_df(),
        hopping.to_df(expected=sparse),
        hopping.to_df(form="direct"),
        hopping.to_df(form="evaluated"),
    ]
    assert [aggregations(answer) for answer in answers] == [2, 1, 1, 0]


@pytest.mark.parametrize("ties", ["keep", "break"])
def test_the_best_of_a_window_are_the_best_of_the_best(spark: SparkSession, ties: str) -> None:
    """In every form; of points on a grid of whole hops, and of lifetimes, in windows that consist of no basic windows."""
    points = t.table("at bigint, k bigint, v bigint", [(7 * i % 90, i % 3, i % 5) for i in range(90)])
    lives = t.table("a bigint, b bigint, k bigint, v bigint", [(i, i + 1 + i % 9, i % 2, i % 7) for i in range(60)])
    s = sq.points(frame(spark, points), "at", name="s").group_by("k").hopping_window(60, 10)
    i = sq.intervals(frame(spark, lives), "a", "b", name="i").group_by("k").hopping_window(25, 10, stamp="point_at_end")
    least, greatest = s.top_k(3, by="v", ties=ties, desc=False), i.top_k(2, by="v", ties=ties)
    for query, tables in ((least, {"s": points}), (greatest, {"i": lives})):
        want = oracle(query.plan, tables)
        for form in ("direct", "explode", "evaluated"):
            assert_same_history(query.to_df(form=form).toArrow(), want)


@pytest.mark.parametrize(("size", "hop"), [(60, 10), (25, 10)])
def test_a_bound_leaves_out_windows_and_no_events_of_the_others(spark: SparkSession, size: int, hop: int) -> None:
    """In every form: points after the bound are in windows that start before it, each in those of its own range."""
    points = t.table("at bigint, k bigint, v bigint", [(7 * i % 90, i % 3, i % 5) for i in range(90)])
    windows = sq.points(frame(spark, points), "at", name="s").group_by("k").hopping_window(size, hop)
    merged, best = windows.select(s=sq.sum("v"), n=sq.count()), windows.top_k(3, by="v")
    for until in (41, 50):
        for query, forms in ((merged, ("direct", "explode", "difference", "blocks", "dyadic")), (best, ("explode",))):
            want = oracle(query.plan, {"s": points}, until)
            for form in forms:
                assert_same_history(query.to_df(until, form=form).toArrow(), want)


def forms_of(node: Node) -> BatchForms | None:
    """The batch forms of an operator, if it has several."""
    return node.batch_forms(NO_RATES) if isinstance(node, EvaluatedOperator) else None


def aggregations(answer: DataFrame) -> int:
    """The number of aggregations in Spark's plan of a DataFrame."""
    return answer._jdf.queryExecution().optimizedPlan().toString().count("Aggregate [")


def test_what_keeps_events_answers_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    """Joins by what the plan knows of lifetimes, and windows that go by events; what is scanned: ``test_plans.py``."""
    rows = pa.table({"start": [1, 2, 4, 9], "end": [5, 9, None, 12], "k": ["x", "y", "x", None], "v": [1, 2, 3, 4]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    backends: list[dict[str, sq.Stream]] = []
    for table in (rows, spark.read.parquet(str(tmp_path / "rows.parquet"))):
        lasting = sq.intervals(table.select(["start", "end", "k", "v"]), "start", "end", name="a")
        points = sq.points(table.select(["start", "k", "v"]), "start", name="b")
        other = points.select("k", w=sq.col("v"))
        endless = other.set_duration(None)
        queries = {
            "endless": points.set_duration(None).join(endless, on="k"),
            "endless and points": points.join(endless, on="k"),
            "endless and lasting": endless.join(lasting, on="k"),
            "points on the left": points.join(other, on="k", how="left"),
            "of any length": lasting.join(other.set_duration(3), on="k", how="anti"),
            **{
                f"windows side by side, {how}": lasting.group_by("k")
                .tumbling_window(4)
                .select(n=sq.count())
                .join(other.group_by("k").tumbling_window(4).select(m=sq.max("w")), on="k", how=how)
                for how in ("inner", "left", "semi", "anti")
            },
            "snapshots": lasting.group_by("k").snapshot_window().select(most=sq.max("v")),
            "count": points.group_by("k").count_window(2).select(most=sq.max("v")),
            "rows": points.group_by("k").rows_window(2).top_k(1, by="v"),
        }
        backends.append(queries)
    for name, query in backends[1].items():
        assert_same_history(t.history(query.to_arrow()), t.history(backends[0][name].to_arrow()))


@pytest.mark.parametrize("few", [0, 64])
def test_points_meet_lifetimes_of_any_length_by_keys(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """By the key alone and by cells of tiers of length, with the points on either side; a shortest, longest, endless one."""
    monkeypatch.setattr(interval_join, "FEW", few)
    drawn = random.Random(few)
    lengths = [1, 2, 15, 16, 17, 255, 257, 1 << 40, (1 << 53) + 1, (1 << 62) + 1]
    starts = [-(1 << 62), -17, -16, -1, 0, 1, 15, 16, 17, 255, 256, (1 << 62) - 1]
    lasting = [
        (at, at + n, drawn.choice(["x", "y", None]), n % 7) for at in starts for n in lengths if at + n < 1 << 63
    ]
    lasting += [(at, None, drawn.choice("xy"), 9) for at in starts]
    ends = [end - back for _, end, _, _ in lasting if end is not None for back in (0, 1)]
    points = [(at, drawn.choice(["x", "y", "z", None]), drawn.randrange(7)) for at in [*starts, *ends]]
    tables = {
        "a": t.table("start bigint, end bigint, k string, v bigint", lasting),
        "b": t.table("at bigint, k string, w bigint", points),
    }
    a = sq.intervals(frame(spark, tables["a"]), "start", "end", name="a")
    b = sq.points(frame(spark, tables["b"]), "at", name="b")
    for query in (a.join(b, on="k"), b.join(a, on="k", where=lambda b, a: b.w < a.v)):
        assert forms_of(query.plan) is None
        assert_same_history(query.to_df().toArrow(), oracle(query.plan, tables))


def test_what_does_not_end_is_computed_without_what_ends(spark: SparkSession) -> None:
    values = [None, 2.0, float("nan"), -0.0, 0.0, 5.0, 2.0]
    rows = [(i // 3, i % 5, values[5 * i % 7], "xyz"[i % 3] if i % 5 else None) for i in range(40)]
    for some in (rows, []):
        table = t.table("at bigint, k bigint, v double, w string", some)
        for query, _ in without_ends(sq.points(frame(spark, table), "at", name="s")).values():
            assert_same_history(query.to_df().toArrow(), oracle(query.plan, {"s": table}))


@pytest.mark.parametrize("keys", [(), ("k",)])
def test_snapshots_of_events_that_do_not_end_are_computed_in_the_order_of_starts(
    spark: SparkSession, keys: tuple[str, ...]
) -> None:
    """Distinct counts by the first event of each value, beside others; the best one, or all of the best, so far."""
    values = [None, 2.0, float("nan"), -0.0, 0.0, 5.0, 2.0]
    rows = [(i // 3, i % 2, values[5 * i % 7], "xyz"[i % 3] if i % 5 else None) for i in range(40)]
    table = t.table("at bigint, k bigint, v double, w string", rows)
    backends = []
    for source in (frame(spark, table), table):
        endless = sq.points(source, "at", name="s").set_duration(None)
        windows = (endless.group_by(*keys) if keys else endless).snapshot_window()
        counts = windows.select(
            values=sq.count_distinct("v"),
            pairs=sq.count_distinct("v", "w"),
            some=sq.count_distinct("w", where=sq.col("v") > 0),
            most=sq.max("w"),
            n=sq.count(),
            total=sq.sum("k"),
        )
        best = [
            windows.top_k(1, by="v", desc=desc, ties=ties, row_number=ties == "break")
            for desc in (True, False)
            for ties in ("keep", "break")
        ]
        backends.append([counts, *best])
    for query, local in zip(*backends, strict=True):
        forms = [f.choose(None).form for node in nodes(query.plan) if (f := forms_of(node)) is not None]
        assert forms == ["running"]
        want = oracle(query.plan, {"s": table})
        assert_same_history(query.to_df().toArrow(), want)
        assert_same_history(query.to_df(form="evaluated").toArrow(), want)
        assert_same_history(t.history(local.to_arrow()), want)


def test_random_queries_by_the_stages_of_a_stream(
    spark: SparkSession, plain: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short they are."""
    monkeypatch.setattr(batch, "MOST_OPERATORS", 0)
    t.verify(QUERIES, profile=replace(BATCH, batch=6), seed=2)


def test_a_stage_of_a_long_query_is_two_operators_of_sparks(spark: SparkSession, plain: None) -> None:
    """Windows by another key each time have a stage each; workers pack its rows for the next one where they compute them."""
    table = t.table("a bigint, b bigint, k string, j string", [(1, 4, "x", "p"), (2, 9, "x", "q"), (6, 8, "y", "p")])

    def query(rows: DataFrame | pa.Table) -> sq.Stream:
        s = sq.intervals(rows, "a", "b", name="s")
        for key, other in [("k", "j"), ("j", "k")] * 8:
            s = s.group_by(key).tumbling_window(5).select(**{other: sq.max(other)})
        return s

    answer = query(frame(spark, table)).to_df()
    plan = answer._jdf.queryExecution().analyzed().toString().splitlines()
    assert [sum(name in line for line in plan) for name in ("MapInArrow", "Repartition")] == [16 + 3, 16]
    assert len(plan) <= 2 * 16 + 20, plan
    assert_same_history(t.history(answer.toArrow()), t.history(query(table).to_arrow()))


LONG = {
    "tumbling": lambda s: s.tumbling_window(5).select(v=sq.max("v")),
    "clip": lambda s: s.clip(s.shift(2).where(sq.col("v") > 3), on="k"),
    "shift": lambda s: s.shift(1).where(sq.col("v") != 100),
    "itself": lambda s: s.union(s.where(sq.col("v") > 5)),
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_query_is_a_short_plan_of_sparks(spark: SparkSession, plain: None, name: str) -> None:
    """Twenty operators and more read the source once, with a few exchanges, and answer as in-process."""
    table = t.table("a bigint, b bigint, k string, v int", [(1, 4, "x", 3), (2, 9, "x", 7), (6, 8, "y", 4)])

    def query(rows: DataFrame | pa.Table) -> sq.Stream:
        s = sq.intervals(rows, "a", "b", name="s")
        for _ in range(7 if name == "itself" else 26):
            s = LONG[name](s)
        return s

    local = query(table)
    assert "in a batch by the stages below" in local.explanation("incremental")
    answer = query(frame(spark, table)).to_df()
    plan = answer._jdf.queryExecution().executedPlan().toString()
    assert (plan.count("Exchange hash"), plan.count("Scan")) <= (2, 2), plan
    assert_same_history(t.history(answer.toArrow()), t.history(local.to_arrow()))
