"""WindowAggregate: aggregates the members of each window into one row on the window's interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from streamq.choices import ClipInput, Stamp
from streamq.operators.evaluated_operator import batch_events
from streamq.operators.evaluation import Columns, Evaluation, KernelFactory, KernelSite, PortColumns, RecomputeFactory
from streamq.operators.grid_factory import (
    GridFactory,
    NumberedFactory,
    SplitAggregates,
    partial_fields,
    split_aggregates,
)
from streamq.operators.member_operator import MemberOperator
from streamq.operators.operator import BatchForm, BatchForms, BatchRun, QuarantineEvents, RowKey
from streamq.operators.window_forms import WindowForms, snapshots
from streamq.plan.aggregate import Aggregate, SparkMembers, WindowPlace
from streamq.plan.aggregation import aggregate_type, filter_in_argument, is_mergeable
from streamq.plan.expr import Col, show
from streamq.plan.footprint import ExpectedRates, Footprint
from streamq.plan.lowering import instant, lifetime, payload_order, spark_expression
from streamq.plan.node import Node, node
from streamq.plan.partial import COUNT
from streamq.plan.passes import columns, reads_end
from streamq.plan.schema import INTERVAL, POINT, Field, Schema, lazy, quote, shown_name
from streamq.runtime.deltas import LE
from streamq.runtime.evaluators.window_evaluator import WindowEvaluator
from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.condensing import CallModulesKernel
from streamq.runtime.time.endpoints import Bound
from streamq.time import INFINITY, Grid
from streamq.user_code.uda import WindowModule
from streamq.user_code.udo import UserOperator
from streamq.windows import Window
from streamq.windows.batch_events import ENDS, STARTS, stamped, window_bounds
from streamq.windows.window import check_order, show_lengths

MOST_STATES = 64
"""The number of windows of an event up to which each has a state of a user's module; of more, members are kept."""


@node
class WindowAggregate(MemberOperator):
    """Reduces the members of each window, per group of ``keys``, to one row of ``aggregates``; empty windows have no row."""

    input: Node
    keys: tuple[str, ...]
    window: Window
    aggregates: tuple[tuple[str, Aggregate], ...]
    clip: ClipInput = ClipInput.FULL
    stamp: Stamp = Stamp.ALIGN

    @property
    def footprint(self) -> Footprint:
        """On a grid all aggregates merge, or some are computed from counted values; else results are computed from the members.

        Settled members are condensed, or sleep, if they may; by value if not all aggregates merge.
        """
        windows = self._footprint_of_windows
        if self._is_numbered:
            return replace(
                windows,
                cti="c",
                keeps="rows that start at c or later; partial results of the steps of windows to come; of rows that are sent "
                "before they are final also those that end with such a row",
                opens="parts, the partial results in a window that is due, and the rows from c on where rows are sent before "
                "they are final",
                cost="a sort of the rows that c passes, and a merge of the partial results in a window that is reported; "
                "before it is final, also of the rows from c on",
            )
        form = ("mergeable" if self.merges else "counted") if self.is_grid else self._form_of_members
        form = "states" if self.keeps_states else form
        # a lifetime cut at the window's end does not depend on the end of the member
        reads_ends = self.is_time_sensitive and not self.clip.cuts_ends
        moving = "; where a time-sensitive aggregate reads ends that are not clipped, "
        kept = {
            "condensed": "; settled ones that are in the same windows as one row, with their partial results"
            + "; new ones, too, as they are never taken back" * (form == "condensed" and self._is_condensed_at_once),
            "mergeable": "; as partial results, of many points in windows of 16 hops or more also those of blocks "
            "of hops",
            "counted": "; values by range of windows, with their numbers and partial results, of collect and "
            "time_weighted_avg also "
            "lifetimes",
            "states": "; a state of each module and window, with the events not yet added to it; values with weights where "
            "events may be taken back and a module has no remove",
        }
        settled, opened = self._state_of_members(form, "a row for")
        return replace(
            windows,
            cti=f"{windows.cti}; at point_at_end c"
            + f"{moving}at most the start (at point_at_end the end) of the earliest window not final" * reads_ends,
            final=f"{windows.final}{f'{moving}once their members are settled' * reads_ends}",
            keeps=f"{windows.keeps}{kept.get(form, settled)}"
            + "; one such row for each of their values, where a median, percentile or distinct count reads these"
            * self.keeps_values,
            opens=opened,
            cost=self._cost(form, is_by_value=self.keeps_values),
            for_good=self._kept_for_good,
        )

    @property
    def keeps_values(self) -> bool:
        """True if settled members in the same windows are a row for each of their values, as not all aggregates merge."""
        return not self.is_grid and not self.merges and self._form_of_members in ("condensed", "asleep")

    @property
    def _kept_for_good(self) -> str:
        """The rows that stay for good, in words; of windows that never stop growing, those that settled members become."""
        is_since_landmark = self.window.traits.windows_of_a_point == INFINITY
        if not is_since_landmark or not self.evaluation.factory.condenses:
            return self._footprint_of_windows.for_good
        told_apart = " and ".join(["group"] * bool(self.keys) + ["value"] * (not self.merges))
        return f"a row for each {told_apart}" if told_apart else ""

    def _cost(self, form: str, *, is_by_value: bool) -> str:
        """Return the cost of a micro-batch in a form of its state, in words."""
        if form == "mergeable":
            blocks = "of many points in many hops of O(log n) blocks"
            return f"a merge of the partial results in a window that is reported, {blocks}"
        if form == "states":
            return "a call of each module for each window of what came, and one for a window that is reported"
        if form == "counted":
            copies = "of which collect and time_weighted_avg have a copy in each window"
            return f"a merge of them, and a sort of the values in it, {copies}"
        cost = "O(n log n) in the events read and their windows not final"
        cost += "; and in the events that these rows stand for, of which no more is read" * is_by_value
        copies = "; collect and time_weighted_avg have a copy of each member in each of its windows"
        return cost + copies * (form == "members")

    @property
    def _is_condensed_at_once(self) -> bool:
        """True if events become one row a window as they come, because they are never taken back and windows are fixed."""
        evaluator = cast(WindowEvaluator, self.evaluation.evaluator)
        return evaluator.condenses_at_once and not self.input.traits.retracts

    @property
    def title(self) -> str:
        return self.window.name

    @property
    def is_time_sensitive(self) -> bool:
        return any(a.function.timed for _, a in self.aggregates)

    @property
    def ordered(self) -> bool:
        """True if an aggregate reads members in order, which is by start and then the whole payload."""
        return any(a.function.ordered for _, a in self.aggregates)

    @property
    def set_aside(self) -> tuple[QuarantineEvents, ...]:
        functions = dict.fromkeys(a.function for _, a in self.aggregates if isinstance(a.function, WindowModule))
        return tuple(QuarantineEvents(f.name, self.input.schema, in_windows=True) for f in functions if f.sets_aside)

    @property
    def reads_all(self) -> bool:
        """True if it reads all columns of its events, to order them or to set them aside."""
        return self.ordered or bool(self.set_aside)

    @lazy
    def merges(self) -> bool:
        """True if all aggregates can be merged from partial results."""
        return all(is_mergeable(a, self.input.schema) for _, a in self.aggregates)

    def _schema(self) -> Schema:
        """Return the keys and the aggregates; raise for keys, windows or arguments that do not fit the input."""
        source = self.input.schema
        self._check_keys()
        check_order(self.window, source, f"{self.window.name}_window")
        fields = [Field(k, source.type_of(k)) for k in self.keys]
        fields += [Field(name, aggregate_type(a, source)) for name, a in self.aggregates]
        return source.with_fields(fields).with_shape(POINT if self.stamp == Stamp.POINT_AT_END else INTERVAL)

    def detail(self) -> str:
        shown = ", ".join(f"{shown_name(name)} = {show(a)}" for name, a in self.aggregates)
        window = show_lengths(self.window, self.clip, self.stamp, self.schema.axis)
        return f"{window}{self._shown_groups}" + (f": {shown}" if shown else "")

    @property
    def module_notes(self) -> tuple[str, ...]:
        """The notes of the aggregates on how they are computed here, each once, after the aggregate's name."""
        notes = (
            f"{applied.function.name}: {note}"
            for _, applied in self.aggregates
            for note in applied.function.notes(applied, self._place_of(applied))
        )
        return tuple(dict.fromkeys(notes))

    def _place_of(self, applied: Aggregate) -> WindowPlace:
        """Return the facts about the window and the other aggregates from which explain's notes on ``applied`` are made.

        Aggregates of an equal function do not count as others.
        """
        source = self.input.schema
        beside = replace(self, aggregates=tuple((n, a) for n, a in self.aggregates if a.function != applied.function))
        others = [a for _, a in beside.aggregates]
        read = {*self.keys}.union(*(columns(a) for _, a in self.aggregates))
        return WindowPlace(
            windows=self.window.name,
            grid=self.window.traits.grid,
            counts_rows=self.window.traits.counts_rows,
            has_states=self.keeps_states,
            shares_starts=self._shares_starts,
            stamp=self.stamp,
            progress=self.progress,
            endless=self.input.traits.infinite,
            condenses=not self.is_grid and self.stamp != Stamp.TIME_BOUND and beside.evaluation.factory.condenses,
            unread=len([name for name in source.names if name not in read]),
            ordered_beside=tuple(a.function.name for a in others if a.function.ordered),
            unmerged_beside=tuple(a.function.name for a in others if not self._fits_grid(a)),
        )

    def row_key(self, inputs: Sequence[RowKey]) -> RowKey:
        """Return the group's keys, which identify a row with its start; beside them an error if windows may share a start.

        Columns that hold the rows of a user's operator are listed with it.
        """
        lists = {name: a.function for name, a in self.aggregates if isinstance(a.function, UserOperator)}
        wrong = f"{self.title} windows may share a start" if self._shares_starts else ""
        return RowKey(self.keys, wrong, lists=lists)

    @property
    def _shares_starts(self) -> bool:
        """True if results of several windows of one group may start at one instant: as at a landmark, or where rows tie."""
        is_at_landmark = self.window.bound is Bound.ALWAYS and self.stamp == Stamp.ALIGN
        return self.window.traits.counts_rows or is_at_landmark

    @property
    def event_windows(self) -> Window | None:
        # time-bound rows are final by c itself: ends of windows do not tell which events come too late for them
        return None if self.stamp == Stamp.TIME_BOUND else self.window

    @property
    def is_grid(self) -> bool:
        """True if a stream keeps, instead of members, partial results of ranges of windows, or their values with numbers.

        The windows are a grid, rows live on them or at their ends, and each aggregate merges or reads values alone.
        """
        if self.window.traits.grid is None or self.stamp == Stamp.TIME_BOUND:
            return False
        return self.keeps_states or all(self._fits_grid(a) for _, a in self.aggregates)

    @lazy
    def keeps_states(self) -> bool:
        """True if a stream keeps a state of a user's module for each window, because its states do not merge.

        The windows are a grid, each event is in few of them, and all other aggregates merge.
        """
        longest, grid = self.input.traits.longest, self.window.traits.grid
        if grid is None or self.stamp == Stamp.TIME_BOUND or longest is None or self.input.traits.infinite:
            return False
        if grid.n + (longest - 1) // grid.hop > MOST_STATES:
            return False
        others = [a for _, a in self.aggregates if not is_mergeable(a, self.input.schema)]
        return bool(others) and all(a.function.has_window_state for a in others)

    @property
    def _is_numbered(self) -> bool:
        """True if a stream keeps partial results of windows by the numbers of rows: all rows are counted, members are grouped.

        The aggregates merge, and read neither the members' order nor their lifetimes; no row may be taken back.
        """
        counting = self.window.traits.counting
        has_groups = counting.where or counting.inner_keys
        if not has_groups or self.outer_keys or self.stamp != Stamp.POINT_AT_END:
            return False
        return self.adds_up_rows and not self.input.traits.retracts

    @property
    def adds_up_rows(self) -> bool:
        """True if results merge, and depend neither on the order of members nor on their lifetimes."""
        return self.merges and not (self.ordered or self.is_time_sensitive)

    @property
    def numbered_grid(self) -> GridFactory:
        """The factory of the kernel of windows of rows over the axis of their numbers."""
        counting = self.window.traits.counting
        windows = self._grid_factory(Grid(counting.n, counting.step), self._split(), ())
        return replace(windows, merges=True, stamp=Stamp.ALIGN)

    def _fits_grid(self, aggregate: Aggregate) -> bool:
        """True if an aggregate merges, or a stream computes it on a grid beside others that do."""
        function = aggregate.function
        return function.of_values or function.copies_members or is_mergeable(aggregate, self.input.schema)

    @property
    def _reads_values(self) -> bool:
        """True if each aggregate merges, or reads nothing of a member but values."""
        return all(a.function.of_values or is_mergeable(a, self.input.schema) for _, a in self.aggregates)

    def _evaluation(self) -> Evaluation:
        """Return the evaluator of windows: mergeable aggregates use partial results, the others reductions over members.

        Equal argument expressions share a column, also the payload columns that quarantine needs.
        """
        source = self.input.schema
        payload = source.names if self.set_aside else ()
        split = self._split(payload)
        # partial results hold what orders them
        is_ordered = any(a.function.ordered and not is_mergeable(a, source) for _, a in self.aggregates)
        reads_all = is_ordered if self.is_grid else self.reads_all
        order = tuple(split.events.column(Col(n)) for n in source.names) if reads_all else ()
        assigner = self.window.assigner(source.names)
        traits, counting = assigner.traits, assigner.traits.counting
        beside = (*counting.order_by, *filter(None, [counting.where]))
        columns = dict(self._with_group((*split.events.columns.items(), *((n, Col(n)) for n in beside))))
        fields = [Field(k, source.type_of(k)) for k in self.keys] + [Field(COUNT, t.LongType())]
        fields += [*partial_fields(split.partials), *split.reduced]
        # among rows equal in all columns, the one that ends first comes first
        by_ends = traits.counts_rows and any(reads_end(e) for e in columns.values())
        by_ends |= bool(payload) and not self.input.traits.moves_ends
        evaluator = WindowEvaluator(
            assigner,
            self.keys,
            clip=self.clip,
            stamp=self.stamp,
            sensitive=self.is_time_sensitive,
            partials=split.partials,
            reductions=split.reductions,
            order=order,
            payload=payload,
            reads_values=self._reads_values,
        )
        time_bound_by = self.aggregates[0][1].function.name if self.stamp == Stamp.TIME_BOUND else ""
        factory: KernelFactory | None = None
        if self.is_grid and traits.grid is not None:
            factory = self._grid_factory(traits.grid, split, order)
        elif self._is_numbered:
            factory = NumberedFactory(windows=self.numbered_grid)
        elif any(reduction.calls_module for reduction in split.reductions):
            factory = _CallModulesFactory(time_bound_by)
        return self._member_evaluation(
            evaluator,
            PortColumns(tuple(columns.items()), self.outer_keys, counting.order_by),
            self.schema.with_fields(fields),
            outputs=self._with_group(split.outputs),
            takes_ends=by_ends,
            sets_aside=bool(payload),
            factory=factory,
        )

    def _split(self, payload: Iterable[str] = ()) -> SplitAggregates:
        """Return the aggregates as partial results, where they merge, and as reductions; ``payload`` are columns read beside."""
        return split_aggregates(self.aggregates, self.input.schema, self.schema, payload)

    def _with_group(self, columns: Columns) -> Columns:
        """Return columns after those of the group."""
        return (*((key, Col(key)) for key in self.keys), *columns)

    def _grid_factory(self, grid: Grid, split: SplitAggregates, order: tuple[str, ...]) -> GridFactory:
        """Return the factory of the kernel that merges partial results and counts values of ranges of windows."""
        partials, reductions = split.partials, split.reductions
        if self.keeps_states:
            types = {field.name: field.type for field in split.reduced}
            states = [reduction.window_state(types[reduction.column.name]) for reduction in reductions]
            partials, reductions = (*partials, *(state for state in states if state is not None)), ()
        return GridFactory(
            input=self.input,
            keys=self.keys,
            grid=grid,
            arguments=tuple(split.events.columns.items()),
            partials=partials,
            merges=self.keeps_states,
            reductions=reductions,
            clip=self.clip,
            order=order,
            stamp=self.stamp,
        )

    @property
    def _condenses_windows(self) -> bool:
        return self.merges and self._form_of_members == "condensed"

    def copied_column(self, name: str) -> str | None:
        return name if name in self.keys else None

    def batch_forms(self, rates: ExpectedRates) -> BatchForms:
        """Return the batch forms, each for all aggregates."""
        return WindowForms(
            aggregates=self.aggregates,
            source=self.input.schema,
            window=self.window,
            is_grouped=bool(self.keys),
            endless=self.input.traits.endless,
        ).forms()

    def in_batch(self, inputs: Sequence[DataFrame], run: BatchRun) -> DataFrame:
        """Compute the windows in the form that is chosen."""
        source = self.input.schema
        if self.digest in run.lasting:
            return self._last_snapshots(inputs[0])
        match self.batch_forms(run.rates).choose(run.hint).form:
            case BatchForm.EVALUATED:
                return super().in_batch(inputs, run)
            case BatchForm.DIFFERENCE | BatchForm.RUNNING as form:
                rows = snapshots(source, self.keys, self.aggregates, inputs[0], form)
                return stamped(rows, self.stamp, self.schema)
        values = self._spark_aggregates
        reads_bounds = any(a.function.reads_window for _, a in self.aggregates)
        events = batch_events(self.input, inputs[0], run, self.keys, reads_bounds=reads_bounds)
        members, by = self.window.copies(events)
        keys = [quote(k) for k in self.keys]
        rows = members.groupBy(*keys, *by).agg(*values) if values else members.select(*keys, *by).distinct()
        grid = None if STARTS in by else self.window.traits.grid
        return stamped(rows, self.stamp, self.schema, *(() if grid is None else window_bounds(grid)))

    @property
    def _spark_aggregates(self) -> list[Column]:
        """Spark's own aggregates of members, by their names."""
        return [spark_aggregate(a, self.input.schema, self.clip).alias(name) for name, a in self.aggregates]

    @property
    def has_last_snapshot(self) -> bool:
        functions = [aggregate.function for _, aggregate in self.aggregates]
        in_spark = all(f.has_spark_form and not (f.timed or f.reads_window) for f in functions)
        return super().has_last_snapshot and in_spark

    def _last_snapshots(self, events: DataFrame) -> DataFrame:
        """Return the last snapshot of each group, by Spark's own aggregates of all that do not end."""
        members = self._last_members(events).groupBy(*(quote(k) for k in self.keys))
        rows = members.agg(F.max(LE).alias(STARTS), *self._spark_aggregates).where(F.col(STARTS).isNotNull())
        return stamped(rows.withColumn(ENDS, F.lit(INFINITY)), self.stamp, self.schema)


@dataclass(frozen=True)
class _CallModulesFactory(RecomputeFactory):
    """Makes the kernel ``call_modules``, which remembers module calls so as not to repeat them.

    ``time_bound_by``: the module whose rows are final before their windows are; "" for none.
    """

    time_bound_by: str

    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        sets_aside = evaluation.sets_aside and site.late_output
        parameters = self.parameters(evaluation, site)
        return CallModulesKernel(**parameters, sets_aside=sets_aside, time_bound_by=self.time_bound_by)

    @property
    def can_hold(self) -> bool:
        return not self.time_bound_by


def spark_aggregate(aggregate: Aggregate, schema: Schema, clip: ClipInput = ClipInput.FULL) -> Column:
    """Return Spark's own aggregate of a window's members; each member's row also has the window's interval.

    The aggregate must have a form on Spark.
    """
    aggregate = filter_in_argument(aggregate)

    def cut_lifetime() -> tuple[Column, Column]:
        le, re = lifetime(schema)
        le = F.greatest(le, F.col(STARTS)) if clip.cuts_starts else le
        return le, F.least(re, F.col(ENDS)) if clip.cuts_ends else re

    members = SparkMembers(
        values=[spark_expression(arg, schema) for arg in aggregate.args],
        options=aggregate.options,
        passes=None if aggregate.where is None else spark_expression(aggregate.where, schema),
        order=lambda: F.struct(F.col(LE), *payload_order(schema, schema.names), lifetime(schema)[1]),
        lifetime=cut_lifetime,
        window=lambda: (F.col(STARTS), F.col(ENDS)),
        instant=lambda ticks: instant(ticks, schema.axis),
    )
    column = aggregate.function.on_spark(members)
    assert column is not None, f"Spark has no aggregate for {aggregate.name}"
    return column
