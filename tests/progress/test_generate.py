"""``sq.generate``: what is written differently is shown differently."""

from __future__ import annotations

from itertools import combinations

import streamq as sq
from streamq.time import TIMESTAMP

WRITTEN = [
    sq.generate("1 minute"),
    sq.generate("1 minute", every="1 hour"),
    sq.generate("1 minute", max_ahead="0 seconds"),
    sq.generate("1 minute", max_ahead="1 hour"),
    sq.generate("1 minute", idle_after="1 hour"),
    sq.generate("1 minute", per="k"),
    sq.generate("1 minute", clock=sq.clock("1 minute")),
    sq.generate(),
]


def test_policies_that_differ_have_different_texts() -> None:
    policies = [progress.policy(TIMESTAMP) for progress in WRITTEN]
    for one, other in combinations(policies, 2):
        assert one.shown(TIMESTAMP) != other.shown(TIMESTAMP)
    assert policies[2].shown(TIMESTAMP) == "generate(delay=1 minute, max_ahead=0 seconds)"
