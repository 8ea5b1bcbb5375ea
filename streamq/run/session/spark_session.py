"""Start or adapt a SparkSession for streamq, and prepare sessions that it did not start."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from streamq.errors import SessionError, check_keywords, sentence, warn
from streamq.run.session.connector_needs import KAFKA
from streamq.run.session.findings import (
    SUBMITTED,
    active_session,
    check_driver_and_workers,
    default_master,
    doctor,
    is_local,
    last_line,
    mark_checked,
    master_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WORKER_SITE = Path(__file__).parent / "worker_site"
"""The first folder on the path of embedded workers."""


def archive_is_not_needed(worker: str) -> bool:
    """Return True if workers run this Python and find this process' PySpark, with its jars, among the installed packages."""
    import pyspark

    places = {Path(place) for place in (*site.getsitepackages(), site.getusersitepackages())}
    home = Path(pyspark.__file__).parent
    return worker == sys.executable and home.parent in places and (home / "jars").is_dir()


@contextmanager
def home_without_archive(worker: str) -> Iterator[None]:
    """Set SPARK_HOME, while the JVM starts, to a folder of links to Spark in which ``python/lib/pyspark.zip`` is replaced.

    Spark puts that archive first on the path of Python workers. Python compiles modules from an archive on every import, and
    each stage of a starting query imports PySpark in a new process, which takes a second a stage; the installed, compiled
    package takes a sixth of that. The archive is replaced by ``worker_site``, which suppresses PySpark's output in terminals. A
    SPARK_HOME that the user has set is kept, and so is the archive if ``worker`` needs it.
    """
    import pyspark

    if "SPARK_HOME" in os.environ or os.name != "posix" or not archive_is_not_needed(worker):
        yield
        return
    home = Path(tempfile.mkdtemp(prefix="streamq-spark-home-"))
    # by the end of this process the JVM has opened all files it needs from the folder
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "python":
            (home / part.name).symlink_to(part)
    lib = home / "python" / "lib"
    lib.mkdir(parents=True)
    (lib / "pyspark.zip").symlink_to(WORKER_SITE)
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


REQUIRED = {
    # transformWithState runs on no other state store.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
"""Settings that streamq cannot run without; they are set on any session, including existing ones."""

CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"

TUNED = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A combiner returns one row for each group and batch. With 1,000 groups, batches of 100k rows instead of Spark's 10k send
    # a tenth of the partial results through the shuffle, at the same speed; Spark's own 64 MB a batch still bounds wide rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.session.timeZone": "UTC",
    # a micro-batch commits only changes, not all state; a checkpoint can be continued with or without this
    CHANGELOG: "true",
    # every result has two times; Spark's default, 12 bytes without statistics, takes three times as long to write
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings that make streamq faster; the user's ``config`` overrides them."""

CLASSIC = {
    # Else PySpark tells the JVM the line that made each column, for its own errors: half the calls of a query's start. And
    # these columns are made at no line of the user's.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""The same, for sessions other than those of Spark Connect; they are set before a session starts."""

EMBEDDED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""Settings of a Spark inside this process, which needs no UI and no connections from other machines."""


OF_SPARK = (
    "org.apache.hadoop:*,org.slf4j:*,com.google.code.findbugs:*,org.scala-lang.modules:*,org.lz4:*,org.xerial.snappy:*"
)
"""The packages that the connector needs and Spark has."""


def with_kafka(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with which Spark fetches its connector for Kafka from Maven, beside the packages that these name."""
    packages = [*filter(None, [settings.get("spark.jars.packages")]), KAFKA.coordinates]
    return {"spark.jars.excludes": OF_SPARK, **settings, "spark.jars.packages": ",".join(packages)}


@check_keywords
def session(
    app_name: str = "streamq",
    *,
    master: str | None = None,
    config: Mapping[str, object] | None = None,
    kafka: bool = False,
) -> SparkSession:
    """Return the active SparkSession, or start one that is set up for streamq.

    ``master`` is ``local[*]`` (Spark inside this process) unless SPARK_REMOTE or spark-submit choose another; the address of a
    cluster and ``sc://host:port`` (Spark Connect) work too. ``config`` overrides the defaults. The checks of :func:`doctor` run
    first, and raise one SessionError for all problems before any job starts. A session that is already active keeps
    its name, and gets the state store that streamq needs, and ``config``; raises SessionError if it has another master, or if
    it differs in a setting that can no longer be changed. ``kafka=True`` brings Spark's connector for Kafka, fetched once from
    Maven; an active session must have it.

    >>> spark = session("fares", config={"spark.driver.memory": "8g"})  # doctest: +SKIP
    """
    wanted = {key: _setting(value) for key, value in (config or {}).items()}
    active = active_session()
    if active is not None:
        adopted = _adopted(active, master, wanted)
        if kafka:
            _check_kafka(adopted)
        return adopted

    master = master or default_master(os.environ)
    local = is_local(master)
    # A PYSPARK_PYTHON left over from another environment is the usual reason for workers without pyarrow, so inside this
    # process only an explicit setting counts. On a cluster the variable tells where Python is.
    inherited = None if local else os.environ.get("PYSPARK_PYTHON")
    worker = wanted.get("spark.pyspark.python") or inherited or sys.executable
    doctor(raise_on_problem=True, master=master, worker=worker)

    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    if master.startswith("sc://"):
        builder, settings = builder.remote(master), REQUIRED | TUNED | wanted
    else:
        if master != SUBMITTED:
            builder = builder.master(master)
        os.environ["PYSPARK_PYTHON"] = worker
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        settings = _classic_settings(master, worker, wanted)
        settings = with_kafka(settings) if kafka else settings
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with home_without_archive(worker) if local else nullcontext():
            spark = builder.getOrCreate()
    except PySparkException as error:
        hint = "What it printed on stderr says why."
        raise SessionError("session", "Spark did not start", last_line(str(error)), hint) from error
    if local:
        # its workers run the interpreter that has just been checked
        mark_checked(spark)
    if kafka:
        _check_kafka(spark)
    return spark


def _check_kafka(spark: SparkSession) -> None:
    """Raise SessionError if a session has no connector for Kafka."""
    if not KAFKA.is_in(spark):
        reason = "a process has the packages with which it has started Spark for the first time"
        hint = "Start Python anew, with kafka=True in the first session."
        raise SessionError("session", "the session has no connector for Kafka", reason, hint)


def cores(master: str) -> int:
    """Return the number of tasks that run at once on ``local``, ``local[4]``, ``local[*,3]``, ``local-cluster[2,1,1024]``.

    It is 1 for any other master.
    """
    cluster = re.match(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)", master)
    if cluster is not None:
        return int(cluster[1]) * int(cluster[2])
    threads = re.match(r"local\[(\*|\d+)", master)
    if threads is None:
        return 1
    if threads[1] != "*":
        return int(threads[1])
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _classic_settings(master: str, worker: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session that is not one of Spark Connect; ``wanted`` override the defaults.

    For a local master they include tasks for its cores, the driver's memory and, without SPARK_CONF_DIR, quiet logging.
    SPARK_LOCAL_IP is set in the environment, unless the user has set it.
    """
    settings = (
        REQUIRED | TUNED | CLASSIC | {"spark.pyspark.python": worker, "spark.pyspark.driver.python": sys.executable}
    )
    if not is_local(master):
        return settings | dict(wanted)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings |= EMBEDDED | {
        "spark.sql.shuffle.partitions": str(cores(master)),
        "spark.driver.memory": f"{driver_memory()}m",
    }
    settings |= wanted
    if "SPARK_CONF_DIR" not in os.environ:
        options = settings.get("spark.driver.extraJavaOptions", "")
        settings["spark.driver.extraJavaOptions"] = f"{_quiet_logging()} {options}".rstrip()
    return settings


def _adopted(active: SparkSession, master: str | None, wanted: Mapping[str, str]) -> SparkSession:
    """Return the active session after the required and the wanted settings have been made on it.

    Raises SessionError if it has another master than ``master``, for a setting that it does not take, and for what `doctor`
    finds.
    """
    actual = master_of(active)
    stop = "Stop it first: SparkSession.active().stop()"
    if master is not None and master != actual and not (master.startswith("sc://") and actual.startswith("sc://")):
        difference = f"its master is {actual}, not {master}"
        raise SessionError("session", "another session is active", difference, stop)
    doctor(raise_on_problem=True)
    for key, value in (REQUIRED | dict(wanted)).items():
        present = active.conf.get(key, None)
        if present == value:
            continue
        if not active.conf.isModifiable(key):
            difference = f"it has {key} = {present}, not {value}"
            raise SessionError("session", "the active session cannot be changed so", difference, stop)
        active.conf.set(key, value)
    return active


def driver_memory(cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Return the heap size of an embedded Spark in megabytes: a quarter of the memory, from 1 to 8 GB.

    The memory is the machine's or, if that is less, the limit in the file ``cgroup``. The rest is
    for memory outside of the heap: RocksDB, the Python workers, the notebook's own frames.
    """
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        memory = 8 << 30
    try:
        memory = min(memory, int(cgroup.read_text()))
    except (OSError, ValueError):  # no cgroup, or "max"
        pass
    return max(1024, min(8192, (memory >> 20) // 4))


def _quiet_logging() -> str:
    return f'"-Dlog4j2.configurationFile={(Path(__file__).parent / "log4j2.properties").as_uri()}"'


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


HDFS_BACKED = "HDFSBackedStateStoreProvider"
"""Spark's default state store, which cannot hold a stage's state; any other one that is set is kept."""


def prepare_for_streams(spark: SparkSession, verb: str) -> None:
    """Set the settings that a stream needs in a session; raise SessionError if its driver or its workers lack something.

    Existing values are overwritten only if a stream cannot run with them.
    """
    for key, value in REQUIRED.items():
        present = spark.conf.get(key, None)
        if present is None or present.endswith(HDFS_BACKED):
            spark.conf.set(key, value)
    if spark.conf.get(CHANGELOG, None) is None:
        spark.conf.set(CHANGELOG, "true")
    check_driver_and_workers(spark, verb)


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
