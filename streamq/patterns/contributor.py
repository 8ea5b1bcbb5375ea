"""The parts of a pattern, verb by verb: a stream or a pattern under a name, with selection and consumption."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from streamq.choices import Consumption, Selection
from streamq.errors import PlanError, UnknownVerb, nearest
from streamq.keywords import CallResult
from streamq.patterns.pattern_tree import Type
from streamq.patterns.syntax import Condition, Part
from streamq.plan.node import Verbs, named_after

Function = Callable[..., Any]
"""A condition as a function of variables, by their names: ``lambda x, y: x.machine == y.machine``."""


@dataclass(frozen=True)
class Contributor(CallResult):
    """A part of a pattern: what it is, the streams of its event types, and its conditions."""

    part: Part
    types: Mapping[str, Any]
    where: tuple[Condition, ...] = ()
    functions: tuple[Function, ...] = ()

    def first(self) -> Contributor:
        """Select the first of the events that fit: FIRST. Raises PlanError for a part that selects the last one.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> sq.sequence(a.alias("x").first(), b.alias("y"), within=10).show()
        x_v  y_v  root  start  end
          1    3     1      4   11
          1    4     1      6   11
        """
        return self._selecting(Selection.FIRST)

    def last(self) -> Contributor:
        """Select the last of the events that fit: LAST. Raises PlanError for a part that selects the first one.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> sq.sequence(a.alias("x").last(), b.alias("y"), within=10).show()
        x_v  y_v  root  start  end
          2    3     2      4   12
          2    4     2      6   12
        """
        return self._selecting(Selection.LAST)

    def consume(self) -> Contributor:
        """Use up the events: after the matches that one event completes, those in them take part in no later match: CONSUME.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1}), (2, 3, {"v": 2})]), sq.events([(4, 5, {"v": 3}), (6, 7, {"v": 4})])
        >>> sq.sequence(a.alias("x").consume(), b.alias("y"), within=10).show()
        x_v  y_v  root  start  end
          1    3     1      4   11
          2    3     2      4   12
        """
        return self._replaced(consumption=Consumption.CONSUME)

    def __getattr__(self, name: str) -> NoReturn:
        """Raise UnknownVerb with a hint: verbs of patterns and of streams are none of a part."""
        hint = nearest(name, ("first", "last", "consume"))
        if name in ("unless", "without", "cancel_when", "where"):
            hint = f'A pattern has it, and a part alone is one by sq.any_of(stream.alias("x")).{name}(...).'
        elif not name.startswith("_"):
            hint = hint or "It is for patterns, as in sq.sequence(...); a stream's verbs go before alias."
        raise UnknownVerb("alias", f"a part of a pattern has no {name!r}", "", hint)

    def _selecting(self, selection: Selection) -> Contributor:
        if self.part.selection not in (Selection.EACH, selection):
            what = f"{self.part.selection.lower()}() and {selection.lower()}()"
            raise PlanError("alias", f"a part with {what}", "it selects one event", "Leave one of them out.")
        return self._replaced(selection=selection)

    def _replaced(self, **changes: Any) -> Contributor:
        return replace(self, part=replace(self.part, **changes))


named_after(Contributor, "alias(...)")


class AliasVerbs(Verbs):
    """``alias``."""

    def alias(self, name: str) -> Contributor:
        """Return the stream as a part of a pattern; conditions and columns call its events by ``name``.

        Several parts of one stream are one event type, so an event that one of them consumes is gone for the others, too.
        ``name`` is not empty, and no other part of the pattern has it; else PlanError is raised.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"v": 1})]), sq.events([(4, 5, {"v": 2})])
        >>> sq.sequence(a.alias("x"), b.alias("y"), within=10).select("x_v", "y_v").show()
        x_v  y_v  start  end
          1    2      4   11
        """
        if not isinstance(name, str) or not name:
            raise PlanError("alias", "a name is a string", f"found {name!r}")
        return Contributor(Part(Type(name), name), {name: self})
