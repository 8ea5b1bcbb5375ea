"""Functions of strings, LIKE and Java's regular expressions; row by row where no function of Arrow has Spark's answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import (
    BYTES,
    SAME_TEXT,
    STRING,
    WHOLE,
    BuiltIn,
    all_rows,
    cast_operand,
    typed_by,
    types_accepted,
)
from streamq.plan.function import ArrowForm, Compute, Method, OperandCheck, Value
from streamq.runtime.arrow.arrow_types import Outcome, RowError, rowwise


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


LIKE = BuiltIn(
    "like", result=t.BooleanType(), arrow=ArrowForm(types_accepted(STRING, STRING), _like), notation=Method("like")
)
RLIKE = BuiltIn("rlike", result=t.BooleanType(), arrow=ArrowForm(_regular, _rlike), notation=Method("rlike"))
REGEXP = replace(RLIKE, name="regexp", notation=None)
REGEXP_LIKE = replace(RLIKE, name="regexp_like", notation=None)
