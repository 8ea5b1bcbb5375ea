"""Translate expressions of a query to DuckDB's SQL, with Spark's values, and with failures where Spark fails."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import types as t

from streamq.errors import NeedsSpark, PlanError
from streamq.plan.expr import Alias, Call, Case, Cast, Col, Expr, Lifetime, Lit
from streamq.plan.passes import infer
from streamq.plan.schema import Schema
from streamq.plan.tree import fold as fold_expr
from streamq.plan.tree import show
from streamq.testing.oracle.values import floating, key, lifetime, listed, literal, sql_type
from tests.judges.types import DIGITS, type_of, wider


class Untranslated(PlanError):
    """Raised for an expression that the oracle cannot translate to SQL."""


ByValue = Callable[[Call | Cast, list[str], list[t.DataType | None], t.DataType | None], str | None]
"""A function from a call or cast, the SQL and the types of its operands, and its type, to its SQL; None if it has none."""


def sql(expr: Expr, schema: Schema, by_value: ByValue = lambda *_: None) -> str:
    """Return DuckDB's SQL for an expression over a history, with Spark's values; raise Untranslated if there is none.

    ``by_value`` returns the SQL of calls and casts that have no form here.
    """

    def kind_of(node: Expr) -> t.DataType | None:
        """Return the type of an expression; None if only Spark can tell it."""
        own = type_of(node, schema)
        if own is not None:
            return own
        try:
            return infer(node, schema, "oracle")
        except NeedsSpark:
            return None

    def otherwise(node: Call | Cast, parts: list[str], translate: Callable[[], str]) -> str:
        """Return what ``translate`` returns or, if it raises, the SQL by value; raise Untranslated if there is none."""
        try:
            return translate()
        except Untranslated:
            call = by_value(node, parts, [kind_of(operand) for operand in node.children], kind_of(node))
            if call is None:
                raise
            return call

    def visit(node: Expr, parts: list[str]) -> str:
        """Return the SQL of an expression over the SQL of its operands; raise Untranslated if there is none."""
        match node:
            case Col(name=name):
                return f"c{schema.names.index(name)}"
            case Lit(value=value, type=kind):
                constant = literal(value)
                return constant if kind is None else f"CAST({constant} AS {sql_type(kind)})"
            case Lifetime(part=part):
                return lifetime(part, schema)
            case Alias():
                return parts[0]
            case Cast():
                return otherwise(node, parts, lambda: _cast(node, parts[0], kind_of(node.arg), node.type))
            case Case():
                branches = [f"WHEN {parts[i]} THEN {parts[i + 1]}" for i in range(0, len(parts) - 1, 2)]
                return _as(f"CASE {' '.join(branches)} ELSE {parts[-1]} END", kind_of(node))
            case Call():
                return otherwise(node, parts, lambda: _called(node, parts, kind_of))
        raise Untranslated("oracle", f"{type(node).__name__} is not translated", f"found {show(node)}")

    return fold_expr(expr, visit)


def _called(node: Call, parts: list[str], kind_of: Callable[[Expr], t.DataType | None]) -> str:
    """Return the SQL of a call, by the identity of its function, which is the name of a built-in one.

    ``parts`` are its operands in SQL; ``kind_of`` returns an expression's type, or None if only Spark can tell it. Raises
    Untranslated for any other function, and for a number of arguments that is not translated.
    """
    match node.function.identity:
        case sign if sign in ARITHMETIC:
            return _arithmetic(node, sign, parts, [kind_of(a) for a in node.children])
        case sign if sign in COMPARISON:
            return _compared(sign, parts, [kind_of(a) for a in node.children])
        case "isin":
            return f"({parts[0]} IN ({listed(*parts[1:])}))" if len(parts) > 1 else "false"
        case name if name in COMMON:
            return f"{COMMON[name]}({listed(*(_as(p, kind_of(node)) for p in parts))})"
        case name if name in FUNCTIONS:
            arguments = node.arguments(parts)
            shown = (a if isinstance(e, Expr) else literal(e) for e, a in zip(node.args, arguments, strict=True))
            try:
                return f"({FUNCTIONS[name](*shown)})"
            except TypeError as error:
                wrong = f"function {name!r} of {len(arguments)} arguments is not translated"
                raise Untranslated("oracle", wrong, f"found {show(node)}") from error
    wrong = f"function {node.function.name!r} is not translated"
    raise Untranslated("oracle", wrong, f"found {show(node)}")


def _as(part: str, kind: t.DataType | None) -> str:
    return f"({part})" if kind is None or isinstance(kind, t.NullType) else f"CAST({part} AS {sql_type(kind)})"


def _compared(sign: str, parts: list[str], kinds: list[t.DataType | None]) -> str:
    """Return a comparison of operands of these types: as doubles if one is a float, arrays and structs of one type by keys."""
    # a float makes both sides floats
    a, b = (f"CAST({p} AS DOUBLE)" for p in parts) if any(floating(k) for k in kinds) else parts
    if isinstance(kinds[0], t.ArrayType | t.StructType) and kinds[0] == kinds[1]:
        a, b = (key(p, kinds[0]) for p in parts)
    operator = {"==": "=", "!=": "<>", "<=>": "IS NOT DISTINCT FROM"}.get(sign, sign)
    return f"({a} {operator} {b})"


def _arithmetic(node: Call, sign: str, parts: list[str], kinds: list[t.DataType | None]) -> str:
    """Return arithmetic in Spark's common type, a division in doubles; overflow and division by zero fail.

    A remainder has the left side's sign; decimals follow the rules of :func:`_decimal`.

    An interval may be added to a timestamp or subtracted. Raises Untranslated for any other types that are not numbers.
    """
    if any(isinstance(k, t.DecimalType) for k in kinds):
        return _decimal(node, sign, parts, kinds)
    left, right = kinds
    if isinstance(left, t.TimestampType) and isinstance(right, t.DayTimeIntervalType) and sign in "+-":
        return f"({parts[0]} {sign} to_microseconds({parts[1]}))"
    common = wider(left, right) if left is not None and right is not None else None
    if not isinstance(common, t.NumericType):
        raise Untranslated("oracle", f"{sign!r} on these types is not translated", f"found {show(node)}")
    if sign == "/":
        common = t.DoubleType()
    a, b = (_as(p, common) for p in parts)
    if sign not in ("/", "%"):
        return _as(f"{a} {sign} {b}", common)
    # the remainder of the least integer by -1 would overflow
    by_one = f"WHEN {b} = -1 THEN 0" if sign == "%" and type(common) in DIGITS else ""
    null = f"WHEN {a} IS NULL OR {b} IS NULL THEN NULL"
    return _as(f"CASE {null} WHEN {b} = 0 THEN error('division by zero') {by_one} ELSE {a} {sign} {b} END", common)


def _decimal(node: Call, sign: str, parts: list[str], kinds: list[t.DataType | None]) -> str:
    """Return arithmetic of decimals and integers with Spark's digits; raise Untranslated for others.

    Others are division, a remainder, a float, and a result of more than 38 digits.
    """
    # 99 digits for any other type make it untranslatable
    digits = [
        (k.precision, k.scale) if isinstance(k, t.DecimalType) else (DIGITS.get(type(k or t.NullType()), 99), 0)
        for k in kinds
    ]
    (p, s), (q, r) = digits
    scale = s + r if sign == "*" else max(s, r)
    precision = p + q + 1 if sign == "*" else max(p - s, q - r) + scale + 1
    if sign in ("/", "%") or precision > 38:
        raise Untranslated("oracle", f"{sign!r} on these types is not translated", f"found {show(node)}")
    a, b = (f"CAST({part} AS DECIMAL({n}, {m}))" for part, (n, m) in zip(parts, digits, strict=True))
    return f"CAST({a} {sign} {b} AS DECIMAL({precision}, {scale}))"


def _cast(node: Expr, part: str, kind: t.DataType | None, to: t.DataType) -> str:
    """Return a cast by Spark's ANSI rules: fractions are cut off; malformed text and values that do not fit fail.

    Raises Untranslated for any other pair of types; ``node`` is the cast that the error shows.
    """
    plain = f"CAST({part} AS {sql_type(to)})"
    exact = type(kind) in DIGITS or isinstance(kind, t.BooleanType)
    match kind, to:
        case (t.NullType(), _):
            return plain
        case _ if kind == to:
            return plain
        case (t.FloatType() | t.DoubleType() | t.DecimalType(), _) if type(to) in DIGITS:
            return f"CAST(trunc({part}) AS {sql_type(to)})"
        case (t.NumericType(), t.BooleanType()):
            return f"({part} <> 0)"
        case (t.NumericType(), t.FloatType() | t.DoubleType()) | (t.DecimalType(), t.DecimalType()):
            return plain
        case (_, t.NumericType() | t.StringType()) if exact:
            return plain
        case (t.StringType(), _) if type(to) in DIGITS:
            return _well_formed(part, r"\s*[+-]?\d+\s*", plain, to)
        case (t.StringType(), t.FloatType() | t.DoubleType() | t.DecimalType()):
            return _well_formed(part, r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", plain, to)
        case (t.StringType(), t.BooleanType()):
            true = f"trim(lower({part}), ' ') IN ('t', 'true', 'y', 'yes', '1')"
            return _well_formed(part, "(?i) *(t|true|y|yes|1|f|false|n|no|0) *", true, to)
        case (t.DateType(), t.StringType() | t.TimestampType()) | (t.TimestampType(), t.DateType()):
            return plain
    operand = "an expression of unknown type" if kind is None else kind.simpleString()
    raise Untranslated("oracle", f"a cast of {operand} to {to.simpleString()} is not translated", f"found {show(node)}")


def _well_formed(part: str, form: str, value: str, to: t.DataType) -> str:
    """Return SQL of ``value`` if the text ``part`` matches the regular expression ``form``; NULL stays NULL, other texts fail."""
    wrong = f"error('no {to.simpleString()}: ' || {part})"
    return f"CASE WHEN regexp_full_match({part}, '{form}') THEN {value} WHEN {part} IS NOT NULL THEN {wrong} END"


def _namesake(name: str) -> Callable[[str], str]:
    return lambda a: f"{name}({a})"


def _trimmed(name: str) -> Callable[[str], str]:
    return lambda a: f"{name}({a}, ' ')"


def _logarithm(name: str) -> Callable[[str], str]:
    return lambda a: f"CASE WHEN {a} > 0 THEN {name}(CAST({a} AS DOUBLE)) END"


def _power(a: str, b: str) -> str:
    return f"power(CAST({a} AS DOUBLE), CAST({b} AS DOUBLE))"


ARITHMETIC = ("+", "-", "*", "/", "%")
COMPARISON = ("==", "!=", "<", "<=", ">", ">=", "<=>")
COMMON = {"coalesce": "coalesce", "ifnull": "coalesce", "nvl": "coalesce", "greatest": "greatest", "least": "least"}
"""Functions whose operands are cast to their common type, and DuckDB's functions of the same meaning."""

_NAMESAKES = ("abs", "year", "month", "day", "hour", "minute", "second")

FUNCTIONS: dict[str, Callable[..., str]] = {
    **{name: _namesake(name) for name in _NAMESAKES},
    **{name: _trimmed(name) for name in ("trim", "ltrim", "rtrim")},
    **{name: _logarithm(name) for name in ("ln", "log10", "log2")},
    "log": _logarithm("ln"),
    "pow": _power,
    "power": _power,
    "and": lambda a, b: f"{a} AND {b}",
    "or": lambda a, b: f"{a} OR {b}",
    "not": lambda a: f"NOT {a}",
    "negative": lambda a: f"- {a}",
    "positive": lambda a: a,
    "sqrt": lambda a: f"CASE WHEN {a} < 0 THEN CAST('nan' AS DOUBLE) ELSE sqrt({a}) END",
    "exp": lambda a: f"exp(CAST({a} AS DOUBLE))",
    "isnull": lambda a: f"{a} IS NULL",
    "isnotnull": lambda a: f"{a} IS NOT NULL",
    "isnan": lambda a: f"coalesce(isnan(CAST({a} AS DOUBLE)), false)",
    "nullif": lambda a, b: f"nullif({a}, {b})",
    "sequence": lambda a, b: (
        f"CASE WHEN {a} <= {b} THEN generate_series({a}, {b}) ELSE generate_series({a}, {b}, -1) END"
    ),
    "array": lambda *parts: f"[{listed(*parts)}]",
    "array_compact": lambda a: f"[part FOR part IN {a} IF part IS NOT NULL]",
    "nvl2": lambda a, b, c: f"CASE WHEN {a} IS NOT NULL THEN {b} ELSE {c} END",
    "concat": lambda *parts: " || ".join(parts),
    "concat_ws": lambda *parts: f"concat_ws({listed(*parts)})",
    "startswith": lambda a, b: f"starts_with({a}, {b})",
    "endswith": lambda a, b: f"ends_with({a}, {b})",
    "contains": lambda a, b: f"contains({a}, {b})",
    "like": lambda a, b: f"{a} LIKE {b} ESCAPE '\\'",
    "equal_null": lambda a, b: f"{a} IS NOT DISTINCT FROM {b}",
    "regexp": lambda a, b: f"regexp_matches({a}, {b})",
    "regexp_like": lambda a, b: f"regexp_matches({a}, {b})",
    "nanvl": lambda a, b: f"CASE WHEN isnan({a}) THEN {b} ELSE {a} END",
    "rlike": lambda a, b: f"regexp_matches({a}, {b})",
    "dayofmonth": _namesake("day"),
    "dayofweek": lambda a: f"dayofweek({a}) + 1",
    "unix_micros": lambda a: f"epoch_us({a})",
    "timestamp_micros": lambda a: f"make_timestamp({a})",
}
"""The SQL of Spark's functions, with Spark's values; other functions are refused by name."""

DEFINED = frozenset({*ARITHMETIC, *COMPARISON, "isin", *COMMON, *FUNCTIONS})
"""The functions that the oracle translates."""
