"""The words of a picture: what parts are called, and lengths of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from streamq.patterns.pattern_tree import Extent, Type, extents_of, parts_of
from streamq.patterns.syntax import Definition, Part, Scope, shown_duration
from streamq.time import TIMESTAMP, show_duration


class PictureWords:
    """The names of the parts of some definitions, and how far they reach; in units where scopes have such, else in ticks."""

    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        self.definitions = definitions
        self.extents = extents_of(definitions.values(), {})

    def extent(self, part: Part) -> Extent:
        """Return how far the matches of a part reach."""
        return part.pattern.extent(self.extents)

    def names(self, parts: Sequence[Part]) -> str:
        """Return what parts are called, as an enumeration."""
        names = [p.variable or _called(p) for p in parts]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

    def scope(self, within: Scope) -> str:
        """Return a scope in words."""
        return f"{within} ticks" if isinstance(within, int) else shown_duration(within)

    def amount(self, ticks: int, part: Part) -> str:
        """Return a number of ticks in words, as the scopes of a part and of what it uses have them."""
        scopes = (p.pattern.duration for p in self._all_parts(part))
        return show_duration(ticks, TIMESTAMP) if any(isinstance(s, str) for s in scopes) else self.scope(ticks)

    def _all_parts(self, whole: Part) -> Iterator[Part]:
        """Yield a part and all parts below it, those of the definitions that it uses too."""
        for part in parts_of(whole):
            yield part
            if isinstance(part.pattern, Type) and part.pattern.name in self.definitions:
                yield from self._all_parts(self.definitions[part.pattern.name].pattern)


def _called(part: Part) -> str:
    """Return what a part without a variable is called."""
    return part.pattern.name if isinstance(part.pattern, Type) else f"matches of {part.pattern.keyword}"


__all__ = ["PictureWords"]
