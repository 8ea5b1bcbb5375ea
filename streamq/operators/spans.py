"""Chop cuts lifetimes at the instants of a grid; DistinctIds drops repeated events; LastRows keeps the last rows alive.

Each is defined by an evaluator of the lifetimes of one input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from streamq.errors import PlanError, TimeError, column_names
from streamq.operators.evaluated_operator import EvaluatedOperator, batch_events
from streamq.operators.evaluation import EndMoves, Evaluation, PortColumns, all_columns
from streamq.operators.operator import BatchRun
from streamq.operators.per_window import warn_of_neighbours
from streamq.plan.footprint import Footprint, Retention, live
from streamq.plan.lowering import lifetime, payload_order
from streamq.plan.node import ImpliedWindows, Node, Traits, Verbs, node
from streamq.plan.schema import INTERVAL, Schema, check_key, quote, shown_name
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluators.spans import ChopEvaluator, DistinctIdsEvaluator, LastRowsEvaluator
from streamq.runtime.time.endpoints import Bound
from streamq.time import INFINITY, MINUS_INFINITY, Duration, Grid, show_duration, ticks
from streamq.windows import Rows
from streamq.windows.batch_events import INDEX, UNTIL, in_windows, window_lifetime, windows_of
from streamq.windows.window import check_order


@node
class Chop(EvaluatedOperator):
    """Intersects each lifetime with the cells ``[offset + i*period, offset + (i+1)*period)``: one event per cell it overlaps.

    Of an endless lifetime the pieces that start before ``until`` are reported, as for windows; one that the user sets bounds all.
    """

    input: Node
    period: int
    offset: int

    title = "chop"

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            final="settled pieces",
            keeps="events not settled",
            opens="parts, the events that start with a new one, and those with a piece due",
            cost="a row a piece that is not settled",
            bounds=(live(self.input.traits.longest),),
        )

    def _schema(self) -> Schema:
        return self.input.schema

    def _traits(self) -> Traits:
        traits = self.input.traits
        longest = self.period if traits.longest is None else min(self.period, traits.longest)
        return Traits(traits.retracts, traits.moves_ends, longest=longest, mixes_windows=traits.mixes_windows)

    def detail(self) -> str:
        shown = f"period={show_duration(self.period, self.schema.axis)}"
        return shown + (f", offset={show_duration(self.offset, self.schema.axis)}" if self.offset else "")

    def _evaluation(self) -> Evaluation:
        cells = Grid(self.period, self.period, self.offset)
        return Evaluation(
            evaluator=ChopEvaluator(cells),
            inputs=(PortColumns(all_columns(self.schema), (LE,)),),
            schema=self.schema,
            bound=Bound.ENDLESS,
            moves=EndMoves.AS_INPUTS,
        )

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Copy each event into its cells and cut its lifetime to the cell.

        Pieces of any event that start at the bound or later are left out. There is a bound if ``run`` has one, or if a lifetime
        may be endless.
        """
        cells = Grid(self.period, self.period, self.offset)
        le, re = lifetime(self.input.schema)
        df = inputs[0].select(le, re, *(quote(n) for n in self.schema.names))
        events = batch_events(self.input, df, run)
        bound = events.is_bounded
        df = windows_of(events.bounded(df, Bound.ENDLESS), cells) if bound else in_windows(events, cells)
        start, end = window_lifetime(cells)
        df = df.withColumns({"__from": F.greatest(F.col(LE), start), "__to": F.least(F.col(RE), end)}).drop(INDEX)
        df = df.where(F.col("__from") < F.col(UNTIL)) if bound else df
        return df.select(F.col("__from").alias(LE), F.col("__to").alias(RE), *(quote(n) for n in self.schema.names))

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        return self.with_children(inputs)


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
        check_order(self.window, self.input.schema, "last_rows")
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


class SpanVerbs(Verbs):
    """``chop``, ``distinct_ids`` and ``last_rows``."""

    def chop(self, period: Duration, offset: Duration = 0) -> Self:
        """Cut every lifetime at the instants ``offset + i*period``; each piece is an event with the same payload.

        A stream reports the pieces of a lifetime without an end as its watermark reaches them; a batch reports those that
        start before ``until``. An explicit ``until`` bounds the pieces of all lifetimes. Raises TimeError for a period that
        is not positive.

        ::

            event   [3,12)   period 5
            result  [3,5)  [5,10)  [10,12)

        >>> import streamq as sq
        >>> sq.events([(3, 12, {"v": 1})]).chop(5).show()
        v  start  end
        1      3    5
        1      5   10
        1     10   12
        """
        axis = self.plan.schema.axis
        if ticks(period, axis, "chop") <= 0:
            raise TimeError("chop", "period must be positive", f"found {period!r}")
        return self._derive(Chop(self.plan, ticks(period, axis, "chop"), ticks(offset, axis, "chop")))

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
            raise PlanError("distinct_ids", "no id", "", 'Name the column: id="trip_id".')
        bound = ticks(within, self.plan.schema.axis, "distinct_ids")
        if bound < 0:
            raise TimeError("distinct_ids", "within must not be negative", f"found {within!r}")
        return self._derive(DistinctIds(self.plan, ids, bound))

    def last_rows(
        self, n: int, step: int = 1, *, key: str | Sequence[str] = (), order_by: str | Sequence[str] = ()
    ) -> Self:
        """Let each event live while it is among the last ``n`` rows, which are renewed every ``step`` rows.

        These are the rows of the latest complete window of :meth:`rows_window`: from the start of its last row on, until that of
        the next window's. So an event begins to live with its row or, if ``step`` is above 1 or there are not ``n`` rows yet,
        with a later one; old lifetimes are ignored. Rows are counted in the order of (start, ``order_by``), ties go by the rest
        of the payload; of each ``key``, if there is one, by themselves. An aggregate in a ``select`` over them is of the last
        rows at each instant, as of snapshots; a stream adds up each step once, if the aggregate merges. Raises PlanError,
        UnknownColumn, TypeMismatch. (CQL's ``[ROWS n SLIDE step]``, ``[PARTITION BY key ROWS n]``.)

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
