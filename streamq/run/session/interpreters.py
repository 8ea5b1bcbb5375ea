"""The Python interpreters of the driver and of Spark's workers, and the packages that they can import."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamq.run.session.findings import (
    DRIVER_NEEDS,
    SECONDS,
    WORKER_NEEDS,
    Finding,
    PackageNeed,
    last_line,
    run_command,
)


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
    answer = outcome.output.strip().rpartition("\n")[2]  # a sitecustomize may have printed before
    if outcome.code != 0 or not answer.startswith('["'):
        observed = f"{path} said {last_line(outcome.output)!r}"
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
