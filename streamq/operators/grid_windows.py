"""Windows of a grid made of partial results: what the kernel ``window_aggregate`` is told of an operator."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.plan.expr import Expr
from streamq.plan.node import Node
from streamq.plan.partial import Partial
from streamq.windows import Window


@dataclass(frozen=True, kw_only=True)
class GridWindows:
    """Events of ``input``, by ``keys`` and windows on a grid, reduced to ``partials`` of the columns ``arguments``.

    ``combined``: partial results are made before the shuffle; ``outputs`` are computed over the rows, if there are any.
    """

    input: Node
    keys: tuple[str, ...]
    window: Window
    arguments: tuple[tuple[str, Expr], ...]
    partials: tuple[Partial, ...]
    combined: bool
    outputs: tuple[tuple[str, Expr], ...] = ()


__all__ = ["GridWindows"]
