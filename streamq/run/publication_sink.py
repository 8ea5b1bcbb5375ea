"""The sink of a publication: files of a micro-batch, noted as a whole in a log as Spark's, beside what readers know it by."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from time import time
from typing import Any, Self

from pyarrow import fs
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from streamq.compiler.results import ResultColumns
from streamq.connectors.publication import Description, Publication, publication
from streamq.connectors.stored_files import LOG, file_system
from streamq.errors import CheckpointError
from streamq.plan.schema import MICRO_BATCH, Schema
from streamq.run.failure import raised_in_sink
from streamq.run.sinks import DataSourceSink, throw_away
from streamq.run.storage.raw_files import RawFolder, folder_name, in_url, local_path

COMPACT = 10
"""Every so many entries of the log one has the files of all before it: Spark's default, which readers count on."""

KEPT_SECONDS = 600
"""The time for which entries of the log that a later one repeats are kept for readers, as Spark keeps them."""


@dataclass(frozen=True)
class PublicationSink(DataSourceSink):
    """A folder of Parquet files, which other queries read while it grows: by the log, so that each row is there once.

    ``description``: what readers know it by, with the run's checkpoint once the sink is placed, but for its id.
    """

    publication: Publication
    description: Description

    def placed(self, columns: ResultColumns, checkpoint: str) -> Self:
        return replace(self, description=replace(self.description, checkpoint=folder_name(checkpoint)))

    def create(self, columns: ResultColumns, verb: str) -> None:
        """Raise CheckpointError if the name is that of something else."""
        name, stored, own = self.publication.name, self.publication.described(verb), self.description
        if stored is not None and stored.checkpoint != own.checkpoint:
            hint = f"Publish under another name, or delete {self.publication.folder} if nobody needs it."
            observed = f"its checkpoint is {stored.checkpoint}"
            raise CheckpointError(verb, f"{name!r} is published by another run", observed, hint)
        if stored is not None and replace(stored, id=own.id) != own:
            before = ", ".join(f"{f.name} {f.type.simpleString()}" for f in stored.payload)
            wrong = f"{name!r} has other columns, or another kind of lifetimes"
            observed = f"it has {before}; {stored.shape} on {stored.axis}"
            raise CheckpointError(verb, wrong, observed, "Publish under another name, with a new checkpoint.")

    def begin(self, verb: str, *, has_rows: bool) -> None:
        if self.publication.described(verb) is not None:
            return
        if has_rows:
            wrong = "the rows that the checkpoint has published are gone"
            raise CheckpointError(verb, wrong, f"there is no {self.publication.folder}", "Use a new checkpoint.")
        # without a log readers would take files that are not finished
        log = self._log
        log.system.create_dir(log.path, recursive=True)
        self.publication.describe(replace(self.description, id=uuid.uuid4().hex))

    def write(self, rows: DataFrame, number: int) -> None:
        """Write the rows of a micro-batch, and then note its files, unless they are noted: readers may have read them."""
        with raised_in_sink(self.title):
            noted = self._noted()
        if number in noted:
            throw_away(rows)
        else:
            super().write(rows, number)
            with raised_in_sink(self.title):
                self._note(number, noted)

    def _noted(self) -> dict[int, fs.FileInfo]:
        """Return the entries of the log by the numbers of their micro-batches."""
        below = self._log.system.get_file_info(fs.FileSelector(self._log.path, allow_not_found=True))
        named = {info.base_name.removesuffix(".compact"): info for info in below}
        return {int(name): info for name, info in named.items() if name.isdigit()}

    def _note(self, number: int, noted: dict[int, fs.FileInfo]) -> None:
        """Note the files of a micro-batch; those before it without rows have empty entries, as Spark misses none."""
        log, last = self._log, max(noted, default=-1)
        compact = (number + 1) // COMPACT * COMPACT - 1
        for entry in range(last + 1 if noted else max(0, compact), number + 1):
            lines = self._lines(number) if entry == number else []
            name = str(entry)
            if (entry + 1) % COMPACT == 0:
                name, before = f"{entry}.compact", entry - COMPACT
                # the first line is the version of the log
                parts = [noted[n].base_name for n in range(max(0, before), entry) if n in noted]
                lines = [line for part in parts for line in log.read(part).decode().splitlines()[1:]] + lines
                for old, info in noted.items():
                    if old < before and time() - info.mtime_ns / 1e9 > KEPT_SECONDS:
                        log.remove(info.base_name)
            log.replace(name, "\n".join(["v1", *lines]).encode())
            noted = self._noted()

    def _lines(self, number: int) -> list[str]:
        """Return a line of the log for each file of a micro-batch."""
        folder = f"{self.publication.folder}/{MICRO_BATCH}={number}"
        (system, path), here = file_system(folder), local_path(folder)
        lines = []
        for info in system.get_file_info(fs.FileSelector(path)):
            if not info.base_name.startswith(("_", ".")):
                url = in_url(f"{folder if here is None else f'file://{here}'}/{info.base_name}")
                changed = info.mtime_ns // 1_000_000
                file = {"path": url, "size": info.size, "isDir": False, "modificationTime": changed}
                lines.append(json.dumps({**file, "blockReplication": 1, "blockSize": 1 << 25, "action": "add"}))
        return lines

    @property
    def _log(self) -> RawFolder:
        return RawFolder(*file_system(f"{self.publication.folder}/{LOG}"))


def publication_sink(schema: Schema, name: Any, store: str, verb: str) -> PublicationSink:
    """Return the sink of what is published by a name in a store; raise PlanError, worded for ``verb``, for wrong arguments."""
    place = publication(name, store, verb)
    place = replace(place, store=folder_name(store))
    columns = StructType([StructField(field.name, field.type) for field in schema.fields]).jsonValue()
    description = Description("", columns, schema.axis, schema.shape, "")
    return PublicationSink("parquet", {"path": place.folder}, place, description)
