"""Adapt modules made by ``sq.udso`` to ``check_module``: their state is the progress of a walk over events."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamq.errors import PlanError, sentence
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.user_code.calls import pickled
from streamq.runtime.user_code.code_values import instant_of, short_text
from streamq.testing.module_forms import Checked, Rows, with_copies
from streamq.user_code.udso import StatefulCall, StatefulOperator

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

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


def stateful(subject: Any) -> tuple[StatefulOperator, int | None] | None:
    """Return a stateful operator and the number of its arguments (None: not applied, so unknown); None for other objects."""
    if isinstance(subject, StatefulCall):
        return subject.operator, len(subject.args)
    return (subject, None) if isinstance(subject, StatefulOperator) else None


def checked_stateful(
    operator: StatefulOperator, count: int | None, kinds: Sequence[DataType], axis: DataType, *, aggregates: bool
) -> Checked:
    """Return the operator in the form whose laws are checked, over events of these types; its rows must have its columns' types.

    ``count`` is the number of columns that it is applied to, None if it is not applied, so that any number of types is right.
    ``aggregates``: the caller passed an argument for aggregates, for which PlanError is raised, as for a wrong number of types.
    """
    if aggregates:
        what = f"{operator.name} is called from event to event"
        raise PlanError(sentence("check_module", "reference and order_insensitive apply to aggregates only", what))
    if count is not None and count != len(kinds):
        found = f"found {len(kinds)} types, {count} columns"
        raise PlanError(sentence("check_module", f"{operator.name} is applied to other columns", found))

    def form_of(code: Any) -> Checked:
        return _form(replace(operator, code=code), kinds, arrow_type(axis))

    return with_copies(operator.code, operator.name, form_of)


def _form(operator: StatefulOperator, kinds: Sequence[DataType], instants: pa.DataType) -> Checked:
    """Return an operator in the form whose laws are checked, over events of these types; ``instants`` is the type of starts."""
    calling, is_timed = operator.calling(len(kinds)), operator.time_sensitive

    def events(rows: Rows) -> list[tuple[Any, ...]]:
        """Return rows with their values as the operator reads them, after the distance of the start if it reads starts."""
        columns = list(zip(*rows, strict=True)) or [()] * (len(kinds) + is_timed)
        later = [columns[0]] if is_timed else []
        values = zip(columns[is_timed:], kinds, strict=True)
        arrays = [pa.array(list(column), arrow_type(kind), from_pandas=False).to_pylist() for column, kind in values]
        return list(zip(*later, *arrays, strict=True)) if later or arrays else [()] * len(rows)

    def add(walk: Walk, arrived: Sequence[tuple[Any, ...]]) -> Walk:
        """Return the walk after some more events."""
        state, at, rows = walk.state, walk.at, list(walk.rows)
        for event in arrived:
            if is_timed:
                at += event[0]
                event = (instant_of(at, instants), *event[1:])
            state, own = calling.after(state, event)
            rows += own
        return Walk(state, at, tuple(rows))

    return Checked(
        name=operator.name,
        initial=lambda: Walk(calling.initial(), 0, ()),
        add=add,
        # the state is part of the result, because later rows depend on it
        result=lambda walk: {"rows": list(walk.rows), "state": Body(walk.state)},
        sent=lambda result: result["rows"],
        any_order=False,
        fields=(*([LATER] if is_timed else []), *calling.names),
        events=events,
    )
