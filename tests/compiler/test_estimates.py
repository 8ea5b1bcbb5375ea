"""Estimates from expected input: they are upper bounds, choose the cheapest form of a batch, and say what is not known."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.compiler.estimates import checked_expected, expected_rates, expected_state
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import PlanError, TimeError
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.grid_factory import GridFactory
from streamq.operators.merge_partials import MergePartials
from streamq.operators.operator import BatchForm
from streamq.plan.node import Node, nodes, number_sources
from streamq.time import Grid
from tests.each import each
from tests.laws.cost_operators import operators
from tests.programs import compiled

EVERY = 100


def points(delay: int = 0) -> sq.Stream:
    columns = t.table("at bigint, k bigint, v bigint", [])
    return sq.points(columns, "at", name="s", progress=sq.generate(delay))


def windows(size: int, hop: int, delay: int = 0, of_values: bool = False) -> sq.Stream:
    last = sq.median("v") if of_values else sq.max("v")
    return points(delay).group_by("k").hopping_window(size, hop).select(n=sq.count(), m=last)


def windows_of(query: sq.Stream) -> tuple[Node, EvaluatedOperator]:
    """The plan and the operator that a stream runs as windows on a grid."""
    plan = rewrite(number_sources(query.plan)[0]).plan
    (node,) = [n for n in nodes(plan) if isinstance(n, EvaluatedOperator)]
    return plan, node


@pytest.mark.slow
@settings(max_examples=10)
@given(
    rows=st.integers(1, 30),
    keys=st.integers(1, 5),
    grid=st.sampled_from([Grid(10, 10), Grid(60, 10), Grid(25, 10), Grid(10, 25), Grid(160, 10)]),
    delay=st.sampled_from([0, 35, 240]),
    each=st.sampled_from([0.1, 1, 10]),
    of_values=st.booleans(),
)
def test_rows_and_state_are_at_most_those_that_are_estimated(
    rows: int, keys: int, grid: Grid, delay: int, each: float, of_values: bool
) -> None:
    """``rows`` points in every 100 ticks, of ``keys`` groups, in micro-batches of ``each`` hops.

    Windows are counted, state is that of a run.
    """
    events = [(at * EVERY // rows, at % keys, at) for at in range(rows * 8)]
    query = windows(grid.size, grid.hop, delay=delay, of_values=of_values)
    plan, node = windows_of(query)
    expected = sq.Expected(rows=rows, every=EVERY, distinct={"k": keys})
    rates = expected_rates(plan, expected)
    time, step = 8 * EVERY, max(1, int(each * grid.hop))
    cells = Counter((k, grid.first_ending_after(at), grid.last_starting_before(at + 1)) for at, k, _ in events)
    filled = {(k, i) for k, low, high in cells for i in range(low, high + 1)}
    # the windows and basic windows at both ends are only partly in the time
    assert len(filled) <= (rates.rate(node) or 0) * (time + grid.size + 2 * grid.hop)
    if isinstance(node, MergePartials):
        factory = node.evaluation.factory
        assert isinstance(factory, GridFactory)
        share = factory.partials_an_event(rates)
        assert len(cells) <= (rates.rate(node.children[0]) or 0) * (share or 0) * (time + 2 * grid.hop)
    usual, most = expected_state(node, delay, rates, expected) or (0, 0)
    assert usual <= most
    live = LocalRun(compiled(plan, "final", buckets=1))
    for begin in range(0, time, step):
        new = [event for event in events if begin <= event[0] < begin + step]
        live.batch({"s": t.table("at bigint, k bigint, v bigint", new)})
        state_rows = sum(kernel.state_rows or 0 for kernel in live.readings.of_kernels.values())
        # of the micro-batch itself all events may be there, which are not spread over ticks evenly
        assert state_rows <= most + len(new) + keys
        if step == grid.hop and not of_values:
            assert state_rows <= usual + len(new) + keys


@pytest.mark.parametrize(
    ("hops", "keys", "form"),
    [
        (4, 1, BatchForm.EXPLODE),
        (4, 1_000, BatchForm.DIRECT),
        (60, 1, BatchForm.EXPLODE),
        (60, 1_000, BatchForm.BLOCKS),
    ],
)
def test_few_events_a_group_and_hop_are_copied_into_their_windows(hops: int, keys: int, form: BatchForm) -> None:
    """With 1,000 groups there is a partial result for each event, with one for a hundred; without a word for eight."""

    def chosen(query: sq.Stream, expected: sq.Expected | None) -> BatchForm | None:
        plan, node = windows_of(query)
        forms = node.batch_forms(expected_rates(plan, expected))
        return None if forms is None else forms.cheapest.form

    query = windows(hops * 10, 10)
    assert chosen(query, sq.Expected(rows=1_000, every=EVERY, distinct={"k": keys})) is form
    for hops, usual in {4: BatchForm.DIRECT, 5: BatchForm.EXPLODE, 24: BatchForm.EXPLODE, 25: BatchForm.BLOCKS}.items():
        assert chosen(windows(hops * 10, 10), None) is usual
        assert chosen(windows(hops * 10, 10), sq.Expected(rows=9, every=1)) is usual


def test_explain_shows_rows_state_and_the_costs_of_forms() -> None:
    text = windows(60, 10).explanation(expected=sq.Expected(rows=1_000, every=EVERY, distinct={"k": 50}))
    assert "expected: at most 1,000 rows in 100\n" in text
    assert "direct 27, explode 30.8, blocks 45.8)" in text
    hops = "in micro-batches of a hop or longer"
    to_python = f"expected: to Python at most 1,000 rows in 100, at most 500 rows in 100 {hops}"
    assert f"{to_python}; state at most 700 rows, 350 {hops}\n" in text + "\n"
    late = windows(60, 10, delay=30).explanation(expected=sq.Expected(rows=1_000, every=EVERY, distinct={"k": 50}))
    assert f"state at most 1,000 rows, 500 {hops}" in late
    assert "may be corrected" not in late and "expected" not in windows(60, 10).explanation()
    signals = {
        name: points()
        .set_duration(5)
        .group_by("k")
        .snapshot_window()
        .select(n=sq.count())
        .explanation("physical", expected=sq.Expected(rows=100, every=EVERY), **how)
        for name, how in {
            "final": {},
            "changelog": {"output": "changelog"},
            "early": {"output": "changelog", "early": True},
        }.items()
    }
    assert [text.rpartition("; state ")[2] for text in signals.values()] == [
        "at most 12 rows",
        "at most 12 rows, and the results that may be corrected",
        "not estimated",
    ]


def test_one_row_is_no_rows_and_pairs_are_never_corrected() -> None:
    """An inner join sends pairs of events that are there, and remembers none of them."""
    a, b = (sq.points(t.table("at bigint, k bigint", []), "at", name=n, progress=sq.generate(0)) for n in "ab")
    text = {
        output: a.join(b.rename(k="k2"), on=[("k", "k2")]).explanation(
            "physical", output=output, expected=sq.Expected(rows=1, every=100)
        )
        for output in ("final", "changelog")
    }
    assert text["final"].endswith("expected: to Python at most 2 rows in 100; state at most 1 row")
    assert "may be corrected" not in text["changelog"]
    assert "expected: at most 1 row in 10\n" in windows(10, 10).explanation(
        expected=sq.Expected(rows=1, every=10, distinct={"k": 1})
    )


def test_explain_all_estimates_what_results_share(capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel of both takes and keeps the partial results of both once."""
    fewer = windows(60, 10).select("k", "n")
    sq.explain_all([sq.result(windows(60, 10)), sq.result(fewer)], expected=sq.Expected(rows=10, every=EVERY))
    assert capsys.readouterr().out.count("expected: to Python at most 10 rows in 100") == 1


def test_what_depends_on_values_is_not_estimated() -> None:
    s = sq.intervals(t.table("start bigint, end bigint, k bigint", []), start="start", end="end", name="s")
    text = s.join(s.rename(k="k2"), on=[("k", "k2")]).explanation(expected=sq.Expected(rows=10, every=5))
    assert "expected: to Python at most 20 rows in 5; state not estimated: an event without an end stays" in text
    assert "micro-batch" not in text
    ended = s.set_duration(3)
    bounded = ended.join(ended.rename(k="k2"), on=[("k", "k2")]).explanation(expected=sq.Expected(rows=10, every=5))
    assert "without an end" not in bounded
    signals = points().to_signal("k").explanation("physical", expected=sq.Expected(rows=10, every=5))
    assert "state not estimated; no number of different k is expected" in signals


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"rows": 0, "every": 5}, PlanError, "Expected: rows is no positive integer; found 0"),
        (
            {"rows": 2.5, "every": 5},
            PlanError,
            "no positive integer; found 2.5. For less than a row in the time, say a longer",
        ),
        ({"rows": {}, "every": 5}, PlanError, "Expected: rows of no source"),
        ({"rows": {"s": 0}, "every": 5}, PlanError, r"rows\['s'\] is no positive integer"),
        ({"rows": 5, "every": 5, "distinct": {5: 5}}, PlanError, "distinct has no numbers by name; found the name 5"),
        ({"rows": 5, "every": 0}, PlanError, "Expected: every is not positive"),
        ({"rows": 5, "every": "soon"}, TimeError, "Expected"),
        ({"rows": 5, "every": "1 minute"}, TimeError, "explain"),
        ({"rows": 5, "every": 5, "distinct": 3}, PlanError, "distinct has no numbers by name; found int"),
        (
            {"rows": {"t": 5}, "every": 5},
            PlanError,
            "rows of a source that the query does not read are expected; found 't'; there are: s",
        ),
        (
            {"rows": 5, "every": 5, "distinct": {"w": 1}},
            PlanError,
            "values of a column that the query does not read are expected; found 'w'",
        ),
    ],
)
def test_an_expectation_that_does_not_fit_is_an_error(arguments: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        windows(60, 10).explanation(expected=sq.Expected(**arguments))


def test_another_object_is_no_expectation() -> None:
    with pytest.raises(PlanError, match=r"to_df: not an sq.Expected; found int. Write sq.Expected"):
        checked_expected(5, windows(60, 10).plan, "to_df")  # type: ignore[arg-type]


@sq.udso("last bigint", initial=None)
def changes(last, value):
    return value, [{"last": last}] if last != value else []


@pytest.mark.parametrize(
    ("query", "line"),
    [
        (
            lambda s: s.group_by("k").landmark_window(10, start=0).select(x=sq.collect("v")),
            "all events since the landmark; ",
        ),
        (
            lambda s: s.group_by("k").landmark_window(10, start=0).select(x=sq.median("v")),
            "a row for each group and value\n",
        ),
        (lambda s: s.group_by("k").landmark_window(10, start=0).select(x=sq.count()), "a row for each group\n"),
        (lambda s: s.group_by("k").landmark_window(10, period=90).select(x=sq.collect("v")), ""),
        (lambda s: s.group_by("k").hopping_window(60, 10).select(x=sq.collect("v")), ""),
        (lambda s: s.to_signal("k"), "the last sample of each key\n"),
        (lambda s: s.last_rows(3, key="k"), "the last rows of each group, which windows to come contain\n"),
        (lambda s: s.group_by("k").scan(changes("v")), "the state of each group\n"),
    ],
)
def test_explain_says_what_is_kept_for_good(query: Callable[[sq.Stream], sq.Stream], line: str) -> None:
    text = query(points()).explanation("physical") + "\n"
    assert f"kept for good: {line}" in text if line else "kept for good" not in text


@pytest.mark.parametrize(
    ("query", "is_estimated"),
    [
        (lambda s: s, True),
        (lambda s: s.select("v", k=sq.col("k")), True),
        (lambda s: s.union(s.where(sq.col("v") > 3)), True),
        (lambda s: s.select("v", k=sq.col("k") + 1), False),
        (lambda s: s.select(v=sq.col("k"), k=sq.col("v")), False),
        (lambda s: s.alter_lifetime(sq.start() * 2, 1), False),
    ],
)
def test_a_number_of_values_is_that_of_a_column_of_sources(
    query: Callable[[sq.Stream], sq.Stream], is_estimated: bool
) -> None:
    windows = query(points()).group_by("k").tumbling_window(10).select(n=sq.count())
    plan, node = windows_of(windows)
    rates = expected_rates(plan, sq.Expected(rows=1_000, every=EVERY, distinct={"k": 2}))
    factory = node.evaluation.factory
    assert isinstance(factory, GridFactory)
    share = factory.partials_an_event(rates)
    assert (share is not None and share * (rates.rate(node.children[0]) or 0) == pytest.approx(0.2)) is is_estimated
    text = windows.explanation("physical", expected=sq.Expected(rows=1_000, every=EVERY))
    assert "no number of different k is expected" in text


UNBOUNDED = (
    *("top_k", "uda", "udo", "median"),  # sessions that may go on for ever keep their members, or their values
    "uda of counted",  # as many as start at one instant
    *("left join", "semi join", "anti join", "windowed_join", "unless", "first consume"),  # rows that wait, of pairs
    "except_",  # a row goes on as long as its payload is there again and again
)
"""The operators of the cost laws about whose state nothing is said, because it depends on values."""


def expected_states(program: StagedPlan, lag: int, expected: sq.Expected) -> dict[str, tuple[float, float] | None]:
    """The state that is expected of each kernel that computes an operator, by its name."""
    rates, hosted = expected_rates(program.plan, expected), [one for stage in program.stages for one in stage.hosted]
    operators = {one.name: program.nodes.get(program.relations[one.name].number) for one in hosted}
    return {
        name: expected_state(node, lag, rates, expected)
        for name, node in operators.items()
        if isinstance(node, EvaluatedOperator)
    }


def check_state(name: str) -> None:
    """Assert the bound over lifetimes of a few groups at an even rate, on both inputs, with a CTI that is late."""
    columns, lag, step = "at bigint, k bigint, v bigint", 30, 12
    expected = sq.Expected(rows=60, every=EVERY, distinct={"k": 3})
    table = t.table(columns, [])
    a, b = (sq.points(table, "at", name=side, progress=sq.generate(lag)).set_duration(6) for side in "ab")
    program = compiled(rewrite(number_sources(operators(20)[name](a, b).plan)[0]).plan, buckets=1)
    states = expected_states(program, lag, expected)
    assert (None in states.values()) == (name in UNBOUNDED)
    live = LocalRun(program)
    for begin in range(0, 10 * step, step) if None not in states.values() else ():
        new = [(at, at * 7 % 3, at) for at in range(begin, begin + step) if at % 5 < 3]
        live.batch({side: t.table(columns, new) for side in "ab"})
        for kernel, (usual, most) in ((kernel, state) for kernel, state in states.items() if state is not None):
            assert (live.readings.kernel(kernel).state_rows or 0) <= most + 2 * len(new) and usual <= most


ALIKE = (
    () if os.environ.get("STREAMQ_SOAK") else ("uda that merges", "first", "count_distinct", "collect", "hopping uda")
)
"""The operators whose windows, kept in the same way, are those of others."""


@pytest.mark.slow
@each([name for name in operators(0) if name not in ALIKE])
def test_state_is_at_most_what_is_expected_of_it(name: str) -> None:
    check_state(name)


def test_the_number_of_values_bounds_what_is_kept_of_a_median() -> None:
    def state(**distinct: int) -> tuple[float, float] | None:
        plan, node = windows_of(windows(60, 10, of_values=True))
        expected = sq.Expected(rows=1_000, every=EVERY, distinct=distinct)
        return expected_state(node, 0, expected_rates(plan, expected), expected)

    assert state() == state(k=5) == (700, 1_400)
    assert state(k=5, v=4) == (140, 1_400)
