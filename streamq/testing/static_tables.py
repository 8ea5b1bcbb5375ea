"""Static tables that random queries look up: some with names, and one for every type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from streamq.plan.schema import Field
from streamq.runtime.arrow_types import arrow_type
from streamq.testing.intent import ANYTHING
from streamq.testing.payload_values import odd, pool, twin
from streamq.testing.table import fields_of

STATIC: dict[str, tuple[tuple[Field, ...], tuple[tuple[Any, int | None], ...]]] = {
    "names": (
        (Field("name", t.StringType()), Field("size", t.LongType())),
        (("a", 1), ("a", 2), ("b", 3), (None, 4), ("z", 5)),
    ),
    "numbers": (
        (Field("name", t.IntegerType()), Field("size", t.LongType())),
        ((0, 1), (1, 2), (1, None), (None, 4)),
    ),
}
"""The columns and rows of static tables with names; the table for any other type is named like the type."""


def static(name: str) -> pa.Table:
    """Return a static table by name."""
    columns, rows = _columns_and_rows(name)
    arrays = [pa.array([row[i] for row in rows], arrow_type(f.type)) for i, f in enumerate(columns)]
    return pa.table(arrays, names=[f.name for f in columns])


def fields_of_table(name: str) -> tuple[Field, ...]:
    """Return the columns of a static table."""
    return _columns_and_rows(name)[0]


def _columns_and_rows(name: str) -> tuple[tuple[Field, ...], tuple[tuple[Any, int | None], ...]]:
    return STATIC[name] if name in STATIC else _lookup(fields_of(f"name {name}")[0].type)


def table_for(kind: t.DataType) -> str:
    """Return the name of the static table whose first column has a type."""
    names = [name for name, (columns, _) in STATIC.items() if columns[0].type == kind]
    return names[0] if names else kind.simpleString()


def _lookup(kind: t.DataType) -> tuple[tuple[Field, ...], tuple[tuple[Any, int | None], ...]]:
    """Return a table of some values of a type: plain ones, edge cases, a repeated one, one in other bits, and NULL."""
    values = pool(kind, ANYTHING)
    chosen = [twin(values[0]), *values[:2], None, *values[-2:], *odd(kind, ANYTHING)[:2]]
    return (Field("name", kind), Field("size", t.LongType())), tuple((v, i or None) for i, v in enumerate(chosen))


__all__ = ["STATIC", "fields_of_table", "static", "table_for"]
