"""States of a user's module as partial results: rows are pickled states, or events that are not yet part of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, BooleanType, DataType

from streamq.plan.partial import COUNT, Ints, MergeableColumns, Partial, RowWindow, Values, no_row_window
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.columnar import ints, with_column
from streamq.runtime.rendering import python_values
from streamq.runtime.user_code.calls import FIRST, WindowCall
from streamq.runtime.user_code.part_states import (
    NOTHING,
    HeldState,
    PartState,
    StateRows,
    merged_parts,
    part_state,
    unpickled,
)

if TYPE_CHECKING:
    from streamq.plan.function import VersionedCode


@dataclass(frozen=True)
class PickledState(Partial):
    """A partial result whose rows are states, or, if the state is NULL, events; a group's events are added to a state at once.

    ``arguments`` are the module's arguments, columns with their types; ``passes`` is the column that is true for events that
    count (None: all do).
    """

    calling: WindowCall
    arguments: tuple[tuple[str, DataType], ...]
    passes: str | None

    title = "state"
    few_copies = 0

    @property
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        kinds = (*(kind for _, kind in self.arguments), BooleanType())
        values = zip(self._value_names, kinds, strict=True)
        return ((self.name, self.type), (self._state, BinaryType()), *values)

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns of the arguments and, if there is one, of the filter."""
        names = tuple(name for name, _ in self.arguments)
        return names if self.passes is None else (*names, self.passes)

    @property
    def value_columns(self) -> tuple[str, ...]:
        return self._value_names

    @property
    def modules(self) -> tuple[VersionedCode, ...]:
        return (self.calling.module,)

    def note(self, shared_by: int) -> str:
        return f"{self.calling.name}: {shared_note(shared_by)}"

    @property
    def depends_on_order(self) -> bool:
        return True

    @property
    def grouped(self) -> dict[str, str]:
        return {}

    @property
    def _state(self) -> str:
        return f"{self.name}__state"

    @property
    def _counts(self) -> str:
        """The column that is true for an event that counts; NULL if the row is a state."""
        return f"{self.name}__counts"

    @property
    def _value_names(self) -> tuple[str, ...]:
        return (*(f"{self.name}__{i}" for i in range(len(self.arguments))), self._counts)

    def of_events(self, table: pa.Table) -> Values:
        """Return the events' values, without states."""
        nothing = {self.name: pa.nulls(table.num_rows, arrow_type(self.type))}
        return {**nothing, self._state: pa.nulls(table.num_rows, pa.binary()), **self.of_weighted(table)}

    def of_weighted(self, table: pa.Table) -> Values:
        """Return the arguments of each event, and whether the event counts, which is where ``passes`` is true."""
        counts: Any = np.ones(table.num_rows, bool)
        if self.passes is not None:
            counts = pc.fill_null(table.column(self.passes), False)
        values = zip(self._value_names[:-1], self.arguments, strict=True)
        return {**{name: table.column(column) for name, (column, _) in values}, self._counts: counts}

    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Return the table with a partial result in each row: an event of weight 1, or the state over copies of a heavier one.

        Events of weight 0 or less do not count; the state over copies that do not pass the filter is NOTHING.
        """
        many = ints(table, COUNT)
        states: list[bytes | None] = [None] * table.num_rows
        counts = pc.and_(table.column(self._counts), pa.array(many > 0))
        for i in np.flatnonzero(many > 1).tolist():
            rows = table.take(pa.array([i] * int(many[i])))
            is_counted = rows.column(self._counts)[0].as_py()
            states[i] = self._state_over(self._arguments(rows)).pickle if is_counted else NOTHING
        is_state = pa.array([state is not None for state in states], pa.bool_())
        table = with_column(table, self._counts, pc.if_else(is_state, None, counts))
        table = with_column(table, self._state, pa.array(states, pa.binary()))
        return with_column(table, self.name, pa.nulls(table.num_rows, arrow_type(self.type)))

    def merged(self, table: pa.Table, number: Ints, at: Ints) -> Values:
        """Return the state of each number in ``at``: its events added to a state at once, then merged with its other states.

        ``number``: each row's number. A number with a single row keeps it unchanged.
        """
        rows = _NumberedRows(number)
        states = table.column(self._state).take(pa.array(rows.order[rows.ends[:-1]])).to_pylist()
        several = np.flatnonzero(~rows.is_alone)
        for i, part in zip(several.tolist(), self.parts(table, rows, several), strict=True):
            states[i] = NOTHING if part is None else part.pickle
        first_rows = table.select(self._value_names).take(pa.array(rows.order[rows.ends[:-1]][at]))
        keeps = pa.array(rows.is_alone[at])
        merged_columns = {n: pc.if_else(keeps, first_rows.column(n), None) for n in self._value_names}
        merged_columns[self._state] = pa.array([states[i] for i in at.tolist()], pa.binary())
        merged_columns[self.name] = pa.nulls(len(at), arrow_type(self.type))
        return merged_columns

    def merged_in_memory(self, table: pa.Table, number: Ints, at: Ints) -> tuple[Values, MergeableColumns]:
        """Return the number in memory of the state of each number in ``at``, and the states that this process holds."""
        states, rows = HeldStates(self.name, self, []), _NumberedRows(number)
        states.hold(self.parts(table, rows, rows.numbers))
        return {states.column: at}, states

    def parts(self, table: pa.Table, rows: _NumberedRows, wanted: Ints) -> Iterator[PartState | None]:
        """Yield the state of each ``wanted`` number: its events are added to a state, which is merged with its other states.

        None if no event counts.
        """
        order, ends = rows.order, rows.ends
        counts = pc.fill_null(table.column(self._counts), False).to_numpy()[order]
        events = table.select(self._value_names[:-1]).take(pa.array(order[counts]))
        columns = {
            name: column.combine_chunks() for name, column in zip(self.calling.names, events.columns, strict=True)
        }
        ends_of_events = np.concatenate([[0], np.cumsum(counts)])[ends]
        first_events, event_ends = self._first_events(columns, ends_of_events), ends_of_events.tolist()
        is_state = table.column(self._state).is_valid().to_numpy()[order]
        places_of_states = np.concatenate([[0], np.cumsum(is_state)])[ends].tolist()
        pickles = table.column(self._state).take(pa.array(order[is_state])).to_pylist()
        state_over = self.calling.module.state_over_parts(columns)
        for i in wanted.tolist():
            states = pickles[places_of_states[i] : places_of_states[i + 1]]
            parts = [unpickled(state) for state in states if state != NOTHING]
            first, last = event_ends[i], event_ends[i + 1]
            if last > first:
                parts.insert(0, part_state(partial(state_over, first, last), first_events[i], last - first))
            yield self.merged_parts(parts)

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        """Return the table with the module's results, NULL if no event counts; raises ModuleFailed if one fails.

        ``place`` returns the window and the group of a row, for the error. The columns of states and events become NULL.
        """
        rows = _NumberedRows(np.arange(table.num_rows))
        results = [self.result(part, i, place) for i, part in enumerate(self.parts(table, rows, rows.numbers))]
        return self.with_results(table, results)

    def with_results(self, table: pa.Table, results: list[Any]) -> pa.Table:
        """Return the table with a column of results; the columns of states and events are NULL."""
        table = with_column(table, self.name, pa.array(results, arrow_type(self.type)))
        for name, kind in self.fields[1:]:
            table = with_column(table, name, pa.nulls(table.num_rows, arrow_type(kind)))
        return table

    def merged_parts(self, parts: Sequence[PartState]) -> PartState | None:
        """Return the state over the events of all parts; None without parts."""
        merge = self.calling.module.merge
        assert merge is not None
        return merged_parts(parts, merge) if parts else None

    def result(self, part: PartState | None, row: int, place: RowWindow) -> Any:
        """Return the result of a state, None without one; raises ModuleFailed, with the window and the group of the ``row``."""
        if part is None:
            return None
        calling, result = self.calling, part
        if part.error is None:
            result = part_state(
                lambda: calling.value(calling.module.result(part.state), (0, 0)), part.first, part.events
            )
        if result.error is not None:
            window, group = place(row)
            first = (dict(zip(calling.names, event, strict=True)) for event in part.first)
            about = calling.about(window, group, first, part.events)
            raise calling.failure(calling.reason(result.error, about)) from result.error
        return result.state

    def _first_events(self, columns: Mapping[str, pa.Array], ends: Ints) -> list[StateRows]:
        """Return the first events of each group of rows between neighbours of ``ends``; all columns are read at once."""
        if not ends[-1]:
            return [()] * (len(ends) - 1)
        lengths = np.minimum(np.diff(ends), FIRST)
        places = np.concatenate([[0], np.cumsum(lengths)])
        at = pa.array(np.repeat(ends[:-1] - places[:-1], lengths) + np.arange(places[-1]))
        rows = list(zip(*(python_values(column.take(at)) for column in columns.values()), strict=True))
        return [tuple(rows[a:b]) for a, b in pairwise(places.tolist())]

    def _state_over(self, arguments: Mapping[str, pa.Array]) -> PartState:
        """Return the state over events, at least one."""
        count = len(next(iter(arguments.values())))
        (first,) = self._first_events(arguments, np.array([0, count]))
        return part_state(lambda: self.calling.module.state_over(arguments), first, count)

    def _arguments(self, rows: pa.Table) -> dict[str, pa.Array]:
        columns = (rows.column(name).combine_chunks() for name in self._value_names[:-1])
        return dict(zip(self.calling.names, columns, strict=True))


@dataclass(frozen=True)
class HeldStates(MergeableColumns):
    """The states of a ``partial`` result in this process's memory: a row has the number of its state in ``held``.

    Between the merges of one table states need not be pickled, nor are rows of events carried along.
    """

    partial: PickledState
    held: list[HeldState]

    @property
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        return self.partial.fields

    @property
    def grouped(self) -> dict[str, str]:
        return {}

    @property
    def held_columns(self) -> list[str]:
        return [self.column]

    @property
    def column(self) -> str:
        """The column with the number of a row's state."""
        return f"{self.name}__held"

    def hold(self, parts: Iterable[PartState | None]) -> None:
        """Add states to those in memory."""
        self.held.extend(NOTHING if part is None else part.held for part in parts)

    def merged(self, table: pa.Table, number: Ints, at: Ints) -> Values:
        """Return the state of each number in ``at``, merged in the order of the rows; a number with a single row keeps it."""
        rows = _NumberedRows(number)
        numbers = ints(table, self.column)[rows.order]
        merged_numbers = numbers[rows.ends[:-1]]
        several = np.flatnonzero(~rows.is_alone)
        merged_numbers[several] = len(self.held) + np.arange(len(several))
        starts, ends = rows.ends[several].tolist(), rows.ends[several + 1].tolist()
        every = numbers.tolist()
        self.hold(self.partial.merged_parts(self._parts(every[a:b])) for a, b in zip(starts, ends, strict=True))
        return {self.column: merged_numbers[at]}

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        """Return the table with the module's results, as :meth:`PickledState.finished` does, without the states' numbers."""
        numbers = ints(table, self.column).tolist()
        results = [
            self.partial.result(next(iter(self._parts([number])), None), i, place) for i, number in enumerate(numbers)
        ]
        return self.partial.with_results(table.drop_columns([self.column]), results)

    def _parts(self, numbers: Iterable[int]) -> list[PartState]:
        """Return the states of these numbers that have events, a copy for this reader of those that may be changed."""
        states = [self.held[number] for number in numbers]
        return [state if isinstance(state, PartState) else unpickled(state) for state in states if state != NOTHING]


class _NumberedRows:
    """Rows sorted by number: the ``order`` of the rows, and the ``ends`` between which each number's rows lie in it."""

    def __init__(self, number: Ints):
        """Sort rows by ``number``; all numbers from 0 to the greatest occur."""
        self.order = np.argsort(number, kind="stable")
        self.ends = np.concatenate([[0], np.cumsum(np.bincount(number))]).astype(np.int64)
        self.numbers = np.arange(len(self.ends) - 1)
        self.is_alone = np.diff(self.ends) == 1


def shared_note(shared_by: int) -> str:
    """Return explain's words on states of basic windows, each of which so many windows share."""
    shared = f"a basic window is computed once, and shared by {shared_by} windows"
    return f"mergeable: {shared if shared_by > 1 else 'parts of a window are merged'}"


__all__ = ["HeldStates", "PickledState", "shared_note"]
