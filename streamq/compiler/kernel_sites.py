"""The compiler's questions about a place for a kernel: the columns of its ports, and if ends that may still move matter."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import types as t

from streamq.compiler.options import Options
from streamq.compiler.staged_plan import Path
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import Evaluation, PortColumns
from streamq.operators.grid_aggregation import GridAggregation
from streamq.operators.kernel_factory import KernelSite
from streamq.operators.partial_aggregate import partial_fields
from streamq.plan.node import Node, Traits
from streamq.plan.passes import infer, reads_end
from streamq.plan.schema import Field, Schema
from streamq.runtime.arrow_types import arrow_type


class SchemaLeaf(Node):
    """A leaf that stands for the input of a select that the compiler adds; its schema is there to check columns against."""

    @staticmethod
    def with_schema(schema: Schema) -> Node:
        """Return a leaf with this schema, and traits as of events that all end and are never retracted."""
        placeholder = SchemaLeaf()
        placeholder.schema, placeholder.traits, placeholder.digest = schema, Traits(), f"given:{schema.names}"
        placeholder.children = ()
        return placeholder

    def _schema(self) -> Schema:
        return self.schema


def kernel_site(node: EvaluatedOperator, evaluation: Evaluation, first: Sequence[Path], options: Options) -> KernelSite:
    """Return the site of an operator's kernel; ``first``: the paths of its first input."""
    schemas = tuple(
        pa.schema([(name, arrow_type(infer(expr, child.schema, "stream"))) for name, expr in columns.columns])
        for columns, child in zip(evaluation.inputs, node.children, strict=True)
    )
    return KernelSite(
        inputs=schemas,
        result=evaluation.schema.names,
        early=options.early,
        late_output=options.late_output,
        ends_move=any(path.moves for path in first),
        retracts=any(path.retracts for path in first),
        points=all(path.points for path in first),
        blocks=options.counted_level.block != 0,
    )


def moves_members(path: Path, port: PortColumns) -> bool:
    """Return True if a moving end may make a row pass a filter or not, or change its group or its place among others.

    The window of another group, which the row would then be in, may be final already.
    """
    return path.filters_open_end or not path.moving.isdisjoint((*port.hashed, *port.ordered))


def reads_moving_end(windows: GridAggregation, paths: list[Path]) -> bool:
    """Return True if an argument of the windows' aggregates, or a step before the windows, reads ends of events."""
    # a step that changes lifetimes has waited until the ends that it reads are settled
    steps = [step for p in paths for step in p.steps if step.progress_map is None]
    reads_open_end = windows.reads_ends or any(step.reads_open_end for step in steps)
    return reads_open_end or any(reads_end(expr) for _, expr in windows.arguments)


def merged_fields(windows: GridAggregation) -> list[Field]:
    """Return the columns of partial results and reductions, after the column that counts a window's events."""
    return [Field("__n", t.LongType()), *partial_fields(windows.partials), *windows.reduced]


__all__ = ["SchemaLeaf", "kernel_site", "moves_members", "reads_moving_end", "merged_fields"]
