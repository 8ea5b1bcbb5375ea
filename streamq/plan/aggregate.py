"""Aggregates: a function of a window's members, and the expression that applies it to columns.

An :class:`AggregateFunction` answers every question that the compiler, the hosts, explain and the tests have about an aggregate;
none of them knows an aggregate by name. The built-in ones are in ``streamq/aggregates``; a user may add others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from streamq.choices import Stamp
from streamq.plan.expr import Expr, show
from streamq.plan.function import NamedObject, Text
from streamq.plan.partial import Partial, ReducedColumn, Reduction
from streamq.time import Grid

P = TypeVar("P", bound=Partial)

Options = tuple[float | int | str, ...]


class Rounding(Enum):
    """The exactness of results: it tells tests what they may compare, group by and join."""

    NONE = "exact whatever the arguments are"
    OF_ARGUMENTS = "as exact as the arguments"
    OWN = "rounded"


class Computation(Enum):
    """The arithmetic that an aggregate does with its arguments: it tells tests which values they may draw."""

    NOTHING = "no new values: any value of the type will do"
    A_SUM = "their sum, which must fit"
    MORE = "new values"


@dataclass(frozen=True)
class Drawing:
    """Instructions for tests: how to draw calls of an aggregate, and the data for them.

    weight: how often it is drawn; arguments: how many columns it takes; more_arguments: how many it may take beside these;
    optional: whether it also takes none; options: the options among which one is drawn; lifetimes: parts of members' lifetimes
    that it is tried on; whole_numbers: whether its arguments are whole numbers only, for sums of products of others round
    apart; exact_arguments: whether it only takes columns whose values are exact; any_type: whether it is tried on columns that
    are no numbers.
    """

    weight: int = 1
    arguments: int = 1
    more_arguments: int = 0
    optional: bool = False
    options: tuple[Options, ...] = ((),)
    lifetimes: tuple[str, ...] = ()
    whole_numbers: bool = False
    exact_arguments: bool = False
    any_type: bool = False
    rounding: Rounding = Rounding.OWN
    computes: Computation = Computation.MORE


@dataclass(frozen=True)
class Application:
    """An aggregate over a stream: as it was written, with the types of its arguments, that of instants, and the payload's."""

    aggregate: Aggregate
    types: tuple[DataType, ...]
    time_type: DataType
    payload: tuple[tuple[str, DataType], ...]

    @property
    def args(self) -> tuple[Expr, ...]:
        """The arguments."""
        return self.aggregate.args

    @property
    def options(self) -> Options:
        """The plain parameters."""
        return self.aggregate.options

    @property
    def shown(self) -> str:
        """The call as explain and messages write it."""
        return show(self.aggregate)


class Partials(Protocol):
    """The partial results of a window, which aggregates share where they need the same ones."""

    def partial(self, kind: type[P], arg: Expr, of: DataType, *parameters: object) -> P:
        """Return the partial result ``kind(name, column, of, *parameters)`` of the values of ``arg``, one for equal arguments.

        ``of`` is the type of the value; for a partial result that is there already it does not count.
        """

    def column(self, arg: Expr) -> str:
        """Return the name of the column of the values of ``arg``, which is added if there is none yet."""

    def lend_count(self, arg: Expr, column: str) -> None:
        """Offer ``column``, which holds the number of values of ``arg``, to other aggregates."""

    def lent_count(self, arg: Expr) -> str | None:
        """Return the column that another aggregate has offered as the number of values of ``arg``; None if none has."""


@dataclass(frozen=True)
class SparkMembers:
    """The members of windows as Spark's columns, for an aggregate over a group of them.

    values: the arguments; passes: which members the filter lets through, where it could not be pushed into the arguments;
    order: by (start, payload, end); lifetime: start and end in ticks, cut as the window's clip says; window: its start and end in
    ticks; instant: ticks as a user sees them.
    """

    values: Sequence[Column]
    options: Options
    passes: Column | None
    order: Callable[[], Column]
    lifetime: Callable[[], tuple[Column, Column]]
    window: Callable[[], tuple[Column, Column]]
    instant: Callable[[Column], Column]


@dataclass(frozen=True, kw_only=True)
class WindowPlace:
    """The window that an aggregate is computed over, as far as explain's notes on the aggregate depend on it.

    windows: what their kind is called; grid: the one that they lie on; counts_rows: whether they go by the places of events;
    has_states: whether a stream keeps a state of a module for each window;
    shares_starts: whether results of several may start together; progress: their CTI rule; endless: whether
    events may never end; condenses: whether partial results stand for settled members, if the aggregate merges; unread: how many
    columns of the input neither a key nor an aggregate reads; ordered_beside, unmerged_beside: other aggregates that take members
    in order, that neither merge nor go beside partial results on a grid.
    """

    windows: str
    grid: Grid | None
    counts_rows: bool
    has_states: bool
    shares_starts: bool
    stamp: Stamp
    progress: str
    endless: bool
    condenses: bool
    unread: int
    ordered_beside: tuple[str, ...]
    unmerged_beside: tuple[str, ...]


class AggregateFunction(NamedObject, ABC):
    """An aggregate function, with everything that streamq needs to know of it.

    It is computed in one of three ways, of which it must have one: *restated* over simpler aggregates, *split* into partial
    results that merge, or *reduced* from all members at once. The first that is there is taken. A batch takes Spark's own
    aggregate where windows' members are copied anyway; without one it evaluates partial results or reductions there too.
    """

    ordered: bool = False
    """True if it takes members in the order of (start, payload, end)."""

    timed: bool = False
    """True if it reads its members' lifetimes, cut as the window's clip says."""

    copies_members: bool = False
    """True if its reduction copies each member into each of its windows; a batch then lets Spark copy them."""

    of_values: bool = False
    """True if its reduction reads nothing of a member but the values of its arguments: no lifetime, and no order."""

    has_window_state: bool = False
    """True if its reduction has a state for a window to which events are added as they come (``Reduction.window_state``)."""

    filters_arguments: bool = True
    """True if a filter may become part of the arguments, as NULL where the filter is not true; otherwise ``where`` stays."""

    lends_counts: bool = False
    """True if its partial results are made before those of other aggregates, so that these can use its count."""

    of_nothing: str = ""
    """The text that explain writes between the brackets of a call without arguments."""

    spark_name: str = ""
    """The name of Spark's own aggregate of the arguments; empty if ``on_spark`` says how it is made, or Spark has none."""

    drawing: Drawing = Drawing()
    """The instructions by which tests draw it."""

    def shown_options(self, options: Options) -> Options:
        """Return the options that the user wrote, for explain and messages."""
        return tuple(option for option in options if option != "")

    @property
    def reads_window(self) -> bool:
        """True if its Spark form reads the interval of the window."""
        return self.timed

    @property
    def has_spark_form(self) -> bool:
        """True if Spark has an aggregate of its own for it, which ``on_spark`` returns."""
        return bool(self.spark_name) or type(self).on_spark is not AggregateFunction.on_spark

    @abstractmethod
    def result(self, of: Application) -> DataType:
        """Return Spark's type of the result; raise TypeMismatch for arguments that it does not accept."""

    def restated(self, of: Application) -> Expr | None:
        """Return an expression over simpler aggregates that has the same value; None if there is none."""
        return None

    def split(self, of: Application, partials: Partials) -> Expr | None:
        """Return the result as an expression over the columns of partial results; None if it has no partial results."""
        return None

    def of_firsts(self, is_first: Expr) -> Aggregate | None:
        """Return an aggregate of equal value that reads of each combination of arguments one member; None if there is none.

        ``is_first`` is true of a member that has no NULL among its arguments, passes the filter and, of those of equal arguments
        and its group, has started first.
        """
        return None

    def operands(self, of: Application) -> tuple[Expr, ...]:
        """Return the expressions that its reduction reads of a member; by default the arguments."""
        return of.args

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        """Return the reduction that computes the result from all members at once; None if there is none."""
        return None

    def on_spark(self, members: SparkMembers) -> Column | None:
        """Return Spark's own aggregate over the members of a window; None if Spark has none."""
        return getattr(F, self.spark_name)(*members.values) if self.spark_name else None

    def notes(self, applied: Aggregate, place: WindowPlace) -> tuple[str, ...]:
        """Return the lines that explain shows for it below its window."""
        return ()

    def builder(self, options: Options) -> tuple[str, Options]:
        """Return the name of the function of ``sq`` that a user calls for it, and the options to pass there."""
        return self.name, options


@dataclass(frozen=True, eq=False, repr=False)
class Aggregate(Expr):
    """An aggregate over a window's members (those for which ``where`` is true); only legal in a window's ``select``.

    options: plain parameters, such as the fraction of a percentile.
    """

    function: AggregateFunction = field(metadata={"written": "name"})
    args: tuple[Expr, ...]
    where: Expr | None = None
    options: Options = ()

    @property
    def name(self) -> str:
        """The name of its function."""
        return self.function.name

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args if self.where is None else (*self.args, self.where)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        n = len(self.args)
        return Aggregate(self.function, tuple(children[:n]), None if self.where is None else children[n], self.options)

    def shown_over(self, parts: Sequence[Text]) -> Text:
        """Return the call with its arguments, options and filter, ``sum(v where w > 0)``."""
        options = self.function.shown_options(self.options)
        args = ", ".join([*(p.text for p in parts[: len(self.args)]), *map(repr, options)])
        args = args or self.function.of_nothing
        return Text(f"{self.name}({args}{f' where {parts[-1].text}' if self.where is not None else ''})")
