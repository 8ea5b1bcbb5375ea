"""What every operator's node states of itself, and which of it holds of one node."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from dataclasses import dataclass

import pyarrow as pa
import pytest

import streamq as sq
from streamq import time_weighted_avg
from streamq.choices import JoinKind
from streamq.compiler.rewriter import rewrite
from streamq.operators import Attempt, MergePartials, written_operators
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.kernel_factory import KernelSite
from streamq.plan.node import NODES, Node, nodes
from streamq.plan.schema import Schema
from streamq.plan.statements import LABELS, OpenedPart, StateCost, Statements, read_statements, statements_of
from streamq.runtime.consistency import HeldRows
from streamq.runtime.kernels.ctis import CtisKernel
from streamq.runtime.kernels.settle import SettleKernel
from streamq.sources.edges import Edges
from streamq.testing.operators.scan import RESETTING_SUM
from streamq.windows import KINDS
from tests.each import each
from tests.programs import compiled


@pytest.mark.parametrize("kind", NODES.values(), ids=NODES)
def test_every_node_states_progress_finality_state_and_cost(kind: type[Node]) -> None:
    statements = read_statements(kind)
    assert [label for label, text in zip(LABELS, statements.texts, strict=True) if not text] == []
    progress = vars(kind).get("progress", "c")
    if isinstance(progress, str) and not issubclass(kind, EvaluatedOperator):
        assert statements.cti.startswith(progress.partition(";")[0])


def queries() -> list[Node]:
    """A plan for every operator that an evaluator hosts, and every case of it."""
    a, b = sq.events([(1, 2, {"k": 1, "v": 1.0})]), sq.events([(1, 2, {"k": 1, "w": 2.0})])
    dated = sq.events([(dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2), {"k": 1, "v": 1.0})])
    windows = [
        lambda **how: a.hopping_window(2, 1, **how),
        lambda **how: a.snapshot_window(**how),
        lambda **how: a.count_window(2, **how),
        lambda **how: a.rows_window(2, **how),
        lambda **how: a.session_window(3, **how),
        lambda **how: a.landmark_window(2, period=6, **how),
        lambda **how: dated.calendar_window("1 day", zone="UTC", **how),
    ]
    stamped = [window(stamp=stamp) for window in windows for stamp in ("align", "point_at_end")]
    unclipped = [window(clip_input="none") for window in windows]
    streams = [
        *(a.join(b, on="k", how=how) for how in JoinKind),
        a.windowed_join(b, on="k", size=2),
        a.except_(a.where(lambda e: e.k > 0)),
        a.clip(b, on="k"),
        a.to_points().to_signal("k"),
        a.last_rows(3, 2, key="k"),
        a.chop(2),
        a.to_points().scan(RESETTING_SUM("k")),
        a.distinct_ids(2, id="k"),
        *(w.select(n=sq.count_distinct("k")) for w in stamped),
        *(w.select(v=time_weighted_avg("v")) for w in (*stamped, *unclipped)),
        *(w.top_k(1, by="v") for w in stamped),
    ]
    return [stream.plan for stream in streams]


def test_the_plans_hold_every_operator_that_an_evaluator_hosts() -> None:
    evaluated = {kind for kind in written_operators() if issubclass(kind, EvaluatedOperator)}
    assert {type(plan) for plan in queries()} == evaluated


@each(queries())
def test_a_node_states_the_progress_that_its_evaluator_promises(plan: Node) -> None:
    assert isinstance(plan, EvaluatedOperator)
    evaluation = plan.evaluation
    rule = evaluation.evaluator.progress_rule
    if not evaluation.factory.corrects:
        site = KernelSite(inputs=(pa.schema([]),) * len(plan.children), result=plan.schema.names)
        rule = evaluation.factory.make(evaluation, site).progress_rule
    promised, *_ = str(rule.cti).replace(";", ",").split(",")
    statements = statements_of(plan)
    clauses = [clause.strip() for clause in re.split("[;,]", statements.cti)]
    assert (
        promised in clauses
        or f"under a time-sensitive aggregate the {promised}" in clauses
        or (promised == "c" and "at point_at_end c" in clauses)
    )
    if rule.final is None:
        assert statements.final.endswith("of final events")
    else:
        assert statements.final.startswith(rule.final_rows.removesuffix(" rows"))


def test_sources_and_grids_state_the_progress_that_their_kernels_promise() -> None:
    rows = pa.table({"t": [1, 2], "k": [1, 1], "edge": ["start", "end"]})
    a = sq.events([(1, 2, {"k": 1})])
    streams = [
        a.hopping_window(2, 1).select(n=sq.count()),
        *(sq.edges(rows, "t", edge="edge", key="k", payload=side) for side in ("start", "end")),
    ]
    for stream in streams:
        program = compiled(rewrite(stream.plan).plan, "changelog")
        (hosted,) = program.stages[-1].hosted
        (node,) = [n for n in nodes(program.plan) if isinstance(n, MergePartials | Edges)]
        promised = hosted.kernel.progress_rule.cti.shown()
        assert f"CTI: {promised}" in program.titles[hosted.name]
        assert promised in statements_of(node).cti
        if isinstance(node, MergePartials):
            assert node.progress == promised
            assert statements_of(node).final.startswith(hosted.kernel.progress_rule.final_rows)


@each(queries())
def test_what_keeps_state_says_what_opens_it(plan: Node) -> None:
    state = statements_of(plan).state
    assert state.keeps.split(";")[0] and state.cost
    assert state.opened is not OpenedPart.NOTHING


def test_sources_and_kernels_without_a_node_say_what_opens_their_state() -> None:
    times, lives = pa.table({"t": [1], "k": [1]}), pa.table({"start": [1], "end": [2], "k": [1]})
    edges = times.append_column("edge", pa.array(["start"]))
    rows = lives.append_column("kind", pa.array(["insert"])).append_column("new_end", pa.array([2]))
    ids = [sq.points(times, "t", id="k"), sq.intervals(lives, "start", "end", id="k"), sq.physical(rows, id="k")]
    sources = [*ids, sq.physical(rows), sq.edges(edges, "t", edge="edge", key="k")]
    kernels = [
        CtisKernel(pa.schema([]), in_order, reads_ends) for in_order, reads_ends in ((True, False), (False, True))
    ]
    settling = [SettleKernel(), SettleKernel(at_once=True)]
    opened = [statements_of(stated).state for stated in (*(s.plan for s in sources), *kernels, *settling)]
    opened += [read_statements(kind).state for kind in (HeldRows, MergePartials, Attempt)]
    assert {state.opened for state in opened} == {OpenedPart.PARTS}
    assert all(state.keeps and state.cost for state in opened)
    without = [sq.points(times, "t").plan, CtisKernel(pa.schema([]))]
    assert {statements_of(stated).state.opened for stated in without} == {OpenedPart.NOTHING}


def test_a_statement_may_run_over_lines_and_ends_at_a_blank_one() -> None:
    @dataclass(frozen=True)
    class Told(Node):
        """What it does.

        CTI: c
        State: one line,
            and another; b: only of b
        Opens: b: parts, and some
        Cost: a: nothing; b: much

        No part of the cost.
        """

        cases = ("a", "b")
        case = ("b",)

        def _schema(self) -> Schema:
            raise AssertionError("it is not constructed")

    state = StateCost("one line, and another; b: only of b", "b: parts, and some", "a: nothing; b: much")
    assert read_statements(Told) == Statements("c", "", state)
    state = StateCost("one line, and another; only of b", "parts, and some", "much")
    assert statements_of(object.__new__(Told)) == Statements("c", "", state)
    assert state.opened is OpenedPart.PARTS
    assert state.lines() == ("keeps: one line, and another; only of b", "reads: parts, and some", "cost: much")
    with pytest.raises(ValueError, match="Opens: begins with none of nothing, parts, whole groups: 'a bit'"):
        _ = StateCost("much", "a bit", "").opened


@pytest.mark.parametrize("how", JoinKind)
def test_a_join_states_what_holds_of_its_kind(how: str) -> None:
    a = sq.events([(1, 2, {"k": 1})])
    statements = statements_of(a.join(a.where(lambda e: e.k > 0), on="k", how=how).plan)
    assert statements.final == ("pairs of final events" if how == "inner" else "settled rows")
    assert "semi" not in " ".join(statements.texts)


def test_a_window_states_what_holds_of_its_kind() -> None:
    s = sq.events([(1, 2, {"v": 1})])
    made = [s.hopping_window(2, 1), s.snapshot_window(), s.count_window(2), s.rows_window(2), s.session_window(3)]
    dated = sq.events([(dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2), {"v": 1})])
    made += [s.landmark_window(2, period=6), dated.calendar_window("1 day", zone="UTC")]
    assert [w.window.name for w in made] == [kind.name for kind in KINDS]
    for w in made:
        for query in (w.select(n=sq.count()), w.top_k(1, by="v")):
            statements = statements_of(query.plan)
            assert all(statements.texts), statements
            assert statements.state.opened is not OpenedPart.NOTHING
            assert not any(f"{name}: " in text for text in statements.texts for name in [k.name for k in KINDS])
    clipped, unclipped = s.snapshot_window(), s.snapshot_window(clip_input="none")
    assert "members are settled" in statements_of(unclipped.select(v=time_weighted_avg("v")).plan).final
    assert "members are settled" not in statements_of(clipped.select(v=time_weighted_avg("v")).plan).final
    assert "settled" not in statements_of(s.snapshot_window().select(n=sq.count()).plan).final


def test_what_is_stated_is_no_part_of_the_plan() -> None:
    assert not {"cases", "case"} & {f.name for kind in NODES.values() for f in dataclasses.fields(kind)}  # type: ignore[arg-type]


@each(queries())
def test_a_node_takes_as_many_inputs_as_it_has(plan: Node) -> None:
    assert plan.with_children(plan.children).digest == plan.digest
    for others in ((*plan.children, plan), plan.children[1:]):
        if len(others) != len(plan.children):
            with pytest.raises(ValueError, match=rf"has {len(plan.children)} inputs, not {len(others)}"):
                plan.with_children(others)
