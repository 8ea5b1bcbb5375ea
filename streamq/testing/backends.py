"""Run cases by each backend: in-process, all at once or in micro-batches; on Spark, as a DataFrame or as a streaming query.

In-process, nothing may change before a CTI that was sent.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.plan_json import plan_from_json, plan_to_json
from streamq.compiler.results import OUTPUT_COLUMNS, Egress, Results
from streamq.compiler.stages import compile_stages
from streamq.connectors.stored_files import files
from streamq.errors import PlanError
from streamq.operators.source import Source
from streamq.plan.footprint import Expected
from streamq.plan.node import Node, nodes
from streamq.plan.schema import MICRO_BATCH
from streamq.policies import Level
from streamq.run.batch.answers import batch_frames, local_history
from streamq.run.prepared_stream import streaming_rows
from streamq.run.run_options import ResultRequest, RunOptions
from streamq.run.run_verbs import run_all
from streamq.run.session.findings import master_of
from streamq.run.session.spark_session import REQUIRED, TUNED, session
from streamq.run.status.run_status import RunHistory
from streamq.run.status.watcher import Listener
from streamq.run.storage.checkpoint import CONTROL_DDL, OutsideCti
from streamq.runtime.deltas import LE, RE, WEIGHT
from streamq.runtime.state.baskets import TimeBinSizes
from streamq.runtime.time.lateness import LATE_SCHEMA
from streamq.stream import Stream
from streamq.testing.arrival import comparable, plain_values
from streamq.testing.case import Case
from streamq.testing.execution import BATCH, CONTROLLED, LITERAL, RUN, STREAM, Execution
from streamq.testing.expectation import Expectation, expectation, outside_ctis
from streamq.testing.history import (
    WrongOutput,
    as_history,
    from_changelog,
    history,
    interval,
    net,
    shown,
    side_by_side,
    sum_deltas,
)
from streamq.testing.oracle.run import JUDGES
from streamq.testing.oracle.values import ticks
from streamq.time import INFINITY, INTEGER, MINUS_INFINITY, instant_ticks
from streamq.user_code.repository import called_modules, modules

if TYPE_CHECKING:
    from streamq.run.running import Run
if TYPE_CHECKING:
    History: TypeAlias = pa.Table | pd.DataFrame
    """``start`` and ``end`` (int64 ticks; infinity is the largest int64) and the payload columns; a bag of rows."""


def execute(case: Case, how: Execution, expected: Expectation | None = None) -> pa.Table:
    """Run a case's query in-process and return its history; raise WrongOutput, ProgressViolation, and the query's own errors.

    Only runs in micro-batches are checked.
    ``expected`` is the case's :func:`expectation`, if it has been computed before.
    """
    if how.backend == LITERAL:
        rates = _expectation_of_rates(case.plans, how)
        answers = [local_history(read_back(plan), case.tables, how.chosen, case.until, rates) for plan in case.plans]
        return side_by_side([as_history(answer.drop_columns([WEIGHT])) for answer in answers])
    outputs = how.outputs(len(case.plans))
    return side_by_side(
        [sum_deltas(out, form, case.axis) for form, out in zip(outputs, play(case, how, expected), strict=True)]
    )


def read_back(plan: Node) -> Node:
    """Return a plan as it is read from its JSON; the plan itself if it cannot be written, or calls modules that cannot be read.

    These are modules of which the repository has another one under their name, or none.
    """
    for module in called_modules(plan):
        if module.name not in modules or modules.get(module.name).digest != module.with_options({}).digest:
            return plan
    try:
        document = json.dumps(plan_to_json(plan))
    except PlanError:
        return plan
    return plan_from_json(json.loads(document))


def answer_before_end(case: Case, how: Execution) -> pa.Table:
    """Return the history of a case's query, run in-process to its end, without the deltas of the end.

    Of ``how``, only ``output`` and ``early`` count.
    """
    how = Execution(STREAM, how.output, early=how.early, others=how.others)
    histories = []
    for output, (*out, last) in zip(how.outputs(len(case.plans)), play(case, how), strict=True):
        # the empty slice gives the columns if there are no micro-batches
        histories.append(sum_deltas([last.slice(0, 0), *out], output, case.axis))
    return side_by_side(histories)


def play(case: Case, how: Execution, expected: Expectation | None = None) -> list[list[pa.Table]]:
    """Run a case and return, for each query, the deltas of each micro-batch and of the end; ``expected`` as in :func:`execute`.

    The end has none of its own if it comes with the last rows.

    Raises ProgressViolation if deltas or CTIs are not what they must be at some micro-batch; a judge of streamq may raise more.
    """
    if expected is None:
        expected = expectation(case, how)
    written = Results(case.plans)
    levels = how.levels[: len(case.cut) + 1] if how.restart else how.levels[:1]
    compiled = [compile_stages(written, _options(case, how, level), how.chosen) for level in levels]
    watched, time_bins = compiled, TimeBinSizes()
    for judge in JUDGES:
        watched, time_bins = judge.watch(compiled, how)
    programs = itertools.cycle(watched)
    run = LocalRun(next(programs), static=case.static, time_bins=time_bins)
    out: list[list[pa.Table]] = [[] for _ in case.plans]

    def advance(step: Callable[[], Any]) -> None:
        """Make a step and add the deltas of each query to ``out``."""
        for deltas, of_query in zip(_checked(run, case.axis, step), out, strict=True):
            of_query.append(deltas)

    def judge_step(ctis: Sequence[tuple[str | None, int]], until: int | None, number: int | None) -> None:
        for judge in JUDGES:
            judge.after_step(case, how, run, ctis, until, number)

    times = case.times
    listener, history = Listener(compiled[0], since=min(times, default=0) // 1_000), RunHistory()
    last = len(case.cut) - 1 if how.ends_with_rows else len(case.cut)
    for number, (batch, ctis, now) in enumerate(zip(case.batches, outside_ctis(case, how), times, strict=True)):
        # of a source that is silent as a whole the others' rows say nothing here
        messages = listener.messages(history, now // 1_000)
        idle_before = {message.table: message.idle_before for message in messages if message.table}
        end, until = ([(None, INFINITY)], case.until) if number == last else ([], None)
        step = partial(run.batch, batch, [*ctis, *end], until, now=now, idle_before=idle_before)
        advance(step)
        judge_step([*ctis, *end], until, number)
        if end:
            break
        history = RunHistory(readings=run.readings or history.readings)
        if how.restart:
            run = run.go_on(next(programs))
    else:
        advance(partial(run.finish, case.until))
        judge_step([(None, INFINITY)], case.until, None)
    for cti in run.ctis.values():
        if cti != INFINITY:
            raise ProgressViolation(f"the result does not end with its inputs: its CTI is {shown(cti, case.axis)}")
    counted: Counter[str] = Counter()
    for totals in run.totals.values():
        counted.update(totals)
    for judge in JUDGES:
        judge.after_run(case, how, compiled[0], out, expected)
        judge.set_aside(case, counted, run.late if how.late_output else None, expected)
    return out


def _options(case: Case, how: Execution, level: Level) -> Options:
    outputs = how.outputs(len(case.plans))
    egresses = tuple(Egress(output, ctis=how.ctis and output == OutputForm.CHANGELOG) for output in outputs)
    return Options(
        egresses=egresses,
        late_output=how.late_output,
        buckets=how.buckets,
        level=level,
        early=how.early,
        expected=_expectation_of_rates(case.plans, how),
    )


def _expectation_of_rates(plans: Sequence[Node], how: Execution) -> Expected | None:
    """Return the rows that are said to be expected of the sources of some plans; None if nothing is said."""
    names = dict.fromkeys(one.shown_name() for plan in plans for one in nodes(plan) if isinstance(one, Source))
    rows = dict(zip(names, itertools.cycle(how.rates), strict=False))
    every = 10 if plans[0].schema.axis == INTEGER else "10 seconds"
    return Expected(rows=rows, every=every) if rows else None


def _checked(run: LocalRun, axis: str, step: Callable[[], Any]) -> list[pa.Table]:
    """Return a step's deltas of each query; raise ProgressViolation if they change an instant before the CTI before the step."""
    ctis = dict(run.ctis)
    step()
    for number, deltas in enumerate(run.deltas):
        before = ctis.get(number, MINUS_INFINITY)
        if changed := changes_before(before, [deltas], axis):
            raise ProgressViolation(f"the result changes before its CTI {shown(before, axis)}: {changed}")
    return run.deltas


CLOCK, CLOCK_ROWS = "clock of the test", pa.schema([("now", pa.int64())])
"""The folder of a clock that a test sets, and the columns of its rows."""


def land(folder: Path, tables: Sequence[pa.Table], first: int = 0) -> None:
    """Write each table as a Parquet file, with rising modification times, by which Spark's file source orders files.

    ``first`` is the number of the first file, one for each table, with or without rows. A file appears in the folder only when it
    is complete. The folder is created if need be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for i, table in enumerate(tables, start=first):
        path = folder / f"{i:06d}.parquet"
        hidden = folder / f".{i:06d}"
        pq.write_table(table, hidden)
        os.utime(hidden, (1_700_000_000 + i, 1_700_000_000 + i))
        hidden.rename(path)


def stream(spark: SparkSession, folder: Path, schema: pa.Schema) -> DataFrame:
    """Return a streaming DataFrame over the files of a folder, one file for each micro-batch; create the folder if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(from_arrow_schema(schema)).option("maxFilesPerTrigger", 1).parquet(str(folder))


def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table as a DataFrame; NaN stays NaN and does not become NULL."""
    return spark.createDataFrame(table, from_arrow_schema(table.schema))


@contextmanager
def session_in(spark: SparkSession, zone: str) -> Iterator[SparkSession]:
    """Yield a session of the same Spark in another time zone, without the settings that streamq's sessions have.

    All other settings, such as whether Spark compiles, are copied. Yields ``spark`` itself if ``zone`` is "", and on Spark
    Connect, where a client's settings are those of its server.
    """
    if not zone or master_of(spark).startswith("sc://"):
        yield spark
        return
    other = spark.newSession()
    streamqs = REQUIRED | TUNED
    for key, value in spark.conf.getAll.items():
        if key not in streamqs and other.conf.get(key, None) != value and other.conf.isModifiable(key):
            other.conf.set(key, value)
    for key in streamqs:
        other.conf.unset(key)
    other.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield other
    finally:
        # creating a DataFrame makes ``spark`` the active session again
        spark.createDataFrame([], "x int")


def execute_on_spark(case: Case, how: Execution, spark: SparkSession, expected: Expectation | None = None) -> pa.Table:
    """Run a case's query on Spark and return its history.

    Raises WrongOutput if the changelog of a stream is not that of a history, or if an end is infinite and not NULL; and the
    query's own errors.
    ``expected`` is the case's :func:`expectation`, if it has been computed before.
    """
    with session_in(spark, how.zone) as session:
        if how.backend == BATCH:
            frames = {name: frame(session, table) for name, table in case.tables.items()}
            rates = _expectation_of_rates(case.plans, how)
            answers = [
                batch_frames(plan, frames, case.instant, how.chosen, expected=rates).rows.toArrow()
                for plan in case.plans
            ]
            for rows in answers:
                check_ends(rows)
            return side_by_side([history(rows) for rows in answers])
        with tempfile.TemporaryDirectory(prefix="streamq-verify-", ignore_cleanup_errors=True) as folder:
            return _streamed(case, how, session, Path(folder), expected or expectation(case, how))


def _streamed(case: Case, how: Execution, spark: SparkSession, folder: Path, expected: Expectation) -> pa.Table:
    """Run a case as a Structured Streaming query, in two instalments if it restarts, and return the history of its output.

    A case with a source that follows the clock is run by a writeStream with control in place of ``run``. ``folder`` holds the
    sources, sinks and checkpoint.
    """

    batches, names = case.batches or [{name: case.tables[name] for name in case.sources}], list(case.sources)
    tables: dict[str, Any] = {name: stream(spark, folder / name, batches[0][name].schema) for name in names}
    # every second source is files, whose rows workers read if they can
    for name in names[len(batches) % 2 :: 2]:
        schema = from_arrow_schema(batches[0][name].schema)
        tables[name] = files(folder / name, schema=schema, at_once=None, maxFilesPerTrigger=1)
    # makes the session the active one, in which files are read
    spark.createDataFrame([], "x int")
    tables |= {name: frame(spark, table) for name, table in case.static.items()}
    outputs = how.outputs(len(case.plans))
    results = [
        _Result(Stream(plan, tables), output, folder / f"out {number}")
        for number, (plan, output) in enumerate(zip(case.plans, outputs, strict=True))
    ]

    def arrive(instalment: Sequence[dict[str, pa.Table]], first: int) -> None:
        """Write the files of some micro-batches, and of the test's clock; ``first`` is the number of the first micro-batch."""
        for name in names:
            landing = [batch[name] for batch in instalment]
            # keep the first file: without a file there is no micro-batch and no folder of results
            while how.silent and len(landing) > (first == 0) and not landing[-1].num_rows:
                landing.pop()
            land(folder / name, landing, first)
        times = case.times[first : first + len(instalment)]
        land(folder / CLOCK, [pa.table([[now]], schema=CLOCK_ROWS) for now in times], first)

    if case.follows_clock and how.started == RUN:
        # a run would wait for the next tick of the clock, and that of a test stands still at its end
        how = replace(how, started=CONTROLLED)
    start = _run if how.started == RUN else _write
    first_batches = len(batches) // 2 if how.restart else 0
    if first_batches:
        arrive(batches[:first_batches], 0)
        start(results, how, folder)
    arrive(batches[first_batches:], first_batches)
    counted = start(results, how, folder, [case.instant])
    if counted is not None:
        for judge in JUDGES:
            judge.set_aside(case, counted, _late_rows(spark, folder) if how.late_output else None, expected)
    return side_by_side([result.answer(spark, case.axis) for result in results])


@dataclass(frozen=True)
class _Result:
    """A query of a run with its output and the folder of its rows."""

    query: Stream
    output: OutputForm
    folder: Path

    @property
    def renamed(self) -> Stream:
        """The query with other names for columns that the output would add itself."""
        return self.query.rename(self._others) if self._others else self.query

    @property
    def _others(self) -> dict[str, str]:
        """The names of columns that the output would add itself, with longer ones than any column has."""
        long = "_" * max(len(name) for name in (*self.query.columns, ""))
        return {name: name + long for name in self.query.columns if name.lower() in OUTPUT_COLUMNS[self.output]}

    def answer(self, spark: SparkSession, axis: str) -> pa.Table:
        """Return the history of the rows in the folder; raise WrongOutput if they are not one, or an end is infinite."""
        out = spark.read.parquet(str(self.folder)).drop(MICRO_BATCH).toArrow()
        check_ends(out)
        answer = history(out) if self.output == OutputForm.FINAL else net([from_changelog(out)], axis)
        own = {other: name for name, other in self._others.items()}
        return answer.rename_columns([own.get(name, name) for name in answer.column_names])


def _late_rows(spark: SparkSession, folder: Path) -> list[pa.Table]:
    """Return the rows of the late sink in a run's folder, as one table; none if nothing was written."""
    if not (folder / "late").exists():
        return []
    rows = spark.read.schema(from_arrow_schema(LATE_SCHEMA)).parquet(str(folder / "late")).drop(MICRO_BATCH)
    return [rows.toArrow()]


def _run(
    results: Sequence[_Result], how: Execution, folder: Path, last: Sequence[int | dt.datetime | None] = ()
) -> dict[str, int] | None:
    """Run one instalment by ``run``, of several queries by ``run_all``, and return its counts if it is the last, else None.

    The last instalment ends the stream; ``last`` then holds the bound of its windows (None: no bound), and is empty before.
    """
    where: dict[str, Any] = {"checkpoint": str(folder / "checkpoint"), "early": how.early}
    where["expected"] = _expectation_of_rates([result.query.plan for result in results], how)
    where |= {"late_sink": str(folder / "late")} if how.late_output else {}

    def start(**more: Any) -> Run:
        if len(results) > 1:
            requests = [ResultRequest(query=r.renamed, output=r.output, sink=str(r.folder)) for r in results]
            return run_all(requests, **where, **more)
        (one,) = results
        return one.renamed.run(sink=str(one.folder), output=one.output, **where, **more)

    if not last:
        start(buckets=how.buckets, trigger="available_now")
        return None
    (until,) = last
    with start(buckets=how.buckets) as run:
        run.finish(until)
    return run.late


def _write(
    results: Sequence[_Result], how: Execution, folder: Path, last: Sequence[int | dt.datetime | None] = ()
) -> None:
    """Run one instalment by a writeStream; the last one ends the stream by a row in the control folder, if there is one.

    There is one result, as a writeStream has no more. ``last`` as in :func:`_run`. Counts are not returned.
    """
    (result,) = results
    query = result.renamed
    control = str(folder / "control") if how.started == CONTROLLED else None
    options = RunOptions(
        verb="to_stream",
        results=(ResultRequest(query=query, output=how.output),),
        control=control,
        buckets=how.buckets,
        early=how.early,
    )

    def start() -> None:
        """Run the query over all files that have landed, to its end."""
        rows = streaming_rows(options, lambda spark: stream(spark, folder / CLOCK, CLOCK_ROWS))
        writer = rows.writeStream.format("parquet").option("path", str(result.folder))
        writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()

    start()
    for until in last if control else ():
        assert control is not None
        spark = SparkSession.active()
        row = OutsideCti(None, INFINITY, instant_ticks(until, query.plan.schema.axis)).row
        spark.createDataFrame([row], CONTROL_DDL).coalesce(1).write.mode("append").parquet(control)
        start()


def session_of(tables: Mapping[str, Any]) -> SparkSession:
    """Return the session of the first table that has one, else the active session, else one that streamq starts."""
    for table in tables.values():
        if hasattr(table, "sparkSession"):
            return table.sparkSession
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    return session("streamq testing")


def check_ends(rows: pa.Table) -> None:
    """Raise WrongOutput if a row has infinity as ``end`` or ``new_end``; users get NULL for the end of an endless lifetime.

    Columns of these names are looked at only if they hold integers or instants.
    """
    for name in ("end", "new_end"):
        # a payload may have a column of this name
        column = rows[name] if name in rows.column_names else pa.chunked_array([], pa.int64())
        if (pa.types.is_temporal(column.type) or pa.types.is_integer(column.type)) and pc.any(
            pc.equal(ticks(column), INFINITY)
        ).as_py():
            raise WrongOutput(f"the {name} of a row that never ends is not NULL")


class ProgressViolation(AssertionError):
    """Raised if a result, an operator or its input changes something before its CTI, or a CTI goes back."""


def changes_before(c: int, tables: Sequence[pa.Table], axis: str) -> str:
    """Return, as text, the changes of a micro-batch before ``c`` once its deltas are folded into retractions; empty if none.

    Rows that start before ``c`` must form pairs, whose ends are both at or after ``c``. The text lists weights, lifetimes and
    rows.
    """
    weights: Counter[Any] = Counter()
    for table in tables:
        names = [n for n in table.column_names if n not in (LE, RE, WEIGHT)]
        early = table.filter(pc.less(table[LE], c))
        for values in zip(*(plain_values(column) for column in early.columns), strict=True):
            row = dict(zip(early.column_names, values, strict=True))
            event = (tuple(comparable(row[n]) for n in names), row[LE])
            weights[event, row.get(RE, row[LE] + 1)] += row.get(WEIGHT, 1)
    total: Counter[Any] = Counter()
    for (event, _), weight in weights.items():
        total[event] += weight
    changes = [(*event, until, w) for (event, until), w in weights.items() if w and (until < c or total[event])]
    return ", ".join(f"{w:+d} {interval(le, until, axis)} {row}" for row, le, until, w in changes)
