"""Paths of files and folders on this computer, as users, Spark's descriptions and Spark's logs spell them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

SCHEME = "file:"
"""The beginning of a path, or of a URL, of this computer's files."""

PLAIN = "/:@!$&'()*+,;=~-._"
"""The signs that stand in the path of a URL as they are, beside letters and digits."""


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


def in_url(path: str) -> str:
    """Return a path as it stands in the URLs of Spark's logs of files, which escape signs of ASCII alone, such as spaces."""
    return "".join(sign if sign > "\x7f" else quote(sign, safe=PLAIN) for sign in path)


__all__ = ["in_url", "local_path", "path_of_url"]
