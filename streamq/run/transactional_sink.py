"""Sinks that last outside of files: a transaction a micro-batch, whose number is in it, so that no row is written twice."""

from __future__ import annotations

import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from streamq.compiler.results import ResultColumns
from streamq.errors import PlanError
from streamq.run.sinks import MicroBatchSink


class Transaction(ABC):
    """What one task does in the system that holds a run's rows. It begins where earlier attempts of the run can do no more."""

    @abstractmethod
    def done(self, number: int) -> bool:
        """Return True if the micro-batch with this number has been committed."""

    @abstractmethod
    def write(self, rows: pa.RecordBatchReader, number: int) -> None:
        """Commit the rows of a micro-batch, one at least, together with its number."""

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
        """Commit the rows of a micro-batch as a whole, once: an earlier process, or task, may have committed them."""
        run = self.run[0] if self.run else self._named(rows.sparkSession)
        commit = committing(self.transaction(run), number)
        # one task, and so one transaction, whatever the number of tasks when the micro-batch is repeated
        if rows.coalesce(1).mapInArrow(commit, "number bigint").collect():
            self.run[:] = [run]

    def _named(self, spark: SparkSession) -> str:
        """Return the name by which a system tells this result of a checkpoint from others."""
        described = spark.read.text(f"{self.checkpoint}/metadata").first()
        assert described is not None
        return f"{json.loads(described[0])['id']}-{self.result.replace(' ', '-')}"


def committing(begin: Callable[[], Transaction], number: int) -> Any:
    """Return the function that commits the rows of a micro-batch, for ``mapInArrow``; it imports nothing of streamq.

    It returns the number of one with rows. It asks whether it has been committed, because a task does not know if it is the
    first: where an executor is lost, Spark repeats the stage, and counts attempts anew.
    """

    def commit(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        some = (batch for batch in batches if batch.num_rows)
        first = next(some, None)
        if first is not None:
            rows = pa.RecordBatchReader.from_batches(first.schema, chain([first], some))
            with closing(begin()) as transaction:
                if not transaction.done(number):
                    transaction.write(rows, number)
            yield pa.RecordBatch.from_pydict({"number": pa.array([number], pa.int64())})

    return commit


def check_client(module: str, package: str, extra: str, verb: str) -> None:
    """Raise PlanError if the package that writes into a system is not installed."""
    if importlib.util.find_spec(module) is None:
        raise PlanError(verb, f"{package} writes there", "it is not installed", f"pip install streamq[{extra}]")


def table_columns(columns: ResultColumns, declared: Collection[str], verb: str) -> dict[str, DataType]:
    """Return the columns that a table has of a result's rows; PlanError if another key than theirs is ``declared``."""
    if declared and {*declared} != {*columns.key}:
        of_run = f"that of the rows is {', '.join(columns.key)}" if columns.key else "rows of this output have none"
        raise PlanError(verb, f"the table's key is {', '.join(declared)}", of_run, "Leave key out of the sink.")
    assert columns.schema is not None
    return {column.name: column.dataType for column in columns.schema if not (columns.key and column.name == "op")}


def check_parts(parts: Collection[str], columns: Collection[str], verb: str) -> None:
    """Raise PlanError if a table is to be divided by a column that the rows do not have."""
    if missing := [name for name in parts if name not in columns]:
        wrong = f"partition_by names no column of the rows: {', '.join(missing)}"
        raise PlanError(verb, wrong, f"there are {', '.join(columns)}")


def check_table(
    table: str, columns: Mapping[str, str], held: Mapping[str, str], misfits: Collection[str], verb: str
) -> None:
    """Raise PlanError, with the names of the columns, for a table that lacks columns of a result, or has ``misfits``.

    ``columns`` and ``held`` are the types of the result's columns and of the table's.
    """
    wrong = [f"it has no {name!r}" for name in columns if name not in held]
    for name in misfits:
        wrong.append(
            f"its {name!r} is {held[name]}, not {columns[name]}" if name in columns else f"the rows have no {name!r}"
        )
    if wrong:
        hint = "Change the query or the table, or name one that is not there, which is created."
        raise PlanError(verb, f"{table} does not fit the rows", "; ".join(wrong), hint)
