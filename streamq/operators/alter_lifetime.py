"""AlterLifetime: gives every event a new start and duration; shift, extend and others are its special cases.

Starts and lengths are parsed and checked from the user's arguments; timestamps and dates become ticks by expressions of their
own. In Arrow lifetimes are computed as Spark computes them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.choices import Anchor, LengthKind
from streamq.errors import NeedsSpark, PlanError, TimeError, TypeMismatch
from streamq.functions.dates import EXTRACT, HOUR, MINUTE, UNIX_DATE, UNIX_MICROS
from streamq.functions.logic import GREATEST
from streamq.functions.numbers import SUBTRACT
from streamq.operators.operator import RowKey
from streamq.operators.step import ArrowRows, SparkRows, Step, StepEffect, delta_table, is_exact
from streamq.plan.expr import Call, Cast, Expr, Lifetime, Lit, as_expr, show
from streamq.plan.footprint import Expected, Footprint
from streamq.plan.lowering import spark_expression
from streamq.plan.node import Node, Traits, Verbs, expressions, node
from streamq.plan.passes import columns, infer, reads_end, reads_lifetime
from streamq.plan.resolve import ExprArgument, resolve
from streamq.plan.schema import INTERVAL, POINT, Schema
from streamq.runtime.deltas import LE, RE
from streamq.runtime.hosts.hosted_kernel import TableStep
from streamq.runtime.time.progress import ExprProgressMap, ProgressMap, ProgressShift
from streamq.runtime.time.progress_rule import saturating
from streamq.time import FIRST_INSTANT, INFINITY, TIMESTAMP, Duration, show_duration, ticks
from streamq.windows.batch_events import SQL, TickSql, sql_of


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

    @property
    def is_positive(self) -> bool:
        """True if it is a positive constant, endless, or the greatest of several values of which one is a positive constant."""
        match self.expr:
            case None:
                return self.kind == LengthKind.FIXED and self.by > 0
            case Call(function, args) if function is GREATEST:
                return any(isinstance(arg, Lit) and arg.value is not None and arg.value > 0 for arg in args)
        return self.is_endless


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


@dataclass(frozen=True)
class MovedRows:
    """A change of the lifetimes of rows of ``schema``; rows that are left without a duration are dropped."""

    change: ChangedLifetimes
    schema: Schema

    def applied_to(self, rows: pa.Table) -> pa.Table:
        """Return the deltas on their new lifetimes."""
        events = ArrowRows.from_table(rows, self.schema, {})
        return delta_table(events.with_lifetimes(*self.change.lifetimes(events), self.schema))


@node
class AlterLifetime(Step):
    """Turns each event ``e`` into ``(s, s + duration(e), p)`` with ``s = start(e)``; a duration that is not positive drops it.

    Instants saturate at the ends of the axis. If the length is ``same``, an endless event stays endless; an event that would
    start at an infinite end is dropped.
    """

    input: Node
    start: Start
    length: Length

    title = "alter_lifetime"

    footprint = Footprint(
        cti="c moved as the starts are; where an expression reads an end that may still move, the least start "
        "of such an event",
        keeps="none; where one reads such an end, events not settled",
        cost="a projection",
    )

    def row_key(self, inputs: Sequence[RowKey]) -> RowKey:
        return inputs[0].with_own_lifetimes() or super().row_key(inputs)

    @property
    def reads_open_end(self) -> bool:
        """True if an end that moves would change more of a row than its end: its start, length or existence.

        A row of fixed length at an event's end moves as a whole, and counts as one that does not read the end.
        """
        start, length = self.start, self.length
        if length.expr is not None and reads_end(length.expr):
            return True
        if start.expr is not None:
            return length.kind == LengthKind.SAME or reads_end(start.expr)
        return start.anchor == Anchor.RE and length.kind != LengthKind.FIXED

    def _schema(self) -> Schema:
        """Return the input's columns with the new shape: points are those of a length of one tick, and points that are moved.

        Raises TypeMismatch for a start or length that is not in ticks.
        """
        for verb, expr in (("start", self.start.expr), ("duration", self.length.expr)):
            if expr is None:
                continue
            kind = infer(expr, self.input.schema, "alter_lifetime")
            if not isinstance(kind, t.LongType):
                raise TypeMismatch(
                    "alter_lifetime", f"{verb} is not in ticks", f"found {kind.simpleString()} in {show(expr)}"
                )
        match self.length:
            case Length(kind=LengthKind.FIXED, by=1):
                shape = POINT
            case Length(kind=LengthKind.SAME, by=0) if self.input.schema.shape == POINT:
                shape = POINT
            case _:
                shape = INTERVAL
        return self.input.schema.with_shape(shape)

    def _traits(self) -> Traits:
        """Return the input's traits; lifetimes may be endless if lengths are computed, and never if the length is fixed."""
        traits, kind, at_end = self.input.traits, self.length.kind, self.start.anchor == Anchor.RE
        infinite = kind == LengthKind.GIVEN or (kind == LengthKind.SAME and traits.infinite and not at_end)
        longest = self.length.by if kind == LengthKind.FIXED else None
        if kind == LengthKind.SAME and self.input.traits.longest is not None:
            extended = max(1, self.input.traits.longest + self.length.by)
            longest = extended if extended < INFINITY else None
        moves_ends = traits.moves_ends and (kind != LengthKind.FIXED or at_end)
        # with another length, or starting at its end, a row lives where the user puts it, no longer on its window
        is_moved = not at_end and kind == LengthKind.SAME
        return Traits(
            traits.retracts,
            moves_ends,
            infinite,
            longest,
            is_moved and traits.mixes_windows,
            endless=self.length.is_endless or (kind == LengthKind.SAME and traits.endless),
        )

    def detail(self) -> str:
        """Return ``start=..., duration=...``: expressions as written, constants as durations, an old length as "unchanged"."""
        axis = self.schema.axis
        start = show(self.start.expr) if self.start.expr is not None else self.start.anchor
        if self.start.expr is None and self.start.by:
            start += f" {'+' if self.start.by > 0 else '-'} {show_duration(abs(self.start.by), axis)}"
        if self.start.within is not None:
            start += f" (within {show_duration(self.start.within, axis)})"
        match self.length:
            case Length(kind="fixed", by=by):
                length = show_duration(by, axis)
            case Length(kind="given", expr=expr):
                length = show(expr) if expr is not None else ""
            case Length(by=0):
                length = "unchanged"
            case Length(by=by):
                length = f"{'+' if by > 0 else '-'}{show_duration(abs(by), axis)}"
        return f"start={start}, duration={length}"

    def _progress_map(self) -> ProgressMap:
        """Return the function that the moved lifetimes apply to CTI and watermark.

        It is a shift if starts are moved by ticks, or if ``within`` bounds how far they go back; else the start's expression.
        """
        start, length = self.start, self.length
        if start.expr is not None:
            return (
                ProgressShift(-start.within)
                if start.within is not None
                else ExprProgressMap(start.expr, self.input.schema)
            )
        return ProgressShift(start.by + (min(0, length.by) if length.kind == LengthKind.SAME else 0))

    @property
    def effect(self) -> StepEffect:
        start, length = self.start, self.length
        is_moved_by = start.expr is None and start.anchor == Anchor.LE
        return StepEffect(
            drops=not self._keeps_all,
            progress_map=self._progress_map(),
            moves_as_progress=is_moved_by and (length.kind != LengthKind.SAME or length.by >= 0),
            moves_start=not is_moved_by or start.by != 0,
            keeps_end=length.kind != LengthKind.FIXED or start.anchor == Anchor.RE,
        )

    @property
    def _keeps_all(self) -> bool:
        """True if each event stays: it starts no later than it did, and its new length is positive, or no less than the old one.

        One whose old length counts must start where it did: moved beyond the axis it would be cut.
        """
        start, length = self.start, self.length
        if start.expr is not None or start.anchor != Anchor.LE or start.by > 0:
            return False
        return length.is_positive or (length.kind == LengthKind.SAME and length.by >= 0 and start.by == 0)

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        # other starts may lie closer together
        return inputs[0] if self.start.expr is None else None

    def on_spark(self, rows: SparkRows) -> SparkRows:
        """Compute the new lifetimes, and a flag for the rows that have one.

        The flag contains a nondeterministic call, so that Spark does not push a filter by it below this step. Pushed down, the
        filter would contain the expressions of these lifetimes, and in them those of the step below, and so on: ten times as
        much at each step. There is none where every row has one.
        """
        length = self.length
        if self.start.expr is None and (length.is_endless or (length.kind == LengthKind.FIXED and length.is_positive)):
            at = self._start_in_sql
            is_infinite = length.is_endless or length.by == INFINITY
            end = F.expr(f"{INFINITY}L") if is_infinite else SQL.moved(at, length.by).column
            is_finite = None if self._keeps_all else F.expr(f"{at.text} < {INFINITY}L AND spark_partition_id() >= 0")
            return rows.with_lifetimes(at.column, end, is_finite, self.schema)
        start, lasts = self._start_on_spark(), self._length_on_spark()
        end = F.when(lasts == INFINITY, F.lit(INFINITY)).otherwise(F.coalesce(F.try_add(start, lasts), F.lit(INFINITY)))
        if self._keeps_all:
            return rows.with_lifetimes(start, end, None, self.schema)
        is_alive = start.isNotNull() & (start < INFINITY) & (lasts > 0) & (end > start)
        return rows.with_lifetimes(start, end, is_alive & (F.spark_partition_id() >= 0), self.schema)

    def _start_on_spark(self) -> Column:
        """Return the new start in ticks: NULL where its expression is, INFINITY at an end that is.

        It raises an error, when it is read, if it is further back than ``within``.
        """
        source, start = self.input.schema, self.start
        le = F.col(LE)
        if start.expr is None:
            return self._start_in_sql.column
        at = spark_expression(start.expr, source)
        if start.within is None:
            return at
        message = F.concat(F.lit(f"alter_lifetime: {BREACH}; found start "), at, F.lit(" of an event at "), le)
        least = F.coalesce(F.try_subtract(le, F.lit(start.within)), F.lit(FIRST_INSTANT))
        return F.when(at < least, F.raise_error(message).cast("bigint")).otherwise(at)

    @property
    def _start_in_sql(self) -> TickSql:
        """The new start, an old instant moved by ticks."""
        return SQL.moved(TickSql(LE) if self.start.anchor == Anchor.LE else self._end_in_sql, self.start.by)

    def _length_on_spark(self) -> Column:
        """Return the new length in ticks; INFINITY for an endless lifetime, and where the expression of the length is NULL."""
        source, length = self.input.schema, self.length
        if length.kind == LengthKind.FIXED:
            return F.lit(length.by).cast("bigint")
        if length.expr is not None:
            return F.coalesce(spark_expression(length.expr, source), F.lit(INFINITY))
        end = self._end_in_sql
        # a duration that overflows is endless
        duration = TickSql(f"coalesce(try_subtract({end.text}, {LE}), {sql_of(INFINITY)})")
        return SQL.choose(end == INFINITY, INFINITY, SQL.moved(duration, length.by)).column

    @property
    def _end_in_sql(self) -> TickSql:
        """The ends of the input's lifetimes, which points have no column for."""
        return TickSql(LE) + 1 if self.input.schema.shape == POINT else TickSql(RE)

    def in_arrow(self, rows: ArrowRows) -> ArrowRows:
        """Compute the new lifetimes, saturating; raise TimeError for a start further back than ``within`` allows."""
        return rows.with_lifetimes(*ChangedLifetimes(self.start, self.length).lifetimes(rows), self.schema)

    @property
    def table_step(self) -> TableStep | None:
        """The step for workers, if Arrow computes start and length exactly as Spark does."""
        if not all(is_exact(expr, self.input.schema) for expr in expressions(self)):
            return None
        return MovedRows(ChangedLifetimes(self.start, self.length), self.schema)


class AlterLifetimeVerbs(Verbs):
    """``alter_lifetime`` and its special cases."""

    def alter_lifetime(
        self, start: ExprArgument = None, duration: ExprArgument = None, *, within: Duration | None = None
    ) -> Self:
        """Give each event the lifetime ``[s, s + duration)`` with ``s = start``; a duration that is not positive drops it.

        ``start``: an expression whose value is an instant of the axis (default: the old start). It must be a non-decreasing
        function of ``sq.start()``, or ``sq.end()`` itself; if it reads the payload, ``within`` is the most by which it can
        lie before the old start. It drops the events for which it is NULL; without ``within`` these are the first ones, as
        progress could not go on after them. ``duration``: a duration (``"10 minutes"``, ticks) or an expression: ticks on an
        integer axis; on a timestamp axis an interval, or microseconds as a bigint. NULL means without an end. The difference of
        two instants is the time that passes between them, whatever the session's time zone. Raises TypeMismatch, TimeError, and
        PlanError for a start that reads the payload without ``within`` or, at a sample of instants, is found to decrease or to
        become NULL.

        ::

            events  a, n=2 [1,5)  b, n=4 [3,..)   duration n
            result  a, n=2 [1,3)  b, n=4 [3,7)

        >>> import streamq as sq
        >>> s = sq.events([(1, 5, {"k": "a", "n": 2}), (3, None, {"k": "b", "n": 4})])
        >>> s.alter_lifetime(duration=sq.col("n")).show()
        k  n  start  end
        a  2      1    3
        b  4      3    7
        """
        return self._derive(
            AlterLifetime(self.plan, start_of(start, within, self.plan), length_of(duration, self.plan))
        )

    def shift(self, by: Duration) -> Self:
        """Move every lifetime along the axis by ``by``, which may be negative.

        ::

            events  3 [1,5)    8 [4,..)    by 10
            result  3 [11,15)  8 [14,..)

        >>> import streamq as sq
        >>> sq.events([(1, 5, {"v": 3}), (4, None, {"v": 8})]).shift(10).show()
        v  start   end
        3     11    15
        8     14  NULL
        """
        return self._derive(AlterLifetime(self.plan, Start(by=ticks(by, self.plan.schema.axis, "shift")), Length()))

    def set_duration(self, duration: ExprArgument) -> Self:
        """Set every lifetime to ``[start, start + duration)``; ``duration`` as in :meth:`alter_lifetime`, None: without an end.

        ::

            events  3 [1,5)  8 [4,..)   duration 2
            result  3 [1,3)  8 [4,6)

        >>> import streamq as sq
        >>> sq.events([(1, 5, {"v": 3}), (4, None, {"v": 8})]).set_duration(2).show()
        v  start  end
        3      1    3
        8      4    6
        """
        length = Lit(None).cast("bigint") if duration is None else duration
        return self._derive(AlterLifetime(self.plan, Start(), length_of(length, self.plan, "set_duration")))

    def extend(self, by: Duration) -> Self:
        """Move every end later by ``by``, or earlier if negative; an event left with no duration is dropped.

        ::

            events  3 [1,5)  8 [4,..)   by -2
            result  3 [1,3)  8 [4,..)

        >>> import streamq as sq
        >>> sq.events([(1, 5, {"v": 3}), (4, None, {"v": 8})]).extend(-2).show()
        v  start   end
        3      1     3
        8      4  NULL
        """
        return self._derive(AlterLifetime(self.plan, Start(), Length(by=ticks(by, self.plan.schema.axis, "extend"))))

    def to_points(self) -> Self:
        """Turn every event into a point at its start: ``[start, start + 1 tick)``.

        ::

            events  3 [1,5)
            result  3 [1,2)

        >>> import streamq as sq
        >>> sq.events([(1, 5, {"v": 3})]).to_points().show()
        v  start  end
        3      1    2
        """
        return self._derive(AlterLifetime(self.plan, Start(), Length(LengthKind.FIXED, 1)))

    def to_points_at_end(self) -> Self:
        """Turn every event into a point at its end, ``[end, end + 1 tick)``; an event without an end gives none.

        ::

            events  3 [1,5)  8 [4,..)
            result  3 [5,6)

        >>> import streamq as sq
        >>> sq.events([(1, 5, {"v": 3}), (4, None, {"v": 8})]).to_points_at_end().show()
        v  start  end
        3      5    6
        """
        return self._derive(AlterLifetime(self.plan, Start(Anchor.RE), Length(LengthKind.FIXED, 1)))
