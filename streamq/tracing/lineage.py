"""Lineage by counterfactuals: an event causes a row if the query, over all other events, gives that row less often.

The definition is one for all operators, the user's own included: it asks what they answer, not how. Source: Lewis, *Causation*
(1973); for queries Meliou, Gatterbauer, Moore, Suciu, *The Complexity of Causality and Responsibility for Query Answers and
non-Answers* (VLDB 2010), whose counterfactual causes and contingency sets these are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NoReturn

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Egress, Results
from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.stages import compile_stages
from streamq.errors import StreamqError
from streamq.operators.operator import BatchRun, set_aside
from streamq.operators.source import AS_END, AS_START, Source
from streamq.operators.source_arguments import ItemRule, SourcePolicy, TickColumn
from streamq.plan.expr import fold
from streamq.plan.footprint import Footprint
from streamq.plan.node import Node, Traits, expanded
from streamq.plan.schema import Field, Schema
from streamq.runtime.arrow.columnar import concat
from streamq.runtime.deltas import LE, RE, weighted
from streamq.time import MINUS_INFINITY
from streamq.tracing.recorded_run import Recording, net_rows, row_codes

EVENT_START, EVENT_END = "__event_start", "__event_end"
"""The columns of the table that hold the lifetimes, in ticks."""


@dataclass(frozen=True, eq=False, repr=False)
class HistorySource(Source):
    """Reads events that another source gave; the schemas are equal, so operators above cannot tell the two apart.

    It is no operator of the language: only traces use it, in-process.
    """

    table: str
    columns: tuple[Field, ...]
    axis: str
    shape: str
    lasts: Traits
    policy: SourcePolicy
    ids: tuple[str, ...] = ()

    @property
    def footprint(self) -> Footprint:
        return Footprint(final="every row", cost="a pass over what is new")

    @classmethod
    def from_source(cls, source: Source) -> HistorySource:
        """Return the source over the history of ``source``, under the name of its table."""
        times = (Field(EVENT_START, t.LongType()), Field(EVENT_END, t.LongType()))
        lasts = replace(source.traits, retracts=False, moves_ends=False)
        return cls(
            source.table,
            (*source.schema.fields, *times),
            source.schema.axis,
            source.schema.shape,
            lasts,
            SourcePolicy(),
        )

    @property
    def title(self) -> str:
        return "history"

    @property
    def roles(self) -> dict[str, str]:
        return {EVENT_START: AS_START, EVENT_END: AS_END}

    def _schema(self) -> Schema:
        return Schema(self.payload, self.axis, self.shape, self.consumed)

    def _traits(self) -> Traits:
        return self.lasts

    def define_items(self) -> Iterable[ItemRule]:
        return TickColumn(LE, EVENT_START), TickColumn(RE, EVENT_END)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> NoReturn:
        """Raise AssertionError: traces run in-process."""
        raise AssertionError(self.table)


Row = tuple[int, int]
"""A row of a history: the number of its operator, and its place among that operator's distinct rows."""


@dataclass(frozen=True)
class Effects:
    """The effects of leaving some events out: the rows that are then there less often, and those that are there more often.

    ``caused`` by operator: places among its distinct rows. ``prevented`` by operator: rows, with ``__le`` and ``__re``.
    ``failure``: the error of the query without the events, "" if it answers; then there are no others.
    """

    caused: dict[int, frozenset[int]] = field(default_factory=dict)
    prevented: dict[int, pa.Table] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True)
class Lineage:
    """The effects of each event of a recorded run on the histories of all operators at the end.

    An event is one that stands in the history of a source at the end, with all that later items did to it; ``events`` has its
    source and its place in the history. Those that are filtered out before all else have no effects, and are left out. Without an
    event the query is run over the events that the sources gave, at once, in-process, as far as the sources came in the
    recording, so that only the event itself is missing, not the progress that it made.
    """

    recording: Recording
    computed: dict[frozenset[int], Effects] = field(default_factory=dict)

    @cached_property
    def events(self) -> list[tuple[int, int]]:
        """The events: the number of a source among the operators, and a place in its history."""
        return [(one.number, place) for one in self.recording.sources for place in self.recording.events(one)]

    def effects(self, events: Collection[int]) -> Effects:
        """Return the effects of some events together, by their numbers in ``events``."""
        chosen = frozenset(events)
        if chosen not in self.computed:
            try:
                self.computed[chosen] = self._compared(chosen)
            except StreamqError as error:
                self.computed[chosen] = Effects(failure=str(error))
        return self.computed[chosen]

    def causes(self, row: Row) -> list[int]:
        """Return the events without each of which a row would be there less often; each is tried."""
        return [event for event in range(len(self.events)) if self._changes(row, [event])]

    def joint_causes(self, row: Row) -> list[int]:
        """Return a minimal set of events without all of which a row would be there less often; [] if there is none.

        It is for a row that no single event causes, because others would do as well. None of the set can be spared; other sets
        may exist. It is searched by halving, in some log n runs for each event of the set.
        """
        left = list(range(len(self.events)))
        if not self._changes(row, left):
            return []
        size = -(-len(left) // 2)
        while size:
            at, before = 0, len(left)
            while at < len(left):
                fewer = left[:at] + left[at + size :]
                if fewer and self._changes(row, fewer):
                    left = fewer
                else:
                    at += size
            # where more events do not give more rows, one that could not be spared may be spared without others
            size = size // 2 if size > 1 or len(left) == before else 1
        return left

    def distinct(self, operator: int) -> pa.Table:
        """Return the distinct rows of an operator's history, in order of arrival."""
        return self._distinct[operator][0]

    def place_of_row(self, operator: int) -> Sequence[int]:
        """Return the place among the distinct rows of each row of an operator's history."""
        return self._distinct[operator][1]

    def _changes(self, row: Row, events: Sequence[int]) -> bool:
        operator, place = row
        return place in self.effects(events).caused.get(operator, ())

    @cached_property
    def _distinct(self) -> list[tuple[pa.Table, Sequence[int]]]:
        """The distinct rows of each operator's history, and for each row its place among them."""
        distinct = []
        for one in self.recording.operators:
            history = self.recording.history(one.number)
            numbers, first = row_codes(history)
            order = np.argsort(first, kind="stable")
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            distinct.append((history.take(pa.array(first[order])), place[numbers].tolist()))
        return distinct

    # runs

    @cached_property
    def _program(self) -> StagedPlan:
        """The query with its sources replaced by their histories; the result of every operator is one of its results."""
        parts: dict[str, Node] = {}

        def replaced(node: Node, inputs: list[Node]) -> Node:
            parts[node.digest] = (
                HistorySource.from_source(node) if isinstance(node, Source) else node.with_children(inputs)
            )
            return parts[node.digest]

        fold(self.recording.plan, replaced)
        results = Results(tuple(parts[one.node.digest] for one in self.recording.operators))
        egresses = (Egress(),) * len(self.recording.operators)
        options = Options(egresses=egresses, buckets=1, late_output=bool(set_aside(expanded(results))))
        return compile_stages(results, options, ())

    def answers(self, without: Collection[int]) -> list[pa.Table]:
        """Return the deltas of each operator over all events but some."""
        absent = {self.events[event] for event in without}
        tables = dict(self.recording.static)
        for one in self.recording.sources:
            assert isinstance(one.node, Source)
            history = self.recording.history(one.number)
            rest = [place for place in range(history.num_rows) if (one.number, place) not in absent]
            named = [{LE: EVENT_START, RE: EVENT_END}.get(name, name) for name in history.column_names]
            tables[one.node.table] = history.take(pa.array(rest, pa.int64())).rename_columns(named)
        run = LocalRun(self._program, static=tables)
        reached = [(table, t) for table, t in self.recording.reach.items() if t != MINUS_INFINITY]
        run.batch(tables, reached)
        before_end = run.deltas
        run.finish(self.recording.until)
        return [concat([*parts]) for parts in zip(before_end, run.deltas, strict=True)]

    def _compared(self, events: frozenset[int]) -> Effects:
        """Return the effects of some events, from a run without them."""
        effects = Effects()
        for one, deltas in zip(self.recording.operators, self.answers(events), strict=True):
            history = self.recording.history(one.number)
            distinct = self.distinct(one.number)
            less, more = _difference(history, deltas)
            if less.num_rows:
                numbers, _ = row_codes(concat([distinct, less]))
                place = {number: i for i, number in enumerate(numbers[: distinct.num_rows].tolist())}
                effects.caused[one.number] = frozenset(place[n] for n in numbers[distinct.num_rows :].tolist())
            if more.num_rows:
                effects.prevented[one.number] = more
        return effects


def _difference(before: pa.Table, deltas: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows of a history that deltas lack, and those that they have beyond it."""
    after = net_rows(deltas).select(before.column_names)
    less = net_rows(concat([weighted(before, 1), weighted(after, -1)]))
    more = net_rows(concat([weighted(before, -1), weighted(after, 1)]))
    return less, more
