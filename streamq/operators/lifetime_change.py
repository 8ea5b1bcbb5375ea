"""Start and length of the lifetimes that ``alter_lifetime`` computes: parsed and checked from the user's arguments, and in Arrow.

In Arrow they are computed as Spark computes them. Timestamps and dates become ticks by expressions of their own.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from streamq.choices import Anchor, LengthKind
from streamq.errors import NeedsSpark, PlanError, TimeError, TypeMismatch
from streamq.functions.dates import EXTRACT, HOUR, MINUTE, UNIX_DATE, UNIX_MICROS
from streamq.functions.numbers import SUBTRACT
from streamq.plan.expr import Call, Cast, Expr, Lifetime, Lit, as_expr, show
from streamq.plan.node import Node
from streamq.plan.passes import columns, infer, reads_lifetime
from streamq.plan.resolve import ExprArgument, resolve
from streamq.plan.schema import Schema
from streamq.runtime.time.progress_rule import saturating
from streamq.time import INFINITY, TIMESTAMP, Duration, ticks

if TYPE_CHECKING:
    from streamq.operators.step import ArrowRows


def instant_as_ticks(expr: Expr, kind: t.DataType) -> Expr:
    """Convert an expression of time type ``kind`` to ticks: microseconds since the epoch in UTC, in any session time zone.

    Integers are ticks already and become bigint.
    """
    if isinstance(kind, t.TimestampType):
        return Call(UNIX_MICROS, (expr,))
    if isinstance(kind, t.DateType):
        return Cast(Call(UNIX_DATE, (expr,)), t.LongType()) * 86_400_000_000
    if isinstance(kind, t.TimestampNTZType):
        days = Cast(Call(UNIX_DATE, (Cast(expr, t.DateType()),)), t.LongType())
        minutes = (days * 24 + Call(HOUR, (expr,))) * 60 + Call(MINUTE, (expr,))
        seconds = Call(EXTRACT, (Lit("SECOND"), expr))
        return minutes * 60_000_000 + Cast(seconds * 1_000_000, t.LongType())
    return Cast(expr, t.LongType())


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

BREACH = "a start further back than within allows"
"""The error text for a start further back than ``within`` allows."""


@dataclass(frozen=True)
class Start:
    """The start of a new lifetime: ``LE`` or ``RE`` moved by ``by`` ticks, or the value of ``expr``.

    within: the most ticks by which ``expr`` can lie before LE, if it reads the payload.
    """

    anchor: Anchor = Anchor.LE
    by: int = 0
    expr: Expr | None = None
    within: int | None = None


@dataclass(frozen=True)
class Length:
    """The length of a new lifetime: the old one plus ``by`` ticks (``same``), ``by`` ticks (``fixed``), or the value of ``expr``.

    The value of ``expr`` is in bigint ticks; NULL means endless.
    """

    kind: LengthKind = LengthKind.SAME
    by: int = 0
    expr: Expr | None = None

    @property
    def is_endless(self) -> bool:
        """True if it is the constant NULL."""
        value = self.expr.arg if isinstance(self.expr, Cast) else self.expr
        return isinstance(value, Lit) and value.value is None


def start_of(start: ExprArgument, within: Duration | None, plan: Node) -> Start:
    """Return the start that a user's arguments ask for; None is the old start.

    An expression other than the event's start or end alone becomes ``expr``, in ticks; only then ``within`` is kept.

    Raises TimeError for a negative ``within``, TypeMismatch for a value that is no instant of the axis, and PlanError for a
    start that progress cannot be mapped by.
    """
    axis = plan.schema.axis
    most = None if within is None else ticks(within, axis, "alter_lifetime")
    if most is not None and most < 0:
        raise TimeError("alter_lifetime", "within must not be negative", f"found {within!r}")
    if start is None:
        return Start()
    expr = resolve(start, plan, "alter_lifetime")
    match expr:
        case Lifetime(part="start"):
            return Start()
        case Lifetime(part="end"):
            return Start(Anchor.RE)
    if columns(expr) and most is None:
        hint = "Say how far before the event's start it can fall at most: within=..."
        raise PlanError("alter_lifetime", "a start that reads the payload", f"found {show(expr)}", hint)
    if reads_lifetime(expr, "end") and (columns(expr) or reads_lifetime(expr, "start")):
        hint = "Start at sq.start() or sq.end() alone, or at a function of sq.start()."
        raise PlanError("alter_lifetime", "a start that reads the end beside other things", f"found {show(expr)}", hint)
    kind = infer(expr, plan.schema, "alter_lifetime")
    if most is None:
        _check_order(expr, plan.schema)
    expected = isinstance(kind, t.TimestampType | t.TimestampNTZType | t.DateType) if axis == TIMESTAMP else True
    if not expected or (axis != TIMESTAMP and not isinstance(kind, t.IntegralType)):
        raise TypeMismatch(
            "alter_lifetime", "start is no instant of the axis", f"found {kind.simpleString()} in {show(expr)}"
        )
    if axis == TIMESTAMP:
        return Start(Anchor.GIVEN, 0, instant_as_ticks(expr, kind), most)
    return Start(Anchor.GIVEN, 0, expr if isinstance(kind, t.LongType) else Cast(expr, t.LongType()), most)


def _check_order(expr: Expr, schema: Schema) -> None:
    """Raise PlanError if a start's expression decreases between sampled instants: progress could not be mapped by it.

    It may be NULL before it has values, and not after one. Instants at which it fails are passed over. An expression that only
    Spark can evaluate is accepted.
    """
    from streamq.runtime.arrow.arrow_expr import attempt, check_in_process

    try:
        check_in_process(expr, schema, "alter_lifetime")
    except NeedsSpark:
        # only Spark can evaluate it; if it decreases, rows become late and are counted as such
        return
    if schema.axis == TIMESTAMP:
        hour = 3_600_000_000
        instants = [n * hour + 1_700_000_000_000_000 for n in range(-30, 24 * 400, 7)]
    else:
        instants = [*range(-100, 101), *(sign * 10**k for k in range(3, 13) for sign in (-1, 1))]
    at = pa.array(sorted(instants), pa.int64())
    if schema.axis == TIMESTAMP:
        at = at.cast(pa.timestamp("us", tz="UTC"))
    values = attempt(expr, schema, {}, lambda part: at, len(at))
    wrong = {row for fault in values.faults for row in fault.rows.nonzero()[0].tolist()}
    samples = [
        (a, b) for n, (a, b) in enumerate(zip(at.to_pylist(), values.array.to_pylist(), strict=True)) if n not in wrong
    ]
    last = None
    for when, value in samples:
        if last is None and value is None:
            continue
        if last is not None and (value is None or value < last[1]):
            observed = f"{show(expr)} gives {last[1]} at {last[0]} and {'NULL' if value is None else value} at {when}"
            hint = "A start is a non-decreasing function of sq.start(); or say within=..."
            raise PlanError("alter_lifetime", "a start that does not keep the order of events", observed, hint)
        last = (when, value)


def length_of(duration: ExprArgument, plan: Node, verb: str = "alter_lifetime") -> Length:
    """Return the length that a user's argument asks for, an expression converted to ticks; None is the old length.

    Raises TimeError for an int, text or timedelta that is not positive, TypeMismatch for a value that is neither ticks nor a
    duration.
    """
    if duration is None:
        return Length()
    axis = plan.schema.axis
    if (isinstance(duration, str | int) and not isinstance(duration, bool)) or type(duration).__name__ == "timedelta":
        return Length(LengthKind.FIXED, _positive(duration, axis, verb))
    expr = resolve(duration, plan, verb)
    if isinstance(expr, Lifetime) and expr.part == "duration":
        return Length()
    kind = infer(expr, plan.schema, verb)
    if isinstance(kind, t.DayTimeIntervalType) and axis == TIMESTAMP:
        elapsed = _between(expr, plan.schema, verb)
        if elapsed is not None:
            return Length(LengthKind.GIVEN, 0, elapsed)
        # an interval of days alone, say, becomes one that an instant takes
        later = as_expr(Lit(EPOCH) + Cast(expr, t.DayTimeIntervalType()))
        return Length(LengthKind.GIVEN, 0, instant_as_ticks(later, t.TimestampType()))
    if not isinstance(kind, t.IntegralType | t.NullType):
        raise TypeMismatch(
            verb, "duration is neither ticks nor a duration", f"found {kind.simpleString()} in {show(expr)}"
        )
    return Length(LengthKind.GIVEN, 0, expr if isinstance(kind, t.LongType) else Cast(expr, t.LongType()))


def _between(expr: Expr, schema: Schema, verb: str) -> Expr | None:
    """Return the ticks between two instants if the expression is their difference, else None.

    Spark's own difference of timestamps follows the clocks of a time zone.
    """
    match expr:
        case Call(function=function, args=(later, earlier)) if function == SUBTRACT:
            kinds = [infer(e, schema, verb) for e in (later, earlier)]
            if all(isinstance(k, t.TimestampType | t.TimestampNTZType | t.DateType) for k in kinds):
                return instant_as_ticks(later, kinds[0]) - instant_as_ticks(earlier, kinds[1])
    return None


def _positive(duration: Duration, axis: str, verb: str) -> int:
    """Return a duration in ticks; raise TimeError unless it is positive."""
    length = ticks(duration, axis, verb)
    if length <= 0:
        raise TimeError(verb, "the duration must be positive", f"found {duration!r}")
    return length


@dataclass(frozen=True)
class ChangedLifetimes:
    """The lifetimes that a start and a length give to events."""

    start: Start
    length: Length

    def lifetimes(self, rows: ArrowRows) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Return the new starts and ends in ticks, saturating, and a mask of the rows that have a new lifetime.

        Raises TimeError for a start further back than ``within`` allows.
        """
        is_there, start = self._starts(rows)
        lasts = self._lengths(rows)
        end = np.where(lasts == INFINITY, INFINITY, saturating(start, lasts))
        is_alive = is_there & (lasts > 0) & (start < INFINITY) & (end > start)
        return pa.array(start), pa.array(end), pa.array(is_alive)

    def _starts(self, rows: ArrowRows) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return two arrays: True where a row has a start, and the starts in ticks, INFINITY for a row without one.

        A row has none only where the start's expression is NULL; one that starts at an endless end has INFINITY.

        Raises TimeError for a start further back than ``within`` allows.
        """
        start, le = self.start, rows.starts.to_numpy()
        if start.expr is None:
            anchor = rows.ends.to_numpy() if start.anchor == Anchor.RE else le
            return np.ones(rows.count, bool), saturating(anchor, start.by)
        at = rows.evaluate(start.expr)
        is_there, starts = at.is_valid().to_numpy(zero_copy_only=False), pc.fill_null(at, INFINITY).to_numpy()
        if start.within is not None and (is_early := starts < saturating(le, -start.within)).any():
            shown = f"found start {starts[is_early][0]} of an event at {le[is_early][0]}"
            raise TimeError("alter_lifetime", BREACH, shown)
        return is_there, starts

    def _lengths(self, rows: ArrowRows) -> np.ndarray[Any, Any]:
        """Return the new lengths in ticks; INFINITY for an endless lifetime, and where the expression of the length is NULL."""
        length = self.length
        if length.kind == LengthKind.FIXED:
            return np.full(rows.count, length.by)
        if length.expr is not None:
            return pc.fill_null(rows.evaluate(length.expr), INFINITY).to_numpy(zero_copy_only=False)
        le, re = rows.starts.to_numpy(), rows.ends.to_numpy()
        with np.errstate(over="ignore"):
            duration = re - le
        # a difference that overflows is longer than the axis: durations saturate
        duration = np.where(duration < 0, INFINITY, duration)
        return np.where(re == INFINITY, INFINITY, saturating(duration, length.by))
