"""CASE WHEN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import DataType, NullType

from streamq.plan.expr import Expr, as_expr
from streamq.plan.function import Text


@dataclass(frozen=True, eq=False, repr=False)
class Case(Expr):
    """CASE WHEN: ``parts`` are condition, value, condition, value, ..., and last the default (NULL without ``otherwise``)."""

    parts: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.parts

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Case(tuple(children))

    def is_exact(self, operands: Sequence[DataType], kind: DataType) -> bool:
        values = [*operands[1:-1:2], operands[-1]]
        return all(value == kind or isinstance(value, NullType) for value in values)

    def when(self, condition: Any, value: Any) -> Case:
        """Return the same CASE with one more branch, which is tried after the others."""
        return Case((*self.parts[:-1], as_expr(condition), as_expr(value), self.parts[-1]))

    def otherwise(self, value: Any) -> Case:
        """Return the same CASE with this value where no condition holds."""
        return Case((*self.parts[:-1], as_expr(value)))

    def shown_over(self, parts: Sequence[Text]) -> Text:
        branches = [f"when {parts[i].text} then {parts[i + 1].text}" for i in range(0, len(parts) - 1, 2)]
        return Text(f"case {' '.join(branches)} else {parts[-1].text} end")
