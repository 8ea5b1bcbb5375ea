"""What ``why()`` says of runs in every plight; and that what it says would release a window does, and not a tick earlier."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import monitoring
from streamq.diagnosis import why
from streamq.rehearsal import Rehearsal
from streamq.waiting import FAILED, STOPPED

NOON = dt.datetime(2024, 5, 1, 12)


class Clock:
    """A minute later each time it is asked."""

    def __init__(self) -> None:
        self.now = dt.datetime(2024, 6, 1, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        self.now += dt.timedelta(minutes=1)
        return self.now


def rehearsal(query: sq.Stream, output: str = "final", level: Any = "middle") -> Rehearsal:
    return Rehearsal(query, output, Clock(), level)


def events(name: str, *starts: int, delay: int | None = 0, length: int = 1) -> sq.Stream:
    progress = sq.explicit() if delay is None else sq.generate(delay)
    return sq.events([(s, s + length, {"k": "a", "v": s}) for s in starts], name=name, progress=progress)


def at(minutes: int) -> dt.datetime:
    return NOON + dt.timedelta(minutes=minutes)


def trips(*minutes: int, name: str = "trips") -> sq.Stream:
    rows = [(at(m), at(m + 1), {"k": "a", "v": m}) for m in minutes]
    return sq.events(rows, name=name, progress=sq.generate("5 minutes"))


def counted(s: sq.Stream, size: int = 10) -> sq.Stream:
    return s.tumbling_window(size).select(n=sq.count())


def test_a_window_names_its_source_the_row_and_the_calls_that_release_it() -> None:
    run = rehearsal(trips(0, 7).tumbling_window("10 minutes").select(n=sq.count()))
    run.arrive()
    assert str(run.why()).splitlines() == [
        "Rows are held back, waiting for a row of trips at or after 2024-05-01 12:15:00 (delay 5 minutes).",
        "hopping size=10 minutes, hop=10 minutes: count(*)",
        "  1 row(s) in its state; its input: CTI 2024-05-01 12:02:00",
        "  next window: [2024-05-01 12:00:00, 2024-05-01 12:10:00)",
        "  trips: CTI 2024-05-01 12:02:00, greatest start 2024-05-01 12:07:00; "
        "moved 60 seconds ago (at 2024-06-01 00:01:00 UTC)",
        "  waits for a row of trips at or after 2024-05-01 12:15:00 (delay 5 minutes)",
        "  or run.advance(datetime.datetime(2024, 5, 1, 12, 10))",
        "  or run.finish(), if the input has ended",
    ]
    told = json.loads(json.dumps(run.why().to_dict()))
    assert (told["version"], told["state"], told["verdict"], told["warnings"]) == (1, "running", "waiting", [])
    wait = told["waits"][0]
    assert (wait["source"], wait["since"], wait["least_input"]) == ("trips", "2024-06-01T00:01:00Z", "trips")
    assert (wait["needs_at"], wait["window_start_at"]) == ("2024-05-01T12:10:00Z", "2024-05-01T12:00:00Z")
    assert run.why()._repr_html_().startswith("<div><b>Rows are held back, waiting for a row of trips")


# every plight


def test_no_rows_yet() -> None:
    run = rehearsal(counted(events("a", 1, 2).union(events("b", 1))))
    assert (run.why().verdict, run.why().summary) == ("no_rows", "No row has come yet, from a or b.")


def test_rows_that_are_all_no_events() -> None:
    table = pa.table({"t": pa.array([None, None], pa.int64()), "v": [1, 2]})
    run = rehearsal(counted(sq.points(table, time="t", name="a")))
    run.arrive()
    assert run.why().verdict == "no_rows" and "(2 of a)" in run.why().summary
    assert [w.kind for w in run.why().warnings] == ["invalid"]


def test_a_source_that_promises_nothing() -> None:
    run = rehearsal(counted(events("a", 1, 22, delay=None)))
    run.arrive()
    assert run.why().verdict == "no_cti" and "a has sent no CTI yet" in run.why().summary
    assert run.why().waits[0].release[0] == "a CTI of a"
    run.advance(3)
    assert run.why().verdict == "waiting" and run.why().waits[0].release[0] == "a CTI of a at 10 or later"


@pytest.mark.parametrize("output", ["final", "changelog"])
def test_an_anti_join_with_an_input_that_has_stopped(output: str) -> None:
    query = events("a", 10, 11, 12).left_anti_join(events("b", 1), on="k")
    run = rehearsal(query, output)
    run.arrive(a=1, b=1)
    run.arrive(a=2)
    found = run.why()
    if output == "changelog":
        assert found.verdict == "flowing"
    else:
        assert (found.verdict, found.waits[-1].release[0]) == ("idle_input", "a row of b at or after 12")
        assert "b brings no rows any more, and others do" in found.summary


@pytest.mark.parametrize("windowed", [False, True])
def test_an_inner_join_with_an_input_that_never_came(windowed: bool) -> None:
    query = events("a", 10, 11).join(events("b", 1), on="k", suffixes=("", "_b"))
    run = rehearsal(counted(query) if windowed else query)
    run.arrive(a=2)
    assert run.why().verdict == "idle_input" and "b has brought no row yet" in run.why().summary
    assert [(w.operator, w.least) for w in run.why().waits] == [("inner join on k", "b")]


def test_a_join_that_nothing_matches() -> None:
    run = rehearsal(events("a", 10).join(events("b", 11), on="k", suffixes=("", "_b")))
    run.arrive()
    assert run.why().verdict == "no_match"


def test_rows_that_filters_leave_out_before_and_behind_a_window() -> None:
    run = rehearsal(counted(events("a", 1, 25).where(sq.col("v") > 99)))
    run.arrive()
    assert run.why().verdict == "filtered"
    assert run.why().summary.startswith("2 rows of a came, and none passed the filters before hopping")
    run = rehearsal(counted(events("a", 1, 25)).where(sq.col("n") > 9))
    run.arrive()
    assert run.why().verdict == "filtered"
    assert run.why().summary.startswith("1 rows came out of hopping")
    run = rehearsal(events("a", 1).where(sq.col("v") > 99), "changelog")
    run.arrive()
    assert run.why().verdict == "filtered"


def test_everything_flows_and_then_nothing_is_left() -> None:
    run = rehearsal(counted(events("a", 1, 25)))
    run.arrive()
    assert (run.why().verdict, run.why().summary) == ("flowing", "Rows come out: 1 did in the last micro-batch.")
    assert run.why().waits[0].window == (20, 30)
    run.finish()
    assert (run.why().verdict, run.why().waits) == ("finished", ())
    run = rehearsal(events("a", 1, 2).select("k"))
    run.arrive()
    run.advance(5)
    assert run.why().summary == "Nothing is held: the last rows came out in micro-batch 0."


def test_rows_that_all_came_late() -> None:
    run = rehearsal(counted(events("a", 1, 2)))
    run.advance(50)
    run.arrive()
    assert (run.why().verdict, run.why().summary) == ("late", "All 2 rows of a came behind its CTI.")
    assert [w.kind for w in run.why().warnings] == ["late"]


def test_a_window_that_waits_for_its_members_ends() -> None:
    still_open = sq.events([sq.insert(1, None, v=1), sq.insert(2, 9, v=2), sq.cti(30)], name="a")
    run = rehearsal(still_open.tumbling_window(5).select(longest=sq.max(sq.duration())))
    run.arrive()
    wait = run.why().waits[-1]
    assert (run.why().verdict, wait.window, wait.source) == ("waiting", (0, 5), None)
    assert wait.release[0] == "members whose ends no longer move"


def test_runs_that_are_over() -> None:
    query = counted(events("a", 1, 2))
    run = rehearsal(query)
    run.arrive()
    found = why(run.program, run.seen, STOPPED, over="stop was called on it")
    assert found.verdict == "stopped" and found.waits[0].release[-1] == "a run on the checkpoint"
    found = why(run.program, run.seen, FAILED, over="source a: 1 late item(s).")
    assert (found.verdict, found.waits) == ("failed", ()) and found.summary.endswith("source a: 1 late item(s).")
    assert why(run.program, monitoring.Seen()).verdict == "no_rows"


# a release that is one

TOLD = re.compile(r"run\.advance\((-?\d+)")

RELEASED: dict[str, Callable[[], sq.Stream]] = {
    "tumbling": lambda: counted(events("a", 1, 8, 14, 31, delay=7)),
    "hopping, moved": lambda: events("a", 1, 8, 14, delay=3).shift(4).hopping_window(6, 2, 1).select(n=sq.count()),
    "hopping, extended back": lambda: (
        events("a", 1, 8, 14, delay=3, length=9).extend(-4).hopping_window(6, 2).select(n=sq.count())
    ),
    "a window over windows": lambda: (
        events("a", 1, 8, 14, delay=3)
        .hopping_window(6, 3)
        .select(n=sq.count())
        .tumbling_window(9)
        .select(n=sq.sum("n"))
    ),
    "a union": lambda: counted(
        events("a", 1, 8, 14).select("k").union(events("b", 2, 3, delay=2).shift(-5).select("k"))
    ),
    "a median": lambda: events("a", 1, 8, 14, delay=5).tumbling_window(4).select(m=sq.median("v")),
    "a window of pairs": lambda: events("a", 1, 8, 14).windowed_join(
        events("b", 2, 9), on="k", size=4, hop=4, suffixes=("", "_b")
    ),
    "above an anti join": lambda: counted(events("a", 1, 8, 14).left_anti_join(events("b", 2, 3, delay=2), on="k"), 4),
}


@pytest.mark.parametrize("name", RELEASED)
def test_what_would_release_a_window_does_and_not_a_tick_earlier(name: str) -> None:
    run = rehearsal(RELEASED[name]())
    run.arrive()
    released = 0
    for _ in range(12):
        waits = [w for w in run.why().waits if w.window is not None]
        if not waits:
            break
        wait = waits[-1]
        assert wait.window is not None
        told = TOLD.search(" ".join(wait.release))
        assert told is not None
        for t in (int(told[1]) - 1, int(told[1])):
            rows = run.advance(t).to_pylist()
            assert all((row["start"], row["end"]) == wait.window for row in rows)
            assert not rows or t == int(told[1])
            released += len(rows)
    assert released


# levels of consistency


def two(delay: int | None = 2) -> sq.Stream:
    return events("a", 1, 8, 14, delay=delay).union(events("b", 2, 3, 4, delay=2))


@pytest.mark.parametrize(
    ("level", "query", "released", "start"),
    [
        ("strong", two(), "a row of b after 4 (delay 2)", 2),
        (sq.level(5), two(), "a row of b after 4 (delay 2)", 2),
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
    assert f"next: what starts before {start + 1}" in str(run.why())
    if len(run.program.sources) == 2:
        assert wait.least == "b"


def test_what_strong_consistency_holds_back_goes_with_the_cti_and_not_a_tick_earlier() -> None:
    run = rehearsal(two(), "changelog", "strong")
    run.arrive()
    found = []
    for _ in range(4):
        wait = min(run.why().waits, key=lambda w: w.goal or 0)
        assert wait.goal is not None and f"run.advance({wait.goal}" in " ".join(wait.release)
        assert run.advance(wait.goal - 1).num_rows == 0 and run.why().verdict == "waiting"
        found += [row["start"] for row in run.advance(wait.goal).to_pylist()]
        operators = [operator for stage in run.metrics["stages"] for operator in stage["operators"]]
        assert sum(operator["held_rows"] for operator in operators) == 5 - len(found)
    assert found == [2, 3, 4, 8]


def test_windows_wait_as_the_level_says() -> None:
    """Strong for the CTI, weak for what is forgotten, between for whichever comes first."""
    told = {}
    for name, level in (("strong", "strong"), ("weak", sq.weak(3)), ("level", sq.level(4))):
        run = rehearsal(counted(events("a", 1, 12, 31, delay=20)), "changelog", level)
        run.arrive()
        told[name] = (run.why().waits[-1].cti, run.why().waits[-1].window, run.why().waits[-1].release[0])
    assert told == {
        "strong": (11, (10, 20), "a row of a at or after 40 (delay 20)"),
        "weak": (28, (30, 40), "a row of a at or after 40"),
        "level": (11, (20, 30), "a row of a at or after 34"),
    }
    final = rehearsal(counted(events("a", 1, 12, 31, delay=20)), "final", sq.weak(3))
    final.arrive()
    assert final.why().waits[-1].release[0] == "a row of a at or after 33"


def test_a_source_that_follows_is_named_by_the_one_it_follows() -> None:
    a = events("a", 1, 8, delay=3)
    b = sq.events([(2, 3, {"k": "a", "v": 1})], name="b", progress=sq.follow(a))
    run = rehearsal(a.left_anti_join(b, on="k"))
    run.arrive()
    assert run.why().waits[-1].release[0].startswith("a row of a ")
