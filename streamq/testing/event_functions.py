"""Adapt functions made by ``sq.udf`` to ``check_module``: their state is a table of events, the result a value for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamq.errors import PlanError, sentence
from streamq.plan.expr import Call, Col
from streamq.plan.passes import expression_nodes
from streamq.plan.schema import Field, Schema
from streamq.plan.tree import show
from streamq.runtime.arrow_expr import evaluate
from streamq.runtime.arrow_types import arrow_type
from streamq.testing.module_forms import Checked, Rows, with_copies
from streamq.time import INTEGER
from streamq.user_code.udf import UserFunction

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def event_function(subject: Any) -> UserFunction | Call | None:
    """Return a function made by ``sq.udf``, as declared or as applied to columns; None for any other object."""
    is_applied = isinstance(subject, Call) and isinstance(subject.function, UserFunction)
    return subject if isinstance(subject, UserFunction) or is_applied else None


def checked_function(
    subject: UserFunction | Call,
    kinds: Sequence[DataType],
    reference: Callable[..., Any] | None,
    *,
    order_insensitive: bool,
) -> Checked:
    """Return the function in the form whose laws are checked, over events with a column of each type.

    The columns of an applied function are taken in the order in which it names them. ``reference`` is a function of one event's
    values. An event is a row of values without a lifetime; a column that is named twice counts once. Raises PlanError if the
    number of types is not the number of columns, and if ``order_insensitive``.
    """
    function = subject if isinstance(subject, UserFunction) else subject.function
    assert isinstance(function, UserFunction)
    call = subject if isinstance(subject, Call) else subject(*(f"x{i}" for i in range(len(kinds))))
    names = tuple(dict.fromkeys(part.name for part in expression_nodes(call) if isinstance(part, Col)))
    if order_insensitive:
        wrong = f"order_insensitive applies to aggregates only; {call.function.name} is called for one event"
        raise PlanError(sentence("check_module", wrong))
    if len(names) != len(kinds):
        shown = f"{show(call)} reads {', '.join(names) or 'none'}"
        raise PlanError(sentence("check_module", f"{len(kinds)} types for {len(names)} columns", shown))
    schema = Schema(tuple(Field(name, kind) for name, kind in zip(names, kinds, strict=True)), INTEGER)

    def events(rows: Rows) -> pa.Table:
        columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
        by_name = zip(names, columns, kinds, strict=True)
        return pa.table({n: pa.array(list(column), arrow_type(kind), from_pandas=False) for n, column, kind in by_name})

    def form_of(code: Any) -> Checked:
        applied = Call(replace(function, code=code), call.args)

        def result(table: pa.Table) -> list[Any]:
            arrays = {name: table.column(name).combine_chunks() for name in names}
            return list(evaluate(applied, schema, arrays, arrays.__getitem__, table.num_rows).to_pylist())

        return Checked(
            name=call.function.name,
            initial=lambda: events(()),
            add=lambda _, table: table,
            result=result,
            in_parts=False,
            any_order=False,
            by_event=True,
            fields=names,
            events=events,
            reference=None if reference is None else lambda rows: [reference(*row) for row in rows],
        )

    return with_copies(function.code, function.name, form_of)
