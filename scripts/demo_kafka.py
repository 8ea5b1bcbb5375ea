"""``python -m scripts.demo_kafka``: a query from topic to topic of a broker of its own, compared with a batch over the topic."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import streamq as sq
from scripts.broker import JARS, Broker, broker
from streamq.demo.__main__ import answer_differences, child_output_to

COLUMNS = "n bigint, at timestamp, zone string, fare double"
MIDNIGHT = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
TRIPS = 3000
REPEATED = range(0, TRIPS, 100)
LATE = range(TRIPS, TRIPS + 4)
MALFORMED = (b'{"n": 17, "at": ', b'{"n": 17, "at": "2024-05-01T01:00:00Z", "zone": "west", "fare": "5.00"}')


def trip(number: int, second: int) -> bytes:
    """Return a trip as a message: its number is the producer's, its time is in seconds after midnight."""
    at = (MIDNIGHT + dt.timedelta(seconds=second)).isoformat()
    zone, fare = ("east", "north", "west")[number % 3], 5 + number * number % 97 / 4
    return json.dumps({"n": number, "at": at, "zone": zone, "fare": fare}).encode()


def send_trips(kafka: Broker) -> None:
    """Send twelve hours of trips to both partitions of "trips", up to eight minutes out of order.

    REPEATED trips are sent twice; LATE ones, of ten to two, come at the end, before the last twenty of a partition.
    """
    draw = random.Random(7)
    order = sorted(range(TRIPS), key=lambda number: number * 15 + draw.randrange(480))
    for partition in (0, 1):
        own = [number for number in order if number % 2 == partition]
        values = [message for n in own for message in [trip(n, n * 15)] * (2 if n in REPEATED else 1)]
        late = [trip(n, 3600 + n) for n in LATE if n % 2 == partition]
        kafka.send("trips", [*values[:700], MALFORMED[partition], *values[700:-20], *late, *values[-20:]], partition)


def hourly(trips: sq.Stream) -> sq.Stream:
    """Return the trips and the fares of each zone and hour."""
    return trips.group_by("zone").tumbling_window("1 hour").select(trips=sq.count(), fares=sq.sum("fare"))


def late_lines(late: list[dict[str, Any]]) -> Iterator[str]:
    """Return a line for each reason for which rows were set aside, with their number and the payload of one of them."""
    for reason in sorted({row["reason"] for row in late}):
        payloads = [row["payload"] for row in late if row["reason"] == reason]
        shown = {name: value for name, value in json.loads(min(payloads)).items() if value is not None}
        if "_malformed" in shown:
            shown["_malformed"] = base64.b64decode(shown["_malformed"]).decode()
        yield f"{len(payloads):4}  {reason}, as {shown}"


def agreement(batch: list[dict[str, Any]], streamed: list[dict[str, Any]]) -> int:
    """Print whether two answers are the same, or in which rows they differ; return 0 if they are, else 1."""
    if differences := answer_differences(batch, streamed):
        print("Batch and streaming DISAGREE:", *differences, sep="\n  ")
        return 1
    print(f"Batch and streaming agree on all {len(batch)} rows.")
    return 0


def demo(kafka: Broker, folder: Path) -> int:
    """Run the query on a broker; return 0 if its answers as a stream and in a batch are the same, else 1."""
    kafka.create("trips")
    kafka.create("by_zone", 1)
    send_trips(kafka)
    print(f"Sent {TRIPS + len(LATE):,} trips, {len(REPEATED)} of them twice, to two partitions of {kafka.servers}.")
    with child_output_to(folder / "spark.log"):
        spark = sq.session(config={"spark.jars.ivy": JARS / "ivy"}, kafka=True)

    topic = sq.kafka(kafka.servers, "trips", schema=COLUMNS, at_once=2500)
    progress = sq.generate("10 minutes")
    trips = sq.points(topic, time="at", id="n", name="trips", invalid="drop", progress=progress)
    folders = {"late_sink": str(folder / "late"), "checkpoint": str(folder / "checkpoint")}
    sink = sq.kafka(kafka.servers, "by_zone")
    run = hourly(trips).run(sink=sink, **folders, trigger="available_now", finish=True)
    fields = "zone string, trips bigint, fares double, start timestamp, end timestamp"
    by_zone = sq.intervals(sq.kafka(kafka.servers, "by_zone", schema=fields), start="start", end="end")
    print('\nFirst rows of the topic "by_zone":\n')
    streamed = by_zone.to_pandas().sort_values(["start", "zone"])
    print(streamed.head(6).to_string(index=False))

    print(f"\nSet aside, {dict(run.late)}:\n")
    late = spark.read.parquet(str(folder / "late")).toArrow().to_pylist()
    print(*late_lines(late), sep="\n")
    # nothing is late in a batch, which has all of its input at once
    dropped = [json.loads(row["payload"])["n"] for row in late if row["reason"] == "dropped"]
    print(f"\nThe same query as a batch over the topic, without the {len(dropped)} trips that were late:")
    batch = hourly(trips.where(~sq.col("n").isin(dropped))).to_df().toArrow().to_pylist()
    return agreement(batch, by_zone.to_arrow().to_pylist())


def main() -> int:
    """Run the demo in a temporary folder, on a broker that ends with it."""
    with tempfile.TemporaryDirectory(prefix="streamq-demo-", ignore_cleanup_errors=True) as folder:
        (home := Path(folder) / "kafka").mkdir()
        with broker(home) as kafka:
            return demo(kafka, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
