"""DistinctIds: drops an event, and its retractions, if one of equal id started shortly before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from streamq.errors import PlanError, TimeError, column_names, sentence
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import EndMoves, Evaluation, PortColumns, all_columns
from streamq.operators.operator import BatchRun
from streamq.plan.footprint import Footprint, live
from streamq.plan.lowering import lifetime
from streamq.plan.node import Node, node
from streamq.plan.own_names import shown_name
from streamq.plan.schema import Schema, check_key, quote
from streamq.plan.verbs import Verbs
from streamq.runtime.evaluators.spans import DistinctIdsEvaluator
from streamq.runtime.event import LE, RE
from streamq.time import MINUS_INFINITY, Duration, show_duration, ticks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@node
class DistinctIds(EvaluatedOperator):
    """Drops an event if one of equal ``ids`` (NULLs equal), itself dropped or not, has LE in ``[LE - within, LE)``.

    Of events with equal ids and LE only the one with the least (RE, payload) stays, and of equal ones just one.
    """

    input: Node
    ids: tuple[str, ...]
    within: int

    title = "distinct_ids"

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            cti="c; where ends may still move, the least start of an event whose end is open",
            final="rows that start before c",
            keeps="of each id the last event before c, if it is within reach of c, and those from c on",
            opens="parts of an id that rows have or of which one is due: the last event before c, and those since",
            cost="a sort of the events kept by id and start",
            bounds=(live(self.input.traits.longest, self.within),),
        )

    def _schema(self) -> Schema:
        """Return the input's schema; raise for an id that does not exist, and for columns that cannot be ordered."""
        for name in self.input.schema.names:
            check_key(self.input.schema.type_of(name), name, "distinct_ids", "order")
        for name in self.ids:
            self.input.schema.require(name, "distinct_ids")
        return self.input.schema

    def detail(self) -> str:
        return f"{', '.join(map(shown_name, self.ids))} within {show_duration(self.within, self.schema.axis)}"

    def _evaluation(self) -> Evaluation:
        return Evaluation(
            evaluator=DistinctIdsEvaluator(self.ids, self.schema.names, self.within),
            inputs=(PortColumns(all_columns(self.schema), self.ids),),
            schema=self.schema,
            reads_ends=True,
            moves=EndMoves.NEVER,
            group_columns=self.ids,
        )

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Keep the first event of each id and start, unless the id's last start before it is at most ``within`` back."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        names = [quote(n) for n in self.schema.names]
        ids = [quote(i) for i in self.ids]
        df = inputs[0].select(*lifetime(self.input.schema), *names)
        before = F.max(LE).over(Window.partitionBy(*ids).orderBy(LE).rangeBetween(Window.unboundedPreceding, -1))
        place = F.row_number().over(Window.partitionBy(*ids, LE).orderBy(RE, *names))
        near = before >= F.coalesce(F.try_subtract(F.col(LE), F.lit(self.within)), F.lit(MINUS_INFINITY))
        df = df.withColumns({"__near": near, "__place": place})
        return df.where((F.col("__place") == 1) & ~F.coalesce(F.col("__near"), F.lit(False))).select(LE, RE, *names)

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        return DistinctIds(inputs[0], (*self.ids, *keys), self.within)


class DistinctIdsVerbs(Verbs):
    """``distinct_ids``."""

    def distinct_ids(self, within: Duration, *, id: str | Sequence[str]) -> Self:
        """Drop an event if one of equal ``id``, itself dropped or not, started in ``[start - within, start)``.

        Of events of one id and start the one with the least (end, payload) stays. Raises TimeError for a negative ``within``,
        PlanError without an id, UnknownColumn, TypeMismatch.

        ::

            events  7 at 1  7 at 3  7 at 9   within 5
            result  7 at 1          7 at 9

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"id": 7}), (3, 4, {"id": 7}), (9, 10, {"id": 7})])
        >>> s.distinct_ids(within=5, id="id").show()
        id  start  end
         7      1    2
         7      9   10
        """
        ids = column_names(id, "distinct_ids", "the id")
        if not ids:
            raise PlanError(sentence("distinct_ids", "no id", "", 'Name the column: id="trip_id".'))
        bound = ticks(within, self.plan.schema.axis, "distinct_ids")
        if bound < 0:
            raise TimeError(sentence("distinct_ids", "within must not be negative", f"found {within!r}"))
        return self._derive(DistinctIds(self.plan, ids, bound))
