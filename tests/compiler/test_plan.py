"""What every operator's node states of itself, and which of it holds of one node."""

from __future__ import annotations

import datetime as dt
import re
from typing import cast

import pyarrow as pa
import pytest

import streamq as sq
from streamq import time_weighted_avg
from streamq.choices import JoinKind
from streamq.compiler.rewriter import rewrite
from streamq.compiler.stages import HOLDING, ctis_footprint, settle_footprint
from streamq.operators import MergePartials, written_operators
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import KernelSite
from streamq.operators.join import Join
from streamq.operators.member_operator import MemberOperator
from streamq.operators.operator import Operator
from streamq.operators.source import Source
from streamq.plan.aggregate import Aggregate
from streamq.plan.footprint import Footprint, OpenedPart
from streamq.plan.node import Node, nodes
from streamq.sources.edges import Edges
from streamq.windows import KINDS
from tests.drawn.queries import RESETTING_SUM
from tests.each import each
from tests.programs import compiled


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
        *(w.select(n=count) for w in stamped for count in (sq.count_distinct("k"), sq.count())),
        *(w.select(v=time_weighted_avg("v")) for w in (*stamped, *unclipped)),
        *(w.top_k(1, by="v") for w in stamped),
    ]
    return [stream.plan for stream in streams]


def test_the_plans_hold_every_operator_that_an_evaluator_hosts() -> None:
    evaluated = {kind for kind in written_operators() if issubclass(kind, EvaluatedOperator)}
    assert {type(plan) for plan in queries()} == evaluated
    kinds = {plan.window.name for plan in queries() if isinstance(plan, MemberOperator)}
    assert kinds == {kind.name for kind in KINDS}


@each(queries())
def test_a_node_states_the_progress_that_its_evaluator_promises(plan: Node) -> None:
    assert isinstance(plan, EvaluatedOperator)
    evaluation = plan.evaluation
    rule = evaluation.evaluator.progress_rule
    if not evaluation.factory.corrects:
        site = KernelSite(inputs=(pa.schema([]),) * len(plan.children), result=plan.schema.names)
        rule = evaluation.factory.make(evaluation, site).progress_rule
    promised, *_ = str(rule.cti).replace(";", ",").split(",")
    statements = plan.footprint
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
        assert promised in node.footprint.cti
        if isinstance(node, MergePartials):
            assert node.progress == promised
            assert node.footprint.final.startswith(hosted.kernel.progress_rule.final_rows)


@each(queries())
def test_what_keeps_state_says_what_opens_it(plan: Node) -> None:
    assert isinstance(plan, EvaluatedOperator)
    assert plan.footprint.keeps.split(";")[0] and plan.footprint.cost and plan.footprint.cti and plan.footprint.final
    assert plan.footprint.opened is not OpenedPart.NOTHING


def test_sources_and_kernels_without_a_node_say_what_opens_their_state() -> None:
    times, lives = pa.table({"t": [1], "k": [1]}), pa.table({"start": [1], "end": [2], "k": [1]})
    edges = times.append_column("edge", pa.array(["start"]))
    rows = lives.append_column("kind", pa.array(["insert"])).append_column("new_end", pa.array([2]))
    ids = [sq.points(times, "t", id="k"), sq.intervals(lives, "start", "end", id="k"), sq.physical(rows, id="k")]
    sources = [*ids, sq.physical(rows), sq.edges(edges, "t", edge="edge", key="k")]
    footprints = [cast(Source, s.plan).footprint for s in sources]
    footprints += [ctis_footprint(in_order=in_order, reads_ends=not in_order) for in_order in (True, False)]
    footprints += [settle_footprint(at_once=True), settle_footprint(at_once=False), HOLDING]
    assert {one.opened for one in footprints} == {OpenedPart.PARTS}
    assert all(one.keeps and one.cost for one in footprints)
    without = [cast(Source, sq.points(times, "t").plan).footprint, ctis_footprint(in_order=False, reads_ends=False)]
    assert {one.opened for one in without} == {OpenedPart.NOTHING}


def test_a_footprint_says_first_which_part_is_read() -> None:
    lines = Footprint(keeps="rows", opens="parts, and some", cost="much", for_good="a row").lines("c + 1")
    texts = ("keeps: rows", "reads: parts, and some", "cost: much", "kept for good: a row", "CTI: c + 1")
    assert lines == (*texts, "final: rows of final events")
    assert Footprint(cost="a").state_lines() == ("keeps: nothing", "cost: a")
    with pytest.raises(ValueError, match="opens begins with none of nothing, parts, whole groups: 'a bit'"):
        Footprint(opens="a bit", cost="")


@pytest.mark.parametrize("how", JoinKind)
def test_a_join_states_what_holds_of_its_kind(how: str) -> None:
    a = sq.events([(1, 2, {"k": 1})])
    plan = a.join(a.where(lambda e: e.k > 0), on="k", how=how).plan
    assert isinstance(plan, Join)
    assert plan.footprint.final == ("pairs of final events" if how == "inner" else "settled rows")
    assert (plan.footprint.bounds != ()) == (how == "inner")


@pytest.mark.parametrize(("clip", "aggregate", "waits"), [
    ("none", time_weighted_avg("v"), True), ("full", time_weighted_avg("v"), False), ("full", sq.count(), False),
])  # fmt: skip
def test_a_window_states_whether_it_waits_for_its_members(clip: str, aggregate: Aggregate, waits: bool) -> None:
    windows = sq.events([(1, 2, {"v": 1})]).snapshot_window(clip_input=clip)
    assert ("settled" in cast(Operator, windows.select(v=aggregate).plan).footprint.final) == waits


@each(queries())
def test_a_node_takes_as_many_inputs_as_it_has(plan: Node) -> None:
    assert plan.with_children(plan.children).digest == plan.digest
    for others in ((*plan.children, plan), plan.children[1:]):
        if len(others) != len(plan.children):
            with pytest.raises(ValueError, match=rf"has {len(plan.children)} inputs, not {len(others)}"):
                plan.with_children(others)
