"""Plans to be written as JSON."""

from __future__ import annotations

from pyspark.sql import types as t

from streamq import col
from streamq.compiler.plan_json import plan_to_json
from streamq.operators import Where
from streamq.plan.node import number_sources
from streamq.plan.schema import Field
from streamq.sources.intervals import Intervals


def source(**columns: t.DataType) -> Intervals:
    fields = [Field("from", t.LongType()), Field("to", t.LongType()), *(Field(n, k) for n, k in columns.items())]
    return Intervals("s", tuple(fields), "from", "to")


DOCUMENT = plan_to_json(number_sources(Where(source(v=t.IntegerType()), col("v") > 1))[0])
