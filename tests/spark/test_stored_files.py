"""Files are the same rows in-process, where they can be read, as Spark reads; a query over them runs everywhere by one line."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamq as sq
from streamq import testing as t
from streamq.connectors import stored_files
from streamq.connectors.connector import schema_text
from streamq.connectors.messages import MALFORMED
from streamq.errors import NeedsSpark, PlanError, QueryFailed, SourceError
from streamq.plan.schema import BESIDE_ROWS, Field
from streamq.runtime.arrow.values import python_rows
from streamq.testing.backends import land
from tests.connectors.hostile_lines import SCHEMA, hostile_lines

NUMBERS = "i int, l bigint, y tinyint, x double, f float, e decimal(10,2)"
COLUMNS = f"{NUMBERS}, b boolean, s string, d date, t timestamp, n timestamp_ntz"
NAMES = [column.split()[0] for column in COLUMNS.split(", ")]

ALIKE = {
    "i": ["1", "-1", "0", "2147483647", "007"],
    "l": ["9223372036854775807", "-9223372036854775808"],
    "y": ["127", "-128"],
    "x": ["1", "1.5", "-0.0", "1e3", "1.25E-7", "0.1", "1.7976931348623157e308", "4.9e-324"],
    "f": ["0.1", "16777217", "3.4e38"],
    "e": ["1.25", "-3", "0.5", "12345678.90"],
    "b": ["true", "false"],
    "s": ["a", "a b", "  a ", "ä😀", "NaN", "2024-01-01"],
    "d": ["2024-02-29", "0001-01-01", "9999-12-31", "1582-10-10"],
    "t": [
        "2024-01-01T00:00:00Z",
        "2024-01-01 00:00:00.123456",
        "2024-01-01T00:00:00+02:00",
        "1900-01-01T00:00:00.1",
        "0001-01-01T00:00:00Z",
    ],
    "n": ["2024-01-01T00:00:00", "2024-01-01 12:34:56.5"],
}
"""The texts of a column that are read without Spark."""

ODD = {
    "i": ["+1", "1.0", " 1", "2147483648", "x", "1e3", "0x10", "1_000", "½"],
    "l": ["9223372036854775808", "1L"],
    "y": ["128"],
    "x": ["NaN", "Infinity", "-Inf", "1.", ".5", "1d", "0x1p3", "1,5"],
    "f": ["1e39"],
    "e": ["1.255", "123456789.00", "1e2", "+1"],
    "b": ["TRUE", "1", "yes", "t"],
    "s": ["\\", "a\\nb"],
    "d": ["2024-1-1", "2024-02-30", "20240101", "2024-01-01T00:00:00", "today"],
    "t": [
        "2024-01-01",
        "2024-01-01T24:00:00",
        "2024-01-01T00:00:00.1234567",
        "1704067200",
        "2024-01-01T00:00",
        "now",
        "2024-01-01T00:00:00 Europe/Berlin",
        "12024-01-01T00:00:00Z",
        "2024-01-01T00:00:00+0200",
        "2024-01-01T00:00:00z",
    ],
    "n": ["2024-01-01T00:00:00Z", "2024-01-01"],
}
"""Texts that Spark reads, or takes for NULL, by rules of its own."""

LINES = {
    "csv": [
        "",
        "\n\n",
        "1,2\n",
        "1,2,3,1,1,1,true,s,,,,more\n",
        '"1",2,,,,,,"a,b",,,\n',
        ',,,,,,,"",,,\n',
        ',,,,,,,"a""b",,,\n',
        ',,,,,,,a"b,,,\n',
        ',,,,,,,"a\nb",,,\n',
        "1,,,,,,,,,,\r\n2,,,,,,,,,,\r\n",
        "1,,,,,,,,,,\n\n2,,,,,,,,,,",
        "#1,,,,,,,,,,\n",
        ",,,,,,,'a,b',,,\n",
        "\ufeff1,,,,,,,,,,\n",
    ],
    "json": [
        "",
        "\n\n",
        '{"i": 1}{"i": 2}\n',
        '{"i": 1',
        '[{"i": 1}]\n',
        '{"i": 1, "i": 2}\n',
        '{"I": 1}\n',
        '{"i": null, "zz": {"a": [1]}}\n',
        "{}\n",
        '{"i": "1"}\n',
        '{"s": 1}\n',
        '{"s": {"a": 1}}\n',
        '{"s": "\\u00e9\\n\\"q"}\n',
        '{"i":\n1}\n',
        '{"x": 1}\r\n{"x": 2}\r\n',
        "{'i': 1}\n",
        '{"i": 1} // no\n',
        '{"b": "true"}\n',
        "null\n",
        '{"x": NaN}\n',
        '{"d": 3}\n',
        '{"t": 3}\n',
        '{"s": ""}\n',
        '{"i": 1}\n\n{"i": 2}',
        '\ufeff{"i": 1}\n',
    ],
}
"""Whole files of unusual forms."""


def text_of(kind: str, column: str, text: str) -> str:
    """The line of a file in which one column has a text."""
    if kind == "csv":
        return ",".join(text if name == column else "" for name in NAMES) + "\n"
    bare = column in "ilyxfeb" and text not in ("½",)
    return f'{{"{column}": {text}}}\n' if bare else f'{{"{column}": "{text}"}}\n'


def values(rows: list[dict[str, Any]]) -> list[Any]:
    """Rows in an order, with NaN and the sign of zeros as texts, as neither compares as such."""
    return sorted(
        repr([str(v) if isinstance(v, float) and (math.isnan(v) or v == 0) else v for v in row.values()])
        for row in rows
    )


def read_by_spark(spark: SparkSession, kind: str, path: Path, schema: str = COLUMNS) -> dict[str, list[str]]:
    """The rows that Spark's own reader makes of files, by a file's name; a line that it notes as corrupt is malformed."""
    reader = spark.read.format(kind).schema(f"{schema}, corrupt string").options(timeZone="UTC")
    read = reader.option("columnNameOfCorruptRecord", "corrupt").load(str(path))
    rows: dict[str, list[str]] = {}
    for row in python_rows(
        read.withColumns({"corrupt": F.isnotnull("corrupt"), "file": F.col("_metadata.file_name")}).toArrow()
    ):
        file, is_corrupt = row.pop("file"), row.pop("corrupt")
        rows.setdefault(file, []).append(MALFORMED if is_corrupt else in_words(row))
    return rows


def read_by_workers(rows: pa.Table) -> list[str]:
    """The rows of a product's table, in the same words."""
    return [
        in_words({name: value for name, value in row.items() if name not in BESIDE_ROWS})
        if row[MALFORMED] is None
        else MALFORMED
        for row in python_rows(rows)
    ]


def in_words(row: dict[str, Any]) -> str:
    """A row with NaN and the sign of zeros as texts, as neither compares as such."""
    return repr([str(v) if isinstance(v, float) and (math.isnan(v) or v == 0) else v for v in row.values()])


def is_cut_by_spark(kind: str, line: bytes) -> bool:
    """True for a line of which Spark reads a part, or another text, without a word: it is malformed here."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return True
    if kind == "csv":
        # a quote is open at the end of the line
        return re.search(r'(^|,)"([^"\\]|\\.)*\\?$', text) is not None
    # Spark's reader wraps a byte that is too large
    if re.search(r'"y": (1[2-9]|2[0-5])[0-9]\b', text):
        return True
    start = text.strip(" \t")
    return any(_is_json(start[:n]) for n in range(1, len(start)))


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_each_text_is_what_spark_reads_or_an_error(spark: SparkSession, plain: None, tmp_path: Path, kind: str) -> None:
    cases = [
        (text_of(kind, c, text), True) for c, texts in ALIKE.items() for text in texts if kind == "csv" or text != "007"
    ]
    cases += [(text_of(kind, c, text), False) for c, texts in ODD.items() for text in texts]
    cases += [(text, False) for text in LINES[kind]]
    for number, (text, _) in enumerate(cases):
        (tmp_path / f"{number:03}.{kind}").write_bytes(text.encode())
    found = read_by_spark(spark, kind, tmp_path)
    wrong = []
    for number, (text, must) in enumerate(cases):
        name = f"{number:03}.{kind}"
        try:
            ours = read_by_workers(sq.files(str(tmp_path / name), format=kind, schema=COLUMNS).in_memory("show"))
        except NeedsSpark:
            if must:
                wrong.append((text, "not read", found.get(name)))
            continue
        is_cut = MALFORMED in ours and any(is_cut_by_spark(kind, line.encode()) for line in text.split("\n"))
        if ours != found.get(name, []) and not is_cut:
            wrong.append((text, ours, found.get(name)))
    assert not wrong, "\n".join(map(repr, wrong))


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_hostile_lines_are_what_spark_reads(spark: SparkSession, plain: None, tmp_path: Path, kind: str) -> None:
    """Each line is the row that Spark reads, or malformed as Spark says, or where Spark drops a part; or Spark must read it."""
    lines = hostile_lines(kind, 0, 1500)
    clear = []
    for line in lines:
        (tmp_path / "line").write_bytes(line)
        try:
            rows = sq.files(tmp_path / "line", format=kind, schema=SCHEMA).in_memory("show").num_rows
        except NeedsSpark:
            continue
        assert rows == bool(line.strip())
        clear += [line] * rows
    assert len(clear) > 0.85 * len(lines)
    (tmp_path / "line").unlink()
    (tmp_path / "all").write_bytes(b"\n".join(clear))
    files = sq.files(tmp_path / "all", format=kind, schema=SCHEMA)
    ours = read_by_workers(files.in_memory("show"))
    (theirs,) = read_by_spark(spark, kind, tmp_path / "all", SCHEMA).values()
    assert len(ours) == len(theirs) == len(clear)
    # of JSON's -0 Spark makes 0.0: the zeros are equal
    both = [
        (line, *(row.replace("'-0.0'", "'0.0'") for row in rows))
        for line, *rows in zip(clear, ours, theirs, strict=True)
    ]
    wrong = [
        case for case in both if case[1] != case[2] and not (case[1] == MALFORMED and is_cut_by_spark(kind, case[0]))
    ]
    assert not wrong, "\n".join(map(repr, wrong[:20]))
    counts = {ours.count(MALFORMED), len(ours) - ours.count(MALFORMED)}
    assert min(counts) > 200
    # as a batch, the workers read
    assert sorted(read_by_workers(files.frame(spark).toArrow())) == sorted(ours)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_malformed_lines_are_alike_in_all_hosts(
    spark: SparkSession, plain: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """They are dropped, or fail, or stand in the late output with file, place and bytes; by Spark's reader as well."""
    monkeypatch.setattr(stored_files, "SHARE", 64)
    good = [text_of(kind, "l", f"{n}") for n in range(40)]
    bad = [b"{nope\n", b"\xff\n", text_of(kind, "l", "x").encode(), b"\n"]
    of_csv = [f"1 fields, and not {len(NAMES)}", "not in UTF-8", "field l is no bigint"]
    of_json = ["not one object of JSON", "not in UTF-8", "not one object of JSON"]
    whys = [f"malformed value: {why}" for why in (of_csv if kind == "csv" else of_json)]
    (tmp_path / "in").mkdir()
    data = b"".join([*(line.encode() for line in good[:20]), *bad, *(line.encode() for line in good[20:])])
    (tmp_path / "in" / f"1.{kind}").write_bytes(data)
    (tmp_path / "in" / f"2.{kind}.gz").write_bytes(gzip.compress(data))

    def query(**how: Any) -> sq.Stream:
        rows = sq.points(sq.files(tmp_path / "in", format=kind, schema=COLUMNS, **how), time="l", invalid="drop")
        return rows.tumbling_window(10).select(n=sq.count())

    answer = [{"n": 20, "start": n, "end": n + 10} for n in range(0, 40, 10)]
    assert query().to_arrow().to_pylist() == answer
    by_spark: dict[str, Any] = {"reader": "spark"} if kind == "json" else {"nullValue": ""}
    hows: dict[str, dict[str, Any]] = {"workers": {}, "spark": by_spark}
    for name, how in hows.items():
        assert sorted(query(**how).to_df().toArrow().to_pylist(), key=repr) == sorted(answer, key=repr)
        run = query(**how).run(
            sink=str(tmp_path / f"{name}-out"), late_sink=str(tmp_path / f"{name}-late"), checkpoint=str(tmp_path / f"{name}-cp"),
            trigger="available_now", finish=True, buckets=2,
        )  # fmt: skip
        text = run.explanation("physical")
        assert ("rows are read as Arrow where they are combined" in text) == (name == "workers")
        assert ("rows are read by Spark, because" in text) == (name != "workers")
        out = spark.read.parquet(str(tmp_path / f"{name}-out")).drop("streamq_batch").toArrow().to_pylist()
        assert sorted(out, key=repr) == sorted(answer, key=repr)
        late = spark.read.parquet(str(tmp_path / f"{name}-late")).toArrow().to_pylist()
        reasons = sorted(row["reason"] for row in late)
        assert reasons == (sorted(whys * 2) if name == "workers" else ["malformed value"] * 6)
        marks = [json.loads(row["payload"]) for row in late]
        lines = sorted(base64.b64decode(mark["_malformed"]) for mark in marks)
        if name == "workers":
            assert lines == sorted([line.strip(b"\n") for line in bad[:3]] * 2)
            for mark in marks:
                assert data[mark["_offset"] :].startswith(base64.b64decode(mark["_malformed"]))
        assert {mark["_file"].rpartition("/")[2] for mark in marks} == {f"1.{kind}", f"2.{kind}.gz"}
    files = sq.files(tmp_path / "in", format=kind, schema=COLUMNS)
    for points in (sq.points(files, time="l"), sq.points(replace(files, reader="spark"), time="l")):
        with pytest.raises(Exception, match=f"malformed value.*_file: .*[12].{kind}"):
            points.to_df().toArrow()
    joined = sq.points(pa.table({"l": [1]}), time="l").with_columns(i=1).join_table(files, on="i")
    for table in (
        joined,
        sq.points(spark.range(3), time="id").with_columns(i=1).join_table(replace(files, reader="spark"), on="i"),
    ):
        with pytest.raises(Exception, match="malformed line|MALFORMED_RECORD|FAILFAST"):
            table.to_df().toArrow()
    (tmp_path / "in" / f"3.{kind}").write_text(text_of(kind, "x", "0x1p3") if kind == "csv" else "{'l': 3}")
    with pytest.raises(SourceError, match=f"3.{kind} is not read without Spark; .* Let Spark read it"):
        query().run(sink="noop", trigger="available_now", buckets=2)


def test_a_stream_that_spark_goes_on_with_has_the_same_rows(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """Workers read what Spark computes with: a filter that Arrow does not compute, and a query without a stage."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("1,a\nx,b\n3,cc\n")
    rows = sq.points(sq.files(tmp_path / "in", format="csv", schema="at bigint, k string"), time="at", name="s")
    query = rows.where(F.soundex("k") != "").tumbling_window(10).select(n=sq.count())
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "cp")
    run = query.run(sink=out, checkpoint=checkpoint, trigger="available_now", finish=True, buckets=2)
    assert "rows are read by workers, and go through Spark, because Spark computes" in run.explanation("physical")
    assert [row.n for row in spark.read.parquet(out).collect()] == [2]


def test_arrow_and_orc_files(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """Workers read both; of ORC what Spark reads, but for instants, which Spark alone does."""
    written = spark.range(5).selectExpr(*[column for column in WRITTEN if not column.endswith(" AS t")])
    written.repartition(1).write.orc(str(tmp_path / "orc"))
    orc = sq.files(tmp_path / "orc", format="orc")
    assert schema_text(orc.fields) == schema_text([Field(f.name, f.dataType) for f in written.schema.fields])
    assert values(python_rows(orc.in_memory("show"))) == values(python_rows(orc.frame(spark).toArrow()))
    spark.range(1).selectExpr("timestamp_seconds(id) AS at").write.orc(str(tmp_path / "at"))
    files = sq.files(tmp_path / "at", format="orc")
    assert files.not_split() == "only Spark reads column at of instants, whose zone the file does not say"
    instants = sq.points(files, time="at")
    with pytest.raises(NeedsSpark, match="show: column at of instants, whose zone"):
        instants.show()
    assert instants.to_df().count() == 1
    table = pa.table({"at": range(40), "k": ["a", "b"] * 20, "t": pa.array([10**9] * 40, pa.timestamp("ns"))})
    (tmp_path / "arrow").mkdir()
    for name, new in (("1", pa.ipc.new_file), ("2", pa.ipc.new_stream)):
        with new(str(tmp_path / "arrow" / f"{name}.arrow"), table.schema) as file:
            file.write_table(table, max_chunksize=7)
    for name, files in (("orc", orc), ("arrow", sq.files(tmp_path / "arrow", format="arrow"))):
        rows = sq.points(files, time="id" if name == "orc" else "at")
        query = rows.tumbling_window(10).select(n=sq.count())
        answer = query.to_arrow().to_pylist()
        assert sum(row["n"] for row in answer) == (5 if name == "orc" else 80)
        assert sorted(query.to_df().toArrow().to_pylist(), key=repr) == answer
        out = tmp_path / f"{name}-out"
        run = query.run(
            sink=str(out), checkpoint=str(tmp_path / f"{name}-cp"), trigger="available_now", finish=True, buckets=2
        )
        assert "rows are read as Arrow where they are combined" in run.explanation("physical")
        assert sorted(spark.read.parquet(str(out)).toArrow().to_pylist(), key=repr) == answer


TRIPS = [
    [(12, "a", 1, 0), (1, "b", 2, 1), (3, "a", 3, 2), (12, "c", 1, 3), (3, "a", 3, 9)],
    [(None, "a", 4, 4), (2, "b", 5, 5), (9, "c", -1, 6), (14, "a", 6, 7)],
]
STAYS = [[(1, 4, "a", 1), (5, 5, "a", 2), (2, None, "b", 3)], [(3, 8, "c", 3), (6, None, "a", 4)]]
TASKS = [[(1, "start", "a", 1), (4, "end", "a", 1), (9, "start", "b", 2)], [(12, "end", "b", 2), (7, "start", "c", 3)]]

WRITTEN = [
    "id",
    "id + 0.5D AS x",
    "cast(id AS decimal(12,3)) AS e",
    "id % 2 = 0 AS b",
    "concat('z ', id) AS s",
    "date_add(date '1582-10-10', cast(id AS int)) AS d",
    "timestamp_micros(id * 86400000001) AS t",
    "cast(timestamp_micros(id) AS timestamp_ntz) AS n",
    "array(id, NULL) AS l",
    "named_struct('p', id, 'q', map('k', id)) AS r",
    "if(id = 1, NULL, id % 3) AS part",
]


@pytest.mark.parametrize("form", ["TIMESTAMP_MICROS", "INT96"])
def test_parquet_files_are_what_spark_reads(spark: SparkSession, plain: None, tmp_path: Path, form: str) -> None:
    """Instants in both of Spark's forms, folders named by values, nested columns."""
    rows = spark.range(5).selectExpr(*WRITTEN)
    spark.conf.set("spark.sql.parquet.outputTimestampType", form)
    rows.write.partitionBy("part").parquet(str(tmp_path / "in"))
    spark.conf.unset("spark.sql.parquet.outputTimestampType")
    schema = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in rows.schema.fields)
    found = sq.files(str(tmp_path / "in"), schema=schema)
    assert found.in_memory("show").num_rows == 5
    assert values(python_rows(found.in_memory("show"))) == values(python_rows(found.frame(spark).toArrow()))
    upper = sq.files(str(tmp_path / "in"), schema="ID bigint, X double, PART bigint")
    assert values(python_rows(upper.in_memory("show"))) == values(python_rows(upper.frame(spark).toArrow()))
    instants = sq.files(str(tmp_path / "in"), schema=schema.replace("timestamp_ntz", "timestamp"))
    assert values(python_rows(instants.in_memory("show"))) == values(python_rows(instants.frame(spark).toArrow()))
    one = sq.files(str(next((tmp_path / "in").glob("part=2/*.parquet"))))
    assert [(f.name, f.type) for f in one.fields] == [(f.name, f.dataType) for f in rows.schema.fields[:-1]]


def test_a_query_over_files_is_one_line_for_every_host(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    """A stream has as many bytes of files in a micro-batch as is said, a file at least; its sink is files, read without Spark."""
    parts = [t.table("at bigint, k string", [(10 * i + n, "ab"[n % 2]) for n in range(8)]) for i in range(4)]
    land(tmp_path / "in", parts)
    (tmp_path / "names.csv").write_text('k,name\na,Anna\nb,"Bo, B."\n')
    names = sq.files(str(tmp_path / "names.csv"), format="csv", schema="k string, name string", header=True)
    most = max(f.stat().st_size for f in (tmp_path / "in").glob("*.parquet"))
    batches = {}
    hows: dict[str, dict[str, Any]] = {"default": {}, "two": {"at_once": 2 * most}, "own": {"maxFilesPerTrigger": 2}}
    for name, how in hows.items():
        trips = sq.points(sq.files(str(tmp_path / "in"), **how), time="at", name="trips").join_table(names, on="k")
        query = trips.group_by("name").tumbling_window(10).select(n=sq.count())
        answer = query.to_arrow().to_pylist()
        assert len(answer) == 8
        assert {row["name"] for row in answer} == {"Anna", "Bo, B."}
        out = sq.files(str(tmp_path / name))
        run = query.run(
            sink=out, checkpoint=str(tmp_path / f"{name}-cp"), trigger="available_now", finish=True, buckets=2
        )
        batches[name] = run.metrics["query"]["batches"]
        rows = sq.files(str(tmp_path / name)).in_memory("show").to_pylist()
        assert sorted(map(repr, rows)) == sorted(map(repr, answer))
    # the end is one more
    assert batches == {"default": 2, "two": 3, "own": 3}
    assert values(python_rows(query.to_df().toArrow())) == values(python_rows(query.to_arrow()))


@pytest.mark.parametrize("is_windowed", [False, True])
def test_a_stream_reads_a_refreshed_table_again(
    spark: SparkSession, plain: None, tmp_path: Path, is_windowed: bool
) -> None:
    """The next micro-batch sees a file that is added, and that one is gone; without refresh it does not."""
    trips, people, zones = ("at bigint, k string", "k string, name string", "k string, zone string")
    land(tmp_path / "in", [t.table(trips, [(1, "a")])], 1)
    land(tmp_path / "people", [t.table(people, [("a", "Anna")])], 1)
    land(tmp_path / "zones", [t.table(zones, [("a", "Z1")])], 1)
    query = sq.points(sq.files(tmp_path / "in"), time="at", name="trips")
    query = query.join_table(sq.files(tmp_path / "people"), on="k", how="left", refresh="each batch")
    query = query.join_table(sq.files(tmp_path / "zones"), on="k", how="left")
    if is_windowed:
        query = query.group_by("name", "zone").tumbling_window(1).select(n=sq.count())
    run = query.run(sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp"), buckets=2)
    try:
        run.query.processAllAvailable()
        land(tmp_path / "people", [t.table(people, [("b", "Bo")])], 2)
        land(tmp_path / "zones", [t.table(zones, [("b", "Z2")])], 2)
        land(tmp_path / "in", [t.table(trips, [(5, "a"), (5, "b")])], 2)
        run.query.processAllAvailable()
        land(tmp_path / "people", [t.table(people, [("a", "Ada")])], 3)
        (tmp_path / "people" / "000001.parquet").unlink()
        land(tmp_path / "in", [t.table(trips, [(9, "a"), (19, "c")])], 3)
        run.query.processAllAvailable()
    finally:
        run.stop()
    rows = sq.files(tmp_path / "out").in_memory("show").select(["start", "name", "zone"]).to_pylist()
    expected = [(1, "Anna", "Z1"), (5, "Anna", "Z1"), (5, "Bo", None), (9, "Ada", "Z1"), (19, None, None)]
    assert sorted(map(str, (tuple(row.values()) for row in rows))) == sorted(
        map(str, expected[: 4 if is_windowed else 5])
    )


def test_a_refreshed_table_that_only_spark_reads_is_refused_at_the_start(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path / "in", [t.table("at bigint, k string", [(1, "a")])])
    names = sq.files(tmp_path / "names", format="xml", schema="k string")
    query = sq.points(sq.files(tmp_path / "in"), time="at").join_table(
        names, on="k", refresh="each batch", name="names"
    )
    with pytest.raises(sq.StreamqError, match="join_table: xml files. Spark reads it"):
        query.run(sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp"))
    fixed = sq.from_json(query.to_json(), names=spark.range(0).selectExpr("'a' AS k"))
    with pytest.raises(sq.StreamqError, match="run: refresh is of a table that is read again"):
        fixed.run(sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp"))


def of_three_kinds(folder: Path, readers: list[str | None]) -> sq.Stream:
    """A union over points of an id, in folders by day, intervals and edges; ``readers`` is that of each."""
    trips = sq.points(
        sq.files(folder / "trips", schema="at bigint, k string, n int, at_offset bigint, day date", reader=readers[0]),
        time="at", id="n", beside="at_offset", name="trips", progress=sq.generate(3),
    )  # fmt: skip
    stays = sq.intervals(sq.files(folder / "stays", reader=readers[1]), start="a", end="b", name="stays")
    tasks = sq.edges(
        sq.files(folder / "tasks", reader=readers[2]), time="at", edge="what", key="n", name="tasks", late="adjust"
    )
    is_first = sq.col("day") == dt.date(2024, 5, 1)
    longer = trips.where((sq.col("n") > 0) & (is_first | (sq.col("n") != 6))).select("k", "n").set_duration(4)
    return longer.union(stays.where(sq.col("n") != 3), tasks.select("k", "n"))


def test_workers_read_parquet_as_spark_does(
    spark: SparkSession, plain: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, late and invalid ones too, are alike; a query goes on with the other reader on its checkpoint."""
    monkeypatch.setattr(stored_files, "SHARE", 64)
    wide: list[list[dict[str, Any]]] = []
    for name, first, then in (("spark", "spark", "spark"), ("workers", None, "spark")):
        for n in (0, 1):
            days = tmp_path / name / "trips" / f"day=2024-05-0{n + 1}"
            land(days, [t.table("at bigint, k string, n int, at_offset bigint", TRIPS[n])], n)
            land(tmp_path / name / "stays", [t.table("a bigint, b bigint, k string, n int", STAYS[n])], n)
            land(tmp_path / name / "tasks", [t.table("at bigint, what string, k string, n int", TASKS[n])], n)
            readers = [then if n else first] * 3
            run = of_three_kinds(tmp_path / name, readers).run(
                sink=sq.files(tmp_path / name / "out"), late_sink=str(tmp_path / name / "late"),
                checkpoint=str(tmp_path / name / "cp"), trigger="available_now", finish=n == 1, buckets=2, output="changelog",
            )  # fmt: skip
            assert ("read as Arrow" in run.explanation("physical")) == (readers[0] is None)
        late = spark.read.parquet(str(tmp_path / name / "late")).drop("streamq_batch")
        found = [*python_rows(sq.files(tmp_path / name / "out").in_memory("show")), *python_rows(late.toArrow())]
        wide.append(sorted(found, key=repr))
    assert len(wide[0]) > 12
    assert {row["reason"] for row in wide[0] if "reason" in row} == {
        "adjusted", "dropped", "duplicate", "end not after start", "null start", "two rows of one id and start that differ",
    }  # fmt: skip
    assert wide[0] == wide[1]


def test_a_file_that_workers_do_not_read(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    land(tmp_path / "in", [t.table("at bigint, n string", [(1, "a")])])
    trips = sq.points(sq.files(tmp_path / "in", schema="at bigint, n int"), time="at")
    query = trips.group_by("n").tumbling_window(10).select(c=sq.count())
    with pytest.raises(SourceError, match=r"000000.parquet is not read without Spark; column n is string, not int"):
        query.run(sink="noop", trigger="available_now", buckets=2)


def test_a_stream_of_a_single_file(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("1,a\n2,b\n")
    (tmp_path / "2.csv").write_text("3,c\n")
    cars = sq.points(sq.files(tmp_path / "1.csv", format="csv", schema="at bigint, k string"), time="at")
    cars.run(
        sink=str(tmp_path / "out"), checkpoint=str(tmp_path / "cp"), trigger="available_now", finish=True, buckets=2
    )
    assert sorted(row["k"] for row in sq.files(tmp_path / "out").in_memory("show").to_pylist()) == ["a", "b"]


def test_what_spark_does_not_read(spark: SparkSession, tmp_path: Path) -> None:
    nowhere = sq.points(sq.files(str(tmp_path / "none"), schema="at bigint"), time="at")
    with pytest.raises(QueryFailed, match=r"to_df: Spark does not plan the query; .*PATH_NOT_FOUND"):
        nowhere.to_df()
    with pytest.raises(QueryFailed, match=r"run: .*PATH_NOT_FOUND"):
        nowhere.run(sink="noop")
    with pytest.raises(PlanError, match="run: a pattern is no sink"):
        nowhere.run(sink=sq.files("out/*"))
