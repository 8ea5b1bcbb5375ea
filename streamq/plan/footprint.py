"""The footprint of an operator in a stream: what it promises, keeps, reads and costs; explain and the docs show it.

Costs are estimated from the input that a user expects: rows in a time, and numbers of different values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from streamq.errors import PlanError, kind_of
from streamq.plan.node import Node
from streamq.time import TIMESTAMP, Duration, length, plain_integer, show_duration, ticks


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
            raise PlanError("Expected", "every is not positive", f"found {self.every!r}")
        if isinstance(self.rows, Mapping):
            if not self.rows:
                raise PlanError("Expected", "rows of no source", "found {}")
            object.__setattr__(self, "rows", _numbers("rows", self.rows, 'rows={"rides": 2_000}'))
        else:
            object.__setattr__(self, "rows", _number("rows", self.rows))
        object.__setattr__(self, "distinct", _numbers("distinct", self.distinct, 'distinct={"line": 40}'))

    def to_json(self) -> str:
        """Return the expectation as JSON, which :meth:`from_json` reads: it lies in the checkpoint of a run."""
        every = show_duration(length(self.every, ""), TIMESTAMP) if isinstance(self.every, timedelta) else self.every
        return json.dumps({"rows": self.rows, "every": every, "distinct": self.distinct}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Expected:
        """Return the expectation that :meth:`to_json` has written."""
        return cls(**json.loads(text))

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

    def rate(self, node: Node) -> float | None:
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
        rows, groups = rates.rate(node), expected.groups(node, self.keys) if self.rows else 0.0
        return None if rows is None or groups is None else 2 * rows * (self.ticks + lag + 1) + self.rows * groups


def _numbers(argument: str, numbers: object, example: str) -> dict[str, int]:
    """Return numbers by name; raise PlanError for an argument that has no such numbers."""
    if not isinstance(numbers, Mapping):
        raise PlanError(
            "Expected", f"{argument} has no numbers by name", f"found {kind_of(numbers)}", f"Write {example}."
        )
    for name in numbers:
        if not isinstance(name, str):
            raise PlanError(
                "Expected", f"{argument} has no numbers by name", f"found the name {name!r}", f"Write {example}."
            )
    return {name: _number(f"{argument}[{name!r}]", number) for name, number in numbers.items()}


def _number(argument: str, number: object) -> int:
    """Return a positive integer, also one of another library; raise PlanError for anything else."""
    number = plain_integer(number)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        hint = "For less than a row in the time, say a longer time: every=..." if isinstance(number, float) else ""
        shown = repr(number) if isinstance(number, int | float | str) else kind_of(number)
        raise PlanError("Expected", f"{argument} is no positive integer", f"found {shown}", hint)
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
        if not at.children:
            columns.add(name)
            continue
        below = at.columns_below(name)
        if below is None:
            return None
        left += below
    return columns.pop() if len(columns) == 1 else None


class OpenedPart(StrEnum):
    """The parts of an operator's state that a micro-batch evaluates, in the words with which ``Footprint.opens`` begins."""

    NOTHING = "nothing"
    """It keeps nothing."""
    PARTS = "parts"
    """The work does not grow with the events that are open in a group."""
    WHOLE_GROUPS = "whole groups"
    """All events that are still needed of a group are evaluated once one of its rows is new or due."""


KEEPS, NOTHING_KEPT = "keeps: ", "nothing"
"""The beginning of explain's line on what an operator keeps, and the rest of that line if it keeps nothing."""


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """The footprint of an operator, or of a part of one; c is the CTI of its inputs, the least of them.

    ``cti``: the promise on its result. ``final``: the rows that no longer change. ``keeps``: the events or results that it keeps,
    "none" if none. ``opens``: the part of them that a micro-batch reads; it begins with an :class:`OpenedPart`. ``cost``: that of
    a micro-batch. ``for_good``: the rows that stay, more with each group or event, with the cure if there is one; "" if all go
    as time goes on, of lifetimes that end. ``bounds``: by input, the bound on what is kept of it if its rows are never taken
    back; an input without one may be kept as long as it lives. ``but_for``: the rows that estimates do not count.
    """

    cti: str = "c"
    final: str = "rows of final events"
    keeps: str = "none"
    opens: str = OpenedPart.NOTHING
    cost: str
    for_good: str = ""
    bounds: tuple[Retention | None, ...] = ()
    but_for: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError if ``opens`` does not begin with a part."""
        if not any(self.opens.startswith(part) for part in OpenedPart):
            raise ValueError(f"opens begins with none of {', '.join(OpenedPart)}: {self.opens!r}")

    @property
    def opened(self) -> OpenedPart:
        """The part of the state that a micro-batch reads."""
        return next(part for part in OpenedPart if self.opens.startswith(part))

    def bound(self, port: int) -> Retention | None:
        """Return the bound on what is kept of an input; None if there is none."""
        return self.bounds[port] if port < len(self.bounds) else None

    def lines(self, cti: str) -> tuple[str, ...]:
        """Return explain's lines: what it keeps, reads and costs, what stays for good, ``cti``, its CTI there, and final rows."""
        for_good = (f"kept for good: {self.for_good}",) if self.for_good else ()
        return *self.state_lines(), *for_good, f"CTI: {cti}", f"final: {self.final}"

    def state_lines(self) -> tuple[str, ...]:
        """Return explain's lines on the state, without one on the part that is read if that is nothing."""
        reads = () if self.opened is OpenedPart.NOTHING else (f"reads: {self.opens}",)
        return f"{KEEPS}{NOTHING_KEPT if self.keeps == 'none' else self.keeps}", *reads, f"cost: {self.cost}"


def live(longest: int | None, least: int = 0) -> Retention | None:
    """Return the bound on events that are kept as long as they live, ``least`` ticks at least; None if that has no bound."""
    return None if longest is None else Retention(max(least, longest))
