"""Hypothesis strategies for executions: ways to run a case, with any rules, buckets, restarts and CTIs from outside."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from streamq.choices import OutputForm
from streamq.compiler.rules import RULES
from streamq.operators.batch_form import BatchForm
from streamq.testing.execution import BATCH, LITERAL, RUN, SPARK, STARTS, STREAM, Execution


def subsets() -> st.SearchStrategy[tuple[str, ...] | None]:
    """Draw the names of the rules to apply: None for all, or any subset, none included, in the order of RULES."""
    names = [r.name for r in RULES]
    return st.one_of(
        st.none(),
        st.just(()),
        st.lists(st.sampled_from(names), unique=True).map(lambda some: tuple(n for n in names if n in some)),
    )


def executions(output: OutputForm) -> st.SearchStrategy[Execution]:
    """Draw an in-process execution in micro-batches, with any options that ``output`` allows."""
    slack = st.one_of(st.just(()), st.lists(st.sampled_from([0, 0, 0, 1, 3, None]), min_size=1, max_size=4).map(tuple))
    # a watched run has one bucket, as only one kernel is watched
    hosts = [(2, False), (1, output == OutputForm.CHANGELOG)]
    # blocking does not concern final rows
    some = st.lists(st.sampled_from([0, 1, 1, 2, 3, 4, 20, None]), min_size=1, max_size=3).map(tuple)
    blocks = st.one_of(st.just((0,)), some) if output == OutputForm.CHANGELOG else st.just((0,))
    most = st.lists(st.sampled_from([0, 1, 2, 5, 12, None]), min_size=1, max_size=2).map(tuple)
    # forgotten history makes items late; mostly keep all of it, so that answers have more rows to compare
    remember = st.sampled_from([False, False, False, False, True]).flatmap(
        lambda weak: most if weak else st.just((None,))
    )
    # CTIs can be in a changelog only
    ctis = st.sampled_from([False, False, True]) if output == OutputForm.CHANGELOG else st.just(False)
    # early output excludes blocking
    early = st.sampled_from([False, False, False, True]) if output == OutputForm.CHANGELOG else st.just(False)
    # with a late output, nothing is combined before the shuffle
    late_outputs = st.sampled_from([False, False, False, True])
    return st.builds(
        lambda rules, host, restart, slack, blocks, remember, ctis, early, late_output, ends_with_rows: Execution(
            STREAM,
            output,
            rules,
            buckets=host[0],
            restart=restart,
            slack=slack,
            watch=host[1],
            blocks=(0,) if early else blocks,
            remember=remember,
            ctis=ctis,
            early=early,
            late_output=late_output,
            # where history is forgotten, edges count otherwise at the end than before it
            ends_with_rows=ends_with_rows and remember == (None,),
        ),
        *(subsets(), st.sampled_from(hosts), st.booleans(), slack, blocks, remember, ctis, early, late_outputs),
        st.sampled_from([False, False, True]),
    )


def mixed(drawn: st.SearchStrategy[Execution]) -> st.SearchStrategy[Execution]:
    """Draw an execution of several queries, of which every second one may have another output."""
    forms = st.sampled_from([None, OutputForm.FINAL, OutputForm.CHANGELOG])
    return st.builds(lambda how, others: replace(how, others=others), drawn, forms)


def in_process(*, several: bool = False) -> list[st.SearchStrategy[tuple[Execution, ...]]]:
    """Return four strategies to use in turn: three run micro-batches, as final rows and as a changelog, one runs all at once.

    ``several``: of several queries, whose outputs may differ.
    """
    ways = [executions(OutputForm.FINAL), executions(OutputForm.CHANGELOG)]
    cut = st.tuples(*(mixed(way) if several else way for way in ways))
    whole = st.tuples(subsets().map(lambda rules: Execution(LITERAL, rules=rules)))
    return [cut, cut, whole, cut]


ZONES = ("", "", "Asia/Tokyo", "America/New_York")
"""Time zones of foreign sessions; "", drawn for half of the cases, is a session that streamq starts."""


def on_spark(backend: str, *, several: bool = False) -> st.SearchStrategy[tuple[Execution, ...]]:
    """Draw a tuple of one execution by ``backend``, BATCH or SPARK; a streaming one applies all rules, as users' queries do.

    ``several``: of several queries, which ``run_all`` runs as one stream.
    """
    if backend == BATCH:
        rules = st.one_of(st.none(), subsets())
        forms = st.one_of(st.none(), st.sampled_from(list(BatchForm)))
        return st.tuples(
            st.builds(
                lambda rules, zone, form: Execution(BATCH, rules=rules, zone=zone, batch_form=form),
                *(rules, st.sampled_from(ZONES), forms),
            )
        )
    starts = (RUN,) if several else STARTS
    streamed = st.builds(
        lambda output, restart, started, zone, silent, early: Execution(
            SPARK,
            output,
            buckets=2,
            restart=restart,
            started=started,
            zone=zone,
            silent=silent,
            early=early and output == OutputForm.CHANGELOG,
        ),
        st.sampled_from([OutputForm.FINAL, OutputForm.CHANGELOG]),
        st.booleans(),
        st.sampled_from(starts),
        st.sampled_from(ZONES),
        st.booleans(),
        st.booleans(),
    )
    return st.tuples(mixed(streamed) if several else streamed)


__all__ = ["executions", "in_process", "on_spark", "subsets"]
