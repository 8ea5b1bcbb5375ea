"""The project's Python files."""

from __future__ import annotations

import functools
from pathlib import Path

ROOT = Path(__file__).parents[1]


@functools.cache
def python_files(folder: str) -> tuple[Path, ...]:
    """All files of Python's below a folder of the project."""
    return tuple(sorted((ROOT / folder).rglob("*.py")))
