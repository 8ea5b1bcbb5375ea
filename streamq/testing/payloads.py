"""Values of payload columns: few and close together, so that keys meet and conditions hold for some, with the special ones."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.compiler.plan import Node, nodes
from streamq.errors import PlanError, sentence
from streamq.schema import Field
from streamq.testing.intent import Intent
from streamq.testing.scale import literals

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MOST_LITERALS = 6
"""How many values of a type are taken from a query's own literals."""
FEW = 3
"""A column of so many values, or fewer, has them all in every case."""


def pool(kind: t.DataType, intent: Intent, compared: Sequence[Any] = ()) -> list[Any]:
    """The values of a type that an intent allows, and ``compared``, values that a query compares with; no NULL among them.

    Floats are few quarters, so that their sums are exact in any order.
    """
    match kind:
        case t.BooleanType():
            made: list[Any] = [True, False]
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            made = [0, 1, 2, 3, 7, -4]
            made += [v + by for v in compared if isinstance(v, int) and not isinstance(v, bool) for by in (0, 1, -1)]
        case t.FloatType() | t.DoubleType():
            made = [0.0, 1.0, 1.5, -2.25, 7.0, -0.0]
            made += [float(v) for v in compared if isinstance(v, int | float | Decimal) and not isinstance(v, bool)]
            made += [float("nan")] * (intent.nan is not False)
            made += [float("inf"), float("-inf")] * (intent.infinities is not False)
        case t.DecimalType():
            unit = Decimal(1).scaleb(-kind.scale)
            most = Decimal(10) ** (kind.precision - kind.scale) - unit
            made = [v for v in (unit * 0, unit, unit * 100, unit * -250, unit * 333) if abs(v) <= most]
            made += [v.quantize(unit) for v in compared if isinstance(v, Decimal) and abs(v) <= most]
        case t.StringType():
            made = ["a", "b", "c", ""]
            made += [v for v in compared if isinstance(v, str)]
            made += ["ß", "日本", "e\u0301"] * (intent.unicode is not False)
        case t.BinaryType():
            made = [b"", b"a", b"\x00\xff"]
        case t.DateType():
            made = [dt.date(1970, 1, 1), dt.date(1970, 1, 2), dt.date(1969, 12, 31)]
            made += [v for v in compared if isinstance(v, dt.date) and not isinstance(v, dt.datetime)]
        case t.TimestampType():
            made = [EPOCH, EPOCH + dt.timedelta(seconds=1), EPOCH - dt.timedelta(microseconds=1)]
            made += [v if v.tzinfo else v.replace(tzinfo=dt.UTC) for v in compared if isinstance(v, dt.datetime)]
        case t.TimestampNTZType():
            made = [EPOCH.replace(tzinfo=None), EPOCH.replace(tzinfo=None) + dt.timedelta(seconds=1)]
        case t.DayTimeIntervalType():
            made = [dt.timedelta(0), dt.timedelta(seconds=1), dt.timedelta(days=1)]
        case t.ArrayType():
            inner = pool(kind.elementType, intent, compared)
            made = [[], [*inner[:1], None], inner[:3]] if intent.nulls is not False else [[], inner[:1], inner[:3]]
        case t.MapType():
            keys, inner = pool(kind.keyType, intent, compared), pool(kind.valueType, intent, compared)
            least = inner[0] if intent.nulls is False else None
            made = [[], [(keys[0], inner[0])], list(zip(keys[:2], [inner[-1], least], strict=False))]
        case t.StructType():
            parts = [(f.name, pool(f.dataType, intent, compared)) for f in kind.fields]
            made = [{name: values[i % len(values)] for name, values in parts} for i in range(3)]
        case _:
            what = f"no values of type {kind.simpleString()}"
            raise PlanError(sentence("Intent", what, "", "Give them: Intent(payload={'column': [...]})."))
    return list({repr(v): v for v in made}.values())


def column(f: Field, intent: Intent, compared: Sequence[Any] = ()) -> list[Any] | st.SearchStrategy[Any]:
    """The values of a payload column, the plainest first: examples shrink towards it."""
    if f.name in intent.payload:
        given = intent.payload[f.name]
        return given if isinstance(given, st.SearchStrategy) else list(given)
    found = pool(f.type, intent, compared)
    if intent.nulls is not False:
        found = [*found[:2], None, *found[2:]]
    return found[:1] * (3 * len(found)) + found if intent.skew else found


def rows(fields: Iterable[Field], intent: Intent, compared: Sequence[Any] = ()) -> st.SearchStrategy[dict[str, Any]]:
    """Payloads: a value a column."""
    return _payloads({f.name: column(f, intent, compared) for f in fields})


@st.composite
def palettes(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    fields: Iterable[Field],
    intent: Intent,
    compared: Sequence[Any] = (),
) -> st.SearchStrategy[dict[str, Any]]:
    """What the payloads of one source are drawn from: all values of a column, or so few that events agree in them.

    The few are the first of the column and one other, so that those of two sources have some in common.
    """
    chosen: dict[str, list[Any] | st.SearchStrategy[Any]] = {}
    if intent.skew is None:
        intent = intent.but(skew=draw(st.sampled_from([False] * 5 + [True])))
    for f in fields:
        found = column(f, intent, compared)
        few = draw(st.sampled_from([None, 1, 2])) if isinstance(found, list) and len(found) > FEW else None
        if few is not None and isinstance(found, list):
            found = [*found[:few], draw(st.sampled_from(found[few:]))]
        chosen[f.name] = found
    return _payloads(chosen)


def _payloads(columns: Mapping[str, list[Any] | st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    made = {n: st.sampled_from(found) if isinstance(found, list) else found for n, found in columns.items()}
    # in the columns' order, which the strategy does not keep
    return st.fixed_dictionaries(made).map(lambda drawn: {name: drawn[name] for name in made})


def near(plan: Node) -> list[Any]:
    """Values that a plan's expressions compare with, some of each type."""
    by_kind: dict[type, dict[str, Any]] = {}
    for node in nodes(plan):
        for value in literals(node):
            by_kind.setdefault(type(value), {}).setdefault(repr(value), value)
    return [v for values in by_kind.values() for v in list(values.values())[:MOST_LITERALS]]


__all__ = ["column", "near", "palettes", "pool", "rows"]
