"""Calls of verbs and functions: an unknown keyword is an error that lists the known ones; errors are shown at the user's line.

What a call makes of streams remembers the call, so that the program that made it can be written.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from streamq.errors import PlanError, StreamqError, nearest, users_frames

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
                hint = advice(name) or _nearest(name, names)
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


def _nearest(name: str, names: tuple[str, ...]) -> str:
    """Return a hint at streamq's name for a keyword of PySpark or pandas, or else at the nearest name; "" if none is near."""
    same = next((ours for ours in _OF_OTHER_NAMES.get(name, ()) if ours in names), None)
    return nearest(name, names) if same is None else f"Did you mean {same!r}?"
