"""The reach of a plan in batch: the greatest start and CTI of its sources' rows, mapped as its operators map progress.

Retracted and filtered rows count, too: a stream over the same rows makes progress with them and, as far as that goes, reports
windows of endless lifetimes (docs/concepts.md, "Windows").
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from streamq.operators.operator import BatchRun, Operator
from streamq.operators.source import Source
from streamq.operators.step import Step
from streamq.plan.folding import fold
from streamq.plan.node import Node, nodes
from streamq.runtime.event import LE
from streamq.windows.tick_sql import SQL, TickSql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    return isinstance(node, Operator) and node.keeps_events


def _reach(node: Node, below: list[DataFrame], run: BatchRun) -> DataFrame:
    """Return the reach of a node, a row: of a source its own, else the greatest of its inputs, mapped as its lifetimes are.

    It is NULL if no source has a start or a CTI.
    """
    from pyspark.sql import functions as F

    if isinstance(node, Source):
        return _source_reach(node, run)
    if isinstance(node, Step) and node.progress_map is not None:
        (reach,) = below
        mapped = F.when(F.col(REACH).isNotNull(), node.map_progress_on_spark())
        return reach.withColumn(LE, F.col(REACH)).select(mapped.alias(REACH))
    return _furthest(below)


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
    ctis = F.lit(None).cast("bigint") if items.ctis is None else F.when(items.ctis.on_spark(), le)
    latest = df.agg(F.max(starts).alias("__start"), F.max(ctis).alias("__cti"))
    none = F.lit(None).cast("bigint")
    start_cti = progress.cti_of_start(TickSql("__start"), SQL)
    cti_of_starts = none if start_cti is None else F.when(F.col("__start").isNotNull(), start_cti.column)
    item_cti = progress.cti_of_item(F.col("__cti"))
    return latest.withColumn("__cti", F.greatest(cti_of_starts, none if item_cti is None else item_cti))


__all__ = ["REACH", "reach_frame"]
