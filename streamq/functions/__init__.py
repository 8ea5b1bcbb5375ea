"""Every function of ``pyspark.sql.functions`` under its own name, as a builder of expressions: ``f.upper("name")``.

Most of those in the rooms of this folder are typed without a session and run without Spark, too; the others run on Spark
alone (docs/expressions.md, "What runs in-process").
"""

from __future__ import annotations

from streamq.functions.catalogue import Builder, UnknownFunction, builder
from streamq.plan.spark_types import function_names


def __dir__() -> list[str]:
    return list(function_names())


def __getattr__(name: str) -> Builder:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return builder(name)


__all__ = ["UnknownFunction"]
