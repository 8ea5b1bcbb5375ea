"""What a partial result of an aggregate must say of itself, in Arrow for every host, and in SQL where Spark merges it by itself.

A result merges with others of its kind (Arasu and Widom, *Resource Sharing in Continuous Sliding-Window Aggregates*); an exact
one may also be taken back out of a running sum. Its columns may have any type of Arrow, bytes that only it can read included.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType

if TYPE_CHECKING:
    from pyspark.sql import Column

COUNT = "__n"
"""How many events lie behind a row."""

Values = Mapping[str, Any]
"""Columns by name."""

Ints = np.ndarray[Any, np.dtype[np.int64]]


RowWindow = Callable[[int], tuple[tuple[int, int], Mapping[str, Any]]]
"""By the row of a table of windows, the window's start and end in ticks, and its group."""


def no_row_window(row: int) -> tuple[tuple[int, int], Mapping[str, Any]]:
    """No place: only the partial results of a user's module ask for one."""
    raise AssertionError("a user's module was called for windows without a place")


@dataclass(frozen=True)
class MergeableColumns(ABC):
    """What merges, in columns that its ``name`` heads."""

    name: str

    @property
    @abstractmethod
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        """The columns that hold it once it is merged and finished, and Spark's types of them."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns that hold it."""
        return [name for name, _ in self.fields]

    @property
    @abstractmethod
    def grouped(self) -> dict[str, str]:
        """How each of its columns merges, as an aggregate of Arrow; those that are not here :meth:`merged` merges."""

    def merged(self, table: pa.Table, number: Ints, at: Ints) -> Values:
        """Its other columns, merged over rows of equal ``number``, of the numbers ``at``."""
        return {}

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        """Merged results as values, NULL where there was none; ``place`` says, for errors, where the window of a row lies."""
        return table


@dataclass(frozen=True)
class Partial(MergeableColumns):
    """A partial result of the values in the column ``arg``; ``type`` is Spark's of what it is worth.

    It travels to executors with every stage: what only a batch asks for is imported where it is asked for.
    """

    arg: str
    type: DataType

    title: ClassVar[str]
    """What explain calls it: ``sum`` of ``sum(fare)``."""

    @property
    def exact(self) -> bool:
        """Whether it may be taken back out of a running sum: what is left is what was there without it."""
        return False

    @property
    def depends_on_order(self) -> bool:
        """Whether it depends on the order of events, if only in its last digits."""
        return False

    @property
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        return ((self.name, self.type),)

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns of events that it is made of."""
        return (self.arg,)

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The columns of values that :meth:`of_weighted` keeps, if it is not exact."""
        return (self.name,)

    def note(self, shared_by: int) -> str | None:
        """What explain says of it where it is made, once a basic window, which ``shared_by`` windows share; None: nothing."""
        return None

    @abstractmethod
    def of_events(self, table: pa.Table) -> Values:
        """The partial results of single events."""

    def of_weighted(self, table: pa.Table) -> Values:
        """What is kept of events that may be taken back, with weights ``__n``: exact results, of others the values."""
        return {self.name: table.column(self.arg)}

    @abstractmethod
    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Partial results that merge, of what :meth:`of_weighted` has kept."""


class SparkPartial(Partial):
    """A partial result that Spark makes and merges by itself; any other one is made and merged by Arrow in a batch too."""

    @abstractmethod
    def on_spark(self, value: Column) -> list[Column]:
        """Its columns as Spark's aggregates of a column."""

    @property
    @abstractmethod
    def algebras(self) -> tuple[tuple[Algebra, tuple[str, ...]], ...]:
        """How its columns merge, as SQL: an algebra, and those of its columns that it merges."""

    @property
    def null_over_none(self) -> Mapping[str, str]:
        """Columns that are NULL where another one, a count, is 0: taken back out again, what is left of a sum is 0."""
        return {}


def spark_partials(partials: Iterable[Partial]) -> list[SparkPartial] | None:
    """Partial results as those that Spark makes and merges by itself; None if one of them is no such."""
    all_of_them = list(partials)
    in_spark = [partial for partial in all_of_them if isinstance(partial, SparkPartial)]
    return in_spark if len(in_spark) == len(all_of_them) else None


class SummablePartial(SparkPartial):
    """What is added up, and, where it is exact, may be taken off again."""

    @abstractmethod
    def swept(self, value: Column) -> list[Column]:
        """Its columns for one event, to be added where it starts and taken off where it ends."""


def rows_present(table: pa.Table, name: str) -> pa.Array:
    """1 where a column has a value, 0 where it is NULL."""
    return pc.cast(table.column(name).is_valid(), pa.int64())


def alive_rows(table: pa.Table, name: str) -> Any:
    """The values of a column whose weight is above 0, the others NULL."""
    nothing = pa.scalar(None, table.schema.field(name).type)
    return pc.if_else(pc.greater(table.column(COUNT), 0), table.column(name), nothing)


# in SQL

Sql = Mapping[str, str]
"""Expressions by the column that they make."""


@dataclass(frozen=True)
class WindowFrame:
    """The rows so far, of a window in SQL's sense: ``before`` is without the current one, ``span`` with the row it ends at."""

    before: str
    span: str
    with_current: bool


class Algebra(ABC):
    """How one column, or some that merge together, merge as SQL: two of them, all of a group, all so far."""

    @abstractmethod
    def pair(self, left: Sequence[str], right: Sequence[str]) -> list[str]:
        """The columns ``left`` merged with ``right``, in their order."""

    @abstractmethod
    def gathered(self, columns: Sequence[str], group: str) -> tuple[Sql, Sql]:
        """What a row must know of its ``group`` (an OVER clause) before, and the merged columns over that."""

    @abstractmethod
    def running(self, columns: Sequence[str], targets: Sequence[str], frame: WindowFrame) -> tuple[Sql, Sql]:
        """The columns ``targets`` of what merges over the rows so far; the second expressions are computed over the first."""
