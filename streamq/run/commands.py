"""Run commands of the machine for the doctor, each within a time limit."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SECONDS = 60.0
"""The time limit of a command; a cold interpreter on a busy machine needs several seconds to import pandas."""


@dataclass(frozen=True)
class CompletedCommand:
    """The result of a command: its exit code (-1 if it could not run or did not end) and all that it printed."""

    code: int
    output: str


def run_command(command: Sequence[str], seconds: float, environ: Mapping[str, str] | None = None) -> CompletedCommand:
    """Run a command, without input, for at most ``seconds``; a failure is returned, not raised.

    The output holds stdout and stderr together. If the command does not start or does not end in time, the code is -1, and the
    output says why.
    """
    try:
        completed = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=seconds, env=None if environ is None else dict(environ), encoding="utf-8", errors="replace",
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return CompletedCommand(-1, f"nothing in {seconds:g} seconds")
    except OSError as error:
        return CompletedCommand(-1, str(error))
    return CompletedCommand(completed.returncode, completed.stdout)


def last_line(output: str) -> str:
    """Return the last line that a command printed, where Java and Python put the error; at most 200 characters."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing"
