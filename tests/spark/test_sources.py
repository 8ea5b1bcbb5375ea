"""Sources over DataFrames: in batch and as streams, rows against lifetimes written down."""

from __future__ import annotations

import datetime as dt
import json
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamq as sq
from streamq.errors import InvalidEvent
from tests.spark.replay import bag, ended, folded, land, rows, stream

LOG = pa.schema([("at", pa.int64()), ("op.type", pa.string()), ("id", pa.int64()), ("price", pa.int64())])


def log(*made: tuple[int, str | None, int, int | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(LOG.names, row, strict=True)) for row in made], schema=LOG)


def versions(*made: tuple[int, int | None, int, int]) -> list[tuple[object, ...]]:
    names = ("start", "end", "id", "price")
    return bag(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in made]))


# id     at  1    2    3    4    5    6    7    8    9
# 1         |c 5      |u 6      |d             |c 7
# 2              |r 9                |u 8
# 3         |insert 1           |delete, insert 2    |update 3
# 4                   |insert 4 |preimage 4, postimage 5
DEBEZIUM = log((1, "c", 1, 5), (3, "U", 1, 6), (5, "d", 1, None), (8, "c", 1, 7), (2, "r", 2, 9), (6, "u", 2, 8))
FEED = log(
    (5, "insert", 3, 2),
    (1, "INSERT", 3, 1),
    (5, "delete", 3, 1),
    (9, "update", 3, 3),
    (3, "insert", 4, 4),
    (5, "update_postimage", 4, 5),
    (5, "Update_Preimage", 4, 4),
)
VERSIONS = versions(
    (1, 3, 1, 5), (3, 5, 1, 6), (8, None, 1, 7), (2, 6, 2, 9), (6, None, 2, 8),
    (1, 5, 3, 1), (5, 9, 3, 2), (9, None, 3, 3), (3, 5, 4, 4), (5, None, 4, 5),
)  # fmt: skip


def test_changes_in_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Both vocabularies in one log, in any order; words that are none of them, and deletes of nothing, by policy."""
    land(tmp_path / "in", [DEBEZIUM, FEED])
    df = spark.read.parquet(str(tmp_path / "in"))
    table = sq.changes(df, op="op.type", time="at", key="id")
    assert table.columns == ["id", "price"]
    assert rows(table.to_df()) == VERSIONS
    wrong = [(4, "start", 1, 0), (4, None, 1, 0), (7, "d", 1, 0), (8, "u", 1, 9)]
    more = df.union(spark.createDataFrame(wrong, df.schema))
    # of two versions of one key and instant that differ neither counts
    left = [row for row in VERSIONS if row not in versions((8, None, 1, 7))]
    assert rows(sq.changes(more, "op.type", "at", "id", invalid="drop").to_df()) == left
    with pytest.raises(InvalidEvent, match="source prices: a row is no event: unknown op 'start', known are c, r, u"):
        sq.changes(
            df.union(spark.createDataFrame(wrong[:1], df.schema)), "op.type", "at", "id", name="prices"
        ).to_pandas()


def test_changes_as_a_stream(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """A changelog shows a version that is still there, and takes it back when a later batch ends it; the sum is the batch's."""
    strange = log((7, "truncate", 1, 0), (9, "d", 7, 0))
    land(tmp_path / "in", [DEBEZIUM.slice(0, 5), pa.concat_tables([DEBEZIUM.slice(5), FEED, strange])])
    df = stream(spark, tmp_path / "in", LOG)
    query = sq.changes(df, op="op.type", time="at", key=["id"], name="prices", progress=sq.generate(100))
    run = ended(query, checkpoint=str(tmp_path / "cp"), sink=str(tmp_path / "out"), output="changelog", buckets=3)
    assert run.late == {"prices|dropped": 0, "prices|adjusted": 0, "prices|invalid": 2, "prices|duplicates": 0}
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.where("kind = 'insert' and id = 2 and price = 9 and end is null").count() == 1
    assert folded(found) == VERSIONS


def test_changes_of_one_instant(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """In batch, and as a stream that gets them out of order: what it said of a version that was not the last is taken back."""
    logged = [
        ("c", 1, 1, 7, "old"), ("c", 5, 2, 7, "hello"), ("d", 5, 3, 7, None), ("c", 5, 4, 7, "hallo"), ("u", 9, 5, 7, "x"),
        ("UPDATE_BEFORE", 9, 6, 7, "x"), ("UPDATE_AFTER", 9, 7, 7, "y"), ("+I", 9, 8, 8, "brief"), ("-D", 9, 9, 8, None),
    ]  # fmt: skip
    schema = pa.schema([("op", pa.string()), *((n, pa.int64()) for n in ("at", "lsn", "id")), ("v", pa.string())])
    items = [dict(zip(schema.names, row, strict=True)) for row in logged]
    land(tmp_path / "in", [pa.Table.from_pylist(part, schema) for part in (items[:2], items[6:], items[2:6])])
    expected = [(1, 5, 7, "old"), (5, 9, 7, "hallo"), (9, None, 7, "y")]
    lives = bag(pa.Table.from_pylist([dict(zip(("start", "end", "id", "v"), row, strict=True)) for row in expected]))

    def of(df: DataFrame) -> sq.Stream:
        progress = sq.generate(10)
        return sq.changes(
            df, "op", "at", "id", order_by="lsn", beside="lsn", name="s", progress=progress, invalid="fail"
        )

    assert rows(of(spark.read.parquet(str(tmp_path / "in"))).to_df()) == lives
    changed = of(stream(spark, tmp_path / "in", schema))
    ended(changed, checkpoint=str(tmp_path / "cp"), sink=str(tmp_path / "out"), output="changelog", buckets=2)
    written = spark.read.parquet(str(tmp_path / "out"))
    assert folded(written) == lives
    assert written.where("kind = 'retract' and v = 'hello' and new_end = start").count() == 1
    assert written.where("v = 'brief'").count() == 0


def test_signal_in_batch(spark: SparkSession) -> None:
    """Samples on the timestamp axis, two of them of one key and instant; the last of a key is still alive."""
    at = [dt.datetime(2024, 1, 1, 12, minute, tzinfo=dt.UTC) for minute in (4, 1, 3, 2, 6, 2)]
    made = list(zip(at, "aabbbb", (21, 20, 9, 7, 8, 5), strict=True))
    df = spark.createDataFrame(made, "at timestamp, sensor string, v int")
    temperatures = sq.signal(df, time="at", key="sensor")
    found = temperatures.to_df().selectExpr("sensor", "v", "minute(start) start", "minute(end) end")
    assert rows(found) == sorted(
        [(4, "a", 1, 20), (None, "a", 4, 21), (3, "b", 2, 7), (3, "b", 2, 5), (6, "b", 3, 9), (None, "b", 6, 8)],
        key=repr,
    )


def test_arrow_tables_on_spark(spark: SparkSession) -> None:
    """An Arrow table means on Spark what it means in-process: a time without a zone is UTC, whatever the session's zone."""
    noon = dt.datetime(2024, 5, 1, 12)
    naive = pa.table({"at": [noon, noon + dt.timedelta(minutes=5)], "seen": [noon, None], "k": ["a", "b"]})
    prices = log((1, "c", 1, 5), (3, "U", 1, 6), (5, "d", 1, None))
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for table, source in (
            (naive, lambda t: sq.points(t, "at", name="naive")),
            (prices, lambda t: sq.changes(t, "op.type", "at", "id", name="prices")),
        ):
            local = source(table)
            query = sq.from_json(local.union(local).to_json(), {next(iter(local.tables)): local})
            assert bag(query.to_df().toArrow()) == bag(query.to_arrow())
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


# rows that are delivered again

ONCE = pa.schema(
    [("source", pa.string()), ("kind", pa.string()), *((n, pa.int64()) for n in ("at", "til", "new_til", "id"))]
    + [("v", pa.float64()), ("tags", pa.map_(pa.string(), pa.int64())), ("the.offset", pa.int64())]
)
NAN, TAGS = float("nan"), [("x", 1), ("y", None)]
SPANS, LOGS = ("points", "intervals", "signal"), ("edges", "changes")


def delivered(*given: tuple[Any, ...], again: bool = False) -> list[tuple[Any, ...]]:
    """Rows (sources, kind, at, til, new_til, id) with payloads that equal those of the same row delivered ``again``."""
    rows = [(of, *row) for sources, *row in given for of in sources]
    return [(*row, NAN if row[-1] % 2 else -0.0 if again else 0.0, TAGS[::-1] if again else TAGS) for row in rows]


MICRO_BATCHES = [
    [
        *delivered(
            (SPANS, "insert", 1, 9, None, 1), (SPANS, "insert", 2, 5, None, 2), (LOGS, "insert", 1, None, None, 1)
        ),
        *delivered((SPANS, "insert", 1, 9, None, 1), (LOGS, "insert", 1, None, None, 1), again=True),
        *delivered((["physical"], "insert", 1, 9, None, 1), (["physical"], "insert", 2, None, None, 2)),
        *delivered((["physical"], "insert", 1, 9, None, 1), again=True),
        *delivered((SPANS, "insert", 2, 5, None, 2), again=True),
        *delivered((SPANS, "insert", 8, 90, None, 3)),
        *delivered((LOGS, "insert", 3, None, None, 2), (LOGS, "retract", 6, None, None, 1)),
        *delivered((LOGS, "retract", 6, None, None, 1), again=True),
        *delivered(*[(["physical"], "retract", 1, 9, 20, 1)] * 2),
    ],
    [
        *delivered((SPANS, "insert", 8, 90, None, 3), (LOGS, "insert", 1, None, None, 1), again=True),
        *delivered((["physical"], "retract", 1, 9, 20, 1), (["physical"], "insert", 1, 9, None, 1), again=True),
        *delivered((SPANS, "insert", 60, 61, None, 4), (LOGS, "insert", 60, None, None, 3)),
        *delivered((["physical"], "insert", 60, 61, None, 4)),
    ],
    # c is 40: what is held is known, the rest is late
    [
        *delivered((SPANS, "insert", 8, 90, None, 3), (LOGS, "insert", 3, None, None, 2), again=True),
        *delivered((LOGS, "retract", 6, None, None, 1), (["physical"], "insert", 2, None, None, 2), again=True),
        *delivered((["physical"], "retract", 1, 9, 20, 1), again=True),
    ],
]
CONTRARY = (*delivered((SPANS, "insert", 60, 61, None, 4))[0][:-1], [("z", 9)])
LIVES = {
    "points": [(1, 2, 1), (2, 3, 2), (8, 9, 3), (60, 61, 4)],
    "intervals": [(1, 9, 1), (2, 5, 2), (8, 90, 3), (60, 61, 4)],
    "signal": [(1, 8, 1), (8, None, 3), (2, 60, 2), (60, None, 4)],
    **{name: [(1, 6, 1), (3, None, 2), (60, None, 3)] for name in LOGS},
    "physical": [(1, 20, 1), (2, None, 2), (60, 61, 4)],
}
COUNTED = {
    "points": {"duplicates": 3, "dropped": 1, "invalid": 1},
    "intervals": {"duplicates": 4},
    "signal": {"duplicates": 3, "dropped": 1},
    **{name: {"duplicates": 4, "dropped": 1} for name in LOGS},
    "physical": {"duplicates": 5, "dropped": 1},
}


def every_kind(df: DataFrame) -> sq.Stream:
    """All six kinds of source, each over its own rows of ``df``, in one query."""
    policy: dict[str, Any] = {"progress": sq.generate(20), "beside": "the.offset"}

    def of(name: str) -> DataFrame:
        return df.where(f"source = '{name}'").drop("source")

    logged = of("changes").replace({"insert": "c", "retract": "d"}, subset="kind")
    made = {
        "points": sq.points(of("points"), "at", id="id", name="points", **policy),
        "intervals": sq.intervals(of("intervals"), "at", "til", id=["id", "v"], name="intervals", **policy),
        "signal": sq.signal(of("signal"), "at", "v", id="id", name="signal", **policy),
        "edges": sq.edges(
            of("edges"), "at", edge="kind", key="id", open="insert", close="retract", name="edges", **policy
        ),
        "changes": sq.changes(logged, "kind", "at", "id", name="changes", **policy),
        "physical": sq.physical(
            of("physical"), start="at", end="til", new_end="new_til", id="id", name="physical", **policy
        ),
    }
    first, *others = (s.select("id", source=sq.lit(name)) for name, s in made.items())
    return reduce(lambda a, b: a.union(b), others, first)


def lives() -> list[tuple[object, ...]]:
    found = [(start, end, id, name) for name, some in LIVES.items() for start, end, id in some]
    return bag(pa.Table.from_pylist([dict(zip(("start", "end", "id", "source"), row, strict=True)) for row in found]))


def landed(folder: Path, batches: list[list[tuple[Any, ...]]]) -> None:
    """Write each batch as a file; every row that is delivered has an offset of its own."""
    offsets = count(100)
    numbered = [[dict(zip(ONCE.names, (*row, next(offsets)), strict=True)) for row in batch] for batch in batches]
    land(folder, [pa.Table.from_pylist(batch, ONCE) for batch in numbered])


def test_rows_delivered_again_in_batch(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    landed(tmp_path / "in", MICRO_BATCHES)
    df = spark.read.parquet(str(tmp_path / "in"))
    assert rows(every_kind(df).to_df()) == lives()
    landed(tmp_path / "twice", [[*MICRO_BATCHES[1], CONTRARY]])
    twice = spark.read.parquet(str(tmp_path / "twice")).where("source = 'points'")
    with pytest.raises(InvalidEvent, match="source p: a row is no event: two rows of one id and start that differ"):
        sq.points(twice, "at", id="id", beside=["the.offset", "source"], name="p").to_pandas()


def test_rows_delivered_again_as_a_stream(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """Within a micro-batch, in later ones, and behind c; one is taken, the others are counted and kept."""
    landed(tmp_path / "in", [MICRO_BATCHES[0], [*MICRO_BATCHES[1], CONTRARY], MICRO_BATCHES[2]])
    run = ended(
        every_kind(stream(spark, tmp_path / "in", ONCE)),
        checkpoint=str(tmp_path / "cp"),
        sink=str(tmp_path / "out"),
        late_sink=str(tmp_path / "late"),
        buckets=2,
    )
    assert rows(spark.read.parquet(str(tmp_path / "out")), "streamq_batch") == lives()
    reasons = ("dropped", "adjusted", "invalid", "duplicates")
    found = {name: {r: n for r in reasons if (n := run.metrics["sources"][name][r])} for name in COUNTED}
    assert found == COUNTED
    kept = spark.read.parquet(str(tmp_path / "late"))
    told = {
        name: kept.where(f"source = '{name}' and reason = 'duplicate' and late_by is null").count() for name in COUNTED
    }
    assert told == {name: counted["duplicates"] for name, counted in COUNTED.items()}
    assert kept.where("reason = 'two rows of one id and start that differ'").count() == 1
    offsets = [json.loads(row["payload"])["the.offset"] for row in kept.select("payload").collect()]
    assert len(offsets) == len({*offsets}) == sum(n for counts in COUNTED.values() for n in counts.values())


# an event's first end, its retractions (of an end, to another), what is left of it
MOVED: list[tuple[int | None, list[tuple[int, int]], int | None]] = [
    (None, [(20, 15)], None),
    (5, [(6, 2)], 5),
    (5, [(5, 7), (9, 11), (11, 12)], 7),
    (5, [(5, 3), (5, 8), (8, 9)], 3),
    (5, [(7, 9), (9, 7), (6, 1)], 5),
    (9, [(8, 4), (10, 8), (9, 10)], 4),
]


def test_retractions_that_match_nothing_in_batch(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """They go with what follows from them and the others stay, with ids and without; by default they are errors."""
    rows: list[tuple[Any, ...]] = [
        ("insert", 1, end, None, k) for k, (end, _, _) in enumerate(MOVED) if end is not None
    ]
    rows += [("retract", 1, *move, k) for k, (_, moves, _) in enumerate(MOVED) for move in moves]
    items = [
        dict(zip(("kind", "start", "end", "new_end", "k"), row, strict=True), tags=[None, row[-1]]) for row in rows
    ]
    times = [(name, pa.int64()) for name in ("start", "end", "new_end")]
    schema = pa.schema([("kind", pa.string()), *times, ("k", pa.int64()), ("tags", pa.list_(pa.decimal128(38, 18)))])
    table = pa.Table.from_pylist(items, schema)
    land(tmp_path / "in", [table])
    df = spark.read.parquet(str(tmp_path / "in"))
    for id in ("k", None):
        on_spark = sq.physical(df, id=id, invalid="drop").to_df().toArrow()
        assert bag(on_spark) == bag(sq.physical(table, id=id, invalid="drop").to_arrow())
        ends = {row["k"]: (row["start"], row["end"]) for row in on_spark.to_pylist()}
        assert ends == {k: (1, end) for k, (_, _, end) in enumerate(MOVED) if end is not None}
        with pytest.raises(InvalidEvent, match="a row is no event: a retraction that matches nothing"):
            sq.physical(df, id=id).to_pandas()


def at_the_ends_of_time(df: DataFrame) -> sq.Stream:
    """Rows (at, v) as starts of every kind of source."""
    none, never = F.lit(None).cast("bigint"), {"end": F.lit(None).cast("bigint"), "new_end": F.lit(None).cast("bigint")}
    physical = df.select("v", F.lit("insert").alias("kind"), F.col("at").alias("start")).withColumns(never)
    made: dict[str, Any] = {
        "points": sq.points(df, "at", invalid="drop", name="points"),
        "intervals": sq.intervals(df.withColumn("til", none), "at", "til", invalid="drop", name="intervals"),
        "edges": sq.edges(
            df.withColumn("what", F.lit("start")), "at", edge="what", key="v", invalid="drop", name="edges"
        ),
        "physical": sq.physical(physical, invalid="drop", name="physical", progress=sq.generate()),
    }
    first, *others = (s.select("v", source=sq.lit(name)) for name, s in made.items())
    return reduce(lambda a, b: a.union(b), others, first)


def test_starts_at_the_ends_of_time(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """In batch and as streams the same rows are no events as in-process (``tests/test_sources.py``)."""
    last = 2**63 - 1
    starts = pa.table({"at": [-last - 1, -last, last - 2, last - 1, last], "v": [0, 1, 2, 3, 4]})
    want = [
        (t, t + 1 if name == "points" else None, v, name)
        for name in ("points", "intervals", "edges", "physical")
        for t, v in ((-last, 1), (last - 2, 2), (last - 1, 3))
        if (name, v) != ("points", 3)
    ]
    expected = bag(pa.Table.from_pylist([dict(zip(("start", "end", "v", "source"), row, strict=True)) for row in want]))
    land(tmp_path / "in", [starts])
    assert rows(at_the_ends_of_time(spark.read.parquet(str(tmp_path / "in"))).to_df()) == expected
    source = stream(spark, tmp_path / "in", starts.schema)
    run = ended(at_the_ends_of_time(source), checkpoint=str(tmp_path / "cp"), sink=str(tmp_path / "out"), buckets=2)
    assert rows(spark.read.parquet(str(tmp_path / "out")), "streamq_batch") == expected
    invalid = {name: run.metrics["sources"][name]["invalid"] for name in ("points", "intervals", "edges", "physical")}
    assert invalid == {"points": 3, "intervals": 2, "edges": 2, "physical": 2}


def test_keys_that_are_arrays_and_structs(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """NaN and both zeros inside of them as outside."""
    kind = pa.list_(pa.struct([("x", pa.float64())]))
    keys = pa.array([[{"x": float("nan")}], [{"x": 0.0}], None, [{"x": float("nan")}], [{"x": -0.0}], None], kind)
    edges = pa.table({"at": range(6), "what": ["start"] * 3 + ["end"] * 3, "k": keys, "v": range(6)})

    def of(table: Any) -> sq.Stream:
        tasks = sq.edges(table, time="at", edge="what", key="k", name="tasks")
        counts = tasks.group_by("k").snapshot_window().select(n=sq.count(), m=sq.median("v"))
        pairs = tasks.select("k").join(tasks.select("k", w=sq.col("v") + 10), on="k")
        matched = pairs.select(n=sq.lit(2**40), v=sq.col("w"))
        return counts.select("n", v=sq.col("m").cast("bigint")).union(matched)

    expected = bag(of(edges).to_arrow())
    assert len(expected) == 5
    land(tmp_path / "in", [edges])
    assert rows(of(spark.read.parquet(str(tmp_path / "in"))).to_df()) == expected
    ended(of(stream(spark, tmp_path / "in", edges.schema)), checkpoint=str(tmp_path / "cp"), sink=str(tmp_path / "out"))
    assert rows(spark.read.parquet(str(tmp_path / "out")), "streamq_batch") == expected
