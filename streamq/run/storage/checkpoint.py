"""A run's checkpoint: the identity of its query, the counts of earlier runs, and the control folder with CTIs from outside."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamq.compiler.staged_plan import StagedPlan
from streamq.compiler.state_names import query_text
from streamq.errors import CheckpointError, PlanError, TimeError
from streamq.plan.schema import MICRO_BATCH
from streamq.run.status.run_status import RunHistory
from streamq.run.storage.files import last_number, path_exists, read_line, write_line
from streamq.runtime.hosts.identity import (
    STATE_VERSION,
    Identity,
    OtherLayout,
    ResultState,
    fit_to_state,
    identity_from,
)
from streamq.runtime.hosts.processor import STATE
from streamq.runtime.hosts.readings import LATE_COUNTS, LATEST, Reading, combine_readings
from streamq.runtime.state.baskets import Baskets
from streamq.time import INFINITY, MINUS_INFINITY, instant_ticks

ClockRows = Callable[["SparkSession"], "DataFrame"]
"""A clock: of a session, a streaming DataFrame of rows ``now bigint``, in microseconds since 1970."""

TICK = 1_000_000
"""The length of time between two ticks, in microseconds: Spark's ``rate`` source counts whole seconds."""


def ticking_clock(spark: SparkSession) -> DataFrame:
    """Return a streaming DataFrame of rows ``now bigint``, in microseconds since 1970: one for each second that has passed.

    The first comes a second after the first start on a checkpoint; after a stop those of all the time since come at once. The
    seconds are in the offsets that Spark keeps of each micro-batch, so one that is repeated sees the same time of day.
    """
    rows = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    # a row has the instant at which its second began, and is there once that is over
    return rows.select((F.unix_micros("timestamp") + TICK).alias("now"))


CONTROL_DDL = "source string, cti bigint, until bigint, idle_before bigint, tap string"
"""The columns of the folder's rows; a NULL source stands for every source. A row with a ``tap``, as JSON, says nothing else."""


@dataclass(frozen=True)
class OutsideCti:
    """A CTI from outside the sources, for the source with the table ``table`` (None: for every source).

    ``until`` bounds the windows that are reported for lifetimes without an end, where the CTI ends the input. Parts of the source
    that were last heard of before the round ``idle_before`` are idle.
    """

    table: str | None
    cti: int = MINUS_INFINITY
    until: int | None = None
    idle_before: int = 0

    @property
    def row(self) -> tuple[object, ...]:
        """The values of its row, in the order of CONTROL_DDL."""
        return self.table, self.cti, self.until, self.idle_before, None


END_OF_INPUT = OutsideCti(None, INFINITY)
"""The CTI that ends the input of all sources."""


@dataclass(frozen=True)
class TapCommand:
    """A command to every bucket: report the rows of an operator in the next ``micro_batches`` of them; 0 ends the tap.

    ``tap`` identifies the tap, ``operator`` is the name of the kernel's state. At most ``rows`` rows are reported of each input,
    and of the output, by each bucket in each micro-batch.
    """

    tap: str
    operator: str
    rows: int
    micro_batches: int

    @property
    def row(self) -> tuple[object, ...]:
        """The values of its row, in the order of CONTROL_DDL."""
        return None, None, None, None, json.dumps(asdict(self))


@dataclass(frozen=True)
class ControlFolder:
    """The folder into which messages from outside are written, and from which a query reads them as a stream."""

    path: str

    def create(self, spark: SparkSession) -> None:
        """Create the folder, so that a stream can read it, unless a CTI has been sent there before."""
        if not path_exists(spark, self.path):
            _rows(spark, OutsideCti(None)).limit(0).write.parquet(self.path)

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the folder's rows as a streaming DataFrame."""
        return spark.readStream.schema(CONTROL_DDL).parquet(self.path)

    def send(self, spark: SparkSession, message: OutsideCti | TapCommand) -> None:
        """Write a message; the query reads it in its next micro-batch."""
        _rows(spark, message).write.mode("append").parquet(self.path)

    def has_end(self, spark: SparkSession) -> bool:
        """Return True if the CTI that ends the input has been sent."""
        ends = spark.read.schema(CONTROL_DDL).parquet(self.path).where(f"cti = {INFINITY}")
        return bool(ends.limit(1).collect())


def _rows(spark: SparkSession, message: OutsideCti | TapCommand) -> DataFrame:
    """Return a message as the only row of the folder's columns, made by Spark, because rows of Python take a job more."""
    columns = [column.split() for column in CONTROL_DDL.split(", ")]
    return spark.range(0, 1, 1, 1).select(
        *(F.lit(value).cast(kind).alias(name) for value, (name, kind) in zip(message.row, columns, strict=True))
    )


def outside_cti(program: StagedPlan, to: int | dt.datetime, source: str | None) -> OutsideCti:
    """Return the CTI that a user sends by ``advance``; ``source`` None: for every source.

    Raises PlanError for a source that does not exist or follows another, TimeError for a wrong instant.
    """
    cti = instant_ticks(to, program.axis, "advance")
    if cti is None:
        hint = "To end the input, call run.finish()."
        raise TimeError("advance", "no instant", "found None", hint)
    if source is None:
        return OutsideCti(None, cti)
    sources = {r.source.shown_name(): r.source for r in program.sources if r.source}
    if source not in sources:
        raise PlanError("advance", f"no source {source!r}", f"there are: {', '.join(sources)}")
    if sources[source].policy.progress.leader is not None:
        wrong = f"source {source!r} has the progress of another source"
        raise PlanError("advance", wrong, "", "Name the source that it follows.")
    return OutsideCti(sources[source].table, cti)


MIGRATION = "migration.json"
"""The file, beside the identity, of a checkpoint whose state a migration computes, or has computed."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The permission to run on a checkpoint.

    ``is_new``: no run has read any input there. ``has_begun``: some run may have. ``is_ending``: the end of the input has been
    sent, but not all rows have been written. ``new_results``: the numbers of the results that begin where the checkpoint stands.
    """

    is_new: bool
    has_begun: bool = False
    is_ending: bool = False
    new_results: tuple[int, ...] = ()


def identity_of(program: StagedPlan) -> Identity:
    """Return the identity of compiled queries."""
    options = program.options
    results = [
        ResultState(
            output=result.egress.output,
            ctis=result.egress.ctis,
            operators=program.operators_under(result),
            query=query_text(program.written.inputs[result.number]),
        )
        for result in program.results
    ]
    return Identity(
        query=program.plan.digest,
        operators=tuple(program.states),
        results=tuple(results),
        stages=len(program.stages),
        sources=tuple(relation.source.table for relation in program.sources if relation.source),
        buckets=options.buckets,
        late_sink=options.late_output,
        early=options.early,
        blocks=options.counted_level.block != 0,
        clock=bool(program.clock_policies),
        expected="" if options.expected is None else options.expected.to_json(),
    )


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder: Spark's own files, and in ``streamq/`` the identity of its query and its control folder."""

    spark: SparkSession
    path: str

    @property
    def control(self) -> ControlFolder:
        """The folder for CTIs from outside."""
        return ControlFolder(f"{self.path}/streamq/control")

    def stored(self) -> Identity | OtherLayout | None:
        """Return the identity of the query whose state is stored; None if the checkpoint is new.

        That is the last query of which a micro-batch has been committed, or else the first.
        """
        line = read_line(self.spark, self._identity)
        return None if line is None else self._owner(json.loads(line))

    def _owner(self, fields: dict[str, Any]) -> Identity | OtherLayout:
        """Return the identity that counts of those in the checkpoint's file: of the query now, or of the one before."""
        if fields.get("version") != STATE_VERSION:
            return OtherLayout(fields.get("version"))
        is_pending = fields["before"] is not None and self.last_commit() <= fields["after"]
        return identity_from(fields["before"] if is_pending else fields["now"])

    def last_commit(self) -> int:
        """Return the number of the last committed micro-batch; -1 if there is none."""
        return last_number(self.spark, f"{self.path}/commits")

    def last_planned(self) -> int:
        """Return the number of the last micro-batch that Spark has planned; -1 if there is none."""
        return last_number(self.spark, f"{self.path}/offsets")

    def has_begun(self) -> bool:
        """Return True if a run has read any input."""
        return path_exists(self.spark, f"{self.path}/offsets/*")

    def claim(self, own: Identity, stored: Identity | OtherLayout | None, verb: str) -> Claim:
        """Mark the checkpoint as this query's, if it is unused or fits; raise CheckpointError if not, and if it has ended.

        A checkpoint counts as unused if its runs have read no input, and as another query's if it is a writeStream's. ``stored``
        is the identity there. New folders must not belong to another checkpoint. In case of an error, worded for ``verb``, the
        checkpoint does not change.
        """
        if stored is None:
            if path_exists(self.spark, f"{self.path}/streamq/{MIGRATION}"):
                wrong, hint = "the migration into the checkpoint is not done", "Call sq.migrate again."
                raise CheckpointError(verb, wrong, f"found {self.path}", hint)
            if path_exists(self.spark, f"{self.path}/metadata"):
                hint = "Use a new checkpoint, or to_stream() and a writeStream."
                wrong = "the checkpoint is that of a writeStream"
                raise CheckpointError(verb, wrong, f"found {self.path}", hint)
            # a run that was interrupted while it marked the checkpoint has done nothing yet
            return self._claim_new(own, verb)
        is_ending = self.control.has_end(self.spark)
        is_same = isinstance(stored, Identity) and (stored.mark, stored.folders) == (own.mark, own.folders)
        has_begun = (is_same and not is_ending) or self.has_begun()
        if not is_same and not has_begun:
            # an earlier start failed before it read any input, and its query or sink has been changed since
            return replace(self._claim_new(own, verb), is_ending=is_ending)
        if is_ending:
            self.check_not_ended(verb)
        fit = fit_to_state(stored, own)
        fit.check(verb)
        assert isinstance(stored, Identity)
        if not is_same or self._last_claim() != stored:
            # another query may have marked the checkpoint since, without a micro-batch of its own
            self._go_on(own, stored, verb)
        return Claim(is_new=False, has_begun=has_begun, is_ending=is_ending, new_results=fit.new_results)

    def check_not_ended(self, verb: str) -> None:
        """Raise CheckpointError if the input has ended and all rows are written."""
        if read_line(self.spark, self._ended) is not None:
            hint = "Use a new checkpoint, and a new sink."
            raise CheckpointError(verb, "the checkpoint's stream has ended", "finish was called on it", hint)

    def _go_on(self, own: Identity, stored: Identity, verb: str) -> None:
        """Mark the checkpoint as that of a query that goes on from the state of another, or into other folders.

        Raises CheckpointError for a new folder that is not empty, and for one with rows of another form. Until a micro-batch is
        committed, the checkpoint is that of the query before as well.
        """
        mine = {**dict(self._last_claim().folders), **dict(stored.folders)}
        for folder, form in own.folders:
            if folder not in mine:
                _refuse_used_sink(self.spark, folder, verb)
            elif mine[folder] != form:
                wrong = "a sink has rows of another form"
                observed = f"{folder} has {mine[folder]}, and would get {form}"
                raise CheckpointError(verb, wrong, observed, "Use a new sink.")
        self.mark(own, stored, self.last_commit())

    def _last_claim(self) -> Identity:
        """Return the identity of the query that has marked the checkpoint last, whether it has committed anything or not."""
        line = read_line(self.spark, self._identity)
        assert line is not None
        identity = identity_from(json.loads(line)["now"])
        assert isinstance(identity, Identity)
        return identity

    def mark(self, now: Identity, before: Identity | None = None, after: int = -1) -> None:
        """Mark the checkpoint as that of a query now and, until a micro-batch after ``after`` is committed, of the one before."""
        fields = {"version": STATE_VERSION, "now": now, "before": before, "after": after}
        write_line(self.spark, self._identity, json.dumps(fields, default=asdict))

    def mark_ended(self) -> None:
        """Record that the input has ended and all rows are written."""
        write_line(self.spark, self._ended, "ended")

    def earlier_runs(self, program: StagedPlan) -> RunHistory:
        """Return the late rows and the last readings of earlier runs, which Spark's state reader reads in the last micro-batch.

        They are empty if no micro-batch has been committed.
        """
        if not path_exists(self.spark, f"{self.path}/commits/*"):
            return RunHistory()
        late: dict[str, int] = {}
        columns: list[dict[str, Reading]] = []
        for stage in program.stages:
            for manifest in self.manifests(stage.number):
                # Spark may number operators in another order, so look at the names in every state
                for name, values in manifest["values"].items():
                    if name == LATEST:
                        columns.append(values)
                    for reason, count in values.items() if name == LATE_COUNTS else ():
                        late[reason] = late.get(reason, 0) + count
        return RunHistory(late=late, readings=combine_readings(columns))

    def chunks(self, operator: int) -> DataFrame:
        """Return the state of one of Spark's stateful operators: the ``key`` of the bucket, a ``chunk``'s name, its ``body``."""
        reader = self.spark.read.format("statestore").option("stateVarName", STATE)
        state = reader.option("operatorId", operator).load(self.path)
        key, name, body = F.col("key")["__to"], F.col("user_map_key.key"), F.col("user_map_value.chunk")
        return state.select(key.alias("key"), name.alias("chunk"), body.alias("body"))

    def manifests(self, operator: int) -> list[dict[str, Any]]:
        """Return the manifest of each bucket in the state of one of Spark's stateful operators."""
        rows = self.chunks(operator).where(f"chunk = '{Baskets.MANIFEST}'").select("body").collect()
        return [json.loads(bytes(body)) for (body,) in rows]

    @property
    def _identity(self) -> str:
        return f"{self.path}/streamq/identity"

    @property
    def _ended(self) -> str:
        return f"{self.path}/streamq/ended"

    def _claim_new(self, own: Identity, verb: str) -> Claim:
        """Mark the checkpoint as this query's; raise CheckpointError, before that, for a sink that is not empty."""
        for folder, _ in own.folders:
            _refuse_used_sink(self.spark, folder, verb)
        self.mark(own)
        return Claim(is_new=True)


def _refuse_used_sink(spark: SparkSession, sink: str, verb: str) -> None:
    """Raise CheckpointError for a folder with micro-batches, or with files whose names begin with neither dot nor underscore.

    If it holds micro-batches of another checkpoint, Spark would skip micro-batches with the same numbers, and folders
    ``streamq_batch=N`` would be overwritten. Other files, such as the input's, would be hidden, as Spark reads only files in the
    sink's log.
    """
    if not path_exists(spark, f"{sink}/{{_spark_metadata,[^._]*}}"):
        return
    for trace in ("_spark_metadata", f"{MICRO_BATCH}=*"):
        path = f"{sink}/{trace}"
        if path_exists(spark, path):
            wrong, hint = "the sink has micro-batches of another checkpoint", "the checkpoint that it belongs to"
            raise CheckpointError(verb, wrong, f"found {path}", f"Use a new sink, or {hint}.")
    wrong, hint = "the sink has files of others", "Use a new folder: Spark would no longer see them."
    raise CheckpointError(verb, wrong, f"found some in {sink}", hint)
