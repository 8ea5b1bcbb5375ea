"""The base of connectors: what hosts ask of a value that says where rows are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streamq.plan.schema import Field


@dataclass(frozen=True)
class Splits:
    """A stream of splits, such as files: workers read the rows of each where they combine them, and none crosses from the JVM.

    ``frame`` is a streaming DataFrame with the only column ``split``, a string. ``read`` yields the rows of a split, in tables
    of the Arrow types of the connector's fields; it is sent to workers.
    """

    frame: DataFrame
    read: Callable[[str], Iterator[pa.Table]]


class Connector(ABC):
    """Rows that lie outside of the process; nothing but their columns is read before a query runs."""

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]:
        """The columns, with Spark's types; raises SourceError if there is nothing to read them from."""

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

    @abstractmethod
    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the rows that are there, and those to come, as a streaming DataFrame; raises Spark's own errors."""
