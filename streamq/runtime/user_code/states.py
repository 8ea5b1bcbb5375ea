"""States of user code: how parts are merged, events added and removed; and states as partial results.

The last state is reused in two places: from window to window in one walk (``module_walk``), and from micro-batch to micro-batch,
and basic window to basic window, as partial results. These are pickled in rows, and in this process's memory while it merges
them. A row is a state, or an event that is not yet part of one. The events of a result are added to a state at once; before
rows are copied into several windows, each event becomes a state. States of a module that cannot merge are each of a single
window.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise, repeat, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType

from streamq.plan.partial import COUNT, Ints, Mask, MergeableColumns, Partial, RowWindow, Values, no_row_window
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.columnar import codes, ints, with_column, with_columns
from streamq.runtime.arrow.values import python_values
from streamq.runtime.deltas import LE, RE
from streamq.runtime.user_code.calls import States, WindowCall, pickled
from streamq.runtime.user_code.code_values import FAILURES, ReturnError, instants_of, reason_of

if TYPE_CHECKING:
    from streamq.plan.function import VersionedCode


FIRST = 3
"""The number of events of a window that an error shows."""


NOTHING = b""
"""The state over no events, for which the module is not called; None may be a state of the module."""

StateRows = tuple[tuple[Any, ...], ...]
"""The first events of a state, as their arguments in order."""


class PartState(NamedTuple):
    """A state over a number of ``events``; errors show the ``first`` of them; ``error``: the failure, if there is no state.

    A call that fails for a part of a window fails for each window with that part, and is reported for that window.
    """

    state: Any
    first: StateRows
    events: int
    error: BaseException | None = None

    def valid_state(self) -> Any:
        """Return the state; raise the error in its place."""
        if self.error is not None:
            raise self.error
        return self.state

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


def unpickled(body: bytes) -> PartState:
    """Return the state in bytes that :attr:`PartState.pickle` returned."""
    return PartState(*pickle.loads(body))


class EventSlice(NamedTuple):
    """Some events of a state: ``read`` returns them as the module takes them; the ``first`` of them, and their number."""

    read: Callable[[], Any]
    first: StateRows
    events: int


def merged_parts(
    parts: Sequence[PartState], states: States, added: EventSlice | None = None, gone: EventSlice | None = None
) -> PartState | None:
    """Return the state over the events of all parts and those ``added``, without those ``gone``; None over no events.

    It is an error if one of the parts is, or if a call fails; of several errors the first in the order of the parts.
    """
    first = sum((part.first for part in parts), ())[:FIRST] + (() if added is None else added.first)
    events = sum(part.events for part in parts) + (0 if added is None else added.events)
    if gone is not None:
        first, events = tuple(row for row in first if row not in gone.first), events - gone.events
    if events <= 0:
        return None
    state, error = None, next((part.error for part in parts if part.error is not None), None)
    try:
        if error is None or parts[0].error is None:
            state = _merged(parts, states)
        if error is None and added is not None:
            state = states.add(state, added.read())
        if error is None and gone is not None:
            assert states.remove is not None
            state = states.remove(state, gone.read())
    except FAILURES as failure:
        error = failure
    return PartState(None if error is not None else state, first[:FIRST], events, error)


def _merged(parts: Sequence[PartState], states: States) -> Any:
    """Return the merged state of the parts before the first error; the initial one without parts."""
    before = [part.state for part in takewhile(lambda part: part.error is None, parts)]
    if len(before) < 2:
        return before[0] if before else states.initial()
    assert states.merge is not None
    return reduce(states.merge, before)


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

    ``arguments`` are the columns of the module's arguments; ``passes`` is the column that is true for events that count (None:
    all do); ``types`` are those of the arguments, where only the partial result names these for the state.
    """

    calling: WindowCall
    arguments: tuple[str, ...]
    passes: str | None
    types: tuple[DataType, ...] = ()

    title = "state"

    @property
    def by_window(self) -> bool:
        """True if the module's states do not merge, also if these depend on lifetimes, as each window cuts them."""
        return not self.calling.module.merges

    @property
    def subtracts(self) -> bool:
        return self.calling.module.remove is not None

    @property
    def reads_lifetimes(self) -> bool:
        return self.calling.module.sensitive

    @property
    def held_columns(self) -> list[str]:
        return [self._state, *self._value_names]

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns of the arguments and, if there is one, of the filter."""
        return self.arguments if self.passes is None else (*self.arguments, self.passes)

    @property
    def value_columns(self) -> tuple[str, ...]:
        return self._value_names

    @property
    def modules(self) -> tuple[VersionedCode, ...]:
        return (self.calling,)

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
    def _lifetime(self) -> tuple[str, ...]:
        """The columns of an event's start and end, if the module reads them."""
        return (f"{self.name}__start", f"{self.name}__end") if self.reads_lifetimes else ()

    @property
    def _value_names(self) -> tuple[str, ...]:
        return (*(f"{self.name}__{i}" for i in range(len(self.arguments))), *self._lifetime, self._counts)

    def of_events(self, table: pa.Table) -> Values:
        """Return the events' values, without states; an event counts where ``passes`` is true."""
        counts: Any = np.ones(table.num_rows, bool)
        if self.passes is not None:
            counts = pc.fill_null(table.column(self.passes), False)
        read = (*self.arguments, *((LE, RE) if self.reads_lifetimes else ()))
        values = {name: table.column(column) for name, column in zip(self._value_names[:-1], read, strict=True)}
        return {self._state: pa.nulls(table.num_rows, pa.binary()), **values, self._counts: counts}

    of_weighted = of_events

    def cut_lifetimes(self, table: pa.Table, start: Ints, end: Ints) -> pa.Table:
        return with_columns(table, dict(zip(self._lifetime, (start, end), strict=False)))

    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Return the table with an event in each row, of as many copies as its weight; it does not count if that is below 1."""
        counts = pc.fill_null(pc.and_(table.column(self._counts), pc.greater(table.column(COUNT), 0)), False)
        return with_columns(table, {self._counts: counts, self._state: pa.nulls(table.num_rows, pa.binary())})

    def merging_form(self, table: pa.Table) -> tuple[pa.Table, MergeableColumns]:
        """Return the table with a number in each row, that of its state or event in memory."""
        form = HeldStates(self, table)
        table = table.drop_columns(self.held_columns)
        return with_column(table, form.column, np.arange(table.num_rows)), form

    def event_rows(self, events: pa.Table, ends: Ints) -> Iterator[EventSlice | None]:
        """Yield the rows of ``events`` between neighbours of ``ends``, None for none; each row is in one result at most.

        The columns of ``events`` are the values of the arguments, and lifetimes if the module reads them.
        """
        columns = {n: column.combine_chunks() for n, column in zip(self._names, events.columns, strict=True)}
        if self.reads_lifetimes:
            axis = self.calling.axis
            columns |= {name: instants_of(columns[name].to_numpy(), axis) for name in ("start", "end")}
        first_events = self._first_events(columns, ends)
        read = self.calling.module.read(columns)
        for (a, b), first in zip(pairwise(ends.tolist()), first_events, strict=True):
            yield EventSlice(partial(read, a, b), first, b - a) if b > a else None

    def result(self, part: PartState | None, row: int, place: RowWindow) -> Any:
        """Return the result of a state, None without one; raises ModuleFailed, with the window and the group of the ``row``."""
        if part is None:
            return None
        calling = self.calling
        try:
            return calling.answer(part.valid_state(), place(row)[0] if self.reads_lifetimes else (0, 0))
        except FAILURES as error:
            window, group = place(row)
            first = (dict(zip(self._names, event, strict=True)) for event in part.first)
            about = calling.subject(window, group, first, part.events)
            raise calling.failure(calling.reason(error, about)) from error

    @property
    def _names(self) -> tuple[str, ...]:
        """The names of the values of an event, as errors show them."""
        return (*self.calling.names, *(("start", "end") if self.reads_lifetimes else ()))

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

    So states are not pickled between the merges of a table, and the values of events are not carried along. An event counts as
    often as the row's number of events says, and is taken back where that is negative.
    """

    def __init__(self, partial: PickledState, table: pa.Table):
        """Hold the rows of a table of the partial result, numbered from 0 on."""
        super().__init__(partial.name)
        self.partial = partial
        states, counts = (table.column(name) for name in (partial.held_columns[0], partial.held_columns[-1]))
        is_none = pc.and_(pc.is_null(states), pc.invert(pc.fill_null(counts, False)))
        # None is an event that counts
        self.held: list[HeldState | None] = pc.if_else(is_none, pa.scalar(NOTHING, pa.binary()), states).to_pylist()
        self.events, self.copies = table.select(partial.held_columns[1:]), ints(table, COUNT)
        self.failed: set[int] = set()

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
        for part in self._states(rows[np.repeat(lengths > 1, lengths)], np.cumsum([0, *lengths[several]])):
            if part is not None and part.error is not None:
                self.failed.add(len(self.held))
            self.held.append(NOTHING if part is None else part.held)
        return {self.column: merged_numbers[at]}

    def has_failed(self, table: pa.Table) -> Mask:
        return np.isin(ints(table, self.column), [*self.failed])

    def as_held(self, table: pa.Table) -> pa.Table:
        """Return the table with pickled states, and the values of those events that are not part of one."""
        numbers = ints(table, self.column)
        states = [self.held[number] for number in numbers.tolist()]
        at = pa.array(numbers, mask=~self._are_events(numbers))
        pickles = [state.pickle if isinstance(state, PartState) else state for state in states]
        columns: dict[str, Any] = {self.partial.held_columns[0]: pa.array(pickles, pa.binary())}
        columns |= {name: self.events.column(name).take(at) for name in self.events.column_names}
        return with_columns(table.drop_columns([self.column]), columns)

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        """Return the table with the module's results, NULL if no event counts; raises ModuleFailed if one fails.

        ``place`` returns the window and the group of a row, for the error.
        """
        parts = self._states(ints(table, self.column), np.arange(table.num_rows + 1))
        results = [self.partial.result(part, i, place) for i, part in enumerate(parts)]
        of_module = pa.array(results, arrow_type(self.partial.type))
        return with_column(table.drop_columns([self.column]), self.name, of_module)

    def shared(self, table: pa.Table) -> pa.Table:
        """Return the table, each event of which is now a state in memory."""
        numbers = ints(table, self.column)
        events = numbers[self._are_events(numbers)]
        for number, part in zip(events.tolist(), self._states(events, np.arange(len(events) + 1)), strict=True):
            self.held[number] = NOTHING if part is None else part.held
        return table

    def _are_events(self, numbers: Ints) -> Mask:
        """Mark the numbers of events that are not part of a state."""
        return np.array([self.held[number] is None for number in numbers.tolist()], bool)

    def _states(self, numbers: Ints, ends: Ints) -> Iterator[PartState | None]:
        """Yield the state over the rows between neighbours of ``ends``, of which ``numbers`` has the numbers; None of nothing.

        Events are added to a state at once, which is merged from the others. A state that a call may change is a copy, for this
        reader alone.
        """
        states = [self.held[number] for number in numbers.tolist()]
        for (a, b), added, gone in zip(pairwise(ends.tolist()), *self._changes(numbers, ends), strict=False):
            parts = [state if isinstance(state, PartState) else unpickled(state) for state in states[a:b] if state]
            yield merged_parts(parts, self.partial.calling.module, added, gone)

    def _changes(self, numbers: Ints, ends: Ints) -> list[Iterator[EventSlice | None]]:
        """Return the events that come, and those that are taken back, between neighbours of ``ends``, as :meth:`_states` does.

        An event that comes and is taken back is in neither.
        """
        place = np.flatnonzero(self._are_events(numbers))
        number, of = numbers[place], np.searchsorted(ends, place, "right") - 1
        copies = self.copies[number]
        if (copies < 0).any():
            values = self.events.take(pa.array(number))
            one, first = codes(with_column(values, COUNT, of), [COUNT, *values.column_names])
            order = np.sort(first)
            copies = np.bincount(one, copies).astype(np.int64)[one[order]]
            number, of = number[order], of[order]
        return [self._of_groups(number, of, np.maximum(sign * copies, 0), len(ends) - 1) for sign in (1, -1)]

    def _of_groups(self, number: Ints, of: Ints, copies: Ints, groups: int) -> Iterator[EventSlice | None]:
        """Return the events of each of the ``groups``, ``of`` which they are in order, each as often as ``copies`` says."""
        if not copies.any():
            return repeat(None)
        at = np.repeat(number, copies)
        ends = np.concatenate([[0], np.cumsum(np.bincount(np.repeat(of, copies), minlength=groups))])
        return self.partial.event_rows(self.events.select(self.events.column_names[:-1]).take(pa.array(at)), ends)


def shared_note(shared_by: int) -> str:
    """Return explain's words on states of basic windows, each of which so many windows share."""
    shared = f"a basic window is computed once, and shared by {shared_by} windows"
    return f"mergeable: {shared if shared_by > 1 else 'parts of a window are merged'}"
