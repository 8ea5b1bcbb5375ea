"""``udo``: a user's operator, which returns rows for the members of a window, from a function or a class."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.choices import Stamp
from streamq.errors import PlanError
from streamq.plan.aggregate import Aggregate, Application, WindowPlace
from streamq.plan.expr import Expr
from streamq.plan.partial import ReducedColumn
from streamq.runtime.user_code.calls import WindowCall
from streamq.runtime.user_code.code_values import LASTS, START, RowShape
from streamq.user_code.module import check_decorator, one_output_per_group, time_bound
from streamq.user_code.repository import decorator
from streamq.user_code.uda import WindowModule

OWN_LIFETIMES = (Stamp.UNCHANGED, Stamp.CLIP, Stamp.TIME_BOUND)
"""The stamps under which rows of a time-sensitive operator keep their own lifetimes."""


@check_decorator
def udo(
    returns: str | t.StructType,
    *,
    time_sensitive: bool = False,
    arguments: str | DataType | Iterable[str | DataType] = (),
    name: str | None = None,
    columns: Iterable[str] = (),
    properties: Iterable[Any] = (),
    time_limit: float | None = None,
    checked: bool = False,
    on_error: str = "fail",
    version: int = 1,
    compatible_with: int | None = None,
) -> Callable[[Any], UserOperator]:
    """Make Python code an operator that returns zero or more rows for a window's members, used in a window's ``select``.

    ``returns`` are the columns of its rows, as in SQL: ``"pattern string, strength double"``. The code is a function or a class
    as for :func:`uda`, whose result is an iterable of rows, or a generator, or a DataFrame. A row is a dictionary by column,
    a tuple in the order of the columns, or, if there is one column, its value.

    A time-sensitive operator may give its rows lifetimes of their own: ``start`` and ``end`` in dictionaries and DataFrames, or
    before the columns in tuples; None is an infinite end. A row without them has its window's lifetime. The window's
    ``stamp`` decides on these lifetimes: "unchanged" (the default; a row that starts before its window is an error), "clip"
    (they are cut to the window), "time_bound" (the default of an operator with that property, which promises that input from
    an instant on changes no row before it), or "align" and "point_at_end", which replace them by the window's.

    The other arguments are those of :func:`uda`; an operator may also promise ``sq.time_bound``, ``sq.filters_on`` and
    ``sq.one_output_per_group``. A window that "quarantine" sets aside has no rows.

    Raises PlanError, TypeMismatch. (docs/modules.md; Ali et al., The Extensibility Framework in Microsoft StreamInsight,
    sections III and V)

    >>> import streamq as sq
    >>> @sq.udo("k string, v bigint", time_sensitive=True)
    ... def rises(events, window):
    ...     events = events.sort_values("start")
    ...     for before, now in zip(events[:-1].itertuples(), events[1:].itertuples()):
    ...         if now.v > before.v:
    ...             yield now.start, now.end, now.k, now.v - before.v
    >>> s = sq.events([(1, 2, {"k": "a", "v": 2}), (2, 3, {"k": "b", "v": 6}), (3, 4, {"k": "c", "v": 5})])
    >>> s.tumbling_window(4).select(rises("k", "v")).show()
    k  v  start  end
    b  4      2    3
    """
    return decorator(UserOperator, **locals())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UserOperator(WindowModule):
    """A user's operator: rows per window, which keep lifetimes of their own if it is time-sensitive.

    Plans hold it as an aggregate whose value is the list of its rows; its first option is the stamp.
    """

    kind = "udo"
    leading_options = ("",)

    def check(self) -> None:
        """Raise PlanError for invalid code, ``time_bound`` if it is not time-sensitive, and ``filters_on`` other columns."""
        super().check()
        if time_bound in self.properties and not self.time_sensitive:
            wrong = "time_bound is a promise about lifetimes of its rows"
            hint = "Say time_sensitive=True, too."
            raise PlanError(self.name, wrong, "it is not time-sensitive, and gives none", hint)
        names = [f.name for f in self.fields]
        if others := [name for name in self.filter_columns if name not in names]:
            shown = f"found {others[0]}, there are: {', '.join(names)}"
            raise PlanError(self.name, "filters_on names no column of its rows", shown)

    @property
    def default_stamp(self) -> Stamp | None:
        """The stamp of its rows if the window has none; None: the default stamp of aggregates."""
        if not self.time_sensitive:
            return None
        return Stamp.TIME_BOUND if time_bound in self.properties else Stamp.UNCHANGED

    @property
    def gives_one_row(self) -> bool:
        """True if it has promised one row per window."""
        return one_output_per_group in self.properties

    @property
    def filters_above(self) -> str:
        """The reason why filters on its columns stay above it despite ``filters_on``; empty if they may move."""
        return f"what fails of {self.name} is set aside with all members of its window" if self.sets_aside else ""

    def events_that_stay(self, windows: str, *, on_grid: bool, endless: bool) -> str:
        """Return the reason why events that a filter on its columns drops must stay in the window's input; empty if none.

        windows: the name of their kind; on_grid: they lie on a grid; endless: events may never end.
        """
        if not on_grid:
            return f"{windows} windows depend on all events"
        return "events may never end, and then the windows of some depend on the endpoints of all" if endless else ""

    def notes(self, applied: Aggregate, place: WindowPlace) -> tuple[str, ...]:
        """Return the lines of explain on merging, order, ``time_bound``, filters and upserts; no line where nothing is to say."""
        stamp = Stamp(str(applied.options[0]))
        of_lifetimes = self._time_bound_note(stamp, place), self._filters_note(applied, place)
        return (*super().notes(applied, place), *filter(None, (*of_lifetimes, self._single_note(stamp, place))))

    def _merging_note(self, place: WindowPlace) -> str:
        return "mergeable: not merged, for rows are made window by window" if self.module.merge is not None else ""

    def _time_bound_note(self, stamp: Stamp, place: WindowPlace) -> str:
        """Return the line of explain on ``time_bound``, used or not; empty if the promise would give nothing."""
        is_promised = time_bound in self.properties
        if stamp is Stamp.TIME_BOUND:
            return "time_bound: rows and CTI go on as input comes"
        if is_promised:
            return f"time_bound: not used under stamp={str(stamp)!r}"
        if stamp not in OWN_LIFETIMES or place.progress == "c":
            return ""
        return f"not time_bound: CTI is the {place.progress}; sq.time_bound would give c"

    def _filters_note(self, applied: Aggregate, place: WindowPlace) -> str:
        """Return the line of explain on filters above the operator: they stay, or move; empty if the promise would not help."""
        above = self.filters_above
        staying = self.events_that_stay(place.windows, on_grid=place.grid is not None, endless=place.endless)
        moves = f"move into its calls, for {staying}" if staying else "move below"
        if self.filter_columns:
            names = ", ".join(self.filter_columns)
            return f"filters_on({names}): filters on {names} " + (f"stay above, for {above}" if above else moves)
        names = ", ".join(name for name in self.arguments_by_name(applied) if name in {f.name for f in self.fields})
        return f"no filters_on: sq.filters_on(...) would let filters on {names} {moves}" if names and not above else ""

    def _single_note(self, stamp: Stamp, place: WindowPlace) -> str:
        """Return the line of explain on ``one_output_per_group``; empty if it is not promised and would allow no upsert."""
        is_keyed = stamp not in OWN_LIFETIMES and not place.equal_starts(stamp)
        if self.gives_one_row:
            return "one_output_per_group: output='upsert' " + (
                "goes with it" if is_keyed else f"does not go with stamp={str(stamp)!r} of {place.windows} windows"
            )
        return "no one_output_per_group: with it output='upsert' would go" if is_keyed else ""

    def result(self, of: Application) -> DataType:
        """Return the type of the list of rows; a row that keeps its own lifetime begins with its start and duration."""
        self.check_types(of.types)
        own = [t.StructField(name, t.LongType()) for name in (START, LASTS)]
        fields = [*(own if of.options[0] in OWN_LIFETIMES else ()), *self.fields]
        return t.ArrayType(t.StructType(fields), False)

    def type_of(self, name: str) -> DataType:
        """Return the type of one of its columns."""
        return next(field.dataType for field in self.fields if field.name == name)

    def arguments_by_name(self, applied: Aggregate) -> dict[str, Expr]:
        """Return its argument expressions by the names of the parameters, or by generated names."""
        names = tuple(map(str, applied.options[1:])) or self.parameter_names(len(applied.args))
        return dict(zip(names, applied.args, strict=False))

    def calling(self, column: ReducedColumn, names: tuple[str, ...]) -> WindowCall:
        """Return the operator's call for a result column; ``names`` are the stamp, then those of the arguments."""
        stamp, *arguments = names
        shape = RowShape.from_fields(
            self.fields,
            timed=self.time_sensitive,
            keeps_lifetimes=stamp in OWN_LIFETIMES,
            single=self.gives_one_row,
        )
        return replace(super().calling(column, tuple(arguments)), rows=shape, stamp=Stamp(stamp))
