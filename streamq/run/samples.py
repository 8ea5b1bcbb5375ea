"""Rows of a run: those of its sources, recorded by queries beside the run, and those into and out of an operator, by a tap."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import MixedStreams, PlanError, UnknownColumn, nearest, sentence, warn
from streamq.operators import Source, Where
from streamq.plan.lowering import DeltaColumns, in_utc, map_in_arrow, ship_runtime, to_spark
from streamq.plan.node import nodes
from streamq.plan.resolve import resolve
from streamq.plan.schema import quote
from streamq.run.prepared_stream import PreparedStream
from streamq.run.status.run_status import RESULTS, is_of_a_micro_batch, observed_values
from streamq.run.storage.checkpoint import TapCommand
from streamq.run.storage.files import Offsets, path_exists, spark_sources
from streamq.run.storage.raw_files import RawFolder, local_path
from streamq.runtime.arrow.columnar import concat, decode, decode_small, encode
from streamq.runtime.arrow.values import python_rows
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.hosts.stage import OUT
from streamq.screens import ProgressBar
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, instant_ticks

if TYPE_CHECKING:
    import pandas as pd


RecordedRows = list[dict[str, pa.Table]]
"""Micro-batches: the rows of each source that has any, by the name of the source."""

LOOK_EVERY = 0.1
"""The seconds between two looks at a query by somebody who waits for its rows."""

ROW = "__row"
"""The column with a whole row of a source's table, beside those that filters read."""

RECORDED_DDL = "source int, rows bigint, body binary"
"""The columns of what a recording writes: the number of a source, and some of its rows as an Arrow IPC stream."""

DONE = b'v1\n{"nextBatchWatermarkMs":0}'
"""The entry of a micro-batch in Spark's log of those that are done."""

NO_FILES = b"v1"
"""The entry of a micro-batch without rows in the log of Spark's sink of files."""


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Records the rows of the ``sources`` of a run, DataFrames by name, whose tables have the names ``tables``, in order.

    ``read`` are the names of all that Spark reads for the run, in its order. Each query has a checkpoint in ``folder``, which
    says that what the run has read is done; it is deleted if it is on this computer.
    """

    spark: SparkSession
    sources: Mapping[str, DataFrame]
    tables: Sequence[str]
    read: Sequence[str]
    checkpoint: str

    @property
    def run_folder(self) -> RawFolder:
        """The checkpoint of the run."""
        return RawFolder.from_path(self.checkpoint, "sample")

    def coming(self, rows: int, seconds: float) -> RecordedRows:
        """Return the first rows that come from now on, at most so many in all; stop after so many seconds.

        Each source has an equal part of the rows; what one does not have goes to the others.
        """
        numbers = self._planned()
        done = [self._offsets(numbers[-1])] if numbers else []
        with ProgressBar("sample") as bar:
            return cut(self._record(done, None, bar, rows, seconds), rows, newest=False)

    def newest(self, rows: int, seconds: float) -> RecordedRows:
        """Return the newest rows that the run has read, at most so many in all, in the micro-batches in which it read them.

        The micro-batches are read anew, the last one first, as long as rows are missing and the seconds are not over.
        """
        batches: RecordedRows = []
        begun, count = time.monotonic(), 0
        numbers = self._planned()
        with ProgressBar("sample") as bar:
            for number in reversed(numbers):
                left = seconds - (time.monotonic() - begun)
                if count >= rows or left <= 0:
                    break
                upto = self._offsets(number)
                done = [self._offsets(number - 1)] if number - 1 in numbers else []
                if number and not done:
                    # Spark has forgotten where the micro-batch began
                    break
                if done and all(done[0].by_source.get(t) == upto.by_source.get(t) for t in self.tables):
                    continue
                batches = self._record(done, upto, bar, rows, left) + batches
                count = sum(table.num_rows for batch in batches for table in batch.values())
        return cut(batches, rows, newest=True)

    def _planned(self) -> list[int]:
        """Return the numbers of the micro-batches in Spark's log of offsets, in order."""
        return sorted(int(name) for name in (self.run_folder / "offsets").files() if name.isdigit())

    def _offsets(self, number: int) -> Offsets:
        """Return the offsets after a micro-batch of the run."""
        return Offsets.read((self.run_folder / "offsets").read(str(number)), list(self.read), "sample")

    def _record(
        self, done: Sequence[Offsets], upto: Offsets | None, bar: ProgressBar, rows: int, seconds: float
    ) -> RecordedRows:
        """Return the rows after the offsets ``done``, as micro-batches: those of a single one up to ``upto``, or all that come.

        A task keeps at most so many rows of each source in a micro-batch: the last ones of a single one, else the first ones.
        """
        folder = f"{self.checkpoint}/streamq/sample/{uuid4().hex}"
        frame = self._rows(rows, newest=upto is not None)
        writer = frame.writeStream.format("parquet").outputMode("append").option("path", f"{folder}/rows")
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
        with ExitStack() as ending:
            ending.callback(_delete, folder)
            own = RawFolder.from_path(folder, "sample")
            self._set_out(own / "checkpoint", own / "rows", done, upto)
            query = (writer if upto is None else writer.trigger(once=True)).start()
            ending.callback(query.stop)
            wait_for_rows(query, bar, rows, seconds)
            query.stop()
            return self._written(f"{folder}/rows")

    def _set_out(self, target: RawFolder, rows: RawFolder, done: Sequence[Offsets], upto: Offsets | None) -> None:
        """Write a checkpoint on which the micro-batch ``done`` is done, without ``rows``, and one up to ``upto`` is planned."""
        target.write("metadata", json.dumps({"id": str(uuid4())}).encode())
        partitions = str(self.spark.conf.get("spark.sql.shuffle.partitions"))
        for number, offsets in enumerate([*done, *([] if upto is None else [upto])]):
            (target / "offsets").write(str(number), offsets.to_bytes(list(self.tables), partitions))
        if done:
            (target / "commits").write("0", DONE)
            # the log of Spark's sink of files has no gaps
            (rows / "_spark_metadata").write("0", NO_FILES)
        for place, table in enumerate(self.tables):
            log = self.run_folder / "sources" / str(self.read.index(table))
            log.copy_to(target / "sources" / str(place))

    def _rows(self, most: int, *, newest: bool) -> DataFrame:
        """Return one stream of the rows of all sources; Spark's reports count them."""
        ship_runtime()
        frame: DataFrame | None = None
        for number, df in enumerate(self.sources.values()):
            rows = map_in_arrow(df, keep_rows(number, most, newest), RECORDED_DDL)
            frame = rows if frame is None else frame.unionAll(rows)
        assert frame is not None, "a query has a source"
        frame = frame.withColumn("at", F.unix_micros(F.current_timestamp()))
        return frame.observe(RESULTS, F.sum("rows").alias("recorded"))

    def _written(self, path: str) -> RecordedRows:
        """Return the rows that a query has written, by micro-batch."""
        if not path_exists(self.spark, path):
            return []
        names = list(self.sources)
        tables: dict[int, dict[str, list[pa.Table]]] = {}
        written = self.spark.read.schema(f"{RECORDED_DDL}, at bigint").parquet(path)
        for row in sorted(written.toArrow().to_pylist(), key=lambda row: row["at"]):
            tables.setdefault(row["at"], {}).setdefault(names[row["source"]], []).append(decode(row["body"]))
        return [{name: concat(parts) for name, parts in batch.items()} for batch in tables.values()]


def recorder(prepared: PreparedStream, checkpoint: str, where: Any, between: Any) -> Recorder:
    """Return the recorder of a run on a checkpoint, of the rows that satisfy ``where`` and start ``between`` two instants.

    ``where`` holds for the sources that have all its columns. Raises UnknownColumn or MixedStreams if none has, TypeMismatch if
    it is not boolean, and PlanError or TimeError for what are no two instants.
    """
    bounds = instants_between(between, prepared.program.axis)
    written = {n.table: n for n in nodes(prepared.written) if isinstance(n, Source)}
    named = {r.source.shown_name(): written[r.source.table] for r in prepared.program.sources if r.source}
    filters: dict[str, Where] = {}
    others: list[PlanError] = []
    for name, source in named.items() if where is not None else ():
        try:
            filters[name] = Where(source, resolve(where, source, "sample", of_events=True))
        except (UnknownColumn, MixedStreams) as error:
            others.append(error)
    if others and not filters:
        raise others[0]
    frames = {n: _filtered(prepared.tables[s.table], s, filters.get(n), bounds) for n, s in named.items()}
    return Recorder(
        spark=prepared.spark,
        sources=frames,
        tables=[source.table for source in named.values()],
        read=spark_sources(prepared.identity),
        checkpoint=checkpoint,
    )


def _filtered(table: DataFrame, source: Source, where: Where | None, bounds: tuple[int, int] | None) -> DataFrame:
    """Return the rows of a source's table that a filter keeps and that start within the bounds, the second one excluded."""
    if where is None and bounds is None:
        return table
    with in_utc(table.sparkSession):
        columns = [F.expr(column).alias(name) for name, column in source.item_columns(True).items()]
        payload = [F.col(quote(field.name)) for field in source.payload]
        whole = F.struct(*(F.col(quote(name)) for name in table.columns)).alias(ROW)
        rows = table.select(whole, *columns, *payload)
        if where is not None:
            rows = rows.where(to_spark(where.predicate, DeltaColumns(source.schema)))
        if bounds is not None:
            rows = rows.where((F.col(LE) >= bounds[0]) & (F.col(LE) < bounds[1]))
        return rows.select(f"{ROW}.*")


def instants_between(between: Any, axis: str) -> tuple[int, int] | None:
    """Return two instants, of which one may be None for no bound, in ticks; None for None.

    Raises PlanError for anything else, TimeError for instants that do not fit the axis.
    """
    if between is None:
        return None
    if not isinstance(between, tuple | list) or len(between) != 2:
        hint = "Write between=(start, end); None is no bound."
        raise PlanError("sample", "between is two instants", f"found {between!r}", hint)
    low, high = (instant_ticks(instant, axis, "sample") for instant in between)
    return MINUS_INFINITY if low is None else low, INFINITY if high is None else high


def keep_rows(number: int, most: int, newest: bool) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that yields one row of RECORDED_DDL with the first rows of a task, or its newest.

    ``number`` is that of the source; ``most`` is the number of rows to keep.
    """
    # workers need not have streamq

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kept: deque[pa.RecordBatch] = deque()
        count = 0
        for batch in batches:
            if newest or count < most:
                kept.append(batch)
                count += batch.num_rows
            while newest and kept and count - kept[0].num_rows >= most:
                count -= kept.popleft().num_rows
        if count:
            table = pa.Table.from_batches(kept)
            table = table[max(0, count - most) :] if newest else table[:most]
            columns = [
                pa.array([number], pa.int32()),
                pa.array([table.num_rows]),
                pa.array([encode(table)], pa.binary()),
            ]
            yield pa.record_batch(columns, names=["source", "rows", "body"])

    return run


def cut(batches: RecordedRows, most: int, *, newest: bool) -> RecordedRows:
    """Return micro-batches with at most so many rows in all, the newest or the first ones, an equal part of each source."""
    names = list(dict.fromkeys(name for batch in batches for name in batch))
    counts = [sum(batch[name].num_rows for batch in batches if name in batch) for name in names]
    left = dict(zip(names, equal_parts(counts, most), strict=True))
    shorter: RecordedRows = []
    for batch in batches[:: -1 if newest else 1]:
        parts = {}
        for name, table in batch.items():
            taken = min(left[name], table.num_rows)
            left[name] -= taken
            if taken:
                parts[name] = table[table.num_rows - taken :] if newest else table[:taken]
        if parts:
            shorter.append(parts)
    return shorter[:: -1 if newest else 1]


def small_tables(tables: Mapping[str, DataFrame], rows: int) -> dict[str, pa.Table]:
    """Return those of some tables that have at most so many rows."""
    read = {name: df.limit(rows + 1).toArrow() for name, df in tables.items()}
    return {name: table for name, table in read.items() if table.num_rows <= rows}


def check_limits(rows: object, seconds: object) -> None:
    """Raise PlanError unless the limits of a recording are a positive number of rows, and of seconds."""
    check_rows("sample", "rows", rows)
    check_seconds("sample", "seconds", seconds)


def check_rows(verb: str, argument: str, rows: object) -> None:
    """Raise PlanError, worded for an argument of ``verb``, unless it is a positive number of rows."""
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise PlanError(verb, f"{argument} is a whole number of at least 1", f"found {rows!r}")


def check_seconds(verb: str, argument: str, seconds: object) -> None:
    """Raise PlanError, worded for an argument of ``verb``, unless it is a positive number of seconds."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise PlanError(verb, f"{argument} is a positive number of seconds", f"found {seconds!r}")


def _delete(folder: str) -> None:
    """Delete a folder on this computer as far as that is possible; those of other file systems remain."""
    path = local_path(folder)
    if path is not None:
        shutil.rmtree(path, ignore_errors=True)


def wait_for_rows(query: StreamingQuery, bar: ProgressBar, rows: int, seconds: float) -> None:
    """Wait until a query has recorded so many rows, has ended, or time is up; raise the error it failed with.

    The bar shows what comes first: the part of the rows that has been recorded, or that of the time which is over.
    """
    begun = time.monotonic()
    while query.isActive and (passed := time.monotonic() - begun) < seconds:
        reports = [json.loads(report.json) for report in query.recentProgress]
        recorded = min(rows, sum(observed_values(report).get("recorded", 0) for report in reports))
        bar.update(max(recorded / rows, passed / seconds), 1, f"{recorded:,} of {rows:,} rows, at most {seconds:g} s")
        if recorded == rows:
            break
        time.sleep(LOOK_EVERY)
    if not query.isActive:
        query.awaitTermination()


def equal_parts(counts: Sequence[int], most: int) -> list[int]:
    """Return how many of so many things to take in all, an equal part of each kind, of which there are ``counts``.

    >>> equal_parts([1000, 10, 200], 150)
    [70, 10, 70]
    """
    parts = [0] * len(counts)
    by_count = sorted(range(len(counts)), key=lambda kind: counts[kind])
    for place, kind in enumerate(by_count):
        parts[kind] = min(counts[kind], (most - sum(parts)) // (len(counts) - place))
    return parts


MICRO_BATCHES = 1_000
"""The number of micro-batches after which a tap ends that nobody has ended."""

COLUMNS = ("micro_batch", "port", "weight", "start", "end", "payload")
"""The columns of a tap's rows."""


class Tap:
    """The newest rows into and out of one operator of a running query; also a context manager that ends the tap.

    ``rows()`` returns them; a notebook shows them as a table. A row is what the operator gets or sends: it has been filtered, and
    combined before the shuffle, where operators combine rows. So the rows into a window with aggregates are partial results, and
    their lifetimes are the columns ``__lo`` and ``__hi`` of the payload.
    """

    def __init__(
        self,
        operator: str,
        name: str,
        most: int,
        *,
        axis: str,
        send: Callable[[TapCommand], None],
        reports: Callable[[], Sequence[Any]],
    ):
        """Begin to tap an operator with a title, and a name of its state; ``reports`` returns Spark's reports on the run."""
        self.operator = operator
        self._command = TapCommand(uuid4().hex, name, most, MICRO_BATCHES)
        self._axis, self._send, self._reports = axis, send, reports
        self._seen = max([-1, *(report.batchId for report in reports())])
        self._rows: dict[int, deque[dict[str, Any]]] = defaultdict(lambda: deque(maxlen=most))
        self._is_on = True
        send(self._command)

    def rows(self) -> pd.DataFrame:
        """Return the newest rows, as a pandas frame: ``micro_batch``, ``port``, ``weight``, ``start``, ``end``, ``payload``.

        ``port`` is 0 for the first input, 1 for the second, and "out" for the output. ``weight`` counts the events that a row
        inserts, and is below 0 for a retraction. ``start`` and ``end`` are instants, None where there is no end or the row is a
        partial result. ``payload`` is a dictionary. Rows are in the order of their micro-batches, in each of which the inputs are
        first. Read it at least every hundred micro-batches, because Spark keeps so many reports; a warning counts those missed.
        """
        import pandas as pd

        self._read()
        rows = [row for port in sorted(self._rows, key=_place) for row in self._rows[port]]
        rows.sort(key=lambda row: row["micro_batch"])
        return pd.DataFrame([list(row.values()) for row in rows], columns=COLUMNS, dtype=object)

    def close(self) -> None:
        """End the tap; the rows so far stay."""
        if self._is_on:
            self._is_on = False
            self._send(TapCommand(self._command.tap, self._command.operator, 0, 0))
            self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        self._read()
        counts = {port: len(rows) for port, rows in self._rows.items()}
        sent = counts.pop(OUT, 0)
        return f"Tap({self.operator}: {sum(counts.values()):,} rows received, {sent:,} sent{'' if self._is_on else ', ended'})"

    def _repr_html_(self) -> str:
        return str(self.rows().to_html(max_rows=50))

    def _read(self) -> None:
        """Add the rows of the micro-batches that Spark has reported since the last call."""
        for report in self._reports():
            if report.batchId <= self._seen:
                continue
            fields = json.loads(report.json)
            if not is_of_a_micro_batch(fields):
                continue
            if missed := report.batchId - self._seen - 1 if self._seen >= 0 else 0:
                hint = "Call rows() more often: Spark keeps a hundred reports."
                warn(sentence("tap", f"the rows of {missed} micro-batches are not among those shown", "", hint))
            self._seen = report.batchId
            for tapped in map(json.loads, observed_values(fields).get("tapped", ())):
                for port, body in tapped["rows"] if tapped["tap"] == self._command.tap else ():
                    table = decode_small(base64.b64decode(body))
                    self._rows[port].extend(_shown(table, port, self._seen, self._axis))


def _place(port: int) -> tuple[bool, int]:
    """Return a key by which the output comes after the inputs."""
    return port == OUT, port


def _shown(table: pa.Table, port: int, number: int, axis: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of one port in a micro-batch as users read them."""
    payload = python_rows(table.drop_columns([n for n in (LE, RE, WEIGHT) if n in table.column_names]))
    payload = payload or [{}] * len(table)
    times = {name: table.column(name).to_pylist() if name in table.column_names else None for name in (LE, RE, WEIGHT)}
    for place, values in enumerate(payload):
        start, end, weight = (None if column is None else column[place] for column in times.values())
        if end is None and start is not None:
            # a channel of points has no ends
            end = start + 1
        instants = [_instant(t, axis) for t in (start, end)]
        yield dict(zip(COLUMNS, [number, "out" if port == OUT else port, weight or 1, *instants, values], strict=True))


def _instant(t: int | None, axis: str) -> Any:
    """Return an instant as users read it: a datetime or ticks, None for one that is infinite or not there."""
    if t is None or t == INFINITY:
        return None
    return python_rows(pa.table({"t": pa.array([t], pa.timestamp("us", "UTC"))}))[0]["t"] if axis == TIMESTAMP else t


def tapped_operator(program: StagedPlan, operator: str) -> str:
    """Return the name of the state of the operator that a user names; raise PlanError, with those there are, if there is none."""
    titles = {hosted.name: program.titles[hosted.name][0] for stage in program.stages for hosted in stage.hosted}
    if operator in titles:
        return operator
    matches = [name for name, title in titles.items() if title == operator]
    matches = matches or [name for name, title in titles.items() if str(operator) and title.startswith(str(operator))]
    if len(matches) == 1:
        return matches[0]
    wrong = f"{len(matches)} operators {operator!r}" if matches else f"no operator with state {operator!r}"
    among: Iterable[str] = matches or titles
    shown = [f"{titles[name]} (state {name})" if matches else titles[name] for name in among]
    hint = "Give the name of its state." if matches else nearest(str(operator), titles.values())
    raise PlanError("tap", wrong, f"there are: {', '.join(shown)}" if shown else "the query has no state", hint)
