"""The Java and the Spark that PySpark would start on this machine."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from streamq.run.commands import SECONDS, last_line, run_command
from streamq.run.findings import Finding

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
    version = re.search(r'version "([^"]+)"', outcome.output)
    if outcome.code != 0 or version is None:
        return Finding("Java", f"{java} said {last_line(outcome.output)!r}", "Java does not run", _INSTALL)
    version_and_place = f"{version[1]} at {java}"
    number = re.match(r"\d+", version[1].removeprefix("1."))
    major = int(number[0]) if number else 0
    if major not in JAVAS:
        wrong = "Java is too old" if major < JAVAS[0] else f"Java {major} is not supported"
        return Finding("Java", f"found {version_and_place}, Spark 4 needs {_SUPPORTED}", wrong, _INSTALL)

    outcome = run_command([java, "--add-modules=jdk.incubator.vector", "-version"], seconds)
    if outcome.code != 0:
        observed = f"found {version_and_place}, which said {last_line(outcome.output)!r}"
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
