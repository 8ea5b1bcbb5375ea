"""Union and Except: the sum and the difference of streams as bags, at every instant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Self

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from streamq.errors import PlanError
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import Evaluation, PortColumns, all_columns
from streamq.operators.operator import BatchRun, Operator, PassThrough
from streamq.plan.footprint import Footprint
from streamq.plan.lowering import lifetime
from streamq.plan.node import Node, Traits, Verbs, node, not_a_stream
from streamq.plan.schema import INTERVAL, Schema, check_key, quote
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluators.joins import ExceptEvaluator


@node
class Union(PassThrough):
    """Merges ``inputs`` that have equal payload columns (names, order and types) and one time axis."""

    inputs: tuple[Node, ...]

    title = "union"

    footprint = Footprint(cti="c, the least over the inputs", cost="none: rows are passed on")

    def _schema(self) -> Schema:
        """Return the columns that all inputs have; raise PlanError if columns or time axes differ.

        The shape is that of all inputs, or INTERVAL if they have different ones.
        """
        first = self.inputs[0].schema
        for other in self.inputs[1:]:
            if other.schema.axis != first.axis:
                raise PlanError(
                    "union", "streams on different time axes", f"found {first.axis} and {other.schema.axis}"
                )
            if other.schema.fields != first.fields:
                observed = f"found ({_columns(first)}) and ({_columns(other.schema)})"
                raise PlanError("union", "streams of different columns", observed, "Bring them into line with select.")
        shape = first.shape if all(i.schema.shape == first.shape for i in self.inputs) else INTERVAL
        return first.with_shape(shape).with_consumed(*(i.schema for i in self.inputs[1:]))

    def _traits(self) -> Traits:
        every = [node.traits for node in self.inputs]
        on_windows, endless = all(traits.on_windows for traits in every), all(traits.endless for traits in every)
        cells = every[0].cells if all(traits.cells == every[0].cells for traits in every) else None
        return replace(super()._traits(), on_windows=on_windows, endless=endless, cells=cells)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Compute the union by Spark's UNION ALL."""
        return reduce(lambda a, b: a.unionByName(b), inputs)


def _columns(schema: Schema) -> str:
    return ", ".join(f"{f.name} {f.type.simpleString()}" for f in schema.fields)


@node
class Except(EvaluatedOperator):
    """Subtracts bags at every instant: a payload alive l times left and r times right is alive ``max(0, l - r)`` times.

    NULLs are equal. Each of the remaining copies is one row per maximal interval.
    """

    left: Node
    right: Node

    title = "except"

    footprint = Footprint(
        cti="c, the least over the inputs",
        final="settled rows",
        keeps="a payload's events from the earliest start of a row not settled",
        opens="whole groups, the events of one payload, that rows touch or with a row due",
        cost="a sweep over the endpoints of the events kept",
    )

    def _traits(self) -> Traits:
        # rows that meet become one
        return replace(super()._traits(), longest=None, mixes_windows=self.left.traits.mixes_windows)

    def _schema(self) -> Schema:
        """Return the columns of both inputs; raise PlanError if columns or time axes differ, or a column cannot be compared."""
        left, right = self.left.schema, self.right.schema
        if left.axis != right.axis or left.fields != right.fields:
            observed = f"found ({left.describe()}) and ({right.describe()})"
            hint = "Bring them into line with select."
            raise PlanError("except_", "streams of different columns or time axes", observed, hint)
        for name in left.names:
            check_key(left.type_of(name), name, "except_", "match")
        # points that meet become one row on an interval
        return left.with_shape(INTERVAL)

    def _evaluation(self) -> Evaluation:
        names = self.schema.names
        columns = PortColumns(all_columns(self.schema), names)
        return Evaluation(
            evaluator=ExceptEvaluator(names), inputs=(columns, columns), schema=self.schema, group_columns=names
        )

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Sweep over the endpoints of each payload: the running sum of changes is the number of copies alive.

        Copy number u lives from each instant at which the number reaches u until it falls below u.
        """
        names = [quote(n) for n in self.schema.names]
        changes = []
        for df, child, sign in zip(inputs, (self.left, self.right), (1, -1), strict=True):
            le, re = lifetime(child.schema)
            ends = F.array(
                F.struct(le.alias("t"), F.lit(sign).alias("d")), F.struct(re.alias("t"), F.lit(-sign).alias("d"))
            )
            changes.append(df.select(*names, F.inline(ends)))
        df = changes[0].unionAll(changes[1]).groupBy(*names, "t").agg(F.sum("d").alias("d"))
        order = Window.partitionBy(*names).orderBy("t")
        running = F.sum("d").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        df = df.withColumn("__level", F.greatest(F.lit(0), running))
        df = df.withColumn("__was", F.coalesce(F.lag("__level").over(order), F.lit(0))).where("__level != __was")
        low, high = F.least("__level", "__was"), F.greatest("__level", "__was")
        df = df.withColumn("__unit", F.explode(F.sequence(low + 1, high)))
        # for each payload and copy, beginnings and ends alternate
        ends_at = F.lead("t").over(Window.partitionBy(*names, "__unit").orderBy("t"))
        df = df.withColumn("__end", ends_at).where("__level > __was")
        return df.select(F.col("t").alias(LE), F.col("__end").alias(RE), *names)

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        # rows are subtracted by all columns, among which the keys are
        return Operator.with_keys(self, inputs, is_keyed, keys)


class BagVerbs(Verbs):
    """``union`` and ``except_``."""

    def union(self, *others: Self) -> Self:
        """Merge the events of this stream and the others, as a bag: duplicates are kept.

        Raises PlanError unless the streams have equal columns in equal order and one time axis.

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 3, {"v": 1})]), sq.events([(2, 5, {"v": 2})])
        >>> a.union(b).show()
        v  start  end
        1      1    3
        2      2    5
        """
        for other in others:
            if not isinstance(other, Verbs):
                not_a_stream("union", other)
        return self._derive(Union((self.plan, *(o.plan for o in others))), *others)

    def except_(self, other: Self) -> Self:
        """Subtract the events of ``other`` that have equal payloads: a difference of bags at every instant.

        A payload alive l times here and r times there is alive ``max(0, l - r)`` times in the result, over maximal intervals.
        The streams have equal columns and one time axis, else PlanError.

        ::

            left    1 [1,9)  1 [1,9)   right  1 [3,5)
            result  1 [1,9)  1 [1,3)  1 [5,9)

        >>> import streamq as sq
        >>> a = sq.events([(1, 9, {"v": 1}), (1, 9, {"v": 1})])
        >>> a.except_(sq.events([(3, 5, {"v": 1})])).show()
        v  start  end
        1      1    3
        1      1    9
        1      5    9
        """
        if not isinstance(other, Verbs):
            not_a_stream("except_", other)
        return self._derive(Except(self.plan, other.plan), other)
