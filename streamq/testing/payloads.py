"""Values of payload columns: few and close together, so that keys meet and conditions hold for some, with the special ones.

A value is what Arrow takes for its type: a map is a list of pairs, and an instant that Python's datetime does not reach is its
microseconds since 1970.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.errors import PlanError, sentence
from streamq.operators import Source, WindowAggregate
from streamq.plan.aggregate import Aggregate, Computes
from streamq.plan.case import Case
from streamq.plan.expr import Alias, Call, Col, Expr, Lit
from streamq.plan.node import Node, nodes
from streamq.plan.passes import columns, is_opaque
from streamq.plan.passes import nodes as parts_of
from streamq.plan.schema import Field
from streamq.runtime.arrow_types import BITS
from streamq.testing.intent import Intent
from streamq.testing.scale import expressions, literals
from streamq.testing.table import fields_of

Draw = Callable[[st.SearchStrategy[Any]], Any]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FAR = 9_000_000_000_000_000_000
"""Microseconds to an instant in the year 287,000, far beyond what Python's datetime has."""
YEAR_10000 = 253_402_300_800_000_000
"""Microseconds to the first instant that Python's datetime does not have."""
MOST_DIGITS = 38
"""How many digits a decimal has at most; Python's own context rounds to fewer."""
LONG = 300
"""The length of a long text."""
MOST_LITERALS = 6
"""How many values of a type are taken from a query's own literals."""
FEW = 3
"""A column of so many values, or fewer, has them all in every case."""


# types


def _types(*names: str) -> Mapping[str, t.DataType]:
    return {name: fields_of(f"k {name}")[0].type for name in names}


NUMBERS = _types(
    *("int", "double", "bigint", "float", "smallint", "tinyint"),
    *("decimal(5,2)", "decimal(38,0)", "decimal(38,18)", "decimal(18,18)"),
)
"""Types that are added up, by name."""

OTHERS = _types("string", "boolean", "binary", "date", "timestamp", "timestamp_ntz", "interval day to second")
"""Types without parts that are no numbers, by name."""

NESTED = _types(
    *("array<double>", "struct<x:double,y:string>", "map<string,double>", "array<string>", "array<timestamp>"),
    *(
        "array<array<int>>",
        "array<struct<x:int,y:float>>",
        "map<int,array<double>>",
        "struct<x:date,y:struct<z:double>>",
    ),
    *("array<decimal(38,18)>", "struct<x:map<string,int>,y:array<boolean>>", "array<binary>"),
)
"""Some types with parts, by name; one of each kind, within each other."""


@st.composite
def key_types(draw: Draw) -> tuple[t.DataType, ...]:
    """Types for a column of keys, the first to be tried first: of any kind; without parts; a plain one."""
    plain = draw(st.sampled_from([OTHERS["string"], NUMBERS["int"]]))
    # of floats more values are equal that do not look so than of any other type
    often = [NUMBERS["double"]] * 12 + [OTHERS["timestamp"]] * 2
    scalar = draw(st.sampled_from([plain] * 20 + often + [*OTHERS.values(), *NUMBERS.values()]))
    return draw(st.sampled_from([scalar] * 60 + list(NESTED.values()))), scalar, plain


@st.composite
def value_types(draw: Draw) -> tuple[t.DataType, ...]:
    """Types for a column of values, the first to be tried first: of any kind; a number; a plain one."""
    plain = draw(st.sampled_from([NUMBERS["int"], NUMBERS["double"]]))
    number = draw(st.sampled_from([plain] * 15 + list(NUMBERS.values())))
    return draw(st.sampled_from([number] * 60 + [*OTHERS.values(), *NESTED.values()])), number, plain


IDS = {name: kind for name, kind in {**NUMBERS, **OTHERS}.items() if name not in ("boolean", "decimal(18,18)")}
"""Types of columns that tell events apart, by name."""


def numbered_value(kind: t.DataType, n: int) -> Any:
    """The n-th of as many different values of a type as are asked for, one of them NULL, some of them odd."""
    if n == 4:
        return None
    strange = [v for v in odd(kind, Intent()) if v not in (None, 0)]
    if n % 3 == 1 and n // 3 < len(strange):
        return strange[n // 3]
    match kind:
        case t.FloatType() | t.DoubleType():
            return float("nan") if n == 2 else float(n)
        case t.DecimalType():
            return Decimal(n)
        case t.StringType():
            return f"e{n}"
        case t.BinaryType():
            return f"e{n}".encode()
        case t.DateType():
            return EPOCH.date() + dt.timedelta(days=n)
        case t.TimestampType():
            return EPOCH + dt.timedelta(microseconds=n)
        case t.TimestampNTZType():
            return EPOCH.replace(tzinfo=None) + dt.timedelta(microseconds=n)
        case t.DayTimeIntervalType():
            return dt.timedelta(microseconds=n)
    return n


# values


def pool(kind: t.DataType, intent: Intent, compared: Sequence[Any] = ()) -> list[Any]:
    """The values of a type that an intent allows, and ``compared``, values that a query compares with; no NULL among them.

    Floats are few quarters, so that their sums are exact in any order.
    """
    match kind:
        case t.BooleanType():
            values: list[Any] = [True, False]
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            reach = 2 ** (BITS[type(kind)] - 1)
            values = [0, 1, 2, 3, 7, -4]
            values += [v + by for v in compared if isinstance(v, int) and not isinstance(v, bool) for by in (0, 1, -1)]
            values = [v for v in values if -reach <= v < reach]
        case t.FloatType() | t.DoubleType():
            values = [0.0, 1.0, 1.5, -2.25, 7.0, -0.0]
            values += [float(v) for v in compared if isinstance(v, int | float | Decimal) and not isinstance(v, bool)]
            values += [float("nan")] * (intent.nan is not False)
            values += [float("inf"), float("-inf")] * (intent.infinities is not False)
        case t.DecimalType():
            unit, most = _unit(kind), _greatest(kind)
            values = [v for v in (unit * 0, unit, unit * 100, unit * -250, unit * 333) if abs(v) <= most]
            near = [v for v in compared if isinstance(v, Decimal) and v.copy_abs() <= most]
            values += [v.quantize(unit, context=Context(prec=MOST_DIGITS)) for v in near]
        case t.StringType():
            values = ["a", "b", "c", ""]
            values += [v for v in compared if isinstance(v, str)]
            values += ["ß", "日本", "e\u0301"] * (intent.unicode is not False)
        case t.BinaryType():
            values = [b"", b"a", b"\x00\xff"]
        case t.DateType():
            values = [dt.date(1970, 1, 1), dt.date(1970, 1, 2), dt.date(1969, 12, 31)]
            values += [v for v in compared if isinstance(v, dt.date) and not isinstance(v, dt.datetime)]
        case t.TimestampType():
            values = [EPOCH, EPOCH + dt.timedelta(seconds=1), EPOCH - dt.timedelta(microseconds=1)]
            values += [v if v.tzinfo else v.replace(tzinfo=dt.UTC) for v in compared if isinstance(v, dt.datetime)]
        case t.TimestampNTZType():
            values = [EPOCH.replace(tzinfo=None), EPOCH.replace(tzinfo=None) + dt.timedelta(seconds=1)]
        case t.DayTimeIntervalType():
            values = [dt.timedelta(0), dt.timedelta(seconds=1), dt.timedelta(days=1)]
        case t.ArrayType():
            inner, null = _inner(kind.elementType, intent, compared)
            values = [inner[:1], [], [*inner[:1], *null], inner[:3], inner[-1:], null, inner[1:2]]
        case t.MapType():
            keys, (inner, null) = pool(kind.keyType, intent, compared), _inner(kind.valueType, intent, compared)
            values = [[(keys[0], inner[0])], [], list(zip(keys[:2], [inner[-1], *null, inner[0]], strict=False))]
            values += [[(keys[0], v)] for v in [*null, inner[-1]]]
        case t.StructType():
            parts = [(f.name, *_inner(f.dataType, intent, compared)) for f in kind.fields]
            values = [{name: inner[i % len(inner)] for name, inner, _ in parts} for i in range(3)]
            values += [{name: [*null, inner[0]][i % 2] for i, (name, inner, null) in enumerate(parts)}]
            values += [{name: [inner[0], *null][-1] for name, inner, null in parts}]
            values += [{name: inner[-1] for name, inner, _ in parts}]
        case _:
            what = f"no values of type {kind.simpleString()}"
            raise PlanError(sentence("Intent", what, "", "Give them: Intent(payload={'column': [...]})."))
    return _distinct(values)


def _inner(kind: t.DataType, intent: Intent, compared: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The values of a part, and NULL where there may be one."""
    return pool(kind, intent, compared), [] if intent.nulls is False else [None]


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list({repr(v): v for v in values}.values())


def odd(kind: t.DataType, intent: Intent) -> list[Any]:
    """Values at the ends of a type, and such as are easily taken for others; none for a type that has none."""
    match kind:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            reach = 2 ** (BITS[type(kind)] - 1)
            return [-reach, reach - 1]
        case t.DoubleType():
            return [5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 2.0**53 + 1]
        case t.FloatType():
            return [1.401298464324817e-45, -1.401298464324817e-45, 3.4028234663852886e38, -3.4028234663852886e38]
        case t.DecimalType():
            return [_greatest(kind), _greatest(kind).copy_negate()]
        case t.StringType():
            texts = ["a ", " a", "A", "a\x00", "'", '"', "\\", "a\nb", "x" * LONG]
            return texts + ["é", "\uffff", "😀", "a\u0301\u0302"] * (intent.unicode is not False)
        case t.BinaryType():
            return [b"\x00", b"\xff", b"a\x00", b"\x80" * LONG]
        case t.DateType():
            return [dt.date.min, dt.date.max]
        case t.TimestampType():
            return [FAR, YEAR_10000, *(end.replace(tzinfo=dt.UTC) for end in (dt.datetime.max, dt.datetime.min)), -FAR]
        case t.TimestampNTZType():
            return [FAR, dt.datetime.max, dt.datetime.min, -FAR]
        case t.DayTimeIntervalType():
            return [dt.timedelta(days=106_751_991), dt.timedelta(days=-106_751_991)]
        case t.ArrayType():
            inner = odd(kind.elementType, intent)
            return [[v] for v in inner[:4]] + [[*inner[:2], *pool(kind.elementType, intent)[:1]]] * bool(inner)
        case t.MapType():
            keys, inner = odd(kind.keyType, intent), odd(kind.valueType, intent)
            plain = pool(kind.keyType, intent)[0], pool(kind.valueType, intent)[0]
            return [[(key, plain[1])] for key in keys[:3]] + [[(plain[0], v)] for v in inner[:3]]
        case t.StructType():
            parts = [(f.name, odd(f.dataType, intent) or pool(f.dataType, intent)) for f in kind.fields]
            return [{name: inner[i % len(inner)] for name, inner in parts} for i in range(3)]
    return []


def _unit(kind: t.DecimalType) -> Decimal:
    return Decimal(1).scaleb(-kind.scale)


def _greatest(kind: t.DecimalType) -> Decimal:
    return Decimal((0, (9,) * kind.precision, -kind.scale))


def twin(value: Any) -> Any:
    """The same value to Spark in other bits: zeros and NaN of the other sign, maps in another order."""
    match value:
        case float() if value == 0 or math.isnan(value):
            return -value
        case list():
            parts = [twin(v) for v in value]
            return parts[::-1] if value and isinstance(value[0], tuple) else parts
        case tuple():
            return value[0], twin(value[1])
        case dict():
            return {name: twin(v) for name, v in value.items()}
    return value


# what a query does with a column


@dataclass(frozen=True)
class Uses:
    """The source columns that a plan computes with, and those that it only adds up.

    What computes with the ends of a type fails, or is rounded: one answer is as good as another.
    """

    computed: frozenset[str]
    summed: frozenset[str]


def uses(plan: Node) -> Uses:
    """What a plan does with the columns of its sources.

    An expression that computes with a column under a name that no source has may compute with any.
    """
    there = frozenset(f.name for n in nodes(plan) if isinstance(n, Source) for f in n.payload)
    computed: set[str] = set()
    summed: set[str] = set()
    for node in nodes(plan):
        for expr in expressions(node):
            computed |= _computing(expr)
        for _, a in node.aggregates if isinstance(node, WindowAggregate) else ():
            names = frozenset[str]().union(*(columns(arg) for arg in a.args))
            computes = a.function.drawing.computes
            if computes != Computes.NOTHING:
                (summed if computes == Computes.A_SUM else computed).update(names)

    def lineage(names: set[str]) -> frozenset[str]:
        return frozenset(names) if names <= there else there

    return Uses(lineage(computed), lineage(summed))


def _computing(expr: Expr) -> set[str]:
    """The columns that an expression computes with; what a pyspark Column reads is not known: a name that no column has."""
    names: set[str] = {""} if is_opaque(expr) else set()
    for part in parts_of(expr):
        plain = isinstance(part, Col | Lit | Case | Alias | Aggregate)
        if not plain and not (isinstance(part, Call) and part.function.selects):
            names |= columns(part)
    return names


NO_USES = Uses(frozenset(), frozenset())


def _exact(kind: t.DataType) -> bool:
    return type(kind) in BITS or isinstance(kind, t.DecimalType)


# columns


def column(f: Field, intent: Intent, compared: Sequence[Any] = ()) -> list[Any] | st.SearchStrategy[Any]:
    """The values of a payload column, the plainest first: examples shrink towards it."""
    if f.name in intent.payload:
        choices = intent.payload[f.name]
        return choices if isinstance(choices, st.SearchStrategy) else list(choices)
    values = pool(f.type, intent, compared)
    if intent.nulls is not False:
        values = [*values[:2], None, *values[2:]]
    return _skewed(values, intent)


def _skewed(values: list[Any], intent: Intent) -> list[Any]:
    return values[:1] * (3 * len(values)) + values if intent.skew else values


def rows(fields: Iterable[Field], intent: Intent, compared: Sequence[Any] = ()) -> st.SearchStrategy[dict[str, Any]]:
    """Payloads: a value a column."""
    return _payloads({f.name: column(f, intent, compared) for f in fields})


@st.composite
def palettes(
    draw: Draw,
    fields: Iterable[Field],
    intent: Intent,
    compared: Sequence[Any] = (),
    used: Uses = NO_USES,
) -> st.SearchStrategy[dict[str, Any]]:
    """What the payloads of one source are drawn from: all plain values of a column, or so few that events agree in them.

    The few are the first of the column and one other, so that those of two sources have some in common; the other, and in
    part of the columns another, may be an odd one. What is added up has one of them, once.
    """
    chosen: dict[str, list[Any] | st.SearchStrategy[Any]] = {}
    once: dict[str, Any] = {}
    if intent.skew is None:
        intent = intent.but(skew=draw(st.sampled_from([False] * 5 + [True])))
    for f in fields:
        if f.name in intent.payload:
            chosen[f.name] = column(f, intent, compared)
            continue
        values = pool(f.type, intent, compared)
        ends = [] if f.name in used.computed else odd(f.type, intent)
        if f.name in used.summed:
            last = draw(st.sampled_from([None] * 4 + ends)) if ends and _exact(f.type) else None
            once |= {} if last is None else {f.name: last}
            ends = []
        few = draw(st.sampled_from([None, 1, 2])) if len(values) > FEW else None
        others = draw(st.lists(st.sampled_from(ends), max_size=2, unique_by=repr)) if ends else []
        if few is not None:
            # of a sum with NaN in it nothing else is seen
            added = f.name in used.computed | used.summed
            nan = [v for v in values[few:] if v != v and (not added or draw(st.booleans()))]
            values = [*values[:few], *nan, *(others[:1] or [draw(st.sampled_from(values[few:]))])]
        values = _distinct([*values, *others])
        if intent.nulls is not False and (few is None or draw(st.sampled_from([True, True, False]))):
            # now and then every other one, so that of some windows and groups nothing else is left
            many = draw(st.sampled_from([1, 1, 1, len(values)]))
            values = [*values[:2], *[None] * many, *values[2:]]
        chosen[f.name] = _skewed(values, intent)
    return _with(_payloads(chosen), once)


def _with(payloads: st.SearchStrategy[dict[str, Any]], once: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The same payloads, the first of them with other values."""
    if not once:
        return payloads
    left = [once]
    return payloads.map(lambda payload: {**payload, **(left.pop() if left else {})})


def _payloads(columns: Mapping[str, list[Any] | st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    strategies = {
        n: st.sampled_from(choices) if isinstance(choices, list) else choices for n, choices in columns.items()
    }
    # in the columns' order, which the strategy does not keep
    return st.fixed_dictionaries(strategies).map(lambda drawn: {name: drawn[name] for name in strategies})


def near(plan: Node) -> list[Any]:
    """Values that a plan's expressions compare with, some of each type."""
    by_kind: dict[type, dict[str, Any]] = {}
    for node in nodes(plan):
        for value in literals(node):
            by_kind.setdefault(type(value), {}).setdefault(repr(value), value)
    return [v for values in by_kind.values() for v in list(values.values())[:MOST_LITERALS]]


__all__ = [
    "FAR", "IDS", "NESTED", "NUMBERS", "OTHERS", "Uses", "column", "key_types", "near", "numbered_value", "odd", "palettes",
    "pool", "rows", "twin", "uses", "value_types",
]  # fmt: skip
