"""REPEAT(E AS e, n, w) and REPEAT(E AS e, n, m, w): runs of n occurrences of E or more, of m at most, within less than w.

A run ends with each occurrence. With CONSUME the occurrences of a run are in no later run. Above a REPEAT a variable of E stands
for all occurrences of the run, so it takes aggregates: ``count(e)``, ``sum(e.v)``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from streamq.aggregates import built_in
from streamq.aggregates.basic import apply_aggregate
from streamq.choices import Consumption
from streamq.errors import StreamqError, check_keywords
from streamq.operators.alter_lifetime import instant_as_ticks
from streamq.operators.scan import MatchOperator, Scan
from streamq.operators.select import Select
from streamq.patterns.definition_lowering import DefinitionLowering, match_id
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
from streamq.patterns.pattern_operator import PatternOperator, PictureWords, count_of, parse_scope
from streamq.patterns.pattern_tree import PATTERN, SCOPE, Argument, ArgumentKind, Contributor, Extents, parts_of
from streamq.patterns.syntax import MAX_EVENTS, Part, Refusal, Scope, refusal_for
from streamq.plan.expr import Col, Expr, Lifetime, Lit, show
from streamq.plan.node import accepts_placeholders
from streamq.plan.schema import Field, lazy
from streamq.runtime.arrow.columnar import expand_ranges
from streamq.runtime.arrow.values import Ints
from streamq.runtime.candidates import EventRows, GroupRows, MatchStep, MatchWalk, ReadOrder
from streamq.stream import Stream
from streamq.time import INFINITY, TIMESTAMP
from streamq.time import Duration as Length

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
            raise Refusal(
                self.place_of("count"), f"the count of REPEAT is between 1 and {MAX_EVENTS}", f"found {self.count}"
            )
        if self.most is not None and self.most < self.count:
            observed = f"found {self.most} after {self.count}"
            raise Refusal(self.place_of("most"), "REPEAT of fewer at most than at least", observed)
        if any(part.pattern.repeats for part in parts_of(self.pattern)):
            hint = "Make an earlier definition of the inner one."
            raise Refusal(self.pattern.pattern.place, "a REPEAT inside a REPEAT", "", hint)

    @property
    def needed(self) -> int:
        return self.count

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
        return _shown(self.count, self.most)

    def keeps(self, words: PictureWords) -> str:
        return f"{words.names((self.pattern,))} for {words.scope(self.within)}"


def _shown(count: int, most: int | None) -> str:
    """Return the name of REPEAT with its counts."""
    return f"REPEAT {count}" if most is None else f"REPEAT {count} to {most}"


@dataclass(frozen=True, eq=False)
class RunScan(MatchOperator):
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
        return _shown(self.count, self.most)

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

    def step(self) -> RunStep:
        names = tuple(field.name for field in self.columns)
        return RunStep((names,), self.count, INFINITY if self.most is None else self.most, self.within, self.consumes)


@dataclass(frozen=True)
class RunStep(MatchStep):
    """The step of the scan from event to event, each of which may end a run.

    A run has all events less than ``within`` before its last; one of less than ``count`` or more than ``most`` is no match. After
    a match, if it ``consumes``, the run begins anew.
    """

    inputs: tuple[tuple[str, ...], ...]
    count: int
    most: int
    within: int
    consumes: bool

    @property
    def read_order(self) -> ReadOrder:
        """A run is too long as soon as too many of the newest are in it."""
        return ReadOrder.NEWEST_FIRST

    def looks_at(self, source: int) -> frozenset[int]:
        """Return the only input."""
        return frozenset([source])

    def walk(self, rows: EventRows) -> RunWalk:
        return RunWalk(self, rows)


class RunWalk(MatchWalk):
    """A walk over runs, each of which has the rows from one on to its last."""

    def __init__(self, step: RunStep, rows: EventRows):
        super().__init__(rows)
        self.step = step

    def step_over(self, group: GroupRows) -> None:
        """Collect as matches the first and last row of each run, and its number among those of its instant."""
        step, start = self.step, self.rows.start
        first = group.first
        for row in range(group.new, group.end):
            if row == group.state_end > group.new:
                self.end_state(group, range(first, row), first)
            self.at, since = row, start[row] - step.within
            while start[first] <= since:
                first += 1
            length = row + 1 - first
            if length > step.most:
                continue
            if not self.rows.is_whole:
                self.lacks = True
                return
            if length >= step.count:
                self.matches.append((first, row, row - self.rows.head[row]))
                if step.consumes:
                    self.used += range(first, row + 1)
                    first = row + 1
        if group.state_end == group.end:
            self.end_state(group, range(first, group.end), first)

    @lazy
    def _occurrences(self) -> tuple[Ints, Ints]:
        """The number of the run, and the row, of each occurrence."""
        bounds = np.asarray(self.matches, np.int64).reshape(-1, 3)
        return expand_ranges(bounds[:, 0], bounds[:, 1])

    def last_rows(self) -> Ints:
        return self._of_runs(1)

    def _of_runs(self, place: int) -> Ints:
        """Return, for each occurrence, a value of its run: its first row, its last row or its number."""
        run, _ = self._occurrences
        values: Ints = np.asarray(self.matches, np.int64).reshape(-1, 3)[run, place]
        return values

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column of the occurrences: their own, the numbers of their runs and in these, or the ids of the run."""
        _, row = self._occurrences
        if name == MATCH:
            return pa.array(self._of_runs(2), kind)
        if name == NUMBER:
            return pa.array(row - self._of_runs(0), kind)
        if name == IDS:
            ids = self.rows.columns[ID].to_pylist()
            texts = [", ".join(ids[first : last + 1]) for first, last, _ in self.matches]
            return pa.array(texts, kind).take(pa.array(self._occurrences[0]))
        return self.rows.columns[name].take(pa.array(row)).cast(kind)


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
