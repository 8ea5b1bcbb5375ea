"""The law of the search for the number of chunks of a hop, over a simulated engine, and mistakes that break it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamq.run.pacing import SLIDES, ChunkSearch, SearchPhase, Slide
from tests.mutation.mutant import Edit, Mutant

HOP = 1_000.0
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
        step, cost = HOP / chunks, self.batch + self.row * rows / chunks
        if cost <= step:
            return cost + self.merge * chunks
        began_at, processed, looks = step, rows / chunks, 1
        while began_at < HOP:
            began_at = max(began_at + cost, step * math.floor(began_at / step + 1))
            arrived = rows * min(1.0, began_at / HOP)
            cost, processed, looks = self.batch + self.row * (arrived - processed), arrived, looks + 1
        return began_at + cost + self.merge * looks - HOP

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
        search = search.after(Slide(response, round(rows * rng.uniform(1 - noise, 1 + noise))))
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
    check(Engine(batch, load * HOP / rows, merge), (rows, round(rows * change), rows), noise, seed)


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
            search = search.after(Slide(FIGURE_8.response(search.chunks, 20_000), 20_000))
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


def test_an_engine_that_becomes_slower_begins_the_search_anew() -> None:
    check_other_speeds()


def test_a_response_time_that_drifts_is_compared_with_that_of_settling() -> None:
    """Many small changes count as one; noise around one response time does not."""
    settled = searched(ChunkSearch(), QUICK, 1_000)
    response = QUICK.response(settled.chunks, 1_000)

    def after(*factors: float) -> ChunkSearch:
        search = settled
        for factor in factors:
            for _ in range(SLIDES):
                search = search.after(Slide(response * factor, 1_000))
        return search

    assert after(1.3, 0.8, 1.4, 0.9).phase is SearchPhase.SETTLED
    assert after(1.2, 1.4, 1.6) == after(0.9, 0.8, 0.6) == ChunkSearch()


def check_nothing_is_gained(noise: float) -> None:
    """Assert that a search stays with one chunk where each costs much more than all rows."""
    assert searched(ChunkSearch(), Engine(batch=10, row=1e-4, merge=1e-3), 1_000, noise).chunks == 1


@pytest.mark.parametrize("noise", [0, 0.02])
def test_a_hop_stays_whole_if_chunks_gain_nothing(noise: float) -> None:
    check_nothing_is_gained(noise)


def check_law() -> None:
    """Assert the law for engines whose best number of chunks lies much below the number of rows, is that number, or is 1."""
    check(Engine(batch=0.001, row=1e-3, merge=1e-5), (20_000, 911, 20_000), 0.05)
    check(Engine(batch=1e-5, row=1e-3, merge=1e-9), (911,), 0)
    check(Engine(batch=10, row=1e-4, merge=1e-3), (1_000, 3_000), 0)
    check_nothing_is_gained(0.02)
    check_other_speeds()


FILE = "streamq/run/pacing.py"

MISTAKES = {
    "the number tried last is kept": ("self.chunks if is_best else self.best", "self.chunks"),
    "the mean of response times counts": ("statistics.median(slide.response", "statistics.mean(slide.response"),
    "any rate is the same": ("_has_changed(self.rows, rows)", "False"),
    "any speed is the same": ("_has_changed(self.settled, response)", "False"),
    "nothing is bisected": ("return None if is_near else middle", "return None"),
    "what is hardly slower is better": ("* (1 - BAND)", "* (1 + BAND)"),
    "former measurements stand at another rate": (
        "return ChunkSearch()",
        "return replace(self, chunks=1, slides=(), rows=None)",
    ),
}
"""Mistakes in the search: a text, and what stands there instead."""


@pytest.mark.parametrize("name", MISTAKES)
def test_the_law_notices(name: str) -> None:
    old, new = MISTAKES[name]
    with Mutant(name, name, "", edits=(Edit(FILE, old, new),)).in_place(), pytest.raises(AssertionError):
        check_law()
