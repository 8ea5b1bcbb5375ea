"""The bound of endless lifetimes: which windows (or pieces) the end of the input brings of lifetimes without an end.

Of such a lifetime there are as many windows as one likes. Those are reported that start before the greater of two instants:
the greatest finite endpoint there is, and how far the input has come (docs/concepts.md, "Windows").
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

    at: the instant, or the number of the last window before it; endless: whether the lifetimes go on for ever, and this is
    where they start; weight: how many there are, negative for those taken back; first: the number of the first window that
    they lie in, by which a kernel of windows tells what is late.
    """

    at: int
    endless: bool
    weight: int
    first: int = MINUS_INFINITY


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


def bound_at_end(values: dict[str, Any], clock: Clock, bound: Bound, grid: Grid | None = None) -> int:
    """Return the instant before which windows of endless lifetimes start once the input has ended; INFINITY: there is none.

    On a ``grid`` it is the number of the last such window. The endpoints that the map side has announced go into ``values``,
    without those of lifetimes that the source drops as late.
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

    What the input has passed is forgotten, whether or not it will be taken back: the input has come further than that.
    """

    def __init__(self, values: dict[str, Any]):
        self.state = values.setdefault("ends", {"endless": 0, "ahead": {}})

    def add(self, endpoints: Iterable[Endpoint], reach: int) -> None:
        """Take in a micro-batch's endpoints, and forget those up to ``reach``, how far the input has come with it."""
        weights: dict[int, int] = {int(at): weight for at, weight in self.state["ahead"].items()}
        for endpoint in endpoints:
            self.state["endless"] += endpoint.weight if endpoint.endless else 0
            weights[endpoint.at] = weights.get(endpoint.at, 0) + endpoint.weight
        self.state["ahead"] = {str(at): weight for at, weight in sorted(weights.items()) if weight and at > reach}

    @property
    def endless(self) -> bool:
        """Whether a lifetime has no end."""
        return bool(self.state["endless"] > 0)

    def last(self, reach: int) -> int:
        """The greater of ``reach`` and the greatest endpoint; one that waits for what it takes back is none."""
        ahead = (int(at) for at, weight in self.state["ahead"].items() if weight > 0)
        return max([reach, MINUS_INFINITY + 1, *ahead])

    def limit(self, bound: Bound, reach: int, until: int | None) -> int:
        """Where windows end with the input: ``until``, if the caller gave it, else before the last endpoint."""
        return until if until is not None else int(limit(bound, self.last(reach), self.endless, INTEGERS))
