"""State says whose it is: another query's is refused, bucket by bucket, with what has changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamq.errors import CheckpointError
from streamq.runtime.basket import Baskets, DictStore
from streamq.runtime.identity import STATE_VERSION, Identity, check_state

MINE = Identity(
    query="a1",
    outputs=("final",),
    buckets=8,
    late_sink=False,
    ctis=(False,),
    early=False,
    plan=("where v > 1", "points s"),
)


def stored(identity: Identity) -> DictStore:
    """State that a query of that identity has left."""
    store = DictStore()
    baskets = Baskets(store)
    check_state(baskets, identity)
    baskets.flush()
    return store


def test_a_querys_own_state_is_taken() -> None:
    check_state(Baskets(stored(MINE)), replace(MINE))


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ({"query": "a2", "plan": ("points s",)}, r"changed: the query \(nothing, now where v > 1\). Use"),
        ({"outputs": ("changelog",)}, r"changed: output \('changelog', now 'final'\). Use a new checkpoint"),
        ({"buckets": 4}, r"changed: buckets \(4, now 8\). Give buckets=4."),
        ({"version": 8}, rf"changed: the layout of state \(version 8, now {STATE_VERSION}\). Use a new checkpoint"),
    ],
)  # fmt: skip
def test_anothers_state_is_refused(before: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=f"query: the checkpoint is another query's; {message}"):
        check_state(Baskets(stored(replace(MINE, **before))), MINE)


def test_state_that_does_not_say_whose_it_is_is_refused() -> None:
    baskets = Baskets(DictStore())
    baskets.values["clocks0"] = {}
    with pytest.raises(CheckpointError, match=rf"the layout of state \(an older version, now {STATE_VERSION}\)"):
        check_state(baskets, MINE)
