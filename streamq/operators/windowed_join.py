"""WindowedJoin: pairs the members of each window of a common grid; a pair lives on the window (DataCell, two streams)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamq.choices import JoinKind
from streamq.errors import PlanError
from streamq.operators.evaluated_operator import add_bound
from streamq.operators.evaluation import (
    CorrectingKernelFactory,
    EndMoves,
    Evaluation,
    KeyColumns,
    PortColumns,
    condition_of,
)
from streamq.operators.interval_join import OTHER_LE, OTHER_RE, Pairing
from streamq.operators.join import Join
from streamq.operators.join_arguments import On, Pairs, check_pairs, pair_fields
from streamq.operators.operator import BatchRun
from streamq.operators.per_window import warn_of_neighbours
from streamq.operators.spans import LastRows
from streamq.plan.expr import Col, Expr
from streamq.plan.footprint import Footprint
from streamq.plan.lowering import spark_expression
from streamq.plan.node import ImpliedWindows, Node, Traits, Verbs, node
from streamq.plan.passes import check_boolean
from streamq.plan.schema import INTERVAL, Field, Schema, quote, show_equality
from streamq.plan.tree import show
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluators.joins import JoinEvaluator, WindowedJoinEvaluator
from streamq.runtime.kernels.inner_join import WindowedJoinKernel
from streamq.runtime.time.endpoints import Bound
from streamq.time import INFINITY, Duration
from streamq.windows import Hopping, Rows
from streamq.windows.batch_events import INDEX, UNTIL, window_lifetime, windows_of


@node
class WindowedJoin(Pairing):
    """Pairs members of each window with equal ``on`` (NULL equals nothing) for which ``where`` is true; names as in Join."""

    left: Node
    right: Node
    window: Hopping
    on: Pairs
    where: Expr | None
    left_names: Pairs
    right_names: Pairs

    title = "windowed_join"

    @property
    def footprint(self) -> Footprint:
        return Footprint(
            cti="start of the earliest window not final, the least over the inputs",
            final="windows that end at or before c",
            keeps="members of windows not final, in bins by their first window until that is due; pairs with "
            "windows to come",
            opens="parts, members whose first window is due, those of the other side that they may meet, and the "
            "pairs in a window that is due; of late rows, and with early=True of all, those of the other side in "
            "their groups",
            cost="the pairs that members make whose first window is due, and a row for each pair in a window that "
            "is due",
        )

    def _schema(self) -> Schema:
        """Return the columns of both sides, with lifetimes that are intervals.

        Raises PlanError for different axes, UnknownColumn or TypeMismatch for keys that cannot be equal, and TypeMismatch for a
        non-boolean ``where``.
        """
        left, right = self.left.schema, self.right.schema
        check_pairs(self.on, left, right, "windowed_join")
        fields = [Field(to, left.type_of(n)) for n, to in self.left_names]
        fields += [Field(to, right.type_of(n)) for n, to in self.right_names]
        schema = left.with_fields(fields).with_shape(INTERVAL).with_consumed(right)
        if self.where is not None:
            check_boolean(self.where, schema, "windowed_join", "the condition")
        return schema

    def _traits(self) -> Traits:
        return Traits(
            self.left.traits.retracts or self.right.traits.retracts,
            mixes_windows=self.window.windows_of_a_point > 1,
            on_windows=True,
            implied_windows=ImpliedWindows.LIFETIMES,
        )

    @property
    def event_windows(self) -> Hopping:
        return self.window

    def detail(self) -> str:
        keys = ", ".join(show_equality(a, b) for a, b in self.on) or "no key"
        shown = f"{self.window.shown(self.schema.axis)}, on {keys}"
        return shown + (f", where {show(self.where)}" if self.where is not None else "")

    def _evaluation(self) -> Evaluation:
        """Return the evaluator of pairs by window, and the kernel that runs it; both inputs are hashed by the keys."""
        keys = KeyColumns.from_pairs(self.left.schema, self.right.schema, self.on)
        left = tuple((to, Col(n)) for n, to in self.left_names)
        right = tuple((to, Col(n)) for n, to in self.right_names)
        # pairs that wait have the keys, too, which tell their bucket
        pairing = JoinEvaluator(
            how=JoinKind.INNER,
            on=keys.on,
            where=condition_of(self.where, self.schema),
            left=(*(to for to, _ in left), *keys.hashed),
            right=tuple(to for to, _ in right),
            kept=(),
        )
        evaluator = WindowedJoinEvaluator(self.window.grid, pairing)
        infinite = any(child.traits.infinite for child in self.children)
        return Evaluation(
            evaluator=evaluator,
            inputs=(PortColumns((*left, *keys.left), keys.hashed), PortColumns((*right, *keys.right), keys.hashed)),
            schema=self.schema,
            bound=Bound.ENDLESS,
            moves=EndMoves.NEVER,
            group_columns=keys.left_columns(dict(self.left_names)),
            factory=CorrectingKernelFactory(
                lambda site: WindowedJoinKernel(
                    evaluator, site.inputs, site.result, final=site.final, early=site.early, infinite=infinite
                )
            ),
        )

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Copy members into their windows, then join by window and keys; a pair lives as long as its window.

        If a lifetime may be endless, or ``run`` has a bound, the windows of all events on both sides start before one bound.
        """
        left, right = self.sides(inputs)
        bound = self.left.traits.infinite or self.right.traits.infinite or run.until is not None
        right = right.withColumnsRenamed({OTHER_LE: LE, OTHER_RE: RE})
        both = left.select(LE, RE).unionAll(right.select(LE, RE))
        copies = []
        for df in (left, right):
            df = add_bound(df, self.children, run, over=both) if bound else df.withColumn(UNTIL, F.lit(INFINITY))
            copies.append(windows_of(df, self.window.grid).drop(LE, RE, UNTIL))
        ours, theirs = copies[0], copies[1].withColumnRenamed(INDEX, "__i2")
        on = [F.col(INDEX) == F.col("__i2"), *(F.col(a) == F.col(b) for a, b in self.key_pairs)]
        if self.where is not None:
            on.append(spark_expression(self.where, self.schema))
        joined = ours.join(theirs, on, "inner")
        return joined.select(*window_lifetime(self.window.grid), *(quote(n) for n in self.schema.names))

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        """Join within each group if both inputs carry the keys; a stream from outside, on either side, meets every group."""
        on, left_names, right_names = self.pairs_with_keys(is_keyed, keys)
        return WindowedJoin(
            inputs[0], inputs[1], self.window, on=on, where=self.where, left_names=left_names, right_names=right_names
        )


class WindowedJoinVerbs(Verbs):
    """``windowed_join``."""

    def windowed_join(
        self,
        other: Self,
        on: On = (),
        *,
        size: Duration | None = None,
        hop: Duration | None = None,
        offset: Duration = 0,
        rows: int | None = None,
        step: int = 1,
        order_by: str | Sequence[str] = (),
        where: Callable[[Any, Any], Any] | Expr | None = None,
        suffixes: tuple[str, str] | None = None,
    ) -> Self:
        """Join the members of each window: one row per pair and window, whether or not both events live at the same time.

        ``size``, ``hop`` (default: size) and ``offset`` as in :meth:`hopping_window`; ``on``, ``where`` and ``suffixes`` as
        in :meth:`join`. Aggregates in a ``select`` over the pairs, also by groups of them, are computed for each window. Where
        windows overlap and events end, a pair is then made once, and not in each window.

        With ``rows`` in place of ``size`` the windows are the last ``rows`` events of each stream, renewed every ``step`` events,
        in the order of (start, ``order_by``): both streams' :meth:`last_rows` are joined. A pair lives while the latest windows
        of both streams have its events; so aggregates in a ``select`` are of the pairs of the two latest windows. Raises
        PlanError unless there is one of ``size`` and ``rows``. (docs/concepts.md, "Joins"; Liarou et al., section 3.)

        ::

            left    a [1,2)   right  b [4,5)   size 5
            result  ab [0,5)

        >>> import streamq as sq
        >>> a, b = sq.events([(1, 2, {"k": 1, "v": "a"})]), sq.events([(4, 5, {"k": 1, "w": "b"})])
        >>> a.windowed_join(b, on="k", size=5).show()
        k  v  w  start  end
        1  a  b      0    5
        >>> a.windowed_join(b, on="k", size=6, hop=3).select(pairs=sq.count(), last=sq.max("w")).show()
        pairs last  start  end
            1    b      0    6
        >>> a.windowed_join(b, on="k", rows=1).show()
        k  v  w  start   end
        1  a  b      4  NULL
        """
        of_time = {"hop": hop is not None, "offset": offset != 0}
        of_rows = {"step": step != 1, "order_by": bool(order_by)}
        _check_windows(size, rows, of_rows if rows is None else of_time)
        keys, condition, *names = pair_fields(
            self.plan, other, on, where=where, suffixes=suffixes, how=JoinKind.INNER, verb="windowed_join"
        )
        sides = self.plan, other.plan
        pairs: Node
        if rows is not None:
            last = Rows.from_arguments(rows, step, order_by, "windowed_join", "rows")
            for side, name in zip(sides, ("left", "right"), strict=True):
                last.check(side.schema, f"windowed_join, on the {name}")
            left, right = (LastRows(side, (), last) for side in sides)
            pairs = Join(left, right, keys, condition, JoinKind.INNER, *names)
        else:
            assert size is not None, "it has been checked"
            hop = size if hop is None else hop
            window = Hopping.from_arguments(size, hop, offset, self.plan.schema.axis, "windowed_join")
            pairs = WindowedJoin(*sides, window, keys, condition, *names)
        for side in sides:
            warn_of_neighbours(side, "windowed_join")
        return self._derive(pairs, other)


def _check_windows(size: Duration | None, rows: int | None, others: Mapping[str, bool]) -> None:
    """Raise PlanError unless there is one of ``size`` and ``rows``, and none of the arguments that go with the other.

    ``others`` says of each of these whether the user wrote it.
    """
    if (size is None) == (rows is None):
        wrong = "no windows" if size is None else "windows of time and of rows"
        hint = "Write size= for windows of time, or rows= for the last rows of each stream."
        raise PlanError("windowed_join", wrong, f"found size={size!r} and rows={rows!r}", hint)
    for name in (name for name, is_there in others.items() if is_there):
        kind, cure = ("rows", "rows=") if rows is None else ("time", "size=")
        raise PlanError("windowed_join", f"{name} is of windows of {kind}", "", f"Write it with {cure}.")
