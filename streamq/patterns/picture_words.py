"""The words of a picture: names of parts, and lengths of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from streamq.patterns.pattern_tree import Extent, Type, extents_of, parts_of
from streamq.patterns.syntax import Definition, Part, Scope, shown_duration
from streamq.time import TIMESTAMP, show_duration


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


__all__ = ["PictureWords"]
