"""Start and length of the lifetimes that ``alter_lifetime`` computes, parsed and checked from the user's arguments."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from pyspark.sql import types as t

from streamq.choices import Anchor, LengthKind
from streamq.errors import NeedsSpark, PlanError, TimeError, TypeMismatch, sentence
from streamq.functions.arithmetic import SUBTRACT
from streamq.operators.tick_expressions import instant_as_ticks
from streamq.plan.expr import Call, Cast, Expr, Lit, as_expr
from streamq.plan.inference import infer
from streamq.plan.lifetime import Lifetime
from streamq.plan.node import Node
from streamq.plan.passes import columns, reads_lifetime
from streamq.plan.resolve import ExprArgument, resolve
from streamq.plan.schema import Schema
from streamq.plan.tree import show
from streamq.time import TIMESTAMP, Duration, ticks

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


def start_of(start: ExprArgument, within: Duration | None, plan: Node) -> Start:
    """Return the start that a user's arguments ask for; None is the old start.

    An expression other than the event's start or end alone becomes ``expr``, in ticks; only then ``within`` is kept.

    Raises TimeError for a negative ``within``, TypeMismatch for a value that is no instant of the axis, and PlanError for a
    start that progress cannot be mapped by.
    """
    axis = plan.schema.axis
    most = None if within is None else ticks(within, axis, "alter_lifetime")
    if most is not None and most < 0:
        raise TimeError(sentence("alter_lifetime", "within must not be negative", f"found {within!r}"))
    if start is None:
        return Start()
    expr = resolve(start, plan, "alter_lifetime")
    match expr:
        case Lifetime(part="start"):
            return Start()
        case Lifetime(part="end"):
            return Start(Anchor.RE)
    if columns(expr) and most is None:
        raise PlanError(
            sentence(
                "alter_lifetime",
                "a start that reads the payload",
                f"found {show(expr)}",
                "Say how far before the event's start it can fall at most: within=...",
            )
        )
    if reads_lifetime(expr, "end") and (columns(expr) or reads_lifetime(expr, "start")):
        raise PlanError(
            sentence(
                "alter_lifetime",
                "a start that reads the end beside other things",
                f"found {show(expr)}",
                "Start at sq.start() or sq.end() alone, or at a function of sq.start().",
            )
        )
    kind = infer(expr, plan.schema, "alter_lifetime")
    if most is None:
        _check_order(expr, plan.schema)
    expected = isinstance(kind, t.TimestampType | t.TimestampNTZType | t.DateType) if axis == TIMESTAMP else True
    if not expected or (axis != TIMESTAMP and not isinstance(kind, t.IntegralType)):
        raise TypeMismatch(
            sentence(
                "alter_lifetime", "start is no instant of the axis", f"found {kind.simpleString()} in {show(expr)}"
            )
        )
    if axis == TIMESTAMP:
        return Start(Anchor.GIVEN, 0, instant_as_ticks(expr, kind), most)
    return Start(Anchor.GIVEN, 0, expr if isinstance(kind, t.LongType) else Cast(expr, t.LongType()), most)


def _check_order(expr: Expr, schema: Schema) -> None:
    """Raise PlanError if a start's expression decreases between sampled instants: progress could not be mapped by it.

    It may be NULL before it has values, and not after one. Instants at which it fails are passed over. An expression that only
    Spark can evaluate is accepted.
    """
    import pyarrow as pa

    from streamq.runtime.arrow_expr import attempt, check_in_process

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
            raise PlanError(
                sentence(
                    "alter_lifetime",
                    "a start that does not keep the order of events",
                    f"{show(expr)} gives {last[1]} at {last[0]} and {'NULL' if value is None else value} at {when}",
                    "A start is a non-decreasing function of sq.start(); or say within=...",
                )
            )
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
            sentence(verb, "duration is neither ticks nor a duration", f"found {kind.simpleString()} in {show(expr)}")
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
        raise TimeError(sentence(verb, "the duration must be positive", f"found {duration!r}"))
    return length
