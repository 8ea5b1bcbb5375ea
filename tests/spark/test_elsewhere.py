"""Spark Connect, and executors in processes of their own that cannot import streamq: the same query, the same answer.

It has modules of a script, of a file beside it, which imports another, and of a package that is installed where the query is
written alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import streamq

INSTALLED = """
import streamq as sq

FACTOR = 2

def doubled(value):
    return value * FACTOR

@sq.uda("double")
def spread(values):
    return doubled(values.max() - values.min())
"""
"""A package that publishes a module; it is installed where the query is written, and nowhere else."""

NEIGHBOUR = """
ORDER = ["start", "n"]

def in_order(events):
    return events.sort_values(ORDER)
"""
"""A file beside the one that has a module, of which the query knows nothing."""

LOCAL = """
import own_order
import streamq as sq

@sq.udo("place int, n bigint", time_sensitive=True, columns=["n"])
def numbered(events, window):
    for place, event in enumerate(own_order.in_order(events).itertuples()):
        yield event.start, event.end, place, event.n
"""

QUERY = """
import json, sys
from pathlib import Path
import streamq as sq
from own_operators import numbered

@sq.uda("double")
class Mean:
    def initial(self): return 0.0, 0
    def add(self, state, values): return state[0] + float(values.sum()), state[1] + len(values)
    def merge(self, a, b): return a[0] + b[0], a[1] + b[1]
    def result(self, state): return state[0] / state[1]

@sq.udf("string")
def size(v):
    return "large" if v > 20 else "small"

# Spark interprets: compiling takes longer than jobs over a few rows do
CONFIG = {
    "spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

def main(spark, folder):
    rows = [(3 * i, f"k{i % 3}", float(i)) for i in range(40)]
    spark.createDataFrame(rows, "t bigint, k string, v double").coalesce(1).write.parquet(f"{folder}/in")
    def query(df):
        s = sq.points(df, time="t", name="p").where(lambda e: e.v != 7)
        s = s.with_columns(size=size("v"))
        own = s.group_by("k", "size").hopping_window(30, 10)
        per = own.select(n=sq.count(), m=Mean("v"), by=sq.modules.get("spread")("v"))
        return per.tumbling_window(60, clip_input="full").select(numbered("n"))
    batch = query(spark.read.parquet(f"{folder}/in"))
    live = query(spark.readStream.schema("t bigint, k string, v double").parquet(f"{folder}/in"))
    where = {name: f"{folder}/{name}" for name in ("checkpoint", "sink", "late_sink")}
    with live.run(**where, buckets=2) as run:
        run.finish()
    assert (run.why().verdict, run.metrics["sources"]["p"]["rows"]) == ("finished", 40), run.metrics
    names = ["start", "end", "place", "n"]
    answer = sorted(tuple(r) for r in spark.read.parquet(f"{folder}/sink").select(*names).collect())
    assert answer == sorted(tuple(r) for r in batch.to_df().select(*names).collect()), answer
    print("agreed on", len(answer), "rows")
"""

CONNECT = """
from pyspark.sql import SparkSession
config = {**CONFIG, "spark.sql.streaming.stateStore.providerClass":
          "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}
builder = SparkSession.builder.remote(sys.argv[2])
for key, value in config.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
assert "connect" in type(spark).__module__
main(spark, sys.argv[1])
"""

CLUSTER = """
# executors must not find streamq on their own path: its code travels with the query
blocked = sys.argv[1] + "/blocked"
Path(blocked).mkdir()
Path(blocked, "sitecustomize.py").write_text('''
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "streamq":
            raise ImportError("streamq is not installed here")
sys.meta_path.insert(0, Blocked())
''')
import pyarrow as pa
from tests.spark import warm_workers

# they import pandas and PyArrow once, not in each worker
Path(blocked, "warm.py").write_text(Path(warm_workers.__file__).read_text())

def imports_streamq(batches):
    try:
        import streamq
        yield pa.record_batch({"found": [True]})
    except ImportError:
        yield pa.record_batch({"found": [False]})

spark = sq.session("elsewhere", master="local-cluster[1,2,1024]", config={
    **CONFIG, "spark.executorEnv.PYTHONPATH": blocked, "spark.driver.memory": "1g", "spark.python.daemon.module": "warm",
})
assert not spark.range(1).repartition(1).mapInArrow(imports_streamq, "found boolean").first()[0]
main(spark, sys.argv[1])
spark.stop()
"""


def test_on_spark_connect_the_answer_is_the_same(connect_url: str, tmp_path: Path) -> None:
    check_agreement(CONNECT, tmp_path, connect_url)


def test_on_executors_without_streamq_the_answer_is_the_same(tmp_path: Path) -> None:
    check_agreement(CLUSTER, tmp_path)


def check_agreement(script: str, folder: Path, *arguments: str) -> None:
    """Run the query in a process of its own, in which batch and stream must agree."""
    path = folder / "query.py"
    path.write_text(textwrap.dedent(QUERY) + textwrap.dedent(script))
    (folder / "own_operators.py").write_text(LOCAL)
    (folder / "own_order.py").write_text(NEIGHBOUR)
    (folder / "cwd").mkdir()
    root = str(Path(streamq.__file__).parents[1])
    done = subprocess.run(
        [installed_beside(folder / "venv"), str(path), str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        cwd=folder / "cwd",
        env={**os.environ, "PYTHONPATH": root, "PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    assert done.returncode == 0 and "agreed on" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]


def installed_beside(folder: Path) -> str:
    """An interpreter that has what this one has, and a package more; the workers have this one."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    (packages / "spreads").mkdir()
    (packages / "spreads" / "__init__.py").write_text(INSTALLED)
    about = packages / "spreads-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: spreads\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[streamq.modules]\nspread = spreads:spread\n")
    return str(folder / "bin" / "python")
