"""Convert Arrow columns to Python values, and make these hashable under the equality of keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[Any, ...]


class _Special(Enum):
    """Objects that equal only themselves and are not values of a payload."""

    NAN = "NaN"


def comparable(value: Any) -> Any:
    """Return a hashable value for comparing as keys are: NaN equals itself, -0.0 equals 0.0, lists and structs go by parts.

    A boolean equals no number, unlike in Python. A list of pairs is a map, whose entries have no order.
    """
    match value:
        case bool():
            return _Special, value
        case float():
            return _Special.NAN if math.isnan(value) else value + 0.0
        case [tuple(), *_]:
            return frozenset(comparable(v) for v in value)
        case list() | tuple():
            return tuple(comparable(v) for v in value)
        case dict():
            return tuple((k, comparable(v)) for k, v in value.items())
    return value


def keys(table: pa.Table) -> list[Row]:
    """Return the rows of a table as tuples of comparable values."""
    return table_rows(table, comparable)


def table_rows(table: pa.Table, convert: Callable[[Any], Any] | None = None) -> list[Row]:
    """Return the rows of a table as tuples; ``convert`` is applied to floats, lists, maps, structs, and NULLs in such columns.

    A table without columns has no rows.
    """
    import pyarrow as pa

    columns = []
    for column in table.columns:
        values = plain_values(column)
        if convert is not None and (pa.types.is_floating(column.type) or pa.types.is_nested(column.type)):
            values = [convert(value) for value in values]
        columns.append(values)
    return list(zip(*columns, strict=True))


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column as Python values; instants and dates beyond Python's range become numbers of microseconds or days."""
    if not _has_instants(column.type):
        return column.to_pylist()
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
        # convert one by one, so that values within Python's range become datetimes
        return [_python_value(scalar) for scalar in column]


def _python_value(scalar: Any) -> Any:
    """Return a scalar, or the parts of a nested one, as Python values; values beyond Python's range as numbers."""
    import pyarrow as pa

    kind = scalar.type
    if not scalar.is_valid or not _has_instants(kind):
        return scalar.as_py()
    if pa.types.is_map(kind):
        return [(_python_value(entry["key"]), _python_value(entry["value"])) for entry in scalar.values]
    if pa.types.is_list(kind):
        return [_python_value(item) for item in scalar.values]
    if pa.types.is_struct(kind):
        return {name: _python_value(part) for name, part in scalar.items()}
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return scalar.value


def _has_instants(kind: pa.DataType) -> bool:
    """True for a type of instants or dates, and for a nested type with one in it."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return True
    return pa.types.is_nested(kind) and any(_has_instants(kind.field(i).type) for i in range(kind.num_fields))
