"""Windows over canonical histories: which there are, and who is a member (docs/concepts.md, "Windows")."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.choices import Stamp
from streamq.operators import Scan, TopK, WindowAggregate
from streamq.plan.expr import Expr
from streamq.plan.schema import Schema
from streamq.testing.oracle.expressions import has_own_key, keys, listed, payload, same
from streamq.testing.oracle.grids import bound, hopping_windows
from streamq.testing.oracle.run import Run
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows import Count, Hopping, Landmark, Rows, Session, Snapshot


def members(node: WindowAggregate | TopK, events: str, groups: Sequence[str], run: Run) -> str:
    """Events with ``w`` (which window of the group), ``w_le`` and ``w_re``: a row for each window that they are in."""
    window = node.window
    by = f"PARTITION BY {listed(*groups)}" if groups else ""
    head = listed("0 AS w", "w_le", "w_re", "a.*")
    overlap = f"{same(groups)} AND a.le < b.w_re AND a.re > b.w_le"
    match window:
        case Hopping():
            return run.table(
                f"SELECT {head} FROM {events} a JOIN {hopping_windows(window.grid, events, run)} ON le < w_re AND re > w_le"
            )
        case Snapshot():
            ends = (
                f"SELECT {listed('le AS t', *groups)} FROM {events} UNION SELECT {listed('re', *groups)} FROM {events}"
            )
            windows = run.table(
                f"SELECT {listed('t AS w_le', f'lead(t) OVER ({by} ORDER BY t) AS w_re', *groups)} FROM ({ends})"
            )
            return run.table(f"SELECT {head} FROM {events} a JOIN {windows} b ON {overlap}")
        case Count(n=n, by=whose):
            at = "le" if whose == "start" else "re"
            instants = f"SELECT DISTINCT {listed(f'{at} AS t', *groups)} FROM {events} WHERE {at} < {INFINITY}"
            last = f"lead(t, {n - 1}) OVER ({by} ORDER BY t) + 1 AS w_re"
            windows = run.table(f"SELECT {listed('t AS w_le', last, *groups)} FROM ({instants})")
            inside = f"{same(groups)} AND a.{at} >= b.w_le AND a.{at} < b.w_re"
            return run.table(f"SELECT {head} FROM {events} a JOIN {windows} b ON {inside}")
        case Rows(n=n, step=step, order_by=order_by):
            names = node.input.schema.names
            whole = [*order_by, *(n for n in names if n not in order_by)]
            order = listed("le", *(f"{order_of(node.input.schema)[names.index(c)]} NULLS FIRST" for c in whole), "re")
            rows = run.table(f"SELECT *, row_number() OVER ({by} ORDER BY {order}) - 1 AS place FROM {events}")
            last = f"lead(le, {n - 1}) OVER ({by} ORDER BY place) + 1 AS w_re"
            windows = run.table(f"""
                SELECT * FROM (SELECT {listed("place AS w", "le AS w_le", last, *groups)} FROM {rows})
                WHERE w % {step} = 0 AND w_re IS NOT NULL""")  # fmt: skip
            inside = f"{same(groups)} AND a.place BETWEEN b.w AND b.w + {n - 1}"
            return run.table(f"SELECT b.w, b.w_le, b.w_re, a.* FROM {rows} a JOIN {windows} b ON {inside}")
        case Session(gap=gap):
            near = f"{same(groups)} AND b.le < a.le AND b.re::HUGEINT - 1 + {gap} > a.le"
            heads = run.table(f"""
                SELECT DISTINCT {listed("le AS t", *groups)} FROM {events} a
                WHERE NOT EXISTS (SELECT 1 FROM {events} b WHERE {near})""")  # fmt: skip
            first = f"(SELECT max(b.t) FROM {heads} b WHERE {same(groups)} AND b.t <= a.le)"
            rows = run.table(f"SELECT {first} AS w_le, a.* FROM {events} a")
            own = f"max(re) OVER (PARTITION BY {listed('w_le', *groups)})"
            end = f"CAST(least({INFINITY}, {own}::HUGEINT - 1 + {gap}) AS BIGINT)"
            return run.table(f"SELECT 0 AS w, w_le, {end} AS w_re, * EXCLUDE (w_le) FROM {rows}")
        case Landmark():
            windows = _landmarks(window, events, run)
            return run.table(f"SELECT {head} FROM {events} a JOIN {windows} ON le < w_re AND re > w_le")


def _landmarks(window: Landmark, events: str, run: Run) -> str:
    """``[l, l + jH)``, the last one cut at the next landmark, while ``l + (j - 1)H`` lies before the bound."""
    hop, start, period = window.hop, window.start, window.period
    until = bound(events, run, always=True)
    if period is None:
        marks, cut = f"(SELECT {start}::HUGEINT AS l)", str(INFINITY)
        most = f"({until} - l) // {hop} + 2"
    else:
        low, high = (f"CAST(({t}::HUGEINT - {start}) // {period} AS BIGINT)" for t in ("le", f"least(re, {until})"))
        number = f"unnest(range({low} - 1, {high} + 2))::HUGEINT"
        marks = f"(SELECT DISTINCT {start} + {period} * {number} AS l FROM {events})"
        cut, most = f"l + {period}", f"{period} // {hop} + 2"
    end = f"least(l + j * {hop}, {cut}, {INFINITY})"
    return run.table(f"""
        SELECT DISTINCT CAST(l AS BIGINT) AS w_le, CAST({end} AS BIGINT) AS w_re
        FROM (SELECT l, unnest(range(1, CAST({most} AS BIGINT) + 1)) AS j FROM {marks})
        WHERE l >= {MINUS_INFINITY} AND l + (j - 1) * {hop} < least({until}, {cut})""")  # fmt: skip


def stamped(node: WindowAggregate | TopK) -> tuple[str, str, str]:
    """A row's start and end, and the windows that have a row."""
    if node.stamp == Stamp.POINT_AT_END:
        return "w_re AS le", "w_re + 1 AS re", f"w_re < {INFINITY}"
    return "w_le AS le", "w_re AS re", "true"


def events_in_groups(
    node: WindowAggregate | TopK | Scan, values: Sequence[tuple[str, Expr, str]], source: str, run: Run
) -> tuple[str, list[str]]:
    """Events with group columns ``g0, ...``, computed values, and the payload as ``p0, ...``; and the group columns.

    A value is its name, its expression and of which value before it it depends whether it is asked for (or nothing).
    """
    schema = node.input.schema
    groups = [f"g{i}" for i in range(len(node.keys))]
    whose = [f"{keys(schema)[schema.names.index(k)]} AS {g}" for g, k in zip(groups, node.keys, strict=True)]
    asked_values = [(run.sql(e, schema), name, asked) for name, e, asked in values]
    computed = [
        f"CASE WHEN {asked} THEN {call} END AS {name}" if asked else f"{call} AS {name}"
        for call, name, asked in asked_values
    ]
    own = [f"{c} AS p{i}" for i, c in enumerate(payload(schema))]
    own += [f"{c} AS {o}" for c, o in zip(keys(schema), order_of(schema), strict=True) if o.startswith("o")]
    return run.table(f"SELECT {listed('le', 're', *whose, *computed, *own)} FROM {source}"), groups


def order_of(schema: Schema) -> list[str]:
    """What an event's payload ``p0, ...`` is ordered by."""
    return [f"o{i}" if has_own_key(f.type) else f"p{i}" for i, f in enumerate(schema.fields)]


__all__ = ["events_in_groups", "members", "order_of", "stamped"]
