"""Choosing: what goes over the events of a pattern's parameters, which select events or consume them, and gives its matches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import types as t

from streamq.choices import Consumption, Selection
from streamq.operators.stateful_operator import EventOperator
from streamq.plan.expr import Expr
from streamq.plan.passes import columns
from streamq.plan.schema import Field, Schema
from streamq.plan.tree import show
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.choosing import Between, Chooser, Taking, WholeRows
from streamq.runtime.evaluators.condition import Condition
from streamq.runtime.event_calls import EventCalling


@dataclass(frozen=True)
class Parameter:
    """A parameter of a pattern's operator, and which of the events that fit it takes.

    name: what explain calls it; source: the number of the input that its events come from; columns: those of its events; fits:
    the column that says whether an event of the input is one of the parameter's; None: every one is.
    """

    name: str
    source: int
    columns: tuple[str, ...]
    selection: Selection
    consumption: Consumption
    fits: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.selection.upper()} {self.consumption.upper()}"


@dataclass(frozen=True, eq=False)
class Requirement:
    """A condition on the events of several parameters, by their numbers."""

    where: Expr
    parameters: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Choosing(EventOperator):
    """The matches of ``count`` of the parameters that an event completes, with ``in_order`` of all in their order: SEQUENCE.

    The arguments are an event's start in ticks, the number of its input and the values of the ``columns``, those of other inputs
    NULL; the rows have the same columns, those of parameters without an event NULL. sources: the columns of each input; within:
    the scope, in ticks.
    """

    parameters: tuple[Parameter, ...]
    conditions: tuple[Requirement, ...]
    columns: tuple[Field, ...]
    sources: tuple[tuple[str, ...], ...]
    axis: str
    count: int
    in_order: bool
    within: int

    @property
    def name(self) -> str:  # type: ignore[override]
        """The operator of the language."""
        return "SEQUENCE" if self.in_order else f"ATLEAST {self.count}"

    @property
    def fields(self) -> tuple[t.StructField, ...]:
        return tuple(t.StructField(field.name, field.type) for field in self.columns)

    def shown(self, args: Sequence[Expr]) -> str:
        conditions = " and ".join(show(c.where) for c in self.conditions)
        scope = f"{self.name}({', '.join(map(str, self.parameters))}) within {self.within}"
        return f"{scope}{conditions and f', {conditions}'}"

    def calling(self, values: int) -> EventCalling:
        names = tuple(field.name for field in self.columns)
        chooser = self._chooser(names)
        rows = WholeRows(
            names=names,
            types=tuple(arrow_type(field.type) for field in self.columns),
            shown_types=tuple(field.type.simpleString() for field in self.columns),
            timed=False,
            keeps_lifetimes=False,
            single=False,
        )
        return EventCalling(
            name=self.name,
            initial=chooser.initial,
            step=chooser.step,
            names=("start", "source", *names),
            rows=rows,
            needed_until=chooser.needed_until,
        )

    def _chooser(self, names: Sequence[str]) -> Chooser:
        places = [{name: at for at, name in enumerate(source)} for source in self.sources]
        parameters = []
        for one in self.parameters:
            own = places[one.source]
            columns = tuple((name, own[name]) for name in one.columns)
            fits = None if one.fits is None else own[one.fits]
            parameters.append(Taking(one.source, columns, fits, one.selection, one.consumption == Consumption.CONSUME))
        return Chooser(
            inputs=tuple(tuple(map(names.index, source)) for source in self.sources),
            parameters=tuple(parameters),
            conditions=tuple(self._between(condition, parameters) for condition in self.conditions),
            names=tuple(names),
            count=self.count,
            in_order=self.in_order,
            within=self.within,
        )

    def _between(self, condition: Requirement, parameters: Sequence[Taking]) -> Between:
        read = columns(condition.where)
        places = {name: (i, at) for i in condition.parameters for name, at in parameters[i].columns if name in read}
        schema = Schema(tuple(field for field in self.columns if field.name in read), self.axis)
        reads = tuple((field.name, *places[field.name]) for field in schema.fields)
        return Between(Condition(condition.where, schema), frozenset(condition.parameters), reads)


__all__ = ["Choosing", "Parameter", "Requirement"]
