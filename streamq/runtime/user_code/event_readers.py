"""Readers of events: the form in which a module takes its arguments, for many parts of the same columns.

A reader returns, for columns by name, the function that returns the events of the rows ``[first, end)``, as if these rows were
alone. Each row is in one part at most, because a module may write to its events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

EventReader = Callable[[Mapping[str, pa.Array]], Callable[[int, int], Any]]


def read_frame(columns: Mapping[str, pa.Array]) -> Callable[[int, int], pd.DataFrame]:
    """Read events as a DataFrame, with a column as by :func:`series` for each argument."""
    import pandas as pd

    def part(first: int, end: int) -> pd.DataFrame:
        values = {name: series(column.slice(first, end - first)) for name, column in columns.items()}
        return pd.DataFrame(values, copy=False)

    return part


def read_series(columns: Mapping[str, pa.Array]) -> Callable[[int, int], tuple[pd.Series, ...]]:
    """Read events as one Series for each argument; most columns are converted once, not per part."""
    columns_of_parts = [_series_parts(column) for column in columns.values()]
    return lambda first, end: tuple(part(first, end) for part in columns_of_parts)


def read_values(columns: Mapping[str, pa.Array]) -> Callable[[int, int], list[Any]]:
    """Read events as a list of values, of tuples if a module has several arguments."""

    def part(first: int, end: int) -> list[Any]:
        values = [column.slice(first, end - first).to_pylist() for column in columns.values()]
        return list(zip(*values, strict=True)) if len(values) > 1 else values[0]

    return part


def series(array: pa.Array) -> pd.Series:
    """Return a column as by ``to_pandas``: integers and booleans with NULLs are nullable, NULL among floats is NaN."""
    import pandas as pd

    if _is_nullable(array):
        dtype = "boolean" if pa.types.is_boolean(array.type) else f"Int{array.type.bit_width}"
        return pd.Series(array.to_pylist(), dtype=dtype)
    # a copy: what Arrow lends cannot be written to, and a module that writes to it is to be found
    return array.to_pandas(date_as_object=False).copy()


def _is_nullable(array: pa.Array) -> bool:
    """Return True for integers and booleans with NULLs, whose Series has a type of its own."""
    return bool(array.null_count) and (pa.types.is_integer(array.type) or pa.types.is_boolean(array.type))


def _series_parts(array: pa.Array) -> Callable[[int, int], pd.Series]:
    """Return the function that returns a part of a column as :func:`series` does."""
    import pandas as pd

    def converted(first: int, end: int) -> pd.Series:
        return series(array.slice(first, end - first))

    # the type of a part depends on whether it has NULLs itself
    if _is_nullable(array):
        return converted
    try:
        whole = series(array)
    except Exception:
        # only the parts with values that pandas does not have fail
        return converted
    dtype = whole.dtype
    values = whole.array if pd.api.types.is_extension_array_dtype(dtype) else whole.to_numpy()
    return lambda first, end: pd.Series(values[first:end], dtype=dtype, copy=False)
