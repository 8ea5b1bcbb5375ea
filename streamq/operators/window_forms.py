"""The batch forms of windows that are not merged from partial results of a grid."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.operators.batch_form import BatchChoice, BatchForm, BatchForms
from streamq.operators.merging import not_subtracted
from streamq.plan.aggregation import Aggregates, expand, not_merged
from streamq.plan.partial import SummablePartial, spark_partials
from streamq.plan.schema import Schema
from streamq.time import INFINITY
from streamq.windows import Window

MANY_WINDOWS = 4
"""The number of windows of an event from which on a batch costs less without copies of it."""


@dataclass(frozen=True, kw_only=True)
class WindowForms:
    """The choice of a batch form for ``aggregates`` of events of ``source``; ``is_grouped``: there are keys of groups."""

    aggregates: Aggregates
    source: Schema
    window: Window
    is_grouped: bool

    def forms(self) -> BatchForms:
        """Return the forms, one of which computes all aggregates.

        Snapshots are swept if all aggregates are exact, merged if Spark has all partial results. Else they are evaluated, unless
        one aggregate does not merge and one copies its members. Those, and other windows, copy their members, or are evaluated
        if Spark lacks one of the aggregates, or if the groups' events are in many windows each, of which no aggregate needs
        copies. But landmark windows with a period are copied if all aggregates merge: Spark adds up the copies before it sends
        them.
        """
        refused = {**self._refused_merging(), **self._refused_copies()}
        return BatchForms(cheapest=self._cheapest(refused), refused=refused)

    def _cheapest(self, refused: dict[BatchForm, str]) -> BatchChoice:
        """Return the form of the least cost; ``refused``: the forms that are not possible."""
        merges, copies = (
            not self._not_merged,
            any(aggregate.function.copies_members for _, aggregate in self.aggregates),
        )
        if self.window.is_piecewise:
            if BatchForm.SWEEP not in refused:
                return BatchChoice(form=BatchForm.SWEEP, reason="exact aggregates: added and taken off")
            if BatchForm.DYADIC not in refused:
                return BatchChoice(form=BatchForm.DYADIC, reason="partial results of ranges of snapshots")
            if merges or not copies:
                return BatchChoice(
                    form=BatchForm.EVALUATED, reason="snapshots of what Spark would copy each member for"
                )
        if BatchForm.DIRECT in refused:
            return BatchChoice(form=BatchForm.EVALUATED, reason=refused[BatchForm.DIRECT])
        number = self.window.windows_of_a_point
        are_added_first = merges and not self.window.by_numbers and number < INFINITY
        # without keys one task would have to evaluate all events
        if number >= MANY_WINDOWS and self.is_grouped and not copies and not are_added_first:
            windows = f"{number} windows" if number < INFINITY else "all later windows"
            return BatchChoice(
                form=BatchForm.EVALUATED, reason=f"each event is in {windows}, which costs less without copies"
            )
        return BatchChoice(form=BatchForm.DIRECT, reason="Spark aggregates copies of the members")

    @property
    def _not_merged(self) -> str:
        """The aggregates that do not merge, as text; "" if all do."""
        return not_merged(self.aggregates, self.source)

    def _refused_copies(self) -> dict[BatchForm, str]:
        """Return the reason against copies of members, if Spark lacks one of the aggregates."""
        functions = [aggregate.function for _, aggregate in self.aggregates]
        lacking = next((function for function in functions if not function.has_spark_form), None)
        return {} if lacking is None else {BatchForm.DIRECT: f"Spark has no aggregate for {lacking.name}"}

    def _refused_merging(self) -> dict[BatchForm, str]:
        """Return the reasons against the forms that merge partial results."""
        off_grid = "its windows are not on a grid"
        unsplit = (off_grid if self.window.grid is None else self._not_merged) or "its windows are not split"
        refused = dict.fromkeys((BatchForm.EXPLODE, BatchForm.DIFFERENCE, BatchForm.BLOCKS), unsplit)
        if not self.window.is_piecewise:
            return {**refused, BatchForm.DYADIC: unsplit, BatchForm.SWEEP: "its windows are no snapshots"}
        return {**refused, **self._refused_snapshots()}

    def _refused_snapshots(self) -> dict[BatchForm, str]:
        """Return the reasons against merging partial results of snapshots."""
        either = (BatchForm.DYADIC, BatchForm.SWEEP)
        if self._not_merged:
            return dict.fromkeys(either, self._not_merged)
        partials = spark_partials(expand(self.aggregates, self.source).partials)
        if partials is None:
            return dict.fromkeys(either, "partial results that Arrow makes and merges")
        inexact = [p for p in partials if not (isinstance(p, SummablePartial) and p.exact)]
        return {BatchForm.SWEEP: not_subtracted(inexact)} if inexact else {}


__all__ = ["MANY_WINDOWS", "WindowForms"]
