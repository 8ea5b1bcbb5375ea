"""The compiler's questions about a place for a kernel: the columns of its ports, and if ends that may still move matter.

The footprints of kernels that the compiler adds beside those of operators stand here, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamq.compiler.options import Options
from streamq.compiler.staged_plan import Path
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import Evaluation, KernelSite, PortColumns
from streamq.plan.footprint import Footprint
from streamq.plan.node import Node, Traits
from streamq.plan.passes import infer
from streamq.plan.schema import Schema
from streamq.runtime.arrow.arrow_types import arrow_type


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


def kernel_site(
    node: EvaluatedOperator, evaluation: Evaluation, first: Sequence[Path], options: Options, *, final: bool
) -> KernelSite:
    """Return the site of an operator's kernel; ``first``: the paths of its first input. ``final``: rows wait for their end."""
    schemas = tuple(
        pa.schema([(name, arrow_type(infer(expr, child.schema, "stream"))) for name, expr in columns.columns])
        for columns, child in zip(evaluation.inputs, node.children, strict=True)
    )
    return KernelSite(
        inputs=schemas,
        result=evaluation.schema.names,
        final=final,
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


def settle_footprint(*, at_once: bool) -> Footprint:
    """Return the footprint of the kernel ``settle``, which sends rows at once, or once they are settled."""
    cti = "the least start of a row not settled, at most c"
    if at_once:
        return Footprint(
            cti=cti,
            keeps="lifetimes not settled",
            opens="parts, the lifetimes that settle",
            cost="a pass over what is new and what settles",
        )
    return Footprint(
        cti=cti,
        final="every row passed on",
        keeps="rows not settled",
        opens="parts, the rows that settle",
        cost="a group by of the rows that settle",
    )


HOLDING = Footprint(
    final="every row that is let through",
    keeps="rows that the level holds back",
    opens="parts, the rows that are due, and those of their events",
    cost="a group by of what is new and what is read",
)
"""The footprint of the rows that a level of consistency holds back."""


def ctis_footprint(*, in_order: bool, reads_ends: bool) -> Footprint:
    """Return the footprint of the kernel ``ctis``, which may send rows in order, and wait for ends that are read."""
    keeps = ["rows that the CTI has not passed"] * in_order + ["rows whose open ends are read"] * reads_ends
    opens = ["parts, the rows that are due"] * in_order + ["parts, the rows that settle"] * reads_ends
    return Footprint(
        cti="c" + "; at most the least start of a row whose end is read and may still move" * reads_ends,
        final="as of the result",
        keeps="; ".join(keeps) or "none",
        opens="; ".join(opens) or "nothing",
        cost="a pass over what is new and what is read",
    )
