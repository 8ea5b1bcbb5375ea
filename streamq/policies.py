"""Levels of consistency: the durations for which items are blocked and history is remembered."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.choices import LevelName
from streamq.errors import PlanError, TimeError, check_keywords, nearest
from streamq.time import Duration, length, show_duration, ticks


@dataclass(frozen=True)
class Level:
    """A level of consistency in ticks.

    ``block``: the longest time that an item may wait. ``remember``: the time for which history is kept. None: without bound.
    """

    block: int | None = 0
    remember: int | None = None


MIDDLE = Level()
"""The level at which items are sent at once, and repaired whenever late input changes them."""


def show_level(level: Level, axis: str) -> str:
    """Return a level as explain names it: ``strong``, ``weak(10 minutes)``."""
    block, remember = ("" if t is None else show_duration(t, axis) for t in (level.block, level.remember))
    if level.remember is None:
        return "strong" if level.block is None else f"level({block})" if level.block else "middle"
    return f"level({block}, {remember})" if level.block else f"weak({remember})"


@dataclass(frozen=True)
class Consistency:
    """A level of CEDR's spectrum as the user writes it, in durations.

    ``block``: the longest time that an item may wait. ``remember``: the time for which history is kept. None: without bound.
    """

    block: Duration | None = 0
    remember: Duration | None = None

    def __post_init__(self) -> None:
        """Raise PlanError for a negative bound, and if ``block`` is longer than ``remember``.

        Raises TimeError for a bound that is no duration, and if one of two bounds has a unit and the other none.
        """
        verb = "consistency"
        for name, bound in (("block", self.block), ("remember", self.remember)):
            if bound is not None and length(bound, verb) < 0:
                raise PlanError(verb, f"{name} is negative", f"found {bound!r}", "None is for ever.")
        if self.remember is None:
            return
        if self.block and self.remember and isinstance(self.block, int) is not isinstance(self.remember, int):
            durations = f"found {self.block!r} and {self.remember!r}"
            raise TimeError(verb, "a duration with a unit beside one without", durations, "Give both a unit, or none.")
        if self.block is None or length(self.block, verb) > length(self.remember, verb):
            blocked = "for ever" if self.block is None else f"for {self.block!r}"
            durations = f"found items blocked {blocked}, history remembered for {self.remember!r}"
            hint = "In level(B, M) B is how long items are blocked, M how long history is remembered."
            raise PlanError(verb, "items blocked for longer than history is remembered", durations, hint)

    @property
    def name(self) -> str:
        """The level as users write it, without ``sq.``: "strong", "weak(10)"."""
        if self in LEVELS.values():
            return next(str(name) for name, level in LEVELS.items() if level == self)
        if self.block == 0:
            return f"weak({self.remember!r})"
        return f"level({self.block!r})" if self.remember is None else f"level({self.block!r}, {self.remember!r})"

    def level(self, axis: str) -> Level:
        """Return the level in ticks of an axis; raise TimeError if a duration does not fit the axis."""
        block, remember = (None if d is None else ticks(d, axis, "consistency") for d in (self.block, self.remember))
        return Level(block, remember)


LEVELS = {LevelName.STRONG: Consistency(None, None), LevelName.MIDDLE: Consistency(0, None)}
"""The levels that have a name (docs/consistency.md)."""


@check_keywords
def weak(remember: Duration) -> Consistency:
    """Return the level that sends rows at once and repairs them for ``remember``; older history is forgotten.

    ``remember``: a duration with a unit on a timestamp axis, integer ticks on an integer axis. The answer is right from the
    watermark minus ``remember`` on; before that instant it may lack input that came later. State stays small even if no
    source makes progress. Raises TimeError for a value that is no duration, PlanError for a negative one. (CEDR's weak
    level.)
    """
    return Consistency(0, remember)


@check_keywords
def level(block: Duration | None, remember: Duration | None = None) -> Consistency:
    """Return any level of the spectrum: items wait for ``block`` at most, history is kept for ``remember``; None: for ever.

    ``level(0)`` is "middle", ``level(None)`` "strong", ``level(0, m)`` ``weak(m)``. Durations are of application time and
    written as in :func:`weak`: an item waits until the CTI has passed it or the watermark is ``block`` beyond it, both the
    least over the query's sources. Raises TimeError for a value that is no duration, and PlanError for a negative one or if
    ``block`` is longer than ``remember``.
    """
    return Consistency(block, remember)


def consistency_of(consistency: str | Consistency, axis: str, verb: str) -> Level:
    """Return the level in ticks of an axis; ``consistency`` is a name, or the result of :func:`weak` or :func:`level`.

    Raises PlanError for anything else, and TimeError for durations that do not fit the axis.
    """
    return written_level(consistency, verb).level(axis)


def written_level(consistency: str | Consistency, verb: str) -> Consistency:
    """Return the level of a name, or the result of :func:`weak` or :func:`level`; raise PlanError for anything else."""
    if isinstance(consistency, str) and consistency in LEVELS:
        consistency = LEVELS[LevelName(consistency)]
    if not isinstance(consistency, Consistency):
        hint = nearest(consistency, list(LEVELS)) if isinstance(consistency, str) else ""
        hint = hint or "There are: 'strong', 'middle', sq.weak(...) or sq.level(...)."
        raise PlanError(verb, "no level of consistency", f"found {consistency!r}", hint)
    return consistency
