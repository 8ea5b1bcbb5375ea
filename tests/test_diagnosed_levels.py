"""What ``why()`` says of levels of consistency, and of sources that follow others or are passed over."""

from __future__ import annotations

from typing import Any

import pytest

import streamq as sq
from tests.rehearsed import counted, events, rehearsal

# levels of consistency


def two(delay: int | None = 2) -> sq.Stream:
    return events("a", 1, 8, 14, delay=delay).union(events("b", 2, 3, 4, delay=2))


@pytest.mark.parametrize(
    ("level", "query", "released", "start"),
    [
        ("strong", two(), "a row of b at or after 5 (delay 2)", 2),
        (sq.level(5), two(), "a row of b at or after 5 (delay 2)", 2),
        (sq.level(1), two(), "a row of b at or after 5", 4),
        (sq.level(5), two(delay=None), "a row of b at or after 6", 1),
        ("strong", events("a", 1, 8, delay=3).to_signal("k"), "a row of a at or after 12 (delay 3)", 8),
        (sq.level(2), events("a", 1, 8, delay=3).to_signal("k"), "a row of a at or after 10", 8),
    ],
)
def test_what_a_level_holds_back(level: Any, query: sq.Stream, released: str, start: int) -> None:
    """Named apart from what operators hold, with the row that lets the first of it go."""
    run = rehearsal(query, "changelog", level)
    run.arrive()
    held = [w for w in run.why().waits if w.operator.startswith("consistency: rows held back")]
    wait = min(held, key=lambda w: w.goal or 0)
    assert (wait.release[0], wait.goal, wait.by_start) == (released, start + 1, True)
    assert f"next: what starts at {start}" in str(run.why())
    if len(run.program.sources) == 2:
        assert wait.least == "b"


def test_what_strong_consistency_holds_back_goes_with_the_cti_and_not_a_tick_earlier() -> None:
    run = rehearsal(two(), "changelog", "strong")
    run.arrive()
    counts = []
    for _ in range(4):
        wait = min(run.why().waits, key=lambda w: w.goal or 0)
        assert wait.goal is not None and f"run.advance({wait.goal}" in " ".join(wait.release)
        assert run.advance(wait.goal - 1).num_rows == 0 and run.why().verdict == "waiting"
        counts += [row["start"] for row in run.advance(wait.goal).to_pylist()]
        operators = [operator for stage in run.metrics["stages"] for operator in stage["operators"]]
        assert sum(operator["held_rows"] for operator in operators) == 5 - len(counts)
    assert counts == [2, 3, 4, 8]


def test_windows_wait_as_the_level_says() -> None:
    """Strong for the CTI, weak for what is forgotten, between for whichever comes first."""
    waits = {}
    for name, level in (("strong", "strong"), ("weak", sq.weak(3)), ("level", sq.level(4))):
        run = rehearsal(counted(events("a", 1, 12, 31, delay=20)), "changelog", level)
        run.arrive()
        waits[name] = (run.why().waits[-1].cti, run.why().waits[-1].window, run.why().waits[-1].release[0])
    assert waits == {
        "strong": (11, (10, 20), "a row of a at or after 40 (delay 20)"),
        "weak": (28, (30, 40), "a row of a at or after 40"),
        "level": (11, (30, 40), "a row of a at or after 44"),
    }
    final = rehearsal(counted(events("a", 1, 12, 31, delay=20)), "final", sq.weak(3))
    final.arrive()
    assert final.why().waits[-1].release[0] == "a row of a at or after 43"


def test_a_source_that_follows_is_named_by_the_one_it_follows() -> None:
    a = events("a", 1, 8, delay=3)
    b = sq.events([(2, 3, {"k": "a", "v": 1})], name="b", progress=sq.follow(a))
    run = rehearsal(a.left_anti_join(b, on="k"))
    run.arrive()
    assert run.why().waits[-1].release[0].startswith("a row of a ")


def test_of_a_source_that_is_passed_over_nothing_is_asked() -> None:
    def source(name: str, *starts: int) -> sq.Stream:
        rows = [(s, s + 5, {"k": "a", name: s}) for s in starts]
        return sq.events(rows, name=name, progress=sq.generate(idle_after="3 minutes"))

    run = rehearsal(source("a", 1, 10, 11, 12, 13).left_anti_join(source("b", 3), on="k"))
    run.arrive(a=2, b=1)
    for _ in range(3):
        run.arrive(a=1)
    wait = run.why().waits[-1]
    assert wait.release[0] == "a row of a at or after 16" and not wait.exact
    assert wait.proviso.startswith("b, silent, has by itself")


def test_a_signal_that_follows_goes_by_its_own_rows_or_by_what_the_other_promises() -> None:
    trades = sq.events(
        [(t, t + 1, {"k": "a"}) for t in (0, 100, 125, 129, 135)], name="trades", progress=sq.generate(10)
    )
    prices = sq.events([(t, t + 1, {"k": "a", "p": t}) for t in (0, 120)], name="prices", progress=sq.follow(trades))
    run = rehearsal(trades.join(prices.to_signal("k"), on="k"))
    run.arrive(trades=2, prices=2)
    ways = ("a row of prices at or after 121", "a row of trades at or after 131 (delay 10)")
    for _ in range(3):
        signal = next(w for w in run.why().waits if w.operator.startswith("to_signal"))
        assert signal.release[:3] == (*ways, "run.advance(121, source='trades')")
        run.arrive(trades=1)
    assert not [w for w in run.why().waits if w.operator.startswith("to_signal")]
