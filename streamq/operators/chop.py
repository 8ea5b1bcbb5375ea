"""Chop: cuts lifetimes at the instants of a grid; each piece is an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from streamq.errors import TimeError, sentence
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import EndMoves, Evaluation, PortColumns, all_columns
from streamq.operators.lifetime_bound import batch_events
from streamq.operators.operator import BatchRun
from streamq.plan.footprint import Footprint, live
from streamq.plan.lowering import lifetime
from streamq.plan.node import Node, Traits, node
from streamq.plan.schema import Schema, quote
from streamq.plan.verbs import Verbs
from streamq.runtime.evaluators.spans import ChopEvaluator
from streamq.runtime.event import LE, RE
from streamq.runtime.time.endpoints import Bound
from streamq.time import Duration, Grid, show_duration, ticks
from streamq.windows.batch_events import INDEX, UNTIL, in_windows, window_lifetime, windows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
        return Traits(traits.retracts, traits.moves_ends, mixes_windows=traits.mixes_windows)

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
        from pyspark.sql import functions as F

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


class ChopVerbs(Verbs):
    """``chop``."""

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
            raise TimeError(sentence("chop", "period must be positive", f"found {period!r}"))
        return self._derive(Chop(self.plan, ticks(period, axis, "chop"), ticks(offset, axis, "chop")))
