"""Clip ends each event at the first start, strictly after its own, of a matching event of another stream; ToSignal by its own.

ToSignal sets lifetimes as a signal's: each sample lives until the next strictly later one of its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Self

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from streamq.errors import column_names
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import CorrectingKernelFactory, Evaluation, KeyColumns, PortColumns, all_columns
from streamq.operators.join_arguments import On, check_pairs, equality_pairs
from streamq.operators.operator import BatchRun, not_of_the_group
from streamq.plan.footprint import Footprint, Retention, live
from streamq.plan.lowering import lifetime
from streamq.plan.node import ADDED, Node, Traits, Verbs, node, not_a_stream
from streamq.plan.schema import SIGNAL, Schema, check_key, key_types, quote, show_equality, shown_name
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluators.joins import ClipEvaluator
from streamq.runtime.evaluators.spans import SignalEvaluator
from streamq.runtime.kernels.joins import ClipKernel
from streamq.time import INFINITY


@node
class Clip(EvaluatedOperator):
    """Ends events of ``input`` where a matching event of ``by`` starts.

    ``on`` are pairs of columns that must be equal (NULL equals nothing); if empty, every event of ``by`` matches.
    """

    input: Node
    by: Node
    on: tuple[tuple[str, str], ...]

    title = "clip"

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
            bounds=(live(self.input.traits.longest),) * 2,
        )

    def _traits(self) -> Traits:
        return replace(super()._traits(), mixes_windows=self.input.traits.mixes_windows)

    def _schema(self) -> Schema:
        """Return the schema of ``input``; raise for different time axes, and for keys that do not exist or cannot be equal."""
        ours, theirs = self.input.schema, self.by.schema
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


@node
class ToSignal(EvaluatedOperator):
    """Sets each lifetime to ``[LE, next greater LE of equal keys)``; NULL keys are equal.

    Samples of one key and instant all have the same lifetime; with ``order_by``, those that are not the last have none.
    """

    input: Node
    keys: tuple[str, ...]
    order_by: tuple[str, ...] = field(default=(), metadata=ADDED)

    title = "to_signal"

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            final="settled rows",
            keeps="a key's last sample, for good, and samples at or after c",
            opens="parts of a key that rows touch or of which one is due: the last sample before c, and those since",
            cost="a search in the sorted starts for each sample kept",
            for_good="the last sample of each key" if self.keys else "",
            bounds=(Retention(0, 1, self.keys),),
        )

    def _schema(self) -> Schema:
        """Return the input's columns, with the shape of a signal; raise for a key that does not exist or cannot be compared."""
        for key in self.keys:
            check_key(self.input.schema.require(key, "to_signal"), key, "to_signal")
        for column in self.order_by:
            check_key(self.input.schema.require(column, "to_signal"), column, "to_signal", "order")
        return self.input.schema.with_shape(SIGNAL)

    def _traits(self) -> Traits:
        return Traits(self.input.traits.retracts, True, True)

    def detail(self) -> str:
        order = f", order_by=[{', '.join(self.order_by)}]" if self.order_by else ""
        return (f"by {', '.join(map(shown_name, self.keys))}" if self.keys else "one signal") + order

    def _evaluation(self) -> Evaluation:
        columns = PortColumns(all_columns(self.schema), self.keys)
        return Evaluation(
            evaluator=SignalEvaluator(self.keys, self.order_by),
            inputs=(columns,),
            schema=self.schema,
            pointwise=(0,),
            group_columns=self.keys,
        )

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Order by key, latest start first; a sample ends at the least start among later ones, or never.

        With ``order_by`` only the samples of a key and instant that are last by it stay.
        """
        keys = [quote(k) for k in self.keys]
        order = Window.partitionBy(*keys).orderBy(F.col(LE).desc())
        later = F.min(LE).over(order.rangeBetween(Window.unboundedPreceding, -1))
        rows = inputs[0]
        if self.order_by:
            last_first = [F.col(quote(n)).desc() for n in self.order_by]
            place = F.rank().over(Window.partitionBy(*keys, LE).orderBy(*last_first))
            rows = rows.withColumn("__place", place).where(F.col("__place") == 1)
        return rows.select(LE, F.coalesce(later, F.lit(INFINITY)).alias(RE), *(quote(n) for n in self.schema.names))


class ClipVerbs(Verbs):
    """``clip`` and ``to_signal``."""

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

    def to_signal(self, key: str | Sequence[str] = (), *, order_by: str | Sequence[str] = ()) -> Self:
        """End each event at the next strictly later start of an event with equal ``key``, as a signal holds its value.

        The old ends are ignored. Events of one key and instant all live until then; ``order_by``, a column or several, puts them
        in order, and the last one lives (several, if they are equal in these). NULLs come first. Without a key the whole stream
        is one signal. Raises UnknownColumn, and TypeMismatch for columns that cannot be compared. (docs/concepts.md, "Signals".)

        ::

            events  a 10 at 1  b 7 at 3      a 11 at 5
            result  a 10 [1,5)  b 7 [3,..)  a 11 [5,..)

        >>> import streamq as sq
        >>> prices = sq.events([(1, 2, {"k": "a", "v": 10}), (5, 6, {"k": "a", "v": 11}), (3, 4, {"k": "b", "v": 7})])
        >>> prices.to_signal(key="k").show()
        k   v  start   end
        a  10      1     5
        b   7      3  NULL
        a  11      5  NULL
        """
        keys = column_names(key, "to_signal", "the key")
        order = column_names(order_by, "to_signal", "order_by")
        return self._derive(ToSignal(self.plan, keys, order))
