"""The events of the parts of a pattern's operator, as a scan goes over them: it keeps those whose scope can be completed yet."""

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
"""An event that can be bound: its start in ticks, and the values of its input's columns. Plain, as states are pickled by workers,
which could not find a class of streamq's again."""


class Binding(NamedTuple):
    """The events bound so far, by part, and the start of the earliest of them."""

    first: int
    events: tuple[Candidate | None, ...]

    def before(self, part: int, event: Candidate) -> Binding:
        """Return the binding with one more event, which comes before the others."""
        return Binding(event[0], (*self.events[:part], event, *self.events[part + 1 :]))


ScanState = tuple[tuple[Candidate, ...], ...]
"""The candidates of each input in the order of (Vs, id)."""


@dataclass(frozen=True)
class ScannedPart:
    """A part of an operator, as the scan has it: which of the events of an input it takes.

    name: what explain calls it; source: the number of the input that its events come from; columns: the names of its columns, and
    their places among the input's; keys: the places of those in which other events of the part agree with one, where the group
    does not say so; fits: that of the column that says whether an event fits the part at all, None where all do.
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
        """True if an event in a match is in none of a later last event."""
        return self.consumption == Consumption.CONSUME

    def fitting(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return those of the input's candidates that fit the part."""
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
        """Return candidates that stand in the order of (Vs, id) as the part prefers them."""
        return fitting[::-1] if self.selection == Selection.LAST else fitting


@dataclass(frozen=True)
class JointCondition:
    """A condition on the events of some ``parts``; ``reads``: its columns, the part of each and the place there."""

    condition: PairCondition
    parts: frozenset[int]
    reads: tuple[tuple[str, int, int], ...]

    def filtered(
        self, bindings: Sequence[Binding], part: int, candidates: Sequence[Sequence[Candidate]]
    ) -> list[Sequence[Candidate]]:
        """Return, of the ``candidates`` that each binding has for a part, those for which the condition holds."""
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
    """Yield for each candidate for a part the event of a part, ``owner``, that is bound or that one."""
    if owner == part:
        yield from candidates
        return
    bound = binding.events[owner]
    assert bound is not None
    for _ in candidates:
        yield bound


@dataclass(frozen=True)
class PatternStep:
    """A step from event to event of the ``inputs`` of some parts and gathers their matches, by a count, within a scope.

    inputs: the places of each input's columns among the values of an event; names: the columns of a match; within: the scope in
    ticks.
    """

    inputs: tuple[tuple[int, ...], ...]
    parts: tuple[ScannedPart, ...]
    conditions: tuple[JointCondition, ...]
    names: tuple[str, ...]
    count: int
    within: int

    step: ClassVar[Callable[..., tuple[ScanState, list[dict[str, Any]]]]]
    """Returns, of a state and an event, or of all events of one start, the state after it, and the matches that it completes."""

    def initial(self) -> ScanState:
        """Return the state before the first event: no candidates."""
        return ((),) * len(self.inputs)

    def needed_until(self, state: ScanState) -> int:
        """Return the last start of an event that a state makes a difference to."""
        last = max((candidates[-1][0] for candidates in state if candidates), default=MINUS_INFINITY)
        return last if last == MINUS_INFINITY else min(last + self.within, INFINITY)

    def since(self, state: ScanState, start: int) -> list[tuple[Candidate, ...]]:
        """Return the candidates of each input that start at an instant or later."""
        return [several[bisect_left(several, (start,)) :] for several in state]

    def candidate(self, start: int, source: int, values: Sequence[Any]) -> Candidate:
        """Return an event of an input as a candidate."""
        return (start, tuple([values[place] for place in self.inputs[source]]))

    def row(self, match: Binding) -> dict[str, Any]:
        """Return a match as a row; NULL is what is not bound."""
        row = dict.fromkeys(self.names)
        for event, part in zip(match.events, self.parts, strict=True):
            if event is not None:
                row |= {name: event[1][place] for name, place in part.columns}
        return row


class TypedRows(RowShape):
    """Rows of values that came out of columns of the same types: they are taken as they are."""

    def rows(self, result: Any, axis: Any, in_window: Any) -> list[dict[str, Any]]:
        return list(result)


__all__ = ["Binding", "Candidate", "JointCondition", "PatternStep", "ScannedPart", "ScanState", "TypedRows"]
