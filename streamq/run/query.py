"""Answers: a plan over its tables as a DataFrame, as Arrow or pandas, or printed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamq.errors import PlanError, sentence
from streamq.plan.node import Node
from streamq.plan.schema import Schema
from streamq.run.failure import spark_errors
from streamq.run.tables import as_frames, is_literal
from streamq.time import INFINITY, TIMESTAMP, instant_ticks

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame


def batch_frame(
    plan: Node,
    tables: Mapping[str, Any],
    until: int | dt.datetime | None = None,
    rules: Any = None,
    verb: str = "to_df",
) -> DataFrame:
    """The answer over batch DataFrames: payload, ``start``, ``end``."""
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
        made = {names[name]: df for name, df in as_frames(tables, verb).items() if name in names}
        for source in (n for n in nodes(plan) if isinstance(n, Source)):
            if made[source.table].isStreaming:
                wrong = f"source {source.shown_name()} is a streaming DataFrame"
                raise PlanError(sentence(verb, wrong, "", "Run it: q.run(...), or q.to_stream(...)."))
        rewritten = rewrite(plan).plan if rules is None else rewrite(plan, rules).plan
        run = BatchRun(made, instant_ticks(until, plan.schema.axis))
        with in_utc(next(iter(made.values())).sparkSession):
            return to_user(lower(rewritten, run), plan.schema)


def answer(plan: Node, tables: Mapping[str, Any], until: int | dt.datetime | None, verb: str) -> pa.Table:
    """The answer as Arrow: payload, ``start``, ``end`` as the axis shows them, in order of start, end, payload."""
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
    """Warn of Arrow tables whose times look like seconds read as microseconds: those of DataFrames nobody has read yet."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from streamq.operators import Source
    from streamq.operators.source import AS_START
    from streamq.plan.node import nodes
    from streamq.run.oddities import warn_of_units
    from streamq.run.source_status import SourceStatus

    if plan.schema.axis != TIMESTAMP:
        return
    readings = []
    for source in nodes(plan):
        if isinstance(source, Source) and isinstance(tables[source.table], pa.Table):
            time = next(name for name, now in source.consumed.items() if now == AS_START)
            greatest = pc.max(tables[source.table].column(time))
            if greatest.is_valid:
                w = greatest.cast(pa.timestamp("us", getattr(greatest.type, "tz", None))).cast(pa.int64()).as_py()
                readings.append(
                    SourceStatus(name=source.shown_name(), delay=None, watermark=w, rows=tables[source.table].num_rows)
                )
    warn_of_units(readings, TIMESTAMP)


def local_history(plan: Node, tables: Mapping[str, pa.Table], rules: Any = None, until: int | None = None) -> pa.Table:
    """The answer in-process, as deltas: ``__le``, ``__re`` in ticks, payload."""
    from streamq.compiler.local import LocalRun
    from streamq.compiler.options import Options
    from streamq.compiler.rewriter import rewrite
    from streamq.compiler.stages import compile_stages
    from streamq.plan.node import numbered

    plan, names = numbered(plan)
    tables = {names[name]: table for name, table in tables.items() if name in names}
    rewritten = rewrite(plan).plan if rules is None else rewrite(plan, rules).plan
    run = LocalRun(compile_stages(rewritten, Options(buckets=1, streaming=False)), static=tables)

    # one micro-batch that is the end as well: as in a batch, nothing is late and no watermark comes into it
    return run.batch(tables, [(None, INFINITY)], until)


def in_user_form(deltas: pa.Table, schema: Schema) -> pa.Table:
    """Ticks as the axis shows them, infinity as NULL; ordered."""
    import pyarrow as pa
    import pyarrow.compute as pc

    axis = pa.timestamp("us", tz="UTC") if schema.axis == TIMESTAMP else pa.int64()
    end = pc.if_else(pc.equal(deltas.column("__re"), INFINITY), None, deltas.column("__re"))
    columns = {n: deltas.column(n) for n in schema.names}
    return ordered(pa.table({**columns, "start": deltas.column("__le").cast(axis), "end": end.cast(axis)}), schema)


def ordered(table: pa.Table, schema: Schema) -> pa.Table:
    """Rows by start, end, then payload, arrays, structs and maps included; NULL is last."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from streamq.runtime.values import ORDER, numbered

    def key(name: str) -> pa.Array | pa.ChunkedArray:
        column = table.column(name)
        if not pa.types.is_nested(column.type):
            return column
        return pa.array(numbered(column, ORDER)[0], mask=column.is_null().to_numpy())

    if not table.num_rows:
        return table
    keys = {str(i): key(name) for i, name in enumerate(("start", "end", *schema.names))}
    return table.take(pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]))


def to_pandas(table: pa.Table, schema: Schema) -> pd.DataFrame:
    """Arrow as pandas; integers with NULLs keep their type, as nullable integers; arrays are lists, structs dicts."""
    import pandas as pd
    import pyarrow as pa

    from streamq.runtime.rendering import python_values

    nullable = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    frame = table.to_pandas(date_as_object=False)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_nested(column.type):
            # Arrow's own form of a list of whole numbers with a NULL is an array of floats
            frame[name] = pd.Series(python_values(column), dtype=object, index=frame.index)
        elif column.null_count and column.type in nullable:
            frame[name] = pd.Series(column.to_pylist(), dtype=nullable[column.type], index=frame.index)
    return frame


def shown(table: pa.Table, n: int) -> str:
    """The first rows as text, columns aligned to the right; infinity and NULL are ``NULL``.

    Instants and days beyond the years 1 to 9999 have a sign: ``+10000-01-01``.
    """
    import pyarrow as pa

    from streamq.runtime.rendering import python_rows

    names = table.column_names
    # instants are shown in UTC, without saying so
    first = [c.cast(pa.timestamp("us")) if pa.types.is_timestamp(c.type) else c for c in table.slice(0, n).columns]
    rows = [[_cell(v) for v in row.values()] for row in python_rows(pa.table(first, names=names))]
    widths = [max([len(name), *(len(r[i]) for r in rows)]) for i, name in enumerate(names)]
    lines = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in [names, *rows]]
    if table.num_rows > n:
        lines.append(f"... {table.num_rows - n} more rows")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
        return text.rstrip("0") if "." in text else text
    return str(value)
