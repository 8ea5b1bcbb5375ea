"""States of a user's module as partial results: events that no window has taken in yet as they are, others as pickled states."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, DataType

from streamq.errors import ModuleFailed, sentence
from streamq.plan.partial import COUNT, Ints, Partial, Values
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.call_memory import pickled
from streamq.runtime.columnar import ints, with_column
from streamq.runtime.module_calls import Calling
from streamq.runtime.user_results import shortened


@dataclass(frozen=True)
class PickledState(Partial):
    """A row is a state, or, while its state is NULL, an event: those of a group are added to a state at once.

    ``arguments`` are the module's arguments, ``kinds`` their types; ``passes`` says which events count (None: all).
    """

    calling: Calling
    arguments: tuple[str, ...]
    kinds: tuple[DataType, ...]
    passes: str | None

    title = "state"

    @property
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        from pyspark.sql.types import BooleanType

        values = zip(self._value_names, (*self.kinds, BooleanType()), strict=True)
        return ((self.name, self.type), (self._state, BinaryType()), *values)

    @property
    def read_columns(self) -> tuple[str, ...]:
        return self.arguments if self.passes is None else (*self.arguments, self.passes)

    @property
    def value_columns(self) -> tuple[str, ...]:
        return self._value_names

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
        """The column that says whether an event counts; NULL where a row is a state."""
        return f"{self.name}__counts"

    @property
    def _value_names(self) -> tuple[str, ...]:
        return (*(f"{self.name}__{i}" for i in range(len(self.arguments))), self._counts)

    def of_events(self, table: pa.Table) -> Values:
        """Events as they are, without states."""
        nothing = {self.name: pa.nulls(table.num_rows, arrow_type(self.type))}
        return {**nothing, self._state: pa.nulls(table.num_rows, pa.binary()), **self.of_weighted(table)}

    def of_weighted(self, table: pa.Table) -> Values:
        """The values themselves."""
        counts: Any = np.ones(table.num_rows, bool)
        if self.passes is not None:
            counts = pc.fill_null(table.column(self.passes), False)
        values = zip(self._value_names, self.arguments, strict=False)
        return {**{name: table.column(column) for name, column in values}, self._counts: counts}

    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Events as often as they are there; what is there no more does not count."""
        many = ints(table, COUNT)
        states: list[bytes | None] = [None] * table.num_rows
        counts = pc.and_(table.column(self._counts), pa.array(many > 0))
        for i in np.flatnonzero(many > 1).tolist():
            rows = table.take(pa.array([i] * int(many[i])))
            states[i] = pickled(self._added(None, rows))
        is_state = pa.array([state is not None for state in states], pa.bool_())
        table = with_column(table, self._counts, pc.if_else(is_state, None, counts))
        table = with_column(table, self._state, pa.array(states, pa.binary()))
        return with_column(table, self.name, pa.nulls(table.num_rows, arrow_type(self.type)))

    def merged(self, table: pa.Table, number: Ints, at: Ints) -> Values:
        """The state of each number: its events added to a state at once, then the other states merged with it.

        A number with a single row keeps it as it is.
        """
        order = np.argsort(number, kind="stable")
        bound = int(number.max(initial=-1)) + 1
        ends = np.concatenate([[0], np.cumsum(np.bincount(number, minlength=bound))]).tolist()
        rows = table.select([self._state, *self._value_names]).take(pa.array(order))
        pickles = rows.column(self._state).to_pylist()
        is_alone = np.diff(ends) == 1
        states: list[bytes | None] = []
        for i, (a, b) in enumerate(pairwise(ends)):
            states.append(pickles[a] if is_alone[i] else pickled(self._state_of(pickles[a:b], rows.slice(a, b - a))))
        first = rows.take(pa.array(np.asarray(ends[:-1], np.int64)[at]))
        keeps = pa.array(is_alone[at])
        columns = {n: pc.if_else(keeps, first.column(n).combine_chunks(), None) for n in self._value_names}
        columns[self._state] = pa.array([states[i] for i in at.tolist()], pa.binary())
        columns[self.name] = pa.nulls(len(at), arrow_type(self.type))
        return columns

    def finished(self, table: pa.Table) -> pa.Table:
        """The module's results, NULL where no event counts; states are dropped."""
        pickles = table.column(self._state).to_pylist()
        results = [self._result(table.slice(i, 1), state) for i, state in enumerate(pickles)]
        table = with_column(table, self.name, pa.array(results, arrow_type(self.type)))
        for name in (self._state, *self._value_names):
            table = with_column(table, name, pa.nulls(table.num_rows, table.schema.field(name).type))
        return table

    def _state_of(self, pickles: list[bytes | None], rows: pa.Table) -> Any:
        """The state over rows that are events or states."""
        merge = self.calling.module.merge
        assert merge is not None
        states = [pickle.loads(state) for state in pickles if state is not None]
        merged = self._added(None, rows) if len(states) < len(pickles) else None
        for state in states:
            merged = state if merged is None else self._called(rows, merge, merged, state)
        return merged

    def _added(self, state: Any, rows: pa.Table) -> Any:
        """The state with the events among the rows that count; None where none does."""
        events = rows.filter(pc.fill_null(rows.column(self._counts), False))
        if not events.num_rows:
            return state
        module = self.calling.module
        columns = [events.column(name).combine_chunks() for name in self._value_names[:-1]]
        arguments = dict(zip(self.calling.names, columns, strict=True))
        return self._called(rows, lambda: module.add(module.initial(), module.read(arguments)))

    def _result(self, row: pa.Table, state: bytes | None) -> Any:
        held = self._added(None, row) if state is None else pickle.loads(state)
        module, calling = self.calling.module, self.calling
        return None if held is None else self._called(row, lambda: calling.value(module.result(held), (0, 0)))

    def _called(self, rows: pa.Table, code: Any, *args: Any) -> Any:
        """What the code gives; raises ModuleFailed with the group and the first events."""
        try:
            return code(*args)
        except ModuleFailed:
            raise
        except Exception as error:
            shown = [shortened(value) for value in rows.slice(0, 3).select(self._value_names[:-1]).to_pylist()]
            what = f"{type(error).__name__}: {error}; events of a basic window: {', '.join(shown)}"
            raise ModuleFailed(sentence(self.calling.module.name, "it failed", " ".join(what.split()))) from error


__all__ = ["PickledState"]
