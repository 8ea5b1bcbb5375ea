"""The verbs that run queries as streams: ``run`` and ``to_stream``, and ``run_all`` for several queries as one stream.

As one stream, common parts are read, computed and kept once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from streamq.errors import PlanError, check_keywords, kind_of
from streamq.plan.footprint import Expected
from streamq.plan.node import Verbs, not_a_stream
from streamq.policies import Consistency
from streamq.run.publication_sink import publication_sink
from streamq.run.run_options import ResultRequest, RunOptions, split_sink
from streamq.run.sink_arguments import SinkArgument
from streamq.time import Duration

if TYPE_CHECKING:
    from streamq.run.running import Run


class RunVerbs(Verbs):
    """The verbs ``run`` and ``to_stream``."""

    def to_stream(
        self,
        *,
        consistency: str | Consistency = "middle",
        output: str = "final",
        ctis: bool = False,
        stamped: bool = False,
        key: str | Sequence[str] = (),
        control: str | None = None,
        buckets: int | None = None,
        early: bool = False,
    ) -> DataFrame:
        """Return the query as a streaming DataFrame for a ``writeStream`` of your own (output mode append).

        ``consistency``, ``output``, ``key``, ``ctis``, ``stamped`` and ``early`` are those of :meth:`run`. "final" rows have
        payload, start, end; rows of a "changelog" have kind, payload, start, end, new_end, and sent if they are stamped; rows
        of an "upsert", and "latest" rows, have op, payload, start, end. ``control`` is a folder, created if it does not exist,
        into which CTIs from outside can be written, as rows ``source string, cti bigint, until bigint``; it must exist as long
        as the checkpoint, which can only be continued with it if it was begun with it, and only without it if it was not.
        ``buckets`` must not change as long as the checkpoint exists; the default depends on ``spark.sql.shuffle.partitions``.
        The query may be started on its checkpoint again, by this program or another, with a new ``to_stream``. A changed query
        goes on there if every operator with state is in the stage that has its state; else it fails in its first micro-batch
        with rows, with a message on which operator lacks its state and why. Late and invalid rows are dropped without being
        counted; ``run`` counts them. Raises PlanError if a source is not a streaming DataFrame, or is literal without
        ``control``; SessionError if the session or its workers lack what a stream needs.

        ::

            rows = query.to_stream(output="changelog")
            rows.writeStream.format("parquet").option("path", out).option("checkpointLocation", folder).start()
        """
        from streamq.run.prepared_stream import streaming_rows

        return streaming_rows(RunOptions.from_call("to_stream", locals()))

    def run(
        self,
        *,
        name: str | None = None,
        checkpoint: str | None = None,
        consistency: str | Consistency = "middle",
        output: str = "final",
        ctis: bool = False,
        stamped: bool = False,
        key: str | Sequence[str] = (),
        sink: SinkArgument = None,
        trigger: Duration | None = None,
        late_sink: str | None = None,
        finish: bool = False,
        buckets: int | None = None,
        progress_log: bool = False,
        early: bool = False,
        expected: Expected | None = None,
    ) -> Run:
        """Start the query as a stream, and return its :class:`Run`.

        output: the rows that are written. "final": final rows, once each. "changelog": rows as soon as the watermark reaches
        them, of kind "insert", or "retract" if late or corrected input moves an end to ``new_end``, or takes the row back
        (``new_end`` is then its start). "upsert": the latest state of each group and start, with op "upsert", or "delete" with
        NULL in all columns that are not in ``run.key``; for aggregates of a window, also under where and select. "latest": the
        same columns for one row a ``key``, the one that starts last of those not taken back (of one start that which ends last,
        then the greatest payload): the current value. ``key`` names its columns; left out, it is that of the groups.

        consistency: "middle" (rows at once, repaired at any later time), "strong" (only rows that disorder can no longer
        change), ``sq.weak(m)`` (repaired within ``m`` only, then forgotten) or ``sq.level(B, M)``; for final rows the first two
        are the same. The next run on the checkpoint may use another level.

        early: a changelog, and upserts, contain a window as soon as it has a member, and any other row as soon as it exists, and
        not only once the watermark reaches its end. After each micro-batch they give the batch answer over the rows so far.
        Allowed at "middle" and ``sq.weak(m)``, which do not hold rows.

        ctis: a changelog also has rows of kind "cti", at most one in each micro-batch: nothing before their start changes any
        more. One task then writes each micro-batch in order of sync time, the CTI last; at the strong level the whole
        changelog is in that order. The last row, of kind "end", says that the input has ended.

        stamped: a changelog's rows also have a column ``sent``: the instant at which the micro-batch that sent them began, by the
        driver's clock, and the same if that micro-batch is repeated after a crash. ``sq.physical(rows, as_of=t)`` reads the
        changelog as it stood at ``t``.

        sink: a path (Parquet), :func:`files`, :func:`kafka`, :func:`merge_into`, :func:`postgres` or :func:`sql_table`,
        ``{"format": ..., option: ...}``, "memory" (a table with the name ``name``), "console", a function
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

        expected: an ``sq.Expected``, by which inner joins, and the parts of a SEQUENCE, are joined in the order of fewest pairs,
        as :meth:`explain` shows; a checkpoint keeps the order with which it has begun.

        progress_log: write a line for each micro-batch to the logger "streamq" (:meth:`Run.metrics` has more). Raises PlanError,
        also for an output that the query cannot have, CheckpointError, and QueryFailed or the query's own error once it runs.
        (docs/concepts.md, "Final rows, changelogs, upserts".)

        ::

            with query.run(sink="out", checkpoint="checkpoint", trigger="10 seconds") as run:
                run.await_termination(600)
                print(run.late)
        """
        from streamq.run.running import start_run

        return start_run(RunOptions.from_call("run", locals()))


@check_keywords
def result(
    query: Verbs,
    *,
    name: str | None = None,
    sink: SinkArgument = None,
    output: str = "final",
    ctis: bool = False,
    stamped: bool = False,
    key: str | Sequence[str] = (),
    store: str | None = None,
) -> ResultRequest:
    """Return a result for :func:`run_all` to write: a query, its sink, and its output.

    ``sink``, ``output``, ``key``, ``ctis`` and ``stamped`` are those of :meth:`Stream.run`, except that "memory", "console" and
    formats other than those of files with a path are no sinks here: sq.merge_into writes tables. ``name``: the
    result's, for :meth:`Run.table` and :meth:`Run.remove`, and the value of the column ``result`` in the folder that
    ``run_all(..., folder=)`` writes. ``store``: the folder in which the result is published by its name, as by :func:`publish`: a
    changelog with CTIs, without another sink. Raises PlanError for an object that is not a stream, an illegal sink or name, and
    an output that the query cannot have.
    """
    if not isinstance(query, Verbs):
        not_a_stream("result", query)
    if store is not None:
        if sink is not None or output not in ("final", "changelog") or stamped or key:
            wrong, hint = (
                "a result with a store is a changelog with CTIs there",
                "Leave out sink, output, stamped and key.",
            )
            raise PlanError("result", wrong, f"found store={store!r} with others", hint)
        output, ctis = "changelog", True
    place = sink if store is None else publication_sink(query.plan.schema, name, store, "result")
    split_sink(place, "result")
    request = ResultRequest(query=query, sink=place, output=output, ctis=ctis, stamped=stamped, division=name, key=key)
    request.egress("result")
    return request


@check_keywords
def run_all(
    results: Sequence[ResultRequest],
    *,
    folder: str | None = None,
    name: str | None = None,
    checkpoint: str | None = None,
    consistency: str | Consistency = "middle",
    trigger: Duration | None = None,
    late_sink: str | None = None,
    finish: bool = False,
    buckets: int | None = None,
    progress_log: bool = False,
    early: bool = False,
    expected: Expected | None = None,
) -> Run:
    """Start several queries as one stream, each result with its own output and sink.

    Sources, and all other common parts of the queries, are read, computed and kept once, as ``run.explain()`` shows. The other
    arguments are those of :meth:`Stream.run`; all queries share one checkpoint and one level of consistency: another level is
    another run. A sink that is a folder holds folders ``streamq_batch=N``, each written once; a run that was
    interrupted writes its last micro-batch again. A micro-batch without rows for a folder is not written there,
    except the first after a start, and in the last folder each: that one says that the others are complete. The counts of the run
    are sums over the results.

    folder: a folder of Parquet files for all results without a sink of their own. Spark reads it as one table, divided by the
    column ``result``, the name of a result, with the columns of all, NULL where a result has none. One job writes a
    micro-batch of all results, where sinks of their own take a job each: so write many results. They need one form of output,
    no order of sync time (CTIs, a changelog at the strong level), and one type for columns of one name.

    Raises PlanError for queries on different time axes, for two sources with one name and different tables, for results that
    cannot share a folder, and where :meth:`Stream.run` does.

    ::

        delays = trips.where(sq.col("delay") > 60)
        counts = trips.group_by("line").tumbling_window("1 hour").select(n=sq.count())
        run = sq.run_all(
            [
                sq.result(delays, sink="delays"),
                sq.result(counts, sink="counts", output="changelog"),
            ],
            checkpoint="checkpoint",
        )
    """
    from streamq.run.running import start_run

    _check_results(results, "run_all")
    return start_run(replace(RunOptions.from_call("run_all", locals(), results), together=True))


@check_keywords
def publish(
    query: Verbs,
    name: str,
    *,
    store: str,
    checkpoint: str,
    consistency: str | Consistency = "middle",
    trigger: Duration | None = None,
    finish: bool = False,
    buckets: int | None = None,
    progress_log: bool = False,
    early: bool = False,
    expected: Expected | None = None,
) -> Run:
    """Start a query as a stream that other queries read by its name, with :func:`subscribe`, in this process or in others.

    The folder ``name`` in ``store`` gets its changelog, with CTIs and the end of the stream, as Parquet files, and a description
    of its columns. So a query over it has the answer that both queries would have as one. ``store`` is a path, or a URL that
    Arrow knows. The other arguments are those of :meth:`Stream.run`.

    It is :func:`run_all` of one result: of several, ``sq.result(query, name=..., store=...)`` publishes each. A name belongs to
    one checkpoint, and its columns stay; a changed query goes on under it as on any checkpoint. Raises CheckpointError if another
    run publishes under the name, if the columns are others, and for a query that might take back rows that the checkpoint has
    sent and not published; and what :meth:`Stream.run` raises. (docs/composition.md.)

    ::

        per_zone = trips.group_by("zone").tumbling_window("1 hour").select(n=sq.count())
        run = sq.publish(per_zone, "per_zone", store="queries", checkpoint="checkpoint")
    """
    from streamq.run.running import start_run

    if not isinstance(query, Verbs):
        not_a_stream("publish", query)
    sink = publication_sink(query.plan.schema, name, store, "publish")
    request = ResultRequest(query=query, output="changelog", ctis=True, sink=sink, division=name)
    return start_run(replace(RunOptions.from_call("publish", locals(), [request]), together=True))


@check_keywords
def explain_all(
    results: Sequence[ResultRequest],
    mode: str | None = None,
    format: str = "text",
    *,
    consistency: str | Consistency = "middle",
    early: bool = False,
    expected: Expected | None = None,
    form: str | None = None,
) -> None:
    """Print how :func:`run_all` would run several queries, without running them: what they share, and what that saves.

    The parts are those of :meth:`Stream.explain`. A part of a plan that is read several times has a label. The rules list the
    windows that share partial results; the stages begin with the number of operators with state and stages, and the number of
    operators that each query reads. ``mode``, ``format``, ``expected`` and ``form`` are those of :meth:`Stream.explain`, the
    other arguments those of :func:`run_all`. Raises PlanError where :func:`run_all` does, and for a mode, a format or a form that
    does not exist.

    ::

        sums = trips.group_by("line").tumbling_window("1 hour").select(total=sq.sum("fare"))
        sq.explain_all([sq.result(counts), sq.result(sums)], mode="physical")
    """
    from streamq.compiler.batch import chosen_form
    from streamq.compiler.explain import explain, print_explanation
    from streamq.compiler.stages import compile_stages
    from streamq.plan.node import number_sources

    verb = "explain_all"
    _check_results(results, verb)
    plans, options = RunOptions.from_call(verb, locals(), results).compiled_with()
    hint = chosen_form(form, verb)
    program = compile_stages(number_sources(plans)[0], options)
    print_explanation(lambda format: explain(program, mode, format, form=hint), format)


def _check_results(results: object, verb: str) -> None:
    """Raise PlanError, worded for ``verb``, for an argument that is no list of results."""
    hint = f"Give a list: sq.{verb}([sq.result(query, sink=...), ...])."
    if not isinstance(results, list | tuple):
        raise PlanError(verb, "not a list of results", f"found {kind_of(results)}", hint)
    if not results:
        raise PlanError(verb, "no results", "the list is empty", hint)
    for each in results:
        if not isinstance(each, ResultRequest):
            raise PlanError(verb, "not a result", f"found {kind_of(each)}", hint)
