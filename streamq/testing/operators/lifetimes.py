"""Operators that change lifetimes: their definitions and generators, their lengths, and how they move progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamq.choices import LengthKind
from streamq.errors import QueryFailed
from streamq.operators import AlterLifetime, Chop, Clip, Explode, ToSignal
from streamq.testing.operators.joins import agreement
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.reach import moved
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import keys, listed, payload, quoted, same
from streamq.testing.query_scale import Meeting, Visit, bounds, lengths, meeting_of, recurrences
from streamq.testing.scale import Bounds, GridBounds
from streamq.testing.windows.kinds import bound, hopping_windows
from streamq.time import FIRST_INSTANT, INFINITY, Grid


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


@lengths.register(AlterLifetime)
def lengths_of_alter_lifetime(node: AlterLifetime) -> Iterator[int]:
    yield from (abs(node.start.by), node.start.within or 0, abs(node.length.by))


@defines(Chop)
def chop(node: Chop, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that cuts each lifetime at the bounds of the grid's cells.

    Only pieces that start before the oracle's bound are there, also of events with an end.
    """
    until = bound(inputs[0], run)
    cells = hopping_windows(Grid(node.period, node.period, node.offset), inputs[0], run)
    return f"""
        SELECT {listed("greatest(le, w_le) AS le", "least(re, w_re) AS re", *payload(node.schema))}
        FROM {inputs[0]} JOIN {cells} ON le < w_re AND re > w_le WHERE greatest(le, w_le) < {until}"""


@lengths.register(Chop)
@recurrences.register(Chop)
def period(node: Chop) -> Iterator[int]:
    yield node.period


@bounds.register(Chop)
def bounds_of_pieces(node: Chop) -> Iterator[Bounds]:
    yield GridBounds(Grid(node.period, node.period, node.offset))


@defines(Clip)
def clip(node: Clip, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that ends each event at the least later start of a matching event, if that is before its own end."""
    agree = agreement(node.input.schema, node.by.schema, node.on)
    first = f"(SELECT min(b.le) FROM {inputs[1]} b WHERE {agree} AND b.le > a.le)"
    return f"SELECT {listed('le', f'least(re, coalesce({first}, {INFINITY})) AS re', *payload(node.schema))} FROM {inputs[0]} a"


@meeting_of.register(Clip)
def meeting(node: Clip) -> Meeting:
    """Return the meeting of a clip: long events, some of which are cut, with equal keys."""
    return Visit(node.children, (), frozenset(name for pair in node.on for name in pair))


@defines(Explode)
def explode(node: Explode, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for a row for each element of the array, in the array's column or, flattened, as columns after the others.

    An array that is empty or NULL has no rows; an element that is NULL has one.
    """
    source = node.input.schema.names
    place = source.index(node.column)
    elements = f"SELECT *, unnest(c{place}) AS element FROM {inputs[0]} WHERE len(c{place}) > 0"
    values = {name: f"c{i}" for i, name in enumerate(source)} | {node.column: "element"}
    fields = [n for n in node.schema.names if n not in source or n == node.column] if node.flatten else []
    values |= {name: f"(element).{quoted(name)}" for name in fields}
    columns = [f"{values[name]} AS c{i}" for i, name in enumerate(node.schema.names)]
    return f"SELECT {listed('le', 're', *columns)} FROM ({elements})"


@defines(ToSignal)
def to_signal(node: ToSignal, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that ends each event at the least strictly later start of an event with equal keys.

    With ``order_by``, an event goes if another of its keys and start is greater in these columns, NULL being the least.
    """
    names = dict(zip(node.schema.names, keys(node.schema), strict=True))
    own, order = [names[k] for k in node.keys], [names[n] for n in node.order_by]
    until = f"(SELECT min(b.le) FROM {inputs[0]} b WHERE {same(own)} AND b.le > a.le)"
    rows = f"SELECT {listed('le', f'coalesce({until}, {INFINITY}) AS re', *payload(node.schema))} FROM {inputs[0]} a"
    if not order:
        return rows
    equal = [f"{same(order[:n])} AND {_is_after(column)}" for n, column in enumerate(order)]
    later = " OR ".join(f"({each})" for each in equal)
    return f"{rows} WHERE NOT EXISTS (SELECT 1 FROM {inputs[0]} b WHERE {same(own)} AND b.le = a.le AND ({later}))"


def _is_after(column: str) -> str:
    """Return a condition: b is greater than a in a column, and NULL is the least."""
    return f"(b.{column} IS NOT NULL AND (a.{column} IS NULL OR b.{column} > a.{column}))"
