"""Changes in the envelope of Debezium: what is read of them, what is none, and what a sink writes is the history of its table."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.connectors import kafka
from streamq.connectors.messages import WRONG
from streamq.errors import PlanError
from streamq.run.kafka_sink import in_json, keyed_values
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.hosts.result_rows import upsert_rows
from streamq.time import INFINITY

TOPIC = sq.kafka("h:9092", "t", schema="k string, v bigint", envelope="debezium")


def instant(milliseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=milliseconds)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """The values of the messages that the only partition of the topic has."""
    values: list[bytes | None] = []

    def messages(*arguments: Any) -> Iterator[list[dict[str, Any]]]:
        of_kafka = {"key": None, "partition": 0, "timestamp": instant(0), "headers": None}
        yield [{"value": value, "offset": offset, **of_kafka} for offset, value in enumerate(values)]

    monkeypatch.setattr(kafka, "messages_between", messages)
    monkeypatch.setattr(kafka, "check_brokers", lambda *arguments: None)
    return values


def change(op: str, before: Any, after: Any, at: int, **more: Any) -> dict[str, Any]:
    source = {"version": "3.1", "connector": "postgresql", "ts_ms": at, "table": "t", "lsn": 7}
    return {"before": before, "after": after, "op": op, "ts_ms": at + 5, "source": source, "transaction": None, **more}


CHANGES = [
    change("r", None, {"k": "a", "v": 1, "more": [1]}, 1),
    change("c", None, {"k": "b", "v": 1}, 2),
    # a transaction that changes a row several times
    change("u", {"k": "a", "v": 1}, {"k": "a", "v": 2}, 3),
    change("d", {"k": "a", "v": 2}, None, 3),
    None,
    change("c", None, {"k": "a", "v": 3}, 3),
    # delivered again
    change("c", None, {"k": "b", "v": 1}, 2),
    change("d", {"k": "b"}, None, 4),
    None,
    change("u", {"k": "a", "v": 3}, {"k": "a", "v": None}, 5, source=None, ts_ms=5),
]
"""Changes of a table, None for a tombstone."""

HISTORY = [("a", 1, 1, 3), ("a", 3, 3, 5), ("a", None, 5, None), ("b", 1, 2, 4)]
"""The versions of its rows: k, v, start and end in milliseconds."""


def history(rows: pa.Table) -> list[tuple[Any, ...]]:
    def milliseconds(at: dt.datetime | None) -> int | None:
        return None if at is None else round((at - instant(0)) / dt.timedelta(milliseconds=1))

    columns = ((row["k"], row["v"], milliseconds(row["start"]), milliseconds(row["end"])) for row in rows.to_pylist())
    return sorted(columns, key=lambda row: (row[0], row[2]))


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_changes_are_the_history_of_a_table(sent: list[bytes | None], is_wrapped: bool) -> None:
    """A tombstone is no row, and a transaction's changes of one instant act in their order."""

    def value(payload: Any) -> Any:
        return {"schema": {"type": "struct", "fields": []}, "payload": payload} if is_wrapped else payload

    sent += [None if one is None else json.dumps(value(one)).encode() for one in CHANGES]
    query = sq.changes(TOPIC, key="k", name="t")
    assert query.columns == ["k", "v"]
    assert history(query.to_arrow()) == HISTORY
    again = sq.from_json(query.to_json())
    assert again.tables["t"] == TOPIC
    assert history(again.to_arrow()) == HISTORY


def test_what_is_no_change_says_why(sent: list[bytes | None]) -> None:
    wrong = {
        '{"k": "a", "v": 1}': "no op, so no change of Debezium's",
        json.dumps(change("d", None, {"k": "a"}, 1)): "op is 'd', and no row before it",
        json.dumps(change("u", {"k": "a"}, None, 1)): "op is 'u', and no row after it",
        json.dumps(change("c", None, {"k": "a", "v": "x"}, 1)): "field after.v is text, and no bigint",
        json.dumps(change("c", None, {}, 1, source={"ts_ms": 2**62})): "ts_ms is no instant",
        json.dumps({"payload": change("c", None, {"k": 3}, 1)}): "field payload.after.k is a number, and no string",
        "[]": "a list, and no object of JSON",
        "{nope": "not one object of JSON",
    }
    truncate = json.dumps(change("t", None, None, 1))
    sent += [text.encode() for text in (*wrong, truncate)]
    rows = TOPIC.in_memory("show").to_pylist()
    assert [row[WRONG] for row in rows] == [*(f"malformed value: {reason}" for reason in wrong.values()), None]
    assert [row["_malformed"] for row in rows] == [*(text.encode() for text in wrong), None]
    sent[:] = sent[-1:]
    with pytest.raises(Exception, match="a truncate has no key"):
        sq.changes(TOPIC, key="k").to_arrow()


def deltas(before: dict[str, int], after: dict[str, int], at: int) -> pa.Table:
    """What turns the rows of a table, v by k, into others: events at their v that do not end."""
    changed = [(k, v, weight) for rows, weight in ((before, -1), (after, 1)) for k, v in rows.items()]
    k, v, weight = zip(*changed, strict=True) if changed else ((), (), ())
    columns = {"k": pa.array(k, pa.string()), "v": pa.array(v, pa.int64()), LE: pa.array(v, pa.int64())}
    ends = pa.array([INFINITY] * len(k), pa.int64())
    return pa.table({**columns, RE: ends, WEIGHT: pa.array(weight, pa.int64())})


@pytest.mark.parametrize("seed", range(10))
def test_what_a_sink_writes_is_read_back_as_the_history_of_its_table(sent: list[bytes | None], seed: int) -> None:
    """Each change has the row before it, and each deletion a tombstone behind it."""
    drawn = random.Random(seed)
    states: list[dict[str, int]] = [{}]
    versions: list[list[Any]] = []
    for at in range(1, 20):
        state = {k: drawn.randint(0, 3) for k in "abc" if drawn.random() < 0.7}
        rows = upsert_rows(deltas(states[-1], state, at), ["k"], by_start=False, preimages=True)
        batches: Iterable[pa.RecordBatch] = rows.to_batches(1)
        for key, value in keyed_values(batches, ("k",), True, {"connector": "streamq", "ts_ms": at}, in_json):
            assert json.loads(key or b"") == {"k": json.loads(key or b"")["k"]}
            sent.append(value)
            if value is None:
                assert json.loads(sent[-2] or b"")["op"] == "d"
                continue
            one = json.loads(value)
            k = json.loads(key or b"")["k"]
            images = [states[-1].get(k), state.get(k)]
            assert [one[name] and one[name]["v"] for name in ("before", "after")] == images
            assert (
                one["op"]
                == {(True, False): "c", (False, False): "u", (False, True): "d"}[(images[0] is None, images[1] is None)]
            )
        for k in "abc":
            if state.get(k) != states[-1].get(k):
                versions += [[k, state[k], at, None]] if k in state else []
                for version in versions[: -1 if k in state else None]:
                    if version[0] == k and version[3] is None:
                        version[3] = at
        states.append(state)
    assert history(sq.changes(TOPIC, key="k").to_arrow()) == sorted(map(tuple, versions), key=lambda v: (v[0], v[2]))


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"envelope": "maxwell"}, "envelope is 'debezium'; found 'maxwell'"),
        (
            {"envelope": "debezium", "value": "csv", "schema": "k int"},
            "value in an envelope is 'avro', 'protobuf' or 'json'; found 'csv'",
        ),
        ({"envelope": "debezium", "schema": "_change_type int"}, "a column '_change_type', which is Kafka's"),
    ],
)
def test_arguments_of_an_envelope(arguments: dict[str, Any], wrong: str) -> None:
    with pytest.raises(PlanError, match=wrong):
        sq.kafka("h:9092", "t", **arguments)
