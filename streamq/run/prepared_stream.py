"""Prepare queries to run as a stream: compile and check them, and connect them to tables, a session and the control folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streamq.errors import CheckpointError, PlanError, sentence, warn
from streamq.operators.input_table import as_dataframe
from streamq.plan.node import Node
from streamq.plan.verbs import tables_behind
from streamq.policies import Consistency
from streamq.run.active import session_of
from streamq.run.checkpoint import Checkpoint, identity_of
from streamq.run.clock_source import ClockRows, ticking_clock
from streamq.run.control import ControlFolder
from streamq.run.failure import spark_errors
from streamq.run.files import WRITABLE
from streamq.run.fitting import compile_to_fit
from streamq.run.foreign_session import prepare_for_streams, warn_of_tasks
from streamq.run.run_arguments import ResultRequest, written_results
from streamq.run.tables import is_dataframe, is_unlimited
from streamq.runtime.identity import Identity, OtherLayout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamq.compiler.results import Results
    from streamq.compiler.staged_plan import StagedPlan
    from streamq.operators import Source


@dataclass(frozen=True, kw_only=True)
class StreamRequest:
    """A request to run queries as one stream, with the arguments of ``verb``, which the user called.

    ``control`` is the folder for CTIs from outside, None for no folder. ``clock`` gives the time of day, if a source follows it.
    ``checkpoint`` is the path of a run's checkpoint. ``buckets``: None for
    those of the checkpoint or, if it is new, a default.
    """

    verb: str
    results: Sequence[ResultRequest]
    consistency: str | Consistency
    late_output: bool = False
    control: ControlFolder | None = None
    clock: ClockRows = ticking_clock
    buckets: int | None = None
    early: bool = False
    checkpoint: str | None = None


@dataclass(frozen=True, kw_only=True)
class PreparedStream:
    """Compiled queries with their tables as DataFrames, streaming ones for their sources, and a session that can run them.

    ``written`` are the queries as the user wrote them. ``stored`` is the identity of the checkpoint, None if it is new.
    """

    spark: SparkSession
    written: Results
    program: StagedPlan
    identity: Identity
    stored: Identity | OtherLayout | None
    tables: Mapping[str, DataFrame]
    control: ControlFolder | None
    clock: ClockRows

    @cached_property
    def rows(self) -> DataFrame:
        """The rows of results, late rows and totals, as ``build_frame`` returns them; a run may start them twice.

        Creates the control folder, if there is to be one.
        """
        from streamq.compiler.spark_paths import StreamLowering
        from streamq.compiler.streaming import build_frame
        from streamq.plan.lowering import in_utc

        if self.control is not None:
            self.control.create(self.spark)
        with in_utc(self.spark):
            control = None if self.control is None else self.control.stream(self.spark)
            clock = self.clock(self.spark) if self.program.clock_policies else None
            lowering = StreamLowering(self.program, self.tables)
            return build_frame(lowering, self.identity, control=control, clock=clock)

    @property
    def reads_all_at_once(self) -> bool:
        """True if the first micro-batch of "available_now" brings all input: no clock ticks, and no source has limits."""
        streams = [table for table in self.tables.values() if table.isStreaming]
        return not self.program.clock_policies and all(map(is_unlimited, streams))


def _warn_of_quarantine(program: StagedPlan, verb: str) -> None:
    """Warn of modules with ``on_error="quarantine"`` in a run without a late sink, where their first failure fails the query."""
    modules = program.quarantining
    if modules and not program.options.late_output:
        what = f"on_error='quarantine' of {', '.join(modules)} has no effect here, for there is no late_sink"
        hint = "Give late_sink, a path." if verb != "to_stream" else "A run has late_sink: .run(..., late_sink=path)."
        warn(sentence(verb, f"{what}: the first event that fails there fails the query", "", hint))


def prepare(request: StreamRequest) -> PreparedStream:
    """Compile queries for their session; raise PlanError, SessionError or CheckpointError if they cannot run as requested.

    The session gets the settings that streams need. Warns of many more tasks than run at once, and of modules whose failures
    are to be set aside where there is no late sink. Without ``buckets``, the number is that of the checkpoint, or a default.
    """
    from streamq.compiler.results import rewritten
    from streamq.compiler.stages import compile_stages
    from streamq.plan.node import number_sources

    verb, buckets = request.verb, request.buckets
    if buckets is not None and (not isinstance(buckets, int) or isinstance(buckets, bool) or buckets < 1):
        raise PlanError(sentence(verb, "buckets is a whole number of at least 1", f"found {buckets!r}"))
    written, options = written_results(request.results, request.consistency, request.early, verb)
    plan, names = number_sources(written)
    bound = tables_behind([result.query for result in request.results], verb)
    spark = session_of(bound.values(), verb)
    prepare_for_streams(spark, verb)
    warn_of_tasks(spark, verb)
    checkpoint = None if request.checkpoint is None else Checkpoint(spark, request.checkpoint)
    stored = None if checkpoint is None else checkpoint.stored()
    if buckets is None and isinstance(stored, Identity):
        buckets = stored.buckets
    options = replace(
        options,
        late_output=request.late_output,
        buckets=buckets or _default_buckets(spark),
        ansi=spark.conf.get("spark.sql.ansi.enabled") == "true",
    )
    program = compile_stages(rewritten(plan), options, plan)
    identity = identity_of(program)
    if (
        checkpoint is not None
        and isinstance(stored, Identity)
        and stored.mark != identity.mark
        and checkpoint.has_begun()
    ):
        program, identity = compile_to_fit(plan, options, stored)
    _warn_of_quarantine(program, verb)
    tables = {names[name]: table for name, table in bound.items() if name in names}
    return PreparedStream(
        spark=spark,
        written=written,
        program=program,
        identity=identity,
        stored=stored,
        tables=_Inputs(spark, verb, request.control).frames(plan, tables),
        control=request.control,
        clock=request.clock,
    )


def streaming_rows(request: StreamRequest) -> DataFrame:
    """Return the only result of a request, in its user's columns, as a streaming DataFrame; raise what ``prepare`` raises."""
    from streamq.compiler.egress import result_columns

    with spark_errors(request.verb, "Spark does not plan the query"):
        prepared = prepare(request)
        (result,) = prepared.program.results
        return result_columns(result).read(prepared.rows)


def _default_buckets(spark: SparkSession) -> int:
    """Return a number of buckets that keeps all tasks of a shuffle busy; each bucket costs some milliseconds a micro-batch.

    It is the number of tasks, because Spark gives each of them one bucket (``bucket_keys``).
    """
    from streamq.compiler.options import BUCKETS

    return min(BUCKETS, int(spark.conf.get("spark.sql.shuffle.partitions") or BUCKETS))


@dataclass(frozen=True)
class _Inputs:
    """Converts the tables of a query to DataFrames of its session; literal rows of sources go beside the control folder."""

    spark: SparkSession
    verb: str
    control: ControlFolder | None

    def frames(self, plan: Node, tables: Mapping[str, Any]) -> dict[str, DataFrame]:
        """Return the DataFrames of a plan's sources, which are streaming, and of its static tables, which are not.

        Raises PlanError for a source that is not streaming.
        """
        from streamq.compiler.streaming import check_streaming
        from streamq.operators import JoinTable, Source
        from streamq.plan.node import nodes

        frames: dict[str, DataFrame] = {}
        for node in nodes(plan):
            if isinstance(node, Source):
                table = tables[node.table]
                frames[node.table] = table if is_dataframe(table) else self._stream_of(node, table)
                check_streaming(node, frames[node.table], self.verb)
            elif isinstance(node, JoinTable):
                table = tables[node.table]
                frames[node.table] = table if is_dataframe(table) else as_dataframe(self.spark, table)
        return frames

    def _stream_of(self, source: Source, table: Any) -> DataFrame:
        """Return a literal table as a streaming DataFrame; the table is written once, and read as a stream of files.

        Raises CheckpointError if an earlier run has read other rows there or Spark cannot use the folder, PlanError without a
        control folder.
        """
        name = source.shown_name()
        if self.control is None:
            reason = "a checkpoint reads them from a folder that must be there as long as it is"
            raise PlanError(sentence(self.verb, f"source {name} has literal rows", reason, "Give control='a folder'."))
        path = f"{self.control.path.rstrip('/')}-literal-{name}"
        frame = as_dataframe(self.spark, table)
        written = self._written_rows(path)
        if written is None:
            with spark_errors(self.verb, f"Spark cannot read or write {path}", WRITABLE, CheckpointError):
                frame.coalesce(1).write.mode("overwrite").parquet(path)
        elif repr(written) != repr(frame.toArrow().to_pylist()):
            wrong = f"the rows of {name} are not those of the checkpoint"
            difference = f"the checkpoint's run has read {len(written)} row(s), now there are {table.num_rows}"
            hint = "Use a new checkpoint, or a DataFrame where rows are added."
            raise CheckpointError(sentence(self.verb, wrong, difference, hint))
        return self.spark.readStream.schema(frame.schema).parquet(path)

    def _written_rows(self, path: str) -> list[dict[str, Any]] | None:
        """Return the rows that an earlier run has written; None if there is no file."""
        from pyspark.errors import AnalysisException

        with spark_errors(self.verb, f"Spark cannot read or write {path}", WRITABLE, CheckpointError):
            try:
                return self.spark.read.parquet(path).toArrow().to_pylist()
            except AnalysisException:
                # there is no file yet
                return None
