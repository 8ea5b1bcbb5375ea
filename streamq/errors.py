"""The family of errors: every one worded *verb: what is wrong; what was found. Hint.*

StreamqError
    PlanError                 a query that cannot be built or run as asked: raised at the line the user wrote
        UnknownColumn         a name that does not exist, with those that do and the nearest
        AmbiguousColumn       a name that exists more than once
        TypeMismatch          an expression or a column of a wrong type
        MixedStreams          an expression with columns of another stream
        TimeError             a duration, size or hop that does not fit the time axis
        UnknownVerb           an attribute that a stream or an expression does not have; an AttributeError too
        UnknownFunction       (in streamq.functions) a name in sq.functions that is no function of a row; an AttributeError too
    SourceError               input that cannot be read, or is no such source
    InvalidEvent              rows that are no events, under ``invalid="fail"``
    LateEvent                 an item behind its source's CTI, under ``late="fail"``
    NeedsSpark                something that cannot be evaluated in-process
    QueryFailed               a running query that ended with an error
    CheckpointError           a checkpoint that is not this query's, or is finished
    RewriteError              a law that makes an illegal plan, or rules that never end: a defect of streamq or of a rule
    StreamViolation           (in streamq.testing.validator) a recorded stream that breaks a rule; an AssertionError too
    SessionError              Java, the worker interpreter or a package is not as it must be
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn


class StreamqError(Exception):
    """Any error that streamq raises on purpose."""


class PlanError(StreamqError):
    """A query that cannot be built, or not be run as asked."""


class UnknownColumn(PlanError):
    """A column that the stream does not have."""


class AmbiguousColumn(PlanError):
    """A column name that occurs more than once."""


class TypeMismatch(PlanError):
    """An expression or column of a type that does not fit."""


class MixedStreams(PlanError):
    """An expression over a stream that uses columns of another one."""


class TimeError(PlanError):
    """A duration, size, hop or offset that does not fit the time axis."""


class UnknownVerb(PlanError, AttributeError):
    """An attribute that a stream or an expression does not have; an AttributeError too, so that ``hasattr`` works."""


class SourceError(StreamqError):
    """Input that cannot be read or is not what the source expects."""


class InvalidEvent(StreamqError):
    """Rows that are no events, under ``invalid="fail"``."""


class LateEvent(StreamqError):
    """An item behind the CTI of its source, under ``late="fail"``."""


class NeedsSpark(StreamqError):
    """Something that has no in-process equivalent with Spark's answer."""


class QueryFailed(StreamqError):
    """A running query that ended with an error."""


class CheckpointError(StreamqError):
    """A checkpoint that belongs to another query, or to a finished one."""


class RewriteError(StreamqError):
    """A rule that makes a plan illegal or of another meaning, or rules that do not come to an end."""


class SessionError(StreamqError):
    """The machine or the session is not set up as streamq needs it."""


def sentence(verb: str, wrong: str, found: str = "", hint: str = "") -> str:
    """The one form of words of every message."""
    text = f"{verb}: {wrong}"
    if found:
        text += f"; {found}"
    text = text if text.endswith((".", "?", "!")) else text + "."
    return f"{text} {hint}".rstrip()


def nearest(name: str, names: Iterable[str]) -> str:
    """``Did you mean 'x'?`` or nothing."""
    named = list(names)
    close = difflib.get_close_matches(name, named, n=1, cutoff=0.6) or [n for n in named if n.lower() == name.lower()]
    return f"Did you mean {close[0]!r}?" if close else ""


def unknown_column(
    verb: str, name: str, names: Sequence[str], lifetime: bool = True, consumed: Mapping[str, str] | None = None
) -> NoReturn:
    """Raise for a column that does not exist, naming those that do; ``lifetime``: those of a stream, which has a lifetime.

    consumed: what has become of columns that sources read their events from, as ``"its start: sq.start()"``.
    """
    there = ", ".join(names) if names else "none"
    hint = nearest(name, names)
    if lifetime and name.lower() in ("start", "end", "duration"):
        hint = "The lifetime is sq.start(), sq.end(), sq.duration()."
    elif consumed and name in consumed:
        hint = f"The source has read it: {consumed[name]}."
    raise UnknownColumn(sentence(verb, f"no column {name!r}", f"there are: {there}", hint))
