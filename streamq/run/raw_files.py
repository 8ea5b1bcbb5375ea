"""Files of a checkpoint as Spark lays them out, read and written without Spark, and the offsets in its log of micro-batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from pyarrow import fs

from streamq.errors import CheckpointError, sentence
from streamq.run.files import local_path
from streamq.run.sinks.sink import folder_name
from streamq.runtime.hosts.identity import Identity

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
            raise CheckpointError(sentence(verb, wrong, f"found {form} with {len(offsets)} source(s)"))
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
            raise CheckpointError(sentence(verb, wrong, f"found {path}: {error}", hint)) from error

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
