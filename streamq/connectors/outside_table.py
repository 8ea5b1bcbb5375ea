"""A table of Delta, Iceberg or a catalog, or the changes of one, as a source: deltalake or pyiceberg reads it, or Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type

from streamq.connectors.connector import (
    CHANGE_TYPE,
    COMMITTED,
    Connector,
    Splits,
    option_values,
    without_secrets,
)
from streamq.connectors.iceberg_catalog import IcebergPlace, iceberg_place
from streamq.connectors.refreshed_rows import refreshed_frame
from streamq.connectors.written_tables import DELTA, ICEBERG
from streamq.errors import NeedsSpark, PlanError, SessionError, SourceError, check_keywords, nearest
from streamq.plan.schema import Field, lazy
from streamq.runtime.arrow.arrow_types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

CATALOG = "catalog"
"""What stands for a format where a table is called by its name in a catalog."""

JARS: Mapping[str, str] = {
    DELTA: "io.delta:delta-spark_4.1_2.13:4.3.1",
    ICEBERG: "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
"""The packages that read each format, for PySpark 4.1, the last that they fit."""

OF_CHANGES: tuple[Field, ...] = (
    Field(CHANGE_TYPE, t.StringType()),
    Field("_commit_version", t.LongType()),
    Field(COMMITTED, t.TimestampType()),
)
"""The columns that a change feed of Delta's adds to those of the table."""

TRANSPORT = {DELTA: ("_commit_version",), ICEBERG: ("_change_ordinal", "_commit_snapshot_id")}
"""The columns of a change feed that say where a change is in the table's history."""

SINCE = "startingVersion"
"""The option with the version from which changes are read."""


@dataclass(frozen=True)
class OutsideTable(Connector):
    """A table, or its ``changes``, as :func:`table` describes it; ``place`` is a path, or the name in a catalog.

    ``iceberg``: where pyiceberg finds it, by the configuration that there was when the table was named; None if it has none.
    """

    format: str
    place: str
    changes: bool = False
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    iceberg: IcebergPlace | None = field(default=None, repr=False, compare=False)

    title = "table"

    @property
    def transport_columns(self) -> tuple[str, ...]:
        return TRANSPORT[self.format] if self.changes else ()

    @property
    def order(self) -> tuple[str, ...]:
        return self.transport_columns[:1]

    @lazy
    def fields(self) -> tuple[Field, ...]:
        """The columns, as the format's package reads them, or else the active session; SourceError if there is neither."""
        if self._is_read_here:
            return self._read("table", lambda table: (*self._columns_of(table), *(OF_CHANGES if self.changes else ())))
        spark = SparkSession.getActiveSession()
        if spark is None:
            wrong = f"the columns of {self.place} are not known"
            hint = "Start one first: sq.session()."
            raise SourceError("table", wrong, "no session is active", f"{hint}{self._of_catalog}")
        return tuple(Field(f.name, f.dataType) for f in self.frame(spark).schema)

    def to_json(self) -> dict[str, Any]:
        place = {"format": self.format, "place": self.place, "changes": self.changes}
        return {"connector": "table", **place, "options": without_secrets(self.options)}

    @property
    def _is_read_here(self) -> bool:
        """True if a package reads it without Spark: deltalake, or pyiceberg where its configuration has the table's catalog."""
        if self.format == ICEBERG:
            return self.iceberg is not None and not self.changes
        return self.format == DELTA and find_spec("deltalake") is not None

    @property
    def _of_catalog(self) -> str:
        """The words of a hint on what pyiceberg needs to read the table without Spark; "" if it has that, or could not."""
        if self.format != ICEBERG or self.changes or self.iceberg is not None:
            return ""
        catalog = self.place.partition(".")[0] if self.place.count(".") > 1 else "default"
        variable = f"PYICEBERG_CATALOG__{catalog.upper()}__URI"
        return f" Or tell pyiceberg where the catalog {catalog!r} is, and it reads the table: {variable}=..."

    def in_memory(self, verb: str) -> pa.Table:
        others = dict(self.options)
        since = int(others.pop(SINCE, 0)) if self.format == DELTA else 0
        rows = "the changes of a table" if self.changes else "a table"
        what = f"option {min(others)!r} of a table" if others else f"{rows} of format {self.format!r}"
        if others or not self._is_read_here:
            in_catalog = (
                "" if self.format != ICEBERG or self.changes else " So does pyiceberg, if it knows the catalog."
            )
            hint = f"Spark reads it: q.to_df() or q.run(), in a session that has the format.{in_catalog}"
            raise NeedsSpark(verb, what, "", hint)

        def read_rows(table: Any) -> pa.Table:
            if self.format == ICEBERG:
                return table.scan().to_arrow()
            return pa.table(table.load_cdf(starting_version=since)) if self.changes else table.to_pyarrow_table()

        read = self._read(verb, read_rows)
        typed = pa.table({f.name: read.column(f.name).cast(arrow_type(f.type)) for f in self.fields})
        return typed.sort_by("_commit_version") if self.changes else typed

    def _columns_of(self, table: Any) -> tuple[Field, ...]:
        """Return the columns of the table that a package has opened."""
        if self.format == ICEBERG:
            return tuple(Field(f.name, from_arrow_type(f.type, True)) for f in table.schema().as_arrow())
        # Delta's form of a schema is that of Spark
        columns = t.StructType.fromJson(json.loads(table.schema().to_json()))
        return tuple(Field(f.name, f.dataType) for f in columns)

    def _read(self, verb: str, read: Callable[[Any], Any]) -> Any:
        """Return what a function reads of the table that a package opens; raise SourceError if it cannot be read."""
        try:
            if self.format == DELTA:
                from deltalake import DeltaTable

                return read(DeltaTable(self.place))
            assert self.iceberg is not None
            return read(self.iceberg.catalog().load_table(self.iceberg.identifier))
        except Exception as error:
            # catalogs have clients of their own
            hint = "Changes are there where the table has delta.enableChangeDataFeed." if self.changes else ""
            raise SourceError(
                verb, f"{self.place} is not read", (str(error).splitlines() or [type(error).__name__])[0], hint
            ) from error

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows by Spark's reader, or, in a session that lacks the format, by the format's package, in one task."""
        try:
            return self._changes_of_iceberg(spark) if self._is_iceberg_feed else self._by_spark(spark.read)
        except SessionError:
            if not self._is_read_here:
                raise
            return refreshed_frame(spark, self, 0.0)

    @property
    def _is_iceberg_feed(self) -> bool:
        return self.changes and self.format == ICEBERG

    def not_split(self) -> str:
        return "Spark reads tables"

    def splits(self, spark: SparkSession, columns: Collection[str]) -> Splits:
        raise AssertionError(self.place)

    def stream(self, spark: SparkSession) -> DataFrame:
        if self._is_iceberg_feed:
            hint = "Read them in a batch, q.to_df(); a stream of the table itself has rows that are added."
            raise SourceError("run", "Iceberg has no stream of a table's changes", f"found {self.place}", hint)
        return self._by_spark(spark.readStream)

    def _changes_of_iceberg(self, spark: SparkSession) -> DataFrame:
        """Return the changes of a table by Iceberg's procedure, with the instants of their snapshots; SessionError without it."""
        committed = self._by_spark(spark.read, ".snapshots")
        instants = committed.selectExpr("snapshot_id AS _commit_snapshot_id", "committed_at AS _commit_timestamp")
        has_catalog = self.place.count(".") > 1
        catalog, name = self.place.split(".", 1) if has_catalog else (spark.catalog.currentCatalog(), self.place)
        view = "streamq_changes_of_" + re.sub(r"\W", "_", self.place)
        options = ", ".join(f"{_literal(text)}" for pair in option_values(self.options).items() for text in pair)
        arguments = (
            f"table => {_literal(name)}, changelog_view => '{view}'{f', options => map({options})' if options else ''}"
        )
        with self._errors_of_spark():
            spark.sql(f"CALL {catalog}.system.create_changelog_view({arguments})")
            return spark.table(view).join(instants, "_commit_snapshot_id")

    def _by_spark(self, reader: DataFrameReader | DataStreamReader, of_table: str = "") -> DataFrame:
        """Return what a reader reads, ``of_table`` such as ".snapshots"; raise SessionError if the session lacks the format."""
        feed = {"readChangeFeed": "true", SINCE: "0"} if self.changes and self.format == DELTA else {}
        reader = reader.options(**(feed | ({} if of_table else option_values(self.options))))
        with self._errors_of_spark():
            by_name, place = self.format == CATALOG, self.place + of_table
            rows: DataFrame = reader.table(place) if by_name else reader.format(self.format).load(place)
            # through Spark Connect nothing is looked up before
            _ = rows.schema
        return rows

    @contextmanager
    def _errors_of_spark(self) -> Iterator[None]:
        """Translate Spark's errors for a table that it does not have, or whose format it lacks."""
        try:
            yield
        except AnalysisException as error:
            raise SourceError("table", f"{self.place} is not read", str(error).splitlines()[0]) from error
        except Exception as error:
            # PySpark has no class of its own for it
            if "DATA_SOURCE_NOT_FOUND" in str(error):
                self._refuse_session(error)
            raise

    def _refuse_session(self, error: Exception) -> NoReturn:
        """Raise SessionError, which says which package has the format."""
        package = f", of {JARS[self.format]}" if self.format in JARS else ""
        fits = f" It is for PySpark 4.1; this is {pyspark.__version__}." if package else ""
        hint = f"Start Spark with the format's package{package}, as spark.jars.packages.{fits}{self._of_catalog}"
        raise SessionError("table", f"Spark has no format {self.format!r}", f"{self.place} is of it", hint) from error


def _literal(text: str) -> str:
    """Return a text in Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@check_keywords
def table(
    format: str, path: str | None = None, *, changes: bool = False, options: Mapping[str, str] | None = None
) -> OutsideTable:
    """Say that rows are a table of ``format`` at ``path``, or one of a catalog by its name: for sources and ``join_table``.

    ``sq.table("delta", "tables/trips")``, ``sq.table("iceberg", "db.trips")``, ``sq.table("spark_catalog.default.trips")``. The
    session reads it, in a batch and as a stream, if it has the format, and else the error names the package. Tables of Delta are
    read without Spark, too, by the package deltalake, and those of Iceberg by pyiceberg, where its configuration has the catalog:
    in-process, in a batch of a session without the format, and by ``join_table(..., refresh=...)``. ``options`` are those of
    Spark's reader; a value ``"${NAME}"`` is the environment variable.

    ``changes=True``, of a table of Delta's with a change feed, are the changes of its rows, which :func:`changes` reads without
    saying more than the key: from version 0, or from the option ``startingVersion``, which must have the feed. Of a table of
    Iceberg's they are those between its snapshots, which Spark reads, in a batch; ``options`` are those of Iceberg's
    *create_changelog_view*.
    Raises PlanError for wrong arguments, SourceError for a table that is not there.

    ::

        rates = sq.changes(sq.table("delta", "tables/rates", changes=True), key="currency")
    """
    for name, text in (("format", format), ("path", path)):
        if not (isinstance(text, str) and text) and (name, text) != ("path", None):
            hint = 'As sq.table("delta", "tables/trips"), or sq.table("catalog.schema.trips").'
            raise PlanError("table", f"{name} is a text", f"found {text!r}", hint)
    kind, place = (CATALOG, format) if path is None else (format.lower(), path)
    if path is not None and (meant := nearest(format, {DELTA, ICEBERG} - {kind})):
        raise PlanError("table", f"no format {format!r}", "", meant)
    if changes and kind not in TRANSPORT:
        wrong = "changes=True is of a table of Delta's or Iceberg's"
        raise PlanError("table", wrong, f"found {format!r}", "Read other change feeds as a DataFrame.")
    texts = tuple((options or {}).items())
    if wrong_option := next((n for n, v in texts if not isinstance(n, str) or not isinstance(v, str)), None):
        raise PlanError("table", "options are texts", f"found {wrong_option!r}: {dict(texts)[wrong_option]!r}")
    configured = iceberg_place(place, {}) if kind == ICEBERG and find_spec("pyiceberg") and "." in place else None
    return OutsideTable(
        kind, place, bool(changes), texts, configured if configured is not None and configured.properties else None
    )


def table_from_json(entry: Mapping[str, Any]) -> OutsideTable:
    """Return the table that an entry of a plan names, checked like the user's arguments."""
    try:
        more = {"changes": entry["changes"], "options": entry["options"]}
        where = (entry["place"],) if entry["format"] == CATALOG else (entry["format"], entry["place"])
        return table(*where, **more)
    except (KeyError, TypeError, AttributeError) as error:
        raise PlanError("from_json", "not a table of a plan", f"found {entry!r}") from error
