"""The forms in which ``check_module`` checks user modules: as hosts call them, over events without a stream."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.cloudpickle import CloudPickler, cloudpickle

from streamq.choices import Stamp
from streamq.errors import PlanError, counted
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Call, Col, show
from streamq.plan.fingerprint import STREAMQ, package_of
from streamq.plan.partial import ReducedColumn
from streamq.plan.passes import expression_nodes
from streamq.plan.schema import Field, Schema, shown_name
from streamq.runtime.arrow.arrow_expr import evaluate
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.hosts.shipping import ship_module_of
from streamq.runtime.user_code.calls import States, pickled
from streamq.runtime.user_code.code_values import instant_of, instants_of, series, short_text
from streamq.time import INTEGER
from streamq.user_code.forms import is_window_code, window_form
from streamq.user_code.module import name_of, time_bound
from streamq.user_code.uda import WindowModule
from streamq.user_code.udf import UserFunction
from streamq.user_code.udo import StatefulCall, StatefulOperator, UserOperator

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Rows = Sequence[tuple[Any, ...]]
"""Events, each by the values of its fields."""


def arrays_of(rows: Rows, kinds: Iterable[DataType], since: int = 0) -> list[pa.Array]:
    """Return the values of events as an array for each type; ``since`` of them stand before these, and are left out."""
    return [
        pa.array([row[i] for row in rows], arrow_type(kind), from_pandas=False) for i, kind in enumerate(kinds, since)
    ]


@dataclass(frozen=True, kw_only=True)
class CheckedModule(States):
    """A module's state methods, and what its laws need to know of it.

    - ``fields``: the names of an event's values
    - ``events``: converts rows to the argument of the methods
    - ``reference``: computes the expected result over rows, if there is a reference
    - ``time_bound``: the module promises ``sq.time_bound``
    - ``filters_on``: the columns for which the module promises ``sq.filters_on``
    - ``by_event``: the result is a list with a value for each event
    - ``sent``: the part of a result that a query sends
    - ``fresh``: makes the same form of a copy of the code that has not been called, if it is user code
    - ``kinds``: the types of an event's values; ``begins``: the names of what stands before these
    """

    fields: tuple[str, ...]
    events: Callable[[Rows], Any]
    reference: Callable[[Rows], Any] | None = None
    time_bound: bool = False
    filters_on: tuple[str, ...] = ()
    by_event: bool = False
    sent: Callable[[Any], Any] = lambda result: result
    fresh: Callable[[], CheckedModule] | None = None
    kinds: Sequence[DataType] = ()
    begins: tuple[str, ...] = ()

    def has(self, need: str) -> bool:
        """True if the module has the property that a law needs, or if the law needs none."""
        return not need or bool(getattr(self, need))

    def state(self, rows: Rows) -> Any:
        """Return the state after adding all rows at once."""
        return self.add(self.initial(), self.events(rows))

    def answer(self, rows: Rows) -> Any:
        """Return the result after adding all rows at once."""
        return self.result(self.state(rows))


# copies of code


def with_copies(code: Any, name: str, form_of: Callable[[Any], CheckedModule]) -> CheckedModule:
    """Return the form that ``form_of`` makes of user code, whose ``fresh`` makes it of a copy as the code is now.

    A copy has its own globals, captured variables and classes, as in a worker that has just started; only installed code is
    shared. Raises PlanError, about ``name``, for code that cannot be copied, and so cannot be sent to a worker.
    """
    ship_module_of(code, "")
    try:
        with io.BytesIO() as file:
            _CopyPickler(file).dump(code)
            body = file.getvalue()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise PlanError(
            "check_module", f"what {name} holds cannot be pickled", why, "Make it within the code."
        ) from error
    return replace(form_of(code), fresh=lambda: form_of(pickle.loads(body)))


class _CopyPickler(CloudPickler):
    """A pickler whose classes are new where they are loaded; cloudpickle's own are recognized by the process that has them.

    What code holds of streamq itself is shared, also where Spark sends that to workers.
    """

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType) and _is_of_runtime(obj.__name__):
            return import_module, (obj.__name__,)
        if isinstance(obj, FunctionType | type) and _is_of_runtime(obj.__module__) and "<" not in obj.__qualname__:
            # as if it were installed
            return NotImplemented
        reduced = super().reducer_override(obj)
        if not isinstance(obj, type) or not isinstance(reduced, tuple) or len(reduced) < _OF_A_CLASS:
            # not a class, or one that is imported
            return reduced
        make, (*arguments, _, extra), *rest = reduced
        return make, (*arguments, None, extra), *rest


def _is_of_runtime(module: str) -> bool:
    """Return True for a module of streamq that has no user code."""
    return package_of(module) == STREAMQ and (
        module == STREAMQ or module not in cloudpickle.list_registry_pickle_by_value()
    )


_OF_A_CLASS = 6
"""The number of parts of cloudpickle's reduction of a class by value; the last but one of its arguments identifies the class."""


@dataclass(frozen=True)
class Check:
    """The events over which a module is checked, and what is asked of it beyond its own promises.

    ``kinds`` are the types of an event's values, ``axis`` is that of instants. ``reference`` computes the results that the module
    must give; with ``order_insensitive`` it must give them in any order of the events.
    """

    kinds: Sequence[DataType]
    axis: DataType
    reference: Callable[..., Any] | None
    order_insensitive: bool


def checked_form(subject: Any, check: Check) -> CheckedModule:
    """Return a module, decorated or not, applied to columns or not, in the form whose laws are checked.

    The filter of a call does not count. Raises PlanError for an object that is no module, or not a legal one, for a wrong
    number of types, and for a ``reference`` or ``order_insensitive`` that does not apply.
    """
    match subject:
        case UserFunction():
            return _function_form(subject, subject(*(f"x{i}" for i in range(len(check.kinds)))), check)
        case Call(function=UserFunction() as function):
            return _function_form(function, subject, check)
        case StatefulCall():
            kinds = check.kinds if subject.args else ()
            if len(subject.args) != len(kinds):
                found = f"found {len(kinds)} types, {counted(len(subject.args), 'column')}"
                raise PlanError("check_module", f"{subject.operator.name} is applied to other columns", found)
            return _stateful_form(subject.operator, replace(check, kinds=kinds))
        case StatefulOperator():
            return _stateful_form(subject, check)
        case WindowModule():
            return _window_form(subject, subject.columns, check)
        case Aggregate(function=WindowModule() as module, args=args):
            kinds, count = check.kinds, len(args)
            if len(kinds) not in (1, count) and count:
                raise PlanError("check_module", f"{len(kinds)} types for {count} arguments", f"found {show(subject)}")
            # one type is that of all arguments
            kinds = kinds if len(kinds) == count else [*kinds[:1]] * count
            names = tuple(map(str, subject.options[len(module.leading_options) :]))
            return _window_form(module, names, replace(check, kinds=kinds))
    return _plain_form(subject, check)


def _plain_form(code: Any, check: Check) -> CheckedModule:
    """Return the form of code that is not decorated, whose events have no lifetimes; the reference is a function of Series."""
    kinds, reference = check.kinds, check.reference
    if not is_window_code(code):
        methods = "initial(), add(state, values), result(state)"
        hint = f"Give a function of Series, or what has {methods}, or zero, reduce, merge and finish."
        raise PlanError("check_module", "not a module", f"found {code!r}", hint)
    if not kinds:
        raise PlanError("check_module", "no types", "it is called with a Series for each argument", 'Give "double".')
    name = name_of(code, None)
    window_form("check_module", name, code).check()

    def form_of(code: Any) -> CheckedModule:
        module = window_form("check_module", name, code).states({}, order_insensitive=check.order_insensitive)
        return CheckedModule(
            **{f.name: getattr(module, f.name) for f in fields(States)},
            fields=tuple(f"x{i}" if i else "x" for i in range(len(kinds))),
            events=lambda rows: module.events({f"x{i}": column for i, column in enumerate(arrays_of(rows, kinds))}),
            reference=None if reference is None else lambda rows: reference(*map(series, arrays_of(rows, kinds))),
            kinds=kinds,
        )

    return with_copies(code, name, form_of)


def _function_form(function: UserFunction, call: Call, check: Check) -> CheckedModule:
    """Return a function of one event's values, over events with a column of each type; so is the reference.

    The columns of an applied function are taken in the order in which it names them. An event is a row of values without a
    lifetime; a column that is named twice counts once.
    """
    kinds, reference = check.kinds, check.reference
    names = tuple(dict.fromkeys(part.name for part in expression_nodes(call) if isinstance(part, Col)))
    if check.order_insensitive:
        wrong = f"order_insensitive applies to aggregates only; {function.name} is called for one event"
        raise PlanError("check_module", wrong)
    if len(names) != len(kinds):
        shown = f"{show(call)} reads {', '.join(names) or 'none'}"
        raise PlanError("check_module", f"{len(kinds)} types for {len(names)} columns", shown)
    schema = Schema(tuple(Field(name, kind) for name, kind in zip(names, kinds, strict=True)), INTEGER)

    def events(rows: Rows) -> pa.Table:
        return pa.table(arrays_of(rows, kinds), names=list(names))

    def form_of(code: Any) -> CheckedModule:
        applied = Call(replace(function, code=code), call.args)

        def result(table: pa.Table) -> list[Any]:
            arrays = {name: table.column(name).combine_chunks() for name in names}
            return list(evaluate(applied, schema, arrays, arrays.__getitem__, table.num_rows).to_pylist())

        return CheckedModule(
            name=function.name,
            initial=lambda: events(()),
            add=lambda _, table: table,
            result=result,
            in_parts=False,
            any_order=False,
            by_event=True,
            fields=names,
            events=events,
            reference=None if reference is None else lambda rows: [reference(*row) for row in rows],
            kinds=kinds,
        )

    return with_copies(function.code, function.name, form_of)


# stateful operators


LATER = "later"
"""The field of an event with its start's distance in ticks from the previous start, if the code reads starts."""


@dataclass(frozen=True)
class Walk:
    """The progress of a walk over events: the module's state, the start of the last event, and the rows so far."""

    state: Any
    at: int
    rows: tuple[dict[str, Any], ...]


class Body:
    """A copy of a module's state; two copies are equal if their pickles or their values are."""

    def __init__(self, state: Any):
        self.pickle = pickled(state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Body) and (self.pickle == other.pickle or self.value == other.value)

    def __hash__(self) -> int:
        return hash(Body)

    @property
    def value(self) -> Any:
        """The state, unpickled."""
        return pickle.loads(self.pickle)

    def __repr__(self) -> str:
        return short_text(self.value)


def _stateful_form(operator: StatefulOperator, check: Check) -> CheckedModule:
    """Return an operator from event to event; its rows must have its columns' types."""
    if check.reference is not None or check.order_insensitive:
        what = f"{operator.name} is called from event to event"
        raise PlanError("check_module", "reference and order_insensitive apply to aggregates only", what)
    kinds, is_timed, instants = check.kinds, operator.time_sensitive, arrow_type(check.axis)
    begins = (LATER,) if is_timed else ()

    def events(rows: Rows) -> list[tuple[Any, ...]]:
        """Return rows with their values as the operator reads them, after the distance of the start if it reads starts."""
        later = [[row[0] for row in rows]] if is_timed else []
        values = [array.to_pylist() for array in arrays_of(rows, kinds, int(is_timed))]
        return list(zip(*later, *values, strict=True)) if later or values else [()] * len(rows)

    def form_of(code: Any) -> CheckedModule:
        calling = replace(operator, code=code).calling(len(kinds))

        def add(walk: Walk, arrived: Sequence[tuple[Any, ...]]) -> Walk:
            """Return the walk after some more events."""
            state, at, rows = walk.state, walk.at, list(walk.rows)
            for event in arrived:
                if is_timed:
                    at += event[0]
                    event = (instant_of(at, instants), *event[1:])
                state, own = calling.next_state(state, event)
                rows += own
            return Walk(state, at, tuple(rows))

        return CheckedModule(
            name=operator.name,
            initial=lambda: Walk(calling.initial(), 0, ()),
            add=add,
            # the state is part of the result, because later rows depend on it
            result=lambda walk: {"rows": list(walk.rows), "state": Body(walk.state)},
            sent=lambda result: result["rows"],
            any_order=False,
            fields=(*begins, *calling.names),
            events=events,
            kinds=kinds,
            begins=begins,
        )

    return with_copies(operator.code, operator.name, form_of)


# aggregates and operators over windows


WINDOW = (-3, 7)
"""The window in which modules are checked; the lifetimes that time-sensitive modules read lie within it."""


def _window_form(module: WindowModule, names: tuple[str, ...], check: Check) -> CheckedModule:
    """Return an aggregate or an operator over events in ``WINDOW``; its values must be of its declared type.

    ``names`` are those of its arguments, empty if it does not declare them. The reference is called like the module's own
    function: with Series, or with events and window. Raises PlanError if the names of a time-sensitive module are unknown or do
    not match the types, if ``filters_on`` names no argument, and without types, unless the module reads lifetimes alone.
    """
    kinds, reference = check.kinds, check.reference
    if not kinds:
        # raises the error of a call without a column, unless the module reads lifetimes alone
        module()
    if module.time_sensitive and len(names) != len(kinds):
        found = f"found {len(kinds)} types, {len(names)} names"
        hint = f"Declare it with columns=[...], or check {module.name}('v'), applied to the columns it reads."
        hint += f" If it reads lifetimes alone, check {module.name}()." if not names else ""
        raise PlanError("check_module", f"the argument names of {module.name} are not known", found, hint)
    # an operator is called with its stamp, too
    stamps = (str(module.default_stamp or Stamp.ALIGN),) if isinstance(module, UserOperator) else ()
    instants, begins = arrow_type(check.axis), ("start", "end") if module.time_sensitive else ()
    column = ReducedColumn("", tuple(f"x{i}" for i in range(len(kinds))), arrow_type(module.returns), axis=instants)
    names = module.calling(column, (*stamps, *names)).names
    if unnamed := [name for name in module.filter_columns if name not in names]:
        what = f"filters_on({unnamed[0]}) has no effect: {module.name} has no argument of that name"
        hint = f"Name {unnamed[0]!r} in columns= of its decorator."
        raise PlanError("check_module", what, f"there are: {', '.join(names)}", hint)

    def form_of(code: Any) -> CheckedModule:
        calling = replace(module, code=code).calling(column, (*stamps, *names))
        called = calling.module

        def events(rows: Rows) -> Any:
            """Return rows, each of values (after start and end if the module is time-sensitive), as the module reads them."""
            arrays = dict(zip(names, arrays_of(rows, kinds, len(begins)), strict=True))
            for place, name in enumerate(begins):
                arrays[name] = instants_of(np.array([row[place] for row in rows], np.int64), instants)
            return called.events(arrays)

        def result(state: Any) -> Any:
            value = calling.answer(state, WINDOW)
            # an operator's rows have no order, so compare them sorted
            return sorted(value, key=repr) if isinstance(module, UserOperator) else value

        def referred(rows: Rows) -> Any:
            assert reference is not None
            read = events(rows)
            return reference(read, calling.interval(WINDOW)) if module.time_sensitive else reference(*read)

        states = {f.name: getattr(called, f.name) for f in fields(States)}
        states |= {"result": result, "any_order": called.any_order or check.order_insensitive}
        return CheckedModule(
            **states,
            fields=(*begins, *map(shown_name, names)),
            events=events,
            reference=None if reference is None else referred,
            time_bound=time_bound in module.properties,
            filters_on=module.filter_columns,
            kinds=kinds,
            begins=begins,
        )

    return with_copies(module.code, module.name, form_of)
