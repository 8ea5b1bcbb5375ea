"""Union: merges the events of all inputs, as a bag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Self

from streamq.errors import PlanError, sentence
from streamq.operators.operator import BatchRun, PassThrough
from streamq.plan.footprint import Footprint
from streamq.plan.node import Node, Traits, node
from streamq.plan.schema import INTERVAL, Schema
from streamq.plan.verbs import Verbs, not_a_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@node
class Union(PassThrough):
    """Merges ``inputs`` that have equal payload columns (names, order and types) and one time axis."""

    inputs: tuple[Node, ...]

    title = "union"

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            cti="c, the least over the inputs",
            cost="none: rows are passed on",
        )

    def _schema(self) -> Schema:
        """Return the columns that all inputs have; raise PlanError if columns or time axes differ.

        The shape is that of all inputs, or INTERVAL if they have different ones.
        """
        first = self.inputs[0].schema
        for other in self.inputs[1:]:
            if other.schema.axis != first.axis:
                raise PlanError(
                    sentence("union", "streams on different time axes", f"found {first.axis} and {other.schema.axis}")
                )
            if other.schema.fields != first.fields:
                raise PlanError(
                    sentence(
                        "union",
                        "streams of different columns",
                        f"found ({_columns(first)}) and ({_columns(other.schema)})",
                        "Bring them into line with select.",
                    )
                )
        shape = first.shape if all(i.schema.shape == first.shape for i in self.inputs) else INTERVAL
        return first.with_shape(shape).with_consumed(*(i.schema for i in self.inputs[1:]))

    def _traits(self) -> Traits:
        every = [node.traits for node in self.inputs]
        on_windows, endless = all(traits.on_windows for traits in every), all(traits.endless for traits in every)
        return replace(super()._traits(), on_windows=on_windows, endless=endless)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Compute the union by Spark's UNION ALL."""
        return reduce(lambda a, b: a.unionByName(b), inputs)


def _columns(schema: Schema) -> str:
    return ", ".join(f"{f.name} {f.type.simpleString()}" for f in schema.fields)


class UnionVerbs(Verbs):
    """``union``."""

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
