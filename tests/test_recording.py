"""``run.sample()`` without Spark: its limits, and what a recording leaves behind."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streamq.errors import PlanError
from streamq.run import recording
from streamq.screens import ProgressBar


@pytest.mark.parametrize("failing", ["start", "stop"])
def test_a_recording_leaves_neither_its_checkpoint_nor_its_view(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, views = tmp_path / "a#b 50%41", set()

    class Stream:
        """Spark's stream, its writer and its query in one: its methods return it, but for one that fails."""

        isActive = False

        def start(self) -> Stream:
            (checkpoint / "offsets").mkdir(parents=True)
            if failing == "start":
                raise TimeoutError
            views.add(self.name)
            return self

        def stop(self) -> None:
            raise TimeoutError

        def queryName(self, name: str) -> Stream:
            self.name = name
            return self

        def __getattr__(self, method: str) -> Stream:
            return self

        def __call__(self, *arguments: Any, **named: Any) -> Stream:
            return self

    monkeypatch.setattr(recording, "_wide_rows", lambda sources, most: Stream())
    spark: Any = SimpleNamespace(table=lambda view: Stream(), catalog=SimpleNamespace(dropTempView=views.remove))
    with pytest.raises(TimeoutError):
        recording.record(spark, {}, f"file:{checkpoint}", rows=1, seconds=1, to_end=False)
    assert not checkpoint.exists() and tmp_path.exists() and views == set()


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
                read.append(SimpleNamespace(numInputRows=next(reports)))
                return read

            def awaitTermination(self) -> None:
                read.append(None)

        waiting: Any = Query()
        with monkeypatch.context() as patched:
            patched.setattr(recording.time, "monotonic", lambda: next(clock))
            patched.setattr(recording, "LOOK_EVERY", 0)
            recording._wait(waiting, ProgressBar("sample"), 1_000, 8.0)
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
        recording.check_limits(rows, seconds)


def test_each_source_has_an_equal_part_of_a_recording() -> None:
    """The many rows of one source, all in the first micro-batch, leave room for those of the others."""
    times = [1] * 1_000 + [2] * 30 + [2] * 200
    columns = [
        [{"v": n} if low <= n < high else None for n in range(1_230)]
        for low, high in ((0, 1_000), (1_000, 1_030), (1_030, 1_230))
    ]
    kind = pa.struct([("v", pa.int64())])
    table = pa.table({recording.BATCH: times, **{f"s{n}": pa.array(rows, kind) for n, rows in enumerate(columns)}})
    for most, parts in ((150, (60, 30, 60)), (5_000, (1_000, 30, 200)), (2, (1, 0, 1))):
        batches = list(recording._micro_batches(table, ["many", "few", "some"], most))
        taken = {
            name: [v for batch in batches if name in batch for v in batch[name].column("v").to_pylist()]
            for name in ("many", "few", "some")
        }
        assert tuple(map(len, taken.values())) == parts
        assert [rows[:1] for rows in taken.values()] == [
            [first] * (n > 0) for first, n in zip((0, 1_000, 1_030), parts, strict=True)
        ]
