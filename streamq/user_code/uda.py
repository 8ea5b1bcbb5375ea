"""``uda``: a user's aggregate over the members of a window, from a function or a class."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import DataType

from streamq.errors import PlanError
from streamq.plan.aggregate import Application, Partials, WindowPlace
from streamq.plan.expr import Col, Expr
from streamq.plan.partial import ReducedColumn
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.user_code.partial_states import PickledState, shared_note
from streamq.user_code.module import OF_WINDOWS, check_decorator
from streamq.user_code.repository import decorator
from streamq.user_code.window_module import WindowModule


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
    promises = OF_WINDOWS

    def check(self) -> None:
        """Raise PlanError for invalid code, and for ``merge`` that is never called."""
        super().check()
        if self.time_sensitive and getattr(self.code, "merge", None) is not None:
            hint = "Leave merge out: each window cuts lifetimes, and has a state of its own."
            raise PlanError(self.name, "it has merge(a, b)", "a time-sensitive aggregate cannot be merged", hint)

    @property
    def has_window_state(self) -> bool:  # type: ignore[override]
        return self.module.in_parts and not self.runs_by_window

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
            why_none = _without_basic_windows(place)
            if place.has_states:
                return f"mergeable: each window has a state of what has come, for {why_none}"
            if grid is not None and not why_none:
                return shared_note(grid.n)
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


def _without_basic_windows(place: WindowPlace) -> str:
    """Return the reason why a window has no basic windows, although one of its aggregates merges; "" if it has."""
    if place.grid is None:
        return f"{place.windows} windows have no basic windows"
    return f"{place.unmerged_beside[0]} beside it does not merge" if place.unmerged_beside else ""
