"""The base of connectors: what hosts ask of a value that says where rows are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streamq.plan.schema import Field


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
    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the rows that are there, and those to come, as a streaming DataFrame; raises Spark's own errors."""
