"""Occurrences: events that are equal in start and payload are told apart by numbers, and those of a scope are counted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from functools import reduce

from streamq.aggregates.counts import count
from streamq.choices import JoinKind, LengthKind
from streamq.functions.catalogue import by_name
from streamq.functions.choice import COALESCE
from streamq.functions.structures import SEQUENCE
from streamq.operators.instants import instant_ticks
from streamq.operators.join import Join
from streamq.operators.lifetime_change import Length, Start
from streamq.patterns.conditions import Conjunct, condition_on
from streamq.patterns.matches import Matches, all_of, altered, filtered, so_many
from streamq.plan.expr import Call, Col, Expr, Lit
from streamq.plan.lifetime import Lifetime
from streamq.plan.passes import rewrite
from streamq.plan.schema import Field, Schema
from streamq.stream import Stream
from streamq.time import TIMESTAMP, Duration

ORDINAL, NUMBER = "@.ordinal", "@.number"
OTHER = "~"
"""What the columns of another event of the same patterns are called behind, in a join with it."""


def numbered(points: Stream, to: str) -> Stream:
    """Points with a number: those that are equal in start and payload get 0, 1, 2, ..."""
    names = points.columns
    counted = points.group_by(*names).tumbling_window(_a_tick(points)).select(**{to: count()})
    ordinals = counted.with_columns(**{to: Call(SEQUENCE, (so_many(0), Col(to) - so_many(1)))})
    return ordinals.explode(to).select(*names, to)


def event_id(name: str, fields: Sequence[str], schema: Schema) -> Expr:
    """What tells an event of a type from all others: the type, its start, its payload and its number among equal ones.

    Texts have their lengths before them, so that no two events have one id.
    """
    starts = instant_ticks(Lifetime("start"), schema.axis_type)
    parts: list[Expr] = [Lit(f"{name} "), starts.cast("string"), Lit(" "), Col(ORDINAL).cast("string")]
    for name_of_field in fields:
        text = Col(name_of_field).cast("string")
        length = Call(by_name("length"), (text,)).cast("string")
        parts.append(Call(COALESCE, (Call(by_name("concat"), (Lit(" "), length, Lit(":"), text)), Lit(" -"))))
    return Call(by_name("concat"), tuple(parts))


def match_id(operator: str, ids: Sequence[Expr], starts: Expr) -> Expr:
    """What tells a match of an operator from all others: the ids of its contributors; NULL where there is no match."""
    listed = Call(by_name("concat_ws"), (Lit(", "), *ids))
    return Call(
        by_name("nvl2"),
        (starts, Call(by_name("concat"), (Lit(f"{operator} ("), listed, Lit(")"))), Lit(None).cast("string")),
    )


def few(
    one: Matches, parts: Sequence[Matches], conjuncts: Sequence[Conjunct], most: int, scope: int, keys: Sequence[str]
) -> Stream:
    """The events of some parts with at most so many of all parts in the scope that ends with them, themselves among these.

    Of these those count for which the conditions hold together with the event, and whose ``keys`` equal its own.
    """
    names = one.stream.columns
    events = numbered(one.stream, ORDINAL)
    others = altered(events, Start(), Length(LengthKind.FIXED, scope))
    rest = [n for n in others.columns if n not in keys]
    fields = [*events.schema.fields, *(Field(n + OTHER, others.schema.type_of(n)) for n in rest)]
    schema = events.schema.with_fields(fields)
    conditions = [c for conjunct in conjuncts for c in _of_two(conjunct, one, parts, schema)]
    pairs = Join(
        events.plan,
        others.plan,
        on=tuple((k, k) for k in keys),
        where=all_of(conditions),
        how=JoinKind.INNER,
        left_names=tuple((n, n) for n in events.columns),
        right_names=tuple((n, n + OTHER) for n in rest),
    )
    counted = (
        events._derive(pairs).group_by(*names, ORDINAL).tumbling_window(_a_tick(one.stream)).select(**{NUMBER: count()})
    )
    uncrowded = filtered(counted, [Col(NUMBER) <= so_many(most)]).select(*names)
    if not keys:
        return uncrowded
    # NULL equals nothing, so an event without a key meets no other, nor itself
    without_key = [reduce(lambda a, b: a | b, [Col(k).is_null() for k in keys])]
    return uncrowded.union(filtered(one.stream, without_key).select(*names))


def _a_tick(stream: Stream) -> Duration:
    return dt.timedelta(microseconds=1) if stream.schema.axis == TIMESTAMP else 1


def _of_two(conjunct: Conjunct, one: Matches, parts: Sequence[Matches], schema: Schema) -> Iterator[Expr]:
    """A condition on the events of two parts, once for either of them as the other event; on those of more it is skipped."""
    owners = [p for p in parts if conjunct.names & set(p.events)]
    if len(owners) != 2:
        return
    for other in owners:
        own = set(other.stream.columns)

        def of_other(column: Expr, own: set[str] = own) -> Expr | None:
            return Col(column.name + OTHER) if isinstance(column, Col) and column.name in own else None

        yield rewrite(condition_on(conjunct, one.variables, schema, one.optional), of_other)


__all__ = ["ORDINAL", "OTHER", "event_id", "few", "match_id", "numbered"]
