"""PartialAggregate: the events of one basic window (one range of windows) reduced to partial results, before any window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import types as t

from streamq.operators.grid import COUNT, HI, LO, members
from streamq.operators.window import show_keys, show_window
from streamq.operators.window_aggregate import filtered
from streamq.plan.case import Case
from streamq.plan.expr import Aggregate, Call, Cast, Col, Expr, Lit
from streamq.plan.inference import infer
from streamq.plan.keys import check_key
from streamq.plan.lowering import spark_expression
from streamq.plan.node import Node, Traits, node
from streamq.plan.passes import aggregates as aggregates_in
from streamq.plan.passes import rewrite
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, quote
from streamq.plan.spark_types import avg_type, sum_type
from streamq.plan.tree import show
from streamq.runtime.event import LE, RE
from streamq.runtime.partial import Partial, PartialCount, PartialMax, PartialMin, PartialMoments, PartialSum
from streamq.windows import Hopping

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamq.operators.batch_run import BatchRun

P = TypeVar("P", bound=Partial)


@node
class PartialAggregate(Node):
    """Events of ``input`` grouped by keys and range of windows (DataCell's basic window, DESIGN D6) into partial results.

    ``arguments`` are what those are made of: columns by name, of which several may share one.

    CTI: c
    Final: none by itself: the merge that reads it says when
    State: none; held by the merge
    Cost: a group by of what is new by keys and range of windows, before the shuffle
    """

    input: Node
    keys: tuple[str, ...]
    window: Hopping
    arguments: tuple[tuple[str, Expr], ...]
    partials: tuple[Partial, ...]

    title = "partial"

    def _schema(self) -> Schema:
        source = self.input.schema
        for key in self.keys:
            check_key(source.require(key, "group_by"), key)
        fields = [Field(k, source.type_of(k)) for k in self.keys]
        fields += [Field(name, t.LongType()) for name in (LO, HI, COUNT)]
        fields += partial_fields(self.partials)
        return source.with_fields(fields).with_shape(INTERVAL)

    def _traits(self) -> Traits:
        return self.input.traits

    def detail(self) -> str:
        shown = show_partials(self.arguments, self.partials)
        return f"{show_window(self.window, self.schema.axis)}{show_keys(self.keys)}: {shown}"


def partial_fields(partials: Iterable[Partial]) -> list[Field]:
    """The columns of partial results."""
    return [Field(name, kind) for partial in partials for name, kind in partial.fields]


def show_partials(arguments: Iterable[tuple[str, Expr]], partials: Iterable[Partial]) -> str:
    """``count(*), sum(fare)``: what is computed once a basic window."""
    shown = {name: show(expr) for name, expr in arguments}
    return ", ".join(["count(*)", *(f"{partial.title}({shown[partial.arg]})" for partial in partials)])


def restated(aggregate: Aggregate, schema: Schema) -> Expr:
    """An aggregate as an expression over simpler ones: a mean by sum and count, a deviation by its variance; or itself.

    It is one that splits.
    """
    aggregate = filtered(aggregate)
    match aggregate:
        case Aggregate(name="avg", args=(arg,)):
            kind = infer(arg, schema, "avg")
            if isinstance(kind, t.DecimalType):
                total, n = Aggregate("sum", (arg,)), Aggregate("count", (arg,))
                mean: Expr = Cast(Call("/", (total, Cast(n, t.DecimalType(20, 0)))), avg_type(kind))
            else:
                value = arg if isinstance(kind, t.DoubleType) else Cast(arg, t.DoubleType())
                total, n = Aggregate("sum", (value,)), Aggregate("count", (value,))
                mean = Call("/", (total, Cast(n, t.DoubleType())))
            return Case((n > 0, mean, Lit(None)))
        case Aggregate(name="stddev"):
            return Call("sqrt", (Aggregate("var", aggregate.args),))
        case Aggregate(name="stddev_pop"):
            return Call("sqrt", (Aggregate("var_pop", aggregate.args),))
    return aggregate


@dataclass(frozen=True)
class Expansion:
    """Aggregates as ``outputs`` over partial results, those, and the ``arguments`` that they are made of."""

    arguments: tuple[tuple[str, Expr], ...]
    partials: tuple[Partial, ...]
    outputs: tuple[tuple[str, Expr], ...]


def expand(aggregates: tuple[tuple[str, Aggregate], ...], schema: Schema) -> Expansion:
    """What to compute per basic window, and the aggregates as expressions over it (DataCell's expanding replication).

    avg becomes sum and count, variances and deviations become (n, mean, M2); equal parts are computed once, and a count
    of the values of a sum is the one that stands beside it.
    """
    aggregates = tuple((name, filtered(a)) for name, a in aggregates)
    arguments: dict[str, tuple[str, Expr]] = {}
    partials: dict[tuple[type[Partial], str], Partial] = {}
    counted: dict[str, PartialSum] = {}

    def partial_of(kind: type[P], arg: Expr, of: t.DataType) -> P:
        column, _ = arguments.setdefault(arg.digest, (f"__arg{len(arguments)}", arg))
        partial = partials.setdefault((kind, column), kind(f"__{kind.title}{len(partials)}", column, of))
        assert isinstance(partial, kind)
        return partial

    def part(found: Expr) -> Expr | None:
        if not isinstance(found, Aggregate):
            return None
        again = restated(found, schema)
        return one(found) if again is found else rewrite(again, part)

    def one(aggregate: Aggregate) -> Expr:
        if not aggregate.args:
            return Col(COUNT)
        arg = aggregate.args[0]
        kind = infer(arg, schema, aggregate.name)
        if aggregate.name == "count":
            beside = counted.get(arg.digest)
            return Col(beside.many if beside else partial_of(PartialCount, arg, t.LongType()).name)
        if aggregate.name in ("min", "max"):
            return Col(partial_of(PartialMin if aggregate.name == "min" else PartialMax, arg, kind).name)
        if aggregate.name == "sum":
            wide = sum_type(kind)
            total = counted[arg.digest] = partial_of(PartialSum, arg if kind == wide else Cast(arg, wide), wide)
            return Col(total.name)
        double = arg if isinstance(kind, t.DoubleType) else Cast(arg, t.DoubleType())
        moments = partial_of(PartialMoments, double, t.DoubleType())
        n, deviations = Col(moments.part("n")), Col(moments.part("m2"))
        sample = aggregate.name == "var"
        variance = Call("/", (deviations, Cast(n - 1 if sample else n, t.DoubleType())))
        return Case((n > (1 if sample else 0), variance, Lit(None)))

    for found in (f for _, a in aggregates for f in aggregates_in(restated(a, schema)) if f.name == "sum"):
        one(found)
    outputs = tuple((name, rewrite(a, part)) for name, a in aggregates)
    return Expansion(tuple(arguments.values()), tuple(partials.values()), outputs)


def batch(node: PartialAggregate, inputs: list[DataFrame], run: BatchRun) -> DataFrame:
    """A group by; for points on a grid whose hop divides its size, by the last window alone."""
    from pyspark.sql import functions as F

    source, window = node.input.schema, node.window
    df = members(node.input, inputs[0], window, run)
    made = [F.count(F.lit(1)).alias(COUNT)]
    made += partial_columns(node.arguments, node.partials, source)
    single = source.shape == POINT and window.divides
    ranges = [F.col(HI)] if single else [F.col(LO), F.col(HI)]
    df = df.groupBy(*(F.col(quote(k)) for k in node.keys), *ranges).agg(*made)
    if single:
        df = df.withColumn(LO, F.col(HI) - (window.n - 1))
    return df.select(*(quote(f.name) for f in node.schema.fields))


def partial_columns(arguments: Iterable[tuple[str, Expr]], partials: Iterable[Partial], schema: Schema) -> list[Column]:
    """The columns of partial results as Spark aggregates."""
    values = {name: spark_expression(expr, schema) for name, expr in arguments}
    return [column for partial in partials for column in partial.on_spark(values[partial.arg])]


__all__ = [
    "LE", "RE", "Expansion", "PartialAggregate", "batch", "expand", "partial_columns", "partial_fields", "restated",
    "show_partials",
]  # fmt: skip
