"""A query that changes goes on from its checkpoint on Spark, or is migrated: into more stages, other buckets, and if killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import streamq as sq
from streamq.errors import CheckpointError, StreamqWarning
from streamq.testing.backends import land, stream
from tests.spark.replay import bag
from tests.spark.test_kill import started

SCHEMA = pa.schema([("start", pa.int64()), ("end", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
ROWS = [(i, i + 3, "xy"[i // 2 % 2], i) for i in range(0, 60, 2)]
FILES = 6
SOAK = bool(os.environ.get("STREAMQ_SOAK"))


def table(first: int, end: int) -> pa.Table:
    """Files number ``first`` to ``end`` as one table."""
    size = len(ROWS) // FILES
    columns = zip(*ROWS[first * size : end * size], strict=True)
    return pa.table([pa.array(values) for values in columns], schema=SCHEMA)


def arrive(folder: Path, first: int, end: int) -> None:
    land(folder / "in", [table(number, number + 1) for number in range(first, end)], first)


def stays(spark: SparkSession, folder: Path) -> sq.Stream:
    return sq.intervals(stream(spark, folder / "in", SCHEMA), "start", "end", name="stays", progress=sq.generate(2))


def counted(s: sq.Stream, size: int = 10) -> sq.Stream:
    return s.group_by("k").tumbling_window(size).select(n=sq.count(), most=sq.max("v"))


def totals(s: sq.Stream) -> sq.Stream:
    return counted(s).snapshot_window().select(n=sq.sum("n"), most=sq.max("most"))


def answer(query: Any, first: int = 0) -> list[tuple[Any, ...]]:
    return bag(query(sq.intervals(table(first, FILES), "start", "end", name="stays")).to_arrow())


def written(spark: SparkSession, *folders: Path) -> list[tuple[Any, ...]]:
    """The rows in some sinks together, in the columns ``end, ..., start``: alphabetical ones."""
    return bag(pa.concat_tables([spark.read.parquet(str(f)).drop("streamq_batch", "more").toArrow() for f in folders]))


def bag_of(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows in the order of :func:`written`."""
    return sorted(rows, key=repr)


def run(query: sq.Stream, folder: Path, sink: str = "out", checkpoint: str = "checkpoint", **how: Any) -> None:
    places = {"sink": str(folder / sink), "checkpoint": str(folder / checkpoint)}
    query.run(**places, trigger="available_now", **how)


def test_a_run_goes_on_with_another_query_sink_and_number_of_results(
    spark: SparkSession, plain: None, tmp_path: Path
) -> None:
    """A filter more, another sink, a result more, and at last one less, whose stage stays and is empty."""
    arrive(tmp_path, 0, 2)
    run(totals(stays(spark, tmp_path)), tmp_path)
    arrive(tmp_path, 2, 3)
    changed = totals(stays(spark, tmp_path)).where(sq.col("n") > 0).with_columns(more=sq.lit(1))
    run(changed, tmp_path, "out2")
    arrive(tmp_path, 3, 4)
    s = stays(spark, tmp_path)
    results = [sq.result(query(s), sink=str(tmp_path / sink)) for query, sink in ((totals, "out3"), (counted, "out4"))]
    with pytest.warns(
        StreamqWarning, match="run_all: result 2 begins where the checkpoint stands: earlier rows are not in it"
    ):
        sq.run_all(results, checkpoint=str(tmp_path / "checkpoint"), trigger="available_now")
    with pytest.raises(
        CheckpointError,
        match="session gap=3 .* has no state there: it is new",
    ):
        run(s.group_by("k").session_window(3).select(n=sq.count()), tmp_path, "out5")
    with pytest.raises(CheckpointError, match="a sink has rows of another form; .*, and would get changelog rows"):
        run(counted(s), tmp_path, "out4", output="changelog")
    with pytest.raises(CheckpointError) as raised:
        # a column more, which Spark would not show beside the files that lack it
        run(counted(s).with_columns(more=sq.lit(1)), tmp_path, "out4")
    own = "out4 has final rows of k string, n bigint, most bigint, a folder a micro-batch"
    assert f"{own}, and would get final rows of k string, n bigint, most bigint, more int, a folder" in str(
        raised.value
    )
    with pytest.raises(CheckpointError, match="its groups are in 2 buckets, now 3: pass buckets=2.*sq.migrate"):
        run(counted(s), tmp_path, "out4", buckets=3)
    arrive(tmp_path, 4, FILES)
    run(counted(stays(spark, tmp_path)), tmp_path, "out4", finish=True)
    sent = written(spark, tmp_path / "out", tmp_path / "out2", tmp_path / "out3")
    in_time = sorted(answer(totals), key=lambda row: row[0])
    assert 1 < len(sent) < len(in_time) and sent == bag_of(in_time[: len(sent)])
    last = written(spark, tmp_path / "out4")
    assert last and last == bag_of([row for row in answer(counted) if row[0] >= min(r[0] for r in last)])


MIGRATING = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pathlib import Path
import streamq as sq
from tests.conftest import INTERPRETED, WARM_WORKERS
from tests.spark.test_changed_query import counted, stays, totals

settings = {"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"}
spark = sq.session(config=settings | INTERPRETED | WARM_WORKERS)
folder = Path(sys.argv[1])
print("begun", flush=True)
sq.migrate(totals(stays(spark, folder)), str(folder / "checkpoint"), to=str(folder / "new"), buckets=3)
print("done", flush=True)
"""


def test_a_migration_is_repeated_until_it_is_done_and_its_run_goes_on_where_the_old_one_stood(
    spark: SparkSession, plain: None, tmp_path: Path
) -> None:
    """Into more stages and other buckets; killed as it computes the state, in a soak before Spark has begun as well."""
    arrive(tmp_path, 0, 4)
    run(counted(stays(spark, tmp_path)), tmp_path, buckets=2)
    script, log = tmp_path / "job.py", tmp_path / "log"
    script.write_text(MIGRATING)
    for sign in ("streamq/migration.json", "state") if SOAK else ("state",):
        job = started(script, log, str(tmp_path))
        while job.poll() is None and not (tmp_path / "new" / sign).exists():
            time.sleep(0.02)
        assert job.poll() is None, log.read_text()
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    query, old = totals(stays(spark, tmp_path)), str(tmp_path / "checkpoint")
    with pytest.raises(
        CheckpointError, match="run: the migration into the checkpoint is not done; .* Call sq.migrate again"
    ):
        run(query, tmp_path, "out2", "new")
    done = sq.migrate(query, old, to=str(tmp_path / "new"), buckets=3)
    assert (done.upto, done.begins) == (3, ())
    assert sq.migrate(query, old, to=str(tmp_path / "new"), buckets=3) == done
    same = counted(stays(spark, tmp_path))
    sq.migrate(same, old, to=str(tmp_path / "same"), buckets=5)
    arrive(tmp_path, 4, FILES)
    run(query, tmp_path, "out2", "new", finish=True)
    run(same, tmp_path, "out3", "same", finish=True)
    assert written(spark, tmp_path / "out", tmp_path / "out3") == answer(counted), "nothing is lost, nothing twice"
    was_final = max(row[0] for row in written(spark, tmp_path / "out"))
    later = written(spark, tmp_path / "out2")
    assert later == bag_of([row for row in answer(totals) if row[-1] >= min(r[-1] for r in later)])
    assert min(row[-1] for row in later) < was_final + 1, "no row that was not final there is missing"


@pytest.mark.parametrize(
    "above", [lambda s: s, lambda s: s.where(sq.duration() < 9).shift(2)], ids=["bare", "reads ends"]
)
def test_final_rows_that_wait_are_not_lost_in_a_changelog(spark: SparkSession, tmp_path: Path, above: Any) -> None:
    """The changelog is refused, and the checkpoint is as before."""
    items = [("insert", 11, 12, None, 2), ("cti", 5, None, None, None), ("retract", 11, 12, 14, 2)]
    kinds = [("kind", pa.string()), *((name, pa.int64()) for name in ("start", "end", "new_end", "v"))]
    files = [pa.Table.from_pylist([dict(zip(dict(kinds), item, strict=True))], pa.schema(kinds)) for item in items]
    land(tmp_path / "in", files[:2], 0)

    def query() -> sq.Stream:
        return above(sq.physical(stream(spark, tmp_path / "in", pa.schema(kinds)), name="s"))

    run(query(), tmp_path)
    with pytest.raises(CheckpointError, match=r"settle: .* Go on with the output of before, or begin anew"):
        run(query(), tmp_path, "out2", output="changelog", finish=True)
    land(tmp_path / "in", files[2:], 2)
    run(query(), tmp_path, finish=True)
    by = 2 if above(query()).plan.title == "alter_lifetime" else 0
    assert written(spark, tmp_path / "out") == [(14 + by, 11 + by, 2)]
