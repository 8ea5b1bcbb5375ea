"""Sinks are handed over in a migration: a micro-batch that the old run planned and did not commit counts if all sinks have it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamq.errors import CheckpointError
from streamq.run.run_options import BY_MICRO_BATCH, IN_SPARKS_LOG, RunOptions
from streamq.run.storage.checkpoint import Checkpoint
from streamq.run.storage.migrate import VERB, _Migrator
from tests.mutation.faults import Edit, Fault
from tests.runtime.test_identity import MINE

OUT_ONLY, LATE_ONLY = (
    "only some sinks have its rows; found it in out. Delete it there, streamq_batch=1",
    "found it in late.",
)
IN_OUT, IN_COMPACTED_OUT = "out/_spark_metadata/1", "out/_spark_metadata/1.compact"
WRITING, IN_LATE = "late/streamq_batch=1/part", "late/streamq_batch=1/_SUCCESS"
CASES: tuple[tuple[tuple[str, ...], int | str], ...] = (
    ((), 0),
    ((WRITING,), 0),
    ((IN_OUT,), OUT_ONLY),
    ((IN_OUT, WRITING), OUT_ONLY),
    ((WRITING, IN_LATE), LATE_ONLY),
    ((IN_OUT, IN_LATE), 1),
    ((IN_COMPACTED_OUT, IN_LATE), 1),
)
"""Files that the old run has left in its sinks, and the last micro-batch that counts as done, or the text of an error."""


def mistake(name: str, old: str, new: str) -> Fault:
    return Fault(name, "", (Edit("run/storage/migrate.py", old, new),))


MISTAKES = (
    (0, 1, mistake("the plan is enough", "planned > upto and self._is_written(stored, planned)", "planned > upto")),
    (5, 0, mistake("only commits count", "planned > upto and self._is_written(stored, planned)", "planned < upto")),
    (2, 1, mistake("one sink is enough", "if has_rows and all(", "if has_rows and any(")),
    (1, LATE_ONLY, mistake("rows may be incomplete", "/streamq_batch={number}/_SUCCESS", "/streamq_batch={number}")),
    (6, LATE_ONLY, mistake("the compacted log is not read", "{log}.compact", "{log}")),
)
"""Each with the number of a case, and the answer that it then has instead."""


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    """A folder with the checkpoint of a run into two sinks that was killed before Spark committed micro-batch 1."""
    sinks = ((tmp_path / "out", f"final rows, {IN_SPARKS_LOG}"), (tmp_path / "late", f"late rows, {BY_MICRO_BATCH}"))
    Checkpoint(spark, str(tmp_path / "old")).mark(replace(MINE, folders=tuple((str(f), form) for f, form in sinks)))
    (tmp_path / "old/streamq/control").mkdir()
    touch(tmp_path, "old/commits/0", "old/offsets/0", "old/offsets/1")
    return tmp_path


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        # Spark does not list an empty file
        (folder / name).write_text("v1")


def point(spark: SparkSession, folder: Path, number: int) -> int | str:
    """The point to which a migration goes in a case, or the message of the error."""
    for sink in ("out", "late"):
        shutil.rmtree(folder / sink, ignore_errors=True)
    touch(folder, *CASES[number][0])
    options = RunOptions(verb=VERB, results=())
    try:
        return _Migrator(spark, options, str(folder / "old"), str(folder / "new"))._point()[1]
    except CheckpointError as error:
        return str(error).replace(f"{folder}/", "")


def is_as_expected(answer: int | str, expected: int | str) -> bool:
    return expected in answer if isinstance(answer, str) and isinstance(expected, str) else answer == expected


def test_a_micro_batch_that_was_not_committed_is_left_to_the_new_run_unless_all_sinks_have_its_rows(
    spark: SparkSession, folder: Path
) -> None:
    for number, (_, expected) in enumerate(CASES):
        assert is_as_expected(point(spark, folder, number), expected), CASES[number]


def test_mistakes_in_the_handover_are_seen(spark: SparkSession, folder: Path) -> None:
    for number, wrong, fault in MISTAKES:
        with fault.in_place():
            assert is_as_expected(point(spark, folder, number), wrong), fault.name
        assert not is_as_expected(wrong, CASES[number][1])
