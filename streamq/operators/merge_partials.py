"""MergePartials: partial results of window ranges merged into windows, by one of five strategies (DESIGN D6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamq.operators.evaluated import evaluated
from streamq.operators.grid import COUNT, INDEX, bounded, in_windows, window_lifetime
from streamq.operators.partial_aggregate import PartialAggregate, partial_columns, show_partials
from streamq.operators.window import show_keys, show_window
from streamq.plan.expr import Col, Expr
from streamq.plan.node import Node, Traits, node
from streamq.plan.partial import SparkPartial, spark_partials
from streamq.plan.schema import INTERVAL, POINT, Schema, quote
from streamq.runtime.evaluators.windows import WindowEvaluator
from streamq.runtime.progress_rule import Cti
from streamq.windows import ALIGN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamq.operators.batch_run import BatchRun


@node
class MergePartials(Node):
    """One row a window with members, on the window's interval, of the partial results of ``input``.

    CTI: start of the earliest window not final
    Final: windows that end at or before c; where a value reads an end that may still move, once their members are settled too
    State: partial results of windows not final; where events may be taken back, values with weights
    Cost: a merge of the partial results in a window that is reported; over long ranges, of log2 of them
    """

    input: PartialAggregate

    title = "merge"
    progress = Cti.EARLIEST_WINDOW.shown()

    def _schema(self) -> Schema:
        dropped = ("__lo", "__hi")
        return self.input.schema.with_fields(f for f in self.input.schema.fields if f.name not in dropped).with_shape(
            INTERVAL
        )

    def _traits(self) -> Traits:
        return Traits()

    def detail(self) -> str:
        part = self.input
        shown = show_partials(part.arguments, part.partials)
        return f"{show_window(part.window, self.schema.axis)}{show_keys(part.keys)}: {shown}"


def strategy(node: MergePartials) -> tuple[str, str]:
    """How a batch merges, and why."""
    from streamq.operators.merging import choose_strategy

    part = node.input
    partials = spark_partials(part.partials)
    if partials is None:
        return "evaluated", "partial results that Arrow makes and merges"
    return choose_strategy(POINT if part.input.schema.shape == POINT else INTERVAL, part.window.n, partials)


def batch(node: MergePartials, inputs: list[DataFrame], run: BatchRun) -> DataFrame:
    """The strategy that costs least, as DataFrame operations; of partial results that Spark does not make, by the evaluator."""
    from streamq.operators.merging import merge_partials

    part = node.input
    partials = spark_partials(part.partials)
    if partials is None:
        return _evaluated(node, run)
    how, _ = strategy(node)
    if how == "direct":
        return _direct(node, partials, run)
    df = merge_partials(inputs[0], list(part.keys), partials, part.window.n, how, divides=part.window.divides)
    return df.select(*window_lifetime(part.window), *(quote(f.name) for f in node.schema.fields))


def _direct(node: MergePartials, partials: Sequence[SparkPartial], run: BatchRun) -> DataFrame:
    """No split: the events themselves in each of their windows, aggregated once."""
    from pyspark.sql import functions as F

    part = node.input
    source = part.input.schema
    df = in_windows(part.input, run.made[part.input.digest], part.window, run)
    columns = [F.count(F.lit(1)).alias(COUNT), *partial_columns(part.arguments, partials, source)]
    df = df.groupBy(*(quote(k) for k in part.keys), INDEX).agg(*columns)
    return df.select(*window_lifetime(part.window), *(quote(f.name) for f in node.schema.fields))


def _evaluated(node: MergePartials, run: BatchRun) -> DataFrame:
    """The events themselves, by the evaluator of windows: some partial result only Arrow makes and merges."""
    part = node.input
    df = run.made[part.input.digest]
    if part.input.traits.infinite or run.until is not None:
        df = bounded(df, [part.input], run)
    columns: list[tuple[str, Expr]] = [*((k, Col(k)) for k in part.keys), *part.arguments]
    return evaluated(
        df,
        WindowEvaluator(part.window, part.keys, "full", ALIGN, False, part.partials),
        source=part.input.schema,
        columns=columns,
        keys=part.keys,
        fields=node.schema.fields,
    )
