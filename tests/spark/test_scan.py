"""An operator that goes from event to event, on Spark: in batch, and as a stream that is restarted and corrected."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from tests.spark.replay import bag, folded, land, rows, stream

pytestmark = pytest.mark.usefixtures("plain")

ITEMS = pa.schema(
    [
        ("kind", pa.string()),
        ("start", pa.timestamp("us", "UTC")),
        ("end", pa.timestamp("us", "UTC")),
        ("new_end", pa.timestamp("us", "UTC")),
        ("k", pa.string()),
        ("v", pa.int64()),
    ]
)


@sq.udso("delta bigint, waited double", time_sensitive=True)
class Waited:
    """How far a value lies from the one before, and how many seconds later it came; no worker can import this file."""

    def initial(self) -> None:
        return None

    def step(self, last, start, value):  # type: ignore[no-untyped-def]
        now = (start, value)
        return now, None if last is None else [(value - last[1], (start - last[0]).total_seconds())]


def items(*given: tuple[str, int, str, int]) -> pa.Table:
    """Rows ``kind, second, k, v`` of points."""
    columns = {
        "kind": [kind for kind, *_ in given],
        "start": [second * 1_000_000 for _, second, *_ in given],
        "end": [second * 1_000_000 + 1 for _, second, *_ in given],
        "new_end": [second * 1_000_000 if kind == "retract" else None for kind, second, *_ in given],
        "k": [k for *_, k, _ in given],
        "v": [v for *_, v in given],
    }
    return pa.table({f.name: pa.array(columns[f.name], f.type) for f in ITEMS}, schema=ITEMS)


PARTS = [
    items(("insert", 1, "a", 2), ("insert", 9, "a", 7), ("insert", 2, "b", 1), ("insert", 12, "b", 8)),
    items(("insert", 5, "a", 3), ("retract", 2, "b", 1), ("insert", 7, "b", 2), ("insert", 20, "a", 0)),
]
"""What comes second comes in between, and takes back."""


def waited(source: sq.Stream) -> sq.Stream:
    return source.to_points().group_by("k").scan(Waited("v"))


def in_ticks(history: pa.Table) -> pa.Table:
    """A history with its lifetimes as a changelog's are compared."""
    for name in ("start", "end"):
        at = history.column_names.index(name)
        history = history.set_column(at, name, history.column(name).cast(pa.int64()))
    return history


def test_batch_and_a_stream_with_a_restart_give_the_same(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    history = waited(sq.physical(pa.concat_tables(PARTS))).to_arrow()
    answer = bag(history)
    assert [(row[0], row[2], row[-1]) for row in answer] == [
        (-7, "a", 11.0),
        (1, "a", 4.0),
        (4, "a", 4.0),
        (6, "b", 5.0),
    ]
    land(tmp_path / "all", PARTS)
    assert rows(waited(sq.physical(spark.read.parquet(str(tmp_path / "all")))).to_df()) == answer

    (tmp_path / "in").mkdir()
    live = waited(sq.physical(stream(spark, tmp_path / "in", ITEMS), progress=sq.generate("30 seconds")))
    places = {"checkpoint": str(tmp_path / "cp"), "sink": str(tmp_path / "out"), "trigger": "available_now"}
    for i, part in enumerate(PARTS):
        land(tmp_path / "in", [part], first=i)
        live.run(**places, output="changelog", buckets=2, finish=i == 1)
    out = spark.read.parquet(str(tmp_path / "out"))
    assert out.where("kind = 'retract'").count() > 0, "what was said of a 7 at 9 is taken back"
    assert folded(out) == bag(in_ticks(history))
