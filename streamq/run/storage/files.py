"""Paths and files of checkpoints and sinks, by Spark and without it, and the offsets in Spark's log of micro-batches."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pyarrow import fs
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from streamq.errors import CheckpointError
from streamq.run.failure import spark_errors
from streamq.runtime.hosts.identity import Identity

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


WRITABLE = "A checkpoint is a folder that all of Spark can write into."
"""The hint of an error about a checkpoint that Spark cannot read or write."""


def path_exists(spark: SparkSession, path: str) -> bool:
    """Return True if a path, or one that matches its wildcards, exists.

    Raises QueryFailed if Spark cannot read there.
    """
    with spark_errors("run", f"Spark cannot read {path}", "Use a sink that all of Spark can write into."):
        return _table(spark.read.format("binaryFile"), path) is not None


def read_line(spark: SparkSession, path: str) -> str | None:
    """Return the line in a checkpoint's file; None if there is no such file, or no line in it.

    Raises CheckpointError if Spark cannot read it.
    """
    with spark_errors("run", f"Spark cannot read {path}", WRITABLE, CheckpointError):
        table = _table(spark.read.format("text"), path)
        row = None if table is None else table.select("value").first()
    return None if row is None else str(row[0])


def last_number(spark: SparkSession, folder: str) -> int:
    """Return the greatest number that is the name of a file in a folder of Spark's log; -1 if there is none."""
    with spark_errors("run", f"Spark cannot read {folder}", WRITABLE, CheckpointError):
        table = _table(spark.read.format("binaryFile"), f"{folder}/*")
        paths = [] if table is None else [row[0] for row in table.select("path").collect()]
    names = [path.rpartition("/")[2] for path in paths]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def write_line(spark: SparkSession, path: str, line: str) -> None:
    """Write a line to a checkpoint's file, replacing its content; raise CheckpointError if Spark cannot write it."""
    with spark_errors("run", f"Spark cannot write {path}", WRITABLE, CheckpointError):
        spark.range(0, 1, 1, 1).select(F.lit(line).alias("value")).write.mode("overwrite").text(path)


def _table(reader: DataFrameReader, path: str) -> DataFrame | None:
    """Return the files of a path as a table; None if the path does not exist.

    The path is passed twice: for a single missing path Spark first looks for a sink's log, and logs a warning with a Java stack
    trace. Spark reads no rows from a folder whose name begins with an underscore.
    """
    try:
        table = reader.load([path, path])
        # Spark Connect looks for the files when their schema is asked for
        _ = table.schema
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
    return table


FORMAT = "v1"
"""The format of the log that streamq can read and write."""

UNREAD = "-"
"""The offset of a source of which nothing has been read."""

CLOCK, CONTROL = "the clock", "the control folder"
"""The names of the sources that are no table's."""


def spark_sources(identity: Identity) -> list[str]:
    """Return the names of the sources that Spark reads for a query, in its order: tables, and streamq's own."""
    return [*([CLOCK] if identity.clock else []), *identity.sources, CONTROL]


@dataclass(frozen=True)
class Offsets:
    """The offsets of a micro-batch, by source; ``settings`` are Spark's of that micro-batch, as JSON."""

    settings: Mapping[str, Any]
    by_source: Mapping[str, str]

    @staticmethod
    def read(content: bytes, sources: list[str], verb: str) -> Offsets:
        """Return the offsets in a file of Spark's log; raise CheckpointError if it is of another format."""
        form, settings, *offsets = content.decode().split("\n")
        if form != FORMAT or len(offsets) != len(sources):
            wrong = "Spark's log of offsets is of another format"
            raise CheckpointError(verb, wrong, f"found {form} with {len(offsets)} source(s)")
        return Offsets(json.loads(settings), dict(zip(sources, offsets, strict=True)))

    def to_bytes(self, sources: list[str], partitions: str) -> bytes:
        """Return a file of Spark's log with these sources, for a query with so many shuffle partitions."""
        conf = {**self.settings["conf"], "spark.sql.shuffle.partitions": partitions}
        lines = [FORMAT, json.dumps({**self.settings, "conf": conf}), *(self.by_source.get(s, UNREAD) for s in sources)]
        return "\n".join(lines).encode()


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

    def copy_to(self, target: RawFolder, edit: Edit = bytes) -> None:
        """Copy all files to another folder, with the content that ``edit`` makes of theirs."""
        for name in self.files():
            target.write(name, edit(self.read(name)))

    def delete(self) -> None:
        """Delete the folder with all that is in it, if it exists."""
        if self.system.get_file_info(self.path).type != fs.FileType.NotFound:
            self.system.delete_dir(self.path)
