"""SQL that merges the columns of partial results: of two of them, of a group, or of all so far.

A total is 0 over nothing, other values are NULL. Moments are never derived from sums of squares: the sum of squared deviations
only ever grows, by terms that cannot be negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamq.plan.partial import Algebra, Sql, WindowFrame

_LOW = 2**32 - 1


class _SingleColumnAlgebra(Algebra):
    """The algebra of one column for which Spark has an aggregate."""

    how: str

    def gathered(self, columns: Sequence[str], group: str) -> tuple[Sql, Sql]:
        (column,) = columns
        return {}, {column: f"{self.how}({column})"}

    def running(self, columns: Sequence[str], targets: Sequence[str], frame: WindowFrame) -> tuple[Sql, Sql]:
        (column,), (target,) = columns, targets
        return {target: f"{self.how}({column}) {frame.span}"}, {}


class SubtractableAlgebra(_SingleColumnAlgebra):
    """The algebra of a column from which parts may be subtracted."""

    how = "sum"

    def entered_less_left(self, column: str, so_far: str) -> str:
        """Return the running sum of values that have entered (``__enters``) less those that have left."""
        return _signed(column, so_far)


@dataclass(frozen=True)
class CountAlgebra(SubtractableAlgebra):
    """The algebra of counts."""

    def pair(self, left: Sequence[str], right: Sequence[str]) -> list[str]:
        return [f"coalesce({left[0]}, 0) + coalesce({right[0]}, 0)"]


@dataclass(frozen=True)
class SumAlgebra(SubtractableAlgebra):
    """The algebra of sums; ``wide``: of bigints, which may overflow only in the result, not between the rows of an instant."""

    wide: bool

    def pair(self, left: Sequence[str], right: Sequence[str]) -> list[str]:
        a, b = left[0], right[0]
        return [f"coalesce({a} + {b}, {a}, {b})"]

    def entered_less_left(self, column: str, so_far: str) -> str:
        """Return the running sum of values that have entered less those that have left; bigints as the sums of two halves."""
        if not self.wide:
            return super().entered_less_left(column, so_far)
        high, low = _signed(f"shiftright({column}, 32)", so_far), _signed(f"({column} & {_LOW}L)", so_far)
        return f"({high} + shiftright({low}, 32)) * {_LOW + 1}L + ({low} & {_LOW}L)"


def _signed(value: str, so_far: str) -> str:
    """Return the running sum of a value, subtracted for rows that leave (not ``__enters``); 0 over no rows."""
    return f"coalesce(sum(CASE WHEN __enters THEN {value} ELSE -({value}) END) {so_far}, 0)"


@dataclass(frozen=True)
class ExtremeAlgebra(_SingleColumnAlgebra):
    """The algebra of least or greatest values: ``how`` is min or max."""

    how: str

    def pair(self, left: Sequence[str], right: Sequence[str]) -> list[str]:
        return [f"{'least' if self.how == 'min' else 'greatest'}({left[0]}, {right[0]})"]


@dataclass(frozen=True)
class MomentsAlgebra(Algebra):
    """The algebra of a number of values, their mean, and the sum of their squared deviations from it."""

    def pair(self, left: Sequence[str], right: Sequence[str]) -> list[str]:
        """Return number, mean and squared deviations of two parts together; a part without values has no effect."""
        (n1, mean1, dev1), (n2, mean2, dev2) = left, right
        n = f"({n1} + {n2})"
        which = f"CASE WHEN {n1} > 0 AND {n2} > 0 THEN {{}} WHEN {n2} > 0 THEN {{}} WHEN {n1} > 0 THEN {{}} END"
        mean = f"{mean1} + ({mean2} - {mean1}) * {n2} / {n}"
        deviations = f"{dev1} + {dev2} + ({mean2} - {mean1}) * ({mean2} - {mean1}) * {n1} * {n2} / {n}"
        both = f"coalesce({n1}, 0) + coalesce({n2}, 0)"
        return [both, which.format(mean, mean2, mean1), which.format(deviations, dev2, dev1)]

    def gathered(self, columns: Sequence[str], group: str) -> tuple[Sql, Sql]:
        """Return the mean of the group, which each row needs first, and the three columns merged over the group."""
        n, mean, deviations = columns
        some, common = f"CASE WHEN {n} > 0 THEN", f"mean{n}"
        apart = f"({mean} - {common})"
        first = {common: f"sum({some} {n} * {mean} END) {group} / nullif(sum({n}) {group}, 0)"}
        merged = {
            n: f"sum({n})",
            mean: f"max({common})",
            deviations: f"sum({some} {deviations} + {n} * {apart} * {apart} END)",
        }
        return first, merged

    def running(self, columns: Sequence[str], targets: Sequence[str], frame: WindowFrame) -> tuple[Sql, Sql]:
        """Return number and sum of the values in the rows before, then the three columns, merged over the rows so far."""
        n, mean, deviations = columns
        seen, total = f"seen{n}", f"total{n}"
        sums = {
            seen: f"coalesce(sum({n}) {frame.before}, 0)",
            total: f"sum(CASE WHEN {n} > 0 THEN {n} * {mean} END) {frame.before}",
        }
        apart = f"({mean} - {total} / nullif({seen}, 0))"
        grown = f"{deviations} + coalesce({apart} * {apart} * {seen} * {n} / ({seen} + {n}), 0)"
        counts, totals = seen, total
        if frame.with_current:
            here = f"CASE WHEN {n} > 0 THEN {n} * {mean} END"
            counts, totals = f"({seen} + coalesce({n}, 0))", f"coalesce({total} + {here}, {here}, {total})"
        steps = {
            targets[0]: counts,
            targets[1]: f"{totals} / nullif({counts}, 0)",
            targets[2]: f"sum(CASE WHEN {n} > 0 THEN {grown} END) {frame.span}",
        }
        return sums, steps


__all__ = ["SumAlgebra", "ExtremeAlgebra", "MomentsAlgebra", "SubtractableAlgebra", "CountAlgebra"]
