"""From Spark's exceptions to ours: the sentence a worker raised, found in whatever Spark wrapped around it."""

from __future__ import annotations

import re

from streamq import errors
from streamq.errors import QueryFailed, StreamqError, sentence

_OURS = re.compile(r"streamq\.errors\.(\w+): ([^\n]+)")
_BATCH = re.compile(r"\[streamq\] ([^\n\"]+)")
_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+[^\n]*\n)*(\S[^\n]*)")
"""A Python traceback, and the exception below it."""


def translated(error: BaseException) -> StreamqError:
    """The streamq error behind a Spark exception; else QueryFailed with the Python exception behind it, or Spark's first line."""
    text = str(error)
    if found := _OURS.search(text):
        kind = getattr(errors, found.group(1), StreamqError)
        return kind(found.group(2).strip())
    if found := _BATCH.search(text):
        message = found.group(1).split(" SQLSTATE")[0].strip().rstrip("'")
        return errors.InvalidEvent(message if message.endswith(".") else message + ".")
    lines = [line for line in text.splitlines() if line.strip()]
    raised = _PYTHON.findall(text)
    return QueryFailed(
        sentence(
            "query",
            "the sink's function failed" if "[FOREACH_BATCH_USER_FUNCTION_ERROR]" in text else "it ended with an error",
            (raised or lines or [type(error).__name__])[-1 if raised else 0][:500],
            "Spark's own report is the cause of this error.",
        )
    )


def not_started(error: BaseException) -> StreamqError:
    """What Spark says of a query that it does not start; a Java exception that it did not translate has a line of its own."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    told = next((line[2:] for line in lines if line.startswith(": ")), lines[0] if lines else type(error).__name__)
    hint = "Look at the sink, its options, and the checkpoint."
    return QueryFailed(sentence("run", "Spark does not start the query", told[:500], hint))
