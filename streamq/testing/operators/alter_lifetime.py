"""AlterLifetime: its definition, its generator, its lengths, and how it moves progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.choices import Anchor, LengthKind
from streamq.errors import QueryFailed
from streamq.expressions import duration, start, when
from streamq.functions.arithmetic import ABS
from streamq.functions.choice import COALESCE
from streamq.functions.dates import UNIX_MICROS
from streamq.operators import AlterLifetime
from streamq.operators.lifetime_change import Length, Start
from streamq.plan.expr import Call, Cast, Col, Lit
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw, exact, is_a
from streamq.testing.drawn_operators import over_one
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.reach import moved
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed, payload
from streamq.testing.query_scale import lengths
from streamq.time import FIRST_INSTANT, INFINITY, TIMESTAMP


def saturated(ticks: str) -> str:
    """Return SQL for a sum of ticks in HUGEINT, saturated to the time axis."""
    return f"CAST(greatest({FIRST_INSTANT}, least({INFINITY}, {ticks})) AS BIGINT)"


@defines(AlterLifetime)
def alter_lifetime(node: AlterLifetime, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that changes lifetimes to ``[s, s + duration)``, saturating.

    Events without a finite start or without a positive duration are dropped; a computed duration of NULL has no end.
    """
    source = node.input.schema
    start, length = node.start, node.length
    if start.expr is not None:
        at = run.sql(start.expr, source)
    else:
        anchor = start.anchor.lower()
        at = f"CASE WHEN {anchor} = {INFINITY} THEN {INFINITY} ELSE {saturated(f'{anchor}::HUGEINT + {start.by}')} END"
    match length.kind:
        case "fixed":
            lasts = str(length.by)
        case "given":
            lasts = f"coalesce({run.sql(length.expr, source)}, {INFINITY})" if length.expr is not None else ""
        case _:
            lasts = f"CASE WHEN re = {INFINITY} THEN {INFINITY} ELSE {saturated(f're::HUGEINT - le + {length.by}')} END"
    columns = payload(node.schema)
    moved = run.table(f"SELECT {listed(f'{at} AS new_le', f'{lasts} AS lasts', *columns)} FROM {inputs[0]}")
    end = f"CASE WHEN lasts = {INFINITY} THEN {INFINITY} ELSE {saturated('new_le::HUGEINT + lasts')} END"
    return f"""
        SELECT {listed("new_le AS le", f"{end} AS re", *columns)} FROM {moved}
        WHERE new_le IS NOT NULL AND new_le < {INFINITY} AND lasts > 0 AND {end} > new_le"""


@moved.register(AlterLifetime)
def moved_as_progress_is(node: AlterLifetime, t: int, run: Run) -> int | None:
    """Return the instant moved as the operator moves CTIs, kept finite; None if the start's expression is NULL there or fails.

    A duration made shorter by a number of ticks moves it back by as many; a start with ``within`` moves it back by that alone.
    """
    start, length = node.start, node.length
    if start.expr is None:
        t += start.by + (min(0, length.by) if length.kind == LengthKind.SAME else 0)
    elif start.within is not None:
        t -= start.within
    else:
        schema = node.input.schema
        nothing = [f"NULL AS {c}" for c in payload(schema)]
        instant = f"(SELECT {listed(f'CAST({t} AS BIGINT) AS le', f'CAST({t} + 1 AS BIGINT) AS re', *nothing)})"
        try:
            at = run.value(f"SELECT * FROM {run.table(f'SELECT {run.sql(start.expr, schema)} AS t FROM {instant}')}")
        except QueryFailed:
            return None
        if at is None:
            return None
        t = int(at)
    return max(FIRST_INSTANT, min(INFINITY - 1, t))


@over_one
def draw_alter_lifetime(draw: Draw, plan: Node, reads_end: bool) -> AlterLifetime:
    """Draw a change of lifetimes: moved, stretched, shortened, or computed from the payload."""
    by = st.integers(-6, 6)
    names = sorted(exact(plan))
    ticks = Call(UNIX_MICROS, (start(),)) if plan.schema.axis == TIMESTAMP else start()
    starts = [
        Start(),
        Start(by=draw(by)),
        Start(Anchor.GIVEN, 0, ticks - ticks % 4),
        Start(Anchor.GIVEN, 0, ticks + 3),
        Start(Anchor.GIVEN, 0, when(ticks > 12, ticks + 3)),
    ]
    durations = [
        Length(),
        Length(LengthKind.SAME, draw(by)),
        Length(LengthKind.FIXED, 1),
        Length(LengthKind.FIXED, draw(st.integers(1, 9))),
    ]
    for name in names:
        # every event that has a value moves by exactly ``within``, the most that the promise allows
        within = draw(st.integers(0, 6))
        starts.append(Start(Anchor.GIVEN, 0, ticks - when(Col(name).is_not_null(), within).otherwise(0), within))
    for name in names:
        if is_a(plan.schema.type_of(name), t.IntegerType, t.LongType):
            size = Cast(Call(COALESCE, (Call(ABS, (Col(name) % 8,)), Lit(0))), t.LongType())
            starts.append(Start(Anchor.GIVEN, 0, ticks - size, 7))
            durations.append(Length(LengthKind.GIVEN, 0, Cast(Col(name), t.LongType())))
    if reads_end:
        starts.append(Start(Anchor.RE))
        durations.append(Length(LengthKind.GIVEN, 0, duration() * 2))
    return AlterLifetime(plan, draw(st.sampled_from(starts)), draw(st.sampled_from(durations)))


@lengths.register(AlterLifetime)
def lengths_of_alter_lifetime(node: AlterLifetime) -> Iterator[int]:
    yield from (abs(node.start.by), node.start.within or 0, abs(node.length.by))
