"""TopK: keeps the members of each window with the greatest (or least) values of an expression, and adds their rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from pyspark.sql import Column, DataFrame, WindowSpec
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.choices import ClipInput, Stamp
from streamq.errors import PlanError
from streamq.operators.evaluated_operator import batch_events
from streamq.operators.evaluation import Evaluation, PortColumns, all_columns
from streamq.operators.grid_factory import GridFactory
from streamq.operators.member_operator import MemberOperator
from streamq.operators.operator import BatchChoice, BatchForm, BatchForms, BatchRun, only_evaluated, shown_costs
from streamq.operators.window_forms import why_not_copied
from streamq.plan.expr import Col, Expr, show
from streamq.plan.footprint import Expected, ExpectedRates, Footprint
from streamq.plan.lowering import spark_expression
from streamq.plan.node import ADDED, Node, node
from streamq.plan.passes import infer
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, check_key, quote
from streamq.runtime.deltas import LE
from streamq.runtime.evaluators.window_evaluator import Ranking, TopKEvaluator
from streamq.time import INFINITY
from streamq.windows import Window
from streamq.windows.batch_events import (
    ENDS,
    HI,
    INDEX,
    LO,
    STARTS,
    grid_members,
    stamped,
    starting_before,
    window_lifetime,
)
from streamq.windows.window import show_lengths

RANK, ROW_NUMBER = "rank", "row_number"

BY, PLACE = "__by", "__place"
"""The columns of a batch with the value that members are ranked by, and with the rank, or place, by which they stay."""

UNRANKED = (BatchForm.DIFFERENCE, BatchForm.RUNNING, BatchForm.BLOCKS, BatchForm.DYADIC)
"""The batch forms that merge numbers."""

USUAL = 0.5
"""The best events of ranges of windows, by event, where nobody says how many there are. To copy all of them after all costs an
eighth more in 16 windows; to copy all events where few are the best costs many times as much."""


def choose_ranked_form(n: int, per_event: float | None) -> BatchChoice:
    """Choose the form for events in ``n`` windows each: to copy all of them, or only the best of those in the same windows.

    ``per_event``: how many of these there are for an event, at most 1; None if that is not known. 1 is the cost of an event that
    is copied into a window and ranked there; to rank an event before costs as much as two copies.
    """
    costs = {BatchForm.DIRECT: n, BatchForm.EXPLODE: 2 + n * (USUAL if per_event is None else per_event)}
    form = min(costs, key=lambda form: costs[form])
    reasons = {
        BatchForm.DIRECT: "too few windows an event for ranking twice to pay",
        BatchForm.EXPLODE: "the best of the events in the same windows are copied into them",
    }
    return BatchChoice(form=form, reason=f"n = {n}: {reasons[form]}{shown_costs(per_event, 'of the best', costs)}")


@node
class TopK(MemberOperator):
    """Ranks a window's members by ``by`` with SQL's RANK and keeps ranks up to ``k``.

    ``ties``: "keep" all members at the last rank, or "break" ties by the payload's columns in order, ascending, then LE and RE.
    ``row_number``: add each member's place among broken ties as a column. NULL is less than any value, NaN greater.
    """

    input: Node
    keys: tuple[str, ...]
    window: Window
    k: int
    by: Expr
    desc: bool
    ties: str
    clip: ClipInput
    stamp: Stamp
    row_number: bool = field(default=False, metadata=ADDED)

    title = "top_k"

    @property
    def footprint(self) -> Footprint:
        windows = self._footprint_of_windows
        form = "best" if self._is_grid else self._form_of_members
        kept = {
            "condensed": "; of settled ones that are in the same windows the best, of rows windows also the first",
            "best": "; the best events of each range of windows, all of them where they may be taken back",
        }
        settled, opened = self._state_of_members(form, "the best of")
        members = "a copy of each member in each of its windows that is not final, and a sort of the copies"
        best = "a sort of the events before the shuffle, and of the rows in a window that is reported"
        return replace(
            windows,
            cti=f"{windows.cti}; at point_at_end c",
            keeps=f"{windows.keeps}{kept.get(form, settled)}",
            opens=opened,
            cost=best if form == "best" else members,
            but_for="ties" if self.ties == "keep" else "",
        )

    @property
    def _is_grid(self) -> bool:
        """True if a stream keeps, instead of members, the best of ranges of windows."""
        return self.window.traits.grid is not None

    def _schema(self) -> Schema:
        """Return the input's columns and the places; raise PlanError for a ``by`` without an order and for clashing names."""
        source = self.input.schema
        self._check_keys()
        for name in source.names if self.ties == "break" else ():
            check_key(source.type_of(name), name, "top_k", "order")
        kind = infer(self.by, source, "top_k")
        if isinstance(kind, t.ArrayType | t.MapType | t.StructType | t.VariantType):
            raise PlanError("top_k", f"no order on {kind.simpleString()}", f"found {show(self.by)}")
        for name in self._places:
            if name in (n.lower() for n in source.names):
                raise PlanError("top_k", f"a column called {name!r}", "the result has one", "Rename it first.")
        shape = POINT if self.stamp == Stamp.POINT_AT_END else INTERVAL
        places = [Field(name, t.IntegerType()) for name in self._places]
        return source.with_fields([*source.fields, *places]).with_shape(shape)

    @property
    def _places(self) -> tuple[str, ...]:
        """The columns that the operator adds to the payload."""
        return (RANK, ROW_NUMBER) if self.row_number else (RANK,)

    @property
    def event_windows(self) -> Window:
        return self.window

    def detail(self) -> str:
        window = show_lengths(self.window, self.clip, self.stamp, self.schema.axis)
        shown = f"{self.window.name} {window}{self._shown_groups}"
        way = "greatest" if self.desc else "least"
        ties = "" if self.ties == "keep" else f", ties broken{', numbered' if self.row_number else ''}"
        return f"{self.k} {way} by {show(self.by)} in {shown}{ties}"

    def _evaluation(self) -> Evaluation:
        """Return the evaluator that ranks the members of windows."""
        source = self.input.schema
        assigner = self.window.assigner(source.names)
        evaluator = TopKEvaluator(
            assigner,
            self.keys,
            clip=self.clip,
            stamp=self.stamp,
            sensitive=False,
            ranking=self._ranking,
        )
        columns = (*all_columns(source), (BY, self.by))
        port = PortColumns(columns, self.outer_keys, assigner.traits.counting.order_by)
        return self._member_evaluation(evaluator, port, self.schema, factory=self._grid_factory())

    @property
    def _ranking(self) -> Ranking:
        """The rule by which members are ranked."""
        return Ranking(
            k=self.k,
            by=BY,
            desc=self.desc,
            ties=self.ties,
            payload=self.input.schema.names,
            rank=RANK,
            row_number=ROW_NUMBER if self.row_number else "",
        )

    def _grid_factory(self) -> GridFactory | None:
        """Return the factory of the kernel that keeps the best events of ranges of windows on a grid; None for others."""
        grid = self.window.traits.grid
        if grid is None:
            return None
        payload = tuple((name, Col(name)) for name in self.input.schema.names if name not in self.keys)
        return GridFactory(
            input=self.input,
            keys=self.keys,
            grid=grid,
            arguments=((BY, self.by), *payload),
            partials=(),
            merges=True,
            ranking=self._ranking,
            stamp=self.stamp,
        )

    def expected_rows(self, inputs: Sequence[float | None], expected: Expected) -> float | None:
        """Return the best of all windows of a grid, at most but for ties; None where they cannot be estimated.

        With ``ties="keep"`` all members at the last rank stay, however many they are.
        """
        (rows,), grid, groups = inputs, self.window.traits.grid, expected.groups(self.input, self.keys)
        if grid is None or groups is None:
            return None
        most = self.k * groups / grid.hop
        return most if rows is None or self.input.schema.shape != POINT else min(rows * grid.n, most)

    def batch_forms(self, rates: ExpectedRates) -> BatchForms:
        """Return the forms: over windows on a grid the best of each range of windows may be taken before they are copied."""
        grid = self.window.traits.grid
        refused = dict.fromkeys(UNRANKED, "only the best of each range of windows can be merged, as copies")
        cheapest = BatchChoice(form=BatchForm.DIRECT, reason="Spark ranks copies of the members")
        if self.window.traits.is_piecewise and self.input.traits.endless and self.k == 1 and self.input.schema.names:
            refused = dict.fromkeys(UNRANKED, "the best event is no sum")
            refused |= dict.fromkeys((BatchForm.DIRECT, BatchForm.EXPLODE), "events are not copied into snapshots")
            del refused[BatchForm.RUNNING]
            cheapest = BatchChoice(form=BatchForm.RUNNING, reason="no event ends: the best one so far")
            return BatchForms(cheapest=cheapest, refused=refused)
        if several_readings := why_not_copied(self.window):
            return only_evaluated(several_readings)
        if grid is None:
            refused = dict.fromkeys((*UNRANKED, BatchForm.EXPLODE), "its windows are not on a grid")
        else:
            factory = self._grid_factory()
            are_points = self.input.schema.shape == POINT
            best = factory.partials_an_event(rates) if factory is not None and are_points else None
            cheapest = choose_ranked_form(grid.n, best)
        return BatchForms(cheapest=cheapest, refused=refused)

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Copy members into their windows and rank them by Spark's RANK.

        With ``ties="keep"`` every member whose rank is at most ``k`` stays, else the first ``k`` in the order of value and
        payload. In the form EXPLODE only the best of those in the same windows are copied.
        """
        if self.digest in run.lasting:
            return self._best_of_last(inputs[0])
        form = self.batch_forms(run.rates).choose(run.hint).form
        if form is BatchForm.EVALUATED:
            return super().in_batch(inputs, run)
        if form is BatchForm.RUNNING:
            return stamped(self._best_so_far(inputs[0]), self.stamp, self.schema)
        source, grid = self.input.schema, self.window.traits.grid
        value = spark_expression(self.by, source)
        events = batch_events(self.input, inputs[0], run, self.keys, reads_bounds=grid is None)
        if form is BatchForm.EXPLODE:
            assert grid is not None
            is_single = source.shape == POINT and grid.divides
            members = grid_members(events, grid, whole=is_single).withColumn(BY, value)
            members = self._best(members, [HI] if is_single else [LO, HI])
            df, by = members.withColumn(INDEX, F.explode(F.sequence(LO, HI))), [INDEX]
            df = starting_before(df, grid, run.until)
        else:
            df, by = self.window.copies(events)
            df = df.withColumn(BY, value)
        df = self._best(df, by)
        df = self._with_places(df, by)
        if grid is not None:
            start, end = window_lifetime(grid)
            df = df.withColumns({STARTS: start, ENDS: end})
        return stamped(df, self.stamp, self.schema)

    def _with_places(self, best: DataFrame, by: Sequence[str]) -> DataFrame:
        """Add the ranks, and row numbers if asked for, to the best members of each group and value of ``by``."""
        # better ones of the best are among the best, so that ranks among these are ranks
        rank = F.col(PLACE) if self.ties == "keep" else F.rank().over(self._windows(by).orderBy(self._order))
        ranked = best.withColumn(RANK, rank.cast("int"))
        return ranked.withColumn(ROW_NUMBER, F.col(PLACE)) if self.row_number else ranked

    def _best_of_last(self, events: DataFrame) -> DataFrame:
        """Return the best members of the last snapshot of each group."""
        members = self._last_members(events).withColumn(BY, spark_expression(self.by, self.input.schema))
        bounds = {STARTS: F.max(LE).over(self._windows([])), ENDS: F.lit(INFINITY)}
        return stamped(self._with_places(self._best(members.withColumns(bounds), []), []), self.stamp, self.schema)

    def _best_so_far(self, events: DataFrame) -> DataFrame:
        """Return, for each snapshot of events that do not end, the events with the best value of those that have started.

        An event with that value is among the rows of its group since the value has been the best. Of each instant the last row
        has seen all events that start then.
        """
        value = F.struct(spark_expression(self.by, self.input.schema))
        names = [quote(name) for name in self.input.schema.names]
        keys = [quote(key) for key in self.keys]

        def so_far(*by: str) -> WindowSpec:
            return Over.partitionBy(*by).orderBy(LE).rangeBetween(Over.unboundedPreceding, Over.currentRow)

        best, next_start = (F.max if self.desc else F.min)(value), F.lead(LE).over(Over.partitionBy(*keys).orderBy(LE))
        df = events.withColumns({BY: value, "__best": best.over(so_far(*keys)), "__next": next_start})
        row = F.when(F.col(BY).eqNullSafe(F.col("__best")), F.struct(*names))
        same = so_far(*keys, "__best")
        winners = F.collect_list(row).over(same) if self.ties == "keep" else F.array(F.min(row).over(same))
        df = df.withColumn("__winners", winners)
        df = df.where(~F.col(LE).eqNullSafe(F.col("__next")))
        end = F.coalesce("__next", F.lit(INFINITY)).alias(ENDS)
        places = [F.lit(1).alias(place) for place in self._places]
        return df.select(F.col(LE).alias(STARTS), end, *places, F.inline("__winners"))

    def _best(self, members: DataFrame, by: Sequence[str]) -> DataFrame:
        """Return the best members of each group and value of ``by``, by the column BY, with their places, or ranks, in it."""
        windows = self._windows(by)
        if self.ties == "keep":
            place = F.rank().over(windows.orderBy(self._order))
        else:
            payload = [F.col(quote(name)) for name in self.input.schema.names]
            place = F.row_number().over(windows.orderBy(self._order, *payload))
        return members.withColumn(PLACE, place).where(F.col(PLACE) <= self.k)

    def _windows(self, by: Sequence[str]) -> WindowSpec:
        return Over.partitionBy(*(quote(k) for k in self.keys), *by)

    @property
    def _order(self) -> Column:
        return F.col(BY).desc() if self.desc else F.col(BY).asc()
