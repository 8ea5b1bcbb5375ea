"""Candidates: the events that a pattern's scan keeps as long as they may still be part of a match within the scope."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, pairwise
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from streamq.choices import Consumption, Selection
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.evaluators.pair_condition import PairCondition
from streamq.runtime.user_code.code_values import RowShape
from streamq.time import INFINITY, MINUS_INFINITY

Candidate = tuple[int, tuple[Any, ...]]
"""An event that can be bound: its start in ticks and its values, a plain tuple, so that workers can unpickle it."""


class Binding(NamedTuple):
    """The events bound so far, by part, and the start of the earliest of them."""

    first: int
    events: tuple[Candidate | None, ...]

    def before(self, part: int, event: Candidate) -> Binding:
        """Return the binding with one more event, for the part of this number, which comes before the others."""
        return Binding(event[0], (*self.events[:part], event, *self.events[part + 1 :]))


ScanState = tuple[tuple[Candidate, ...], ...]
"""The candidates of each input in the order of (Vs, id)."""


@dataclass(frozen=True)
class ScannedPart:
    """A part of a pattern operator in a scan, with the input whose events it takes.

    name: shown by explain; source: the number of the input; columns: the part's columns and their places in the input; keys:
    the places of columns in which two events of the part must agree, unless the group ensures it; fits: the place of the column
    that is true for events that fit the part, None if all do.
    """

    name: str
    source: int
    columns: tuple[tuple[str, int], ...]
    selection: Selection
    consumption: Consumption
    keys: tuple[int, ...] = ()
    fits: int | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.selection.upper()} {self.consumption.upper()}"

    @property
    def consumes(self) -> bool:
        """True if an event used in a match is not used in a match with a later last event."""
        return self.consumption == Consumption.CONSUME

    def fitting(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates of the input that fit the part."""
        return candidates if self.fits is None else [c for c in candidates if c[1][self.fits] is True]

    def agreeing(self, event: Candidate | None, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates with keys equal to an event's, as in a join: NaN equals NaN, NULL equals nothing."""
        assert event is not None
        for place in self.keys:
            key = event[1][place]
            if key is None:
                return ()
            candidates = [c for c in candidates if c[1][place] == key or (key != key and c[1][place] != c[1][place])]
        return candidates

    @property
    def selects(self) -> bool:
        """True if a match gets only the first or the last of the events possible for the part."""
        return self.selection != Selection.EACH

    def preferred(self, fitting: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return candidates ordered by (Vs, id) in the order in which the part prefers them."""
        return fitting[::-1] if self.selection == Selection.LAST else fitting


@dataclass(frozen=True)
class JointCondition:
    """A condition on the events of some ``parts``; ``reads``: its columns, each with its part and place there."""

    condition: PairCondition
    parts: frozenset[int]
    reads: tuple[tuple[str, int, int], ...]

    def filtered(
        self, bindings: Sequence[Binding], part: int, candidates: Sequence[Sequence[Candidate]]
    ) -> list[Sequence[Candidate]]:
        """Return, for each binding, those of its ``candidates`` for a part for which the condition holds."""
        columns = {}
        for name, owner, place in self.reads:
            values = (
                event[1][place]
                for binding, several in zip(bindings, candidates, strict=True)
                for event in _events_of(binding, part, several, owner)
            )
            columns[name] = pa.array(list(values), arrow_type(self.condition.pair.type_of(name)))
        holds = self.condition.holds(pa.table(columns)).tolist()
        ends = accumulate((len(several) for several in candidates), initial=0)
        masks = (holds[begin:end] for begin, end in pairwise(ends))
        return [list(compress(several, mask)) for several, mask in zip(candidates, masks, strict=True)]


def _events_of(binding: Binding, part: int, candidates: Sequence[Candidate], owner: int) -> Iterator[Candidate]:
    """Yield, for each candidate for a part, the event of the part ``owner``: the bound one, or the candidate itself."""
    if owner == part:
        yield from candidates
        return
    bound = binding.events[owner]
    assert bound is not None
    for _ in candidates:
        yield bound


@dataclass(frozen=True)
class PatternStep:
    """A step from event to event that collects the matches of a pattern's parts within a scope.

    inputs: the places of each input's columns among the values of an event; names: the columns of a match; count: how many
    parts a match has, or how many events may crowd; within: the scope in ticks.
    """

    inputs: tuple[tuple[int, ...], ...]
    parts: tuple[ScannedPart, ...]
    conditions: tuple[JointCondition, ...]
    names: tuple[str, ...]
    count: int
    within: int

    step: ClassVar[Callable[..., tuple[ScanState, list[dict[str, Any]]]]]
    """Return, for a state and an event, or all events of one start, the state after it, and the matches that it completes."""

    def initial(self) -> ScanState:
        """Return the state before the first event: no candidates."""
        return ((),) * len(self.inputs)

    def needed_until(self, state: ScanState) -> int:
        """Return the last start of an event for which the state makes a difference.

        MINUS_INFINITY if it has no candidates.
        """
        last = max((candidates[-1][0] for candidates in state if candidates), default=MINUS_INFINITY)
        return last if last == MINUS_INFINITY else min(last + self.within, INFINITY)

    def since(self, state: ScanState, start: int) -> list[tuple[Candidate, ...]]:
        """Return the candidates of each input that start at an instant or later."""
        return [several[bisect_left(several, (start,)) :] for several in state]

    def candidate(self, start: int, source: int, values: Sequence[Any]) -> Candidate:
        """Return an event of an input as a candidate."""
        return (start, tuple([values[place] for place in self.inputs[source]]))

    def row(self, match: Binding) -> dict[str, Any]:
        """Return a match as a row, with NULL for parts that are not bound."""
        row = dict.fromkeys(self.names)
        for event, part in zip(match.events, self.parts, strict=True):
            if event is not None:
                row |= {name: event[1][place] for name, place in part.columns}
        return row


class TypedRows(RowShape):
    """The shape of rows whose values come from columns of the same types, so that they need no check."""

    def rows(self, result: Any, axis: Any, in_window: Any) -> list[dict[str, Any]]:
        return list(result)


__all__ = ["Binding", "Candidate", "JointCondition", "PatternStep", "ScannedPart", "ScanState", "TypedRows"]
