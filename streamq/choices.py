"""Enumerations of the words that users pass as arguments and runs return; each member equals its string."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

from streamq.errors import PlanError, nearest


class Word(StrEnum):
    """A word from a fixed list; it equals the plain string that users write and has the same representation."""

    def __repr__(self) -> str:
        return repr(self.value)


W = TypeVar("W", bound=Word)


def choose_word(words: type[W], word: Any, argument: str, verb: str, hint: str = "") -> W:
    """Return the member that equals ``word``; raise PlanError for anything else, as :func:`check_word` does."""
    check_word(word, list(words), argument, verb, hint)
    return words(word)


def check_word(word: Any, words: Sequence[str], argument: str, verb: str, hint: str = "") -> None:
    """Raise PlanError for an argument that is none of ``words``; the message lists them and ends with ``hint`` or the nearest."""
    if isinstance(word, str) and word in words:
        return
    *others, last = (repr(str(w)) for w in words)
    wrong = f"{argument} is {' or '.join(filter(None, (', '.join(others), last)))}"
    hint = hint or (nearest(word, [str(w) for w in words]) if isinstance(word, str) else "")
    raise PlanError(verb, wrong, f"found {word!r}", hint)


class OutputForm(Word):
    """The form in which a stream writes its results."""

    FINAL = "final"
    """Writes each row once, when it can no longer change."""
    CHANGELOG = "changelog"
    """Writes rows at once, and a retraction for each row that late or corrected input changes."""
    UPSERT = "upsert"
    """Writes the latest row of each group and start, and a deletion if there is none any more."""
    LATEST = "latest"
    """Writes the row of each key that starts last, and a deletion if there is none any more."""


class ArgumentForm(Word):
    """What the arguments of a function of the user's own are."""

    VALUES = "values"
    """One event's values as Python objects; NULL is None."""
    SERIES = "series"
    """A pandas Series for each argument, over many events."""
    ARRAYS = "arrays"
    """A pyarrow Array for each argument, over many events."""


class LevelName(Word):
    """A level of consistency that has a name."""

    STRONG = "strong"
    """Rows wait until disorder can no longer change them."""
    MIDDLE = "middle"
    """Rows are sent at once, and repaired whenever late input changes them."""


class JoinKind(Word):
    """The kind of a join, which determines the rows that it returns."""

    INNER = "inner"
    """Pairs of events, while both live."""
    LEFT = "left"
    """Pairs, and the parts of a left lifetime without a partner."""
    SEMI = "semi"
    """The parts of a left lifetime with a partner."""
    ANTI = "anti"
    """The parts of a left lifetime without a partner."""


class ClipInput(Word):
    """The sides at which members' lifetimes are cut to their window before a time-sensitive aggregate reads them."""

    FULL = "full"
    LEFT = "left"
    RIGHT = "right"
    NONE = "none"

    @property
    def cuts_starts(self) -> bool:
        """True if starts are cut, so that no member starts before its window."""
        return self in (ClipInput.FULL, ClipInput.LEFT)

    @property
    def cuts_ends(self) -> bool:
        """True if ends are cut, so that no member ends after its window."""
        return self in (ClipInput.FULL, ClipInput.RIGHT)


class Stamp(Word):
    """The lifetime of a window's results."""

    ALIGN = "align"
    """The window's interval."""
    POINT_AT_END = "point_at_end"
    """One tick at the window's end."""
    UNCHANGED = "unchanged"
    CLIP = "clip"
    TIME_BOUND = "time_bound"
    """The last three are for operators that set their rows' lifetimes themselves."""


class LengthKind(Word):
    """The way in which ``alter_lifetime`` computes the length of a lifetime."""

    SAME = "same"
    """The old length plus a constant."""
    FIXED = "fixed"
    """A constant."""
    GIVEN = "given"
    """The value of an expression."""


class Anchor(Word):
    """The instant at which a new lifetime starts, relative to the old one."""

    LE = "LE"
    RE = "RE"
    GIVEN = "given"
    """Neither end: the start is the value of an expression."""


class Invalid(Word):
    """The policy for rows that are no events, for example rows without a start."""

    DROP = "drop"
    """The row is dropped and counted."""
    FAIL = "fail"
    """The query fails with InvalidEvent."""


class ErrorPolicy(Word):
    """The policy for windows and events for which a module of the user's fails."""

    FAIL = "fail"
    """The query fails with ModuleFailed."""
    QUARANTINE = "quarantine"
    """The events go to the late output, the result is NULL or has no rows, and the query continues."""


class Selection(Word):
    """The choice among the events that fit a part of a pattern's operator."""

    EACH = "each"
    """Every event, each in a match of its own."""
    FIRST = "first"
    """The event with the least start."""
    LAST = "last"
    """The event with the greatest start."""


class Consumption(Word):
    """The rule for events that have matched a part of a pattern's operator."""

    REUSE = "reuse"
    """The event can match that part again."""
    CONSUME = "consume"
    """The event cannot match that part again."""


class CountReason(Word):
    """The reason for which a row is counted: it was not used, or not as it came."""

    DROPPED = "dropped"
    """The row was late and was dropped."""
    ADJUSTED = "adjusted"
    """The row was late; only its part after the CTI was used."""
    INVALID = "invalid"
    """The row is no event."""
    DUPLICATES = "duplicates"
    """The row had been delivered before."""
    QUARANTINED = "quarantined"
    """A module failed for a window or an event."""


class RunState(Word):
    """The state of a run: running, or the reason why it has ended."""

    RUNNING = "running"
    """The run is waiting for input or processing it."""
    ENDED = "ended"
    """The run had the trigger "available_now" and has processed all available input."""
    STOPPED = "stopped"
    """The run was stopped; another run can continue from its checkpoint."""
    FINISHED = "finished"
    """The input has ended, and all rows have been written."""
    FAILED = "failed"
    """The query ended with an error."""
    LOST = "lost"
    """Its process has not been heard of for a minute, and has not said that it is over; another process says so."""


class Request(Word):
    """What another process asks of a run."""

    STOP = "stop"
    """To stop; another run can continue from its checkpoint."""
    FINISH = "finish"
    """To end its input, and to stop once its last windows are written."""


class Verdict(Word):
    """The reason why a run writes rows or none: the first word of the answer of ``run.why()``."""

    FLOWING = "flowing"
    """The last micro-batch wrote rows or took some back."""
    WAITING = "waiting"
    """An operator holds rows until its CTI or watermark has passed some instant."""
    IDLE_INPUT = "idle_input"
    """Rows wait for a silent input, which is not skipped as idle, or a join for a first row of one side."""
    NO_CTI = "no_cti"
    """Rows wait for a source that has not sent any CTI yet."""
    FIRST_BATCH = "first_batch"
    """The first micro-batch is being processed; there are no reports before it is done."""
    NO_ROWS = "no_rows"
    """No row that is an event has come in."""
    FILTERED = "filtered"
    """Filters removed every row that came in."""
    NO_MATCH = "no_match"
    """Both inputs of a join brought rows, and no two of them met; or the rows of one side did not pass its filters."""
    LATE = "late"
    """Every row came in late, behind its source's CTI."""
    NOTHING_HELD = "nothing_held"
    """No operator holds a row."""
    FINISHED = "finished"
    """The run's input has ended."""
    STOPPED = "stopped"
    """The run was stopped."""
    FAILED = "failed"
    """The run failed."""
