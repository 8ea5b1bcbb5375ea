"""The words a user chooses from and the words a run answers with, as enumerations whose members equal their strings."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from streamq.errors import PlanError, sentence


class Word(StrEnum):
    """A word out of a fixed list; it equals the plain string that users write and is shown like it."""

    def __repr__(self) -> str:
        return repr(self.value)


W = TypeVar("W", bound=Word)


def chosen(words: type[W], word: Any, argument: str, verb: str) -> W:
    """Return the member that equals ``word``; raise PlanError, which lists the words, for anything else."""
    try:
        return words(word)
    except ValueError:
        *others, last = map(repr, words)
        wrong = f"{argument} is {', '.join(others)} or {last}"
    raise PlanError(sentence(verb, wrong, f"found {word!r}"))


class OutputForm(Word):
    """The form in which a stream writes its results."""

    FINAL = "final"
    """Each row once, when it can no longer change."""
    CHANGELOG = "changelog"
    """Rows at once, and a retraction for each that late or corrected input changes."""
    UPSERT = "upsert"
    """The latest row of each group and start, and a deletion where it is gone."""


class LevelName(Word):
    """A level of consistency that has a name of its own."""

    STRONG = "strong"
    """Rows wait until disorder can no longer change them."""
    MIDDLE = "middle"
    """Rows go out at once and are repaired for as long as it takes."""


class Late(Word):
    """What becomes of an item that lies behind its source's CTI."""

    DROP = "drop"
    """It is left out and counted."""
    ADJUST = "adjust"
    """The part of its lifetime from the CTI on counts."""
    FAIL = "fail"
    """The query fails with LateEvent."""


class Invalid(Word):
    """What becomes of a row that is no event, for example one without a start."""

    DROP = "drop"
    """It is left out and counted."""
    FAIL = "fail"
    """The query fails with InvalidEvent."""


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


__all__ = ["Invalid", "Late", "LevelName", "OutputForm", "RunState", "Verdict", "Word", "chosen"]
