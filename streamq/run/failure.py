"""Translate Spark's exceptions to streamq's: extract the error that a worker raised from what Spark wrapped around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from streamq import errors
from streamq.errors import QueryFailed, StreamqError, sentence
from streamq.runtime.kernel import MEND_THE_SOURCE

_OURS = re.compile(r"(?<![(\w.])streamq\.errors\.(\w+): ([^\n,][^\n]*)")
"""Matches an error of streamq in a traceback or from Spark's raise_error, but not in a literal, which follows a bracket."""
_BATCH = re.compile(r"\[streamq\] ([^\n\"]+)")
_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+[^\n]*\n)*(\S[^\n]*)")
"""Matches a Python traceback and the exception below it."""
_CAUSE = re.compile(r"^\s*Caused by: ([^\n]+)", re.MULTILINE)
_NAMED = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
"""Matches the name at the beginning of Spark's named messages."""
_STREAM = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")

SINK_NOTE = "in the sink of result {} of {}"
"""The note on an exception from one of several sinks."""

_SINK = re.compile(SINK_NOTE.format(r"(\d+)", r"\d+"))

REPORT = "Spark's own report is the attribute report of this error."


def is_sparks(error: BaseException) -> bool:
    """True for exceptions from PySpark: its own, untranslated ones of Java, and those of its connections."""
    from pyspark.errors import PySparkException

    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, PySparkException | ConnectionError) or not packages.isdisjoint({"py4j", "grpc"})


@contextmanager
def spark_errors(
    verb: str, wrong: str = "it ended with an error", hint: str = REPORT, kind: type[StreamqError] = QueryFailed
) -> Iterator[None]:
    """Translate Spark's exceptions to streamq's, as a context manager or a decorator; others pass.

    The new error is the one that streamq raised in a worker, if any, else one of the class ``kind``, worded by ``verb``,
    ``wrong`` and ``hint``. Spark's exception becomes its ``report`` and not its cause, because Python would print a hundred lines
    of Java above the line that matters.
    """
    try:
        yield
    except Exception as error:
        if not is_sparks(error):
            raise
        raise translated(error, verb, wrong, hint, kind) from None


def translated(
    error: BaseException,
    verb: str = "query",
    wrong: str = "it ended with an error",
    hint: str = REPORT,
    kind: type[StreamqError] = QueryFailed,
) -> StreamqError:
    """Return the streamq error within a Spark exception, else a new one with the reason; its ``report`` is the exception."""
    read = _read(error, verb, wrong, hint, kind)
    read.report = error
    return read


def _read(error: BaseException, verb: str, wrong: str, hint: str, kind: type[StreamqError]) -> StreamqError:
    """Return the error of streamq for a Spark exception: one from a worker, an invalid event, a failed sink, or the reason.

    A failed sink and any other reason make an error of class ``kind``; ``verb``, ``wrong`` and ``hint`` word the latter.
    """
    text = str(error)
    if ours := _OURS.search(text):
        own: type[StreamqError] = getattr(errors, ours.group(1), StreamqError)
        return own(ours.group(2).partition(" SQLSTATE")[0].strip())
    if refused := _BATCH.search(text):
        message = refused.group(1).split(" SQLSTATE")[0].strip().rstrip("'")
        return errors.InvalidEvent(f"{message.removesuffix('.')}. {MEND_THE_SOURCE}")
    if "[FOREACH_BATCH_USER_FUNCTION_ERROR]" in text:
        place = _SINK.search(text)
        which = f"the sink of result {place.group(1)} failed" if place else "the sink's function failed"
        verb, wrong, hint = "query", which, REPORT
    return kind(sentence(verb, wrong, reason(error), hint))


def reason(error: BaseException) -> str:
    """Return the reason for a Spark exception, at most 500 characters.

    This is the Python exception in it, else Spark's message if it has a name, else Java's first cause.
    """
    text = str(error)
    raised = [line for line in _PYTHON.findall(text) if not line.startswith("py4j.")]
    if raised:
        return str(raised[-1])[:500]
    lines = [line for line in text.splitlines() if line.strip()]
    # Py4J's message begins with the call that failed
    message = next((line[2:] for line in lines if line.startswith(": ")), lines[0] if lines else type(error).__name__)
    message = _STREAM.sub("", message)
    causes = [] if _NAMED.search(message) else _CAUSE.findall(text)
    return str(causes[-1] if causes else message)[:500]
