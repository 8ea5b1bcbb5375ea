"""The laws of aggregates, in each form in which hosts compute one: all members at once, partial results, values with weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType

import streamq as sq
from streamq.operators import WindowAggregate
from streamq.operators.evaluation import Evaluation
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col, Expr
from streamq.plan.node import nodes
from streamq.plan.passes import expression_nodes as parts
from streamq.plan.schema import Schema
from streamq.plan.spark_types import parse_type
from streamq.plan.tree import show
from streamq.runtime.arrow.arrow_expr import evaluate
from streamq.runtime.arrow.columnar import concat, ints, with_column
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.evaluators.window_evaluator import WindowEvaluator
from streamq.runtime.grid_ranges import HI, LO, grid_lifetimes
from streamq.runtime.groups import number_groups
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.partials.range_partials import INDEX, merge_by_window, merge_partial_rows, net_partial_rows
from streamq.testing.module_forms import CheckedModule, Rows, arrays_of
from streamq.testing.module_laws import LAWS
from streamq.testing.modules import LawSearch, event_values, with_copies_of
from streamq.testing.oracle import oracle
from streamq.testing.oracle.aggregates import ORACLE_OF
from streamq.time import INFINITY, MINUS_INFINITY, Grid

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

SIZE, HOP = 4, 2
"""The hopping windows in which aggregates are checked: an event lies in several, and each has several basic windows."""

GROUPS = 16
"""The greatest number of groups of events with which aggregates are checked at a time."""


def check_aggregates(types: str, *aggregates: Aggregate, examples: int = 2) -> tuple[str, ...]:
    """Raise LawBroken with the smallest events over which a form of the aggregates breaks a law; return the laws' names.

    ``types`` are those of the columns in the order in which they are named, or one for all.
    """
    select = in_one_select(aggregates, [parse_type(name) for name in types.split(", ")])
    kinds = [f.type for f in select.payload.fields[1:]]
    tried = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )

    def bag(huge: bool) -> st.SearchStrategy[Rows]:
        """Return the strategy for events of some groups: group and lifetime, then the values."""
        alive = st.tuples(st.integers(0, SIZE - 1), st.integers(1, HOP), event_values(kinds, None, huge))
        rows_of_bag = alive.map(lambda drawn: (drawn[0], drawn[0] + drawn[1], *drawn[2]))
        groups = st.lists(with_copies_of(rows_of_bag), min_size=1, max_size=GROUPS)
        return groups.map(lambda drawn: [(g, *row) for g, rows in enumerate(drawn) for row in rows])

    forms = aggregate_forms(select)
    for form in forms:
        broken = LawSearch(bag, tried, None, 1e-9).broken(form)
        if broken is not None:
            raise broken from broken.__cause__
    return tuple(dict.fromkeys(law.name for law in LAWS if any(form.has(law.need) for form in forms)))


@dataclass(frozen=True)
class Select:
    """Aggregates over windows of groups, with their plan and the code by which backends compute them.

    An event is a tuple of group, start, end and payload. A result is a dict of values by name, group and window.
    """

    plan: WindowAggregate
    source: str
    evaluation: Evaluation

    @property
    def payload(self) -> Schema:
        """The columns of an event, the group first."""
        return self.plan.input.schema

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of an event's values."""
        group, *rest = self.payload.names
        return (group, "start", "end", *rest)

    @property
    def evaluator(self) -> WindowEvaluator:
        """The evaluator that computes windows from all their members."""
        evaluator = self.evaluation.evaluator
        assert isinstance(evaluator, WindowEvaluator)
        return evaluator

    @property
    def grid(self) -> Grid:
        """The grid of the windows."""
        assert self.plan.window.grid is not None
        return self.plan.window.grid

    @property
    def has_oracle(self) -> bool:
        """True if the oracle knows all aggregates; it does not know aggregate functions that users define as classes."""
        return all(a.function in ORACLE_OF for _, a in self.plan.aggregates)

    def columns(self, rows: Rows) -> dict[str, pa.Array]:
        """Return the rows as an array for each field."""
        group, *rest = (f.type for f in self.payload.fields)
        return dict(zip(self.fields, arrays_of(rows, [group, LongType(), LongType(), *rest]), strict=True))

    def events(self, rows: Rows) -> pa.Table:
        """Return rows as the table that evaluator and kernel read: group, the aggregates' arguments and filters, and lifetimes.

        It has no weights, so that all rows are inserts.
        """
        columns = self.columns(rows)
        arguments = self._evaluated(self.evaluation.inputs[0].columns, columns)
        return pa.table({**arguments, LE: columns["start"], RE: columns["end"]})

    def _evaluated(
        self, expressions: Iterable[tuple[str, Expr]], columns: Mapping[str, pa.Array]
    ) -> dict[str, pa.Array]:
        """Return the values of expressions over the columns and lifetimes of events."""
        start, end = columns["start"], columns["end"]
        instants = {"start": start, "end": end, "duration": pa.array(end.to_numpy() - start.to_numpy())}
        return _evaluate_all(expressions, self.payload, columns, instants)

    def results(self, windows: pa.Table) -> dict[str, Any]:
        """Compute the final values from a table with partial results and a lifetime for each group and window."""
        columns = {n: windows.column(n).combine_chunks() for n in windows.column_names}
        outputs = _evaluate_all(self.evaluation.outputs, self.evaluation.schema, columns, {})
        return self._by_window(pa.table(outputs), ints(windows, LE))

    def judged(self, rows: Rows) -> dict[str, Any]:
        """Return the oracle's result over rows."""
        history = oracle(self.plan, {self.source: pa.table(self.columns(rows))})
        return self._by_window(history, ints(history, "start"))

    def _by_window(self, table: pa.Table, start: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Return the aggregates' values by name, group and window; ``start`` holds the window's start for each row."""
        groups = table.column(self.plan.keys[0]).to_pylist()
        where = [f"group {g}, window [{s}, {s + SIZE})" for g, s in zip(groups, start.tolist(), strict=True)]
        return {
            f"{name} of {at}": value
            for name, _ in self.plan.aggregates
            for at, value in zip(where, table.column(name).to_pylist(), strict=True)
        }


def _evaluate_all(
    expressions: Iterable[tuple[str, Expr]],
    schema: Schema,
    columns: Mapping[str, pa.Array],
    instants: Mapping[str, pa.Array],
) -> dict[str, pa.Array]:
    """Evaluate expressions over one or more columns; ``instants`` are the lifetimes' parts, by name, in ticks."""
    rows = len(next(iter(columns.values())))
    return {
        name: columns[expr.name] if type(expr) is Col else evaluate(expr, schema, columns, instants.__getitem__, rows)
        for name, expr in expressions
    }


def in_one_select(aggregates: Iterable[Aggregate], kinds: Sequence[DataType]) -> Select:
    """Return aggregates in one select, over columns with these types in the order in which they are first named.

    The select is over hopping windows of SIZE and HOP, by a group column of its own.
    """
    named = {show(a): a for a in aggregates}
    names = list(dict.fromkeys(n.name for a in named.values() for n in parts(a) if isinstance(n, Col)))
    types = dict(zip(names, kinds if len(kinds) == len(names) else [kinds[0]] * len(names), strict=True))
    group = "g" + "_" * max(map(len, names), default=0)
    # the verbs raise the errors for types that do not fit
    schema = {group: "bigint", **{name: kind.simpleString() for name, kind in types.items()}}
    query = sq.events([], schema=schema).group_by(group).hopping_window(SIZE, HOP).select(**named)
    (plan,) = (n for n in nodes(query.plan) if isinstance(n, WindowAggregate))
    (source,) = query.tables
    return Select(plan, source, plan.evaluation)


def aggregate_forms(select: Select) -> list[CheckedModule]:
    """Return a form for each way in which a window's aggregates are computed: from all members at once and, if they merge,
    from partial results and from values with weights.

    Raises NeedsSpark for expressions that only Spark evaluates.
    """
    name = ", ".join(name for name, _ in select.plan.aggregates)

    def at_once(table: pa.Table) -> dict[str, Any]:
        events = number_groups([table], select.evaluator.group_columns)
        return select.results(select.evaluator.rows(events, MINUS_INFINITY, INFINITY))

    # raises NeedsSpark for expressions that only Spark evaluates
    at_once(select.events(()))
    whole = CheckedModule(
        name=f"{name}, all members at once",
        fields=select.fields,
        events=select.events,
        initial=lambda: select.events(()),
        add=lambda _, table: table,
        result=at_once,
        reference=select.judged if select.has_oracle else None,
        in_parts=False,
    )
    if not select.plan.merges:
        return [whole]
    merging, weighing = (_partial_form(select, merges) for merges in (True, False))
    return [
        whole,
        replace(merging, name=f"{name}, partial results", reference=whole.answer),
        replace(weighing, name=f"{name}, values with weights", reference=whole.answer),
    ]


def _partial_form(select: Select, merges: bool) -> CheckedModule:
    """Return the form that computes partial results by range of windows; name and reference are left to the caller.

    ``merges``: partial results are merged for good; else they are values with weights, which ``remove`` can remove again.
    """
    keys, partials = list(select.plan.keys), select.evaluator.partials
    kernel = WindowAggregateKernel(select.plan.keys, select.grid, partials, False, merges)
    by = [*keys, LO, HI]

    def merge(a: pa.Table, b: pa.Table) -> pa.Table:
        return (merge_partial_rows if merges else net_partial_rows)(concat([a, b]), by, partials)

    def add(state: pa.Table, table: pa.Table) -> pa.Table:
        return merge(state, kernel.combine(0, table))

    def remove(state: pa.Table, table: pa.Table) -> pa.Table:
        return add(state, with_column(table, WEIGHT, np.full(table.num_rows, -1)))

    def result(state: pa.Table) -> dict[str, Any]:
        """Merge the partial results of each window, and return the final values."""
        rest = state
        for partial in partials if not merges else ():
            rest = partial.from_weighted(rest)
        low, high = ints(state, LO), ints(state, HI)
        windows = merge_by_window(rest.drop_columns([LO, HI]), low, high, keys, partials)
        merged = windows.finished(place=kernel.place)
        start, end = grid_lifetimes(select.grid, ints(merged, INDEX))
        return select.results(with_column(with_column(merged, LE, start), RE, end))

    return CheckedModule(
        name="",
        fields=select.fields,
        events=select.events,
        initial=lambda: kernel.combine(0, select.events(())),
        add=add,
        result=result,
        remove=None if merges else remove,
        merge=merge,
        foreign=False,
    )
