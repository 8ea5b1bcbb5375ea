"""Operators defined entirely by an evaluator; batch and streaming forms follow from it.

In batch any evaluator runs over the whole histories of its inputs in Spark's Python workers, which share the groups. The bound on
windows and pieces of endless lifetimes is then the reach of the plan: the greatest start and CTI of its sources' rows, mapped
as its operators map progress. Retracted and filtered rows count, too: a stream over the same rows makes progress with them
and, as far as that goes, reports windows of endless lifetimes (docs/concepts.md, "Windows").
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from streamq.operators.evaluation import Evaluation, PortColumns
from streamq.operators.operator import BatchRun, Operator, not_of_the_group
from streamq.operators.source import Source
from streamq.operators.step import Step
from streamq.plan.expr import fold
from streamq.plan.footprint import Expected
from streamq.plan.lowering import as_key, lifetime, ship_runtime, spark_expression
from streamq.plan.node import Node, nodes
from streamq.plan.passes import infer
from streamq.plan.schema import lazy, quote
from streamq.runtime.arrow.arrow_types import arrow_schema, arrow_type
from streamq.runtime.deltas import LE, RE
from streamq.runtime.grid_ranges import WindowSpans
from streamq.runtime.groups import HASH
from streamq.runtime.hosts.result_rows import folding
from streamq.runtime.time.endpoints import Bound, endpoint, limit
from streamq.runtime.time.lateness import ASIDE, ASIDE_TYPE, PARTS, PORT, UNTIL, BatchEvaluation, port_column
from streamq.runtime.time.progress import ExprProgressMap, ProgressMap, ProgressShift
from streamq.time import FIRST_INSTANT, INFINITY
from streamq.windows.batch_events import SQL, BatchEvents, TickSql

REACH = "__reach"


def reach_frame(inputs: Sequence[Node], run: BatchRun) -> DataFrame | None:
    """Return one row, ``__reach``: the greatest reach of some nodes in ticks, NULL without rows.

    None if the reach is the greatest start of their events anyway: no row is retracted, dropped or moved after the sources.
    """
    if all(_hands_on_all(node) for root in inputs for node in nodes(root)):
        return None
    return _furthest([fold(root, lambda node, below: _reach(node, below, run)) for root in inputs])


def _hands_on_all(node: Node) -> bool:
    """True if a node hands on every start: a source of inserts that follows no other source, or an operator that keeps events."""
    if isinstance(node, Source):
        return node.insert_only and node.policy.progress.leader is None
    # these import this module
    from streamq.operators.bags import Union
    from streamq.operators.select import Select

    return isinstance(node, Select | Union)


def _reach(node: Node, below: list[DataFrame], run: BatchRun) -> DataFrame:
    """Return the reach of a node, a row: of a source its own, else the greatest of its inputs, mapped as its lifetimes are.

    It is NULL if no source has a start or a CTI.
    """
    if isinstance(node, Source):
        return _source_reach(node, run)
    if isinstance(node, Step) and (progress_map := node.effect.progress_map) is not None:
        (reach,) = below
        mapped = F.when(F.col(REACH).isNotNull(), _mapped(progress_map))
        return reach.withColumn(LE, F.col(REACH)).select(mapped.alias(REACH))
    return _furthest(below)


def _mapped(progress_map: ProgressMap) -> Column:
    """Return the finite instant in column ``__le`` after a step's map, kept finite; NULL where an expression is."""
    match progress_map:
        case ProgressShift(by=by):
            progress = SQL.moved(TickSql(LE), by).column
        case WindowSpans():
            progress = progress_map.start(TickSql(LE), SQL).column
        case ExprProgressMap(expr=expr, schema=schema):
            progress = spark_expression(expr, schema)
        case _:
            raise TypeError(f"{type(progress_map).__name__} has no form in SQL")
    # the least of several values leaves NULL out
    return F.when(progress.isNotNull(), F.greatest(F.lit(FIRST_INSTANT), F.least(F.lit(INFINITY - 1), progress)))


def _furthest(reaches: Sequence[DataFrame]) -> DataFrame:
    """Return one row with the greatest of several reaches."""
    if len(reaches) == 1:
        return reaches[0]
    return reduce(lambda a, b: a.unionAll(b), reaches).agg(F.max(REACH).alias(REACH))


def _source_reach(node: Source, run: BatchRun) -> DataFrame:
    """Return the reach of a source: the greatest start of its events and the CTIs that it, or the source it follows, makes."""
    other = node
    while (leader := other.policy.progress.leader) is not None:
        lead = run.sources[leader]
        assert isinstance(lead, Source)
        other = lead
    own = _progress(node, run)
    promise = own if other is node else _progress(other, run)
    furthest = own.select(F.greatest("__start", "__cti").alias(REACH))
    return furthest if other is node else _furthest([furthest, promise.select(F.col("__cti").alias(REACH))])


def _progress(node: Source, run: BatchRun) -> DataFrame:
    """Return one row: ``__start``, the greatest start, and ``__cti``, the greatest CTI, generated or from a row; or NULL."""
    df = node.good_items(run)
    le, items, progress = F.col(LE), node.items, node.policy.progress
    starts = le if items.starts is None else F.when(items.starts.on_spark(), le)
    is_cti = items.ctis if progress.takes_ctis else None
    ctis = F.lit(None).cast("bigint") if is_cti is None else F.when(is_cti.on_spark() & (le < INFINITY), le)
    latest = df.agg(F.max(starts).alias("__start"), F.max(ctis).alias("__cti"))
    none = F.lit(None).cast("bigint")
    start_cti = None if progress.steps is None else progress.steps.cti(TickSql("__start"), SQL)
    cti_of_starts = none if start_cti is None else F.when(F.col("__start").isNotNull(), start_cti.column)
    return latest.withColumn("__cti", F.greatest(cti_of_starts, F.col("__cti")))


def batch_events(
    input: Node, df: DataFrame, run: BatchRun, keys: Sequence[str] = (), *, reads_bounds: bool = True
) -> BatchEvents:
    """Return the events ``df`` of an input as :class:`BatchEvents`; ``keys`` and ``reads_bounds`` are its fields."""
    return BatchEvents(
        df,
        input.schema,
        bounded=lambda df, bound: add_bound(df, [input], run, bound=bound),
        is_bounded=input.traits.infinite or run.until is not None,
        keys=tuple(keys),
        reads_bounds=reads_bounds,
    )


def add_bound(
    df: DataFrame, inputs: Sequence[Node], run: BatchRun, over: DataFrame | None = None, bound: Bound = Bound.ENDLESS
) -> DataFrame:
    """Add the column UNTIL, before which windows and pieces must start, in ticks (docs/concepts.md, "Windows").

    It is the bound of ``run``. Without one, :func:`limit` makes it by the rule ``bound`` from the greater of two: the last
    endpoint of all events in ``over`` (default: ``df``), and the reach of ``inputs``. INFINITY bounds nothing.
    """
    if run.until is not None:
        return df.withColumn(UNTIL, F.lit(run.until))
    events = over if over is not None else df
    end = endpoint(TickSql(LE), TickSql(RE), SQL).column
    ends = events.agg(F.max(end).alias("__end"), F.max(RE).alias("__greatest"))
    reach, last = reach_frame(inputs, run), TickSql("__end")
    if reach is not None:
        ends, last = ends.crossJoin(F.broadcast(reach)), TickSql(f"greatest(__end, {REACH})")
    until = limit(bound, last, TickSql("__greatest") == INFINITY, SQL)
    return df.crossJoin(F.broadcast(ends.select(until.column.alias(UNTIL))))


def evaluate_in_tasks(
    operator: Evaluation, nodes: Sequence[Node], inputs: Sequence[DataFrame], run: BatchRun
) -> DataFrame:
    """Return an operator's result rows with their lifetimes; ``inputs`` are the results of its input ``nodes``.

    Rows with equal keys go to one task, which holds all its rows in memory, and evaluates many of them in parts; without keys
    there is one task. Events that modules set aside are added to ``run``.
    """
    ports = list(zip(operator.inputs, nodes, inputs, strict=True))
    schemas = tuple(
        pa.schema([(name, arrow_type(infer(expr, node.schema, "batch"))) for name, expr in port.columns])
        for port, node, _ in ports
    )
    sides = [_side(number, port, node, frame) for number, (port, node, frame) in enumerate(ports)]
    events = sides[0] if len(sides) == 1 else reduce(_union, sides)
    events = _with_until(events, operator, nodes, run)
    spread = events.repartition(HASH) if operator.inputs[0].hashed else events.repartition(1)
    result = pa.schema([(LE, pa.int64()), (RE, pa.int64()), *arrow_schema(operator.schema)])
    whole = result.append(pa.field(ASIDE, ASIDE_TYPE)) if operator.sets_aside else result
    ship_runtime()
    evaluation = BatchEvaluation(operator.evaluator, schemas, result, operator.sets_aside)
    read = spread.withColumn(HASH, F.pmod(HASH, F.lit(PARTS)).cast("byte"))
    rows = read.mapInArrow(folding(evaluation.rows, read.columns), from_arrow_schema(whole))
    if operator.sets_aside:
        rows = run.without_set_aside(rows)
    if not operator.outputs:
        return rows.select(LE, RE, *(quote(name) for name in operator.schema.names))
    return rows.select(
        LE, RE, *(spark_expression(expr, operator.schema).alias(name) for name, expr in operator.outputs)
    )


def _side(number: int, port: PortColumns, node: Node, frame: DataFrame) -> DataFrame:
    """Return one input's events: the hash of their keys, lifetime, the input's number, and the columns that are read of it."""
    columns = {name: spark_expression(expr, node.schema) for name, expr in port.columns}
    types = {name: infer(expr, node.schema, "batch") for name, expr in port.columns}
    keys = [F.col(LE) if name == LE else as_key(columns[name], types[name]) for name in port.hashed]
    payload = [column.alias(port_column(number, place)) for place, column in enumerate(columns.values())]
    hashed = (F.xxhash64(*keys) if keys else F.lit(0)).alias(HASH)
    return frame.select(hashed, *lifetime(node.schema), F.lit(number).alias(PORT), *payload)


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    """Return the events of two inputs, each with NULL in the columns of the other."""
    return one.unionByName(other, allowMissingColumns=True)


def _with_until(events: DataFrame, evaluation: Evaluation, nodes: Sequence[Node], run: BatchRun) -> DataFrame:
    """Add the column UNTIL, the bound on windows and pieces, the same for all events, if the evaluator needs one.

    If it needs one for endless lifetimes only, it is added if there may be some or ``run`` has a bound.
    """
    bound = evaluation.bound
    may_be_endless = any(node.traits.infinite for node in nodes) or run.until is not None
    if bound is Bound.ALWAYS or (bound is Bound.ENDLESS and may_be_endless):
        return add_bound(events, nodes, run, bound=bound)
    return events


class EvaluatedOperator(Operator):
    """An operator defined by an evaluator, from which its batch and streaming forms follow.

    In a stream it keeps events, or results computed from them, from one micro-batch to the next.
    """

    @abstractmethod
    def _evaluation(self) -> Evaluation:
        """Return the operator's evaluator, with the columns that it reads from each input."""

    @lazy
    def evaluation(self) -> Evaluation:
        """The result of ``_evaluation``, computed once."""
        return self._evaluation()

    @property
    def hears_endpoints(self) -> bool:
        """True if each bucket must hear the endpoints of all events, as these bound its windows once the input has ended."""
        if self.evaluation.bound is Bound.ENDLESS:
            return any(child.traits.infinite for child in self.children)
        return self.evaluation.bound is Bound.ALWAYS

    @property
    def progress(self) -> str:
        return self.evaluation.evaluator.progress_rule.cti.shown(len(self.children))

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        return self.evaluation.factory.expected_rows(inputs[0], expected)

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        """Return the operator with the keys after its own ``keys``; raise PlanError for one without that field."""
        own: tuple[str, ...] | None = getattr(self, "keys", None)
        if own is None:
            raise not_of_the_group(self, "one of its inputs")
        over_groups: Any = super().with_keys(inputs, is_keyed, keys)
        return cast(Node, replace(over_groups, keys=(*own, *keys)))

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Run the evaluator over the whole histories, by tasks; an operator may override this by a faster form."""
        return evaluate_in_tasks(self.evaluation, self.children, inputs, run)
