"""Translate Spark's exceptions to streamq's: extract the error that a worker raised from what Spark wrapped around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamq import errors
from streamq.errors import QueryFailed, StreamqError

_OURS = re.compile(r"(?:^|\[USER_RAISED_EXCEPTION\] )streamq\.errors\.(\w+): ([^\n]*)", re.MULTILINE)
"""Matches an error of streamq that was raised: the last line of a traceback, or Spark's exception from raise_error.

Its text is in plans, too, which Spark shows in errors of its own; there it is a literal inside a call.
"""
_CODES = re.compile(r"(?: SQLSTATE: \w+)+$")
"""Matches what Spark adds to the message of an exception."""
_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+[^\n]*\n)*(\S[^\n]*)")
"""Matches a Python traceback and the exception below it."""
_CAUSE = re.compile(r"^\s*Caused by: ([^\n]+)", re.MULTILINE)
_NAMED = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
"""Matches the name at the beginning of Spark's named messages."""
_STREAM = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")

_NOTE = "streamq: raised in "
"""The beginning of the note on an exception from a sink, by which it is known when Spark has made another exception of it."""

_SINK = re.compile(rf"^{_NOTE}([^\n]+)$", re.MULTILINE)

_FRAME = re.compile(r"^\s+at (\S+)\(", re.MULTILINE)
"""Matches a line of a Java stack trace."""
_READS = re.compile(
    r"\.FileScanRDD|\.FileSourceScanExec|\.datasources\.v2\.(?:PartitionIterator|DataSourceRDD|\w*ScanExec)"
    r"|\.MicroBatchExecution\.\S*constructNextBatch"
)
"""Matches the calls in which Spark reads a source's rows, or asks it for offsets; nothing is computed inside of them."""
_WRITES = re.compile(
    r"\.datasources\.(?:\w+\.)*\w*(?:Writ|Output|Commit)\w*|\.FileStreamSink|\.ManifestFileCommitProtocol"
)
"""Matches calls in which Spark writes rows; a row is computed inside of them, by calls of its own."""

REPORT = "Spark's own report is the attribute report of this error."

INSTALL = "Install it where the workers are; docs/cluster.md says which code travels with a query."
"""The hint for code that imports what a worker does not have."""


def is_sparks(error: BaseException) -> bool:
    """True for exceptions from PySpark: its own, untranslated ones of Java, and those of its connections."""
    from pyspark.errors import PySparkException

    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, PySparkException | ConnectionError) or not packages.isdisjoint({"py4j", "grpc"})


@contextmanager
def spark_errors(
    verb: str, wrong: str = "", hint: str = REPORT, kind: type[StreamqError] = QueryFailed
) -> Iterator[None]:
    """Translate Spark's exceptions to streamq's, as a context manager or a decorator; others pass.

    The new error is the one that streamq raised in a worker, if any, else one of the class ``kind``, worded by ``verb``,
    ``wrong``, by default the phase that failed, and ``hint``. Spark's exception becomes its ``report`` and not its cause, because
    Python would print a hundred lines of Java above the line that matters.
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
    wrong: str = "",
    hint: str = REPORT,
    kind: type[StreamqError] = QueryFailed,
) -> StreamqError:
    """Return the streamq error within a Spark exception, else a new one with the reason; its ``report`` is the exception.

    A new one is of class ``kind``; ``verb``, ``wrong`` and ``hint`` word it, unless a sink has failed.
    """
    text = str(error)
    if ours := _OURS.search(text):
        own: type[StreamqError] = getattr(errors, ours.group(1), StreamqError)
        read = own(_CODES.sub("", ours.group(2)).strip())
    else:
        if places := _SINK.findall(text):
            # of a function among several sinks, the outermost note is last
            verb, wrong, hint = "query", f"{places[-1]} failed", REPORT
        why = reason(error)
        read = kind(verb, wrong or _phase(error), why, INSTALL if why.startswith("ModuleNotFoundError") else hint)
    read.report = error
    return read


def is_slow_worker(error: BaseException) -> bool:
    """True if a Python process that Spark started has not connected to it in time, which has nothing to do with the query."""
    return any("Python worker failed to connect back" in text for text in _texts(error))


@contextmanager
def raised_in_sink(sink: str) -> Iterator[None]:
    """Note on exceptions that a sink raised them; ``sink`` names it.

    Only errors of writing belong inside: rows that are computed there would blame the sink for their errors.
    """
    try:
        yield
    except Exception as error:
        error.add_note(f"{_NOTE}{sink}")
        raise


def _phase(error: BaseException) -> str:
    """Return the phase of a run that an exception of Spark's ended, by the calls in which its first cause was raised."""
    calls = _calls(error)
    if any(_READS.search(call) for call in calls):
        return "reading a source failed"
    innermost = next((call for call in calls if call.startswith("org.apache.spark.")), "")
    return "writing into the sink failed" if _WRITES.search(innermost) else "it ended with an error"


def _calls(error: BaseException) -> list[str]:
    """Return the calls on Java's stack, the innermost first: those of the first cause, then those of what wraps it."""
    causes = [cause for text in _texts(error) for cause in text.split("Caused by: ")]
    return [call for cause in reversed(causes) for call in _FRAME.findall(cause)]


def _texts(error: BaseException) -> list[str]:
    """Return what an exception of Spark's and its causes say, with Java's stack traces."""
    texts = [str(error)]
    raised: Any = error
    while raised is not None:
        # PySpark keeps the stack beside the message: in Spark Connect the whole one, else that of each cause
        texts.append(getattr(raised, "_stackTrace", None) or getattr(raised, "_stacktrace", None) or "")
        raised = getattr(raised, "_cause", None)
    return texts


def reason(error: BaseException) -> str:
    """Return the reason for a Spark exception, at most 500 characters.

    This is the Python exception in it, else Spark's message if it has a name, with Java's first cause if that is another, else
    this cause.
    """
    text = str(error)
    raised = [line for line in _PYTHON.findall(text) if not line.startswith("py4j.")]
    if raised:
        return str(raised[-1])[:500]
    lines = [line for line in text.splitlines() if line.strip()]
    # Py4J's message begins with the call that failed
    message = next((line[2:] for line in lines if line.startswith(": ")), lines[0] if lines else type(error).__name__)
    message = _CODES.sub("", _STREAM.sub("", message))
    causes = [cause for said in _texts(error) for cause in _CAUSE.findall(said)]
    if not causes:
        return message[:500]
    cause = _CODES.sub("", causes[-1])
    if not _NAMED.search(message):
        return cause[:500]
    # a cause that has a name is of Spark's, too, and says the same in other words
    is_new = not _NAMED.search(cause) and cause.partition(": ")[2] not in message
    return f"{message[:300].removesuffix('.')}; {cause}"[:500] if is_new else message[:500]
