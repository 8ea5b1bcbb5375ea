"""The base of operators over the members of each window; the window kind decides how they are evaluated."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamq.choices import ClipInput, Stamp
from streamq.operators.evaluated_operator import EvaluatedOperator
from streamq.operators.evaluation import (
    Columns,
    EndMoves,
    Evaluation,
    KernelFactory,
    KernelSite,
    PortColumns,
    RecomputeFactory,
)
from streamq.plan.expr import Lifetime
from streamq.plan.footprint import Footprint
from streamq.plan.node import Node, Traits
from streamq.plan.schema import Schema, check_key, show_keys, shown_name
from streamq.runtime.deltas import RE
from streamq.runtime.evaluators.member_evaluator import MemberEvaluator
from streamq.runtime.evaluators.window_evaluator import TopKEvaluator, WindowEvaluator
from streamq.runtime.kernel import Kernel
from streamq.runtime.kernels.condensing import CondensingKernel, WindowsKernel
from streamq.time import INFINITY
from streamq.windows import Window
from streamq.windows.window import result_traits

TOUCHED = "parts of a group that rows touch or with a window due"
"""The part of the state that is read where settled members are fewer rows."""


def due_parts(rows: str) -> str:
    """Return the part of the state, ``rows``, that is read of windows on a grid, in words."""
    parts = f"parts, the {rows} in a window that is due, and those of its group in one that is corrected"
    return f"{parts} (all of them in each micro-batch where a value reads an end that may still move)"


BOUNDS = {f"__lifetime_{part}": Lifetime(part) for part in ("start", "end")}
"""The columns, by name, that hold an event's lifetime, to group by lifetime; no result has them."""


class WindowsFactory(RecomputeFactory):
    """Makes the kernel ``windows``."""

    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        return WindowsKernel(**self.parameters(evaluation, site))


class CondensingFactory(RecomputeFactory):
    """Makes the kernel ``condensing``."""

    condenses = True

    def make(self, evaluation: Evaluation, site: KernelSite) -> Kernel:
        evaluator = cast(MemberEvaluator, evaluation.evaluator)
        is_combined = evaluator.combines and site.points and not site.retracts
        return CondensingKernel(
            **self.parameters(evaluation, site),
            ends_move=site.ends_move,
            retracts=site.retracts,
            combines=is_combined and not (site.early or site.blocks),
        )


class MemberOperator(EvaluatedOperator):
    """An operator over the members of each window, group by group of ``keys``: aggregates and ``top_k``."""

    input: Node
    keys: tuple[str, ...]
    window: Window
    clip: ClipInput
    stamp: Stamp

    @property
    def is_time_sensitive(self) -> bool:
        """True if results read the lifetimes of members, cut as ``clip`` says."""
        return False

    @property
    def has_last_snapshot(self) -> bool:
        """True if a batch computes the last snapshot of each group, which does not end, without the others.

        It has all events of the group if none ends, and starts with the last of them.
        """
        return self.window.traits.is_piecewise and self.stamp == Stamp.ALIGN

    def _last_members(self, events: DataFrame) -> DataFrame:
        """Return the members of last snapshots: of events that do not end all, of others the last of their own."""
        return events if self.input.traits.endless else events.where(F.col(RE) == INFINITY)

    @property
    def _form_of_members(self) -> str:
        """The case of its kernel: it keeps members, or replaces settled ones by fewer rows, for good or while they sleep."""
        if not self.evaluation.factory.condenses:
            return "members"
        return "asleep" if self.window.traits.is_piecewise else "condensed"

    @property
    def outer_keys(self) -> tuple[str, ...]:
        """The keys of the groups that have windows of their own; by the others the members of one window are grouped."""
        return self.window.traits.outer_keys(self.keys)

    @property
    def _condenses_windows(self) -> bool:
        """True if the settled events in the same windows are one row."""
        return False

    @property
    def _footprint_of_windows(self) -> Footprint:
        """The footprint as of an operator that keeps the members of its windows."""
        return self.window.footprint(self.input.traits.longest, self.keys, condenses=self._condenses_windows)

    def _state_of_members(self, form: str, stand_in: str) -> tuple[str, str]:
        """Return what is kept of settled members besides, and the part of the state that is read, in words.

        ``form`` is that of members, or any other of windows on a grid. ``stand_in`` is what replaces several settled members, as
        in "a row for" them.
        """
        early = "; with early=True all its events, of which none are condensed"
        match form:
            case "members":
                return "", self._footprint_of_windows.opens
            case "condensed":
                return "", f"{TOUCHED}: events not settled, and {stand_in} the others in the same windows{early}"
            case "asleep":
                kept = f"; of a group with many of them {stand_in} those that end about as late as one another, read instead of "
                opened = f"{TOUCHED}: new events, those that end soon, and {stand_in} each slot of the timing wheel"
                return f"{kept}them until then", f"{opened}; all its events where ends may still move{early}"
        return "", due_parts("rows")

    @property
    def _shown_groups(self) -> str:
        """The keys of the windows, then which events are members and the keys by which these are grouped, as explain shows it."""
        counting = self.window.traits.counting
        members = (f" where {shown_name(counting.where)}" if counting.where else "") + show_keys(counting.inner_keys)
        return show_keys(self.outer_keys) + (f", its members{members}" if members else "")

    def _check_keys(self) -> None:
        """Raise UnknownColumn or TypeMismatch for keys that the input does not have, or that cannot be compared."""
        for key in self.keys:
            check_key(self.input.schema.require(key, "group_by"), key)

    def _traits(self) -> Traits:
        """Return the traits of results; they mix windows if they live on ones that overlap, of ``per_window()`` if events do."""
        on_windows = self.stamp == Stamp.ALIGN
        # results of per_window() have the lifetimes of its events
        is_per_window = self.window.traits.is_piecewise and BOUNDS.keys() <= set(self.keys)
        mixes = self.input.traits.mixes_windows if is_per_window else self.window.traits.windows_of_a_point > 1
        traits = result_traits(self.window, self.stamp, self.input.traits)
        traits = replace(traits, on_windows=on_windows, mixes_windows=on_windows and mixes)
        if not (is_per_window and on_windows):
            return traits
        events = self.input.traits
        return replace(traits, endless=events.endless, cells=events.cells)

    def _member_evaluation(
        self,
        evaluator: WindowEvaluator | TopKEvaluator,
        port: PortColumns,
        schema: Schema,
        *,
        outputs: Columns = (),
        takes_ends: bool = False,
        sets_aside: bool = False,
        factory: KernelFactory | None = None,
    ) -> Evaluation:
        """Return the evaluation of an evaluator over the windows' members.

        ``takes_ends``: it reads members' ends not only to assign windows. ``sets_aside`` is that of the evaluation. ``factory``
        None: the kernel condenses events if the evaluator does.
        """
        is_time_bound, traits = self.stamp == Stamp.TIME_BOUND, self.window.traits
        # the CTI of the others is at most the start of each window that is not final, so ends of rows before it are final
        has_moving_ends = traits.is_piecewise and self.stamp != Stamp.POINT_AT_END and not self.is_time_sensitive
        by_starts = traits.counting.n and traits.counting.distinct != "end"
        is_pointwise = by_starts and not self.is_time_sensitive and not takes_ends
        waiting = replace(evaluator, waits_for_members=True)
        on_stream = waiting if takes_ends and self.input.traits.moves_ends else evaluator
        return Evaluation(
            evaluator=evaluator,
            inputs=(port,),
            schema=schema,
            outputs=outputs,
            bound=self.window.bound,
            pointwise=(0,) if is_pointwise else (),
            # a time-bound operator accepts moving ends: its promise does not cover values computed from them
            reads_ends=self.is_time_sensitive and not is_time_bound and not self.clip.cuts_ends,
            waiting=None if is_time_bound else waiting,
            moves=EndMoves.ALWAYS if has_moving_ends or is_time_bound else EndMoves.NEVER,
            group_columns=self.outer_keys,
            sets_aside=sets_aside,
            factory=factory or (CondensingFactory() if on_stream.condenses else WindowsFactory()),
        )
