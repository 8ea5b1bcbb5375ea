"""Paths, and files that this program reaches by itself: reading, writing and copying them, without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pyarrow import fs

from streamq.errors import CheckpointError

SCHEME = "file:"
"""The beginning of a path, or of a URL, of this computer's files."""

PLAIN = "/:@!$&'()*+,;=~-._"
"""The signs that stand in the path of a URL as they are, beside letters and digits."""


def folder_name(path: str) -> str:
    """Return a unique name of a folder, for any spelling of its path: the absolute path, or a path with a scheme as it is."""
    return path.rstrip("/") if "://" in path or path.startswith("file:") else os.path.abspath(path)


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


def logged_files(log: Path, number: int) -> list[Path] | None:
    """Return the files on this computer in the entry of a log with a number, also a compact one; None if there is none.

    Raises ValueError for a damaged line.
    """
    file = next((f for f in (log / str(number), log / f"{number}.compact") if f.is_file()), None)
    if file is None:
        return None
    # the first line is the version of the log
    urls = [json.loads(line)["path"] for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    return [path for path in map(path_of_url, urls) if path is not None]


Edit = Callable[[bytes], bytes]
"""A function of the content of a file that returns what a copy of it holds."""


@dataclass(frozen=True)
class RawFolder:
    """A folder in a file system that this program can reach; ``path`` is its name there."""

    system: Any
    path: str

    @staticmethod
    def from_path(path: str, verb: str) -> RawFolder:
        """Return the folder that a user names; raise CheckpointError, in the name of ``verb``, if it cannot be reached."""
        try:
            local = local_path(path)
            return RawFolder(*fs.FileSystem.from_uri(folder_name(path) if local is None else str(local.absolute())))
        except Exception as error:
            wrong, hint = "this program cannot reach the files", "Run it where it can, with a path that Arrow knows."
            raise CheckpointError(verb, wrong, f"found {path}: {error}", hint) from error

    def __truediv__(self, name: str) -> RawFolder:
        return RawFolder(self.system, f"{self.path}/{name}")

    def files(self) -> list[str]:
        """Return the names of all files below, relative to the folder, without hidden ones; none if it does not exist."""
        selector = fs.FileSelector(self.path, allow_not_found=True, recursive=True)
        names = [i.path.removeprefix(f"{self.path}/") for i in self.system.get_file_info(selector) if i.is_file]
        # Spark keeps check sums beside its files, in hidden ones
        return sorted(name for name in names if not PurePosixPath(name).name.startswith("."))

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self.system.open_input_stream(f"{self.path}/{name}") as stream:
            return bytes(stream.read())

    def write(self, name: str, content: bytes) -> None:
        """Write a file, replacing its content; folders above it are created."""
        path = PurePosixPath(self.path) / name
        self.system.create_dir(str(path.parent), recursive=True)
        with self.system.open_output_stream(str(path)) as stream:
            stream.write(content)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file so that others read the old content or the new one, where the file system renames at once."""
        self.write(f"{name}.new", content)
        self.system.move(f"{self.path}/{name}.new", f"{self.path}/{name}")

    def has(self, name: str) -> bool:
        """Return True if there is a file or a folder of that name."""
        return bool(self.system.get_file_info(f"{self.path}/{name}").type != fs.FileType.NotFound)

    def folders(self) -> list[str]:
        """Return the names of the folders in it, sorted; none if it does not exist."""
        infos = self.system.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(info.base_name for info in infos if not info.is_file)

    def copy_to(self, target: RawFolder, edit: Edit = bytes) -> None:
        """Copy all files to another folder, with the content that ``edit`` makes of theirs."""
        for name in self.files():
            target.write(name, edit(self.read(name)))

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.system.delete_file(f"{self.path}/{name}")

    def delete(self) -> None:
        """Delete the folder with all that is in it, if it exists."""
        if self.system.get_file_info(self.path).type != fs.FileType.NotFound:
            self.system.delete_dir(self.path)
