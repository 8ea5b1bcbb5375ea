"""The type of a stream: payload columns, time axis, declared shape; and the types of expressions over it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NoReturn

from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.errors import AmbiguousColumn, NeedsSpark, PlanError, TypeMismatch, sentence, unknown_column
from streamq.plan.expr import (
    ARITHMETIC,
    COMPARISON,
    Aggregate,
    Alias,
    Call,
    Case,
    Cast,
    Col,
    Expr,
    Lifetime,
    Lit,
    Opaque,
    fold,
    is_opaque,
    show_to_user,
    to_spark,
)
from streamq.plan.hints import for_aggregate
from streamq.time import TIMESTAMP

POINT, INTERVAL, EDGE, SIGNAL = "point", "interval", "edge", "signal"

RESERVED = ("start", "end")
"""Names a payload column may not have: they are the lifetime's, in results."""

MICRO_BATCH = "streamq_batch"
"""Names the folders that a run with a late sink writes its micro-batches into, so Spark reads it as a column; no payload."""


@dataclass(frozen=True)
class Field:
    """A payload column."""

    name: str
    type: DataType


@dataclass(frozen=True)
class Schema:
    """Payload columns in order, the axis of the lifetimes (``timestamp`` or ``integer``) and the declared shape.

    consumed: columns of the sources that became lifetimes, and what they are now; of use to messages alone.
    """

    fields: tuple[Field, ...]
    axis: str
    shape: str = INTERVAL
    consumed: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The payload columns' names, in order."""
        return tuple(f.name for f in self.fields)

    def type_of(self, name: str) -> DataType:
        """The type of a column that exists."""
        return next(f.type for f in self.fields if f.name == name)

    def require(self, name: str, verb: str) -> DataType:
        """The type of a column, or UnknownColumn."""
        if name not in self.names:
            self.unknown(name, verb)
        return self.type_of(name)

    def unknown(self, name: str, verb: str) -> NoReturn:
        """Raise UnknownColumn for a name that is none of the payload's."""
        unknown_column(verb, name, self.names, consumed=self.consumed)

    def with_fields(self, fields: Iterable[Field]) -> Schema:
        """The same lifetimes over other columns."""
        return replace(self, fields=tuple(fields))

    def with_shape(self, shape: str) -> Schema:
        """The same columns under another shape."""
        return replace(self, shape=shape)

    def with_consumed(self, *others: Schema) -> Schema:
        """The same, knowing what the sources of other streams have consumed as well."""
        return replace(self, consumed={n: now for schema in (*others, self) for n, now in schema.consumed.items()})

    @property
    def axis_type(self) -> DataType:
        """The type of ``sq.start()`` and ``sq.end()``."""
        return t.TimestampType() if self.axis == TIMESTAMP else t.LongType()

    def describe(self) -> str:
        """``zone string, fare double; interval on timestamp``."""
        return ", ".join(f"{f.name} {f.type.simpleString()}" for f in self.fields) + f"; {self.shape} on {self.axis}"


def check_names(names: Iterable[Any], verb: str) -> None:
    """Raise where payload columns clash with one another or with the lifetime's names."""
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str):
            raise PlanError(sentence(verb, "a column name is a string", f"found {name!r}"))
        if name.lower() in RESERVED:
            raise PlanError(
                sentence(
                    verb,
                    f"a payload column called {name!r}",
                    "that is the lifetime's name in results",
                    f"Rename it, or read the lifetime as sq.{name.lower()}().",
                )
            )
        if name.lower() == MICRO_BATCH:
            wrong = f"a payload column called {name!r}"
            hint = "Rename it: folders of micro-batches are called that where a late sink is written."
            raise PlanError(sentence(verb, wrong, "", hint))
        if re.fullmatch(r"__index_level_\d+__", name):
            # it is not left out: an index may hold the time, and nothing goes unsaid
            hint = "pyarrow.Table.from_pandas(df, preserve_index=False) leaves it out; df.rename_axis('name') makes it a column."
            raise PlanError(sentence(verb, "the index of a pandas frame, without a name", f"found {name!r}", hint))
        if name.startswith("__"):
            raise PlanError(
                sentence(
                    verb,
                    "a column name that begins with two underscores",
                    f"found {name!r}",
                    "Those are streamq's own.",
                )
            )
        if name.lower() in seen:
            raise AmbiguousColumn(
                sentence(
                    verb,
                    f"column {name!r} twice",
                    f"found {seen[name.lower()]!r} and {name!r}",
                    "Spark does not tell names apart by case.",
                )
            )
        seen[name.lower()] = name


_SIMPLE: Mapping[str, DataType] = {
    "boolean": t.BooleanType(), "bool": t.BooleanType(), "byte": t.ByteType(), "tinyint": t.ByteType(), "short": t.ShortType(),
    "smallint": t.ShortType(), "int": t.IntegerType(), "integer": t.IntegerType(), "long": t.LongType(), "bigint": t.LongType(),
    "float": t.FloatType(), "real": t.FloatType(), "double": t.DoubleType(), "string": t.StringType(), "binary": t.BinaryType(),
    "date": t.DateType(), "timestamp": t.TimestampType(), "timestamp_ntz": t.TimestampNTZType(), "decimal": t.DecimalType(10, 0),
}  # fmt: skip


def parse_type(to: Any) -> DataType:
    """A DataType from its SQL name, without Spark; raises TypeMismatch for one that does not exist."""
    if isinstance(to, DataType):
        return to
    if not isinstance(to, str):
        instead = {int: "'bigint'", float: "'double'", str: "'string'", bool: "'boolean'", Decimal: "'decimal(38,18)'"}
        instead |= {dt.date: "'date'", dt.datetime: "'timestamp'", bytes: "'binary'"}
        hint = (
            f"Write {instead[to]}."
            if isinstance(to, type) and to in instead
            else "Give the name of a type, as 'double'."
        )
        raise TypeMismatch(sentence("cast", "not a type of Spark's", f"found {getattr(to, '__name__', to)!r}", hint))
    text = to.strip().lower()
    if text in _SIMPLE:
        return _SIMPLE[text]
    if match := re.fullmatch(r"(?:decimal|numeric)\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", text):
        return t.DecimalType(int(match.group(1)), int(match.group(2) or 0))
    if match := re.fullmatch(r"array<(.+)>", text):
        return t.ArrayType(parse_type(match.group(1)))
    raise TypeMismatch(
        sentence(
            "cast",
            "no such type",
            f"found {to!r}",
            f"Give a pyspark DataType or one of {', '.join(_SIMPLE)}, decimal(p,s).",
        )
    )


def literal_type(value: Any) -> DataType:
    """Spark's type of a Python value."""
    match value:
        case None:
            return t.NullType()
        case bool():
            return t.BooleanType()
        case int():
            if not -(2**63) <= value < 2**63:
                raise TypeMismatch(sentence("literal", "an integer beyond 64 bits", f"found {value}"))
            return t.IntegerType() if -(2**31) <= value < 2**31 else t.LongType()
        case float():
            return t.DoubleType()
        case str():
            return t.StringType()
        case bytes():
            return t.BinaryType()
        case Decimal():
            _, digits, exponent = value.as_tuple()
            if not isinstance(exponent, int):
                raise TypeMismatch(sentence("literal", "a decimal that is no number", f"found {value}"))
            scale = max(0, -exponent)
            return t.DecimalType(max(len(digits) + max(0, exponent), scale, 1), scale)
        case dt.datetime():
            return t.TimestampType()
        case dt.date():
            return t.DateType()
        case dt.timedelta():
            return t.DayTimeIntervalType()
    raise TypeMismatch(sentence("literal", "a value of no Spark type", f"found {value!r}"))


_INTEGRAL = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_FLOATING = (t.FloatType, t.DoubleType)
_WIDTH: list[type[DataType]] = [t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType]

_RETURNS: Mapping[str, DataType] = {
    **dict.fromkeys(
        (
            "isnull", "isnotnull", "isnan", "isin", "startswith", "endswith", "contains", "like", "rlike", "regexp",
            "regexp_like", "equal_null",
        ),
        t.BooleanType(),
    ),
    **dict.fromkeys(
        ("upper", "ucase", "lower", "lcase", "trim", "ltrim", "rtrim", "btrim", "concat_ws", "replace", "repeat", "right"),
        t.StringType(),
    ),
    **dict.fromkeys(
        (
            "length", "char_length", "character_length", "octet_length", "instr", "year", "quarter", "month", "day",
            "dayofmonth", "dayofyear",
            "dayofweek", "weekday", "weekofyear", "hour", "minute", "second", "datediff", "date_diff", "unix_date",
        ),
        t.IntegerType(),
    ),
    **dict.fromkeys(("unix_seconds", "unix_millis", "unix_micros"), t.LongType()),
    **dict.fromkeys(
        ("sqrt", "exp", "ln", "log", "log10", "log2", "rint", "sin", "cos", "tan", "pow", "power"), t.DoubleType()
    ),
    **dict.fromkeys(("date_add", "date_sub", "last_day", "to_date", "date_from_unix_date"), t.DateType()),
    **dict.fromkeys(("date_trunc", "timestamp_seconds", "timestamp_millis", "timestamp_micros"), t.TimestampType()),
}  # fmt: skip
_COMMON = frozenset({"coalesce", "greatest", "least", "ifnull", "nvl"})
"""Functions whose type is the common type of all arguments."""
_SIGNED = frozenset({"abs", "negative", "positive", "round"})
_TEXT = frozenset({"substring", "substr", "left", "reverse", "lpad", "rpad"})


def is_numeric(kind: DataType) -> bool:
    """Whether arithmetic is defined on the type."""
    return isinstance(kind, t.NumericType)


def wider(a: DataType, b: DataType) -> DataType | None:
    """The common type of two operands, where it is plain; None where Spark must be asked."""
    if a == b:
        return a
    if isinstance(a, t.NullType):
        return b
    if isinstance(b, t.NullType):
        return a
    if type(a) in _WIDTH and type(b) in _WIDTH:
        wide = max(a, b, key=lambda k: _WIDTH.index(type(k)))
        # a float does not hold every integer, so Spark's ANSI rules go to double at once
        return t.DoubleType() if isinstance(wide, t.FloatType) else wide
    if {type(a), type(b)} == {t.DateType, t.TimestampType}:
        return t.TimestampType()
    return None


def key_types(left: Schema, right: Schema, on: Iterable[tuple[str, str]]) -> list[DataType]:
    """The common type of each pair of key columns, which must have one."""
    found = [wider(left.type_of(a), right.type_of(b)) for a, b in on]
    assert None not in found
    return [kind for kind in found if kind is not None]


def comparable(a: DataType, b: DataType) -> bool:
    """Whether values of two types can be compared without a cast."""
    if (
        isinstance(a, t.NullType)
        or isinstance(b, t.NullType)
        or type(a) is type(b)
        or (is_numeric(a) and is_numeric(b))
    ):
        return True
    times = (t.TimestampType, t.TimestampNTZType, t.DateType)
    return isinstance(a, times) and isinstance(b, times)


def infer(expr: Expr, schema: Schema, verb: str) -> DataType:
    """The type of an expression over a stream, by Spark's rules.

    Plain operators and common functions are typed here, without a session; anything else is put to the active
    SparkSession. Raises UnknownColumn, TypeMismatch, or NeedsSpark where there is no session to ask.
    """
    found = types(expr, schema, verb)[expr.digest]
    return found if found is not None else _ask_spark(expr, schema, verb)


def types(expr: Expr, schema: Schema, verb: str) -> dict[str, DataType | None]:
    """The type of every node by its digest, without a session; None where only Spark knows it."""
    found: dict[str, DataType | None] = {}

    def visit(node: Expr, parts: list[DataType | None]) -> DataType | None:
        found[node.digest] = kind = _type(node, parts)
        return kind

    def _type(node: Expr, parts: list[DataType | None]) -> DataType | None:
        match node:
            case Col(name=name):
                return schema.require(name, verb)
            case Lit(value=value, type=kind):
                return kind or literal_type(value)
            case Lifetime(part="duration"):
                return t.LongType()
            case Lifetime():
                return schema.axis_type
            case Alias():
                return parts[0]
            case Cast(type=to):
                return to
            case Opaque():
                return None
            case Case():
                return _case(node, parts)
            case Aggregate():
                raise PlanError(
                    sentence(
                        verb,
                        "an aggregate outside a window's select",
                        f"found {show_to_user(node)}",
                        "Make a window first: s.tumbling_window(...).select(...).",
                    )
                )
            case Call():
                return _call(node, parts)
        raise AssertionError(type(node))

    def _case(node: Case, parts: list[DataType | None]) -> DataType | None:
        for condition in parts[:-1:2]:
            if condition is not None and not isinstance(condition, t.BooleanType | t.NullType):
                raise TypeMismatch(
                    sentence(
                        verb,
                        "a condition that is not boolean",
                        f"found {condition.simpleString()} in {show_to_user(node)}",
                    )
                )
        common: DataType | None = t.NullType()
        for value in (*parts[1:-1:2], parts[-1]):
            common = wider(common, value) if common is not None and value is not None else None
        return common

    def _call(node: Call, parts: list[DataType | None]) -> DataType | None:
        known = [p for p in parts if p is not None]
        if node.name in COMPARISON:
            if len(known) == 2 and not comparable(known[0], known[1]):
                raise TypeMismatch(
                    sentence(
                        verb,
                        f"cannot compare {known[0].simpleString()} with {known[1].simpleString()}",
                        f"found {show_to_user(node)}",
                        "Cast one side.",
                    )
                )
            return t.BooleanType()
        if node.name in ("and", "or", "not"):
            for part in known:
                if not isinstance(part, t.BooleanType | t.NullType):
                    raise TypeMismatch(
                        sentence(
                            verb,
                            f"{node.name} needs booleans",
                            f"found {part.simpleString()} in {show_to_user(node)}",
                            "Compare it with something.",
                        )
                    )
            return t.BooleanType()
        if node.name in ARITHMETIC and len(known) == 2:
            return _arithmetic(node, known[0], known[1])
        if node.name == "isin":
            for part in known[1:]:
                if not comparable(known[0], part):
                    raise TypeMismatch(
                        sentence(
                            verb,
                            f"cannot compare {known[0].simpleString()} with {part.simpleString()}",
                            f"found {show_to_user(node)}",
                            "Cast one side.",
                        )
                    )
        if node.name == "to_date" and len(node.args) > 1:
            return None
        if node.name in _RETURNS:
            return _RETURNS[node.name]
        if not parts or len(known) < len(parts):
            return None
        first = known[0]
        if (
            node.name in _SIGNED
            and is_numeric(first)
            and not (node.name == "round" and isinstance(first, t.DecimalType))
        ):
            return first
        if node.name in _TEXT and isinstance(first, t.StringType | t.BinaryType):
            return first
        if (
            node.name in ("floor", "ceil", "ceiling")
            and len(node.args) == 1
            and is_numeric(first)
            and not isinstance(first, t.DecimalType)
        ):
            return t.LongType()
        if node.name in ("sign", "signum") and is_numeric(first):
            return t.DoubleType()
        if node.name == "nullif":
            return first
        if node.name == "nvl2" and len(known) == 3:
            return wider(known[1], known[2])
        if node.name == "nanvl" and all(isinstance(k, _FLOATING) for k in known):
            return wider(known[0], known[1])
        if node.name == "concat" and all(isinstance(k, t.StringType) for k in known):
            return first
        if node.name in _COMMON:
            common: DataType | None = first
            for part in known[1:]:
                common = wider(common, part) if common is not None else None
            return common
        return None

    def _arithmetic(node: Call, a: DataType, b: DataType) -> DataType | None:
        for part in (a, b):
            if isinstance(part, t.StringType | t.BooleanType | t.BinaryType | t.ArrayType | t.MapType | t.StructType):
                raise TypeMismatch(
                    sentence(
                        verb,
                        f"{node.name} needs numbers",
                        f"found {part.simpleString()} in {show_to_user(node)}",
                        "Cast it.",
                    )
                )
        if isinstance(a, t.NullType) and isinstance(b, t.NullType):
            return None
        if isinstance(a, t.TimestampType) or isinstance(b, t.TimestampType):
            return _shifted(node.name, a, b)
        if isinstance(a, t.DayTimeIntervalType) and a == b and node.name in ("+", "-"):
            return a
        if isinstance(a, t.DecimalType) or isinstance(b, t.DecimalType):
            return _decimal(node, a, b)
        if not all(is_numeric(k) or isinstance(k, t.NullType) for k in (a, b)):
            return None
        return t.DoubleType() if node.name == "/" else wider(a, b)

    def _shifted(name: str, a: DataType, b: DataType) -> DataType | None:
        whole = t.DayTimeIntervalType()
        if name == "-" and isinstance(a, t.TimestampType) and isinstance(b, t.TimestampType):
            return whole
        if (name in ("+", "-") and isinstance(a, t.TimestampType) and b == whole) or (name == "+" and a == whole):
            return t.TimestampType()
        return None

    def _decimal(node: Call, a: DataType, b: DataType) -> DataType | None:
        if isinstance(a, _FLOATING) or isinstance(b, _FLOATING):
            return t.DoubleType()
        left, right = (as_decimal(kind, arg) for kind, arg in zip((a, b), node.args, strict=True))
        if left is None or right is None:
            return None
        if node.name in ("+", "-"):
            scale = max(left.scale, right.scale)
            precision = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
        elif node.name == "*":
            precision, scale = left.precision + right.precision + 1, left.scale + right.scale
        elif node.name == "/":
            return quotient_type(left, right)
        else:
            return None
        # beyond 38 digits Spark gives up some of the fraction, and it may overflow: ask it
        return t.DecimalType(precision, scale) if precision <= 38 else None

    fold(expr, visit)
    return found


def as_decimal(kind: DataType, arg: Any = None) -> t.DecimalType | None:
    """The decimal an operand becomes beside a decimal: an integer literal has as many digits as it shows."""
    if isinstance(kind, t.DecimalType):
        return kind
    if isinstance(arg, Lit) and arg.type is None and isinstance(arg.value, int) and not isinstance(arg.value, bool):
        return t.DecimalType(len(str(abs(arg.value))), 0)
    widths: dict[type[DataType], int] = {t.ByteType: 3, t.ShortType: 5, t.IntegerType: 10, t.LongType: 20}
    digits = widths.get(type(kind))
    return t.DecimalType(digits, 0) if digits else None


def quotient_type(left: t.DecimalType, right: t.DecimalType) -> t.DecimalType:
    """Spark's type of a quotient of decimals: beyond 38 digits it gives up some of the fraction, down to six digits."""
    whole, scale = left.precision - left.scale + right.scale, max(6, left.scale + right.precision + 1)
    if whole + scale <= 38:
        return t.DecimalType(whole + scale, scale)
    return t.DecimalType(38, max(38 - whole, min(scale, 6)))


class _Plain:
    """Columns of a DataFrame that has the schema's own names."""

    def __init__(self, schema: Schema):
        self.schema = schema

    def column(self, name: str) -> Any:
        from pyspark.sql import functions as F

        return F.col(quote(name))

    def lifetime(self, part: str) -> Any:
        from pyspark.sql import functions as F

        return F.lit(None).cast(t.LongType() if part == "duration" else self.schema.axis_type)


def quote(name: str) -> str:
    """A column name that Spark takes literally."""
    return "`" + name.replace("`", "``") + "`"


def _ask_spark(expr: Expr, schema: Schema, verb: str) -> DataType:
    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        raise NeedsSpark(
            sentence(
                verb,
                "only Spark knows the type of this expression",
                f"found {show_to_user(expr)}",
                "Start a session first: sq.session(); or cast it: .cast('double').",
            )
        )
    empty = spark.createDataFrame([], t.StructType([t.StructField(f.name, f.type) for f in schema.fields]))
    try:
        value = to_spark(expr, _Plain(schema))
        kind = empty.select(value.alias("x")).schema["x"].dataType
        if is_opaque(expr):
            # a filter takes no aggregate, window function or generator; it is analysed here, and not run
            _ = empty.where(value.isNull()).schema
        return kind
    except AnalysisException as error:
        shown = show_to_user(expr)
        read = next((name for name in schema.consumed if re.search(rf"\b{re.escape(name)}\b", shown)), None)
        if read is not None and (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
            now = f"The source has read column {read!r}: {schema.consumed[read]}."
            raise TypeMismatch(sentence(verb, f"no column {read!r}", f"found {shown}", now)) from error
        hint = for_aggregate(shown)
        if hint or (error.getCondition() or "").startswith(_OF_OTHER_ROWS):
            wrong = "a pyspark Column that is no value of one event"
            raise TypeMismatch(sentence(verb, wrong, f"found {shown}", hint or _OTHER_ROWS)) from error
        raise TypeMismatch(sentence(verb, f"Spark refuses {shown}", str(error).strip().splitlines()[0])) from error


_OF_OTHER_ROWS = ("INVALID_WHERE_CONDITION", "WINDOW_FUNCTION_NOT_ALLOWED", "UNSUPPORTED_GENERATOR", "MISSING_GROUP_BY")
"""Spark's conditions for what is no value of a row in a filter."""
_OTHER_ROWS = (
    "Aggregates and window functions are the windows' of a stream; what makes several rows belongs to the source."
)


def sum_type(kind: DataType) -> DataType:
    """Spark's type of SUM over a type."""
    if isinstance(kind, t.DecimalType):
        return t.DecimalType(min(38, kind.precision + 10), kind.scale)
    return t.LongType() if isinstance(kind, _INTEGRAL) else t.DoubleType()


def avg_type(kind: DataType) -> DataType:
    """Spark's type of AVG over a type."""
    if isinstance(kind, t.DecimalType):
        # DecimalType.bounded: both are capped at 38 on their own
        return t.DecimalType(min(38, kind.precision + 4), min(38, kind.scale + 4))
    return t.DoubleType()
