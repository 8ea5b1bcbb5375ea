"""JSON in Kafka: a windowed query over a topic, as a whole run, by streamq and by Spark's own source with from_json.

    python -m benchmarks.kafka_topic [--messages 1000000] [--repeat 3] [--flink JARS]

A broker is started beside (``scripts/kafka.sh`` fetches it). Both read the topic to its end as a stream, a count and a sum by
zone and ten seconds, and write nowhere; the answers are compared in a batch before. The processor time is that of Spark and its
workers, without the broker's. Ratios below 1: streamq is faster.

``--flink``: Flink SQL, too, over the same topic, as many runs in a process of its own, with a folder of its jars for Kafka
(flink-connector-kafka, flink-connector-base and kafka-clients of Maven); it keeps no checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import streamq as sq
from benchmarks.other_engines import flink_numbers
from benchmarks.processor_time import cpu_seconds, family
from scripts.broker import Broker
from streamq.connectors.kafka import KafkaTopic

SCHEMA = "id bigint, at timestamp, zone string, fare double"
ZONES, PARTITIONS, RATE = 200, 2, 1_000
"""The zones, the topic's partitions, and messages a second of event time."""


def message(number: int) -> bytes:
    """Return a message of some 100 bytes."""
    at = f"2024-05-01T{number // RATE // 3600 % 24:02}:{number // RATE // 60 % 60:02}:{number // RATE % 60:02}.{number % RATE:03}"
    return json.dumps(
        {"id": number, "at": at, "zone": f"zone-{number % ZONES:03}", "fare": number % 97 + 0.25}
    ).encode()


def by_streamq(topic: KafkaTopic) -> sq.Stream:
    """Return the query over the topic."""
    trips = sq.points(topic, time="at", progress=sq.generate("1 minute"))
    return trips.group_by("zone").tumbling_window("10 seconds").select(n=sq.count(), total=sq.sum("fare"))


def by_spark(messages: DataFrame) -> DataFrame:
    """Return the query over Kafka's messages."""
    rows = messages.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
    windows = rows.withWatermark("at", "1 minute").groupBy("zone", F.window("at", "10 seconds"))
    return windows.agg(F.count("*").alias("n"), F.sum("fare").alias("total"))


def by_flink(servers: str) -> list[str]:
    """Return the statements of Flink SQL for the topic, and for the query."""
    columns = "id BIGINT, `at` TIMESTAMP(3), zone STRING, fare DOUBLE, WATERMARK FOR `at` AS `at` - INTERVAL '1' MINUTE"
    options = {
        "connector": "kafka",
        "topic": "trips",
        "properties.bootstrap.servers": servers,
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": "json",
        "json.timestamp-format.standard": "ISO-8601",
    }
    table = f"CREATE TABLE trips ({columns}) WITH ({', '.join(f'{k!r} = {v!r}' for k, v in options.items())})"
    windows = "TABLE(TUMBLE(TABLE trips, DESCRIPTOR(`at`), INTERVAL '10' SECOND))"
    counts = "SELECT zone, window_start, COUNT(*) AS n, SUM(fare) AS total"
    return [table, f"{counts} FROM {windows} GROUP BY zone, window_start, window_end"]


def main() -> None:
    """Print a line for each round, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--flink", default="")
    options = parser.parse_args()
    config = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": 2}
    spark = sq.session("kafka", master="local[2]", config=config, kafka=True)
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder))
        broker.start()
        try:
            broker.create("trips", PARTITIONS)
            for partition in range(PARTITIONS):
                broker.send("trips", (message(n) for n in range(partition, options.messages, PARTITIONS)), partition)
            named = {"kafka.bootstrap.servers": broker.servers, "subscribe": "trips", "startingOffsets": "earliest"}
            topic = sq.kafka(broker.servers, "trips", schema=SCHEMA)
            ours = by_streamq(topic).to_df().selectExpr("zone", "start", "n", "total")
            theirs = by_spark(spark.read.format("kafka").options(**named).load())
            theirs = theirs.selectExpr("zone", "window.start", "n", "total")
            assert ours.exceptAll(theirs).isEmpty() and theirs.exceptAll(ours).isEmpty(), "the answers differ"

            def streamq_run(number: int) -> None:
                checkpoint = f"{folder}/ours-{number}"
                by_streamq(topic).run(sink="noop", checkpoint=checkpoint, trigger="available_now")

            def spark_run(number: int) -> None:
                rows = by_spark(spark.readStream.format("kafka").options(**named).load())
                writer = rows.writeStream.format("noop").option("checkpointLocation", f"{folder}/theirs-{number}")
                writer.trigger(availableNow=True).start().awaitTermination()

            pid = broker.process.pid
            ways = (streamq_run, spark_run)
            rounds = [[measured(way, number, pid) for way in ways] for number in range(options.repeat)]
            for (cpu, wall), (spark_cpu, spark_wall) in rounds:
                print(f"streamq {cpu:.1f} s of processors, {wall:.1f} s; Spark {spark_cpu:.1f}, {spark_wall:.1f}")
            for place, name in enumerate(("processor time", "clock")):
                print(f"{name}: {statistics.median(one[place] / two[place] for one, two in rounds):.2f}")
            if options.flink:
                statements = by_flink(broker.servers)
                assert flink_numbers(statements, 0, options.flink) == [[ours.count()]], "Flink has other windows"
                for ms, of_processors in flink_numbers(statements, options.repeat, options.flink):
                    print(f"Flink {of_processors / 1_000:.1f} s of processors, {ms / 1_000:.1f} s")
        finally:
            broker.kill()
            spark.stop()


def measured(run: Callable[[int], None], number: int, broker: int) -> tuple[float, float]:
    """Return the seconds of processors, without those of the process ``broker``, and of the clock that a run takes."""

    def spent() -> float:
        of_broker = sum(map(int, family()[broker][11:15])) / os.sysconf("SC_CLK_TCK")
        return cpu_seconds() - of_broker

    cpu, began = spent(), time.perf_counter()
    run(number)
    return spent() - cpu, time.perf_counter() - began


if __name__ == "__main__":
    main()
