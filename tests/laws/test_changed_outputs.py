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
from streamq.errors import CheckpointError, PlanError
from streamq.policies import Level
from streamq.testing.history import net, same_history
from tests.changed_query import ChangingRun

SOAK = bool(os.environ.get("STREAMQ_SOAK"))

FORMS: dict[str, dict[str, Any]] = {
    "final": {},
    "changelog": {"output": "changelog"},
    "early": {"output": "changelog", "early": True},
    "upsert": {"output": "upsert"},
    "ctis": {"output": "changelog", "ctis": True},
    "in order": {"output": "changelog", "ctis": True, "level": Level(None)},
}

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


Turn = tuple[str, ...]
"""The form of each result; those of one run are equal in all but the output."""
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


def arguments(turn: Turn) -> dict[str, Any]:
    return {"buckets": 1, **FORMS[turn[0]], "output": [FORMS[form].get("output", "final") for form in turn]}


def changes(name: str, turns: Sequence[Turn], seed: int) -> list[str]:
    """Run a query whose results change their forms; give, for each change, "goes on" or the error, with which it ends.

    Rows of a changelog that were not final when final rows begin are left out: they come again.
    """
    queries, tables = results(name, len(turns[0]), seed)
    steady = {turn: ChangingRun(*queries, **arguments(turn)) for turn in turns}
    by_turn: dict[Turn, list[list[pa.Table]]] = {turn: [[] for _ in queries] for turn in steady}
    changing = ChangingRun(*queries, **arguments(turns[0]))
    sent: list[list[pa.Table]] = [[] for _ in queries]
    verdicts = []
    for number, turn in enumerate(turns):
        if number:
            try:
                changing = changing.changed(*queries, **arguments(turn))
            except CheckpointError as error:
                return [*verdicts, str(error)]
            verdicts.append("goes on")
            for place, form in enumerate(turn):
                if form == "final" != turns[number - 1][place]:
                    sent[place] = list(by_turn[turn][place])
        batch = {n: table.slice(*_part(table, number, len(turns))) for n, table in tables.items()}
        is_last = number == len(turns) - 1
        for run, out in ((changing, sent), *((steady[turn], by_turn[turn]) for turn in steady)):
            for part in [run.batch(batch), *([run.finish()] if is_last else [])]:
                for tables_so_far, table in zip(out, part, strict=True):
                    tables_so_far.append(table)
        # what has been sent does not go back into order
        if is_last or len({"in order" in earlier for earlier in turns[: number + 1]}) == 1:
            for place, so_far in enumerate(sent):
                difference = same_history(net(so_far), net(by_turn[turn][place]))
                assert difference is None, f"{turns[: number + 1]} of {name}, result {place + 1}\n{difference}"
    return verdicts


def _part(table: pa.Table, number: int, of: int) -> tuple[int, int]:
    """The offset and the length of a part of a table."""
    begin, end = (table.num_rows * at // of for at in (number, number + 1))
    return begin, end - begin


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
