"""Joins: pairs of events that live at once and match, and the parts of a lifetime with, or without, a match.

WindowedJoin pairs the members of each window of a common grid; a pair lives on the window (DataCell, two streams).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamq.choices import JoinKind, Stamp, choose_word
from streamq.errors import PlanError
from streamq.operators.evaluated_operator import EvaluatedOperator, add_bound
from streamq.operators.evaluation import (
    CorrectingKernelFactory,
    EndMoves,
    Evaluation,
    KeyColumns,
    OwnKernelFactory,
    PortColumns,
    condition_of,
)
from streamq.operators.interval_join import (
    OTHER_LE,
    OTHER_RE,
    Pairing,
    bounded_join,
    common_lifetime,
    covered_parts,
    endless_join,
    overlap_join,
    tiered_join,
    uncovered_parts,
)
from streamq.operators.join_arguments import On, Pairs, check_pairs, pair_fields
from streamq.operators.operator import BatchForms, BatchRun, not_of_the_group, only_evaluated
from streamq.operators.per_window import warn_of_neighbours, warn_of_paired_neighbours
from streamq.operators.spans import LastRows
from streamq.plan.expr import Col, Expr, show
from streamq.plan.footprint import ExpectedRates, Footprint, live
from streamq.plan.lowering import spark_expression
from streamq.plan.node import ImpliedWindows, Node, Traits, Verbs, node, nodes
from streamq.plan.passes import calls_python, check_boolean, substitute
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, lazy, quote, show_equality
from streamq.runtime.deltas import LE, RE
from streamq.runtime.evaluators.joins import JoinEvaluator, WindowedJoinEvaluator
from streamq.runtime.kernels.joins import InnerJoinKernel, LeftJoinKernel, WindowedJoinKernel
from streamq.runtime.time.endpoints import Bound
from streamq.time import INFINITY, Duration
from streamq.windows import Hopping, Rows
from streamq.windows.batch_events import INDEX, UNTIL, window_lifetime, windows_of
from streamq.windows.window import check_order, result_traits


@node
class Join(Pairing):
    """Joins ``left`` and ``right`` on overlapping lifetimes, equal columns ``on`` (NULL equals nothing), and ``where``.

    ``how`` is inner, left, semi or anti; ``where`` is part of the condition in each. ``left_names`` and ``right_names`` map each
    side's columns to their names in ``where`` and in the result; a right column that is missing is a key, for which the left
    one stands.
    """

    left: Node
    right: Node
    on: Pairs
    where: Expr | None
    how: JoinKind
    left_names: Pairs
    right_names: Pairs

    @property
    def footprint(self) -> Footprint:
        if self.how == JoinKind.INNER:
            return Footprint(
                cti="c, the least over the inputs",
                final="pairs of final events",
                keeps="events not settled, in bins of time by length of life, large ones also by group",
                opens="whole groups that rows touch, of the other side in the bins that new events overlap in time",
                cost="the pairs that what is new makes, and the bins they lie in",
                # pairs need an event as long as it lives; other kinds of join also keep rows that wait, and parts
                bounds=(live(self.left.traits.longest), live(self.right.traits.longest)),
            )
        return Footprint(
            cti="the least start of a left event that lives on at c, at least c, at most the left input's CTI",
            final="settled rows",
            keeps="events not settled, and right ones that overlap such a left one; lifetimes of left ones; rows "
            "that wait",
            opens="whole groups that right rows touch, of those that left rows touch the right events, and rows "
            "that go",
            cost="the pairs of new left events, and of those that a new right event meets",
        )

    @property
    def title(self) -> str:
        return f"{self.how} join"

    def _traits(self) -> Traits:
        """Return the traits of both sides; windows are mixed if they are in a side whose columns are kept.

        Snapshots are implied if both sides imply them. A pair lives no longer than either of its events, and what a left, semi or
        anti join returns no longer than the left one.
        """
        left, right = self.left.traits, self.right.traits
        lengths = [left.longest, right.longest] if self.how == JoinKind.INNER else [left.longest]
        implied = left.implied_windows is right.implied_windows is ImpliedWindows.SNAPSHOTS
        both = left | right
        return replace(
            both,
            longest=min((length for length in lengths if length is not None), default=None),
            endless=both.endless and self.how == JoinKind.INNER,
            mixes_windows=left.mixes_windows or (self._has_right_columns and right.mixes_windows),
            implied_windows=ImpliedWindows.SNAPSHOTS if implied else None,
            cells=left.cells if left.cells == right.cells else None,
        )

    def _schema(self) -> Schema:
        """Return the columns of both sides or, of a semi or anti join, of the left one.

        Events are points if the left ones are or, in an inner join, if those of either side are. Raises PlanError for different
        axes, UnknownColumn or TypeMismatch for keys that cannot be equal, and TypeMismatch for a non-boolean ``where``.
        """
        left, right = self.left.schema, self.right.schema
        check_pairs(self.on, left, right, "join")
        if self.where is not None:
            check_boolean(self.where, self.both, "join", "the condition", self._show(self.where))
        point = left.shape == POINT or (self.how == JoinKind.INNER and right.shape == POINT)
        schema = self.both if self._has_right_columns else left
        return schema.with_shape(POINT if point else INTERVAL)

    @lazy
    def both(self) -> Schema:
        """The columns of a pair, which ``where`` reads and an inner or left join returns."""
        ours = [Field(to, self.left.schema.type_of(n)) for n, to in self.left_names]
        theirs = [Field(to, self.right.schema.type_of(n)) for n, to in self.right_names]
        return self.left.schema.with_fields([*ours, *theirs]).with_consumed(self.right.schema)

    def columns_below(self, name: str) -> list[tuple[Node, str]] | None:
        # columns of a right side that may be missing have one value more
        sides = ((self.left, self.left_names), (self.right, self.right_names if self.how == JoinKind.INNER else ()))
        return [(side, n) for side, names in sides for n, to in names if to == name] or None

    def detail(self) -> str:
        keys = ", ".join(show_equality(a, b) for a, b in self.on)
        parts = [f"on {keys}"] if keys else ["on no key"]
        if self.where is not None:
            parts.append(f"where {self._show(self.where)}")
        return ", ".join(parts)

    def _show(self, condition: Expr) -> str:
        """Return a condition as text; a semi or anti join has no right columns, so their names are streamq's own there."""
        own = {} if self._has_right_columns else {to: Col(f"right.{n}") for n, to in self.right_names if n != to}
        return show(substitute(condition, own))

    @property
    def _has_right_columns(self) -> bool:
        """True if results have the columns of the right side."""
        return self.how in (JoinKind.INNER, JoinKind.LEFT)

    def _evaluation(self) -> Evaluation:
        """Return the evaluator of the join; an inner join also has a kernel of its own."""
        keys = KeyColumns.from_pairs(self.left.schema, self.right.schema, self.on)
        left = tuple((to, Col(n)) for n, to in self.left_names)
        right = tuple((to, Col(n)) for n, to in self.right_names)
        whole = self._has_right_columns
        evaluator = JoinEvaluator(
            self.how,
            keys.on,
            condition_of(self.where, self.both),
            tuple(to for to, _ in left),
            tuple(to for to, _ in right),
            tuple(to if whole else n for n, to in self.left_names),
        )
        group_columns = keys.left_columns({n: to if whole else n for n, to in self.left_names})
        inputs = PortColumns((*left, *keys.left), keys.hashed), PortColumns((*right, *keys.right), keys.hashed)
        if self.how != JoinKind.INNER:
            return Evaluation(
                evaluator=evaluator,
                inputs=inputs,
                schema=self.schema,
                group_columns=group_columns,
                factory=CorrectingKernelFactory(
                    lambda site: LeftJoinKernel(evaluator, site.inputs, site.result, final=site.final, early=site.early)
                ),
            )
        return Evaluation(
            evaluator=evaluator,
            inputs=inputs,
            schema=self.schema,
            moves=EndMoves.AS_INPUTS,
            group_columns=group_columns,
            factory=OwnKernelFactory(lambda site: InnerJoinKernel(evaluator, site.inputs, site.result)),
        )

    def batch_forms(self, rates: ExpectedRates) -> BatchForms | None:
        """Return the evaluator where it alone can compute the join, or reads its inputs less often; else None: one form."""
        is_outer = self.how in (JoinKind.LEFT, JoinKind.ANTI)
        if is_outer and self.where is not None and calls_python(self.where):
            return only_evaluated("the condition of an outer join calls Python")
        if self.on and not (self._has_endless_side or self._is_bounded or self._is_of_cells or self._meets_points):
            return only_evaluated("lifetimes of any length, which need not be measured before")
        if self._measures_state:
            return only_evaluated("lifetimes of any length, and to measure them would compute twice what is below")
        return None

    @property
    def measured(self) -> tuple[Node, ...]:
        """The inputs that a batch reads once more, for the lengths of their lifetimes; with keys, the one beside points."""
        if self._has_endless_side or self._is_bounded or self._is_of_cells:
            return ()
        if not self.on:
            return self.children
        return tuple(side for side in self.children if self._meets_points and side.schema.shape != POINT)

    @lazy
    def _measures_state(self) -> bool:
        """True if a measured input is of an operator with state, which n such joins on each other would compute 2**n times."""
        return any(isinstance(node, EvaluatedOperator) for side in self.measured for node in nodes(side))

    @property
    def _is_of_cells(self) -> bool:
        """True if all lifetimes are cells of one grid, so that two events live at once if they start together."""
        return self.left.traits.cells is not None and self.left.traits.cells == self.right.traits.cells

    @property
    def _has_endless_side(self) -> bool:
        """True if the join is inner and no event of one side ends, so that keys alone tell pairs, but for one comparison."""
        return self.how == JoinKind.INNER and (self.left.traits.endless or self.right.traits.endless)

    @property
    def _meets_points(self) -> bool:
        """True if the join is inner, with keys, and all events of a side are points."""
        points = POINT in (self.left.schema.shape, self.right.schema.shape)
        return self.how == JoinKind.INNER and bool(self.on) and points

    @property
    def _is_bounded(self) -> bool:
        """True if the plan bounds all lifetimes, and the join is inner or its left events are points, which need no sweep."""
        return self._longest is not None and (self.how == JoinKind.INNER or self.left.schema.shape == POINT)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Compute an equi-join over cells of time, and parts with and without a partner by a sweep over a left event's pairs.

        If all lifetimes are cells of one grid, pairs start together. If the plan bounds the length of all lifetimes, cells have
        that width; and left points need no sweep. Of a side that is endless an inner join has no cells: its events meet whatever
        lives after their start. Where lengths are not known, they are measured, which reads both sides once more, or what
        meets points by keys; the evaluator reads them once, and takes its place where there are keys and no points, or
        operators with state below.
        """
        if self.batch_forms(run.rates) is not None:
            return super().in_batch(inputs, run)

        left, right = self.sides(inputs)
        names = [to for _, to in self.left_names], [to for _, to in self.right_names]
        condition = None if self.where is None else spark_expression(self.where, self.both)
        points = (self.left.schema.shape == POINT, self.right.schema.shape == POINT)
        longest = self._longest
        how = "inner" if self.how == JoinKind.INNER else f"left_{self.how}" if self.how != JoinKind.LEFT else "left"
        if self._is_of_cells:
            on = [F.col(a) == F.col(b) for a, b in [*self.key_pairs, (LE, OTHER_LE)]]
            pairs = left.join(right, on if condition is None else [*on, condition], how)
            if self.how in (JoinKind.SEMI, JoinKind.ANTI):
                return in_left_names(pairs.select(LE, RE, *map(quote, names[0])), self)
            return pairs.select(LE, RE, *(quote(n) for n in (*names[0], *names[1])))
        if self._has_endless_side:
            endless = (self.left.traits.endless, self.right.traits.endless)
            pairs = endless_join(left, right, self.key_pairs, points=points, endless=endless, condition=condition)
            start, end = common_lifetime(points, endless)
            return pairs.select(start.alias(LE), end.alias(RE), *(quote(n) for n in (*names[0], *names[1])))
        if longest is not None and self._is_bounded:
            pairs = bounded_join(left, right, self.key_pairs, longest, points=points, condition=condition, how=how)
            if self.how in (JoinKind.SEMI, JoinKind.ANTI):
                return in_left_names(pairs.select(LE, RE, *map(quote, names[0])), self)
            start, end = common_lifetime(points)
            return pairs.select(start.alias(LE), end.alias(RE), *(quote(n) for n in (*names[0], *names[1])))
        if self._meets_points:
            if points[0]:
                pairs = tiered_join(left, right, self.key_pairs, (LE, OTHER_LE, OTHER_RE), condition)
            else:
                pairs = tiered_join(right, left, [(b, a) for a, b in self.key_pairs], (OTHER_LE, LE, RE), condition)
            start, end = common_lifetime(points)
            return pairs.select(start.alias(LE), end.alias(RE), *(quote(n) for n in (*names[0], *names[1])))
        start, end = F.greatest(F.col(LE), F.col(OTHER_LE)), F.least(F.col(RE), F.col(OTHER_RE))
        if self.how != JoinKind.INNER:
            left = left.withColumn("__id", F.monotonically_increasing_id())
        pairs = overlap_join(left, right, self.key_pairs, condition, self.how in (JoinKind.LEFT, JoinKind.ANTI))
        if self.how == JoinKind.INNER:
            return pairs.select(start.alias(LE), end.alias(RE), *(quote(n) for n in (*names[0], *names[1])))
        alone = F.col(OTHER_LE).isNull()
        # a left event without a partner gets an empty piece, so that it is not lost
        pieces = pairs.withColumns({"__from": start, "__to": F.when(alone, F.col(LE)).otherwise(end)})
        if self.how == JoinKind.SEMI:
            return in_left_names(covered_parts(pieces, "__id", names[0]), self)
        parted = uncovered_parts(pieces, "__id")
        if self.how == JoinKind.ANTI:
            gaps = parted.select("*", F.explode("__gaps").alias("__gap")).drop(LE, RE)
            return in_left_names(
                gaps.select(F.col("__gap.a").alias(LE), F.col("__gap.b").alias(RE), *(quote(n) for n in names[0])), self
            )

        def part(start: Column, end: Column, paired: bool) -> Column:
            return F.struct(start.alias("a"), end.alias("b"), F.lit(paired).alias("paired"))

        lonely = F.transform("__gaps", lambda g: part(g["a"], g["b"], False))
        own = F.when(alone, F.filter(lonely, lambda g: F.lit(False))).otherwise(
            F.array(part(F.col("__from"), F.col("__to"), True))
        )
        every = parted.select("*", F.explode(F.concat(lonely, own)).alias("__part")).drop(LE, RE)
        return every.select(
            F.col("__part.a").alias(LE),
            F.col("__part.b").alias(RE),
            *(quote(n) for n in names[0]),
            *(F.when(F.col("__part.paired"), F.col(quote(n))).alias(n) for n in names[1]),
        )

    @property
    def _longest(self) -> int | None:
        """The greatest length of a lifetime of either side, in ticks; None if the plan does not bound it."""
        sides = [side.traits.longest for side in (self.left, self.right)]
        return None if None in sides else max(n for n in sides if n is not None)

    def with_keys(self, inputs: Sequence[Node], is_keyed: Sequence[bool], keys: tuple[str, ...]) -> Node:
        """Join within each group if both inputs carry the keys; a stream from outside is joined with every group.

        Raises PlanError if the left side is from outside, unless the join is inner.
        """
        if not is_keyed[0] and self.how != JoinKind.INNER:
            raise not_of_the_group(self, "its left side")
        on, left_names, right_names = self.pairs_with_keys(is_keyed, keys)
        return Join(
            inputs[0], inputs[1], on=on, where=self.where, how=self.how, left_names=left_names, right_names=right_names
        )


def in_left_names(df: DataFrame, node: Join) -> DataFrame:
    """Rename the columns of left events back to the names that they have in the left stream."""
    return df.withColumnsRenamed({to: n for n, to in node.left_names if n != to})


_OF_SPARK = {
    **dict.fromkeys(("leftouter", "left_outer"), "Write 'left'."),
    **dict.fromkeys(("leftsemi", "left_semi"), "Write 'semi'."),
    **dict.fromkeys(("leftanti", "left_anti"), "Write 'anti'."),
    **dict.fromkeys(("right", "rightouter", "right_outer"), "Write b.join(a, how='left')."),
    "cross": "An inner join without on= pairs all events that live at once.",
}
"""The hints for Spark's other names of join types."""


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

    footprint = Footprint(
        cti="start of the earliest window not final, the least over the inputs",
        final="windows that end at or before c",
        keeps="members of windows not final, in bins by their first window until that is due; pairs with "
        "windows to come",
        opens="parts, members whose first window is due, those of the other side that they may meet, and the "
        "pairs in a window that is due; of late rows, and with early=True of all, those of the other side in "
        "their groups",
        cost="the pairs that members make whose first window is due, and a row for each pair in a window that is due",
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
        both = self.left.traits | self.right.traits
        return replace(
            result_traits(self.window, Stamp.ALIGN, both),
            retracts=both.retracts,
            mixes_windows=self.window.grid.n > 1,
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


class JoinVerbs(Verbs):
    """``join``, ``left_anti_join`` and ``windowed_join``."""

    def join(
        self,
        other: Self,
        on: On = (),
        where: Callable[[Any, Any], Any] | Expr | None = None,
        how: str = JoinKind.INNER,
        *,
        suffixes: tuple[str, str] | None = None,
    ) -> Self:
        """Pair the events of two streams that match and live at once; a pair lives on ``[max(starts), min(ends))``.

        ``on``: the columns that must be equal: a name, several names, ``(left, right)`` pairs, or a mapping; NULL equals
        nothing. Without ``on`` any two events match. ``where``: a further condition, as a function of two events or an
        expression over the columns of the pair; it applies in every kind of join. ``how``: "inner"; "left" adds the parts of
        a left lifetime without a partner, with NULLs; "semi" and "anti" return the maximal parts of a left lifetime with, or
        without, a partner. ``suffixes``, as ``("_l", "_r")``, are appended to names that both streams have; keys of one name
        become one column. Warns if both streams are results of overlapping windows, which meet those of neighbouring windows.

        Raises UnknownColumn, TypeMismatch for keys of different types, AmbiguousColumn for clashing names without suffixes.
        (docs/concepts.md, "Joins"; Barga et al., CEDR.)

        ::

            left    a [1,6)
            right   x [2,4)  y [5,9)
            inner   ax [2,4)  ay [5,6)       anti   a [1,2) a [4,5)

        >>> import streamq as sq
        >>> l = sq.events([(1, 6, {"k": 1, "v": "a"})])
        >>> r = sq.events([(2, 4, {"k": 1, "w": "x"}), (5, 9, {"k": 1, "w": "y"})])
        >>> l.join(r, on="k").show()
        k  v  w  start  end
        1  a  x      2    4
        1  a  y      5    6
        >>> l.join(r, on="k", how="anti").show()
        k  v  start  end
        1  a      1    2
        1  a      4    5
        """
        kind = choose_word(JoinKind, how, "how", "join", _OF_SPARK.get(how, "") if isinstance(how, str) else "")
        keys, condition, *names = pair_fields(
            self.plan, other, on, where=where, suffixes=suffixes, how=kind, verb="join"
        )
        warn_of_paired_neighbours(self.plan, other.plan, keys, "join")
        return self._derive(Join(self.plan, other.plan, keys, condition, kind, *names), other)

    def left_anti_join(self, other: Self, on: On = (), where: Callable[[Any, Any], Any] | Expr | None = None) -> Self:
        """Keep the parts of this stream's lifetimes during which no event of ``other`` matches: ``join(..., how="anti")``.

        ::

            calls   [1,9)
            pauses  [3,5)
            result  [1,3)  [5,9)

        >>> import streamq as sq
        >>> calls, pauses = sq.events([(1, 9, {"k": 1})]), sq.events([(3, 5, {"k": 1})])
        >>> calls.left_anti_join(pauses, on="k").show()
        k  start  end
        1      1    3
        1      5    9
        """
        return self.join(other, on, where, JoinKind.ANTI)

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
                check_order(last, side.schema, f"windowed_join, on the {name}")
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
