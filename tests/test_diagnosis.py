"""What ``why()`` says of runs in every plight; and that what it says would release a window does, and not a tick earlier."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq import testing as t
from streamq.choices import RunState
from streamq.run.status.diagnosis import why
from streamq.run.status.run_status import RunHistory, RunStatus
from tests.rehearsed import counted, events, rehearsal, trips


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
    document = json.loads(json.dumps(run.why().to_dict()))
    assert (document["version"], document["state"], document["verdict"], document["warnings"]) == (
        1,
        "running",
        "waiting",
        [],
    )
    wait = document["waits"][0]
    assert (wait["source"], wait["since"], wait["least_input"]) == ("trips", "2024-06-01T00:01:00Z", "trips")
    assert (wait["needs_at"], wait["window_start_at"]) == ("2024-05-01T12:10:00Z", "2024-05-01T12:00:00Z")
    assert "<h2>Rows are held back, waiting for a row of trips" in run.why()._repr_html_()


# every plight


def test_no_rows_yet() -> None:
    run = rehearsal(counted(events("a", 1, 2).union(events("b", 1))))
    assert (run.why().verdict, run.why().summary) == ("no_rows", "No row has come yet, from a or b.")


def test_a_first_micro_batch_that_takes_its_time() -> None:
    run = rehearsal(counted(events("a", 1, 2)))
    now = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    status = RunStatus(program=run.program, history=RunHistory(), now=now, busy_since=now - dt.timedelta(seconds=90))
    answer, later = why(status), why(replace(status, now=now + dt.timedelta(seconds=1)))
    assert answer.verdict == "first_batch"
    assert answer.summary.startswith("The first micro-batch is running, since 23:58:30 UTC;")
    assert later.summary == answer.summary, "a log gets one line"


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
    assert "progress=sq.generate(...)" in run.why().summary
    assert run.why().waits[0].release[0] == "a CTI of a at 10 or later"
    run.advance(3)
    assert run.why().verdict == "waiting" and run.why().waits[0].release[0] == "a CTI of a at 10 or later"


def test_an_idle_input_that_is_allowed_to_be_is_told_with_the_time_at_which_it_is_passed() -> None:
    def source(name: str, *starts: int) -> sq.Stream:
        rows = [(s, s + 5, {"k": "a", name: s}) for s in starts]
        return sq.events(rows, name=name, progress=sq.generate(idle_after="3 minutes"))

    query = source("a", 1, 10, 20).left_anti_join(source("b", 3), on="k")
    run = rehearsal(query)
    run.arrive(a=1, b=1)
    run.arrive(a=1)
    silent = "b has brought no rows since 2024-06-01 00:01:00 UTC; idle_after, 3 minutes,"
    diagnosis = run.why()
    assert diagnosis.verdict == "idle_input"
    assert diagnosis.summary == f"Rows are held back: {silent} lets it pass at 2024-06-01 00:04:00."
    diagnosis = why(replace(run.status, now=diagnosis.now + dt.timedelta(minutes=1)))
    over = "is over: it goes by the CTI that the others had a micro-batch before."
    assert (diagnosis.verdict, diagnosis.summary) == ("waiting", f"Rows are held back: {silent} {over}")
    assert diagnosis.waits[-1].release[0] == "the next micro-batch, which passes b over"
    assert diagnosis.waits[-1].proviso == "b, silent, has by itself the CTI that the others had a micro-batch before"
    run.arrive()
    run.arrive(a=0, b=0)
    assert run.history.last is not None and run.history.last.inserted == 1, "as said, without a row of b"
    run = rehearsal(query)
    run.arrive(a=1)
    so = "b has brought no row yet; idle_after, 3 minutes from the start of the run, lets it pass."
    assert run.why().summary == f"Rows are held back: {so}"


@pytest.mark.parametrize("output", ["final", "changelog"])
def test_an_anti_join_with_an_input_that_has_stopped(output: str) -> None:
    query = events("a", 10, 11, 12).left_anti_join(events("b", 1), on="k")
    run = rehearsal(query, output)
    run.arrive(a=1, b=1)
    run.arrive(a=2)
    diagnosis = run.why()
    if output == "changelog":
        assert diagnosis.verdict == "flowing"
    else:
        assert (diagnosis.verdict, diagnosis.waits[-1].release[0]) == ("idle_input", "a row of b at or after 12")
        assert "next: what ends at 11" in str(diagnosis)
        assert "b brings no rows any more, and others do" in diagnosis.summary


@pytest.mark.parametrize("windowed", [False, True])
def test_an_inner_join_with_an_input_that_never_came(windowed: bool) -> None:
    query = events("a", 10, 11).join(events("b", 1), on="k", suffixes=("", "_b"))
    run = rehearsal(counted(query) if windowed else query)
    run.arrive(a=2)
    assert run.why().verdict == "idle_input" and "b has brought no row yet" in run.why().summary
    assert [(w.operator, w.least) for w in run.why().waits] == [("inner join on k", "b")]


FAILURES = events("log", 1, 2)
FAIL, OK = FAILURES.where(sq.col("v") < 5), FAILURES.where(sq.col("v") > 5)
SEQUENCE = "SEQUENCE(FAIL AS a, FAIL AS b, OK AS d, 5)"


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        (lambda: FAIL.join(OK.rename(v="w"), on="k"), "a first row from the right is missing, in inner join on k."),
        (lambda: OK.join(FAIL.rename(v="w"), on="k"), "a first row from the left is missing, in inner join on k."),
        (lambda: OK.left_anti_join(FAIL, on="k"), "a first row from the left is missing, in anti join on k."),
        (
            lambda: OK.join(FAIL, on="k", how="left", suffixes=("", "_b")),
            "a first row from the left is missing, in left join on k.",
        ),
        (
            lambda: sq.cedr(f"EVENT Brute WHEN {SEQUENCE} WHERE CorrelationKey(k, EQUAL)", FAIL=FAIL, OK=OK),
            f"a first row for d is missing, in pattern Brute: {SEQUENCE}.",
        ),
        (
            lambda: sq.cedr("EVENT Brute WHEN UNLESS(SEQUENCE(FAIL AS a, OK AS d, 5), FAIL AS r, 9)", FAIL=FAIL, OK=OK),
            "a first row for d is missing, in pattern Brute, its a, d: UNLESS(SEQUENCE(FAIL AS a, OK AS d, 5), FAIL AS r, 9).",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("output", ["final", "changelog"])
def test_rows_of_one_source_that_reach_one_side_of_a_join_alone(
    query: Callable[[], sq.Stream], missing: str, output: str
) -> None:
    run = rehearsal(query(), output)
    run.arrive()
    came = "No row came to one side: 2 rows of log came, and none passed the filters on that side"
    assert (run.why().verdict, run.why().summary) == ("no_match", f"{came}; {missing}")


def test_a_pattern_that_holds_rows_is_called_as_it_is_written() -> None:
    pattern = "UNLESS(SEQUENCE(FAIL AS a FIRST, FAIL AS b, 5), OK AS r, 9)"
    run = rehearsal(sq.cedr(f"EVENT Brute WHEN {pattern}", FAIL=FAIL, OK=OK))
    run.arrive()
    assert [wait.operator for wait in run.why().waits] == [f"pattern Brute, its a, b: {pattern}"]


def test_a_join_that_nothing_matches() -> None:
    run = rehearsal(events("a", 10).join(events("b", 11), on="k", suffixes=("", "_b")))
    run.arrive()
    assert run.why().verdict == "no_match"


@pytest.mark.parametrize("output", ["final", "changelog"])
def test_an_anti_join_of_which_nothing_is_left(output: str) -> None:
    run = rehearsal(events("a", 10, 12).left_anti_join(events("b", 8, 15, length=6), on="k"), output)
    run.arrive()
    assert run.why().verdict == "nothing_held"
    assert run.why().summary.startswith("Nothing is left of the rows that came to anti join on k")


def test_rows_that_filters_leave_out_before_and_behind_a_window() -> None:
    run = rehearsal(counted(events("a", 1, 25).where(sq.col("v") > 99)))
    run.arrive()
    assert run.why().verdict == "filtered"
    assert run.why().summary.startswith("2 rows of a came, and none passed the filters before hopping")
    run = rehearsal(counted(events("a", 1, 25)).where(sq.col("n") > 9))
    run.arrive()
    assert run.why().verdict == "filtered"
    assert run.why().summary.startswith("1 rows came out of hopping")
    none = sq.udo("v bigint", name="none")(lambda values: [])
    run = rehearsal(events("a", 1, 25).tumbling_window(10).select(none("v")))
    run.arrive()
    assert run.why().verdict == "filtered"
    assert run.why().summary.startswith("1 windows of hopping") and "the module gave none" in run.why().summary
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
    diagnosis = why(replace(run.status, state=RunState.STOPPED, reason="stop was called on it"))
    assert diagnosis.verdict == "stopped" and diagnosis.waits[0].release[-1] == "a run on the checkpoint"
    diagnosis = why(replace(run.status, state=RunState.FAILED, reason="source a: 1 late item(s)."))
    assert (diagnosis.verdict, diagnosis.waits) == ("failed", ()) and diagnosis.summary.endswith(
        "source a: 1 late item(s)."
    )
    assert why(RunStatus(program=run.program, history=RunHistory())).verdict == "no_rows"


def test_a_run_whose_sources_have_ended_says_so() -> None:
    changelog = [
        (kind, v, start, None, None) for kind, v, start in [("insert", 3, 1), ("cti", None, 3), ("end", None, None)]
    ]
    table = t.table("kind string, v bigint, start bigint, end bigint, new_end bigint", changelog)
    run = rehearsal(counted(sq.physical(table, name="rows")))
    run.arrive(rows=2)
    assert "has ended" not in run.why().summary
    run.arrive()
    assert run.why().verdict == "nothing_held"
    assert run.why().summary.startswith(
        "The input has ended, by rows, and all its rows are out. Nothing more comes: call"
    )


# What ``why()`` says of levels of consistency, and of sources that follow others or are passed over.

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
