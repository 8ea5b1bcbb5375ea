"""AlterLifetime: gives every event another start and duration; shift, extend and the others are its special cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pyspark.sql import types as t

from streamq.errors import NeedsSpark, PlanError, TimeError, TypeMismatch, sentence
from streamq.functions.arithmetic import SUBTRACT
from streamq.functions.dates import EXTRACT
from streamq.plan.expr import Call, Cast, Expr, Lit, as_expr
from streamq.plan.inference import infer
from streamq.plan.lifetime import Lifetime
from streamq.plan.lowering import spark_expression
from streamq.plan.node import Node, Traits, node
from streamq.plan.passes import columns, reads_end, reads_lifetime
from streamq.plan.resolve import Given, resolve
from streamq.plan.schema import INTERVAL, POINT, Schema, quote
from streamq.plan.tree import show
from streamq.plan.verbs import Verbs
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, Duration, show_duration, ticks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamq.operators.batch_run import BatchRun

LE, RE, GIVEN, SAME, FIXED = "LE", "RE", "given", "same", "fixed"


BREACH = "a start further back than within allows"
"""What is wrong where the promise is broken."""


@dataclass(frozen=True)
class Start:
    """Where a lifetime starts: at ``LE`` or ``RE`` moved by ``by`` ticks, or at the instant that ``expr`` gives.

    within: for an expression that reads the payload, how far before LE it can fall, in ticks.
    """

    anchor: str = LE
    by: int = 0
    expr: Expr | None = None
    within: int | None = None


@dataclass(frozen=True)
class Length:
    """How long it lives: as long as before plus ``by`` ticks (``same``), ``by`` ticks (``fixed``), or what ``expr`` gives.

    ``expr`` gives bigint ticks; NULL is for ever.
    """

    kind: str = SAME
    by: int = 0
    expr: Expr | None = None


@node
class AlterLifetime(Node):
    """``(s, s + duration(e), p)`` with ``s = start(e)``, saturating; a duration that is not positive drops the event.

    An event without end keeps none under a length that is ``same``; from an end that is infinite nothing starts.

    CTI: c moved as the starts are; where an expression reads an end that may still move, the least start of such an event
    Final: rows of final events
    State: none; where one reads such an end, events not settled
    Cost: a projection
    """

    input: Node
    start: Start
    length: Length

    title = "alter_lifetime"

    @property
    def progress(self) -> str:
        match self.start:
            case Start(anchor="LE", by=0, expr=None):
                rule = "c"
            case Start(anchor="LE", expr=None, by=by):
                rule = f"c {'+' if by > 0 else '-'} {show_duration(abs(by), self.schema.axis)}"
            case Start(anchor="RE"):
                rule = "c"
            case Start(within=None):
                rule = "start(c)"
            case Start(within=within):
                rule = f"c - {show_duration(within or 0, self.schema.axis)}"
        if self.length.kind == SAME and self.length.by < 0:
            rule = f"c - {show_duration(-self.length.by, self.schema.axis)}"
        waits = self.input.traits.moves_ends and self.reads_open_end
        return rule + ("; the least start of an event whose end is open, if that is before" if waits else "")

    @property
    def reads_open_end(self) -> bool:
        start, length = self.start, self.length
        if length.expr is not None and reads_end(length.expr):
            return True
        if start.expr is not None:
            return length.kind == SAME or reads_end(start.expr)
        return start.anchor == RE and length.kind != FIXED

    def _schema(self) -> Schema:
        for verb, expr in (("start", self.start.expr), ("duration", self.length.expr)):
            if expr is None:
                continue
            kind = infer(expr, self.input.schema, "alter_lifetime")
            if not isinstance(kind, t.LongType):
                raise TypeMismatch(
                    sentence(
                        "alter_lifetime", f"{verb} is not in ticks", f"found {kind.simpleString()} in {show(expr)}"
                    )
                )
        point = self.length.kind == FIXED and self.length.by == 1
        return self.input.schema.with_shape(POINT if point else INTERVAL)

    def _traits(self) -> Traits:
        found, kind, at_end = self.input.traits, self.length.kind, self.start.anchor == RE
        infinite = kind == GIVEN or (kind == SAME and found.infinite and not at_end)
        return Traits(found.retracts, found.moves_ends and (kind != FIXED or at_end), infinite)

    def detail(self) -> str:
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


def altered(node: AlterLifetime) -> tuple[Column, Column, Column]:
    """The new LE and RE over a delta's columns, and whether the event has a lifetime at all.

    The last is computed where it stands: Spark would push a filter by it below, and write out the lifetimes in it, those
    below in these, and so on, ten times as much at each step.
    """
    from pyspark.sql import functions as F

    source, start, length = node.input.schema, node.start, node.length
    le = F.col("__le")
    re = le + 1 if source.shape == POINT else F.col("__re")
    endless = F.lit(False) if source.shape == POINT else re == INFINITY
    if start.expr is not None:
        at = spark_expression(start.expr, source)
        if start.within is not None:
            told = F.concat(F.lit(f"alter_lifetime: {BREACH}; found start "), at, F.lit(" of an event at "), le)
            least = F.coalesce(F.try_subtract(le, F.lit(start.within)), F.lit(MINUS_INFINITY))
            at = F.when(at < least, F.raise_error(told).cast("bigint")).otherwise(at)
    elif start.anchor == RE:
        at = F.when(endless, F.lit(INFINITY)).otherwise(moved(re, start.by))
    else:
        at = moved(le, start.by)
    match length.kind:
        case "fixed":
            lasts: Column = F.lit(length.by).cast("bigint")
        case "given":
            assert length.expr is not None
            lasts = F.coalesce(spark_expression(length.expr, source), F.lit(INFINITY))
        case _:
            # what is older than the axis is long lasts for ever
            long = F.coalesce(F.try_subtract(re, le), F.lit(INFINITY))
            lasts = F.when(endless, F.lit(INFINITY)).otherwise(moved(long, length.by))
    end = F.when(lasts == INFINITY, F.lit(INFINITY)).otherwise(F.coalesce(F.try_add(at, lasts), F.lit(INFINITY)))
    stays = at.isNotNull() & (at < INFINITY) & (lasts > 0) & (end > at)
    return at, end, stays & (F.spark_partition_id() >= 0)


def moved(ticks: Column, by: int) -> Column:
    """``ticks + by``, saturating: infinity stays, nothing overflows."""
    from pyspark.sql import functions as F

    if by == 0:
        return ticks
    end = INFINITY if by > 0 else MINUS_INFINITY + 1
    return F.when(ticks == INFINITY, F.lit(INFINITY)).otherwise(F.coalesce(F.try_add(ticks, F.lit(by)), F.lit(end)))


def batch(node: AlterLifetime, inputs: list[DataFrame], run: BatchRun) -> DataFrame:
    """A projection and a filter."""
    from pyspark.sql import functions as F

    at, end, stays = altered(node)
    df = inputs[0].withColumns({"__at": at, "__end": end, "__stays": stays}).where("__stays")
    payload = [F.col(quote(n)) for n in node.schema.names]
    return df.select(F.col("__at").alias("__le"), F.col("__end").alias("__re"), *payload)


class AlterLifetimeVerbs(Verbs):
    """``alter_lifetime`` and its special cases."""

    def alter_lifetime(self, start: Given = None, duration: Given = None, *, within: Duration | None = None) -> Self:
        """Every event at another place of the time axis: ``[s, s + duration)``; a duration that is not positive drops it.

        ``start``: an expression that gives an instant of the axis (default: as it is); it must be a non-decreasing function
        of ``sq.start()``, or ``sq.end()``, and if it reads the payload, ``within`` says how far before the old start it can
        fall at most. ``duration``: a duration (``"10 minutes"``, ticks) or an expression: ticks on an integer axis, an
        interval or microseconds as a bigint on a timestamp axis (between two instants lies the time that passes, whatever the
        session's time zone); NULL lives for ever. Raises TypeMismatch, TimeError, and PlanError for a start that reads the
        payload without ``within``. (SEMANTICS section 2.)

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
        return self._derive(AlterLifetime(self.plan, _start(start, within, self.plan), _length(duration, self.plan)))

    def shift(self, by: Duration) -> Self:
        """Lifetimes moved along the axis by ``by``, which may be negative.

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

    def set_duration(self, duration: Given) -> Self:
        """Lifetimes ``[start, start + duration)``; ``duration`` as in :meth:`alter_lifetime`; None: without an end.

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
        return self._derive(AlterLifetime(self.plan, Start(), _length(length, self.plan, "set_duration")))

    def extend(self, by: Duration) -> Self:
        """Lifetimes that end later by ``by`` (sooner, if negative; what then has no duration is gone).

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
        """Points at the starts: ``[start, start + 1 tick)``.

        ::

            events  3 [1,5)
            result  3 [1,2)

        >>> import streamq as sq
        >>> sq.events([(1, 5, {"v": 3})]).to_points().show()
        v  start  end
        3      1    2
        """
        return self._derive(AlterLifetime(self.plan, Start(), Length(FIXED, 1)))

    def to_points_at_end(self) -> Self:
        """Points at the ends: ``[end, end + 1 tick)``, none while an event has no end.

        ::

            events  3 [1,5)  8 [4,..)
            result  3 [5,6)

        >>> import streamq as sq
        >>> sq.events([(1, 5, {"v": 3}), (4, None, {"v": 8})]).to_points_at_end().show()
        v  start  end
        3      5    6
        """
        return self._derive(AlterLifetime(self.plan, Start(RE), Length(FIXED, 1)))


def _start(given: Given, within: Duration | None, plan: Node) -> Start:
    axis = plan.schema.axis
    most = None if within is None else ticks(within, axis, "alter_lifetime")
    if most is not None and most < 0:
        raise TimeError(sentence("alter_lifetime", "within must not be negative", f"found {within!r}"))
    if given is None:
        return Start()
    expr = resolve(given, plan, "alter_lifetime")
    match expr:
        case Lifetime(part="start"):
            return Start()
        case Lifetime(part="end"):
            return Start(RE)
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
        from streamq.operators.source import instant_ticks

        return Start(GIVEN, 0, instant_ticks(expr, kind), most)
    return Start(GIVEN, 0, expr if isinstance(kind, t.LongType) else Cast(expr, t.LongType()), most)


def _check_order(expr: Expr, schema: Schema) -> None:
    """Raise for a function of instants that visibly falls: progress could not go through it."""
    import pyarrow as pa

    from streamq.runtime.arrow_expr import attempt, check

    try:
        check(expr, schema, "alter_lifetime")
    except NeedsSpark:
        # only Spark can tell; a late row is then counted as late
        return
    if schema.axis == TIMESTAMP:
        hour = 3_600_000_000
        tried = [n * hour + 1_700_000_000_000_000 for n in range(-30, 24 * 400, 7)]
    else:
        tried = [*range(-100, 101), *(sign * 10**k for k in range(3, 13) for sign in (-1, 1))]
    at = pa.array(sorted(tried), pa.int64())
    if schema.axis == TIMESTAMP:
        at = at.cast(pa.timestamp("us", tz="UTC"))
    made = attempt(expr, schema, {}, lambda part: at, len(at))
    wrong = {row for fault in made.faults for row in fault.rows.nonzero()[0].tolist()}
    known = [
        (a, b) for n, (a, b) in enumerate(zip(at.to_pylist(), made.array.to_pylist(), strict=True)) if n not in wrong
    ]
    last = None
    for when, value in known:
        if value is None:
            continue
        if last is not None and value < last[1]:
            raise PlanError(
                sentence(
                    "alter_lifetime",
                    "a start that does not keep the order of events",
                    f"{show(expr)} gives {last[1]} at {last[0]} and {value} at {when}",
                    "A start is a non-decreasing function of sq.start(); or say within=...",
                )
            )
        last = (when, value)


def _length(given: Given, plan: Node, verb: str = "alter_lifetime") -> Length:
    if given is None:
        return Length()
    axis = plan.schema.axis
    if (isinstance(given, str | int) and not isinstance(given, bool)) or type(given).__name__ == "timedelta":
        return Length(FIXED, _positive(given, axis, verb))
    expr = resolve(given, plan, verb)
    if isinstance(expr, Lifetime) and expr.part == "duration":
        return Length()
    kind = infer(expr, plan.schema, verb)
    if isinstance(kind, t.DayTimeIntervalType) and axis == TIMESTAMP:
        elapsed = _between(expr, plan.schema, verb)
        if elapsed is not None:
            return Length(GIVEN, 0, elapsed)
        # of days alone, say, there are no seconds
        expr = Cast(expr, t.DayTimeIntervalType())
        second = Call(EXTRACT, (Lit("SECOND"), expr))
        # the parts are integers, in which microseconds overflow after 35 minutes
        days = Cast(Call(EXTRACT, (Lit("DAY"), expr)), t.LongType())
        minutes = (days * 24 + Call(EXTRACT, (Lit("HOUR"), expr))) * 60
        whole = (minutes + Call(EXTRACT, (Lit("MINUTE"), expr))) * 60_000_000
        return Length(GIVEN, 0, Cast(as_expr(whole), t.LongType()) + Cast(second * 1_000_000, t.LongType()))
    if not isinstance(kind, t.IntegralType | t.NullType):
        raise TypeMismatch(
            sentence(verb, "duration is neither ticks nor a duration", f"found {kind.simpleString()} in {show(expr)}")
        )
    return Length(GIVEN, 0, expr if isinstance(kind, t.LongType) else Cast(expr, t.LongType()))


def _between(expr: Expr, schema: Schema, verb: str) -> Expr | None:
    """The ticks between two instants, where a difference of instants is given: Spark's would be by the clocks of a time zone."""
    from streamq.operators.source import instant_ticks

    match expr:
        case Call(function=function, args=(later, earlier)) if function == SUBTRACT:
            kinds = [infer(e, schema, verb) for e in (later, earlier)]
            if all(isinstance(k, t.TimestampType | t.TimestampNTZType | t.DateType) for k in kinds):
                return instant_ticks(later, kinds[0]) - instant_ticks(earlier, kinds[1])
    return None


def _positive(given: Duration, axis: str, verb: str) -> int:
    made = ticks(given, axis, verb)
    if made <= 0:
        raise TimeError(sentence(verb, "the duration must be positive", f"found {given!r}"))
    return made
