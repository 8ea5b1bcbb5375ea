"""Levels of consistency as values: for how long items are blocked and history is remembered."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.choices import LevelName
from streamq.errors import PlanError, TimeError, nearest, sentence
from streamq.keywords import check_keywords
from streamq.time import Duration, length, ticks


@dataclass(frozen=True)
class Level:
    """A level of consistency in ticks: for how long an item may be blocked and history is remembered; None: without bound."""

    block: int | None = 0
    remember: int | None = None


MIDDLE = Level()
"""Items go out at once and are repaired for as long as it takes."""


@dataclass(frozen=True)
class Consistency:
    """A point of CEDR's spectrum: for how long items may be blocked, and history is remembered; None: without bound."""

    block: Duration | None = 0
    remember: Duration | None = None

    def __post_init__(self) -> None:
        verb = "consistency"
        for name, bound in (("block", self.block), ("remember", self.remember)):
            if bound is not None and length(bound, verb) < 0:
                raise PlanError(sentence(verb, f"{name} is negative", f"found {bound!r}", "None is for ever."))
        if self.remember is None:
            return
        if self.block and self.remember and isinstance(self.block, int) is not isinstance(self.remember, int):
            durations = f"found {self.block!r} and {self.remember!r}"
            raise TimeError(
                sentence(verb, "a duration with a unit beside one without", durations, "Give both a unit, or none.")
            )
        if self.block is None or length(self.block, verb) > length(self.remember, verb):
            blocked = "for ever" if self.block is None else f"for {self.block!r}"
            durations = f"found items blocked {blocked}, history remembered for {self.remember!r}"
            hint = "In level(B, M) B is how long items are blocked, M how long history is remembered."
            raise PlanError(sentence(verb, "items blocked for longer than history is remembered", durations, hint))

    def level(self, axis: str) -> Level:
        """Return the level in ticks of an axis; raise TimeError where a unit does not fit the axis."""
        block, remember = (None if d is None else ticks(d, axis, "consistency") for d in (self.block, self.remember))
        return Level(block, remember)


LEVELS = {LevelName.STRONG: Consistency(None, None), LevelName.MIDDLE: Consistency(0, None)}
"""The levels that have a name (docs/consistency.md)."""


@check_keywords
def weak(remember: Duration) -> Consistency:
    """Output at once, repaired for as long as ``remember`` says: of what is later than that, what lies before is forgotten.

    A duration with a unit on a timestamp axis, integer ticks on an integer axis. From the watermark less ``remember`` on
    the answer is right; before, it may lack what came later than that. State stays small though no source makes progress.
    Raises TimeError for what is no duration, PlanError for a negative one. (CEDR's weak level.)
    """
    return Consistency(0, remember)


@check_keywords
def level(block: Duration | None, remember: Duration | None = None) -> Consistency:
    """Any point of the spectrum: items blocked for ``block`` at most, history remembered for ``remember``; None: for ever.

    ``level(0)`` is "middle", ``level(None)`` "strong", ``level(0, m)`` ``weak(m)``. Durations as in :func:`weak`, of
    application time: an item waits until the CTI has passed it or the watermark is ``block`` beyond it, both the least over
    the query's sources. Raises TimeError for what is no duration, PlanError for a negative one, and where ``block`` is longer
    than ``remember``.
    """
    return Consistency(block, remember)


def consistency_of(consistency: str | Consistency, axis: str, verb: str) -> Level:
    """Return the level that a user has named, or has made by :func:`weak` or :func:`level`; raise PlanError for anything else."""
    if isinstance(consistency, str) and consistency in LEVELS:
        consistency = LEVELS[LevelName(consistency)]
    if not isinstance(consistency, Consistency):
        hint = nearest(consistency, list(LEVELS)) if isinstance(consistency, str) else ""
        hint = hint or "There are: 'strong', 'middle', sq.weak(...) or sq.level(...)."
        raise PlanError(sentence(verb, "no level of consistency", f"found {consistency!r}", hint))
    return consistency.level(axis)
