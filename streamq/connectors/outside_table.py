"""A table of Delta, Iceberg or a catalog, or the changes of one, as the rows of a source: deltalake reads it, or Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from streamq.connectors.connector import (
    CHANGE_TYPE,
    COMMITTED,
    Connector,
    Splits,
    option_values,
    without_secrets,
)
from streamq.connectors.refreshed_rows import refreshed_frame
from streamq.connectors.written_tables import DELTA
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
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
"""The packages that read each format, for PySpark 4.1, the last that they fit."""

OF_CHANGES: tuple[Field, ...] = (
    Field(CHANGE_TYPE, t.StringType()),
    Field("_commit_version", t.LongType()),
    Field(COMMITTED, t.TimestampType()),
)
"""The columns that a change feed of Delta's adds to those of the table."""

SINCE = "startingVersion"
"""The option with the version from which changes are read."""


@dataclass(frozen=True)
class OutsideTable(Connector):
    """A table, or its ``changes``, as :func:`table` describes it; ``place`` is a path, or the name in a catalog."""

    format: str
    place: str
    changes: bool = False
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    title = "table"

    @property
    def transport_columns(self) -> tuple[str, ...]:
        return ("_commit_version",) if self.changes else ()

    @property
    def order(self) -> tuple[str, ...]:
        return self.transport_columns

    @lazy
    def fields(self) -> tuple[Field, ...]:
        """The columns, from the table's log, or else from the active session; SourceError if there is neither."""
        if self.format == DELTA and find_spec("deltalake") is not None:
            columns = self._read("table", lambda table: json.loads(table.schema().to_json()))
            of_changes = OF_CHANGES if self.changes else ()
            return (*(Field(f.name, f.dataType) for f in t.StructType.fromJson(columns)), *of_changes)
        spark = SparkSession.getActiveSession()
        if spark is None:
            wrong = f"the columns of {self.place} are not known"
            raise SourceError("table", wrong, "no session is active", "Start one first: sq.session().")
        return tuple(Field(f.name, f.dataType) for f in self._by_spark(spark.read).schema)

    def to_json(self) -> dict[str, Any]:
        place = {"format": self.format, "place": self.place, "changes": self.changes}
        return {"connector": "table", **place, "options": without_secrets(self.options)}

    def in_memory(self, verb: str) -> pa.Table:
        others = dict(self.options)
        since = int(others.pop(SINCE, 0))
        what = f"option {min(others)!r} of a table" if others else f"a table of format {self.format!r}"
        if self.format != DELTA or others or find_spec("deltalake") is None:
            raise NeedsSpark(verb, what, "", "Spark reads it: q.to_df() or q.run(), in a session that has the format.")

        def rows(table: Any) -> pa.Table:
            return pa.table(table.load_cdf(starting_version=since)) if self.changes else table.to_pyarrow_table()

        read = self._read(verb, rows)
        typed = pa.table({f.name: read.column(f.name).cast(arrow_type(f.type)) for f in self.fields})
        return typed.sort_by("_commit_version") if self.changes else typed

    def _read(self, verb: str, read: Callable[[Any], Any]) -> Any:
        """Return what a function reads of the table of Delta's; raise SourceError if it is not there, or cannot be read."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return read(DeltaTable(self.place))
        except (DeltaError, pa.ArrowException, OSError) as error:
            hint = "Changes are there where the table has delta.enableChangeDataFeed." if self.changes else ""
            raise SourceError(verb, f"{self.place} is not read", str(error).splitlines()[0], hint) from error

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows by Spark's reader, or, of Delta's in a session that lacks it, by deltalake, in one task."""
        try:
            return self._by_spark(spark.read)
        except SessionError:
            if self.format != DELTA or find_spec("deltalake") is None:
                raise
            return refreshed_frame(spark, self, 0.0)

    def not_split(self) -> str:
        return "Spark reads tables"

    def splits(self, spark: SparkSession, columns: Collection[str]) -> Splits:
        raise AssertionError(self.place)

    def stream(self, spark: SparkSession) -> DataFrame:
        return self._by_spark(spark.readStream)

    def _by_spark(self, reader: DataFrameReader | DataStreamReader) -> DataFrame:
        """Return what a reader of Spark's reads; raise SessionError if it lacks the format."""
        feed = {"readChangeFeed": "true", SINCE: "0"} if self.changes else {}
        reader = reader.options(**(feed | option_values(self.options)))
        try:
            by_name = self.format == CATALOG
            rows: DataFrame = reader.table(self.place) if by_name else reader.format(self.format).load(self.place)
            # through Spark Connect nothing is looked up before
            _ = rows.schema
        except AnalysisException as error:
            raise SourceError("table", f"{self.place} is not read", str(error).splitlines()[0]) from error
        except Exception as error:
            # PySpark has no class of its own for it
            if "DATA_SOURCE_NOT_FOUND" in str(error):
                self._refuse_session(error)
            raise
        return rows

    def _refuse_session(self, error: Exception) -> NoReturn:
        """Raise SessionError, which says which package has the format."""
        package = f", of {JARS[self.format]}" if self.format in JARS else ""
        fits = f" It is for PySpark 4.1; this is {pyspark.__version__}." if package else ""
        hint = f"Start Spark with the format's package{package}, as spark.jars.packages.{fits}"
        raise SessionError("table", f"Spark has no format {self.format!r}", f"{self.place} is of it", hint) from error


@check_keywords
def table(
    format: str, path: str | None = None, *, changes: bool = False, options: Mapping[str, str] | None = None
) -> OutsideTable:
    """Say that rows are a table of ``format`` at ``path``, or one of a catalog by its name: for sources and ``join_table``.

    ``sq.table("delta", "tables/trips")``, ``sq.table("iceberg", "db.trips")``, ``sq.table("spark_catalog.default.trips")``. The
    session reads it, in a batch and as a stream, if it has the format, and else the error names the package. Tables of
    Delta are read without Spark, too, by the package deltalake: in-process, in a batch of a session without the format, and by
    ``join_table(..., refresh=...)``. ``options`` are those of Spark's reader; a value ``"${NAME}"`` is the environment variable.

    ``changes=True``, of a table of Delta's with a change feed, are the changes of its rows, which :func:`changes` reads without
    saying more than the key: from version 0, or from the option ``startingVersion``, which must have the feed.
    Raises PlanError for wrong arguments, SourceError for a table that is not there.

    ::

        rates = sq.changes(sq.table("delta", "tables/rates", changes=True), key="currency")
    """
    for name, text in (("format", format), ("path", path)):
        if not (isinstance(text, str) and text) and (name, text) != ("path", None):
            hint = 'As sq.table("delta", "tables/trips"), or sq.table("catalog.schema.trips").'
            raise PlanError("table", f"{name} is a text", f"found {text!r}", hint)
    kind, place = (CATALOG, format) if path is None else (format.lower(), path)
    if path is not None and (meant := nearest(format, {DELTA, "iceberg"} - {kind})):
        raise PlanError("table", f"no format {format!r}", "", meant)
    if changes and kind != DELTA:
        wrong = "changes=True is of a table of Delta's, at a path"
        raise PlanError("table", wrong, f"found {format!r}", "Read other change feeds as a DataFrame.")
    texts = tuple((options or {}).items())
    if wrong_option := next((n for n, v in texts if not isinstance(n, str) or not isinstance(v, str)), None):
        raise PlanError("table", "options are texts", f"found {wrong_option!r}: {dict(texts)[wrong_option]!r}")
    return OutsideTable(kind, place, bool(changes), texts)


def table_from_json(entry: Mapping[str, Any]) -> OutsideTable:
    """Return the table that an entry of a plan names, checked like the user's arguments."""
    try:
        more = {"changes": entry["changes"], "options": entry["options"]}
        where = (entry["place"],) if entry["format"] == CATALOG else (entry["format"], entry["place"])
        return table(*where, **more)
    except (KeyError, TypeError, AttributeError) as error:
        raise PlanError("from_json", "not a table of a plan", f"found {entry!r}") from error
