"""Sinks that last outside of files: a transaction a micro-batch, whose number is in it, so that no row is written twice."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streamq.compiler.results import ResultColumns
from streamq.run.sinks import MicroBatchSink


class Transaction(ABC):
    """What one task does in the system that holds a run's rows. It begins where earlier attempts of the run can do no more."""

    @abstractmethod
    def done(self, number: int) -> bool:
        """Return True if the micro-batch with this number has been committed."""

    @abstractmethod
    def write(self, batches: Iterable[pa.RecordBatch], number: int) -> None:
        """Commit the rows of a micro-batch together with its number."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the system, and of what has not been committed."""


@dataclass(frozen=True, kw_only=True)
class TransactionalSink(MicroBatchSink):
    """A sink whose micro-batches are transactions, with their numbers in them; workers need the package of the system's client.

    ``key``: the columns of a row's key, of an upsert. ``result``: its title in the run on ``checkpoint``. ``run``: the name of
    both in the system, once this process has committed a micro-batch.
    """

    key: tuple[str, ...] = ()
    result: str = ""
    checkpoint: str = ""
    run: list[str] = field(default_factory=list, compare=False)

    is_lasting: ClassVar[bool] = True
    takes_empty_batches: ClassVar[bool] = False

    @abstractmethod
    def transaction(self, run: str) -> Callable[[], Transaction]:
        """Return what begins a transaction of the run with this name in a task; that imports nothing of streamq."""

    def placed(self, columns: ResultColumns, checkpoint: str) -> Self:
        return replace(self, key=columns.key, result=columns.title, checkpoint=checkpoint, run=[])

    def write(self, rows: DataFrame, number: int) -> None:
        """Commit the rows of a micro-batch as a whole, once: the first of a process may have been committed by an earlier one."""
        run = self.run[0] if self.run else self._named(rows.sparkSession)
        commit = committing(self.transaction(run), number, asks=not self.run)
        # one task, and so one transaction, whatever the number of tasks when the micro-batch is repeated
        rows.coalesce(1).mapInArrow(commit, "rows bigint").collect()
        self.run[:] = [run]

    def _named(self, spark: SparkSession) -> str:
        """Return the name by which a system tells this result of a checkpoint from others."""
        described = spark.read.text(f"{self.checkpoint}/metadata").first()
        assert described is not None
        return f"{json.loads(described[0])['id']}-{self.result.replace(' ', '-')}"


def committing(begin: Callable[[], Transaction], number: int, *, asks: bool) -> Any:
    """Return the function that commits the rows of a micro-batch, for ``mapInArrow``; it imports nothing of streamq.

    ``asks``: the micro-batch may have been committed before; that may be, too, if the task is repeated.
    """

    def commit(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task = TaskContext.get()
        is_repeated = asks or (task is not None and task.attemptNumber() > 0)
        with closing(begin()) as transaction:
            if not (is_repeated and transaction.done(number)):
                transaction.write(batches, number)
        yield from ()

    return commit
