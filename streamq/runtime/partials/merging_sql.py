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
class OrderedAlgebra(Algebra):
    """The algebra of a value and its order: of several the value of the least or greatest order, as ``how`` (min, max) says."""

    how: str

    def pair(self, left: Sequence[str], right: Sequence[str]) -> list[str]:
        """Return the pair with the better order; one without an order, which is NULL, has no effect."""
        (value1, order1), (value2, order2) = left, right
        is_left = f"{order2} IS NULL OR {order1} {'<=' if self.how == 'min' else '>='} {order2}"
        return [f"CASE WHEN {is_left} THEN {a} ELSE {b} END" for a, b in ((value1, value2), (order1, order2))]

    def gathered(self, columns: Sequence[str], group: str) -> tuple[Sql, Sql]:
        value, order = columns
        return {}, {value: f"{self.how}_by({value}, {order})", order: f"{self.how}({order})"}

    def running(self, columns: Sequence[str], targets: Sequence[str], frame: WindowFrame) -> tuple[Sql, Sql]:
        value, order = columns
        best = {
            targets[0]: f"{self.how}_by({value}, {order}) {frame.span}",
            targets[1]: f"{self.how}({order}) {frame.span}",
        }
        return best, {}


@dataclass(frozen=True)
class DeviationsAlgebra(Algebra):
    """The algebra of a number of values, the ``means`` of some columns, and sums of products of the deviations from these.

    ``products``: of each sum the numbers of its two means.
    """

    means: int
    products: tuple[tuple[int, int], ...]

    def _parts(self, columns: Sequence[str]) -> tuple[str, Sequence[str], Sequence[str]]:
        return columns[0], columns[1 : 1 + self.means], columns[1 + self.means :]

    def pair(self, left: Sequence[str], right: Sequence[str]) -> list[str]:
        (n1, means1, sums1), (n2, means2, sums2) = self._parts(left), self._parts(right)
        n = f"({n1} + {n2})"
        which = f"CASE WHEN {n1} > 0 AND {n2} > 0 THEN {{}} WHEN {n2} > 0 THEN {{}} WHEN {n1} > 0 THEN {{}} END"
        apart = [f"({b} - {a})" for a, b in zip(means1, means2, strict=True)]
        means = [f"{a} + {d} * {n2} / {n}" for a, d in zip(means1, apart, strict=True)]
        sums = [
            f"{a} + {b} + {apart[i]} * {apart[j]} * {n1} * {n2} / {n}"
            for a, b, (i, j) in zip(sums1, sums2, self.products, strict=True)
        ]
        merged = zip([*means, *sums], [*means2, *sums2], [*means1, *sums1], strict=True)
        return [f"coalesce({n1}, 0) + coalesce({n2}, 0)", *(which.format(*three) for three in merged)]

    def gathered(self, columns: Sequence[str], group: str) -> tuple[Sql, Sql]:
        """Return the means of the group, which each row needs first, and the columns merged over the group."""
        n, means, sums = self._parts(columns)
        some = f"CASE WHEN {n} > 0 THEN"
        common = [f"mean{i}{n}" for i in range(self.means)]
        apart = [f"({mean} - {of_all})" for mean, of_all in zip(means, common, strict=True)]
        first = {
            of_all: f"sum({some} {n} * {mean} END) {group} / nullif(sum({n}) {group}, 0)"
            for of_all, mean in zip(common, means, strict=True)
        }
        merged = {n: f"sum({n})"} | {mean: f"max({of_all})" for mean, of_all in zip(means, common, strict=True)}
        merged |= {
            of: f"sum({some} {of} + {n} * {apart[i]} * {apart[j]} END)"
            for of, (i, j) in zip(sums, self.products, strict=True)
        }
        return first, merged

    def running(self, columns: Sequence[str], targets: Sequence[str], frame: WindowFrame) -> tuple[Sql, Sql]:
        """Return number and sums of the values in the rows before, then the columns, merged over the rows so far."""
        n, means, sums = self._parts(columns)
        to_n, to_means, to_sums = self._parts(targets)
        seen, totals = f"seen{n}", [f"total{i}{n}" for i in range(self.means)]
        before = {seen: f"coalesce(sum({n}) {frame.before}, 0)"}
        for total, mean in zip(totals, means, strict=True):
            before[total] = f"sum(CASE WHEN {n} > 0 THEN {n} * {mean} END) {frame.before}"
        apart = [f"({mean} - {total} / nullif({seen}, 0))" for mean, total in zip(means, totals, strict=True)]
        count = f"({seen} + coalesce({n}, 0))" if frame.with_current else seen
        steps = {to_n: count}
        for target, mean, total in zip(to_means, means, totals, strict=True):
            here = f"CASE WHEN {n} > 0 THEN {n} * {mean} END"
            whole = f"coalesce({total} + {here}, {here}, {total})" if frame.with_current else total
            steps[target] = f"{whole} / nullif({count}, 0)"
        for target, of, (i, j) in zip(to_sums, sums, self.products, strict=True):
            grown = f"{of} + coalesce({apart[i]} * {apart[j]} * {seen} * {n} / ({seen} + {n}), 0)"
            steps[target] = f"sum(CASE WHEN {n} > 0 THEN {grown} END) {frame.span}"
        return before, steps
