"""The doctor, which checks what streamq needs on a machine before a job fails for lack of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from streamq.keywords import check_keywords
from streamq.run.active import active_session
from streamq.run.findings import Finding, Report
from streamq.run.interpreters import check_interpreter, probe_interpreter, this_interpreter
from streamq.run.java import check_java, check_spark_home
from streamq.run.masters import check_server, default_master, is_local, master_of
from streamq.run.packages import CONNECT_NEEDS, DRIVER_NEEDS, WORKER_NEEDS


@check_keywords
def doctor(
    *,
    raise_on_problem: bool = False,
    master: str | None = None,
    worker: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Report:
    """Check what streamq needs: Java, the versions of Spark and its packages, the interpreter of Spark's workers.

    It checks the active session if there is one and no ``master`` is passed, else the session that :func:`session` would start;
    ``master``, ``worker`` (an interpreter) and ``environ`` replace parts of that. It does not start Spark. Java behind Spark
    Connect and the workers of a cluster are on other machines and are not checked. With ``raise_on_problem``, problems raise a
    SessionError.
    """
    environ = os.environ if environ is None else environ
    active = active_session() if master is None else None
    if active is not None:
        master = master_of(active)
        worker = worker or environ.get("PYSPARK_PYTHON") or active.conf.get("spark.pyspark.python", None) or "python3"
    master = master or default_master(environ)
    worker = worker or environ.get("PYSPARK_PYTHON") or sys.executable

    driver = this_interpreter()
    findings = check_interpreter("driver", driver, DRIVER_NEEDS)
    if master.startswith("sc://"):
        client = check_interpreter("Connect client", this_interpreter(CONNECT_NEEDS), CONNECT_NEEDS)
        findings += [finding for finding in client if not finding.ok]
        findings += [] if active else [check_server(master)]
    else:
        findings += [check_java(environ)]
        spark_home = check_spark_home(environ, driver.versions.get("pyspark", ""))
        findings += [spark_home] if spark_home else []
    if is_local(master):
        probed = probe_interpreter(worker, environ=environ)
        if isinstance(probed, Finding):
            findings.append(probed)
        else:
            findings += check_interpreter("worker", probed, WORKER_NEEDS, driver.python)
    report = Report(tuple(findings))
    if raise_on_problem:
        report.raise_problems()
    return report
