"""What declared properties of modules change: what is shipped, when rows and CTIs go on, and what explain says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamq as sq
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.compiler.rewriter import rewrite
from streamq.plan.node import number_sources
from streamq.plan.passes import columns
from streamq.runtime.deltas import LE, RE, net_deltas
from tests.programs import compiled

WIDE = sq.events(
    [(1, 2, {"k": "a", "v": 3, "w": 0, "x": 1, "y": 2}), (6, 7, {"k": "b", "v": 4, "w": 0, "x": 1, "y": 2})], name="s"
).to_points()


def started(query: sq.Stream, output: str = OutputForm.CHANGELOG) -> LocalRun:
    plan = rewrite(number_sources(query.plan)[0]).plan
    return LocalRun(compiled(plan, output, ctis=output == OutputForm.CHANGELOG, buckets=1))


# time_bound


def rises(events: pd.DataFrame, window: Any) -> Iterator[tuple[Any, ...]]:
    """Each event greater than the one before it, at its place."""
    before = None
    for event in events.sort_values(["start", "v"]).itertuples():
        if before is not None and event.v > before:
            yield event.start, event.end, event.v - before
        before = event.v


BOUND = sq.udo("rise bigint", time_sensitive=True, name="bound_rises", properties=[sq.time_bound])(rises)
UNBOUND = sq.udo("rise bigint", time_sensitive=True, name="unbound_rises")(rises)


def progress(operator: Any, output: str) -> list[tuple[list[tuple[int, int, int]], int]]:
    """What goes on after each event of a stream, and a CTI behind it: rows, and how far the CTI has come."""
    empty = sq.events([sq.insert(0, 1, v=0), sq.cti(0)], name="s", schema={"v": "bigint"})
    live = started(empty.tumbling_window(10).select(operator("v")), output)
    steps = []
    for at, v in ((1, 5), (3, 7), (4, 6), (8, 9), (12, 1)):
        items = sq.events([sq.insert(at, at + 1, v=v), sq.cti(at + 1)], name="s", schema={"v": "bigint"})
        # what is taken back and given again within a micro-batch is no news
        rows = net_deltas(live.batch(items.tables)).to_pylist()
        steps.append(([(r[LE], r[RE], r["rise"]) for r in rows], live.cti))
    return steps


def test_rows_and_ctis_of_a_time_bound_operator_go_on_as_input_comes() -> None:
    assert progress(BOUND, OutputForm.CHANGELOG) == [
        ([], 2),
        ([(3, 4, 2)], 4),
        ([], 5),
        ([(8, 9, 3)], 9),
        ([], 13),
    ]


def test_those_of_another_one_wait_for_the_window() -> None:
    assert progress(UNBOUND, OutputForm.CHANGELOG) == [([], 0)] * 4 + [([(3, 4, 2), (8, 9, 3)], 10)]


def test_final_rows_do_not_wait_for_it_either() -> None:
    bound, unbound = ([rows for rows, _ in progress(o, OutputForm.FINAL)] for o in (BOUND, UNBOUND))
    assert bound == [[], [], [(3, 4, 2)], [], [(8, 9, 3)]], "an end at c may still move"
    assert unbound == [[], [], [], [], [(3, 4, 2), (8, 9, 3)]]


# order_insensitive


SORTED = sq.uda("double", name="sorted_median")(np.median)
UNSORTED = sq.uda("double", name="median", properties=[sq.order_insensitive])(np.median)


@pytest.mark.parametrize(("module", "shipped"), [(SORTED, {"k", "v", "w", "x", "y"}), (UNSORTED, {"v"})])
def test_only_arguments_come_to_the_windows_of_a_function_that_any_order_will_do_for(
    module: Any, shipped: set[str]
) -> None:
    live = started(WIDE.tumbling_window(4).select(m=module("v")), OutputForm.FINAL)
    # from where lateness is judged, to the windows
    (feed,) = [f for f in live.program.feeds if f.path.relation.startswith("ingress:")]
    assert {column for _, expr in feed.columns for column in columns(expr)} == shipped


# explain


class Mean:
    def initial(self) -> tuple[int, int]:
        return 0, 0

    def add(self, state: tuple[int, int], v: pd.Series) -> tuple[int, int]:
        return state[0] + int(v.sum()), state[1] + len(v)

    def result(self, state: tuple[int, int]) -> float:
        return state[0] / state[1]


class MergedMean(Mean):
    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]


MEAN = sq.uda("double", name="mean")(Mean)
MERGED = sq.uda("double", name="merged")(MergedMean)
LIMITED = sq.uda("double", name="limited", time_limit=5, checked=True)(MergedMean)
CHANGES = sq.udo(
    "k string, n bigint",
    time_sensitive=True,
    name="changes",
    properties=[sq.time_bound, sq.filters_on("k"), sq.one_output_per_group],
)(rises)
PLAIN = sq.udo("k string, n bigint", time_sensitive=True, name="plain")(rises)
HOUR = WIDE.hopping_window(12, 1)
SHARE = "merge(a, b) would let 12 windows share basic windows"
HELD = "merge(a, b) would let settled events be held as states"
IN_PARTS = "not mergeable: each window is computed of all its members"
OF_WINDOW = "not mergeable: each window has a state of what has come; if members have gone, it is computed of all"
SHARED = "merged: mergeable: a basic window is computed once, and shared by 12 windows"

NOTES = [
    (HOUR.select(x=MERGED("v")), [SHARED]),
    (HOUR.select(x=MEAN("v"), y=sq.median("w")), [f"mean: {IN_PARTS}; {SHARE}"]),
    (WIDE.hopping_window(12, 1, stamp="point_at_end").select(x=MEAN("v")), [f"mean: {OF_WINDOW}; {SHARE}"]),
    (WIDE.session_window(3).select(x=MEAN("v")), [f"mean: {IN_PARTS}; {HELD}"]),
    (WIDE.rows_window(3).select(x=MEAN("v")), [f"mean: {IN_PARTS}"]),
    (WIDE.tumbling_window(3).select(x=MERGED("v")), ["merged: mergeable: parts of a window are merged"]),
    (
        WIDE.snapshot_window().select(x=MERGED("v")),
        ["merged: mergeable: settled events are held as states, for snapshot windows have no basic windows"],
    ),
    (
        HOUR.select(x=LIMITED("v")),
        ["limited: mergeable: not merged, for its time is limited and its calls are checked"],
    ),
    (
        HOUR.select(x=MERGED("v"), y=MEAN("v")),
        [
            "merged: mergeable: each window has a state of what has come, for mean beside it does not merge",
            f"mean: {OF_WINDOW}; {SHARE}",
        ],
    ),
    (
        WIDE.group_by("k").hopping_window(12, 1).select(x=SORTED("v")),
        [
            f"sorted_median: not mergeable: each window is computed of all its members; {SHARE}",
            "sorted_median: order: members come sorted by (start, payload); "
            "sq.order_insensitive would leave 3 columns unread",
        ],
    ),
    (
        WIDE.session_window(3).select(x=UNSORTED("v"), y=sq.first("w")),
        [
            f"median: not mergeable: each window is computed of all its members; {HELD}",
            "median: order_insensitive: but first beside it reads all columns",
        ],
    ),
    (
        WIDE.tumbling_window(3).select(CHANGES("k", "v")),
        [
            "changes: order: members come sorted by (start, payload); sq.order_insensitive would leave 3 columns unread",
            "changes: time_bound: rows and CTI go on as input comes",
            "changes: filters_on(k): filters on k move below",
            "changes: one_output_per_group: output='upsert' does not go with stamp='time_bound' of hopping windows",
        ],
    ),
    (
        WIDE.snapshot_window(stamp="align").select(CHANGES("k", "v", where=sq.col("x") > sq.col("w") + sq.col("y"))),
        [
            "changes: order: members come sorted by (start, payload)",
            "changes: time_bound: not used under stamp='align'",
            "changes: filters_on(k): filters on k move into its calls, for snapshot windows depend on all events",
            "changes: one_output_per_group: output='upsert' goes with it",
        ],
    ),
    (
        WIDE.tumbling_window(3, stamp="clip").select(PLAIN("k", "v")),
        [
            "plain: order: members come sorted by (start, payload); sq.order_insensitive would leave 3 columns unread",
            "plain: not time_bound: CTI is the start of the earliest window not final; sq.time_bound would give c",
            "plain: no filters_on: sq.filters_on(...) would let filters on k move below",
        ],
    ),
    (
        WIDE.tumbling_window(3, stamp="align").select(PLAIN("k", sq.col("v").alias("n"))),
        [
            "plain: order: members come sorted by (start, payload); sq.order_insensitive would leave 3 columns unread",
            "plain: no filters_on: sq.filters_on(...) would let filters on k, n move below",
            "plain: no one_output_per_group: with it output='upsert' would go",
        ],
    ),
]
"""Queries, and what explain says of their modules."""


@pytest.mark.parametrize(("query", "notes"), NOTES)
def test_explain_says_what_a_property_buys_or_would_buy(query: sq.Stream, notes: list[str]) -> None:
    nodes = json.loads(query.explanation("incremental", "json"))["incremental"]
    assert [note for node in nodes for note in node.get("modules", [])] == notes
    text = [line.strip() for line in query.explanation("incremental").splitlines()]
    assert [line for line in text if line in notes] == notes


def test_rows_that_start_in_their_window_need_no_ctis_of_their_own() -> None:
    _, *lines = WIDE.tumbling_window(3).select(CHANGES("k", "v")).explanation("incremental").splitlines()
    assert not [line for line in lines if "CTI: " in line]
