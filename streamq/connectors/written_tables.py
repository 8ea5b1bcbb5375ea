"""Tables that runs write, as values: Delta's by their paths, those of Iceberg and of databases by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamq.errors import PlanError, check_keywords, column_names, kind_of

DELTA, ICEBERG = "delta", "iceberg"
"""The formats of tables: folders with a log, and names in a catalog."""


@dataclass(frozen=True)
class MergedTable:
    """A table, as :func:`merge_into` describes it; () as ``key`` stands for the run's."""

    format: str
    place: str
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class PostgresTable:
    """A table of PostgreSQL's, as :func:`postgres` describes it; ``dsn`` may have a password, so that nothing shows it."""

    dsn: str = field(repr=False)
    table: str
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class SqlTable:
    """A table of a database, as :func:`sql_table` describes it; ``url`` may have a password, so that nothing shows it."""

    url: str = field(repr=False)
    table: str
    key: tuple[str, ...] = ()


@check_keywords
def merge_into(
    format: str,
    path: str,
    *,
    key: str | Sequence[str] = (),
    partition_by: str | Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> MergedTable:
    """Say that a run writes a table, ``sink=sq.merge_into("delta", path)``, or one of Iceberg by its name in a catalog.

    The packages deltalake and pyiceberg write them, on the workers, too; the session needs no jars for it. Of
    ``output="upsert"`` rows replace those of their key, and deletions delete them; rows of other outputs are appended. A
    micro-batch is one commit, which has the micro-batch's number, too: of a run that is killed no row is lost, and none comes
    twice.

    A table that is not there is created, with the columns of the output (without ``op``), divided by the values of the
    columns ``partition_by``. One that is there must have these columns, of these types. ``key`` can only be that of the run
    (``run.key``), and may be left out. ``options`` are those of the place, such as a region, and for Iceberg those of the
    catalog; of a value ``"${NAME}"`` the environment variable is taken. Raises PlanError for wrong arguments; a run raises
    PlanError for a table that does not fit, SourceError for a place that cannot be written.

    An Iceberg table is "namespace.table" in pyiceberg's default catalog, or "catalog.namespace.table". Where the catalog is,
    pyiceberg's configuration says, a file or variables such as *PYICEBERG_CATALOG__DEFAULT__URI*, and ``options``.

    ::

        query.run(output="upsert", sink=sq.merge_into("delta", "tables/by_zone"), checkpoint="checkpoint")

        lake = {"uri": "http://catalog:8181", "token": "${TOKEN}"}
        query.run(output="upsert", sink=sq.merge_into("iceberg", "lake.trips.by_zone", options=lake), checkpoint="checkpoint")
    """
    if format not in (DELTA, ICEBERG):
        raise PlanError(
            "merge_into", "no such format of tables", f"found {format!r}", f"There are {DELTA!r}, {ICEBERG!r}."
        )
    _check_text("merge_into", "path", path)
    if format == ICEBERG and (path.count(".") == 0 or not all(path.split("."))):
        wrong = "a table of Iceberg's is a namespace's and a name, or a catalog's before them"
        raise PlanError("merge_into", wrong, f"found {path!r}", 'As "trips.by_zone", or "lake.trips.by_zone".')
    columns, parts = column_names(key, "merge_into", "key"), column_names(partition_by, "merge_into", "partition_by")
    texts = tuple((options or {}).items())
    if not all(isinstance(text, str) for pair in texts for text in pair):
        raise PlanError("merge_into", "options are texts", f"found {sorted(map(str, dict(texts)))}")
    return MergedTable(format, path, columns, parts, texts)


@check_keywords
def postgres(dsn: str, table: str, *, key: str | Sequence[str] = ()) -> PostgresTable:
    """Say that a run writes a table of PostgreSQL, ``sink=sq.postgres("postgresql://user:${NAME}@host/database", "by_zone")``.

    ``dsn`` is a URL or a text such as ``"host=db user=me"``; of ``${NAME}`` in it the environment variable is taken, so that
    no password is in the program. ``table`` may name a schema, ``"sales.by_zone"``. The package psycopg writes it, on the
    workers, too. Of ``output="upsert"`` rows replace those of their key, and deletions delete them; rows of other outputs are
    inserted. A micro-batch is one transaction, which has the micro-batch's number, too, in the table ``streamq_batches`` beside
    it: of a run that is killed no row is lost, and none comes twice.

    A table that is not there is created, with the columns of the output (without ``op``), and for upserts a unique key, of which
    NULLs are values like others. One that is there must have these columns, of types that hold them, and for upserts such a key;
    others of its columns are NULL, or what their default says. ``key`` can only be that of the run (``run.key``), and may be left
    out. Raises PlanError for wrong arguments; a run raises PlanError for a table that does not fit, SourceError for a
    server that does not answer or does not permit it. It needs PostgreSQL 15 or later.

    ::

        sink = sq.postgres("postgresql://me:${PASSWORD}@db/sales", "by_zone")
        query.run(output="upsert", sink=sink, checkpoint="checkpoint")
    """
    _check_text("postgres", "dsn", dsn)
    _check_name("postgres", table)
    return PostgresTable(dsn, table, column_names(key, "postgres", "key"))


@check_keywords
def sql_table(url: str, table: str, *, key: str | Sequence[str] = ()) -> SqlTable:
    """Say that a run writes a table of a database, ``sink=sq.sql_table("sqlite:////folder/sales.db", "by_zone")``.

    ``url`` is one of SQLAlchemy's, as ``"mysql+pymysql://me:${NAME}@host/sales"``; of ``${NAME}`` in it the environment variable
    is taken. SQLAlchemy and the database's driver write the table, on the workers, too. ``table`` may name a schema. Of
    ``output="upsert"`` rows replace those of their key, of which NULLs are values like others, and deletions delete them; rows
    of other outputs are inserted. A micro-batch is one transaction, which has the micro-batch's number, too, in the table
    ``streamq_batches`` beside it: of a run that is killed no row is lost, and none comes twice.

    A table that is not there is created, with the columns of the output (without ``op``), and for upserts an index. One that is
    there must have these columns, of such types; others of its columns are NULL, or what their default says. ``key`` can only be
    that of the run (``run.key``), and may be left out. Raises PlanError for wrong arguments; a run raises PlanError for a table
    that does not fit and for PostgreSQL, which :func:`postgres` writes many times faster, SourceError for a database that does
    not answer.

    ::

        query.run(output="upsert", sink=sq.sql_table("sqlite:////folder/sales.db", "by_zone"), checkpoint="checkpoint")
    """
    _check_text("sql_table", "url", url)
    _check_name("sql_table", table)
    return SqlTable(url, table, column_names(key, "sql_table", "key"))


def _check_name(verb: str, table: str) -> None:
    """Raise PlanError for what is no name of a database's table."""
    _check_text(verb, "table", table)
    if len(parts := table.split(".")) > 2 or not all(parts):
        raise PlanError(verb, "table is a name, or a schema's and a name", f"found {table!r}")


def _check_text(verb: str, name: str, text: object) -> None:
    """Raise PlanError for an argument that is no text."""
    if not isinstance(text, str) or not text.strip():
        observed = "an empty text" if isinstance(text, str) else kind_of(text)
        raise PlanError(verb, f"{name} is a text", f"found {observed}")
