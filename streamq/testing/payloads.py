"""Hypothesis strategies for payloads: each column has all plain values of its type, or so few that events often agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.plan.schema import Field
from streamq.testing.column_uses import NO_USES, Uses
from streamq.testing.intent import MOSTLY, Intent
from streamq.testing.payload_types import Draw, is_exact
from streamq.testing.payload_values import distinct, odd, part, pool

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
    draw: Draw,
    fields: Iterable[Field],
    intent: Intent,
    compared: Sequence[Any] = (),
    used: Uses = NO_USES,
) -> st.SearchStrategy[dict[str, Any]]:
    """Draw the strategy for the payloads of one source: for each column all plain values of its type, or only a few.

    The few are the first values of the type, so that two sources have some in common, one other, and NaN if the type has it, of
    columns that the query computes with or sums in half of the draws. Edge cases may be added; a column that the query
    computes with has none. A column that it sums has a part of one at most, in the first event only, so small that the sums of
    its copies fit; if they may overflow, seldom half of one, or the least and the greatest value in the first events, which
    overflow together with others, and not all together.
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


__all__ = ["column", "palettes", "rows"]
