"""Intents: descriptions of test data by its properties; a property that is left out is drawn at random."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from hypothesis import strategies as st

from streamq.errors import PlanError, nearest
from streamq.runtime.kernel import LATE_POLICIES
from streamq.time import Duration

if TYPE_CHECKING:
    Pattern = Callable[[random.Random, int], Sequence[tuple[int, int | None]]]
    """A user's own temporal pattern: ``(random, number of events) -> [(start, end or None), ...]`` in ticks."""

Draw = Callable[[st.SearchStrategy[Any]], Any]
"""The function with which a composite strategy draws."""

DURATIONS: Final = ("point", "short", "long", "infinite")
OVERLAPS: Final = ("none", "low", "medium", "high", "back_to_back", "off_by_one", "boundary")
DISORDERS: Final = ("in_order", "slight", "out_of_order", "high")
LIVELINESS: Final = ("none", "lazy", "eager")
MOSTLY: Final = "mostly"
LATE: Final = ("none", *LATE_POLICIES)


@dataclass(frozen=True)
class Intent:
    """A declarative description of test data; a part that is None is open and drawn at random (Test framework, section 5).

    ============== ==================================================================================================
    ``duration``   the longest lifetime: "point" (a tick), "short" (to 5 units), "long" (to 30), "infinite"
    ``overlap``    the position of an event relative to those before it: "none", "low", "medium", "high" (starts and ends
                   a tick apart), "back_to_back" (it starts where the previous one ends), "off_by_one" (a tick before or
                   after that), "boundary" (at a window's bound, or one of the query's lengths from the previous event, or
                   a tick beside that)
    ``disorder``   by how many places items are delayed: "in_order", "slight" (to 2), "out_of_order" (to 5), "high"
    ``ctis``       how many CTIs there are: "none" (before the end), "lazy" (few, low ones), "eager" (always the highest
                   legal one)
    ``late``       late items, and the late policy of their source: "none" (all items are on time), "drop", "adjust",
                   "fail" (if an item is late, the query must fail)
    ``invalid``    True: some rows are not events: an end not after its start, a NULL start, a retraction or an end edge
                   that matches nothing, different rows of one id and start; the source drops and counts them
    ``speculation`` True: sources have retractions, as the query's inputs go through :func:`make_speculative`
    ``duplicates`` True: equal events occur, in the data and by :func:`inject_duplicates` above the inputs, and rows are
                   delivered again that the source can recognize (edges, rows with ids)
    ``nulls`` ``nan`` ``infinities`` ``unicode`` True: such values occur in the payload; ``nulls="mostly"``: some columns have
                   so many NULLs that windows have nothing else
    ``skew``       True: one value of each column is much more frequent than the others
    ``pattern``    a function ``(random, number of events) -> [(start, end or None), ...]`` that returns lifetimes, in
                   ticks; all of them are used
    ``payload``    values by column: a sequence to choose from, or a Hypothesis strategy
    ``events``     the greatest number of events of a source
    ``unit``       the unit of lifetimes and of gaps between them, in place of the query's lengths
    ============== ==================================================================================================

    Without ``unit``, units are the query's lengths (a window's size, a hop, a gap), so that events lie in and between its
    windows, or a tick if the query has no lengths. A tuple of words draws one of them. Raises PlanError for unknown words and
    for values of the wrong type.

    >>> from streamq import testing as t
    >>> t.Intent(duration="short", disorder="high", ctis="eager").but(ctis=None)
    Intent(duration='short', disorder='high')
    """

    duration: str | tuple[str, ...] | None = None
    overlap: str | tuple[str, ...] | None = None
    disorder: str | tuple[str, ...] | None = None
    ctis: str | tuple[str, ...] | None = None
    late: str | tuple[str, ...] | None = None
    invalid: bool | None = None
    speculation: bool | None = None
    duplicates: bool | None = None
    nulls: bool | Literal["mostly"] | None = None
    nan: bool | None = None
    infinities: bool | None = None
    unicode: bool | None = None
    skew: bool | None = None
    pattern: Pattern | None = None
    payload: Mapping[str, Sequence[Any] | st.SearchStrategy[Any]] = field(default_factory=dict)
    events: int = 15
    unit: Duration | None = None

    def __post_init__(self) -> None:
        """Raise PlanError for a part that is illegal; ``unit`` is checked by the query, whose axis it needs."""
        for name, legal in WORDS.items():
            self._check_words(name, legal)
        for name in FLAGS:
            flag = getattr(self, name)
            if flag is not None and not isinstance(flag, bool) and (name, flag) != ("nulls", MOSTLY):
                hint = f"Give True or False{f', or {MOSTLY!r}' * (name == 'nulls')}, or leave it out."
                raise PlanError("Intent", f"{name} is not a boolean", f"found {flag!r}", hint)
        pattern: Any = self.pattern
        if not (pattern is None or callable(pattern)):
            hint = "Give a function (random, number of events) -> [(start, end), ...]."
            raise PlanError("Intent", "pattern is not a function", f"found {pattern!r}", hint)
        if type(self.events) is not int or self.events < 0:
            wrong = "events is not a whole number of at least 0"
            raise PlanError("Intent", wrong, f"found {self.events!r}")
        self._check_payload()

    def _check_words(self, name: str, legal: Sequence[str]) -> None:
        """Raise PlanError unless a part is None, a legal word, or a tuple or list of legal words that is not empty."""
        words = getattr(self, name)
        there = f"there are: {', '.join(legal)}"
        if not (words is None or isinstance(words, str | tuple | list)):
            wrong = f"{name} is neither a word nor a tuple of words"
            raise PlanError("Intent", wrong, f"found {words!r}; {there}")
        if not self.choices(name):
            hint = "To leave it open, leave it out."
            raise PlanError("Intent", f"no word for {name}", f"found {words!r}; {there}", hint)
        for word in self.choices(name):
            if word not in legal:
                hint = nearest(word, legal) if isinstance(word, str) else ""
                raise PlanError("Intent", f"no such {name}", f"found {word!r}; {there}", hint)

    def _check_payload(self) -> None:
        """Raise PlanError unless the payload maps column names to strategies or to sequences of values, which a string is not.

        An empty sequence raises it, too.
        """
        payload: Any = self.payload
        if not isinstance(payload, Mapping):
            hint = 'Give values by column: {"k": ["a", "b"]}.'
            raise PlanError("Intent", "payload is not a mapping", f"found {payload!r}", hint)
        for name, values in payload.items():
            if not isinstance(name, str):
                raise PlanError("Intent", "a column name in payload is not a string", f"found {name!r}")
            if isinstance(values, Sequence) and not isinstance(values, str | bytes) and not values:
                raise PlanError("Intent", f"no values for column {name!r}", "", "None stands for NULL: [None].")
            if isinstance(values, str | bytes) or not (isinstance(values, Sequence) or hasattr(values, "example")):
                hint = "Give a sequence to choose from, or a Hypothesis strategy."
                raise PlanError("Intent", f"not values for column {name!r}", f"found {values!r}", hint)

    def choices(self, name: str) -> tuple[str, ...]:
        """Return the words from which a part of WORDS is drawn: all legal ones if the part is open."""
        words = getattr(self, name)
        if words is None:
            return WORDS[name]
        return (words,) if isinstance(words, str) else tuple(words)

    def but(self, **changes: Any) -> Intent:
        """Return the intent with these parts replaced."""
        return dataclasses.replace(self, **changes)

    def completed(self, other: Intent) -> Intent:
        """Return the intent with the parts that it leaves open, that is, that have their default, taken from ``other``."""
        default = Intent()
        parts = {f.name: getattr(other, f.name) for f in dataclasses.fields(self)}
        filled = {n: v for n, v in parts.items() if getattr(self, n) == getattr(default, n)}
        return self.but(**filled)

    def __repr__(self) -> str:
        parts = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self)]
        shown = [
            f"{n}={v!r}" for n, v in parts if v is not None and not (n == "payload" and not v) and (n, v) != EVENTS
        ]
        return f"Intent({', '.join(shown)})"


WORDS: Mapping[str, tuple[str, ...]] = {
    "duration": DURATIONS,
    "overlap": OVERLAPS,
    "disorder": DISORDERS,
    "ctis": LIVELINESS,
    "late": LATE,
}
"""The parts that are words, and the legal words of each."""

FLAGS = ("invalid", "speculation", "duplicates", "nulls", "nan", "infinities", "unicode", "skew")
"""The parts that are booleans."""

EVENTS = ("events", Intent.events)

ANYTHING = Intent()
"""The intent that leaves every part open."""

__all__ = ["ANYTHING", "MOSTLY", "Draw", "Intent"]
