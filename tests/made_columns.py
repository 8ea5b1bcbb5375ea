"""As much of a DataFrame as a source looks at before Spark is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as t

from streamq.plan.spark_types import parse_type


@dataclass(frozen=True)
class Columns:
    """As much of a DataFrame as is looked at before Spark is needed: its columns."""

    schema: t.StructType
    isStreaming: bool = False

    def select(self, *columns: Any) -> Columns:
        raise NotImplementedError


def columns(**kinds: Any) -> Columns:
    return Columns(t.StructType([t.StructField(name, parse_type(kind)) for name, kind in kinds.items()]))


TABLE = {"t": "bigint", "op": "string", "k": "string", "v": "double", "tags": t.MapType(t.StringType(), t.StringType())}
