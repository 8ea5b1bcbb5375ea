"""Whatever survives of the table, and of a sample by rule, changes no answer; hours, so in a soak alone (``conftest.py``)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.mutation.faults import ROOT

TRIED = {"the table": ["--table"], "a sample by rule": ["--sample", "120"]}
"""The arguments of ``python -m tests.mutation``; the sample is the same in every run."""


@pytest.mark.slow
@pytest.mark.parametrize("faults", TRIED)
def test_what_survives_is_equivalent(faults: str) -> None:
    # the nearest tests are run as they are by default
    environ = {name: value for name, value in os.environ.items() if name != "STREAMQ_SOAK"}
    command = [sys.executable, "-m", "tests.mutation", *TRIED[faults]]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ)
    assert ran.returncode == 0, ran.stdout + ran.stderr
