"""Select: its definition, its generator, which keeps names and types, and its exact columns."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.operators import Select
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node
from streamq.plan.passes import infer
from streamq.testing.drawn_expressions import Draw, exact_columns, is_exact, numbers
from streamq.testing.drawn_operators import over_one
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed


@defines(Select)
def select(node: Select, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that keeps lifetimes, and computes each column from its row; without the events that are set aside."""
    source = run.without_failed([e for _, e in node.columns], node.input.schema, inputs[0])
    columns = [f"{run.sql(e, node.input.schema)} AS c{i}" for i, (_, e) in enumerate(node.columns)]
    return f"SELECT {listed('le', 're', *columns)} FROM {source}"


@over_one
def draw_select(draw: Draw, plan: Node, reads_end: bool) -> Select:
    """Draw, for each column, an expression over it of the same type, or the column itself."""
    columns: list[tuple[str, Expr]] = []
    for f in plan.schema.fields:
        number = draw(numbers(plan.schema, f.name, reads_end))
        columns.append((f.name, number if infer(number, plan.schema, "select") == f.type else Col(f.name)))
    return Select(plan, tuple(columns))


@exact_columns.register(Select)
def exact_of_select(node: Select, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset(name for name, expr in node.columns if is_exact(expr, inputs[0]))
