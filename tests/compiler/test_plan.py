"""What every operator's node states of itself, and which of it holds of one node."""

from __future__ import annotations

import dataclasses

import pytest

import streamq as sq
from streamq import time_weighted_avg
from streamq.operators.join import KINDS
from streamq.plan.node import NODES, STATED, Node, stated, states

WINDOWS = ("hopping", "snapshot", "count", "rows", "session", "landmark")


@pytest.mark.parametrize("kind", NODES.values(), ids=NODES)
def test_every_node_states_progress_finality_state_and_cost(kind: type[Node]) -> None:
    found = stated(kind)
    assert [name for name in STATED if not found[name]] == []
    progress = vars(kind).get("progress", "c")
    if isinstance(progress, str):
        assert found["CTI"].startswith(progress.partition(";")[0])


def test_a_statement_may_run_over_lines_and_ends_at_a_blank_one() -> None:
    class Told(Node):
        """What it does.

        CTI: c
        State: one line,
            and another; b: only of b
        Cost: a: nothing; b: much

        No part of the cost.
        """

        cases = ("a", "b")
        case = ("b",)

    assert stated(Told) == {
        "CTI": "c",
        "Final": "",
        "State": "one line, and another; b: only of b",
        "Cost": "a: nothing; b: much",
    }
    made = object.__new__(Told)
    assert states(made) == {"CTI": "c", "Final": "", "State": "one line, and another; only of b", "Cost": "much"}


@pytest.mark.parametrize("how", KINDS)
def test_a_join_states_what_holds_of_its_kind(how: str) -> None:
    a = sq.events([(1, 2, {"k": 1})])
    found = states(a.join(a.where(lambda e: e.k > 0), on="k", how=how).plan)
    assert found["Final"] == ("pairs of final events" if how == "inner" else "settled rows")
    assert "semi" not in " ".join(found.values())


def test_a_window_states_what_holds_of_its_kind() -> None:
    s = sq.events([(1, 2, {"v": 1})])
    made = [s.hopping_window(2, 1), s.snapshot_window(), s.count_window(2), s.rows_window(2), s.session_window(3)]
    made.append(s.landmark_window(2, period=6))
    assert [w.window.name for w in made] == list(WINDOWS)
    for w in made:
        for query in (w.select(n=sq.count()), w.top_k(1, by="v")):
            found = states(query.plan)
            assert all(found.values()), found
            assert not any(f"{name}: " in text for name in WINDOWS for text in found.values())
    clipped, unclipped = s.snapshot_window(), s.snapshot_window(clip_input="none")
    assert "members are settled" in states(unclipped.select(v=time_weighted_avg("v")).plan)["Final"]
    assert "members are settled" not in states(clipped.select(v=time_weighted_avg("v")).plan)["Final"]
    assert "settled" not in states(s.snapshot_window().select(n=sq.count()).plan)["Final"]


def test_what_is_stated_is_no_part_of_the_plan() -> None:
    assert not {"cases", "case"} & {f.name for kind in NODES.values() for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
