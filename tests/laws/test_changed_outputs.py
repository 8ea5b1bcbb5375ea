"""A run goes on in another form of output, and has then sent what that form would have sent from the start, or is refused."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import streamq as sq
from streamq import col
from streamq.errors import PlanError
from tests.changed_query import FORMS, ChangingRun, Turn, arguments, outputs_in_turns

SOAK = bool(os.environ.get("STREAMQ_SOAK"))

Query = Callable[[sq.Stream, sq.Stream], sq.Stream]
STATELESS: dict[str, Query] = {
    "bare": lambda s, t: s,
    "where": lambda s, t: s.where(col("v") > 1),
    "select": lambda s, t: s.select("k", w=col("v") + 1),
    "union": lambda s, t: s.union(t),
    "shift": lambda s, t: s.shift(3),
    "extend": lambda s, t: s.extend(2),
    "set_duration": lambda s, t: s.set_duration(4),
    "to_points": lambda s, t: s.to_points(),
    "inner join": lambda s, t: s.join(t, on="k", suffixes=("", "_t")),
}
QUERIES = STATELESS | {
    "left join": lambda s, t: s.join(t, on="k", how="left", suffixes=("", "_t")),
    "tumbling": lambda s, t: s.group_by("k").tumbling_window(6).select(n=sq.count()),
    "tumbling, moved": lambda s, t: s.group_by("k").tumbling_window(6).select(n=sq.count()).shift(2),
    "session": lambda s, t: s.group_by("k").session_window(3).select(n=sq.sum("v")),
    "snapshot": lambda s, t: s.snapshot_window().select(n=sq.count()),
    "per window": lambda s, t: s.group_by("k").per_window().select(n=sq.count()),
    "what reads ends": lambda s, t: s.where(sq.duration() > 2).shift(1),
}


TURNS: list[Turn] = [
    *((form,) for form in FORMS),
    *itertools.product(("final", "changelog", "upsert"), repeat=2),
]


def items(seed: int) -> list[Any]:
    """Inserts in order of their starts, each with a CTI or a retraction behind it; what is late by then is dropped."""
    rng, at, rows = random.Random(seed), 0, list[Any]()
    for _ in range(rng.randint(3, 9)):
        at += rng.randint(0, 4)
        end, payload = at + rng.randint(1, 8), {"k": rng.randint(1, 2), "v": rng.randint(1, 3)}
        moved = sq.retract(at, end, rng.choice([at, at + 1, end + 3]), **payload)
        rows += [sq.insert(at, end, **payload), rng.choice([moved, sq.cti(at), sq.cti(max(0, at - 3))])]
    return rows


def results(name: str, count: int, seed: int) -> tuple[list[sq.Stream], dict[str, pa.Table]]:
    """A query, and others over the same state beside it, up to ``count``; and the rows of their sources."""
    s, t = (sq.events(items(2 * seed + i), name=n, progress=sq.explicit()) for i, n in enumerate("st"))
    query = QUERIES[name](s, t)
    others = [query.with_columns(more=sq.lit(number)) for number in range(1, count)]
    return [query, *others], {"s": s.tables["s"], "t": t.tables["t"]}


def changes(name: str, turns: Sequence[Turn], seed: int) -> list[str]:
    """What becomes of each change of forms: see :func:`outputs_in_turns`."""
    return outputs_in_turns(*results(name, len(turns[0]), seed), turns)


def allows(name: str, turns: Sequence[Turn]) -> bool:
    """True if the query can have all forms: upserts need a key."""
    try:
        for form in {form for turn in turns for form in turn}:
            ChangingRun(results(name, 1, 0)[0][0], **arguments((form,)))
    except PlanError:
        return False
    return True


@st.composite
def turns_of_one_length(draw: st.DrawFn) -> list[Turn]:
    count = draw(st.sampled_from([1, 1, 2]))
    return draw(st.lists(st.sampled_from([turn for turn in TURNS if len(turn) == count]), min_size=2, max_size=4))


@pytest.mark.slow
@settings(max_examples=2_000 if SOAK else 20)
@given(st.sampled_from([*QUERIES]), turns_of_one_length(), st.integers(0, 1_000))
def test_results_in_another_form_go_on_as_if_they_had_always_had_it_or_are_refused(
    name: str, turns: list[Turn], seed: int
) -> None:
    assume(allows(name, turns))
    changes(name, turns, seed)


LOST = (
    "rows of a result wait in (settle: pass on what can no longer change), and its new form would lose them. Go on with"
)


@pytest.mark.parametrize("name", STATELESS)
def test_rows_that_wait_behind_a_result_are_not_lost(name: str) -> None:
    """The items wait; another output would send what takes them back, or nothing."""
    (error,) = changes(name, [("final",), ("changelog",)], 3)
    assert LOST in error
    (error,) = changes(name, [("changelog",), ("final",)], 3)
    assert "settle: pass on what can no longer change" in error and "sq.migrate" in error


def test_forms_that_send_all_rows_go_on_in_one_another() -> None:
    """Rows that wait for their order do not."""
    assert changes("bare", [("changelog",), ("early",), ("changelog",)], 3) == ["goes on"] * 2
    for form in ("early", "ctis"):
        (error,) = changes("bare", [("final",), (form,)], 3)
        assert error.endswith("Go on with the output of before, or begin anew with a new checkpoint and a new sink.")
    assert changes("bare", [("ctis",), ("changelog",)], 3) == ["goes on"]
    (error,) = changes("bare", [("in order",), ("changelog",)], 3)
    assert "rows of a result wait in (ctis: " in error
    assert changes("tumbling", [("final",), ("changelog",), ("upsert",), ("final",)], 3) == ["goes on"] * 3
