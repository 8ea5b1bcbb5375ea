"""The active SparkSession of this process, and the record of Spark applications that passed the checks for streams."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from streamq.errors import SessionError, sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKED: set[str] = set()
"""Ids of Spark applications whose driver and workers have passed the checks for streams."""


def mark_checked(spark: SparkSession) -> None:
    """Record that the driver and the workers of a session's application need no further check, if it has an id."""
    application = spark.conf.get("spark.app.id", "")
    if application:
        _CHECKED.add(application)


def is_checked(spark: SparkSession) -> bool:
    """Return True if the driver and the workers of a session's application have been checked."""
    return spark.conf.get("spark.app.id", "") in _CHECKED


def active_session() -> SparkSession | None:
    """Return the SparkSession of this process, classic or Connect, if it has one, without importing pyspark for that."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException:
        return None


def session_of(tables: Collection[Any], verb: str) -> SparkSession:
    """Return the session of the first DataFrame among some tables, else the active one; raise SessionError without any."""
    for table in tables:
        if hasattr(table, "sparkSession"):
            spark: SparkSession = table.sparkSession
            return spark
    active = active_session()
    if active is None:
        reason = "the query has only literal and Arrow tables" if tables else ""
        raise SessionError(sentence(verb, "no active SparkSession", reason, "Start one: sq.session()."))
    return active
