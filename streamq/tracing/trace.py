"""Trace: the flow of events through a query, from a row back to the events that cause it, and from an event on to its effects."""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property, reduce
from numbers import Integral
from operator import and_
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamq import html
from streamq.errors import MixedStreams, PlanError, UnknownColumn, counted, kind_of, nearest, sentence, warn
from streamq.operators import Source, Where
from streamq.plan.expr import Col, Expr, Lifetime, fold
from streamq.plan.node import Node, number_sources
from streamq.plan.resolve import resolve
from streamq.run.batch.passed_batches import passed_batches
from streamq.screens import ProgressBar
from streamq.time import INFINITY, instant_label, instant_ticks
from streamq.tracing.lineage import Lineage
from streamq.tracing.recorded_run import (
    FOLLOWED,
    Recording,
    ShownRow,
    TracedOperator,
    TracedRows,
    arrived_rows,
    change_rows,
    history_rows,
    listed_rows,
    record_run,
    shown_rows,
    user_columns,
)

MOST_ROWS = 5_000
"""The most rows of all sources that a trace follows."""

MOST_EVENTS = 500
"""The most events of which each is left out in turn, to find the causes of a row."""

Selector = Mapping[str, Any]
"""Columns of a row, ``start`` and ``end`` among them, with their values."""


def trace_query(
    plan: Node, tables: Mapping[str, Any], rows: Any, until: int | dt.datetime | None, where: Any = None
) -> Trace:
    """Return the trace of a query over its tables; the arguments are those of ``Stream.trace``."""
    plan, filtered = (plan, set[str]()) if where is None else with_filtered_sources(plan, where)
    plan, names = number_sources(plan)
    numbered = {names[name]: table for name, table in tables.items() if name in names}
    passed = passed_batches(plan, numbered, rows, verb="trace")
    if passed.count > MOST_ROWS:
        hint = "Pass fewer rows: q.trace(table.slice(0, 1000))."
        raise PlanError("trace", f"more than {MOST_ROWS:,} rows", f"found {passed.count:,}", hint)
    ticks = instant_ticks(until, plan.schema.axis, "trace")
    numbered_tables = frozenset(names[table] for table in filtered)
    recording = record_run(plan, passed.static, passed.batches, ticks, numbered_tables)
    return Trace(recording, "" if where is None else shown_condition(where, recording))


def with_filtered_sources(plan: Node, where: Any) -> tuple[Node, set[str]]:
    """Return a plan with a filter behind each source that has all columns of ``where``, and the tables of these sources.

    ``where`` is that of ``Stream.trace``. Raises UnknownColumn or MixedStreams if no source has all its columns.
    """
    predicate = _has_all_values(where) if isinstance(where, Mapping) else where
    filtered: set[str] = set()
    others: list[PlanError] = []

    def visit(node: Node, inputs: list[Node]) -> Node:
        node = node.with_children(inputs)
        if not isinstance(node, Source):
            return node
        try:
            followed = Where(node, resolve(predicate, node, "trace", of_events=True))
        except (UnknownColumn, MixedStreams) as error:
            others.append(error)
            return node
        filtered.add(node.table)
        return followed

    whole = fold(plan, visit)
    if not filtered:
        raise others[0]
    return whole, filtered


def shown_condition(where: Any, recording: Recording) -> str:
    """Return as text what ``where`` of ``Stream.trace`` looks for, in which sources."""
    inserted = [one for one in recording.operators if one.name.startswith(FOLLOWED)]
    names = ", ".join(recording.operators[number].name for one in inserted for number in one.inputs)
    condition = repr(getattr(inserted[0].node, "predicate", where))
    if isinstance(where, Mapping):
        condition = ", ".join(f"{name} = {value!r}" for name, value in where.items())
    return f"{names} with {condition}"


def _has_all_values(values: Selector) -> Expr:
    """Return the condition that columns, ``start`` and ``end`` among them, have some values; raise PlanError for no columns."""
    if not values:
        raise PlanError("trace", "where names no column", "it is {}", "Leave it out to follow all events.")
    columns = {name: Lifetime(name) if name in ("start", "end") else Col(name) for name in values}
    return reduce(and_, (c.is_null() if values[n] is None else c == values[n] for n, c in columns.items()))


class Trace:
    """The flow of events through a query that ran in-process: what every operator received and sent in each micro-batch.

    ``operators`` names the operators, inputs first; the last one gives the answer, and is meant where a method gets no operator.
    The last micro-batch is the end of the input. A notebook shows the trace as a page; printed it is a table.
    """

    def __init__(self, recording: Recording, looked_for: str = ""):
        """``looked_for``: the events to follow, as text; "" for all."""
        self.recording = recording
        self._looked_for = looked_for
        self.lineage = Lineage(recording)
        self._axis = recording.plan.schema.axis

    @property
    def operators(self) -> list[str]:
        """The names of the operators, inputs first: sources by their own names, others by their titles in ``explain``."""
        return [one.name for one in self.recording.operators]

    # plain tables

    def table(self) -> TracedRows:
        """Return a row for each micro-batch and operator: rows received, rows inserted and retracted, CTI, and rows of state."""
        numbers = range(len(self.recording.operators))
        changes = [self.recording.change_counts(number) for number in numbers]
        received = [self.recording.received(number) for number in numbers]
        rows = [
            (at + 1, self.operators[number], received[number][at], *changes[number][at], batch.state[number])
            for at, batch in enumerate(self.recording.batches)
            for number in numbers
        ]
        names = ("micro_batch", "operator", "received", "inserted", "retracted", "state")
        columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        columns["cti"] = [instant_label(c, self._axis) for batch in self.recording.batches for c in batch.ctis]
        return TracedRows(pa.table(columns))

    def rows(self, operator: str | None = None) -> TracedRows:
        """Return the rows that an operator sends, in order of arrival: inserts and retractions, each with its micro-batch."""
        one = self._operator(operator, "rows")
        return TracedRows(change_rows(self.recording.changes(one.number), one.node.schema))

    def received(self, operator: str | None = None) -> dict[str, TracedRows]:
        """Return the rows that an operator receives, by the operators that send them; for a source the rows of its table."""
        one = self._operator(operator, "received")
        if isinstance(one.node, Source):
            return {
                one.name: TracedRows(arrived_rows([batch.arrived for batch in self.recording.batches], one.node.table))
            }
        names = [self.recording.operators[below].name for below in one.inputs]
        return {name: self.rows(name) for name in names}

    def history(self, operator: str | None = None) -> TracedRows:
        """Return the rows of an operator that stand at the end, in order of application time."""
        one = self._operator(operator, "history")
        table = history_rows(self.recording.history(one.number), one.node.schema)
        return TracedRows(table.sort_by([("start", "ascending"), ("end", "ascending")]))

    def state(self) -> dict[str, tuple[str, ...]]:
        """Return what the state of each operator that has some consists of, in the words of ``explain``."""
        return {one.name: one.state for one in self.recording.operators if one.state}

    @property
    def late(self) -> TracedRows:
        """The rows that sources left out or changed, with the reason: late, invalid or repeated ones. Times are in ticks."""
        return TracedRows(pa.concat_tables([batch.late for batch in self.recording.batches]))

    def events(self) -> TracedRows:
        """Return the events that stand at the end in the histories of the sources, with the numbers that ``effects`` takes."""
        return self._listed_events(range(len(self.lineage.events)))

    # lineage

    def causes(self, row: Selector | None = None, operator: str | None = None) -> TracedRows:
        """Return the events that cause some rows: without each of them the operator would give one of these rows less often.

        ``row``: values of the rows' columns, ``start`` and ``end`` included, as ``{"booth": "1", "start": 3}``; None: all rows of
        the operator's history. A row that no single event causes, because others would do as well, is caused by a minimal set of
        events together: ``together`` is True for these. Raises PlanError if no row has these values, and for more than
        500 events, each of which is left out in turn. Warns of events without which the query fails.
        """
        one = self._operator(operator, "causes")
        self._check_events("causes")
        self._warn_of_failures("causes")
        single: set[int] = set()
        joint: set[int] = set()
        for place in self._places(one, row, "causes"):
            causes = self.lineage.causes((one.number, place))
            single.update(causes)
            joint.update([] if causes else self.lineage.joint_causes((one.number, place)))
        events = sorted(single | joint)
        return self._listed_events(
            events, {"together": pa.array([event not in single for event in events], pa.bool_())}
        )

    def effects(self, event: int | Selector, source: str | None = None) -> TracedRows:
        """Return the rows of all operators that an event causes, and those that it prevents.

        ``event``: its number in ``events()``, or values of its columns, of which all events that have them are left out together.
        ``source``: the name of its source, if there are several. A row is "caused" if it would be there less often without the
        event, "prevented" if it would be there more often; an event that changes a count does both. Raises PlanError if there
        is no such event, and if the query fails without it.
        """
        chosen = self._selected_events(event, source)
        effects = self.lineage.effects(chosen)
        if effects.failure:
            raise PlanError("effects", f"without event {event} the query fails", effects.failure)
        rows: list[ShownRow] = []
        kinds: list[str] = []
        for one in self.recording.operators:
            caused = self.lineage.distinct(one.number).take(
                pa.array(sorted(effects.caused.get(one.number, ())), pa.int64())
            )
            for kind, table in (("caused", caused), ("prevented", effects.prevented.get(one.number))):
                shown = [] if table is None else shown_rows(one.name, table, one.node.schema)
                rows += shown
                kinds += [kind] * len(shown)
        return TracedRows(listed_rows(rows, self._axis, {"effect": pa.array(kinds, pa.string())}))

    def prevented(self, row: Selector | None = None, operator: str | None = None) -> TracedRows:
        """Return rows that an operator would give without one event, each after that event: why is this row missing?

        ``event`` is the event's number in ``events()``, with its ``source`` and ``event_payload``; other columns are the row's.

        ``row`` and the errors are as in :meth:`causes`, but no row needs to have these values.
        """
        one = self._operator(operator, "prevented")
        self._check_events("prevented")
        self._warn_of_failures("prevented")
        wanted = self._values(one, row, "prevented")
        events: list[int] = []
        rows: list[ShownRow] = []
        for event in range(len(self.lineage.events)):
            missing = self.lineage.effects([event]).prevented.get(one.number)
            shown = [] if missing is None else shown_rows(one.name, missing, one.node.schema)
            fitting = [row for row in shown if _has_values(row, wanted)]
            rows += fitting
            events += [event] * len(fitting)
        preventing = [self._shown_events[event] for event in events]
        more = {
            "event": pa.array(events, pa.int64()),
            "source": pa.array([event.operator for event in preventing], pa.string()),
            "event_payload": pa.array([event.text for event in preventing], pa.string()),
        }
        return TracedRows(listed_rows(rows, self._axis, more))

    # pages

    def to_html(self) -> str:
        """Return the trace as a page of its own, which needs no other file and no network."""
        return html.whole_page("trace", self._repr_html_())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, whose name ends in .html, and return its path."""
        file = Path(path)
        if file.suffix.lower() != ".html":
            raise PlanError("save", "a trace is saved as .html", f"found {file.name!r}")
        file.write_text(self.to_html(), encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        from streamq.tracing.trace_page import page_fragment

        return page_fragment(self)

    def __repr__(self) -> str:
        batches = self.recording.batches
        counts = [sum(table.num_rows for table in batch.arrived.values()) for batch in batches]
        size = f"{counted(sum(counts), 'row')} in {counted(len(batches) - 1, 'micro-batch', 'micro-batches')}"
        lines = [self._no_events or f"trace of {size}, and the end of the input"]
        for one in self.recording.operators:
            changes = self.recording.change_counts(one.number)
            below = ", ".join(self.recording.operators[number].name for number in one.inputs)
            of = f" of {below}" if below else ""
            inserted, retracted = (sum(numbers) for numbers in zip(*changes, strict=True))
            state = max(batch.state[one.number] for batch in batches)
            lines.append(
                f"  {one.name}{of}: {inserted:,} inserted, {retracted:,} retracted, at most {state:,} rows of state"
            )
        late = Counter((row["source"], row["reason"]) for row in self.late)
        lines += [f"  left out or changed at {source}: {count:,} {reason}" for (source, reason), count in late.items()]
        return "\n".join(lines)

    # parts

    @property
    def _no_events(self) -> str:
        """A sentence on what the trace has looked for, if no event that stands at the end is like that; else ""."""
        if not self._looked_for or self.lineage.events:
            return ""
        shown = ", ".join(
            f"{self.recording.history(one.number).num_rows:,} of {one.name}" for one in self.recording.sources
        )
        return f"trace of nothing: no event of {self._looked_for}; there are {shown}"

    @cached_property
    def _shown_events(self) -> list[ShownRow]:
        rows: list[ShownRow] = []
        for one in self.recording.sources:
            shown = shown_rows(one.name, self.recording.history(one.number), one.node.schema)
            rows += [shown[place] for place in self.recording.events(one)]
        return rows

    def _operator(self, name: str | None, verb: str) -> TracedOperator:
        """Return the operator of a name, the last one for None; raise PlanError if there is none."""
        if name is None:
            return self.recording.operators[-1]
        for one in self.recording.operators:
            if one.name == name:
                return one
        there = f"there are: {', '.join(self.operators)}"
        raise PlanError(verb, f"no operator {name!r}", there, nearest(str(name), self.operators))

    def _check_events(self, verb: str) -> None:
        """Raise PlanError if there are more events than can be left out in turn."""
        count = len(self.lineage.events)
        if count > MOST_EVENTS:
            hint = "Trace fewer rows, or ask for effects, which leave out one event."
            raise PlanError(verb, f"more than {MOST_EVENTS:,} events, each to be left out", f"found {count:,}", hint)

    def leave_out_each(self, verb: str) -> list[int]:
        """Answer the query without each event in turn, with a progress bar; return the events without which it fails."""
        count = len(self.lineage.events)
        failing = []
        with ProgressBar(verb) as bar:
            for event in range(count):
                bar.update(event, count)
                if self.lineage.effects([event]).failure:
                    failing.append(event)
        return failing

    def _warn_of_failures(self, verb: str) -> None:
        """Warn of the events without which the query fails: nobody knows what they cause or prevent."""
        failing = self.leave_out_each(verb)
        if failing:
            wrong = (
                f"without {'event' if len(failing) == 1 else 'events'} {', '.join(map(str, failing))} the query fails"
            )
            why = self.lineage.effects([failing[0]]).failure
            warn(sentence(verb, f"{wrong}, so what they cause or prevent is not known", why))

    def _values(self, one: TracedOperator, row: Any, verb: str) -> dict[str, Any]:
        """Return the values that a row is to have, lifetimes in ticks; raise PlanError for other than a mapping of columns."""
        if row is None:
            return {}
        if not isinstance(row, Mapping):
            hint = "Write its columns: {'k': 1, 'start': 3}."
            raise PlanError(verb, "a row is chosen by values of its columns", f"found {kind_of(row)}", hint)
        names = [*user_columns(one.node.schema).values(), "start", "end"]
        values: dict[str, Any] = {}
        for name, value in row.items():
            if name not in names:
                hint = nearest(str(name), names)
                raise PlanError(verb, f"{one.name} has no column {name!r}", f"there are: {', '.join(names)}", hint)
            is_instant = name in ("start", "end")
            values[name] = _ticks(value, one.node.schema.axis, verb) if is_instant else value
        return values

    def _places(self, one: TracedOperator, row: Selector | None, verb: str) -> list[int]:
        """Return the places of the distinct rows of an operator that have some values; raise PlanError if none has them."""
        values = self._values(one, row, verb)
        shown = shown_rows(one.name, self.lineage.distinct(one.number), one.node.schema)
        places = [place for place, other in enumerate(shown) if _has_values(other, values)]
        if row is not None and not places:
            wrong = f"no row of {one.name} with {dict(row)}"
            hint = "trace.prevented(...) has the rows that events prevent, trace.late those that sources left out."
            raise PlanError(verb, wrong, f"it has {len(shown):,} distinct rows at the end", hint)
        return places

    def _selected_events(self, event: Any, source: str | None) -> list[int]:
        """Return the number of an event, or those of the events with some values.

        Raises PlanError for a source that does not exist, or if there are several sources or no such event.
        """
        names = [one.name for one in self.recording.sources]
        if source is not None and source not in names:
            hint = nearest(str(source), names)
            raise PlanError("effects", f"no source {source!r}", f"there are: {', '.join(names)}", hint)
        if not isinstance(event, Mapping):
            events = self.lineage.events
            owners = [self.recording.operators[owner].name for owner, _ in events]
            is_there = isinstance(event, Integral) and 0 <= int(event) < len(events)
            if not is_there or source not in (None, owners[int(event)]):
                there = f"there are {len(events)}, from 0" if source is None else f"source {source} has others"
                there = self._no_events or there
                raise PlanError("effects", f"no event {event}", there, "trace.events() has their numbers.")
            return [int(event)]
        if source is None and len(names) > 1:
            raise PlanError(
                "effects", "an event of one of several sources", f"there are: {', '.join(names)}", "Say source=."
            )
        one = self._operator(names[0] if source is None else source, "effects")
        places = set(self._places(one, event, "effects"))
        distinct = self.lineage.place_of_row(one.number)
        numbers = enumerate(self.lineage.events)
        return [number for number, (owner, at) in numbers if owner == one.number and distinct[at] in places]

    def _listed_events(self, numbers: Iterable[int], more: Mapping[str, Any] | None = None) -> TracedRows:
        chosen = list(numbers)
        columns = {"event": pa.array(chosen, pa.int64()), **(more or {})}
        table = listed_rows([self._shown_events[number] for number in chosen], self._axis, columns)
        return TracedRows(table.rename_columns(["source" if n == "operator" else n for n in table.column_names]))


def _has_values(row: ShownRow, values: Mapping[str, Any]) -> bool:
    """Return True if a row has all these values; NaN equals NaN."""
    own = {"start": row.start, "end": row.end, **row.payload}
    return all(own[name] == value or (own[name] != own[name] and value != value) for name, value in values.items())


def _ticks(value: Any, axis: str, verb: str) -> int:
    """Return an instant of a selector in ticks, INFINITY for None."""
    ticks = instant_ticks(value, axis, verb)
    return INFINITY if ticks is None else ticks
