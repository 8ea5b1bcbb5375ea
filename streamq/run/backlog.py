"""The backlog of a run with the trigger "available_now": the files and bytes that it has read, of those that there are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import iglob
from pathlib import Path
from typing import Any, NamedTuple

from streamq.errors import counted
from streamq.run.status.history import MicroBatch, RunHistory
from streamq.run.storage.files import local_path, log_lines, logged_file

FILE_SOURCE = "FileStreamSource"
"""The word before the bracket with the folder, in Spark's description of a source that reads one."""


class WorkDone(NamedTuple):
    """The bytes that a run has read, those of its whole backlog (None: nobody knows), and a text with all that is counted."""

    done: int
    total: int | None
    note: str


class LogEntry(NamedTuple):
    """A file in the log that Spark keeps of a source's files, with the position at which it was read."""

    path: Path
    position: int


@dataclass
class FolderBacklog:
    """The files of a source at the first look, by path with their sizes, and those that Spark has read since.

    ``position`` is that of the last entry of ``log``, Spark's own, that has been counted.
    """

    log: Path
    position: int
    sizes: Mapping[Path, int]
    files: int = 0
    bytes: int = 0

    def read_until(self, position: int) -> None:
        """Count the files that Spark has read since the last call, until a position."""
        for number in range(self.position + 1, position + 1):
            for entry in log_entries(self.log, number):
                if entry.position == number and entry.path in self.sizes:
                    self.files += 1
                    self.bytes += self.sizes[entry.path]
            self.position = number


class Backlog:
    """The files that a run reads from folders on this computer; its checkpoint, with Spark's log of files, is there too."""

    def __init__(self, checkpoint: str):
        self._checkpoint = local_path(checkpoint)
        self._folders: dict[int, FolderBacklog] | None = None

    def work(self, history: RunHistory) -> WorkDone:
        """Return the work that a history tells of.

        Only rows and micro-batches are counted if no source reads such a folder, and while files or Spark's log of them cannot be
        read: somebody deletes a file that is being counted, or a line of the log is damaged.
        """
        if history.last is None:
            return WorkDone(0, None, "first micro-batch")
        try:
            folders = self._read_with(history.last)
        except (OSError, ValueError):
            folders = []
        rows, batches = f"{history.rows:,} rows", history.number + 1
        done, total = sum(f.bytes for f in folders), sum(sum(f.sizes.values()) for f in folders)
        if not total:
            return WorkDone(0, None, f"{rows}, {counted(batches, 'micro-batch', 'micro-batches')}")
        files = f"{sum(f.files for f in folders):,} of {sum(len(f.sizes) for f in folders):,} files"
        unit, size = ("MB", 1e6) if total >= 1e6 else ("kB", 1e3)
        return WorkDone(done, total, f"{files}, {done / size:,.1f} of {total / size:,.1f} {unit}, {rows}")

    def _read_with(self, last: MicroBatch) -> Collection[FolderBacklog]:
        """Return the backlogs of the folders, with the files that Spark has read until the end of a micro-batch."""
        sources: Sequence[Mapping[str, Any]] = last.spark.get("sources") or []
        if self._folders is None:
            self._folders = dict(self._seen_in(sources))
        for place, folder in self._folders.items():
            folder.read_until(position_of(sources[place]["endOffset"]))
        return self._folders.values()

    def _seen_in(self, sources: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, FolderBacklog]]:
        """Yield the sources of Spark's report that read folders here, by their places, as they were before that micro-batch."""
        checkpoint = self._checkpoint
        for place, source in enumerate(sources):
            kind, _, folder = str(source["description"]).removesuffix("]").partition("[")
            path = local_path(folder)
            # the checkpoint has a folder that the run reads, with the CTIs from outside
            if checkpoint is None or path is None or kind != FILE_SOURCE or path.is_relative_to(checkpoint.absolute()):
                continue
            log, before = checkpoint / "sources" / str(place), position_of(source["startOffset"])
            earlier = {entry.path for entry in entries_until(log, before)}
            # a source may pass over files by their names, which shows only in those that it has read
            endings = {entry.path.suffix for entry in entries_until(log, position_of(source["endOffset"]))}
            files = {p: p.stat().st_size for p in data_files(path) if p not in earlier and p.suffix in endings}
            yield place, FolderBacklog(log, before, files)


def position_of(offset: Any) -> int:
    """Return the position in its log of a file source's offset, as Spark reports it; -1 before the first."""
    return int(offset["logOffset"]) if isinstance(offset, Mapping) else -1


def entries_until(log: Path, position: int) -> Iterator[LogEntry]:
    """Yield the entries of a log up to a position; Spark sums up those before a compact file in it."""
    for number in range(position, -1, -1):
        yield from log_entries(log, number)
        if (log / f"{number}.compact").exists():
            return


def log_entries(log: Path, number: int) -> list[LogEntry]:
    """Return the files on this computer in the entry of a log with a number; none if there is no such entry."""
    files = [logged_file(line) for line in log_lines(log, number) or []]
    return [LogEntry(path, entry["batchId"]) for path, entry in files if path is not None]


def data_files(folder: Path) -> Iterator[Path]:
    """Yield the files that Spark reads in a folder, whose path may have wildcards, and in its folders of partitions, ``k=v``.

    It passes over hidden files.
    """
    for top in map(Path, iglob(str(folder))):
        for path in top.rglob("*") if top.is_dir() else [top]:
            *partitions, name = path.relative_to(top).parts or (path.name,)
            is_hidden = name.startswith((".", "_"))
            if not is_hidden and all("=" in partition for partition in partitions) and path.is_file():
                yield path
