"""The verbs that make a stream of a query: ``run`` and ``to_stream``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamq.plan.verbs import Verbs
from streamq.policies import Consistency
from streamq.time import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamq.run.running import Run
    from streamq.run.sinks import SinkArgument


class RunVerbs(Verbs):
    """The verbs ``run`` and ``to_stream``."""

    def to_stream(
        self,
        *,
        consistency: str | Consistency = "middle",
        output: str = "final",
        ctis: bool = False,
        control: str | None = None,
        buckets: int | None = None,
        early: bool = False,
    ) -> DataFrame:
        """The query as a streaming DataFrame for a ``writeStream`` of your own (output mode append).

        ``consistency``, ``output``, ``ctis`` and ``early`` are those of :meth:`run`: "final" rows have payload, start, end; those
        of a "changelog" kind, payload, start, end, new_end; those of an "upsert" op, payload, start, end. ``control`` is a
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
        from streamq.run.control import ControlFolder
        from streamq.run.failure import spark_errors
        from streamq.run.prepared_stream import StreamRequest, prepare
        from streamq.run.run_arguments import ResultRequest

        request = StreamRequest(
            verb="to_stream",
            results=[ResultRequest(query=self, output=output, ctis=ctis)],
            consistency=consistency,
            control=None if control is None else ControlFolder(control),
            buckets=buckets,
            early=early,
        )
        with spark_errors("to_stream", "Spark does not plan the query"):
            prepared = prepare(request)
            (result,) = prepared.program.results
            return user_rows(prepared.rows, result)

    def run(
        self,
        *,
        name: str | None = None,
        checkpoint: str | None = None,
        consistency: str | Consistency = "middle",
        output: str = "final",
        ctis: bool = False,
        sink: SinkArgument = None,
        trigger: Duration | None = None,
        late_sink: str | None = None,
        finish: bool = False,
        buckets: int | None = None,
        progress_log: bool = False,
        early: bool = False,
    ) -> Run:
        """Start the query as a stream.

        output: what is written. "final": final rows, once each. "changelog": rows as soon as the watermark reaches them, of
        kind "insert", or "retract" where late or corrected input moves an end to ``new_end``, or takes the row back
        (``new_end`` is its start). "upsert": of each group and start the last state, op "upsert", or "delete" with NULL in
        all that is not in ``run.key``; for the aggregates of a window, under where and select.

        consistency: "middle" (at once, and repaired for as long as it takes), "strong" (only what disorder can no longer
        change), ``sq.weak(m)`` (repaired for ``m`` only, then forgotten) or ``sq.level(B, M)``; of final rows the first two
        are the same. It may be another in the next run on the checkpoint.

        early: a changelog, and upserts, have a window as soon as it has a member, and every other row as soon as it is there, not
        only once the watermark reaches its end: after each micro-batch what they tell is the batch answer over the rows so far,
        but for what waits until ends that are read no longer move. At "middle" and ``sq.weak(m)``, which hold nothing back.

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
        JSON; of a source that may retract also kind and new_end, so that its rows can be replayed), and for events that modules
        with ``on_error="quarantine"`` failed for (source is the module; window_start, window_end, group as JSON), which
        :meth:`quarantine` reads; results and late rows then stand in folders ``streamq_batch=N``, each written once: Spark reads
        a column of that name, which every source of streamq leaves out.

        buckets: into how many parts groups are spread; each is a task's work, and costs some milliseconds a micro-batch. By
        default those of the checkpoint; of a new one four times ``spark.sql.shuffle.partitions``, 32 at most.

        progress_log: a line a micro-batch to the logger "streamq" (:meth:`Run.metrics` has more). Raises PlanError, also for an
        output that the query cannot have, CheckpointError, and QueryFailed or the query's own error once it runs.
        (docs/concepts.md, "Final rows, changelogs, upserts".)

        ::

            with query.run(sink="out", checkpoint="checkpoint", trigger="10 seconds") as run:
                run.await_termination(600)
                print(run.late)
        """
        from streamq.run.run_arguments import ResultRequest, RunArguments
        from streamq.run.running import start_run

        arguments = RunArguments(
            verb="run",
            results=(ResultRequest(query=self, output=output, ctis=ctis, sink=sink),),
            name=name,
            checkpoint=checkpoint,
            consistency=consistency,
            trigger=trigger,
            late_sink=late_sink,
            finish=finish,
            buckets=buckets,
            progress_log=progress_log,
            early=early,
        )
        return start_run(arguments)
