"""Intents: what the events of a test are like, as far as the tester says; what is left out is open and sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from streamq.errors import PlanError, nearest, sentence
from streamq.runtime.late_policies import LATE_POLICIES
from streamq.time import Duration

if TYPE_CHECKING:
    import random

    from hypothesis import strategies as st

    Pattern = Callable[[random.Random, int], Sequence[tuple[int, int | None]]]
    """A user's own temporal pattern: ``(random, how many) -> [(start, end or None), ...]`` in ticks."""

DURATIONS: Final = ("point", "short", "long", "infinite")
OVERLAPS: Final = ("none", "low", "medium", "high", "back_to_back", "off_by_one", "boundary")
DISORDERS: Final = ("in_order", "slight", "out_of_order", "high")
LIVELINESS: Final = ("none", "lazy", "eager")
LATE: Final = ("none", *LATE_POLICIES)


@dataclass(frozen=True)
class Intent:
    """A declarative description of test data with parts left out; a part that is None is open (Test framework, section 5).

    ============== ==================================================================================================
    ``duration``   the longest lifetime: "point" (a tick), "short" (to 5 units), "long" (to 30), "infinite"
    ``overlap``    how an event lies to those before it: "none", "low", "medium", "high" (starts and ends a tick
                   apart), "back_to_back" (it starts where the one before ends), "off_by_one" (a tick beside that),
                   "boundary" (where a window begins or ends, or a length of the query away from the event before, or a
                   tick beside that)
    ``disorder``   how many places late items arrive: "in_order", "slight" (to 2), "out_of_order" (to 5), "high"
    ``ctis``       how lively progress is: "none" (before the end), "lazy", "eager" (as high as is legal, always)
    ``late``       whether items are late, and what their source's policy says of them: "none" (all are on time), "drop",
                   "adjust", "fail" (where one is late, the query must fail)
    ``invalid``    whether rows that are no events come between: ends that are not after starts, NULL starts, retractions
                   and ends of edges that match nothing, rows of one id and start that differ; their source drops and
                   counts them
    ``speculation`` whether sources make retractions: the query's inputs go through :func:`make_speculative`
    ``duplicates`` whether equal events occur, in the data and by :func:`inject_duplicates` above the inputs, and whether
                   rows are delivered again that the source can tell: edges, and what has ids
    ``nulls`` ``nan`` ``infinities`` ``unicode`` whether such values occur in the payload
    ``skew``       whether one value of each column is much more frequent than the others
    ``pattern``    a function ``(random, how many) -> [(start, end or None), ...]``: lifetimes of your own, in ticks;
                   all that it gives are used
    ``payload``    values by column: a sequence to choose from, or a Hypothesis strategy
    ``events``     how many events a source has at most
    ``unit``       the unit of lifetimes and of what lies between them, where the query speaks of no length, or of others
    ============== ==================================================================================================

    A unit is a length taken from the query (a window's size, a hop, a gap), so that events lie in and between its
    windows; a tick if the query has none. Words may also be given as a tuple: one of those. Raises PlanError for words
    that are none of these, and for parts of another kind.

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
    nulls: bool | None = None
    nan: bool | None = None
    infinities: bool | None = None
    unicode: bool | None = None
    skew: bool | None = None
    pattern: Pattern | None = None
    payload: Mapping[str, Sequence[Any] | st.SearchStrategy[Any]] = field(default_factory=dict)
    events: int = 15
    unit: Duration | None = None

    def __post_init__(self) -> None:
        for name, legal in WORDS.items():
            self._check_words(name, legal)
        for name in FLAGS:
            flag = getattr(self, name)
            if flag is not None and not isinstance(flag, bool):
                hint = "Say True or False, or leave it out."
                raise PlanError(sentence("Intent", f"{name} is a yes or a no", f"found {flag!r}", hint))
        pattern: Any = self.pattern
        if not (pattern is None or callable(pattern)):
            hint = "Give a function (random, how many) -> [(start, end), ...]."
            raise PlanError(sentence("Intent", "pattern is no function", f"found {pattern!r}", hint))
        if type(self.events) is not int or self.events < 0:
            raise PlanError(sentence("Intent", "events is how many a source has at most", f"found {self.events!r}"))
        self._check_payload()

    def _check_words(self, name: str, legal: Sequence[str]) -> None:
        words = getattr(self, name)
        there = f"there are: {', '.join(legal)}"
        if not (words is None or isinstance(words, str | tuple | list)):
            raise PlanError(sentence("Intent", f"{name} is a word or a tuple of words", f"found {words!r}; {there}"))
        if not self.choices(name):
            hint = "Left out it is open."
            raise PlanError(sentence("Intent", f"no word for {name}", f"found {words!r}; {there}", hint))
        for word in self.choices(name):
            if word not in legal:
                hint = nearest(word, legal) if isinstance(word, str) else ""
                raise PlanError(sentence("Intent", f"no such {name}", f"found {word!r}; {there}", hint))

    def _check_payload(self) -> None:
        payload: Any = self.payload
        if not isinstance(payload, Mapping):
            hint = 'Give values by column: {"k": ["a", "b"]}.'
            raise PlanError(sentence("Intent", "payload is no mapping", f"found {payload!r}", hint))
        for name, values in payload.items():
            if not isinstance(name, str):
                raise PlanError(sentence("Intent", "payload is values by column", f"found the name {name!r}"))
            if isinstance(values, Sequence) and not isinstance(values, str | bytes) and not values:
                raise PlanError(
                    sentence("Intent", f"no values for column {name!r}", "", "None stands for NULL: [None].")
                )
            if isinstance(values, str | bytes) or not (isinstance(values, Sequence) or hasattr(values, "example")):
                hint = "Give a sequence to choose from, or a Hypothesis strategy."
                raise PlanError(sentence("Intent", f"not values for column {name!r}", f"found {values!r}", hint))

    def choices(self, name: str) -> tuple[str, ...]:
        """The words that a part leaves open."""
        words = getattr(self, name)
        if words is None:
            return WORDS[name]
        return (words,) if isinstance(words, str) else tuple(words)

    def but(self, **changes: Any) -> Intent:
        """The same intent with other parts."""
        return dataclasses.replace(self, **changes)

    def completed(self, other: Intent) -> Intent:
        """What this leaves open as ``other`` says it."""
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
"""The parts that are words, and the legal ones."""

FLAGS = ("invalid", "speculation", "duplicates", "nulls", "nan", "infinities", "unicode", "skew")
"""The parts that are a yes or a no."""

EVENTS = ("events", Intent.events)

ANYTHING = Intent()
"""Everything left open."""

__all__ = ["ANYTHING", "Intent"]
