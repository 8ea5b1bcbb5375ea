"""On Spark a clock makes progress while all sources are silent, and a repeated micro-batch sees the time it saw before."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import streamq as sq
from streamq import testing as t
from streamq.stream import Stream
from streamq.testing.backends import land, stream

SECOND = dt.timedelta(seconds=1)
DUE = 3 * SECOND
"""An order is to be paid within two seconds, and a row is on its way for one at most."""


def rows(*rows: tuple[dt.datetime, str]) -> pa.Table:
    return t.table("at timestamp, number string", list(rows))


def unpaid(spark: SparkSession, folder: Path) -> Stream:
    """Orders without a payment within two seconds, over sources that have brought nothing yet."""
    for name in ("orders", "payments"):
        land(folder / name, [rows()])
    orders, payments = (
        sq.points(stream(spark, folder / name, rows().schema), time="at", name=name, progress=sq.clock("1 second"))
        for name in ("orders", "payments")
    )
    return orders.set_duration("2 seconds").left_anti_join(payments, on="number")


def order(folder: Path) -> dt.datetime:
    """Order something now, and return when; nothing comes after it."""
    now = dt.datetime.now(dt.UTC)
    land(folder / "orders", [rows((now, "x"))], 1)
    return now


def waited_for(is_done: Callable[[], Any]) -> Any:
    until = time.monotonic() + 120
    while time.monotonic() < until and not is_done():
        time.sleep(0.1)
    return is_done()


def micro_batches_since(query: Any, due: dt.datetime, before: int) -> int:
    """Return the number of micro-batches that began at an instant or later, before the one with that number."""
    assert waited_for(lambda: query.lastProgress.batchId >= before - 1)
    began = {p.batchId: dt.datetime.fromisoformat(json.loads(p.json)["timestamp"]) for p in query.recentProgress}
    return sum(due <= at for number, at in began.items() if number < before)


def test_what_did_not_come_is_told_while_all_are_silent(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    alerts: list[tuple[int, list[dict[str, Any]]]] = []

    def tell(df: DataFrame, number: int) -> None:
        if rows := df.drop("start", "end").toArrow().to_pylist():
            alerts.append((number, rows))

    with unpaid(spark, tmp_path).run(sink=tell, checkpoint=str(tmp_path / "checkpoint"), buckets=2) as run:
        waited_for(lambda: run.query.lastProgress)
        ordered = order(tmp_path)
        assert waited_for(lambda: alerts)
        assert micro_batches_since(run.query, ordered + DUE, alerts[0][0]) <= 1, "in the second trigger at the latest"
        assert run.metrics["sources"]["payments"]["rows"] == 0
        # Spark's own method waits until there is nothing to read
        run.process_all_available()
        run.finish()
    assert [told for _, told in alerts] == [[{"number": "x"}]]


def test_a_repeated_micro_batch_sees_the_time_it_saw_before(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """By a plain writeStream, whose sink fails where the alert first comes."""
    seen: dict[int, list[list[dict[str, Any]]]] = {}
    ordered: list[dt.datetime] = []

    def cti(told: list[dict[str, Any]]) -> dt.datetime:
        return max(
            (row["start"] for row in told if row["kind"] == "cti"), default=dt.datetime.min.replace(tzinfo=dt.UTC)
        )

    def tell(df: DataFrame, number: int) -> None:
        told = df.toArrow().to_pylist()
        seen.setdefault(number, []).append(told)
        if len(seen[number]) == 1 and ordered and cti(told) > ordered[0] + 2 * SECOND:
            raise ValueError("the sink is away")

    def start() -> Any:
        rows = unpaid(spark, tmp_path).to_stream(output="changelog", ctis=True, buckets=2)
        checkpoint = str(tmp_path / "checkpoint")
        return rows.writeStream.foreachBatch(tell).option("checkpointLocation", checkpoint).start()

    query = start()
    waited_for(lambda: query.lastProgress)
    ordered.append(order(tmp_path))
    with pytest.raises(StreamingQueryException, match="the sink is away"):
        query.awaitTermination(120)
    failed = max(seen)
    assert micro_batches_since(query, ordered[0] + DUE, failed) <= 1, "in the second trigger at the latest"
    time.sleep(2)
    query = start()
    assert waited_for(lambda: max(seen) > failed)
    query.stop()
    first, again = seen[failed]
    assert first == again
    assert cti(seen[failed + 1][0]) > cti(first) + 2 * SECOND, "after the stop the clock goes on at now"
    told = [row["number"] for told, *_ in seen.values() for row in told if row["kind"] == "insert"]
    assert told == ["x"]


def test_a_run_of_what_is_available_ends_and_has_the_now_of_its_start(
    spark: SparkSession, plain: None, tmp_path: Path
) -> None:
    query, out, ctis = unpaid(spark, tmp_path), tmp_path / "out", []
    ordered = order(tmp_path)
    for _ in range(2):
        # no less than a second after the first start the clock has ticked
        began = dt.datetime.now(dt.UTC)
        run = query.run(sink=str(out), checkpoint=str(tmp_path / "checkpoint"), buckets=2, trigger="available_now")
        ctis.append(run.metrics["sources"]["orders"]["cti_at"])
        time.sleep(max(0, (ordered + DUE + SECOND - dt.datetime.now(dt.UTC)) / SECOND))
    assert began - 2 * SECOND < dt.datetime.fromisoformat(ctis[1])
    assert [row.number for row in spark.read.parquet(str(out)).collect()] == ["x"]


def test_a_bound_on_starts_goes_by_the_time_that_the_checkpoint_has(
    spark: SparkSession, plain: None, tmp_path: Path
) -> None:
    """So a micro-batch that is repeated refuses the same rows, however late that is; here its time is moved on."""
    seen: list[list[str]] = []
    now = dt.datetime.now(dt.UTC)
    land(tmp_path / "in", [rows((now, "x"), (now + dt.timedelta(days=1), "y"))])

    def tell(df: DataFrame, number: int) -> None:
        seen.append(sorted(row["number"] for row in df.select("number").toArrow().to_pylist()))
        if len(seen) == 1:
            raise ValueError("the sink is away")

    def run() -> Any:
        source = stream(spark, tmp_path / "in", rows().schema)
        points = sq.points(source, time="at", name="s", progress=sq.generate(max_ahead="1 hour"))
        writer = points.to_stream(output="changelog", buckets=2).writeStream.foreachBatch(tell)
        return writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="the sink is away"):
        run().awaitTermination(120)
    begun = tmp_path / "cp" / "offsets" / "0"
    version, times, *offsets = begun.read_text().split("\n")
    moved = json.loads(times)
    moved["batchTimestampMs"] += 2 * 86_400_000
    begun.write_text("\n".join([version, json.dumps(moved), *offsets]))
    begun.with_name(".0.crc").unlink(missing_ok=True)
    run().awaitTermination(120)
    assert seen == [["x"], ["x", "y"]]
