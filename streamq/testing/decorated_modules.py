"""Adapt modules made by ``sq.uda`` and ``sq.udo`` to ``check_module``, which calls them as one window of a query would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from streamq.choices import Stamp
from streamq.errors import PlanError, sentence
from streamq.plan.aggregate import Aggregate
from streamq.plan.own_names import shown_name
from streamq.plan.partial import ReducedColumn
from streamq.plan.passes import types
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.user_code.calls import States
from streamq.runtime.user_code.code_values import instants_of
from streamq.testing.module_forms import Checked, Rows, Select, with_copies
from streamq.user_code.module import time_bound
from streamq.user_code.udo import UserOperator
from streamq.user_code.window_module import WindowModule

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

WINDOW = (-3, 7)
"""The window in which modules are checked; the lifetimes that time-sensitive modules read lie within it."""


def decorated(subject: Any) -> tuple[WindowModule, tuple[str, ...]] | None:
    """Return a decorated module and the names of its arguments, empty if it does not declare them; None for any other object.

    An operator may be applied to columns, which then give the names. An aggregate applied to columns is not a module here: it
    is checked as built-in aggregates are, and by :func:`checked_applied`.
    """
    if isinstance(subject, WindowModule):
        return subject, subject.columns
    if isinstance(subject, Aggregate) and isinstance(subject.function, UserOperator):
        return subject.function, tuple(map(str, subject.options[1:]))
    return None


def checked_decorated(
    module: WindowModule,
    names: tuple[str, ...],
    kinds: Sequence[DataType],
    axis: t.DataType,
    reference: Callable[..., Any] | None,
    *,
    order_insensitive: bool,
) -> Checked:
    """Return the module in the form whose laws are checked, over events of these types in ``WINDOW``.

    ``names`` and ``kinds`` are the names and types of the columns that it reads, ``axis`` is the type of instants. The module's
    values must be of its declared type. ``reference`` is called like the module's own function: with Series, or with events and
    window. ``order_insensitive``: the law of order applies even if the module does not promise it. Raises PlanError if the
    argument names of a time-sensitive module are unknown or do not match the types, if ``filters_on`` names no argument, and
    without types, unless the module reads lifetimes alone.
    """

    def form_of(code: Any) -> Checked:
        own = replace(module, code=code)
        return _form(own, names, kinds, axis, reference, order_insensitive=order_insensitive)

    return with_copies(module.code, module.name, form_of)


def checked_applied(
    aggregate: Aggregate,
    module: WindowModule,
    select: Select,
    axis: t.DataType,
    reference: Callable[..., Any] | None,
    *,
    order_insensitive: bool,
) -> Checked:
    """Return the module of an applied aggregate in the form whose laws are checked, with the options of the call.

    Its events have a lifetime and the columns of ``select``, over which the arguments are computed; the call's filter does not
    count. The other arguments are those of :func:`checked_decorated`.
    """
    kinds = [kind for arg in aggregate.args if (kind := types(arg, select.payload, "check_module")[arg.digest])]
    names = tuple(map(str, aggregate.options))
    own = checked_decorated(module, names, kinds, axis, reference, order_insensitive=order_insensitive)

    def over_columns(form: Checked) -> Checked:
        since = 0 if module.time_sensitive else 2
        events = form.events
        referred = form.reference

        def arguments(rows: Rows) -> Rows:
            return [row[since:] for row in select.arguments(aggregate, rows)]

        return replace(
            form,
            fields=select.fields[1:],
            events=lambda rows: events(arguments(rows)),
            reference=None if referred is None else lambda rows: referred(arguments(rows)),
        )

    assert own.fresh is not None
    fresh = own.fresh
    return replace(over_columns(own), fresh=lambda: over_columns(fresh()))


def _form(
    module: WindowModule,
    names: tuple[str, ...],
    kinds: Sequence[DataType],
    axis: t.DataType,
    reference: Callable[..., Any] | None,
    *,
    order_insensitive: bool,
) -> Checked:
    """Return a module in the form whose laws are checked; the arguments are those of :func:`checked_decorated`."""
    if not kinds:
        # raises the error of a call without a column, unless the module reads lifetimes alone
        module()
    if module.time_sensitive and len(names) != len(kinds):
        found = f"found {len(kinds)} types, {len(names)} names"
        hint = f"Declare it with columns=[...], or check {module.name}('v'), applied to the columns it reads."
        hint += f" If it reads lifetimes alone, check {module.name}()." if not names else ""
        raise PlanError(sentence("check_module", f"the argument names of {module.name} are not known", found, hint))
    called, instants = module.module, arrow_type(axis)
    column = ReducedColumn("", tuple(f"x{i}" for i in range(len(kinds))), arrow_type(module.returns), axis=instants)
    calling = module.calling(column, _calling_names(module, names))
    names = calling.names
    if unnamed := [name for name in module.filter_columns if name not in names]:
        what = f"filters_on({unnamed[0]}) has no effect: {module.name} has no argument of that name"
        hint = f"Name {unnamed[0]!r} in columns= of its decorator."
        raise PlanError(sentence("check_module", what, f"there are: {', '.join(names)}", hint))
    asked = (calling.interval(WINDOW),) if module.time_sensitive else ()

    def events(rows: Rows) -> Any:
        """Return rows, each of values (after start and end if the module is time-sensitive), as the module reads them."""
        columns = list(zip(*rows, strict=True)) or [()] * (len(kinds) + 2 * module.time_sensitive)
        values = columns[2:] if module.time_sensitive else columns
        arrays = {
            name: pa.array(list(column), arrow_type(kind), from_pandas=False)
            for name, kind, column in zip(names, kinds, values, strict=True)
        }
        if module.time_sensitive:
            start, end = (instants_of(np.array(ticks, np.int64), instants) for ticks in columns[:2])
            arrays |= {"start": start, "end": end}
        return called.read(arrays)

    def result(state: Any) -> Any:
        value = calling.value(called.result(state, *asked), WINDOW)
        # an operator's rows have no order, so compare them sorted
        return sorted(value, key=repr) if isinstance(module, UserOperator) else value

    def referred(rows: Rows) -> Any:
        assert reference is not None
        read = events(rows)
        return reference(read, *asked) if module.time_sensitive else reference(*read)

    states = {f.name: getattr(called, f.name) for f in fields(States)}
    states |= {"result": result, "any_order": called.any_order or order_insensitive}
    return Checked(
        **states,
        fields=(*(("start", "end") if module.time_sensitive else ()), *map(shown_name, names)),
        events=events,
        reference=None if reference is None else referred,
        time_bound=str(time_bound) in module.properties,
        filters_on=module.filter_columns,
    )


def _calling_names(module: WindowModule, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options with which a module is called: the names of its arguments, for an operator after its stamp."""
    if not isinstance(module, UserOperator):
        return names
    return (str(module.default_stamp or Stamp.ALIGN), *names)
