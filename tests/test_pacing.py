"""The pace of a run over a simulated engine and clock: chunks of hops, their response times, and mistakes that break the law."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

import streamq as sq
from streamq import testing as t
from streamq.compiler.local import LocalRun
from streamq.errors import PlanError
from streamq.plan.node import Node
from streamq.run.pacing import SLIDES, ChunkSearch, Hops, Pace, Pacer, SearchPhase, Slide, hops_of
from streamq.time import Grid
from tests.mutation.mutant import Edit, Mutant
from tests.programs import compiled

HOP, SECOND = 6_000_000, 1_000_000
HOPS = Hops(grid=Grid(4 * HOP, HOP, 7), lag=2_500_000)


@dataclass
class Stream:
    """Rows that come at a rate, starting as they come, and an engine that processes them; times are in microseconds.

    ``batch`` and ``row`` are the costs of a micro-batch and of a row. ``begun`` counts the micro-batches that begin while a hop
    runs, by its end, ``responses`` has the time from when a hop was due until its rows were processed.
    """

    pace: Pace
    batch: int
    row: float
    rate: float
    now: int = 50 * HOP
    read: int = 50 * HOP
    begun: Counter[int] = field(default_factory=Counter)
    responses: dict[int, int] = field(default_factory=dict)

    def process(self, hops: int) -> Stream:
        """Process so many hops."""
        until = self.now + hops * HOP
        while self.now < until:
            began = self.now
            rows = round((began - self.read) * self.rate)
            self.read, cti, before = began, began - HOPS.lag, self.pace.complete
            self.begun[HOPS.grid.floor_to_end(cti)] += 1
            self.now += self.batch + round(rows * self.row)
            self.pace = self.pace.after(cti, rows, self.now)
            end = HOPS.grid.floor_to_end(cti)
            if before is not None and end > before:
                self.responses[end] = self.now - HOPS.due(end)
            assert 0 <= self.pace.begins - self.now <= HOP
            self.now = max(self.pace.begins, self.now + 1)
        return self


def settled(batch: int, row: float, rate: float) -> Stream:
    return Stream(Pace(hops=HOPS), batch, row, rate).process(20 * SLIDES)


def test_a_run_settles_at_the_chunks_whose_results_come_soonest() -> None:
    """The test measures the response times of all numbers of chunks that do not keep the engine busy."""
    rng = random.Random(7)
    for _ in range(3):
        batch, share, rate = rng.randint(SECOND // 20, SECOND // 3), rng.uniform(0.1, 0.5), rng.uniform(1e-4, 1e-2)
        row = share / rate
        live = settled(batch, row, rate)
        assert live.pace.search.phase is SearchPhase.SETTLED
        response = sorted(list(live.responses.values())[-SLIDES:])[SLIDES // 2]
        fixed = []
        for chunks in range(1, int((1 - share) * HOP / batch), 3):
            never = ChunkSearch(chunks=chunks, best=chunks, responses={chunks: 0.0, 2 * chunks: 1.0, 3 * chunks: 1.0})
            engine = Stream(Pace(hops=HOPS, search=never), batch, row, rate)
            engine.process(SLIDES - 1)
            fixed.append(sorted(engine.responses.values())[1])
        assert response <= 1.4 * min(fixed)


def test_as_many_micro_batches_begin_in_a_hop_as_it_has_chunks() -> None:
    live = settled(50_000, 0.3 / 1e-3, 1e-3)
    chunks = live.pace.search.chunks
    ends = sorted(live.begun)[-SLIDES:-1]
    assert chunks > 1 and {live.begun[end] for end in ends} == {chunks}


def test_a_backlog_is_processed_without_pauses_and_its_responses_do_not_count() -> None:
    behind = Pace(hops=HOPS, complete=HOPS.grid.floor_to_end(0))
    for number in range(1, 20):
        behind = behind.after(number * HOP + 10, 100, 100 * HOP + number * SECOND)
        assert behind.begins == behind.ended
    assert behind.search == ChunkSearch()


def test_a_hop_that_is_due_waits_for_its_rows_alone() -> None:
    """There is no pause until the CTI has passed its end."""
    end = HOPS.grid.floor_to_end(100 * HOP)
    due = HOPS.due(end)
    early = Pace(hops=HOPS, complete=end - HOP, begins=due - HOP).after(end - 2, 5, due - SECOND)
    assert early.begins == due
    late = early.after(end - 1, 0, due + SECOND)
    assert late.begins == due + SECOND
    complete = late.after(end + 1, 1, due + 2 * SECOND)
    assert complete.search.slides == (Slide(response=2 * SECOND, rows=6),)
    assert complete.begins == due + HOP


def test_a_pacer_reads_a_micro_batch_and_pauses_until_it_is_released() -> None:
    """The CTI is 5 seconds behind the greatest start, and the rows are those of the source, not those of the windows."""
    program = compiled(points().tumbling_window("1 hour").select(n=sq.count()).plan, buckets=2)
    live, hour = LocalRun(program), 3_600 * SECOND
    pacer = Pacer(Hops(grid=Grid(hour, hour), lag=5 * SECOND), program, lambda: 10 * hour + 6 * SECOND)
    pacer.observe(live.readings)
    assert pacer.pace.complete is None
    for start in (9 * hour + 6 * SECOND, 10 * hour + 5 * SECOND):
        live.batch({"s": t.table("at timestamp, v bigint", [(start - 2, 1), (start, 2)])})
        pacer.observe(live.readings)
    assert pacer.pace.complete == 10 * hour and pacer.pace.search.slides == (Slide(response=SECOND, rows=2),)
    assert pacer.pace.record() == {"chunks": 1, "phase": "doubling", "best": 1, "response_ms": {}}
    pacer.release()
    pacer.pause()  # for an hour otherwise


def points(kind: str = "timestamp") -> sq.Stream:
    return sq.points(t.table(f"at {kind}, v bigint", []), "at", name="s", progress=sq.generate(delay_of(kind)))


def delay_of(kind: str) -> str | int:
    return "5 seconds" if kind == "timestamp" else 5


def test_the_hops_of_a_query_are_the_least_of_its_windows() -> None:
    def plans(*windows: tuple[str, str]) -> list[Node]:
        return [points().hopping_window(*each).select(n=sq.count()).plan for each in windows]

    assert hops_of(plans(("1 minute", "20 seconds"), ("30 seconds", "10 seconds")), "run") == Hops(
        grid=Grid(30 * SECOND, 10 * SECOND), lag=5 * SECOND
    )
    landmark = points().landmark_window("10 seconds", period="1 minute", start=dt.datetime(1970, 1, 1, 0, 0, 3))
    assert hops_of([*plans(("30 seconds", "30 seconds")), landmark.select(n=sq.count()).plan], "run") == Hops(
        grid=Grid(10 * SECOND, 10 * SECOND, 3 * SECOND), lag=5 * SECOND
    )
    for query, observed in (
        (points().session_window("5 seconds").select(n=sq.count()), "found none"),
        (points().landmark_window("10 seconds", period="25 seconds").select(n=sq.count()), "found none"),
        (points("bigint").tumbling_window(5).select(n=sq.count()), "time is integers"),
    ):
        with pytest.raises(PlanError, match=f"run: trigger='adaptive' needs windows .* hops; {observed}. Give a dur"):
            query.run(trigger="adaptive", sink=print)
    with pytest.raises(
        PlanError, match="the trigger 'adaptive' need a folder of files, a function or 'noop' as the sink"
    ):
        points().tumbling_window("5 seconds").select(n=sq.count()).run(trigger="adaptive", sink="console")


def laws() -> None:
    test_as_many_micro_batches_begin_in_a_hop_as_it_has_chunks()
    test_a_hop_that_is_due_waits_for_its_rows_alone()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("number = (now - begin) * chunks // self.grid.hop + 1", "number = chunks"),
        (
            "now < self.hops.due(counted.complete + self.hops.grid.hop)",
            "now < self.hops.due(counted.complete + 2 * self.hops.grid.hop)",
        ),
    ],
)
def test_mistakes_break_the_laws(old: str, new: str) -> None:
    mutant = Mutant(
        "pace",
        "chunks are not those of the search, or a due hop waits",
        "",
        edits=(Edit("streamq/run/pacing.py", old, new),),
    )
    with mutant.in_place(), pytest.raises(AssertionError):
        laws()


def test_a_clock_that_is_set_back_makes_no_pause_longer_than_a_hop() -> None:
    pace = Pace(hops=HOPS, complete=HOPS.grid.floor_to_end(50 * HOP), begins=50 * HOP, ended=50 * HOP)
    for back in (HOP, 3 * HOP, 40 * HOP):
        now = 50 * HOP - back
        assert 0 <= pace.after(49 * HOP, 1, now).begins - now <= HOP


def test_pauses_are_suspended_for_a_while_and_released_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled(points().tumbling_window("6 seconds").select(n=sq.count()).plan)
    pacer, waits = Pacer(HOPS, program, clock=lambda: 0), list[bool]()
    monkeypatch.setattr(pacer._released, "wait", lambda timeout: waits.append(pacer._released.is_set()))
    pacer.pause()
    with pacer.suspended():
        pacer.pause()
    pacer.pause()
    pacer.release()
    with pacer.suspended():
        pass
    pacer.pause()
    assert waits == [False, True, False, True]


def test_a_source_that_would_count_as_idle_in_a_pause_is_refused() -> None:
    times = t.table("at timestamp, v bigint", [])
    for idle_after, is_refused in (("3 seconds", True), ("11 seconds", True), ("12 seconds", False)):
        s = sq.points(times, "at", name="s", progress=sq.generate("1 second", idle_after=idle_after))
        plan = s.tumbling_window("6 seconds").select(n=sq.count()).plan
        if not is_refused:
            assert hops_of([plan], "run").lag == SECOND
            continue
        with pytest.raises(
            PlanError, match="run: a pause of trigger='adaptive' may last a hop, .* two hops at least, 12"
        ):
            hops_of([plan], "run")
