"""Whoever watches a plan being computed sees the rows of every node, in-process and in batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import streamq as sq
from streamq.compiler.local import LocalRun
from streamq.compiler.options import Placement
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import Node, nodes, number_sources
from streamq.time import INFINITY
from tests.programs import compiled


class Counting:
    """How many rows went into each node and out of it, by title."""

    def __init__(self) -> None:
        self.into: Counter[str] = Counter()
        self.out_of: Counter[str] = Counter()

    def rows_in(self, node: Node, port: int, rows: Any) -> None:
        self.into[f"{node.title} {port}"] += rows.num_rows

    def rows_out(self, node: Node, rows: Any) -> None:
        self.out_of[node.title] += rows.num_rows


def test_the_rows_of_every_node_are_seen() -> None:
    calls = sq.events([(1, 5, {"k": 1, "v": 1}), (2, 9, {"k": 1, "v": 7}), (3, 4, {"k": 2, "v": 8})], name="calls")
    pauses = sq.events([(3, 4, {"k": 1})], name="pauses")
    query = calls.where(sq.col("v") > 5).left_anti_join(pauses, on="k").shift(10)
    plan, _ = number_sources(query.plan)
    counts = Counting()
    run = LocalRun(compiled(rewrite(plan).plan, buckets=1, streaming=False), observer=counts)
    result = run.batch(dict(query.tables), [(None, INFINITY)])
    assert counts.into == {"where 0": 3, "anti join 0": 2, "anti join 1": 1, "alter_lifetime 0": 3}
    assert counts.out_of == {"intervals": 4, "where": 2, "anti join": 3, "alter_lifetime": 3}
    assert result.num_rows == 3
    assert {node.title for node in nodes(plan)} == set(counts.out_of)


def test_the_rows_inside_a_stage_are_seen() -> None:
    """The observer sees kernels that share a stage, and the steps between them, as if each had a stage of its own."""
    events = sq.events([(1, 2, {"k": 1, "v": 1}), (3, 4, {"k": 1, "v": 7}), (12, 13, {"k": 2, "v": 8})], name="events")
    sums = events.group_by("k").tumbling_window(10).select(v=sq.sum("v"))
    query = sums.where(sq.col("v") < 9).shift(1).group_by("k").session_window(3).select(n=sq.count())
    plan, _ = number_sources(query.plan)
    program = compiled(rewrite(plan).plan, buckets=2, streaming=False)
    names = [hosted.name for hosted in program.stages[0].hosted]
    placement = Placement(by_name={name: place for place, name in enumerate(names)}, stages=2, sources=())
    counts = []
    for each in (program, compiled(rewrite(plan).plan, buckets=2, streaming=False, placement=placement)):
        counts.append(Counting())
        LocalRun(each, observer=counts[-1]).batch(dict(query.tables), [(None, INFINITY)])
    assert len(program.stages) == 1
    assert [counts[0].into, counts[0].out_of] == [counts[1].into, counts[1].out_of]
    assert counts[0].into["where 0"] == 2 and counts[0].out_of["where"] == 2 and counts[0].out_of["session"] == 2
