"""Scan: calls a stateful module for each event of a group, in order; its rows are points at the events' starts.

PatternScan finds the matches of a pattern operator that selects or consumes events, going through its parts' events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from pyspark.sql import types as t

from streamq.errors import PlanError, kind_of
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import EndMoves, Evaluation, KernelSite, PortColumns, RecomputeFactory, all_columns
from streamq.operators.operator import QuarantineEvents
from streamq.plan.aggregate import Aggregate
from streamq.plan.expr import Case, Col, Expr, Lit, show
from streamq.plan.footprint import Footprint, Retention
from streamq.plan.node import Node, Traits, Verbs, named_after, node
from streamq.plan.passes import check_boolean, columns, infer, reads_lifetime
from streamq.plan.resolve import resolve
from streamq.plan.schema import EDGE, POINT, Field, Schema, check_key, check_names, show_keys
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.candidates import JointCondition, MatchStep, PatternStep, ScannedPart
from streamq.runtime.evaluators.joins import PairCondition
from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.scan import MatchScanEvaluator, MatchScanKernel
from streamq.user_code.udo import EventOperator, StatefulCall, StatefulOperator

S = TypeVar("S", bound=Verbs)


@node
class Scan(EvaluatedOperator):
    """Calls ``operator`` with ``args`` for each event of a group, in the order of (LE, payload), if ``where`` is true for it."""

    input: Node
    keys: tuple[str, ...]
    operator: EventOperator
    args: tuple[Expr, ...]
    where: Expr | None = None

    title = "scan"

    @property
    def footprint(self) -> Footprint:
        common = "parts of a group that rows touch or with an event due: the events since c; "
        cost = "a call for each event; where events come between others, or rows go before they are final, again for "
        cost += "those since c"
        if isinstance(self.operator, StatefulOperator):
            return Footprint(
                final="rows that start before c",
                keeps="the events since c; of each group the state over all events before c, for good",
                opens=f"{common}its state",
                cost=cost,
                for_good="the state of each group" if self.keys else "",
                bounds=(Retention(0, 1, self.keys),),
            )
        deciding = (
            "if a row can complete a match, the first or the last of those before c, as many as decide it, or all "
        )
        deciding += "where none does"
        return Footprint(
            final="rows that start before c",
            keeps="the events since c; of each group the events before c whose scope one from c on can complete",
            opens=f"{common}{deciding}",
            cost=cost,
        )

    def _schema(self) -> Schema:
        """Return the keys and the operator's columns; raise for keys, arguments or a filter of a wrong type.

        Raises AmbiguousColumn if the operator has a column with a key's name.
        """
        source = self.input.schema
        for key in self.keys:
            check_key(source.require(key, "group_by"), key)
        kinds = [infer(expr, source, self.operator.name) for expr in self.args]
        if isinstance(self.operator, StatefulOperator):
            self.operator.check_types(kinds)
        if self.where is not None:
            check_boolean(self.where, source, self.operator.name, "the filter")
        fields = [Field(key, source.type_of(key)) for key in self.keys]
        fields += [Field(f.name, f.dataType) for f in self.operator.fields]
        check_names([f.name for f in fields if not f.name.startswith("__")], self.operator.name)
        return source.with_fields(fields).with_shape(POINT)

    @property
    def set_aside(self) -> tuple[QuarantineEvents, ...]:
        aside = QuarantineEvents(self.operator.name, self.input.schema, in_windows=False)
        return (aside,) if self.operator.sets_aside else ()

    def _traits(self) -> Traits:
        return Traits(self.input.traits.retracts, False, False)

    def detail(self) -> str:
        condition = "" if self.where is None else f" where {show(self.where)}"
        return f"{self.operator.shown(self.args)}{condition}{show_keys(self.keys)}"

    def _evaluation(self) -> Evaluation:
        """Return the evaluator that calls the operator; arguments that are no columns are computed into columns.

        Those are NULL where the filter is not true.
        """
        source = self.input.schema
        columns = dict(all_columns(source))

        def column(expr: Expr) -> str:
            if isinstance(expr, Col):
                return expr.name
            name = f"__arg{len(columns)}"
            # an argument is evaluated only where the filter is true
            columns[name] = expr if self.where is None or expr is self.where else Case((self.where, expr, Lit(None)))
            return name

        where = None if self.where is None else column(self.where)
        evaluator = self.operator.evaluator(
            len(self.args),
            keys=self.keys,
            args=tuple(column(arg) for arg in self.args),
            where=where,
            order=source.names,
            axis=arrow_type(source.axis_type),
            open_ends=source.shape == EDGE,
        )
        return Evaluation(
            evaluator=evaluator,
            inputs=(PortColumns(tuple(columns.items()), self.keys),),
            schema=self.schema,
            pointwise=(0,),
            moves=EndMoves.NEVER,
            sets_aside=self.operator.sets_aside,
            factory=_ScanFactory(self.operator),
            group_columns=self.keys,
        )


@dataclass(frozen=True)
class _ScanFactory(RecomputeFactory):
    """Makes the kernel of an operator, whose evaluator continues from what the kernel keeps of earlier events."""

    operator: EventOperator

    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        sets_aside = evaluation.sets_aside and site.late_output
        return self.operator.kernel(sets_aside=sets_aside, **self.parameters(evaluation, site))


class ScanVerbs(ABC, Generic[S]):
    """``scan``; shared by streams and groups."""

    @abstractmethod
    def _groups(self) -> tuple[S, tuple[str, ...]]:
        """Return the stream and the keys of its groups; without keys the whole stream is one group."""

    def scan(self, operator: StatefulCall) -> S:
        """Call an operator of your own, a :func:`udso`, for each event; each call changes a state and may return rows.

        ``operator`` is called for the events of each group in the order of their starts, and of the payload where starts are
        equal. Its rows are points at the event's start; the group's columns come before its own. The stream must be one of
        points, or of edges, whose ends are not read; turn other events into points first, with ``to_points()``. If an event
        arrives out of order, or is retracted, the operator is called again for the events after it, from the state at the CTI
        on. A row is final once no event can start at its instant any more. Raises PlanError, UnknownColumn, TypeMismatch.
        (docs/modules.md, "From event to event"; Ali et al., The Extensibility Framework in Microsoft StreamInsight, section V.)

        ::

            events  a 2 at 1   a 7 at 3   b 1 at 4   a 4 at 6
            deltas             a 5 at 3             a -3 at 6

        >>> import streamq as sq
        >>> @sq.udso("delta bigint", initial=None)
        ... def delta(last, value):
        ...     return value, None if last is None else [value - last]
        >>> rows = [(1, {"k": "a", "v": 2}), (3, {"k": "a", "v": 7}), (4, {"k": "b", "v": 1}), (6, {"k": "a", "v": 4})]
        >>> s = sq.events([(at, at + 1, payload) for at, payload in rows]).to_points()
        >>> s.group_by("k").scan(delta("v")).show()
        k  delta  start  end
        a      5      3    4
        a     -3      6    7
        """
        what: Any = operator
        if not isinstance(what, StatefulCall):
            is_bare = isinstance(what, StatefulOperator)
            hint = f'Call it with columns: scan({what.name}("v")).' if is_bare else "Make one by @sq.udso(...)."
            if isinstance(what, Aggregate):
                hint = f"Aggregates and operators over windows stand in a window's select: .select({show(what)})."
            raise PlanError("scan", "no stateful operator over columns", f"found {kind_of(what)}", hint)
        stream, keys = self._groups()
        name = operator.operator.name
        args = tuple(resolve(arg, stream.plan, name, of_events=True) for arg in operator.args)
        where: Any = operator.where
        where = None if where is None else resolve(where, stream.plan, name, of_events=True)
        _check_shape(stream.plan.schema.shape, (*args, *(() if where is None else (where,))))
        return stream._derive(Scan(stream.plan, keys, operator.operator, args, where))


def _check_shape(shape: str, read: Sequence[Expr]) -> None:
    """Raise PlanError for events that are neither points nor edges, and for expressions that read an edge's end."""
    if shape not in (POINT, EDGE):
        what, hint = f"these are of the shape {shape!r}", "Write .to_points() before it."
        raise PlanError("scan", "it goes over points, and edges as they start", what, hint)
    for expr in read if shape == EDGE else ():
        if reads_lifetime(expr, "end", "duration"):
            what = "an event is gone over as it starts, when its end is not known"
            raise PlanError("scan", f"{show(expr)} reads an end", what)


named_after(ScanVerbs, "Stream")


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
