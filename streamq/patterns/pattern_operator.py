"""An operator of the pattern language: the methods that the parser, the checks, the compiler and explain call."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from streamq.patterns.pattern_tree import PatternTree
from streamq.patterns.picture_words import PictureWords

if TYPE_CHECKING:
    from streamq.patterns.definition_lowering import DefinitionLowering
    from streamq.patterns.matches import Matches


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


__all__ = ["PatternOperator"]
