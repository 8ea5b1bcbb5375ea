"""Running a query as a Structured Streaming query, and the handle of one that runs."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from streamq.errors import PlanError, sentence, users_line
from streamq.plan.node import Node
from streamq.plan.verbs import Verbs
from streamq.policies import Consistency
from streamq.run import monitoring
from streamq.run.checkpoint import CONTROL_DDL, Kept, claim, kept, mark_ended
from streamq.run.diagnosis import Why, why
from streamq.run.failure import spark_errors, translated
from streamq.run.idle import IdleWatch, spoken_for
from streamq.run.oddities import warn_of_units
from streamq.run.prepared import Prepared, temporary
from streamq.run.progress_log import ProgressLog
from streamq.run.query import cti_told, until_ticks
from streamq.run.sinks import Sink, check_arguments, folders, one_name, spark_trigger, split, written_to
from streamq.run.waiting import ENDED, FAILED, FINISHED, RUNNING, STOPPED
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.time import INFINITY, Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


class RunVerbs(Verbs):
    """``run`` and ``to_stream``."""

    def to_stream(
        self,
        *,
        consistency: str | Consistency = "middle",
        output: str = "final",
        ctis: bool = False,
        control: str | None = None,
        buckets: int | None = None,
    ) -> DataFrame:
        """The query as a streaming DataFrame for a ``writeStream`` of your own (output mode append).

        ``consistency``, ``output`` and ``ctis`` are those of :meth:`run`: "final" rows have payload, start, end; those of a
        "changelog" kind, payload, start, end, new_end; those of an "upsert" op, payload, start, end. ``control`` is a
        folder, made if need be, into which CTIs from outside can be written, as rows ``source string, cti bigint, until
        bigint``; it must live as long as the checkpoint, which goes on only with it if it began with it, and only without if
        without. ``buckets`` must stay what they were for as long as the checkpoint lives; by default they go by
        ``spark.sql.shuffle.partitions``. The query may be started on its checkpoint again, by this program or by another, with
        a new ``to_stream``; another query fails there in its first micro-batch with rows, with what has changed, as its state
        says whose it is. (A changelog of a query without any stateful operator has no state: a changed one simply goes on.)
        What is late or no event is left out, and counted nowhere: ``run`` does that.
        Raises PlanError where a source is not a streaming DataFrame, or literal without ``control``; SessionError where the
        session or its workers lack what a stream needs.

        ::

            rows = query.to_stream(output="changelog")
            rows.writeStream.format("parquet").option("path", out).option("checkpointLocation", folder).start()
        """
        from streamq.compiler.egress import user_rows

        with spark_errors("to_stream", "Spark does not plan the query"):
            prepared = Prepared("to_stream", self.plan, self.tables, output, ctis, False, control, buckets, consistency)
            return user_rows(prepared.results, prepared.program.plan.schema, prepared.egress)

    def run(
        self,
        *,
        name: str | None = None,
        checkpoint: str | None = None,
        consistency: str | Consistency = "middle",
        output: str = "final",
        ctis: bool = False,
        sink: Sink = None,
        trigger: Duration | None = None,
        late_sink: str | None = None,
        finish: bool = False,
        buckets: int | None = None,
        progress_log: bool = False,
    ) -> Run:
        """Start the query as a stream.

        output: what is written. "final": final rows, once each. "changelog": rows as soon as the watermark reaches them, of
        kind "insert", or "retract" where late or corrected input moves an end to ``new_end``, or takes the row back
        (``new_end`` is its start). "upsert": of each group and start the last state, op "upsert", or "delete" with NULL in
        all that is not in ``run.key``; for the aggregates of a window, under where and select.

        consistency: "middle" (at once, and repaired for as long as it takes), "strong" (only what disorder can no longer
        change), ``sq.weak(m)`` (repaired for ``m`` only, then forgotten) or ``sq.level(B, M)``; of final rows the first two
        are the same. It may be another in the next run on the checkpoint.

        ctis: a changelog also has rows of kind "cti", at most one a micro-batch: before their start nothing changes any
        more. One task writes it then, each micro-batch in order of sync time, the CTI last; at the strong level the whole
        changelog is in that order. That the input has ended is not said.

        sink: a path (Parquet), ``{"format": ..., option: ...}``, "memory" (a table called ``name``), "console", a function of
        (DataFrame, batch id), whose rows are computed once, or "noop", the default: results are computed and thrown away.
        checkpoint: required for a sink that lasts; a folder that is written into goes with it, for its micro-batches are
        numbered there. trigger: a duration such as "10 seconds", how often to look for input (default: at once, again and
        again), or "available_now": process what is there and return; with ``finish=True`` the stream has then ended, its last
        windows are flushed, and the checkpoint cannot be gone on with (the memory sink needs ``run.finish()`` instead); without
        it the next run on the checkpoint goes on. late_sink: a path for rows that were dropped, adjusted, duplicates or no
        events (source, reason, start and end in ticks, late_by in ticks behind the CTI, NULL for what is not late, payload as
        JSON); results and late rows then stand in folders ``streamq_batch=N``, each written once: Spark reads a column
        of that name, which every source of streamq leaves out.

        buckets: into how many parts groups are spread; each is a task's work, and costs some milliseconds a micro-batch. By
        default those of the checkpoint; of a new one four times ``spark.sql.shuffle.partitions``, 32 at most.

        progress_log: a line a micro-batch to the logger "streamq" (:meth:`Run.metrics` has more). Raises PlanError, also for an
        output that the query cannot have, CheckpointError, and QueryFailed or the query's own error once it runs. (SEMANTICS
        section 8; StreamInsight's physical streams.)

        ::

            with query.run(sink="out", checkpoint="checkpoint", trigger="10 seconds") as run:
                run.await_termination(600)
                print(run.late)
        """
        return Run(
            self.plan,
            self.tables,
            name,
            checkpoint,
            output,
            ctis,
            sink,
            trigger,
            late_sink,
            finish,
            buckets,
            consistency,
            progress_log,
        )


class Run:
    """A running query; also a context manager that stops it."""

    @spark_errors("run", "Spark does not start the query", "Look at the sink, its options, and the checkpoint.")
    def __init__(
        self,
        plan: Node,
        tables: Mapping[str, Any],
        name: str | None,
        checkpoint: str | None,
        output: str,
        ctis: bool,
        sink: Sink,
        trigger: Duration | None,
        late_sink: str | None,
        finish: bool,
        buckets: int | None,
        consistency: str | Consistency,
        progress_log: bool = False,
    ):
        check_arguments(sink, late_sink, checkpoint, trigger, finish, name)
        self._trigger = spark_trigger(trigger)
        self.name = name
        self._line = users_line()
        self.checkpoint = checkpoint or temporary("streamq-checkpoint-")
        self._sink, self._late_sink = sink, late_sink
        self._control = f"{self.checkpoint}/streamq/control"
        self._over = ""
        self._begun = time.time_ns() // 1_000_000
        _refuse_second(self.checkpoint)
        self._prepared = Prepared(
            "run",
            plan,
            tables,
            output,
            ctis,
            late_sink is not None,
            self._control,
            buckets,
            consistency,
            self.checkpoint,
        )
        self._program = self._prepared.program
        self._spark = self._prepared.spark
        written = folders(sink, late_sink)
        claimed = claim(self._spark, self.checkpoint, self._control, self._prepared.identity, written)
        # of a new checkpoint nothing is kept
        self._kept = Kept({}, {}) if claimed.new else None
        if claimed.ending:
            trigger, finish = "available_now", False
            self._trigger = spark_trigger(trigger)
        if progress_log and self._kept is None:
            # read before there is anything new, for lines tell what a micro-batch adds
            self._kept = kept(self._spark, self.checkpoint, self._program)
        before = self._kept.totals if self._kept is not None else {}
        self._seen, self._looking, self._warned = monitoring.Seen(late=before), threading.RLock(), False
        self.query: StreamingQuery = self._start()
        _RUNNING[one_name(self.checkpoint)] = self
        self._log = ProgressLog(self._spark, self._look) if progress_log else None
        allowed = monitoring.allowed_silence(self._program)
        self._idle = IdleWatch(allowed, self._silent, self._say) if allowed and trigger != "available_now" else None
        if trigger == "available_now":
            self.await_termination()
            if finish:
                self._look()
                self._say(None, INFINITY)
                self.query = self._start()
                self.await_termination()
            if finish or claimed.ending:
                self._ended()
            self._unlog()

    # control

    @spark_errors("finish")
    def finish(self, until: int | dt.datetime | None = None) -> None:
        """The input has ended: process what is there, flush the last windows, stop. Raises what the query failed with.

        ``until`` bounds the windows reported for lifetimes that never end, as in ``to_df``. Raises PlanError where the query
        no longer runs.
        """
        bound = until_ticks(until, self._program.plan.schema.axis)
        self.process_all_available()
        if not self.query.isActive:
            raise _over("finish", self._over or "trigger='available_now' has done all there was")
        self._say(None, INFINITY, bound)
        self.process_all_available()
        self.stop()
        self._ended()

    def _ended(self) -> None:
        mark_ended(self._spark, self.checkpoint)
        self._over = _FINISHED

    @spark_errors("advance")
    def advance(self, to: int | dt.datetime, source: str | None = None) -> None:
        """A CTI from outside: nothing before ``to`` will come any more (from ``source``, or from any).

        ``to`` is a datetime on a timestamp axis (naive ones are UTC), ticks on an integer axis. A CTI never moves back: a
        ``to`` before an earlier one, or before what the source has promised itself, has no effect. After an "available_now"
        run it acts in the next run on the checkpoint. Raises PlanError for a source that is not there or follows another, and
        after ``stop`` and ``finish``.
        """
        if self._over:
            raise _over("advance", self._over)
        self._say(*cti_told(self._program, to, source))

    @spark_errors("stop")
    def stop(self) -> None:
        """Stop the query; its checkpoint can be gone on with."""
        if self._idle is not None:
            self._idle.stop()
        self.query.stop()
        self._over = self._over or "stop was called on it"
        self._unlog()

    @spark_errors("query")
    def await_termination(self, timeout: int | None = None) -> bool:
        """Wait until the query ends (at most ``timeout`` seconds); whether it has. Raises what it failed with."""
        if timeout is not None:
            return bool(self.query.awaitTermination(timeout))
        self.query.awaitTermination()
        return True

    @spark_errors("query")
    def process_all_available(self) -> None:
        """Wait until everything that is in the sources now has been processed. For tests."""
        self.query.processAllAvailable()

    def _say(self, source: str | None, cti: int, until: int | None = None) -> None:
        if not self._program.stages:
            return
        rows = self._spark.createDataFrame([(source, cti, until)], CONTROL_DDL)
        rows.coalesce(1).write.mode("append").parquet(self._control)

    # looking

    def why(self) -> Why:
        """Why there is no output: what holds which window or row back, since when, and what would release it.

        Prints as text; ``to_dict()`` gives plain values, which docs/operations.md lists. Also says what is odd about a
        source's time: a start far ahead of all others, seconds read as microseconds, rows that are all late.

        ::

            print(run.why())
            # Rows are held back, waiting for a row of trips at or after 2024-05-01 12:15:00 (delay 5 minutes).
            # ...
        """
        state, over = self._state()
        return why(self._program, self._known(), state, over=over)

    @property
    def progress(self) -> dict[str, Any]:
        """The last micro-batch: its number, duration, rows, results and the sources' CTIs; Spark's report under "spark"."""
        return monitoring.progress(self._program, self._look())

    @property
    def metrics(self) -> dict[str, Any]:
        """What to monitor, as plain values that ``json.dumps`` takes: by source, by stage, and of the query.

        docs/operations.md lists the fields. Before the first micro-batch they are 0 or None.
        """
        state, _ = self._state()
        return monitoring.metrics(self._program, self._known(), state)

    @property
    def key(self) -> tuple[str, ...]:
        """Of ``output="upsert"``: the columns that tell rows apart, the groups' and ``start``. Else empty."""
        return self._prepared.egress.key

    @property
    def late(self) -> dict[str, int]:
        """What was not taken as it came, so far: ``"source|dropped"``, ``"source|adjusted"``, ``"source|invalid"`` to a count.

        And ``"source|duplicates"``, rows that repeat others. Earlier runs on the checkpoint are counted as well.
        """
        counts = self._known().late
        return {key: counts.get(key, 0) for key in self._program.late_reasons}

    def _known(self) -> monitoring.Seen:
        """What Spark has reported; what came before this run's first micro-batch the checkpoint knows."""
        seen = self._look()
        if seen.told:
            return seen
        if self._kept is None:
            self._kept = kept(self._spark, self.checkpoint, self._program)
        return replace(seen, late=self._kept.totals, told=self._kept.told)

    def _look(self) -> monitoring.Seen:
        """What Spark has reported so far; it keeps a hundred reports."""
        with self._looking:
            last = self.query.lastProgress
            if last is not None and last.batchId > self._seen.number:
                few = last.batchId == self._seen.number + 1
                for report in [last] if few else self.query.recentProgress:
                    seen = self._seen.after(monitoring.from_spark(json.loads(report.json)))
                    if seen is not self._seen and self._log is not None:
                        self._log.say(monitoring.line(self._program, seen, self.name))
                    self._seen = seen
                readings = monitoring.sources(self._program, self._seen).values()
                if not self._warned and any(reading.rows for reading in readings):
                    self._warned = True
                    warn_of_units(list(readings), self._program.plan.schema.axis, self._line)
            return self._seen

    def _silent(self) -> dict[str, int] | None:
        """What to say for silent sources, by table; None where the run is over."""
        if not self.query.isActive:
            return None
        readings = monitoring.sources(self._program, self._look())
        allowed = monitoring.allowed_silence(self._program)
        now = time.time_ns() // 1_000_000
        found = spoken_for(readings, allowed, self._begun, now, monitoring.followers(self._program))
        tables = {r.name: r.source.table for r in self._program.sources if r.source}
        return {tables[name]: cti for name, cti in found.items()}

    def _state(self) -> tuple[str, str]:
        """The state of the run, and what it failed with or why it is over."""
        if self.query.isActive:
            return RUNNING, ""
        error = self.query.exception()
        if error is not None:
            return FAILED, str(translated(error))
        if self._over == _FINISHED:
            return FINISHED, self._over
        if self._trigger == {"availableNow": True} and not self._over:
            return ENDED, ""
        return STOPPED, self._over or "it was stopped"

    def _unlog(self) -> None:
        if self._log is not None:
            self._look()
            self._log.remove()
            self._log = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Run({self.name or self.query.id}, {'active' if self.query.isActive else 'ended'})"

    # starting

    def _start(self) -> StreamingQuery:
        from pyspark.sql import functions as F

        from streamq.compiler.egress import user_rows

        schema, out = self._program.plan.schema, self._prepared.egress
        # a CTI travels as an empty lifetime
        weight = F.when(F.col(RE) > F.col(LE), F.col(WEIGHT))
        counted = [
            F.sum(F.when(weight > 0, weight)).alias("inserted"),
            F.sum(F.when(weight < 0, -weight)).alias("retracted"),
        ]
        if self._program.stages:
            counted += [
                F.sum(F.when(F.col("__total_key") == key, F.col("__total"))).alias(key)
                for key in self._program.late_reasons
            ]
        df = self._prepared.results.observe(monitoring.RESULTS, *counted)
        if self._late_sink is not None:
            writer = df.writeStream.foreachBatch(split(schema, out, self._sink, self._late_sink))
        else:
            writer = written_to(user_rows(df, schema, out).writeStream, self._sink)
        if self.name:
            writer = writer.queryName(self.name)
        if self._trigger:
            writer = writer.trigger(**self._trigger)
        return writer.outputMode("append").option("checkpointLocation", self.checkpoint).start()


_FINISHED = "its stream has ended"

_RUNNING: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()
"""The last run of this process on each checkpoint."""


def _refuse_second(checkpoint: str) -> None:
    """Raise PlanError where a run of this process is still on the checkpoint: Spark would stop it without a word."""
    other = _RUNNING.get(one_name(checkpoint))
    if other is not None and other.query.isActive:
        raise PlanError(
            sentence(
                "run", "another run is on this checkpoint", f"found {checkpoint}", "Call stop() on that run first."
            )
        )


def _over(verb: str, why: str) -> PlanError:
    hint = "" if why == _FINISHED else "Run the query on its checkpoint again."
    return PlanError(sentence(verb, "the run is over", why, hint))
