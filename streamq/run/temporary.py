"""Temporary folders that exist as long as this process."""

from __future__ import annotations

import atexit
import shutil
import tempfile


def temporary_folder(prefix: str) -> str:
    """Create a folder that is removed when this process ends, and return its path."""
    path = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
