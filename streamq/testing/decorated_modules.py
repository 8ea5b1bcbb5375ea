"""Modules that ``sq.uda`` and ``sq.udo`` have made, as states whose laws are checked: called as in one window of a query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from streamq.choices import Stamp
from streamq.errors import PlanError, sentence
from streamq.plan.aggregate import Aggregate
from streamq.plan.own_names import shown_name
from streamq.plan.reduction import ReducedColumn
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.user_code.states import States, instants_of
from streamq.testing.module_forms import Checked, Rows
from streamq.user_code.properties import time_bound
from streamq.user_code.udo import UserOperator
from streamq.user_code.window_module import WindowModule

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

WINDOW = (-3, 7)
"""The window in which modules are checked; the lifetimes that time-sensitive ones read lie within it."""


def decorated(subject: Any) -> tuple[WindowModule, tuple[str, ...]] | None:
    """A decorated module, and what it calls its arguments; None for what is none.

    An operator may come applied to columns, which gives the names; an aggregate that does is checked as aggregates are.
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
    """The module over events of these types in ``WINDOW``; its values must be of its type.

    ``reference`` is called as a function of that kind is: with Series, or events and window. Raises PlanError where a
    time-sensitive module has no names for its arguments, or others.
    """
    if not kinds:
        # what takes lifetimes alone; else the error of a call without a column
        module()
    if module.time_sensitive and len(names) != len(kinds):
        found = f"found {len(kinds)} types, {len(names)} names"
        hint = f"Say columns=[...] where it is declared, or check {module.name}('v'), with the columns that it is for."
        hint += f" If it reads lifetimes alone, check {module.name}()." if not names else ""
        raise PlanError(sentence("check_module", f"what {module.name} calls its arguments is not known", found, hint))
    called, instants = module.module, arrow_type(axis)
    column = ReducedColumn("", tuple(f"x{i}" for i in range(len(kinds))), arrow_type(module.returns), axis=instants)
    calling = module.calling(column, _calling_names(module, names))
    names = calling.names
    if unnamed := [name for name in module.filter_columns if name not in names]:
        what = f"filters_on({unnamed[0]}) is never used, for no argument of {module.name} is called that"
        hint = f"Say columns= in its decorator, with {unnamed[0]!r} among them."
        raise PlanError(sentence("check_module", what, f"there are: {', '.join(names)}", hint))
    asked = (calling.interval(WINDOW),) if module.time_sensitive else ()

    def events(rows: Rows) -> Any:
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
        # the rows of an operator are a bag
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
    if not isinstance(module, UserOperator):
        return names
    return (str(module.default_stamp or Stamp.ALIGN), *names)


__all__ = ["WINDOW", "checked_decorated", "decorated"]
