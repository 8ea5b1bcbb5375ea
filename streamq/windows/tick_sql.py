"""Arithmetic of instants and window numbers as SQL text, which Spark reads in one call, where Columns take one for each sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamq.runtime.tick_arithmetic import Arithmetic
from streamq.time import FIRST_INSTANT, INFINITY

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, eq=False)
class TickSql:
    """A bigint or a condition as SQL text that can stand as an operand: a column, a call, CASE, or brackets."""

    text: str

    @property
    def column(self) -> Column:
        from pyspark.sql import functions as F

        return F.expr(self.text)

    def __add__(self, other: TickSql | int) -> TickSql:
        return TickSql(f"({self.text} + {sql_of(other)})")

    def __sub__(self, other: TickSql | int) -> TickSql:
        return TickSql(f"({self.text} - {sql_of(other)})")

    def __mul__(self, other: TickSql | int) -> TickSql:
        return TickSql(f"({self.text} * {sql_of(other)})")

    def __lt__(self, other: TickSql | int) -> TickSql:
        return TickSql(f"({self.text} < {sql_of(other)})")

    def __eq__(self, other: object) -> Any:
        return TickSql(f"({self.text} = {sql_of(other)})")


def sql_of(value: Any) -> str:
    """Return SQL of a bigint, which may be an integer."""
    if isinstance(value, TickSql):
        return value.text
    # the least bigint is no literal
    return f"{value}L" if value >= 0 else f"cast('{value}' as bigint)"


class _Sql:
    """Arithmetic of SQL text."""

    def quotient(self, x: TickSql, by: int) -> TickSql:
        """Return ``floor(x / by)``; that of Spark would go through doubles, and ``div`` goes towards zero."""
        return TickSql(f"({x.text} div {by}L - CASE WHEN {x.text} % {by}L < 0 THEN 1 ELSE 0 END)")

    def remainder(self, x: TickSql, by: int) -> TickSql:
        return TickSql(f"pmod({x.text}, {by}L)")

    def choose(self, condition: TickSql, then: TickSql | int, otherwise: TickSql | int) -> TickSql:
        return TickSql(f"CASE WHEN {condition.text} THEN {sql_of(then)} ELSE {sql_of(otherwise)} END")

    def moved(self, x: TickSql, by: int) -> TickSql:
        """Return the moved instant; ``x`` must not be NULL, which would become an end of the axis."""
        if by == 0:
            return x
        total = f"try_add({x.text}, {sql_of(by)})"
        on_axis = TickSql(f"coalesce({total}, {sql_of(INFINITY)})") if by > 0 else _not_before_axis(total)
        return self.choose(x == INFINITY, INFINITY, on_axis)

    def floor(self, x: TickSql, by: int) -> TickSql:
        multiple = _not_before_axis(f"try_subtract({x.text}, {self.remainder(x, by).text})")
        return TickSql(f"CASE WHEN {x.text} IS NOT NULL THEN {multiple.text} END")


def _not_before_axis(total: str) -> TickSql:
    """Return a sum that may lie before the axis, kept on it; NULL, which stands for an overflow, is the least instant."""
    return TickSql(f"greatest({total}, {sql_of(FIRST_INSTANT)})")


SQL: Arithmetic = _Sql()

__all__ = ["SQL", "TickSql", "sql_of"]
