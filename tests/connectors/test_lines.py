"""Lines of CSV and JSON are the same rows however a file is cut, and whoever parses them; what is no row is set aside."""

from __future__ import annotations

import bz2
import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.connectors import lines as lines_room
from streamq.connectors.csv_lines import has_plain_quotes
from streamq.connectors.lines import LineFormat, Lines, lines_of
from streamq.connectors.messages import FILE, MALFORMED, OFFSET, PARTITION, WRONG
from streamq.connectors.stored_files import FORMATS
from streamq.connectors.text_values import Unclear
from streamq.errors import InvalidEvent, PlanError, SourceError, StreamqWarning, UnknownColumn
from streamq.plan.schema import BESIDE_ROWS, Field
from streamq.plan.spark_types import parse_fields
from streamq.runtime.arrow.values import python_rows
from tests.connectors.hostile_lines import SCHEMA, hostile_lines

MARKS = ("_malformed", "_offset", "_wrong")
COLUMNS = tuple(Field(f.name, f.dataType) for f in parse_fields(SCHEMA, "test"))


def is_clear(kind: LineFormat, line: bytes) -> bool:
    """False for a line that only Spark reads."""
    try:
        list(kind.parts(io.BytesIO(line), COLUMNS, {}))
    except Unclear:
        return False
    return True


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["csv", "json"])
def test_a_file_is_the_same_rows_however_it_is_cut(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same line by line, in blocks that Arrow parses, in small pieces, and in shares."""
    kind = FORMATS[name]
    assert isinstance(kind, LineFormat)
    clear = [line for line in hostile_lines(name, seed, 100) if is_clear(kind, line)]
    assert len(clear) > 60
    alone = [row for line in clear for table in kind.parts(io.BytesIO(line), COLUMNS, {}) for row in shown(table)]
    # good rows beside each other are for Arrow
    clear = [line for line in clear for _ in range(2)]
    alone = [row for row in alone for _ in range(2)]
    breaks = [b"\n", b"\r\n", b"\r"]
    data = b"".join(line + breaks[n % (1 + seed % 3)] for n, line in enumerate(clear))
    for few, chunk in ((lines_room.FEW, lines_room.CHUNK), (4, 500)):
        monkeypatch.setattr(lines_room, "FEW", few)
        monkeypatch.setattr(lines_room, "CHUNK", chunk)
        for shares in (1, 2, 7):
            rows = []
            for number in range(shares):
                for table in kind.parts(io.BytesIO(data), COLUMNS, {}, (number, shares)):
                    rows += shown(table)
                    for bad, offset, _ in zip(*(table.column(n).to_pylist() for n in MARKS), strict=True):
                        assert (bad is None) == (offset is None)
                        assert bad is None or data[offset:].startswith(bad)
            assert rows == alone
    assert 20 < sum("'_malformed': None" in row for row in alone) < len(alone) - 20


@pytest.mark.parametrize("name", ["csv", "json"])
def test_columns_that_are_not_read_change_no_others(name: str) -> None:
    """What a query does not read is left out, and still makes a line malformed."""
    kind = FORMATS[name]
    assert isinstance(kind, LineFormat)
    clear = [line for line in hostile_lines(name, 9, 200) if is_clear(kind, line)]
    data = b"\n".join(line for line in clear for _ in range(2))
    whole = pa.concat_tables(kind.parts(io.BytesIO(data), COLUMNS, {}))
    for unread in ({"s"}, {"x", "t"}, {"s", "n"}, {column.name for column in COLUMNS}):
        rows = pa.concat_tables(kind.parts(io.BytesIO(data), COLUMNS, {}, unread=unread))
        assert shown(rows) == shown(whole.drop_columns([*unread]))


@pytest.mark.parametrize("name", ["csv", "json"])
def test_a_text_that_is_not_read_is_of_utf_8(name: str) -> None:
    kind = FORMATS[name]
    columns = (COLUMNS[0], COLUMNS[5])
    good, bad = (b"1,a\n", b"2,\xff\n") if name == "csv" else (b'{"i": 1, "s": "a"}\n', b'{"i": 2, "s": "\xff"}\n')
    data = good * 900 + bad + good * 900
    rows = pa.concat_tables(kind.parts(io.BytesIO(data), columns, {}, unread={"s"}))
    assert rows.column("i").to_pylist() == [1] * 900 + [None] + [1] * 900
    assert rows.column("_malformed").drop_null().to_pylist() == [bad.strip()]


def test_quotes_that_arrow_reads_as_spark_does() -> None:
    def is_plain(text: bytes, is_doubled: bool = False) -> bool:
        (lines,) = lines_of(io.BytesIO(text), (0, 1), b" \n\r")
        return has_plain_quotes(lines, ",", is_doubled)

    for text in (b'"a",b\n', b'a,"b,c"', b'"",""\r\n"x"\n', b"a\\,b\n", b'a\\,"b"\n'):
        assert is_plain(text) and is_plain(text, True)
    for text in (b'a"b"\n', b'"a"b\n', b'"a" ,b\n', b'"a\nb"\n', b'"a\n \nb"\n', b'"a\n', b'"a"x"b"\n'):
        assert not is_plain(text) and not is_plain(text, True)
    # Spark's escape is a backslash, or another quote
    for text in (b'"a\\",b\n', b'"a\\"",b\n'):
        assert not is_plain(text)
    assert is_plain(b'"a ""b""",c\n', True) and not is_plain(b'"a ""b""",c\n')
    assert is_plain(b'"a\\b"\n', True) and not is_plain(b'"a\\b"\n')


def shown(table: pa.Table) -> list[str]:
    """Rows as texts, as NaN equals nothing."""
    return [repr(row) for row in python_rows(table.drop_columns(["_offset"]))]


def test_where_lines_begin() -> None:
    def begins(data: bytes, share: tuple[int, int] = (0, 1)) -> list[bytes]:
        parts: list[Lines] = list(lines_of(io.BytesIO(data), share, b" \t\r\n"))
        return [line for part in parts for line in part]

    assert begins(b"\xef\xbb\xbfa\n\n  \nb\rc\r\nd") == [b"a", b"b", b"c", b"d"]
    assert begins(b"") == begins(b"\n\r\n \r") == begins(b"\xef\xbb\xbf") == []
    data = b"a\r\nbb\rcc\n\nd\r\n"
    for shares in range(1, 20):
        assert [line for n in range(shares) for line in begins(data, (n, shares))] == [b"a", b"bb", b"cc", b"d"]


def test_compressed_files_and_options(tmp_path: Path) -> None:
    text = b'k,v\n"a ""b""",1\nc\\d,2\n"e,f",3\n'
    (tmp_path / "1.csv.gz").write_bytes(gzip.compress(text[:9]) + gzip.compress(text[9:]))
    (tmp_path / "2.csv.bz2").write_bytes(bz2.compress(text))
    for name in ("3.csv.zst", "4.csv.lz4"):
        with pa.output_stream(str(tmp_path / name)) as file:
            file.write(text)
    (tmp_path / "5.csv").write_bytes(text)
    how: dict[str, Any] = {"format": "csv", "schema": "k string, v int", "header": True}
    for file in sorted(tmp_path.iterdir()):
        rows = sq.files(file, escape='"', **how).in_memory("show").to_pylist()
        assert [row["k"] for row in rows] == ['a "b"', "c\\d", "e,f"]
        with pytest.raises(
            sq.StreamqError, match=r"quotes within quotes: \"a \"\"b.* if quotes are doubled, say escape="
        ):
            sq.files(file, **how).in_memory("show")
    (tmp_path / "5.csv").rename(tmp_path / "5.csv.snappy")
    with pytest.raises(sq.StreamqError, match="compressed as snappy"):
        sq.files(tmp_path / "5.csv.snappy", **how).in_memory("show")
    with pytest.raises(sq.StreamqError, match="quotes behind '!'"):
        sq.files(tmp_path / "1.csv.gz", escape="!", **how).in_memory("show")


def test_what_becomes_of_malformed_lines(tmp_path: Path) -> None:
    """They are invalid rows in a query, and an error in a table."""
    path = tmp_path / "trips.json"
    path.write_text('{"at": 1, "k": "a"}\n{"at": "2", "k": "b"}\n{"at": 3, "k": "c"\n{"at": 4}\n')
    files = sq.files(path, format="json", schema="at bigint, k string")
    trips = sq.points(files, time="at", name="trips", invalid="drop")
    assert trips.columns == ["k"]
    with pytest.warns(StreamqWarning, match=r"to_arrow: 2 row\(s\) of source trips are no events, and are left out"):
        assert trips.to_arrow().column("start").to_pylist() == [1, 4]
    why = "field at is text, and no bigint"
    with pytest.raises(InvalidEvent, match=rf"malformed value: {why} \(.*'_file': '.*trips.json'") as caught:
        sq.points(files, time="at", name="trips").show()
    assert "'_offset': 20" in str(caught.value)
    again = sq.from_json(trips.to_json(), trips=pa.table({"at": [7], "k": ["z"]}))
    assert again.to_arrow().num_rows == 1
    with pytest.raises(
        SourceError, match=rf"join_table: .*trips.json has a malformed line; at byte 20: b'{{\"at\": \"2\".*: {why}"
    ):
        sq.events([(1, 5, {"k": "a"})]).join_table(files, on="k").show()
    with pytest.raises(PlanError, match="column '_malformed' is that of malformed lines"):
        sq.files(path, format="json", schema="at bigint, _malformed string")


@pytest.mark.parametrize(
    ("kind", "line", "why"),
    [
        ("csv", b"1,2,2024-01-01", None),
        ("csv", b",,", None),
        ("csv", b"1,x,2024-01-01", "field v is no bigint"),
        ("csv", b"1,99999999999999999999,y", "field v is no bigint"),
        ("csv", b"1,2,2024-13-01", "field d is no date"),
        ("csv", b"1,2", "2 fields, and not 3"),
        ("csv", b'"1,2,', "not one line of CSV"),
        ("csv", b"\xff,2,", "not in UTF-8"),
        ("json", b'{"v": 2, "d": "2024-01-01", "other": [1]}', None),
        ("json", b'{"at": 1, "v": "2"}', "field v is text, and no bigint"),
        ("json", b'{"at": 1, "v": 2.5}', "field v is a number, and no bigint"),
        ("json", b'{"at": true}', "field at is a truth, and no bigint"),
        ("json", b'{"at": {"v": 1}}', "field at is an object, and no bigint"),
        ("json", b'{"d": "2024-13-01"}', "field d is text, and no date"),
        ("json", b'{"v": 1, "v": [2]}', "field v is a list, and no bigint"),
        ("json", b'{"s": {"b": 1, "a": "x"}}', "field s.a is text, and no bigint"),
        ("json", b'{"s": 3}', "field s is a number, and no struct<a:bigint>"),
        ("json", b"[1]", "a list, and no object of JSON"),
        ("json", b"null", "null, and no object of JSON"),
        ("json", b'{"at": 1', "not one object of JSON"),
        ("json", b'{"at": 1} {"at": 2}', "not one object of JSON"),
        ("json", b'{"at": "\xff"}', "not in UTF-8"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(tmp_path: Path, kind: str, line: bytes, why: str | None) -> None:
    """Whether Arrow parses the block, which has good lines before and behind it, or Python."""
    good = b"7,8,2024-01-01" if kind == "csv" else b'{"at": 7, "v": 8}'
    for name, lines in {"one": [line], "all": [good, line, good]}.items():
        (tmp_path / name).write_bytes(b"\n".join(lines))
        more = ", s struct<a: bigint>" if kind == "json" else ""
        rows = sq.files(tmp_path / name, format=kind, schema=f"at bigint, v bigint, d date{more}").in_memory("show")
        reason = None if why is None else f"malformed value: {why}"
        assert rows.column("_wrong").to_pylist() == [reason if one is line else None for one in lines]


def test_errors_list_the_columns_of_the_schema_alone(tmp_path: Path) -> None:
    assert {PARTITION, FILE, OFFSET, MALFORMED, WRONG} == BESIDE_ROWS
    (tmp_path / "a.csv").write_text("1,2\n")
    files = sq.files(tmp_path / "a.csv", format="csv", schema="at bigint, v bigint")
    for wrong in ({"time": "att"}, {"time": "at", "id": "ad"}, {"time": "at", "beside": "ad"}):
        with pytest.raises(UnknownColumn, match="there are: at, v. Did you mean 'at'"):
            sq.points(files, **wrong)
    trips = sq.points(files, time="at", name="trips").to_json()
    other = sq.files(tmp_path / "a.csv", format="csv", schema="v bigint, w bigint")
    with pytest.raises(UnknownColumn, match="there are: v, w."):
        sq.from_json(trips, trips=other)


def test_a_header_in_another_order_is_an_error(tmp_path: Path) -> None:
    """Columns go by their places, so they would be exchanged without a word."""
    (tmp_path / "a.csv").write_text("at,tip,fare\n1,2,3\n")
    rows = {}
    for schema in ("at bigint, tip int, fare int", "at bigint, fare int, tip int", "at bigint, x int, y int"):
        files = sq.files(tmp_path, format="csv", schema=schema, header=True)
        rows[schema] = lambda files=files: sq.points(files, time="at").to_arrow().num_rows
    right, exchanged, renamed = rows.values()
    assert right() == renamed() == 1
    with pytest.raises(sq.StreamqError, match="its header has the columns in another order: at, tip, fare"):
        exchanged()


def test_an_option_that_is_misspelt_is_an_error() -> None:
    for name, meant in (("hedder", "header"), ("delimeter", "delimiter"), ("formt", "format")):
        with pytest.raises(PlanError, match=f"no parameter '{name}'. Did you mean '{meant}'?"):
            sq.files("x", **{"format": "csv", "schema": "at bigint", name: "1"})
