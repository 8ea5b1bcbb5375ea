"""LastRows: sets lifetimes so that the last rows of a stream, or of each key, live: the members of the latest rows window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from streamq.errors import column_names
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import Evaluation, PortColumns, all_columns
from streamq.operators.operator import BatchRun
from streamq.operators.per_window import warn_of_neighbours
from streamq.plan.footprint import Footprint, Retention
from streamq.plan.lowering import payload_order
from streamq.plan.node import ImpliedWindows, Node, Traits, node
from streamq.plan.own_names import shown_name
from streamq.plan.schema import INTERVAL, Schema, check_key, quote
from streamq.plan.verbs import Verbs
from streamq.runtime.evaluators.spans import LastRowsEvaluator
from streamq.runtime.event import LE, RE
from streamq.time import INFINITY
from streamq.windows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@node
class LastRows(EvaluatedOperator):
    """Sets each lifetime to the instants at which the event is in the latest complete rows window of its key.

    A window is the latest from the start of its last row until that of the next window's; of windows that are complete at one
    instant only the last is. So an event lives from the start of the last row of the first window with it to the start of the
    last row of the first later window without it. An event that is never in the latest window is left out. NULL keys are equal.
    """

    input: Node
    keys: tuple[str, ...]
    window: Rows

    title = "last_rows"

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            final="settled rows",
            keeps="each key's rows from the first window on that overlaps the latest one complete before c, for good",
            opens="parts of a key that rows touch or of which one is due: the rows kept",
            cost="a sort of the rows kept by key and start",
            for_good=self.window.footprint(None, self.keys, condenses=False).for_good,
            bounds=(Retention(0, 2 * self.window.n + self.window.step, self.keys),),
        )

    def _schema(self) -> Schema:
        """Return the input's columns; raise for a key or an order that does not exist or cannot be compared."""
        for key in self.keys:
            check_key(self.input.schema.require(key, "last_rows"), key, "last_rows")
        self.window.check(self.input.schema, "last_rows")
        return self.input.schema.with_shape(INTERVAL)

    def _traits(self) -> Traits:
        return Traits(self.input.traits.retracts, True, True, implied_windows=ImpliedWindows.SNAPSHOTS)

    def detail(self) -> str:
        by = f", by {', '.join(map(shown_name, self.keys))}" if self.keys else ""
        return self.window.shown(self.schema.axis) + by

    def _evaluation(self) -> Evaluation:
        order = self.window.order(self.schema.names)
        return Evaluation(
            evaluator=LastRowsEvaluator(self.keys, self.window.n, self.window.step, order),
            inputs=(PortColumns(all_columns(self.schema), self.keys, order),),
            schema=self.schema,
            pointwise=(0,),
            group_columns=self.keys,
        )

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Number the rows of each key; a row lives from the next one that ends a window to the next after those it is in.

        A window's last row is the least start among rows from there on, which a running minimum from the last row on finds.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        n, step, names = self.window.n, self.window.step, [quote(name) for name in self.schema.names]
        keys = Window.partitionBy(*(quote(k) for k in self.keys))
        order = keys.orderBy(LE, *payload_order(self.schema, self.window.order(self.schema.names)))
        rows = inputs[0].select(LE, *names, (F.row_number().over(order).cast("bigint") - 1).alias("__place"))
        ends_window = (F.col("__place") >= n - 1) & ((F.col("__place") - (n - 1)) % step == 0)
        complete = F.min(F.when(ends_window, F.col(LE)))
        backwards = keys.orderBy(F.col("__place").desc())
        start = complete.over(backwards.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        end = complete.over(backwards.rowsBetween(Window.unboundedPreceding, -n))
        rows = rows.withColumns({"__start": start, RE: F.coalesce(end, F.lit(INFINITY))})
        return rows.where(F.col("__start") < F.col(RE)).select(F.col("__start").alias(LE), RE, *names)


class LastRowsVerbs(Verbs):
    """``last_rows``."""

    def last_rows(
        self, n: int, step: int = 1, *, key: str | Sequence[str] = (), order_by: str | Sequence[str] = ()
    ) -> Self:
        """Let each event live while it is among the last ``n`` rows, which are renewed every ``step`` rows.

        These are the rows of the latest complete window of :meth:`rows_window`: from the start of its last row on, until that of
        the next window's. So an event begins to live with its row or, if ``step`` is above 1 or there are not ``n`` rows yet,
        with a later one; old lifetimes are ignored. Rows are counted in the order of (start, ``order_by``), ties go by the rest
        of the payload; of each ``key``, if there is one, by themselves. An aggregate in a ``select`` over them is of the last
        rows at each instant, as of snapshots. Raises PlanError, UnknownColumn, TypeMismatch. (CQL's ``[ROWS n SLIDE step]``,
        ``[PARTITION BY key ROWS n]``.)

        ::

            events   3 at 1     5 at 4         1 at 9      n = 2
            result              3 5 [4,9)      5 1 [9,..)

        >>> import streamq as sq
        >>> s = sq.events([(1, 2, {"v": 3}), (4, 5, {"v": 5}), (9, 10, {"v": 1})])
        >>> s.last_rows(2).show()
        v  start   end
        3      4     9
        5      4  NULL
        1      9  NULL
        >>> s.last_rows(2).select(total=sq.sum("v")).show()
        total  start   end
            8      4     9
            6      9  NULL
        """
        window = Rows.from_arguments(n, step, order_by, "last_rows")
        warn_of_neighbours(self.plan, "last_rows")
        return self._derive(LastRows(self.plan, column_names(key, "last_rows", "the key"), window))
