"""Spark's logs of the files that a source has read, and that a sink has written, on this computer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamq.run.local_paths import path_of_url


def log_lines(log: Path, number: int) -> list[str] | None:
    """Return the lines on files in the entry of a log with a number, also a compact one; None if there is no such entry."""
    file = next((f for f in (log / str(number), log / f"{number}.compact") if f.is_file()), None)
    # the first line is the version of the log
    return None if file is None else file.read_text(encoding="utf-8").splitlines()[1:]


def logged_file(line: str) -> tuple[Path | None, dict[str, Any]]:
    """Return the path of a file from its line, None if it is not on this computer, and all that the line says.

    Raises ValueError for a damaged line.
    """
    entry: dict[str, Any] = json.loads(line)
    return path_of_url(entry["path"]), entry


__all__ = ["log_lines", "logged_file"]
