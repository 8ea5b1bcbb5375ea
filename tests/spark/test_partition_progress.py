"""Progress per partition on Spark: kept in the checkpoint, held back by one device, which why() names, until that is idle."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import SparkSession

import streamq as sq
from streamq import testing as t
from streamq.testing.backends import land, stream

COLUMNS = "at bigint, device string, zone double"
NAN = float("nan")


def test_a_device_holds_progress_back_until_it_is_idle(spark: SparkSession, plain: None, tmp_path: Path) -> None:
    def query(idle_after: str | None) -> sq.Stream:
        progress = sq.generate(2, per=["device", "zone"], idle_after=idle_after)
        rows = stream(spark, tmp_path / "cars", t.table(COLUMNS, []).schema)
        cars = sq.points(rows, time="at", name="cars", progress=progress)
        return cars.tumbling_window(10).select(n=sq.count())

    def starts() -> list[int]:
        return sorted(row.start for row in spark.read.parquet(str(tmp_path / "out")).select("start").collect())

    where = {"sink": str(tmp_path / "out"), "checkpoint": str(tmp_path / "checkpoint"), "buckets": 2}
    # one file a micro-batch; all NaNs are one zone, all NULLs one device
    files = [
        [(12, "a", 1.0), (33, "b", NAN), (35, None, 2.0)],
        [(70, "b", -NAN), (90, None, 2.0)],
    ]
    land(tmp_path / "cars", [t.table(COLUMNS, rows) for rows in files])
    run = query(None).run(**where, trigger="available_now")
    assert run.metrics["sources"]["cars"]["cti"] == 10 and starts() == []
    wait = run.why().to_dict()["waits"][-1]
    assert (wait["partition"], wait["partition_cti"]) == ("device='a', zone=1.0", 10)
    # the state lasts: of all three devices in this run only a brings more
    land(tmp_path / "cars", [t.table(COLUMNS, [(41, "a", 1.0)])], first=len(files))
    run = query(None).run(**where, trigger="available_now")
    assert run.metrics["sources"]["cars"]["cti"] == 39 and starts() == [10]
    # long enough that a slow micro-batch makes nobody else idle
    with query("8 seconds").run(**where) as run:
        land(tmp_path / "cars", [t.table(COLUMNS, [(72, "b", NAN), (95, None, 2.0)])], first=len(files) + 1)
        run.process_all_available()
        assert run.metrics["sources"]["cars"]["cti"] == 39
        until, at = time.monotonic() + 120, 96
        while time.monotonic() < until and run.metrics["sources"]["cars"]["cti"] < 70:
            # b and NULL go on, so the source is not silent
            rows = [(72, "b", NAN), (at, None, 2.0)]
            land(tmp_path / "cars", [t.table(COLUMNS, rows)], first=at)
            run.process_all_available()
            at += 1
        assert run.metrics["sources"]["cars"]["cti"] == 70, "a is idle"
        assert "furthest behind is device='b', zone=nan, with CTI 70" in str(run.why())
        assert starts() == [10, 30, 40]
        assert run.late["cars|dropped"] == 0
