"""Joins of streams, in windows, and with a table: their definitions and generators."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.operators import Join, JoinTable, WindowedJoin
from streamq.plan.schema import Schema
from streamq.testing.drawn_expressions import (
    exact_columns,
    exact_of_pairs,
)
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import keys, listed, own_keys, payload
from streamq.testing.query_scale import Meeting, Visit, meeting_of
from streamq.testing.windows.kinds import hopping_windows


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
def meeting(node: Join) -> Meeting:
    """Return the meeting of a join: long events on the left, whose partners come and go, with equal keys."""
    return Visit(node.children, (), frozenset(name for pair in node.on for name in pair))


@exact_columns.register(Join)
def exact_of_join(node: Join, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return exact_of_pairs(node, inputs)


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


@exact_columns.register(WindowedJoin)
def exact_of_windowed_join(node: WindowedJoin, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return exact_of_pairs(node, inputs)


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


@exact_columns.register(JoinTable)
def exact_of_join_table(node: JoinTable, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return inputs[0] | {to for _, to in node.names}
