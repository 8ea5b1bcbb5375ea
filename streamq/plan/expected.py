"""The input that a user expects: rows in a time, and numbers of different values, from which costs are estimated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamq.errors import PlanError, kind_of, sentence
from streamq.plan.node import Node
from streamq.time import Duration, length, ticks


@dataclass(frozen=True)
class ExpectedRates:
    """Expected rows a tick by the digests of a plan's nodes; a node is missing where its rows cannot be estimated."""

    by_digest: Mapping[str, float] = field(default_factory=dict)

    def of(self, node: Node) -> float | None:
        """Return a node's rows a tick, at most; None where they cannot be estimated."""
        return self.by_digest.get(node.digest)


NO_RATES = ExpectedRates()
"""The rates of a plan whose input nobody has said anything about."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The input that is expected: ``rows`` of each source in the time ``every``, and how many different values columns have.

    ``rows``: a number for all sources, or one by the name of each source; others are not estimated. ``every``: a duration of
    application time, with a unit on a timestamp axis, in ticks on an integer axis. ``distinct``: the number of different values
    by column; of a group of several columns it is the product. Raises PlanError for numbers that are not positive, TimeError for
    a value that is no duration.

    >>> import streamq as sq
    >>> sq.Expected(rows=2_000, every="1 second", distinct={"line": 40})
    Expected(rows=2000, every='1 second', distinct={'line': 40})
    """

    rows: int | Mapping[str, int]
    every: Duration
    distinct: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise PlanError or TimeError for arguments that are no such numbers."""
        if length(self.every, "Expected") <= 0:
            raise PlanError(sentence("Expected", "every is not positive", f"found {self.every!r}"))
        rows = self.rows.items() if isinstance(self.rows, Mapping) else [("rows", self.rows)]
        distinct: object = self.distinct
        if not isinstance(distinct, Mapping):
            hint = 'Write the number by column: distinct={"line": 40}.'
            raise PlanError(sentence("Expected", "distinct is no mapping", f"found {kind_of(distinct)}", hint))
        for name, number in [*rows, *self.distinct.items()]:
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise PlanError(sentence("Expected", f"{name} is no positive number", f"found {number!r}"))

    def rows_a_tick(self, name: str, axis: str) -> float | None:
        """Return the rows a tick of the source called ``name``; None if no number is given for it."""
        rows = self.rows.get(name) if isinstance(self.rows, Mapping) else self.rows
        return None if rows is None else rows / ticks(self.every, axis, "Expected")

    def groups(self, keys: Sequence[str]) -> float:
        """Return the number of groups of some columns, at most: infinite if that of a column is not known."""
        return math.prod((self.distinct.get(key, math.inf) for key in keys), start=1.0)


__all__ = ["NO_RATES", "Expected", "ExpectedRates"]
