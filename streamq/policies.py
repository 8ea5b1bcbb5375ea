"""Policies of a source, as values: how it makes progress, what becomes of late items and of rows that are no events."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.errors import PlanError, sentence
from streamq.runtime.consistency import Level
from streamq.time import Duration, ticks

DROP, ADJUST, FAIL = "drop", "adjust", "fail"


@dataclass(frozen=True)
class Generate:
    """CTIs made by streamq: the greatest start seen, less ``delay`` (a duration; SEMANTICS section 6)."""

    delay: Duration = 0

    def delay_ticks(self, axis: str) -> int:
        """The delay in ticks of an axis; raises TimeError where the unit does not fit or it is negative."""
        found = ticks(self.delay, axis, "progress")
        if found < 0:
            raise PlanError(sentence("progress", "a negative delay", f"found {self.delay!r}"))
        return found


@dataclass(frozen=True)
class Explicit:
    """CTIs that arrive as rows of the source; each speaks for the whole source."""


Progress = Generate | Explicit


def generate(delay: Duration = 0) -> Generate:
    """Progress from the data: ``cti(greatest start seen - delay)`` after every micro-batch.

    ``delay`` is a duration with a unit on a timestamp axis, integer ticks on an integer axis: how far out of order the
    source is; what comes later than that is *late*.
    """
    return Generate(delay)


def explicit() -> Explicit:
    """Progress from the source's own CTI rows (``sq.cti`` in literal streams, ``cti`` rows in physical ones)."""
    return Explicit()


@dataclass(frozen=True)
class Consistency:
    """A point of CEDR's spectrum: how long items may be blocked, how long history is remembered; None: without bound."""

    block: Duration | None = 0
    remember: Duration | None = None

    def level(self, axis: str) -> Level:
        """In ticks of an axis; raises TimeError where a unit does not fit, PlanError where the first is the greater one."""
        block, remember = (None if d is None else ticks(d, axis, "consistency") for d in (self.block, self.remember))
        for found in (block, remember):
            if found is not None and found < 0:
                raise PlanError(sentence("consistency", "a negative duration", f"found {found} ticks"))
        if remember is not None and (block is None or block > remember):
            hint = "level(B, M): B is how long items are blocked, M how long history is remembered."
            raise PlanError(sentence("consistency", "items blocked for longer than history is remembered", "", hint))
        return Level(block, remember)


LEVELS = {"strong": Consistency(None, None), "middle": Consistency(0, None)}
"""By name (SEMANTICS section 8)."""


def weak(remember: Duration) -> Consistency:
    """Output at once, repaired for as long as ``remember`` says: what is later than that is forgotten.

    A duration with a unit on a timestamp axis, integer ticks on an integer axis. From the watermark less ``remember`` on
    the answer is right; before, it may lack what came later than that. State stays small though no source makes progress.
    (CEDR's weak level, SEMANTICS section 8.)
    """
    return Consistency(0, remember)


def level(block: Duration | None, remember: Duration | None = None) -> Consistency:
    """Any point of the spectrum: items blocked for ``block`` at most, history remembered for ``remember``; None: for ever.

    ``level(0)`` is "middle", ``level(None)`` "strong", ``level(0, m)`` ``weak(m)``. Durations as in :func:`weak`, of
    application time: an item waits until the CTI has passed it or the watermark is ``block`` beyond it, both the least over
    the query's sources.
    """
    return Consistency(block, remember)


def consistency_of(given: str | Consistency, axis: str, verb: str) -> Level:
    """A level by name, or as :func:`weak` and :func:`level` make it."""
    if isinstance(given, str) and given in LEVELS:
        given = LEVELS[given]
    if not isinstance(given, Consistency):
        hint = "'strong', 'middle', sq.weak(...) or sq.level(...)."
        raise PlanError(sentence(verb, "no level of consistency", f"found {given!r}", f"There are: {hint}"))
    return given.level(axis)


@dataclass(frozen=True)
class SourcePolicy:
    """What a source node carries beside its columns; ``delay`` in ticks, None for explicit CTIs."""

    delay: int | None = 0
    late: str = DROP
    invalid: str | None = None

    @property
    def explicit(self) -> bool:
        """Whether CTIs arrive as rows."""
        return self.delay is None

    def invalid_in(self, streaming: bool) -> str:
        """What becomes of rows that are no events: by default a batch fails and a stream drops and counts."""
        return self.invalid or (DROP if streaming else FAIL)


def source_policy(
    verb: str,
    axis: str,
    progress: Progress | None,
    late: str,
    invalid: str | None,
    *,
    explicit_by_default: bool = False,
) -> SourcePolicy:
    """Check a source's policy arguments at the user's line."""
    if progress is None:
        progress = Explicit() if explicit_by_default else Generate()
    if not isinstance(progress, Generate | Explicit):
        raise PlanError(sentence(verb, "progress is sq.generate(...) or sq.explicit()", f"found {progress!r}"))
    if late not in (DROP, ADJUST, FAIL):
        raise PlanError(sentence(verb, "late is 'drop', 'adjust' or 'fail'", f"found {late!r}"))
    if invalid not in (None, DROP, FAIL):
        raise PlanError(sentence(verb, "invalid is 'drop' or 'fail'", f"found {invalid!r}"))
    return SourcePolicy(progress.delay_ticks(axis) if isinstance(progress, Generate) else None, late, invalid)
