"""States over parts of windows: many windows share them, and none sees what the merge of another does to them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import ModuleFailed
from streamq.runtime.user_code.calls import States
from streamq.runtime.user_code.states import PartState, merged_parts

EVENTS = [{"at": at, "v": at % 7} for at in range(0, 60, 2)]
WINDOWS = {start: [e["v"] for e in EVENTS if start <= e["at"] < start + 12] for start in range(-11, 60)}


def answers(module: Any) -> dict[int, Any]:
    """Return the results of a module for windows of 12 ticks, one a tick, by their starts."""
    points = sq.points(pa.Table.from_pylist(EVENTS), time="at")
    rows = points.hopping_window(12, 1).select(x=module("v")).to_pandas()
    return dict(zip(rows.start, rows.x, strict=True))


class Values:
    """All values in order, in a list that ``merge`` and ``result`` change, against their contract."""

    def initial(self) -> list[int]:
        return []

    def add(self, state: list[int], v: Any) -> list[int]:
        return [*state, *v.tolist()]

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        a.extend(b)
        return a

    def result(self, state: list[int]) -> str:
        state.sort()
        return ",".join(map(str, state))


def test_a_merge_that_changes_its_arguments_changes_no_other_window() -> None:
    expected = {start: ",".join(map(str, sorted(values))) for start, values in WINDOWS.items()}
    assert answers(sq.uda("string")(Values)) == {start: text for start, text in expected.items() if text}


class Counted(NamedTuple):
    total: int
    events: int


class Total(Values):
    def initial(self) -> Any:
        return Counted(0, 0)

    def add(self, state: Any, v: Any) -> Any:
        return Counted(state.total + int(v.sum()), state.events + len(v))

    def merge(self, a: Any, b: Any) -> Any:
        return Counted(a.total + b.total, a.events + b.events)

    def result(self, state: Any) -> Any:
        return state.total * 100 + state.events


def test_states_that_nothing_can_change_are_shared() -> None:
    expected = {start: 100 * sum(values) + len(values) for start, values in WINDOWS.items() if values}
    assert answers(sq.uda("long")(Total)) == expected
    assert isinstance(PartState(Counted(1, 2), (), 1).held, PartState)
    assert isinstance(PartState((np.float64(1.0), None, ("a", b"")), (), 1).held, PartState)
    assert isinstance(PartState(([],), (), 1).held, bytes)
    assert isinstance(PartState(None, (), 1, ValueError("no")).held, bytes)


class Refuses(Total):
    def merge(self, a: Any, b: Any) -> Any:
        if a.events + b.events > 5:
            raise ValueError("too many")
        return super().merge(a, b)


def test_a_merge_that_fails_names_a_window_and_its_first_events() -> None:
    with pytest.raises(ModuleFailed, match=r"too many; window \[-1, 11\); the first of 6 events: v = 0; v = 2; v = 4"):
        answers(sq.uda("long", name="refuses")(Refuses))


def test_of_several_errors_the_first_in_the_order_of_the_parts_is_reported() -> None:
    def fails(a: int, b: int) -> int:
        raise ValueError(f"{a} and {b}")

    wrong = PartState(None, ((3,),), 1, KeyError("third"))
    parts = [PartState(1, ((1,),), 1), PartState(2, ((2,),), 1), wrong]
    states = States("fails", initial=int, add=fails, result=str, merge=fails)
    merged = merged_parts(parts, states)
    assert (str(merged.error), merged.events, merged.first) == ("1 and 2", 3, ((1,), (2,), (3,)))
    assert merged_parts([parts[0], wrong, parts[1]], states).error is wrong.error
