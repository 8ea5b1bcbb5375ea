"""Choosing: what goes over the events of a pattern's parameters, some of which it selects or consumes, and gives its matches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as t

from streamq.choices import Consumption, Gathering, Selection
from streamq.operators.stateful_operator import EventOperator
from streamq.plan.expr import Expr
from streamq.plan.passes import columns
from streamq.plan.schema import Field, Schema
from streamq.plan.tree import show
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.candidates import Between, Taking, WholeRows
from streamq.runtime.choosing import Chooser
from streamq.runtime.crowding import Uncrowded
from streamq.runtime.evaluators.condition import Condition
from streamq.runtime.event_calls import EventCalling


@dataclass(frozen=True)
class Parameter:
    """A parameter of a pattern's operator, and which of the events that fit it takes.

    name: what explain calls it; source: the number of the input that its events come from; columns: those of its events; keys:
    those in which they agree, beside the group's; fits: the column that says whether an event of the input is one of the
    parameter's; None: every one is.
    """

    name: str
    source: int
    columns: tuple[str, ...]
    selection: Selection
    consumption: Consumption
    keys: tuple[str, ...] = ()
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
    """The matches of ``count`` of the parameters that an event completes; of ATMOST, those that at most ``count`` events crowd.

    The arguments are an event's start in ticks, the number of its input and the values of the ``columns``, those of other inputs
    NULL; the rows have the same columns, those of parameters without an event NULL. sources: the columns of each input; within:
    the scope, in ticks.
    """

    parameters: tuple[Parameter, ...]
    conditions: tuple[Requirement, ...]
    columns: tuple[Field, ...]
    sources: tuple[tuple[str, ...], ...]
    axis: str
    gathering: Gathering
    count: int
    within: int

    @property
    def name(self) -> str:  # type: ignore[override]
        """The operator of the language."""
        word = self.gathering.upper()
        return word if self.gathering == Gathering.SEQUENCE else f"{word} {self.count}"

    @property
    def fields(self) -> tuple[t.StructField, ...]:
        return tuple(t.StructField(field.name, field.type) for field in self.columns)

    def shown(self, args: Sequence[Expr]) -> str:
        conditions = " and ".join(show(c.where) for c in self.conditions)
        scope = f"{self.name}({', '.join(map(str, self.parameters))}) within {self.within}"
        return f"{scope}{conditions and f', {conditions}'}"

    def calling(self, values: int) -> EventCalling:
        names = tuple(field.name for field in self.columns)
        gatherer = self._gatherer(names)
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
            initial=gatherer.initial,
            step=gatherer.step,
            names=("start", "source", *names),
            rows=rows,
            at_once=self.gathering == Gathering.AT_MOST,
            needed_until=gatherer.needed_until,
            completes_matches=True,
        )

    def _gatherer(self, names: Sequence[str]) -> Chooser | Uncrowded:
        places = [{name: at for at, name in enumerate(source)} for source in self.sources]
        parameters = []
        for one in self.parameters:
            own = places[one.source]
            columns = tuple((name, own[name]) for name in one.columns)
            taking = Taking(
                source=one.source,
                columns=columns,
                keys=tuple(own[name] for name in one.keys),
                fits=None if one.fits is None else own[one.fits],
                selection=one.selection,
                consumes=one.consumption == Consumption.CONSUME,
            )
            parameters.append(taking)
        shared: dict[str, Any] = {
            "inputs": tuple(tuple(map(names.index, source)) for source in self.sources),
            "parameters": tuple(parameters),
            "conditions": tuple(self._between(condition, parameters) for condition in self.conditions),
            "names": tuple(names),
            "count": self.count,
            "within": self.within,
        }
        if self.gathering == Gathering.AT_MOST:
            return Uncrowded(**shared)
        return Chooser(**shared, in_order=self.gathering == Gathering.SEQUENCE)

    def _between(self, condition: Requirement, parameters: Sequence[Taking]) -> Between:
        read = columns(condition.where)
        places = {name: (i, at) for i in condition.parameters for name, at in parameters[i].columns if name in read}
        schema = Schema(tuple(field for field in self.columns if field.name in read), self.axis)
        reads = tuple((field.name, *places[field.name]) for field in schema.fields)
        return Between(Condition(condition.where, schema), frozenset(condition.parameters), reads)


__all__ = ["Choosing", "Parameter", "Requirement"]
