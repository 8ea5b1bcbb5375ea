"""The verbs that run a query as a stream: ``run`` and ``to_stream``."""

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
        """Return the query as a streaming DataFrame for a ``writeStream`` of your own (output mode append).

        ``consistency``, ``output``, ``ctis`` and ``early`` are those of :meth:`run`. "final" rows have payload, start,
        end; rows of a "changelog" have kind, payload, start, end, new_end; rows of an "upsert" have op, payload, start, end.
        ``control`` is a folder, created if it does not exist, into which CTIs from outside can be written, as rows ``source
        string, cti bigint, until bigint``; it must exist as long as the checkpoint, which can only be continued with it if it
        was begun with it, and only without it if it was not. ``buckets`` must not change as long as the checkpoint exists; the
        default depends on ``spark.sql.shuffle.partitions``. The query may be
        started on its checkpoint again, by this program or another, with a new ``to_stream``. A changed query goes on there if
        every operator with state is in the stage that has its state; else it fails in its first micro-batch with rows, with a
        message on which operator lacks its state and why. Late and invalid rows are dropped without being counted; ``run`` counts
        them. Raises PlanError if a source is not a streaming DataFrame, or is literal without ``control``; SessionError if the
        session or its workers lack what a stream needs.

        ::

            rows = query.to_stream(output="changelog")
            rows.writeStream.format("parquet").option("path", out).option("checkpointLocation", folder).start()
        """
        from streamq.run.prepared_stream import streaming_rows
        from streamq.run.run_options import ResultRequest, RunOptions

        options = RunOptions(
            verb="to_stream",
            results=(ResultRequest(query=self, output=output, ctis=ctis),),
            consistency=consistency,
            control=control,
            buckets=buckets,
            early=early,
        )
        return streaming_rows(options)

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
        """Start the query as a stream, and return its :class:`Run`.

        output: the form of the output. "final": final rows, once each. "changelog": rows as soon as the watermark reaches them,
        of kind "insert", or "retract" if late or corrected input moves an end to ``new_end``, or takes the row back
        (``new_end`` is then its start). "upsert": the latest state of each group and start, with op "upsert", or "delete" with
        NULL in all columns that are not in ``run.key``; for aggregates of a window, also under where and select.

        consistency: "middle" (rows at once, repaired at any later time), "strong" (only rows that disorder can no longer
        change), ``sq.weak(m)`` (repaired within ``m`` only, then forgotten) or ``sq.level(B, M)``; for final rows the first two
        are the same. The next run on the checkpoint may use another level.

        early: a changelog, and upserts, contain a window as soon as it has a member, and any other row as soon as it exists, and
        not only once the watermark reaches its end. After each micro-batch they give the batch answer over the rows so far.
        Allowed at "middle" and ``sq.weak(m)``, which do not hold rows.

        ctis: a changelog also has rows of kind "cti", at most one in each micro-batch: nothing before their start changes any
        more. One task then writes each micro-batch in order of sync time, the CTI last; at the strong level the whole
        changelog is in that order. There is no row for the end of the input.

        sink: a path (Parquet), ``{"format": ..., option: ...}``, "memory" (a table with the name ``name``), "console", a function
        of (DataFrame, batch id), whose rows are computed once, or "noop", the default: results are computed and not written.
        checkpoint: required for a sink that outlasts the process; a sink's folder belongs to one checkpoint, which numbers its
        micro-batches. A changed query goes on from it if its operators with state find theirs there; the error names the one
        that does not, and why, and :func:`migrate` is then the way (docs/operations.md, "A query that changes").
        trigger: a duration such as "10 seconds" between two looks for input (default: without a pause); "adaptive": m
        micro-batches in each hop of the windows, with the m for which the results of a hop come soonest, into sinks that
        :func:`run_all` allows (docs/operations.md, "How soon a result is there"); or "available_now": process the available input
        and return. With ``finish=True`` the stream ends with it: its last windows are flushed (in the same micro-batch, if the
        sources are folders of files without a limit), and the checkpoint cannot be continued (the memory sink needs
        ``run.finish()`` instead); without it the next run on the checkpoint continues.

        late_sink: a path for rows that were dropped, adjusted, duplicates or invalid (source, reason, start and end in
        ticks, late_by in ticks before the CTI, NULL for rows that are not late, payload as JSON; of a source that may retract
        also kind and new_end, so that its rows can be replayed), and for events that modules with ``on_error="quarantine"``
        failed for (source is the module; window_start, window_end, group as JSON), which :meth:`quarantine` reads. Then, and with
        the trigger "adaptive", results and late rows are in folders ``streamq_batch=N``, each written once; Spark reads a column
        of that name, which every source of streamq leaves out.

        buckets: the number of parts into which groups are spread, over as many tasks as Spark had shuffle partitions when the
        checkpoint began; each part costs some milliseconds a micro-batch. A checkpoint has its number for life, which is the
        default there; :func:`migrate` computes the state anew in another one. For a new checkpoint the default is
        ``spark.sql.shuffle.partitions``, at most 32.

        progress_log: write a line for each micro-batch to the logger "streamq" (:meth:`Run.metrics` has more). Raises PlanError,
        also for an output that the query cannot have, CheckpointError, and QueryFailed or the query's own error once it runs.
        (docs/concepts.md, "Final rows, changelogs, upserts".)

        ::

            with query.run(sink="out", checkpoint="checkpoint", trigger="10 seconds") as run:
                run.await_termination(600)
                print(run.late)
        """
        from streamq.run.run_options import ResultRequest, RunOptions
        from streamq.run.starting import start_run

        options = RunOptions(
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
        return start_run(options)
