"""The bound on windows and pieces of endless lifetimes in batch, and the events of an input in the form that windows take.

It is the reach of the plan: the greatest start and CTI of its sources' rows, mapped as its operators map progress. Retracted and
filtered rows count, too: a stream over the same rows makes progress with them and, as far as that goes, reports windows of
endless lifetimes (docs/concepts.md, "Windows").
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from streamq.operators.operator import BatchRun
from streamq.operators.source import Source
from streamq.operators.step import Step
from streamq.plan.lowering import spark_expression
from streamq.plan.node import Node, nodes
from streamq.plan.tree import fold
from streamq.runtime.event import LE, RE
from streamq.runtime.time.endpoints import Bound, endpoint, limit
from streamq.runtime.time.expr_progress_map import ExprProgressMap
from streamq.runtime.time.progress_map import ProgressMap, ProgressShift
from streamq.runtime.window_spans import WindowSpans
from streamq.time import FIRST_INSTANT, INFINITY
from streamq.windows.batch_events import SQL, UNTIL, BatchEvents, TickSql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
    from streamq.operators.select import Select
    from streamq.operators.union import Union

    return isinstance(node, Select | Union)


def _reach(node: Node, below: list[DataFrame], run: BatchRun) -> DataFrame:
    """Return the reach of a node, a row: of a source its own, else the greatest of its inputs, mapped as its lifetimes are.

    It is NULL if no source has a start or a CTI.
    """
    from pyspark.sql import functions as F

    if isinstance(node, Source):
        return _source_reach(node, run)
    if isinstance(node, Step) and node.lifetime_change is not None:
        (reach,) = below
        mapped = F.when(F.col(REACH).isNotNull(), _mapped(node.lifetime_change.progress_map))
        return reach.withColumn(LE, F.col(REACH)).select(mapped.alias(REACH))
    return _furthest(below)


def _mapped(progress_map: ProgressMap) -> Column:
    """Return the finite instant in column ``__le`` after a step's map, kept finite; NULL where an expression is."""
    from pyspark.sql import functions as F

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
    from pyspark.sql import functions as F

    if len(reaches) == 1:
        return reaches[0]
    return reduce(lambda a, b: a.unionAll(b), reaches).agg(F.max(REACH).alias(REACH))


def _source_reach(node: Source, run: BatchRun) -> DataFrame:
    """Return the reach of a source: the greatest start of its events and the CTIs that it, or the source it follows, makes."""
    from pyspark.sql import functions as F

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
    from pyspark.sql import functions as F

    df = node.good_items(run)
    le, items, progress = F.col(LE), node.items, node.policy.progress
    starts = le if items.starts is None else F.when(items.starts.on_spark(), le)
    is_cti = items.ctis if progress.takes_ctis else None
    ctis = F.lit(None).cast("bigint") if is_cti is None else F.when(is_cti.on_spark(), le)
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
    df: DataFrame,
    inputs: Sequence[Node],
    run: BatchRun,
    over: DataFrame | None = None,
    bound: Bound = Bound.ENDLESS,
) -> DataFrame:
    """Add the column UNTIL, before which windows and pieces must start, in ticks (docs/concepts.md, "Windows").

    It is the bound of ``run``. Without one, :func:`limit` makes it by the rule ``bound`` from the greater of two: the last
    endpoint of all events in ``over`` (default: ``df``), and the reach of ``inputs``. INFINITY bounds nothing.
    """
    from pyspark.sql import functions as F

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
