"""The base of connectors: what hosts ask of a value that says where rows are."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from streamq.errors import PlanError, SourceError
from streamq.plan.lowering import map_in_arrow
from streamq.plan.schema import Field

SECRET = re.compile("secret|password|token|credential|access.?key|jaas", re.IGNORECASE)
"""The names of options that are secrets, by a part of theirs."""

CHANGE_TYPE, COMMITTED = "_change_type", "_commit_timestamp"
"""The columns of a feed of changes: what has happened to a row, and when."""

OF_ENVIRONMENT = re.compile(r"\$\{(\w+)\}")
"""The value of an option that stands for an environment variable."""


def with_variables(text: str, verb: str, quoted: Callable[[str], str]) -> str:
    """Return a text with the values of the environment variables that it names, each ``quoted``; SourceError for one not set."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise SourceError(verb, f"no environment variable {match[1]}", "the place of a table names it")
        return quoted(os.environ[match[1]])

    return OF_ENVIRONMENT.sub(value, text)


Options = Iterable[tuple[str, Any]]
"""The options of a reader, by name."""


@dataclass(frozen=True)
class Splits:
    """A stream of splits, such as the names of files, or messages: workers make rows of them where they combine these.

    ``frame`` is a streaming DataFrame of splits. ``read`` yields the rows of some of them, in tables of the Arrow types of the
    connector's fields; it is sent to workers.
    """

    frame: DataFrame
    read: Callable[[pa.RecordBatch], Iterator[pa.Table]]

    def decoded(self, fields: Iterable[Field]) -> DataFrame:
        """Return the rows as a DataFrame with these columns, for Spark to go on with."""
        read = self.read
        columns = StructType([StructField(field.name, field.type) for field in fields])
        return map_in_arrow(
            self.frame,
            lambda batches: (part for b in batches for rows in read(b) for part in rows.to_batches()),
            columns,
        )


@dataclass(frozen=True)
class StartPosition:
    """A place at which a stream begins; a checkpoint keeps it, because Spark's offsets do not say it.

    ``now`` returns it as a line; ``rows_from`` returns the connector from such a line on, and raises SourceError if what it names
    is no longer there.
    """

    now: Callable[[], str]
    rows_from: Callable[[str], Connector]


class Connector(ABC):
    """Rows that lie outside of the process; nothing but their columns is read before a query runs.

    ``title``: its kind, in errors. ``parts``: the columns by which rows are in order, so that progress is of each part; none if
    it is of the whole.
    """

    title: ClassVar[str]
    parts: tuple[str, ...] = ()

    @property
    def is_decoded(self) -> bool:
        """True if workers make the rows of a stream even where Spark goes on with them."""
        return False

    @property
    def transport_columns(self) -> tuple[str, ...]:
        """The columns that the transport adds, which a source has beside its events."""
        return ()

    @property
    def order(self) -> tuple[str, ...]:
        """The columns by which changes of a row at one instant are in order, if the rows are changes."""
        return ()

    @property
    def start_position(self) -> StartPosition | None:
        """The place at which a stream begins, if a checkpoint has to keep it; else None."""
        return None

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """The columns, with Spark's types; raises SourceError if there is nothing to read them from."""

    def static(self) -> Connector:
        """Return the connector of a table that does not grow, which has no policy for rows that are malformed."""
        return self

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return what a plan in JSON says of it, with the connector's name as ``connector``; PlanError for a secret in it."""

    @abstractmethod
    def in_memory(self, verb: str) -> pa.Table:
        """Return the rows that are there now, without Spark, in columns of the Arrow types of ``fields``.

        Raises, worded for ``verb``: NeedsSpark where only Spark reads them, or where Spark might read another value;
        SourceError for rows that are gone.
        """

    @abstractmethod
    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows that are there now as a batch; raises Spark's own errors."""

    @abstractmethod
    def not_split(self) -> str:
        """Return the reason why only Spark reads these rows as a stream, for explain; "" if ``splits`` has them."""

    @abstractmethod
    def splits(self, spark: SparkSession, columns: Collection[str]) -> Splits:
        """Return the splits that are there, and those to come, with these columns of their rows; ``not_split`` is ""."""

    def awaited_parts(self, spark: SparkSession) -> tuple[tuple[Any, ...], ...]:
        """Return the values of ``parts`` that there are now, with rows or without; none if nobody can say."""
        return ()

    @abstractmethod
    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the rows that are there, and those to come, as a streaming DataFrame; raises Spark's own errors."""


def without_secrets(options: Options) -> dict[str, Any]:
    """Return options as a plan in JSON holds them; raise PlanError for one that may be a secret, and is no variable's name."""
    for name, value in options:
        if SECRET.search(name) and not OF_ENVIRONMENT.fullmatch(str(value)):
            hint = 'Set it in the session, as spark.hadoop.fs..., or name an environment variable: "${NAME}".'
            raise PlanError("to_json", f"option {name!r} may be a secret", "a plan holds none", hint)
    return dict(options)


def option_values(options: Options) -> dict[str, Any]:
    """Return options as Spark gets them, with the values of environment variables; raise SourceError for one that is not set."""
    values = {}
    for name, value in options:
        variable = OF_ENVIRONMENT.fullmatch(value) if isinstance(value, str) else None
        if variable is not None and variable[1] not in os.environ:
            raise SourceError("source", f"no environment variable {variable[1]}", f"option {name!r} names it")
        values[name] = value if variable is None else os.environ[variable[1]]
    return values


def schema_text(fields: Iterable[Field]) -> str:
    """Return columns as the text of a schema."""
    names = ((field.name.replace("`", "``"), field.type.simpleString()) for field in fields)
    return ", ".join(f"`{name}` {kind}" for name, kind in names)
