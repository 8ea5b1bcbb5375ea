"""last_rows: an event lives while the latest complete rows window has it."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import streamq as sq
from streamq.time import INFINITY
from tests.each import each
from tests.judged import answer


def rows(*events: tuple[int, object, int]) -> sq.Stream:
    return sq.events([(at, at + 1, {"k": k, "v": v}) for at, k, v in events])


S = rows((1, "a", 3), (4, "b", 5), (9, "a", 1), (12, "b", 7))


def by_hand(events: Sequence[tuple[int, int]], n: int, step: int) -> Counter[tuple[int, int, int]]:
    """The last rows of (start, value), by a list of the windows: the latest at an instant is the last that ends there."""
    ordered = sorted(events)
    windows = [ordered[i : i + n] for i in range(0, len(ordered) - n + 1, step)]
    latest = {window[-1][0]: place * step for place, window in enumerate(windows)}
    starts = [*sorted(latest), INFINITY]
    lives: dict[int, tuple[int, int]] = {}
    for at, until in itertools.pairwise(starts):
        for place in range(latest[at], latest[at] + n):
            lives[place] = (lives.get(place, (at, at))[0], until)
    return Counter((*life, ordered[place][1]) for place, life in lives.items())


@each([1, 2, 3, 5], [1, 2, 3, 4, 7])
def test_the_last_rows_are_those_of_the_latest_window(n: int, step: int) -> None:
    drawn = random.Random(n * step)
    for many in (3, 12, 40):
        events = [(drawn.randrange(30), value) for value in range(many)]
        stream = sq.events([(at, at + 1, {"v": v}) for at, v in events])
        rows = Counter(
            (start, INFINITY if end is None else end, v) for start, end, v in answer(stream.last_rows(n, step))
        )
        assert rows == by_hand(events, n, step)


def test_aggregates_are_of_the_last_rows_at_each_instant() -> None:
    totals = S.last_rows(2).select(total=sq.sum("v"))
    assert answer(totals) == [(4, 9, 8), (9, 12, 6), (12, None, 8)]
    assert totals.plan == S.last_rows(2).snapshot_window().select(total=sq.sum("v")).plan
    by_key = S.last_rows(3).where(sq.col("v") > 1).group_by("k").select(n=sq.count())
    assert answer(by_key) == [(9, 12, "a", 1), (9, 12, "b", 1), (12, None, "b", 2)]
