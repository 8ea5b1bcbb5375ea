"""The project's Python files, parsed once a process."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parents[1]


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree, which nobody changes."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def python_files(folder: str) -> tuple[Path, ...]:
    """All files of Python's below a folder of the project."""
    return tuple(sorted((ROOT / folder).rglob("*.py")))
