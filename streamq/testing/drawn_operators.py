"""The operators that random queries draw, over one stream and over two, registered by ``streamq/testing/operators/``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from streamq.plan.node import Node
from streamq.testing.drawn_expressions import Draw

Pairs = tuple[tuple[str, str], ...]
"""Pairs of columns, one of each of two streams, that a join compares for equality."""

DrawnOverOne = Callable[[Draw, Node, bool], Node | None]
"""``(draw, input, reads_end)``: draw an operator over ``input`` that has the same column names and types.

``reads_end``: expressions may read ends. Returns None if the operator is not legal over the input.
"""

DrawnOverTwo = Callable[[Draw, Node, Node, Pairs], Node | None]
"""``(draw, left, right, on)``: draw an operator over two streams of equal columns, matched by the columns ``on``.

Returns None if the operator is not legal over these inputs.
"""

One = TypeVar("One", bound=DrawnOverOne)
Two = TypeVar("Two", bound=DrawnOverTwo)

OVER_ONE: dict[str, DrawnOverOne] = {}
"""Operators over one stream, by room."""

OVER_TWO: list[DrawnOverTwo] = []
"""Operators over two streams; each is listed as often as it is to be drawn."""


def over_one(drawing: One) -> One:
    """Register the function that draws a room's operator over one stream."""
    OVER_ONE[drawing.__module__.rpartition(".")[2]] = drawing
    return drawing


def over_two(weight: int = 1) -> Callable[[Two], Two]:
    """Register the function that draws a room's operator over two streams, ``weight`` times as often as others."""

    def register(drawing: Two) -> Two:
        OVER_TWO.extend([drawing] * weight)
        return drawing

    return register


__all__ = ["OVER_ONE", "OVER_TWO", "Pairs", "over_one", "over_two"]
