"""The pytest plugin: options, failing cases saved under their test's name, and saved cases run as tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streamq import testing as t
from streamq.pytest_plugin import PROFILES, chosen_options

ROOT = Path(__file__).parents[2]
KEPT = "union_of_edges_whose_ends_are_read.streamq.json"

SUITE = """
from dataclasses import replace
from unittest import mock

import streamq as sq
from streamq import testing as t
from streamq.runtime.kernels.settle import SettleKernel
from streamq.testing.profiles import loaded_profile

EDGES = sq.edges(t.table("at bigint, e string, k string", []), time="at", edge="e", key=["k"], name="edges")


def test_profile():
    found = loaded_profile()
    assert (found.examples, found.batch, found.streams, found.seed) == (3, 0, 0, 5)
    assert t.verify(EDGES).cases == 3


def test_wrong():
    with mock.patch.object(SettleKernel, "advance", lambda *_: 1 / 0):
        # to the end, however slow the machine
        t.verify(EDGES, t.Intent(events=1), profile=replace(loaded_profile(), shrinking=300))
"""


BREAKING = """
from streamq.runtime.kernels.settle import SettleKernel

SettleKernel.advance = lambda *_: 1 / 0
"""


def pytest_in(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """pytest in a folder of its own, as a user runs it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("STREAMQ_", "PYTEST_"))} | variables
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("profile", "fsat", "=fsat: no such profile; there are: fast, default, thorough, nightly"),
        ("examples", "x", "=x: a number of cases is a whole number from 1"),
        ("examples", "0", "=0: a number of cases"),
        ("examples", "-3", "=-3: a number of cases"),
        ("seed", "abc", "=abc: a seed is a whole number, or 'random'"),
        ("failures", "", "=: not a folder"),
    ],
)
def test_usage_errors(name: str, given: str, message: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"^--streamq-{name}{message}"):
        chosen_options({name: given}, {})
    if given:
        with pytest.raises(pytest.UsageError, match=f"^STREAMQ_{name.upper()}{message}"):
            chosen_options({}, {f"STREAMQ_{name.upper()}": given})


def test_options_go_before_variables() -> None:
    environ = {"STREAMQ_SEED": "random", "STREAMQ_PROFILE": "nightly", "STREAMQ_EXAMPLES": ""}
    found = chosen_options({"profile": "fast"}, environ)
    assert found == {"profile": "fast", "seed": found["seed"]}
    assert int(found["seed"]) >= 0
    assert chosen_options({"seed": "-5"}, environ)["seed"] == "-5"
    assert tuple(t.PROFILES) == PROFILES


@pytest.mark.slow
def test_a_failing_case_is_saved_and_can_be_run_again(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(SUITE)
    kept = (ROOT / "tests" / "replays" / KEPT).read_text()
    (tmp_path / "kept.streamq.json").write_text(kept)
    (tmp_path / "damaged.streamq.json").write_text(kept.replace('"bucket', '"pail'))
    ran = pytest_in(tmp_path, "-v", "--streamq-profile=fast", "--streamq-examples=3", "--streamq-seed=5")
    output = ran.stdout + ran.stderr
    assert "2 failed, 2 passed" in ran.stdout, output
    assert "streamq: --streamq-seed=5" in ran.stdout, output
    assert "streamq: 1 verifications over 3 cases, --streamq-seed=5" in ran.stdout, output
    assert "replay: not a case" in ran.stdout, output
    assert "in runtest" not in ran.stdout, output
    (saved,) = (tmp_path / ".streamq-failures").glob("*.streamq.json")
    assert saved.name == "test_mine.py-test_wrong.streamq.json"
    assert "ZeroDivisionError" in saved.read_text()
    # what was wrong is right again: the operator is no longer replaced
    t.replay(saved)
    # while it is wrong, the file says so in as many lines as the case has
    (tmp_path / "conftest.py").write_text(BREAKING)
    again = pytest_in(tmp_path, "-q", str(saved), STREAMQ_SEED="random")
    assert again.returncode == 1, again.stdout
    assert "ZeroDivisionError: division by zero" in again.stdout
    assert len(again.stdout.splitlines()) < 60, again.stdout
    assert re.search(r"^streamq: --streamq-seed=\d+$", again.stdout, re.MULTILINE)
    wrong = pytest_in(tmp_path, "-q", "--streamq-seed=abc")
    assert (wrong.returncode, wrong.stdout) == (pytest.ExitCode.USAGE_ERROR, "")
    assert "ERROR: --streamq-seed=abc: a seed is a whole number" in wrong.stderr


def test_without_its_packages_the_framework_says_what_to_install() -> None:
    script = "import sys; sys.modules['duckdb'] = None; from streamq import testing"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1] == "ImportError: streamq.testing needs duckdb: pip install 'streamq[testing]'"
