"""Run several queries as one stream, in which common parts are read, computed and kept once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamq.errors import PlanError, kind_of, sentence
from streamq.keywords import check_keywords
from streamq.plan.footprint import Expected
from streamq.plan.verbs import Verbs, not_a_stream
from streamq.policies import Consistency
from streamq.run.run_options import ResultRequest, RunOptions, split_sink
from streamq.run.sinks import SinkArgument
from streamq.time import Duration

if TYPE_CHECKING:
    from streamq.run.running import Run


@check_keywords
def result(
    query: Verbs,
    *,
    sink: SinkArgument = None,
    output: str = "final",
    ctis: bool = False,
) -> ResultRequest:
    """Return a result for :func:`run_all` to write: a query, its sink, and the form of its output.

    ``sink``, ``output`` and ``ctis`` are those of :meth:`Stream.run`, except that "memory", "console" and formats other than
    those of files with a path are not allowed as sinks: a function writes a table such as Delta's. Raises PlanError for an object
    that is not a stream, an illegal sink, and an output that the query cannot have.
    """
    if not isinstance(query, Verbs):
        not_a_stream("result", query)
    split_sink(sink, "result")
    request = ResultRequest(query=query, sink=sink, output=output, ctis=ctis)
    request.egress("result")
    return request


@check_keywords
def run_all(
    results: Sequence[ResultRequest],
    *,
    name: str | None = None,
    checkpoint: str | None = None,
    consistency: str | Consistency = "middle",
    trigger: Duration | None = None,
    late_sink: str | None = None,
    finish: bool = False,
    buckets: int | None = None,
    progress_log: bool = False,
    early: bool = False,
) -> Run:
    """Start several queries as one stream, each result with its own output and sink.

    Sources, and all other common parts of the queries, are read, computed and kept once, as ``run.explain()`` shows. The other
    arguments are those of :meth:`Stream.run`; all queries share one checkpoint and one level of consistency: another level is
    another run. A sink that is a folder holds folders ``streamq_batch=N``, each written once; a run that was
    interrupted writes its last micro-batch again. The counts of the run are sums over the results. Raises PlanError for queries
    on different time axes, for two sources with one name and different tables, and where :meth:`Stream.run` does.

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
    from streamq.run.starting import start_run

    _check_results(results, "run_all")
    options = RunOptions(
        verb="run_all",
        together=True,
        results=tuple(results),
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
    windows that share partial results; the stages begin with the number of operators with state and stages, together and if
    each query ran by itself. ``mode``, ``format``, ``expected`` and ``form`` are those of :meth:`Stream.explain`, the
    other arguments those of :func:`run_all`. Raises PlanError where :func:`run_all` does, and for a mode, a format or a form that
    does not exist.

    ::

        sums = trips.group_by("line").tumbling_window("1 hour").select(total=sq.sum("fare"))
        sq.explain_all([sq.result(counts), sq.result(sums)], mode="physical")
    """
    from streamq.compiler.batch import chosen_form
    from streamq.compiler.estimates import checked_expected
    from streamq.compiler.explain import explain, print_explanation

    verb = "explain_all"
    _check_results(results, verb)
    plans, options = RunOptions(verb=verb, results=tuple(results), consistency=consistency, early=early).compiled_with()
    expected, hint = checked_expected(expected, plans, verb), chosen_form(form, verb)
    print_explanation(lambda format: explain(plans, mode, format, options, expected=expected, form=hint), format)


def _check_results(results: object, verb: str) -> None:
    """Raise PlanError, worded for ``verb``, for an argument that is no list of results."""
    hint = f"Give a list: sq.{verb}([sq.result(query, sink=...), ...])."
    if not isinstance(results, list | tuple):
        raise PlanError(sentence(verb, "not a list of results", f"found {kind_of(results)}", hint))
    if not results:
        raise PlanError(sentence(verb, "no results", "the list is empty", hint))
    for each in results:
        if not isinstance(each, ResultRequest):
            raise PlanError(sentence(verb, "not a result", f"found {kind_of(each)}", hint))


__all__ = ["explain_all", "result", "run_all"]
