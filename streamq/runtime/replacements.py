"""Pairs of deltas that replace a row: a retraction, and an insert of the same event with another end."""

from __future__ import annotations

import numpy as np

from streamq.runtime.values import Ints, Mask


def replacement_masks(of_retractions: Ints, of_inserts: Ints) -> tuple[Mask, Mask]:
    """Return two masks: retractions followed by a re-insert of the same event, and those re-inserts.

    The arguments are the event numbers of retractions and of inserts, in ascending order, a row per copy. The i-th retraction
    of an event is paired with its i-th insert; the two masks select paired rows in the same order.
    """
    return _rank(of_retractions) < _count(of_inserts, of_retractions), _rank(of_inserts) < _count(
        of_retractions, of_inserts
    )


def _rank(sorted_of: Ints) -> Ints:
    """Return the place of each row among those of equal number."""
    return np.arange(len(sorted_of)) - np.searchsorted(sorted_of, sorted_of, "left")


def _count(sorted_of: Ints, wanted: Ints) -> Ints:
    """Return how often each wanted number occurs."""
    return np.searchsorted(sorted_of, wanted, "right") - np.searchsorted(sorted_of, wanted, "left")
