"""Spark's exceptions translated: our own sentence, else what a function raised, else Spark's named message or the first cause."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from streamq.errors import CheckpointError, InvalidEvent, LateEvent, ModuleFailed, QueryFailed
from streamq.run.failure import SINK_NOTE, spark_errors, translated

SINK = """[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in \
the user provided function in foreach batch sink. Reason: An exception was raised by the Python Proxy. Return Message: \
Traceback (most recent call last):
  File "pyspark/sql/utils.py", line 163, in call
    self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)
  File "job.py", line 32, in put
    raise ValueError("no room")
ValueError: no room

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "job.py", line 34, in put
    raise OSError("disk full")
OSError: disk full
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
"""


CALLED = """An error occurred while calling o623.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:1)
Caused by: java.io.IOException: Mkdirs failed
\tat org.apache.hadoop.fs.FileSystem.create(FileSystem.java:1)
"""


PLANNED = """[UNRESOLVED_COLUMN] A column `v` cannot be resolved. SQLSTATE: 42703;
'Project [CASE WHEN isnull(call(v#7L)#8.error) THEN call(v#7L)#8.value ELSE cast(raise_error(USER_RAISED_EXCEPTION, \
map(errorMessage, concat(streamq.errors.ModuleFailed: , call(v#7L)#8.error)), NullType) as string) END AS g#9]
"""
RAISED = (
    "[USER_RAISED_EXCEPTION] streamq.errors.ModuleFailed: f: it failed; KeyError: 3; of v = 3. SQLSTATE: P0001\nmore"
)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (PLANNED, QueryFailed, "query: it ended with an error; [UNRESOLVED_COLUMN] A column `v` cannot be resolved."),
        (RAISED, ModuleFailed, "f: it failed; KeyError: 3; of v = 3."),
        ("x\nstreamq.errors.LateEvent: source s: 2 late item(s).\ny", LateEvent, "source s: 2 late item(s)."),
        (
            SINK,
            QueryFailed,
            "query: the sink's function failed; OSError: disk full. Spark's own report is the attribute",
        ),
        (CALLED, QueryFailed, "query: it ended with an error; java.io.IOException: Mkdirs failed. Spark's own"),
        (
            CALLED.replace("Job aborted", "[NOT_THERE] no format"),
            QueryFailed,
            "query: it ended with an error; org.apache.spark.SparkException: [NOT_THERE] no format due to stage failure. S",
        ),
        (
            SINK.replace("OSError: disk full", f"py4j.protocol.Py4JJavaError: {CALLED}").replace(
                "ValueError: no", "py4j.no"
            ),
            QueryFailed,
            "query: the sink's function failed; java.io.IOException: Mkdirs failed. Spark's own",
        ),
        (
            SINK + SINK_NOTE.format(2, 3),
            QueryFailed,
            "query: the sink of result 2 failed; OSError: disk full. Spark's own",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [BROKEN] no such thing",
            QueryFailed,
            "query: it ended with an error; [BROKEN] no such thing. Spark's own",
        ),
        (
            "[BROKEN] no such thing\nmore",
            QueryFailed,
            "query: it ended with an error; [BROKEN] no such thing. Spark's own",
        ),
    ],
)
def test_translated(text: str, kind: type[Exception], message: str) -> None:
    found = translated(RuntimeError(text))
    assert type(found) is kind
    assert str(found).startswith(message)


def test_sparks_exceptions_become_ours_and_no_others_do() -> None:
    with (
        pytest.raises(
            CheckpointError, match=r"run: no checkpoint; java.io.IOException: Mkdirs failed. Look."
        ) as caught,
        spark_errors("run", "no checkpoint", "Look.", CheckpointError),
    ):
        raise Py4JError(CALLED)
    assert isinstance(caught.value.report, Py4JError)
    assert caught.value.__suppress_context__ and caught.value.__cause__ is None, (
        "Java is not printed above the sentence"
    )
    with pytest.raises(LateEvent, match="s: late"), spark_errors("run"):
        raise PySparkException("x\nstreamq.errors.LateEvent: s: late\n")
    for error in (ValueError("v"), InvalidEvent("i")):
        with pytest.raises(type(error)) as passed, spark_errors("run"):
            raise error
        assert passed.value is error
