"""The masters of Spark sessions, and the number of tasks that run there at once."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from streamq.run.commands import last_line
from streamq.run.findings import Finding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBMITTED = "spark-submit"
"""The value that stands for the master chosen by spark-submit."""


def default_master(environ: Mapping[str, str]) -> str:
    """Return the master that the environment names, else that of a Spark inside this process."""
    if "PYSPARK_GATEWAY_PORT" in environ:
        return SUBMITTED
    return environ.get("SPARK_REMOTE") or "local[*]"


def master_of(spark: SparkSession) -> str:
    """Return the master of a session; for a Connect session, whose server has its own master, ``sc://`` and the host."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        client = spark.client
        return f"sc://{client.host}"
    return str(spark.conf.get("spark.master", "local"))


def is_local(master: str) -> bool:
    """Return True if Spark and its workers run on this machine, inside or under this process."""
    return master.startswith("local")


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


def check_server(url: str, seconds: float = 5.0) -> Finding:
    """Check that a server listens at a Spark Connect address; the client itself would retry for minutes.

    The finding has a problem if it does not accept a connection within ``seconds``; without a port it is 15002.
    """
    try:
        address = urlsplit(url)
        host, port = address.hostname or "", address.port or 15002
        with socket.create_connection((host, port), seconds):
            return Finding("server", f"answers at {host}:{port}")
    except (OSError, ValueError) as error:
        hint = "Start one: sbin/start-connect-server.sh of a Spark distribution."
        return Finding("server", f"{url} said {last_line(str(error))!r}", "no Spark Connect server answers", hint)
