"""Answer queries over tables that do not grow, as Spark DataFrames or computed as Arrow, and show answers to users.

An answer may have a quarantine: the events that modules failed for, with the reasons, for reading and for replay.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamq import html
from streamq.choices import CountReason
from streamq.compiler.batch import check_form, is_long, lower_in_batch, to_user
from streamq.compiler.estimates import expected_rates
from streamq.compiler.local import LocalRun
from streamq.compiler.options import BUCKETS, Options
from streamq.compiler.results import Results, result_columns, user_late_rows
from streamq.compiler.rewriter import rewrite, without_unread_columns
from streamq.compiler.rules import RULES, Rule
from streamq.compiler.stages import compile_stages
from streamq.compiler.streaming import StreamLowering, batch_host, build_frame
from streamq.connectors.connector import Connector
from streamq.connectors.stored_files import BOUNDS, SPARKS_FORMATS
from streamq.errors import PlanError, nearest, sentence, unknown_column, warn
from streamq.html import shortened_value, with_escapes
from streamq.operators import Source
from streamq.operators.input_table import as_arrow, as_dataframe, input_table
from streamq.operators.operator import BatchForm, BatchRun, QuarantineEvents, set_aside
from streamq.operators.source import AS_START
from streamq.plan.footprint import Expected
from streamq.plan.lowering import in_utc
from streamq.plan.node import Node, Verbs, expanded, named_after, nodes, number_sources
from streamq.plan.schema import POINT, Schema
from streamq.run.failure import spark_errors
from streamq.run.session.findings import session_of
from streamq.run.status.run_status import SourceStatus
from streamq.run.status.why import warn_of_units
from streamq.run.storage.checkpoint import CONTROL_DDL, OutsideCti
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.arrow.columnar import concat
from streamq.runtime.arrow.values import ORDER, from_json_value, number_values, python_rows, python_values
from streamq.runtime.time.lateness import GROUP, LATE_SCHEMA
from streamq.time import INFINITY, TIMESTAMP, instant_ticks

if TYPE_CHECKING:
    import pandas as pd


def in_user_form(deltas: pa.Table, schema: Schema) -> pa.Table:
    """Return deltas in ticks as the rows that users read: ordered, with instants of the axis, and NULL for an infinite end.

    Weights are left out, so all rows must be inserts.
    """
    axis = pa.timestamp("us", tz="UTC") if schema.axis == TIMESTAMP else pa.int64()
    end = pc.if_else(pc.equal(deltas.column("__re"), INFINITY), None, deltas.column("__re"))
    columns = {n: deltas.column(n) for n in schema.names}
    return order_rows(pa.table({**columns, "start": deltas.column("__le").cast(axis), "end": end.cast(axis)}), schema)


def order_rows(table: pa.Table, schema: Schema) -> pa.Table:
    """Return the rows in order of start, end, then payload, arrays, structs and maps included; NULL is last."""

    def key(name: str) -> pa.Array | pa.ChunkedArray:
        """Return the column to order by; values of a nested type are numbered in their order, and NULL stays."""
        column = table.column(name)
        if not pa.types.is_nested(column.type):
            return column
        return pa.array(number_values(column, ORDER)[0], mask=column.is_null().to_numpy())

    if not table.num_rows:
        return table
    keys = {str(i): key(name) for i, name in enumerate(("start", "end", *schema.names))}
    return table.take(pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]))


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return an Arrow table as a pandas frame; integers and booleans with NULLs get nullable types, arrays are lists.

    Structs are dicts, and maps lists of pairs.
    """
    import pandas as pd

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
            # Arrow would convert a list of integers with a NULL to an array of floats
            frame[name] = pd.Series(python_values(column), dtype=object, index=frame.index)
        elif column.null_count and column.type in nullable:
            frame[name] = pd.Series(column.to_pylist(), dtype=nullable[column.type], index=frame.index)
    return frame


def as_text(table: pa.Table, n: int) -> str:
    """Return the first ``n`` rows as text, columns aligned to the right; a NULL, as of an end, is ``NULL``.

    The first line has the names; a last line counts the rows that are left out.
    Instants and dates outside the years 1 to 9999 have a sign: ``+10000-01-01``.
    """
    names = [with_escapes(name) for name in table.column_names]
    rows = [[_cell(value) for value in row] for row in _first_rows(table, n)]
    return "\n".join([*html.aligned_lines([names, *rows]), *_left_out(table, n)])


def as_html(table: pa.Table, n: int) -> str:
    """Return the first ``n`` rows as an HTML table, with the values of :func:`as_text`, which the table shortens."""
    rows = [[v if isinstance(v, int | float | Decimal) else _in_html(v) for v in row] for row in _first_rows(table, n)]
    names = [with_escapes(name) for name in table.column_names]
    return html.fragment(html.tabulated(names, rows, most=n), *_left_out(table, n))


def _first_rows(table: pa.Table, n: int) -> list[list[Any]]:
    """Return the values of the first ``n`` rows."""
    # drop the time zone, so that instants are written in UTC without it
    first = [c.cast(pa.timestamp("us")) if pa.types.is_timestamp(c.type) else c for c in table.slice(0, n).columns]
    return [list(row.values()) for row in python_rows(pa.table(first, names=table.column_names))]


def _left_out(table: pa.Table, n: int) -> list[str]:
    """Return a line that counts the rows after the first ``n``, if there are any."""
    return [f"... {table.num_rows - n} more rows"] if table.num_rows > n else []


def _cell(value: Any) -> str:
    """Return a value as the text of a table's cell: what ``_whole`` returns, or of a long text the beginning, and its length."""
    return shortened_value(_whole(value))


def _in_html(value: Any) -> str:
    """Return a value as the text of a cell in HTML, which cuts a long one, and counts its characters."""
    text = _whole(value)
    return text if len(text) > html.LONGEST else with_escapes(text)


def _whole(value: Any) -> str:
    """Return a value as text: NULL for None, an instant without its zone and its fraction without zeros."""
    if value is None:
        return "NULL"
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
        return text.rstrip("0") if "." in text else text
    return str(value)


def is_literal(tables: Mapping[str, Any]) -> bool:
    """Return True if no table is a DataFrame, so that the query runs in-process."""
    return all(isinstance(table, pa.Table | Connector) for table in tables.values())


def read_connectors(tables: Mapping[str, Any], verb: str) -> dict[str, Any]:
    """Return the tables with the rows that connectors read without Spark; errors name ``verb``."""
    return {name: one.in_memory(verb) if isinstance(one, Connector) else one for name, one in tables.items()}


def is_dataframe(table: Any) -> bool:
    """Return True if a table is a DataFrame, classic or of Spark Connect."""
    return hasattr(table, "isStreaming")


def is_unlimited(stream: DataFrame) -> bool:
    """Return True if a streaming DataFrame reads only folders of files, and all files that are there in one micro-batch.

    False if that cannot be told: for other sources, and for DataFrames of Spark Connect.
    """
    if not hasattr(stream, "_jdf"):
        return False
    leaves = stream._jdf.queryExecution().analyzed().collectLeaves()
    return all(_is_unlimited(leaf) for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming())


def _is_unlimited(leaf: Any) -> bool:
    """Return True if a leaf of Spark's plan that streams reads a folder of files without a limit."""
    if leaf.getClass().getSimpleName() != "StreamingRelation":
        return False
    source = leaf.dataSource()
    options = source.options().iterator()
    names = set()
    while options.hasNext():
        names.add(options.next()._1().lower())
    return source.className().lower() in SPARKS_FORMATS and not names & BOUNDS


def as_frames(tables: Mapping[str, Any], verb: str) -> dict[str, DataFrame]:
    """Return the tables as DataFrames; others than these become some in the session of these, or in the active one."""
    frames: dict[str, DataFrame] = {}
    for name, table in tables.items():
        if is_dataframe(table):
            frames[name] = table
            continue
        spark = session_of(tables.values(), verb)
        frames[name] = table.frame(spark) if isinstance(table, Connector) else as_dataframe(spark, table)
    return frames


@dataclass(frozen=True)
class BatchFrames:
    """An answer as DataFrames that Spark computes when they are read: its ``rows``, and the events that modules set ``aside``.

    ``modules``: the names of modules that may set events aside; ``kept``: DataFrames persisted so that both share them.
    """

    rows: DataFrame
    aside: DataFrame | None
    modules: Sequence[str]
    kept: Sequence[DataFrame]

    def forget(self) -> None:
        """Release the persisted DataFrames."""
        for frame in self.kept:
            frame.unpersist()


def batch_frames(
    plan: Node,
    tables: Mapping[str, Any],
    until: int | dt.datetime | None = None,
    rules: Any = None,
    verb: str = "to_df",
    *,
    keeps: bool = False,
    expected: Expected | None = None,
    form: BatchForm | None = None,
) -> BatchFrames:
    """Return the answer as DataFrames with payload, ``start``, ``end``; ``keeps``: both DataFrames will be read, so persist.

    ``rules`` rewrite the plan; None: all. ``expected``: the input from which forms are chosen; ``form``: the form that the user
    asks for. Raises PlanError, worded for ``verb``, if a source is a streaming DataFrame, or if nothing can take the form. For
    ``to_df`` it warns of instants that look like another unit of time.
    """

    if verb == "to_df":
        _warn_of_units(plan, tables)
    with spark_errors(verb, "Spark does not plan the query"):
        plan, names = number_sources(plan)
        frames = {names[name]: frame for name, frame in as_frames(tables, verb).items() if name in names}
        for source in (n for n in nodes(plan) if isinstance(n, Source)):
            if frames[source.table].isStreaming:
                wrong = f"source {source.shown_name()} is a streaming DataFrame"
                raise PlanError(verb, wrong, "", "Run it: q.run(...), or q.to_stream(...).")
        rules = RULES if rules is None else rules
        rewritten = rewrite(plan, rules, expected=expected).plan
        modules = sorted({aside.module for aside in set_aside(rewritten)})
        if form is None and is_long(rewritten):
            return _frames_by_stages(plan, frames, until, rules, expected, modules, keeps=keeps)
        rewritten = without_unread_columns(rewritten)
        check_form(rewritten, form, verb)
        run = BatchRun(
            frames,
            instant_ticks(until, plan.schema.axis),
            keeps=keeps and bool(modules),
            rates=expected_rates(rewritten, expected),
            hint=form,
        )
        with in_utc(next(iter(frames.values())).sparkSession):
            rows = to_user(lower_in_batch(rewritten, run), plan.schema)
        aside = reduce(lambda a, b: a.unionAll(b), run.aside) if run.aside else None
        return BatchFrames(rows, aside, modules, run.kept)


def default_buckets(spark: SparkSession) -> int:
    """Return a number of buckets that keeps all tasks of a shuffle busy; each bucket costs some milliseconds a micro-batch.

    It is the number of tasks, because Spark gives each of them one bucket (``bucket_keys``).
    """
    return min(BUCKETS, int(spark.conf.get("spark.sql.shuffle.partitions") or BUCKETS))


def _frames_by_stages(
    plan: Node,
    frames: Mapping[str, DataFrame],
    until: int | dt.datetime | None,
    rules: Sequence[Rule],
    expected: Expected | None,
    modules: Sequence[str],
    *,
    keeps: bool,
) -> BatchFrames:
    """Return the answer of a long plan, computed by the stages of a stream: each reads its input once, a bucket at a time.

    As in-process, there is one micro-batch, which also ends the input.
    """
    spark = next(iter(frames.values())).sparkSession
    ansi = spark.conf.get("spark.sql.ansi.enabled") == "true"
    options = Options(
        streaming=False, late_output=bool(modules), ansi=ansi, expected=expected, buckets=default_buckets(spark)
    )
    program = compile_stages(Results((plan,)), options, rules)
    end = OutsideCti(None, INFINITY, instant_ticks(until, plan.schema.axis))
    with in_utc(spark):
        control = spark.createDataFrame([end.row], CONTROL_DDL)
        rows = build_frame(StreamLowering(program, frames), batch_host(options.buckets), control=control)
        persisted = [rows.persist()] if keeps and modules else []
        answer = result_columns(program.results[0], packed=program.packs_results).read(rows)
        aside = user_late_rows(rows).where(f"{GROUP} IS NOT NULL") if modules else None
    return BatchFrames(answer, aside, modules, persisted)


def compute_answer(plan: Node, tables: Mapping[str, Any], until: int | dt.datetime | None, verb: str) -> pa.Table:
    """Compute the answer, in-process if possible, and return it as an ordered Arrow table: payload, ``start``, ``end``.

    Warns, worded for ``verb``, of events that modules have set aside, and of instants that look like the wrong unit of time;
    in-process also of rows that sources with ``invalid="drop"`` have left out.
    """
    if is_literal(tables):
        tables = read_connectors(tables, verb)
        _warn_of_units(plan, tables)
        answer = local_answer(plan, tables, until=instant_ticks(until, plan.schema.axis))
        _warn_of_invalid(answer.invalid, verb)
        _warn_of_set_aside(answer.aside, verb)
        return in_user_form(answer.deltas, plan.schema)
    frames = batch_frames(plan, tables, until, verb=verb, keeps=True)
    with spark_errors("query"):
        try:
            rows = order_rows(frames.rows.toArrow(), plan.schema)
            if frames.aside is not None:
                _warn_of_set_aside(frames.aside.toArrow(), verb)
        finally:
            frames.forget()
    if plan.schema.axis == TIMESTAMP and rows.num_rows:
        w = pc.max(rows.column("start")).cast(pa.int64()).as_py()
        warn_of_units([SourceStatus(name="the result", watermark=w, rows=rows.num_rows)], TIMESTAMP)
    return rows


def _warn_of_units(plan: Node, tables: Mapping[str, Any]) -> None:
    """Warn of Arrow tables whose times look like another unit read as microseconds; DataFrames have not been read yet."""
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
                sources.append(SourceStatus(name=source.shown_name(), watermark=w, rows=rows))
    warn_of_units(sources, TIMESTAMP)


def events_set_aside(plan: Node, tables: Mapping[str, Any], until: int | dt.datetime | None) -> pa.Table:
    """Compute the answer and return the events that modules set aside, as rows of the late output."""
    if is_literal(tables):
        tables = read_connectors(tables, "quarantine")
        return local_answer(plan, tables, until=instant_ticks(until, plan.schema.axis)).aside
    aside = batch_frames(plan, tables, until, verb="quarantine").aside
    with spark_errors("query"):
        return LATE_SCHEMA.empty_table() if aside is None else aside.toArrow().cast(LATE_SCHEMA)


def batch_frame(
    plan: Node,
    tables: Mapping[str, Any],
    until: int | dt.datetime | None,
    expected: Expected | None,
    form: BatchForm | None,
) -> DataFrame:
    """Return the answer as a DataFrame; warn if modules may set events aside, which the DataFrame does not contain.

    ``expected``: the input from which forms are chosen. ``form``: the form that the user asks for.
    """
    frames = batch_frames(plan, tables, until, expected=expected, form=form)
    if frames.modules:
        names = ", ".join(frames.modules)
        warn(sentence("to_df", f"what {names} fails for is left out of this DataFrame", "it is not counted", TAKE_IT))
    return frames.rows


TAKE_IT = "q.quarantine() has it, whole events with the reason."
"""The hint on how to read events that are set aside."""


def _warn_of_set_aside(aside: pa.Table, verb: str) -> None:
    """Warn if modules have set events aside, with the number of events of each module and the first reason."""
    if not aside.num_rows:
        return
    counts = sorted(Counter(aside.column("source").to_pylist()).items())
    shown = ", ".join(f"{name} {count}" for name, count in counts)
    wrong = f"{aside.num_rows:,} event(s) are set aside and left out, of {shown}"
    first = aside.slice(0, 1).to_pylist()[0]
    warn(sentence(verb, wrong, f"first: {first['source']}: {first['reason']}", TAKE_IT))


def _warn_of_invalid(counts: Mapping[str, int], verb: str) -> None:
    """Warn of rows that were no events, with their number by source."""
    for source, count in sorted(counts.items()):
        hint = 'With invalid="fail" the error shows the first; a run with late_sink= has them all.'
        wrong = f"{count:,} row(s) of source {source} are no events, and are left out"
        warn(sentence(verb, wrong, "", hint))


def local_history(
    plan: Node,
    tables: Mapping[str, pa.Table],
    rules: Any = None,
    until: int | None = None,
    expected: Expected | None = None,
) -> pa.Table:
    """Compute the answer in-process and return it as deltas: ``__le`` and ``__re`` in ticks, and the payload."""
    return local_answer(plan, tables, rules, until, expected).deltas


@dataclass(frozen=True)
class LocalAnswer:
    """An answer in-process: its ``deltas``, and what is left out of it.

    ``aside``: the events that modules set aside, as rows of the late output. ``invalid``: the number of rows that were no events
    and were dropped, by source.
    """

    deltas: pa.Table
    aside: pa.Table
    invalid: Mapping[str, int]


def local_answer(
    plan: Node,
    tables: Mapping[str, pa.Table],
    rules: Any = None,
    until: int | None = None,
    expected: Expected | None = None,
) -> LocalAnswer:
    """Compute the answer in-process.

    ``rules`` rewrite the plan; None: all. ``until``, in ticks, bounds the windows of endless lifetimes. ``expected``: the input
    that is expected.
    """
    root, names = number_sources(Results((plan,)))
    tables = {names[name]: table for name, table in tables.items() if name in names}
    options = Options(buckets=1, streaming=False, late_output=bool(set_aside(expanded(root))), expected=expected)
    run = LocalRun(compile_stages(root, options, RULES if rules is None else rules), static=tables)

    # a single micro-batch that also ends the input: as in batch, nothing is late and the watermark does not matter
    deltas = run.batch(tables, [(None, INFINITY)], until)
    late = concat([LATE_SCHEMA.empty_table(), *run.late])
    invalid: Counter[str] = Counter()
    for totals in run.totals.values():
        for key, count in totals.items():
            source, _, reason = key.rpartition("|")
            invalid.update({source: count} if reason == CountReason.INVALID else {})
    return LocalAnswer(deltas, late.filter(late.column(GROUP).is_valid()), invalid)


S = TypeVar("S")


class Quarantine(Generic[S]):
    """The events that modules of a query failed for; ``rows`` is a late output, or None for those of the batch answer.

    A row is an event and a call that failed: ``source`` is the module, ``reason`` the error, ``start`` and ``end`` the event's
    lifetime in ticks (NULL: without end), ``payload`` all columns of the operator's input as JSON, ``window_start`` and
    ``window_end`` the window in ticks (NULL without a window), ``group`` the group's keys as JSON. ``until`` bounds the windows
    of the batch answer, as in :meth:`Stream.to_df`.
    """

    def __init__(
        self, query: Verbs, read: Callable[[pa.Table], S], rows: Any = None, until: int | dt.datetime | None = None
    ):
        """``read`` returns the stream of a table of events; they have one tick if it has no column ``end``."""
        self._query, self._read, self._rows, self._until = query, read, rows, until
        self._aside = set_aside(expanded(query.plan))

    @property
    def modules(self) -> list[str]:
        """The names of the modules that set aside events that they fail for, sorted."""
        return sorted({aside.module for aside in self._aside})

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table, ordered by source, group, window, lifetime, payload and reason.

        Late and invalid rows of a late output are left out.
        """
        table = self._table()
        table = table.filter(table.column(GROUP).is_valid())
        order = ("source", GROUP, "window_start", "window_end", "start", "end", "payload", "reason")
        return table.take(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in order]))

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame, in the order of :meth:`to_arrow`."""
        return to_pandas(self.to_arrow())

    def to_df(self) -> DataFrame:
        """Return the rows as a Spark DataFrame, computed when it is read, independently of the query's own ``to_df``.

        Late and invalid rows of a late output are left out.
        """
        if is_dataframe(self._rows):
            return self._rows.where(F.col("group").isNotNull())
        if self._rows is None and not is_literal(self._query.tables):
            aside = batch_frames(self._query.plan, self._query.tables, self._until, verb="quarantine").aside
            if aside is not None:
                return aside
        session_of(self._query.tables.values(), "quarantine")
        return as_frames({"rows": self.to_arrow()}, "quarantine")["rows"]

    def show(self, n: int = 20) -> None:
        """Print the first ``n`` rows as a table."""
        print(as_text(self.to_arrow(), n))

    def events(self, module: str, *, on_windows: bool = False) -> S:
        """Return the events that a module failed for as a stream with the columns of the operator's input, for replay.

        If the module is one over windows, each event occurs once for each window, with ``window_start`` and ``window_end``
        (instants of the axis; NULL: without end). ``on_windows``: events have the lifetimes of their windows and not their own,
        so that ``per_window()``, grouped as in the query, gets the members of each window together. The events are held in this
        process. Raises PlanError for a module that sets nothing aside, and with ``on_windows`` for one that is not over
        windows; also for a column of the input that has the name of a window's bound.
        """
        aside = self._aside_of(module)
        table = self._events(aside)
        if on_windows:
            if not aside.in_windows:
                raise PlanError("quarantine", f"{module} fails for events, not for windows", "on_windows=True")
            times = {"start": table.column("window_start"), "end": table.column("window_end")}
            table = pa.table({name: times.get(name, table.column(name)) for name in table.column_names})
        elif aside.schema.shape == POINT:
            table = table.drop_columns(["end"])
        return self._read(table)

    def __repr__(self) -> str:
        return f"Quarantine({', '.join(self.modules) or 'no module sets anything aside'})"

    def _table(self) -> pa.Table:
        """Return all rows of the late output, or those set aside in batch; raise UnknownColumn for a missing column."""
        if self._rows is None:
            return events_set_aside(self._query.plan, self._query.tables, self._until)
        rows: Any = self._rows
        with spark_errors("quarantine"):
            # columns of NULLs alone need no type
            table = rows.toArrow() if is_dataframe(rows) else as_arrow(rows, "quarantine")
            if table is None:
                table = read_connectors({"": input_table(rows, "quarantine").rows}, "quarantine")[""]
        for name in LATE_SCHEMA.names:
            if name not in table.column_names:
                unknown_column("quarantine", name, table.column_names, lifetime=False)
        return table.select(LATE_SCHEMA.names).cast(LATE_SCHEMA)

    def _aside_of(self, module: str) -> QuarantineEvents:
        """Return the events that a module sets aside; raise PlanError if there are none, or of inputs with different columns."""
        candidates = list(dict.fromkeys(aside for aside in self._aside if aside.module == module))
        if not candidates:
            wrong, shown = (
                f"no module {module!r} that sets anything aside",
                f"there are: {', '.join(self.modules) or 'none'}",
            )
            raise PlanError("quarantine", wrong, shown, nearest(module, self.modules))
        if len(candidates) > 1:
            shown = "; ".join(", ".join(aside.schema.names) for aside in candidates)
            hint = "Give it another name for each: sq.uda(..., name=...)."
            raise PlanError("quarantine", f"{module} is called over different inputs", f"they have {shown}", hint)
        (aside,) = candidates
        return aside

    def _events(self, aside: QuarantineEvents) -> pa.Table:
        """Return the events as they were in the operator's input, with the windows of modules over windows."""
        rows = self.to_arrow()
        rows = rows.filter(pc.equal(rows.column("source"), aside.module))
        payloads = [json.loads(text) for text in rows.column("payload").to_pylist()]
        columns: dict[str, Any] = {}
        for field in aside.schema.fields:
            kind = arrow_type(field.type)
            columns[field.name] = pa.array([from_json_value(p.get(field.name), kind) for p in payloads], kind)
        axis = pa.timestamp("us", "UTC") if aside.schema.axis == TIMESTAMP else pa.int64()
        windows = ("window_start", "window_end") if aside.in_windows else ()
        for name in (bound for bound in windows if bound in aside.schema.names):
            hint = "Rename it before the window: .rename({...})."
            raise PlanError("quarantine", "a column that the events get", f"the input has {name!r}", hint)
        columns |= {name: rows.column(name).cast(axis) for name in (*windows, "start", "end")}
        return pa.table(columns)


named_after(Quarantine, "quarantine()")
