"""JoinTable: its definition, its generator, and its exact columns."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from streamq.operators import JoinTable
from streamq.plan.node import Node
from streamq.plan.schema import Schema
from streamq.testing.drawn_expressions import Draw, exact, exact_columns, matched
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.pairs import agreement
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed, own_keys
from streamq.testing.static_tables import fields_of_table, table_for


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


@st.composite
def looked_up(draw: Draw, plan: Node) -> Node:
    """Draw a look-up of column ``k`` in a static table of its type, inner or left, which adds columns ``name`` and ``size``.

    Returns the plan as it is unless ``k`` is an exact column that can be a key, or if columns would clash.
    """
    if "k" not in matched(plan.schema, exact(plan)) or {"name", "size"}.intersection(plan.schema.names):
        return plan
    name = table_for(plan.schema.type_of("k"))
    how = draw(st.sampled_from(["inner", "left"]))
    return JoinTable(
        plan, name, fields_of_table(name), on=(("k", "name"),), how=how, names=(("name", "name"), ("size", "size"))
    )


@exact_columns.register(JoinTable)
def exact_of_join_table(node: JoinTable, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return inputs[0] | {to for _, to in node.names}
