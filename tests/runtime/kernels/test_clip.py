"""The kernel of clip: the events that it reads and keeps, and what it forgets once an event is clipped."""

from __future__ import annotations

import pytest

from streamq.choices import OutputForm
from tests.runtime.kernels.test_left_rows import FAR, HELD, QUERIES, evaluated, run, source, state_rows

clip = QUERIES["clip"]


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
