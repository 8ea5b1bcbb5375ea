"""States of a user's module as partial results: rows are pickled states, or events that are not yet part of one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, BooleanType, DataType

from streamq.plan.partial import COUNT, Ints, Partial, RowWindow, Values, no_row_window
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.columnar import ints, with_column
from streamq.runtime.rendering import python_values
from streamq.runtime.user_code.calls import FIRST, WindowCall, pickled
from streamq.runtime.user_code.code_values import FAILURES, ReturnError, reason_of

if TYPE_CHECKING:
    from streamq.plan.named_object import VersionedCode

NOTHING = b""
"""The state over no events, for which the module is not called; None may be a state of the module."""


StateRows = tuple[tuple[Any, ...], ...]
"""The first events of a state, as their arguments in order."""


class _PartState(NamedTuple):
    """A state over a number of ``events``; errors show the ``first`` of them; ``error``: the failure, if there is no state.

    A call that fails for a part of a window fails for each window with that part, and is reported for that window.
    """

    state: Any
    first: StateRows
    events: int
    error: BaseException | None = None

    def merged(self, merge: Callable[[Any, Any], Any], other: _PartState) -> _PartState:
        """Return the state over the events of both; it is an error if one of them is, or if ``merge`` fails."""
        first = self.first if len(self.first) >= FIRST else (self.first + other.first)[:FIRST]
        events, error = self.events + other.events, self.error or other.error
        if error is not None:
            return _PartState(None, first, events, error)
        return _part_state(lambda: merge(self.state, other.state), first, events)

    @property
    def pickle(self) -> bytes:
        """The state with its events as bytes, for :func:`_unpickled`; a state that cannot be pickled becomes an error."""
        try:
            return pickled(tuple(self))
        except FAILURES as error:
            why = error if self.error is None else self.error
            return pickled((None, self.first, self.events, ReturnError(reason_of(why))))


def _part_state(compute: Callable[[], Any], first: StateRows, events: int) -> _PartState:
    """Return the state that ``compute`` returns, with the number of its events and the first ones; its error if it fails."""
    try:
        return _PartState(compute(), first, events)
    except FAILURES as error:
        return _PartState(None, first, events, error)


def _unpickled(body: bytes) -> _PartState:
    return _PartState(*pickle.loads(body))


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
        shared = f"a basic window is computed once, and shared by {shared_by} windows"
        return f"{self.calling.name}: mergeable: {shared if shared_by > 1 else 'parts of a window are merged'}"

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
        order = np.argsort(number, kind="stable")
        bound = int(number.max(initial=-1)) + 1
        ends = _ends(number, bound)
        pickles = table.column(self._state).take(pa.array(order)).to_pylist()
        counts = pc.fill_null(table.column(self._counts), False).to_numpy()[order]
        events = table.select(self._value_names[:-1]).take(pa.array(order[counts]))
        columns = {
            name: column.combine_chunks() for name, column in zip(self.calling.names, events.columns, strict=True)
        }
        ends_of_events = _ends(number[order[counts]], bound)
        first_events, event_ends = self._first_events(columns, ends_of_events), ends_of_events.tolist()
        is_alone = np.diff(ends) == 1
        states: list[bytes | None] = []
        for i, (a, b) in enumerate(pairwise(ends.tolist())):
            if is_alone[i]:
                states.append(pickles[a])
                continue
            parts = [_unpickled(state) for state in pickles[a:b] if state is not None and state != NOTHING]
            first, last = event_ends[i], event_ends[i + 1]
            if last > first:
                arguments = {name: column.slice(first, last - first) for name, column in columns.items()}
                parts.insert(0, self._state_over(arguments, first_events[i]))
            states.append(self._merged_states(parts))
        first_rows = table.select(self._value_names).take(pa.array(order[ends[:-1]][at]))
        keeps = pa.array(is_alone[at])
        merged_columns = {n: pc.if_else(keeps, first_rows.column(n), None) for n in self._value_names}
        merged_columns[self._state] = pa.array([states[i] for i in at.tolist()], pa.binary())
        merged_columns[self.name] = pa.nulls(len(at), arrow_type(self.type))
        return merged_columns

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        """Return the table with the module's results, NULL if no event counts; raises ModuleFailed if one fails.

        ``place`` returns the window and the group of a row, for the error. The columns of states and events become NULL.
        """
        pickles = table.column(self._state).to_pylist()
        results = [self._result(table.slice(i, 1), state, partial(place, i)) for i, state in enumerate(pickles)]
        table = with_column(table, self.name, pa.array(results, arrow_type(self.type)))
        for name in (self._state, *self._value_names):
            table = with_column(table, name, pa.nulls(table.num_rows, table.schema.field(name).type))
        return table

    def _merged_states(self, parts: Sequence[_PartState]) -> bytes:
        """Return the state over the events of all parts, as bytes; NOTHING without parts."""
        merge = self.calling.module.merge
        assert merge is not None
        if not parts:
            return NOTHING
        merged = parts[0]
        for part in parts[1:]:
            merged = merged.merged(merge, part)
        return merged.pickle

    def _first_events(self, columns: Mapping[str, pa.Array], ends: Ints) -> list[StateRows]:
        """Return the first events of each group of rows between neighbours of ``ends``; all columns are read at once."""
        if not ends[-1]:
            return [()] * (len(ends) - 1)
        lengths = np.minimum(np.diff(ends), FIRST)
        places = np.concatenate([[0], np.cumsum(lengths)])
        at = pa.array(np.repeat(ends[:-1] - places[:-1], lengths) + np.arange(places[-1]))
        rows = list(zip(*(python_values(column.take(at)) for column in columns.values()), strict=True))
        return [tuple(rows[a:b]) for a, b in pairwise(places.tolist())]

    def _state_over(self, arguments: Mapping[str, pa.Array], first: StateRows | None = None) -> _PartState:
        """Return the state over events; ``first`` are the first of them, if already read."""
        count = len(next(iter(arguments.values())))
        if first is None:
            (first,) = self._first_events(arguments, np.array([0, count]))
        return _part_state(lambda: self.calling.module.state_over(arguments), first, count)

    def _arguments(self, rows: pa.Table) -> dict[str, pa.Array]:
        columns = (rows.column(name).combine_chunks() for name in self._value_names[:-1])
        return dict(zip(self.calling.names, columns, strict=True))

    def _result(self, row: pa.Table, state: bytes | None, place: Callable[[], Any]) -> Any:
        """Return the result of a row, a state or event, None if no event counts; raises ModuleFailed, with window and group."""
        calling = self.calling
        if state == NOTHING or (state is None and not row.column(self._counts)[0].as_py()):
            return None
        held = self._state_over(self._arguments(row)) if state is None else _unpickled(state)
        result = held
        if held.error is None:
            result = _part_state(
                lambda: calling.value(calling.module.result(held.state), (0, 0)), held.first, held.events
            )
        if result.error is not None:
            window, group = place()
            first = (dict(zip(calling.names, row, strict=True)) for row in held.first)
            about = calling.about(window, group, first, held.events)
            raise calling.failure(calling.reason(result.error, about)) from result.error
        return result.state


def _ends(number: Ints, bound: int) -> Ints:
    """Return the end position of the rows of each number below ``bound``, once sorted by number; 0 before the first."""
    return np.concatenate([[0], np.cumsum(np.bincount(number, minlength=bound))]).astype(np.int64)


__all__ = ["PickledState"]
