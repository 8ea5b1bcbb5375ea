"""A table of any database that SQLAlchemy knows as a sink: a transaction a micro-batch, with its number in a table beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import types as t

from streamq.compiler.results import ResultColumns
from streamq.connectors.connector import with_variables
from streamq.connectors.written_tables import SqlTable
from streamq.errors import PlanError, SourceError
from streamq.run.transactional_sink import Transaction, TransactionalSink, check_client, check_table, table_columns

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table

WAIT = 60
"""The seconds that a transaction in a file of SQLite's waits for an earlier one."""


@dataclass(frozen=True)
class SqlSink(TransactionalSink):
    """The rows of a ``table``; ``url`` has the values of environment variables."""

    table: SqlTable
    url: str = field(repr=False)

    def create(self, columns: ResultColumns, verb: str) -> None:
        """Create the table; raise PlanError if there is one that does not fit, SourceError if the database refuses."""
        import sqlalchemy as sql

        with self._connected(verb) as connection:
            dialect = connection.dialect
            types = {}
            for name, kind in table_columns(columns, self.table.key, verb).items():
                if (type := _sql_type(kind, has_decimals=dialect.supports_native_decimal)) is None:
                    hint = f"Cast it, as to double or string, or leave it out: q.drop({name!r})."
                    raise PlanError(
                        verb, f"column {name!r} is {kind.simpleString()}, which {dialect.name} lacks", "", hint
                    )
                types[name] = type
            of_marks = (
                sql.Column("run", sql.String(200), primary_key=True),
                sql.Column("batch", sql.BigInteger, nullable=False),
            )
            _marks(self.table, *of_marks).create(connection, checkfirst=True)
            table = _table(self.table, *(sql.Column(name, type) for name, type in types.items()))
            if columns.key:
                # a row is looked for by its key; MySQL has indexes of the beginnings of texts only
                begun = {name: 100 for name in columns.key if isinstance(types[name], sql.Text | sql.LargeBinary)}
                sql.Index(f"{table.name}_key", *(table.columns[name] for name in columns.key), mysql_length=begun)
            table.create(connection, checkfirst=True)
            connection.commit()
            there = _table(self.table, autoload_with=connection)
        held = {column.name: column for column in there.columns}
        texts = {name: str(type.compile(dialect)) for name, type in types.items()}
        held_texts = {name: str(column.type.compile(dialect)) for name, column in held.items()}
        optional = [c.name for c in held.values() if c.nullable or c.server_default or c is there.autoincrement_column]
        misfits = [
            name
            for name in held
            if not (_holds_kind(held[name].type, types[name]) if name in types else name in optional)
        ]
        check_table(f"the table {self.table.table}", texts, held_texts, misfits, verb)

    @contextmanager
    def _connected(self, verb: str) -> Iterator[Connection]:
        """Connect to the database for one transaction; translate its errors, which have no password in them."""
        from sqlalchemy import exc

        try:
            engine = _engine(self.url)
            is_in_memory = engine.dialect.name == "sqlite" and engine.url.database in (None, "", ":memory:")
        except (exc.ArgumentError, ImportError) as error:
            reason = str(error).splitlines()[0]
            if isinstance(error, ImportError):
                hint = "Install it, on the workers, too: pip install ..."
                raise PlanError(verb, "the driver of this database is not installed", reason, hint) from None
            # what follows may be a user and a password
            begun = self.url.partition("://")[0] if "://" in self.url else "no ://"
            raise PlanError(verb, "no URL of a database", f"found {begun}", "As sqlite:////folder/sales.db.") from None
        if is_in_memory:
            raise PlanError(
                verb, "a database in memory ends with its process", "", "Name a file: sqlite:////folder/sales.db."
            )
        try:
            with engine.connect() as connection:
                yield connection
        except exc.SQLAlchemyError as error:
            wrong = f"the table {self.table.table} cannot be created or read"
            raise SourceError(verb, wrong, str(getattr(error, "orig", error)).splitlines()[0]) from None
        finally:
            engine.dispose()

    def transaction(self, run: str) -> Callable[[], Transaction]:
        return partial(SqlTransaction, self.url, self.table, self.key, run)


def sql_sink(table: SqlTable, verb: str) -> SqlSink:
    """Return a table as a sink; raise PlanError without SQLAlchemy, SourceError if an environment variable is not set."""
    check_client("sqlalchemy", "SQLAlchemy", "sql", verb)
    whole = table.url.startswith("${")
    url = with_variables(table.url, verb, lambda value: value if whole else quote(value, safe=""))
    if url.startswith("postgres"):
        raise PlanError(
            verb, "PostgreSQL has a sink of its own", "", "sq.postgres(url, table) copies rows many times faster."
        )
    return SqlSink(table, url)


def _engine(url: str) -> Engine:
    from sqlalchemy import create_engine

    return create_engine(url, connect_args={"timeout": WAIT} if url.startswith("sqlite") else {})


def _table(table: SqlTable, *columns: Any, **arguments: Any) -> Table:
    """Return a table with these columns, or with those that there are, ``autoload_with`` a connection."""
    from sqlalchemy import MetaData, Table

    schema, _, name = table.table.rpartition(".")
    return Table(name, MetaData(), *columns, schema=schema or None, **arguments)


def _marks(table: SqlTable, *columns: Any, **arguments: Any) -> Table:
    """Return the table beside one that has the number of the last micro-batch of each run."""
    schema = table.table.rpartition(".")[0]
    return _table(SqlTable("", f"{schema}.streamq_batches".lstrip(".")), *columns, **arguments)


def _sql_type(kind: t.DataType, *, has_decimals: bool) -> Any:
    """Return the type of a column in a database; None if there is none."""
    import sqlalchemy as sql
    from sqlalchemy.dialects import mysql

    match kind:
        case t.DecimalType():
            return sql.Numeric(kind.precision, kind.scale) if has_decimals else None
        case t.TimestampType() | t.TimestampNTZType():
            instant = sql.DateTime(timezone=isinstance(kind, t.TimestampType))
            return instant.with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    types: Mapping[str, Any] = {
        "string": sql.Text, "boolean": sql.Boolean, "tinyint": sql.SmallInteger, "smallint": sql.SmallInteger,
        "int": sql.Integer, "bigint": sql.BigInteger, "float": sql.Double, "double": sql.Double,
        "binary": sql.LargeBinary, "date": sql.Date,
    }  # fmt: skip
    type = types.get(kind.simpleString())
    return type and type()


def _holds_kind(type: Any, wanted: Any) -> bool:
    """Return True if a column takes values of a type, if they are not too large: the database says so of these."""
    import sqlalchemy as sql

    if isinstance(wanted, sql.Boolean):
        # MySQL has none
        return isinstance(type, sql.Boolean | sql.Integer)
    kinds = (sql.String, sql.Integer, sql.Float, sql.Numeric, sql.DateTime, sql.Date, sql.LargeBinary)
    kind = next(kind for kind in kinds if isinstance(wanted, kind))
    return isinstance(type, kind)


class SqlTransaction(Transaction):
    """A transaction on a ``table``, which has the number of a ``run`` locked: it waits for earlier ones of the run to end."""

    def __init__(self, url: str, table: SqlTable, key: tuple[str, ...], run: str):
        import sqlalchemy as sql

        self.key, self.engine = key, _engine(url)
        with self.engine.connect() as connection:
            self.table, self.marks = _table(table, autoload_with=connection), _marks(table, autoload_with=connection)
        self.is_mine = self.marks.columns.run == run
        self.connection = self.engine.connect()
        # the row is locked from here on; what is read before could be older
        same = sql.update(self.marks).where(self.is_mine).values(batch=self.marks.columns.batch)
        if not self.connection.execute(same).rowcount:
            self.connection.execute(sql.insert(self.marks).values(run=run, batch=-1))
        self.last: int = self.connection.execute(sql.select(self.marks.columns.batch).where(self.is_mine)).scalar_one()

    def done(self, number: int) -> bool:
        return self.last >= number

    def write(self, rows: pa.RecordBatchReader, number: int) -> None:
        import sqlalchemy as sql

        if self.done(number):
            raise RuntimeError(f"micro-batch {number} has been committed by another run")
        # instants are in UTC where a database has no zone
        utc = [
            pa.field(f.name, pa.timestamp("us", "UTC")) if pa.types.is_timestamp(f.type) and f.type.tz else f
            for f in rows.schema
        ]
        parameters = {name: f"key {place}" for place, name in enumerate(self.key)}
        same = (self.table.columns[name].is_not_distinct_from(sql.bindparam(key)) for name, key in parameters.items())
        delete, insert = sql.delete(self.table).where(*same), sql.insert(self.table)
        for batch in rows:
            changed = pa.Table.from_batches([batch]).cast(pa.schema(utc)).to_pylist()
            if self.engine.dialect.name == "sqlite" and any(
                value != value for row in changed for value in row.values()
            ):
                # it would be NULL
                raise RuntimeError("a value is NaN, which SQLite lacks")
            if self.key:
                keys = [{parameter: row[name] for name, parameter in parameters.items()} for row in changed]
                self.connection.execute(delete, keys)
                changed = [row for row in changed if row.pop("op") == "upsert"]
            if changed:
                self.connection.execute(insert, changed)
        self.connection.execute(sql.update(self.marks).where(self.is_mine).values(batch=number))
        self.connection.commit()

    def close(self) -> None:
        self.connection.close()
        self.engine.dispose()
