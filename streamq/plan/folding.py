"""Visit a plan or an expression, which have a digest and children, bottom-up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
B = TypeVar("B", bound=Any)


def fold(root: B, visit: Callable[[B, list[T]], T]) -> T:
    """Call ``visit(part, results of its children)`` bottom-up and left to right, and return the result of ``root``.

    Parts with one digest are visited once. There is no recursion, so a tree may be of any depth.
    """
    if not root.children:
        # most expressions are a column or a constant
        return visit(root, [])
    done: dict[str, T] = {}
    stack: list[tuple[B, bool]] = [(root, False)]
    while stack:
        part, is_ready = stack.pop()
        if part.digest in done:
            continue
        if is_ready:
            done[part.digest] = visit(part, [done[child.digest] for child in part.children])
        else:
            stack.append((part, True))
            stack.extend((child, False) for child in reversed(part.children))
    return done[root.digest]


__all__ = ["fold"]
