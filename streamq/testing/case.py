"""Cases: a query, the items that arrive at its sources, and their cut into micro-batches (section 4: concrete trees).

``verify`` raises an error with the smallest case for which a query's answer differs from the oracle's.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamq import html
from streamq.compiler.results import Results
from streamq.errors import StreamqError
from streamq.operators import Source
from streamq.operators.scan import Scan
from streamq.plan.node import Node, expanded, expressions, nodes
from streamq.plan.passes import expression_nodes, infer
from streamq.runtime.deltas import INSERT, RETRACT
from streamq.stream import Stream
from streamq.testing.arrival import Item, bounds, delay_for, end_ticks, instant_at, is_event
from streamq.testing.execution import Execution
from streamq.testing.history import Axis, Difference, side_by_side
from streamq.testing.history import shown as show_instant
from streamq.testing.oracle import SumOverflow, oracle
from streamq.testing.program import whole_program
from streamq.testing.program_text import string, value
from streamq.testing.progress_policies import MINUTE
from streamq.testing.sources.room import table
from streamq.time import INFINITY, INTEGER
from streamq.user_code.module import UserModule
from streamq.user_code.repository import called_modules

if TYPE_CHECKING:
    from streamq.tracing.trace import Trace


Arrival = tuple[tuple[str, Item], ...]


@dataclass(frozen=True)
class Case:
    """A query, or several, and the input: ``arrival`` holds (source, item) in order, ``cut`` the items in each micro-batch.

    The plan of several queries that run side by side is the root over theirs (:class:`streamq.compiler.results.Results`).
    ``static`` holds the tables that the query looks up, by name. ``until`` bounds the windows of lifetimes without an end, in
    ticks. ``clock`` holds, for each micro-batch in turn and then from its first entry again, how many ticks the time of day is
    beyond the greatest start so far, if a source follows the clock. ``calls`` are the calls of verbs that make the query, or
    the queries, as statements of a program over the sources; it is empty if they are not known. ``may_fail``: there is nothing
    to compare if the query fails by Spark's rules; else that is wrong.
    ``tables`` holds all rows by source, ``batches`` the same by micro-batch, ``answer()`` returns the expected history.
    """

    plan: Node
    arrival: Arrival
    cut: tuple[int, ...]
    until: int | None = None
    static: Mapping[str, pa.Table] = field(default_factory=dict)
    clock: tuple[int, ...] = (0,)
    calls: str = ""
    may_fail: bool = True

    @property
    def axis(self) -> str:
        """The time axis of the query."""
        return self.plan.schema.axis

    @property
    def plans(self) -> tuple[Node, ...]:
        """The plan of each query, mostly one."""
        return self.plan.inputs if isinstance(self.plan, Results) else (self.plan,)

    @property
    def sources(self) -> dict[str, Source]:
        """The plan's sources by name."""
        return {node.table: node for node in nodes(self.plan) if isinstance(node, Source)}

    def arrived(self, name: str) -> list[Item]:
        """Return the items that arrive at a source, in order."""
        return [item for source, item in self.arrival if source == name]

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The rows of each source in order of arrival, and the static tables, by name."""
        return {**self._tables(self.arrival), **self.static}

    @property
    def batches(self) -> list[dict[str, pa.Table]]:
        """The micro-batches in order; each maps every source to a table, which may be empty."""
        ends = list(itertools.accumulate(self.cut))
        return [self._tables(self.arrival[b - n : b]) for b, n in zip(ends, self.cut, strict=True)]

    def _tables(self, arrival: Sequence[tuple[str, Item]]) -> dict[str, pa.Table]:
        """Return the rows of these items as a table for each source of the plan, an empty one if it has none of them."""
        return {
            name: table(node, [item for source, item in arrival if source == name])
            for name, node in self.sources.items()
        }

    @property
    def latest(self) -> int:
        """The greatest finite instant that arrives; 0 if there is none."""
        return max((time for _, item in self.arrival for time in item.times), default=0)

    @property
    def latest_promise(self) -> int:
        """The greatest CTI that a source may have: a CTI reports the windows that it reaches, so it must not pass ``until``."""
        return self.latest + 5 if self.until is None else min(self.latest + 5, self.until)

    @property
    def due(self) -> list[tuple[str, int]]:
        """The source of each item that arrives, and the greatest CTI that may precede the item."""
        due = {name: iter(bounds(self.arrived(name))) for name in self.sources}
        return [(name, next(due[name])) for name, _ in self.arrival]

    @property
    def follows_clock(self) -> bool:
        """True if a source makes progress by the time of day."""
        return bool(self._clock_delays)

    @property
    def times(self) -> list[int]:
        """The time of day in each micro-batch, in microseconds: a minute passes with each one, unless a source follows the clock.

        Then the time of day goes by the greatest start and ``clock``. It is so early that no CTI exceeds ``latest_promise``, and
        that items which are on time by the greatest start of their source, less its delay behind the clock, are so by the clock.
        """
        delays = self._clock_delays
        if not delays:
            return [number * MINUTE for number in range(len(self.cut))]
        limits = [
            (place, bound + delays[name])
            for place, (name, bound) in enumerate(self.due)
            if bound < INFINITY and name in delays and delays[name] >= delay_for(self.arrived(name))
        ]
        starts = [start if (start := item.start) is not None and is_event(item) else None for _, item in self.arrival]
        greatest = min((start for start in starts if start is not None), default=0)
        ends, times = list(itertools.accumulate(self.cut)), []
        for end, n, ahead in zip(ends, self.cut, itertools.cycle(self.clock), strict=False):
            greatest = max([greatest, *(start for start in starts[end - n : end] if start is not None)])
            later = [limit for place, limit in limits if place >= end]
            times.append(min([greatest + ahead, self.latest_promise + min(delays.values()), *later]))
        return times

    @property
    def _clock_delays(self) -> dict[str, int]:
        """The delays behind the clock of the sources that follow it, by their names."""
        clocks = {name: source.policy.progress.clock for name, source in self.sources.items()}
        return {name: clock.delay for name, clock in clocks.items() if clock is not None}

    @property
    def instant(self) -> int | dt.datetime | None:
        """``until`` as users write it: a datetime on the timestamp axis, else an integer; None if it is None."""
        return None if self.until is None else instant_at(self.until, self.axis)

    def variety(self) -> int:
        """Return a score of how varied the input is: it grows with distinct items, values, instants, NULLs and shared starts."""
        items = [item for _, item in self.arrival]
        values = {(name, repr(value)) for item in items for name, value in item.payload.items()}
        nulls = {name for item in items for name, value in item.payload.items() if value is None}
        starts = [{item.start for item in self.arrived(name)} for name in self.sources]
        shared = sum(len(a & b) for a, b in itertools.combinations(starts, 2))
        kinds = {(source, item.kind, item.end is None) for source, item in self.arrival}
        return (
            min(len(values), 12) + 4 * len(nulls) + min(len({*map(repr, items)}), 12) + 2 * min(shared, 3) + len(kinds)
        )

    @property
    def size(self) -> tuple[int, int]:
        """The key by which cases are ordered when shrinking: the number of items, then the length of the printed case."""
        return len(self.arrival), len(repr(self))

    @property
    def query(self) -> Stream:
        """The query over its rows, given as literal tables; the first one if there are several."""
        return self.queries[0]

    @property
    def queries(self) -> tuple[Stream, ...]:
        """The queries over their rows, given as literal tables."""
        return tuple(Stream(plan, self.tables) for plan in self.plans)

    def answer(
        self,
        ctis: Mapping[str, int] | None = None,
        set_aside: Counter[str] | None = None,
        overflow: SumOverflow = SumOverflow.TOTAL,
    ) -> pa.Table:
        """Return the oracle's answer as a history; for the arguments see :func:`streamq.testing.oracle.oracle`.

        The answers to several queries are in one table (:func:`streamq.testing.answers.side_by_side`).
        """
        return side_by_side([oracle(plan, self.tables, self.until, ctis, set_aside, overflow) for plan in self.plans])

    def with_cut(self, *cut: int) -> Case:
        """Return the case with another cut: micro-batches of these lengths, or of one item each if there are none."""
        return replace(self, cut=cut or (1,) * len(self.arrival))

    def program(self) -> str:
        """Return the text of a Python program that builds the query over all its rows and prints its answer, in-process.

        Of several queries it prints the answer of each by itself, and names them as they run side by side. A comment lists the
        micro-batches: ``a a | b`` are two, the first with two rows of source a. To run a case again with its micro-batches, use
        its file and :func:`streamq.testing.replay`.
        """
        several = len(self.plans) > 1
        plans = {f"q{number}" if several else "q": plan for number, plan in enumerate(self.plans, start=1)}
        names = iter([name for name, _ in self.arrival])
        batches = " | ".join(" ".join(itertools.islice(names, n)) for n in self.cut)
        until = "" if self.until is None else f"until={value(self.instant)}"
        last = [f"print({name}.to_pandas({until}))" for name in plans]
        last += [f"# side by side: t.verify([{', '.join(plans)}])"] if several else []
        return whole_program(plans, self.tables, self.calls, [*last, f"# micro-batches: {batches}"])

    def drawn(self) -> str:
        """Return a picture of the items along the time axis as text, a line each below that of its micro-batch.

        The time of day is there only if a source follows the clock.
        """
        rows = [lifetime(item) for _, item in self.arrival]
        axis, items = Axis(rows, self.axis), iter(self.arrival)
        wide = max((len(name) for name, _ in self.arrival), default=0)
        times = [f", at {show_instant(now, self.axis)}" if self.follows_clock else "" for now in self.times]
        lines = []
        for i, (n, at) in enumerate(zip(self.cut, times, strict=True), start=1):
            lines.append(f"micro-batch {i}{at}")
            for name, item in itertools.islice(items, n):
                start, end = lifetime(item)
                body = axis.mark(start) if end == start else axis.draw(start, end)
                lines.append(f"  {name.ljust(wide)}  {body}  {shown(item, self.axis)}")
        return "\n".join(lines)

    def coarser(self, most: int = 4) -> Case:
        """Return the case with neighbouring micro-batches joined until there are at most ``most``; on Spark each takes long."""
        parts = [self.cut[i * len(self.cut) // most : (i + 1) * len(self.cut) // most] for i in range(most)]
        return replace(self, cut=tuple(sum(part) for part in parts if part))

    def __repr__(self) -> str:
        """Return the operators, one a line, the items as ``drawn``, and ``until``."""
        operators = nodes(self.plan)
        names = {node.digest: f"q{i}" for i, node in enumerate(operators)}
        lines = ["Case of"]
        for node in operators:
            inputs = ", ".join(names[c.digest] for c in node.children)
            lines.append(f"  {names[node.digest]} = {node.title}({inputs}) {node.detail()}".rstrip())
            if isinstance(node, Source):
                lines[-1] += f"; {node.policy.shown(self.axis)}"
        lines += [f"  {line}" for line in self.drawn().splitlines()]
        return "\n".join(lines) + (f"\n  until {show_instant(self.until, self.axis)}" if self.until is not None else "")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # without this, Hypothesis and IPython print the fields
        printer.text(repr(self))


def lifetime(item: Item) -> tuple[int, int]:
    """Return the start and end, INFINITY for none, between which an item is drawn: of a retraction those that it retracts.

    They are equal for a CTI, an edge and a row that is not an event, which is drawn at its first instant, or at 0.
    """
    if item.start is None or not is_event(item):
        at = next(iter(item.times), 0)
        return at, at
    return item.start, end_ticks(item.end) if item.kind in (INSERT, RETRACT) else item.start


def shown(item: Item, axis: str = INTEGER) -> str:
    """Return an item as text: ``insert [1, 5) v=3``."""
    end, new = (show_instant(end_ticks(time), axis) for time in (item.end, item.new_end))
    start = "NULL" if item.start is None else show_instant(item.start, axis)
    spans = item.kind in (INSERT, RETRACT)
    moved = f" -> {new}" if item.kind == RETRACT else ""
    payload = ", ".join(f"{name}={value!r}" for name, value in item.columns.items())
    return f"{item.kind} {f'[{start}, {end})' if spans else start}{moved} {payload}".rstrip()


MAY_FAIL = (
    "If it may fail over such values, say so: may_fail=True. If there are none, leave them out: t.Intent(payload=...)."
)
"""The advice where a query fails by its own rules."""


class VerificationFailed(AssertionError):
    """Raised when a query's answer differs from the oracle's.

    ``case`` is the smallest failing case, ``how`` the execution, ``difference`` the difference of the histories, or None if the
    query failed with ``error``. ``result``: of several queries the number of the wrong one, from 1. ``is_legal``: the query
    fails by its own rules, as it does in the oracle. ``saved`` is the file that holds the case, if any. ``first`` is the failure
    from which shrinking started (this one, if no smaller was found), ``number`` the number of its trial. ``shrinking`` is the
    time in seconds after which shrinking was stopped, None if it ran to its end. ``is_steady`` is False if the oracle's answer
    differs when it is asked again, which only user modules can cause.
    """

    def __init__(
        self,
        case: Case,
        how: Execution,
        difference: Difference | None,
        error: Exception | None = None,
        *,
        result: int | None = None,
        is_legal: bool = False,
    ):
        super().__init__(case, how, difference, error)
        self.case, self.how, self.difference, self.error = case, how, difference, error
        self.result, self.is_legal = result, is_legal
        self.saved: Path | None = None
        self.first, self.number = self, 0
        self.is_steady = True
        self.shrinking: float | None = None

    @property
    def says(self) -> str:
        """The difference or the error, without the case."""
        wrong = str(self.difference) if self.difference is not None else f"{type(self.error).__name__}: {self.error}"
        if self.is_legal:
            return f"the query fails by its own rules ({self.how.shown(self.case.axis)})\n{self.suspects}{wrong}\n{MAY_FAIL}"
        of_result = f" of query {self.result}" if self.result is not None else ""
        return f"not the oracle's history{of_result} ({self.how.shown(self.case.axis)})\n{self.suspects}{wrong}"

    @property
    def suspects(self) -> str:
        """A line that names the user modules that the query calls and how to check them alone; empty if there are none."""
        names = [module.name for module in called_modules(self.case.plan)]
        checks = " and ".join(_check(self.case.plan, name) for name in names)
        if not names:
            return ""
        unsteady = "" if self.is_steady else "their results differ from call to call, in the oracle alone too; "
        return f"the query calls {', '.join(names)}: {unsteady}to see if a law of modules is broken, run {checks}\n"

    def trace(self) -> Trace:
        """Return the flow of the case's events through the query, in its micro-batches; raise the query's error if it fails.

        The query runs in-process, of several the wrong one alone; what fails on Spark or side by side alone is right here.
        """
        query = self.case.queries[(self.result or 1) - 1]
        return query.trace(self.case.batches, until=self.case.instant)

    def _repr_html_(self) -> str:
        """The difference, or the error, above the page of the trace, as a notebook shows them."""
        above = html.fragment(html.lines(self.says)) if self.difference is None else self.difference._repr_html_()
        try:
            return above + self.trace()._repr_html_()
        except StreamqError as error:
            # the query fails over the case, which is what was found
            return above + html.fragment(html.lines(str(error)))

    def __str__(self) -> str:
        """Return the difference or error, the items along the time axis, the case's program, and, if saved, how to run it again.

        If shrinking was stopped, the text says so.
        """
        again = ["the flow of its events: error.trace(), a page in a notebook; error.trace().save('trace.html')"]
        if self.saved is not None:
            again.append(f"saved; to run it again: t.replay({str(self.saved)!r}), or pytest {self.saved}")
        if self.shrinking:
            more = "for a smaller one allow more time: profile=t.Profile(shrinking=...)"
            again.append(f"the smallest case found in {self.shrinking:g} s; {more}")
        return "\n\n".join([self.says, self.case.drawn(), self.case.program(), *again])


def _check(plan: Node, module: str) -> str:
    """Return the call that checks a module alone, over the types of columns with which a plan calls it first."""
    for node in nodes(expanded(plan)):
        schema = getattr(node, "both", node.children[0].schema if node.children else node.schema)
        parts: list[Any] = [part for expr in expressions(node) for part in expression_nodes(expr)]
        for part in [*parts, node] if isinstance(node, Scan) else parts:
            called = getattr(part, "operator" if part is node else "function", None)
            if isinstance(called, UserModule) and called.name == module:
                types = ", ".join(infer(arg, schema, "verify").simpleString() for arg in part.args)
                return f"t.check_module({module}{'' if types == 'double' else f', {string(types)}'})"
    raise AssertionError(module)
