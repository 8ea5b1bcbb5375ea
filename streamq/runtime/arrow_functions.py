"""The functions and operators that run in-process: FUNCTIONS is the one place where another is added.

A function says which types it takes, on which rows its operands are needed (an error elsewhere is none), and computes
an array from arrays. Only what gives Spark's answer to the last bit is here; ``tests/spark/test_expressions.py``
compares each with Spark.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.plan.spark_types import as_decimal, wider
from streamq.runtime import fdlibm
from streamq.runtime.arrow_casts import DAY, SECOND, can_cast, cast, quotient, saturated
from streamq.runtime.arrow_types import (
    BITS,
    DIVIDED,
    FLOATING,
    INTEGRAL,
    OUT_OF_RANGE,
    OVERFLOW,
    REMAINDER,
    Outcome,
    Refused,
    Value,
    arrow_type,
    fault,
    from_numpy,
    nulls,
    rowwise,
    to_numpy,
    true,
    valid,
)

if TYPE_CHECKING:
    from streamq.runtime.arrow_types import Mask

Takes = Callable[[Sequence[Value]], bool]
"""Whether operands of these types (and constants; the arrays are empty) are taken."""
Reach = Callable[[Sequence[Value]], "list[Mask | None]"]
"""For each operand the rows on which Spark evaluates it, None for all."""
Compute = Callable[[Sequence[Value], DataType], pa.Array | Outcome]


@dataclass(frozen=True)
class Function:
    """How a function is computed; ``reach`` is by default Spark's order: from left to right, up to the first NULL."""

    takes: Takes
    compute: Compute
    reach: Reach


# On which rows an operand is evaluated


def in_order(operands: Sequence[Value]) -> list[Mask | None]:
    """From left to right, none after a NULL."""
    found: list[Mask | None] = [None]
    for operand in operands[:-1]:
        here = valid(operand.array)
        found.append(here if found[-1] is None else found[-1] & here)
    return found


def divisor_first(operands: Sequence[Value]) -> list[Mask | None]:
    """The right operand, then the left where the right is not NULL."""
    return [valid(operands[1].array), None]


def always(operands: Sequence[Value]) -> list[Mask | None]:
    """Every operand on every row."""
    return [None] * len(operands)


def until_valid(operands: Sequence[Value]) -> list[Mask | None]:
    """Each operand where all before it are NULL."""
    found: list[Mask | None] = [None]
    for operand in operands[:-1]:
        here = nulls(operand.array)
        found.append(here if found[-1] is None else found[-1] & here)
    return found


def _until(stop: bool) -> Reach:
    def reach(operands: Sequence[Value]) -> list[Mask | None]:
        left = operands[0].array
        return [None, ~true(pc.invert(left) if not stop and not pa.types.is_null(left.type) else left)]

    return reach


def _until_found(operands: Sequence[Value]) -> list[Mask | None]:
    first = operands[0]
    rest = valid(first.array)
    found: list[Mask | None] = [None]
    for operand in operands[1:]:
        found.append(rest)
        rest = rest & ~true(_compared("==", first, operand))
    return found


def _by_null(operands: Sequence[Value]) -> list[Mask | None]:
    return [None, valid(operands[0].array), nulls(operands[0].array)]


def _by_nan(operands: Sequence[Value]) -> list[Mask | None]:
    return [None, np.isnan(to_numpy(operands[0].array))]


# Which types are taken

Group = tuple[type[DataType], ...]
BOOLEAN: Group = (t.BooleanType,)
STRING: Group = (t.StringType,)
BYTES: Group = (t.StringType, t.BinaryType)
WHOLE: Group = (t.IntegerType, t.ShortType, t.ByteType)
INSTANT: Group = (t.TimestampType,)
DAYS: Group = (t.DateType, t.TimestampType)
DOUBLE: Group = (t.DoubleType, t.FloatType, *INTEGRAL)
ANY: Group = (DataType,)
_NUMBER: Group = (*DOUBLE, t.DecimalType)


def _is(kind: DataType, group: Group) -> bool:
    return isinstance(kind, (*group, t.NullType)) and (not isinstance(kind, t.StringType) or kind == t.StringType())


def each(*groups: Group, optional: int = 0, repeated: bool = False) -> Takes:
    """One group of types an operand; the last one may be repeated, the last ``optional`` ones missing."""

    def takes(operands: Sequence[Value]) -> bool:
        if len(operands) < len(groups) - optional or (len(operands) > len(groups) and not repeated):
            return False
        wanted = [*groups, *[groups[-1]] * (len(operands) - len(groups))]
        return all(_is(o.kind, g) for o, g in zip(operands, wanted, strict=False))

    return takes


def _constant(takes: Takes, at: int, kind: type) -> Takes:
    """The operand ``at``, if it is there, is written down as a constant."""
    return lambda operands: takes(operands) and (len(operands) <= at or type(operands[at].constant) is kind)


def common(operands: Sequence[Value]) -> DataType | None:
    """The type in which operands are compared or picked; None where only Spark knows it, or compares otherwise."""

    def both(a: DataType | None, b: DataType) -> DataType | None:
        if a is None:
            return None
        if found := wider(a, b):
            return found
        if (isinstance(a, t.DecimalType) and isinstance(b, FLOATING)) or (
            isinstance(b, t.DecimalType) and isinstance(a, FLOATING)
        ):
            return t.DoubleType()
        left, right = as_decimal(a), as_decimal(b)
        if left is None or right is None:
            return None
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        return t.DecimalType(precision, scale) if precision <= 38 else None

    start: DataType | None = t.NullType()
    found = reduce(both, (o.kind for o in operands), start)
    plain = (t.ArrayType, t.MapType, t.StructType)
    return (
        None
        if found is None or isinstance(found, plain) or not all(can_cast(o.kind, found) for o in operands)
        else found
    )


def _alike(operands: Sequence[Value]) -> bool:
    return len(operands) > 0 and common(operands) is not None


def _picked(operands: Sequence[Value]) -> bool:
    """As Spark's common type of values, which has no decimal of another precision."""
    return _alike(operands) and reduce(lambda a, b: a and wider(a, b), (o.kind for o in operands)) is not None  # type: ignore[arg-type, return-value]


# Comparisons and logic

_COMPARE = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _as(operand: Value, to: DataType) -> pa.Array:
    return cast(operand.array, operand.kind, to)[0]


def _compared(name: str, *operands: Value) -> pa.Array:
    kind = common(operands)
    assert kind is not None
    left, right = (_as(o, kind) for o in operands)
    if isinstance(kind, t.NullType):
        return pa.nulls(len(left), pa.bool_())
    if not isinstance(kind, FLOATING):
        return _COMPARE[name](left, right)
    a, b = to_numpy(left), to_numpy(right)
    with np.errstate(invalid="ignore"):
        # NaN equals NaN and is greater than any number
        nan_a, nan_b = np.isnan(a), np.isnan(b)
        equal, less = (a == b) | (nan_a & nan_b), (a < b) | (nan_b & ~nan_a)
    found = {"==": equal, "!=": ~equal, "<": less, "<=": less | equal, ">": ~(less | equal), ">=": ~less}[name]
    return pa.array(found, pa.bool_(), mask=nulls(left) | nulls(right))


def _comparison(name: str) -> Function:
    return Function(lambda o: len(o) == 2 and _alike(o), lambda o, _: _compared(name, *o), in_order)


def _null_safe(operands: Sequence[Value], kind: DataType) -> pa.Array:
    left, right = (nulls(o.array) for o in operands)
    return pa.array(np.where(left | right, left & right, true(_compared("==", *operands))), pa.bool_())


def _logic(function: Callable[..., pa.Array]) -> Compute:
    return lambda operands, kind: function(*(_as(o, t.BooleanType()) for o in operands))


def _isin(operands: Sequence[Value], kind: DataType) -> pa.Array:
    first, *rest = operands
    if not rest:
        return pa.repeat(pa.scalar(False), len(first.array))
    to = common(operands)
    assert to is not None
    if all(o.constant is not ... for o in rest) and not isinstance(to, (*FLOATING, t.NullType)):
        values = pa.concat_arrays([_as(o, to)[:1] for o in rest]).drop_null()
        array = _as(first, to)
        found = pc.is_in(array, value_set=values).to_numpy(zero_copy_only=False)
        unknown = nulls(array) | (~found & any(o.constant is None for o in rest))
        return pa.array(found, pa.bool_(), mask=unknown)
    found = pa.repeat(pa.scalar(False), len(first.array))
    for operand in rest:
        found = pc.or_kleene(found, _compared("==", first, operand))
    return found


# Picking one of the operands


def _coalesce(operands: Sequence[Value], kind: DataType) -> pa.Array:
    if isinstance(kind, t.NullType):
        return operands[0].array
    return pc.coalesce(*(_as(o, kind) for o in operands))


def _nvl2(operands: Sequence[Value], kind: DataType) -> pa.Array:
    return pc.if_else(operands[0].array.is_valid(), _as(operands[1], kind), _as(operands[2], kind))


def _nullif(operands: Sequence[Value], kind: DataType) -> pa.Array:
    same = true(_compared("==", *operands))
    return pc.if_else(pa.array(same), pa.nulls(len(same), arrow_type(kind)), operands[0].array)


def _nanvl(operands: Sequence[Value], kind: DataType) -> pa.Array:
    first = _as(operands[0], kind)
    return pc.if_else(pa.array(np.isnan(to_numpy(first))), _as(operands[1], kind), first)


def _extreme(name: str) -> Compute:
    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        best = Value(_as(operands[0], kind), kind)
        for operand in operands[1:]:
            other = Value(_as(operand, kind), kind)
            better = true(_compared(name, other, best)) | nulls(best.array)
            if not isinstance(kind, t.NullType):
                best = Value(pc.if_else(pa.array(better), other.array, best.array), kind)
        return best.array

    return compute


# Arithmetic


def _overflow(kind: DataType) -> str:
    return OVERFLOW.format(to=kind.simpleString())


def _checked(checked: Callable[..., pa.Array], exact: Callable[..., Any], kind: DataType, *arrays: pa.Array) -> Outcome:
    """The fast kernel; where it overflows, Python's integers say on which rows."""
    try:
        return checked(*arrays), []
    except pa.ArrowInvalid:
        bits = 64 if pa.types.is_temporal(arrow_type(kind)) else BITS[type(kind)]

    def bounded(*row: int) -> int:
        found = exact(*row)
        if not -(1 << bits - 1) <= found < 1 << bits - 1:
            raise Refused
        return found

    integral = {8: t.ByteType, 16: t.ShortType, 32: t.IntegerType, 64: t.LongType}[bits]()
    return rowwise(bounded, integral, _overflow(kind), *arrays)


def _ticks(array: pa.Array) -> pa.Array:
    return array.view(pa.int64()) if pa.types.is_temporal(array.type) else array


def _arithmetic(name: str) -> Function:
    checked = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}[name]
    plain = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[name]
    exact = {"+": operator.add, "-": operator.sub, "*": operator.mul}[name]

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array | Outcome:
        if isinstance(kind, t.TimestampType | t.DayTimeIntervalType):
            arrays = [
                _ticks(o.array) if not isinstance(o.kind, t.NullType) else o.array.cast(pa.int64()) for o in operands
            ]
            found, faults = _checked(checked, exact, kind, *arrays)
            return found.view(arrow_type(kind)), faults
        if isinstance(kind, t.DecimalType):
            # exact in both, and the types of the two agree where no digit is given up
            left, right = (_as(o, as_decimal(o.kind, None) or kind) for o in operands)
            return plain(left, right).cast(arrow_type(kind))
        left, right = (_as(o, kind) for o in operands)
        return plain(left, right) if isinstance(kind, FLOATING) else _checked(checked, exact, kind, left, right)

    def takes(operands: Sequence[Value]) -> bool:
        kinds = [o.kind for o in operands]
        if any(isinstance(k, t.DecimalType) for k in kinds):
            return not any(isinstance(k, t.NullType) for k in kinds) and _fits(name, operands)
        return all(_is(k, (*DOUBLE, t.TimestampType, t.DayTimeIntervalType)) for k in kinds)

    return Function(takes, compute, in_order)


def _fits(name: str, operands: Sequence[Value]) -> bool:
    """Integers are widened here without a look at literals: 39 digits may come out where Spark's result has fewer."""
    if any(isinstance(o.kind, FLOATING) for o in operands):
        return True
    left, right = (as_decimal(o.kind) for o in operands)
    if left is None or right is None:
        return False
    if name == "*":
        return left.precision + right.precision + 1 <= 38
    return max(left.precision - left.scale, right.precision - right.scale) + max(left.scale, right.scale) + 1 <= 38


def _inexact(operands: Sequence[Value]) -> bool:
    """Numbers whose quotient is a double or an integer, not a decimal."""
    decimals = any(isinstance(o.kind, t.DecimalType) for o in operands)
    return each(_NUMBER, _NUMBER)(operands) and (not decimals or any(isinstance(o.kind, FLOATING) for o in operands))


def _divides(operands: Sequence[Value]) -> bool:
    """Numbers; decimals beside decimals and integers as well."""
    return _inexact(operands) or (
        len(operands) == 2 and not any(isinstance(o.kind, t.NullType) or as_decimal(o.kind) is None for o in operands)
    )


def _divide(operands: Sequence[Value], kind: DataType) -> Outcome:
    if isinstance(kind, t.DecimalType):
        return _decimal_quotient(operands, kind)
    left, right = (_as(o, t.DoubleType()) for o in operands)
    a, b, empty = to_numpy(left), to_numpy(right), nulls(left) | nulls(right)
    bad = (b == 0) & ~empty
    with np.errstate(all="ignore"):
        return from_numpy(a / np.where(b == 0, 1.0, b), empty | bad, kind), fault(bad, DIVIDED)


def _decimal_quotient(operands: Sequence[Value], kind: DataType) -> Outcome:
    left, right = (_as(o, as_decimal(o.kind) or kind) for o in operands)
    empty = nulls(left) | nulls(right)
    zero = pc.fill_null(pc.equal(right, pa.scalar(0, right.type)), False).to_numpy(zero_copy_only=False) & ~empty
    divisor = pc.if_else(pa.array(zero), pa.scalar(None, right.type), right)
    found, faults = rowwise(
        lambda a, b: quotient(a, b, kind), kind, OUT_OF_RANGE.format(to=kind.simpleString()), left, divisor
    )
    return found, [*fault(zero, DIVIDED), *faults]


def _remainder(operands: Sequence[Value], kind: DataType) -> Outcome:
    left, right = (_as(o, kind) for o in operands)
    a, b, empty = to_numpy(left), to_numpy(right), nulls(left) | nulls(right)
    bad = (b == 0) & ~empty
    # by -1 the remainder is 0, as by 1, and the least integer does not trap
    safe = np.where((b == 0) | ((b == -1) & isinstance(kind, INTEGRAL)), np.ones(1, b.dtype), b)
    with np.errstate(all="ignore"):
        return from_numpy(np.fmod(a, safe), empty | bad, kind), fault(bad, REMAINDER)


def _signed(checked: Callable[..., pa.Array], plain: Callable[..., pa.Array], exact: Callable[[Any], Any]) -> Compute:
    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array | Outcome:
        array = operands[0].array
        return _checked(checked, exact, kind, array) if isinstance(kind, INTEGRAL) else plain(array)

    return compute


def _double(function: Callable[[Any], Any], empty: Callable[[Any], Mask] | None = None) -> Function:
    """A function of doubles, NULL where ``empty``."""

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        array = _as(operands[0], t.DoubleType())
        values = np.array(to_numpy(array))
        with np.errstate(all="ignore"):
            return from_numpy(function(values), nulls(array) if empty is None else nulls(array) | empty(values), kind)

    return Function(each(_NUMBER), compute, in_order)


def _not_positive(values: Any) -> Mask:
    return values <= 0


def _sign(values: Any) -> Any:
    return np.where((values == 0) | np.isnan(values), values, np.copysign(1.0, values))


def _whole(function: Callable[[Any], Any]) -> Compute:
    """NaN becomes 0, what no bigint holds is an error."""

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array | Outcome:
        operand = operands[0]
        if isinstance(operand.kind, INTEGRAL):
            return _as(operand, kind)
        values, empty = function(to_numpy(_as(operand, t.DoubleType()))), nulls(operand.array)
        bad = ((values >= 2.0**63) | (values < -(2.0**63))) & ~empty
        return from_numpy(saturated(values, 64), empty | bad, kind), fault(bad, _overflow(kind))

    return compute


_WIDE = Context(prec=1500)


def _round(operands: Sequence[Value], kind: DataType) -> pa.Array | Outcome:
    array = operands[0].array
    places = operands[1].constant if len(operands) > 1 else 0
    if isinstance(kind, INTEGRAL):
        if places >= 0:
            return array
        unit, half = 10 ** min(-places, 40), 5 * 10 ** (min(-places, 40) - 1)

        def whole(value: int) -> int:
            found = (abs(value) + half) // unit * unit * (1 if value >= 0 else -1)
            if not -(1 << BITS[type(kind)] - 1) <= found < 1 << BITS[type(kind)] - 1:
                raise Refused
            return found

        return rowwise(whole, kind, _overflow(kind), array)
    unit_place = Decimal(1).scaleb(-max(-330, min(places, 1100)))

    def real(value: float) -> float:
        # of the shortest decimal that reads as this double, as Java's BigDecimal.valueOf
        return (
            float(Decimal(repr(value)).quantize(unit_place, ROUND_HALF_UP, _WIDE)) + 0.0
            if np.isfinite(value)
            else value
        )

    return rowwise(real, kind, "", array)


# Strings


def _by_row(function: Callable[..., Any], *to: DataType) -> Compute:
    """A function of Python strings and integers; NULL where an operand is NULL."""
    return lambda operands, kind: rowwise(
        function,
        kind,
        "",
        *(o.array if not isinstance(o.kind, t.NullType) else pa.nulls(len(o.array), pa.string()) for o in operands),
    )


def _cased(ascii_only: Callable[[pa.Array], pa.Array], python: Callable[[str], str]) -> Compute:
    """Letters younger than Python's Unicode tables (55 in Python 3.11) keep their case, in Spark they may not."""

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array | Outcome:
        array = _as(operands[0], kind)
        if pc.all(pc.string_is_ascii(array), min_count=0).as_py() is not False:
            return ascii_only(array)
        return rowwise(python, kind, "", array)

    return compute


def _length(operands: Sequence[Value], kind: DataType) -> pa.Array:
    array = operands[0].array
    if pa.types.is_null(array.type):
        return array.cast(pa.int32())
    return pc.binary_length(array) if pa.types.is_binary(array.type) else pc.utf8_length(array)


def _octets(operands: Sequence[Value], kind: DataType) -> pa.Array:
    array = operands[0].array
    return array.cast(pa.int32()) if pa.types.is_null(array.type) else pc.binary_length(array)


def _matched(fast: Callable[..., pa.Array], python: Callable[[str, str], bool]) -> Compute:
    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array | Outcome:
        text, part = operands
        if isinstance(part.constant, str):
            return fast(_as(text, t.StringType()), part.constant)
        return rowwise(python, kind, "", text.array, part.array)

    return compute


def _substring(text: Any, position: int, length: int = 2**31 - 1) -> Any:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = start + length
    return text[max(0, start) : max(0, end)] if end > start else text[:0]


def _padded(left: bool) -> Callable[[str, int, str], str]:
    def pad(text: str, length: int, by: str = " ") -> str:
        missing = length - len(text)
        if missing <= 0 or not by:
            return text[: max(0, length)]
        filling = (by * (missing // len(by) + 1))[:missing]
        return filling + text if left else text + filling

    return pad


def _concat_ws(operands: Sequence[Value], kind: DataType) -> pa.Array:
    separators, *parts = (_as(o, kind).to_pylist() for o in operands)
    rows = zip(*parts, strict=True) if parts else [()] * len(separators)
    joined = [
        None if s is None else s.join(p for p in row if p is not None) for s, row in zip(separators, rows, strict=True)
    ]
    return pa.array(joined, pa.string())


def like_pattern(pattern: str) -> re.Pattern[str] | None:
    r"""SQL LIKE with ``\`` as a regular expression; None for a pattern that Spark refuses."""
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
    def like(text: str, pattern: str) -> bool:
        found = like_pattern(pattern)
        if found is None:
            raise Refused
        return found.fullmatch(text) is not None

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
    """A Java regular expression as one of Python's that finds the same; None beyond the syntax they share."""
    out: list[str] = []
    position = 0
    while position < len(pattern):
        match = _REGEX.match(pattern, position)
        if match is None:
            return None
        position = match.end()
        found = match.group()
        match match.lastgroup:
            case "anchor":
                end = rf"(?:(?=\r\n\Z)|(?<!\r)(?=\n\Z)|(?=[{_ENDS[1:]}]\Z)|\Z)"
                out.append(r"\A" if found == "^" else end)
            case "any":
                out.append(f"[^{_ENDS}]")
            case "named":
                name = match.group("named")
                out.append(f"[{'^' if name.isupper() else ''}{_CLASSES[name.lower()]}]")
            case "escaped":
                out.append(re.escape(match.group("escaped")))
            case "set":
                if re.search(r"\\[dws]-|-\\[dws]", found):
                    return None
                out.append(re.sub(r"\\([dws])", lambda m: _CLASSES[m.group(1)], found))
            case "plain":
                out.append(re.escape(found))
            case _:
                out.append(found)
    try:
        return re.compile("".join(out))
    except re.error:
        return None


def _rlike(operands: Sequence[Value], kind: DataType) -> Outcome:
    found = java_pattern(operands[1].constant)
    assert found is not None
    return rowwise(lambda text: found.search(text) is not None, kind, "", _as(operands[0], t.StringType()))


def _regular(operands: Sequence[Value]) -> bool:
    if not each(STRING, STRING)(operands) or not isinstance(operands[1].constant, str):
        return False
    return java_pattern(operands[1].constant) is not None


# Dates and times, in UTC


def _days(operand: Value) -> Any:
    return to_numpy(_as(operand, t.DateType())).astype(np.int64)


def _calendar(function: Callable[[Any], Any]) -> Function:
    """A function of the days since 1970."""

    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        return from_numpy(function(_days(operands[0])).astype(np.int32), nulls(operands[0].array), kind)

    return Function(each(DAYS), compute, in_order)


def _clock(unit: int, size: int) -> Function:
    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        ticks = to_numpy(_as(operands[0], t.TimestampType())).astype(np.int64)
        return from_numpy((ticks // unit % size).astype(np.int32), nulls(operands[0].array), kind)

    return Function(each(DAYS), compute, in_order)


def _months(days: Any) -> Any:
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first(months: Any) -> Any:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _monday(days: Any) -> Any:
    return days - (days + 3) % 7


def _year(days: Any) -> Any:
    return _months(days) // 12 + 1970


def _new_year(days: Any) -> Any:
    return _first(_months(days) // 12 * 12)


def _iso_week(days: Any) -> Any:
    thursday = _monday(days) + 3
    return (thursday - _new_year(thursday)) // 7 + 1


_TRUNCATED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), _new_year),
    "QUARTER": lambda days: _first(_months(days) // 3 * 3),
    **dict.fromkeys(("MONTH", "MM", "MON"), lambda days: _first(_months(days))),
    "WEEK": _monday,
}
_UNITS = {
    **dict.fromkeys(("DAY", "DD"), DAY), "HOUR": 3600 * SECOND, "MINUTE": 60 * SECOND, "SECOND": SECOND,
    "MILLISECOND": 1000, "MICROSECOND": 1,
}  # fmt: skip


def _date_trunc(operands: Sequence[Value], kind: DataType) -> pa.Array:
    unit = operands[0].constant.upper()
    array = _as(operands[1], kind)
    ticks = to_numpy(array)
    if unit in _TRUNCATED:
        return from_numpy(_TRUNCATED[unit](ticks // DAY) * DAY, nulls(array), kind)
    if unit in _UNITS:
        return from_numpy(ticks // _UNITS[unit] * _UNITS[unit], nulls(array), kind)
    return pa.nulls(len(array), arrow_type(kind))


def _shifted_days(sign: int) -> Compute:
    def compute(operands: Sequence[Value], kind: DataType) -> pa.Array:
        days, by = _days(operands[0]), to_numpy(_as(operands[1], t.IntegerType())).astype(np.int64)
        return from_numpy(
            (days + sign * by).astype(np.int32), nulls(operands[0].array) | nulls(operands[1].array), kind
        )

    return compute


def _datediff(operands: Sequence[Value], kind: DataType) -> pa.Array:
    return from_numpy(
        (_days(operands[0]) - _days(operands[1])).astype(np.int32),
        nulls(operands[0].array) | nulls(operands[1].array),
        kind,
    )


def _unix(unit: int) -> Function:
    return Function(
        each(INSTANT),
        lambda o, kind: from_numpy(to_numpy(_as(o[0], t.TimestampType())) // unit, nulls(o[0].array), kind),
        in_order,
    )


def _instant(unit: int) -> Function:
    def compute(operands: Sequence[Value], kind: DataType) -> Outcome:
        array = _as(operands[0], t.LongType())
        found, faults = _checked(
            pc.multiply_checked, operator.mul, t.LongType(), array, pa.repeat(pa.scalar(unit), len(array))
        )
        return found.view(arrow_type(kind)), faults

    return Function(each(INTEGRAL), compute, in_order)


def _rows(takes: Takes, function: Callable[..., Any]) -> Function:
    return Function(takes, _by_row(function), in_order)


def _cast_to(kind: DataType) -> Compute:
    return lambda operands, _: _as(operands[0], kind)


_ISNULL: Compute = lambda o, _: o[0].array.is_null()  # noqa: E731
_PART, _TRIM = each(STRING, STRING), each(STRING, STRING, optional=1)
_COALESCE = Function(_picked, _coalesce, until_valid)
_LENGTH = Function(each(BYTES), _length, in_order)
_UPPER = Function(each(STRING), _cased(pc.ascii_upper, str.upper), in_order)
_LOWER = Function(each(STRING), _cased(pc.ascii_lower, str.lower), in_order)
_LN = _double(fdlibm.log, _not_positive)
_RLIKE = Function(_regular, _rlike, in_order)
_STRIP = _rows(_TRIM, lambda text, chars=" ": text.strip(chars))
_DATEDIFF = Function(each(DAYS, DAYS), _datediff, in_order)
_DAY = _calendar(lambda days: days - _first(_months(days)) + 1)
_CEIL = Function(each(DOUBLE), _whole(np.ceil), in_order)
_EQUAL = Function(lambda o: len(o) == 2 and _alike(o), _null_safe, always)

FUNCTIONS: dict[str, Function] = {
    # comparisons and logic
    **{name: _comparison(name) for name in _COMPARE},
    "<=>": _EQUAL,
    "equal_null": _EQUAL,
    "and": Function(each(BOOLEAN, BOOLEAN), _logic(pc.and_kleene), _until(False)),
    "or": Function(each(BOOLEAN, BOOLEAN), _logic(pc.or_kleene), _until(True)),
    "not": Function(each(BOOLEAN), _logic(pc.invert), in_order),
    "isin": Function(_alike, _isin, _until_found),
    "isnull": Function(each(ANY), _ISNULL, always),
    "isnotnull": Function(each(ANY), lambda o, _: o[0].array.is_valid(), always),
    "isnan": Function(each(_NUMBER), lambda o, _: pa.array(np.isnan(to_numpy(_as(o[0], t.DoubleType())))), always),
    # one of the operands
    "coalesce": _COALESCE,
    "ifnull": _COALESCE,
    "nvl": _COALESCE,
    "nvl2": Function(lambda o: len(o) == 3 and _picked(o[1:]), _nvl2, _by_null),
    "nullif": Function(lambda o: len(o) == 2 and _alike(o), _nullif, in_order),
    "nanvl": Function(lambda o: len(o) == 2 and all(isinstance(v.kind, FLOATING) for v in o), _nanvl, _by_nan),
    "greatest": Function(lambda o: len(o) > 1 and _picked(o), _extreme(">"), always),
    "least": Function(lambda o: len(o) > 1 and _picked(o), _extreme("<"), always),
    # arithmetic
    "+": _arithmetic("+"),
    "-": _arithmetic("-"),
    "*": _arithmetic("*"),
    "/": Function(_divides, _divide, divisor_first),
    "%": Function(_inexact, _remainder, divisor_first),
    "negative": Function(each(_NUMBER), _signed(pc.negate_checked, pc.negate, operator.neg), in_order),
    "positive": Function(each(_NUMBER), lambda o, _: o[0].array, in_order),
    "abs": Function(each(_NUMBER), _signed(pc.abs_checked, pc.abs, abs), in_order),
    "sign": _double(_sign),
    "signum": _double(_sign),
    "round": Function(
        _constant(each((t.DoubleType, *INTEGRAL), (t.IntegerType,), optional=1), 1, int), _round, in_order
    ),
    "rint": _double(np.rint),
    "floor": Function(each(DOUBLE), _whole(np.floor), in_order),
    "ceil": _CEIL,
    "ceiling": _CEIL,
    "sqrt": _double(np.sqrt),
    "exp": _double(fdlibm.exp),
    "ln": _LN,
    "log": _LN,
    "log10": _double(fdlibm.log10, _not_positive),
    "log2": _double(fdlibm.log2, _not_positive),
    # strings
    "upper": _UPPER,
    "ucase": _UPPER,
    "lower": _LOWER,
    "lcase": _LOWER,
    "length": _LENGTH,
    "char_length": _LENGTH,
    "character_length": _LENGTH,
    "octet_length": Function(each(BYTES), _octets, in_order),
    "trim": _STRIP,
    "btrim": _STRIP,
    "ltrim": _rows(_TRIM, lambda text, chars=" ": text.lstrip(chars)),
    "rtrim": _rows(_TRIM, lambda text, chars=" ": text.rstrip(chars)),
    "substring": _rows(each(BYTES, WHOLE, WHOLE), _substring),
    "substr": _rows(each(BYTES, WHOLE, WHOLE, optional=1), _substring),
    "left": _rows(each(BYTES, WHOLE), lambda text, length: text[: max(0, length)]),
    "right": _rows(each(STRING, WHOLE), lambda text, length: text[-length:] if length > 0 else text[:0]),
    "concat": _rows(each(STRING, repeated=True), lambda *parts: "".join(parts)),
    "concat_ws": Function(each(STRING, STRING, optional=1, repeated=True), _concat_ws, always),
    "startswith": Function(_PART, _matched(pc.starts_with, str.startswith), in_order),
    "endswith": Function(_PART, _matched(pc.ends_with, str.endswith), in_order),
    "contains": Function(_PART, _matched(pc.match_substring, lambda text, part: part in text), in_order),
    "like": Function(_PART, _like, in_order),
    "rlike": _RLIKE,
    "regexp": _RLIKE,
    "regexp_like": _RLIKE,
    "replace": _rows(
        each(STRING, STRING, STRING, optional=1), lambda text, part, by="": text.replace(part, by) if part else text
    ),
    "reverse": _rows(each(STRING), lambda text: text[::-1]),
    "repeat": _rows(each(STRING, WHOLE), lambda text, times: text * times),
    "instr": _rows(_PART, lambda text, part: text.find(part) + 1),
    "lpad": _rows(each(STRING, WHOLE, STRING), _padded(True)),
    "rpad": _rows(each(STRING, WHOLE, STRING), _padded(False)),
    # dates and times
    "year": _calendar(_year),
    "quarter": _calendar(lambda days: _months(days) % 12 // 3 + 1),
    "month": _calendar(lambda days: _months(days) % 12 + 1),
    "day": _DAY,
    "dayofmonth": _DAY,
    "dayofyear": _calendar(lambda days: days - _new_year(days) + 1),
    "dayofweek": _calendar(lambda days: (days + 4) % 7 + 1),
    "weekday": _calendar(lambda days: (days + 3) % 7),
    "weekofyear": _calendar(_iso_week),
    "last_day": _calendar(lambda days: _first(_months(days) + 1) - 1),
    "hour": _clock(3600 * SECOND, 24),
    "minute": _clock(60 * SECOND, 60),
    "second": _clock(SECOND, 60),
    "date_trunc": Function(_constant(each(STRING, (t.TimestampType, t.DateType)), 0, str), _date_trunc, in_order),
    "date_add": Function(each((t.DateType,), WHOLE), _shifted_days(1), in_order),
    "date_sub": Function(each((t.DateType,), WHOLE), _shifted_days(-1), in_order),
    "datediff": _DATEDIFF,
    "date_diff": _DATEDIFF,
    "to_date": Function(each(DAYS), _cast_to(t.DateType()), in_order),
    "unix_date": Function(each((t.DateType,)), lambda o, _: _as(o[0], t.DateType()).view(pa.int32()), in_order),
    "date_from_unix_date": Function(each(WHOLE), lambda o, _: _as(o[0], t.IntegerType()).view(pa.date32()), in_order),
    "unix_seconds": _unix(SECOND),
    "unix_millis": _unix(1000),
    "unix_micros": _unix(1),
    "timestamp_seconds": _instant(SECOND),
    "timestamp_millis": _instant(1000),
    "timestamp_micros": _instant(1),
}
"""Spark's functions by name; an operator by its sign."""

__all__ = ["FUNCTIONS", "Function", "java_pattern", "like_pattern"]
