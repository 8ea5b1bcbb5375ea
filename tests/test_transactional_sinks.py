"""Tables of Delta, Iceberg and databases as sinks, by what one task does there; what does not fit is refused before a run."""

from __future__ import annotations

import datetime as dt
import decimal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType as IcebergText
from pyspark.sql.types import LongType, StringType

import streamq as sq
from scripts.postgres import PostgresServer
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.errors import PlanError, SourceError, StreamqError
from streamq.plan.schema import Field
from streamq.run.sink_arguments import sink_of
from streamq.run.transactional_sink import TransactionalSink
from tests.targets import (
    TARGETS,
    DeltaTarget,
    IcebergTarget,
    PostgresTarget,
    SqliteTarget,
    Target,
    begun,
    columns_of,
    commit,
    in_folder,
    servers_of,
)


@pytest.fixture(params=["delta", "iceberg", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return TARGETS[request.param](tmp_path, servers_of(request))


def held(place: Target) -> int:
    """The number of rows that the place has."""
    return place.rows((Field("k", StringType()),)).num_rows


def counts(schema: str = "at int, k string, v int") -> sq.Stream:
    points = sq.points(t.table(schema, []), time="at")
    return points.group_by("k").tumbling_window(10).select(n=sq.count())


def upserts(*rows: tuple[str, str | None, int | None, int]) -> pa.Table:
    """Rows of ``counts`` as upserts: op, k, n, start."""
    ops, k, n, start = zip(*rows, strict=True)
    ends = pa.array([s + 10 if op == "upsert" else None for op, s in zip(ops, start, strict=True)], pa.int64())
    columns = {"op": pa.array(ops), "k": pa.array(k, pa.string()), "n": pa.array(n, pa.int64())}
    return pa.table({**columns, "start": pa.array(start, pa.int64()), "end": ends})


def test_a_micro_batch_that_is_repeated_is_committed_once(place: Target) -> None:
    """Each run has numbers of its own."""
    sink = place.opened(columns_of(counts(), OutputForm.FINAL))
    rows = upserts(("upsert", "a", 1, 0), ("upsert", "a", 2, 0), ("upsert", "a", 2, 0)).drop_columns(["op"])
    for _ in range(2):
        commit(sink, 4, rows)
    assert held(place) == 3
    commit(sink, 5, rows)
    commit(sink, 4, rows)
    commit(sink, 4, rows, run="b")
    assert held(place) == 9


def test_of_two_transactions_of_a_run_one_commits(place: Target) -> None:
    """Another process, which is not dead but slow, has begun to commit the same micro-batch."""
    sink = place.opened(columns_of(counts(), OutputForm.FINAL))
    rows = upserts(("upsert", "a", 1, 0)).drop_columns(["op"])
    slow = begun(sink)()
    committed: list[str] = []

    def again() -> None:
        commit(sink, 0, rows)
        committed.append("again")

    other = threading.Thread(target=again)
    other.start()
    other.join(1)
    if committed:
        with pytest.raises(Exception, match="Concurrent transaction|committed by another run"):
            slow.write(rows.to_reader(), 0)
    else:
        slow.write(rows.to_reader(), 0)
    slow.close()
    other.join(20)
    assert committed and held(place) == 1


def test_a_table_that_does_not_fit_names_the_columns(place: Target) -> None:
    """Nothing is written, and the table stays as it is; one that fits may be written by another query."""
    place.opened(columns_of(counts()))
    other = counts().select(m=sq.col("n"), k=sq.col("k").cast("double") if False else sq.lit(1))
    with pytest.raises(
        PlanError, match=r"run: the table .* does not fit the rows; .*'m'.*'k' is .*, not .*"
    ) as refused:
        place.opened(columns_of(other))
    print(refused.value)
    place.opened(columns_of(counts()))
    with pytest.raises(PlanError, match="run: the table's key is n; that of the rows is k, start. Leave key out"):
        place.opened(columns_of(counts(), OutputForm.UPSERT), key="n")
    with pytest.raises(PlanError, match="run: the table's key is k; rows of this output have none"):
        place.opened(columns_of(counts()), key="k")


def test_rows_are_divided_by_columns_of_a_table_of_deltas(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = DeltaTarget(tmp_path, servers_of(request), "table")
    with pytest.raises(
        PlanError, match="run: partition_by names no column of the rows: zone; there are k, n, start, end"
    ):
        place.opened(columns_of(counts()), partition_by="zone")
    sink = place.opened(columns_of(counts(), OutputForm.UPSERT), partition_by="k")
    commit(sink, 0, upserts(("upsert", "a", 1, 0), ("upsert", "b", 1, 0)))
    commit(sink, 1, upserts(("upsert", "a", 2, 0), ("delete", "b", None, 0)))
    assert {file.name for file in (tmp_path / "table").iterdir()} == {"_delta_log", "k=a", "k=b"}
    assert place.rows((Field("k", StringType()), Field("n", LongType()))).to_pylist() == [{"k": "a", "n": 2}]
    with pytest.raises(PlanError, match=r"run: the table .* is divided by k; found partition_by=\['n'\]"):
        place.opened(columns_of(counts(), OutputForm.UPSERT), partition_by="n")


def test_a_folder_of_other_files_becomes_no_table(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    place = DeltaTarget(tmp_path, servers_of(request), "table")
    (tmp_path / "table" / "trips.csv").write_text("1,2")
    with pytest.raises(PlanError, match="run: .*table is no table of Delta's; a folder with other files"):
        place.opened(columns_of(counts()))
    (tmp_path / "table" / "trips.csv").unlink()
    place.opened(columns_of(counts()))


def test_a_place_that_cannot_be_written(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="run: the table .*/file/table cannot be read or created; "):
        DeltaTarget(tmp_path / "file", servers_of(request), "table").opened(columns_of(counts()))
    lasts = sq.points(t.table("at timestamp, d timestamp", []), time="at")
    lasts = lasts.select(lasted=sq.col("d") - sq.col("d"))
    with pytest.raises(PlanError, match="run: column 'lasted' is interval day to second, which Delta lacks. Cast it"):
        DeltaTarget(tmp_path, servers_of(request), "table").opened(columns_of(lasts))
    with pytest.raises(
        PlanError, match=r"merge_into: no such format of tables; found 'hudi'. There are 'delta', 'iceberg'"
    ):
        sq.merge_into("hudi", "a")
    with pytest.raises(PlanError, match="merge_into: path is a text; found int"):
        sq.merge_into("delta", 5)  # type: ignore[arg-type]


KEYS: dict[str, tuple[Any, Any]] = {
    "bigint": (1, 2),
    "double": (float("nan"), 0.5),
    "string": ("", "a'b"),
    "boolean": (True, False),
    "date": (dt.date(2024, 5, 1), dt.date(1, 1, 1)),
    "timestamp": (dt.datetime(2024, 5, 1, 0, 0, 0, 1, dt.UTC), dt.datetime(1969, 1, 1, tzinfo=dt.UTC)),
    "decimal(10,2)": (decimal.Decimal("1.10"), decimal.Decimal("-0.01")),
    "binary": (b"\x00", b"\xff"),
    "array<string>": (["a"], ["a", "b"]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_all_types_in_iceberg(tmp_path: Path, kind: str) -> None:
    """Rows that share a value with a key, and are of another one, stay, and so do those of other files."""
    place = in_folder(IcebergTarget, tmp_path)
    sink = place.opened(columns_of(counts(f"at int, k {kind}, v int"), OutputForm.UPSERT))
    one, two = KEYS[kind]
    rows = [(key, start) for key in (one, two, None) for start in (0, 10, 20)]

    def changed(op: str, n: int, keys: list[tuple[Any, int]]) -> pa.Table:
        ends = [start + 10 if op == "upsert" else None for _, start in keys]
        names = {"op": [op] * len(keys), "k": [k for k, _ in keys], "n": [n] * len(keys), "start": [s for _, s in keys]}
        arrow = {"op": pa.string(), "k": place.stored().schema().as_arrow().field("k").type}
        columns = {name: pa.array(values, arrow.get(name, pa.int64())) for name, values in names.items()}
        return pa.table({**columns, "end": pa.array(ends, pa.int64())})

    commit(sink, 0, changed("upsert", 1, rows))
    commit(sink, 1, pa.concat_tables([changed("upsert", 2, [(one, 0), (None, 10)]), changed("delete", 0, [(two, 20)])]))
    left = {(str(k), start): n for k, n, start, _ in place.tuples()}
    expected = {(str(k), start): 1 for k, start in rows} | {(str(one), 0): 2, ("None", 10): 2}
    del expected[str(two), 20]
    assert left == expected and len(place.tuples()) == len(expected)


def test_more_keys_in_iceberg_than_a_filter_names(tmp_path: Path) -> None:
    """Rows between the keys stay."""
    place = in_folder(IcebergTarget, tmp_path)
    sink = place.opened(columns_of(counts(), OutputForm.UPSERT))
    commit(sink, 0, upserts(*(("upsert", f"k{n:04}", 1, n) for n in range(900)), ("upsert", None, 1, 0)))
    commit(sink, 1, upserts(*(("upsert" if n % 2 else "delete", f"k{n:04}", 2, n) for n in range(0, 900, 3))))
    expected = {(f"k{n:04}", 2 if n % 6 == 3 else 1) for n in range(900) if n % 6} | {(None, 1)}
    assert {row[:2] for row in place.tuples()} == expected and held(place) == len(expected)


def test_a_table_of_icebergs_that_others_write_too(tmp_path: Path) -> None:
    """A commit that comes between is no error; the table's parts are those of columns."""
    place = in_folder(IcebergTarget, tmp_path)
    wrong = "run: partition_by names no column of the rows: zone; there are k, n, start, end"
    with pytest.raises(PlanError, match=wrong):
        place.opened(columns_of(counts()), partition_by="zone")
    sink = place.opened(columns_of(counts(), OutputForm.UPSERT), partition_by="k")
    transaction = begun(sink)()
    commit(sink, 7, upserts(("upsert", "b", 1, 0), ("upsert", "c", 1, 0), ("upsert", None, 1, 0)), run="other")
    transaction.write(upserts(("upsert", "a", 2, 0), ("delete", "b", None, 0), ("upsert", None, 3, 0)).to_reader(), 0)
    transaction.close()
    assert {row[:2] for row in place.tuples()} == {("a", 2), ("c", 1), (None, 3)}
    assert {task.file.partition[0] for task in place.stored().scan().plan_files()} == {"a", "c", None}
    with pytest.raises(
        PlanError, match=r"run: the table lake.db.rows is divided by identity of k; found partition_by="
    ):
        place.opened(columns_of(counts(), OutputForm.UPSERT), partition_by="n")
    with place.stored().update_schema() as schema:
        schema.add_column("more", IcebergText())
    with pytest.raises(PlanError, match="run: the table lake.db.rows does not fit the rows; the rows have no 'more'"):
        place.opened(columns_of(counts(), OutputForm.UPSERT))


def test_a_catalog_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is say options, or pyiceberg's configuration, which is read when a run begins; no error has the password."""
    with pytest.raises(
        PlanError, match="merge_into: a table of Iceberg's is a namespace's and a name, .* found 'rows'"
    ):
        sq.merge_into("iceberg", "rows")
    unknown = (
        r"run: the table nowhere.db.rows cannot be .* in the catalog nowhere; .* Say where the catalog is, as options="
    )
    with pytest.raises(SourceError, match=unknown):
        sink_of(sq.merge_into("iceberg", "nowhere.db.rows"), "run").create(columns_of(counts()), "run")
    monkeypatch.setenv("SECRET", "hush")
    away = {"uri": "postgresql+psycopg://me@127.0.0.1:1/a", "password": "${SECRET}", "warehouse": "x"}
    sink = sink_of(sq.merge_into("iceberg", "db.rows", options=away), "run")
    with pytest.raises(SourceError, match="run: the table db.rows cannot be .* in the catalog default; ") as refused:
        sink.create(columns_of(counts()), "run")
    assert "hush" not in f"{refused.value}{sink!r}"
    place = in_folder(IcebergTarget, tmp_path)
    for name, value in place.place.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    sink_of(sq.merge_into("iceberg", "lake.db.rows"), "run").create(columns_of(counts()), "run")
    assert place.tuples() == []
    lasts = sq.points(t.table("at timestamp, d timestamp", []), time="at")
    lasts = lasts.select(lasted=sq.col("d") - sq.col("d"))
    with pytest.raises(PlanError, match="run: column 'lasted' is interval day to second, which Iceberg lacks. Cast it"):
        in_folder(IcebergTarget, tmp_path, "other").opened(columns_of(lasts))


def test_who_does_not_let_us_in(
    postgres: PostgresServer, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password is in no error, and in no text of the sink."""
    place = PostgresTarget(tmp_path, servers_of(request), "private")
    wrong = sq.postgres(postgres.dsn("guess"), "private")
    with pytest.raises(
        SourceError,
        match="run: the server of PostgreSQL refused the login; password authentication failed .* Check user",
    ) as refused:
        sink_of(wrong, "run").check("run", name=None, finish=False)
    assert "guess" not in f"{refused.value!s}{wrong!r}{sink_of(wrong, 'run')!r}"
    with pytest.raises(SourceError, match="run: no server of PostgreSQL answers; .*port 1 failed: Connection refused"):
        sink_of(sq.postgres("postgresql://127.0.0.1:1/a", "private"), "run").check("run", name=None, finish=False)
    with pytest.raises(SourceError, match="run: no environment variable NOBODY; the place of a table names it"):
        sink_of(sq.postgres("host=a password=${NOBODY}", "private"), "run")
    url = f"postgresql://me:${{SECRET}}@127.0.0.1:{postgres.port}/postgres"
    monkeypatch.setenv("SECRET", postgres.password)
    monkeypatch.setenv("WHOLE", postgres.dsn())
    for dsn in (url, postgres.dsn().replace(f"'{postgres.password}'", "${SECRET}"), "${WHOLE}"):
        sink_of(sq.postgres(dsn, "private"), "run").check("run", name=None, finish=False)
    place.opened(columns_of(counts()))
    postgres.rows("CREATE ROLE guest LOGIN PASSWORD 'guest'; GRANT INSERT ON streamq_batches TO guest")
    guest: Any = PostgresTarget(tmp_path, servers_of(request), "private")
    guest.sink = lambda **arguments: sq.postgres(postgres.dsn("guest", "guest"), arguments.pop("name", "private"))
    with pytest.raises(SourceError, match="run: the table private may not be written; guest has no right to INSERT on"):
        guest.opened(columns_of(counts()))
    with pytest.raises(
        SourceError, match="run: the table other cannot be created or read; permission denied for schema public"
    ):
        guest.opened(columns_of(counts()), name="other")


def test_a_table_of_postgresqls_that_somebody_has_created(postgres: PostgresServer) -> None:
    """Columns may hold more, and others may have what their defaults say; upserts need a key, in which NULLs are values."""
    columns = 'since timestamptz DEFAULT now(), n bigint, k varchar {}, start bigint NOT NULL, "end" bigint{}'
    create = f'CREATE TABLE public."Own" ({columns})'
    for nullable, more, wrong in (
        ("", "", "has no unique key \\(k, start\\)"),
        ("", ", UNIQUE (k, start)", "has no unique key"),
        ("NOT NULL", ", UNIQUE (start, k), no int NOT NULL", "does not fit the rows; the rows have no 'no'"),
        ("NOT NULL", ", UNIQUE (start, k)", ""),
    ):
        postgres.rows('DROP TABLE IF EXISTS public."Own"')
        postgres.rows(create.format(nullable, more))
        own = sq.postgres(postgres.dsn(), "public.Own")
        sink = sink_of(own, "run")
        if wrong:
            with pytest.raises(PlanError, match=f"run: the table public.Own {wrong}"):
                sink.create(columns_of(counts(), OutputForm.UPSERT), "run")
        else:
            sink.create(columns_of(counts(), OutputForm.UPSERT), "run")
            sink = sink.placed(columns_of(counts(), OutputForm.UPSERT), "nowhere")
            assert isinstance(sink, TransactionalSink)
            commit(sink, 0, upserts(("upsert", "a", 1, 0)))
            commit(sink, 1, upserts(("upsert", "a", 5, 0)))
    assert [row[1:] for row in postgres.rows('SELECT * FROM public."Own"')] == [(5, "a", 0, 10)]


def test_a_table_of_a_database_that_somebody_has_created(tmp_path: Path) -> None:
    place = in_folder(SqliteTarget, tmp_path)
    columns = (
        "id INTEGER PRIMARY KEY, since TEXT DEFAULT 'now', n BIGINT, k VARCHAR(9), start INT NOT NULL, \"end\" BIGINT"
    )
    for more, wrong in (
        (", no INT NOT NULL", "does not fit the rows; the rows have no 'no'"),
        (", m INT", "does not fit the rows; its 'n' is BIGINT, not TEXT"),
        (", m INT", ""),
    ):
        with closing(sqlite3.connect(tmp_path / "database.db")) as connection:
            connection.executescript(f"DROP TABLE IF EXISTS rows; CREATE TABLE rows ({columns}{more});")
        if wrong:
            query = counts().with_columns(n=sq.lit("many")) if "TEXT" in wrong else counts()
            with pytest.raises(PlanError, match=f"run: the table rows {wrong}"):
                place.opened(columns_of(query))
    sink = place.opened(columns_of(counts(), OutputForm.UPSERT))
    commit(sink, 0, upserts(("upsert", "a", 1, 0), ("upsert", None, 1, 0)))
    commit(sink, 1, upserts(("upsert", "a", 5, 0), ("delete", None, None, 0)))
    assert [row[1:] for row in place.tuples()] == [("now", 5, "a", 0, 10, None)]
    means = in_folder(SqliteTarget, tmp_path, "means")
    sink = means.opened(columns_of(sq.points(t.table("at int, v double", []), time="at")))
    with pytest.raises(RuntimeError, match="a value is NaN, which SQLite lacks"):
        commit(sink, 0, pa.table({"v": [0.5, float("nan")], "start": [1, 2], "end": [2, 3]}))
    assert means.tuples() == []


def test_what_is_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hu/sh")

    def refused(url: str) -> str:
        with pytest.raises(StreamqError) as error:
            sink_of(sq.sql_table(url, "rows"), "run").create(columns_of(counts()), "run")
        assert "sh" not in str(error.value).split("; ")[0] and "hu/sh" not in str(error.value)
        return str(error.value)

    assert "run: no URL of a database; found no ://. As sqlite:////" in refused("rows.db")
    assert "run: a database in memory ends with its process. Name a file" in refused("sqlite://")
    assert "run: the driver of this database is not installed; No module named 'pymysql'" in refused(
        "mysql+pymysql://me:${SECRET}@127.0.0.1:1/a"
    )
    assert "run: PostgreSQL has a sink of its own. sq.postgres(url, table)" in refused("postgresql://me@127.0.0.1/a")
    assert "run: the table rows cannot be created or read; unable to open database file" in refused(
        f"sqlite:///{tmp_path}/none/rows.db"
    )
    with pytest.raises(PlanError, match="run: column 'd' is decimal.10,2., which sqlite lacks. Cast it, as to double"):
        in_folder(SqliteTarget, tmp_path).opened(columns_of(counts().with_columns(d=sq.lit(1).cast("decimal(10,2)"))))
    with pytest.raises(PlanError, match="sql_table: table is a name, or a schema's and a name; found 'a.b.c'"):
        sq.sql_table("sqlite:///a.db", "a.b.c")


def test_options_of_a_topic_that_is_written() -> None:
    for options, wrong in (
        ({"shared": "yes"}, "run: shared is 'true' or 'false'; found 'yes'"),
        ({"minPartitions": "2"}, "run: option 'minPartitions' is none of a topic that is written. Those begin with"),
    ):
        with pytest.raises(PlanError, match=wrong):
            sink_of(sq.kafka("127.0.0.1:1", "a", options=options), "run")
