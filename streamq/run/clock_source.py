"""The clock of a stream: a source of Spark's that ticks, for progress that the time of day makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ClockRows = Callable[["SparkSession"], "DataFrame"]
"""A clock: of a session, a streaming DataFrame of rows ``now bigint``, in microseconds since 1970."""

TICK = 1_000_000
"""The length of time between two ticks, in microseconds: Spark's ``rate`` source counts whole seconds."""


def ticking_clock(spark: SparkSession) -> DataFrame:
    """Return a streaming DataFrame of rows ``now bigint``, in microseconds since 1970: one for each second that has passed.

    The first comes a second after the first start on a checkpoint; after a stop those of all the time since come at once. The
    seconds are in the offsets that Spark keeps of each micro-batch, so one that is repeated sees the same time of day.
    """
    from pyspark.sql import functions as F

    rows = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    # a row has the instant at which its second began, and is there once that is over
    return rows.select((F.unix_micros("timestamp") + TICK).alias("now"))


__all__ = ["TICK", "ClockRows", "ticking_clock"]
