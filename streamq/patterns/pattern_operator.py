"""An operator of the pattern language: all that the parser, the checks, the compiler and explain ask of a kind of it."""

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

    What a tree says of its parts and of its matches is in its base class; here are its joins and its picture.
    """

    is_ordered: ClassVar[bool] = False
    """True if its parts come one after the other."""

    instead_of_scope: ClassVar[str] = ""
    """The words to write for a scope, where it has none."""

    @abstractmethod
    def matches(self, lowering: DefinitionLowering) -> Matches:
        """Return its matches, by joins, anti joins and scans of those of its parts."""

    @property
    def title(self) -> str:
        """Its name in the picture."""
        return self.keyword

    def scope_in_words(self, words: PictureWords) -> str:
        """Return its scope as the picture shows it."""
        return "" if self.duration is None else words.scope(self.duration)

    def keeps(self, words: PictureWords) -> str:
        """Return which events it keeps for how long, in words; nothing if it keeps none."""
        return ""


__all__ = ["PatternOperator"]
