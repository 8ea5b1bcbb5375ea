"""The bound of endless lifetimes: which windows (or pieces) the end of the input brings of lifetimes without an end.

Of such a lifetime there are as many windows as one likes. Those are reported that start before the greater of two instants:
the greatest finite endpoint there is, and how far the input has come (SEMANTICS section 3).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from streamq.runtime.arithmetic import INTEGERS, Arithmetic, Number
from streamq.time import INFINITY, MINUS_INFINITY

Endpoint = tuple[int, int, int]
"""An endpoint, instant or number of a window: where it is, whether the lifetime goes on for ever, and its weight."""


class Bound(StrEnum):
    """Whether an operator's windows have a bound at the end of the input."""

    NONE = "none"
    """There are no windows without number."""
    ENDLESS = "endless"
    """They start before the last instant, if some lifetime has no end."""
    ALWAYS = "always"
    """They start at the last instant or before it, whatever there is."""


def endpoint(le: Number, re: Number, arithmetic: Arithmetic) -> Number:
    """The finite end of a lifetime that counts: its end, or its start where it has none."""
    return arithmetic.choose(re == INFINITY, le, re)


def limit(bound: Bound, last: Number, is_endless: Any, arithmetic: Arithmetic) -> Number:
    """The instant before which windows start; INFINITY: there is none.

    ``last`` is the last instant, ``is_endless`` whether some lifetime has no end.
    """
    match bound:
        case Bound.ALWAYS:
            return last + 1
        case Bound.ENDLESS:
            return arithmetic.choose(is_endless, last, INFINITY)
    return INFINITY


class Endpoints:
    """The endpoints that can still count, kept in ``values`` (JSON-like, in the state store).

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

    def limit(self, bound: Bound, reach: int, until: int | None) -> int:
        """Where windows end with the input: ``until``, if the caller gave it, else before the last endpoint."""
        return until if until is not None else int(limit(bound, self.last(reach), self.endless, INTEGERS))
