"""``run.sample()`` without Spark: its limits, what it keeps, and what a recording leaves behind."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streamq.errors import PlanError, TimeError
from streamq.run import samples
from streamq.run.status.run_status import RESULTS
from streamq.run.storage.files import Offsets
from streamq.runtime.arrow.columnar import decode
from streamq.screens import ProgressBar
from streamq.time import INFINITY, MINUS_INFINITY


@pytest.mark.parametrize("failing", ["start", "awaitTermination"])
def test_a_recording_leaves_nothing_behind(failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "a#b 50%41"
    (checkpoint / "sources" / "1").mkdir(parents=True)
    (checkpoint / "sources" / "1" / "0").write_text("v1")
    stopped: list[bool] = []

    class Stream:
        """Spark's stream, its writer and its query in one: its methods return it, but for one that fails."""

        isActive = False

        def __getattr__(self, method: str) -> Stream:
            if method == failing:
                raise TimeoutError
            return self

        def __call__(self, *arguments: Any, **named: Any) -> Stream:
            return self

        def option(self, name: str, path: str) -> Stream:
            if name == "checkpointLocation":
                written = sorted(str(p.relative_to(path[5:])) for p in Path(path[5:]).rglob("*") if p.is_file())
                assert written == []
                self.folder = path
            return self

        def stop(self) -> None:
            written = sorted(
                str(p.relative_to(self.folder[5:])) for p in Path(self.folder[5:]).rglob("*") if p.is_file()
            )
            assert written == ["commits/0", "metadata", "offsets/0", "offsets/1", "sources/0/0"]
            stopped.append(True)

    spark: Any = SimpleNamespace(conf={"spark.sql.shuffle.partitions": 3})
    source: Any = Stream()
    recorder = samples.Recorder(
        spark=spark, sources={"s": source}, tables=["s"], read=["the clock", "s"], checkpoint=f"file:{checkpoint}"
    )
    monkeypatch.setattr(samples.Recorder, "_rows", lambda self, most, newest: Stream())
    offsets = Offsets({"conf": {}}, {"s": "7"})
    with pytest.raises(TimeoutError):
        recorder._record([offsets], offsets, ProgressBar("sample"), 1, 1)
    assert list((checkpoint / "streamq" / "sample").iterdir()) == []
    assert stopped == [True] * (failing != "start")


def test_a_bar_shows_the_rows_and_the_time_of_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows what is nearer to its limit; the recording ends with the last row, the time, or the query."""
    shown: list[tuple[float, float | None, str]] = []
    monkeypatch.setattr(ProgressBar, "update", lambda self, *work: shown.append(work))

    def recorded(times: list[float], *rows: int) -> list[tuple[float, float | None, str]]:
        shown.clear()
        clock, reports = iter(times), iter(rows)
        read: list[Any] = []

        class Query:
            """A query that reads so many rows between two looks, and then ends."""

            isActive = property(lambda self: len(read) < len(rows))

            @property
            def recentProgress(self) -> list[Any]:
                observed = {RESULTS: {"recorded": next(reports)}}
                read.append(SimpleNamespace(json=json.dumps({"observedMetrics": observed})))
                return read

            def awaitTermination(self) -> None:
                read.append(None)

        waiting: Any = Query()
        with monkeypatch.context() as patched:
            patched.setattr(samples.time, "monotonic", lambda: next(clock))
            patched.setattr(samples, "LOOK_EVERY", 0)
            samples.wait_for_rows(waiting, ProgressBar("sample"), 1_000, 8.0)
        return list(shown)

    by_rows = recorded([5, 5, 6, 7], 0, 500, 600, 0)
    assert by_rows == [
        (0, 1, "0 of 1,000 rows, at most 8 s"),
        (0.5, 1, "500 of 1,000 rows, at most 8 s"),
        (1, 1, "1,000 of 1,000 rows, at most 8 s"),
    ]
    assert [share for share, *_ in recorded([0, 2, 6, 8], 100, 100, 100)] == [0.25, 0.75], "time is up"
    assert len(recorded([0, 2, 6], 100)) == 1, "the query has ended"


@pytest.mark.parametrize(
    ("rows", "seconds"), [(0, 1), (True, 1), (1.5, 1), (1, 0), (1, True), (1, "1s"), (1, float("nan"))]
)
def test_limits_are_positive_numbers(rows: Any, seconds: Any) -> None:
    with pytest.raises(PlanError, match="sample: (rows is a whole number of at least 1|seconds is a positive number)"):
        samples.check_limits(rows, seconds)


def test_each_source_has_an_equal_part_of_a_recording() -> None:
    """The many rows of one source, all in one micro-batch, leave room for those of the others."""
    numbers = pa.table({"v": range(1_000)})
    batches = [
        {"many": numbers},
        {"few": numbers[:10], "some": numbers[:100]},
        {"few": numbers[10:30], "some": numbers[100:200]},
    ]
    for most, parts in ((150, (60, 30, 60)), (5_000, (1_000, 30, 200)), (2, (1, 0, 1))):
        for newest in (False, True):
            shorter = samples.cut(batches, most, newest=newest)
            for name, count, there in zip(("many", "few", "some"), parts, (1_000, 30, 200), strict=True):
                taken = [v for batch in shorter if name in batch for v in batch[name]["v"].to_pylist()]
                assert taken == (list(range(there - count, there)) if newest else list(range(count)))
    assert samples.cut([], 3, newest=True) == []


@pytest.mark.parametrize("newest", [False, True])
def test_a_task_keeps_the_first_or_the_newest_rows(newest: bool) -> None:
    numbers = pa.table({"v": range(100)})
    for most in (1, 10, 25, 99, 100, 1_000):
        (row,) = samples.keep_rows(3, most, newest)(numbers.to_batches(max_chunksize=10))
        (kept,) = row.to_pylist()
        expected = range(100)[-most:] if newest else range(100)[:most]
        assert (kept["source"], kept["rows"]) == (3, len(expected))
        assert decode(kept["body"])["v"].to_pylist() == list(expected)
    assert not list(samples.keep_rows(3, 5, newest)(numbers[:0].to_batches()))


def test_instants_between_are_a_pair() -> None:
    assert samples.instants_between(None, "integer") is None
    assert samples.instants_between((3, None), "integer") == (3, INFINITY)
    assert samples.instants_between([None, dt.datetime(1970, 1, 1, 0, 0, 1)], "timestamp") == (
        MINUS_INFINITY,
        1_000_000,
    )
    for wrong in (3, (1,), "ab", (1, 2, 3)):
        with pytest.raises(PlanError, match="sample: between is two instants; found"):
            samples.instants_between(wrong, "integer")
    with pytest.raises(TimeError, match="sample: an instant that does not fit the time axis"):
        samples.instants_between((1, 2), "timestamp")
