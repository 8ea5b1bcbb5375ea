"""Operators on rows and lifetimes for tests: their definitions and generators, their lengths, and how they move progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamq.choices import LengthKind
from streamq.errors import QueryFailed
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
from streamq.plan.schema import Schema
from streamq.testing.arrival import Bounds, GridBounds
from streamq.testing.drawn_expressions import exact_columns, exact_of_pairs, is_exact
from streamq.testing.oracle.run import Run, defines
from streamq.testing.oracle.values import keys, listed, own_keys, payload, quoted, same
from streamq.testing.progress_policies import moved
from streamq.testing.query_scale import Meeting, Visit, bounds, lengths, meeting_of, recurrences
from streamq.testing.window_kinds import bound, hopping_windows
from streamq.time import FIRST_INSTANT, INFINITY, Grid


@defines(Select)
def select(node: Select, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that keeps lifetimes, and computes each column from its row; without the events that are set aside."""
    source = run.without_failed([e for _, e in node.columns], node.input.schema, inputs[0])
    columns = [f"{run.sql(e, node.input.schema)} AS c{i}" for i, (_, e) in enumerate(node.columns)]
    return f"SELECT {listed('le', 're', *columns)} FROM {source}"


exact_columns.register(
    Select, lambda node, inputs: frozenset(name for name, expr in node.columns if is_exact(expr, inputs[0]))
)


@defines(Where)
def where(node: Where, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the rows for which the predicate is true, without the events that are set aside."""
    source = run.without_failed([node.predicate], node.input.schema, inputs[0])
    return f"SELECT * FROM {source} WHERE {run.sql(node.predicate, node.input.schema)}"


@defines(Union)
def union(node: Union, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for all rows of all inputs."""
    columns = listed("le", "re", *payload(node.schema))
    return " UNION ALL ".join(f"SELECT {columns} FROM {name}" for name in inputs)


exact_columns.register(Union, lambda node, inputs: frozenset.intersection(*inputs))


@defines(DistinctIds)
def distinct_ids(node: DistinctIds, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for one event of each combination of ids and start, the least by end and payload.

    It is left out if another event of these ids starts before it, by ``within`` at most; one that is left out itself counts, too.
    """
    names = keys(node.schema)
    ids = [names[node.schema.names.index(i)] for i in node.ids]
    order = listed("re", *(f"{c} NULLS FIRST" for c in names))
    rows = run.table(
        f"SELECT *, row_number() OVER (PARTITION BY {listed('le', *ids)} ORDER BY {order}) AS place FROM {inputs[0]}"
    )
    near = f"{same(ids)} AND b.le::HUGEINT >= a.le::HUGEINT - {node.within} AND b.le < a.le"
    return f"""
        SELECT {listed("le", "re", *payload(node.schema))} FROM {rows} a
        WHERE place = 1 AND NOT EXISTS (SELECT 1 FROM {rows} b WHERE {near})"""


@lengths.register(DistinctIds)
def within(node: DistinctIds) -> Iterator[int]:
    yield node.within


@defines(Except)
def except_(node: Except, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the units that remain of the left events, by their number per payload and instant.

    At an instant ``max(0, left - right)`` units remain, and unit u lives while at least u remain.
    """
    names, columns = keys(node.schema), payload(node.schema)
    values = [f"any_value({c}) AS {c}" for c in columns if c not in names]
    cuts = run.table(f"""
        SELECT {listed("t", *names, *values)} FROM (
            {" UNION ALL ".join(f"SELECT {t} AS t, * FROM {i}" for i in inputs for t in ("le", "re"))}
        ) GROUP BY {listed("t", *names)}""")  # fmt: skip
    alive = [f"(SELECT count(*) FROM {i} b WHERE {same(names)} AND b.le <= a.t AND a.t < b.re)" for i in inputs]
    level = run.table(f"SELECT *, greatest(0, {alive[0]} - {alive[1]}) AS level FROM {cuts} a")
    before = f"(SELECT max(b.t) FROM {level} b WHERE {same(names)} AND b.t < a.t)"
    steps = run.table(f"""
        SELECT a.*, coalesce((SELECT b.level FROM {level} b WHERE {same(names)} AND b.t = {before}), 0) AS was
        FROM {level} a""")  # fmt: skip
    rises = run.table(f"SELECT *, unnest(range(was + 1, level + 1)) AS unit FROM {steps}")
    end = f"(SELECT min(b.t) FROM {level} b WHERE {same(names)} AND b.t > a.t AND b.level < a.unit)"
    return f"SELECT {listed('t AS le', f'{end} AS re', *columns)} FROM {rises} a"


@defines(LastRows)
def last_rows(node: LastRows, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that lists the latest window of each key at each instant of a row, and joins it with its rows.

    Window w has n rows from the w-th on. At the start of its last row it is the latest, if none with a later last row has that
    start, until the next start of a last row. A row lives from the first of these instants at which the latest window has it
    to the last end of one, as a row that has left the windows does not come back.
    """
    names, window, columns = node.schema.names, node.window, keys(node.schema)
    own = [columns[names.index(k)] for k in node.keys]
    by = f"PARTITION BY {listed(*own)}" if own else ""
    whole = [*window.order_by, *(n for n in names if n not in window.order_by)]
    order = listed("le", *(f"{columns[names.index(c)]} NULLS FIRST" for c in whole))
    rows = run.table(f"SELECT *, row_number() OVER ({by} ORDER BY {order}) - 1 AS place FROM {inputs[0]}")
    before = window.n - 1
    complete = run.table(f"""
        SELECT {listed("max(place) AS last", "le AS since", *own)} FROM {rows}
        WHERE place >= {before} AND (place - {before}) % {window.step} = 0 GROUP BY {listed("le", *own)}""")  # fmt: skip
    until = f"coalesce(lead(since) OVER ({by} ORDER BY since), {INFINITY}) AS until"
    latest = run.table(f"SELECT {listed('last', 'since', until, *own)} FROM {complete}")
    inside = f"{same(own)} AND a.place BETWEEN b.last - {before} AND b.last"
    lives = run.table(f"""
        SELECT {listed("place", "min(since) AS since", "max(until) AS until", *(f"a.{k}" for k in own))}
        FROM {rows} a JOIN {latest} b ON {inside} GROUP BY {listed("place", *(f"a.{k}" for k in own))}""")  # fmt: skip
    every = listed("since AS le", "until AS re", *(f"a.{c}" for c in payload(node.schema)))
    return f"SELECT {every} FROM {rows} a JOIN {lives} b ON {same(own)} AND a.place = b.place"


def agreement(left: Schema, right: Schema, on: Sequence[tuple[str, str]]) -> str:
    """Return the condition that the keys of rows ``a`` and ``b`` are equal; NULL equals nothing."""
    ours, theirs = keys(left), keys(right)
    pairs = [f"a.{ours[left.names.index(x)]} = b.{theirs[right.names.index(y)]}" for x, y in on]
    return " AND ".join(pairs) or "true"


def pair_columns(node: Join | WindowedJoin) -> list[str]:
    """Return the columns of a pair of rows ``a`` and ``b``."""
    ours = [f"a.c{node.left.schema.names.index(n)}" for n, _ in node.left_names]
    theirs = [f"b.c{node.right.schema.names.index(n)}" for n, _ in node.right_names]
    return [f"{column} AS c{i}" for i, column in enumerate([*ours, *theirs])]


@defines(Join)
def join(node: Join, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for matching pairs with the intersection of their lifetimes.

    Semi and anti: for the parts of each left event that such intersections cover, or do not cover, joined where they meet; left:
    inner, and anti with NULLs.
    """
    left = run.table(f"SELECT *, row_number() OVER () AS n FROM {inputs[0]}")
    pairs = run.table(f"""
        SELECT {listed("a.n", "greatest(a.le, b.le) AS le", "least(a.re, b.re) AS re", *pair_columns(node))}
        FROM {left} a JOIN {inputs[1]} b
        ON a.le < b.re AND b.le < a.re AND {agreement(node.left.schema, node.right.schema, node.on)}""")  # fmt: skip
    if node.where is not None:
        pairs = run.table(f"SELECT * FROM {pairs} WHERE {run.sql(node.where, node.both)}")
    inner = f"SELECT {listed('le', 're', *payload(node.both))} FROM {pairs}"
    if node.how == "inner":
        return inner
    # covered parts start and end at those bounds of intersections that no other intersection extends beyond
    starts = run.table(f"""
        SELECT DISTINCT n, le AS t FROM {pairs} a
        WHERE NOT EXISTS (SELECT 1 FROM {pairs} b WHERE a.n = b.n AND b.le < a.le AND b.re >= a.le)""")  # fmt: skip
    ends = run.table(f"""
        SELECT DISTINCT n, re AS t FROM {pairs} a
        WHERE NOT EXISTS (SELECT 1 FROM {pairs} b WHERE a.n = b.n AND b.le <= a.re AND b.re > a.re)""")  # fmt: skip
    own = [f"a.c{i}" for i in range(len(node.left.schema.fields))]
    if node.how == "semi":
        return f"""
            SELECT {listed("s.t AS le", f"(SELECT min(t) FROM {ends} e WHERE e.n = s.n AND e.t > s.t) AS re", *own)}
            FROM {left} a JOIN {starts} s ON a.n = s.n"""
    open_at = run.table(f"""
        SELECT n, le AS t FROM {left} a WHERE NOT EXISTS (SELECT 1 FROM {starts} s WHERE s.n = a.n AND s.t = a.le)
        UNION ALL SELECT a.n, e.t FROM {left} a JOIN {ends} e ON a.n = e.n WHERE e.t < a.re""")  # fmt: skip
    until = f"coalesce((SELECT min(t) FROM {starts} s WHERE s.n = a.n AND s.t > o.t), a.re)"
    anti = f"FROM {left} a JOIN {open_at} o ON a.n = o.n"
    if node.how == "anti":
        return f"SELECT {listed('o.t AS le', f'{until} AS re', *own)} {anti}"
    left_columns = [f"a.c{node.left.schema.names.index(n)}" for n, _ in node.left_names]
    nulls = ["NULL"] * len(node.right_names)
    return f"{inner} UNION ALL SELECT {listed('o.t', until, *left_columns, *nulls)} {anti}"


@meeting_of.register(Join)
def join_meeting(node: Join) -> Meeting:
    """Return the meeting of a join: long events on the left, whose partners come and go, with equal keys."""
    return Visit(node.children, (), frozenset(name for pair in node.on for name in pair))


exact_columns.register(Join, exact_of_pairs)


@defines(WindowedJoin)
def windowed_join(node: WindowedJoin, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for the matching pairs of members of each window of the grid, valid for the window.

    A pair is there once for each window that both overlap, though they may not overlap each other. Start and end in the condition
    are the window's.
    """
    both = run.table(" UNION ALL ".join(f"SELECT le, re FROM {name}" for name in inputs))
    assert node.window.grid is not None
    windows = hopping_windows(node.window.grid, both, run)
    pairs = run.table(f"""
        SELECT {listed("w_le AS le", "w_re AS re", *pair_columns(node))} FROM {windows}
        JOIN {inputs[0]} a ON a.le < w_re AND a.re > w_le JOIN {inputs[1]} b ON b.le < w_re AND b.re > w_le
        WHERE {agreement(node.left.schema, node.right.schema, node.on)}""")  # fmt: skip
    return f"SELECT * FROM {pairs}" + (f" WHERE {run.sql(node.where, node.schema)}" if node.where is not None else "")


exact_columns.register(WindowedJoin, exact_of_pairs)


@defines(JoinTable)
def join_table(node: JoinTable, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that joins each event with the table's rows of equal keys; a left join keeps events without any, with NULLs."""
    schema = Schema(node.columns, node.schema.axis)
    table = run.table(f"SELECT {listed('*', *own_keys(schema))} FROM {run.static(node)}")
    columns = [f"a.c{i}" for i in range(len(node.input.schema.fields))]
    columns += [f"b.c{schema.names.index(n)}" for n, _ in node.names]
    named_columns = [f"{c} AS c{i}" for i, c in enumerate(columns)]
    kind = "JOIN" if node.how == "inner" else "LEFT JOIN"
    agree = agreement(node.input.schema, schema, node.on)
    return f"SELECT {listed('a.le', 'a.re', *named_columns)} FROM {inputs[0]} a {kind} {table} b ON {agree}"


exact_columns.register(JoinTable, lambda node, inputs: inputs[0] | {to for _, to in node.names})


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
def clip_meeting(node: Clip) -> Meeting:
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
