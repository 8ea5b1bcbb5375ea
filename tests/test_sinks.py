"""Sinks: which argument asks for which, what each says of itself, and what a run must give it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import PlanError
from streamq.run.sink_arguments import sink_of
from streamq.run.storage.raw_files import RawFolder, folder_name, in_url, local_path, path_of_url
from streamq.runtime.arrow.values import DAY, YEAR_10000


@pytest.mark.parametrize(
    ("argument", "kind", "is_lasting", "folders", "takes_micro_batches"),
    [
        (None, "NoopSink", False, [], True),
        ("noop", "NoopSink", False, [], True),
        ("console", "ConsoleSink", False, [], False),
        ("memory", "MemorySink", False, [], False),
        ("a/out", "DataSourceSink", True, ["a/out"], True),
        ({"path": "a/out"}, "DataSourceSink", True, ["a/out"], True),
        ({"format": "CSV", "path": "a/out"}, "DataSourceSink", True, ["a/out"], True),
        ({"format": "delta", "path": "a/out"}, "DataSourceSink", True, [], False),
        ({"format": "kafka", "topic": "t"}, "DataSourceSink", True, [], False),
        (print, "FunctionSink", False, [], True),
        (sq.kafka("host:9092", "rows"), "KafkaSink", True, [], True),
        (sq.merge_into("delta", "a/out"), "DeltaSink", True, [], True),
        (sq.postgres("host=db", "rows"), "PostgresSink", True, [], True),
    ],
)
def test_an_argument_asks_for_one_kind(
    argument: Any, kind: str, is_lasting: bool, folders: list[str], takes_micro_batches: bool
) -> None:
    sink = sink_of(argument, "run")
    assert type(sink).__name__ == kind
    assert (sink.is_lasting, list(sink.folders), sink.takes_micro_batches) == (is_lasting, folders, takes_micro_batches)


def test_times_are_written_to_the_microsecond() -> None:
    """In text Spark would cut them to milliseconds; what the user says goes first."""
    for argument in (sq.files("out", format="csv"), {"format": "JSON", "path": "out"}):
        assert sink_of(argument, "run").options["timestampFormat"] == "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"  # type: ignore[attr-defined]
    own = sink_of(sq.files("out", format="csv", timestampFormat="yyyy"), "run")
    assert own.options["timestampFormat"] == "yyyy"  # type: ignore[attr-defined]
    assert "timestampFormat" not in sink_of(sq.files("out"), "run").options  # type: ignore[attr-defined]


def test_what_is_no_sink() -> None:
    with pytest.raises(
        PlanError,
        match="run: not a sink; found 5. Give a path, sq.files\\(...\\), sq.kafka\\(...\\), sq.merge_into\\(...\\), ",
    ):
        sink_of(5, "run")


def test_the_memory_sink_needs_a_name_and_cannot_be_started_twice() -> None:
    memory = sink_of("memory", "run")
    with pytest.raises(PlanError, match="run: the memory sink needs a name. Give name='...'"):
        memory.check("run", name=None, finish=False)
    with pytest.raises(PlanError, match="run: finish=True with the memory sink"):
        memory.check("run", name="t", finish=True)
    memory.check("run", name="t", finish=False)


def test_the_memory_sinks_newest_rows_are_the_last_of_its_table() -> None:
    """Whichever micro-batch wrote them: the table does not say. A row arrives after the others have been counted."""
    rows = pa.table({"at": pa.array([YEAR_10000 * DAY + n for n in range(5)], pa.timestamp("us"))})
    after = {"offset": lambda first: SimpleNamespace(toArrow=lambda: rows.slice(first)), "count": lambda: 4}
    spark: Any = SimpleNamespace(table={"t": SimpleNamespace(**after)}.__getitem__)
    memory = sink_of("memory", "run")
    texts = [f"+10000-01-01 00:00:00.00000{n}" for n in (3, 4)]
    assert memory.newest_rows(spark, "t", 7, 2) == [{"at": text} for text in texts]
    assert memory.newest_rows(spark, None, 7, 2) is None


def test_a_path_with_a_scheme_is_no_url_and_no_relative_path() -> None:
    assert folder_name("file:/a/b/") == "file:/a/b" and folder_name("a/../b/") == folder_name("b")
    for path in ("file:/a#b/50%41 c?d", "file:///a#b/50%41 c?d", "/a#b/50%41 c?d"):
        assert local_path(path) == Path("/a#b/50%41 c?d")
        assert RawFolder.from_path(path, "migrate").path == "/a#b/50%41 c?d"
    assert local_path("s3://bucket/a") is None and local_path("file://host/a") is None
    assert path_of_url("file:///a%23b/50%2541%20c") == Path("/a#b/50%41 c") and path_of_url("s3://bucket/a") is None
    assert in_url("/a#b/50%41 cé") == "/a%23b/50%2541%20cé"
