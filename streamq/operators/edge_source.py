"""Edge sources: each item starts or ends an event of its key; the items of a key act by time, then by the order columns.

At one instant and place in the order ends come before starts. The next item of the key ends the event that a start opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from streamq.choices import Invalid
from streamq.operators.operator import BatchRun
from streamq.operators.source import GENERATED, Ingress, Source, axis_of, source_schema, without_refused
from streamq.plan.footprint import Footprint
from streamq.plan.keys import check_key
from streamq.plan.lowering import orderable
from streamq.plan.node import Traits
from streamq.plan.schema import EDGE, Schema, quote
from streamq.runtime.consistency import AlignAt
from streamq.runtime.event import LE, OPENS, RE
from streamq.runtime.items import Items, Mark
from streamq.runtime.kernels.edges import EdgesKernel
from streamq.time import INFINITY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class EdgeSource(Source):
    """A source of items that start or end events; ``time`` has their instants, and equal ``key`` columns make a chain.

    ``order_by``: the columns by which items of one key and instant act. ``payload_from`` is "start" or "end": the row whose other
    columns a closed event carries. Its rules give items ``__opens``, true for a start and false for an end.
    """

    time: str
    key: tuple[str, ...]
    order_by: tuple[str, ...]
    payload_from: str = "start"

    mover: ClassVar[str]
    """A user's word for an item that starts an event."""

    unmatched: ClassVar[str]
    """The reason to refuse an end that ends no event."""

    @property
    def tie(self) -> str:
        """The reason to refuse two items that nothing puts in order."""
        ordered = f"equal in {', '.join(self.order_by)}" if self.order_by else "without order_by"
        return f"two {self.title} of one key at one instant that differ, {ordered}"

    @property
    def footprint(self) -> Footprint:
        item, closes = self.title.removesuffix("s"), self.payload_from == "end"
        return Footprint(
            cti=GENERATED + "; as the payload comes with the end, the least open start, at most c" * closes,
            final="closed events that are settled",
            keeps=f"a key's open start, or its last {item} if late ones may be adjusted, and {self.title} at or after c",
            opens=f"parts, the keys that new {self.title} have, and those with one that is due",
            cost="a sort of the keys that a micro-batch touches",
            for_good=f"the last {item} of each key, as a late one may be adjusted" if self.policy.late.adjusts else "",
        )

    def _schema(self) -> Schema:
        """Return the payload's schema; raise if a column is missing, or one of the key or the order cannot be compared."""
        raw = Schema(self.columns, "integer")
        for names, use in ((self.key, "match"), (self.order_by, "order")):
            for name in names:
                check_key(raw.require(name, self.title), name, self.title, use)
        return source_schema(self, axis_of(self.columns, (self.time,), self.title), EDGE, self.title)

    def _traits(self) -> Traits:
        return Traits(retracts=True, moves_ends=True, infinite=True)

    @property
    def items(self) -> Items:
        return Items(starts=Mark(OPENS, True), mover=self.mover)

    @property
    def order_columns(self) -> tuple[str, ...]:
        """The columns of ``order_by``, by the names that items have for them."""
        return tuple(self.beside_columns.get(name, name) for name in self.order_by)

    @property
    def ingress(self) -> Ingress:
        """The kernel that pairs the edges of a key; events are held back where they close if their payload comes from there."""
        kernel = EdgesKernel(
            self.key, self.payload_from == "end", self.order_columns, unmatched=self.unmatched, tie=self.tie
        )
        title = f"{self.title} by {', '.join(self.key)}"
        if kernel.from_end:
            return Ingress(kernel, (OPENS,), self.key, title, AlignAt.EDGE_CLOSE)
        return Ingress(kernel, (OPENS,), self.key, title, AlignAt.EDGE_OPEN)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Return an event for each start: it lives until the key's next edge, or without an end.

        Equal edges count once. An end without an open start before it is refused, and so are edges of one key, instant, place in
        the order and kind that differ. If the payload is from the end, an event that no end closes keeps its own.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        df = self.good_items(run)
        rest = [f.name for f in self.payload if f.name not in self.key]
        compared = [orderable(F.col(quote(f.name)), f.type) for f in self.payload if f.name in rest]
        place = [F.col(LE), *(F.col(quote(name)) for name in self.order_columns), F.col(OPENS)]
        chain = Window.partitionBy(*(quote(k) for k in self.key)).orderBy(*place, *compared)

        def is_like_its_neighbour(columns: Sequence[Any], neighbour: Any) -> Any:
            row = F.struct(*(column.alias(f"_{i}") for i, column in enumerate(columns)))
            return row.eqNullSafe(neighbour(row).over(chain))

        # an edge that is delivered again is next to the one it repeats
        df = df.withColumn("__again", is_like_its_neighbour([*place, *compared], F.lag)).where(~F.col("__again"))
        is_tie = is_like_its_neighbour(place, F.lag) | is_like_its_neighbour(place, F.lead)
        df = df.withColumn("__tie", is_tie).drop("__again")
        if self.policy.invalid_in(False) == Invalid.DROP:
            df = df.where(~F.col("__tie"))
        whole = F.struct(F.col(LE), F.col(OPENS), *(F.col(quote(name)) for name in rest))
        df = df.withColumn("__prev", F.lag(whole).over(chain))
        opened_before = F.coalesce(F.col("__prev")[OPENS], F.lit(False))
        reason = F.when(F.col("__tie"), F.lit(self.tie)).when(~F.col(OPENS) & ~opened_before, F.lit(self.unmatched))
        df = without_refused(df, reason, self).withColumn("__next", F.lead(whole).over(chain))
        df = df.where(F.col(OPENS)).withColumn(RE, F.coalesce(F.col("__next")[LE], F.lit(INFINITY)))
        payload: Any = {name: F.col(quote(name)) for name in (f.name for f in self.payload)}
        if self.payload_from == "end":
            closed = F.coalesce(~F.col("__next")[OPENS], F.lit(False))
            payload |= {name: F.when(closed, F.col("__next")[name]).otherwise(F.col(quote(name))) for name in rest}
        events = df.select(LE, RE, *(payload[f.name].alias(f.name) for f in self.payload))
        # the next edge of one instant leaves nothing of an event
        return events.where(F.col(RE) > F.col(LE)) if self.order_by else events


__all__ = ["EdgeSource"]
