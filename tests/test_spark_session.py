"""The doctor against fake Javas and interpreters: what it finds, and in which words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement

import streamq as sq
from streamq.errors import SessionError
from streamq.run.session.connector_needs import CONNECTORS, KAFKA
from streamq.run.session.findings import (
    CONNECT_NEEDS,
    DRIVER_NEEDS,
    Finding,
    Interpreter,
    Report,
    check_interpreter,
    check_java,
    check_server,
    check_spark_home,
    default_master,
    doctor,
    probe_interpreter,
    this_interpreter,
)
from streamq.run.session.spark_session import (
    WORKER_SITE,
    _check_kafka,
    cores,
    driver_memory,
    home_without_archive,
    session,
)

ROOT = Path(__file__).parent.parent
GOOD = {"pandas": "2.3.3", "pyarrow": "21.0.0", "google.protobuf": "6.33.0", "pyspark": "4.1.0"}

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the fakes are shell scripts")


def script(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return path


NO_MODULES = 'case "$1" in --add-modules*) echo "Module jdk.incubator.vector not found" >&2; exit 1;; esac'


def java(folder: Path, version: str, *lines: str) -> dict[str, str]:
    """An environment whose PATH has a Java of this version."""
    script(folder / "java", *lines, f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
    return {"PATH": str(folder)}


def worker(changes: Mapping[str, str] | None = None) -> Interpreter:
    """A worker with good versions but for the changes: a version, or what an import said."""
    modules = GOOD | (changes or {})
    failures = {name: text for name, text in modules.items() if not text[0].isdigit()}
    return Interpreter("/opt/python", (3, 11, 7), {k: v for k, v in modules.items() if k not in failures}, failures)


INSTALL = ". Install Java 17 or 21: apt-get"


@pytest.mark.parametrize(
    ("version", "wrong"),
    [
        *((version, "") for version in ("17.0.15", "17-ea", "21", "21.0.4+7-LTS")),
        ("1.8.0_392", "Java is too old"),
        ("11.0.2", "Java is too old"),
        ("25", "Java 25 is not supported"),
    ],
)
def test_java_17_and_21_will_do_and_no_other(tmp_path: Path, version: str, wrong: str) -> None:
    finding, place = check_java(java(tmp_path, version)), f"{version} at {tmp_path}/java"
    if wrong:
        begun = f"session: {wrong}; found {place}, Spark 4 needs 17 or 21{INSTALL}"
        assert finding.message("session").startswith(begun)
    else:
        assert finding == Finding("Java", place)


@pytest.mark.parametrize(
    ("lines", "seconds", "message"),
    [
        ((), 60, "there is no Java; JAVA_HOME is not set and PATH has no java"),
        (("echo No Java Runtime.", "exit 1"), 60, "Java does not run; {java} said 'No Java Runtime.'"),
        (("exec /bin/sleep 30",), 0.2, "Java does not run; {java} said 'nothing in 0.2 seconds'"),
        (
            (NO_MODULES, "echo 'version \"21.0.1\"'"),
            60,
            "Java lacks a module of Spark; found 21.0.1 at {java}, which said 'Module jdk.incubator.vector not found'",
        ),
    ],
)
def test_java_that_is_not_there_or_does_not_run(
    tmp_path: Path, lines: tuple[str, ...], seconds: float, message: str
) -> None:
    if lines:
        script(tmp_path / "java", *lines)
    finding = check_java({"PATH": str(tmp_path)}, seconds)
    assert finding.message().startswith(message.format(java=tmp_path / "java") + INSTALL)


def test_java_home_goes_before_path_even_if_it_is_empty(tmp_path: Path) -> None:
    environ = java(tmp_path / "bin", "17.0.1") | {"JAVA_HOME": str(tmp_path / "gone")}
    nothing = f"JAVA_HOME has no Java; there is no {tmp_path}/gone/bin/java{INSTALL}"
    assert check_java(environ).message().startswith(nothing)
    assert check_java(environ | {"JAVA_HOME": str(tmp_path)}).ok


def test_a_good_worker_is_one_line() -> None:
    (finding,) = check_interpreter("worker", worker(), DRIVER_NEEDS, (3, 11, 2))
    assert finding == Finding(
        "worker", "Python 3.11.7 at /opt/python, pyspark 4.1.0, pandas 2.3.3, pyarrow 21.0.0, protobuf 6.33.0"
    )


@pytest.mark.parametrize(
    ("package", "found", "message", "need"),
    [
        ("google.protobuf", "No module named 'google'", "the worker has no protobuf; looked in", "protobuf>=6.33,<8"),
        ("pyarrow", "libarrow.so: gone", "the worker cannot import pyarrow; /opt/python said 'libarrow.so: gone'", "pyarrow>=18"),
        *(
            (name, version, f"the worker has an unsupported {name}; found {version} in", f"{name}{bounds}")
            for name, version, bounds in (
                ("pandas", "3.0.0", ">=2.2,<3"), ("pyspark", "4.0.1", ">=4.1,<5"), ("pyspark", "5.0.0.dev1", ">=4.1,<5")
            )
        ),
    ],
)  # fmt: skip
def test_packages_of_a_worker(package: str, found: str, message: str, need: str) -> None:
    (finding,) = check_interpreter("worker", worker({package: found}), DRIVER_NEEDS)
    where = "" if "said" in message else " /opt/python"
    needs = f", streamq needs {need}" if "unsupported" in message else ""
    assert finding.message() == f"{message}{where}{needs}. Install it: /opt/python -m pip install '{need}'"


def test_a_worker_of_another_python_than_the_driver() -> None:
    (finding,) = check_interpreter("worker", worker(), DRIVER_NEEDS, (3, 12, 1))
    assert finding.message() == (
        "the worker runs another Python version than the driver; found 3.11.7 at /opt/python, the driver runs 3.12.1. "
        f"Set PYSPARK_PYTHON to {sys.executable}."
    )


def test_a_real_interpreter_without_packages(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    probed = probe_interpreter(python, environ={})
    assert isinstance(probed, Interpreter)
    assert probed.python == sys.version_info[:3]
    problems = check_interpreter("worker", probed, DRIVER_NEEDS[1:], sys.version_info[:3])
    assert [p.wrong for p in problems] == [f"the worker has no {name}" for name in ("pandas", "pyarrow", "protobuf")]
    assert problems[1].message() == (
        f"the worker has no pyarrow; looked in {python}. Install it: {python} -m pip install 'pyarrow>=18'"
    )


def test_the_interpreter_of_this_process() -> None:
    assert check_interpreter("driver", this_interpreter(), DRIVER_NEEDS)[0].ok
    assert check_interpreter("client", this_interpreter(CONNECT_NEEDS), CONNECT_NEEDS)[0].ok


@pytest.mark.parametrize("lines", [["exit 3"], ["echo hello"], ["echo nonsense >&2", "exit 127"]])
def test_interpreters_that_do_not_answer(tmp_path: Path, lines: list[str]) -> None:
    finding = probe_interpreter(str(script(tmp_path / "python", *lines)))
    assert isinstance(finding, Finding)
    assert finding.wrong == "the worker interpreter does not run"
    assert finding.hint == f"Set PYSPARK_PYTHON to {sys.executable}."


def test_an_interpreter_that_is_not_there() -> None:
    finding = probe_interpreter("/nowhere/python")
    assert isinstance(finding, Finding)
    assert finding.message("session").startswith(
        "session: the worker interpreter does not exist; there is no /nowhere/python. Set PYSPARK_PYTHON to /"
    )


def test_spark_home_of_another_version(tmp_path: Path) -> None:
    assert check_spark_home({}, "4.1.0") is None
    environ = {"SPARK_HOME": str(tmp_path)}
    empty = check_spark_home(environ, "4.1.0")
    assert empty is not None
    assert empty.wrong == "SPARK_HOME has no Spark"
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.1.0.jar").touch()
    same, other = check_spark_home(environ, "4.1.0"), check_spark_home(environ, "4.3.0")
    assert same is not None
    assert same.ok
    assert other is not None
    assert other.message() == (
        f"SPARK_HOME is another Spark than PySpark; found 4.1.0 in {tmp_path}, PySpark is 4.3.0. Unset SPARK_HOME."
    )


def test_a_spark_home_without_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where nobody said otherwise and workers have PySpark; it is told to the JVM alone."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with home_without_archive(sys.executable):
        home = Path(os.environ["SPARK_HOME"])
        assert (home / "bin" / "spark-submit").is_file()
        assert list((home / "jars").glob("spark-core_*.jar"))
        assert [p.name for p in (home / "python").rglob("*")] == ["lib", "pyspark.zip"]
        assert [p.name for p in (home / "python" / "lib" / "pyspark.zip").glob("*.py")] == ["sitecustomize.py"]
    assert "SPARK_HOME" not in os.environ
    with home_without_archive("/opt/python"):
        assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with home_without_archive(sys.executable):
        assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_what_workers_read_first(tmp_path: Path) -> None:
    """The process that asks a stage for its state prints nothing but errors; a Python's own sitecustomize has its turn."""
    (tmp_path / "sitecustomize.py").write_text("print('own')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(WORKER_SITE), str(tmp_path)])}
    asks = "pyspark.sql.streaming.transform_with_state_driver_worker"
    for argument, printed in (("", ["own", "1"]), (asks, [])):
        command = [sys.executable, "-c", "import sys; print(1); print(2, file=sys.stderr)", argument]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert (done.stdout.splitlines(), done.stderr.splitlines()) == (printed, ["2"])


def test_nobody_answers_at_a_connect_address() -> None:
    assert check_server("sc://127.0.0.1:9", seconds=1).wrong == "no Spark Connect server answers"
    with pytest.raises(SessionError, match="session: no Spark Connect server answers; sc://127.0.0.1:9 said"):
        doctor(master="sc://127.0.0.1:9", raise_on_problem=True)


def test_a_session_whose_process_began_without_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(KAFKA), "is_in", lambda need, spark: False)
    with pytest.raises(
        SessionError, match=r"the session has no connector for Kafka; .* Start Python anew, with kafka=True"
    ):
        _check_kafka(None)  # type: ignore[arg-type]


def test_doctor_looks_at_all_and_raises_once(tmp_path: Path) -> None:
    environ = java(tmp_path, "11.0.2")
    report = doctor(master="local[1]", worker="/nowhere/python", environ=environ)
    assert [f.subject for f in report.findings] == [
        "driver", "Java", "worker", "kafka", "delta", "iceberg", "postgres", "sql"
    ]  # fmt: skip
    assert [p.subject for p in report.problems] == ["Java", "worker"]
    assert not report.ok
    with pytest.raises(SessionError) as raised:
        doctor(master="local[1]", worker="/nowhere/python", environ=environ, raise_on_problem=True)
    lines = str(raised.value).splitlines()
    assert lines[0] == "session: 2 things are not as they must be."
    assert [line.partition(";")[0] for line in lines[1:]] == [
        "  - Java is too old",
        "  - the worker interpreter does not exist",
    ]


def test_doctor_leaves_a_cluster_s_workers_alone(tmp_path: Path) -> None:
    report = doctor(master="spark://host:7077", worker="/nowhere/python", environ=java(tmp_path, "17"))
    assert [f.subject for f in report.findings][:3] == ["driver", "Java", "kafka"]
    assert report.ok


def test_report_prints_as_a_table() -> None:
    report = Report(
        (Finding("Java", "17 at /java"), Finding("worker pandas", "looked in <x>", "no pandas", "Install it."))
    )
    assert str(report) == (
        "streamq doctor: 1 problem\n"
        "  ok       Java           17 at /java\n"
        "  PROBLEM  worker pandas  no pandas; looked in <x>. Install it."
    )
    assert '<th scope="row">worker pandas</th>' in report._repr_html_()
    assert "looked in &lt;x&gt;" in report._repr_html_()
    assert str(Report(())) == "streamq doctor: all is well"


def test_session_says_what_is_wrong_before_any_spark_starts() -> None:
    with pytest.raises(
        SessionError, match="^session: the worker interpreter does not exist; there is no /nowhere/python"
    ):
        session(master="local[1]", config={"spark.pyspark.python": "/nowhere/python"})


@pytest.mark.parametrize("verb", ["run", "to_stream", "to_df"])
def test_no_session_is_one_kind_of_error(verb: str) -> None:
    query = sq.events([(1, 2, {"v": 1})])
    found = "the query has no DataFrame"
    with pytest.raises(SessionError, match=f"^{verb}: no active SparkSession; {found}. Start one: sq.session()."):
        getattr(query, verb)()


@pytest.mark.parametrize(
    ("master", "expected"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("local-cluster[2,3,1024]", 6)]
)
def test_cores_of_a_master(master: str, expected: int) -> None:
    assert cores(master) == expected


def test_cores_and_memory_of_the_machine(tmp_path: Path) -> None:
    assert cores("local[*]") >= 1
    limit = tmp_path / "memory.max"
    limit.write_text(str(6 << 30))
    assert 1024 <= driver_memory(limit) <= 1536
    limit.write_text("max")
    assert 1024 <= driver_memory(limit) <= 8192


def test_master_of_the_environment() -> None:
    assert default_master({}) == "local[*]"
    assert default_master({"SPARK_REMOTE": "sc://host"}) == "sc://host"
    assert default_master({"PYSPARK_GATEWAY_PORT": "1"}) == "spark-submit"


def test_importing_the_module_does_not_import_spark() -> None:
    code = (
        "import sys, types; sys.modules['streamq'] = p = types.ModuleType('streamq'); p.__path__ = [sys.argv[1]]\n"
        + (
            "import streamq.run.session.spark_session; print([m for m in ('pyspark', 'pandas', 'pyarrow') if m in sys.modules])"
        )
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "streamq")], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_the_doctor_asks_for_what_pyproject_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["connect"]
    assert {str(need) for need in (*DRIVER_NEEDS, *CONNECT_NEEDS)} <= set(wanted)


def test_the_doctor_knows_what_connectors_need() -> None:
    release = {"4.1": "4.1.1", "4.2": "4.2.0", "4.3": "4.2.0"}[pyspark.__version__[:3]]
    jar = f"sq.session(kafka=True) brings org.apache.spark:spark-sql-kafka-0-10_2.13:{release}"
    versions = [f"{name} {metadata.version(name)}" for name in ("confluent-kafka", "fastavro")]
    assert KAFKA.finding(None).observed == "; ".join([jar, *versions])
    nothing = {purpose: replace(need, module="no_such_module") for purpose, need in KAFKA.packages.items()}
    missing = replace(KAFKA, packages=nothing)
    command = 'pip install "streamq[kafka]"'
    client = f"without confluent-kafka, for its sink and without Spark: {command}"
    assert missing.finding(None).observed == f"{jar}; {client}; without fastavro, for Avro: {command}"
    assert missing.finding(None).ok
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for need in CONNECTORS:
        assert {one.package for one in need.packages.values()} == {
            Requirement(line).name for line in project[need.name]
        }


def test_pins_satisfy_the_doctor() -> None:
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements" / "test.txt").read_text(), re.MULTILINE))
    assert [str(need) for need in (*DRIVER_NEEDS, *CONNECT_NEEDS) if not need.accepts(pins[need.package])] == []
