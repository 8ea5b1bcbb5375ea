"""Pairs of events as joins are given them: keys, the names of columns in the result, and the condition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamq.plan.expr import Col, Expr, as_expr
from streamq.plan.node import Node
from streamq.testing.verbs.expressions import Row, changed

Names = tuple[tuple[str, str], ...]

LEFT, RIGHT = "left event\0", "right event\0"
"""What the columns of either event have before their names while a condition is read."""


def keys(on: Any) -> Names:
    """Return pairs (left, right) of columns that must be equal: of a name, several, pairs, or a mapping of left to right."""
    if isinstance(on, str):
        return ((on, on),)
    if isinstance(on, Mapping):
        return tuple(on.items())
    return tuple((key, key) if isinstance(key, str) else key for key in on)


@dataclass(frozen=True)
class Pair:
    """Two streams of which events meet, under the names that the columns of either have in the result.

    A right key of its left one's name is that column; other names that meet, in whatever case, get the suffixes.
    """

    left: Node
    right: Node
    on: Names
    suffixes: tuple[str, str] | None

    @property
    def left_names(self) -> Names:
        """The left columns and what they are called."""
        return self._named(self.left.schema.names, self._right_columns, 0)

    @property
    def right_names(self) -> Names:
        """The right columns that the result has, and what they are called."""
        return self._named(self._right_columns, self.left.schema.names, 1)

    @property
    def _right_columns(self) -> tuple[str, ...]:
        return tuple(name for name in self.right.schema.names if (name, name) not in self.on)

    def _named(self, columns: tuple[str, ...], others: tuple[str, ...], side: int) -> Names:
        # where the result has the left columns alone, the right ones are told apart in the condition only
        suffix = (self.suffixes or ("", "__right"))[side]
        lowered = {name.lower() for name in others}
        return tuple((name, name + suffix if name.lower() in lowered else name) for name in columns)

    def condition(self, where: Any) -> Expr | None:
        """Return a condition over the columns of the pair: a function of both events, or an expression over those columns."""
        if where is None:
            return None
        ours, theirs = dict(self.left_names), dict(self.right_names)
        # a key that the pair has once
        theirs |= {right: ours[left] for left, right in self.on if right not in theirs}
        is_function = callable(where) and not isinstance(where, Expr)
        condition = as_expr(where(Row(LEFT), Row(RIGHT)) if is_function else where)

        def placed(part: Expr) -> Expr | None:
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

        return changed(condition, placed)


__all__ = ["Pair", "keys"]
