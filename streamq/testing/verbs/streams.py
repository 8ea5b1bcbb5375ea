"""Read the verbs of a stream: over the payload, over lifetimes, and over two streams."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as t

from streamq.choices import Anchor, JoinKind, LengthKind
from streamq.errors import column_names
from streamq.operators import (
    AlterLifetime,
    Chop,
    Clip,
    DistinctIds,
    Except,
    Explode,
    Join,
    JoinTable,
    LastRows,
    Select,
    ToSignal,
    Union,
    Where,
    WindowedJoin,
)
from streamq.operators.input_table import source_name, static_table
from streamq.operators.lifetime_change import Length, Start, instant_as_ticks, length_of
from streamq.patterns.pattern_tree import Type
from streamq.patterns.syntax import Part
from streamq.plan.expr import Cast, Col, Expr, Lifetime, Lit
from streamq.plan.node import Node
from streamq.plan.passes import aggregates, infer
from streamq.testing.verbs.expressions import outputs, over
from streamq.testing.verbs.joins import Pair, keys
from streamq.testing.verbs.pieces import Piece
from streamq.testing.verbs.windows import Groups, Windowable
from streamq.time import TIMESTAMP
from streamq.windows import Hopping, Rows


@dataclass(frozen=True)
class Events(Windowable):
    """A stream, with the plan that its verbs mean."""

    plan: Node
    keys = ()

    def of(self, plan: Node) -> Events:
        """Return the stream with another plan."""
        return Events(plan)

    _events = of

    def _selected(self, columns: Mapping[str, Any]) -> Events:
        schema = self.plan.schema
        return self.of(Select(self.plan, tuple((name, over(value, schema)) for name, value in columns.items())))

    # the payload

    def where(self, predicate: Any) -> Events:
        return self.of(Where(self.plan, over(predicate, self.plan.schema)))

    filter = where

    def select(self, *columns: Any, **named_columns: Any) -> Events:
        """Compute a column each; aggregates over pairs of windows, or over last rows, are those of the windows they imply."""
        values = [over(column, self.plan.schema) for column in (*columns, *named_columns.values())]
        windows = self.implied_windows()
        if windows is not None and any(map(aggregates, values)):
            return windows.select(*columns, **named_columns)
        return self._selected(dict(outputs(columns, named_columns)))

    def with_columns(self, **named_columns: Any) -> Events:
        """Replace columns of the same name in place, and append the others."""
        return self._selected({name: Col(name) for name in self.plan.schema.names} | named_columns)

    def drop(self, *names: str) -> Events:
        return self._selected({name: Col(name) for name in self.plan.schema.names if name not in names})

    def rename(self, names: Mapping[str, str] | None = None, **more: str) -> Events:
        change = {**(names or {}), **more}
        return self._selected({change.get(name, name): Col(name) for name in self.plan.schema.names})

    def explode(self, column: str, *, flatten: bool = False) -> Events:
        return self.of(Explode(self.plan, column, flatten))

    def distinct_ids(self, within: Any, *, id: Any) -> Events:
        return self.of(DistinctIds(self.plan, column_names(id, "distinct_ids", "the id"), self.ticks(within)))

    def group_by(self, *names: str, **named_keys: Any) -> Groups:
        """Make computed keys columns of the stream."""
        return Groups(self.with_columns(**named_keys) if named_keys else self, (*names, *named_keys))

    # lifetimes

    def _altered(self, start: Start, length: Length) -> Events:
        return self.of(AlterLifetime(self.plan, start, length))

    def shift(self, by: Any) -> Events:
        return self._altered(Start(by=self.ticks(by)), Length())

    def extend(self, by: Any) -> Events:
        return self._altered(Start(), Length(by=self.ticks(by)))

    def to_points(self) -> Events:
        return self._altered(Start(), Length(LengthKind.FIXED, 1))

    def to_points_at_end(self) -> Events:
        return self._altered(Start(Anchor.RE), Length(LengthKind.FIXED, 1))

    def set_duration(self, duration: Any) -> Events:
        """Set the duration; None gives endless lifetimes."""
        for_ever = Length(LengthKind.GIVEN, 0, Cast(Lit(None), t.LongType()))
        return self._altered(Start(), for_ever if duration is None else self._length(duration))

    def alter_lifetime(self, start: Any = None, duration: Any = None, *, within: Any = None) -> Events:
        return self._altered(self._start(start, within), self._length(duration))

    def _start(self, start: Any, within: Any) -> Start:
        """Return the start of ``alter_lifetime``; the event's own start or end need no expression, nor ``within``."""
        if start is None:
            return Start()
        expression, axis = over(start, self.plan.schema), self.plan.schema.axis
        match expression:
            case Lifetime(part="start"):
                return Start()
            case Lifetime(part="end"):
                return Start(Anchor.RE)
        kind = infer(expression, self.plan.schema, "alter_lifetime")
        at = instant_as_ticks(expression, kind) if axis == TIMESTAMP else _as_long(expression, kind)
        return Start(Anchor.GIVEN, 0, at, None if within is None else self.ticks(within))

    def _length(self, duration: Any) -> Length:
        """Return the duration of ``alter_lifetime``: the event's own, a constant, or an expression in ticks."""
        if duration is None:
            return Length()
        if isinstance(duration, str | int | dt.timedelta):
            return Length(LengthKind.FIXED, self.ticks(duration))
        expression = over(duration, self.plan.schema)
        if isinstance(expression, Lifetime) and expression.part == "duration":
            return Length()
        kind = infer(expression, self.plan.schema, "alter_lifetime")
        if isinstance(kind, t.DayTimeIntervalType):
            # the product converts intervals to ticks here
            return length_of(expression, self.plan)
        return Length(LengthKind.GIVEN, 0, _as_long(expression, kind))

    def to_signal(self, key: Any = (), *, order_by: Any = ()) -> Events:
        order = column_names(order_by, "to_signal", "order_by")
        return self.of(ToSignal(self.plan, column_names(key, "to_signal", "the key"), order))

    def last_rows(self, n: Any, step: Any = 1, *, key: Any = (), order_by: Any = ()) -> Events:
        """Return the members of the latest rows window, of the stream or of each key."""
        window = Rows(n, step, column_names(order_by, "last_rows", "order_by"))
        return self.of(LastRows(self.plan, column_names(key, "last_rows", "the key"), window))

    def chop(self, period: Any, offset: Any = 0) -> Events:
        return self.of(Chop(self.plan, self.ticks(period), self.ticks(offset)))

    # two streams

    def union(self, *others: Events) -> Events:
        return self.of(Union((self.plan, *(other.plan for other in others))))

    def except_(self, other: Events) -> Events:
        return self.of(Except(self.plan, other.plan))

    def clip(self, by: Events, on: Any = ()) -> Events:
        return self.of(Clip(self.plan, by.plan, keys(on)))

    def join(
        self, other: Events, on: Any = (), where: Any = None, how: str = "inner", *, suffixes: Any = None
    ) -> Events:
        """Return the join by ``how``; an inner one has the pairs with equal keys that live at once and fulfil the condition."""
        pair = Pair(self.plan, other.plan, keys(on), suffixes)
        return self.of(
            Join(
                pair.left,
                pair.right,
                pair.on,
                pair.condition(where),
                JoinKind(how),
                left_names=pair.left_names,
                right_names=pair.right_names,
            )
        )

    def left_anti_join(self, other: Events, on: Any = (), where: Any = None) -> Events:
        return self.join(other, on, where, "anti")

    def windowed_join(
        self,
        other: Events,
        on: Any = (),
        *,
        size: Any = None,
        hop: Any = None,
        offset: Any = 0,
        rows: Any = None,
        step: Any = 1,
        order_by: Any = (),
        where: Any = None,
        suffixes: Any = None,
    ) -> Events:
        """Return the pairs of members of each window, once for each; without a ``hop``, windows are tumbling.

        Of ``rows`` these are the pairs of the members of both streams' latest windows.
        """
        if rows is not None:
            ours, theirs = (side.last_rows(rows, step, order_by=order_by) for side in (self, other))
            return ours.join(theirs, on, where, suffixes=suffixes)
        pair = Pair(self.plan, other.plan, keys(on), suffixes)
        grid = Hopping(self.ticks(size), self.ticks(size if hop is None else hop), self.ticks(offset))
        return self.of(
            WindowedJoin(
                pair.left,
                pair.right,
                grid,
                pair.on,
                pair.condition(where),
                left_names=pair.left_names,
                right_names=pair.right_names,
            )
        )

    def join_table(
        self, table: Any, on: Any, how: str = "inner", *, suffixes: Any = None, name: str | None = None
    ) -> Events:
        """Look up a static table; leave out its keys with the name of their stream key; other names that clash get a suffix."""
        columns, pairs = static_table(table).columns, keys(on)
        lowered = {one.lower() for one in self.plan.schema.names}
        beside = [f.name for f in columns if (f.name, f.name) not in pairs]
        names = tuple((one, one + suffixes[1] if one.lower() in lowered else one) for one in beside)
        return self.of(JoinTable(self.plan, source_name(name), columns, pairs, JoinKind(how), names))

    # patterns

    def alias(self, name: str) -> Piece:
        return Piece(Part(Type(name), name), {name: self})


def _as_long(expression: Expr, kind: t.DataType) -> Expr:
    return expression if isinstance(kind, t.LongType) else Cast(expression, t.LongType())


__all__ = ["Events"]
