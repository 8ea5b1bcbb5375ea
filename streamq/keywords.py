"""Calls of verbs and functions: an unknown keyword is an error that lists the known ones; errors are shown at the user's line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from streamq.errors import PlanError, StreamqError, nearest, sentence, users_frames

F = TypeVar("F", bound=Callable[..., Any])

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

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        for name in keywords:
            if not has_any and name not in names:
                there = f"there are: {', '.join(names)}" if names else "there are none"
                hint = advice(name) or _nearest(name, names)
                raise PlanError(sentence(function.__name__, f"no parameter {name!r}", there, hint))
        try:
            return function(*args, **keywords)
        except StreamqError as error:
            error.__traceback__ = users_frames(error.__traceback__)
            raise

    return cast(F, call)


def _nearest(name: str, names: tuple[str, ...]) -> str:
    """Return a hint at streamq's name for a keyword of PySpark or pandas, or else at the nearest name; "" if none is near."""
    same = next((ours for ours in _OF_OTHER_NAMES.get(name, ()) if ours in names), None)
    return nearest(name, names) if same is None else f"Did you mean {same!r}?"


__all__ = ["check_keywords"]
