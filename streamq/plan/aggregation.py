"""What becomes of a window's aggregates: types, filters pushed into arguments, simpler aggregates, shared partial results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from pyspark.sql import types as t

from streamq.errors import TypeMismatch, sentence
from streamq.plan.aggregate import Aggregate, Application
from streamq.plan.case import Case
from streamq.plan.expr import Expr, Lit
from streamq.plan.inference import infer
from streamq.plan.partial import Partial
from streamq.plan.passes import aggregates as aggregates_in
from streamq.plan.passes import rewrite
from streamq.plan.schema import Schema
from streamq.plan.tree import show

P = TypeVar("P", bound=Partial)

Aggregates = tuple[tuple[str, Aggregate], ...]
"""Aggregates by the names of their results."""


def application(aggregate: Aggregate, schema: Schema) -> Application:
    """An aggregate over a stream, with the types of its arguments."""
    types = tuple(infer(arg, schema, aggregate.name) for arg in aggregate.args)
    return Application(aggregate, types, schema.axis_type)


def aggregate_type(aggregate: Aggregate, schema: Schema) -> t.DataType:
    """Spark's type of an aggregate over a stream; raises TypeMismatch for an argument or a filter that it does not take."""
    if aggregate.where is not None:
        condition = infer(aggregate.where, schema, aggregate.name)
        if not isinstance(condition, t.BooleanType | t.NullType):
            detail = f"found {condition.simpleString()} in {show(aggregate)}"
            raise TypeMismatch(sentence(aggregate.name, "the filter is not boolean", detail))
    return aggregate.function.result(application(aggregate, schema))


def filtered(aggregate: Aggregate) -> Aggregate:
    """A filtered aggregate as one over values that are NULL where the filter is not true, if it allows that."""
    if aggregate.where is None or not aggregate.function.filters_arguments:
        return aggregate
    value = aggregate.args[0] if aggregate.args else Lit(1)
    args = (Case((aggregate.where, value, Lit(None))), *aggregate.args[1:])
    return Aggregate(aggregate.function, args, None, aggregate.options)


def is_restated(aggregate: Aggregate, schema: Schema) -> bool:
    """Whether an aggregate over a stream can be stated by simpler ones."""
    return aggregate.function.restated(application(filtered(aggregate), schema)) is not None


def restated(aggregate: Aggregate, schema: Schema) -> Expr:
    """An aggregate as an expression over simpler ones, or itself, its filter in its arguments."""
    aggregate = filtered(aggregate)
    simpler = aggregate.function.restated(application(aggregate, schema))
    if simpler is None:
        return aggregate
    return restated(simpler, schema) if isinstance(simpler, Aggregate) else simpler


def merges(aggregate: Aggregate, schema: Schema) -> bool:
    """Whether an aggregate over a stream is made of partial results."""
    aggregate = filtered(aggregate)
    of = application(aggregate, schema)
    simpler = aggregate.function.restated(of)
    if simpler is not None:
        return all(merges(part, schema) for part in aggregates_in(simpler))
    return aggregate.function.split(of, _Shared()) is not None


@dataclass(frozen=True)
class Expansion:
    """Aggregates as ``outputs`` over partial results, those, and the ``arguments`` that they are made of."""

    arguments: tuple[tuple[str, Expr], ...]
    partials: tuple[Partial, ...]
    outputs: tuple[tuple[str, Expr], ...]


def expand(aggregates: Aggregates, schema: Schema) -> Expansion:
    """What to compute per basic window, and the aggregates as expressions over it (DataCell's expanding replication).

    avg becomes sum and count, variances and deviations become (n, mean, M2); equal parts are computed once, and a count
    of the values of a sum is the one that stands beside it.
    """
    shared = _Shared()

    def split(aggregate: Aggregate) -> Expr:
        result = aggregate.function.split(application(aggregate, schema), shared)
        assert result is not None, f"{aggregate} has no partial results"
        return result

    def part(expr: Expr) -> Expr | None:
        if not isinstance(expr, Aggregate):
            return None
        again = restated(expr, schema)
        return split(again) if isinstance(again, Aggregate) else rewrite(again, part)

    for aggregate in _simplest((a for _, a in aggregates), schema):
        if aggregate.function.lends_counts:
            split(aggregate)
    outputs = tuple((name, rewrite(a, part)) for name, a in aggregates)
    return Expansion(tuple(shared.arguments.values()), tuple(shared.partials.values()), outputs)


def _simplest(aggregates: Iterable[Aggregate], schema: Schema) -> list[Aggregate]:
    """What aggregates are restated by in the end, in order."""
    simplest = []
    for aggregate in aggregates:
        again = restated(aggregate, schema)
        simplest += [again] if isinstance(again, Aggregate) else _simplest(aggregates_in(again), schema)
    return simplest


@dataclass
class _Shared:
    """Partial results by what they are of, and the columns of counts that some of them lend."""

    arguments: dict[str, tuple[str, Expr]] = field(default_factory=dict)
    partials: dict[tuple[object, ...], Partial] = field(default_factory=dict)
    counts: dict[str, str] = field(default_factory=dict)

    def partial(self, kind: type[P], arg: Expr, of: t.DataType, *parameters: object) -> P:
        column = self.column(arg)
        key = (kind, column, *parameters)
        name = f"__{kind.title}{len(self.partials)}"
        partial = self.partials.setdefault(key, kind(name, column, of, *parameters))
        assert isinstance(partial, kind)
        return partial

    def column(self, arg: Expr) -> str:
        name, _ = self.arguments.setdefault(arg.digest, (f"__arg{len(self.arguments)}", arg))
        return name

    def lend_count(self, arg: Expr, column: str) -> None:
        self.counts[arg.digest] = column

    def lent_count(self, arg: Expr) -> str | None:
        return self.counts.get(arg.digest)
