"""What a query asks of its data: lengths of time, so that events lie in and between its windows, and meetings of events."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql.types import DataType

from streamq.functions.logic import EQUAL, conjuncts
from streamq.operators import Source, Where
from streamq.plan.expr import Call, Col, Expr, Lit
from streamq.plan.expr import fold as fold_expr
from streamq.plan.node import Node, expanded, expressions, nodes
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.testing.arrival import EPOCH, Bounds, Scale, tick
from streamq.testing.intent import Draw, Intent
from streamq.testing.payload_values import pool
from streamq.testing.window_kinds import room_of
from streamq.time import INFINITY
from streamq.windows import Window

if TYPE_CHECKING:
    from streamq.testing.intent import Pattern


SMALL = 16
"""A query whose lengths are all smaller is tested tick by tick."""

DENSE = 10
"""The greatest unit, in hops of the densest windows; greater ones would give millions of windows."""


MOST_HOPS = 25 * DENSE
"""The greatest length of the query, in hops of the densest windows, that is used as the length of a lifetime."""


def scale(plan: Node) -> Scale:
    """Return the scale of a query.

    Its units are a quarter of the finest, the middle and the coarsest length in the query; a step where lengths are below SMALL.
    Units of more than DENSE hops of the densest windows do not count. The anchor is the first instant in the query, else 0.
    """
    every = nodes(expanded(plan))
    query_lengths = [n for node in [*nodes(plan), *every] for n in (*lengths(node), *spans(node)) if n > 0]
    dense = [n for node in every for n in recurrences(node)]
    step = max((tick(n) for n in nodes(plan) if isinstance(n, Source)), default=1)
    # a length of one tick comes from points and is ignored if there are others
    query_lengths = [n for n in query_lengths if n > step] or query_lengths
    units = {max(step, n // 4 // step * step) if n >= SMALL else step for n in query_lengths}
    least = min(dense, default=INFINITY)
    units = {u for u in units if u <= least * DENSE} or {max(step, min(least, min(units, default=step)))}
    if all(n < SMALL for n in query_lengths):
        units = {step}
    ordered = sorted(units)
    middle = ordered[len(ordered) // 2]
    anchors = [n for node in every for n in _instants(node)]
    # the units of the finest, the middle and the coarsest length
    chosen = tuple(sorted({ordered[0], middle, ordered[-1]}))
    anchor = anchors[0] // step * step if anchors else 0
    exact = sorted({n // step * step for n in query_lengths if step <= n <= least * MOST_HOPS})
    reach = 13 * chosen[0] + sum(query_lengths)
    around = tuple(dict.fromkeys(of_node for node in every for of_node in bounds(node)))
    return Scale(anchor, chosen, step, reach=reach, lengths=tuple(exact), bounds=around)


@singledispatch
def lengths(node: Node) -> Iterator[int]:
    """Yield the lengths of time among a node's parameters; those of its window unless the node's room registers others."""
    window = getattr(node, "window", None)
    if isinstance(window, Window):
        yield from room_of(window).lengths(window)


@singledispatch
def recurrences(node: Node) -> Iterator[int]:
    """Yield the distances at which an endless lifetime gives row after row; its window's hop unless its room registers others."""
    window = getattr(node, "window", None)
    if isinstance(window, Window):
        yield from room_of(window).recurrences(window)


@singledispatch
def bounds(node: Node) -> Iterator[Bounds]:
    """Yield the bounds of a node's windows or pieces; those of its window unless the node's room registers others."""
    window = getattr(node, "window", None)
    if isinstance(window, Window):
        yield from room_of(window).bounds(window)


def literals(node: Node) -> list[Any]:
    """Return the constants in a node's expressions, in order, without repetitions; NULL and booleans are left out."""
    by_text: dict[str, Any] = {}

    def visit(expr: Expr, parts: list[None]) -> None:
        if isinstance(expr, Lit) and expr.value is not None and not isinstance(expr.value, bool):
            by_text.setdefault(repr(expr.value), expr.value)

    for expr in expressions(node):
        fold_expr(expr, visit)
    return list(by_text.values())


def spans(node: Node) -> Iterator[int]:
    """Yield the absolute values of the durations in a node's expressions, in ticks."""
    for value in literals(node):
        if isinstance(value, dt.timedelta):
            yield abs(value // dt.timedelta(microseconds=1))


def _instants(node: Node) -> Iterator[int]:
    """Yield the instants in a node's expressions and window, in ticks."""
    for value in literals(node):
        if isinstance(value, dt.datetime):
            yield ((value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - EPOCH) // dt.timedelta(microseconds=1)
    window = getattr(node, "window", None)
    if isinstance(window, Window):
        yield from room_of(window).instants(window, node.schema.axis)


# meetings


@dataclass(frozen=True)
class Meeting:
    """The streams whose events shall follow each other, and how closely.

    ``inputs``: the plans of the streams, in an order in which their events may come; ``scopes``: the lengths, in ticks, within
    which they shall follow each other; ``columns``: the columns in which events shall be equal.
    """

    inputs: tuple[Node, ...]
    scopes: tuple[int, ...]
    columns: frozenset[str]

    chances: ClassVar[tuple[bool, ...]] = (True, True, True, False)
    """One is drawn: True for a meeting, False for none."""

    def pattern(self, places: tuple[int, ...], least: int, scope: int, gap: int, scale: Scale) -> Pattern:
        """Return the lifetimes of the stream at these positions among the inputs."""
        return _CloseLifetimes(places, len(self.inputs), least, gap, scope, scale)


@dataclass(frozen=True)
class Visit(Meeting):
    """A meeting in which events of the first stream last long, and those of the others come and go meanwhile."""

    chances = (True, False)

    def pattern(self, places: tuple[int, ...], least: int, scope: int, gap: int, scale: Scale) -> Pattern:
        return _Visits(0 in places, least, scale)


@singledispatch
def meeting_of(node: Node) -> Meeting | None:
    """Return the meeting that gives a node results; None unless the node's room registers another answer."""
    return None


@st.composite
def meeting_intents(
    draw: Draw, plan: Node, intent: Intent, scale: Scale, compared: Sequence[Any]
) -> Mapping[str, Intent]:
    """Draw, for the sources of a plan's meetings, intents under which their events meet.

    Half of those draws in which they do not meet have equal values all the same. Returns the intents by table; none in the
    others, without a meeting, and if the intent has a pattern of its own.
    A source of several meetings gets the intent for the first.
    """
    meetings = [m for m in map(meeting_of, nodes(plan)) if m is not None and m.inputs]
    if not meetings or intent.pattern is not None:
        return {}
    is_close = draw(st.sampled_from(meetings[0].chances))
    if not is_close and draw(st.booleans()):
        return {}
    intents: dict[str, Intent] = {}
    for meeting in meetings:
        many = len(meeting.inputs)
        scope = draw(st.sampled_from(meeting.scopes or (scale.step,)))
        # with these gaps the first and the last event lie within a scope, or just beyond it
        gap = draw(st.sampled_from([scale.step, max(1, scope // max(1, many - 1)), max(1, scope // max(1, many - 2))]))
        gap = max(scale.step, gap // scale.step * scale.step)
        for source, places in _places(meeting).items():
            agreeing = _agreeing(source, meeting.columns, intent, compared)
            payload = {**_passing(meeting, source), **agreeing}
            least = min(2 * len(places) - 1, intent.events)
            pattern = meeting.pattern(places, least, scope, gap, scale) if is_close else None
            intents.setdefault(source.table, intent.but(payload=payload, pattern=pattern))
    return intents


def _places(meeting: Meeting) -> dict[Source, tuple[int, ...]]:
    """Return the sources of a meeting with the positions of the inputs that read them; several inputs may read one source."""
    places: dict[Source, tuple[int, ...]] = {}
    for place, plan in enumerate(meeting.inputs):
        for source in (n for n in nodes(plan) if isinstance(n, Source)):
            places[source] = (*places.get(source, ()), place)
    return places


def _passing(meeting: Meeting, source: Source) -> dict[str, Any]:
    """Return values by column that pass the inputs' filters: the constants that the inputs over a source equate columns with.

    Other conditions do not count, and a column without an equation is left out; so is a constant that the source's column cannot
    hold, because the equation is with another column of that name.
    """
    payload: dict[str, Any] = {}
    kinds = {f.name: f.type for f in source.payload}
    for plan in meeting.inputs:
        parts = nodes(plan)
        equations = [c for n in parts if source in parts and isinstance(n, Where) for c in conjuncts(n.predicate)]
        for equation in equations:
            match equation:
                case Call(function, (Col(name=name), Lit(value=value))) if function is EQUAL and name in kinds:
                    if _can_hold(kinds[name], value):
                        payload.setdefault(name, []).append(value)
    return payload


def _can_hold(kind: DataType, value: Any) -> bool:
    """True if a column of this type can hold a value."""
    try:
        pa.scalar(value, arrow_type(kind))
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        return False
    return True


def _agreeing(source: Source, names: Collection[str], intent: Intent, compared: Sequence[Any]) -> Mapping[str, Any]:
    """Return the intent's values by column, and for the source's other columns in ``names`` lists in which one value prevails."""
    payload = dict(intent.payload)
    for f in source.payload:
        if f.name in names and f.name not in payload:
            first, *others = pool(f.type, intent, compared)
            payload[f.name] = [first] * 5 + others[:1] + [None] * (intent.nulls is not False)
    return payload


@dataclass(frozen=True)
class _CloseLifetimes:
    """A temporal pattern: lifetimes that start some gaps after one instant, or a step beside that.

    The number of gaps is mostly one of ``places``, the stream's positions among the ``many`` inputs of the meeting; ``least`` is
    the least number of events, ``gap`` and ``scope`` are ticks.
    """

    places: tuple[int, ...]
    many: int
    least: int
    gap: int
    scope: int
    scale: Scale

    def __call__(self, random: Random, events: int) -> list[tuple[int, int | None]]:
        """Return start and end of each event in ticks (None: no end), in no order; ``events`` of them, at least ``least``."""
        spans = []
        for _ in range(max(self.least, events)):
            gaps = random.choice([random.choice(self.places), random.choice(self.places), random.randint(0, self.many)])
            start = self.scale.anchor + gaps * self.gap + random.choice([0, 0, 0, -1, 1]) * self.scale.step
            # a quarter of the events form a second group after the first
            start += random.choice([0, 0, 0, self.many * self.gap + self.scope])
            lasts = random.choice([self.scale.step, self.gap, self.scope, self.scope, None])
            spans.append((start, None if lasts is None else min(INFINITY - 1, start + lasts)))
        return spans


@dataclass(frozen=True)
class _Visits:
    """A temporal pattern: short lifetimes, at any of VISITS instants, and, if the stream is a ``host``, as many that last long.

    ``least`` is the least number of events.
    """

    is_host: bool
    least: int
    scale: Scale

    def __call__(self, random: Random, events: int) -> list[tuple[int, int | None]]:
        """Return start and end of each event in ticks (None: no end), in no order; ``events`` of them, at least ``least``."""
        spans: list[tuple[int, int | None]] = []
        unit, step = random.choice(self.scale.units), self.scale.step
        for number in range(max(self.least, events)):
            is_long = self.is_host and number % 2 == 0
            start = self.scale.anchor + random.randint(0, 3 if is_long else VISITS) * unit
            lasts = random.choice([None, VISITS // 2, VISITS, 2 * VISITS] if is_long else [0, 1, 1, 2])
            length = None if lasts is None else max(step, lasts * unit + random.choice([0, 0, 0, -1, 1]) * step)
            spans.append((start, None if length is None else min(INFINITY - 1, start + length)))
        return spans


VISITS = 14
"""The number of units within which short events come and go."""
