"""The edge kernel: late edges by policy; state is open starts and what c has not passed, and what late edges need."""

from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.errors import LateEvent
from streamq.policies import MIDDLE, Level
from streamq.runtime.state.baskets import Baskets, DictStore
from streamq.time import INFINITY
from tests.runtime.kernels.arrivals import Arrivals, Row

COLUMNS = "t bigint, edge string, id bigint"
HOSTS = f"{COLUMNS}, host string"


def run(
    late: str = "drop",
    delay: int = 0,
    *,
    invalid: str | None = None,
    level: Level = MIDDLE,
    columns: str = COLUMNS,
    payload: str = "start",
) -> Arrivals:
    how: dict[str, Any] = {"progress": sq.generate(delay), "late": late, "invalid": invalid, "payload": payload}
    source = sq.edges(t.table(columns, []), "t", edge="edge", key="id", name="e", **how)
    return Arrivals(source, columns, buckets=2, level=level, ctis=payload == "end")


def opens(at: int, id: int) -> Row:
    return (at, "start", id)


def closes(at: int, id: int) -> Row:
    return (at, "end", id)


def test_an_end_that_nothing_opened_is_counted_once_c_has_passed_it() -> None:
    live = run(delay=5)
    live.send(closes(9, 7), opens(12, 8))
    assert live.counted == {}
    live.send(opens(30, 9))
    assert live.counted == {"invalid": 1}


def test_late_edges() -> None:
    first, late = (opens(50, 1), opens(40, 2)), (opens(10, 3), closes(45, 2))
    drop = run()
    drop.send(*first)
    # the late start of 3 is dropped and its end goes with it; the late end of 2 is dropped, so 2 stays open
    drop.send(*late)
    assert len(drop.send(closes(60, 3), opens(70, 9))) == 1
    drop.run.finish()
    assert drop.counted == {"dropped": 3}
    adjust = run("adjust")
    adjust.send(*first)
    assert adjust.send(*late) == [(40, 50, 2, 1), (40, None, 2, -1), (50, None, 3, 1)]
    assert adjust.counted == {"adjusted": 2}
    fail = run("fail")
    fail.send(opens(50, 1))
    with pytest.raises(LateEvent, match=r"e: 1 late item\(s\) .*; the CTI is 50, first: {'id': 3} \(start 10\)"):
        fail.send(opens(10, 3))


@pytest.mark.parametrize("late", ["drop", "adjust", "fail"])
def test_an_edge_that_is_delivered_again(late: str) -> None:
    """In one micro-batch, in a later one, out of order, and behind c: an open start is known however old it is."""
    live = run(late, delay=10, invalid="fail")
    assert live.send(opens(20, 7), opens(20, 7)) == [(20, None, 7, 1)]
    assert live.send(closes(30, 8), opens(20, 7), opens(22, 8)) == [(22, 30, 8, 1)]
    assert live.send(closes(30, 8), opens(22, 8)) == []
    live.send(opens(90, 9))
    assert live.send(opens(20, 7)) == []
    assert live.send(closes(95, 7), closes(95, 7)) == [(20, 95, 7, 1), (20, None, 7, -1)]
    assert live.send(closes(95, 7)) == []
    assert live.counted == {"duplicates": 7}
    assert [(r["reason"], r["late_by"]) for r in live.set_aside] == [("duplicate", None)] * 7


def test_an_edge_that_comes_again_once_it_is_forgotten_is_late() -> None:
    live = run()
    live.send(opens(1, 7), closes(5, 7), opens(9, 8))
    live.send(opens(50, 9))
    live.send(opens(1, 7))
    live.send(opens(1, 7), closes(5, 7))
    assert live.counted == {"dropped": 2, "duplicates": 1}
    assert held(live) == [8, 9], "7 is over again"


def held(live: Arrivals) -> list[int]:
    """The keys of the edges in state."""
    (name,) = [state.name for state in live.run.program.states]
    scopes = [Baskets(DictStore(store)).scoped(name) for store in live.run.stores.values()]
    tables = [table for scope in scopes if (table := scope.read_all("edges")) is not None]
    return sorted(id for table in tables for id in table.column("id").to_pylist())


def test_edges_of_one_key_and_instant_that_differ() -> None:
    """None of them counts: what was sent for the first one is taken back; behind c the one that stands stays."""
    live = run("adjust", 9, columns=HOSTS)
    once = (*opens(1, 7), "b")
    assert live.send(once, once, (*opens(1, 8), "b")) == [(1, None, 7, 1), (1, None, 8, 1)]
    assert live.send((*opens(1, 7), "a")) == [(1, None, 7, -1)]
    assert live.send((*opens(1, 7), "a"), (*opens(1, 7), "c")) == []
    assert live.counted == {"duplicates": 2, "invalid": 3}
    live.send((*opens(30, 9), "b"))
    assert live.send((*opens(1, 8), "late")) == []
    assert live.counted["invalid"] == 4
    reasons = {"duplicate", "two edges of one key at one instant that differ, without order_by"}
    assert {r["reason"] for r in live.set_aside} == reasons
    assert held(live) == [8, 9], "what voids each other is over behind c"


@pytest.mark.parametrize(
    "late", [[[opens(5, 7)], [closes(20, 7)]], [[opens(5, 7), closes(20, 7)]], [[closes(20, 7)], [opens(5, 7)]]]
)
def test_the_end_of_a_start_that_was_dropped_goes_with_it(late: Any) -> None:
    """The start before it stays open until the next one."""
    live = run("drop", invalid="fail")
    for batch in ([opens(1, 7)], [opens(10, 8)], *late, [opens(30, 7)], [closes(40, 7)], [opens(90, 9)]):
        live.send(*batch)
    assert [event for event in live.events if event[2] == 7] == [(1, 30, 7), (30, 40, 7)]
    live.run.finish()
    assert live.counted == {"dropped": 2}


def test_a_key_s_last_edge_is_kept_where_a_late_one_may_act() -> None:
    """Until its source can send none any more; the policy drop asks for none."""
    for live, kept in ((run("adjust"), [7, 9]), (run("drop"), [9]), (run(delay=30, level=Level(0, 1)), [7, 9])):
        live.send(opens(1, 7), closes(5, 7))
        live.send(opens(20, 9))
        assert sorted(set(held(live))) == kept
        live.run.finish()
        assert all(set(s) == {"manifest"} for s in live.run.stores.values())


def test_a_closing_edge_with_the_payload_holds_the_cti_at_the_open_start() -> None:
    live = run("fail", delay=1_000, invalid="fail", columns=HOSTS, payload="end")

    def cti(c: int, *rows: Row) -> int:
        live.send(*[(*row, "a") for row in rows], c=c)
        return live.run.cti

    assert cti(5, opens(1, 7), opens(2, 8), opens(6, 9)) == 1
    assert cti(9, closes(5, 7)) == 2
    assert cti(20, closes(20, 8)) == 2, "an earlier end may still come in between"
    assert cti(21, closes(20, 9)) == 21
    assert cti(30) == 30
    assert cti(40, opens(33, 7)) == 33
    assert cti(INFINITY) == INFINITY
