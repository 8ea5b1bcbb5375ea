"""Readers of events: the form in which a module takes its arguments, for one call, or for many parts of the same columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

Arguments = Mapping[str, pa.Array]
"""The values of a module's arguments, by name."""

Part = Callable[[int, int], Any]
"""A function that returns the events of the rows ``[first, end)``; each row is in one part at most, because a module may write
to its events."""


class EventReader(ABC):
    """Converts a module's arguments to the events that its ``add`` takes."""

    @abstractmethod
    def __call__(self, columns: Arguments) -> Any:
        """Return the events of all rows."""

    def parts(self, columns: Arguments) -> Part:
        """Return the function that returns the events of a part of the rows, as a call with these rows alone does."""
        return lambda first, end: self({name: column.slice(first, end - first) for name, column in columns.items()})


class FrameReader(EventReader):
    """Events as a DataFrame, with a column as by :func:`series` for each argument."""

    def __call__(self, columns: Arguments) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame({name: series(column) for name, column in columns.items()}, copy=False)


class SeriesReader(EventReader):
    """Events as one Series for each argument."""

    def __call__(self, columns: Arguments) -> tuple[pd.Series, ...]:
        return tuple(map(series, columns.values()))

    def parts(self, columns: Arguments) -> Part:
        """Return the function that returns Series over a part of the rows; most columns are converted once, not per part."""
        columns_of_parts = [_series_parts(column) for column in columns.values()]
        return lambda first, end: tuple(part(first, end) for part in columns_of_parts)


class ValueReader(EventReader):
    """Events as a list of values, of tuples if a module has several arguments."""

    def __call__(self, columns: Arguments) -> list[Any]:
        values = [column.to_pylist() for column in columns.values()]
        return list(zip(*values, strict=True)) if len(values) > 1 else values[0]


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
