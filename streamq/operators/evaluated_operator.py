"""Operators defined entirely by an evaluator; batch and streaming forms follow from it.

In batch any evaluator runs over the whole histories of its inputs, bucket by bucket, in Spark's Python workers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from streamq.operators.evaluation import Evaluation, PortColumns
from streamq.operators.lifetime_bound import add_bound
from streamq.operators.operator import BatchRun, Operator, not_of_the_group
from streamq.plan.footprint import Expected
from streamq.plan.lowering import as_key, lifetime, ship_runtime, spark_expression
from streamq.plan.node import Node
from streamq.plan.passes import infer
from streamq.plan.schema import quote
from streamq.plan.tree import lazy
from streamq.runtime.arrow.arrow_types import arrow_type
from streamq.runtime.event import LE, RE
from streamq.runtime.hosts.shipping import packed
from streamq.runtime.time.endpoints import Bound
from streamq.runtime.time.lateness import ASIDE, ASIDE_TYPE, BUCKET, PORT, UNTIL, BatchEvaluation, port_column
from streamq.time import INFINITY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


BUCKETS_A_PARTITION = 4
"""The number of buckets per shuffle partition; a worker evaluates a bucket as a whole, in memory."""


def evaluate_in_buckets(
    operator: Evaluation, nodes: Sequence[Node], inputs: Sequence[DataFrame], run: BatchRun
) -> DataFrame:
    """Return an operator's result rows with their lifetimes; ``inputs`` are the results of its input ``nodes``.

    Events that modules set aside are added to ``run``. One frame holds the events of all inputs, the columns of each in a struct,
    so that any number of inputs is possible.
    """
    ports = list(zip(operator.inputs, nodes, inputs, strict=True))
    sides = [_side(port, node, frame) for port, node, frame in ports]
    events = _with_until(_union(sides), operator, nodes, run)
    schemas = tuple(
        pa.schema([(name, arrow_type(infer(expr, node.schema, "batch"))) for name, expr in port.columns])
        for port, node, _ in ports
    )
    times = [(LE, pa.int64()), (RE, pa.int64())]
    result = pa.schema([*times, *((f.name, arrow_type(f.type)) for f in operator.schema.fields)])
    ship_runtime()
    evaluation = BatchEvaluation(operator.evaluator, schemas, result, operator.sets_aside)
    whole = result.append(pa.field(ASIDE, ASIDE_TYPE)) if operator.sets_aside else result
    worker = packed(evaluation.rows)
    # PySpark counts the function's parameters
    rows = events.groupBy(BUCKET).applyInArrow(lambda bucket: worker(bucket), from_arrow_schema(whole))
    if operator.sets_aside:
        rows = run.without_set_aside(rows)
    if not operator.outputs:
        return rows.select(LE, RE, *(quote(name) for name in operator.schema.names))
    return rows.select(
        LE, RE, *(spark_expression(expr, operator.schema).alias(name) for name, expr in operator.outputs)
    )


def _side(port: PortColumns, node: Node, frame: DataFrame) -> DataFrame:
    """Return one input's events: bucket, lifetime, and a struct of the columns that the evaluator reads."""
    columns = {name: spark_expression(expr, node.schema) for name, expr in port.columns}
    types = {name: infer(expr, node.schema, "batch") for name, expr in port.columns}
    keys = [F.col(LE) if name == LE else as_key(columns[name], types[name]) for name in port.hashed]
    struct = F.struct(F.lit(True).alias(PORT), *(column.alias(name) for name, column in columns.items()))
    return frame.select(_bucket(frame, keys).alias(BUCKET), *lifetime(node.schema), struct.alias("__columns"))


def _bucket(frame: DataFrame, keys: Sequence[Column]) -> Column:
    """Return the bucket of each row, from the hash of its keys; without keys all rows are in bucket 0."""
    if not keys:
        return F.lit(0).cast("bigint")
    buckets = BUCKETS_A_PARTITION * int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return F.pmod(F.xxhash64(*keys), F.lit(buckets).cast("bigint"))


def _union(sides: Sequence[DataFrame]) -> DataFrame:
    """Return the events of all inputs, each with the number of its input and its columns in the struct of that number."""
    types = [side.schema["__columns"].dataType for side in sides]
    frames = []
    for number, side in enumerate(sides):
        structs = [
            (F.col("__columns") if i == number else F.lit(None).cast(kind)).alias(port_column(i))
            for i, kind in enumerate(types)
        ]
        frames.append(side.select(BUCKET, LE, RE, F.lit(number).alias(PORT), *structs))
    return reduce(lambda a, b: a.unionAll(b), frames)


def _with_until(events: DataFrame, evaluation: Evaluation, nodes: Sequence[Node], run: BatchRun) -> DataFrame:
    """Add the column UNTIL: the bound on windows and pieces, the same for all events; infinity if the evaluator needs none.

    If it needs one for endless lifetimes only, it is infinity, too, unless there may be some or ``run`` has a bound.
    """
    bound = evaluation.bound
    may_be_endless = any(node.traits.infinite for node in nodes) or run.until is not None
    if bound is Bound.ALWAYS or (bound is Bound.ENDLESS and may_be_endless):
        return add_bound(events, nodes, run, bound=bound)
    return events.withColumn(UNTIL, F.lit(INFINITY))


class EvaluatedOperator(Operator):
    """An operator defined by an evaluator, from which its batch and streaming forms follow.

    In a stream it keeps events, or results computed from them, from one micro-batch to the next.
    """

    @abstractmethod
    def _evaluation(self) -> Evaluation:
        """Return the operator's evaluator, with the columns that it reads from each input."""

    @lazy
    def evaluation(self) -> Evaluation:
        """The result of ``_evaluation``, computed once."""
        return self._evaluation()

    @property
    def hears_endpoints(self) -> bool:
        """True if each bucket must hear the endpoints of all events, as these bound its windows once the input has ended."""
        if self.evaluation.bound is Bound.ENDLESS:
            return any(child.traits.infinite for child in self.children)
        return self.evaluation.bound is Bound.ALWAYS

    @property
    def progress(self) -> str:
        return self.evaluation.evaluator.progress_rule.cti.shown(len(self.children))

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        return self.evaluation.factory.expected_rows(inputs[0], expected)

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        """Return the operator with the keys after its own ``keys``; raise PlanError for one without that field."""
        own: tuple[str, ...] | None = getattr(self, "keys", None)
        if own is None:
            raise not_of_the_group(self, "one of its inputs")
        over_groups: Any = super().with_keys(inputs, is_keyed, keys)
        return cast(Node, replace(over_groups, keys=(*own, *keys)))

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Run the evaluator over the whole histories, bucket by bucket; an operator may override this by a faster form."""
        return evaluate_in_buckets(self.evaluation, self.children, inputs, run)
