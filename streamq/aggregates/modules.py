"""Aggregates of a user's own, over a module: code in Python whose states streamq keeps as bytes, and which Arrow's hosts call."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType

from streamq.plan.aggregate import AggregateFunction, Application, Partials
from streamq.plan.expr import Col, Expr
from streamq.plan.partial import COUNT, Ints, Partial, Values
from streamq.plan.reduction import CopiedMembers, MemberReduction, ReducedColumn, Reduction
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.columnar import ints, with_column
from streamq.runtime.module import Module
from streamq.runtime.shipping import ship_module_of


def module_aggregate(name: str, module: Module, type: DataType) -> ModuleAggregate:
    """A module as an aggregate with results of a type: of partial results where it merges, else of all members in their order.

    It takes at least one argument. NULL is a value, and a filter leaves members out.
    """
    ship_module_of(module.code)
    merges = module.merge is not None and module.in_parts and module.any_order
    return MergingModule(name, module, type) if merges else WholeModule(name, module, type)


@dataclass(frozen=True, eq=False)
class ModuleAggregate(AggregateFunction):
    """What is computed by a module: its code is part of what plans tell it by."""

    name: str
    module: Module
    type: DataType

    filters_arguments = False

    @property
    def identity(self) -> str:
        return f"{self.name}:{self.module.identity}"

    def result(self, of: Application) -> DataType:
        return self.type


class WholeModule(ModuleAggregate):
    """A module over all members of a window at once, in their order."""

    ordered = True

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return ModuleReduction(column, self.module)


class MergingModule(ModuleAggregate):
    """A module whose states merge: each is a partial result."""

    def split(self, of: Application, partials: Partials) -> Expr | None:
        where = of.aggregate.where
        columns = tuple(partials.column(arg) for arg in of.args)
        passes = None if where is None else partials.column(where)
        return Col(partials.partial(_PickledState, of.args[0], self.type, self.module, columns, passes).name)


@dataclass(frozen=True)
class ModuleReduction(MemberReduction):
    """The module's result over the members of each window."""

    module: Module

    def over_members(self, members: CopiedMembers) -> pa.Array:
        order = members.order[self.passes(members.rows)[members.order]]
        order = order[np.argsort(members.number[order], kind="stable")]
        ends = np.cumsum(np.bincount(members.number[order], minlength=members.n)).tolist()
        columns = [members.rows.column(name).combine_chunks().take(pa.array(order)) for name in self.column.args]
        results = []
        for start, end in pairwise([0, *ends]):
            state = self.module.state([column.slice(start, end - start) for column in columns])
            results.append(self.module.result(state))
        return pa.array(results, self.column.type, from_pandas=True)


@dataclass(frozen=True)
class _PickledState(Partial):
    """The module's state as a pickle. ``columns`` are the arguments; ``passes`` says which events count (None: all)."""

    module: Module
    arguments: tuple[str, ...]
    passes: str | None

    title = "module"

    @property
    def read_columns(self) -> tuple[str, ...]:
        return self.arguments if self.passes is None else (*self.arguments, self.passes)

    @property
    def value_columns(self) -> tuple[str, ...]:
        return tuple(f"{self.name}__{i}" for i in range(len(self.read_columns)))

    @property
    def depends_on_order(self) -> bool:
        return True

    @property
    def grouped(self) -> dict[str, str]:
        return {}

    def of_events(self, table: pa.Table) -> Values:
        """One event's state each."""
        return {self.name: self._states(table.select(self.read_columns), np.ones(table.num_rows, np.int64))}

    def of_weighted(self, table: pa.Table) -> Values:
        """The values themselves."""
        columns = zip(self.value_columns, self.read_columns, strict=True)
        return {name: table.column(column) for name, column in columns}

    def from_weighted(self, table: pa.Table) -> pa.Table:
        """The states of values that are there, as often as they are."""
        states = self._states(table.select(self.value_columns), np.maximum(ints(table, COUNT), 0))
        return with_column(table.drop_columns(list(self.value_columns)), self.name, states)

    def merged(self, table: pa.Table, number: Ints, at: Ints) -> Values:
        """The states of each number merged, from the first on."""
        merge = self.module.merge
        assert merge is not None
        states: dict[int, bytes | tuple[object]] = {}
        for i, pickled in zip(number.tolist(), table.column(self.name).to_pylist(), strict=True):
            if i not in states:
                states[i] = pickled
                continue
            before = states[i]
            state = pickle.loads(before) if isinstance(before, bytes) else before[0]
            states[i] = (merge(state, pickle.loads(pickled)),)
        merged = [states[i] for i in at.tolist()]
        pickles = [state if isinstance(state, bytes) else pickle.dumps(state[0]) for state in merged]
        return {self.name: pa.array(pickles, pa.binary())}

    def finished(self, table: pa.Table) -> pa.Table:
        """The module's results."""
        results = [self.module.result(pickle.loads(state)) for state in table.column(self.name).to_pylist()]
        return with_column(table, self.name, pa.array(results, arrow_type(self.type), from_pandas=True))

    def _states(self, table: pa.Table, many: Ints) -> pa.Array:
        """The state of each row, of as many events as are said."""
        columns = [column.combine_chunks() for column in table.columns]
        if self.passes is not None:
            many = np.where(pc.fill_null(columns.pop(), False).to_numpy(zero_copy_only=False), many, 0)
        nothing = pickle.dumps(self.module.initial())
        states = []
        for i, n in enumerate(many.tolist()):
            rows = pa.array(np.full(n, i))
            states.append(pickle.dumps(self.module.state([c.take(rows) for c in columns])) if n else nothing)
        return pa.array(states, pa.binary())
