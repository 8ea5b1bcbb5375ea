"""A table of PostgreSQL's as a sink, by psycopg: a transaction a micro-batch, whose number is in a table beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import types as t

from streamq.compiler.results import ResultColumns
from streamq.connectors.connector import with_variables
from streamq.connectors.written_tables import PostgresTable
from streamq.errors import PlanError, SourceError
from streamq.run.transactional_sink import Transaction, TransactionalSink, check_client, check_table, table_columns

if TYPE_CHECKING:
    from psycopg import Connection

SECONDS = 60
"""The seconds that a server may take to answer, and that a transaction waits for an earlier one of its run."""

OLDEST = 15
"""The oldest version of the server: in its unique keys NULLs may be values like others."""

TYPES = {
    "string": "text",
    "boolean": "boolean",
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "interval day to second": "interval",
}
"""The types of columns that are created, by Spark's."""

WIDER = {
    "text": {"character varying"},
    "smallint": {"integer", "bigint"},
    "integer": {"bigint"},
    "real": {"double precision"},
}
"""The other types that hold all their values."""

COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity = '' FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
"""The columns of a table, their types, and whether each must have a value."""

KEYS = """
SELECT array_agg(attname::text), bool_and(attnotnull) OR indnullsnotdistinct FROM pg_index
JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY((indkey::int2[])[0:indnkeyatts - 1])
WHERE indrelid = to_regclass(%s) AND indisunique AND indpred IS NULL AND indexprs IS NULL
GROUP BY indexrelid, indnullsnotdistinct
"""
"""The columns of each unique key of a table, and whether NULLs are values like others, or there are none."""


@dataclass(frozen=True)
class PostgresSink(TransactionalSink):
    """The rows of a ``table``; ``dsn`` has the values of environment variables."""

    table: PostgresTable
    dsn: str = field(repr=False)

    def check(self, verb: str, *, name: str | None, finish: bool) -> None:
        """Raise SourceError if no server answers, or one of an old version."""
        with self._connected(verb) as connection:
            version = connection.info.server_version // 10_000
        if version < OLDEST:
            raise SourceError(verb, f"PostgreSQL {OLDEST} or later", f"the server has version {version}")

    def create(self, columns: ResultColumns, verb: str) -> None:
        """Create the table; raise PlanError if there is one that does not fit, SourceError if the server does not permit it."""
        from psycopg import sql

        types = {}
        for name, kind in table_columns(columns, self.table.key, verb).items():
            if (type := _column_type(kind)) is None:
                hint = f"Leave it out, q.drop({name!r}), or select its parts as columns of their own."
                raise PlanError(verb, f"column {name!r} is {kind.simpleString()}, which PostgreSQL lacks", "", hint)
            types[name] = type
        entries = [sql.SQL("{} ").format(sql.Identifier(name)) + sql.SQL(type) for name, type in types.items()]
        if columns.key:
            entries.append(sql.SQL("UNIQUE NULLS NOT DISTINCT ({})").format(_names(columns.key)))
        table, marks = _table_name(self.table.table), _marks_name(self.table.table)
        with self._connected(verb) as connection:
            _create_table(connection, marks, sql.SQL("run text PRIMARY KEY, batch bigint NOT NULL"))
            name = _create_table(connection, table, sql.SQL(", ").join(entries))
            self._check(connection, name, types, columns.key, verb)
            for right in ("INSERT", *(("SELECT", "UPDATE", "DELETE") if columns.key else ())):
                self._check_right(connection, right, name, verb)
            for right in ("INSERT", "SELECT", "UPDATE"):
                self._check_right(connection, right, marks.as_string(connection), verb)

    def _check_right(self, connection: Connection, right: str, name: str, verb: str) -> None:
        """Raise SourceError if the user may not do that with a table."""
        if connection.execute("SELECT has_table_privilege(%s, %s)", [name, right]).fetchone() == (False,):
            wrong = f"{connection.info.user} has no right to {right} on {name}"
            raise SourceError(verb, f"the table {self.table.table} may not be written", wrong)

    def _check(self, connection: Connection, name: str, types: dict[str, str], key: Sequence[str], verb: str) -> None:
        """Raise PlanError if a table does not fit rows with columns of these types, or has no such key."""
        title = f"the table {self.table.table}"
        described = connection.execute(COLUMNS, [name]).fetchall()
        held = {column: type for column, type, _ in described}
        fits = {column: column in types and _holds(held[column], types[column]) for column in held}
        needs_value = {column for column, _, is_needed in described if is_needed}
        misfits = [column for column in held if not fits[column] and (column in types or column in needs_value)]
        check_table(title, types, held, misfits, verb)
        uniques = connection.execute(KEYS, [name]).fetchall()
        if key and not any({*columns} == {*key} and compares_nulls for columns, compares_nulls in uniques):
            index = f"CREATE UNIQUE INDEX ON {self.table.table} ({', '.join(key)}) NULLS NOT DISTINCT"
            raise PlanError(
                verb, f"{title} has no unique key ({', '.join(key)})", "rows replace those of their key", f"{index}."
            )

    @contextmanager
    def _connected(self, verb: str) -> Iterator[Connection]:
        """Connect to the server for one transaction; translate its errors, which have no password in them."""
        import psycopg

        try:
            connection = psycopg.connect(self.dsn, connect_timeout=10)
        except psycopg.Error as error:
            text = " ".join(str(error).split())
            if "FATAL: " in text:
                wrong, hint = "the server of PostgreSQL refused the login", "Check user, password and database."
                raise SourceError(verb, wrong, text.rpartition("FATAL: ")[2].strip(), hint) from None
            hint = "Is it up, and can this computer reach it? It is that of the driver."
            raise SourceError(verb, "no server of PostgreSQL answers", text, hint) from None
        try:
            with connection:
                yield connection
        except psycopg.Error as error:
            wrong = f"the table {self.table.table} cannot be created or read"
            raise SourceError(verb, wrong, str(error).splitlines()[0]) from None

    def transaction(self, run: str) -> Callable[[], Transaction]:
        return partial(PostgresTransaction, self.dsn, self.table.table, self.key, run)


def _column_type(kind: t.DataType) -> str | None:
    """Return the type of a column in PostgreSQL; None if there is none."""
    match kind:
        case t.DecimalType():
            return f"numeric({kind.precision},{kind.scale})"
        case t.ArrayType(elementType=t.ArrayType()):
            # of arrays in an array all have one length there
            return None
        case t.ArrayType():
            element = _column_type(kind.elementType)
            return element and f"{element}[]"
    return TYPES.get(kind.simpleString())


def _holds(type: str, wanted: str) -> bool:
    """Return True if a column of PostgreSQL's type holds all values of another one."""
    return type == wanted or type in WIDER.get(wanted, ()) or (type == "numeric" and wanted.startswith("numeric("))


def postgres_sink(table: PostgresTable, verb: str) -> PostgresSink:
    """Return a table as a sink; raise PlanError without psycopg, SourceError if an environment variable is not set."""
    check_client("psycopg", "psycopg", "postgres", verb)

    def quoted(value: str) -> str:
        if table.dsn.startswith("${"):
            return value
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return quote(value, safe="") if "://" in table.dsn else f"'{escaped}'"

    return PostgresSink(table, with_variables(table.dsn, verb, quoted))


def _create_table(connection: Connection, table: Any, entries: Any) -> str:
    """Create a table with these columns, unless it is there; return its name as SQL has it."""
    from psycopg import sql

    name: str = table.as_string(connection)
    # IF NOT EXISTS would ask for the right to create tables, though there is one
    if connection.execute("SELECT to_regclass(%s)", [name]).fetchone() == (None,):
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(table, entries))
    return name


def _table_name(table: str) -> Any:
    from psycopg import sql

    return sql.Identifier(*table.split("."))


def _marks_name(table: str) -> Any:
    """The table beside one that has the number of the last micro-batch of each run."""
    from psycopg import sql

    return sql.Identifier(*table.split(".")[:-1], "streamq_batches")


def _names(columns: Sequence[str]) -> Any:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, columns))


class PostgresTransaction(Transaction):
    """A transaction on a ``table``, which has the number of a ``run`` locked: it waits for earlier ones of the run to end."""

    def __init__(self, dsn: str, table: str, key: tuple[str, ...], run: str):
        import psycopg
        from psycopg import sql

        self.key, self.run = key, run
        self.names = {"table": _table_name(table), "marks": _marks_name(table), "key": _names(key)}
        self.connection = psycopg.connect(dsn, connect_timeout=SECONDS)
        self._execute("SET LOCAL lock_timeout = {seconds}", seconds=sql.Literal(f"{SECONDS}s"))
        self._execute("INSERT INTO {marks} VALUES (%s, -1) ON CONFLICT DO NOTHING", run)
        # the row is locked from here on
        ((self.last,),) = self._execute("SELECT batch FROM {marks} WHERE run = %s FOR UPDATE", run)

    def _execute(self, statement: str, *values: Any, **names: Any) -> Any:
        from psycopg import sql

        return self.connection.execute(sql.SQL(statement).format(**self.names, **names), values or None)

    def done(self, number: int) -> bool:
        return bool(self.last >= number)

    def write(self, rows: pa.RecordBatchReader, number: int) -> None:
        from psycopg import sql

        columns = rows.schema.names
        if not self.key:
            self._copy(rows, self.names["table"])
        else:
            changes, stored = sql.Identifier("streamq_changes"), [name for name in columns if name != "op"]
            names: dict[str, Any] = {"changes": changes, "columns": _names(stored)}
            start = "CREATE TEMP TABLE {changes} ON COMMIT DROP AS SELECT NULL::text AS op, {columns} FROM {table}"
            self._execute(f"{start} WITH NO DATA", **names)
            self._copy(rows, changes)
            same = "(t.{0} = s.{0} OR t.{0} IS NULL AND s.{0} IS NULL)"
            names["same"] = sql.SQL(" AND ").join(sql.SQL(same).format(sql.Identifier(name)) for name in self.key)
            self._execute("DELETE FROM {table} t USING {changes} s WHERE s.op = 'delete' AND {same}", **names)
            others = [sql.Identifier(name) for name in stored if name not in self.key]
            names["new"] = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in others)
            upsert = "INSERT INTO {table} ({columns}) SELECT {columns} FROM {changes} WHERE op = 'upsert'"
            self._execute(f"{upsert} ON CONFLICT ({{key}}) DO UPDATE SET {{new}}", **names)
        self._execute("UPDATE {marks} SET batch = %s WHERE run = %s", number, self.run)
        self.connection.commit()

    def _copy(self, rows: pa.RecordBatchReader, table: Any) -> None:
        """Send rows into a table, some at a time."""
        from psycopg import sql

        into = sql.SQL("COPY {} ({}) FROM STDIN").format(table, _names(rows.schema.names))
        with self.connection.cursor().copy(into) as copy:
            for batch in rows:
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copy.write_row(row)

    def close(self) -> None:
        self.connection.close()
