"""The bound of endless lifetimes: the instant that limits their windows (or pieces) once the input has ended.

An endless lifetime has infinitely many windows. Those are reported that start before the greater of two instants: the greatest
finite endpoint, and how far the input has come (docs/concepts.md, "Windows").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import group, ints
from streamq.runtime.deltas import LE, RE, WEIGHT, with_ends, with_weights
from streamq.runtime.state.baskets import ENDS
from streamq.runtime.state.time_bins import TimeBins
from streamq.runtime.time.progress_rule import ARRAYS, INTEGERS, Arithmetic, Number
from streamq.time import FIRST_INSTANT, INFINITY, MINUS_INFINITY

if TYPE_CHECKING:
    from streamq.runtime.kernel import Clock
    from streamq.runtime.state.baskets import KernelBaskets
    from streamq.time import Grid


@dataclass
class Endpoint:
    """An endpoint of lifetimes that the map side announces to every bucket.

    at: the instant, or the number of the last window before it; endless: the lifetimes have no end, and this is their start;
    weight: their number, negative for retractions; is_fixed: none of them will be retracted; first: the number of the first
    window in which they lie, by which a window kernel recognizes late ones.
    """

    at: int
    endless: bool
    weight: int
    is_fixed: bool = False
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


def announced_endpoints(deltas: pa.Table) -> list[Endpoint] | None:
    """Return the endpoints of deltas, each with the sum of its weights, those of sum 0 left out; None if there are no deltas.

    Endless lifetimes have endpoints of their own, their starts. Of inserts that are never retracted only the greatest endpoint is
    returned, and that of the endless ones.
    """
    if deltas.num_rows == 0:
        return None
    is_fixed = WEIGHT not in deltas.column_names
    deltas = with_weights(with_ends(deltas))
    le, re = ints(deltas, LE), ints(deltas, RE)
    endless, end = re == INFINITY, endpoint(le, re, ARRAYS)
    if is_fixed:
        kinds = [(end[endless == kind], kind) for kind in (False, True)]
        return [Endpoint(int(ends.max()), kind, len(ends), is_fixed) for ends, kind in kinds if len(ends)]
    rows = pa.table({"end": end, "endless": endless.astype(np.int64), "w": deltas.column(WEIGHT)})
    weights = group(rows, ["end", "endless"], {"w": ("w", "sum")})
    return [Endpoint(r["end"], bool(r["endless"]), r["w"]) for r in weights.to_pylist() if r["w"]]


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


def bound_at_end(state: KernelBaskets, clock: Clock, bound: Bound, grid: Grid | None = None) -> int:
    """Return the instant before which windows of endless lifetimes start once the input has ended; INFINITY: there is none.

    It is ``clock.until``, if the call that ended the input gave that. On a ``grid`` it is the number of the last such window.
    Unless ``bound`` is NONE, the endpoints that the map side has announced are added to ``state``, except, on a grid, those of
    lifetimes that the source drops as late; those that the input has passed are removed, and all once the input has ended.
    """

    def place(instant: int) -> int:
        return instant if grid is None else grid.last_starting_before(instant)

    until, reach = None if clock.until is None else place(clock.until), place(clock.reach)
    if bound is Bound.NONE:
        return INFINITY if until is None else until
    endpoints, announced = Endpoints(state), list[Endpoint]()
    for note in clock.notes:
        first = MINUS_INFINITY
        if grid is not None and note.judge is not None:
            first = grid.first_ending_after(note.judge.late.acts_from(note.promised))
        announced += [endpoint for endpoint in note.endpoints if endpoint.first >= first]
    endpoints.add(announced, reach)
    before = endpoints.limit(bound, reach, until)
    if clock.c == INFINITY:
        state.drop_basket(ENDS)
    return before


class Endpoints:
    """The endpoints that can still count, kept in a kernel's state: of fixed ones the greatest, the others in bins of time.

    Endpoints that the input has passed are forgotten, even if they are retracted later: the input has come further.
    """

    def __init__(self, state: KernelBaskets):
        self.values = state.values.setdefault("ends", {"endless": 0, "last": FIRST_INSTANT})
        self.ahead = TimeBins(state, ENDS)

    def add(self, endpoints: Iterable[Endpoint], reach: int) -> None:
        """Add a micro-batch's endpoints, and forget those up to ``reach``, which the input has reached.

        Weights of one instant are summed up, as are those of all endless lifetimes.
        """
        movable: dict[int, int] = {}
        for endpoint in endpoints:
            self.values["endless"] += endpoint.weight if endpoint.endless else 0
            if endpoint.is_fixed:
                self.values["last"] = max(self.values["last"], endpoint.at)
            elif endpoint.at > reach:
                movable[endpoint.at] = movable.get(endpoint.at, 0) + endpoint.weight
        weights = {at: weight for at, weight in movable.items() if weight}
        columns = {LE: pa.array(weights.keys(), pa.int64()), WEIGHT: pa.array(weights.values(), pa.int64())}
        self.ahead.append(pa.table(columns))
        self.ahead.take(min(reach, INFINITY - 2) + 1)

    @property
    def endless(self) -> bool:
        """True if a lifetime has no end."""
        return bool(self.values["endless"] > 0)

    def last(self, reach: int) -> int:
        """Return the greater of ``reach`` and the greatest endpoint with a positive weight."""
        return max(reach, self.values["last"], self.ahead.greatest)

    def limit(self, bound: Bound, reach: int, until: int | None) -> int:
        """Return the instant that bounds windows at the end of the input: ``until`` if given, else by the last endpoint."""
        return until if until is not None else int(limit(bound, self.last(reach), self.endless, INTEGERS))
