"""PatternScan: finds the matches of a pattern operator that selects or consumes events, going through its parts' events."""

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
from streamq.runtime.arrow_types import arrow_type
from streamq.runtime.candidates import JointCondition, MatchStep, PatternStep, ScannedPart
from streamq.runtime.evaluators.pair_condition import PairCondition
from streamq.runtime.evaluators.scan import MatchScanEvaluator
from streamq.runtime.kernels.scan import MatchScanKernel
from streamq.user_code.udso import EventOperator


@dataclass(frozen=True, eq=False)
class PartCondition:
    """A condition ``where`` on the events of several ``parts``, which are numbers."""

    where: Expr
    parts: tuple[int, ...]


class MatchOperator(EventOperator):
    """An operator whose rows are the matches that each event completes.

    columns: the values of an event, the last of the operator's arguments.
    """

    columns: tuple[Field, ...]

    @abstractmethod
    def step(self) -> MatchStep:
        """Return the step that processes event after event."""

    def evaluator(self, values: int, **site: Any) -> MatchScanEvaluator:
        """Return the evaluator that goes from event to event by the operator's step.

        The number of ``values`` does not count, because ``columns`` names them.
        """
        names = tuple(field.name for field in self.columns)
        types = {field.name: arrow_type(field.dataType) for field in self.fields}
        return MatchScanEvaluator(name=self.name, step=self.step(), columns=names, types=types, **site)

    def kernel(self, *, sets_aside: bool, **parameters: Any) -> MatchScanKernel:
        """Return the kernel that keeps candidates; no step fails but by a condition, so none is set aside."""
        return MatchScanKernel(**parameters)


@dataclass(frozen=True, eq=False)
class PatternScan(MatchOperator):
    """A stateful operator whose rows are the matches that an event completes: ``count`` events of ``parts`` within a scope.

    A subclass decides which events match. It is called with an event's start in ticks, the number of its input, and the values
    of ``columns``, NULL for columns of other inputs. Its rows have the same columns, NULL for parts without an event.
    ``sources``: the columns of each input. ``within``: the scope in ticks.
    """

    parts: tuple[ScannedPart, ...]
    conditions: tuple[PartCondition, ...]
    columns: tuple[Field, ...]
    sources: tuple[tuple[str, ...], ...]
    axis: str
    count: int
    within: int

    keyword: ClassVar[str]
    """The operator's keyword in the pattern language."""

    counts_others: ClassVar[bool] = False
    """True if an event matches depending on the number of others; events of one start are then processed together."""

    in_order: ClassVar[bool] = False
    """True if the event of the last part must be the last in time."""

    # the base class declares an attribute, which nobody sets here
    @property
    def name(self) -> str:  # type: ignore[override]
        """The operator as the language writes it, with the number of events if it has one."""
        return self.keyword if self.in_order else f"{self.keyword} {self.count}"

    @abstractmethod
    def step_of(self, **fields: Any) -> PatternStep:
        """Return the step of the operator; ``fields`` are those of PatternStep."""

    @property
    def fields(self) -> tuple[t.StructField, ...]:
        return tuple(t.StructField(field.name, field.type) for field in self.columns)

    def shown(self, args: Sequence[Expr]) -> str:
        """Return the operator as explain shows it: ``ATLEAST 2(...) within 10``, and its conditions."""
        conditions = " and ".join(show(c.where) for c in self.conditions)
        scope = f"{self.name}({', '.join(map(str, self.parts))}) within {self.within}"
        return f"{scope}{conditions and f', {conditions}'}"

    def step(self) -> PatternStep:
        return self.step_of(
            inputs=self.sources,
            parts=self.parts,
            conditions=tuple(map(self._joint, self.conditions)),
            names=tuple(field.name for field in self.columns),
            count=self.count,
            within=self.within,
        )

    def _joint(self, condition: PartCondition) -> JointCondition:
        """Return a condition in the form that is evaluated: with the part of each column that it reads."""
        read = columns(condition.where)
        owners = {name: number for number in condition.parts for name, _ in self.parts[number].columns if name in read}
        schema = Schema(tuple(field for field in self.columns if field.name in read), self.axis)
        reads = tuple((field.name, owners[field.name]) for field in schema.fields)
        return JointCondition(PairCondition(condition.where, schema), frozenset(condition.parts), reads)


__all__ = ["MatchOperator", "PartCondition", "PatternScan"]
