"""Values of user code: the form in which it takes events, and checks that what it returns fits its type completely."""

from __future__ import annotations

import datetime as dt
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.values import Ints
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.types import StructField

SHOWN = 60
"""The number of characters of a value that an error shows."""

START, LASTS = "__own_start", "__own_lasts"
"""The fields of a row's own lifetime: its start and its duration (NULL: no end), in ticks."""

Lifetime = tuple[int, int]

FAILURES = (Exception, SystemExit)
"""The exceptions of user code that fail a call; ``sys.exit()`` in it ends the query, not the program."""


@dataclass(frozen=True)
class WindowInterval:
    """A window ``[start, end)``: integers on an integer axis, pandas Timestamps in UTC on a timestamp axis.

    ``end`` is None while the window has no end.
    """

    start: Any
    end: Any

    @property
    def duration(self) -> Any:
        """The length: an integer, or a Timedelta; None without an end."""
        return None if self.end is None else self.end - self.start


def instant_of(ticks: int, axis: pa.DataType) -> Any:
    """Return an instant as a module reads it: an integer, or a Timestamp; None for an infinite end."""
    import pandas as pd

    if ticks >= INFINITY:
        return None
    return pd.Timestamp(np.datetime64(ticks, "us"), tz="UTC") if pa.types.is_timestamp(axis) else int(ticks)


def instants_of(ticks: Ints, axis: pa.DataType) -> pa.Array:
    """Return instants as a column of the axis, NULL for infinite ends."""
    is_endless = ticks == INFINITY
    return pa.array(ticks, pa.int64(), mask=is_endless if is_endless.any() else None).cast(axis)


def instant_to_ticks(instant: Any, axis: pa.DataType) -> int:
    """Return the ticks of an instant that a module returned; None, NaT, NA and NaN are an infinite end.

    An integer axis takes integers and whole floats (a pandas column with missing values has only floats); a timestamp axis takes
    datetimes and Timestamps, those without a zone in UTC. Raises ValueError for anything else, for parts below a
    microsecond, and for an instant beyond the axis.
    """
    import pandas as pd

    if plain_result(instant) is None:
        return INFINITY
    if not pa.types.is_timestamp(axis):
        is_whole = isinstance(instant, float | np.floating) and float(instant).is_integer()
        if not is_whole and (isinstance(instant, bool) or not isinstance(instant, int | np.integer)):
            raise ValueError("no instant of an integer axis")
        ticks = int(instant)
    elif isinstance(instant, dt.datetime | np.datetime64):
        moment = pd.Timestamp(instant)
        moment = moment.tz_localize("UTC") if moment.tzinfo is None else moment
        if moment.nanosecond:
            raise ValueError("parts below a microsecond")
        ticks = int(moment.to_datetime64().astype("datetime64[us]").astype(np.int64))
    else:
        raise ValueError("no instant of a timestamp axis")
    if not MINUS_INFINITY < ticks < INFINITY:
        raise ValueError("beyond the ends of the axis")
    return ticks


# events


EventReader = Callable[[Mapping[str, pa.Array]], Callable[[int, int], Any]]
"""Returns, for columns by name, the function that returns the events of the rows ``[first, end)`` as a module takes them.

They are as if these rows were alone. Each row is in one part at most, because a module may write to its events.
"""


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
    """True for integers and booleans with NULLs, whose Series has a type of its own."""
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


# results


class ReturnError(Exception):
    """Raised for an invalid result of user code; the text is the reason."""


def fit_to_type(result: Any, to: pa.DataType, shown_type: str) -> Any:
    """Return the result unchanged if it fits its type completely, as None does; else raise ReturnError, about ``shown_type``."""
    if not _fits(result, to):
        hint = _instead_of(result, to)
        if inspect.iscoroutine(result):
            result.close()  # or Python warns that nobody awaits it
        raise ReturnError(f"{short_text(result)} is no {shown_type}{hint and f' ({hint})'}")
    return result


def _fits(result: Any, to: pa.DataType) -> bool:
    """Return True if a result is a value of a type, of which nothing is lost."""
    try:
        return _is_stored_whole(result, pa.scalar(result, to).as_py())
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return False


def _instead_of(result: Any, to: pa.DataType) -> str:
    """Return a hint for a value that does not fit a type; empty if there is none."""
    import pandas as pd

    if inspect.iscoroutine(result):
        return "write def, not async def"
    if inspect.isgenerator(result):
        return "return a value; @sq.udo makes rows"
    is_many = isinstance(result, list | tuple | set | np.ndarray | pd.Series | pd.DataFrame)
    if is_many and not (pa.types.is_list(to) or pa.types.is_struct(to) or pa.types.is_map(to)):
        first = next(iter(result), None) if isinstance(result, list | tuple) else None
        is_rows = isinstance(result, pd.DataFrame) or isinstance(first, tuple | Mapping)
        return "@sq.udo makes rows" if is_rows else "a list is an array<...>"
    if isinstance(result, np.ndarray | pd.Series):
        return "write .tolist()"
    if isinstance(result, int | float | Decimal | np.number | np.bool_):
        # no integer is infinite
        with suppress(OverflowError, ValueError):
            makers = [maker for is_kind, maker in _MAKERS if is_kind(to) and _fits(maker(result), to)]
            return f"write {makers[0].__name__}(...)" if makers else ""
    return "write .date()" if pa.types.is_date(to) and isinstance(result, dt.datetime) else ""


_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], type[Any]], ...] = (
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_string, str),
    (pa.types.is_boolean, bool),
)
"""The Python function that converts a number to a type, by type."""


def reason_of(error: BaseException) -> str:
    """Return the reason of a call's error, as text."""
    return str(error) if isinstance(error, ReturnError) else f"{type(error).__name__}: {error}".removesuffix(": ")


def plain_result(result: Any) -> Any:
    """Return a NumPy scalar as Python's, None for NA, NaT and every NaN, as in a Series; other values unchanged."""
    import pandas as pd

    if result is pd.NA or result is pd.NaT:
        return None
    if isinstance(result, np.generic):
        result = result.item()
    return None if isinstance(result, float) and math.isnan(result) else result


def short_text(value: Any) -> str:
    """Return the value as text on one line, cut if it is long.

    For a collection of pandas or NumPy the text is its kind and number of values, for a generator or coroutine its kind.
    """
    import pandas as pd

    if inspect.isgenerator(value) or inspect.iscoroutine(value):
        return f"a {type(value).__name__}"
    if isinstance(value, pd.Series | pd.DataFrame | np.ndarray):
        rows = "rows" if isinstance(value, pd.DataFrame) else "values"
        return f"a {type(value).__name__} of {len(value) if np.ndim(value) else 1} {rows}"
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _is_stored_whole(result: Any, stored: Any) -> bool:
    """Return True if Arrow has stored a result completely, as ``stored``: nothing cut off, left out or reinterpreted."""
    match stored:
        case bool():
            return isinstance(result, bool | np.bool_)
        case float():
            # a 32-bit float has fewer digits than Python's, and NaN is a value
            is_number = isinstance(result, int | float | np.integer | np.floating) and not isinstance(result, bool)
            return is_number and math.isinf(stored) <= math.isinf(result) and math.isnan(stored) == math.isnan(result)
        case int():
            return isinstance(result, int | np.integer) and not isinstance(result, bool) and stored == result
        case dict():
            is_same = isinstance(result, Mapping) and result.keys() == stored.keys()
            return is_same and all(_is_stored_whole(result[name], value) for name, value in stored.items())
        case list():
            values = list(result.items()) if isinstance(result, Mapping) else list(result)
            return len(values) == len(stored) and all(map(_is_stored_whole, values, stored))
        case tuple():
            return len(result) == len(stored) and all(map(_is_stored_whole, result, stored))
        case dt.datetime():
            if not isinstance(result, dt.datetime):
                return False
            return result.replace(tzinfo=result.tzinfo or stored.tzinfo) == stored
        case dt.date():
            return isinstance(result, dt.date) and not isinstance(result, dt.datetime)
    return bool(result == stored) if stored is not None else result is None


# rows


@dataclass(frozen=True)
class RowShape:
    """The rows that a user's operator returns: its fields and their Arrow types.

    shown_types: the types' names in errors; timed: rows may have lifetimes; keeps_lifetimes: these are part of the result;
    single: there must be exactly one row.
    """

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    shown_types: tuple[str, ...]
    timed: bool = False
    keeps_lifetimes: bool = False
    single: bool = False

    @classmethod
    def from_fields(cls, fields: Sequence[StructField], **flags: bool) -> Self:
        """Return the shape of rows with these columns; ``flags`` are the fields of the shape that are true or false."""
        return cls(
            names=tuple(field.name for field in fields),
            types=tuple(arrow_type(field.dataType) for field in fields),
            shown_types=tuple(field.dataType.simpleString() for field in fields),
            **flags,
        )

    def rows(
        self, result: Any, axis: pa.DataType, in_window: Callable[[Lifetime | None], tuple[int, int | None]]
    ) -> list[dict[str, Any]]:
        """Return what the code returned as rows; raises ReturnError if it is not valid.

        It may be a DataFrame, or an iterable (also a generator) of rows: dictionaries or named tuples by field, tuples or lists
        in the order of the fields, or plain values if there is one field. Rows with lifetimes have ``start`` and ``end`` among
        the names, or before the fields, as instants of the ``axis``. ``in_window`` returns the final lifetime for a row's own
        one, which may be None; it becomes the fields START and LASTS of a row that keeps its lifetime. Otherwise a row's own
        lifetime must be valid, too, but is left out.
        """
        rows, fields = [], list(zip(self.names, self.types, self.shown_types, strict=True))
        for returned_row in _iterate_rows(result, is_wide=self.timed or len(self.names) > 1):
            instants, values = self._split_row(returned_row)
            lifetime = None if instants is None else _lifetime_in_ticks(*instants, axis)
            row = {n: fit_to_type(plain_result(values[n]), k, s) for n, k, s in fields}
            if self.keeps_lifetimes:
                try:
                    start, end = in_window(lifetime)
                except ReturnError as error:
                    raise ReturnError(f"{error}: {short_text(returned_row)}") from error
                row |= {START: start, LASTS: None if end is None else end - start}
            rows.append(row)
        if self.single and len(rows) != 1:
            raise ReturnError(f"{len(rows)} rows for a window, declared one_output_per_group")
        return rows

    def _split_row(self, row: Any) -> tuple[tuple[Any, Any] | None, Mapping[str, Any]]:
        """Return a row's own start and end, None if it has none, and its values by field; raises ReturnError for other fields."""
        expected = [*(["start", "end"] if self.timed else []), *self.names]
        fields = getattr(row, "_fields", getattr(row, "__fields__", ())) if isinstance(row, tuple) else ()
        row = dict(zip(fields, row, strict=True)) if fields else row
        if not isinstance(row, Mapping):
            values = tuple(row) if isinstance(row, tuple | list) else (row,)
            in_order = self.names if len(values) == len(self.names) else expected
            if len(values) != len(in_order):
                raise ReturnError(f"a row of {len(values)} values, {short_text(row)}, instead of {', '.join(expected)}")
            row = dict(zip(in_order, values, strict=True))
        names = [str(name) for name in row]
        if set(names) not in (set(self.names), set(expected)):
            hint = " (write itertuples(index=False))" if "Index" in fields else ""
            raise ReturnError(f"a row has {', '.join(names) or 'no columns'} instead of {', '.join(expected)}{hint}")
        return (row["start"], row["end"]) if len(names) > len(self.names) else None, row


def _lifetime_in_ticks(start: Any, end: Any, axis: pa.DataType) -> Lifetime:
    """Return a row's own lifetime in ticks; raises ReturnError for a start or end that is no instant of the axis."""
    ticks = []
    for instant in (start, end):
        try:
            ticks.append(instant_to_ticks(instant, axis))
        except (ValueError, OverflowError) as error:
            raise ReturnError(f"{short_text(instant)} is no instant of the query ({error})") from error
    if ticks[0] == INFINITY:
        raise ReturnError(f"{short_text(start)} is no start of a row")
    return ticks[0], ticks[1]


def _iterate_rows(result: Any, *, is_wide: bool) -> Iterable[Any]:
    """Return a result's rows, none for None; those of a DataFrame are dictionaries.

    Raises ReturnError for a text, a mapping and anything else that is no collection, and, if ``is_wide``, for a tuple of plain
    values, which is one row.
    """
    import pandas as pd

    if result is None:
        return ()
    if isinstance(result, pd.DataFrame):
        return [dict(zip(result.columns, row, strict=True)) for row in result.itertuples(index=False, name=None)]
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        raise ReturnError(f"{short_text(result)} is no collection of rows (return a list of rows)")
    is_plain_tuple = isinstance(result, tuple) and not any(isinstance(v, tuple | list | Mapping) for v in result)
    if is_wide and is_plain_tuple and result:
        raise ReturnError(f"{short_text(result)} is one row (return a list of rows)")
    return result
