"""Kafka by clients of Python's: whether a broker answers, how a client is set up, and a range of a topic's messages."""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from streamq.connectors.connector import Options, option_values
from streamq.errors import SourceError

CONNECT_SECONDS = 5.0
"""The seconds that a broker may take to accept a connection."""

ANSWER_SECONDS = 60.0
"""The seconds that a broker may take to answer."""

AT_ONCE = 10_000
"""The number of messages that are decoded at once, at most."""


def check_brokers(servers: str, verb: str) -> None:
    """Raise SourceError, worded for ``verb``, if no server accepts a connection: Kafka's client would try for minutes."""
    problems = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
                return
        except OSError as error:
            problems.append(f"{server.strip()}: {error}")
    hint = "Is it up, and can this computer reach it? It is that of the driver."
    raise SourceError(verb, f"no broker of Kafka answers at {servers}", "; ".join(problems), hint)


def client_settings(servers: str, options: Options) -> dict[str, str]:
    """Return the settings of Kafka's client, without options of Spark's; raise what ``option_values`` raises."""
    named = {name.lower(): str(value) for name, value in option_values(options).items()}
    own = {name.removeprefix("kafka."): value for name, value in named.items() if name.startswith("kafka.")}
    return {"bootstrap.servers": servers, **own}


def messages_between(
    settings: Mapping[str, str], topic: str, start: Mapping[int, int] | None, end: Mapping[int, int] | None
) -> Iterator[list[dict[str, Any]]]:
    """Yield the messages of a topic, of committed transactions, from the offsets ``start`` to before ``end``, by partition.

    None: from the earliest, and to the latest that is committed at the time of the call. A message is a dictionary of Kafka's
    columns. Raises SourceError for a topic, a partition or offsets that are not there, and for settings that the client lacks.
    """
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    reading = {"group.id": "streamq", "isolation.level": "read_committed", "auto.offset.reset": "error"}
    try:
        consumer: Any = Consumer({**settings, **reading, "enable.auto.commit": False, "enable.partition.eof": True})
        described = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
        if described.error is not None:
            raise KafkaException(described.error)
        places = {one: TopicPartition(topic, one) for one in described.partitions}
        bounds = {one: consumer.get_watermark_offsets(place, ANSWER_SECONDS) for one, place in places.items()}
    except KafkaException as error:
        raise SourceError("kafka", f"topic {topic!r} is not read", error.args[0].str()) from error
    for name, offsets in (("start", start), ("end", end)):
        if offsets is not None and set(offsets) != set(bounds):
            there = ", ".join(map(str, sorted(bounds)))
            raise SourceError(
                "kafka", f"{name} has an offset for each partition", f"found {offsets}; there are: {there}"
            )
    first = {one: low if start is None else start[one] for one, (low, _) in bounds.items()}
    last = {one: high if end is None else end[one] for one, (_, high) in bounds.items()}
    for one, (low, high) in bounds.items():
        if not low <= first[one] <= last[one] <= high:
            wrong = f"partition {one} of {topic!r} has no offsets from {first[one]} to before {last[one]}"
            raise SourceError("kafka", wrong, f"it has those from {low} to before {high}")
    waiting = {one for one in bounds if first[one] < last[one]}
    consumer.assign([TopicPartition(topic, one, first[one]) for one in sorted(waiting)])
    columns: list[dict[str, Any]] = []
    while waiting:
        message: Any = consumer.poll(ANSWER_SECONDS)
        if message is None:
            raise SourceError("kafka", f"topic {topic!r} is not read", f"no answer in {ANSWER_SECONDS:.0f} s")
        problem = message.error()
        if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
            raise SourceError("kafka", f"topic {topic!r} is not read", problem.str())
        partition = message.partition()
        if problem is None and message.offset() < last[partition]:
            columns.append(_columns_of(message))
        # readers of what is committed get no further than a transaction that is open, and wait for it if they name an end
        is_at_end = problem is not None and (end is None or message.offset() >= last[partition])
        if is_at_end or (problem is None and message.offset() >= last[partition] - 1):
            waiting.discard(partition)
        if len(columns) == AT_ONCE:
            yield columns
            columns = []
    yield columns
    consumer.close()


def _columns_of(message: Any) -> dict[str, Any]:
    """Return a message's columns by Kafka's names for them."""
    headers = message.headers()
    return {
        "value": message.value(),
        "key": message.key(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": dt.datetime.fromtimestamp(message.timestamp()[1] / 1_000, dt.UTC),
        "headers": None if headers is None else [{"key": key, "value": value} for key, value in headers],
    }
