"""Files are read without Spark where each value is the one that Spark reads; all else is an error that names file and value."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as s

import streamq as sq
from streamq import testing as t
from streamq.connectors.messages import MALFORMED
from streamq.connectors.stored_files import FORMATS, FileReader
from streamq.errors import AmbiguousColumn, NeedsSpark, PlanError, SourceError, TypeMismatch, UnknownColumn

CARS = [{"at": 1, "k": "a"}, {"at": 4, "k": "b"}, {"at": 12, "k": "a"}]


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    """The path of a Parquet file with some rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def rows_of(path: Path | str, **how: Any) -> list[dict[str, Any]]:
    return sq.files(path, **how).in_memory("show").to_pylist()


def test_a_query_over_files_runs_without_spark(tmp_path: Path) -> None:
    """A later call reads the files that have come by then; what is drawn, traced and verified is their rows."""
    written(tmp_path / "1.parquet", CARS[:2])
    cars = sq.points(sq.files(str(tmp_path)), time="at", name="cars")
    query = cars.group_by("k").tumbling_window(10).select(n=sq.count())
    assert query.to_arrow().num_rows == 2
    written(tmp_path / "2.parquet", CARS[2:])
    assert query.to_arrow().num_rows == 3
    names = pa.table({"k": ["a", "b"], "name": ["Anna", "Bo"]})
    (tmp_path / "names").mkdir()
    pq.write_table(names, tmp_path / "names" / "1.parquet")
    joined = cars.join_table(sq.files(str(tmp_path / "names")), on="k")
    assert joined.to_pandas()["name"].tolist() == ["Anna", "Bo", "Anna"]
    assert "join_table of cars: 3 inserted" in str(joined.trace())
    assert sq.compare_levels(query).batches == 3
    assert "Anna" in t.program(joined)
    assert t.verify(joined, profile="fast", examples=2).cases
    joined.plot()


def test_a_plan_in_json_holds_its_files(tmp_path: Path) -> None:
    where = written(tmp_path / "1.parquet", CARS)
    for files in (sq.files(where, at_once="1 MB"), sq.files(where, schema="k string, at bigint", maxFilesPerTrigger=3)):
        query = sq.points(files, time="at", name="cars").where(sq.col("k") == "a")
        read = sq.from_json(query.to_json())
        assert read.tables["cars"] == files
        assert read.to_json() == query.to_json()
        assert read.to_arrow() == query.to_arrow()
        others = sq.from_json(query.to_json(), cars=pa.table({"at": [7], "k": ["a"]}))
        assert others.to_arrow().num_rows == 1
    text = query.to_json()
    with pytest.raises(PlanError, match="from_json: no connector 'ftp'; there are: files"):
        sq.from_json(text.replace('"connector": "files"', '"connector": "ftp"'))
    with pytest.raises(PlanError, match="from_json: not the files of a plan"):
        sq.from_json(text.replace('"at_once"', '"at_twice"'))


def test_which_files_of_a_folder_are_read(tmp_path: Path) -> None:
    """Those that Spark reads: not what begins with _ or ., not what lies in other folders, of patterns what fits."""
    for name in ("1.parquet", "_2.parquet", ".3.parquet", "more/4.parquet", "_x/5.parquet"):
        written(tmp_path / name, [{"at": int(name.split(".")[-2][-1])}])
    assert rows_of(tmp_path) == [{"at": 1}]
    assert rows_of(f"file:{tmp_path}") == rows_of(f"file://{tmp_path}") == [{"at": 1}]
    assert rows_of(tmp_path / "*" / "[3-4].parquet") == [{"at": 4}]
    assert rows_of(tmp_path / "mo*") == [{"at": 4}]
    assert rows_of(tmp_path / "{more,none}" / "{1,{3,4}}.parquet") == [{"at": 4}]
    assert rows_of(tmp_path / "{1,9}.par{quet,ket}") == [{"at": 1}]
    with pytest.raises(NeedsSpark, match="show: a pattern with braces around folders"):
        rows_of(tmp_path / "{more/4,1}.parquet", schema="at bigint")
    with pytest.raises(SourceError, match=r"show: no file fits .*/x\*. Look at the path."):
        rows_of(tmp_path / "x*", schema="at bigint")
    with pytest.raises(SourceError, match=r"show: nothing at .*none; .* does not exist. Look at the path."):
        rows_of(tmp_path / "none", schema="at bigint")
    (tmp_path / "empty").mkdir()
    assert rows_of(tmp_path / "empty", schema="at bigint") == []


def test_columns_in_the_names_of_folders(tmp_path: Path) -> None:
    for name in ("day=2024-01-01/zone=a%2Fb", "day=2024-01-02/zone=__HIVE_DEFAULT_PARTITION__"):
        written(tmp_path / name / "1.parquet", [{"at": 1}])
    first, second = rows_of(tmp_path, schema="zone string, at bigint, day date")
    assert first == {"zone": "a/b", "at": 1, "day": dt.date(2024, 1, 1)}
    assert second["zone"] is None
    with pytest.raises(SourceError, match="files: columns in the names of folders have no type"):
        sq.points(sq.files(str(tmp_path)), time="at")
    with pytest.raises(NeedsSpark, match=r"'a%2Fb' in column zone, which is int|'a/b' in column zone, which is int"):
        rows_of(tmp_path, schema="zone int, at bigint, day date")


def test_a_folder_that_a_stream_wrote_has_the_files_that_it_finished(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()

    def entry(name: str, action: str = "add") -> str:
        return json.dumps({"path": f"file://{tmp_path}/{name}.parquet", "action": action})

    for name in "abcde":
        written(tmp_path / f"{name}.parquet", [{"at": ord(name)}])
    (log / "0").write_text("\n".join(["v1", entry("a")]))
    assert [row["at"] for row in rows_of(tmp_path)] == [ord("a")]
    (log / "1.compact").write_text("\n".join(["v1", entry("a"), entry("b"), entry("c")]))
    (log / "2").write_text("\n".join(["v1", entry("d"), entry("b", "delete")]))
    (log / ".3.tmp").write_text("v1")
    assert [row["at"] for row in rows_of(tmp_path)] == [ord("a"), ord("c"), ord("d")]


def test_columns_go_by_name_without_case_and_rows_without_columns_are_rows(tmp_path: Path) -> None:
    written(tmp_path / "Day=2024-01-01" / "1.parquet", [{"At": 1}, {"At": 2}])
    assert rows_of(tmp_path, schema="at bigint, day date")[1] == {"at": 2, "day": dt.date(2024, 1, 1)}
    assert rows_of(tmp_path, schema="day date") == [{"day": dt.date(2024, 1, 1)}] * 2
    (tmp_path / "Day=2024-01-01" / "1.parquet").rename(tmp_path / "1.parquet")
    assert rows_of(tmp_path, schema="more int") == [{"more": None}] * 2
    (tmp_path / "texts" / "k=1").mkdir(parents=True)
    (tmp_path / "texts" / "k=1" / "1.csv").write_text("1\n2\n")
    for form in ("csv", "json"):
        with pytest.raises(NeedsSpark, match="lines without a column to read"):
            rows_of(tmp_path / "texts", format=form, schema="k int")


def test_what_is_out_of_reach(tmp_path: Path) -> None:
    for path in ("dbfs:/trips", "nowhere://trips/x"):
        with pytest.raises(NeedsSpark, match=f"show: {path} is out of reach; .* Spark reads it"):
            rows_of(path, schema="at bigint")
    (tmp_path / "1.csv").write_text("1||2\n")
    with pytest.raises(NeedsSpark, match=r"fields between '\|\|'"):
        rows_of(tmp_path, format="csv", schema="a int, b int", sep="||")
    with pytest.raises(SourceError) as caught:
        sq.points(sq.files(tmp_path, format="csv", **{"fs.s3a.secret.key": "mine"}), time="at")
    assert "mine" not in str(caught.value)


def test_the_shares_of_a_parquet_file_have_each_row_once(tmp_path: Path) -> None:
    """Row groups are divided among the shares, of which some have none."""
    pq.write_table(pa.table({"a": range(50)}), tmp_path / "1.parquet", row_group_size=10)
    files = sq.files(tmp_path / "1.parquet")
    reader = FileReader(FORMATS["parquet"], files.fields, files.fields, {}, 1)

    def split(text: str) -> pa.RecordBatch:
        return pa.record_batch({"split": [text]})

    for shares in (1, 2, 3, 5, 8):
        parts = [[*reader(split(f"{number} {shares} {tmp_path}/1.parquet"))] for number in range(shares)]
        rows = [[value for table in part for value in table.column("a").to_pylist()] for part in parts]
        assert [value for part in rows for value in part] == [*range(50)]
        assert all(len(part) in (50 // shares // 10 * 10, -(-5 // shares) * 10) for part in rows)


def test_columns_of_parquet_files(tmp_path: Path) -> None:
    """Unsigned integers, dictionaries and large texts have Spark's types; a file may lack a column, not have another type."""
    odd = pa.table(
        {
            "u": pa.array([1], pa.uint8()),
            "v": pa.array([2**64 - 1], pa.uint64()),
            "w": pa.array(["x"], pa.large_string()).dictionary_encode(),
            "t": pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("ms", tz="UTC")),
            "n": pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us")),
        }
    )
    pq.write_table(odd, tmp_path / "1.parquet")
    files = sq.files(str(tmp_path))
    kinds = [s.ShortType(), s.DecimalType(20, 0), s.StringType(), s.TimestampType(), s.TimestampNTZType()]
    assert [field.type for field in files.fields] == kinds
    assert files.in_memory("show").to_pylist()[0]["v"] == 2**64 - 1
    assert rows_of(tmp_path, schema="u smallint, more string") == [{"u": 1, "more": None}]
    with pytest.raises(NeedsSpark, match=r"1.parquet is not read without Spark; column u is smallint, not string"):
        rows_of(tmp_path, schema="u string")
    assert rows_of(tmp_path, schema="u bigint") == rows_of(tmp_path, schema="u double") == [{"u": 1}]
    for array, why in (
        (pa.array([1], pa.timestamp("ns")), "times in nanoseconds. Spark has none: write"),
        (pa.nulls(1), "a column without a type. Give the columns"),
    ):
        pq.write_table(pa.table({"x": array}), tmp_path / "odd.parquet")
        with pytest.raises(SourceError, match=f"files: no columns in .*odd.parquet; {why}"):
            sq.points(sq.files(str(tmp_path / "odd.parquet")), time="x")
    (tmp_path / "odd.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match="odd.parquet is not read; .* Mend or remove it"):
        rows_of(tmp_path / "odd.parquet", schema="x int")
    with pytest.raises(UnknownColumn, match="points: no column 'when'"):
        sq.points(files, time="when")
    with pytest.raises(AmbiguousColumn, match="column 'a' twice in the files"):
        sq.points(sq.files(str(tmp_path), schema="a int, A int"), time="a")


def test_lines_of_text(tmp_path: Path) -> None:
    """A header is passed over, other separators are known, compressed files are read, and a wrong value is named."""
    text = "at;v\n2024-01-01 00:00:00;1.5\n2024-01-01T00:00:00+02:00;\n"
    with gzip.open(tmp_path / "1.csv.gz", "wt") as file:
        file.write(text)
    how: dict[str, Any] = {"format": "CSV", "schema": "at timestamp, v double", "header": True, "sep": ";"}
    first, second = rows_of(tmp_path, **how)
    assert (first["at"] - second["at"], first["v"], second["v"]) == (dt.timedelta(hours=2), 1.5, None)
    head, *_ = rows_of(tmp_path, **how | {"header": False})
    assert (head["at"], head[MALFORMED], head["_offset"]) == (None, b"at;v", 0)
    assert head["_file"] == str(tmp_path / "1.csv.gz")
    (tmp_path / "0.csv").write_text("1;0x1p3\n")
    with pytest.raises(
        NeedsSpark,
        match=r"0.csv is not read without Spark; '0x1p3', a hexadecimal number .* in column v, which is double",
    ):
        rows_of(tmp_path / "0.csv", format="csv", schema="at bigint, v double", sep=";")
    with pytest.raises(NeedsSpark, match="show: option 'nullvalue' of csv files. Spark reads it"):
        rows_of(tmp_path, **how, nullValue="-")
    with pytest.raises(NeedsSpark, match="show: avro files"):
        rows_of(tmp_path, format="avro", schema="at timestamp")
    for form in ("csv", "json", "avro"):
        with pytest.raises(SourceError, match=r"files: .*Give the columns: sq.files\("):
            sq.points(sq.files(str(tmp_path), format=form), time="at")
    nested = '{"at": 1, "more": {"x": [1, 2]}}\n{"at": 2}\n'
    (tmp_path / "2.json").write_text(nested)
    found = rows_of(tmp_path / "2.json", format="json", schema="at bigint, more struct<x: array<int>>")
    assert [(row["at"], row["more"]) for row in found] == [(1, {"x": [1, 2]}), (2, None)]
    with pytest.raises(NeedsSpark, match="show: column more of type map<string,int>"):
        rows_of(tmp_path / "2.json", format="json", schema="more map<string,int>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": 3}, "path is a text; found 3"),
        ({"format": "cvs"}, "no format 'cvs'. Did you mean 'csv'?"),
        ({"fromat": "csv"}, "no parameter 'fromat'. Did you mean 'format'?"),
        ({"format": None}, "format is a text; found None"),
        ({"at_once": "64 pears"}, "at_once is a number of bytes, at least 1; found '64 pears'"),
        ({"at_once": 0}, "at_once is a number of bytes, at least 1; found 0"),
        ({"at_once": True}, "at_once is a number of bytes, at least 1; found True"),
        ({"header": [True]}, r"the value of an option is a string, a number or a truth; found header=\[True\]"),
        ({"options": {"header": True}}, r"found options=\{'header': True\}. Write header=True."),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=f"^files: .*{message}"):
        sq.files(**{"path": "somewhere", **arguments})


def test_a_schema_is_names_and_types() -> None:
    with pytest.raises(TypeMismatch, match="files: "):
        sq.files("somewhere", schema="at timestamp v")
