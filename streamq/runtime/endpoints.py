"""The bound of endless lifetimes: the instant that limits their windows (or pieces) once the input has ended.

An endless lifetime has infinitely many windows. Those are reported that start before the greater of two instants: the greatest
finite endpoint, and how far the input has come (docs/concepts.md, "Windows").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from streamq.runtime.tick_arithmetic import INTEGERS, Arithmetic, Number
from streamq.time import INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.grid import Grid
    from streamq.runtime.kernel import Clock


@dataclass
class Endpoint:
    """An endpoint of lifetimes that the map side announces to every bucket.

    at: the instant, or the number of the last window before it; endless: the lifetimes have no end, and this is their start;
    weight: their number, negative for retractions; first: the number of the first window in which they lie, by which a window
    kernel recognizes late ones.
    """

    at: int
    endless: bool
    weight: int
    first: int = MINUS_INFINITY


class Bound(StrEnum):
    """The rule that bounds an operator's windows at the end of the input."""

    NONE = "none"
    """The number of windows is finite anyway."""
    ENDLESS = "endless"
    """Windows start before the last instant, if some lifetime has no end."""
    ALWAYS = "always"
    """Windows always start at the last instant or before it."""


def endpoint(le: Number, re: Number, arithmetic: Arithmetic) -> Number:
    """Return a lifetime's finite endpoint that counts: its end, or its start if it has no end."""
    return arithmetic.choose(re == INFINITY, le, re)


def limit(bound: Bound, last: Number, is_endless: Any, arithmetic: Arithmetic) -> Number:
    """Return the instant before which windows start by the rule ``bound``; INFINITY: there is none.

    ``last`` is the last instant, ``is_endless`` is true if some lifetime has no end.
    """
    match bound:
        case Bound.ALWAYS:
            return last + 1
        case Bound.ENDLESS:
            return arithmetic.choose(is_endless, last, INFINITY)
    return INFINITY


def bound_at_end(values: dict[str, Any], clock: Clock, bound: Bound, grid: Grid | None = None) -> int:
    """Return the instant before which windows of endless lifetimes start once the input has ended; INFINITY: there is none.

    It is ``clock.until``, if the call that ended the input gave that. On a ``grid`` it is the number of the last such window.
    Unless ``bound`` is NONE, the endpoints that the map side has announced are added to ``values``, except, on a grid, those of
    lifetimes that the source drops as late; those that the input has passed are removed.
    """

    def place(instant: int) -> int:
        return instant if grid is None else grid.last_starting_before(instant)

    until, reach = None if clock.until is None else place(clock.until), place(clock.reach)
    if bound is Bound.NONE:
        return INFINITY if until is None else until
    endpoints, announced = Endpoints(values), list[Endpoint]()
    for note in clock.notes:
        first = MINUS_INFINITY
        if grid is not None and note.judge is not None:
            first = grid.first_ending_after(note.judge.late.acts_from(note.promised))
        announced += [endpoint for endpoint in note.endpoints if endpoint.first >= first]
    endpoints.add(announced, reach)
    return endpoints.limit(bound, reach, until)


class Endpoints:
    """The endpoints that can still count, kept in ``values`` (JSON-like, in the state store).

    Endpoints that the input has passed are forgotten, even if they are retracted later: the input has come further.
    """

    def __init__(self, values: dict[str, Any]):
        self.state = values.setdefault("ends", {"endless": 0, "ahead": {}})

    def add(self, endpoints: Iterable[Endpoint], reach: int) -> None:
        """Add a micro-batch's endpoints, and forget those up to ``reach``, which the input has reached.

        Weights of one instant are summed up, as are those of all endless lifetimes.
        """
        weights: dict[int, int] = {int(at): weight for at, weight in self.state["ahead"].items()}
        for endpoint in endpoints:
            self.state["endless"] += endpoint.weight if endpoint.endless else 0
            weights[endpoint.at] = weights.get(endpoint.at, 0) + endpoint.weight
        self.state["ahead"] = {str(at): weight for at, weight in sorted(weights.items()) if weight and at > reach}

    @property
    def endless(self) -> bool:
        """True if a lifetime has no end."""
        return bool(self.state["endless"] > 0)

    def last(self, reach: int) -> int:
        """Return the greater of ``reach`` and the greatest endpoint with a positive weight."""
        ahead = (int(at) for at, weight in self.state["ahead"].items() if weight > 0)
        return max([reach, MINUS_INFINITY + 1, *ahead])

    def limit(self, bound: Bound, reach: int, until: int | None) -> int:
        """Return the instant that bounds windows at the end of the input: ``until`` if given, else by the last endpoint."""
        return until if until is not None else int(limit(bound, self.last(reach), self.endless, INTEGERS))
