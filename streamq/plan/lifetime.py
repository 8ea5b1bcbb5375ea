"""Parts of an event's lifetime, and of a window's, in an expression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import DataType

from streamq.plan.expr import Expr
from streamq.plan.function import Text


@dataclass(frozen=True, eq=False, repr=False)
class Lifetime(Expr):
    """``start``, ``end`` or ``duration`` of the event, read-only."""

    part: str

    def is_exact(self, operands: Sequence[DataType], kind: DataType) -> bool:
        return True

    def shown_over(self, parts: Sequence[Text]) -> Text:
        return Text(f"{self.part}()")


@dataclass(frozen=True, eq=False, repr=False)
class WindowBound(Lifetime):
    """``start`` or ``end`` of the window, as a user writes it; a verb replaces it by the lifetime of the window's result."""

    def shown_over(self, parts: Sequence[Text]) -> Text:
        return Text(f"window_{self.part}()")
