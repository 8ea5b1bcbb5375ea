"""The pace of a run over a simulated engine and clock: chunks of hops, their response times, and mistakes that break the law."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamq as sq
from streamq import testing as t
from streamq.compiler.local import LocalRun
from streamq.errors import PlanError
from streamq.plan.node import Node
from streamq.run.pacing import SLIDES, ChunkSearch, Hops, Pace, Pacer, SearchPhase, Slide, hops_of
from streamq.time import Grid
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
            self.pace = self.pace.with_micro_batch(cti, rows, self.now)
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
        behind = behind.with_micro_batch(number * HOP + 10, 100, 100 * HOP + number * SECOND)
        assert behind.begins == behind.ended
    assert behind.search == ChunkSearch()


def test_a_hop_that_is_due_waits_for_its_rows_alone() -> None:
    """There is no pause until the CTI has passed its end."""
    end = HOPS.grid.floor_to_end(100 * HOP)
    due = HOPS.due(end)
    early = Pace(hops=HOPS, complete=end - HOP, begins=due - HOP).with_micro_batch(end - 2, 5, due - SECOND)
    assert early.begins == due
    late = early.with_micro_batch(end - 1, 0, due + SECOND)
    assert late.begins == due + SECOND
    complete = late.with_micro_batch(end + 1, 1, due + 2 * SECOND)
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


def test_a_clock_that_is_set_back_makes_no_pause_longer_than_a_hop() -> None:
    pace = Pace(hops=HOPS, complete=HOPS.grid.floor_to_end(50 * HOP), begins=50 * HOP, ended=50 * HOP)
    for back in (HOP, 3 * HOP, 40 * HOP):
        now = 50 * HOP - back
        assert 0 <= pace.with_micro_batch(49 * HOP, 1, now).begins - now <= HOP


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


# The law of the search for the number of chunks of a hop, over a simulated engine, and mistakes that break it.

TIME = 1_000.0
"""The time between two ends of hops; rows come evenly in it."""

FACTOR = 1.4
"""The number of chunks that a search finds responds at most so many times as slowly as the best number."""

BLOCKS = 7
"""Beside a median for each doubling or halving a search needs so many: two for a rate that changes meanwhile, five to bisect."""


@dataclass(frozen=True)
class Engine:
    """A simulated engine: costs are a micro-batch's, a row's, and those of merging the result of one more chunk into the hop's.

    It looks for rows m times a hop, the last time at its end, or once the micro-batch before is done, if that is later.
    """

    batch: float
    row: float
    merge: float

    def response(self, chunks: int, rows: int) -> float:
        """Return the time from the end of a hop to its result."""
        step, cost = TIME / chunks, self.batch + self.row * rows / chunks
        if cost <= step:
            return cost + self.merge * chunks
        began_at, processed, looks = step, rows / chunks, 1
        while began_at < TIME:
            began_at = max(began_at + cost, step * math.floor(began_at / step + 1))
            arrived = rows * min(1.0, began_at / TIME)
            cost, processed, looks = self.batch + self.row * (arrived - processed), arrived, looks + 1
        return began_at + cost + self.merge * looks - TIME

    def best(self, rows: int) -> float:
        """Return the least response time of all numbers of chunks; of them the powers of 1.05 are tried."""
        tried = {min(rows, int(1.05**power)) for power in range(math.ceil(math.log(rows, 1.05)) + 1)}
        return min(self.response(chunks, rows) for chunks in tried)


def searched(search: ChunkSearch, engine: Engine, rows: int, noise: float = 0.0, seed: int = 0) -> ChunkSearch:
    """Return a search once it has settled at a rate; raise AssertionError if that takes more hops than BLOCKS allows.

    Response times and rows vary by up to the part ``noise``, without which they are exact; else of five hops up to two respond
    ten times as slowly.
    """
    rng, responses = random.Random(seed), dict[int, float]()
    most = SLIDES * (math.ceil(math.log2(rows)) + BLOCKS)
    for hops in range(1, most + 1):
        if search.chunks not in responses:
            responses[search.chunks] = engine.response(search.chunks, rows)
        response = (
            responses[search.chunks] * rng.uniform(1 - noise, 1 + noise) * (10 if noise and hops % 11 in (1, 3) else 1)
        )
        search = search.with_slide(Slide(response, round(rows * rng.uniform(1 - noise, 1 + noise))))
        if (
            search.phase is SearchPhase.SETTLED
            and not search.slides
            and abs((search.rows or 0) / rows - 1) <= 2 * noise
        ):
            return search
    raise AssertionError(f"not settled after {most} hops: {search}")


def check(engine: Engine, rates: Sequence[int], noise: float, seed: int = 0) -> None:
    """Assert the law at each rate in turn."""
    search = ChunkSearch()
    for rows in rates:
        search = searched(search, engine, rows, noise, seed)
        assert engine.response(search.chunks, rows) <= FACTOR * engine.best(rows), search


@given(
    st.floats(1e-2, 100), st.floats(0.01, 0.4), st.floats(1e-5, 1), st.integers(60, 3_000),
    st.sampled_from([1 / 6, 0.3, 0.5, 2, 6]), st.floats(0, 0.05), st.integers(0, 9),
)  # fmt: skip
def test_a_search_settles_near_the_best_number_and_does_so_again_at_another_rate(
    batch: float, load: float, merge: float, rows: int, change: float, noise: float, seed: int
) -> None:
    """``load`` is the part of the time that the rows take at first."""
    check(Engine(batch, load * TIME / rows, merge), (rows, round(rows * change), rows), noise, seed)


FIGURE_8 = Engine(batch=0.05, row=1e-3, merge=1e-4)
"""The time falls up to m = 512, and rises then, with 20,000 rows a hop."""


def test_the_curve_of_figure_8_is_descended_to_512_chunks() -> None:
    """The curve of the paper: the response time falls with m up to 512 and rises with 1,024, upon which the search goes back."""
    search = searched(ChunkSearch(), FIGURE_8, 20_000)
    times = [search.responses[2**power] for power in range(11)]
    assert times[:10] == sorted(times[:10], reverse=True)
    assert times[10] > times[9]
    assert search.chunks == 512


def test_a_rate_that_changes_within_a_measurement_begins_the_search_anew() -> None:
    """Hops of two rates are no measurement, whichever are more; the rate counts from the next five hops on."""
    settled = searched(ChunkSearch(), FIGURE_8, 20_000)
    for hops in range(1, SLIDES):
        search = settled
        for _ in range(hops):
            search = search.with_slide(Slide(FIGURE_8.response(search.chunks, 20_000), 20_000))
        search = searched(search, FIGURE_8, 2_000)
        assert FIGURE_8.response(search.chunks, 2_000) <= FACTOR * FIGURE_8.best(2_000)


QUICK, SLOW = Engine(batch=10, row=1e-3, merge=1e-3), Engine(batch=10, row=0.1, merge=1e-3)
"""An engine before and after its rows take 100 times as long: chunks gain nothing before, and much afterwards."""


def check_other_speeds() -> None:
    """Assert the law for an engine that becomes slower, and as quick as before, while the rate stays."""
    search = ChunkSearch()
    for engine in (QUICK, SLOW, QUICK):
        search = searched(search, engine, 1_000)
        assert engine.response(search.chunks, 1_000) <= FACTOR * engine.best(1_000), search


def test_a_response_time_that_drifts_is_compared_with_that_of_settling() -> None:
    """Many small changes count as one; noise around one response time does not."""
    settled = searched(ChunkSearch(), QUICK, 1_000)
    response = QUICK.response(settled.chunks, 1_000)

    def after(*factors: float) -> ChunkSearch:
        search = settled
        for factor in factors:
            for _ in range(SLIDES):
                search = search.with_slide(Slide(response * factor, 1_000))
        return search

    assert after(1.3, 0.8, 1.4, 0.9).phase is SearchPhase.SETTLED
    assert after(1.2, 1.4, 1.6) == after(0.9, 0.8, 0.6) == ChunkSearch()


def check_nothing_is_gained(noise: float) -> None:
    """Assert that a search stays with one chunk where each costs much more than all rows."""
    assert searched(ChunkSearch(), Engine(batch=10, row=1e-4, merge=1e-3), 1_000, noise).chunks == 1


def check_law() -> None:
    """Assert the law for engines whose best number of chunks lies much below the number of rows, is that number, or is 1."""
    check(Engine(batch=0.001, row=1e-3, merge=1e-5), (20_000, 911, 20_000), 0.05)
    check(Engine(batch=1e-5, row=1e-3, merge=1e-9), (911,), 0)
    check(Engine(batch=10, row=1e-4, merge=1e-3), (1_000, 3_000), 0)
    check_nothing_is_gained(0.02)
    check_other_speeds()


def test_the_law() -> None:
    check_law()
