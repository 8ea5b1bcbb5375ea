"""State says whose it is: another query's is refused, bucket by bucket, with what has changed."""

from __future__ import annotations

from typing import Any

import pytest

from streamq.errors import CheckpointError
from streamq.runtime.basket import Baskets, DictStore
from streamq.runtime.identity import check_state

MINE: dict[str, Any] = {"version": 9, "fingerprint": "a1/final/8/0/0", "plan": ["where v > 1", "points s"]}


def kept(identity: dict[str, Any]) -> DictStore:
    """State that a query of that identity has left."""
    store = DictStore()
    baskets = Baskets(store)
    check_state(baskets, identity)
    baskets.flush()
    return store


def test_a_querys_own_state_is_taken() -> None:
    check_state(Baskets(kept(MINE)), dict(MINE))


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ({"fingerprint": "a2/final/8/0/0", "plan": ["points s"]}, r"changed: the query \(nothing, now where v > 1\). Use"),
        ({"fingerprint": "a1/changelog/8/0/0"}, r"changed: output \('changelog', now 'final'\). Use a new checkpoint"),
        ({"fingerprint": "a1/final/4/0/0"}, r"changed: buckets \(4, now 8\). Give buckets=4."),
        ({"version": 8}, r"changed: the layout of state \(version 8, now 9\). Use a new checkpoint"),
    ],
)  # fmt: skip
def test_anothers_state_is_refused(before: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=f"query: the checkpoint is another query's; {message}"):
        check_state(Baskets(kept({**MINE, **before})), MINE)


def test_state_that_does_not_say_whose_it_is_is_refused() -> None:
    baskets = Baskets(DictStore())
    baskets.values["clocks0"] = {}
    with pytest.raises(CheckpointError, match=r"the layout of state \(an older version, now 9\)"):
        check_state(baskets, MINE)
