"""Spark's exceptions translated: our own sentence, else what a function raised, else Spark's named message or the first cause."""

from __future__ import annotations

import traceback
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from streamq.errors import CheckpointError, InvalidEvent, LateEvent, ModuleFailed, QueryFailed
from streamq.run.failure import is_slow_worker, raised_in_sink, spark_errors, translated
from streamq.run.running import Run

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
streamq: raised in the sink's function
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
"""


CALLED = """An error occurred while calling o623.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:1)
Caused by: java.io.IOException: Mkdirs failed
\tat org.apache.hadoop.fs.FileSystem.create(FileSystem.java:1)
"""


COMPUTED = SINK.replace("OSError: disk full\nstreamq: raised in the sink's function", f"py4j.Py4JJavaError: {CALLED}")
"""Rows are computed before the sink's function is called, in a call of Spark's."""

PLANNED = """[UNRESOLVED_COLUMN] A column `v` cannot be resolved. SQLSTATE: 42703;
'Project [CASE WHEN isnull(call(v#7L)#8.error) THEN call(v#7L)#8.value ELSE cast(raise_error(USER_RAISED_EXCEPTION, \
map(errorMessage, concat(streamq.errors.ModuleFailed: , call(v#7L)#8.error)), NullType) as string) END AS g#9]
+- Project [CASE WHEN isnull(__why#9) THEN __le#8L ELSE cast(raise_error(USER_RAISED_EXCEPTION, map(errorMessage, \
concat(streamq.errors.InvalidEvent: source r: a row is no event: , __why#9)), NullType) as bigint) END AS __le#10L]
"""
READ = """[STREAM_FAILED] Query [id = 1] terminated with exception: [FAILED_READ_FILE.NO_HINT] Encountered error while reading \
file a.parquet. SQLSTATE: KD001 SQLSTATE: XXKST

JVM stacktrace:
org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.sql.execution.datasources.FileFormatWriter$.write(FileFormatWriter.scala:216)
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file a.parquet.
\tat org.apache.spark.sql.execution.datasources.FileScanRDD$$anon$1.hasNext(FileScanRDD.scala:153)
\tat org.apache.spark.sql.catalyst.expressions.GeneratedClass$GeneratedIterator.processNext(Unknown Source)
\t... 10 more
Caused by: java.lang.RuntimeException: corrupted file
\tat org.apache.parquet.hadoop.ParquetFileReader.readFooter(ParquetFileReader.java:1)
"""
OFFSETS = """[STREAM_FAILED] Query [id = 1] terminated with exception: Offsets out of range
Caused by: org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Offsets out of range
\tat org.apache.kafka.clients.consumer.internals.FetchCollector.handleInitializeErrors(FetchCollector.java:1)
\tat org.apache.spark.sql.kafka010.KafkaBatchPartitionReader.next(KafkaBatchPartitionReader.scala:1)
\tat org.apache.spark.sql.execution.datasources.v2.PartitionIterator.hasNext(DataSourceRDD.scala:1)
\tat org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask.run(WriteToDataSourceV2Exec.scala:1)
"""
WRITTEN = """[STREAM_FAILED] Query [id = 1] terminated with exception: [TASK_WRITE_FAILED] Task failed while writing rows
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\tat org.apache.spark.sql.execution.datasources.parquet.ParquetOutputWriter.write(ParquetOutputWriter.scala:1)
\tat org.apache.spark.sql.execution.datasources.FileFormatWriter$.executeTask(FileFormatWriter.scala:1)
"""
DIVIDED = """[STREAM_FAILED] Query [id = 1] terminated with exception: [DIVIDE_BY_ZERO] Division by zero
Caused by: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.divideByZeroError(QueryExecutionErrors.scala:1)
\tat org.apache.spark.sql.execution.datasources.FileFormatWriter$.executeTask(FileFormatWriter.scala:1)
"""
INVALID = (
    "[USER_RAISED_EXCEPTION] streamq.errors.InvalidEvent: source r: a row is no event: no end; first: {'k': 'a \"b\"'}. "
    'Mend the source, or say invalid="drop". SQLSTATE: P0001 SQLSTATE: XXKST'
)
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
            INVALID,
            InvalidEvent,
            "source r: a row is no event: no end; first: {'k': 'a \"b\"'}. Mend the source, or say invalid=\"drop\".",
        ),
        (
            SINK,
            QueryFailed,
            "query: the sink's function failed; OSError: disk full. Spark's own report is the attribute",
        ),
        (
            SINK.replace("function\n", "function\nstreamq: raised in the sink of result 2\n"),
            QueryFailed,
            "query: the sink of result 2 failed; OSError: disk full. Spark's own",
        ),
        (
            SINK.replace("OSError: disk full", "ModuleNotFoundError: No module named 'tariff'"),
            QueryFailed,
            "query: the sink's function failed; ModuleNotFoundError: No module named 'tariff'. Install it where",
        ),
        (CALLED, QueryFailed, "query: it ended with an error; java.io.IOException: Mkdirs failed. Spark's own"),
        (
            CALLED.replace("Job aborted", "[NOT_THERE] no format"),
            QueryFailed,
            "query: it ended with an error; org.apache.spark.SparkException: [NOT_THERE] no format due to stage failure; "
            "java.io.IOException: Mkdirs failed. Spark's own",
        ),
        (
            COMPUTED.replace("ValueError: no", "py4j.no"),
            QueryFailed,
            "query: it ended with an error; java.io.IOException: Mkdirs failed. Spark's own",
        ),
        (
            READ,
            QueryFailed,
            "query: reading a source failed; [FAILED_READ_FILE.NO_HINT] Encountered error while reading file a.parquet; "
            "java.lang.RuntimeException: corrupted file. Spark's own",
        ),
        (OFFSETS, QueryFailed, "query: reading a source failed; org.apache.kafka.clients.consumer.OffsetOutOfRange"),
        (
            WRITTEN,
            QueryFailed,
            "query: writing into the sink failed; [TASK_WRITE_FAILED] Task failed while writing rows; "
            "java.io.IOException: No space left on device. Spark's own",
        ),
        (DIVIDED, QueryFailed, "query: it ended with an error; [DIVIDE_BY_ZERO] Division by zero. Spark's own"),
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


def test_a_sink_leaves_its_name_on_what_it_raises() -> None:
    with pytest.raises(OSError) as caught, raised_in_sink("the late sink"):
        raise OSError("disk full")
    text = "".join(traceback.format_exception(caught.value))
    assert str(translated(RuntimeError(text))).startswith(
        "query: the late sink failed; OSError: disk full. Spark's own"
    )


SLOW = """[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back.
Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back
"""


class Starting:
    """A run's query, and what starts it: it fails at once, with errors in their order, until none is left."""

    def __init__(self, errors: list[Exception], *, at_start: bool, last: object = None) -> None:
        self.errors, self.at_start, self.lastProgress, self.starts = errors, at_start, last, 0

    def start(self) -> Starting:
        self.starts += 1
        if self.at_start:
            self.wait()
        return self

    def wait(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "ended"


def outcome(starting: Starting) -> str:
    """Return what a run that starts a query and waits for it raises, or returns."""
    run: Any = SimpleNamespace(_launch=starting, _is_second_start=False)
    try:
        run.query = Run._start(run)
        return Run._wait(run, lambda query: cast(Any, query).wait())
    except RuntimeError as error:
        return str(error).partition(":")[0]


@pytest.mark.parametrize("at_start", [True, False])
def test_a_python_process_that_is_slow_to_start_is_started_once_more(at_start: bool) -> None:
    slow, other = RuntimeError(SLOW), RuntimeError("other: an error")
    assert is_slow_worker(slow) and not is_slow_worker(other)
    for errors, starts, what in (
        ([], 1, "ended"), ([slow], 2, "ended"), ([slow, slow], 2, SLOW.partition(":")[0]), ([other], 1, "other"),
    ):  # fmt: skip
        starting = Starting([*errors], at_start=at_start)
        assert (outcome(starting), starting.starts) == (what, starts)
    read = Starting([slow], at_start=False, last={"batchId": 0})
    assert (outcome(read), read.starts) == (SLOW.partition(":")[0], 1), "what has been read is not read again"


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
