"""Arrow's values as Python's, for messages and the late output, and values of the late output's JSON as Arrow's again.

Instants and days beyond Python's range become text.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.runtime.arrow.values import list_members, plain_array

DAY = 86_400_000_000
YEAR_1, YEAR_10000 = -719_162, 2_932_897
"""Python's first day, and the day after its last, in days since 1970."""
_IN_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": DAY, "ns": DAY * 1000}


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries by column."""
    columns = [python_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python's.

    An instant beyond Python's years becomes ``"+10000-01-01 00:00:00"``, a day ``"-0001-12-31"``.
    """
    if _has_times(column.type):
        return _python_values(plain_array(column))
    values: list[Any] = column.to_pylist()
    return values


def _has_times(kind: pa.DataType) -> bool:
    """Return True if a type has instants or days, at any depth."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return True
    if pa.types.is_dictionary(kind):
        return _has_times(kind.value_type)
    return any(_has_times(kind.field(i).type) for i in range(kind.num_fields))


def _python_values(array: pa.Array) -> list[Any]:
    """Return the values of an array with instants or days, at any depth; those outside the years 1 to 9999 are texts."""
    kind = array.type
    valid = array.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        parts = [python_values(part) for part in array.flatten()]
        names = [f.name for f in kind]
        rows = zip(*parts, strict=True) if parts else [()] * len(array)
        return [dict(zip(names, row, strict=True)) if there else None for there, row in zip(valid, rows, strict=True)]
    if pa.types.is_nested(kind):
        offsets, *children = list_members(array)
        items: list[Any] = [python_values(child) for child in children]
        flat = list(zip(*items, strict=True)) if pa.types.is_map(kind) else items[0]
        ends = zip(valid, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        return [flat[a:b] if there else None for there, a, b in ends]
    in_a_day = 1 if pa.types.is_date32(kind) else _IN_A_DAY[kind.unit]
    ticks = array.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    within = pc.and_(
        pc.greater_equal(ticks, pa.scalar(YEAR_1 * in_a_day, ticks.type)),
        pc.less(ticks, pa.scalar(YEAR_10000 * in_a_day, ticks.type)),
    )
    values: list[Any] = pc.if_else(within, array, pa.scalar(None, kind)).to_pylist()
    for at in np.flatnonzero(pc.fill_null(pc.invert(within), False).to_numpy(zero_copy_only=False)):
        values[at] = _text(ticks[int(at)].as_py(), kind)
    return values


def _text(ticks: int, kind: pa.DataType) -> str:
    """Return an instant or a day as Python would write it, years of more than four digits with their sign."""
    in_a_day = 1 if pa.types.is_date32(kind) else _IN_A_DAY[kind.unit]
    days, rest = divmod(ticks, in_a_day)
    day = str(np.datetime64(days, "D"))
    day = day if day.startswith("-") or len(day) == len("0000-00-00") else f"+{day}"
    if pa.types.is_date32(kind):
        return day
    time = (dt.datetime.min + dt.timedelta(seconds=rest * 86_400 // in_a_day)).time()
    fraction = rest % (in_a_day // 86_400)
    shown = f".{fraction:0{len(str(in_a_day // 86_400)) - 1}d}" if fraction else ""
    return f"{day} {time}{shown}" + ("+00:00" if kind.tz is not None else "")


_INSTANT = re.compile(r"([+-]?\d+)-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:\+00:00)?)?")


def from_json_value(value: Any, kind: pa.DataType) -> Any:
    """Return a value from a payload's JSON in the form ``pyarrow.array`` takes for the type.

    Instants become microseconds and dates days, both since 1970.
    """
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: from_json_value(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(from_json_value(k, kind.key_type), from_json_value(v, kind.item_type)) for k, v in value]
    if pa.types.is_nested(kind):
        return [from_json_value(item, kind.value_type) for item in value]
    if pa.types.is_timestamp(kind):
        return _microseconds(value)
    if pa.types.is_date(kind):
        return _microseconds(value) // DAY
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return base64.b64decode(value)
    return value


def _microseconds(text: str) -> int:
    """Return the microseconds since 1970 of an instant or a day, of any year."""
    match = _INSTANT.fullmatch(text)
    assert match is not None, text
    year, month, day, hour, minute, second, fraction = match.groups()
    months = (int(year) - 1970) * 12 + int(month) - 1
    days = int(np.datetime64(months, "M").astype("M8[D]").astype(np.int64)) + int(day) - 1
    seconds = (int(hour or 0) * 60 + int(minute or 0)) * 60 + int(second or 0)
    return days * DAY + seconds * 1_000_000 + int((fraction or "0").ljust(6, "0"))
