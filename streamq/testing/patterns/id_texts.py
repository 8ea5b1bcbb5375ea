"""A second definition of the ids of events and matches (docs/patterns.md): texts in plain Python."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from typing import Any

Texts = tuple[str | None, ...]
"""Ids; None for one that these rules do not write."""


def event_id(name: str, start: int, ordinal: int, values: Iterable[Any]) -> str | None:
    """Return the id of an event: its type, start, number among equal ones, and values; None if a value has no text here."""
    written = [_value_text(value) for value in values]
    texts = [text for text in written if text is not None]
    if len(texts) < len(written):
        return None
    plain = name if name.isidentifier() else f"{len(name)}:{name}"
    return f"{plain} {start} {ordinal}{''.join(texts)}"


def match_id(operator: str, ids: Sequence[str | None], places: Sequence[int] | None = None) -> str | None:
    """Return the id of a match: its operator, and the ids of its contributors, with the ``places`` of their parts, if given."""
    texts = [text for text in ids if text is not None]
    if len(texts) < len(ids):
        return None
    placed = texts if places is None else [f"{n + 1}: {text}" for n, text in zip(places, texts, strict=True)]
    return f"{operator} ({', '.join(placed)})"


def id_fields(own: str | None, contributors: Texts = (None,)) -> dict[str, Any]:
    """Return the built-in fields ``id`` and ``contributors``, without those that these rules do not write."""
    fields: dict[str, Any] = {} if own is None else {"@id": own}
    return fields if None in contributors else {**fields, "@contributors": list(contributors)}


def _value_text(value: Any) -> str | None:
    """Return a value's text with its length before it, `` -`` for NULL; None for a type that these rules do not write."""
    match value:
        case None:
            return " -"
        case bool():
            text = "true" if value else "false"
        case int() | str():
            text = str(value)
        case float():
            text = _float_text(value)
        case bytes():
            text = value.hex().upper()
        case dt.date() if not isinstance(value, dt.datetime):
            text = value.isoformat()
        case _:
            return None
    return f" {len(text)}:{text}"


def _float_text(value: float) -> str:
    """Return a float in hexadecimal: its leading bit, the other bits that are not zero, and its exponent to the base 2."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0x0.0p0"
    fraction, exponent = math.frexp(abs(value))
    least = max(exponent - 1, -1022)
    bits = int(math.ldexp(fraction, exponent - least + 52))
    leading, rest = divmod(bits, 2**52)
    digits = f"{rest:013x}".rstrip("0") or "0"
    return f"{'-' if value < 0 else ''}0x{leading}.{digits}p{least}"


__all__ = ["Texts", "event_id", "id_fields", "match_id"]
