"""Find what streamq needs on a machine, one finding for each check: packages, interpreters, Java, Spark; and report it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from streamq import html
from streamq.errors import SessionError, check_keywords, sentence
from streamq.run.failure import is_sparks, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SECONDS = 60.0
"""The time limit of a command; a cold interpreter on a busy machine needs several seconds to import pandas."""


def run_command(
    command: Sequence[str], seconds: float, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command, without input, for at most ``seconds``; a failure is returned, not raised.

    Its ``stdout`` holds stderr, too. If the command does not start or does not end in time, the code is -1, and ``stdout`` says
    why.
    """
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=seconds, env=None if environ is None else dict(environ), encoding="utf-8", errors="replace",
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, -1, f"nothing in {seconds:g} seconds")
    except OSError as error:
        return subprocess.CompletedProcess(command, -1, str(error))


def last_line(output: str) -> str:
    """Return the last line that a command printed, where Java and Python put the error; at most 200 characters."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing"


@dataclass(frozen=True)
class Finding:
    """The result of one check: what was observed and, in case of a problem, what is wrong and how to fix it."""

    subject: str
    observed: str
    wrong: str = ""
    hint: str = ""

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.wrong

    def message(self, verb: str = "") -> str:
        """Return the message of an error about this finding."""
        text = sentence(verb, self.wrong, self.observed, self.hint)
        return text if verb else text.removeprefix(": ")


@dataclass(frozen=True)
class Report:
    """The findings of :func:`streamq.doctor`; it prints as a table, also in a notebook."""

    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that are problems."""
        return tuple(finding for finding in self.findings if not finding.ok)

    @property
    def ok(self) -> bool:
        """True if there is no problem."""
        return not self.problems

    @property
    def headline(self) -> str:
        """The first line of the printed report."""
        count = len(self.problems)
        return "streamq doctor: " + ("all is well" if not count else f"{count} problem{'s'[: count > 1]}")

    def raise_problems(self, verb: str = "session", advice: str = "") -> None:
        """Raise one SessionError for all problems, if there are any; ``advice`` is a hint that solves each of them."""
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
        width = max((len(finding.subject) for finding in self.findings), default=0)
        indent = " " * (width + 11)
        lines = [self.headline]
        for finding in self.findings:
            text = finding.observed if finding.ok else finding.message()
            head = f"  {'ok' if finding.ok else 'PROBLEM':7}  {finding.subject:{width}}"
            lines += textwrap.wrap(
                text, 118, initial_indent=f"{head}  ", subsequent_indent=f"{indent}  ",
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [(f.subject, "ok" if f.ok else "PROBLEM", f.observed if f.ok else f.message()) for f in self.findings]
        return html.fragment(html.tabulated((), rows, self.headline, named=True))


@dataclass(frozen=True)
class PackageNeed:
    """A package that an interpreter must be able to import under the name ``module``."""

    package: str
    module: str

    @property
    def requirement(self) -> Requirement:
        """The versions that streamq requires."""
        return _requirements().get(canonicalize_name(self.package), Requirement(self.package))

    def __str__(self) -> str:
        bounds = sorted(map(str, self.requirement.specifier), reverse=True)
        return self.package + ",".join(bounds)

    def accepts(self, version: str) -> bool:
        """Return True if streamq's requirement includes the version, of which only the numbers count."""
        return self.requirement.specifier.contains(_release(version))


@cache
def _requirements() -> dict[str, Requirement]:
    """Return streamq's requirements, including optional ones, by package; empty if it is not installed."""
    # its imports would be a twentieth of those of all public names
    from importlib import metadata

    try:
        lines = metadata.requires("streamq") or []
    except metadata.PackageNotFoundError:
        return {}
    requirements = [Requirement(line) for line in lines]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def _release(version: str) -> Version:
    """Return the numbers of a version, without suffixes like "rc1".

    Of a vendor's version that is not legal by Python's rules they are the numbers that it begins with, or 0.
    """
    try:
        return Version(Version(version).base_version)
    except InvalidVersion:
        numbers = re.match(r"\d+(\.\d+)*", version)
        return Version(numbers[0] if numbers else "0")


WORKER_NEEDS = (
    PackageNeed("pandas", "pandas"),
    PackageNeed("pyarrow", "pyarrow"),
    PackageNeed("protobuf", "google.protobuf"),
)
DRIVER_NEEDS = (PackageNeed("pyspark", "pyspark"), *WORKER_NEEDS)
CONNECT_NEEDS = (
    PackageNeed("grpcio", "grpc"),
    PackageNeed("grpcio-status", "grpc_status"),
    PackageNeed("googleapis-common-protos", "google.rpc.status_pb2"),
    PackageNeed("zstandard", "zstandard"),
)


JAVAS = (17, 21)
"""The major versions of Java that Spark 4 runs on."""

_SUPPORTED = " or ".join(map(str, JAVAS))
_INSTALL = (
    f"Install Java {_SUPPORTED}: apt-get install default-jre-headless (Debian, Ubuntu), dnf install "
    "java-21-openjdk-headless (Fedora, RHEL), brew install openjdk@21 (macOS); or point JAVA_HOME at it."
)


def check_java(environ: Mapping[str, str], seconds: float = SECONDS) -> Finding:
    """Check the Java that Spark's launcher would start, JAVA_HOME's before PATH's: version 17 or 21, with all modules.

    The finding names the version or, if something is wrong, the first thing that is. ``seconds`` bounds each start of Java.
    """
    home = environ.get("JAVA_HOME", "")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else environ.get("PATH", ""))
    if java is None and home:
        return Finding("Java", f"there is no {Path(home) / 'bin' / 'java'}", "JAVA_HOME has no Java", _INSTALL)
    if java is None:
        return Finding("Java", "JAVA_HOME is not set and PATH has no java", "there is no Java", _INSTALL)

    outcome = run_command([java, "-version"], seconds)
    version = re.search(r'version "([^"]+)"', outcome.stdout)
    if outcome.returncode != 0 or version is None:
        return Finding("Java", f"{java} said {last_line(outcome.stdout)!r}", "Java does not run", _INSTALL)
    version_and_place = f"{version[1]} at {java}"
    number = re.match(r"\d+", version[1].removeprefix("1."))
    major = int(number[0]) if number else 0
    if major not in JAVAS:
        wrong = "Java is too old" if major < JAVAS[0] else f"Java {major} is not supported"
        return Finding("Java", f"found {version_and_place}, Spark 4 needs {_SUPPORTED}", wrong, _INSTALL)

    outcome = run_command([java, "--add-modules=jdk.incubator.vector", "-version"], seconds)
    if outcome.returncode != 0:
        observed = f"found {version_and_place}, which said {last_line(outcome.stdout)!r}"
        return Finding("Java", observed, "Java lacks a module of Spark", _INSTALL)
    return Finding("Java", version_and_place)


def check_spark_home(environ: Mapping[str, str], pyspark: str) -> Finding | None:
    """Check that the Spark in SPARK_HOME, which PySpark prefers to its own, has PySpark's version; None without SPARK_HOME."""
    home = environ.get("SPARK_HOME")
    if not home:
        return None
    jars = sorted((Path(home) / "jars").glob("spark-core_*.jar"))
    if not jars:
        observed = f"there is no jars/spark-core in {home}"
        return Finding("SPARK_HOME", observed, "SPARK_HOME has no Spark", "Unset SPARK_HOME.")
    version = jars[0].stem.partition("-core_")[2].partition("-")[2]
    if version == pyspark:
        return Finding("SPARK_HOME", f"Spark {version} in {home}")
    observed = f"found {version} in {home}, PySpark is {pyspark}"
    return Finding("SPARK_HOME", observed, "SPARK_HOME is another Spark than PySpark", "Unset SPARK_HOME.")


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


_CHECKED: set[str] = set()
"""Ids of Spark applications whose driver and workers have passed the checks for streams."""


def mark_checked(spark: SparkSession) -> None:
    """Record that the driver and the workers of a session's application need no further check, if it has an id."""
    application = spark.conf.get("spark.app.id", "")
    if application:
        _CHECKED.add(application)


def active_session() -> SparkSession | None:
    """Return the SparkSession of this process, classic or Connect, if it has one, without importing pyspark for that."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException:
        return None


def session_of(tables: Collection[Any], verb: str) -> SparkSession:
    """Return the session of the first DataFrame among some tables, else the active one; raise SessionError without any."""
    for table in tables:
        if hasattr(table, "sparkSession"):
            spark: SparkSession = table.sparkSession
            return spark
    active = active_session()
    if active is None:
        reason = "the query has no DataFrame" if tables else ""
        raise SessionError(verb, "no active SparkSession", reason, "Start one: sq.session().")
    return active


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter, with the version of each module that it imported and the error of each that it could not import."""

    path: str
    python: tuple[int, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Python's version, as ``3.11.7``."""
        return ".".join(map(str, self.python))

    def packages(self, needs: Iterable[PackageNeed]) -> str:
        """Return the needed packages that it has, as text: ``pandas 2.3.3, pyarrow 21.0.0``."""
        present = [need for need in needs if need.module in self.versions]
        return ", ".join(f"{need.package} {self.versions[need.module]}".rstrip() for need in present)


PROBE = """
def probe(names):
    import importlib, json, sys
    versions, failures = {}, {}
    for name in names:
        try:
            module = importlib.import_module(name)
            if getattr(module, "__file__", None) is None:
                # a folder of that name, such as one in Spark's jars on the path of a worker
                raise ImportError("No module named %r" % name)
            versions[name] = str(getattr(module, "__version__", ""))
        except Exception as error:
            failures[name] = str(error)
    return json.dumps([sys.executable, sys.version_info[:3], versions, failures])
"""
"""A function that imports modules and returns, as JSON, what ``Interpreter`` has; any version of Python may run it."""


def interpreter_from(answer: str) -> Interpreter:
    """Return the interpreter that a call of PROBE has described."""
    path, python, versions, failures = json.loads(answer)
    return Interpreter(path, tuple(python), versions, failures)


def this_interpreter(needs: Iterable[PackageNeed] = DRIVER_NEEDS) -> Interpreter:
    """Import the packages in this process and return its interpreter."""
    scope: dict[str, Any] = {}
    exec(PROBE, scope)
    return interpreter_from(scope["probe"]([need.module for need in needs]))


def probe_interpreter(command: str, environ: Mapping[str, str] | None = None) -> Interpreter | Finding:
    """Start another interpreter that imports the packages of a worker, and return it; return a finding if it does not answer.

    ``command`` is its name or path.
    """
    path = shutil.which(command, path=(os.environ if environ is None else environ).get("PATH", ""))
    hint = f"Set PYSPARK_PYTHON to {sys.executable}."
    if path is None:
        return Finding("worker", f"there is no {command}", "the worker interpreter does not exist", hint)
    code = f"{PROBE}\nimport sys\nprint(probe(sys.argv[1:]))"
    outcome = run_command([path, "-c", code, *(need.module for need in WORKER_NEEDS)], SECONDS, environ)
    answer = outcome.stdout.strip().rpartition("\n")[2]  # a sitecustomize may have printed before
    if outcome.returncode != 0 or not answer.startswith('["'):
        observed = f"{path} said {last_line(outcome.stdout)!r}"
        return Finding("worker", observed, "the worker interpreter does not run", hint)
    return replace(interpreter_from(answer), path=path)


def check_interpreter(
    who: str, interpreter: Interpreter, needs: Iterable[PackageNeed], driver_python: tuple[int, ...] | None = None
) -> list[Finding]:
    """Return one finding for each package that is missing, broken or of a wrong version, else one that lists all packages.

    ``who`` names the interpreter in messages. ``driver_python``: the driver's version; an interpreter of another minor version
    gets a finding, too, as PySpark refuses such workers in the first job.
    """
    needs = tuple(needs)
    problems = []
    if driver_python is not None and interpreter.python[:2] != driver_python[:2]:
        driver = ".".join(map(str, driver_python))
        problems.append(
            Finding(
                f"{who} Python",
                f"found {interpreter.version} at {interpreter.path}, the driver runs {driver}",
                f"the {who} runs another Python version than the driver",
                f"Set PYSPARK_PYTHON to {sys.executable}.",
            )
        )
    problems += [problem for need in needs if (problem := _package_problem(who, interpreter, need)) is not None]
    summary = f"Python {interpreter.version} at {interpreter.path}, {interpreter.packages(needs)}"
    return problems or [Finding(who, summary)]


def _package_problem(who: str, interpreter: Interpreter, need: PackageNeed) -> Finding | None:
    """Return the finding for a package that is missing, broken or of a wrong version; None if it is as needed."""
    version, failure = interpreter.versions.get(need.module), interpreter.failures.get(need.module, "")
    if version is None and not failure.startswith("No module named"):
        wrong = f"the {who} cannot import {need.package}"
        observed = f"{interpreter.path} said {last_line(failure)!r}"
    elif version is None:
        wrong, observed = f"the {who} has no {need.package}", f"looked in {interpreter.path}"
    elif version and not need.accepts(version):
        wrong = f"the {who} has an unsupported {need.package}"
        observed = f"found {version} in {interpreter.path}, streamq needs {need}"
    else:
        return None
    hint = f"Install it: {interpreter.path} -m pip install {shlex.quote(str(need))}"
    return Finding(f"{who} {need.package}", observed, wrong, hint)


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
    Connect and the workers of a cluster are on other machines and are not checked. A line for each connector says which of
    its packages are there, and which release of Spark's connector fits. With ``raise_on_problem``, problems raise a SessionError.
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
    if raise_on_problem:
        Report(tuple(findings)).raise_problems()
        return Report(tuple(findings))
    from streamq.run.session.connector_needs import CONNECTORS

    return Report((*findings, *(connector.finding(active) for connector in CONNECTORS)))


def check_driver_and_workers(spark: SparkSession, verb: str) -> None:
    """Raise SessionError if a session's driver or its workers lack something that a stream needs.

    Workers are checked by a job of one task, once for each application, because a stage whose Python process cannot start reports
    only that the process has ended.
    """
    if spark.conf.get("spark.app.id", "") in _CHECKED:
        return
    driver = this_interpreter()
    advice = f"Or set PYSPARK_PYTHON to {sys.executable} before Spark starts, or have sq.session() start it."
    findings = [*check_interpreter("driver", driver, DRIVER_NEEDS), *check_workers(spark, driver)]
    Report(tuple(findings)).raise_problems(verb, advice if is_local(master_of(spark)) else "")
    mark_checked(spark)


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
    def probe(code: str = PROBE) -> str:
        scope: dict[str, Any] = {}
        exec(code, scope)
        return str(scope["probe"](modules))

    column = F.udf(probe, "string", useArrow=False).asNondeterministic()
    ((answer,),) = spark.range(1, numPartitions=1).select(column()).collect()
    return interpreter_from(answer)
