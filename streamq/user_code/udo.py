"""A user's operators, from functions or classes: ``udo`` returns rows for the members of a window.

``udso`` goes from event to event with a state, for the verb ``scan``.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import types as t
from pyspark.sql.types import DataType

from streamq.choices import Stamp
from streamq.errors import PlanError
from streamq.plan.aggregate import Aggregate, Application, WindowPlace
from streamq.plan.expr import Alias, Expr, as_expr, show
from streamq.plan.partial import ReducedColumn
from streamq.plan.schema import lazy
from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.scan import ModuleScanEvaluator, ScanEvaluator, ScanKernel
from streamq.runtime.user_code.calls import StepCall, WindowCall
from streamq.runtime.user_code.code_values import LASTS, START, RowShape
from streamq.user_code.forms import STEPWISE, QueryCall, has_states, make_object
from streamq.user_code.module import UserModule, check_decorator, one_output_per_group, time_bound
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
        is_keyed = stamp not in OWN_LIFETIMES and not place.shares_starts
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
            self.fields, timed=self.time_sensitive, keeps_lifetimes=stamp in OWN_LIFETIMES, single=self.gives_one_row
        )
        return replace(super().calling(column, tuple(arguments)), rows=shape, stamp=Stamp(stamp))


@check_decorator
def udso(
    returns: str | t.StructType,
    *,
    initial: Any = ...,
    time_sensitive: bool = False,
    arguments: str | DataType | Iterable[str | DataType] = (),
    name: str | None = None,
    properties: Iterable[Any] = (),
    time_limit: float | None = None,
    checked: bool = False,
    on_error: str = "fail",
    version: int = 1,
    compatible_with: int | None = None,
) -> Callable[[Any], StatefulOperator]:
    """Make Python code an operator that goes from event to event with a state, for ``scan``.

    ``returns`` are the columns of its rows, as in SQL: ``"k string, delta double"``. The code is a class with ``initial()``,
    which returns the state before the first event, and ``step(state, *values)``, which returns ``(state, rows)``: the state
    after an event, and an iterable of rows, or None. A row is a dictionary by column, a tuple in the order of the columns,
    or, if there is one column, its value. Or the code is a function ``f(state, *values)`` that returns the same, with its
    first state as ``initial``.

    A step returns a new state, and does not change the old one; states are pickled. ``time_sensitive``: a step takes the start of
    the event before its values, ``step(state, start, *values)``: an integer, or on a timestamp axis a Timestamp in UTC.
    ``properties`` are promises; none applies to these operators yet. ``time_limit``: the seconds that one step may take.
    ``checked``: every step is made twice, each time on a copy of the state, and fails if the results differ. ``on_error``:
    "fail", or "quarantine", which sets aside an event whose step fails: the state stays as it was before the event.

    ``arguments``, ``version`` and ``compatible_with`` are as for :func:`uda`.

    Called with columns, names of columns or expressions, it returns the argument of ``scan``; keyword arguments are plain values,
    passed to the class when it is made, or to the function; ``where`` is a filter. The code must be deterministic. Raises
    PlanError, TypeMismatch. (docs/modules.md; Ali et al., The Extensibility Framework in Microsoft StreamInsight, section V)

    >>> import streamq as sq
    >>> @sq.udso("delta bigint")
    ... class Delta:
    ...     def initial(self):
    ...         return None
    ...
    ...     def step(self, last, value):
    ...         return value, None if last is None else [value - last]
    >>> s = sq.events([(1, 2, {"k": "a", "v": 2}), (3, 4, {"k": "a", "v": 7}), (4, 5, {"k": "b", "v": 1})]).to_points()
    >>> s.group_by("k").scan(Delta("v")).show()
    k  delta  start  end
    a      5      3    4
    """
    return decorator(StatefulOperator, **locals())


class EventOperator(ABC):
    """An operator that goes from event to event with a state: a user's code, or one of streamq's own, under a ``name``.

    Plans identify a user's by its name in the repository, and one of streamq's own by the fields of its dataclass.
    """

    name: str

    @property
    def sets_aside(self) -> bool:
        """True if an event for which it fails is set aside, and the query goes on."""
        return False

    @property
    @abstractmethod
    def fields(self) -> tuple[t.StructField, ...]:
        """The columns of its rows."""

    @abstractmethod
    def evaluator(self, values: int, **site: Any) -> ScanEvaluator:
        """Return the evaluator for events with this many values each; raises PlanError if it does not take them.

        ``site`` are the fields of ScanEvaluator: the group's keys and the columns that it reads.
        """

    @abstractmethod
    def kernel(self, *, sets_aside: bool, **parameters: Any) -> Kernel:
        """Return the kernel of its evaluator; ``parameters`` are those of RecomputeKernel.

        ``sets_aside``: events for which it fails are set aside.
        """

    def shown(self, args: Sequence[Expr]) -> str:
        """Return its form in explain over ``args``."""
        return f"{self.name}({', '.join(map(show, args))})"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StatefulOperator(UserModule, EventOperator):
    """User code that goes from event to event; ``initial`` is the first state if the code is a function."""

    kind = "udso"

    initial: Any = ...
    time_sensitive: bool = False

    def check(self) -> None:
        """Raise PlanError unless code has ``initial()`` and ``step``, or is a function with an ``initial`` state, not both."""
        if not self._is_function and has_states(self.code):
            STEPWISE.check(self.name, self.code, is_timed=self.time_sensitive)
        has_methods = all(callable(getattr(self.code, method, None)) for method in STEPWISE.needed)
        if has_methods and self._is_function:
            both = "the code has initial(), and initial= is given"
            raise PlanError("udso", "two initial states", both, "Say it in one of them.")
        if not has_methods and not (self._is_function and inspect.isroutine(self.code)):
            hint = "Give a class with initial() and step(state, *values), or say initial= and give a function."
            wrong = "no code that goes from event to event"
            found = getattr(self.code, "__qualname__", None) or repr(self.code)
            raise PlanError("udso", wrong, f"found {found}", hint)
        super().check()

    @property
    def held(self) -> tuple[Any, ...]:
        return (self.initial,) if self._is_function else ()

    @property
    def layout(self) -> tuple[str, ...]:
        return (str(self.time_sensitive),)

    def __call__(self, *operands: Any, where: Any = None, **options: Any) -> StatefulCall:
        """Return the operator over ``operands``, columns or names of columns, for events for which ``where`` is true.

        Keyword arguments are plain values: parameters of the class when it is made, or of the function. Raises PlanError if the
        code does not take them, and for an operand that is no column.
        """
        operator = self.called_with(options)
        args = self.columns_of(operands)
        operator.calling(len(operands))  # called here, so that errors are raised at the user's line
        bare = tuple(arg.arg if isinstance(arg, Alias) else arg for arg in args)
        return StatefulCall(operator, bare, None if where is None else as_expr(where))

    @property
    def example_call(self) -> str:
        return f"scan({super().example_call})"

    @property
    def _is_function(self) -> bool:
        return self.initial is not ...

    @lazy
    def steps(self) -> tuple[Callable[[], Any], Callable[..., Any]]:
        """The functions that return the first state, and the next state with rows; raises PlanError for a generator."""
        code, initial, options = self.code, self.initial, self.options
        if self._is_function:
            # copied, so that a step that changes the first state affects only its group
            start: Callable[[], Any] = partial(copy.deepcopy, initial)
            step = (lambda *arguments: code(*arguments, **options)) if options else code
        else:
            module = make_object(self.name, code, options)
            start, step = module.initial, module.step
        if inspect.isgeneratorfunction(code if self._is_function else step):
            hint = "Return the state, and a list of rows."
            raise PlanError(self.name, "a step gives (state, rows)", "this one is a generator", hint)
        return start, step

    def evaluator(self, values: int, **site: Any) -> ModuleScanEvaluator:
        return ModuleScanEvaluator(calling=self.calling(values), **site)

    def kernel(self, *, sets_aside: bool, **parameters: Any) -> ScanKernel:
        return ScanKernel(**parameters, sets_aside=sets_aside)

    def calling(self, values: int) -> StepCall:
        """Return the call of the step with this many values; raises PlanError if the code does not take them, or the options."""
        (initial, step), leading = self.steps, 1 + self.time_sensitive
        by_name, method = (self.options, "") if self._is_function else ({}, "step")
        call = QueryCall(values, by_name, leading, method)
        call.check(self.name, self.code)
        return StepCall(
            initial=initial,
            step=step,
            names=call.argument_names(self.code, values),
            rows=RowShape.from_fields(self.fields),
            sensitive=self.time_sensitive,
            **self.guards,
        )


@dataclass(frozen=True)
class StatefulCall:
    """A stateful operator over columns, the argument of ``scan``."""

    operator: StatefulOperator
    args: tuple[Expr, ...]
    where: Expr | None

    def __repr__(self) -> str:
        return f"{self.operator.shown(self.args)}, which .scan(...) takes"
