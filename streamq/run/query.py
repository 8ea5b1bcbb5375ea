"""The answer to a query over tables that do not grow: lazily as a DataFrame of Spark's, or computed, as Arrow."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamq.errors import PlanError, sentence
from streamq.plan.node import Node
from streamq.run.answers import in_user_form, ordered
from streamq.run.failure import spark_errors
from streamq.run.tables import as_frames, is_literal
from streamq.time import INFINITY, TIMESTAMP, instant_ticks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def batch_frame(
    plan: Node,
    tables: Mapping[str, Any],
    until: int | dt.datetime | None = None,
    rules: Any = None,
    verb: str = "to_df",
) -> DataFrame:
    """Return the answer as a DataFrame that Spark computes when it is read: payload, ``start``, ``end``.

    Raises PlanError, worded for ``verb``, where a source is a streaming DataFrame.
    """
    from streamq.compiler.batch import lower, to_user
    from streamq.compiler.rewriter import rewrite
    from streamq.operators import Source
    from streamq.operators.operator import BatchRun
    from streamq.plan.lowering import in_utc
    from streamq.plan.node import nodes, numbered

    if verb == "to_df":
        _warn_of_units(plan, tables)
    with spark_errors(verb, "Spark does not plan the query"):
        plan, names = numbered(plan)
        frames = {names[name]: frame for name, frame in as_frames(tables, verb).items() if name in names}
        for source in (n for n in nodes(plan) if isinstance(n, Source)):
            if frames[source.table].isStreaming:
                wrong = f"source {source.shown_name()} is a streaming DataFrame"
                raise PlanError(sentence(verb, wrong, "", "Run it: q.run(...), or q.to_stream(...)."))
        rewritten = rewrite(plan).plan if rules is None else rewrite(plan, rules).plan
        run = BatchRun(frames, instant_ticks(until, plan.schema.axis))
        with in_utc(next(iter(frames.values())).sparkSession):
            return to_user(lower(rewritten, run), plan.schema)


def answer(plan: Node, tables: Mapping[str, Any], until: int | dt.datetime | None, verb: str) -> pa.Table:
    """Compute the answer, in-process if it can be, and return it as Arrow: payload, ``start``, ``end``, in their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from streamq.run.oddities import warn_of_units
    from streamq.run.source_status import SourceStatus

    if is_literal(tables):
        _warn_of_units(plan, tables)
        return in_user_form(local_history(plan, tables, until=instant_ticks(until, plan.schema.axis)), plan.schema)
    frame = batch_frame(plan, tables, until, verb=verb)
    with spark_errors("query"):
        rows = ordered(frame.toArrow(), plan.schema)
    if plan.schema.axis == TIMESTAMP and rows.num_rows:
        w = pc.max(rows.column("start")).cast(pa.int64()).as_py()
        warn_of_units([SourceStatus(name="the result", delay=None, watermark=w, rows=rows.num_rows)], TIMESTAMP)
    return rows


def _warn_of_units(plan: Node, tables: Mapping[str, Any]) -> None:
    """Warn of Arrow tables whose times look like seconds read as microseconds; nobody has read a DataFrame's yet."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from streamq.operators import Source
    from streamq.operators.source import AS_START
    from streamq.plan.node import nodes
    from streamq.run.oddities import warn_of_units
    from streamq.run.source_status import SourceStatus

    if plan.schema.axis != TIMESTAMP:
        return
    sources = []
    for source in nodes(plan):
        if isinstance(source, Source) and isinstance(tables[source.table], pa.Table):
            time = next(name for name, now in source.consumed.items() if now == AS_START)
            greatest = pc.max(tables[source.table].column(time))
            if greatest.is_valid:
                w = greatest.cast(pa.timestamp("us", getattr(greatest.type, "tz", None))).cast(pa.int64()).as_py()
                rows = tables[source.table].num_rows
                sources.append(SourceStatus(name=source.shown_name(), delay=None, watermark=w, rows=rows))
    warn_of_units(sources, TIMESTAMP)


def local_history(plan: Node, tables: Mapping[str, pa.Table], rules: Any = None, until: int | None = None) -> pa.Table:
    """Compute the answer in-process and return it as deltas: ``__le`` and ``__re`` in ticks, and the payload."""
    from streamq.compiler.local import LocalRun
    from streamq.compiler.options import Options
    from streamq.compiler.results import Results, rewritten
    from streamq.compiler.stages import compile_stages
    from streamq.plan.node import numbered

    root, names = numbered(Results((plan,)))
    tables = {names[name]: table for name, table in tables.items() if name in names}
    root = rewritten(root) if rules is None else rewritten(root, rules)
    run = LocalRun(compile_stages(root, Options(buckets=1, streaming=False)), static=tables)

    # one micro-batch that is the end as well: as in a batch, nothing is late and no watermark comes into it
    return run.batch(tables, [(None, INFINITY)], until)
