"""Of a sample of small faults, whatever survives is known to be equivalent; an hour, so only in a soak (see ``conftest.py``)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.mutation.comparisons.faults import ROOT

SAMPLE, SEED = 120, 0
"""So many faults, the same in every run."""


@pytest.mark.slow
def test_what_survives_is_equivalent() -> None:
    command = [sys.executable, "-m", "tests.mutation.comparisons", "--sample", str(SAMPLE), "--seed", str(SEED)]
    # the nearest tests are run as they are by default
    environ = {name: value for name, value in os.environ.items() if name != "STREAMQ_SOAK"}
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ)
    assert ran.returncode == 0, ran.stdout + ran.stderr
