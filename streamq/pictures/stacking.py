"""Place bars on lanes so that none overlap, by greedy interval colouring, which needs no more lanes than bars at one place."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def lanes_for(bars: Sequence[tuple[float, float]]) -> list[int]:
    """Return the lane of each bar ``(left, right)``, from 0 on; a bar takes the first lane that is free at its left.

    Bars that start together are taken in their order, so equal input has equal lanes. Cost: O(n log n).

    >>> lanes_for([(0, 4), (2, 6), (4, 8)])
    [0, 1, 0]
    """
    lanes = [0] * len(bars)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    for number in sorted(range(len(bars)), key=lambda n: (bars[n][0], n)):
        left, right = bars[number]
        while busy and busy[0][0] <= left:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lanes[number] = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (right, lanes[number]))
    return lanes


__all__ = ["lanes_for"]
