"""Prepare sessions that streamq did not start: set what a stream needs, and check their driver and workers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamq.errors import sentence, warn
from streamq.run.failure import is_sparks, reason
from streamq.run.findings import (
    CONNECT_NEEDS,
    DRIVER_NEEDS,
    WORKER_NEEDS,
    Finding,
    PackageNeed,
    Report,
    cores,
    is_checked,
    is_local,
    mark_checked,
    master_of,
)
from streamq.run.interpreters import Interpreter, check_interpreter, this_interpreter
from streamq.run.spark_session import CHANGELOG, REQUIRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HDFS_BACKED = "HDFSBackedStateStoreProvider"
"""Spark's default state store, which cannot hold a stage's state; any other one that is set is kept."""


def prepare_for_streams(spark: SparkSession, verb: str) -> None:
    """Set the settings that a stream needs in a session; raise SessionError if its driver or its workers lack something.

    Existing values are overwritten only if a stream cannot run with them. Workers are checked by a job of one task, once for each
    application, because a stage whose Python process cannot start reports only that the process has ended.
    """
    for key, value in REQUIRED.items():
        present = spark.conf.get(key, None)
        if present is None or present.endswith(HDFS_BACKED):
            spark.conf.set(key, value)
    if spark.conf.get(CHANGELOG, None) is None:
        spark.conf.set(CHANGELOG, "true")
    if is_checked(spark):
        return
    driver = this_interpreter()
    advice = f"Or set PYSPARK_PYTHON to {sys.executable} before Spark starts, or have sq.session() start it."
    findings = [*check_interpreter("driver", driver, DRIVER_NEEDS), *check_workers(spark, driver)]
    Report(tuple(findings)).raise_problems(verb, advice if is_local(master_of(spark)) else "")
    mark_checked(spark)


PARTITIONS = "spark.sql.shuffle.partitions"
MANY = 8
"""The number of tasks for each core beyond which a micro-batch takes seconds even if it has hardly any rows."""


def warn_of_tasks(spark: SparkSession, verb: str) -> None:
    """Warn, on a local master, if each stage of each micro-batch has many more tasks than run at once."""
    master = master_of(spark)
    tasks, at_once = int(spark.conf.get(PARTITIONS, None) or 0), cores(master)
    if is_local(master) and tasks > MANY * at_once:
        wrong = f"each stage of each micro-batch has {tasks} tasks"
        setting = f"{PARTITIONS} is {tasks}, and {at_once} run at once"
        hint = f'Before the first run on a checkpoint: spark.conf.set("{PARTITIONS}", {at_once}).'
        warn(sentence(verb, wrong, setting, hint))


def check_sink_functions(spark: SparkSession, verb: str, needs: Sequence[PackageNeed] = CONNECT_NEEDS) -> None:
    """Raise SessionError if the Python of a Spark Connect server lacks a package that it needs to call functions of sinks.

    Spark itself would report only that its Python process has not answered in time. Other sessions call them in this process.
    """
    if master_of(spark).startswith("sc://"):
        advice = "The server's Python, as a client of its own, calls functions of sinks and writes for late_sink and run_all."
        Report(tuple(check_workers(spark, this_interpreter(), needs))).raise_problems(verb, advice)


def check_workers(
    spark: SparkSession, driver: Interpreter, needs: Sequence[PackageNeed] = WORKER_NEEDS
) -> list[Finding]:
    """Return the findings on the Python of a session's workers, from a job that imports packages, by default a stream's.

    If Spark cannot run that job, its error is the only finding.
    """
    try:
        worker = _probe_worker(spark, [need.module for need in needs])
    except Exception as error:
        if not is_sparks(error):
            raise
        wrong = "the workers' Python does not run"
        return [Finding("worker", reason(error), wrong, "Look at PYSPARK_PYTHON where Spark was started.")]
    return check_interpreter("worker", worker, needs, driver.python)


def _probe_worker(spark: SparkSession, modules: Sequence[str]) -> Interpreter:
    """Run a job of one task in which a worker imports some modules, and return that worker's interpreter."""
    from pyspark.sql import functions as F

    # a local function is pickled by value, so the worker needs neither streamq nor Arrow
    def probe() -> str:
        """Return, as JSON, the interpreter, its version, the versions of packages, and errors of those that fail."""
        import importlib
        import json
        import sys

        versions, failures = {}, {}
        for name in modules:
            try:
                module = importlib.import_module(name)
                if module.__file__ is None:
                    # a folder of that name, such as one in Spark's jars on the worker's path
                    raise ModuleNotFoundError(f"No module named {name!r}")
                versions[name] = str(getattr(module, "__version__", ""))
            except Exception as error:  # a broken package raises whatever it likes on import
                failures[name] = str(error)
        return json.dumps([sys.executable, sys.version_info[:3], versions, failures])

    column = F.udf(probe, "string", useArrow=False).asNondeterministic()
    ((answer,),) = spark.range(1, numPartitions=1).select(column()).collect()
    path, python, versions, failures = json.loads(answer)
    return Interpreter(path, tuple(python), versions, failures)
