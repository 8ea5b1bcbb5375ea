"""A SparkSession set up right, and the doctor that says what is missing before a job dies of it.

A probe takes the command, environment or versions it looks at as parameters and returns findings; it raises nothing.
"""

from __future__ import annotations

import html
import importlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from streamq.errors import SessionError, sentence
from streamq.run.spark_home import home_without_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVAS = (17, 21)
SECONDS = 60.0
"""How long a probed command may take: a cold interpreter on a busy machine needs several seconds for pandas."""

REQUIRED = {
    # transformWithState runs on no other state store.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
"""What streamq cannot do without; set on any session, also one that was there before."""

CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"

TUNED = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A combiner emits one row a group and batch. Over 1,000 groups, batches of 100k rows instead of Spark's 10k send a
    # tenth of the partials through the shuffle, at the same speed; Spark's own 64 MB a batch still bounds wide rows.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.session.timeZone": "UTC",
    # a micro-batch commits what has changed, not new files of all state; a checkpoint may go on with or without
    CHANGELOG: "true",
}
EMBEDDED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""What a Spark inside this process gets besides: nobody watches its UI, nobody else talks to it."""


@dataclass(frozen=True)
class Need:
    """A package that must be there, in the versions that streamq's own pyproject.toml asks for."""

    package: str
    at_least: str
    below: str = ""
    module: str = ""

    @property
    def imports(self) -> str:
        return self.module or self.package

    def __str__(self) -> str:
        return f"{self.package}>={self.at_least}" + (f",<{self.below}" if self.below else "")

    def accepts(self, version: str) -> bool:
        v = _numbers(version)
        return _numbers(self.at_least) <= v and (not self.below or v < _numbers(self.below))


WORKER_NEEDS = (
    Need("pandas", "2.2", "3"),
    Need("pyarrow", "18"),
    Need("protobuf", "6.33", "8", "google.protobuf"),
)
DRIVER_NEEDS = (Need("pyspark", "4.1", "5"), *WORKER_NEEDS)
CONNECT_NEEDS = (
    Need("grpcio", "1.76", "", "grpc"),
    Need("grpcio-status", "1.76", "", "grpc_status"),
    Need("googleapis-common-protos", "1.71", "", "google.rpc"),
    Need("zstandard", "0.25"),
)


@dataclass(frozen=True)
class Finding:
    """One thing looked at: what was found and, if it is not as it must be, what is wrong and what to do about it."""

    subject: str
    found: str
    wrong: str = ""
    hint: str = ""

    @property
    def ok(self) -> bool:
        return not self.wrong

    def message(self, verb: str = "") -> str:
        """In the words of an error."""
        text = sentence(verb, self.wrong, self.found, self.hint)
        return text if verb else text.removeprefix(": ")


@dataclass(frozen=True)
class Report:
    """What :func:`doctor` found; prints as a table, also in a notebook."""

    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if not f.ok)

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def headline(self) -> str:
        count = len(self.problems)
        return "streamq doctor: " + ("all is well" if not count else f"{count} problem{'s'[: count > 1]}")

    def raise_problems(self, verb: str = "session", advice: str = "") -> None:
        """One SessionError for all problems, or nothing; ``advice`` is what helps against any of them."""
        match self.problems:
            case ():
                return
            case (problem,):
                text = problem.message(verb)
                raise SessionError(f"{text}{'' if text.endswith('.') else '.'} {advice}" if advice else text)
            case problems:
                lines = "".join(f"\n  - {p.message()}" for p in problems) + (f"\n{advice}" if advice else "")
                raise SessionError(f"{verb}: {len(problems)} things are not as they must be.{lines}")

    def __str__(self) -> str:
        width = max((len(f.subject) for f in self.findings), default=0)
        indent = " " * (width + 11)
        lines = [self.headline]
        for f in self.findings:
            text = f.found if f.ok else f.message()
            head = f"  {'ok' if f.ok else 'PROBLEM':7}  {f.subject:{width}}"
            lines += textwrap.wrap(
                text, 118, initial_indent=f"{head}  ", subsequent_indent=f"{indent}  ",
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{'&#10003;' if f.ok else '&#10007;'}</td>"
            f"<th style='text-align:left'>{html.escape(f.subject)}</th>"
            f"<td style='text-align:left'>{html.escape(f.found if f.ok else f.message())}</td></tr>"
            for f in self.findings
        )
        return f"<table><caption>{html.escape(self.headline)}</caption>{rows}</table>"


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter and the version of each module it could import, or why it could not."""

    path: str
    python: tuple[int, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        return ".".join(map(str, self.python))


# -- probes -----------------------------------------------------------------------------------------------------------


def check_java(environ: Mapping[str, str], seconds: float = SECONDS) -> Finding:
    """The Java that Spark's launcher would take, JAVA_HOME's before PATH's: 17 or 21, with all modules."""
    supported = " or ".join(map(str, JAVAS))
    install = (
        f"Install Java {supported}: apt-get install default-jre-headless (Debian, Ubuntu), dnf install "
        "java-21-openjdk-headless (Fedora, RHEL), brew install openjdk@21 (macOS); or point JAVA_HOME at it."
    )
    home = environ.get("JAVA_HOME", "")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else environ.get("PATH", ""))
    if java is None and home:
        return Finding("Java", f"there is no {Path(home) / 'bin' / 'java'}", "JAVA_HOME has no Java", install)
    if java is None:
        return Finding("Java", "JAVA_HOME is not set and PATH has no java", "there is no Java", install)

    code, output = _run([java, "-version"], seconds)
    version = re.search(r'version "([^"]+)"', output)
    if code != 0 or version is None:
        return Finding("Java", f"{java} said {_excerpt(output)!r}", "Java does not run", install)
    found = f"{version[1]} at {java}"
    major = (_numbers(version[1].removeprefix("1.")) or (0,))[0]
    if major not in JAVAS:
        wrong = "Java is too old" if major < JAVAS[0] else f"Java {major} is not supported"
        return Finding("Java", f"found {found}, Spark 4 needs {supported}", wrong, install)

    code, output = _run([java, "--add-modules=jdk.incubator.vector", "-version"], seconds)
    if code != 0:
        return Finding(
            "Java", f"found {found}, which said {_excerpt(output)!r}", "Java lacks a module of Spark", install
        )
    return Finding("Java", found)


def this_interpreter(needs: Iterable[Need] = DRIVER_NEEDS) -> Interpreter:
    """The interpreter of this process, its packages imported."""
    versions, failures = {}, {}
    for need in needs:
        try:
            versions[need.imports] = str(getattr(importlib.import_module(need.imports), "__version__", ""))
        except Exception as error:  # a broken package raises whatever it likes on import
            failures[need.imports] = str(error)
    return Interpreter(sys.executable, sys.version_info[:3], versions, failures)


# Read by whatever Python the worker turns out to be, hence the plain old syntax.
_PROBE = """
import importlib, json, sys
versions, failures = {}, {}
for name in sys.argv[1:]:
    try:
        versions[name] = str(importlib.import_module(name).__version__)
    except Exception as error:
        failures[name] = str(error)
print(json.dumps([sys.version_info[:3], versions, failures]))
"""


def probe_interpreter(
    command: str,
    needs: Iterable[Need] = WORKER_NEEDS,
    environ: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> Interpreter | Finding:
    """Another interpreter, asked in a process of its own; a finding if it does not answer."""
    path = shutil.which(command, path=(os.environ if environ is None else environ).get("PATH", ""))
    hint = f"Set PYSPARK_PYTHON to {sys.executable}."
    if path is None:
        return Finding("worker", f"there is no {command}", "the worker interpreter does not exist", hint)
    code, output = _run([path, "-c", _PROBE, *(n.imports for n in needs)], seconds, environ)
    answer = output.strip().rpartition("\n")[2]  # a sitecustomize may have printed before
    if code != 0 or not answer.startswith("[["):
        return Finding("worker", f"{path} said {_excerpt(output)!r}", "the worker interpreter does not run", hint)
    python, versions, failures = json.loads(answer)
    return Interpreter(path, tuple(python), versions, failures)


def check_interpreter(
    who: str, it: Interpreter, needs: Iterable[Need], python: tuple[int, ...] | None = None
) -> list[Finding]:
    """One finding for each package that is missing, broken or of a wrong version, else one that lists them all.

    ``python`` is the driver's version: PySpark refuses a worker of another minor version, in the first job.
    """
    needs = tuple(needs)
    problems = []
    if python is not None and it.python[:2] != python[:2]:
        problems.append(
            Finding(
                f"{who} Python",
                f"found {it.version} at {it.path}, the driver runs {'.'.join(map(str, python))}",
                f"the {who} runs another Python version than the driver",
                f"Set PYSPARK_PYTHON to {sys.executable}.",
            )
        )
    for need in needs:
        version, failure = it.versions.get(need.imports), it.failures.get(need.imports, "")
        hint = f"Install it: {it.path} -m pip install {shlex.quote(str(need))}"
        if version is None and not failure.startswith("No module named"):
            wrong, found = f"the {who} cannot import {need.package}", f"{it.path} said {_excerpt(failure)!r}"
        elif version is None:
            wrong, found = f"the {who} has no {need.package}", f"looked in {it.path}"
        elif version and not need.accepts(version):
            wrong, found = (
                f"the {who} has an unsupported {need.package}",
                f"found {version} in {it.path}, streamq needs {need}",
            )
        else:
            continue
        problems.append(Finding(f"{who} {need.package}", found, wrong, hint))
    listed = ", ".join(f"{n.package} {it.versions[n.imports]}".rstrip() for n in needs if n.imports in it.versions)
    return problems or [Finding(who, f"Python {it.version} at {it.path}, {listed}")]


def check_spark_home(environ: Mapping[str, str], pyspark: str) -> Finding | None:
    """PySpark prefers the Spark of SPARK_HOME to its own: it must be of the same version."""
    home = environ.get("SPARK_HOME")
    if not home:
        return None
    jars = sorted((Path(home) / "jars").glob("spark-core_*.jar"))
    if not jars:
        return Finding(
            "SPARK_HOME", f"there is no jars/spark-core in {home}", "SPARK_HOME has no Spark", "Unset SPARK_HOME."
        )
    version = jars[0].stem.partition("-core_")[2].partition("-")[2]
    if version == pyspark:
        return Finding("SPARK_HOME", f"Spark {version} in {home}")
    found = f"found {version} in {home}, PySpark is {pyspark}"
    return Finding("SPARK_HOME", found, "SPARK_HOME is another Spark than PySpark", "Unset SPARK_HOME.")


def check_server(url: str, seconds: float = 5.0) -> Finding:
    """Whether anything listens at a Spark Connect address: the client itself would retry for minutes."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 15002
        with socket.create_connection((host, port), seconds):
            return Finding("server", f"answers at {host}:{port}")
    except (OSError, ValueError) as error:
        hint = "Start one: sbin/start-connect-server.sh of a Spark distribution."
        return Finding("server", f"{url} said {_excerpt(str(error))!r}", "no Spark Connect server answers", hint)


def doctor(
    *,
    raise_on_problem: bool = False,
    master: str | None = None,
    worker: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Report:
    """Check what streamq needs: Java, the versions of Spark and its packages, the interpreter of Spark's workers.

    Looks at the active session if there is one, else at what :func:`session` would start; ``master``, ``worker`` (an
    interpreter) and ``environ`` look at something else. Starts no Spark. Spark Connect's Java and the workers of a
    cluster are on other machines and are not looked at. With ``raise_on_problem`` a problem is a SessionError.
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
        connect = check_interpreter("Connect client", this_interpreter(CONNECT_NEEDS), CONNECT_NEEDS)
        findings += [f for f in connect if not f.ok]
        findings += [] if active else [check_server(master)]
    else:
        findings += [check_java(environ)]
        spark_home = check_spark_home(environ, driver.versions.get("pyspark", ""))
        findings += [spark_home] if spark_home else []
    if is_local(master):
        probed = probe_interpreter(worker, environ=environ)
        findings += (
            [probed]
            if isinstance(probed, Finding)
            else check_interpreter("worker", probed, WORKER_NEEDS, driver.python)
        )
    report = Report(tuple(findings))
    if raise_on_problem:
        report.raise_problems()
    return report


# -- the session ------------------------------------------------------------------------------------------------------


def session(
    app_name: str = "streamq", *, master: str | None = None, config: Mapping[str, object] | None = None
) -> SparkSession:
    """The active SparkSession, or a new one that is set up for streamq.

    ``master`` is ``local[*]`` (Spark inside this process) unless SPARK_REMOTE or spark-submit say otherwise; an address
    of a cluster and ``sc://host:port`` (Spark Connect) work too. ``config`` goes over the defaults. The checks of
    :func:`doctor` come first, and their problems are one SessionError before any job starts. A session that is already
    active gets the state store that streamq needs and ``config``; SessionError if its master is another, or if it
    differs in a setting that can no longer be changed.

    >>> spark = session("fares", config={"spark.driver.memory": "8g"})  # doctest: +SKIP
    """
    wanted = {key: _text(value) for key, value in (config or {}).items()}
    active = active_session()
    if active is not None:
        return _adopt(active, master, wanted)

    master = master or default_master(os.environ)
    local = is_local(master)
    # A PYSPARK_PYTHON left over from another environment is the usual reason for workers without pyarrow: inside this
    # process only an explicit setting counts. On a cluster the variable is how one says where Python is.
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
        settings = REQUIRED | TUNED | {"spark.pyspark.python": worker, "spark.pyspark.driver.python": sys.executable}
        if local:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            settings |= EMBEDDED | {
                "spark.sql.shuffle.partitions": str(cores(master)),
                "spark.driver.memory": f"{driver_memory()}m",
            }
        settings |= wanted
        if local and "SPARK_CONF_DIR" not in os.environ:
            options = settings.get("spark.driver.extraJavaOptions", "")
            settings["spark.driver.extraJavaOptions"] = f"{_quiet()} {options}".rstrip()
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with home_without_archive(worker) if local else nullcontext():
            spark = builder.getOrCreate()
    except PySparkException as error:
        hint = "What it printed on stderr says why."
        raise SessionError(sentence("session", "Spark did not start", _excerpt(str(error)), hint)) from error
    if local:
        # its workers are the interpreter that has just been looked at
        mark_fit(spark)
    return spark


_FIT: set[str] = set()
"""Spark applications of which driver and workers have been looked at, and have what a stream needs."""


def mark_fit(spark: SparkSession) -> None:
    """Note that the application of a session need not be looked at any more."""
    application = spark.conf.get("spark.app.id", "")
    if application:
        _FIT.add(application)


def is_fit(spark: SparkSession) -> bool:
    """True if the driver and the workers of a session's application have been looked at."""
    return spark.conf.get("spark.app.id", "") in _FIT


def active_session() -> SparkSession | None:
    """The SparkSession of this process, classic or Connect, without importing pyspark for it."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException:
        return None


def session_of(tables: Collection[Any], verb: str) -> SparkSession:
    """The session of the DataFrames among some tables, else the active one; SessionError where there is neither."""
    for table in tables:
        if hasattr(table, "sparkSession"):
            spark: SparkSession = table.sparkSession
            return spark
    active = active_session()
    if active is None:
        found = "the query has only literal and Arrow tables" if tables else ""
        raise SessionError(sentence(verb, "no active SparkSession", found, "Start one: sq.session()."))
    return active


def _adopt(active: SparkSession, master: str | None, wanted: Mapping[str, str]) -> SparkSession:
    there = master_of(active)
    stop = "Stop it first: SparkSession.active().stop()"
    if master is not None and master != there and not (master.startswith("sc://") and there.startswith("sc://")):
        raise SessionError(
            sentence("session", "another session is active", f"its master is {there}, not {master}", stop)
        )
    doctor(raise_on_problem=True)
    for key, value in (REQUIRED | dict(wanted)).items():
        now = active.conf.get(key, None)
        if now == value:
            continue
        if not active.conf.isModifiable(key):
            found = f"it has {key} = {now}, not {value}"
            raise SessionError(sentence("session", "the active session cannot be changed so", found, stop))
        active.conf.set(key, value)
    return active


SUBMITTED = "spark-submit"
"""Stands for the master that spark-submit has chosen."""


def default_master(environ: Mapping[str, str]) -> str:
    """What the environment has chosen, else Spark inside this process."""
    if "PYSPARK_GATEWAY_PORT" in environ:
        return SUBMITTED
    return environ.get("SPARK_REMOTE") or "local[*]"


def master_of(spark: SparkSession) -> str:
    """The master of a session; of a Connect session, whose server knows its own, ``sc://`` and where it is."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        client = spark.client
        return f"sc://{client.host}"
    return str(spark.conf.get("spark.master", "local"))


def is_local(master: str) -> bool:
    """Whether Spark and its workers run on this machine, inside or under this process."""
    return master.startswith("local")


def cores(master: str) -> int:
    """How many tasks run at once under ``local``, ``local[4]``, ``local[*,3]``, ``local-cluster[2,1,1024]``."""
    cluster = re.match(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)", master)
    if cluster is not None:
        return int(cluster[1]) * int(cluster[2])
    inside = re.match(r"local\[(\*|\d+)", master)
    if inside is None:
        return 1
    if inside[1] != "*":
        return int(inside[1])
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def driver_memory(cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Megabytes for an embedded Spark's heap: a quarter of what there is, from 1 to 8 GB.

    The rest is for what is not in the heap: RocksDB, the Python workers, the notebook's own frames.
    """
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        there = 8 << 30
    try:
        there = min(there, int(cgroup.read_text()))
    except (OSError, ValueError):  # no cgroup, or "max"
        pass
    return max(1024, min(8192, (there >> 20) // 4))


def _quiet() -> str:
    return f'"-Dlog4j2.configurationFile={(Path(__file__).parent / "log4j2.properties").as_uri()}"'


def _run(command: list[str], seconds: float, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=seconds, env=None if environ is None else dict(environ), encoding="utf-8", errors="replace",
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1, f"nothing in {seconds:g} seconds"
    except OSError as error:
        return -1, str(error)
    return done.returncode, done.stdout


def _excerpt(text: str) -> str:
    """What matters of an output: its last line, where Java and Python put the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing"


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
