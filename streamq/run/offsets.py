"""The offsets of a micro-batch in Spark's log: where each source stands, in the order in which Spark knows the sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamq.errors import CheckpointError, sentence
from streamq.runtime.identity import Identity

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


__all__ = ["CONTROL", "Offsets", "spark_sources"]
