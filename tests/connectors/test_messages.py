"""Values of messages become rows, each by itself, however many beside it are malformed."""

from __future__ import annotations

import random
import socket
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.connectors.kafka import check_brokers
from streamq.connectors.messages import MALFORMED, MessageReader
from streamq.errors import PlanError, SourceError
from streamq.plan.schema import Field
from streamq.plan.spark_types import parse_fields

SCHEMA = "id bigint, n int, at timestamp, day date, zone string, fare double, ok boolean, l array<int>, s struct<a:int>"

ROWS = {
    '{"id": 1, "zone": "a", "more": [1, 2], "fare": 3}': {"id": 1, "zone": "a", "fare": 3.0},
    '{"at": "2024-05-01T12:00:00.123"}': {"at": "2024-05-01 12:00:00.123000+00:00"},
    '{"at": "2024-05-01T12:00:00+02:00"}': {"at": "2024-05-01 10:00:00+00:00"},
    '{"at": "2024-05-01 12:00:00Z", "ok": true}': {"at": "2024-05-01 12:00:00+00:00", "ok": True},
    '{"day": "2024-05-01"}': {"day": "2024-05-01"},
    '{"day": "2024-05-01T01:00:00"}': {"day": "2024-05-01"},
    '{\n"id": 1\n}': {"id": 1},
    ' {"l": [1, null], "s": {"a": 3, "b": 4}} ': {"l": [1, None], "s": {"a": 3}},
    '{"id": null}': {},
    "{}": {},
}
"""Values, and the columns of their rows that are not NULL, instants and days as text."""

WRONG = [
    *('{"id": "3"}', '{"id": 3.5}', '{"zone": 3}', '{"n": 5000000000}', '{"ok": 1}', '{"l": [1, "x"]}', '{"s": 3}'),
    *('{"at": 17}', '{"at": "noon"}', '{"id": 1, "id": 2}', '{"fare": 1e400}'),
    *(
        "{nope",
        "",
        "null",
        "3",
        '"x"',
        "[1]",
        '{"id": 1}{"id": 2}',
        '{"id": 1},{"id": 2}',
        "\n",
        '{"id": 1}\n{"id": 2}',
    ),
]


def columns(schema: str) -> tuple[Field, ...]:
    return tuple(Field(f.name, f.dataType) for f in parse_fields(schema, "test"))


def decoded(kind: str, schema: str, values: list[bytes | None]) -> list[dict[str, Any]]:
    fields = columns(schema)
    reader = MessageReader(kind, fields, (*fields, *columns(f"offset bigint, {MALFORMED} binary")))
    batch = pa.record_batch(
        {"value": pa.array(values, pa.binary()), "offset": pa.array(range(len(values)), pa.int64())}
    )
    (rows,) = reader(batch)
    assert rows.column("offset").to_pylist() == [*range(len(values))]
    return list(rows.drop_columns(["offset"]).to_pylist())


@pytest.mark.parametrize("seed", range(20))
def test_a_value_of_json_is_a_row_or_malformed(seed: int) -> None:
    drawn = random.Random(seed)
    values = [drawn.choice([*ROWS, *WRONG]).encode() for _ in range(60)]
    values[seed], values[2 * seed] = None, b'{"zone": "\xff"}'
    names = [field.name for field in columns(SCHEMA)]
    for value, row in zip(values, decoded("json", SCHEMA, values), strict=True):
        right = {} if value is None else ROWS.get(value.decode(errors="replace"))
        assert row.pop(MALFORMED) == (value if right is None else None)
        shown = {n: str(v) if n in ("at", "day") and v is not None else v for n, v in row.items()}
        assert shown == {name: (right or {}).get(name) for name in names}, value


def test_a_decimal_with_too_many_digits_is_malformed() -> None:
    values = [b'{"e": 123.45}', b'{"e": 1000}', b'{"e": 1.255}', b'{"e": -999.99}']
    rows = decoded("json", "e decimal(5,2)", values)
    assert [row[MALFORMED] for row in rows] == [None, *values[1:3], None]


def test_values_of_csv_and_whole_values() -> None:
    rows = {
        b'1,2024-05-01T12:00:00Z,"a,b",1.5': (1, "2024-05-01 12:00:00+00:00", "a,b", 1.5),
        b"1,,,": (1, None, None, None),
        b"1,,\xc3\xa4,": (1, None, "\u00e4", None),
    }
    wrong = [b"1,2", b"x,,,", b"", b"1,,a\nb,", b"1,,a,1,2", b"1,,\xff,", b"1,,a,\n2,,b,"]
    values = [*rows, *wrong, *rows]
    for value, row in zip(
        values, decoded("csv", "id bigint, at timestamp, zone string, v double", values), strict=True
    ):
        assert row.pop(MALFORMED) == (None if value in rows else value)
        shown = tuple(str(v) if n == "at" and v is not None else v for n, v in row.items())
        assert shown == rows.get(value, (None,) * 4), value
    texts = decoded("string", "value string", [b"a", b"\xff", None])
    assert texts == [
        {"value": "a", MALFORMED: None},
        {"value": None, MALFORMED: b"\xff"},
        {"value": None, MALFORMED: None},
    ]
    assert decoded("bytes", "value binary", [b"\xff"]) == [{"value": b"\xff", MALFORMED: None}]


def test_a_topic_is_part_of_a_plan_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = {"kafka.sasl.jaas.config": "${JAAS}"}
    topic = sq.kafka("h:9092", "t", schema="at timestamp, v bigint", start={1: 5, 0: 3}, at_once=9, options=secret)
    query = sq.points(topic, time="at", name="s").where(sq.col("v") > 1)
    again = sq.from_json(query.to_json())
    assert again.tables["s"] == topic
    assert again.plan.digest == query.plan.digest
    assert query.plan.input.policy.shown("timestamp") == "generate(per=all of [partition], idle_after=1 minute)"
    assert query.columns == ["v"]
    with pytest.raises(PlanError, match="may be a secret"):
        sq.points(
            sq.kafka("h:9092", "t", value="bytes", metadata=["timestamp"], options={"kafka.x.password": "p"}),
            time="timestamp",
        ).to_json()


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"value": "jso"}, "json"),
        ({"value": "string", "schema": "v int"}, "the column 'value' alone"),
        ({"schema": "offset int"}, "a column 'offset'"),
        ({"schema": "v map<string,int>"}, "not decoded"),
        ({"value": "csv", "schema": "v array<int>"}, "not decoded"),
        ({"schema": "v int", "metadata": ["offsets"]}, "offset"),
        ({"schema": "v int", "start": "first"}, "start is"),
        ({"schema": "v int", "end": {}}, "end is"),
        ({"schema": "v int", "start": {0: True}}, "start is"),
        ({"schema": "v int", "at_once": 0}, "at_once"),
        ({"schema": "v int", "options": {"a": 1}}, "options are texts"),
        ({"schema": "v int", "options": {"subscribe": "u"}}, "is said by an argument"),
    ],
)
def test_arguments_of_a_topic(arguments: dict[str, Any], wrong: str) -> None:
    with pytest.raises(PlanError, match=wrong):
        sq.kafka("h:9092", "t", **arguments)


def test_a_topic_that_is_read_says_its_columns() -> None:
    with pytest.raises(PlanError, match="which columns values have is not known"):
        sq.points(sq.kafka("h:9092", "t"), time="at")
    stream = sq.events([(1, 2, {"v": 1})])
    with pytest.raises(PlanError, match="a topic that is written has no schema"):
        stream.run(sink=sq.kafka("h:9092", "t", schema="v bigint"), checkpoint="c")


def test_a_broker_that_does_not_answer_is_named_at_once() -> None:
    with pytest.raises(PlanError, match="servers are hosts with ports; found 'localhost'"):
        sq.kafka("localhost", "t")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{s.getsockname()[1]}"
    with pytest.raises(SourceError, match=f"no broker of Kafka answers at {servers}; {servers}: .*refused"):
        check_brokers(servers, "to_df")
