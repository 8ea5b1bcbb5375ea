"""PatternScan: what goes over the events of an operator's parts, some of which it selects or consumes, and gives its matches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pyspark.sql import types as t

from streamq.plan.expr import Expr
from streamq.plan.passes import columns
from streamq.plan.schema import Field, Schema
from streamq.plan.tree import show
from streamq.runtime.candidates import JointCondition, PatternStep, ScannedPart, TypedRows
from streamq.runtime.evaluators.pair_condition import PairCondition
from streamq.runtime.user_code.calls import StepCall
from streamq.user_code.forms import row_shape
from streamq.user_code.udso import EventOperator


@dataclass(frozen=True, eq=False)
class PartCondition:
    """A condition on the events of several parts, by their numbers."""

    where: Expr
    parts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class PatternScan(EventOperator):
    """The matches of some parts that an event completes, ``count`` of them within a scope; a subclass says how.

    The arguments are an event's start in ticks, the number of its input and the values of the ``columns``, those of other inputs
    NULL; the rows have the same columns, those of parts without an event NULL. sources: the columns of each input; within: the
    scope, in ticks.
    """

    parts: tuple[ScannedPart, ...]
    conditions: tuple[PartCondition, ...]
    columns: tuple[Field, ...]
    sources: tuple[tuple[str, ...], ...]
    axis: str
    count: int
    within: int

    keyword: ClassVar[str]
    """The operator's word in the language."""

    counts_others: ClassVar[bool] = False
    """True if each event is a match of its own by how many others there are; events of one start are then taken at once."""

    in_order: ClassVar[bool] = False
    """True if the last part's event is the last in time."""

    # an attribute in the base class, which nobody sets
    @property
    def name(self) -> str:  # type: ignore[override]
        """The operator of the language."""
        return self.keyword if self.in_order else f"{self.keyword} {self.count}"

    @abstractmethod
    def step(self, **fields: Any) -> PatternStep:
        """Return what goes from event to event, with the fields of PatternStep."""

    @property
    def fields(self) -> tuple[t.StructField, ...]:
        return tuple(t.StructField(field.name, field.type) for field in self.columns)

    def shown(self, args: Sequence[Expr]) -> str:
        conditions = " and ".join(show(c.where) for c in self.conditions)
        scope = f"{self.name}({', '.join(map(str, self.parts))}) within {self.within}"
        return f"{scope}{conditions and f', {conditions}'}"

    def calling(self, values: int) -> StepCall:
        names = tuple(field.name for field in self.columns)
        step = self.step(
            inputs=tuple(tuple(map(names.index, source)) for source in self.sources),
            parts=self.parts,
            conditions=tuple(map(self._joint, self.conditions)),
            names=names,
            count=self.count,
            within=self.within,
        )
        rows = row_shape(self.fields, TypedRows)
        return StepCall(
            name=self.name,
            initial=step.initial,
            step=step.step,
            names=("start", "source", *names),
            rows=rows,
            at_once=self.counts_others,
            needed_until=step.needed_until,
            completes_matches=True,
        )

    def _joint(self, condition: PartCondition) -> JointCondition:
        """Return a condition as it is evaluated, over the places of its columns."""
        read = columns(condition.where)
        places = {name: (i, at) for i in condition.parts for name, at in self.parts[i].columns if name in read}
        schema = Schema(tuple(field for field in self.columns if field.name in read), self.axis)
        reads = tuple((field.name, *places[field.name]) for field in schema.fields)
        return JointCondition(PairCondition(condition.where, schema), frozenset(condition.parts), reads)


__all__ = ["PartCondition", "PatternScan"]
