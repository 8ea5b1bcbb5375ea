"""The aggregates of a window, split: each into partial results that merge, or into a reduction of its values or members."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamq.operators.evaluation import Columns
from streamq.plan.aggregate import Aggregate
from streamq.plan.aggregation import Aggregates, application, expand, filter_in_argument, is_mergeable
from streamq.plan.expr import Case, Col, Expr, Lit
from streamq.plan.lowering import spark_expression
from streamq.plan.partial import Partial, ReducedColumn, Reduction, SparkPartial
from streamq.plan.schema import Field, Schema
from streamq.plan.tree import show
from streamq.runtime.arrow.arrow_types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import Column


class EventColumns:
    """The columns that are computed of events, by name; an expression that is asked for twice has one column."""

    def __init__(self, columns: Iterable[tuple[str, Expr]]):
        self.columns = dict(columns)

    def column(self, expr: Expr) -> str:
        """Return the name of the column that holds an expression; it is added if there is none yet."""
        name = next((name for name, held in self.columns.items() if held.digest == expr.digest), None)
        if name is None:
            name = f"__arg{len(self.columns)}"
            self.columns[name] = expr
        return name


@dataclass(frozen=True)
class SplitAggregates:
    """A window's aggregates as ``partials`` and ``reductions`` of the columns ``events``.

    ``reduced``: the result columns of the reductions; ``outputs``: the aggregates, as expressions over all results.
    """

    events: EventColumns
    partials: tuple[Partial, ...]
    reductions: tuple[Reduction, ...]
    reduced: tuple[Field, ...]
    outputs: Columns


def split_aggregates(aggregates: Aggregates, source: Schema, result: Schema, payload: Iterable[str]) -> SplitAggregates:
    """Split aggregates over events of the schema ``source`` into columns of ``result``; ``payload`` are columns read beside.

    Equal expressions share a column, also with the payload.
    """
    merging = tuple((name, a) for name, a in aggregates if is_mergeable(a, source))
    merged = {name for name, _ in merging}
    reducing = [(name, filter_in_argument(a)) for name, a in aggregates if name not in merged]
    expansion = expand(merging, source)
    events = EventColumns((*expansion.arguments, *((name, Col(name)) for name in payload)))
    values = dict(expansion.outputs) | {name: Col(name) for name, _ in reducing}
    return SplitAggregates(
        events=events,
        partials=expansion.partials,
        reductions=tuple(_reduction(name, a, source, events.column) for name, a in reducing),
        reduced=tuple(Field(name, result.type_of(name)) for name, _ in reducing),
        outputs=tuple((name, values[name]) for name, _ in aggregates),
    )


def _reduction(name: str, aggregate: Aggregate, source: Schema, column: Callable[[Expr], str]) -> Reduction:
    """Return the reduction of all members to the result column ``name``.

    ``column`` returns the name of the column that holds an expression, and adds the column if there is none yet.
    """
    of = application(aggregate, source)
    args, where = aggregate.function.operands(of), None
    if aggregate.where is not None:
        # an argument is evaluated only where the filter is true
        where, args = column(aggregate.where), tuple(Case((aggregate.where, e, Lit(None))) for e in args)
    kind = arrow_type(aggregate.function.result(of))
    axis = arrow_type(source.axis_type)
    reduced = ReducedColumn(name, tuple(column(e) for e in args), kind, where, aggregate.options, axis)
    reduction = aggregate.function.reduction(reduced)
    assert reduction is not None, f"{aggregate} has neither partial results nor a reduction"
    return reduction


def partial_fields(partials: Iterable[Partial]) -> list[Field]:
    """Return the columns of partial results."""
    return [Field(name, kind) for partial in partials for name, kind in partial.fields]


def show_partials(arguments: Iterable[tuple[str, Expr]], partials: Iterable[Partial]) -> str:
    """Return the partial results as explain shows them: ``count(*), sum(fare)``."""
    named = tuple(arguments)
    return ", ".join(["count(*)", *(show_partial(named, partial) for partial in partials)])


def show_partial(arguments: Iterable[tuple[str, Expr]], partial: Partial) -> str:
    """Return a partial result as explain shows it: ``sum(fare)``."""
    shown = {name: show(expr) for name, expr in arguments}
    return f"{partial.title}({', '.join(shown[arg] for arg in partial.shown_args)})"


def partial_columns(
    arguments: Iterable[tuple[str, Expr]], partials: Iterable[SparkPartial], schema: Schema
) -> list[Column]:
    """Return the columns of partial results as Spark aggregates."""
    values = {name: spark_expression(expr, schema) for name, expr in arguments}
    return [column for partial in partials for column in partial.on_spark(values)]
