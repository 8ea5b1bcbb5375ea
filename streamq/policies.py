"""What a user decides about time, as values: how a source makes progress, what becomes of late items, the level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from streamq.choices import Invalid, Late, LevelName, chosen
from streamq.errors import PlanError, TimeError, nearest, sentence
from streamq.time import TIMESTAMP, Duration, length, ticks

ADDED = {"added": True}
"""Metadata of a field that plans written earlier lack: it is part of a plan's identity only where it differs from its default."""


@dataclass(frozen=True)
class Generate:
    """streamq makes the source's CTIs: the greatest start so far less ``delay``, in steps of ``every``."""

    delay: Duration = 0
    every: Duration | None = None
    idle_after: Duration | None = None
    max_ahead: Duration | None = None

    def __post_init__(self) -> None:
        for name, least in (("delay", 0), ("every", 1), ("idle_after", 1), ("max_ahead", 0)):
            duration = getattr(self, name)
            if (duration is not None or name == "delay") and length(duration, "generate") < least:
                wrong = f"{name} is {'negative' if least == 0 else 'no length of time'}"
                raise PlanError(sentence("generate", wrong, f"found {duration!r}"))
        if self.idle_after is not None:
            ticks(self.idle_after, TIMESTAMP, "generate")

    def policy(self, axis: str) -> SourcePolicy:
        """Return the policy in ticks of an axis; raise TimeError for a wrong unit, PlanError for ``max_ahead`` on integers."""
        if self.max_ahead is not None and axis != TIMESTAMP:
            wrong = "max_ahead goes by the wall clock, which takes timestamps"
            raise PlanError(sentence("generate", wrong, f"the axis is {axis}"))
        return SourcePolicy(
            delay=ticks(self.delay, axis, "generate"),
            every=1 if self.every is None else ticks(self.every, axis, "generate"),
            max_ahead=None if self.max_ahead is None else ticks(self.max_ahead, axis, "generate"),
            idle_after=None if self.idle_after is None else ticks(self.idle_after, TIMESTAMP, "generate"),
        )


@dataclass(frozen=True)
class Explicit:
    """The source sends its CTIs as rows; each CTI counts for the whole source."""


@dataclass(frozen=True)
class Follow:
    """The source makes the same progress as another source of the query, which is named by its table."""

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
    for one such row would drag progress along and make all others late; timestamps only. Raises TimeError for what is no
    duration, PlanError for a negative ``delay`` or ``max_ahead`` and for an ``every`` or ``idle_after`` that is not positive; the
    source raises TimeError for a unit that does not fit its time axis.
    """
    return Generate(delay, every, idle_after, max_ahead)


class OverTables(Protocol):
    """Anything built over tables, as a stream is over those of its sources."""

    @property
    def tables(self) -> Mapping[str, Any]:
        """The tables by the names of their sources."""


def follow(other: OverTables) -> Follow:
    """The progress of another source of the same query: what it has promised counts as promised here too.

    For a source that seldom says anything, as one of prices or of settings, which would hold the others back. What it says
    then is late where the other has gone on; its own greatest start moves nothing. Raises PlanError where ``other`` is not
    made of one source.
    """
    tables = list(getattr(other, "tables", ()))
    if len(tables) != 1:
        what = f"found {len(tables)}" if hasattr(other, "tables") else f"found {other!r}"
        raise PlanError(sentence("follow", "not one source", what, "Give the source itself, a stream."))
    return Follow(tables[0])


def explicit() -> Explicit:
    """Progress from the source's own CTI rows (``sq.cti`` in literal streams, ``cti`` rows in physical ones)."""
    return Explicit()


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


def weak(remember: Duration) -> Consistency:
    """Output at once, repaired for as long as ``remember`` says: of what is later than that, what lies before is forgotten.

    A duration with a unit on a timestamp axis, integer ticks on an integer axis. From the watermark less ``remember`` on
    the answer is right; before, it may lack what came later than that. State stays small though no source makes progress.
    Raises TimeError for what is no duration, PlanError for a negative one. (CEDR's weak level.)
    """
    return Consistency(0, remember)


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


@dataclass(frozen=True, kw_only=True)
class SourcePolicy:
    """What a source's node says of progress and of rows it does not take as they come.

    ``delay``, ``every`` and ``max_ahead`` are in ticks, ``idle_after`` in microseconds by the clock. ``delay`` is None where
    the source sends its own CTIs, and where ``follow`` names the table of the source whose progress it has. ``late`` and
    ``invalid`` may be given as strings.
    """

    delay: int | None = 0
    late: Late = Late.DROP
    invalid: Invalid | None = None
    every: int = field(default=1, metadata=ADDED)
    follow: str | None = field(default=None, metadata=ADDED)
    max_ahead: int | None = field(default=None, metadata=ADDED)
    idle_after: int | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        object.__setattr__(self, "late", Late(self.late))
        object.__setattr__(self, "invalid", None if self.invalid is None else Invalid(self.invalid))

    @property
    def explicit(self) -> bool:
        """True if the source sends its own CTIs."""
        return self.delay is None and self.follow is None

    def invalid_in(self, streaming: bool) -> Invalid:
        """Return what becomes of rows that are no events: unless the user has said, a batch fails and a stream drops them."""
        return self.invalid or (Invalid.DROP if streaming else Invalid.FAIL)


def source_policy(
    verb: str,
    axis: str,
    progress: Progress | None,
    late: str,
    invalid: str | None,
    *,
    explicit_by_default: bool = False,
) -> SourcePolicy:
    """Return the policy that a source's arguments ask for; raise PlanError, at the user's line, for any that does not fit."""
    if progress is None:
        progress = Explicit() if explicit_by_default else Generate()
    is_progress: bool = isinstance(progress, Generate | Explicit | Follow)
    if not is_progress:
        wrong = "progress is sq.generate(...), sq.explicit() or sq.follow(...)"
        raise PlanError(sentence(verb, wrong, f"found {progress!r}"))
    if isinstance(progress, Generate):
        policy = progress.policy(axis)
    else:
        policy = SourcePolicy(delay=None, follow=progress.table if isinstance(progress, Follow) else None)
    return replace(
        policy,
        late=chosen(Late, late, "late", verb),
        invalid=None if invalid is None else chosen(Invalid, invalid, "invalid", verb),
    )
