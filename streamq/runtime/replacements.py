"""Deltas that belong together: of one event a row taken back, and the one that is given for it with another end."""

from __future__ import annotations

import numpy as np

from streamq.runtime.values import Ints, Mask


def replacement_masks(of_taken: Ints, of_given: Ints) -> tuple[Mask, Mask]:
    """Which of the rows taken back are given anew, and which of those given are such: the i-th of an event with the i-th.

    Both are the numbers of events, in ascending order, a row a copy. The two masks choose rows that stand side by side.
    """
    return _rank(of_taken) < _count(of_given, of_taken), _rank(of_given) < _count(of_taken, of_given)


def _rank(sorted_of: Ints) -> Ints:
    """The place of each row among those of its own."""
    return np.arange(len(sorted_of)) - np.searchsorted(sorted_of, sorted_of, "left")


def _count(sorted_of: Ints, wanted: Ints) -> Ints:
    return np.searchsorted(sorted_of, wanted, "right") - np.searchsorted(sorted_of, wanted, "left")
