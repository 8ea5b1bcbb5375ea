"""The types of expressions over a stream, by Spark's rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.errors import NeedsSpark, PlanError, TypeMismatch, sentence
from streamq.plan.aggregate import Aggregate
from streamq.plan.case import Case
from streamq.plan.expr import ARITHMETIC, COMPARISON, Alias, Call, Cast, Col, Expr, Lit, Opaque
from streamq.plan.hints import for_aggregate
from streamq.plan.lifetime import Lifetime
from streamq.plan.passes import is_opaque, show_to_user
from streamq.plan.schema import Schema, quote
from streamq.plan.spark_form import to_spark
from streamq.plan.spark_types import FLOATING, as_decimal, comparable, is_numeric, literal_type, quotient_type, wider
from streamq.plan.tree import fold

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
        if node.name == "nanvl" and all(isinstance(k, FLOATING) for k in known):
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
        if isinstance(a, FLOATING) or isinstance(b, FLOATING):
            return t.DoubleType()
        left, right = (as_decimal(kind, _constant(arg)) for kind, arg in zip((a, b), node.args, strict=True))
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


def _constant(arg: Any) -> Any:
    """The constant that a literal of no type of its own is."""
    return arg.value if isinstance(arg, Lit) and arg.type is None else ...


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
