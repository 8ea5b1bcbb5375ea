"""LIKE, and Java's regular expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.functions.built_in import BuiltIn
from streamq.functions.operands import STRING, cast_operand, types_accepted
from streamq.plan.function import ArrowForm, Method, Value
from streamq.runtime.arrow_types import Outcome, RowError, rowwise


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
