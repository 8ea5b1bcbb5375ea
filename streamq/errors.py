"""The tree of errors; each message has the form *verb: what is wrong; what was observed. Hint.*

StreamqError
    PlanError                 a query that cannot be built or run as asked; raised at the user's line
        UnknownColumn         a name that does not exist, with those that do and the nearest
        AmbiguousColumn       a name that exists more than once
        TypeMismatch          an expression or a column of a wrong type
        MixedStreams          an expression with columns of another stream
        TimeError             a duration, size or hop that does not fit the time axis
        UnknownVerb           an attribute that a stream or an expression does not have; an AttributeError too
        UnknownFunction       (in streamq.functions) a name in sq.functions that is no function of a row; an AttributeError too
    CedrError                 a text of the CEDR language that cannot be read; it has line and column
    SourceError               input that cannot be read, or is no such source
    InvalidEvent              rows that are no events, under ``invalid="fail"``
    LateEvent                 an item behind its source's CTI, under ``late="fail"``
    NeedsSpark                something that cannot be evaluated in-process
    QueryFailed               a running query that ended with an error
    ModuleFailed              code of the user's own that raised an error, or returned a value that is not allowed
    CheckpointError           a checkpoint that is not this query's, or is finished
    RewriteError              a law that makes an illegal plan, or rules that never end: a defect of streamq or of a rule
    StreamViolation           (in streamq.testing.validator) a recorded stream that breaks a rule; an AssertionError too
    SessionError              Java, the worker interpreter or a package is not as it must be

A StreamqWarning is for queries that are odd but can run.

The calls of verbs and functions are checked here, too: an unknown keyword is an error that lists the known ones, and errors are
shown at the user's line. What a call makes of streams remembers the call, so that the program that made it can be written.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, NoReturn, TypeVar, cast


class StreamqWarning(UserWarning):
    """A warning about something odd that does not prevent the query from running."""


class StreamqError(Exception):
    """The base of all errors that streamq raises on purpose; its arguments are those of :func:`sentence`, or a whole text.

    ``report``: the exception of Spark's from which the error was made, complete with Java's and Python's tracebacks; else None.
    """

    report: BaseException | None = None

    def __init__(self, verb: str = "", wrong: str = "", observed: str = "", hint: str = "") -> None:
        super().__init__(sentence(verb, wrong, observed, hint) if wrong else verb)

    def _repr_html_(self) -> str:
        """The kind of the error and its message, as a notebook shows an error that has been caught."""
        # imported here, so that an error does not take it along to the workers
        from streamq.html import fragment, heading, lines

        return fragment(heading(type(self).__name__), lines(str(self)))


class PlanError(StreamqError):
    """A query that cannot be built, or cannot be run as asked."""


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


class CedrError(StreamqError):
    """An error in a text of the CEDR language, at ``line`` and ``column``, which count from 1."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class SourceError(StreamqError):
    """Input that cannot be read or is not what the source expects."""


class InvalidEvent(StreamqError):
    """Rows that are no events, under ``invalid="fail"``."""


class LateEvent(StreamqError):
    """An item behind the CTI of its source, under ``late="fail"``."""


class NeedsSpark(StreamqError):
    """An expression or a type for which in-process evaluation does not have Spark's answer."""


class QueryFailed(StreamqError):
    """A running query that ended with an error."""


class ModuleFailed(StreamqError):
    """Code of the user's own that raised an error when streamq called it, or returned a value that is not allowed."""


class CheckpointError(StreamqError):
    """A checkpoint that belongs to another query, or to a finished one."""


class RewriteError(StreamqError):
    """A rule that makes an illegal plan or one of another schema, or rules that never end."""


class SessionError(StreamqError):
    """A machine or session that is not set up as streamq needs it."""


@dataclass(frozen=True)
class CodeLine:
    """A line of code at which a warning points; in ``registry`` Python records the warnings that it has shown there."""

    file: str
    number: int
    module: str
    registry: dict[Any, Any]


def users_line() -> CodeLine:
    """Return the nearest line up the stack that is not streamq's own code; the outermost line if there is no other."""
    frame = sys._getframe()
    while frame.f_back is not None and _is_own(frame):
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    return CodeLine(frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__", ""), registry)


_OWN = (__name__.partition(".")[0], "contextlib", "functools")
"""The packages whose frames are not the user's code.

A context manager that decorates a function of streamq's, or a cached property, is between the function and its caller.
"""


def _is_own(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _OWN


def users_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of streamq's own code; None if no other is left.

    An error that says what is wrong with the user's line is then shown there, and not with the calls inside streamq that led to
    the message.
    """
    if trace is None:
        return None
    behind = users_frames(trace.tb_next)
    return behind if _is_own(trace.tb_frame) else TracebackType(behind, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def warn(text: str, line: CodeLine | None = None) -> None:
    """Issue a StreamqWarning at a line, by default the user's."""
    at = line or users_line()
    warnings.warn_explicit(shortened_text(text), StreamqWarning, at.file, at.number, at.module, at.registry)


LONGEST = 2_000
"""The most characters of each part of an error's message, and of a warning's message."""


class Sentence(str):
    """The text of an error; ``claim`` says what is wrong and what was observed, ``hint`` what to do instead."""

    claim: str
    hint: str

    def __new__(cls, claim: str, hint: str = "") -> Sentence:
        text = super().__new__(cls, f"{claim} {hint}".rstrip())
        text.claim, text.hint = claim, hint
        return text

    def __reduce__(self) -> tuple[type[Sentence], tuple[str, str]]:
        return Sentence, (self.claim, self.hint)


def sentence(verb: str, wrong: str, observed: str = "", hint: str = "") -> Sentence:
    """Return the text of an error: *verb: what is wrong; what was observed. Hint.*

    ``observed`` and ``hint`` may be empty. A part longer than LONGEST characters is shortened in its middle.
    """
    verb, wrong, observed, hint = map(shortened_text, (verb, wrong, observed, hint))
    claim = f"{verb}: {wrong}"
    if observed:
        claim += f"; {observed}"
    return Sentence(claim if claim.endswith((".", "?", "!")) else claim + ".", hint)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number of things as text; ``plural`` is that of a noun that takes no s.

    >>> counted(1, "row"), counted(2000, "row"), counted(3, "micro-batch", "micro-batches")
    ('1 row', '2,000 rows', '3 micro-batches')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def shortened_text(text: str) -> str:
    """Return a text of more than LONGEST characters with its middle replaced by the number of characters left out."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} … ({len(text) - LONGEST:,} characters more) … {text[-half:]}"


def kind_of(value: object) -> str:
    """Return the kind of a value, for a message: ``pandas DataFrame``, ``list``, ``a window without a select``.

    An object of a class of streamq's is named by the class's attribute ``called``, or else by the name of the class.
    """
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package == __name__.partition(".")[0]:
        return getattr(kind, "called", kind.__name__)
    return kind.__name__ if package == "builtins" else f"{package} {kind.__name__}"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return ``Did you mean 'x'?`` for the name that another is a misspelling of; "" if it is none.

    A misspelling has at most one slip, or one for every four letters of a longer name: a letter too many, too few, another one,
    or two exchanged. Case and underscores do not count, nor do letters beyond ``COMPARED``, and a single letter is no misspelling
    of another.
    """
    spelt = _letters(name)
    most = max(len(spelt) // 4, min(len(spelt) - 1, 1))
    slips = [(count, other) for other in names if (count := slip_count(spelt, _letters(other))) <= most]
    return f"Did you mean {min(slips, key=lambda pair: pair[0])[1]!r}?" if slips else ""


COMPARED = 60
"""The number of letters by which names are compared: the time of a comparison goes with the square of it."""


def _letters(name: str) -> str:
    return name.lower().replace("_", "")[:COMPARED]


def slip_count(word: str, other: str) -> int:
    """Return the least number of letters to add, leave out, replace or exchange with the next to turn one word into another."""
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(word, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            count = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == wanted:
                count = min(count, rows[-2][j - 2] + 1)
            row.append(count)
        rows.append(row)
    return rows[-1][-1]


def column_names(key: Any, verb: str, what: str) -> tuple[str, ...]:
    """Return the columns of a key, which is one name or a list of names, maybe empty; raise PlanError for anything else.

    The names need not exist, and one may come twice. ``what`` is the name of the user's argument, for the message.
    """
    names = (key,) if isinstance(key, str) else key
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise PlanError(verb, f"{what} is a column name or a list of them", f"found {key!r}")
    return tuple(names)


def check_whole_number(verb: str, name: str, number: Any) -> None:
    """Raise PlanError for an argument that is no whole number of at least 1."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise PlanError(verb, f"{name} is a whole number of at least 1", f"found {number!r}")


def unknown_column(
    verb: str,
    name: Any,
    names: Sequence[str],
    lifetime: bool = True,
    consumed: Mapping[str, str] | None = None,
    side: str = "",
) -> NoReturn:
    """Raise UnknownColumn for a column that does not exist; the message lists those that do.

    Raises PlanError instead if ``name`` is not a string. ``lifetime`` is True for the columns of a stream, whose events have a
    lifetime. ``consumed`` maps columns that sources have consumed to a hint, as ``"its start: sq.start()"``.
    ``side`` is the side of a join, "left" or "right".
    """
    columns = ", ".join(names) if names else "none"
    if not isinstance(name, str):
        raise PlanError(verb, "a column name is a string", f"found {name!r}; there are: {columns}")
    ending = [repr(own) for own in names if own.endswith(f"_{name}")]
    hint = f"Did you mean {' or '.join(ending)}?" if ending else nearest(name, names)
    if name == "*":
        hint = "with_columns(x=expression) keeps all columns."
    elif not hint and re.search(r"[-+*/()<>=]", name):
        hint = "SQL is no column: an expression is Python, as x=sq.col(...) + 1."
    if lifetime and name.lower() in ("start", "end", "duration"):
        hint = "The lifetime is sq.start(), sq.end(), sq.duration()."
    elif consumed and name in consumed:
        hint = f"The source has read it: {consumed[name]}."
    raise UnknownColumn(
        verb, f"no column {name!r}" + (f" on the {side}" if side else ""), f"there are: {columns}", hint
    )


F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class MakingCall:
    """The call that made an object: a verb of ``target``, or, if that is None, a function of streams."""

    function: Callable[..., Any]
    target: Any
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]


class CallResult:
    """A stream, or a step on the way to one, that remembers the call that made it.

    ``made_by`` is None for sources, whose plan says all but the rows, and for plans that no call made. It is not pickled.
    """

    made_by: MakingCall | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "made_by"}


_OF_OTHER_NAMES = {
    "ascending": ("desc",), "descending": ("desc",), "condition": ("where",), "predicate": ("where",), "filter": ("where",),
    "left_on": ("on",), "right_on": ("on",), "by": ("key", "on", "id"), "key": ("by", "on"), "keys": ("key", "by", "on"),
    "cols": ("columns",), "subset": ("id", "columns"), "length": ("size", "duration"), "width": ("size",),
    "windowDuration": ("size",), "slideDuration": ("hop",), "slide": ("hop",), "every": ("hop",), "period": ("hop",),
    "startTime": ("offset", "start"), "gapDuration": ("gap",), "timeColumn": ("time",), "ts": ("time",),
    "timestamp": ("time",), "k": ("n",), "num": ("n",), "limit": ("n",), "delayThreshold": ("delay",),
    "checkpointLocation": ("checkpoint",), "path": ("sink",), "outputMode": ("output",), "output_mode": ("output",),
    "queryName": ("name",), "processingTime": ("trigger",), "lsuffix": ("suffixes",), "rsuffix": ("suffixes",),
    "suffix": ("suffixes",), "extended": ("mode",),
    "dataType": ("to",), "lowerBound": ("low",), "upperBound": ("high",),
}  # fmt: skip
"""Keywords of PySpark and pandas, each with streamq's keywords for the same thing."""


def check_keywords(function: F, advice: Callable[[str], str] = lambda name: "") -> F:
    """Wrap a function to raise PlanError for a keyword that it does not have; one with ``**keywords`` has them all.

    ``advice`` returns the hint for a keyword, or ""; then the hint is the nearest of the function's own keywords. The tracebacks
    of streamq's errors lose the frames inside streamq, and keep those of functions that the user passes to it.
    """
    # read from the code: a signature takes five times as long, for each public function at import
    code = inspect.unwrap(function).__code__
    has_any = bool(code.co_flags & inspect.CO_VARKEYWORDS)
    arguments = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    names = tuple(name for name in arguments if name != "self")
    is_verb = arguments[:1] == ("self",)
    # what pipe returns was made by the calls in the user's function
    is_recorded = function.__name__ != "pipe"

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        for name in keywords:
            if not has_any and name not in names:
                there = f"there are: {', '.join(names)}" if names else "there are none"
                hint = advice(name) or _nearest_keyword(name, names)
                raise PlanError(function.__name__, f"no parameter {name!r}", there, hint)
        try:
            result = function(*args, **keywords)
        except StreamqError as error:
            error.__traceback__ = users_frames(error.__traceback__)
            raise
        if isinstance(result, CallResult) and is_recorded:
            _remember(result, MakingCall(function, args[0] if is_verb else None, args[is_verb:], keywords))
        return result

    return cast(F, call)


def _remember(result: CallResult, call: MakingCall) -> None:
    """Let the result of a call remember it, unless it is itself an argument, or no argument is one of the objects that remember.

    The outermost call is the last to be remembered, and so the one that the user wrote.
    """
    values = (call.target, *call.args, *call.keywords.values())
    if any(isinstance(value, CallResult) for value in values) and not any(value is result for value in values):
        # some of these objects are frozen
        object.__setattr__(result, "made_by", call)


def _nearest_keyword(name: str, names: tuple[str, ...]) -> str:
    """Return a hint at streamq's name for a keyword of PySpark or pandas, or else at the nearest name; "" if none is near."""
    same = next((ours for ours in _OF_OTHER_NAMES.get(name, ()) if ours in names), None)
    return nearest(name, names) if same is None else f"Did you mean {same!r}?"
