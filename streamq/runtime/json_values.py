"""Values of the late output's JSON, converted back to Arrow's."""

from __future__ import annotations

import base64
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.rendering import DAY

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


__all__ = ["from_json_value"]
