"""The words a user chooses from and the words a run answers with, as enumerations whose members equal their strings."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

from streamq.errors import PlanError, nearest, sentence


class Word(StrEnum):
    """A word out of a fixed list; it equals the plain string that users write and is shown like it."""

    def __repr__(self) -> str:
        return repr(self.value)


W = TypeVar("W", bound=Word)


def choose_word(words: type[W], word: Any, argument: str, verb: str, hint: str = "") -> W:
    """Return the member that equals ``word``; raise PlanError for anything else, as :func:`check_word` does."""
    check_word(word, list(words), argument, verb, hint)
    return words(word)


def check_word(word: Any, words: Sequence[str], argument: str, verb: str, hint: str = "") -> None:
    """Raise PlanError for an argument that is none of ``words``: it lists them, and ends with ``hint`` or names the nearest."""
    if isinstance(word, str) and word in words:
        return
    *others, last = (repr(str(w)) for w in words)
    wrong = f"{argument} is {', '.join(others)} or {last}"
    hint = hint or (nearest(word, [str(w) for w in words]) if isinstance(word, str) else "")
    raise PlanError(sentence(verb, wrong, f"found {word!r}", hint))


class OutputForm(Word):
    """The form in which a stream writes its results."""

    FINAL = "final"
    """Each row once, when it can no longer change."""
    CHANGELOG = "changelog"
    """Rows at once, and a retraction for each that late or corrected input changes."""
    UPSERT = "upsert"
    """The latest row of each group and start, and a deletion where it is gone."""


class ArgumentForm(Word):
    """What a function of a user's own is called with."""

    VALUES = "values"
    """One event's values, as Python has them; NULL is None."""
    SERIES = "series"
    """A pandas Series an argument, over many events."""
    ARRAYS = "arrays"
    """A pyarrow Array an argument, over many events."""


class LevelName(Word):
    """A level of consistency that has a name of its own."""

    STRONG = "strong"
    """Rows wait until disorder can no longer change them."""
    MIDDLE = "middle"
    """Rows go out at once and are repaired for as long as it takes."""


class JoinKind(Word):
    """Which events of two streams a join gives."""

    INNER = "inner"
    """Pairs, while both live."""
    LEFT = "left"
    """Pairs, and the parts of a left lifetime without a partner."""
    SEMI = "semi"
    """The parts of a left lifetime with a partner."""
    ANTI = "anti"
    """The parts of a left lifetime without one."""


class ClipInput(Word):
    """How members' lifetimes are cut to their window before a time-sensitive aggregate reads them."""

    FULL = "full"
    LEFT = "left"
    RIGHT = "right"
    NONE = "none"

    @property
    def cuts_starts(self) -> bool:
        """Whether no member starts before its window."""
        return self in (ClipInput.FULL, ClipInput.LEFT)

    @property
    def cuts_ends(self) -> bool:
        """Whether no member ends after its window."""
        return self in (ClipInput.FULL, ClipInput.RIGHT)


class Stamp(Word):
    """Where the results of a window live."""

    ALIGN = "align"
    """On the window."""
    POINT_AT_END = "point_at_end"
    """For one tick at its end."""
    UNCHANGED = "unchanged"
    CLIP = "clip"
    TIME_BOUND = "time_bound"
    """The last three are for operations that give their own lifetimes."""


class LengthKind(Word):
    """What ``alter_lifetime`` makes of how long an event lives."""

    SAME = "same"
    """As long as before, plus so many ticks."""
    FIXED = "fixed"
    """So many ticks."""
    GIVEN = "given"
    """What an expression gives."""


class Anchor(Word):
    """The end of a lifetime that another one starts at."""

    LE = "LE"
    RE = "RE"
    GIVEN = "given"
    """Neither: an expression gives the instant."""


class Invalid(Word):
    """What becomes of a row that is no event, for example one without a start."""

    DROP = "drop"
    """It is left out and counted."""
    FAIL = "fail"
    """The query fails with InvalidEvent."""


class ErrorPolicy(Word):
    """What becomes of a window for which a module of a user's fails."""

    FAIL = "fail"
    """The query fails with ModuleFailed."""
    QUARANTINE = "quarantine"
    """Its members go to the late output, its value is NULL or it has no rows, and the query goes on."""


class Selection(Word):
    """The choice among the events that fit a part of a pattern's operator."""

    EACH = "each"
    """Every one, in a match of its own."""
    FIRST = "first"
    """The one with the least start."""
    LAST = "last"
    """The one with the greatest start."""


class Consumption(Word):
    """Whether an event that has matched as a parameter of a pattern's operator can match there again."""

    REUSE = "reuse"
    """It can."""
    CONSUME = "consume"
    """It cannot."""


class CountReason(Word):
    """As what a source counts a row that it does not take as it came."""

    DROPPED = "dropped"
    """Late, and nothing of it counts."""
    ADJUSTED = "adjusted"
    """Late, and what is left of it behind the CTI counts."""
    INVALID = "invalid"
    """No event."""
    DUPLICATES = "duplicates"
    """Delivered before."""
    QUARANTINED = "quarantined"
    """A window for which a module failed."""


class RunState(Word):
    """Whether a run is still working, and if not, why."""

    RUNNING = "running"
    """It looks for input."""
    ENDED = "ended"
    """Its trigger was "available_now", and it has processed what there was."""
    STOPPED = "stopped"
    """It was stopped; another run can go on from its checkpoint."""
    FINISHED = "finished"
    """Its input has ended, and all its rows are out."""
    FAILED = "failed"
    """Its query ended with an error."""


class Verdict(Word):
    """Why a run writes rows or writes none: the first word of the answer of ``run.why()``."""

    FLOWING = "flowing"
    """The last micro-batch wrote rows."""
    WAITING = "waiting"
    """An operator holds rows until time has passed something."""
    IDLE_INPUT = "idle_input"
    """Rows wait for an input that brings nothing, and that nobody passes over."""
    NO_CTI = "no_cti"
    """Rows wait for a source that has not sent any CTI yet."""
    FIRST_BATCH = "first_batch"
    """The first micro-batch is being processed; nothing is reported of it before it is done."""
    NO_ROWS = "no_rows"
    """No row has come in."""
    FILTERED = "filtered"
    """Filters removed every row that came in."""
    NO_MATCH = "no_match"
    """Both inputs of a join brought rows, and no two of them met."""
    LATE = "late"
    """Every row came in behind its source's CTI."""
    NOTHING_HELD = "nothing_held"
    """No operator holds a row."""
    FINISHED = "finished"
    """The run's input has ended."""
    STOPPED = "stopped"
    """The run was stopped."""
    FAILED = "failed"
    """The run failed."""


__all__ = [
    "Anchor",
    "ClipInput",
    "Consumption",
    "CountReason",
    "JoinKind",
    "LengthKind",
    "Stamp",
    "Invalid",
    "LevelName",
    "ErrorPolicy",
    "OutputForm",
    "RunState",
    "Selection",
    "Verdict",
    "Word",
    "check_word",
    "choose_word",
]
