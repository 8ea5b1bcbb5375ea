"""Mistakes in what runs on Spark only: the batch lowering of windows, and what a user reads of a stream."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from streamq.compiler import egress
from streamq.operators import merging
from streamq.time import INFINITY
from streamq.windows import batch_events
from tests.mutation.mutant import Mutant, wrapped


def last_of_a_range_lost(partials: Any, layout: Any, n: int) -> Any:
    long = F.col("__hi") > F.col("__lo")
    return merging._dyadic(
        partials.withColumn("__hi", F.when(long, F.col("__hi") - 1).otherwise(F.col("__hi"))), layout, n
    )


def window_of_its_end(right: Any, window: Any, shape: str) -> Any:
    low, high = right(window, shape)
    return low, F.when(high < INFINITY, high + 1).otherwise(high)


def ends_inclusive(right: Any, columns: egress.ResultColumns, df: Any) -> Any:
    return right(columns, df).withColumn("end", F.col("end") - 1)


MUTANTS = (
    Mutant(
        "dyadic range cut short, in batch",
        "a range of windows that is cut into dyadic nodes loses its last window",
        "hopping",
        ((merging, "_FORMS", {**merging._FORMS, "dyadic": last_of_a_range_lost}),),
        spark=True,
    ),
    Mutant(
        "last window too late, in batch",
        "an event is also a member of the window that starts where it ends",
        "tumbling",
        (wrapped(batch_events, "window_range_columns", window_of_its_end),),
        spark=True,
    ),
    Mutant(
        "inclusive ends, as a stream",
        "the ends that a user reads of a streaming query are the last instants alive",
        "intervals",
        (wrapped(egress.ResultColumns, "read", ends_inclusive),),
        spark=True,
    ),
)
