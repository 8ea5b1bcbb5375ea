"""Spark's exceptions translated: our own sentence, else what the user's function raised, else Spark's first line."""

from __future__ import annotations

import pytest

from streamq.errors import LateEvent, QueryFailed
from streamq.failure import translated

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


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("x\nstreamq.errors.LateEvent: source s: 2 late item(s).\ny", LateEvent, "source s: 2 late item(s)."),
        (SINK, QueryFailed, "query: the sink's function failed; OSError: disk full. Spark's own report is the cause"),
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
