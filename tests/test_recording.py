"""``run.sample()`` without Spark: its limits, and what a recording leaves behind."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamq.errors import PlanError
from streamq.run import recording


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

    monkeypatch.setattr(recording, "_wide_rows", lambda sources: Stream())
    spark: Any = SimpleNamespace(table=lambda view: Stream(), catalog=SimpleNamespace(dropTempView=views.remove))
    with pytest.raises(TimeoutError):
        recording.record(spark, {}, f"file:{checkpoint}", rows=1, seconds=1, to_end=False)
    assert not checkpoint.exists() and tmp_path.exists() and views == set()


@pytest.mark.parametrize(
    ("rows", "seconds"), [(0, 1), (True, 1), (1.5, 1), (1, 0), (1, True), (1, "1s"), (1, float("nan"))]
)
def test_limits_are_positive_numbers(rows: Any, seconds: Any) -> None:
    with pytest.raises(PlanError, match="sample: (rows is a whole number of at least 1|seconds is a positive number)"):
        recording.check_limits(rows, seconds)
