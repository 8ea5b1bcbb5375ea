"""Tables of Delta and PostgreSQL as sinks, by what one task does there; what does not fit is refused before a run."""

from __future__ import annotations

import datetime as dt
import decimal
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import streamq as sq
from scripts.postgres import PostgresServer
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.results import Result, ResultColumns, choose_egress, result_columns
from streamq.errors import PlanError, SourceError
from streamq.run.sink_arguments import sink_of
from streamq.run.transactional_sink import TransactionalSink, committing

SCHEMA = "at timestamp, k string, v double, d decimal(10,2), day date, b binary, many array<int>, small smallint, yes boolean"


class Place(ABC):
    """A system with tables, each test in tables of its own."""

    missing = "as it is not"

    @abstractmethod
    def sink(self, **arguments: Any) -> Any: ...

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table, in any order."""

    def opened(self, columns: ResultColumns, **arguments: Any) -> TransactionalSink:
        """The sink of a run that has begun."""
        sink = sink_of(self.sink(**arguments), "run")
        sink.check("run", name=None, finish=False)
        sink.create(columns, "run")
        placed = sink.placed(columns, "nowhere")
        assert isinstance(placed, TransactionalSink)
        return placed


class DeltaPlace(Place):
    def __init__(self, folder: Path):
        self.path = str(folder / "table")

    def sink(self, **arguments: Any) -> Any:
        return sq.merge_into("delta", self.path, **arguments)

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pa.table(DeltaTable(self.path).to_pyarrow_table()).to_pylist()
        return rows


class PostgresPlace(Place):
    def __init__(self, server: PostgresServer, name: str):
        self.server, self.name = server, name

    def sink(self, **arguments: Any) -> Any:
        return sq.postgres(self.server.dsn(), self.name, **arguments)

    def rows(self) -> list[dict[str, Any]]:
        names = self.server.rows(
            f"SELECT attname FROM pg_attribute WHERE attrelid = '{self.name}'::regclass AND attnum > 0"
        )
        rows = self.server.rows(f"SELECT * FROM {self.name}")
        return [dict(zip([name for (name,) in names], row, strict=True)) for row in rows]


NUMBER = iter(range(1000))


@pytest.fixture(params=["delta", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "delta":
        return DeltaPlace(tmp_path)
    return PostgresPlace(request.getfixturevalue("postgres"), f"rows_{next(NUMBER)}")


def columns_of(query: sq.Stream, output: OutputForm = OutputForm.FINAL) -> ResultColumns:
    egress = choose_egress(query.plan, output, verb="run")
    return result_columns(Result(number=0, plan=query.plan, egress=egress, in_order=False), packed=False)


def counts(schema: str = "at int, k string, v int") -> sq.Stream:
    points = sq.points(t.table(schema, []), time="at")
    return points.group_by("k").tumbling_window(10).select(n=sq.count())


def commit(sink: TransactionalSink, number: int, rows: pa.Table, *, asks: bool = False, run: str = "a") -> None:
    """What a task does with a micro-batch, its rows in batches of two, and one without any."""
    batches = [rows.slice(0, 0).to_batches(), rows.to_batches(2)]
    assert list(committing(begun(sink, run), number, asks=asks)(b for some in batches for b in some))


def begun(sink: TransactionalSink, run: str = "a") -> Any:
    """What begins a transaction of a run, which has the same numbers in all tables of a schema of PostgreSQL's."""
    return sink.transaction(f"{run} of {sink.table}")  # type: ignore[attr-defined]


def upserts(*rows: tuple[str, str | None, int | None, int]) -> pa.Table:
    """Rows of ``counts`` as upserts: op, k, n, start."""
    ops, k, n, start = zip(*rows, strict=True)
    ends = pa.array([s + 10 if op == "upsert" else None for op, s in zip(ops, start, strict=True)], pa.int64())
    columns = {"op": pa.array(ops), "k": pa.array(k, pa.string()), "n": pa.array(n, pa.int64())}
    return pa.table({**columns, "start": pa.array(start, pa.int64()), "end": ends})


def test_rows_replace_those_of_their_key(place: Place) -> None:
    """NULL is a key, too. A deletion of what is not there is none."""
    sink = place.opened(columns_of(counts(), OutputForm.UPSERT), key=["start", "k"])
    commit(sink, 0, upserts(("upsert", "a", 1, 0), ("upsert", None, 1, 0), ("upsert", "b", 7, 10)))
    commit(
        sink,
        1,
        upserts(("delete", "zz", None, 0), ("upsert", "a", 2, 0), ("upsert", None, 3, 0), ("delete", "b", None, 10)),
    )
    commit(sink, 2, upserts(("upsert", "b", 1, 20), ("delete", None, None, 0)))
    assert sorted((row["k"], row["n"], row["start"], row["end"]) for row in place.rows()) == [
        ("a", 2, 0, 10),
        ("b", 1, 20, 30),
    ]


def test_a_micro_batch_that_may_be_a_repetition_is_committed_once(place: Place) -> None:
    """Each run has numbers of its own. One that does not ask, because it does not know of another one, fails."""
    sink = place.opened(columns_of(counts(), OutputForm.FINAL))
    rows = upserts(("upsert", "a", 1, 0), ("upsert", "a", 2, 0), ("upsert", "a", 2, 0)).drop_columns(["op"])
    for _ in range(2):
        commit(sink, 4, rows, asks=True)
    assert len(place.rows()) == 3
    commit(sink, 5, rows)
    with pytest.raises(RuntimeError, match="micro-batch 5 has been committed by another run"):
        commit(sink, 5, rows)
    commit(sink, 4, rows, asks=True)
    commit(sink, 4, rows, asks=True, run="b")
    assert len(place.rows()) == 9


def test_of_two_transactions_of_a_run_one_commits(place: Place) -> None:
    """Another process, which is not dead but slow, has begun to commit the same micro-batch."""
    sink = place.opened(columns_of(counts(), OutputForm.FINAL))
    rows = upserts(("upsert", "a", 1, 0)).drop_columns(["op"])
    slow = begun(sink)()
    committed: list[str] = []

    def again() -> None:
        commit(sink, 0, rows, asks=True)
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
    assert committed and len(place.rows()) == 1


def test_nothing_of_a_micro_batch_that_fails_is_there(place: Place) -> None:
    """Some of its rows have been sent when the worker ends."""
    sink = place.opened(columns_of(counts(), OutputForm.FINAL))
    rows = upserts(("upsert", "a", 1, 0), ("upsert", "b", 1, 0)).drop_columns(["op"])

    def batches() -> Any:
        yield from rows.to_batches()
        raise OSError("the worker is gone")

    with pytest.raises(Exception, match="the worker is gone"):
        list(committing(begun(sink), 0, asks=True)(batches()))
    assert place.rows() == []
    commit(sink, 0, rows, asks=True)
    assert len(place.rows()) == 2


VALUES: dict[str, Sequence[Any]] = {
    "k": ["a", None, 'q"\t\\N\n', ""],
    "v": [1.5, None, float("-inf"), -0.0],
    "d": [decimal.Decimal("12345678.90"), None, decimal.Decimal("-0.01"), decimal.Decimal(0)],
    "day": [dt.date(1, 1, 1), None, dt.date(9999, 12, 31), dt.date(1970, 1, 1)],
    "b": [b"\x00\xff", None, b"", b"x"],
    "many": [[1, None], None, [], [3]],
    "small": [-32768, None, 32767, 0],
    "yes": [True, None, False, True],
}


def test_values_of_all_types_are_those_that_are_read(place: Place) -> None:
    query = sq.points(t.table(SCHEMA, []), time="at")
    sink = place.opened(columns_of(query, OutputForm.CHANGELOG))
    instants = [dt.datetime(2024, 5, 1, 12, 0, 0, n, tzinfo=dt.UTC) for n in range(4)]
    types = [
        pa.string(),
        pa.float64(),
        pa.decimal128(10, 2),
        pa.date32(),
        pa.binary(),
        pa.list_(pa.int32()),
        pa.int16(),
        pa.bool_(),
    ]
    rows = {name: pa.array(values, type) for (name, values), type in zip(VALUES.items(), types, strict=True)}
    # Spark hands instants over in the zone of the session
    times = pa.array(instants, pa.timestamp("us", "Asia/Tokyo"))
    new_end = pa.nulls(4, pa.timestamp("us", "Asia/Tokyo"))
    commit(sink, 0, pa.table({"kind": ["insert"] * 4, **rows, "start": times, "end": times, "new_end": new_end}))
    expected = [
        {
            "kind": "insert",
            **{name: values[n] for name, values in VALUES.items()},
            "start": at,
            "end": at,
            "new_end": None,
        }
        for n, at in enumerate(instants)
    ]
    assert sorted(place.rows(), key=lambda row: row["start"]) == expected


def test_a_table_that_does_not_fit_names_the_columns(place: Place) -> None:
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


def test_rows_are_divided_by_columns_of_a_table_of_deltas(tmp_path: Path) -> None:
    place = DeltaPlace(tmp_path)
    with pytest.raises(
        PlanError, match="run: partition_by names no column of the rows: zone; there are k, n, start, end"
    ):
        place.opened(columns_of(counts()), partition_by="zone")
    sink = place.opened(columns_of(counts(), OutputForm.UPSERT), partition_by="k")
    commit(sink, 0, upserts(("upsert", "a", 1, 0), ("upsert", "b", 1, 0)))
    commit(sink, 1, upserts(("upsert", "a", 2, 0), ("delete", "b", None, 0)))
    assert {file.name for file in (tmp_path / "table").iterdir()} == {"_delta_log", "k=a", "k=b"}
    assert [(row["k"], row["n"]) for row in place.rows()] == [("a", 2)]
    with pytest.raises(PlanError, match=r"run: the table .* is divided by k; found partition_by=\['n'\]"):
        place.opened(columns_of(counts(), OutputForm.UPSERT), partition_by="n")


def test_a_folder_of_other_files_becomes_no_table(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    place = DeltaPlace(tmp_path)
    (tmp_path / "table" / "trips.csv").write_text("1,2")
    with pytest.raises(PlanError, match="run: .*table is no table of Delta's; a folder with other files"):
        place.opened(columns_of(counts()))
    (tmp_path / "table" / "trips.csv").unlink()
    place.opened(columns_of(counts()))


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="run: the table .*/file/table cannot be read or created; "):
        DeltaPlace(tmp_path / "file").opened(columns_of(counts()))
    lasts = sq.points(t.table("at timestamp, d timestamp", []), time="at")
    lasts = lasts.select(lasted=sq.col("d") - sq.col("d"))
    with pytest.raises(PlanError, match="run: column 'lasted' is interval day to second, which Delta lacks. Cast it"):
        DeltaPlace(tmp_path).opened(columns_of(lasts))
    with pytest.raises(PlanError, match=r"merge_into: no such format of tables; found 'hudi'. There is 'delta'"):
        sq.merge_into("hudi", "a")
    with pytest.raises(PlanError, match="merge_into: path is a text; found int"):
        sq.merge_into("delta", 5)  # type: ignore[arg-type]


def test_who_does_not_let_us_in(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password is in no error, and in no text of the sink."""
    place = PostgresPlace(postgres, "private")
    wrong = sq.postgres(postgres.dsn("guess"), "private")
    with pytest.raises(
        SourceError, match="run: no server of PostgreSQL lets us in; .*password authentication failed"
    ) as refused:
        sink_of(wrong, "run").check("run", name=None, finish=False)
    assert "guess" not in f"{refused.value!s}{wrong!r}{sink_of(wrong, 'run')!r}"
    with pytest.raises(
        SourceError, match="run: no server of PostgreSQL lets us in; .*port 1 failed: Connection refused"
    ):
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
    guest: Any = PostgresPlace(postgres, "private")
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


def test_options_of_a_topic_that_is_written() -> None:
    for options, wrong in (
        ({"shared": "yes"}, "run: shared is 'true' or 'false'; found 'yes'"),
        ({"minPartitions": "2"}, "run: option 'minPartitions' is none of a topic that is written. Those begin with"),
    ):
        with pytest.raises(PlanError, match=wrong):
            sink_of(sq.kafka("127.0.0.1:1", "a", options=options), "run")
