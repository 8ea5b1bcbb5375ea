"""Random executions, as Hypothesis strategies: ways to run a case, with any rules, buckets, restarts and promises."""

from __future__ import annotations

from hypothesis import strategies as st

from streamq.choices import OutputForm
from streamq.compiler.rules import RULES
from streamq.testing.execution import BATCH, LITERAL, SPARK, STARTS, STREAM, Execution


def subsets() -> st.SearchStrategy[tuple[str, ...] | None]:
    """All rules, none, or some."""
    names = [r.name for r in RULES]
    return st.one_of(
        st.none(),
        st.just(()),
        st.lists(st.sampled_from(names), unique=True).map(lambda some: tuple(n for n in names if n in some)),
    )


def executions(output: OutputForm) -> st.SearchStrategy[Execution]:
    """In-process, in micro-batches, in any way."""
    slack = st.one_of(st.just(()), st.lists(st.sampled_from([0, 0, 0, 1, 3, None]), min_size=1, max_size=4).map(tuple))
    # what is watched is one kernel, so one bucket
    hosts = [(2, False), (1, output == OutputForm.CHANGELOG)]
    # of final rows the level says nothing but what is remembered
    some = st.lists(st.sampled_from([0, 1, 1, 2, 3, 4, 20, None]), min_size=1, max_size=3).map(tuple)
    blocks = st.one_of(st.just((0,)), some) if output == OutputForm.CHANGELOG else st.just((0,))
    most = st.lists(st.sampled_from([0, 1, 2, 5, 12, None]), min_size=1, max_size=2).map(tuple)
    # what lies behind is late: where nothing is, more is there to be right about
    remember = st.sampled_from([False, False, False, False, True]).flatmap(
        lambda weak: most if weak else st.just((None,))
    )
    # what reads a changelog back goes by the CTIs that come with it
    ctis = st.sampled_from([False, False, True]) if output == OutputForm.CHANGELOG else st.just(False)
    # what goes early is blocked by nothing
    early = st.sampled_from([False, False, False, True]) if output == OutputForm.CHANGELOG else st.just(False)
    # with one nothing is combined ahead
    late_outputs = st.sampled_from([False, False, False, True])
    return st.builds(
        lambda rules, host, restart, slack, blocks, remember, ctis, early, late_output: Execution(
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
        ),
        *(subsets(), st.sampled_from(hosts), st.booleans(), slack, blocks, remember, ctis, early, late_outputs),
    )


def in_process() -> list[st.SearchStrategy[tuple[Execution, ...]]]:
    """In turn: in micro-batches, as final rows and as a changelog; or, every fourth time, all at once."""
    cut = st.tuples(executions(OutputForm.FINAL), executions(OutputForm.CHANGELOG))
    whole = st.tuples(subsets().map(lambda rules: Execution(LITERAL, rules=rules)))
    return [cut, cut, whole, cut]


ZONES = ("", "", "Asia/Tokyo", "America/New_York")
"""Half the cases on Spark run in a session that streamq did not make."""


def on_spark(backend: str) -> st.SearchStrategy[tuple[Execution, ...]]:
    """One execution on Spark; mostly with all rules, as users have it."""
    if backend == BATCH:
        rules = st.one_of(st.none(), subsets())
        return st.tuples(
            st.builds(lambda rules, zone: Execution(BATCH, rules=rules, zone=zone), rules, st.sampled_from(ZONES))
        )
    return st.tuples(
        st.builds(
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
            st.sampled_from(STARTS),
            st.sampled_from(ZONES),
            st.booleans(),
            st.booleans(),
        )
    )


__all__ = ["executions", "in_process", "on_spark", "subsets"]
