"""The identity of a query is read back from its JSON; what another version wrote is known by its version alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from streamq.errors import CheckpointError
from streamq.runtime.hosts.identity import (
    FORM_CHANGED,
    STATE_VERSION,
    Identity,
    ModuleCode,
    OperatorState,
    OtherLayout,
    ResultState,
    check_state,
    fit_to_state,
    read_identity,
)
from streamq.runtime.state.baskets import Baskets, DictStore

WINDOW = OperatorState(
    name="window:a1",
    stage=0,
    title="hopping size=10",
    form="final",
    parts=("reads k string",),
    modules=(ModuleCode(name="size", version=2, code="c1", compatible_with=1),),
)
MINE = Identity(
    query="a1",
    operators=(WINDOW,),
    results=(ResultState(output="final", ctis=False, operators=("window:a1",)),),
    stages=1,
    sources=("s",),
    buckets=8,
    late_sink=False,
    early=False,
    folders=(("out", "final rows"),),
)


def test_an_identity_is_read_back() -> None:
    assert read_identity(MINE.to_json()) == MINE
    assert read_identity(json.dumps({"version": 8, "query": "a1"})) == OtherLayout(8)
    assert read_identity("{}") == OtherLayout()
    assert STATE_VERSION not in (8, None)


def test_the_mark_differs_where_the_state_does() -> None:
    """Not for other folders, or another clock: state knows neither."""
    others = (
        replace(MINE, query="a2"),
        replace(MINE, stages=2),
        replace(MINE, buckets=4),
        replace(MINE, blocks=True),
        replace(MINE, operators=(replace(WINDOW, stage=1),)),
        replace(MINE, results=(ResultState(output="changelog", ctis=True, operators=("window:a1",)),)),
    )
    assert len({one.mark for one in (MINE, *others)}) == 1 + len(others)
    assert replace(MINE, folders=(), clock=True).mark == MINE.mark


# State says whose it is: a bucket's state goes on with a query that fits, drops what nobody needs, and refuses the others.

SESSION = OperatorState(name="session:b1", stage=0, title="session gap=3", form="changelog")
RESULT = replace(MINE.results[0], operators=("session:b1",))
BOTH = replace(MINE, query="ab", operators=(WINDOW, SESSION), results=(*MINE.results, RESULT))


def stored(identity: Identity) -> DictStore:
    """State that a query of that identity has left, with rows of each operator, also some that are held back."""
    store = DictStore()
    baskets = Baskets(store)
    check_state(baskets, identity)
    for operator in identity.operators:
        for scope in (operator.name, f"{operator.name}/held 0.a1"):
            baskets.scoped(scope).basket("in").append("0", pa.table({"v": [1]}))
    baskets.values["clocks"] = {name: {"c": 3} for name in ("source:s", *identity.names)}
    baskets.flush()
    return store


def test_state_of_operators_that_are_gone_is_dropped_with_its_chunks_and_clocks() -> None:
    store = stored(BOTH)
    baskets = Baskets(store)
    check_state(baskets, MINE)
    baskets.flush()
    assert set(Baskets(store).scopes) == {"window:a1", "window:a1/held 0.a1"}
    assert set(Baskets(store).values["clocks"]) == {"source:s", "window:a1"}
    assert not any(name.startswith("session") for name in store.held)
    check_state(baskets, MINE)


def test_an_operator_that_begins_has_no_state_even_if_a_bucket_still_has_some() -> None:
    store = stored(BOTH)
    baskets = Baskets(store)
    check_state(baskets, MINE)
    check_state(baskets, BOTH)
    assert "session:b1" not in baskets.scopes


def test_the_state_of_a_kernel_that_sends_rows_in_another_form_from_now_on_is_marked() -> None:
    """The rows that a level holds back are in no form yet."""
    baskets = Baskets(stored(MINE))
    changelog = replace(MINE.results[0], output="changelog")
    check_state(baskets, replace(MINE, operators=(replace(WINDOW, form="changelog"),), results=(changelog,)))
    marked = {scope for scope, values in baskets.scopes.items() if FORM_CHANGED in values}
    assert marked == {"window:a1"}


def test_what_does_not_fit_is_refused_in_the_name_of_the_query() -> None:
    baskets = Baskets(stored(MINE))
    other = replace(MINE, query="a2", operators=(replace(WINDOW, name="window:a2", parts=("reads k bigint",)),))
    other = replace(other, results=(replace(MINE.results[0], operators=("window:a2",)),))
    wrong = "hopping size=10 has no state there: reads k string, now reads k bigint"
    with pytest.raises(CheckpointError, match=f"query: the checkpoint cannot go on with this query; {wrong}"):
        check_state(baskets, other)
    moved = replace(MINE, operators=(replace(WINDOW, stage=1),), stages=2)
    with pytest.raises(CheckpointError, match="in stage 1, and would be in stage 2"):
        check_state(baskets, replace(moved, stages=1))
    now = fit_to_state(MINE, replace(MINE, clock=True))
    assert now.misfits == ("Spark reads no clock beside the sources there, now a clock",)


def test_state_that_does_not_say_whose_it_is_is_refused() -> None:
    baskets = Baskets(DictStore())
    baskets.values["clocks"] = {}
    with pytest.raises(
        CheckpointError, match=rf"its state has another layout \(an older version, now {STATE_VERSION}\)"
    ):
        check_state(baskets, MINE)
