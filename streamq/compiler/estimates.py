"""Estimates rows and state of a plan from the input that is expected, as upper bounds; pairs of joins as if keys were even."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamq.choices import JoinKind
from streamq.errors import PlanError, kind_of, nearest
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.grid_factory import GridFactory
from streamq.operators.join import Join
from streamq.operators.operator import Operator
from streamq.operators.source import Source
from streamq.plan.expr import fold
from streamq.plan.footprint import NO_RATES, Expected, ExpectedRates
from streamq.plan.node import Node, nodes, number_sources
from streamq.plan.schema import shown_name
from streamq.runtime.hosts.identity import EARLY, FINAL
from streamq.time import INFINITY, show_duration, ticks

UNBOUNDED_REASON = "an event without an end stays in it until it is ended; set_duration or clip ends it"
"""The reason why state may grow without a bound, and the cure."""

UNKNOWN = "not estimated"
"""The text for rows that cannot be estimated."""


def checked_expected(expected: object, plan: Node, verb: str) -> Expected | None:
    """Return an expectation for a plan; raise PlanError, worded for ``verb``, if it is none, or names no source or column.

    Raises TimeError for a duration that does not fit the axis.
    """
    if expected is None:
        return None
    if not isinstance(expected, Expected):
        hint = 'Write sq.Expected(rows=2_000, every="1 second").'
        raise PlanError(verb, "not an sq.Expected", f"found {kind_of(expected)}", hint)
    ticks(expected.every, plan.schema.axis, verb)
    named = nodes(number_sources(plan)[0])
    sources = {node.shown_name() for node in named if isinstance(node, Source)}
    columns = {name for node in named if isinstance(node, Source) for name in node.schema.names}
    rows = expected.rows if isinstance(expected.rows, Mapping) else {}
    for what, names, there in (("rows of a source", rows, sources), ("values of a column", expected.distinct, columns)):
        wrong = next((name for name in names if name not in there), None)
        if wrong is not None:
            shown = f"found {wrong!r}; there are: {', '.join(sorted(there))}"
            hint = nearest(wrong, sorted(there))
            raise PlanError(verb, f"{what} that the query does not read are expected", shown, hint)
    return expected


def expected_rates(plan: Node, expected: Expected | None) -> ExpectedRates:
    """Return the rows a tick that each node of a plan gives at most; of none without an expectation."""
    if expected is None:
        return NO_RATES
    rates: dict[str, float] = {}

    def visit(node: Node, inputs: list[float | None]) -> float | None:
        rows = node.expected_rows(inputs, expected) if isinstance(node, Operator) else None
        if rows is not None:
            rates[node.digest] = rows
        return rows

    fold(plan, visit)
    return ExpectedRates(rates, expected)


@dataclass(frozen=True)
class Flow:
    """Events at an even rate: ``rate``, how many start in a tick, and ``length``, how many ticks one of them lives."""

    rate: float
    length: float

    def joined(self, other: Flow, values: float) -> Flow:
        """Return the pairs of two flows whose keys have so many ``values``, each as often as any other.

        Events that live for a and b ticks meet if less than a + b lies between their starts, and then for ab / (a + b) ticks on
        average. So the estimate of several joins does not depend on their order.
        """
        reach = self.length + other.length
        return Flow(self.rate * other.rate * reach / values, self.length * other.length / reach)


class LikelyFlows:
    """The rows that nodes are likely to give: inner joins are estimated, too, and so is what reads their pairs.

    A key without a number of values counts as one value, a condition as always true, and a lifetime that the plan does not bound
    as long as the time of the expectation.
    """

    def __init__(self, expected: Expected):
        self.expected = expected
        self._flows: dict[str, Flow | None] = {}

    def flow(self, node: Node) -> Flow | None:
        """Return the events of a node; None where they cannot be estimated."""

        def visit(part: Node, inputs: list[Flow | None]) -> Flow | None:
            if part.digest not in self._flows:
                self._flows[part.digest] = self._flow(part, inputs)
            return self._flows[part.digest]

        return fold(node, visit)

    def values(self, node: Node, column: str) -> float:
        """Return the number of values that a column is expected to have; 1 without one."""
        return self.expected.groups(node, (column,)) or 1.0

    def pairs(self, plan: Node) -> float | None:
        """Return the pairs a tick that all inner joins of a plan make together; None where one of them is not estimated."""
        flows = [self.flow(node) for node in nodes(plan) if isinstance(node, Join) and node.how == JoinKind.INNER]
        return None if None in flows else sum(flow.rate for flow in flows if flow is not None)

    def _flow(self, node: Node, inputs: Sequence[Flow | None]) -> Flow | None:
        if isinstance(node, Join) and node.how == JoinKind.INNER:
            left, right = inputs
            values = [max(self.values(node.left, a), self.values(node.right, b)) for a, b in node.on]
            return left and right and left.joined(right, math.prod(values))
        rows = [None if flow is None else flow.rate for flow in inputs]
        rate = node.expected_rows(rows, self.expected) if isinstance(node, Operator) else None
        if rate is None:
            return None
        longest = node.traits.longest
        same = [f for f, child in zip(inputs, node.children, strict=True) if f and child.traits.longest == longest]
        if len(node.children) == len(same) == 1:
            return Flow(rate, same[0].length)
        every = ticks(self.expected.every, node.schema.axis, "Expected")
        return Flow(rate, every if longest is None else longest)


def rows_line(node: Node, rates: ExpectedRates, likely: LikelyFlows) -> str | None:
    """Return the rows of a node in the time of the expectation as text: ``at most 600 rows in 1 minute``; None if unknown.

    Of pairs, and of what reads them, it is what is likely: ``about 600 rows in 1 minute``.
    """
    rows, flow, axis = rates.rate(node), likely.flow(node), node.schema.axis
    if rows is not None:
        return f"at most {_in_time(rows, likely.expected, axis)}{_but_for(node)}"
    return None if flow is None else f"about {_in_time(flow.rate, likely.expected, axis)}"


def pairs_line(before: Node, after: Node, likely: LikelyFlows) -> str:
    """Return the pairs that the joins of two plans make, of which one takes the place of the other, as one line."""
    counts = [_in_time(likely.pairs(plan) or 0.0, likely.expected, before.schema.axis) for plan in (after, before)]
    return f"its joins make about {counts[0]}, and as written {counts[1]}"


def _but_for(node: Node) -> str:
    """Return the rows of a node that estimates do not count, as text: ``, but for ties``; "" if there are none."""
    but_for = node.footprint.but_for if isinstance(node, Operator) else ""
    return f", but for {but_for}" if but_for else ""


def cost_line(node: Node, rates: ExpectedRates, expected: Expected, lags: Mapping[str, int], form: str) -> str:
    """Return the rows that a stream sends to Python for an operator with state, and the rows of state that it keeps, as text.

    ``lags``: how far the CTI is behind the rows of a source, by its table. ``form``: the form in which it sends results. Those
    sent before they are final are remembered, if they may change; those sent early keep settled events from becoming fewer rows,
    so that the state of windows on a grid alone is estimated. Partial results are made in each micro-batch anew, so there are
    fewer than rows only if a micro-batch has those of a hop.
    """
    axis = node.schema.axis
    windows = _grid_factory(node)
    sent = _sent([rates.rate(child) for child in node.children], expected, axis)
    if windows is not None:
        events, share = rates.rate(windows.input), windows.partials_an_event(rates)
        sent = _sent([events], expected, axis)
        if events is not None and share is not None:
            sent += f", at most {_in_time(events * share, expected, axis)} in micro-batches of a hop or longer{_but_for(node)}"
    lag = max(lags[source.table] for source in nodes(node) if isinstance(source, Source))
    is_bounded = lag < INFINITY and (windows is not None or form != EARLY)
    state = expected_state(node, lag, rates, expected) if is_bounded else None
    rows = UNKNOWN
    if isinstance(node, Operator) and state is not None:
        usual, most = (math.ceil(number) for number in state)
        rows = f"at most {_rows(most)}"
        rows += "" if usual == most else f", {_number(usual)} in micro-batches of a hop or longer"
        rows += _but_for(node)
        rows += ", and the results that may be corrected" if _corrects(node, form) else ""
    elif isinstance(node, EvaluatedOperator) and _keeps_endless(node):
        rows += f": {UNBOUNDED_REASON}"
    return f"expected: to Python {sent}; state {rows}{_missing(node, expected)}"


def expected_state(node: Node, lag: int, rates: ExpectedRates, expected: Expected) -> tuple[float, float] | None:
    """Return the rows of state of a stream, in micro-batches of a hop and at most; None where they cannot be estimated.

    Rows come at an even rate, and the CTI is ``lag`` ticks behind them.
    """
    windows = _grid_factory(node)
    if windows is not None:
        return windows.expected_state(lag, rates, expected)
    if not isinstance(node, EvaluatedOperator):
        return None
    most, footprint = 0.0, node.footprint
    for port, child in enumerate(node.children):
        bound = None if child.traits.retracts else footprint.bound(port)
        rows = None if bound is None else bound.most(child, lag, rates, expected)
        if rows is None:
            return None
        most += rows
    return most, most


def _grid_factory(node: Node) -> GridFactory | None:
    """Return the factory of an operator whose state on a grid it estimates; None for others."""
    factory = node.evaluation.factory if isinstance(node, EvaluatedOperator) else None
    return factory if isinstance(factory, GridFactory) else None


def _keeps_endless(node: EvaluatedOperator) -> bool:
    """Return True if a stream keeps an event without an end until it is ended."""
    footprint = node.footprint
    return any(child.traits.infinite and footprint.bound(port) is None for port, child in enumerate(node.children))


def _missing(node: Node, expected: Expected) -> str:
    """Return which columns of groups that bound the state have no number of different values, as text; "" if none."""
    windows = _grid_factory(node)
    groups = [(windows.input, windows.keys)] if windows is not None else []
    if windows is None and isinstance(node, EvaluatedOperator):
        footprint = node.footprint
        retained = [(child, footprint.bound(port)) for port, child in enumerate(node.children)]
        groups = [(child, retention.keys) for child, retention in retained if retention is not None]
    lacking = [shown_name(key) for child, keys in groups for key in keys if expected.groups(child, (key,)) is None]
    return f"; no number of different {', '.join(lacking)} is expected" if lacking else ""


def _sent(inputs: Sequence[float | None], expected: Expected, axis: str) -> str:
    """Return the rows of all inputs together as text."""
    rates = [rows for rows in inputs if rows is not None]
    return f"at most {_in_time(sum(rates), expected, axis)}" if len(rates) == len(inputs) else UNKNOWN


def _in_time(rows: float, expected: Expected, axis: str) -> str:
    """Return ``rows`` a tick as rows in the time of the expectation, as text."""
    every = ticks(expected.every, axis, "Expected")
    return f"{_rows(rows * every)} in {show_duration(every, axis)}"


def _rows(number: float) -> str:
    """Return a number of rows as text: ``1 row``, ``0.5 rows``, ``1,230,000 rows``."""
    shown = _number(number)
    return f"{shown} row" if shown == "1" else f"{shown} rows"


def _number(rows: float) -> str:
    """Return a number of rows as text, with three digits that count: ``1,230,000``."""
    return f"{float(f'{rows:.3g}'):,.0f}" if rows >= 100 else f"{rows:.3g}"


def _corrects(node: Operator, form: str) -> bool:
    """True if the kernel of an operator remembers results in such a form that it has sent and may have to take back."""
    if form == FINAL or not isinstance(node, EvaluatedOperator):
        return form != FINAL
    return node.evaluation.factory.corrects
