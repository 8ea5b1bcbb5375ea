"""States of a user's module as partial results: pickled in rows, and in this process's memory while it merges them.

A row is a state, or an event that is not yet part of one. The events of a result are added to a state at once; before rows are
copied into several windows, each event becomes a state.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, BooleanType, DataType

from streamq.plan.partial import COUNT, Ints, Mask, MergeableColumns, Partial, RowWindow, Values, no_row_window
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.columnar import ints, with_column, with_columns
from streamq.runtime.arrow.rendering import python_values
from streamq.runtime.user_code.calls import FIRST, WindowCall, pickled
from streamq.runtime.user_code.code_values import FAILURES, ReturnError, reason_of

if TYPE_CHECKING:
    from streamq.plan.function import VersionedCode

NOTHING = b""
"""The state over no events, for which the module is not called; None may be a state of the module."""

StateRows = tuple[tuple[Any, ...], ...]
"""The first events of a state, as their arguments in order."""

Merge = Callable[[Any, Any], Any]


class PartState(NamedTuple):
    """A state over a number of ``events``; errors show the ``first`` of them; ``error``: the failure, if there is no state.

    A call that fails for a part of a window fails for each window with that part, and is reported for that window.
    """

    state: Any
    first: StateRows
    events: int
    error: BaseException | None = None

    @property
    def pickle(self) -> bytes:
        """The state with its events as bytes, for :func:`unpickled`; a state that cannot be pickled becomes an error."""
        try:
            return pickled(tuple(self))
        except FAILURES as error:
            why = error if self.error is None else self.error
            return pickled((None, self.first, self.events, ReturnError(reason_of(why))))

    @property
    def held(self) -> HeldState:
        """The state as this process holds it: itself if no merge can change it, else bytes, of which each reader has a copy."""
        return self if self.error is None and _is_immutable(self.state) else self.pickle


HeldState = PartState | bytes
"""A state in memory: the same for all its readers, or bytes for :func:`unpickled`; NOTHING: no event counts."""


def part_state(compute: Callable[[], Any], first: StateRows, events: int) -> PartState:
    """Return the state that ``compute`` returns, with the number of its events and the first ones; its error if it fails."""
    try:
        return PartState(compute(), first, events)
    except FAILURES as error:
        return PartState(None, first, events, error)


def unpickled(body: bytes) -> PartState:
    """Return the state in bytes that :attr:`PartState.pickle` returned."""
    return PartState(*pickle.loads(body))


def merged_parts(parts: Sequence[PartState], merge: Merge) -> PartState | None:
    """Return the state over the events of all parts, None without parts; an error if one of them is, or if ``merge`` fails.

    Of several errors the first in the order of the parts is returned.
    """
    if not parts:
        return None
    state, first, events, error = parts[0]
    for part in parts[1:]:
        if len(first) < FIRST:
            first = (first + part.first)[:FIRST]
        events += part.events
        error = error or part.error
        if error is None:
            try:
                state = merge(state, part.state)
            except FAILURES as failure:
                error = failure
    return PartState(state if error is None else None, first, events, error)


_ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None)})
"""Types of values that nothing can change, beside NumPy's scalars."""


def _is_immutable(value: Any, depth: int = 3) -> bool:
    """True if nothing can change a value, and it can be pickled: a number, a text, bytes, None, or a tuple of such.

    Tuples nested deeper than ``depth`` do not count.
    """
    kind = type(value)
    if kind in _ATOMS:
        return True
    if isinstance(value, tuple) and not hasattr(value, "__dict__"):
        return depth > 0 and all(_is_immutable(item, depth - 1) for item in value)
    return isinstance(value, np.number | np.bool_) and kind.__module__ == "numpy"


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
        raise AssertionError("states merge in memory")

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
        counts = pc.fill_null(pc.and_(table.column(self._counts), pa.array(many > 0)), False)
        heavy = np.flatnonzero(many > 1)
        copies = np.where(counts.to_numpy()[heavy], many[heavy], 0)
        events = table.select(self._value_names[:-1]).take(pa.array(np.repeat(heavy, copies)))
        states: list[bytes | None] = [None] * table.num_rows
        for i, part in zip(heavy.tolist(), self.states_over(events, np.cumsum([0, *copies])), strict=True):
            states[i] = NOTHING if part is None else part.pickle
        is_state = pa.array(many > 1)
        columns = {self._counts: pc.if_else(is_state, None, counts), self._state: pa.array(states, pa.binary())}
        return with_columns(table, {**columns, self.name: pa.nulls(table.num_rows, arrow_type(self.type))})

    def merging_form(self, table: pa.Table) -> tuple[pa.Table, MergeableColumns]:
        """Return the table with a number in each row, that of its state or event in memory."""
        form = HeldStates(self, table)
        table = table.drop_columns(self.held_columns)
        return with_column(table, form.column, np.arange(table.num_rows)), form

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        """Return the table with the module's results, NULL if no event counts; raises ModuleFailed if one fails.

        ``place`` returns the window and the group of a row, for the error. The columns of states and events become NULL.
        """
        table, form = self.merging_form(table)
        return form.finished(table, place)

    def as_rows(self, states: Sequence[bytes | None], events: Mapping[str, Any]) -> Values:
        """Return the columns of states, None for the rows that are ``events``, whose columns of values are NULL elsewhere."""
        results = pa.nulls(len(states), arrow_type(self.type))
        return {self.name: results, self._state: pa.array(states, pa.binary()), **events}

    def read_rows(self, table: pa.Table) -> tuple[list[bytes | None], pa.Table]:
        """Return the state of each row, NOTHING for an event that does not count, None for one that does; and the values."""
        is_none = pc.and_(
            pc.is_null(table.column(self._state)), pc.invert(pc.fill_null(table.column(self._counts), False))
        )
        states = pc.if_else(is_none, pa.scalar(NOTHING, pa.binary()), table.column(self._state))
        return states.to_pylist(), table.select(self._value_names)

    def states_over(self, events: pa.Table, ends: Ints) -> Iterator[PartState | None]:
        """Yield the state over the rows of ``events`` between neighbours of ``ends``, added at once; None over no rows.

        The columns of ``events`` are the values of the arguments. Each row is in one state at most.
        """
        columns = {n: column.combine_chunks() for n, column in zip(self.calling.names, events.columns, strict=True)}
        first_events = self._first_events(columns, ends)
        state_over = self.calling.module.state_over_parts(columns)
        for (a, b), first in zip(pairwise(ends.tolist()), first_events, strict=True):
            yield part_state(partial(state_over, a, b), first, b - a) if b > a else None

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
            about = calling.subject(window, group, first, part.events)
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


class HeldStates(MergeableColumns):
    """The states and events of a ``partial`` result in this process's memory: a row has the number of one of them.

    So states are not pickled between the merges of a table, and the values of events are not carried along.
    """

    def __init__(self, partial: PickledState, table: pa.Table):
        """Hold the rows of a table of the partial result, numbered from 0 on."""
        super().__init__(partial.name)
        self.partial = partial
        states, self.events = partial.read_rows(table)
        self.held: list[HeldState | None] = [*states]
        self.is_event: Mask = np.array([state is None for state in states], bool)

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
        """The column with the number of a row's state or event."""
        return f"{self.name}__held"

    def merged(self, table: pa.Table, number: Ints, at: Ints) -> Values:
        """Return the state of each number in ``at``, merged in the order of the rows; a number with a single row keeps it."""
        order = np.argsort(number, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(number))])
        rows = ints(table, self.column)[order]
        merged_numbers = rows[ends[:-1]]
        lengths = np.diff(ends)
        several = np.flatnonzero(lengths > 1)
        merged_numbers[several] = len(self.held) + np.arange(len(several))
        parts = self._states(rows[np.repeat(lengths > 1, lengths)], np.cumsum([0, *lengths[several]]))
        self.held += [NOTHING if part is None else part.held for part in parts]
        return {self.column: merged_numbers[at]}

    def as_held(self, table: pa.Table) -> pa.Table:
        """Return the table with pickled states, and the values of those events that are not part of one."""
        numbers = ints(table, self.column)
        states = [self.held[number] for number in numbers.tolist()]
        at = pa.array(numbers, mask=~self._are_events(numbers))
        events = {name: self.events.column(name).take(at) for name in self.events.column_names}
        pickles = [state.pickle if isinstance(state, PartState) else state for state in states]
        return with_columns(table.drop_columns([self.column]), self.partial.as_rows(pickles, events))

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        """Return the table with the module's results, as :meth:`PickledState.finished` does, without the states' numbers."""
        parts = self._states(ints(table, self.column), np.arange(table.num_rows + 1))
        results = [self.partial.result(part, i, place) for i, part in enumerate(parts)]
        columns = {name: pa.nulls(table.num_rows, arrow_type(kind)) for name, kind in self.fields[1:]}
        of_module = pa.array(results, arrow_type(self.partial.type))
        return with_columns(table.drop_columns([self.column]), {self.name: of_module, **columns})

    def shared(self, table: pa.Table) -> pa.Table:
        """Return the table, each event of which is now a state in memory."""
        numbers = ints(table, self.column)
        events = numbers[self._are_events(numbers)]
        for number, part in zip(events.tolist(), self._over_events(events, np.arange(len(events) + 1)), strict=True):
            self.held[number] = NOTHING if part is None else part.held
        self.is_event[events] = False
        return table

    def _are_events(self, numbers: Ints) -> Mask:
        """Mark the numbers of events that are not part of a state."""
        is_event = numbers < len(self.is_event)
        is_event[is_event] = self.is_event[numbers[is_event]]
        return is_event

    def _states(self, numbers: Ints, ends: Ints) -> Iterator[PartState | None]:
        """Yield the state over the rows between neighbours of ``ends``, of which ``numbers`` has the numbers; None of nothing.

        Events are added to a state at once, which is merged with the others. A state that a merge may change is a copy, for this
        reader alone.
        """
        is_event = self._are_events(numbers)
        ends_of_events = np.concatenate([[0], np.cumsum(is_event)])[ends]
        added = self._over_events(numbers[is_event], ends_of_events) if is_event.any() else repeat(None)
        states = [self.held[number] for number in numbers.tolist()]
        merge = self.partial.calling.module.merge
        assert merge is not None
        for (a, b), of_events in zip(pairwise(ends.tolist()), added, strict=False):
            parts = [state if isinstance(state, PartState) else unpickled(state) for state in states[a:b] if state]
            yield merged_parts(parts if of_events is None else [of_events, *parts], merge)

    def _over_events(self, numbers: Ints, ends: Ints) -> Iterator[PartState | None]:
        """Yield the state over the events of these numbers between neighbours of ``ends``."""
        events = self.events.select(self.events.column_names[:-1]).take(pa.array(numbers))
        return self.partial.states_over(events, ends)


def shared_note(shared_by: int) -> str:
    """Return explain's words on states of basic windows, each of which so many windows share."""
    shared = f"a basic window is computed once, and shared by {shared_by} windows"
    return f"mergeable: {shared if shared_by > 1 else 'parts of a window are merged'}"
