"""The one SparkSession of a run, the marks that follow from where a test lies, whose turn it is, how hard Hypothesis searches."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

import tests.judges  # noqa: F401 (it registers the judge of streamq itself)
from scripts.broker import JARS, Broker, broker
from scripts.postgres import PostgresServer, find_server, postgres_server
from streamq.run.session.spark_session import session
from streamq.user_code.repository import modules
from tests.registry_server import Registry, registry
from tests.turns import in_turn, turn_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same examples in every run, so that a red build is red again; `make soak` is what searches.
settings.register_profile("default", max_examples=10, derandomize=True, deadline=None, print_blob=True)
settings.register_profile("soak", max_examples=5_000, deadline=None, print_blob=True)
settings.load_profile("soak" if os.environ.get("STREAMQ_SOAK") else "default")

FEWER_PROCESSES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Over local folders Spark's default file manager starts forty ``readlink`` a micro-batch; this one writes the same files."""

WARM_WORKERS = {"spark.python.daemon.module": "tests.spark.warm_workers"}
"""Else each Python worker imports pandas and PyArrow anew, half a second for every stage of a stream."""

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
}
"""Over a few rows, compiling a plan, making it anew after each stage and writing it down in full take longer than its jobs."""

CONNECTOR = Path(sys.prefix) / "kafka" / "ivy"
"""Where ``scripts/kafka.sh`` has put Spark's connector for Kafka."""

SPARK_TESTS = Path(__file__).parent / "spark"

# half an hour or more: `make soak SOAK=tests/spark/test_long_runs.py`
LONG = ["spark/test_long_runs.py"]
collect_ignore = [] if os.environ.get("STREAMQ_SOAK") else LONG


def pytest_report_header(config: pytest.Config) -> str:
    turn = turn_of(os.environ, config.args)
    return "turn: all cases" if turn is None else f"turn: STREAMQ_TURN={turn}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if SPARK_TESTS in item.path.parents:
            item.add_marker("spark")
    turn = turn_of(os.environ, config.args)
    if turn is not None:
        chosen = in_turn(items, turn)
        config.hook.pytest_deselected(items=list(set(items).difference(chosen)))
        items[:] = chosen


def pytest_collection_finish() -> None:
    """Keep what was imported out of every search for garbage until Python exits, and search seldom: plans have no cycles."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    # libraries take what is still frozen then for a leak
    atexit.register(gc.unfreeze)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Search for garbage once, so that what is reported when an object goes is seen; pytest itself searches ten times more."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _own_modules() -> Iterator[None]:
    """A module that a test registers is gone after it: pages and docstrings take names that tests have as well."""
    before = dict(modules._own)
    yield
    modules._own.clear()
    modules._own.update(before)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Embedded Spark on two cores; what it writes without being told where lands in a temporary folder."""
    folder = tmp_path_factory.mktemp("spark")
    spark = session(
        "streamq tests",
        master="local[2]",
        config={
            "spark.driver.memory": "3g",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.streaming.checkpointLocation": folder / "checkpoints",
            **FEWER_PROCESSES,
            **WARM_WORKERS,
            "spark.sql.warehouse.dir": folder / "warehouse",
            # any port that is free
            "spark.connect.grpc.binding.port": 0,
            "spark.jars.ivy": CONNECTOR,
        },
        kafka=True,
    )
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of PostgreSQL; without its programs, which ``make java`` installs where it can, tests of it are left out."""
    if find_server() is None:
        pytest.skip("LEFT OUT: there is no PostgreSQL (scripts/postgres.sh)")
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of Kafka; without its jars, which ``make java`` fetches, tests of it are left out."""
    if not JARS.exists():
        pytest.skip("LEFT OUT: there is no Kafka (scripts/kafka.sh)")
    with broker(tmp_path_factory.mktemp("kafka")) as one:
        yield one


@pytest.fixture(scope="session")
def schemas() -> Iterator[Registry]:
    """A registry of schemas."""
    with registry() as one:
        yield one


@pytest.fixture(scope="session")
def connect_url(spark: SparkSession) -> str:
    """The address of a Spark Connect server that runs beside the session of this run, in the same JVM."""
    server: Any = spark._jvm.org.apache.spark.sql.connect.service
    server.SparkConnectService.start(spark.sparkContext._jsc.sc())
    port = getattr(getattr(server, "SparkConnectService$"), "MODULE$").localPort()
    return f"sc://127.0.0.1:{port}"


@pytest.fixture
def plain(spark: SparkSession) -> Iterator[None]:
    """Spark that interprets."""
    for key, value in INTERPRETED.items():
        spark.conf.set(key, value)
    yield
    for key in INTERPRETED:
        spark.conf.unset(key)


@pytest.fixture
def one_task(spark: SparkSession, plain: None) -> Iterator[None]:
    """One task for each query: for many of them over a few rows each."""
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", "2")
