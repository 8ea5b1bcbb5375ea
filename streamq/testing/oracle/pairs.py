"""SQL for pairs of rows of two streams: the condition that their keys match, and their columns."""

from __future__ import annotations

from collections.abc import Sequence

from streamq.operators import Join, WindowedJoin
from streamq.plan.schema import Schema
from streamq.testing.oracle.values import keys


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


__all__ = ["agreement", "pair_columns"]
