"""Operators that keep lifetimes: they choose rows, compute columns, put streams together or compare their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamq.operators import DistinctIds, Except, LastRows, Select, Union, Where
from streamq.testing.drawn_expressions import (
    exact_columns,
    is_exact,
)
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import keys, listed, payload, same
from streamq.testing.query_scale import lengths
from streamq.time import INFINITY


@defines(Select)
def select(node: Select, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that keeps lifetimes, and computes each column from its row; without the events that are set aside."""
    source = run.without_failed([e for _, e in node.columns], node.input.schema, inputs[0])
    columns = [f"{run.sql(e, node.input.schema)} AS c{i}" for i, (_, e) in enumerate(node.columns)]
    return f"SELECT {listed('le', 're', *columns)} FROM {source}"


@exact_columns.register(Select)
def exact_of_select(node: Select, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset(name for name, expr in node.columns if is_exact(expr, inputs[0]))


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


@exact_columns.register(Union)
def exact_of_union(node: Union, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset.intersection(*inputs)


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
