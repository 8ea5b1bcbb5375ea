"""Equality and order of values as Spark defines them, at any depth, columnar; every kernel uses these.

NULL equals NULL and is least, NaN equals NaN and is greatest, -0.0 equals 0.0, lists and structs compare by their parts, maps by
their entries whatever their order. A column becomes numbers that are equal where its values are, and in the order of its values.

For messages and the late output they become Python's, instants and days beyond its range text; values of the late output's JSON
become Arrow's again.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.partial import Ints as Ints
from streamq.plan.partial import Mask as Mask

Numbered = tuple[Ints, int]
"""A number from 0 on for each value, and a bound on them."""


EQUAL, ORDER, SAME = "equal", "order", "same"
"""The sense of numbers. EQUAL: equal values have equal numbers. ORDER: in addition, they are in Spark's order. SAME: values that
agree in every bit have equal numbers, so -0.0 differs from 0.0, and one NaN may differ from another."""


def distinct(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the distinct integers among ``values`` in order.

    They are sorted: numpy's ``unique`` hashes them since version 2.3, which takes some forty times as long.
    """
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def number_values(column: pa.Array | pa.ChunkedArray, sense: str = EQUAL) -> Numbered:
    """Return a number for each value of a column, in the sense EQUAL, ORDER or SAME, and a bound on the numbers.

    NULLs have one number, which is the least in the sense ORDER.
    """
    array = plain_array(column)
    kind = array.type
    if pa.types.is_struct(kind):
        valid = array.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        return combine_numbers([(valid, 2), *(number_values(part, sense) for part in array.flatten())])
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets, *parts = list_members(array)
        number, _ = combine_numbers([number_values(part, sense) for part in parts])
        if pa.types.is_map(kind) and sense != SAME:
            owner = np.repeat(np.arange(len(array)), np.diff(offsets))
            number = number[np.lexsort((number, owner))]
        array = _as_bytes(array, offsets, number)
    elif pa.types.is_floating(kind):
        array = float_bits(array) if sense == SAME else sortable(array, zeros_equal=True)
    if sense == ORDER:
        rank = pc.rank(array, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
        number = np.where(array.is_null().to_numpy(zero_copy_only=False), 0, rank)
        return number, int(number.max(initial=0)) + 1
    encoded = array.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def column_ranks(table: pa.Table, names: Sequence[str]) -> list[Ints]:
    """Return columns as numbers in Spark's ascending order: NULL first, NaN last, -0.0 equal to 0.0.

    Maps, which have no order in Spark, are ordered as their sorted entries.
    """
    return [number_values(table.column(name), ORDER)[0] for name in names]


def combine_numbers(parts: Sequence[Numbered]) -> Numbered:
    """Return a number for every combination of values, in the order of the first, then of the second, ..."""
    number, bound = parts[0]
    for other, its_bound in parts[1:]:
        if bound * its_bound >= 1 << 62:
            (number, bound), (other, its_bound) = dense_numbers(number), dense_numbers(other)
        number, bound = number * its_bound + other, bound * its_bound
    return number, bound


def dense_numbers(numbers: Ints) -> Numbered:
    """Return the numbers without gaps, in the same order."""
    values, number = np.unique(numbers, return_inverse=True)
    return number.astype(np.int64), len(values)


# arrays in fewer layouts


def plain_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one array of the same values, without dictionary, view or extension.

    String views and calendar intervals become bytes, booleans and untyped NULLs 8-bit integers.
    """
    if pa.types.is_dictionary(column.type):
        return plain_array(column.cast(column.type.value_type))
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ExtensionArray):
        return plain_array(array.storage)
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    if pa.types.is_fixed_size_list(kind):
        return array.cast(pa.list_(kind.value_type))
    if pa.types.is_null(kind) or pa.types.is_boolean(kind):
        return array.cast(pa.int8())
    if kind == pa.month_day_nano_interval():
        return array.view(pa.binary(16))
    return array


def list_members(array: pa.Array) -> tuple[Any, ...]:
    """Return the offsets of lists (or maps), from 0 on, and the arrays of their items, or of their keys and items."""
    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    first, many = int(offsets[0]), int(offsets[-1] - offsets[0])
    parts = (array.keys, array.items) if pa.types.is_map(array.type) else (array.values,)
    return (offsets - first, *(part.slice(first, many) for part in parts))


def _as_bytes(array: pa.Array, offsets: Ints, number: Ints) -> pa.Array:
    """Return lists as the big-endian bytes of their members' numbers, which sort as the lists do."""
    body = pa.py_buffer(np.ascontiguousarray(number.astype(">i8")))
    as_bytes = pa.Array.from_buffers(pa.large_binary(), len(array), [None, pa.py_buffer(offsets * 8), body])
    return pc.if_else(array.is_valid(), as_bytes, pa.scalar(None, pa.large_binary())) if array.null_count else as_bytes


# floats


def float_bits(array: pa.Array) -> pa.Array:
    """Return floats as the int64 of their bits; NULLs stay."""
    floats, missing = _floats(array)
    return pa.array(floats.view(np.int64), mask=missing)


def sortable(values: pa.Array | pa.ChunkedArray, zeros_equal: bool = False) -> pa.Array:
    """Return floats as int64 in Spark's order: -inf < ... < inf < NaN; intervals as their ticks; NULLs stay.

    zeros_equal: -0.0 becomes 0.0, as in keys; else it comes right before 0.0, and :func:`unsortable` restores it.
    """
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_duration(array.type):
        return array.view(pa.int64())
    floats, missing = _floats(array)
    if zeros_equal:
        floats = floats + 0.0
    floats[np.isnan(floats)] = np.nan
    number = floats.view(np.int64)
    return pa.array(np.where(number < 0, number ^ np.int64(0x7FFFFFFFFFFFFFFF), number), mask=missing)


def unsortable(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return the values of a type from the numbers of :func:`sortable`."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_duration(kind):
        return array.view(kind)
    missing = array.is_null().to_numpy(zero_copy_only=False)
    number = array.fill_null(0).to_numpy(zero_copy_only=False)
    floats = np.where(number < 0, number ^ np.int64(0x7FFFFFFFFFFFFFFF), number).view(np.float64)
    return pa.array(floats, mask=missing).cast(kind)


def _floats(array: pa.Array) -> tuple[Any, Any]:
    """Return an array as doubles with 0 for NULL, a copy that may be changed, and the mask of NULLs; None if there are none."""
    array = array.cast(pa.float64())
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return array.fill_null(0.0).to_numpy(zero_copy_only=False).copy(), missing


def bytes_tell(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return True if values of the column are equal only if their bytes are; then Arrow groups them as Spark does."""
    kind = column.type
    if pa.types.is_floating(kind):
        floats, _ = _floats(plain_array(column))
        return not (np.isnan(floats).any() or ((floats == 0) & np.signbit(floats)).any())
    return not (
        pa.types.is_nested(kind)
        or pa.types.is_dictionary(kind)
        or isinstance(kind, pa.BaseExtensionType)
        or kind == pa.month_day_nano_interval()
    )


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
