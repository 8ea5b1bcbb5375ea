"""What is read of a source on the way to the first operator with state."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Options
from streamq.compiler.results import Egress, Results, choose_egress
from streamq.compiler.rewriter import Consumer, consumers
from streamq.compiler.rules import RULES, Rule
from streamq.compiler.stages import compile_stages
from streamq.errors import PlanError, StreamqWarning
from streamq.operators import Source, Union, Where
from streamq.plan.expr import Lit
from streamq.plan.node import Node, nodes, number_sources
from streamq.policies import MIDDLE, Level
from streamq.runtime.deltas import LE, RE
from streamq.windows import Hopping, Snapshot
from tests.changed_query import ChangingRun
from tests.programs import compiled
from tests.rehearsed import events, intervals, rehearsal

S = sq.events([(1, 4, {"k": 1, "v": 1.0})])
ENDING = S.set_duration(3)


def only(plan: Node) -> Consumer:
    [[way]] = consumers(plan).values()
    return way


def check_columns_sent() -> None:
    """A stage that judges lateness gets the columns that are read; all where late rows are shown, or rows are held back."""
    some, every = ("v", LE, RE), ("k", "v", LE, RE)
    cases: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({}, some),
        ({"output": OutputForm.CHANGELOG}, some),
        ({"late_output": True}, every),
        ({"output": OutputForm.CHANGELOG, "level": Level(None)}, every),
    ]
    for options, sent in cases:
        [channel] = compiled(S.select("v").plan, **options).stages[0].channels
        assert channel.columns == sent, options


def test_columns_sent() -> None:
    check_columns_sent()


WIDE = "at bigint, k string, a bigint, b bigint, c bigint, d bigint"
P, Q = (sq.points(t.table(WIDE, []), time="at", name=name) for name in "PQ")
OF_PATTERN = "EVENT E WHEN SEQUENCE(P AS x, Q AS y, 5) WHERE CorrelationKey(k, EQUAL) AND x.a > y.b OUTPUT x.c AS c"


@pytest.mark.parametrize(
    ("queries", "read"),
    [
        ([P.group_by("k").tumbling_window(4).select(n=sq.sum("a"))], {"P": "ka"}),
        (
            [P.group_by("k").tumbling_window(4).select(n=sq.sum("a")), P.where(sq.col("b") > 1).select("c")],
            {"P": "kabc"},
        ),
        ([P.join(Q, on="k", how="semi").select("d"), P.clip(Q, on="a").select("b")], {"P": "kabd", "Q": "ka"}),
        ([sq.cedr(OF_PATTERN, P=P, Q=Q), P.select("d")], {"P": "kacd", "Q": "kb"}),
        ([P.select("a"), P.distinct_ids(3, id="k").select("a")], {"P": "kabcd"}),
    ],
)
def test_results_together_read_the_columns_that_each_of_them_reads(
    queries: list[sq.Stream], read: dict[str, str]
) -> None:
    plans, _ = number_sources(Results.from_plans([query.plan for query in queries]))
    program = compile_stages(plans, Options(egresses=(Egress(),) * len(queries), buckets=2))
    sources = {node.table: "".join(node.schema.names) for node in nodes(program.plan) if isinstance(node, Source)}
    assert sources == read


def test_the_windows_that_events_come_to() -> None:
    windows = [
        (S.hopping_window(4, 2).agg(n=sq.count()), Hopping(4, 2), False),
        (S.hopping_window(4, 2).agg(v=sq.median("v")), Hopping(4, 2), False),
        (S.hopping_window(4, 2).agg(v=sq.collect("v")), Hopping(4, 2), False),
        (ENDING.hopping_window(4, 2).agg(v=sq.collect("v")), Hopping(4, 2), False),
        (S.snapshot_window().agg(n=sq.count()), Snapshot(), False),
        (S.tumbling_window(4).top_k(1, by="v"), Hopping(4, 4), False),
        (S.chop(2), None, True),
        (ENDING.chop(2), None, False),
        (S.to_signal("k"), None, False),
        (S.last_rows(2), None, False),
    ]
    for query, window, bounds in windows:
        way = only(query.plan)
        assert way.has_state
        assert (way.window, way.bounds_windows) == (window, bounds), query.plan.title
    assert not only(S.where(sq.col("v") > 1).plan).has_state


# Sources that rules take out of the plan: they stay sources of the query, whose progress counts, but nobody reads their rows.

NEGATED = "EVENT E WHEN CANCEL_WHEN(CANCEL_WHEN(C AS c, A AS a), B AS b)"
"""Events of C alone: they begin where they happen, so that nothing cancels them."""


def alone(c: sq.Stream, a: sq.Stream, b: sq.Stream | None = None) -> sq.Stream:
    """The pattern, from whose plan A and B have gone."""
    with pytest.warns(StreamqWarning, match="cancels none"):
        return sq.cedr(NEGATED, A=a, B=events("b", 1) if b is None else b, C=c)


# the law


def drop_empty_input(node: Node) -> Node | None:
    """``union(a, where(b, false)) => a``: a law that takes every source below b out of the plan."""
    match node:
        case Union(inputs=(*others, Where(predicate=Lit(value=False)))):
            return others[0] if len(others) == 1 else Union(tuple(others))
    return None


WITH_IT = (*RULES, Rule(drop_empty_input))
ITEMS = t.table(
    "kind string, start bigint, end bigint, new_end bigint, v bigint",
    [("insert", 1, 9, None, 1), ("insert", 4, None, None, 2), ("retract", 1, 9, 5, 1), ("cti", 3, None, None, None)]
    + [("retract", 4, None, 4, 2), ("retract", 7, 8, 7, 9), ("insert", 2, 6, None, 1), ("cti", 8, None, None, None)],
)
ROWS = t.table("at bigint, until bigint, edge string, k string, v bigint", [
    (3, 5, "start", "a", 1), (9, 12, "end", "a", 1), (3, 5, "start", "a", 1), (4, 4, "end", "b", 2),
    (14, 20, "start", "b", 3), (2, None, "start", "a", 4), (6, 8, "end", "a", 5), (None, 3, "start", "a", 6),
])  # fmt: skip
"""Late, invalid and repeated rows among others."""

POLICY: dict[str, Any] = {"progress": sq.generate(2), "late": "adjust"}
KINDS: dict[str, Any] = {
    "points": lambda name: sq.points(ROWS, "at", name=name, **POLICY),
    "points with ids": lambda name: sq.points(ROWS, "at", id="k", name=name, **POLICY),
    "intervals": lambda name: sq.intervals(ROWS, "at", "until", name=name, **POLICY),
    "edges": lambda name: sq.edges(ROWS, "at", edge="edge", key="k", name=name, **POLICY),
    "signal": lambda name: sq.signal(ROWS, "at", "k", name=name, **POLICY),
    "physical": lambda name: sq.physical(ITEMS, name=name, late="adjust"),
}
LEVELS = [MIDDLE, Level(None), Level(0, 3), Level(2, 6)]


def micro_batches(
    query: sq.Stream, rules: Sequence[Rule], output: str, level: Level, seed: int
) -> tuple[list[Counter[str]], Counter[str], int]:
    """The deltas of each micro-batch over rows at random, with a restart in the middle, the counts, and the late rows."""
    egress = choose_egress(query.plan, OutputForm(output), verb="run")
    options = Options(egresses=(egress,), buckets=2, level=level, late_output=True)
    written, names = number_sources(Results((query.plan,)))
    tables = {names[name]: table for name, table in query.tables.items()}
    run, deltas = LocalRun(compile_stages(written, options, rules)), []
    order = random.Random(seed).sample(range(8), 8)
    for number, row in enumerate(order):
        rows = {name: table.slice(row, 1) for name, table in tables.items()}
        deltas.append(run.batch(rows))
        run = run.restart() if number == 4 else run
    counts = sum((Counter(totals) for totals in run.totals.values()), Counter[str]())
    return [bag(table) for table in (*deltas, run.finish())], counts, sum(table.num_rows for table in run.late)


def bag(deltas: pa.Table) -> Counter[str]:
    """Return the number of times that each row is there, by weight."""
    return Counter(map(str, deltas.to_pylist()))


def levels_of(kind: str, output: str) -> list[Level]:
    """One level, another one for the other output and the next kind; in a soak all."""
    turn = list(KINDS).index(kind) + 2 * (output == "final")
    return LEVELS if os.environ.get("STREAMQ_SOAK") else LEVELS[turn % len(LEVELS) :][:1]


@pytest.mark.slow
@pytest.mark.parametrize("output", ["final", "changelog"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_may_take_out_any_source(kind: str, output: str) -> None:
    """With the rule the answer is the same at every level, and none of it comes later; the same rows are late or invalid.

    A changelog is the same after every micro-batch. Final rows can come sooner, because they wait for the CTIs of fewer sources.
    """
    kept, removed, more = (KINDS[kind](name) for name in ("kept", "removed", "more"))
    never = sq.lit(False)
    query = kept.union(removed.where(never)).union(more.where(never))
    for seed, level in enumerate(levels_of(kind, output)):
        by_rule, left = (micro_batches(query, rules, output, level, seed) for rules in (WITH_IT, ()))
        if output == "changelog":
            assert by_rule[0] == left[0]
        for n in range(len(left[0])):
            assert sum(by_rule[0][:n], Counter()) >= sum(left[0][:n], Counter())
        assert sum(by_rule[0], Counter()) == sum(left[0], Counter()) and by_rule[1:] == left[1:]
        assert {key.partition("|")[0] for key in by_rule[1]} >= {"removed", "more"}


# what a user sees


def test_its_progress_counts_where_rows_wait_for_all_sources_of_the_query() -> None:
    query = alone(intervals("c", (1, 2, "x"), (3, 4, "x")), intervals("a", (2, 3, "x"), (9, 10, "x")))
    middle, strong = (rehearsal(query, "changelog", level) for level in ("middle", "strong"))
    assert middle.arrive(c=2).num_rows == 2
    assert strong.arrive(c=2).num_rows == 0
    assert strong.why().summary.startswith("Rows are held back: a has brought no row")
    assert "a row of a at or after 2 and a row of b at or after 2" in str(strong.why())
    assert strong.arrive(a=1).num_rows == 0
    assert strong.advance(9, source="b").to_pylist()[0]["start"] == 1
    assert strong.finish().num_rows == 1


def test_its_rows_are_reported_and_its_late_ones_counted() -> None:
    run = rehearsal(alone(intervals("c", (1, 2, "x")), intervals("a", (5, 6, "x"), (1, 2, "x"))), "changelog", "strong")
    run.arrive(a=1)
    run.arrive(a=1, c=1)
    assert run.metrics["sources"]["a"] | {"rows": 2, "cti": 5, "dropped": 1} == run.metrics["sources"]["a"]
    assert run.late["a|dropped"] == 1
    assert run.progress["sources"]["a"]["rows"] == 1
    # nothing of it waits to come out
    assert [wait.operator for wait in run.why().waits] == [
        "consistency: rows held back behind ingress of c: judge lateness"
    ]


def test_a_source_follows_one_that_nobody_reads() -> None:
    a = events("a", 1, 9)
    c = sq.events([(1, 2, {"k": 1}), (4, 5, {"k": 1})], name="c", progress=sq.follow(a))
    run = rehearsal(alone(c, a).tumbling_window(5).select(n=sq.count()))
    assert run.arrive(c=2).num_rows == 0
    assert run.arrive(a=2).to_pylist() == [{"n": 2, "start": 0, "end": 5}]
    with pytest.raises(PlanError, match="source 'c' has the progress of another source"):
        run.advance(20, source="c")


def test_it_is_in_the_checkpoint_and_its_late_rows_are_judged_after_a_restart() -> None:
    c, a = intervals("c", (1, 2, "x"), (3, 4, "x")), intervals("a", (7, 8, "x"), (2, 3, "x"))
    query = alone(c, a)
    run = ChangingRun(query, output="changelog", level=Level(None))
    assert run.identity.sources == ("c", "a", "b")
    run.batch({"c": c.tables["c"], "a": a.tables["a"].slice(0, 1)})
    assert run.fit(query).misfits == ()
    run.changed(query, output="changelog", level=Level(None)).batch({"a": a.tables["a"].slice(1)})
    (deltas,) = run.finish()
    assert deltas.num_rows == 2
    assert {key: n for totals in run.run.totals.values() for key, n in totals.items()} == {"a|dropped": 1}


def test_explain_shows_it() -> None:
    shown = alone(intervals("c", (1, 2, "x")), intervals("a", (2, 3, "x"))).explanation("physical")
    assert "source a: generate()" in shown
    assert "late rows are judged here: no operator reads the source once the rules are applied" in shown
