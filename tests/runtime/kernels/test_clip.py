"""The kernel of clip: the events that it reads and keeps, and what it forgets once an event is clipped."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import OutputForm
from streamq.stream import Stream
from streamq.time import INFINITY
from tests.runtime.kernels.test_left_rows import COLUMNS, FAR, HELD, QUERIES, evaluated, run, source, state_rows

clip = QUERIES["clip"]

SOAK = bool(os.environ.get("STREAMQ_SOAK"))


def test_a_new_start_looks_at_the_events_of_its_group_that_it_clips() -> None:
    live = run(clip(source("a"), source("b")))
    evaluated(live, [(n, None, n % 100, n) for n in range(HELD)], [], 0)
    assert evaluated(live, [], [(HELD, FAR, 7, 0)], HELD) <= HELD // 100 + 2
    evaluated(live, [], [], HELD + 1)
    assert evaluated(live, [], [(HELD + 2, FAR, 7, 0)], HELD + 2) <= 3, "they are clipped for good"


@pytest.mark.slow
def test_starts_before_every_open_event_are_no_longer_looked_at() -> None:
    """They are of a group that is touched again and again, in a bin where another has much that is open."""
    live = run(clip(source("a"), source("b")))
    evaluated(live, [(0, None, 0, n) for n in range(HELD)], [], 0)
    for n in range(1, 80):
        assert evaluated(live, [(n, None, 1, n)], [(n, n + 1, 1, n)], n) <= 8


@pytest.mark.slow
@pytest.mark.parametrize("end", [None, FAR])
def test_what_has_been_clipped_is_forgotten_though_it_would_live_on(end: int | None) -> None:
    slack, new_rows = 32, 20
    live = run(clip(source("a"), source("b")), OutputForm.FINAL, slack=slack)
    evaluated(live, [(0, end, k % 500, k) for k in range(5 * HELD)], [], 0)
    for n in range(0, 30 * new_rows, new_rows):
        new = [(n + i, end, n + i, i) for i in range(new_rows)]
        evaluated(live, new, [(n + i + 1, n + i + 2, n + i, i) for i in range(new_rows)], n)
    # those without an earlier start of their group, which wait, too
    assert state_rows(live) <= 6 * slack
    live.finish()
    assert not state_rows(live)


@pytest.mark.slow
def test_state_is_what_can_still_matter() -> None:
    """Endless events of a stream that clips itself."""
    s = source("a").set_duration(sq.lit(None).cast("bigint"))
    live = run(clip(s, s), OutputForm.FINAL)
    sizes = []
    for i in range(80):
        live.batch({"a": t.table(COLUMNS, [(20 * i + k, None, k, 0) for k in range(12)])}, [(None, 20 * i)])
        sizes.append(sum(len(v) for store in live.stores.values() for v in store.values()))
    assert max(sizes) < 1.1 * max(sizes[:30])
    live.finish()
    assert all(set(store) == {"manifest"} for store in live.stores.values())


KINDS = "kind string, start bigint, end bigint, new_end bigint, k bigint"


def physical(name: str) -> Stream:
    return sq.physical(t.table(KINDS, []), name=name, progress=sq.explicit())


@dataclass
class Side:
    """A physical stream: its events that may change are moved, taken back, or joined by others, none before c."""

    random: random.Random
    retracts: bool
    events: list[tuple[int, int, int]] = field(default_factory=list)

    def items(self, c: int) -> list[tuple[Any, ...]]:
        """The items of a micro-batch."""
        items: list[tuple[Any, ...]] = []
        for _ in range(self.random.randrange(4)):
            start = c + self.random.randrange(12)
            event = start, start + self.random.choice([1, 3, 9, INFINITY - start]), self.random.randrange(3)
            items.append(("insert", event[0], shown(event[1]), None, event[2]))
            self.events.append(event)
        open_events = [event for event in self.events[: len(self.events) - len(items)] if event[1] >= c]
        if self.retracts and open_events:
            start, end, k = self.random.choice(open_events)
            low = max(start, c)
            new = self.random.choice([low, *(low + 1 + self.random.randrange(9) for _ in range(2)), INFINITY])
            if new != end:
                items.append(("retract", start, shown(end), shown(new), k))
                self.events.remove((start, end, k))
                if new > start:
                    self.events.append((start, new, k))
        return items


def shown(end: int) -> int | None:
    return None if end == INFINITY else end


def clipped(left: list[tuple[int, int, int]], right: list[tuple[int, int, int]]) -> Counter[tuple[int, int, int]]:
    """The rule, event by event."""
    return Counter((a, min([b, *(s for s, _, key in right if key == k and s > a)]), k) for a, b, k in left)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200 if SOAK else 3))
@pytest.mark.parametrize("output", [OutputForm.CHANGELOG, OutputForm.FINAL])
@pytest.mark.parametrize("moves", [False, True])
def test_answers_are_those_of_the_rule_though_bins_have_a_group_each(seed: int, output: str, moves: bool) -> None:
    """Settled rows are right after each micro-batch, and all rows at the end."""
    a = physical("a") if moves else source("a").select("k")
    early = seed % 3 == 0 and output == OutputForm.CHANGELOG
    live = run(clip(a, physical("b")), output, early=early, split_above=2, slack=seed % 5)
    left, right = (Side(random.Random(2 * seed + n), retracts=n == 1 or moves) for n in (0, 1))
    rows: Counter[tuple[int, int, int]] = Counter()
    c = 0
    for _ in range(40):
        new, by = left.items(c), right.items(c)
        c += left.random.randrange(5)
        ours = t.table(KINDS, new) if moves else t.table(COLUMNS, [(i[1], i[2], i[4], 0) for i in new])
        deltas = live.batch({"a": ours, "b": t.table(KINDS, by)}, [(None, c)])
        for row in deltas.to_pylist() if deltas is not None else []:
            rows[row["__le"], row["__re"], row["k"]] += row["__w"]
        due, there = (
            Counter({r: n for r, n in some.items() if r[1] < c and n})
            for some in (clipped(left.events, right.events), rows)
        )
        assert due == there
    for row in live.finish().to_pylist():
        rows[row["__le"], row["__re"], row["k"]] += row["__w"]
    assert Counter({r: n for r, n in rows.items() if n}) == clipped(left.events, right.events)
