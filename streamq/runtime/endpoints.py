"""The endpoints of an operator's input, as far as they say which windows (or pieces) the end of the input brings.

Of lifetimes without an end there are as many windows as one likes. Those are reported that start before the greater of two
instants: the greatest finite endpoint there is, and how far the input has come (SEMANTICS section 3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamq.time import MINUS_INFINITY

Endpoint = tuple[int, int, int]
"""An endpoint, instant or number of a window: where it is, whether the lifetime goes on for ever, and its weight."""


class Endpoints:
    """Those that can still count, kept in ``values`` (JSON-like, in the state store).

    What the input has passed is forgotten, whether or not it will be taken back: the input has come further than that.
    """

    def __init__(self, values: dict[str, Any]):
        self.held = values.setdefault("ends", {"endless": 0, "ahead": []})

    def add(self, endpoints: Iterable[Endpoint], reach: int) -> None:
        """Take in a micro-batch's endpoints, and forget those up to ``reach``, how far the input has come with it."""
        weights: dict[int, int] = dict(self.held["ahead"])
        for end, endless, weight in endpoints:
            self.held["endless"] += weight if endless else 0
            weights[end] = weights.get(end, 0) + weight
        self.held["ahead"] = sorted([end, weight] for end, weight in weights.items() if weight and end > reach)

    @property
    def endless(self) -> bool:
        """Whether a lifetime has no end."""
        return bool(self.held["endless"] > 0)

    def last(self, reach: int) -> int:
        """The greater of ``reach`` and the greatest endpoint; one that waits for what it takes back is none."""
        return max([reach, MINUS_INFINITY + 1, *(end for end, weight in self.held["ahead"] if weight > 0)])
