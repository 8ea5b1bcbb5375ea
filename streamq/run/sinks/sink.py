"""A kind of sinks: which argument asks for it, how a stream writes into it, and how a micro-batch's rows do."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Write = Callable[["DataFrame", int], None]
"""Writes the rows of the micro-batch with that number."""

SinkArgument = str | Mapping[str, Any] | Write | None
"""The argument by which a user chooses a sink: a path, a format with options, a name, a function; None: rows are thrown away."""


class Sink(ABC):
    """The place where the rows of a result go: a frozen dataclass with what the user has said of it."""

    @classmethod
    @abstractmethod
    def from_argument(cls, argument: object) -> Self | None:
        """Return the sink that an argument asks for; None if it asks for another kind."""

    @property
    def is_lasting(self) -> bool:
        """Return True if what is written into it outlives this process, so that the run needs a checkpoint."""
        return False

    @property
    def folders(self) -> Sequence[str]:
        """Return the folders that its files stand in."""
        return ()

    @property
    def takes_micro_batches(self) -> bool:
        """Return True if ``write`` can be called, so that rows of one micro-batch may go into several sinks."""
        return True

    def check(self, verb: str, *, name: str | None, finish: bool) -> None:
        """Raise PlanError for a run, of that name and with that ``finish``, that cannot write into it."""
        del verb, name, finish

    @abstractmethod
    def start(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Return a ``writeStream`` that writes all its rows into the sink."""

    @abstractmethod
    def write(self, rows: DataFrame, number: int) -> None:
        """Write the rows of the micro-batch with that number, over those that it had written before a crash."""


def folder_name(path: str) -> str:
    """Return the one name of a folder, however its path is written; a path with a scheme is its own name."""
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


def computed_once(write: Write) -> Write:
    """Return ``write`` over persisted rows, which Spark computes once however often they are read."""

    def persist_and_write(rows: DataFrame, number: int) -> None:
        rows.persist()
        try:
            write(rows, number)
        finally:
            rows.unpersist()

    return persist_and_write


def throw_away(rows: DataFrame) -> None:
    """Compute rows and write them nowhere."""
    rows.write.mode("append").format("noop").save()


__all__ = ["Sink", "SinkArgument", "Write", "computed_once", "folder_name", "throw_away"]
