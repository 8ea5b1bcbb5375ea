"""Deltas that lack ends or weights are points and inserts."""

from __future__ import annotations

import pyarrow as pa

from streamq.runtime.deltas import as_points, cancelling_deltas, unit_weights, weighted, with_ends, with_weights
from streamq.runtime.event import LE, RE, WEIGHT

BARE = pa.table({LE: [3, 5]})
WHOLE = pa.table({LE: [3, 5], RE: [9, 6], WEIGHT: [-1, 2]})


def test_without_an_end_a_row_lives_for_a_tick() -> None:
    assert with_ends(BARE).to_pydict() == {LE: [3, 5], RE: [4, 6]}
    assert with_ends(WHOLE) is WHOLE
    assert as_points(WHOLE).column(RE).to_pylist() == [4, 6]


def test_without_a_weight_a_row_is_an_insert() -> None:
    assert with_weights(BARE).to_pydict() == {LE: [3, 5], WEIGHT: [1, 1]}
    assert with_weights(WHOLE) is WHOLE
    assert weighted(WHOLE, -1).column(WEIGHT).to_pylist() == [-1, -1]


def test_weights_are_taken_back_and_taken_apart() -> None:
    assert cancelling_deltas(WHOLE).column(WEIGHT).to_pylist() == [1, -2]
    assert unit_weights(BARE) is BARE
    assert unit_weights(WHOLE).to_pydict() == {LE: [3, 5, 5], RE: [9, 6, 6], WEIGHT: [-1, 1, 1]}
