"""Arguments of the functions and verbs of patterns: counts, scopes, and negated patterns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self

from streamq.errors import PlanError, kind_of, sentence
from streamq.patterns import syntax
from streamq.patterns.contributor import Contributor
from streamq.patterns.pattern_operator import PatternOperator
from streamq.patterns.syntax import Part
from streamq.plan.verbs import Verbs
from streamq.stream import Stream
from streamq.time import TIMESTAMP, Duration, length, plain_integer, show_duration


def count_of(count: Any, verb: str) -> int:
    """Return the count that a user passed to a verb; raise PlanError if it is no whole number.

    A bool is none; zero and negative numbers are returned.
    """
    number = plain_integer(count)
    if isinstance(number, bool) or not isinstance(number, int):
        observed = f"found {kind_of(count)}" if isinstance(count, Contributor | Stream) else f"found {count!r}"
        hint = "" if verb == "unless" else f"Write sq.{verb}(2, ...)."
        raise PlanError(sentence(verb, "a count is a whole number", observed, hint))
    return number


def parse_scope(within: Duration, verb: str) -> syntax.Scope:
    """Return a scope as texts write it: a text with units, also for a timedelta, or a number of ticks.

    Raises TimeError if ``within`` is no duration, PlanError if it is not positive.
    """
    ticks = length(within, verb)
    if ticks <= 0:
        raise PlanError(sentence(verb, "a scope is positive", f"found {within!r}"))
    if isinstance(within, timedelta):
        return show_duration(ticks, TIMESTAMP)
    return within if isinstance(within, str) else ticks


class NegatingVerbs(Verbs):
    """The base class of verbs that negate another pattern."""

    @abstractmethod
    def _negation(self, negated: Stream | Contributor, make: Callable[[Part, Part], PatternOperator]) -> Self:
        """Return the pattern of an operator over this pattern and a negated one."""


__all__ = ["NegatingVerbs", "count_of", "parse_scope"]
