"""REPEAT(E AS e, n, w) and REPEAT(E AS e, n, m, w): runs of n occurrences of E or more, of m at most, within less than w.

A run ends with each occurrence. With CONSUME the occurrences of a run are in no later run. Above a REPEAT a variable of E stands
for all occurrences of the run, so it takes aggregates: ``count(e)``, ``sum(e.v)``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from streamq.aggregates import built_in
from streamq.aggregates.application import apply_aggregate
from streamq.choices import Consumption
from streamq.errors import StreamqError
from streamq.keywords import check_keywords
from streamq.operators.scan import Scan
from streamq.operators.select import Select
from streamq.operators.tick_expressions import instant_as_ticks
from streamq.patterns.advice import refusal_for
from streamq.patterns.fluent import count_of, parse_scope
from streamq.patterns.ids import match_id
from streamq.patterns.matches import (
    Matches,
    VariableColumns,
    filter_stream,
    rest_of_scope,
    run_variable,
    start_column,
    tick_count,
)
from streamq.patterns.part_scan import event_columns
from streamq.patterns.pattern import Pattern, pattern_of_parts
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.pattern_tree import PATTERN, SCOPE, Argument, ArgumentKind, Extent, Extents, parts_of
from streamq.patterns.picture_words import PictureWords
from streamq.patterns.source_text import MAX_EVENTS, Refusal
from streamq.patterns.syntax import Part, Scope
from streamq.plan.expr import Col, Expr, Lit
from streamq.plan.lifetime import Lifetime
from streamq.plan.schema import Field
from streamq.plan.tree import show
from streamq.plan.verbs import accepts_placeholders
from streamq.runtime.candidates import TypedRows
from streamq.runtime.user_code.calls import StepCall
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP
from streamq.time import Duration as Length
from streamq.user_code.udso import EventOperator

if TYPE_CHECKING:
    from streamq.patterns.contributor import Contributor
    from streamq.patterns.definition_lowering import DefinitionLowering
    from streamq.stream import Stream

MATCH, NUMBER = "@match", "@n"
"""Columns of an occurrence in a run: the number of the run among those that end at its instant, and its own number, from 0."""
START, ROOT, ID, IDS = "@start", "@root", "@id", "@ids"
"""Columns of an occurrence in a run: its start, root and id, and the ids of the whole run in one text."""


@dataclass(frozen=True)
class Repeat(PatternOperator):
    """Occurrences of ``pattern``: ``count`` of them or more, ``most`` at most, within less than a scope."""

    pattern: Part
    count: int
    within: Scope
    most: int | None = None

    keyword = "REPEAT"
    signature = (
        PATTERN,
        Argument("count", ArgumentKind.COUNT),
        Argument("most", ArgumentKind.COUNT, is_optional=True),
        SCOPE,
    )
    repeats = True

    def check(self, types: Extents) -> None:
        """Raise Refusal for counts that are out of range or in the wrong order, and for a REPEAT inside a REPEAT.

        ``most`` has no upper bound.
        """
        if not 1 <= self.count <= MAX_EVENTS:
            place = self.places.get("count", self.place)
            raise Refusal(place, f"the count of REPEAT is between 1 and {MAX_EVENTS}", f"found {self.count}")
        if self.most is not None and self.most < self.count:
            observed = f"found {self.most} after {self.count}"
            raise Refusal(self.places.get("most", self.place), "REPEAT of fewer at most than at least", observed)
        if any(part.pattern.repeats for part in parts_of(self.pattern)):
            hint = "Make an earlier definition of the inner one."
            raise Refusal(self.pattern.pattern.place, "a REPEAT inside a REPEAT", "", hint)

    def extent(self, types: Extents) -> Extent:
        below = self.pattern.pattern.extent(types)
        return Extent(self.count, self.scope + below.span, waits=below.waits)

    def keeps_keys(self, equations: Sequence[frozenset[str]]) -> bool:
        """Return False: a run has the occurrences that CorrelationKey lets in, also those that an equation would leave out."""
        return False

    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Scan for the occurrences of each run, and aggregate them.

        Raises Refusal for an aggregate that does not take its column.
        """
        one = lowering.lowered(self.pattern)
        first = one.events[0]
        asked = [a for a in lowering.runs.values() if a.variable in one.variables]
        occurrences = self._occurrences(lowering, one, {a.column for a in asked if a.column is not None})
        aggregates = {
            a.name: apply_aggregate(built_in()[a.function], *([Col(a.column)] if a.column else [])) for a in asked
        }
        start, root, ids, id = (f"{run_variable(first)}.{name}" for name in (START, ROOT, IDS, ID))
        aggregates |= {start: apply_aggregate(built_in()["min"], START), root: apply_aggregate(built_in()["min"], ROOT)}
        nth = [f"{run_variable(first)}.{number}" for number in range(self.count)]
        for number, name in enumerate(nth):
            aggregates[name] = apply_aggregate(built_in()["max"], START, where=Col(NUMBER) == Lit(number))
        if lowering.has_ids:
            aggregates |= {ids: apply_aggregate(built_in()["max"], IDS), id: apply_aggregate(built_in()["collect"], ID)}
        a_tick: Any = dt.timedelta(microseconds=1) if occurrences.schema.axis == TIMESTAMP else 1
        windows = occurrences.group_by(*lowering.keys, MATCH).tumbling_window(a_tick)
        for a in asked:
            try:
                windows.select(**{a.name: aggregates[a.name]})
            except StreamqError as error:
                raise refusal_for(a.place, error, "cedr") from error
        points = windows.select(**aggregates).to_points()
        names = (*lowering.keys, *aggregates)
        stream = points._derive(
            Select(points.plan, ((start_column(first), Lifetime("start")), *((n, Col(n)) for n in names)))
        )
        starts = Col(start_column(first))
        matches = Matches(
            stream=stream,
            variables={run_variable(name): VariableColumns(starts) for name in one.variables},
            events=one.events,
            starts=starts,
            root=Col(root),
            contributors=tuple(map(Col, nth)),
            lasts=tick_count(1),
        )
        matches = replace(matches, lasts=rest_of_scope(matches, Col(start), self.scope))
        if not lowering.has_ids:
            return matches
        operator = f"REPEAT {self.count} {self.most or 0} {self.scope}"
        return replace(matches, id=match_id(operator, (Col(ids),), starts), ids=(Col(ids),), listed_ids=Col(id))

    def _occurrences(self, lowering: DefinitionLowering, one: Matches, columns: Collection[str]) -> Stream:
        """Return the occurrences of all runs as points at the ends of their runs, with the columns that are asked for.

        Events with a NULL key are in no run.
        """
        own = {name: expr for named in one.variables.values() for name, expr in named.columns.items()}
        values: dict[str, Expr] = {k: Col(k) for k in lowering.keys}
        values |= {name: Col(name) for name in event_columns(one)}
        values |= {START: one.starts, ROOT: one.root}
        values |= {ID: one.id} if one.id is not None else {}
        values |= {name: own.get(name, Col(name)) for name in sorted(columns)}
        events = filter_stream(one.stream, [Col(k).is_not_null() for k in lowering.keys])
        events = events._derive(Select(events.plan, tuple(values.items())))
        read = (START, ROOT, *([ID] if one.id is not None else []), *columns)
        runs = RunScan(
            columns=tuple(field for field in events.schema.fields if field.name in read),
            count=self.count,
            most=self.most,
            within=self.scope,
            consumes=self.pattern.consumption == Consumption.CONSUME,
        )
        start = instant_as_ticks(Lifetime("start"), events.schema.axis_type)
        return events._derive(Scan(events.plan, lowering.keys, runs, (start, *(Col(f.name) for f in runs.columns))))

    @property
    def title(self) -> str:
        return f"REPEAT {self.count}" if self.most is None else f"REPEAT {self.count} to {self.most}"

    def keeps(self, words: PictureWords) -> str:
        return f"{words.names((self.pattern,))} for {words.scope(self.within)}"


@dataclass(frozen=True, eq=False)
class RunScan(EventOperator):
    """The scan that yields the occurrences of each run: their ``columns``, the number of the run, and their own.

    Its arguments are an event's start in ticks and the values of the columns.
    """

    columns: tuple[Field, ...]
    count: int
    most: int | None
    within: int
    consumes: bool

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the operator in the language."""
        return f"REPEAT {self.count}" if self.most is None else f"REPEAT {self.count} to {self.most}"

    @property
    def fields(self) -> tuple[t.StructField, ...]:
        """The columns of an occurrence: the number of its run, its own number, its values and, if it has one, the run's ids."""
        own = [t.StructField(field.name, field.type) for field in self.columns]
        ids = [t.StructField(IDS, t.StringType())] if self._has_ids else []
        return (t.StructField(MATCH, t.LongType()), t.StructField(NUMBER, t.LongType()), *own, *ids)

    @property
    def _has_ids(self) -> bool:
        return any(field.name == ID for field in self.columns)

    def shown(self, args: Sequence[Expr]) -> str:
        return f"{self.name}({', '.join(map(show, args))}) within {self.within}{' CONSUME' if self.consumes else ''}"

    def calling(self, values: int) -> StepCall:
        """Return the call that a scan makes for each event: the step of runs, with the state that it begins with.

        The number of ``values`` does not count, because ``columns`` names them.
        """
        names = tuple(field.name for field in self.columns)
        step = RunStep(names, self.count, INFINITY if self.most is None else self.most, self.within, self.consumes)
        return StepCall(
            name=self.name,
            initial=step.initial,
            step=step.step,
            names=("start", *names),
            rows=TypedRows.from_fields(self.fields),
            needed_until=step.needed_until,
            completes_matches=True,
        )


Occurrences = tuple[tuple[int, tuple[Any, ...]], ...]
"""Events with their starts in ticks, in the order of (Vs, id)."""

RunScanState = tuple[int, int, Occurrences]
"""The start of the last event, the number of that event among those of the same start, and the events of the current run."""


@dataclass(frozen=True)
class RunStep:
    """The step of the scan from event to event, each of which may end a run; ``names`` are those of the events' values."""

    names: tuple[str, ...]
    count: int
    most: int
    within: int
    consumes: bool

    def initial(self) -> RunScanState:
        """Return the state before the first event."""
        return MINUS_INFINITY, 0, ()

    def step(self, state: RunScanState, start: int, *values: Any) -> tuple[RunScanState, list[dict[str, Any]]]:
        """Return the state after an event, and the occurrences of the run that ends with it if these are a match, else none.

        A run has all events less than ``within`` before; one of more than ``most`` is no match. After a match that consumes, the
        run begins anew.
        """
        last, ended, before = state
        number = ended + 1 if start == last else 0
        run = (*(one for one in before if one[0] > start - self.within), (start, values))
        if not self.count <= len(run) <= self.most:
            return (start, number, run), []
        rows = [{MATCH: number, NUMBER: n, **dict(zip(self.names, one[1], strict=True))} for n, one in enumerate(run)]
        if ID in self.names:
            ids = ", ".join(row[ID] for row in rows)
            rows = [{**row, IDS: ids} for row in rows]
        return (start, number, () if self.consumes else run), rows

    def needed_until(self, state: RunScanState) -> int:
        """Return the last start at which an event could still use the state."""
        last, _, run = state
        return max(last, run[-1][0] + self.within - 1) if run else last


@check_keywords
@accepts_placeholders
def repeat(part: Stream | Contributor, count: int, most: int | None = None, *, within: Length) -> Pattern:
    """Match runs of a part: ``count`` of its events or more, ``most`` at most, within less than a scope: REPEAT.

    Each event ends a run, which has it and all events of the part in the scope before it. With ``consume()`` of the part, events
    of a match are in no later one. A match lives from the start of its last event to the end of the scope, which begins with the
    first. Its columns are lists.

    >>> import streamq as sq
    >>> fails = sq.events([(n, n + 1, {"user": u}) for n, u in ((1, "a"), (2, "a"), (3, "b"), (5, "a"), (6, "a"))])
    >>> pattern = sq.repeat(fails.alias("f").consume(), 3, within=5).where("CorrelationKey(user, EQUAL)")
    >>> pattern.show()
             f_user  root  start  end
    ['a', 'a', 'a']     1      5    6
    """
    number, scope = count_of(count, "repeat"), parse_scope(within, "repeat")
    greatest = None if most is None else count_of(most, "repeat")
    return pattern_of_parts("repeat", [part], lambda parts: Repeat(parts[0], number, scope, greatest))


__all__ = ["Repeat", "repeat"]
