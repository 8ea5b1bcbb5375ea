"""Parts of a pattern as verbs build them: a stream or a pattern under a name, with selection and consumption."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamq.choices import Consumption, Selection
from streamq.patterns.syntax import Condition, Part

if TYPE_CHECKING:
    from streamq.testing.verbs.streams import Events

Function = Callable[..., Any]
"""A condition as a function of variables."""


@dataclass(frozen=True)
class Piece:
    """A part, the streams of its event types by name, and the conditions on its events, as syntax and as functions."""

    part: Part
    types: Mapping[str, Events]
    where: tuple[Condition, ...] = ()
    functions: tuple[Function, ...] = ()

    def first(self) -> Piece:
        return replace(self, part=replace(self.part, selection=Selection.FIRST))

    def last(self) -> Piece:
        return replace(self, part=replace(self.part, selection=Selection.LAST))

    def consume(self) -> Piece:
        return replace(self, part=replace(self.part, consumption=Consumption.CONSUME))


__all__ = ["Function", "Piece"]
