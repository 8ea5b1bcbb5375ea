"""ToSignal: sets lifetimes as a signal's: each sample lives until the next strictly later one of its key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Self

from streamq.errors import column_names
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import Evaluation, PortColumns, all_columns
from streamq.operators.operator import BatchRun
from streamq.plan.expected import Retention
from streamq.plan.footprint import Footprint
from streamq.plan.keys import check_key
from streamq.plan.node import ADDED, Node, Traits, node
from streamq.plan.own_names import shown_name
from streamq.plan.schema import SIGNAL, Schema, quote
from streamq.plan.verbs import Verbs
from streamq.runtime.evaluators.spans import SignalEvaluator
from streamq.runtime.event import LE, RE
from streamq.time import INFINITY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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

    def _mixes_windows(self) -> bool:
        return False

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
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        keys = [quote(k) for k in self.keys]
        order = Window.partitionBy(*keys).orderBy(F.col(LE).desc())
        later = F.min(LE).over(order.rangeBetween(Window.unboundedPreceding, -1))
        rows = inputs[0]
        if self.order_by:
            last_first = [F.col(quote(n)).desc() for n in self.order_by]
            place = F.rank().over(Window.partitionBy(*keys, LE).orderBy(*last_first))
            rows = rows.withColumn("__place", place).where(F.col("__place") == 1)
        return rows.select(LE, F.coalesce(later, F.lit(INFINITY)).alias(RE), *(quote(n) for n in self.schema.names))

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        return ToSignal(inputs[0], (*self.keys, *keys), self.order_by)


class ToSignalVerbs(Verbs):
    """``to_signal``."""

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
