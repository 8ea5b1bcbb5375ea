"""The forms in which ``check_module`` checks code: user modules as hosts call them, aggregates as each backend computes them."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.cloudpickle import CloudPickler
from pyspark.sql.types import LongType

import streamq as sq
from streamq.errors import PlanError, sentence
from streamq.operators import WindowAggregate
from streamq.operators.evaluation import Evaluation
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Col, Expr
from streamq.plan.node import nodes
from streamq.plan.passes import expression_nodes as parts
from streamq.plan.schema import Schema
from streamq.plan.tree import show
from streamq.runtime.arrow.arrow_expr import evaluate
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.columnar import concat, ints, with_column
from streamq.runtime.evaluators.window_evaluator import WindowEvaluator
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.grid_ranges import HI, LO, grid_lifetimes
from streamq.runtime.groups import number_groups
from streamq.runtime.hosts.shipping import ship_module_of
from streamq.runtime.kernels.window_aggregate import WindowAggregateKernel
from streamq.runtime.partials.range_partials import INDEX, merge_by_window, merge_partial_rows, net_partial_rows
from streamq.runtime.user_code.calls import States
from streamq.runtime.user_code.event_readers import series
from streamq.testing.oracle import oracle
from streamq.testing.oracle.aggregates import ORACLE_OF
from streamq.time import INFINITY, MINUS_INFINITY, Grid
from streamq.user_code.forms import is_window_code, window_form
from streamq.user_code.module import name_of
from streamq.user_code.window_module import WindowModule

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Rows = Sequence[tuple[Any, ...]]
"""Events, each by the values of its fields."""


def arrays_of(rows: Rows, kinds: Iterable[DataType], since: int = 0) -> list[pa.Array]:
    """Return the values of events as an array for each type; ``since`` of them stand before these, and are left out."""
    return [
        pa.array([row[i] for row in rows], arrow_type(kind), from_pandas=False) for i, kind in enumerate(kinds, since)
    ]


SIZE, HOP = 4, 2
"""The hopping windows in which aggregates are checked: an event lies in several, and each has several basic windows."""


@dataclass(frozen=True, kw_only=True)
class CheckedModule(States):
    """A module's state methods, and what its laws need to know of it.

    - ``fields``: the names of an event's values
    - ``events``: converts rows to the argument of the methods
    - ``reference``: computes the expected result over rows, if there is a reference
    - ``foreign``: the methods are user code, which may keep state or change its arguments
    - ``time_bound``: the module promises ``sq.time_bound``
    - ``filters_on``: the columns for which the module promises ``sq.filters_on``
    - ``by_event``: the result is a list with a value for each event
    - ``sent``: the part of a result that a query sends
    - ``fresh``: makes the same form of a copy of the code that has not been called, if it is user code
    """

    fields: tuple[str, ...]
    events: Callable[[Rows], Any]
    reference: Callable[[Rows], Any] | None = None
    foreign: bool = True
    time_bound: bool = False
    filters_on: tuple[str, ...] = ()
    by_event: bool = False
    sent: Callable[[Any], Any] = lambda result: result
    fresh: Callable[[], CheckedModule] | None = None

    def has(self, need: str) -> bool:
        """True if the module has the property that a law needs, or if the law needs none."""
        return not need or bool(getattr(self, need))

    def state(self, rows: Rows) -> Any:
        """Return the state after adding all rows at once."""
        return self.add(self.initial(), self.events(rows))

    def answer(self, rows: Rows) -> Any:
        """Return the result after adding all rows at once."""
        return self.result(self.state(rows))


# copies of code


def with_copies(code: Any, name: str, form_of: Callable[[Any], CheckedModule]) -> CheckedModule:
    """Return the form that ``form_of`` makes of user code, whose ``fresh`` makes it of a copy as the code is now.

    A copy has its own globals, captured variables and classes, as in a worker that has just started; only installed code is
    shared. Raises PlanError, about ``name``, for code that cannot be copied, and so cannot be sent to a worker.
    """
    ship_module_of(code, "")
    try:
        with io.BytesIO() as file:
            _CopyPickler(file).dump(code)
            body = file.getvalue()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise PlanError(
            sentence("check_module", f"what {name} holds cannot be pickled", why, "Make it within the code.")
        ) from error
    return replace(form_of(code), fresh=lambda: form_of(pickle.loads(body)))


class _CopyPickler(CloudPickler):
    """A pickler whose classes are new where they are loaded; cloudpickle's own are recognized by the process that has them."""

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if not isinstance(obj, type) or not isinstance(reduced, tuple) or len(reduced) < _OF_A_CLASS:
            # not a class, or one that is imported
            return reduced
        make, (*arguments, _, extra), *rest = reduced
        return make, (*arguments, None, extra), *rest


_OF_A_CLASS = 6
"""The number of parts of cloudpickle's reduction of a class by value; the last but one of its arguments identifies the class."""


# modules


def checked_module(
    code: Any, kinds: Sequence[DataType], order_insensitive: bool, reference: Callable[..., Any] | None
) -> CheckedModule:
    """Return the form of an undecorated user module with arguments of these types, whose events have no lifetimes.

    ``reference`` is a function of Series.

    ``order_insensitive``: the law of order applies to a function, which has no declaration of its own.
    Raises PlanError for an object that is not a module, or not a legal one.
    """
    if not is_window_code(code):
        methods = "initial(), add(state, values), result(state)"
        hint = f"Give an aggregate, a function of Series, or what has {methods}, or zero, reduce, merge and finish."
        raise PlanError(sentence("check_module", "not a module", f"found {code!r}", hint))
    name = name_of(code, None)
    window_form("check_module", name, code).check()

    def form_of(code: Any) -> CheckedModule:
        module = window_form("check_module", name, code).states({}, order_insensitive=order_insensitive)
        return CheckedModule(
            **{f.name: getattr(module, f.name) for f in fields(States)},
            fields=tuple(f"x{i}" if i else "x" for i in range(len(kinds))),
            events=lambda rows: module.read({f"x{i}": column for i, column in enumerate(arrays_of(rows, kinds))}),
            reference=None if reference is None else lambda rows: reference(*map(series, arrays_of(rows, kinds))),
        )

    return with_copies(code, name, form_of)


# aggregates


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
        return all(a.function in ORACLE_OF or isinstance(a.function, WindowModule) for _, a in self.plan.aggregates)

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

    def arguments(self, aggregate: Aggregate, rows: Rows) -> list[tuple[Any, ...]]:
        """Return start, end and the values of an aggregate's arguments for rows that have no group."""
        columns = self.columns([(None, *row) for row in rows])
        named = [(str(place), argument) for place, argument in enumerate(aggregate.args)]
        values = [column.to_pylist() for column in self._evaluated(named, columns).values()]
        return list(zip(columns["start"].to_pylist(), columns["end"].to_pylist(), *values, strict=True))

    @property
    def modules(self) -> list[tuple[Aggregate, WindowModule]]:
        """The aggregates that are user code, each with its module."""
        functions = [(aggregate, aggregate.function) for _, aggregate in self.plan.aggregates]
        return [(aggregate, function) for aggregate, function in functions if isinstance(function, WindowModule)]

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
    Raises PlanError if the number of types is neither 1 nor the number of columns.
    """
    named = {show(a): a for a in aggregates}
    names = list(dict.fromkeys(n.name for a in named.values() for n in parts(a) if isinstance(n, Col)))
    if len(kinds) not in (1, len(names)):
        raise PlanError(
            sentence("check_module", f"{len(kinds)} types for {len(names)} columns", f"there are: {', '.join(names)}")
        )
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


def listed_aggregates(subject: Any) -> list[Aggregate] | None:
    """Return one aggregate or several as a list, an empty one too; None for an object that is no expression, list or tuple.

    Raises PlanError for any other expression, and for a list with anything but aggregates in it.
    """
    several = isinstance(subject, list | tuple)
    expressions = list(subject) if several else [subject]
    if not several and not isinstance(subject, Expr):
        return None
    for one in expressions:
        if not isinstance(one, Aggregate):
            shown = show(one) if isinstance(one, Expr) else repr(one)
            hint = "Give aggregates, such as sq.sum(...), one or a list of them."
            raise PlanError(sentence("check_module", "not an aggregate", f"found {shown}", hint))
    return expressions
