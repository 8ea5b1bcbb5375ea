"""Ids of events and matches; numbers tell events of equal start and payload apart."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from streamq.aggregates.counts import count
from streamq.functions.builder import builder
from streamq.functions.catalogue import function_of
from streamq.functions.id_text import IdText
from streamq.functions.structures import SEQUENCE
from streamq.operators.tick_expressions import instant_as_ticks
from streamq.patterns.matches import tick_count
from streamq.patterns.pattern_tree import Type
from streamq.patterns.source_text import Refusal
from streamq.plan.expr import Call, Col, Expr, Lit
from streamq.plan.keys import has_equality
from streamq.plan.lifetime import Lifetime
from streamq.plan.schema import Schema
from streamq.stream import Stream
from streamq.time import TIMESTAMP, Duration

ORDINAL = "@.ordinal"
"""The column of the number of an event among equal ones."""


def number_points(points: Stream, to: str) -> Stream:
    """Add a column ``to`` that numbers points of equal start and payload: 0, 1, 2, ..."""
    names = points.columns
    counted = points.group_by(*names).tumbling_window(_a_tick(points)).select(**{to: count()})
    ordinals = counted.with_columns(**{to: Call(SEQUENCE, (tick_count(0), Col(to) - tick_count(1)))})
    return ordinals.explode(to).select(*names, to)


def event_id(name: str, fields: Sequence[str], schema: Schema) -> Expr:
    """Return the id of an event: its type, start, payload and number among equal ones.

    ``name`` is that of the type, ``fields`` its payload; the number is in the column that :func:`number_points` adds. The length
    of a text stands before it, and so does that of a name that is no plain word, so no two events have one id.
    """
    name = name if name.isidentifier() else f"{len(name)}:{name}"
    starts = instant_as_ticks(Lifetime("start"), schema.axis_type)
    parts: list[Expr] = [Lit(f"{name} "), starts.cast("string"), Lit(" "), Col(ORDINAL).cast("string")]
    parts += [Call(IdText(schema.type_of(field)), (Col(field),)) for field in fields]
    return Call(function_of("concat"), tuple(parts))


def check_identified(pattern: Type, fields: Sequence[str], schema: Schema) -> None:
    """Raise Refusal for a type with a field whose values have no equality, because ids are made of all fields."""
    for field in fields:
        if not has_equality(schema.type_of(field)):
            observed = f"found {schema.type_of(field).simpleString()} in {field!r}"
            hint = "Leave it out of the stream, by select."
            raise Refusal(
                pattern.place, f"no ids of {pattern.name!r}: values of a field are not compared", observed, hint
            )


def match_id(operator: str, ids: Sequence[Expr], starts: Expr) -> Expr:
    """Return the id of a match: its operator and the ids of its contributors; NULL where ``starts`` is, as there is no match.

    An id that is NULL is left out.
    """
    listed = builder("concat_ws")(", ", *ids)
    return Call(
        function_of("nvl2"),
        (starts, Call(function_of("concat"), (Lit(f"{operator} ("), listed, Lit(")"))), Lit(None).cast("string")),
    )


def placed_id(place: int, id: Expr) -> Expr:
    """Return the id of a contributor with the number of its part, from 1; NULL where the match has none there."""
    return Call(function_of("concat"), (Lit(f"{place}: "), id))


def _a_tick(stream: Stream) -> Duration:
    return dt.timedelta(microseconds=1) if stream.schema.axis == TIMESTAMP else 1


__all__ = ["ORDINAL", "check_identified", "event_id", "match_id", "number_points", "placed_id"]
