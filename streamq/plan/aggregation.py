"""Compile a window's aggregates: find their types, move filters into arguments, restate aggregates by simpler ones, and make
partial results that several aggregates share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, TypeVar

from pyspark.sql import types as t

from streamq.plan.aggregate import Aggregate, Application
from streamq.plan.expr import Case, Expr, Lit, show
from streamq.plan.node import short_hash, state_text
from streamq.plan.partial import Partial
from streamq.plan.passes import aggregates as aggregates_in
from streamq.plan.passes import check_boolean, infer, kept_answer, rewrite_expression
from streamq.plan.schema import Schema

P = TypeVar("P", bound=Partial)

Aggregates = tuple[tuple[str, Aggregate], ...]
"""Aggregates by the names of their results."""


def application(aggregate: Aggregate, schema: Schema) -> Application:
    """Return an aggregate together with the types of its arguments over a stream of that schema."""
    types = tuple(infer(arg, schema, aggregate.name) for arg in aggregate.args)
    return Application(aggregate, types, schema.axis_type, tuple((f.name, f.type) for f in schema.fields))


def aggregate_type(aggregate: Aggregate, schema: Schema) -> t.DataType:
    """Return Spark's type of an aggregate's result.

    Raises TypeMismatch for an argument or a filter that it does not accept, and UnknownColumn for a column that is not there.
    """
    if aggregate.where is not None:
        check_boolean(aggregate.where, schema, aggregate.name, "the filter", show(aggregate))
    return aggregate.function.result(application(aggregate, schema))


def filter_in_argument(aggregate: Aggregate) -> Aggregate:
    """Move an aggregate's filter into its first argument, which then is NULL where the filter is not true.

    An aggregate without arguments gets one, 1. Returns the aggregate unchanged if it has no filter, or if its function does not
    allow that.
    """
    if aggregate.where is None or not aggregate.function.filters_arguments:
        return aggregate
    value = aggregate.args[0] if aggregate.args else Lit(1)
    args = (Case((aggregate.where, value, Lit(None))), *aggregate.args[1:])
    return Aggregate(aggregate.function, args, None, aggregate.options)


def is_restated(aggregate: Aggregate, schema: Schema) -> bool:
    """True if an aggregate equals an expression over simpler aggregates, as avg equals sum / count."""
    return aggregate.function.restated(application(filter_in_argument(aggregate), schema)) is not None


def restate(aggregate: Aggregate, schema: Schema) -> Expr:
    """Return the expression over simpler aggregates that an aggregate equals, or the aggregate itself if there is none.

    The filter is in the arguments, where the aggregate allows that.
    """
    aggregate = filter_in_argument(aggregate)
    simpler = aggregate.function.restated(application(aggregate, schema))
    if simpler is None:
        return aggregate
    return restate(simpler, schema) if isinstance(simpler, Aggregate) else simpler


def is_mergeable(aggregate: Aggregate, schema: Schema) -> bool:
    """True if an aggregate can be computed by merging partial results of basic windows."""

    def merges() -> bool:
        filtered = filter_in_argument(aggregate)
        of = application(filtered, schema)
        simpler = filtered.function.restated(of)
        if simpler is not None:
            return all(is_mergeable(part, schema) for part in aggregates_in(simpler))
        return filtered.function.split(of, _SharedPartials()) is not None

    return kept_answer(("merges", aggregate.digest, schema.digest), merges)


def not_merged(aggregates: Aggregates, schema: Schema) -> str:
    """Return as text which aggregates do not merge: "median does not merge"; "" if all do."""
    names = dict.fromkeys(a.function.builder(a.options)[0] for _, a in aggregates if not is_mergeable(a, schema))
    return f"{' and '.join(names)} {'do' if len(names) > 1 else 'does'} not merge" if names else ""


@dataclass(frozen=True)
class Expansion:
    """A window's aggregates in three layers: expressions over the events (``arguments``), ``partials`` of those for each basic
    window, and the aggregates as expressions over the merged partial results (``outputs``).
    """

    arguments: tuple[tuple[str, Expr], ...]
    partials: tuple[Partial, ...]
    outputs: tuple[tuple[str, Expr], ...]


def expand(aggregates: Aggregates, schema: Schema) -> Expansion:
    """Split aggregates into partial results per basic window and expressions over those (DataCell's expanding replication).

    avg becomes sum and count, variances and deviations become (n, mean, M2); equal partial results are computed once, and a
    count of values that are also summed is the count that the sum keeps anyway. All aggregates must be mergeable
    (:func:`is_mergeable`); another one fails an assertion.
    """
    shared = _SharedPartials()

    def split(aggregate: Aggregate) -> Expr:
        result = aggregate.function.split(application(aggregate, schema), shared)
        assert result is not None, f"{aggregate} has no partial results"
        return result

    def over_partials(expr: Expr) -> Expr | None:
        if not isinstance(expr, Aggregate):
            return None
        simpler = restate(expr, schema)
        return split(simpler) if isinstance(simpler, Aggregate) else rewrite_expression(simpler, over_partials)

    for aggregate in _simplest((a for _, a in aggregates), schema):
        if aggregate.function.lends_counts:
            split(aggregate)
    outputs = tuple((name, rewrite_expression(a, over_partials)) for name, a in aggregates)
    return Expansion(tuple(shared.arguments.values()), tuple(shared.partials.values()), outputs)


def _simplest(aggregates: Iterable[Aggregate], schema: Schema) -> list[Aggregate]:
    """Return the aggregates that remain when each one is restated until no simpler ones exist, in order."""
    simplest = []
    for aggregate in aggregates:
        simpler = restate(aggregate, schema)
        simplest += [simpler] if isinstance(simpler, Aggregate) else _simplest(aggregates_in(simpler), schema)
    return simplest


@dataclass
class _SharedPartials:
    """The ``Partials`` of one window: its arguments and partial results so far, each once, and the counts that some of them lend.

    ``arguments``, and ``counts`` (the columns of counts), are by digest of the argument; ``partials`` are by kind, column and
    parameters. Names of both are made of what they name, so that they are equal in all windows that have them.
    """

    arguments: dict[str, tuple[str, Expr]] = field(default_factory=dict)
    partials: dict[tuple[object, ...], Partial] = field(default_factory=dict)
    counts: dict[str, str] = field(default_factory=dict)

    def partial(self, kind: type[P], arg: Expr, of: t.DataType, *parameters: object) -> P:
        column = self.column(arg)
        key = (kind, column, *parameters)
        if key not in self.partials:
            name = self._name(kind.title, state_text(kind("", column, of, *parameters)))
            self.partials[key] = kind(name, column, of, *parameters)
        partial = self.partials[key]
        assert isinstance(partial, kind)
        return partial

    def column(self, arg: Expr) -> str:
        if arg.digest not in self.arguments:
            self.arguments[arg.digest] = (self._name("arg", state_text(arg)), arg)
        return self.arguments[arg.digest][0]

    def _name(self, title: str, content: Any) -> str:
        """Return a name for what has this content, numbered if it differs from another one only in the code of modules."""
        taken = {*(name for name, _ in self.arguments.values()), *(partial.name for partial in self.partials.values())}
        name = f"__{title}_{short_hash(content)[:8]}"
        return next(one for one in chain([name], (f"{name}~{number}" for number in count(2))) if one not in taken)

    def lend_count(self, arg: Expr, column: str) -> None:
        self.counts[arg.digest] = column

    def lent_count(self, arg: Expr) -> str | None:
        return self.counts.get(arg.digest)
