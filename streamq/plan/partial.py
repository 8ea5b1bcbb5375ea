"""Partial results of aggregates: how they are made and merged, in Arrow for every host, and in SQL where Spark can merge them.

A result merges with others of its kind (Arasu and Widom, *Resource Sharing in Continuous Sliding-Window Aggregates*); an exact
one may also be subtracted from a running sum. Its columns may have any type of Arrow, bytes that only it can read included.
Reductions are aggregates without partial results, computed in Arrow from all members of a window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql.types import DataType

from streamq.choices import ClipInput
from streamq.plan.function import VersionedCode

COUNT = "__n"
"""The column with the number of events that a row was made of."""

Values = Mapping[str, Any]
"""Columns by name."""

Ints = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


RowWindow = Callable[[int], tuple[tuple[int, int], Mapping[str, Any]]]
"""By the row of a table of windows, the window's start and end in ticks, and its group."""


def no_row_window(row: int) -> tuple[tuple[int, int], Mapping[str, Any]]:
    """Raise AssertionError; for partial results of built-in aggregates, which never ask for a row's window."""
    raise AssertionError("a user's module was called for windows without a place")


@dataclass(frozen=True)
class MergeableColumns(ABC):
    """A result that merges, held in columns whose names begin with ``name``."""

    name: str

    @property
    @abstractmethod
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        """The columns that hold it once it is merged and finished, with Spark's types."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns that hold it."""
        return [name for name, _ in self.fields]

    @property
    def held_columns(self) -> list[str]:
        """The names of the columns that hold it until it is finished."""
        return self.columns

    @property
    @abstractmethod
    def grouped(self) -> dict[str, str]:
        """Arrow's aggregate by which each held column merges; :meth:`merged` merges the columns that are not listed."""

    def merged(self, table: pa.Table, number: Ints, at: Ints) -> Values:
        """Return the columns that ``grouped`` does not list, merged over rows of equal ``number``, for the numbers ``at``."""
        return {}

    def merging_form(self, table: pa.Table) -> tuple[pa.Table, MergeableColumns]:
        """Return the table with columns in place of its own that merge at less cost, and the form that has these."""
        return table, self

    def shared(self, table: pa.Table) -> pa.Table:
        """Return the table before its rows are merged with many others: what each merge would compute is computed once."""
        return table

    def as_held(self, table: pa.Table) -> pa.Table:
        """Return the table with the columns that are held again; the reverse of :meth:`merging_form`."""
        return table

    def has_failed(self, table: pa.Table) -> Mask:
        """Mark the rows that could not be merged, as a user's code has failed."""
        return np.zeros(table.num_rows, bool)

    def finished(self, table: pa.Table, place: RowWindow = no_row_window) -> pa.Table:
        """Return merged results as values, NULL over no values; ``place`` finds the window of a row, for errors."""
        return table


@dataclass(frozen=True)
class Partial(MergeableColumns):
    """A partial result of the values in the column ``arg``; ``type``: Spark's type of the final value.

    It is sent to executors with every stage; modules that only a batch needs are therefore imported where they are used.
    """

    arg: str
    type: DataType

    title: ClassVar[str]
    """Its name in explain: ``sum`` of ``sum(fare)``."""

    @property
    def exact(self) -> bool:
        """True if a running sum of it, in Arrow and in Spark alike, is exact, so that it can be subtracted again."""
        return False

    @property
    def by_window(self) -> bool:
        """True if it is of a single window: what others hold of the window cannot be merged with it, only events be added."""
        return False

    @property
    def subtracts(self) -> bool:
        """True if events that are taken back can be taken out of it again."""
        return self.exact

    @property
    def reads_lifetimes(self) -> bool:
        """True if it reads the lifetimes of events, as windows cut them."""
        return False

    def cut_lifetimes(self, table: pa.Table, start: Ints, end: Ints) -> pa.Table:
        """Return its events with lifetimes that a window has cut; those that read none are unchanged."""
        return table

    @property
    def depends_on_order(self) -> bool:
        """True if it depends on the order of events, if only in its last digits."""
        return False

    @property
    def fields(self) -> tuple[tuple[str, DataType], ...]:
        return ((self.name, self.type),)

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns of events that it is computed from."""
        return (self.arg,)

    @property
    def shown_args(self) -> tuple[str, ...]:
        """The columns that explain shows as its arguments."""
        return (self.arg,)

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The columns of values that :meth:`of_weighted` keeps if it is not exact."""
        return (self.name,)

    @property
    def counts(self) -> Mapping[str, str]:
        """The columns of counts, by the column of events whose non-NULL values they count."""
        return {}

    @property
    def modules(self) -> tuple[VersionedCode, ...]:
        """The user modules that it calls."""
        return ()

    def note(self, shared_by: int) -> str | None:
        """Return explain's line on how often it is computed if ``shared_by`` windows share a basic window; None for no line."""
        return None

    @abstractmethod
    def of_events(self, table: pa.Table) -> Values:
        """Return the partial results of single events."""

    def of_weighted(self, table: pa.Table) -> Values:
        """Return what is kept of events that may be retracted, with weights ``__n``: an exact result itself, else the values."""
        return {self.name: table.column(self.arg)}

    @abstractmethod
    def from_weighted(self, table: pa.Table) -> pa.Table:
        """Return partial results that merge, from the columns that :meth:`of_weighted` returned."""


class SparkPartial(Partial):
    """A partial result that Spark can make and merge; all others are made and merged in Arrow, in a batch too."""

    @abstractmethod
    def on_spark(self, values: Mapping[str, Column]) -> list[Column]:
        """Return its columns as Spark's aggregates of the columns that it is computed from."""

    @abstractmethod
    def of_event(self, values: Mapping[str, Column]) -> list[Column]:
        """Return its columns for one event, from the columns that it is computed from; numbers of values are 1 or 0."""

    @property
    @abstractmethod
    def algebras(self) -> tuple[tuple[Algebra, tuple[str, ...]], ...]:
        """The algebras by which its columns merge in SQL, each with the columns that it merges."""

    @property
    def null_over_none(self) -> Mapping[str, str]:
        """Its columns that become NULL where a count column is 0: after subtraction the rest of a sum would be 0."""
        return {}


def spark_partials(partials: Iterable[Partial]) -> list[SparkPartial] | None:
    """Return the partial results if Spark can make and merge all of them; None otherwise."""
    all_of_them = list(partials)
    in_spark = [partial for partial in all_of_them if isinstance(partial, SparkPartial)]
    return in_spark if len(in_spark) == len(all_of_them) else None


def are_exact(partials: Iterable[Partial]) -> bool:
    """Return True if all of them can be subtracted again."""
    return all(partial.exact for partial in partials)


def rows_present(table: pa.Table, name: str) -> pa.Array:
    """Return 1 where a column has a value, 0 where it is NULL."""
    return pc.cast(table.column(name).is_valid(), pa.int64())


def alive_rows(table: pa.Table, name: str) -> Any:
    """Return the values of a column whose weight is above 0, the others as NULL."""
    nothing = pa.scalar(None, table.schema.field(name).type)
    return pc.if_else(pc.greater(table.column(COUNT), 0), table.column(name), nothing)


# in SQL

Sql = Mapping[str, str]
"""SQL expressions by the column that they compute."""


@dataclass(frozen=True)
class WindowFrame:
    """An OVER clause up to the current row: ``before`` excludes that row, ``span`` includes it."""

    before: str
    span: str
    with_current: bool


class Algebra(ABC):
    """The SQL by which a column, or some columns together, merge: pairwise, over a group, and over the rows so far."""

    @abstractmethod
    def pair(self, left: Sequence[str], right: Sequence[str]) -> list[str]:
        """Return the columns ``left`` merged with ``right``, in their order."""

    @abstractmethod
    def gathered(self, columns: Sequence[str], group: str) -> tuple[Sql, Sql]:
        """Return expressions over the ``group`` (an OVER clause) that each row needs first, and the merged columns over those."""

    @abstractmethod
    def running(self, columns: Sequence[str], targets: Sequence[str], frame: WindowFrame) -> tuple[Sql, Sql]:
        """Return the columns ``targets``, merged over the rows so far; the second expressions are computed over the first."""


Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class RangedMembers:
    """Rows that lie in windows ``first .. last`` each, of the windows 0 .. n - 1, none empty.

    number: how many events each row stands for; more than one only where all reductions read values alone. place: where
    each row stands in the order of (start, payload, end), if an ordered aggregate asks for it; lifetime: the rows' starts
    and ends in ticks, which ``clip`` cuts to their windows; window: each window's interval; groups: each window's group;
    asked: the windows whose results somebody reads, None: all. aside: takes the windows whose calls fail, once they are
    ``final``; None: there is nothing that takes them. final: the windows that can no longer change, None: all.
    """

    rows: pa.Table
    first: Ints
    last: Ints
    number: Ints
    n: int
    place: Ints | None
    lifetime: tuple[Ints, Ints]
    clip: ClipInput
    window: tuple[Ints, Ints]
    groups: pa.Table
    asked: Mask | None = None
    aside: Any = None
    final: Mask | None = None

    def cut(self, row: Ints, window: Ints) -> tuple[Ints, Ints]:
        """Return the starts and ends of members, cut as the clip says; a member is a row and the number of its window."""
        start, end = self.lifetime
        return self.cut_to(start[row], end[row], window)

    def cut_to(self, start: Ints, end: Ints, window: Ints) -> tuple[Ints, Ints]:
        """Cut lifetimes to their windows as the clip says."""
        starts, ends = self.window
        start = np.maximum(start, starts[window]) if self.clip.cuts_starts else start
        return start, np.minimum(end, ends[window]) if self.clip.cuts_ends else end

    def lasts(self, row: Ints, window: Ints) -> Floats:
        """Return the durations of members in ticks, once they are cut; 0 for a member of which nothing is left."""
        start, end = self.cut(row, window)
        return np.maximum(end.astype(np.float64) - start.astype(np.float64), 0.0)


@dataclass(frozen=True)
class CopiedMembers:
    """One row for each member and window; ``number``: the window's number.

    order: the rows in the order of (start, payload, end), if an ordered aggregate asks for it; lasts: how long each member
    lives, cut as the window's clip says, in ticks; window: each window's interval.
    """

    rows: pa.Table
    number: Ints
    n: int
    order: Ints
    lasts: Floats
    window: tuple[Ints, Ints]


@dataclass(frozen=True)
class ReducedColumn:
    """A result column: its name and Arrow type, the columns ``args`` that it is computed from, and the aggregate's ``options``.

    ``where`` is a column of booleans that filters members; None: all count. ``axis`` is the type of instants.
    """

    name: str
    args: tuple[str, ...]
    type: pa.DataType
    where: str | None = None
    options: tuple[float | int | str, ...] = ()
    axis: pa.DataType = field(default_factory=pa.int64)


@dataclass(frozen=True)
class Reduction(ABC):
    """Computes one result column from windows' members; it is sent to executors."""

    column: ReducedColumn

    @property
    def depends_on_order(self) -> bool:
        """True if the result depends on the order in which rows are added up, if only in its last digits."""
        return False

    @property
    def reads_lifetimes(self) -> bool:
        """True if it reads when members live, or their order, which is by start first; executors keep these with values then."""
        return False

    @property
    def weighs_lifetimes(self) -> bool:
        """True if its result depends on how long members live."""
        return False

    @property
    def may_be_none(self) -> bool:
        """True if a window with members may have no row at all."""
        return False

    @property
    def calls_module(self) -> bool:
        """True if it calls code of a user's."""
        return False

    def window_state(self, type: DataType) -> Partial | None:
        """Return the same result, of this Spark type, as a partial result of single windows; None if it takes all members."""
        return None

    def passes(self, rows: pa.Table) -> Mask:
        """Return the mask of rows that pass the filter."""
        if self.column.where is None:
            return np.ones(rows.num_rows, bool)
        return np.asarray(pc.fill_null(rows.column(self.column.where), False).to_numpy(), bool)


class RangeReduction(Reduction):
    """A reduction over ranges of windows: O(n log n) in rows and windows, however many windows a row lies in."""

    @abstractmethod
    def over_ranges(self, members: RangedMembers) -> pa.Array:
        """Return a value for each window, by number."""


class MemberReduction(Reduction):
    """A reduction over members that have been copied into each of their windows."""

    @abstractmethod
    def over_members(self, members: CopiedMembers) -> pa.Array:
        """Return a value for each window, by number."""


def floats(column: Any) -> tuple[Floats, Mask]:
    """Return the values of a column as doubles, 0.0 for NULL, and the mask of those that are not NULL."""
    array = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).cast(pa.float64())
    is_there = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), bool)
    return array.fill_null(0.0).to_numpy(zero_copy_only=False), is_there
