"""A clock: what happened before now - delay has arrived, in every micro-batch, with rows or without."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import Phase, find, settings

import streamq as sq
from streamq import testing as t
from streamq.errors import PlanError, TimeError
from streamq.progress_policies import ClockCtis, ProgressArgument
from streamq.run.rehearsal import Rehearsal
from streamq.testing.case import Case
from streamq.testing.execution import Execution
from streamq.testing.replay import case_from_json, case_to_json
from streamq.time import MINUS_INFINITY

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def at(seconds: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=seconds)


class Clock:
    """The time of day, which a test sets in seconds after noon."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> dt.datetime:
        return at(self.seconds)


def source(name: str, *seconds: float, progress: ProgressArgument | None = None) -> sq.Stream:
    """Points so many seconds after noon; their source follows the clock, two seconds behind, or has another progress."""
    rows = t.table("at timestamp, k string", [(at(s), "x") for s in seconds])
    return sq.points(rows, time="at", name=name, progress=progress or sq.clock("2 seconds"))


class Run(Rehearsal):
    """A rehearsal with a clock that stands at noon."""

    def __init__(self, query: sq.Stream, **how: Any):
        self.clock = Clock()
        super().__init__(query, clock=self.clock, **how)

    def at(self, seconds: float, **rows: int) -> int:
        """Run a micro-batch so many seconds after noon; return how many rows come out."""
        self.clock.seconds = seconds
        return self.arrive(**(rows or dict.fromkeys(self._named, 0))).num_rows


def per_ten_seconds(source: sq.Stream) -> sq.Stream:
    return source.tumbling_window("10 seconds").select(n=sq.count())


def test_what_did_not_come_is_told_while_all_are_silent() -> None:
    orders, payments = source("orders", 0, 1), source("payments", 4)
    run = Run(orders.set_duration("10 seconds").left_anti_join(payments, on="k"))
    assert run.at(1, orders=1) == run.at(11) == run.at(12) == 0, "it lives until 10, and may still be paid at 10"
    assert run.at(12.1) == 1


def test_ctis_are_in_steps_and_a_clock_that_is_set_back_takes_none_back() -> None:
    run = Run(per_ten_seconds(source("a", 5, progress=sq.clock("2 seconds", every="5 seconds"))))
    run.at(6, a=1)
    ctis = []
    for seconds in (6, 7, 11.9, 12, 3, 16.9):
        run.at(seconds)
        ctis.append(run.metrics["sources"]["a"]["cti"])
    base = int(NOON.timestamp() * 1_000_000)
    assert [(cti - base) // 1_000_000 for cti in ctis] == [0, 5, 5, 10, 10, 10]


def test_beside_the_rows_the_greater_counts(capsys: pytest.CaptureFixture[str]) -> None:
    progress = sq.generate("5 seconds", clock=sq.clock("20 seconds"))
    query = per_ten_seconds(source("a", 5, 15, 18, progress=progress))
    query.explain()
    shown = (
        "source a: generate(delay=5 seconds, clock=clock(delay=20 seconds)); c follows the clock, 20 seconds behind\n"
    )
    assert shown in capsys.readouterr().out
    run = Run(query)
    assert run.at(6, a=2) == 1, "c is 10 by the row at 15"
    assert run.at(39, a=1) == 0
    release = "a row of a at or after 2024-05-01 12:00:25 (delay 5 seconds) or the clock at 2024-05-01 12:00:40"
    assert run.why().summary == f"Rows are held back, waiting for {release}, which c of a follows (20 seconds behind)."
    assert run.at(40) == 1


def test_beside_partitions_the_clock_passes_those_that_are_further_behind() -> None:
    progress = sq.generate("1 second", per="k", idle_after="1 minute", clock=sq.clock("20 seconds"))
    rows = t.table("at timestamp, k string", [(at(30), "a"), (at(5), "b"), (at(40), "a"), (at(19), "b"), (at(95), "a")])
    run = Run(per_ten_seconds(sq.points(rows, time="at", name="a", progress=progress)))

    def cti(seconds: float, rows: int = 0) -> int:
        run.at(seconds, a=rows)
        return (run.metrics["sources"]["a"]["cti"] - int(NOON.timestamp() * 1_000_000)) // 1_000_000

    assert [cti(6, 2), cti(23), cti(25)] == [4, 4, 5], "b is at 4, until the clock is beyond that"
    release = "a row of a at or after 2024-05-01 12:00:11 (delay 1 second) in k='b', and in any other partition that is behind"
    assert (
        f"{release} or the clock at 2024-05-01 12:00:30, which c of a follows (20 seconds behind)" in run.why().summary
    )
    assert [cti(41, 1), cti(42, 1)] == [21, 22], "the row of b at 19 is late"
    assert run.history.late == {"a|dropped": 1}
    assert [cti(96, 1), cti(110)] == [76, 94], "then b is idle, and a is ahead of the clock"


def test_explain_and_why_say_that_c_follows_it(capsys: pytest.CaptureFixture[str]) -> None:
    query = per_ten_seconds(source("a", 5))
    query.explain()
    assert "source a: clock(delay=2 seconds); c follows the clock, 2 seconds behind\n" in capsys.readouterr().out
    run = Run(query)
    run.at(6, a=1)
    release = "the clock at 2024-05-01 12:00:12, which c of a follows (2 seconds behind)"
    assert run.why().summary == f"Rows are held back, waiting for {release}."
    assert run.at(11.999) == 0
    assert run.at(12) == 1


def test_why_does_not_wait_for_rows_of_a_source_that_has_brought_none() -> None:
    run = Run(source("orders", 0).set_duration("10 s").left_anti_join(source("payments"), on="k"))
    run.at(1, orders=1)
    assert run.why().verdict == "waiting"
    assert "the clock at 2024-05-01 12:00:13" not in run.why().summary
    assert "the clock at 2024-05-01 12:00:12.000001" in run.why().summary


@pytest.mark.parametrize("policy", [ClockCtis(), ClockCtis(2, 10), ClockCtis(7, 3)])
def test_the_least_time_of_day_for_a_cti_makes_it(policy: ClockCtis) -> None:
    for now in (-11, -1, 0, 1, 13, 2**62):
        cti = policy.cti(now)
        least = policy.least_instant(cti)
        assert policy.cti(least) == cti > policy.cti(least - 1)
    assert policy.cti(MINUS_INFINITY) == MINUS_INFINITY + 1


def test_what_is_no_clock_is_refused() -> None:
    with pytest.raises(PlanError, match="a clock takes times that are timestamps; the axis is integer"):
        sq.points(t.table("at bigint", []), time="at", progress=sq.clock("1 s"))
    with pytest.raises(PlanError, match="delay is negative"):
        sq.clock("-1 s")
    with pytest.raises(PlanError, match="every is no length of time"):
        sq.clock("1 s", every=0)
    with pytest.raises(TimeError, match="a duration without a unit"):
        sq.clock(10)
    for other in (sq.generate(), "10 seconds"):
        with pytest.raises(PlanError, match=r"clock is sq.clock\(...\); found"):
            sq.generate("1 s", clock=other)


@pytest.mark.slow
def test_a_case_with_a_clock_is_drawn_written_down_and_read() -> None:
    def has_clock(case: Case) -> bool:
        return case.follows_clock and len(set(case.times)) > 1

    first = settings(max_examples=1000, database=None, derandomize=True, deadline=None, phases=[Phase.generate])
    case = find(t.concrete(t.stream(axis="timestamp"), t.Intent(events=3)), has_clock, settings=first)
    case = Case(case.plan, case.arrival, case.cut, static=case.static, clock=(0, 3))
    again, *_ = case_from_json(case_to_json(case, Execution()))
    assert (again.clock, again.times) == ((0, 3), case.times)
    assert "micro-batch 1, at 19" in case.drawn()


def test_a_progress_argument_is_shown_as_it_is_written() -> None:
    assert repr(sq.clock("10 seconds", every="1 minute")) == "sq.clock('10 seconds', every='1 minute')"
    by_clock = sq.generate("5 minutes", clock=sq.clock("3 seconds"))
    assert repr(by_clock) == "sq.generate(delay='5 minutes', clock=sq.clock('3 seconds'))"
    assert repr(sq.explicit()) == "sq.explicit()" and repr(sq.follow(source("a"))) == "sq.follow(a)"
