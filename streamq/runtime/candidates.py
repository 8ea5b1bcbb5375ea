"""What an operator of the pattern language goes over: the events of its parameters, of which those are in the state whose scope
can still be completed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from streamq.choices import Selection
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.evaluators.condition import Condition
from streamq.runtime.user_results import RowShape
from streamq.time import INFINITY, MINUS_INFINITY

Candidate = tuple[int, tuple[Any, ...]]
"""An event that can be bound: its start in ticks, and the values of its input's columns. Plain, as states are pickled by workers,
which could not find a class of streamq's again."""


class Binding(NamedTuple):
    """The events bound so far, by parameter, and the start of the earliest of them."""

    first: int
    events: tuple[Candidate | None, ...]

    def before(self, parameter: int, event: Candidate) -> Binding:
        """Return the binding with one more event, which comes before the others."""
        return Binding(event[0], (*self.events[:parameter], event, *self.events[parameter + 1 :]))


State = tuple[tuple[Candidate, ...], ...]
"""The candidates of each input in the order of (Vs, id)."""


@dataclass(frozen=True)
class Taking:
    """What a parameter takes: events of an input, by its number.

    columns: the names of its columns, and their places among the input's; keys: the places of those in which other events of the
    parameter agree with one, where the group does not say so; fits: that of the column that says whether an event fits the
    parameter at all, None where all do.
    """

    source: int
    columns: tuple[tuple[str, int], ...]
    keys: tuple[int, ...]
    fits: int | None
    selection: Selection
    consumes: bool

    def of(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return those of the input's candidates that fit the parameter."""
        return candidates if self.fits is None else [c for c in candidates if c[1][self.fits] is True]

    def agreeing(self, event: Candidate | None, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return those of the candidates whose keys are equal to an event's, as in a join: NaN to NaN, and NULL to nothing."""
        assert event is not None
        for place in self.keys:
            key = event[1][place]
            if key is None:
                return ()
            candidates = [c for c in candidates if c[1][place] == key or (key != key and c[1][place] != c[1][place])]
        return candidates

    @property
    def selects(self) -> bool:
        """True if a match has one event of those that it could have, the first or the last."""
        return self.selection != Selection.EACH

    def preferred(self, fitting: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return candidates that stand in the order of (Vs, id) as the parameter prefers them."""
        return fitting[::-1] if self.selection == Selection.LAST else fitting


@dataclass(frozen=True)
class Between:
    """A condition on the events of some ``parameters``; ``reads``: its columns, the parameter of each and the place there."""

    condition: Condition
    parameters: frozenset[int]
    reads: tuple[tuple[str, int, int], ...]

    def filtered(
        self, bindings: Sequence[Binding], parameter: int, candidates: Sequence[Sequence[Candidate]]
    ) -> list[Sequence[Candidate]]:
        """Return, of the ``candidates`` that each binding has for a parameter, those for which the condition holds."""
        columns = {}
        for name, owner, place in self.reads:
            values = (
                event[1][place]
                for binding, several in zip(bindings, candidates, strict=True)
                for event in _events_of(binding, parameter, several, owner)
            )
            columns[name] = pa.array(list(values), arrow_type(self.condition.pair.type_of(name)))
        holds = self.condition.holds(pa.table(columns)).tolist()
        ends = accumulate((len(several) for several in candidates), initial=0)
        masks = (holds[begin:end] for begin, end in pairwise(ends))
        return [list(compress(several, mask)) for several, mask in zip(candidates, masks, strict=True)]


def _events_of(binding: Binding, parameter: int, candidates: Sequence[Candidate], owner: int) -> Iterator[Candidate]:
    """Yield for each candidate for a parameter the event of a parameter, ``owner``, that is bound or that one."""
    if owner == parameter:
        yield from candidates
        return
    bound = binding.events[owner]
    assert bound is not None
    for _ in candidates:
        yield bound


@dataclass(frozen=True)
class Gatherer:
    """What goes from event to event of the parameters' ``inputs`` and gathers the matches of ``count`` of them within a scope.

    inputs: the places of each input's columns among the values of an event; names: the columns of a match; within: the scope in
    ticks.
    """

    inputs: tuple[tuple[int, ...], ...]
    parameters: tuple[Taking, ...]
    conditions: tuple[Between, ...]
    names: tuple[str, ...]
    count: int
    within: int

    def initial(self) -> State:
        """Return the state before the first event: no candidates."""
        return ((),) * len(self.inputs)

    def needed_until(self, state: State) -> int:
        """Return the last start of an event that a state makes a difference to."""
        last = max((candidates[-1][0] for candidates in state if candidates), default=MINUS_INFINITY)
        return last if last == MINUS_INFINITY else min(last + self.within, INFINITY)

    def since(self, state: State, start: int) -> list[tuple[Candidate, ...]]:
        """Return the candidates of each input that start at an instant or later."""
        return [several[bisect_left(several, (start,)) :] for several in state]

    def candidate(self, start: int, source: int, values: Sequence[Any]) -> Candidate:
        """Return an event of an input as a candidate."""
        return (start, tuple([values[place] for place in self.inputs[source]]))

    def row(self, match: Binding) -> dict[str, Any]:
        """Return a match as a row; NULL is what is not bound."""
        row = dict.fromkeys(self.names)
        for event, parameter in zip(match.events, self.parameters, strict=True):
            if event is not None:
                row |= {name: event[1][place] for name, place in parameter.columns}
        return row


class WholeRows(RowShape):
    """Rows of values that came out of columns of the same types: they are taken as they are."""

    def rows(self, result: Any, axis: Any, in_window: Any) -> list[dict[str, Any]]:
        return list(result)


__all__ = ["Between", "Binding", "Candidate", "Gatherer", "State", "Taking", "WholeRows"]
