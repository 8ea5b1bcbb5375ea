"""The text of operators between two operands."""

from __future__ import annotations

from streamq.plan.function import Show, Text


def infix(sign: str, rank: int) -> Show:
    """Return a function that shows ``a sign b``, which binds as tightly as ``rank`` and groups from the left."""
    return lambda arguments: Text(f"{arguments[0].within(rank)} {sign} {arguments[1].within(rank + 1)}", rank)
