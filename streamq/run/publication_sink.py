"""The sink of a publication: Parquet files in Spark's log of their folder, beside the description by which readers know them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructField, StructType

from streamq.connectors.publication import Description, Publication, publication
from streamq.errors import CheckpointError
from streamq.plan.schema import Schema
from streamq.run.sinks import DataSourceSink
from streamq.run.storage.raw_files import folder_name


@dataclass(frozen=True)
class PublicationSink(DataSourceSink):
    """A folder of Parquet files, which other queries read while it grows: by Spark's log, so that each row is there once."""

    publication: Publication
    description: Description

    @property
    def folders(self) -> Sequence[str]:
        return [self.publication.folder]

    @property
    def takes_micro_batches(self) -> bool:
        # a folder of a micro-batch that is repeated after a crash would be read twice
        return False

    def check_begun(self, verb: str) -> None:
        if self.publication.described(verb) is None:
            wrong = "the rows that the checkpoint has published are gone"
            raise CheckpointError(verb, wrong, f"there is no {self.publication.folder}", "Use a new checkpoint.")

    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        self.publication.describe(self.description)
        return super().start(writer)


def publication_sink(schema: Schema, name: str, store: str, checkpoint: str) -> PublicationSink:
    """Return the sink of what a run on a checkpoint publishes; raise CheckpointError if the name is that of something else."""
    place = publication(name, store, "publish")
    columns = StructType([StructField(field.name, field.type) for field in schema.fields]).jsonValue()
    own = Description(uuid.uuid4().hex, columns, schema.axis, schema.shape, folder_name(checkpoint))
    stored = place.described("publish")
    if stored is not None and stored.checkpoint != own.checkpoint:
        hint = f"Publish under another name, or delete {place.folder} if nobody needs it."
        raise CheckpointError(
            "publish", f"{name!r} is published by another run", f"its checkpoint is {stored.checkpoint}", hint
        )
    if stored is not None and replace(stored, id=own.id) != own:
        before = ", ".join(f"{f.name} {f.type.simpleString()}" for f in stored.payload)
        wrong = f"{name!r} has other columns, or another kind of lifetimes"
        observed = f"it has {before}; {stored.shape} on {stored.axis}"
        raise CheckpointError("publish", wrong, observed, "Publish under another name, with a new checkpoint.")
    return PublicationSink("parquet", {"path": place.folder}, place, stored or own)
