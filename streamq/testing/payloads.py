"""Draws of payloads: values of columns by what a query computes with them, and static tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.operators import Source, WindowAggregate
from streamq.plan.aggregate import Aggregate, Computation
from streamq.plan.expr import Alias, Call, Case, Cast, Col, Expr, Lit
from streamq.plan.node import Node, expanded, expressions, nodes
from streamq.plan.passes import columns, expression_nodes, is_opaque
from streamq.plan.passes import expression_nodes as parts_of
from streamq.plan.schema import Field
from streamq.runtime.arrow.arrow_types import BITS, arrow_type
from streamq.testing.intent import ANYTHING, MOSTLY, Draw, Intent
from streamq.testing.payload_values import beside, distinct, is_exact, odd, part, pool, twin
from streamq.testing.query_scale import literals
from streamq.testing.table import fields_of
from streamq.user_code.repository import called_modules

NUMBERS = (2.5, -2.5, -0.75, 1234.5678)
TEXTS = (" aB ", "abcab")
DAYS = (dt.date(2024, 2, 29), dt.date(2026, 12, 31), dt.date(1969, 3, 2))
INSTANTS = (
    dt.datetime(2024, 2, 29, 3, 5, 7, 50_040, dt.UTC),
    dt.datetime(2026, 12, 31, 23, 59, 59, 999_000, dt.UTC),
    dt.datetime(1969, 3, 2, 12, tzinfo=dt.UTC),
)

OF_NUMBERS = (
    "floor ceil ceiling round rint sign signum % abs negative sqrt exp ln log log10 log2 pow power greatest least"
)
OF_TEXTS = (
    "upper lower ucase lcase length char_length character_length octet_length trim btrim ltrim rtrim substring substr left right "
    "replace reverse repeat instr lpad rpad concat concat_ws startswith endswith contains like rlike"
)
OF_TIMES = (
    "year quarter month day dayofmonth dayofyear dayofweek weekday weekofyear hour minute second last_day date_trunc date_add "
    "date_sub datediff date_diff to_date unix_date unix_seconds unix_millis"
)

BY_FUNCTION: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(OF_NUMBERS.split(), NUMBERS),
    **dict.fromkeys(OF_TEXTS.split(), TEXTS),
    **dict.fromkeys(OF_TIMES.split(), (*DAYS, *INSTANTS)),
}
"""The telling values by the identity of a function, of any of the types of its operands."""

READ: dict[type[t.DataType], tuple[str, ...]] = {
    **dict.fromkeys((t.ByteType, t.ShortType, t.IntegerType, t.LongType), ("12", " -3 ", "+7")),
    **dict.fromkeys((t.FloatType, t.DoubleType, t.DecimalType), ("12", " -2.5 ", "1e2", ".125")),
    t.BooleanType: ("true", " F ", "y", "0"),
    t.DateType: ("2024-02-29", " 2026-3-1", "2026-12"),
}
"""Texts that a cast to a type can read."""


def telling_values(expr: Expr) -> Iterator[Any]:
    """Yield, for each call and cast in an expression, values of all types that its operands may have."""
    for below in expression_nodes(expr):
        if isinstance(below, Call):
            yield from BY_FUNCTION.get(below.function.identity, ())
        elif isinstance(below, Cast):
            yield from (*NUMBERS, *DAYS, *INSTANTS, *READ.get(type(below.type), ()))


MOST_LITERALS = 6
"""The greatest number of values of one type that are taken from a query's literals."""


@dataclass(frozen=True)
class Uses:
    """The source columns that a plan computes with, and those that it only sums.

    The generators avoid the extreme values of a type in such columns: computing with them overflows or rounds, so that several
    answers are right. ``sees_bits``: the plan may give different results for equal values, such as 0.0 and -0.0.
    ``may_overflow``: a sum may be one that does not fit.
    """

    computed: frozenset[str]
    summed: frozenset[str]
    sees_bits: bool = False
    may_overflow: bool = False


def uses(plan: Node) -> Uses:
    """Return the source columns that a plan computes with or sums.

    If one of the two sets has a name that no source has, its origin is unknown, and all source columns are in that set.
    """
    there = frozenset(f.name for n in nodes(plan) if isinstance(n, Source) for f in n.payload)
    computed: set[str] = set()
    summed: set[str] = set()
    sees_bits = bool(called_modules(plan))
    for node in nodes(expanded(plan)):
        for expr in expressions(node):
            computed |= _computing(expr)
            sees_bits |= _sees_bits(expr)
        for _, a in node.aggregates if isinstance(node, WindowAggregate) else ():
            names = frozenset[str]().union(*(columns(arg) for arg in a.args))
            computes = a.function.drawing.computes
            if computes != Computation.NOTHING:
                (summed if computes == Computation.A_SUM else computed).update(names)

    def lineage(names: set[str]) -> frozenset[str]:
        return frozenset(names) if names <= there else there

    return Uses(lineage(computed), lineage(summed), sees_bits)


def _sees_bits(expr: Expr) -> bool:
    """True if an expression may tell equal values apart: a pyspark Column, a cast to text, a function of the sign of zeros."""
    return is_opaque(expr) or any(
        isinstance(part.type, t.StringType)
        if isinstance(part, Cast)
        else isinstance(part, Call) and part.function.identity in SIGN_OF_ZERO
        for part in parts_of(expr)
    )


SIGN_OF_ZERO = frozenset({"atan2", "concat", "concat_ws", "format_string", "pow", "power", "to_json"})
"""Functions whose result may differ between -0.0 and 0.0, or the orders of a map."""


def _computing(expr: Expr) -> set[str]:
    """Return the columns that an expression computes with; a pyspark Column, which cannot be inspected, adds the name "".

    CASE, functions that only select among values, and aggregates do not compute with their operands.
    """
    names: set[str] = {""} if is_opaque(expr) else set()
    for below in parts_of(expr):
        plain = isinstance(below, Col | Lit | Case | Alias | Aggregate)
        if not plain and not (isinstance(below, Call) and below.function.selects):
            names |= columns(below)
    return names


NO_USES = Uses(frozenset(), frozenset())


def near(plan: Node) -> list[Any]:
    """Return constants near which a plan's expressions change: its literals and, for casts to integers, the type's bounds.

    At most MOST_LITERALS of each Python type are returned, without repetitions. Behind them come, as many, the values that tell
    the plan's functions and casts from others.
    """
    every = nodes(expanded(plan))
    constants = _some(value for node in every for value in (*_bounds_of_casts(node), *literals(node)))
    telling = _some(value for node in every for expr in expressions(node) for value in telling_values(expr))
    return list({repr(value): value for value in (*constants, *telling)}.values())


def _some(values: Iterable[Any]) -> list[Any]:
    """Return at most MOST_LITERALS values of each Python type, the first ones, without repetitions."""
    by_kind: dict[type, dict[str, Any]] = {}
    for value in values:
        by_kind.setdefault(type(value), {}).setdefault(repr(value), value)
    return [v for kind in by_kind.values() for v in list(kind.values())[:MOST_LITERALS]]


def _bounds_of_casts(node: Node) -> Iterator[float]:
    """Yield, for each cast to an integral type, a float at the upper end and one at the lower end of the values it accepts.

    The type that is cast does not count.
    """
    for expr in expressions(node):
        for below in parts_of(expr):
            if isinstance(below, Cast) and type(below.type) in BITS:
                bound = 2.0 ** (BITS[type(below.type)] - 1)
                # a cast truncates, so the greatest integer plus a fraction still fits; for bigint the sum rounds to the bound
                yield from (bound - 0.5, -bound - 0.5)


COPIES = 512
"""The number of copies of a great value whose sum fits: joins, unions and overlapping windows add an event several times."""

WIDENED = 28
"""The greatest precision of decimals whose sums have ten digits more."""

FEW = 3
"""A type with at most this many values is never reduced to fewer."""


def column(f: Field, intent: Intent, compared: Sequence[Any] = ()) -> list[Any] | st.SearchStrategy[Any]:
    """Return the values that a payload column is drawn from: those of the intent, unchanged, else plain values of its type.

    The plainest come first, to which examples shrink; values near ``compared`` are among them, and NULL unless it is forbidden.
    With skew, the first is repeated many times.
    """
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
    """Return the strategy for payloads with these columns."""
    return _payloads({f.name: column(f, intent, compared) for f in fields})


@st.composite
def palettes(
    draw: Draw, fields: Iterable[Field], intent: Intent, compared: Sequence[Any] = (), used: Uses = NO_USES
) -> st.SearchStrategy[dict[str, Any]]:
    """Draw the strategy for the payloads of one source: for each column all plain values of its type, or only a few.

    The few are the first values of the type, so that two sources have some in common, one other, those beside a constant that the
    query compares with, and NaN if the type has it, of columns that the query computes with or sums in half of the draws. Edge
    cases may be added; a column that the query computes with has none. A column that it sums has a part of one at most, in the
    first event only, so small that the sums of its copies fit; if they may overflow, seldom half of one, or the least and the
    greatest value in the first events, which overflow together with others, and not all together.
    """
    chosen: dict[str, list[Any] | st.SearchStrategy[Any]] = {}
    first: dict[str, list[Any]] = {}
    if intent.skew is None:
        intent = intent.but(skew=draw(st.sampled_from([False] * 5 + [True])))
    for f in fields:
        if f.name in intent.payload:
            chosen[f.name] = column(f, intent, compared)
            continue
        values = pool(f.type, intent, compared)
        ends = [] if f.name in used.computed else odd(f.type, intent)
        if f.name in used.summed:
            if ends and is_exact(f.type):
                great = [[part(end, _parts(f.type))] for end in ends]
                halves = [[part(end, 2)] for end in ends] if used.may_overflow else great
                overflowing = [*([end] for end in ends), [*ends, *ends], ends[::-1]] if used.may_overflow else great
                # one case in twenty overflows, and two more if the sum has copies of a half
                choices: list[list[list[Any]]] = [*[[[]]] * 10, *[great] * 7, halves, halves, overflowing]
                first[f.name] = draw(st.sampled_from(draw(st.sampled_from(choices))))
            ends = []
        few = draw(st.sampled_from([None, 1, 2])) if len(values) > FEW else None
        others = draw(st.lists(st.sampled_from(ends), max_size=2, unique_by=repr)) if ends else []
        if few is not None:
            # a NaN hides all other values of a sum, so it is left out of half of the summed columns
            added = f.name in used.computed | used.summed
            nan = [v for v in values[few:] if v != v and (not added or draw(st.booleans()))]
            values = [*values[:few], *nan, *(others[:1] or [draw(st.sampled_from(values[few:]))])]
            # else conditions would hold for few events, or for all of them
            near = [there for constant in compared if (there := beside(constant, f.type))]
            values += draw(st.sampled_from(near)) if near else []
        values = distinct([*values, *others])
        if intent.nulls == MOSTLY:
            # windows and groups have nothing but NULLs, in all columns or in one
            values = draw(st.sampled_from([[None], [*values[:1], *[None] * 4], values]))
        elif intent.nulls is not False and (few is None or draw(st.sampled_from([True, True, False]))):
            # now and then half of the values are NULL, so that some windows and groups have nothing else
            many = draw(st.sampled_from([1, 1, 1, len(values)]))
            values = [*values[:2], *[None] * many, *values[2:]]
        chosen[f.name] = _skewed(values, intent)
    return _with(_payloads(chosen), first)


def _parts(kind: t.DataType) -> int:
    """Return into how many parts the greatest value of a type is divided, so that sums of copies of one fit their type."""
    is_widened = isinstance(kind, t.ByteType | t.ShortType | t.IntegerType)
    is_widened |= isinstance(kind, t.DecimalType) and kind.precision <= WIDENED
    return 1 if is_widened else COPIES


def _with(
    payloads: st.SearchStrategy[dict[str, Any]], first: Mapping[str, Sequence[Any]]
) -> st.SearchStrategy[dict[str, Any]]:
    """Return the strategy with the values in ``first`` for columns of the first payloads that it draws, one in each."""
    if not any(first.values()):
        return payloads
    left = {name: iter(values) for name, values in first.items()}
    return payloads.map(lambda payload: {**payload, **{name: v for name, it in left.items() for v in islice(it, 1)}})


def _payloads(columns: Mapping[str, list[Any] | st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return the strategy for payloads, given the values of each column or the strategy for them."""
    strategies = {
        n: st.sampled_from(choices) if isinstance(choices, list) else choices for n, choices in columns.items()
    }
    # fixed_dictionaries does not keep the order of the columns
    return st.fixed_dictionaries(strategies).map(lambda drawn: {name: drawn[name] for name in strategies})


def static(name: str) -> pa.Table:
    """Return a table of values of the type of this name: plain ones, edge cases, a repeated one, one in other bits, and NULL."""
    kind = fields_of(f"name {name}")[0].type
    values = pool(kind, ANYTHING)
    chosen = [twin(values[0]), *values[:2], None, *values[-2:], *odd(kind, ANYTHING)[:2]]
    sizes = pa.array([i or None for i in range(len(chosen))], pa.int64())
    return pa.table({"name": pa.array(chosen, arrow_type(kind)), "size": sizes})
