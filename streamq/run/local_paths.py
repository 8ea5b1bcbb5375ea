"""Paths of files and folders on this computer, as users, Spark's descriptions and Spark's logs spell them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

SCHEME = "file:"
"""The beginning of a path, or of a URL, of this computer's files."""


def local_path(path: str) -> Path | None:
    """Return the path of a file or folder on this computer; None for one of another file system.

    A scheme may stand before it, as in ``file:/tmp/a``. The rest is no URL: ``#``, ``?`` and ``%41`` are part of a name.
    """
    if not path.startswith(SCHEME):
        return None if "://" in path else Path(path)
    rest = path.removeprefix(SCHEME).removeprefix("//")
    return Path(rest) if rest.startswith("/") else None


def path_of_url(url: str) -> Path | None:
    """Return the path of a file on this computer from its URL, as Spark's logs of files have it; None for other URLs."""
    return Path(unquote(urlsplit(url).path)) if url.startswith(SCHEME) else None


__all__ = ["local_path", "path_of_url"]
