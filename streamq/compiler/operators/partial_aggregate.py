"""PartialAggregate: the events of one basic window (one range of windows) reduced to partial results, before any window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types as t

from streamq.compiler.lowering import spark_expression
from streamq.compiler.operators.window_aggregate import (
    COUNT,
    HI,
    LO,
    check_key,
    filtered,
    members,
    show_keys,
    show_window,
)
from streamq.compiler.plan import Node, Traits, node
from streamq.expr import Aggregate, Call, Case, Cast, Col, Expr, Lit, rewrite, show
from streamq.expr import aggregates as aggregates_in
from streamq.runtime.event import LE, RE
from streamq.schema import INTERVAL, POINT, Field, Schema, avg_type, infer, is_exact, quote, sum_type
from streamq.windows import Hopping

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streamq.compiler.batch import Batch


@dataclass(frozen=True)
class Slot:
    """One partial result: ``count`` (of non-NULL ``arg``), ``sum``, ``min``, ``max`` or ``moments`` (n, mean, M2)."""

    name: str
    kind: str
    arg: Expr | None
    type: t.DataType

    @property
    def exact(self) -> bool:
        """Whether it may be subtracted back out of a running sum."""
        return self.kind == "count" or (self.kind == "sum" and is_exact(self.type))

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that hold it."""
        if self.kind == "sum":
            return Field(self.name, self.type), Field(f"{self.name}__n", t.LongType())
        if self.kind == "moments":
            double = t.DoubleType()
            return (
                Field(f"{self.name}__n", t.LongType()),
                Field(f"{self.name}__mean", double),
                Field(f"{self.name}__m2", double),
            )
        return (Field(self.name, self.type),)


@node
class PartialAggregate(Node):
    """Events of ``input`` grouped by keys and range of windows (DataCell's basic window, DESIGN D6) into ``slots``.

    CTI: c
    Final: none by itself: the merge that reads it says when
    State: none; held by the merge
    Cost: a group by of what is new by keys and range of windows, before the shuffle
    """

    input: Node
    keys: tuple[str, ...]
    window: Hopping
    slots: tuple[Slot, ...]

    title = "partial"

    def _schema(self) -> Schema:
        source = self.input.schema
        for key in self.keys:
            check_key(source.require(key, "group_by"), key)
        fields = [Field(k, source.type_of(k)) for k in self.keys]
        fields += [Field(name, t.LongType()) for name in (LO, HI, COUNT)]
        for slot in self.slots:
            fields += slot.fields
        return source.with_fields(fields).with_shape(INTERVAL)

    def _traits(self) -> Traits:
        return self.input.traits

    def detail(self) -> str:
        return f"{show_window(self.window, self.schema.axis)}{show_keys(self.keys)}: {show_slots(self.slots)}"


def show_slots(slots: tuple[Slot, ...]) -> str:
    """``count(*), sum(fare)``: what is computed once a basic window."""
    shown = [f"{s.kind}({show(s.arg)})" for s in slots if s.arg is not None]
    return ", ".join(["count(*)", *shown])


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


def expand(
    aggregates: tuple[tuple[str, Aggregate], ...], schema: Schema
) -> tuple[tuple[Slot, ...], tuple[tuple[str, Expr], ...]]:
    """What to compute per basic window, and the aggregates as expressions over it (DataCell's expanding replication).

    avg becomes sum and count, variances and deviations become (n, mean, M2); equal parts are computed once, and a count
    of the values of a sum is the one that stands beside it.
    """
    aggregates = tuple((name, filtered(a)) for name, a in aggregates)
    slots: dict[tuple[str, str], Slot] = {}
    counted: dict[str, Slot] = {}

    def slot(kind: str, arg: Expr, of: t.DataType) -> Slot:
        return slots.setdefault((kind, arg.digest), Slot(f"__{kind}{len(slots)}", kind, arg, of))

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
            return Col(f"{beside.name}__n" if beside else slot("count", arg, t.LongType()).name)
        if aggregate.name in ("min", "max"):
            return Col(slot(aggregate.name, arg, kind).name)
        if aggregate.name == "sum":
            wide = sum_type(kind)
            found = counted[arg.digest] = slot("sum", arg if kind == wide else Cast(arg, wide), wide)
            return Col(found.name)
        found = slot("moments", arg if isinstance(kind, t.DoubleType) else Cast(arg, t.DoubleType()), t.DoubleType())
        n, m2 = Col(f"{found.name}__n"), Col(f"{found.name}__m2")
        sample = aggregate.name == "var"
        variance = Call("/", (m2, Cast(n - 1 if sample else n, t.DoubleType())))
        return Case((n > (1 if sample else 0), variance, Lit(None)))

    for found in (f for _, a in aggregates for f in aggregates_in(restated(a, schema)) if f.name == "sum"):
        one(found)
    outputs = tuple((name, rewrite(a, part)) for name, a in aggregates)
    return tuple(slots.values()), outputs


def batch(node: PartialAggregate, inputs: list[DataFrame], run: Batch) -> DataFrame:
    """A group by; for points on a grid whose hop divides its size, by the last window alone."""
    from pyspark.sql import functions as F

    source, window = node.input.schema, node.window
    df = members(node.input, inputs[0], window, run)
    made = [F.count(F.lit(1)).alias(COUNT)]
    for slot in node.slots:
        made += partial_columns(slot, source)
    single = source.shape == POINT and window.divides
    ranges = [F.col(HI)] if single else [F.col(LO), F.col(HI)]
    df = df.groupBy(*(F.col(quote(k)) for k in node.keys), *ranges).agg(*made)
    if single:
        df = df.withColumn(LO, F.col(HI) - (window.n - 1))
    return df.select(*(quote(f.name) for f in node.schema.fields))


def partial_columns(slot: Slot, schema: Schema) -> list[Column]:
    """A slot's columns as Spark aggregates."""
    from pyspark.sql import functions as F

    assert slot.arg is not None
    arg = spark_expression(slot.arg, schema)
    if slot.kind == "sum":
        # the sum of a partial must have the type of the whole, or the sum of sums would widen again
        return [F.sum(arg).cast(slot.type).alias(slot.name), F.count(arg).alias(f"{slot.name}__n")]
    if slot.kind == "moments":
        n = F.count(arg)
        return [
            n.alias(f"{slot.name}__n"),
            F.avg(arg).alias(f"{slot.name}__mean"),
            (F.var_pop(arg) * n).alias(f"{slot.name}__m2"),
        ]
    return [getattr(F, slot.kind)(arg).alias(slot.name)]


__all__ = ["LE", "RE", "PartialAggregate", "Slot", "batch", "expand", "partial_columns", "restated", "show_slots"]
