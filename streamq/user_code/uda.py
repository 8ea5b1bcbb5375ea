"""``uda``: a user's aggregate over the members of a window, from a function or a class; with the base of code over windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.types import DataType

from streamq.errors import PlanError
from streamq.plan.aggregate import Aggregate, AggregateFunction, Application, Options, Partials, WindowPlace
from streamq.plan.expr import Alias, Col, Expr, as_expr, show
from streamq.plan.partial import Partial, RangedMembers, RangeReduction, ReducedColumn, Reduction
from streamq.plan.schema import lazy
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.user_code.calls import ModuleStates, WindowCall, forbid_module_changes
from streamq.runtime.user_code.module_walk import ModuleWalk
from streamq.runtime.user_code.states import PickledState, shared_note
from streamq.user_code.forms import WindowForm, is_window_code, window_form
from streamq.user_code.module import UserModule, check_decorator, mergeable, order_insensitive
from streamq.user_code.repository import decorator


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WindowModule(UserModule, AggregateFunction):
    """User code over the members of a window.

    columns: the code's names for its arguments, if its author gave them.
    """

    time_sensitive: bool = False
    columns: tuple[str, ...] = ()

    filters_arguments = False
    leading_options: ClassVar[tuple[str, ...]] = ()
    """The aggregate's options before the names of the arguments, until a window sets them."""

    @classmethod
    def checked_fields(cls, *, columns: Any, **others: Any) -> dict[str, Any]:  # type: ignore[override]
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        return super().checked_fields(**others, columns=names)

    @property
    def filter_columns(self) -> tuple[str, ...]:
        """The columns of the property ``filters_on``."""
        return tuple(name for promise in self.properties for name in promise.fields)

    def check(self) -> None:
        """Raise PlanError for code of no form, or with values that cannot be pickled, and for invalid or useless ``columns``.

        Also raises it for ``mergeable`` code that is time-sensitive or has no merge.
        """
        if not is_window_code(self.code):
            hint = f"Write @sq.{self.kind}(...) above a def or a class."
            raise PlanError(self.kind, "not code", f"found {self.code!r}", hint)
        self.form.check()
        self._check_columns()
        super().check()
        if mergeable in self.properties and (self.time_sensitive or getattr(self.code, "merge", None) is None):
            hint = "Give it merge(a, b), and leave lifetimes alone."
            raise PlanError(self.name, "it is declared mergeable", "it cannot be merged", hint)

    def _check_columns(self) -> None:
        """Raise PlanError for a column called start or end, and for ``columns`` that nothing reads.

        Time-sensitive code reads its arguments by them, and ``filters_on`` needs them.
        """
        reserved = [name for name in self.columns if name in ("start", "end")]
        if reserved:
            hint = "Call the argument something else."
            what = f"{reserved[0]!r} is reserved for the lifetime"
            raise PlanError(self.kind, what, f"found columns={list(self.columns)}", hint)
        if self.columns and not self.time_sensitive and not self.filter_columns:
            hint = "Say time_sensitive=True, or leave columns= out."
            wrong = "columns= names what time-sensitive code reads"
            position = "this is not time-sensitive; its arguments come by position"
            raise PlanError(self.kind, wrong, position, hint)

    @lazy
    def form(self) -> WindowForm:
        """The form of the code."""
        return window_form(self.kind, self.name, self.code, time_sensitive=self.time_sensitive)

    @lazy
    def module(self) -> ModuleStates:
        """The code as hosts call it, made once, a class with the options; raises PlanError if it cannot be made."""
        return self.form.states(self.options, order_insensitive=order_insensitive in self.properties)

    @property
    def layout(self) -> tuple[str, ...]:
        return str(self.time_sensitive), ",".join(self.columns), ",".join(map(str, self.properties))

    def shown_options(self, options: Options) -> Options:
        """Return no options: they are a stamp and names of arguments."""
        return ()

    @property
    def ordered(self) -> bool:  # type: ignore[override]
        return not self.module.any_order

    @property
    def timed(self) -> bool:  # type: ignore[override]
        return self.time_sensitive

    @property
    def runs_by_window(self) -> str:
        """The reason why it is called window by window although it merges; empty if it is not."""
        reasons = {"its time is limited": self.time_limit is not None, "its calls are checked": self.checked}
        reasons["what fails is set aside"] = self.sets_aside
        return " and ".join(reason for reason, holds in reasons.items() if holds)

    @property
    def has_window_state(self) -> bool:  # type: ignore[override]
        return self.module.in_parts and not self.runs_by_window

    def __call__(self, *operands: Any, where: Any = None, **options: Any) -> Aggregate:
        """Return its aggregate over ``operands``, columns or names of columns, for members for which ``where`` is true.

        Keyword arguments are plain values: parameters of the function, or of the class when it is made. Raises PlanError if the
        code does not take them, for an operand that is no column, without an operand unless the code is time-sensitive, and for
        arguments of time-sensitive code without names of their own.
        """
        function = self.called_with(options)
        if not operands and not self.time_sensitive:
            hint = "Columns come by position; with time_sensitive=True it may read lifetimes alone."
            raise PlanError(self.name, "it is called without a column", "", hint)
        args = self.columns_of(operands)
        names = self._argument_names(args)
        function.form.query_call(len(args), function.options).check(self.name, self.code)
        function.module  # noqa: B018  made here, so that errors are raised at the user's line
        bare = tuple(arg.arg if isinstance(arg, Alias) else arg for arg in args)
        return Aggregate(function, bare, None if where is None else as_expr(where), (*self.leading_options, *names))

    def _argument_names(self, args: Sequence[Expr]) -> tuple[str, ...]:
        """Return the names under which a time-sensitive module reads its arguments; none for other modules.

        Raises PlanError for an expression without a name, names that repeat or are start or end, or a number other than declared.
        """
        if self.columns and len(self.columns) != len(args):
            shown = f"it takes {', '.join(self.columns)}"
            raise PlanError(self.name, f"{len(args)} arguments", shown)
        if not self.time_sensitive:
            return ()
        names = []
        for i, arg in enumerate(args):
            match arg:
                case _ if self.columns:
                    names.append(self.columns[i])
                case Col(name=name) | Alias(name=name):
                    names.append(name)
                case _:
                    hint = f"Name it, as in ({show(arg)}).alias('v')."
                    raise PlanError(self.name, "an argument without a name", f"found {show(arg)}", hint)
        if len({*names, "start", "end"}) != len(names) + 2:
            raise PlanError(self.name, "arguments of one name", f"found {', '.join([*names, 'start', 'end'])}")
        return tuple(names)

    def result(self, of: Application) -> DataType:
        self.check_types(of.types)
        return self.returns

    def notes(self, applied: Aggregate, place: WindowPlace) -> tuple[str, ...]:
        """Return a line for each property: the work that it saves, or would save."""
        return tuple(filter(None, [self._merging_note(place), self._order_note(place)]))

    def _merging_note(self, place: WindowPlace) -> str:
        return ""

    def _order_note(self, place: WindowPlace) -> str:
        """Return the order in which a function gets members, and its cost; empty for a class, which takes any order.

        Of an order-insensitive function it says which columns are read instead.
        """
        if self.module.in_parts:
            return ""
        readers = [f"{name} beside it reads" for name in place.ordered_beside]
        readers += [f"{place.windows} windows read"] if place.counts_rows else []
        if self.module.any_order:
            only = "of the payload, only keys and arguments are read"
            return f"order_insensitive: {f'but {readers[0]} all columns' if readers else only}"
        note = "order: members come sorted by (start, payload)"
        if self.sets_aside:
            return note
        if readers or not place.unread:
            return note
        return f"{note}; sq.order_insensitive would leave {place.unread} column{'s' * (place.unread > 1)} unread"

    def calling(self, column: ReducedColumn, names: tuple[str, ...]) -> WindowCall:
        """Return the module's call for a result column, with its guards; the column's filter is left to the caller.

        ``names`` are those of the arguments, empty: those in the code.
        """
        return WindowCall(
            module=forbid_module_changes(self.module) if self.checked else self.module,
            code_text=self.fingerprint,
            options=self.options_text,
            version=self.version,
            compatible_with=self.compatible_with,
            names=names or self.parameter_names(len(column.args)),
            to=column.type,
            shown_type=self.returns.simpleString(),
            axis=column.axis,
            **self.guards,
        )

    def parameter_names(self, count: int) -> tuple[str, ...]:
        """Return the argument names of a module that is not time-sensitive, from its author or its code."""
        if self.columns:
            return self.columns
        return self.form.query_call(count, {}).argument_names(self.code, count)

    def reduction(self, column: ReducedColumn) -> Reduction | None:
        return ModuleReduction(column, self.calling(column, tuple(map(str, column.options))))


@dataclass(frozen=True)
class ModuleReduction(RangeReduction):
    """The results of a module over the members of each window."""

    calling: WindowCall

    calls_module = True

    @property
    def depends_on_order(self) -> bool:
        """True for code that takes whole windows in any order: its last digits may differ, and nothing else sorts members."""
        return self.calling.module.any_order and not self.calling.module.in_parts

    @property
    def may_be_none(self) -> bool:
        """True for an operator that may return no row for a window, or whose failed windows are set aside."""
        # a window of aggregates keeps its row, with NULL, if a call is set aside
        rows = self.calling.rows
        return rows is not None and (self.calling.quarantine or not rows.single)

    def window_state(self, type: DataType) -> Partial | None:
        return PickledState(self.column.name, "", type, self.calling, self.column.args, self.column.where)

    def over_ranges(self, members: RangedMembers) -> pa.Array:
        return pa.array([*ModuleWalk(self.calling, self.column, members, self.passes).results()], self.column.type)


@check_decorator
def uda(
    returns: str | DataType,
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
) -> Callable[[Any], UserAggregate]:
    """Make Python code an aggregate of a window's members, used in ``select`` like the built-in ones.

    ``returns`` is the SQL type of its value. The code is

    - a function of all values of a window, a pandas Series per argument, called for each window whose members have changed;
    - a class with ``initial()``, ``add(state, values)`` and ``result(state)``, and optionally ``remove(state, values)`` and
      ``merge(a, b)``: in a stream over hopping windows it gets the members that come and go, and with ``merge`` basic windows
      are computed once and merged. A method returns a new state, and does not change its arguments;
    - a class in the shape of Spark's Aggregator: ``zero()``, ``reduce(buffer, value)``, ``merge(a, b)``, ``finish(buffer)``.

    ``time_sensitive``: the code also reads lifetimes. ``columns``: the code's names for its arguments, in order; by default
    time-sensitive code uses the query's names. ``properties`` are promises, such as ``sq.order_insensitive``. ``time_limit``:
    the seconds that a call for one window may take. ``checked``: every call is made twice, and fails if the results differ.
    ``on_error``: "fail", or "quarantine", which sets aside a window whose call fails: it has no value, all its members go to
    the quarantine, and the query goes on.

    ``arguments`` are the SQL types of its arguments, in order, the last one also of further ones: a query that calls it with a
    column of another type is an error.

    ``version`` numbers the code; with ``compatible_with``, an earlier version, a checkpoint of that version goes on with this
    code, which must read the states of the other (docs/operations.md, "A query that changes").

    Called with columns, names of columns or expressions, it returns an aggregate; keyword arguments are plain values, passed to
    the function, or to the class when it is made. A time-sensitive function is ``f(events, window)``, where ``events`` is a
    DataFrame with the arguments, ``start`` and ``end``; the methods of a time-sensitive class are ``add(state, events)`` and
    ``result(state, window)``. The code must be deterministic. Raises PlanError for code of none of these kinds and
    for invalid arguments, TypeMismatch if ``returns`` names no type.
    (docs/modules.md; Ali et al., The Extensibility Framework in Microsoft StreamInsight, sections III and IV)

    >>> import streamq as sq
    >>> @sq.uda("double")
    ... def spread(values, factor=1):
    ...     return (values.max() - values.min()) * factor
    >>> @sq.uda("double", time_sensitive=True)
    ... def load(events, window):
    ...     return (events.v * (events.end - events.start)).sum() / window.duration
    >>> s = sq.events([(1, 4, {"v": 2}), (3, 8, {"v": 6})])
    >>> s.tumbling_window(4).select(spread=spread("v"), twice=spread(sq.col("v"), factor=2), load=load("v")).show()
    spread  twice  load  start  end
       4.0    8.0   3.0      0    4
       0.0    0.0   6.0      4    8
    """
    return decorator(UserAggregate, **locals())


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UserAggregate(WindowModule):
    """A user's aggregate: one value per window."""

    kind = "uda"
    results = "value"

    def check(self) -> None:
        """Raise PlanError for invalid code, and for ``merge`` that is never called."""
        super().check()
        if self.time_sensitive and getattr(self.code, "merge", None) is not None:
            hint = "Leave merge out: each window cuts lifetimes, and has a state of its own."
            raise PlanError(self.name, "it has merge(a, b)", "a time-sensitive aggregate cannot be merged", hint)

    def split(self, of: Application, partials: Partials) -> Expr | None:
        """Return the column of a partial result made of states; None if states do not merge, or windows need their own calls."""
        if not self.module.merges or self.runs_by_window:
            return None
        where = of.aggregate.where
        columns = tuple(partials.column(arg) for arg in of.args)
        passes = None if where is None else partials.column(where)
        column = ReducedColumn("", columns, arrow_type(self.returns), axis=arrow_type(of.time_type))
        calling = self.calling(column, ())
        state = partials.partial(PickledState, of.args[0], self.returns, calling, columns, passes, of.types)
        return Col(state.name)

    def _merging_note(self, place: WindowPlace) -> str:
        """Return the line of explain on whether, and how, the aggregate merges."""
        module, grid = self.module, place.grid
        if module.merges and self.runs_by_window:
            return f"mergeable: not merged, for {self.runs_by_window}"
        if module.merges:
            if grid is None:
                why_none = f"{place.windows} windows have no basic windows"
            elif place.unmerged_beside:
                why_none = f"{place.unmerged_beside[0]} beside it does not merge"
            else:
                return shared_note(grid.n)
            if place.has_states:
                return f"mergeable: each window has a state of what has come, for {why_none}"
            anew = "parts are merged anew in each micro-batch"
            how = "settled events are held as states" if place.condenses else anew
            return f"mergeable: {how}, for {why_none}"
        if module.sensitive and not place.has_states:
            return "not mergeable: it reads lifetimes, which each window cuts"
        note = "not mergeable: each window is computed of all its members"
        if place.has_states and self.has_window_state:
            note = "not mergeable: each window has a state of what has come"
            note += " and gone" if module.remove is not None else "; if members have gone, it is computed of all"
        if self.runs_by_window:
            return note
        if grid is None:
            return f"{note}; merge(a, b) would let settled events be held as states" if place.condenses else note
        shared = f"{grid.n} windows share basic windows" if grid.n > 1 else "parts of a window be merged"
        condition = f", if {place.unmerged_beside[0]} merged too" if place.unmerged_beside else ""
        return f"{note}; merge(a, b) would let {shared}{condition}"
