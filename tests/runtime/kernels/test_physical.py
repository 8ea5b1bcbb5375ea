"""The physical kernel: late items by policy, and what follows them translated (docs/concepts.md, "Late rows, invalid rows")."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.compiler.local import LocalRun
from streamq.errors import InvalidEvent, LateEvent
from streamq.plan.node import number_sources
from streamq.policies import MIDDLE, Level
from streamq.runtime.state.baskets import Baskets, DictStore
from tests.programs import compiled


def run(
    late: str, *batches: list[Any], level: Level = MIDDLE, invalid: str | None = None, named: bool = False
) -> tuple[LocalRun, list[list[tuple[Any, ...]]]]:
    live: LocalRun | None = None
    out = []
    for items in batches:
        # a pad of every kind gives all micro-batches the same columns; the retraction of nothing is never matched
        s = sq.events([*items, sq.retract(999, 1000, 999, v=0)], late=late, invalid=invalid, name="p")
        if named:
            s = s._derive(replace(s.plan, id="v"))
        if live is None:
            live = LocalRun(compiled(number_sources(s.plan)[0], OutputForm.CHANGELOG, buckets=1, level=level))
        table = s.tables["p"]
        assert isinstance(table, pa.Table)
        found = live.batch({"p": table.slice(0, table.num_rows - 1)})
        out.append(
            sorted(
                (r["v"], r["__w"], r["__le"], None if r["__re"] == 2**63 - 1 else r["__re"]) for r in found.to_pylist()
            )
        )
    assert live is not None
    return live, out


def test_a_late_retraction() -> None:
    start = [sq.insert(5, 50, v=2), sq.cti(20)]
    live, out = run("drop", start, [sq.retract(5, 50, 10, v=2)])
    assert out[1] == [] and live.totals[(0, 0)] == {"p|dropped": 1}
    live, out = run("adjust", start, [sq.retract(5, 50, 10, v=2)])
    assert out[1] == [(2, -1, 5, 50), (2, 1, 5, 20)] and live.totals[(0, 0)] == {"p|adjusted": 1}
    with pytest.raises(LateEvent):
        run("fail", start, [sq.retract(5, 50, 10, v=2)])


def test_a_retraction_that_has_waited_is_judged() -> None:
    """What it leads on from comes behind c: from before c on nothing may change any more."""
    early = [sq.insert(3, 20, v=1), sq.retract(3, 40, 3, v=1), sq.cti(10)]
    live, out = run("drop", early, [sq.retract(3, 20, 40, v=1)])
    assert out[1] == [(1, -1, 3, 20), (1, 1, 3, 40)] and live.totals[(0, 0)] == {"p|dropped": 1}
    live, out = run("adjust", early, [sq.retract(3, 20, 40, v=1)])
    assert out[1] == [(1, -1, 3, 20), (1, 1, 3, 10)] and live.totals[(0, 0)] == {"p|adjusted": 1}


def test_a_late_retraction_of_what_is_settled() -> None:
    """What it adds from c on is an event of its own, and followed; without such it is dropped, and never invalid."""
    start = [sq.insert(1, 5, v=1), sq.cti(10)]
    more = [sq.retract(1, 50, 45, v=1)]
    live, out = run("adjust", start, [sq.retract(1, 5, 50, v=1)], more)
    assert out[1:] == [[(1, 1, 10, 50)], [(1, -1, 10, 50), (1, 1, 10, 45)]]
    assert live.totals[(0, 0)] == {"p|adjusted": 1}
    live, out = run("adjust", start, [*more, sq.retract(1, 5, 50, v=1)])
    assert out[1:] == [[(1, -1, 10, 50), (1, 1, 10, 45), (1, 1, 10, 50)]]
    for late, new_end in (("drop", 50), ("adjust", 9), ("adjust", 10)):
        live, out = run(late, start, [sq.retract(1, 5, new_end, v=1)], [sq.cti(60)])
        assert out[1:] == [[], []] and live.totals[(0, 0)] == {"p|dropped": 1}
    with pytest.raises(LateEvent, match=r"the CTI is 10, first: \{'v': 1\} \(start 1, end 5\)"):
        run("fail", start, [sq.retract(1, 5, 50, v=1)])


@pytest.mark.parametrize("known", [False, True])
def test_a_late_retraction_that_adds_nothing_counts_alike_whether_its_event_is_known_or_not(known: bool) -> None:
    """With ids an event is known while an end that it had may still move: it had 30, or ended for good before c."""
    history = [sq.retract(1, 5, 30, v=1), sq.retract(1, 30, 5, v=1)] if known else []
    start = [sq.insert(1, 5, v=1), *history, sq.cti(20)]
    live, out = run("adjust", start, [sq.retract(1, 5, 20, v=1)], [sq.retract(1, 20, 1, v=1)], named=True)
    assert out[1:] == [[], []] and live.totals[(0, 0)] == {"p|dropped": 1, "p|adjusted": 1}


def test_what_is_left_of_nothing_can_be_extended() -> None:
    """An insert that ended before c adds nothing from there on; a retraction of it does."""
    start = [sq.insert(30, 40, v=1), sq.cti(20)]
    live, out = run("adjust", start, [sq.insert(5, 10, v=2)], [sq.retract(5, 10, 50, v=2)])
    assert out[1:] == [[], [(2, 1, 20, 50)]]
    assert live.totals[(0, 0)] == {"p|dropped": 1, "p|adjusted": 1}
    # of one that the policy dropped what follows goes with it
    _, out = run("drop", start, [sq.insert(5, 10, v=2)], [sq.retract(5, 10, 50, v=2)])
    assert out[1:] == [[], []]


@pytest.mark.parametrize("between", [[], [sq.cti(11)], [sq.cti(45)]])
@pytest.mark.parametrize("named", [False, True])
def test_what_follows_a_dropped_retraction_goes_with_it(between: list[Any], named: bool) -> None:
    """Where it says how an event goes on past an end that c has passed, whether c has moved since or not; nothing is an error."""
    start = [sq.insert(1, 40, v=1), sq.cti(10)]
    lost = [sq.retract(1, 40, 5, v=1), *between], [sq.retract(1, 5, 60, v=1)]
    more = [sq.retract(1, 60, 50, v=1)], [sq.cti(70)]
    live, out = run("drop", start, *lost, *more, invalid="fail", named=named)
    assert out[1:] == [[], [], [], []] and live.totals[(0, 0)] == {"p|dropped": 3}


def test_what_only_the_level_gives_up_is_late_and_no_error() -> None:
    """A weak level passes the end that a retraction waits for, its source has promised nothing."""
    early = [sq.retract(39, 51, None, v=1), sq.retract(39, 52, 45, v=2), sq.insert(65, 70, v=0)]
    live, out = run("drop", early, [sq.insert(39, 51, v=1), sq.insert(39, 52, v=2)], level=Level(0, 5), invalid="fail")
    assert out == [[(0, 1, 65, 70), (1, 1, 60, None)], []]
    assert live.totals[(0, 0)] == {"p|adjusted": 1, "p|dropped": 3}


def test_settled_events_are_forgotten() -> None:
    live, _ = run("drop", [sq.insert(1, 5, v=1), sq.insert(1, 50, v=2), sq.cti(6)], [sq.cti(60)])
    assert set(live.stores[(0, 0)]) == {"manifest"}


# ids

SCHEMA = pa.schema([("kind", pa.string()), *((n, pa.int64()) for n in ("start", "end", "new_end", "id", "v"))])
Row = tuple[Any, ...]


def insert(start: int, end: int | None, id: int | None = 7, v: int = 0) -> Row:
    return ("insert", start, end, None, id, v)


def retract(start: int, end: int | None, new_end: int | None, id: int | None = 7, v: int = 0) -> Row:
    return ("retract", start, end, new_end, id, v)


def cti(at: int) -> Row:
    return ("cti", at, None, None, None, None)


def named(*batches: list[Row], late: str = "drop", invalid: str = "fail") -> tuple[LocalRun, list[Row], dict[str, int]]:
    """The run, the events that all deltas add up to as (start, end, id), and what was counted."""
    table = pa.Table.from_pylist([], SCHEMA)
    s = sq.physical(table, id="id", name="p", late=late, invalid=invalid)
    live = LocalRun(compiled(s.plan, OutputForm.CHANGELOG, late_output=True, buckets=1))
    weights: dict[Row, int] = {}
    for batch in batches:
        made = live.batch(
            {"p": pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in batch], SCHEMA)}
        )
        for r in made.to_pylist():
            key = (r["__le"], None if r["__re"] == 2**63 - 1 else r["__re"], r["id"])
            weights[key] = weights.get(key, 0) + r["__w"]
        assert all(w >= 0 for w in weights.values())
    found = [key for key, w in weights.items() for _ in range(w)]
    return live, sorted(found, key=repr), {k.removeprefix("p|"): n for k, n in live.totals.get((0, 0), {}).items()}


CHAIN = [insert(1, 10), retract(1, 10, 20), retract(1, 20, 15)]


@pytest.mark.parametrize("late", ["drop", "adjust", "fail"])
def test_rows_of_an_id_that_are_delivered_again(late: str) -> None:
    """In a micro-batch, one by one, and as a suffix in order, while they could still be on time."""
    for batches in ([CHAIN * 2], [[row] for row in CHAIN * 2], [CHAIN, CHAIN[1:]], [CHAIN[::-1], CHAIN[::-1]]):
        _, found, counted = named(*batches, late=late)
        assert found == [(1, 15, 7)]
        assert counted == {"duplicates": sum(map(len, batches)) - 3}


def test_what_is_known_is_a_duplicate_before_it_is_late() -> None:
    """Behind c, but c has not passed every end that the event has had."""
    for late in ("drop", "adjust", "fail"):
        _, found, counted = named([*CHAIN, cti(18)], CHAIN, [insert(19, None, 8), cti(20)], CHAIN, late=late)
        assert found == [(1, 15, 7), (19, None, 8)] and counted == {"duplicates": 6}


def test_what_comes_again_once_it_is_forgotten_is_late() -> None:
    """Its inserts and its retractions; of those none waits for ever, and none is invalid."""
    opened = [insert(1, None), retract(1, None, 10)]
    for late, batches in (
        ("drop", [opened]),
        ("adjust", [opened]),
        ("drop", [opened[1:]]),
        ("drop", [opened[:1], opened[1:]]),
    ):
        live, found, counted = named([*opened, cti(30)], *batches, [cti(40)], late=late)
        assert found == [(1, 10, 7)]
        assert (
            "invalid" not in counted and "duplicates" not in counted and sum(counted.values()) == sum(map(len, batches))
        )
        assert held(live) == {}
    with pytest.raises(LateEvent):
        named([*opened, cti(30)], opened[1:], late="fail")


def held(live: LocalRun) -> dict[str, int]:
    """Rows of each basket."""
    (name,) = [state.name for state in live.program.states]
    scope = Baskets(DictStore(live.stores[(0, 0)])).scoped(name)
    tables = {name: scope.read_all(name) for name in ("live", "waiting", "applied")}
    return {name: table.num_rows for name, table in tables.items() if table is not None}


def test_with_ids_a_late_retraction_of_what_is_forgotten_acts_once() -> None:
    """Whether it comes again, or its insert after all."""
    gone, extended = [insert(1, 5), cti(10)], retract(1, 5, 50)
    for batches in ([gone, [extended]], [gone, [extended, extended]], [gone, [extended], [extended]]):
        _, found, counted = named(*batches, late="adjust")
        assert found == [(1, 5, 7), (10, 50, 7)]
        assert counted == {"adjusted": 1} | ({"duplicates": 1} if len(batches) > 2 or len(batches[1]) > 1 else {})
    _, found, counted = named([cti(10)], [extended], [insert(1, 5)], [retract(1, 50, 30)], late="adjust")
    assert found == [(10, 30, 7)] and counted == {"adjusted": 1, "dropped": 1}
    with pytest.raises(LateEvent):
        named(gone, [extended], late="fail")


def test_a_deleted_event_does_not_come_back() -> None:
    deleted = [insert(5, 30), retract(5, 30, 5)]
    for late in ("drop", "adjust"):
        live, found, counted = named([*deleted, cti(20)], deleted, [insert(5, 30)], [retract(5, 30, 5)], late=late)
        assert found == [] and counted == {"duplicates": 4}
        assert held(live) == {"live": 1, "applied": 1}
        live, found, _ = named([*deleted, cti(20)], [cti(31)], late=late)
        assert held(live) == {}, "c has passed every end"
    # of one that never had an end its start is all that c has to pass: it would be held for ever
    live, _, _ = named([insert(5, None), retract(5, None, 5), cti(6)])
    assert held(live) == {}


def test_an_end_that_moves_to_and_fro() -> None:
    """Each retraction that names the end is applied, though equal ones were; an in-order repetition leads where it led."""
    moves = [retract(1, 10, 20), retract(1, 20, 10)]
    _, found, counted = named([insert(1, 10)], *([move] for move in moves * 2 + moves[:1]))
    assert found == [(1, 20, 7)] and counted == {}
    _, found, counted = named([insert(1, 10)], *([move] for move in moves), moves)
    assert found == [(1, 10, 7)] and counted == {}
    _, found, counted = named([insert(1, 10), *moves, *moves, moves[0]])
    assert found == [(1, 20, 7)] and counted == {}


def test_a_retraction_that_repeats_nothing_waits_as_ever() -> None:
    live, found, counted = named([insert(1, 10)], [retract(1, 20, 15)])
    assert found == [(1, 10, 7)] and counted == {} and held(live)["waiting"] == 1
    _, found, counted = named([insert(1, 10)], [retract(1, 20, 15), retract(1, 20, 15)], [retract(1, 10, 20)])
    assert found == [(1, 15, 7)] and counted == {"duplicates": 1}
    with pytest.raises(InvalidEvent, match="a retraction that matches nothing"):
        named([insert(1, 10)], [retract(1, 20, 15)], [cti(21)])


@pytest.mark.parametrize("other", [insert(2, 10), insert(1, 11), insert(1, 10, v=1)])
def test_two_events_of_one_id(other: Row) -> None:
    """The first stays, also once it has been deleted."""
    with pytest.raises(InvalidEvent, match="source p: a row is no event: two events of one id"):
        named([insert(1, 10)], [other])
    _, found, counted = named([insert(1, 10)], [other, insert(1, 10)], invalid="drop")
    assert found == [(1, 10, 7)] and counted == {"invalid": 1, "duplicates": 1}
    _, found, counted = named([insert(1, 10), other], invalid="drop")
    assert found == [(1, 10, 7)] and counted == {"invalid": 1}
    _, found, counted = named([insert(1, 10)], [retract(1, 10, 1)], [other], invalid="drop")
    assert found == [] and counted == {"invalid": 1}


def test_what_follows_a_late_event_is_matched_with_it_whatever_comes_again() -> None:
    """A dropped insert and an adjusted one are known as they came."""
    rows = [insert(5, 50, 8), retract(5, 50, 45, 8)]
    _, found, counted = named([insert(30, 40), cti(20)], rows[:1], rows[:1], rows[1:], rows[1:])
    assert found == [(30, 40, 7)] and counted == {"dropped": 2, "duplicates": 2}
    _, found, counted = named([insert(30, 40), cti(20)], rows[:1], rows[:1], rows[1:], rows[1:], late="adjust")
    assert found == [(20, 45, 8), (30, 40, 7)] and counted == {"adjusted": 1, "duplicates": 2}


def test_after_a_dropped_retraction_that_adds_nothing_a_later_one_still_acts() -> None:
    """The first is late by the source's own word, at 11; the second by the level alone, which adjusts it."""
    rows = [
        ("insert", 0, 50, None, 1), ("retract", 0, 50, 10, 1), ("insert", 40, 41, None, 2), ("cti", 11, None, None, None),
        ("retract", 0, 10, 19, 1), ("retract", 0, 19, 30, 1),
    ]  # fmt: skip
    table = t.table("kind string, start bigint, end bigint, new_end bigint, id int", rows)
    query = sq.physical(table, id="id", name="s", progress=sq.explicit(), late="drop")
    run = LocalRun(compiled(number_sources(query.plan)[0], OutputForm.CHANGELOG, buckets=1, level=Level(0, 20)))
    run.batch({"s": table.slice(0, 4)})
    assert run.batch({"s": table.slice(4, 1)}).num_rows == 0
    assert [(r["__le"], r["__re"]) for r in run.batch({"s": table.slice(5)}).to_pylist()] == [(20, 30)]
    assert run.totals[0, 0] == {"s|dropped": 1, "s|adjusted": 1}
