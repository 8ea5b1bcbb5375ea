"""Policies of a source, as values: how it makes progress, what becomes of late items and of rows that are no events."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamq.errors import PlanError, sentence
from streamq.runtime.consistency import Level
from streamq.time import TIMESTAMP, Duration, ticks

if TYPE_CHECKING:
    from streamq.stream import Stream

ADDED = {"added": True}
"""Of fields that plans written earlier have not: where they have their default they are no part of a plan's identity."""

DROP, ADJUST, FAIL = "drop", "adjust", "fail"


@dataclass(frozen=True)
class Generate:
    """CTIs made by streamq: the greatest start seen, less ``delay``, in steps of ``every`` (SEMANTICS section 6)."""

    delay: Duration = 0
    every: Duration | None = None
    idle_after: Duration | None = None
    max_ahead: Duration | None = None

    def policy(self, axis: str) -> SourcePolicy:
        """In ticks of an axis; raises TimeError where a unit does not fit, PlanError for what is out of range."""
        delay = ticks(self.delay, axis, "progress")
        every = 1 if self.every is None else ticks(self.every, axis, "progress")
        if delay < 0:
            raise PlanError(sentence("progress", "a negative delay", f"found {self.delay!r}"))
        if every < 1:
            raise PlanError(sentence("progress", "every is a length of time", f"found {self.every!r}"))
        idle = None if self.idle_after is None else ticks(self.idle_after, TIMESTAMP, "progress")
        if idle is not None and idle < 1:
            raise PlanError(sentence("progress", "idle_after is a length of time", f"found {self.idle_after!r}"))
        ahead = None
        if self.max_ahead is not None:
            if axis != TIMESTAMP:
                found = f"the axis is {axis}"
                raise PlanError(sentence("progress", "max_ahead goes by the wall clock, which takes timestamps", found))
            ahead = ticks(self.max_ahead, axis, "progress")
            if ahead < 0:
                raise PlanError(sentence("progress", "a negative max_ahead", f"found {self.max_ahead!r}"))
        return SourcePolicy(delay, every=every, max_ahead=ahead, idle_after=idle)


@dataclass(frozen=True)
class Explicit:
    """CTIs that arrive as rows of the source; each speaks for the whole source."""


@dataclass(frozen=True)
class Follow:
    """The progress of another source of the query, by its table."""

    table: str


Progress = Generate | Explicit | Follow


def generate(
    delay: Duration = 0,
    *,
    every: Duration | None = None,
    idle_after: Duration | None = None,
    max_ahead: Duration | None = None,
) -> Generate:
    """Progress from the data: ``cti(greatest start seen - delay)`` after every micro-batch.

    ``delay`` is a duration with a unit on a timestamp axis, integer ticks on an integer axis: how far out of order the
    source is; what comes later than that is *late*. ``every``: CTIs at whole multiples only, for fewer of them.
    ``idle_after``: a source that has brought no row for so long, by the wall clock, in a run that goes on, holds nobody back
    any more: it has the CTI of those that do speak, and where none does, the greatest start of all; what it
    says behind that is late. It is a time by the clock, as "1 minute", on any axis. ``max_ahead``:
    in a stream a row whose start lies further than that beyond the wall clock is no event (see a source's ``invalid``),
    for one such row would drag progress along and make all others late; timestamps only.
    """
    return Generate(delay, every, idle_after, max_ahead)


def follow(other: Stream) -> Follow:
    """The progress of another source of the same query: what it has promised counts as promised here too.

    For a source that seldom says anything, as one of prices or of settings, which would hold the others back. What it says
    then is late where the other has gone on; its own greatest start moves nothing. Raises PlanError where ``other`` is not
    made of one source.
    """
    tables = list(getattr(other, "tables", ()))
    if len(tables) != 1:
        found = f"found {len(tables)}" if hasattr(other, "tables") else f"found {other!r}"
        raise PlanError(sentence("follow", "not one source", found, "Give the source itself, a stream."))
    return Follow(tables[0])


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
    """Output at once, repaired for as long as ``remember`` says: of what is later than that, what lies before is forgotten.

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
    """What a source node carries beside its columns; times in ticks, ``idle_after`` in microseconds by the clock.

    ``delay`` is None for explicit CTIs, and where ``follow`` names the table of the source that makes progress for it.
    """

    delay: int | None = 0
    late: str = DROP
    invalid: str | None = None
    every: int = field(default=1, metadata=ADDED)
    follow: str | None = field(default=None, metadata=ADDED)
    max_ahead: int | None = field(default=None, metadata=ADDED)
    idle_after: int | None = field(default=None, metadata=ADDED)

    @property
    def explicit(self) -> bool:
        """Whether CTIs arrive as rows."""
        return self.delay is None and self.follow is None

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
    given: object = progress
    if not isinstance(given, Generate | Explicit | Follow):
        wrong = "progress is sq.generate(...), sq.explicit() or sq.follow(...)"
        raise PlanError(sentence(verb, wrong, f"found {progress!r}"))
    if late not in (DROP, ADJUST, FAIL):
        raise PlanError(sentence(verb, "late is 'drop', 'adjust' or 'fail'", f"found {late!r}"))
    if invalid not in (None, DROP, FAIL):
        raise PlanError(sentence(verb, "invalid is 'drop' or 'fail'", f"found {invalid!r}"))
    if isinstance(progress, Generate):
        made = progress.policy(axis)
    else:
        made = SourcePolicy(None, follow=progress.table if isinstance(progress, Follow) else None)
    return replace(made, late=late, invalid=invalid)
