"""Functions of strings, LIKE and Java's regular expressions; row by row where no function of Arrow has Spark's answer.

Texts that identify values: within a type, two values have equal texts exactly if they are equal, in every backend. Floats are
written in hexadecimal there, because the decimal digits of Spark's casts depend on its Java.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import (
    BYTES,
    SAME_TEXT,
    STRING,
    WHOLE,
    BuiltIn,
    Result,
    all_rows,
    cast_operand,
    in_arrow,
    typed_by,
    types_accepted,
)
from streamq.plan.function import ArrowForm, Compute, Function, Method, Operand, OperandCheck, Value
from streamq.plan.spark_types import FLOATING
from streamq.runtime.arrow.arrow_casts import can_cast, cast
from streamq.runtime.arrow.arrow_types import Outcome, RowError, rowwise
from streamq.runtime.arrow.values import list_members


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


def _of_rows(
    name: str, result: DataType | Result, takes: OperandCheck, function: Callable[..., Any], **traits: Any
) -> BuiltIn:
    """Return a function that Python computes row by row; ``traits`` as in :func:`in_arrow`."""
    return in_arrow(name, result, takes, _by_row(function), **traits)


def _tested(name: str, fast: Callable[..., pa.Array], python: Callable[[str, str], bool]) -> BuiltIn:
    """Return the function ``name``: a test for a part of a text, by the two functions that :func:`_matched` takes."""
    arrow = ArrowForm(_PART, _matched(fast, python))
    return BuiltIn(name, result=t.BooleanType(), arrow=arrow, total=True, notation=Method(name))


_PART, _TRIM = types_accepted(STRING, STRING), types_accepted(STRING, STRING, optional=1)
_JOINED = typed_by(lambda *kinds: kinds[0] if all(isinstance(k, t.StringType) for k in kinds) else None)

UPPER = in_arrow("upper", t.StringType(), types_accepted(STRING), _cased(pc.ascii_upper, str.upper), total=True)
UCASE = replace(UPPER, name="ucase")
LOWER = in_arrow("lower", t.StringType(), types_accepted(STRING), _cased(pc.ascii_lower, str.lower), total=True)
LCASE = replace(LOWER, name="lcase")
LENGTH = in_arrow("length", t.IntegerType(), types_accepted(BYTES), _length, total=True)
CHAR_LENGTH = replace(LENGTH, name="char_length")
CHARACTER_LENGTH = replace(LENGTH, name="character_length")
OCTET_LENGTH = in_arrow("octet_length", t.IntegerType(), types_accepted(BYTES), _octets)
TRIM = _of_rows("trim", t.StringType(), _TRIM, lambda text, chars=" ": text.strip(chars), total=True)
BTRIM = replace(TRIM, name="btrim")
LTRIM = _of_rows("ltrim", t.StringType(), _TRIM, lambda text, chars=" ": text.lstrip(chars), total=True)
RTRIM = _of_rows("rtrim", t.StringType(), _TRIM, lambda text, chars=" ": text.rstrip(chars), total=True)
SUBSTRING = _of_rows("substring", SAME_TEXT, types_accepted(BYTES, WHOLE, WHOLE), _substring)
SUBSTR = _of_rows("substr", SAME_TEXT, types_accepted(BYTES, WHOLE, WHOLE, optional=1), _substring)
LEFT = _of_rows("left", SAME_TEXT, types_accepted(BYTES, WHOLE), lambda text, length: text[: max(0, length)])
RIGHT = _of_rows(
    "right",
    t.StringType(),
    types_accepted(STRING, WHOLE),
    lambda text, length: text[-length:] if length > 0 else text[:0],
)
CONCAT = _of_rows("concat", _JOINED, types_accepted(STRING, repeated=True), lambda *parts: "".join(parts), total=True)
CONCAT_WS = in_arrow(
    "concat_ws", t.StringType(), types_accepted(STRING, STRING, optional=1, repeated=True), _concat_ws, all_rows
)
STARTSWITH = _tested("startswith", pc.starts_with, str.startswith)
ENDSWITH = _tested("endswith", pc.ends_with, str.endswith)
CONTAINS = _tested("contains", pc.match_substring, lambda text, part: part in text)
REPLACE = _of_rows(
    "replace",
    t.StringType(),
    types_accepted(STRING, STRING, STRING, optional=1),
    lambda text, part, by="": text.replace(part, by) if part else text,
)
REVERSE = _of_rows("reverse", SAME_TEXT, types_accepted(STRING), lambda text: text[::-1])
REPEAT = _of_rows("repeat", t.StringType(), types_accepted(STRING, WHOLE), lambda text, times: text * times)
INSTR = _of_rows("instr", t.IntegerType(), _PART, lambda text, part: text.find(part) + 1)
LPAD = _of_rows("lpad", SAME_TEXT, types_accepted(STRING, WHOLE, STRING), _padded(True))
RPAD = _of_rows("rpad", SAME_TEXT, types_accepted(STRING, WHOLE, STRING), _padded(False))


def like_pattern(pattern: str) -> re.Pattern[str] | None:
    r"""Translate SQL LIKE, with ``\`` as escape, to a regular expression of the whole text; None if Spark refuses the pattern."""
    out, rest = [], iter(pattern)
    for char in rest:
        if char == "\\":
            escaped = next(rest, "")
            if escaped not in ("_", "%", "\\"):
                return None
            out.append(re.escape(escaped))
        else:
            out.append("." if char == "_" else ".*" if char == "%" else re.escape(char))
    return re.compile("".join(out), re.DOTALL)


def _like(operands: Sequence[Value], kind: DataType) -> Outcome:
    """Return where the first operand matches the LIKE pattern of its row; a pattern that Spark refuses is a fault."""

    def like(text: str, pattern: str) -> bool:
        regex = like_pattern(pattern)
        if regex is None:
            raise RowError
        return regex.fullmatch(text) is not None

    refused = "[INVALID_FORMAT] a LIKE pattern in which \\ escapes nothing"
    return rowwise(like, kind, refused, *(o.array for o in operands))


_ENDS = "\n\r\x85\u2028\u2029"
_CLASSES = {"d": "0-9", "w": "a-zA-Z_0-9", "s": " \\t\\n\\x0b\\f\\r"}
_REGEX = re.compile(
    r"""(?P<quantifier>(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??(?![*+?{]))
      | (?P<open>\((?:\?:)?(?![?*+{])) | (?P<close>\)) | (?P<or>\|(?![*+?{]))
      | (?P<anchor>[\^$](?![*+?{])) | (?P<any>\.)
      | \\(?P<named>[dwsDWS]) | \\(?P<escaped>[^0-9a-zA-Z])
      | (?P<set>\[\^?(?:(?:[^\[\]\\&^\-\s]|\\[^0-9a-zA-Z]|\\[dws]|\ )(?:-(?:[^\[\]\\&\-\s]|\\[^0-9a-zA-Z]))?)+\])
      | (?P<plain>[^\\\[\](){}*+?.^$|])""",
    re.VERBOSE | re.DOTALL,
)


def java_pattern(pattern: str) -> re.Pattern[str] | None:
    """Translate a Java regular expression to an equivalent one of Python; None for syntax that the two do not share."""
    out: list[str] = []
    position = 0
    while position < len(pattern):
        match = _REGEX.match(pattern, position)
        if match is None:
            return None
        position = match.end()
        text = match.group()
        match match.lastgroup:
            case "anchor":
                end = rf"(?:(?=\r\n\Z)|(?<!\r)(?=\n\Z)|(?=[{_ENDS[1:]}]\Z)|\Z)"
                out.append(r"\A" if text == "^" else end)
            case "any":
                out.append(f"[^{_ENDS}]")
            case "named":
                name = match.group("named")
                out.append(f"[{'^' if name.isupper() else ''}{_CLASSES[name.lower()]}]")
            case "escaped":
                out.append(re.escape(match.group("escaped")))
            case "set":
                if re.search(r"\\[dws]-|-\\[dws]", text):
                    return None
                out.append(re.sub(r"\\([dws])", lambda m: _CLASSES[m.group(1)], text))
            case "plain":
                out.append(re.escape(text))
            case _:
                out.append(text)
    try:
        return re.compile("".join(out))
    except re.error:
        return None


def _rlike(operands: Sequence[Value], kind: DataType) -> Outcome:
    """Return where the first operand has a match of the regular expression, a constant, somewhere."""
    regex = java_pattern(operands[1].constant)
    assert regex is not None
    return rowwise(lambda text: regex.search(text) is not None, kind, "", cast_operand(operands[0], t.StringType()))


def _regular(operands: Sequence[Value]) -> bool:
    """True for two strings, the second a constant regular expression that means the same in Java and in Python."""
    if not types_accepted(STRING, STRING)(operands) or not isinstance(operands[1].constant, str):
        return False
    return java_pattern(operands[1].constant) is not None


LIKE = in_arrow("like", t.BooleanType(), types_accepted(STRING, STRING), _like, notation=Method("like"))
RLIKE = in_arrow("rlike", t.BooleanType(), _regular, _rlike, notation=Method("rlike"))
REGEXP = replace(RLIKE, name="regexp", notation=None)
REGEXP_LIKE = replace(RLIKE, name="regexp_like", notation=None)


MISSING = " -"
"""The text of NULL."""


@dataclass(frozen=True, eq=False)
class IdText(Function):
    """A value of type ``kind`` as text: a blank, the length, a colon and the value, `` 3:abc``; `` -`` for NULL.

    Such texts stay unambiguous when they are concatenated: lists and structs are the texts of their parts in a row. NaN equals
    NaN, -0.0 equals 0.0. Maps have no such text.
    """

    kind: DataType
    name = "identifying_text"

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrow", ArrowForm(self._is_computed, self._computed))

    @property
    def identity(self) -> str:
        return f"{super().identity}:{self.kind.json()}"

    def result_type(self, operands: Sequence[Operand]) -> DataType | None:
        return t.StringType()

    def is_total(self, operands: Sequence[Operand], result: DataType | None) -> bool:
        return True

    def on_spark(self, *arguments: Any) -> Column:
        return _part_on_spark(arguments[0], self.kind)

    def _is_computed(self, operands: Sequence[Value]) -> bool:
        return _has_text(self.kind)

    def _computed(self, operands: Sequence[Value], kind: DataType) -> pa.Array:
        return _part(operands[0].array, self.kind)


def _part_on_spark(value: Column, kind: DataType) -> Column:
    """Return values as a Spark Column of texts with their lengths: `` 3:abc``, `` -`` for NULL."""
    text = _text_on_spark(value, kind)
    behind_length = F.concat(F.lit(" "), F.length(text).cast("string"), F.lit(":"), text)
    return F.when(value.isNull(), F.lit(MISSING)).otherwise(behind_length)


def _text_on_spark(value: Column, kind: DataType) -> Column:
    """Return the texts of values, without lengths, as a Spark Column; NULL where a value is NULL.

    Parts of lists and structs have lengths.
    """
    match kind:
        case t.DoubleType() | t.FloatType():
            # 0.0 + -0.0 is 0.0
            return F.format_string("%a", F.lit(0.0) + value.cast("double"))
        case t.BinaryType():
            return F.hex(value)
        case t.ArrayType(elementType=of):
            return F.array_join(F.transform(value, lambda element: _part_on_spark(element, of)), "")
        case t.StructType(fields=fields):
            return F.concat(F.lit(""), *(_part_on_spark(value.getField(f.name), f.dataType) for f in fields))
    return value.cast("string")


def _has_text(kind: DataType) -> bool:
    """True if values of the type can be written without Spark."""
    match kind:
        case t.ArrayType(elementType=of):
            return _has_text(of)
        case t.StructType(fields=fields):
            return all(_has_text(f.dataType) for f in fields)
    return isinstance(kind, (t.BinaryType, t.StringType, t.NullType, *FLOATING)) or can_cast(kind, t.StringType())


def _part(array: pa.Array, kind: DataType) -> pa.Array:
    """Return values as texts with their lengths: `` 3:abc``, `` -`` for NULL."""
    text = _text(array, kind)
    length = pc.utf8_length(text).cast(pa.string())
    return pc.coalesce(pc.binary_join_element_wise(" ", length, ":", text, ""), pa.scalar(MISSING))


def _text(array: pa.Array, kind: DataType) -> pa.Array:
    """Return the texts of values, without lengths; NULL where a value is NULL. Parts of lists and structs have lengths."""
    match kind:
        case t.DoubleType() | t.FloatType():
            return pa.array([None if x is None else _hexadecimal(x) for x in array.to_pylist()], pa.string())
        case t.BinaryType():
            return pa.array([None if x is None else x.hex().upper() for x in array.to_pylist()], pa.string())
        case t.ArrayType(elementType=of):
            offsets, elements = list_members(array)
            lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _part(elements, of))
            return pc.if_else(array.is_valid(), pc.binary_join(lists, ""), None)
        case t.StructType(fields=fields):
            parts = [_part(column, f.dataType) for f, column in zip(fields, array.flatten(), strict=True)]
            return pc.if_else(array.is_valid(), pc.binary_join_element_wise(*parts, "", ""), None)
        case t.StringType() | t.NullType():
            return array.cast(pa.string())
    texts, _ = cast(array, kind, t.StringType())
    return texts


def _hexadecimal(number: float) -> str:
    """Return a float as Java's ``%a`` writes it: ``0x1.8p0``."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    mantissa, _, exponent = (number + 0.0).hex().partition("p")
    whole, _, digits = mantissa.partition(".")
    return f"{whole}.{digits.rstrip('0') or '0'}p{exponent.removeprefix('+')}"
