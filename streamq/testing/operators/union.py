"""Union: its definition, its generator, and its exact columns."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.operators import Union
from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw, exact_columns
from streamq.testing.drawn_operators import Pairs, over_two
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.values import listed, payload


@defines(Union)
def union(node: Union, inputs: Sequence[str], run: Run) -> str:
    """Return SQL for all rows of all inputs."""
    columns = listed("le", "re", *payload(node.schema))
    return " UNION ALL ".join(f"SELECT {columns} FROM {name}" for name in inputs)


@over_two(weight=2)
def draw_union(draw: Draw, one: Node, two: Node, on: Pairs) -> Union:
    return Union((one, two))


@exact_columns.register(Union)
def exact_of_union(node: Union, inputs: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset.intersection(*inputs)
