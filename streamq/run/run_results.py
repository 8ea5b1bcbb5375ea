"""The results of a run: one more or less while it goes on, and the rows that each of them holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t
from pyspark.sql.streaming.query import StreamingQuery

from streamq.choices import OutputForm
from streamq.errors import PlanError, kind_of
from streamq.plan.schema import MICRO_BATCH, quote
from streamq.run.failure import spark_errors
from streamq.run.prepared_stream import Launch, claimed, fitted
from streamq.run.run_options import ResultRequest, RunOptions
from streamq.run.run_reports import run_is_over
from streamq.run.sinks import DataSourceSink, DividedFolder
from streamq.run.storage.checkpoint import Checkpoint, Claim
from streamq.run.storage.files import path_exists
from streamq.runtime.deltas import INSERT, RETRACT
from streamq.time import TIMESTAMP


class RunResults(ABC):
    """The results of a run, which may become more or fewer while it goes on."""

    _launch: Launch
    _over: str
    query: StreamingQuery

    @abstractmethod
    def _begin(self, launch: Launch, claim: Claim) -> None: ...

    @abstractmethod
    def _pause(self) -> None: ...

    @property
    def _options(self) -> RunOptions:
        return self._launch.prepared.options

    def add(self, result: ResultRequest) -> None:
        """Compute one more result, :func:`result`, from the next micro-batch on, in a run of :func:`run_all` or ``publish``.

        The run stops, and starts again on its checkpoint as a query that has changed (docs/operations.md): parts that the
        result shares with others have seen the rows before, its own operators begin where the checkpoint stands. A micro-batch
        that is interrupted is repeated. Raises PlanError for a name that another result has, and in a run of a single query;
        CheckpointError for a result that does not fit what runs. After an error the run goes on as it was.

        ::

            run.add(sq.result(counts, name="counts", sink="counts"))
        """
        if not isinstance(result, ResultRequest):
            raise PlanError("add", "not a result", f"found {kind_of(result)}", "Give sq.result(query, sink=...).")
        names = [one.division for one in self._options.results]
        if result.division is not None and result.division in names:
            raise PlanError("add", f"a result called {result.division!r} is there", "", "Give it another name=.")
        self._change("add", (*self._options.results, result))

    def remove(self, name: str) -> None:
        """Compute a result no more, from the next micro-batch on: the one that has this ``name`` in :func:`result`.

        The state of operators that only it has needed is dropped in the next micro-batch with rows. What it has written stays.
        Otherwise it is as in :meth:`add`. Raises PlanError for a name that no result has, and for the last result.
        """
        number = self._result_number("remove", name)
        results = self._options.results
        if len(results) == 1:
            raise PlanError("remove", f"{name!r} is the only result", "", "End the run: run.stop().")
        self._change("remove", (*results[:number], *results[number + 1 :]))

    @spark_errors("table")
    def table(self, result: str | None = None) -> DataFrame:
        """Return the rows of a result that hold now, as a batch DataFrame: payload, ``start`` and ``end``.

        They are what the result has written up to the last micro-batch that is done: final rows, or a changelog with its
        retractions folded. ``result`` is the name of one of several results. The rows are read from the files of the sink. Raises
        PlanError for a result whose sink is no folder of Parquet files, for upserts, and for a name that no result has.

        ::

            run.table().groupBy("zone").count().show()
        """
        number = self._result_number("table", result)
        return rows_that_hold(self._launch.prepared.spark, self._options, number, self._launch.checkpoint)

    def _result_number(self, verb: str, name: str | None) -> int:
        """Return the number of a result by its name, None for the only one; raise PlanError if there is none, or several."""
        names = [one.division for one in self._options.results]
        if name is None and len(names) == 1:
            return 0
        if name is None or name not in names:
            wrong = "the run has several results" if name is None else f"no result {name!r}"
            there = ", ".join(repr(one) for one in names if one is not None) or "none has a name"
            raise PlanError(verb, wrong, f"there are: {there}", "Names are those of sq.result(query, name='...').")
        return names.index(name)

    def _change(self, verb: str, results: tuple[ResultRequest, ...]) -> None:
        """Stop, and start with other results; as before, if they do not fit."""
        if not self._options.together:
            hint = "Start it by sq.run_all([sq.result(query, ...)], ...)."
            raise PlanError(verb, "the run is of a single query", "", hint)
        if self._over or not self.query.isActive:
            raise run_is_over(verb, self._over)
        options = replace(self._options, results=results, verb=verb)
        with spark_errors(verb, "Spark does not start the query"):
            options.check()
            prepared = fitted(options)
            self._pause()
            try:
                if prepared.is_outdated:
                    prepared = fitted(options)
                begun = claimed(prepared)
            except Exception:
                self._begin(*claimed(fitted(self._options)))
                raise
            self._begin(*begun)


def rows_that_hold(spark: SparkSession, options: RunOptions, number: int, checkpoint: Checkpoint) -> DataFrame:
    """Return the rows of result ``number`` that hold after the last micro-batch that is done: payload, ``start``, ``end``.

    Raises PlanError if its sink is no folder of Parquet files, and for rows that replace others: files have no order.
    """
    request, sink = options.results[number], options.sinks[number]
    if not isinstance(sink, DividedFolder) and not (isinstance(sink, DataSourceSink) and sink.format == "parquet"):
        observed = f"its sink is {request.sink!r}"
        hint = "Write it into a folder of Parquet files, sink='a path', or publish it."
        raise PlanError("table", "the rows of the result cannot be read back", observed, hint)
    if request.output not in (OutputForm.FINAL, OutputForm.CHANGELOG):
        reason = "files do not have the order in which rows replace each other"
        wrong, hint = (
            f"rows of output={str(request.output)!r} cannot be read back",
            "Write a changelog: output='changelog'.",
        )
        raise PlanError("table", wrong, reason, hint)
    schema = request.query.plan.schema
    time = t.TimestampType() if schema.axis == TIMESTAMP else t.LongType()
    columns = t.StructType([t.StructField(field.name, field.type) for field in schema.fields])
    is_changelog = request.output == OutputForm.CHANGELOG
    for name, kind in (("kind", t.StringType()), ("start", time), ("end", time), ("new_end", time)):
        if is_changelog or name in ("start", "end"):
            columns = columns.add(name, kind)
    columns = columns.add(MICRO_BATCH, t.LongType())
    if isinstance(sink, DividedFolder):
        columns = columns.add("result", t.StringType())
    (folder,) = sink.folders
    if not path_exists(spark, folder):
        rows = spark.createDataFrame([], columns)
    else:
        rows = spark.read.schema(columns).parquet(folder)
    # the folder of a micro-batch that is being written has some of its rows
    rows = rows.where(F.col(MICRO_BATCH).isNull() | (F.col(MICRO_BATCH) <= checkpoint.last_commit()))
    if isinstance(sink, DividedFolder):
        rows = rows.where(F.col("result") == F.lit(request.division))
    payload = [quote(name) for name in schema.names]
    return _folded(rows, payload) if is_changelog else rows.select(*payload, "start", "end")


def _folded(rows: DataFrame, payload: list[str]) -> DataFrame:
    """Return the history of a changelog's rows."""
    inserted = F.array(F.struct(F.col("end"), F.lit(1).alias("__w")))
    moved = F.array(
        F.struct(F.col("end"), F.lit(-1).alias("__w")), F.struct(F.col("new_end").alias("end"), F.lit(1).alias("__w"))
    )
    deltas = F.when(F.col("kind") == INSERT, inserted).otherwise(moved)
    rows = rows.where(F.col("kind").isin(INSERT, RETRACT)).select(*payload, "start", F.inline(deltas))
    rows = rows.where("end IS NULL OR end > start").groupBy(*payload, "start", "end").agg(F.sum("__w").alias("__w"))
    copies = F.explode(F.sequence(F.lit(1), F.col("__w").cast("int"))).alias("__copy")
    return rows.where("__w > 0").select(*payload, "start", "end", copies).drop("__copy")
