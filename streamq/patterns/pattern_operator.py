"""An operator of the pattern language: the methods that the parser, the checks, the compiler and explain call.

Beside it stand the words of its picture, and the arguments of its function and verb: counts, scopes, and negated patterns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from streamq.errors import PlanError, kind_of
from streamq.patterns import syntax
from streamq.patterns.pattern_tree import Contributor, Extent, PatternTree, Type, extents_of, parts_of
from streamq.patterns.syntax import Definition, Part, Scope, shown_duration
from streamq.stream import Stream
from streamq.time import TIMESTAMP, Duration, length, plain_integer, show_duration

if TYPE_CHECKING:
    from streamq.patterns.definition_lowering import DefinitionLowering
    from streamq.patterns.matches import Matches


class PictureWords:
    """The names of parts and lengths of time in some definitions: in units if the scopes have units, else in ticks."""

    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        self.definitions = definitions
        self.extents = extents_of(definitions.values(), {})

    def extent(self, part: Part) -> Extent:
        """Return the extent of a part's matches."""
        return part.pattern.extent(self.extents)

    def names(self, parts: Sequence[Part]) -> str:
        """Return the names of parts as an enumeration."""
        names = [p.variable or _called(p) for p in parts]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

    def scope(self, within: Scope) -> str:
        """Return a scope in words."""
        return f"{within} ticks" if isinstance(within, int) else shown_duration(within)

    def amount(self, ticks: int, part: Part) -> str:
        """Return a number of ticks in words, in units if a scope below the part, or in a definition that it uses, has units."""
        scopes = (p.pattern.duration for p in self._all_parts(part))
        return show_duration(ticks, TIMESTAMP) if any(isinstance(s, str) for s in scopes) else self.scope(ticks)

    def _all_parts(self, whole: Part) -> Iterator[Part]:
        """Yield a part and all parts below it, those of the definitions that it uses too."""
        for part in parts_of(whole):
            yield part
            if isinstance(part.pattern, Type) and part.pattern.name in self.definitions:
                yield from self._all_parts(self.definitions[part.pattern.name].pattern)


def _called(part: Part) -> str:
    """Return the name of a part without a variable."""
    return part.pattern.name if isinstance(part.pattern, Type) else f"matches of {part.pattern.keyword}"


@dataclass(frozen=True)
class PatternOperator(PatternTree):
    """A kind of operator, with a room in ``streamq/patterns/operators/``.

    The base class describes its parts and its matches; this one adds its joins and its picture.
    """

    is_ordered: ClassVar[bool] = False
    """True if its parts come one after the other."""

    instead_of_scope: ClassVar[str] = ""
    """The hint for a text that gives it a scope, if it has none."""

    @abstractmethod
    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Return its matches, made of those of its parts by joins, anti joins and scans."""

    @property
    def title(self) -> str:
        """Its name in the picture."""
        return self.keyword

    def scope_in_words(self, words: PictureWords) -> str:
        """Return its scope as the picture shows it."""
        return "" if self.duration is None else words.scope(self.duration)

    def keeps(self, words: PictureWords) -> str:
        """Return the events that it keeps, and for how long, in words; empty if it keeps none."""
        return ""


def count_of(count: Any, verb: str) -> int:
    """Return the count that a user passed to a verb; raise PlanError if it is no whole number.

    A bool is none; zero and negative numbers are returned.
    """
    number = plain_integer(count)
    if isinstance(number, bool) or not isinstance(number, int):
        observed = f"found {kind_of(count)}" if isinstance(count, Contributor | Stream) else f"found {count!r}"
        hint = "" if verb == "unless" else f"Write sq.{verb}(2, ...)."
        raise PlanError(verb, "a count is a whole number", observed, hint)
    return number


def parse_scope(within: Duration, verb: str) -> syntax.Scope:
    """Return a scope as texts write it: a text with units, also for a timedelta, or a number of ticks.

    Raises TimeError if ``within`` is no duration, PlanError if it is not positive.
    """
    ticks = length(within, verb)
    if ticks <= 0:
        raise PlanError(verb, "a scope is positive", f"found {within!r}")
    if isinstance(within, timedelta):
        return show_duration(ticks, TIMESTAMP)
    return within if isinstance(within, str) else ticks
