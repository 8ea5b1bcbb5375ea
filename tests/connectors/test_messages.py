"""Values of messages become rows, each by itself, however many beside it are malformed."""

from __future__ import annotations

import datetime as dt
import random
import socket
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.connectors.kafka_client import check_brokers
from streamq.connectors.messages import FORMATS, MALFORMED, OFFSET, PARTITION, WRONG, MessageReader, ValueFormat
from streamq.errors import PlanError, SourceError
from streamq.plan.schema import Field
from streamq.plan.spark_types import parse_fields
from streamq.run.kafka_sink import in_json

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

NO_ROWS = {
    '{"id": "3"}': "field id is text, and no bigint",
    '{"id": 3.5}': "field id is a number, and no bigint",
    '{"zone": 3}': "field zone is a number, and no string",
    '{"n": 5000000000}': "field n is a number, and no int",
    '{"ok": 1}': "field ok is a number, and no boolean",
    '{"l": [1, "x"]}': "field l is a list, and no array<int>",
    '{"s": 3}': "field s is a number, and no struct<a:int>",
    '{"zone": {"a": 1}}': "field zone is an object, and no string",
    '{"at": 17}': "field at is a number, and no timestamp",
    '{"at": "noon"}': "field at is text, and no timestamp",
    '{"day": true}': "field day is a truth, and no date",
    '{"id": 1, "id": 2}': "field id twice",
    '{"fare": 1e400}': "not one object of JSON",
    "null": "null, and no object of JSON",
    "3": "a number, and no object of JSON",
    '"x"': "text, and no object of JSON",
    "[1]": "a list, and no object of JSON",
    **dict.fromkeys(["{nope", "", "\n", '{"id": 1}{"id": 2}', '{"id": 1},{"id": 2}'], "not one object of JSON"),
    '{"id": 1}\n{"id": 2}': "not one object of JSON",
}
"""Values that are no rows, and what is wrong with them."""


def columns(schema: str) -> tuple[Field, ...]:
    return tuple(Field(f.name, f.dataType) for f in parse_fields(schema, "test"))


def decoded(form: ValueFormat, schema: str, values: list[bytes | None], **arguments: Any) -> list[dict[str, Any]]:
    """The rows of values, each at an offset of partition 7; MALFORMED is there only if it is the value, where WRONG is."""
    fields = columns(schema)
    own = columns(f"{PARTITION} int, {OFFSET} bigint, {MALFORMED} binary, {WRONG} string")
    reader = MessageReader(form, fields, (*fields, *own), **arguments)
    places = {PARTITION: pa.array([7] * len(values), pa.int32()), OFFSET: pa.array(range(len(values)), pa.int64())}
    (table,) = reader(pa.record_batch({"value": pa.array(values, pa.binary()), **places}))
    rows = table.to_pylist()
    for number, (row, value) in enumerate(zip(rows, values, strict=True)):
        assert (row.pop(PARTITION), row.pop(OFFSET)) == (7, number)
        assert row.pop(MALFORMED) == (None if row[WRONG] is None else value)
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_a_value_of_json_is_a_row_or_malformed(seed: int) -> None:
    drawn = random.Random(seed)
    values = [drawn.choice([*ROWS, *NO_ROWS]).encode() for _ in range(60)]
    values[seed], values[2 * seed] = None, b'{"zone": "\xff"}'
    names = [field.name for field in columns(SCHEMA)]
    reasons = {**NO_ROWS, '{"zone": "\ufffd"}': "not in UTF-8"}
    for value, row in zip(values, decoded(FORMATS["json"], SCHEMA, values), strict=True):
        text = None if value is None else value.decode(errors="replace")
        right = {} if text is None else ROWS.get(text)
        assert row.pop(WRONG) == (None if right is not None else f"malformed value: {reasons[str(text)]}")
        shown = {n: str(v) if n in ("at", "day") and v is not None else v for n, v in row.items()}
        assert shown == {name: (right or {}).get(name) for name in names}, value


def test_values_that_are_rows_only_with_what_is_around_them() -> None:
    """Two values that are one object, beside one that is two; what would close a list around it; zeros."""
    two = '{"id": 1}{"id": 2}'
    for values in (
        ['{"s":', '{"a": 1}}', two],
        ['{"zone": "}', '{", "id": 1}', two],
        ['{"l": [{}', "{}]}", two],
        ['{"id": 1}],"x":[1'],
        ['{"id": 1}\0{}'],
        ['{"id": 1}\0', two],
        ["\0{}", two],
        ['{"id": 1}null{}'],
    ):
        rows = decoded(FORMATS["json"], SCHEMA, [b"{}", *(value.encode() for value in values), b"{}"])
        wrong = "malformed value: not one object of JSON"
        assert [row[WRONG] for row in rows] == [None, *[wrong] * len(values), None]


def test_a_decimal_with_too_many_digits_is_malformed() -> None:
    texts = [b"123.45", b"1000", b"1.255", b"-999.99"]
    for form, before, behind, kind in (("json", b'{"e": ', b"}", "a number, and no"), ("csv", b"", b"", "no")):
        rows = decoded(FORMATS[form], "e decimal(5,2)", [before + text + behind for text in texts])
        wrong = f"malformed value: field e is {kind} decimal(5,2)"
        assert [row[WRONG] for row in rows] == [None, wrong, wrong, None]


def test_values_of_csv_and_whole_values() -> None:
    rows = {
        b'1,2024-05-01T12:00:00Z,"a,b",1.5': (1, "2024-05-01 12:00:00+00:00", "a,b", 1.5),
        b"1,,,": (1, None, None, None),
        b"1,,\xc3\xa4,": (1, None, "\u00e4", None),
    }
    wrong = {
        b"1,2": "2 fields, and not 4",
        b"": "not one line of CSV",
        b"x,,,": "field id is no bigint",
        b"1,noon,,": "field at is no timestamp",
        b"1,,a\nb,": "not one line of CSV",
        b"1,,a,1,2": "5 fields, and not 4",
        b"1,,\xff,": "not in UTF-8",
        b"1,,a,\n2,,b,": "not one line of CSV",
    }
    values = [*rows, *wrong, *rows]
    decoded_rows = decoded(FORMATS["csv"], "id bigint, at timestamp, zone string, v double", values)
    for value, row in zip(values, decoded_rows, strict=True):
        assert row.pop(WRONG) == (f"malformed value: {wrong[value]}" if value in wrong else None)
        shown = tuple(str(v) if n == "at" and v is not None else v for n, v in row.items())
        assert shown == rows.get(value, (None,) * 4), value
    texts = decoded(FORMATS["string"], "value string", [b"a", b"\xff", None])
    assert texts == [
        {"value": "a", WRONG: None},
        {"value": None, WRONG: "malformed value: not in UTF-8"},
        {"value": None, WRONG: None},
    ]
    assert decoded(FORMATS["bytes"], "value binary", [b"\xff"]) == [{"value": b"\xff", WRONG: None}]


def test_what_a_sink_writes_is_read_back() -> None:
    nan, infinite = float("nan"), float("inf")
    kinds = "v double, w double, at timestamp, day date, e decimal(5,2), l array<int>, s struct<a:int>, ok boolean, t string"
    at = dt.datetime(2024, 5, 1, 12, 0, 0, 5, dt.UTC)
    row = {
        "v": nan,
        "w": -infinite,
        "at": at,
        "day": at.date(),
        "l": [1, None],
        "s": {"a": 2},
        "ok": True,
        "t": "\u00e4",
    }
    row["e"] = Decimal("1.25")
    text = in_json({**row, "tags": [("a", 1)], "data": b"a"})
    assert b'"tags": [["a", 1]], "data": "YQ=="' in text
    (read,) = decoded(FORMATS["json"], kinds, [text])
    assert repr(read.pop("v")) == "nan" and read.pop("w") == -infinite
    assert read == {WRONG: None} | {name: row[name] for name in ("at", "day", "e", "l", "s", "ok", "t")}


def test_a_topic_is_part_of_a_plan() -> None:
    secret = {"kafka.sasl.jaas.config": "${JAAS}"}
    topic = sq.kafka("h:9092", "t", schema="at timestamp, v bigint", start={1: 5, 0: 3}, at_once=9, options=secret)
    query = sq.points(topic, time="at", name="s").where(sq.col("v") > 1)
    again = sq.from_json(query.to_json())
    assert again.tables["s"] == topic
    assert again.plan.digest == query.plan.digest
    assert query.plan.input.policy.shown("timestamp") == "generate(per=all of [_partition], idle_after=1 minute)"
    assert query.columns == ["v"]


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"value": "jso"}, "json"),
        ({"value": "string", "schema": "v int"}, "the column 'value' alone"),
        ({"schema": "_offset int"}, "a column '_offset'"),
        ({"schema": "key int", "metadata": ["key"]}, "a column 'key'"),
        ({"schema": "v int", "record": "x"}, "has no record"),
        ({"value": "avro", "schema": "v int"}, "has the columns of a record; found schema='v int', record=None"),
        ({"schema": "v map<string,int>"}, "not decoded"),
        ({"value": "csv", "schema": "v array<int>"}, "not decoded"),
        ({"schema": "v int", "metadata": ["offsets"]}, "offset"),
        ({"schema": "v int", "start": "first"}, "start is"),
        ({"schema": "v int", "end": {}}, "end is"),
        ({"schema": "v int", "end": "earliest"}, "end is 'latest' or"),
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
