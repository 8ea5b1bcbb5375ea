"""Sessions that streamq did not start: what a stream needs of them is set where it may be, and asked for before it starts."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from streamq.errors import sentence, warn
from streamq.run.failure import is_sparks, reason
from streamq.run.session import (
    CHANGELOG,
    DRIVER_NEEDS,
    REQUIRED,
    WORKER_NEEDS,
    Finding,
    Interpreter,
    Report,
    check_interpreter,
    cores,
    is_fit,
    is_local,
    mark_fit,
    master_of,
    this_interpreter,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HDFS_BACKED = "HDFSBackedStateStoreProvider"
"""Spark's default state store, which cannot hold what a stage keeps; any other that is set may be able to."""


def fit_for_streams(spark: SparkSession, verb: str) -> None:
    """Set what a stream needs of a session, and raise SessionError where its driver or its workers lack something.

    Only what a stream cannot do without is set over a value that is there. Workers are asked in a job of one task, once an
    application: the driver process of a stage that cannot be started says no more than that it has ended.
    """
    for key, value in REQUIRED.items():
        now = spark.conf.get(key, None)
        if now is None or now.endswith(HDFS_BACKED):
            spark.conf.set(key, value)
    if spark.conf.get(CHANGELOG, None) is None:
        spark.conf.set(CHANGELOG, "true")
    if is_fit(spark):
        return
    driver = this_interpreter()
    local = is_local(master_of(spark))
    advice = (
        f"Or set PYSPARK_PYTHON to {sys.executable} before Spark starts, or have sq.session() start it."
        if local
        else ""
    )
    findings = [*check_interpreter("driver", driver, DRIVER_NEEDS), *check_workers(spark, driver)]
    Report(tuple(findings)).raise_problems(verb, advice)
    mark_fit(spark)


PARTITIONS = "spark.sql.shuffle.partitions"
MANY = 8
"""Tasks a core beyond which a micro-batch takes seconds even if it has next to no rows."""


def warn_of_tasks(spark: SparkSession, verb: str) -> None:
    """Warn where every stage of every micro-batch has many more tasks than this machine has cores."""
    master = master_of(spark)
    tasks, at_once = int(spark.conf.get(PARTITIONS, None) or 0), cores(master)
    if is_local(master) and tasks > MANY * at_once:
        wrong = f"each stage of each micro-batch has {tasks} tasks"
        found = f"{PARTITIONS} is {tasks}, and {at_once} run at once"
        hint = f'Before the first run on a checkpoint: spark.conf.set("{PARTITIONS}", {at_once}).'
        warn(sentence(verb, wrong, found, hint))


def check_workers(spark: SparkSession, driver: Interpreter) -> list[Finding]:
    """What the Python of a session's workers is, and lacks, by a job that imports what a stream needs."""
    try:
        path, python, versions, failures = json.loads(_ask_worker(spark))
    except Exception as error:
        if not is_sparks(error):
            raise
        wrong = "the workers' Python does not run"
        return [Finding("worker", reason(error), wrong, "Look at PYSPARK_PYTHON where Spark was started.")]
    return check_interpreter(
        "worker", Interpreter(path, tuple(python), versions, failures), WORKER_NEEDS, driver.python
    )


def _ask_worker(spark: SparkSession) -> str:
    """A worker's answer: its interpreter, Python, the versions of what it can import, and why it cannot import the rest."""
    from pyspark.sql import functions as F

    modules = [need.imports for need in WORKER_NEEDS]

    # a function of its own, so that it goes by value: a worker need not have streamq, nor Arrow
    def look() -> str:
        import importlib
        import json
        import sys

        versions, failures = {}, {}
        for name in modules:
            try:
                module = importlib.import_module(name)
                if module.__file__ is None:
                    # a folder of that name, as Spark's own jars have it on a worker's path
                    raise ModuleNotFoundError(f"No module named {name!r}")
                versions[name] = str(module.__version__)
            except Exception as error:  # a broken package raises whatever it likes on import
                failures[name] = str(error)
        return json.dumps([sys.executable, sys.version_info[:3], versions, failures])

    asked = F.udf(look, "string", useArrow=False).asNondeterministic()
    ((answer,),) = spark.range(1, numPartitions=1).select(asked()).collect()
    return str(answer)
