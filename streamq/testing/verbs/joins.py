"""Read the arguments of joins: keys, the condition, and the names of the result's columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamq.plan.expr import Col, Expr, as_expr
from streamq.plan.node import Node
from streamq.testing.verbs.expressions import Row, replace_parts

Names = tuple[tuple[str, str], ...]

LEFT, RIGHT = "left event\0", "right event\0"
"""Prefixes of the left and right event's columns while a condition is read."""


def keys(on: Any) -> Names:
    """Return pairs (left, right) of columns that must be equal, from a name, several names, pairs, or a mapping.

    There are none for ``()``. A string is one name, and a name stands for the column of both sides.
    """
    if isinstance(on, str):
        return ((on, on),)
    if isinstance(on, Mapping):
        return tuple(on.items())
    return tuple((key, key) if isinstance(key, str) else key for key in on)


@dataclass(frozen=True)
class Pair:
    """Two joined streams, and the names of their columns in the result.

    A right key with the name of its left key is not a column of its own; other names that clash, ignoring case, get the suffixes.
    """

    left: Node
    right: Node
    on: Names
    suffixes: tuple[str, str] | None

    @property
    def left_names(self) -> Names:
        """The left columns, and their names in the result."""
        return self._named(self.left.schema.names, self._right_columns, 0)

    @property
    def right_names(self) -> Names:
        """The right columns in the result, and their names there."""
        return self._named(self._right_columns, self.left.schema.names, 1)

    @property
    def _right_columns(self) -> tuple[str, ...]:
        return tuple(name for name in self.right.schema.names if (name, name) not in self.on)

    def _named(self, columns: tuple[str, ...], others: tuple[str, ...], side: int) -> Names:
        """Return the columns of a side (0: left, 1: right) and their names: with its suffix where the others have such a name."""
        # semi and anti joins take no suffixes, as right columns appear in their condition only
        suffix = (self.suffixes or ("", "__right"))[side]
        lowered = {name.lower() for name in others}
        return tuple((name, name + suffix if name.lower() in lowered else name) for name in columns)

    def condition(self, where: Any) -> Expr | None:
        """Return the condition over the columns of the pair, from a function of both events or an expression; None for None."""
        if where is None:
            return None
        ours, theirs = dict(self.left_names), dict(self.right_names)
        # the right name of a key that the result has once
        theirs |= {right: ours[left] for left, right in self.on if right not in theirs}
        is_function = callable(where) and not isinstance(where, Expr)
        condition = as_expr(where(Row(LEFT), Row(RIGHT)) if is_function else where)

        def placed(part: Expr) -> Expr | None:
            """Return a column of the left or right event under its name in the result; None for any other part."""
            match part:
                case Col(name=name) if name.startswith(LEFT):
                    return Col(ours[name.removeprefix(LEFT)])
                case Col(name=name) if name.startswith(RIGHT):
                    return Col(theirs[name.removeprefix(RIGHT)])
                case Col(name=name, origin=self.left.digest):
                    return Col(ours[name])
                case Col(name=name, origin=self.right.digest):
                    return Col(theirs[name])
            return None

        return replace_parts(condition, placed)


__all__ = ["Pair", "keys"]
