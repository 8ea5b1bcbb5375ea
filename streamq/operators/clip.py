"""Clip: ends each event at the first start, strictly after its own, of a matching event of another stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from streamq.errors import PlanError, sentence
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import Evaluation, KeyColumns, PortColumns, all_columns
from streamq.operators.join_arguments import On, check_pairs, equality_pairs
from streamq.operators.kernel_factory import CorrectingKernelFactory
from streamq.operators.operator import BatchRun, not_of_the_group
from streamq.plan.footprint import Footprint, live
from streamq.plan.lowering import lifetime
from streamq.plan.node import Node, node
from streamq.plan.own_names import show_equality
from streamq.plan.schema import Schema, key_types, quote
from streamq.plan.verbs import Verbs, not_a_stream
from streamq.runtime.evaluators.joins import ClipEvaluator
from streamq.runtime.event import LE, RE
from streamq.runtime.kernels.clip import ClipKernel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@node
class Clip(EvaluatedOperator):
    """Ends events of ``input`` where a matching event of ``by`` starts.

    ``on`` are pairs of columns that must be equal (NULL equals nothing); if empty, every event of ``by`` matches.
    """

    input: Node
    by: Node
    on: tuple[tuple[str, str], ...]

    title = "clip"
    matches_keys = True

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            cti="c, the least over the inputs",
            final="settled rows",
            keeps="events not settled, starts inside them; where ends never move, events not settled once they are "
            "clipped, and starts from c on; rows that wait",
            opens="parts of groups: where starts have come, the events whose clipped lifetimes are not settled; "
            "where events have, the starts; rows that go",
            cost="a search in the sorted starts for each new event, and each whose lifetime a new start may change",
            bounds=(live(self.input.longest),) * 2,
        )

    def _mixes_windows(self) -> bool:
        return self.input.mixes_windows

    def _schema(self) -> Schema:
        """Return the schema of ``input``; raise for different time axes, and for keys that do not exist or cannot be equal."""
        ours, theirs = self.input.schema, self.by.schema
        if ours.axis != theirs.axis:
            raise PlanError(sentence("clip", "streams on different time axes", f"found {ours.axis} and {theirs.axis}"))
        check_pairs(self.on, ours, theirs, "clip")
        return ours

    def detail(self) -> str:
        return "on " + (", ".join(show_equality(a, b) for a, b in self.on) or "no key")

    def _evaluation(self) -> Evaluation:
        """Return the evaluator that clips, and a kernel of its own; both inputs are hashed by the keys."""
        keys = KeyColumns.from_pairs(self.input.schema, self.by.schema, self.on)
        evaluator = ClipEvaluator(self.schema.names, keys.on)
        ours = PortColumns((*all_columns(self.schema), *keys.left), keys.hashed)
        return Evaluation(
            evaluator=evaluator,
            inputs=(ours, PortColumns(keys.right, keys.hashed)),
            schema=self.schema,
            group_columns=keys.left_columns({name: name for name in self.schema.names}),
            factory=CorrectingKernelFactory(
                lambda site: ClipKernel(
                    evaluator, site.inputs, site.result, final=site.final, early=site.early, ends_move=site.ends_move
                )
            ),
        )

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Order both streams by key, latest start first; an event ends at the least start of ``by`` among later rows.

        An event that ends before keeps its end. Rows of ``by`` with a NULL key cut nothing.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        ours, theirs, keys = [], [], [f"__k{i}" for i in range(len(self.on))]
        kinds = key_types(self.input.schema, self.by.schema, self.on)
        for key, (a, b), common in zip(keys, self.on, kinds, strict=True):
            ours.append(F.col(quote(a)).cast(common).alias(key))
            theirs.append(F.col(quote(b)).cast(common).alias(key))
        payload = F.struct(F.lit(True).alias("there"), *(F.col(quote(n)) for n in self.schema.names)).alias("__row")
        left = inputs[0].select(*lifetime(self.input.schema), *ours, payload)
        kind = left.schema["__row"].dataType
        by = inputs[1].select(F.col(LE), F.col(LE).alias(RE), *theirs, F.lit(None).cast(kind).alias("__row"))
        for key in keys:
            by = by.where(F.col(key).isNotNull())
        later = Window.partitionBy(*keys).orderBy(F.col(LE).desc()).rangeBetween(Window.unboundedPreceding, -1)
        first = F.min(F.when(F.col("__row").isNull(), F.col(LE))).over(later)
        df = left.unionAll(by).withColumn("__first", first).where(F.col("__row").isNotNull())
        return df.select(
            LE, F.least(F.col(RE), F.col("__first")).alias(RE), *(F.col("__row")[n].alias(n) for n in self.schema.names)
        )

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        """Clip within each group if both inputs carry the keys; a ``by`` from outside clips all groups.

        Raises PlanError if the clipped stream is not of the group.
        """
        if not is_keyed[0]:
            raise not_of_the_group(self, "one of its inputs")
        on = (*self.on, *((key, key) for key in keys)) if all(is_keyed) else self.on
        return Clip(inputs[0], inputs[1], on)


class ClipVerbs(Verbs):
    """``clip``."""

    def clip(self, by: Self, on: On = ()) -> Self:
        """End each event at the first start of a matching event of ``by`` that lies strictly after its own start.

        ``on`` as in :meth:`join`; without it every event of ``by`` matches. (docs/concepts.md, "Joins".)

        ::

            events  a [1,9)   by  [1,..) [4,..)   result  a [1,4)

        >>> import streamq as sq
        >>> open_tabs = sq.events([(1, None, {"user": "a"}), (2, None, {"user": "b"})])
        >>> logouts = sq.events([(7, 8, {"user": "a"})])
        >>> open_tabs.clip(logouts, on="user").show()
        user  start   end
           a      1     7
           b      2  NULL
        """
        if not isinstance(by, Verbs):
            not_a_stream("clip", by)
        return self._derive(Clip(self.plan, by.plan, equality_pairs(on, "clip")), by)
