"""The input that a user expects: rows in a time, and numbers of different values, from which costs are estimated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamq.errors import PlanError, kind_of, sentence
from streamq.plan.node import Node
from streamq.time import Duration, length, plain_integer, ticks


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The input that is expected: ``rows`` of each source in the time ``every``, and how many different values columns have.

    ``rows``: a number for all sources, or one by the name of each source; others are not estimated. ``every``: a duration of
    application time, with a unit on a timestamp axis, in ticks on an integer axis; rows come at an even rate in it. ``distinct``:
    the number of different values by column of the sources, in all of them together; of a group of several columns it is the
    product. Raises PlanError for numbers that are no positive integers, TimeError for a value that is no duration.

    >>> import streamq as sq
    >>> sq.Expected(rows=2_000, every="1 second", distinct={"line": 40})
    Expected(rows=2000, every='1 second', distinct={'line': 40})
    """

    rows: int | Mapping[str, int]
    every: Duration
    distinct: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise PlanError or TimeError for arguments that are no such numbers."""
        if length(self.every, "Expected: every") <= 0:
            raise PlanError(sentence("Expected", "every is not positive", f"found {self.every!r}"))
        if isinstance(self.rows, Mapping):
            if not self.rows:
                raise PlanError(sentence("Expected", "rows of no source", "found {}"))
            object.__setattr__(self, "rows", _numbers("rows", self.rows, 'rows={"rides": 2_000}'))
        else:
            object.__setattr__(self, "rows", _number("rows", self.rows))
        object.__setattr__(self, "distinct", _numbers("distinct", self.distinct, 'distinct={"line": 40}'))

    def rows_a_tick(self, name: str, axis: str) -> float | None:
        """Return the rows a tick of the source called ``name``; None if no number is given for it."""
        rows = self.rows.get(name) if isinstance(self.rows, Mapping) else self.rows
        return None if rows is None else rows / ticks(self.every, axis, "Expected")

    def groups(self, node: Node, keys: Sequence[str]) -> float | None:
        """Return the number of groups of some columns of a node, at most; None if there is no number for one of them."""
        numbers = [self.distinct.get(column_of_sources(node, key) or "") for key in keys]
        return None if None in numbers else math.prod((number for number in numbers if number is not None), start=1.0)


@dataclass(frozen=True)
class ExpectedRates:
    """Expected rows a tick by the digests of a plan's nodes; a node is missing where its rows cannot be estimated.

    ``expected``: the expectation behind them; None without one.
    """

    by_digest: Mapping[str, float] = field(default_factory=dict)
    expected: Expected | None = None

    def of(self, node: Node) -> float | None:
        """Return a node's rows a tick, at most; None where they cannot be estimated."""
        return self.by_digest.get(node.digest)


NO_RATES = ExpectedRates()
"""The rates of a plan whose input nobody has said anything about."""


@dataclass(frozen=True)
class Retention:
    """The bound on the rows that a stream keeps of an input: its events for ``ticks`` after their start, if the CTI does not lag.

    Beside these it keeps so many ``rows`` of each group of the columns ``keys``, for good. Results that it has sent and may
    correct do not count.
    """

    ticks: int
    rows: int = 0
    keys: tuple[str, ...] = ()

    def most(self, node: Node, lag: int, rates: ExpectedRates, expected: Expected) -> float | None:
        """Return the rows of state of the input ``node``, at most; None where they cannot be estimated.

        Some rows that are over stay until half of their bin are, so it is twice the bound.
        """
        rows, groups = rates.of(node), expected.groups(node, self.keys) if self.rows else 0.0
        return None if rows is None or groups is None else 2 * rows * (self.ticks + lag + 1) + self.rows * groups


def _numbers(argument: str, numbers: object, example: str) -> dict[str, int]:
    """Return numbers by name; raise PlanError for an argument that has no such numbers."""
    if not isinstance(numbers, Mapping):
        raise PlanError(
            sentence("Expected", f"{argument} has no numbers by name", f"found {kind_of(numbers)}", f"Write {example}.")
        )
    for name in numbers:
        if not isinstance(name, str):
            raise PlanError(
                sentence(
                    "Expected", f"{argument} has no numbers by name", f"found the name {name!r}", f"Write {example}."
                )
            )
    return {name: _number(f"{argument}[{name!r}]", number) for name, number in numbers.items()}


def _number(argument: str, number: object) -> int:
    """Return a positive integer, also one of another library; raise PlanError for anything else."""
    number = plain_integer(number)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        hint = "For less than a row in the time, say a longer time: every=..." if isinstance(number, float) else ""
        shown = repr(number) if isinstance(number, int | float | str) else kind_of(number)
        raise PlanError(sentence("Expected", f"{argument} is no positive integer", f"found {shown}", hint))
    return number


def column_of_sources(node: Node, column: str) -> str | None:
    """Return the column of the sources that a node's column copies; None if it is computed, or copies columns of other names."""
    columns: set[str] = set()
    left, seen = [(node, column)], set()
    while left:
        at, name = left.pop()
        if (at.digest, name) in seen:
            continue
        seen.add((at.digest, name))
        below = at.copied_column(name) if at.children else name
        if below is None:
            return None
        if at.children:
            left += [(child, below) for child in at.children]
        else:
            columns.add(name)
    return columns.pop() if len(columns) == 1 else None


__all__ = ["NO_RATES", "Expected", "ExpectedRates", "Retention", "column_of_sources"]
