"""Span operators over canonical histories (SEMANTICS section 2)."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.errors import sentence
from streamq.operators import (
    AlterLifetime,
    Chop,
    Clip,
    DistinctIds,
    Except,
    Join,
    JoinTable,
    Select,
    ToSignal,
    Union,
    Where,
    WindowedJoin,
)
from streamq.plan.schema import Schema
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.expressions import keys, listed, own_keys, payload, same
from streamq.testing.oracle.run import Run, TooMuch
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows import Hopping

MOST_WINDOWS = 1_000_000
"""Lifetimes of more hops than this are refused."""


@defines(Where)
def where(node: Where, inputs: Sequence[str], run: Run) -> str:
    """The rows for which the predicate is true."""
    return f"SELECT * FROM {inputs[0]} WHERE {run.sql(node.predicate, node.input.schema)}"


@defines(Select)
def select(node: Select, inputs: Sequence[str], run: Run) -> str:
    """The same lifetimes, each column computed from its row."""
    columns = [f"{run.sql(e, node.input.schema)} AS c{i}" for i, (_, e) in enumerate(node.columns)]
    return f"SELECT {listed('le', 're', *columns)} FROM {inputs[0]}"


@defines(Union)
def union(node: Union, inputs: Sequence[str], run: Run) -> str:
    """All rows of all inputs."""
    columns = listed("le", "re", *payload(node.schema))
    return " UNION ALL ".join(f"SELECT {columns} FROM {name}" for name in inputs)


def saturated(ticks: str) -> str:
    """A sum of ticks in HUGEINT, kept on the axis."""
    return f"CAST(greatest({MINUS_INFINITY + 1}, least({INFINITY}, {ticks})) AS BIGINT)"


@defines(AlterLifetime)
def alter_lifetime(node: AlterLifetime, inputs: Sequence[str], run: Run) -> str:
    """``[s, s + duration)``, saturating; what has no start or no positive duration is gone."""
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


# two streams


def _agree(left: Schema, right: Schema, on: Sequence[tuple[str, str]]) -> str:
    """Equality of keys of rows ``a`` and ``b``; NULL equals nothing."""
    ours, theirs = keys(left), keys(right)
    pairs = [f"a.{ours[left.names.index(x)]} = b.{theirs[right.names.index(y)]}" for x, y in on]
    return " AND ".join(pairs) or "true"


def _pair(node: Join | WindowedJoin) -> list[str]:
    """The columns of a pair of rows ``a`` and ``b``."""
    ours = [f"a.c{node.left.schema.names.index(n)}" for n, _ in node.left_names]
    theirs = [f"b.c{node.right.schema.names.index(n)}" for n, _ in node.right_names]
    return [f"{column} AS c{i}" for i, column in enumerate([*ours, *theirs])]


@defines(Join)
def join(node: Join, inputs: Sequence[str], run: Run) -> str:
    """Every pair that agrees, on what their lifetimes share; semi and anti: the parts that those do, or do not, cover."""
    left = run.table(f"SELECT *, row_number() OVER () AS n FROM {inputs[0]}")
    pairs = run.table(f"""
        SELECT {listed("a.n", "greatest(a.le, b.le) AS le", "least(a.re, b.re) AS re", *_pair(node))}
        FROM {left} a JOIN {inputs[1]} b
        ON a.le < b.re AND b.le < a.re AND {_agree(node.left.schema, node.right.schema, node.on)}""")  # fmt: skip
    if node.where is not None:
        pairs = run.table(f"SELECT * FROM {pairs} WHERE {run.sql(node.where, node.both)}")
    inner = f"SELECT {listed('le', 're', *payload(node.both))} FROM {pairs}"
    if node.how == "inner":
        return inner
    # where a covered part starts and ends: at an end of a piece that no other piece reaches over
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


@defines(WindowedJoin)
def windowed_join(node: WindowedJoin, inputs: Sequence[str], run: Run) -> str:
    """Per window of the grid every pair of members that agrees."""
    both = run.table(" UNION ALL ".join(f"SELECT le, re FROM {name}" for name in inputs))
    windows = hopping_windows(node.window, both, run)
    pairs = run.table(f"""
        SELECT {listed("w_le AS le", "w_re AS re", *_pair(node))} FROM {windows}
        JOIN {inputs[0]} a ON a.le < w_re AND a.re > w_le JOIN {inputs[1]} b ON b.le < w_re AND b.re > w_le
        WHERE {_agree(node.left.schema, node.right.schema, node.on)}""")  # fmt: skip
    return f"SELECT * FROM {pairs}" + (f" WHERE {run.sql(node.where, node.schema)}" if node.where is not None else "")


def hopping_windows(window: Hopping, events: str, run: Run) -> str:
    """The windows of a grid to report: of every event those that it may overlap, and some more."""
    size, hop, offset = window.size, window.hop, window.offset
    until = bound(events, run)
    last = f"least(re, {until})"
    if (run.value(f"SELECT max({last}::HUGEINT - le) FROM {events}") or 0) > MOST_WINDOWS * hop:
        hint = "Lifetimes of the query's own lengths do: leave the pattern out, or make it shorter."
        raise TooMuch(sentence("oracle", "too many windows", f"a lifetime is longer than {MOST_WINDOWS} hops", hint))
    low, high = f"(le::HUGEINT - {offset} - {size}) // {hop} - 2", f"({last}::HUGEINT - {offset}) // {hop} + 2"
    start = f"{offset} + i * {hop}::HUGEINT"
    return run.table(f"""
        SELECT DISTINCT CAST(greatest({MINUS_INFINITY}, {start}) AS BIGINT) AS w_le,
            CAST(greatest({MINUS_INFINITY}, least({INFINITY}, {start} + {size})) AS BIGINT) AS w_re
        FROM (SELECT DISTINCT unnest(range(CAST({low} AS BIGINT), CAST({high} AS BIGINT))) AS i FROM {events})
        WHERE {start} < {until}""")  # fmt: skip


def bound(events: str, run: Run, always: bool = False) -> int:
    """Before what windows and pieces must start: the caller's bound; else, if a lifetime has no end, or ``always``, the greater
    of the last finite endpoint and how far the input has come (``always``: one tick later).
    """
    if run.until is not None:
        return run.until
    infinite = run.value(f"SELECT count(*) FROM {events} WHERE re = {INFINITY}")
    finite = run.value(f"SELECT max(CASE WHEN re < {INFINITY} THEN re ELSE le END) FROM {events}")
    last = max((t for t in (finite, run.reach) if t is not None), default=0)
    if always:
        return last + 1
    return last if infinite else INFINITY


@defines(Except)
def except_(node: Except, inputs: Sequence[str], run: Run) -> str:
    """Per payload, instant by instant, ``max(0, l - r)`` units; unit u lives where there are at least u."""
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


@defines(Clip)
def clip(node: Clip, inputs: Sequence[str], run: Run) -> str:
    """The end, or the least start of a matching event after the own one, if that is before."""
    agree = _agree(node.input.schema, node.by.schema, node.on)
    first = f"(SELECT min(b.le) FROM {inputs[1]} b WHERE {agree} AND b.le > a.le)"
    return f"SELECT {listed('le', f'least(re, coalesce({first}, {INFINITY})) AS re', *payload(node.schema))} FROM {inputs[0]} a"


# one stream


@defines(ToSignal)
def to_signal(node: ToSignal, inputs: Sequence[str], run: Run) -> str:
    """Until the least strictly later start of equal keys."""
    own = [keys(node.schema)[node.schema.names.index(k)] for k in node.keys]
    until = f"(SELECT min(b.le) FROM {inputs[0]} b WHERE {same(own)} AND b.le > a.le)"
    return f"SELECT {listed('le', f'coalesce({until}, {INFINITY}) AS re', *payload(node.schema))} FROM {inputs[0]} a"


@defines(Chop)
def chop(node: Chop, inputs: Sequence[str], run: Run) -> str:
    """What each cell of the grid shares with the lifetime; pieces start before the bound."""
    until = bound(inputs[0], run)
    cells = hopping_windows(Hopping(node.period, node.period, node.offset), inputs[0], run)
    return f"""
        SELECT {listed("greatest(le, w_le) AS le", "least(re, w_re) AS re", *payload(node.schema))}
        FROM {inputs[0]} JOIN {cells} ON le < w_re AND re > w_le WHERE greatest(le, w_le) < {until}"""


@defines(DistinctIds)
def distinct_ids(node: DistinctIds, inputs: Sequence[str], run: Run) -> str:
    """Those that no event of their ids precedes by at most ``within``, and that are the first of their instant."""
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


@defines(JoinTable)
def join_table(node: JoinTable, inputs: Sequence[str], run: Run) -> str:
    """Each event with the rows of the table that agree."""
    schema = Schema(node.columns, node.schema.axis)
    table = run.table(f"SELECT {listed('*', *own_keys(schema))} FROM {run.static(node)}")
    columns = [f"a.c{i}" for i in range(len(node.input.schema.fields))]
    columns += [f"b.c{schema.names.index(n)}" for n, _ in node.names]
    named_columns = [f"{c} AS c{i}" for i, c in enumerate(columns)]
    kind = "JOIN" if node.how == "inner" else "LEFT JOIN"
    agree = _agree(node.input.schema, schema, node.on)
    return f"SELECT {listed('a.le', 'a.re', *named_columns)} FROM {inputs[0]} a {kind} {table} b ON {agree}"
