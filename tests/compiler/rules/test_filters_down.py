"""Filters and columns stand as deep as they may, verb by verb: no answer changes, nothing else is late, and nothing fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Egress, Results
from streamq.compiler.rewriter import rewrite, without_unread_columns
from streamq.compiler.rules import RULES
from streamq.compiler.stages import compile_stages
from streamq.operators import Join, Source, Where, WindowedJoin
from streamq.operators.step import Step
from streamq.plan.expr import Expr, show
from streamq.plan.node import Node, nodes, number_sources
from streamq.runtime.deltas import net_deltas
from streamq.testing.history import assert_same_history
from streamq.testing.oracle import oracle
from tests.compiler.rules.law import history
from tests.golden_table import check_table, read_table

pytestmark = pytest.mark.filterwarnings("ignore::streamq.errors.StreamqWarning")

col = sq.col
POINTS, INTERVALS = "at bigint, k string, v bigint, w double", "from bigint, to bigint, k string, v bigint, w double"
ROWS = [(3, "a", 2, 1.0), (1, "b", 0, 2.0), (4, "a", 5, None), (9, "b", 3, 0.5), (5, "a", 0, 4.0), (6, None, 3, 2.0)]
ROWS += [
    (12, "a", 4, 1.5),
    (11, "c", None, 0.0),
    (20, "b", 1, 2.5),
    (2, "a", 7, 3.0),
    (21, "a", 2, 0.5),
    (28, "b", 6, 0.5),
]
LASTING = [(at, None if at in (5, 20) else at + 4, *payload) for at, *payload in ROWS]
P = sq.points(t.table(POINTS, ROWS), time="at", name="P", progress=sq.generate(delay=2), late="drop")
O = sq.points(t.table(POINTS, [(at + 1, *payload) for at, *payload in ROWS[::-1]]), time="at", name="O")
I = sq.intervals(
    t.table(INTERVALS, LASTING), start="from", end="to", name="I", progress=sq.generate(delay=2), late="drop"
)
A, V, N = col("k") == "a", col("v") > 1, col("n") > 0
APART = {"on": "k", "suffixes": ("", "_r")}


@sq.udso("n bigint")
class Counting:
    def initial(self) -> int:
        return 0

    def step(self, state: int, v: int | None) -> tuple[int, list[int]]:
        return state + 1, [state + 1]


def by_key(stream: sq.Stream) -> Any:
    return stream.group_by("k")


def pattern(where: str, when: str = "SEQUENCE(P AS x, O AS y, 5)") -> sq.Stream:
    return sq.cedr(f"EVENT E WHEN {when} WHERE CorrelationKey(k, EQUAL) AND {where}", P=P, O=O)


NAMES = {**globals(), "n": sq.count()}


def place(node: Node) -> str:
    """A source with the columns that are read of it, or the title of the next operator that keeps events."""
    while isinstance(node, Step) and not isinstance(node, Source):
        (node,) = node.children
    return f"{node.table}({', '.join(node.schema.names)})" if isinstance(node, Source) else node.title


def standing(plan: Node) -> Iterator[str]:
    """Each filter of a plan where it stands, and each source that has none."""
    filtered = set()
    for node in nodes(plan):
        condition: Expr | None = None
        match node:
            case Where(source, predicate):
                at, condition = place(source), predicate
            case Join(where=where) | WindowedJoin(where=where):
                at, condition = node.title, where
        if condition is not None:
            filtered.add(at)
            yield f"{at}: {show(condition)}"
    yield from (place(node) for node in nodes(plan) if isinstance(node, Source) and place(node) not in filtered)


def in_parts(query: sq.Stream, rules: Any) -> tuple[list[Any], list[Any]]:
    """The final rows of a stream in four micro-batches, and what is late in it."""
    root, names = number_sources(Results((query.plan,)))
    options = Options(egresses=(Egress(OutputForm.FINAL),), buckets=2, late_output=True)
    run = LocalRun(compile_stages(root, options, rules))
    rows = []
    for i in range(4):
        run.batch({names[name]: table.slice(3 * i, 3) for name, table in query.tables.items() if name in names})
        rows.append(run.deltas[0])
    run.finish()
    late = sorted(repr(row) for table in run.late for row in table.to_pylist())
    return sorted(repr(row) for row in net_deltas(pa.concat_tables([*rows, run.deltas[0]])).to_pylist()), late


def checked(call: str) -> str:
    """Where the filters and columns of a query stand, and why not deeper; its answers must be those without any rule."""
    query = eval(call, NAMES)
    rewriting = rewrite(query.plan)
    expected = oracle(query.plan, query.tables)
    assert expected.num_rows
    for rules in (RULES, ()):
        assert_same_history(history(query.plan, rules, query.tables), expected)
    because = [f"because {skipped.reason}" for skipped in rewriting.skipped]
    return "\n".join([*sorted(set(standing(without_unread_columns(rewriting.plan)))), *dict.fromkeys(because)])


def test_filters_and_columns_stand_where_the_table_has_them() -> None:
    check_table("filters_down.txt", checked)


@pytest.mark.slow
@pytest.mark.parametrize("call", read_table("filters_down.txt"))
def test_a_stream_has_the_rows_and_the_late_rows_that_it_has_without_a_rule(call: str) -> None:
    query = eval(call, NAMES)
    rows, late = in_parts(query, RULES)
    assert late
    assert (rows, late) == in_parts(query, ())
