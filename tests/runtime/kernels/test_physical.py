"""The physical kernel: late items by policy, and what follows them translated (docs/concepts.md, "Late rows, invalid rows")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.errors import InvalidEvent, LateEvent
from streamq.policies import MIDDLE, Level
from streamq.runtime.state.baskets import Baskets, DictStore
from tests.runtime.kernels.arrivals import Arrivals, Row

COLUMNS = "kind string, start bigint, end bigint, new_end bigint, id bigint, v bigint"
EACH_POLICY = ("drop", "adjust", "fail")


def insert(start: int, end: int | None, id: int | None = 7, v: int = 0) -> Row:
    return ("insert", start, end, None, id, v)


def retract(start: int, end: int | None, new_end: int | None, id: int | None = 7, v: int = 0) -> Row:
    return ("retract", start, end, new_end, id, v)


def cti(at: int) -> Row:
    return ("cti", at, None, None, None, None)


@dataclass(frozen=True)
class Case:
    """Micro-batches, the events that are left of them as (start, end, id), and what is counted.

    ``with_ids``: the source has ids; both: it has them or not, and gives the same.
    """

    batches: tuple[list[Row], ...]
    events: list[Row]
    counted: dict[str, int]
    late: str = "drop"
    invalid: str = "fail"
    level: Level = MIDDLE
    with_ids: tuple[bool, ...] = (True,)


BARE, BOTH = (False,), (False, True)
CHAIN = [insert(1, 10), retract(1, 10, 20), retract(1, 20, 15)]
SETTLED = [insert(1, 5), cti(10)]
EARLY = [insert(3, 20), retract(3, 40, 3), cti(10)]
OPENED = [insert(1, None), retract(1, None, 10)]
DELETED = [insert(5, 30), retract(5, 30, 5)]
AHEAD = [insert(30, 40, 1), cti(20)]
TO_AND_FRO = [retract(1, 10, 20), retract(1, 20, 10)]


def cases() -> Iterator[tuple[str, Case]]:
    """What is late, what follows it, and, with ids, what comes again."""
    start, move = [insert(5, 50), cti(20)], [retract(5, 50, 10)]
    yield "a retraction is dropped", Case((start, move), [(5, 50, 7)], {"dropped": 1}, with_ids=BOTH)
    yield "a retraction is adjusted", Case((start, move), [(5, 20, 7)], {"adjusted": 1}, "adjust", with_ids=BOTH)
    # what it leads on from comes behind c: from before c on nothing may change any more
    waited = (EARLY, [retract(3, 20, 40)])
    yield "a retraction that has waited is judged", Case(waited, [(3, 40, 7)], {"dropped": 1}, with_ids=BARE)
    adjusted = {"adjusted": 1}
    yield "it is adjusted", Case(waited, [(3, 10, 7)], adjusted, "adjust", with_ids=BARE)
    # what a retraction of a settled event adds from c on is an event of its own, and followed
    more, extend = [retract(1, 50, 45)], retract(1, 5, 50)
    extended = [(1, 5, 7), (10, 45, 7)]
    yield "of what is settled", Case((SETTLED, [extend], more), extended, adjusted, "adjust", with_ids=BARE)
    yield "with what follows", Case((SETTLED, [*more, extend]), extended, adjusted, "adjust", "drop", with_ids=BARE)
    for late, end in (("drop", 50), ("adjust", 9), ("adjust", 10)):
        batches = (SETTLED, [retract(1, 5, end)], [cti(60)])
        yield f"of what is settled, to {end}", Case(batches, [(1, 5, 7)], {"dropped": 1}, late, with_ids=BARE)
    # an event with an id is known while an end that it had may still move
    for known in ([], [retract(1, 5, 30), retract(1, 30, 5)]):
        batches = ([insert(1, 5), *known, cti(20)], [retract(1, 5, 20)], [retract(1, 20, 1)])
        counted = {"dropped": 1, "adjusted": 1}
        yield f"it adds nothing, known by {len(known)} moves", Case(batches, [(1, 5, 7)], counted, "adjust")
    # an insert that ended before c adds nothing from there on; a retraction of it does
    batches = (AHEAD, [insert(5, 10, 2)], [retract(5, 10, 50, 2)])
    yield "what is left of nothing", Case(batches, [(20, 50, 2), (30, 40, 1)], counted, "adjust", with_ids=BARE)
    yield "what follows a dropped insert", Case(batches, [(30, 40, 1)], {"dropped": 2}, with_ids=BARE)
    # where a retraction says how an event goes on past an end that c has passed, whether c has moved since or not
    for between in ([], [cti(11)], [cti(45)]):
        lost = ([insert(1, 40), cti(10)], [retract(1, 40, 5), *between], [retract(1, 5, 60)], [retract(1, 60, 50)])
        name = f"what follows a dropped retraction, {between}"
        yield name, Case((*lost, [cti(70)]), [(1, 40, 7)], {"dropped": 3}, with_ids=BOTH)
    # a weak level passes the end that a retraction waits for, its source has promised nothing
    waiting = [retract(39, 51, None, 1), retract(39, 52, 45, 2), insert(65, 70, 3)]
    given_up = (waiting, [insert(39, 51, 1), insert(39, 52, 2)])
    counted = {"adjusted": 1, "dropped": 3}
    left = [(60, None, 1), (65, 70, 3)]
    yield "what only the level gives up is no error", Case(given_up, left, counted, level=Level(0, 5), with_ids=BARE)
    # the first is late by the source's own word, at 11; the second by the level alone, which adjusts it
    batches = ([insert(0, 50), retract(0, 50, 10), insert(40, 41, 2), cti(11)], [retract(0, 10, 19)])
    counted = {"dropped": 1, "adjusted": 1}
    left = [(0, 10, 7), (20, 30, 7), (40, 41, 2)]
    yield "after a dropped one", Case((*batches, [retract(0, 19, 30)]), left, counted, level=Level(0, 20))

    # rows of an id that are delivered again: in a micro-batch, one by one, and as a suffix in order
    for late in EACH_POLICY:
        for place, parts in enumerate(
            ([CHAIN * 2], [[row] for row in CHAIN * 2], [CHAIN, CHAIN[1:]], [CHAIN[::-1], CHAIN[::-1]])
        ):
            again = {"duplicates": sum(map(len, parts)) - 3}
            yield f"rows come again, {place}, {late}", Case(tuple(parts), [(1, 15, 7)], again, late)
        # behind c, but c has not passed every end that the event has had
        batches = ([*CHAIN, cti(18)], CHAIN, [insert(19, None, 8), cti(20)], CHAIN)
        yield f"known before late, {late}", Case(batches, [(1, 15, 7), (19, None, 8)], {"duplicates": 6}, late)
    # whether it comes again, or its insert after all, a late retraction of what is forgotten acts once
    for n, parts in enumerate(([[extend]], [[extend, extend]], [[extend], [extend]])):
        counted = {"adjusted": 1} | ({"duplicates": 1} if n else {})
        yield f"what is forgotten is moved, {n}", Case((SETTLED, *parts), [(1, 5, 7), (10, 50, 7)], counted, "adjust")
    batches = ([cti(10)], [extend], [insert(1, 5)], [retract(1, 50, 30)])
    yield "its insert comes after all", Case(batches, [(10, 30, 7)], {"adjusted": 1, "dropped": 1}, "adjust")
    # equal retractions are applied where they name the end; an in-order repetition leads where it led
    one_by_one = tuple([move] for move in TO_AND_FRO)
    yield "to and fro", Case(([insert(1, 10)], *one_by_one * 2, one_by_one[0]), [(1, 20, 7)], {})
    yield "to and fro, in order", Case(([insert(1, 10)], *one_by_one, TO_AND_FRO), [(1, 10, 7)], {})
    yield "to and fro, at once", Case(([insert(1, 10), *TO_AND_FRO * 2, TO_AND_FRO[0]],), [(1, 20, 7)], {})
    early = retract(1, 20, 15)
    batches = ([insert(1, 10)], [early, early], [retract(1, 10, 20)])
    yield "a retraction that waits comes again", Case(batches, [(1, 15, 7)], {"duplicates": 1})
    # two events of one id: the first stays, also once it has been deleted
    for other in (insert(2, 10), insert(1, 11), insert(1, 10, v=1)):
        twice = {"invalid": 1, "duplicates": 1}
        two = ([insert(1, 10)], [other, insert(1, 10)])
        yield f"another of its id, {other}", Case(two, [(1, 10, 7)], twice, invalid="drop")
        at_once = ([insert(1, 10), other],)
        yield f"another of its id at once, {other}", Case(at_once, [(1, 10, 7)], {"invalid": 1}, invalid="drop")
        gone = ([insert(1, 10)], [retract(1, 10, 1)], [other])
        yield f"another of one that is gone, {other}", Case(gone, [], {"invalid": 1}, invalid="drop")
    # a dropped insert and an adjusted one are known as they came, whatever comes again
    rows = [[insert(5, 50, 8)], [insert(5, 50, 8)], [retract(5, 50, 45, 8)], [retract(5, 50, 45, 8)]]
    dropped, kept = {"dropped": 2, "duplicates": 2}, {"adjusted": 1, "duplicates": 2}
    yield "what follows a dropped one, again", Case((AHEAD, *rows), [(30, 40, 1)], dropped)
    yield "what follows an adjusted one", Case((AHEAD, *rows), [(20, 45, 8), (30, 40, 1)], kept, "adjust")


CASES = dict(cases())


def started(*, with_ids: bool = True, late: str = "drop", invalid: str = "fail", level: Level = MIDDLE) -> Arrivals:
    table, id = t.table(COLUMNS, []), "id" if with_ids else None
    source = sq.physical(table, id=id, name="p", progress=sq.explicit(), late=late, invalid=invalid)
    return Arrivals(source, COLUMNS, level=level)


def sent(*batches: list[Row], **how: Any) -> Arrivals:
    run = started(**how)
    for batch in batches:
        run.send(*batch)
    return run


@pytest.mark.parametrize("name", CASES)
def test_the_events_that_are_left(name: str) -> None:
    case = CASES[name]
    for with_ids in case.with_ids:
        run = sent(*case.batches, with_ids=with_ids, late=case.late, invalid=case.invalid, level=case.level)
        assert (run.events, run.counted) == (case.events, case.counted)


@pytest.mark.parametrize(
    ("error", "with_ids", "batches", "late"),
    [
        (r"the CTI is 20", False, ([insert(5, 50), cti(20)], [retract(5, 50, 10)]), "fail"),
        (r"the CTI is 10, first: .*start 1, end 5", False, (SETTLED, [retract(1, 5, 50)]), "fail"),
        (r"the CTI is 30", True, ([*OPENED, cti(30)], OPENED[1:]), "fail"),
        (r"the CTI is 10", True, (SETTLED, [retract(1, 5, 50)]), "fail"),
        ("a retraction that matches nothing", True, ([insert(1, 10)], [retract(1, 20, 15)], [cti(21)]), "drop"),
        ("source p: a row is no event: two events of one id", True, ([insert(1, 10)], [insert(2, 10)]), "drop"),
    ],
)
def test_what_fails(error: str, with_ids: bool, batches: tuple[list[Row], ...], late: str) -> None:
    with pytest.raises((LateEvent, InvalidEvent), match=error):
        sent(*batches, with_ids=with_ids, late=late)


def held(run: Arrivals) -> dict[str, int]:
    """Rows of each basket."""
    (name,) = [state.name for state in run.run.program.states]
    scope = Baskets(DictStore(run.run.stores[(0, 0)])).scoped(name)
    tables = {name: scope.read_all(name) for name in ("live", "waiting", "applied")}
    return {name: table.num_rows for name, table in tables.items() if table is not None}


@pytest.mark.parametrize(
    ("late", "batches"),
    [("drop", [OPENED]), ("adjust", [OPENED]), ("drop", [OPENED[1:]]), ("drop", [OPENED[:1], OPENED[1:]])],
)
def test_what_comes_again_once_it_is_forgotten_is_late(late: str, batches: list[list[Row]]) -> None:
    """Its inserts and its retractions; of those none waits for ever, and none is invalid."""
    run = sent([*OPENED, cti(30)], *batches, [cti(40)], late=late)
    assert run.events == [(1, 10, 7)] and held(run) == {}
    assert not run.counted.keys() & {"invalid", "duplicates"}
    assert sum(run.counted.values()) == sum(map(len, batches))


def test_what_is_held() -> None:
    assert held(sent([insert(1, 10)], [retract(1, 20, 15)]))["waiting"] == 1
    for late in ("drop", "adjust"):
        again = sent([*DELETED, cti(20)], DELETED, [insert(5, 30)], [retract(5, 30, 5)], late=late)
        assert again.events == [] and again.counted == {"duplicates": 4}, "a deleted event does not come back"
        assert held(again) == {"live": 1, "applied": 1}
        assert held(sent([*DELETED, cti(20)], [cti(31)], late=late)) == {}, "c has passed every end"
    # of one that never had an end its start is all that c has to pass: it would be held for ever
    assert held(sent([insert(5, None), retract(5, None, 5), cti(6)])) == {}
