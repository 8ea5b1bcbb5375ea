"""Merging partials into windows: its schema is the window's own, less the range."""

from __future__ import annotations

import streamq as sq
from streamq.operators import MergePartials
from streamq.plan.aggregation import expand
from streamq.windows import Hopping

S = sq.events([(1, 4, {"k": "a", "v": 1})]).plan


def test_schema() -> None:
    split = expand((("m", sq.avg("v")),), S.schema)
    merged = MergePartials(S, ("k",), Hopping(10, 5), split.arguments, split.partials)
    assert merged.schema.names == ("k", "__n", "__sum0", "__sum0__n")
    assert merged.detail() == "size=10, hop=5 by k: count(*), sum(cast(v as double))"
    assert not merged.traits.infinite and merged.input.traits.infinite
