"""Windows of one stream, group and grid are one kernel for all that read them, also in a run that goes on with other results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.compiler.staged_plan import StagedPlan
from streamq.errors import CheckpointError
from streamq.runtime.hosts.identity import read_identity
from streamq.testing.history import assert_same_history, net
from streamq.testing.oracle import oracle
from tests.changed_query import ChangingRun
from tests.compiler.test_results import CHANGELOG, FINAL, program_of
from tests.test_changed_query import rows, sessions, source

C = sq.col
S = source()


OWN = [sq.udf("int")(lambda v: v), sq.udf("int", name="twice")(lambda v: v)]


def windows(stream: sq.Stream = S, hop: int = 5, **how: Any) -> Any:
    return stream.group_by("k").hopping_window(10, hop, **how)


def counted() -> sq.Stream:
    return windows().select(n=sq.count())


def summed() -> sq.Stream:
    return windows().select(total=sq.sum("v"))


def least() -> sq.Stream:
    return windows().select(least=sq.min("w"))


def of_one_window(left: sq.Stream, right: sq.Stream) -> sq.Stream:
    """The results of two queries over the same windows, side by side."""
    left, right = (s.with_columns(window=sq.start()) for s in (left, right))
    return left.join(right, on=["k", "window"], suffixes=("", "_r"))


def held(program: StagedPlan) -> list[str]:
    """The partial results of each grid's kernel."""
    return [state.title.partition(": ")[2] for state in program.states if state.name.startswith("window")]


@pytest.mark.parametrize(
    ("queries", "partials"),
    [
        ([counted(), summed(), least()], ["count(*), sum(v), min(w)"]),
        ([windows().select(n=sq.count("v")), summed()], ["count(*), count(v), sum(v)"]),
        (
            [windows().select(n=sq.count("v")), windows().select(m=sq.count("v"), all=sq.count())],
            ["count(*), count(v)"],
        ),
        ([windows().select(c=sq.covar("w", "v")), windows().select(c=sq.covar("v", "w"), n=sq.sum("w"))], None),
        ([of_one_window(counted(), summed())], ["count(*), sum(v)"]),
        ([counted(), windows(S.where(C("v") > 1)).select(n=sq.sum("v"))], ["count(*)", "count(*), sum(v)"]),
        ([counted(), windows(hop=10).select(n=sq.sum("v"))], ["count(*)", "count(*), sum(v)"]),
        ([counted(), windows(stamp="point_at_end").select(n=sq.sum("v"))], ["count(*)", "count(*), sum(v)"]),
        ([counted(), S.hopping_window(10, 5).select(n=sq.sum("v"))], ["count(*)", "count(*), sum(v)"]),
        ([counted(), windows().select(n=sq.median("v"))], ["count(*)", "n = percentile(v, 0.5)"]),
    ],
    ids=[
        "all",
        "a count of a sum",
        "equal ones",
        "two arguments",
        "one plan",
        "filter",
        "hop",
        "stamp",
        "keys",
        "median",
    ],
)
def test_windows_share_what_they_have_in_common(queries: list[sq.Stream], partials: list[str] | None) -> None:
    """Each result is the oracle's, from one kernel, or from its own where stream, grid, group or form differ."""
    program = program_of(queries, [CHANGELOG] * len(queries))
    assert partials is None or held(program) == partials
    run = ChangingRun(*queries, output="changelog")
    sent = [run.batch({"s": rows(at, at + 3)}) for at in (0, 3, 6, 9)]
    for query, parts in zip(queries, zip(*sent, run.finish(), strict=True), strict=True):
        assert_same_history(net(list(parts)), oracle(query.plan, {"s": rows(0, 10)}))


def test_windows_over_a_union_share_whatever_columns_they_read() -> None:
    """A union that several windows read keeps the columns of all."""
    both = windows(S.union(S.shift(1)))
    n, total, more = both.select(n=sq.count()), both.select(t=sq.sum("v")), both.select(t=sq.sum("v"), m=sq.max("v"))
    assert held(program_of([n, total], [FINAL, FINAL])) == ["count(*), sum(v)"]
    assert held(program_of([total, more], [FINAL, FINAL])) == ["count(*), sum(v), max(v)"]


@pytest.mark.parametrize("beside", [False, True], ids=["aggregates", "pairs beside"])
def test_aggregates_over_one_windowed_join_share_its_pairs(beside: bool) -> None:
    """Each result is the oracle's, from one join of spans and one kernel of windows; rows of pairs are joined by themselves."""
    pairs = S.set_duration(1).windowed_join(S.shift(2).set_duration(1), "k", size=6, hop=2, suffixes=("", "2"))
    queries = [pairs.select(n=sq.max("v")), pairs.select(total=sq.sum("w"), many=sq.count()), *[pairs] * beside]
    program = program_of(queries, [FINAL] * len(queries))
    assert [partials for partials in held(program) if partials] == ["count(*), max(v), sum(w)"]
    joins = [state.name.partition(":")[0] for state in program.states if "join" in state.name]
    assert joins == ["inner_join", *["windowed_join"] * beside]
    run = ChangingRun(*queries)
    sent = [run.batch({"s": rows(at, at + 3)}) for at in (0, 3, 6, 9)]
    for query, parts in zip(queries, zip(*sent, run.finish(), strict=True), strict=True):
        assert_same_history(net(list(parts)), oracle(query.plan, {"s": rows(0, 10)}))


def test_a_stage_is_saved_where_only_the_windows_read_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    """Lateness is then judged by their kernel."""
    queries = [counted(), summed()]
    program = program_of(queries, [FINAL, FINAL])
    assert [len(stage.hosted) for stage in program.stages] == [1]
    sq.explain_all([sq.result(query) for query in queries])
    text = capsys.readouterr().out
    assert "together: 1 operator with state in 1 stage; the results read 1 and 1 of them" in text
    assert "share_windows: merge(a, x), merge(a, y) =>" in text
    assert "s | hopping by k: count(*), sum(v) | select k, count" in text
    assert "@1 hopping size=10, hop=5 by k: count(*), sum(v)" in text


def test_final_rows_are_not_held_for_those_sent_before() -> None:
    program = program_of([counted(), summed(), least()], [FINAL, CHANGELOG, FINAL])
    assert held(program) == ["count(*), min(w)", "count(*), sum(v)"]
    assert not any(state.name.startswith("final") for state in program.states)


@pytest.mark.parametrize("code", OWN)
def test_what_calls_a_users_code_is_not_shared(code: Any) -> None:
    """A run could not go on with the others once the code has changed, or has gone."""
    own = windows().select(n=sq.sum(code("v")))
    other = windows().select(n=sq.count("v"), least=sq.min("w"))
    assert held(program_of([own, other], [FINAL, FINAL]))[1:] == held(program_of([other], [FINAL]))


def changed(before: Sequence[sq.Stream], *later: Sequence[sq.Stream], **how: Any) -> tuple[ChangingRun, list[pa.Table]]:
    """A run whose results change, each time after two rows; the run, and what the last results send from then on."""
    run = ChangingRun(*before, **how)
    run.batch({"s": rows(0, 2)})
    for at, queries in enumerate(later, start=1):
        run.changed(*queries, **how)
        sent = [run.batch({"s": rows(2 * at, 2 * at + 2)})]
        run.run.identity = read_identity(run.identity.to_json())
    sent += [run.batch({"s": rows(2 * len(later) + 2, 10)}), run.finish()]
    return run, [net(list(parts)) for parts in zip(*sent, strict=True)]


def after(query: sq.Stream, begun: int, since: int, **how: Any) -> pa.Table:
    """The rows that a query, begun after ``begun`` rows, sends after ``since`` of them."""
    run = ChangingRun(query, **how)
    run.batch({"s": rows(begun, since)})
    return net([run.batch({"s": rows(since, 10)})[0], run.finish()[0]])


@pytest.mark.parametrize("output", ["final", "changelog"])
def test_results_end_and_begin_and_the_others_go_on(output: str) -> None:
    """They read the same state: what nobody reads any more is dropped, and what is new stands beside."""
    run, (total,) = changed([counted(), summed(), least()], [summed()], output=output)
    assert held(run.run.program) == ["count(*), sum(v)"]
    assert_same_history(total, after(summed(), 0, 2, output=output))


@pytest.mark.parametrize("others", [[], [sessions(S)]], ids=["alone", "beside another operator"])
def test_windows_that_ask_for_more_than_their_state_has_find_a_column_missing(others: list[sq.Stream]) -> None:
    with pytest.raises(CheckpointError, match=r"has no min\(w\) there"):
        changed([*others, counted(), summed()], [*others, counted(), summed(), least()])


def test_what_nobody_reads_any_more_is_dropped() -> None:
    run, (total, n) = changed([summed(), least(), counted()], [summed(), counted()], [summed(), counted()])
    assert held(run.run.program) == ["count(*), sum(v)"]
    for query, part in ((summed(), total), (counted(), n)):
        assert_same_history(part, after(query, 0, 4))
    with pytest.raises(CheckpointError, match=r"has no min\(w\) there"):
        changed([summed(), least()], [summed()], [least(), summed()])


def test_a_column_more_of_the_source_changes_nothing() -> None:
    less = source("s", "w")
    run = ChangingRun(windows(less).select(n=sq.count()), windows(less).select(total=sq.sum("v")))
    run.batch({"s": rows(0, 2, "w")})
    run.run.identity = read_identity(run.identity.to_json())
    run.changed(summed())
    sent = [run.batch({"s": rows(2, 10)})[0], run.finish()[0]]
    assert_same_history(net(sent), after(summed(), 0, 2))


def test_outputs_of_windows_that_share_change_together() -> None:
    run, _ = changed([counted(), summed()], [counted(), summed()])
    assert run.fit(counted(), summed(), output="changelog").misfits == ()
    with pytest.raises(CheckpointError, match=r"has no max\(v\) there"):
        run.changed(counted().where(C("n") > 0), windows().select(most=sq.max("v")))
