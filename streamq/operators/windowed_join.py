"""WindowedJoin: inside each window of a common grid, every pair of members that agree, on the window (DataCell, two streams)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import types as t

from streamq.errors import PlanError, TypeMismatch, sentence
from streamq.operators.join import INNER, On, Pairs, check_pairs, key_pairs, paired, sides
from streamq.plan.expr import Expr
from streamq.plan.inference import infer
from streamq.plan.lowering import spark_expression
from streamq.plan.node import Node, Traits, node
from streamq.plan.schema import INTERVAL, Field, Schema, quote
from streamq.plan.tree import show
from streamq.plan.verbs import Verbs
from streamq.runtime.event import LE, RE
from streamq.time import INFINITY, Duration
from streamq.windows import Hopping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamq.operators.batch_run import BatchRun


@node
class WindowedJoin(Node):
    """One row a window and pair of members with equal ``on`` (NULL equals nothing) and ``where``; names as in Join.

    CTI: start of the earliest window not final, the least over the inputs
    Final: windows that end at or before c
    State: members of windows not final
    Cost: the pairs of open windows; a member is copied into each of its windows
    """

    left: Node
    right: Node
    window: Hopping
    on: Pairs
    where: Expr | None
    left_names: Pairs
    right_names: Pairs

    title = "windowed_join"

    def _schema(self) -> Schema:
        left, right = self.left.schema, self.right.schema
        if left.axis != right.axis:
            raise PlanError(
                sentence("windowed_join", "streams on different time axes", f"found {left.axis} and {right.axis}")
            )
        check_pairs(self.on, left, right, "windowed_join")
        fields = [Field(to, left.type_of(n)) for n, to in self.left_names]
        fields += [Field(to, right.type_of(n)) for n, to in self.right_names]
        made = left.with_fields(fields).with_shape(INTERVAL).with_consumed(right)
        if self.where is not None:
            kind = infer(self.where, made, "windowed_join")
            if not isinstance(kind, t.BooleanType | t.NullType):
                raise TypeMismatch(
                    sentence("windowed_join", "the condition is not boolean", f"found {kind.simpleString()}")
                )
        return made

    def _traits(self) -> Traits:
        return Traits(self.left.traits.retracts or self.right.traits.retracts)

    def detail(self) -> str:
        from streamq.operators.window import show_window

        keys = ", ".join(a if a == b else f"{a} = {b}" for a, b in self.on) or "no key"
        shown = f"{show_window(self.window, self.schema.axis)}, on {keys}"
        return shown + (f", where {show(self.where)}" if self.where is not None else "")


def batch(node: WindowedJoin, inputs: list[DataFrame], run: BatchRun) -> DataFrame:
    """Members copied into their windows, then an equality of window and keys."""
    from pyspark.sql import functions as F

    from streamq.operators.grid import INDEX, bounded, window_lifetime, windows_of
    from streamq.operators.interval_join import OTHER_LE, OTHER_RE

    left, right = sides(node, inputs)
    bound = node.left.traits.infinite or node.right.traits.infinite or run.until is not None
    right = right.withColumnsRenamed({OTHER_LE: LE, OTHER_RE: RE})
    both = left.select(LE, RE).unionAll(right.select(LE, RE))
    copies = []
    for df in (left, right):
        df = bounded(df, node.children, run, over=both) if bound else df.withColumn("__until", F.lit(INFINITY))
        copies.append(windows_of(df, node.window).drop(LE, RE, "__until"))
    ours, theirs = copies[0], copies[1].withColumnRenamed(INDEX, "__i2")
    on = [F.col(INDEX) == F.col("__i2"), *(F.col(a) == F.col(b) for a, b in key_pairs(node))]
    if node.where is not None:
        on.append(spark_expression(node.where, node.schema))
    joined = ours.join(theirs, on, "inner")
    return joined.select(*window_lifetime(node.window), *(quote(n) for n in node.schema.names))


class WindowedJoinVerbs(Verbs):
    """``windowed_join``."""

    def windowed_join(
        self,
        other: Self,
        on: On = (),
        *,
        size: Duration,
        hop: Duration | None = None,
        offset: Duration = 0,
        where: Callable[[Any, Any], Any] | Expr | None = None,
        suffixes: tuple[str, str] | None = None,
    ) -> Self:
        """Pairs of events that are members of one window, whether or not they live at once: one row a pair and window.

        ``size``, ``hop`` (default: size) and ``offset`` as in :meth:`hopping_window`; ``on``, ``where`` and ``suffixes`` as
        in :meth:`join`. (SEMANTICS section 2; Liarou et al., section 3.)

        ::

            left    a [1,2)   right  b [4,5)   size 5
            result  ab [0,5)

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"k": 1, "v": "a"})]), sq.events([(4, 5, {"k": 1, "w": "b"})])
        >>> a.windowed_join(b, on="k", size=5).show()
        k  v  w  start  end
        1  a  b      0    5
        """
        from streamq.operators.grid import grid

        keys, condition, *names = paired(self.plan, other, on, where, suffixes, INNER, "windowed_join")
        window = grid(size, size if hop is None else hop, offset, self.plan.schema.axis, "windowed_join")
        return self._derive(WindowedJoin(self.plan, other.plan, window, keys, condition, *names), other)
