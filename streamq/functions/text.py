"""Functions of strings; computed row by row where no function of Arrow has Spark's answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import BuiltIn
from streamq.functions.operands import BYTES, STRING, WHOLE, all_rows, cast_operand, types_accepted
from streamq.functions.result_types import SAME_TEXT, typed_by
from streamq.plan.function import ArrowForm, Compute, Method, OperandCheck, Value
from streamq.runtime.arrow_types import Outcome, rowwise


def _by_row(function: Callable[..., Any]) -> Compute:
    """Return the Arrow form of a function of Python strings and integers; NULL where an operand is NULL."""
    return lambda operands, kind: rowwise(
        function,
        kind,
        "",
        *(o.array if not isinstance(o.kind, t.NullType) else pa.nulls(len(o.array), pa.string()) for o in operands),
    )


def _cased(ascii_only: Callable[[pa.Array], pa.Array], python: Callable[[str], str]) -> Compute:
    """Return the Arrow form of upper or lower; it leaves letters that Python's Unicode tables lack (55 in 3.11), unlike Spark.

    ``ascii_only``, a function of Arrow, takes a column of ASCII texts, ``python`` any other, row by row.
    """

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array | Outcome:
        array = cast_operand(operands[0], kind)
        if pc.all(pc.string_is_ascii(array), min_count=0).as_py() is not False:
            return ascii_only(array)
        return rowwise(python, kind, "", array)

    return compute


def _length(operands: Sequence[Value], kind: DataType) -> pa.Array:
    """Return the number of characters of texts, or of bytes of binary values."""
    array = operands[0].array
    if pa.types.is_null(array.type):
        return array.cast(pa.int32())
    return pc.binary_length(array) if pa.types.is_binary(array.type) else pc.utf8_length(array)


def _octets(operands: Sequence[Value], kind: DataType) -> pa.Array:
    """Return the number of bytes of texts, in UTF-8, and of binary values."""
    array = operands[0].array
    return array.cast(pa.int32()) if pa.types.is_null(array.type) else pc.binary_length(array)


def _matched(fast: Callable[..., pa.Array], python: Callable[[str, str], bool]) -> Compute:
    """Return the Arrow form of a test for a part of a text.

    ``fast``, a function of Arrow, takes a part that is constant; ``python`` tests other parts row by row.
    """

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array | Outcome:
        text, part = operands
        if isinstance(part.constant, str):
            return fast(cast_operand(text, t.StringType()), part.constant)
        return rowwise(python, kind, "", text.array, part.array)

    return compute


def _substring(text: Any, position: int, length: int = 2**31 - 1) -> Any:
    """Return at most ``length`` characters from a position that counts from 1, or back from the end if negative; 0 counts as 1.

    A position before the text takes from ``length`` the characters that are missing there.
    """
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = start + length
    return text[max(0, start) : max(0, end)] if end > start else text[:0]


def _padded(left: bool) -> Callable[[str, int, str], str]:
    """Return a function that fills a text on one side to ``length`` characters, repeating ``by``, and cuts a longer text.

    An empty ``by`` fills nothing.
    """

    def pad(text: str, length: int, by: str = " ") -> str:
        missing = length - len(text)
        if missing <= 0 or not by:
            return text[: max(0, length)]
        filling = (by * (missing // len(by) + 1))[:missing]
        return filling + text if left else text + filling

    return pad


def _concat_ws(operands: Sequence[Value], kind: DataType) -> pa.Array:
    """Return each row's texts, without NULLs, joined by the first operand; NULL where that is NULL."""
    separators, *parts = (cast_operand(o, kind).to_pylist() for o in operands)
    rows = zip(*parts, strict=True) if parts else [()] * len(separators)
    joined = [
        None if s is None else s.join(p for p in row if p is not None) for s, row in zip(separators, rows, strict=True)
    ]
    return pa.array(joined, pa.string())


def _rows(takes: OperandCheck, function: Callable[..., Any]) -> ArrowForm:
    return ArrowForm(takes, _by_row(function))


def _tested(name: str, fast: Callable[..., pa.Array], python: Callable[[str, str], bool]) -> BuiltIn:
    """Return the function ``name``: a test for a part of a text, by the two functions that :func:`_matched` takes."""
    arrow = ArrowForm(_PART, _matched(fast, python))
    return BuiltIn(name, result=t.BooleanType(), arrow=arrow, total=True, notation=Method(name))


_PART, _TRIM = types_accepted(STRING, STRING), types_accepted(STRING, STRING, optional=1)
_JOINED = typed_by(lambda *kinds: kinds[0] if all(isinstance(k, t.StringType) for k in kinds) else None)

UPPER = BuiltIn(
    "upper",
    result=t.StringType(),
    arrow=ArrowForm(types_accepted(STRING), _cased(pc.ascii_upper, str.upper)),
    total=True,
)
UCASE = replace(UPPER, name="ucase")
LOWER = BuiltIn(
    "lower",
    result=t.StringType(),
    arrow=ArrowForm(types_accepted(STRING), _cased(pc.ascii_lower, str.lower)),
    total=True,
)
LCASE = replace(LOWER, name="lcase")
LENGTH = BuiltIn("length", result=t.IntegerType(), arrow=ArrowForm(types_accepted(BYTES), _length), total=True)
CHAR_LENGTH = replace(LENGTH, name="char_length")
CHARACTER_LENGTH = replace(LENGTH, name="character_length")
OCTET_LENGTH = BuiltIn("octet_length", result=t.IntegerType(), arrow=ArrowForm(types_accepted(BYTES), _octets))
TRIM = BuiltIn("trim", result=t.StringType(), arrow=_rows(_TRIM, lambda text, chars=" ": text.strip(chars)), total=True)
BTRIM = replace(TRIM, name="btrim")
LTRIM = BuiltIn(
    "ltrim", result=t.StringType(), arrow=_rows(_TRIM, lambda text, chars=" ": text.lstrip(chars)), total=True
)
RTRIM = BuiltIn(
    "rtrim", result=t.StringType(), arrow=_rows(_TRIM, lambda text, chars=" ": text.rstrip(chars)), total=True
)
SUBSTRING = BuiltIn("substring", result=SAME_TEXT, arrow=_rows(types_accepted(BYTES, WHOLE, WHOLE), _substring))
SUBSTR = BuiltIn("substr", result=SAME_TEXT, arrow=_rows(types_accepted(BYTES, WHOLE, WHOLE, optional=1), _substring))
LEFT = BuiltIn(
    "left", result=SAME_TEXT, arrow=_rows(types_accepted(BYTES, WHOLE), lambda text, length: text[: max(0, length)])
)
RIGHT = BuiltIn(
    "right",
    result=t.StringType(),
    arrow=_rows(types_accepted(STRING, WHOLE), lambda text, length: text[-length:] if length > 0 else text[:0]),
)
CONCAT = BuiltIn(
    "concat",
    result=_JOINED,
    arrow=_rows(types_accepted(STRING, repeated=True), lambda *parts: "".join(parts)),
    total=True,
)
CONCAT_WS = BuiltIn(
    "concat_ws",
    result=t.StringType(),
    arrow=ArrowForm(types_accepted(STRING, STRING, optional=1, repeated=True), _concat_ws, all_rows),
)
STARTSWITH = _tested("startswith", pc.starts_with, str.startswith)
ENDSWITH = _tested("endswith", pc.ends_with, str.endswith)
CONTAINS = _tested("contains", pc.match_substring, lambda text, part: part in text)
REPLACE = BuiltIn(
    "replace",
    result=t.StringType(),
    arrow=_rows(
        types_accepted(STRING, STRING, STRING, optional=1),
        lambda text, part, by="": text.replace(part, by) if part else text,
    ),
)
REVERSE = BuiltIn("reverse", result=SAME_TEXT, arrow=_rows(types_accepted(STRING), lambda text: text[::-1]))
REPEAT = BuiltIn(
    "repeat", result=t.StringType(), arrow=_rows(types_accepted(STRING, WHOLE), lambda text, times: text * times)
)
INSTR = BuiltIn("instr", result=t.IntegerType(), arrow=_rows(_PART, lambda text, part: text.find(part) + 1))
LPAD = BuiltIn("lpad", result=SAME_TEXT, arrow=_rows(types_accepted(STRING, WHOLE, STRING), _padded(True)))
RPAD = BuiltIn("rpad", result=SAME_TEXT, arrow=_rows(types_accepted(STRING, WHOLE, STRING), _padded(False)))
