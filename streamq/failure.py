"""From Spark's exceptions to ours: the sentence a worker raised, found in whatever Spark wrapped around it."""

from __future__ import annotations

import re

from streamq import errors
from streamq.errors import QueryFailed, StreamqError, sentence

_OURS = re.compile(r"streamq\.errors\.(\w+): ([^\n]+)")
_BATCH = re.compile(r"\[streamq\] ([^\n\"]+)")


def translated(error: BaseException) -> StreamqError:
    """The streamq error behind a Spark exception; QueryFailed with Spark's first line if there is none."""
    text = str(error)
    if found := _OURS.search(text):
        kind = getattr(errors, found.group(1), StreamqError)
        return kind(found.group(2).strip())
    if found := _BATCH.search(text):
        message = found.group(1).split(" SQLSTATE")[0].strip().rstrip("'")
        return errors.InvalidEvent(message if message.endswith(".") else message + ".")
    lines = [line for line in text.splitlines() if line.strip()]
    return QueryFailed(
        sentence(
            "query",
            "it ended with an error",
            lines[0][:500] if lines else type(error).__name__,
            "Spark's own report is the cause of this error.",
        )
    )
