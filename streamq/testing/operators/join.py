"""Join: its definition, its generator, and its exact columns."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from streamq.choices import JoinKind
from streamq.operators import Join
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw, exact_columns
from streamq.testing.drawn_operators import Pairs, over_two
from streamq.testing.drawn_pairs import drawn_pairs, exact_of_pairs
from streamq.testing.meetings import Meeting, Visit, meeting_of
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.pairs import agreement, pair_columns
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed, payload


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


@over_two(weight=3)
def draw_join(draw: Draw, one: Node, two: Node, on: Pairs) -> Join:
    how = draw(st.sampled_from(list(JoinKind)))
    both = draw(drawn_pairs(one, two, on))
    return Join(one, two, on, both.where, how, left_names=both.left_names, right_names=both.right_names)


@meeting_of.register(Join)
def meeting(node: Join) -> Meeting:
    """Return the meeting of a join: long events on the left, whose partners come and go, with equal keys."""
    return Visit(node.children, (), frozenset(name for pair in node.on for name in pair))


@exact_columns.register(Join)
def exact_of_join(node: Join, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return exact_of_pairs(node, inputs)
