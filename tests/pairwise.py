"""Samples of combinations in which every two choices meet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")
Pair = tuple[tuple[int, Hashable], tuple[int, Hashable]]


def pairs(parts: Sequence[Hashable]) -> set[Pair]:
    """Every two of the parts, each with its place."""
    return set(itertools.combinations(enumerate(parts), 2))


def covering(combinations: Sequence[T], parts: Callable[[T], Sequence[Hashable]]) -> list[T]:
    """Some of the combinations: every two parts that meet in any of them meet in one of these.

    The next is always the one with most pairs that are not covered yet, of several the first.
    """
    pairs_of = [pairs(parts(combination)) for combination in combinations]
    left = set().union(*pairs_of)
    chosen = []
    while left:
        best = max(range(len(combinations)), key=lambda i: (len(pairs_of[i] & left), -i))
        chosen.append(combinations[best])
        left -= pairs_of[best]
    return chosen


__all__ = ["covering", "pairs"]
