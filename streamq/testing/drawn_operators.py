"""The operators that are drawn, as their rooms in ``streamq/testing/operators/`` have it: over one stream, over two."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw

Pairs = tuple[tuple[str, str], ...]
"""Columns of one stream and of another that are to be equal."""

DrawnOverOne = Callable[[Draw, Node, bool], Node | None]
"""``(draw, input, whether expressions may read ends)`` to the operator over it, of the same names and types.

None where that input does not suit the operator.
"""

DrawnOverTwo = Callable[[Draw, Node, Node, Pairs], Node | None]
"""``(draw, left, right, columns to agree on)`` to the operator over two streams of equal columns.

None where those inputs do not suit the operator.
"""

One = TypeVar("One", bound=DrawnOverOne)
Two = TypeVar("Two", bound=DrawnOverTwo)

OVER_ONE: dict[str, DrawnOverOne] = {}
"""Operators over one stream, by room."""

OVER_TWO: list[DrawnOverTwo] = []
"""Operators over two streams, each as often as it is to be drawn."""


def over_one(drawing: One) -> One:
    """Have a room's operator drawn over one stream."""
    OVER_ONE[drawing.__module__.rpartition(".")[2]] = drawing
    return drawing


def over_two(weight: int = 1) -> Callable[[Two], Two]:
    """Have a room's operator drawn over two streams, ``weight`` times as often as others."""

    def register(drawing: Two) -> Two:
        OVER_TWO.extend([drawing] * weight)
        return drawing

    return register


__all__ = ["OVER_ONE", "OVER_TWO", "Pairs", "over_one", "over_two"]
