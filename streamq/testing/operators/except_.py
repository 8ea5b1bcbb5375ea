"""Except: its definition and its generator."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.operators import Except
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw, exact, matched
from streamq.testing.drawn_operators import Pairs, over_two
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import keys, listed, payload, same


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


@over_two()
def draw_except(draw: Draw, one: Node, two: Node, on: Pairs) -> Except | None:
    common = matched(one.schema, exact(one) & exact(two))
    fits = set(common) == set(one.schema.names) and one.schema.fields == two.schema.fields
    return Except(one, two) if fits else None
