"""ToSignal: sets lifetimes as a signal's: each sample lives until the next strictly later one of its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from streamq.errors import column_names
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import Evaluation, PortColumns, all_columns
from streamq.operators.operator import BatchRun
from streamq.plan.expected import Retention
from streamq.plan.footprint import Footprint
from streamq.plan.keys import check_key
from streamq.plan.node import Node, Traits, node
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

    Samples of one key and instant all have the same lifetime.
    """

    input: Node
    keys: tuple[str, ...]

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
        return self.input.schema.with_shape(SIGNAL)

    def _mixes_windows(self) -> bool:
        return False

    def _traits(self) -> Traits:
        return Traits(self.input.traits.retracts, True, True)

    def detail(self) -> str:
        return f"by {', '.join(map(shown_name, self.keys))}" if self.keys else "one signal"

    def _evaluation(self) -> Evaluation:
        columns = PortColumns(all_columns(self.schema), self.keys)
        return Evaluation(
            evaluator=SignalEvaluator(self.keys),
            inputs=(columns,),
            schema=self.schema,
            pointwise=(0,),
            group_columns=self.keys,
        )

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Order by key, latest start first; a sample ends at the least start among later ones, or never."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        order = Window.partitionBy(*(quote(k) for k in self.keys)).orderBy(F.col(LE).desc())
        later = F.min(LE).over(order.rangeBetween(Window.unboundedPreceding, -1))
        return inputs[0].select(
            LE, F.coalesce(later, F.lit(INFINITY)).alias(RE), *(quote(n) for n in self.schema.names)
        )

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        return ToSignal(inputs[0], (*self.keys, *keys))


class ToSignalVerbs(Verbs):
    """``to_signal``."""

    def to_signal(self, key: str | Sequence[str] = ()) -> Self:
        """End each event at the next strictly later start of an event with equal ``key``, as a signal holds its value.

        The old ends are ignored. Events of one key and instant all live until then. Without a key the whole stream is one signal.
        (docs/concepts.md, "Signals".)

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
        return self._derive(ToSignal(self.plan, keys))
