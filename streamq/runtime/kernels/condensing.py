"""Kernels of aggregates over windows: only of the rows that are sent are the results computed.

A sum may overflow, and a module fail, over the members that a window has so far, though not over all that it will have. So
the windows whose rows nobody has been sent yet have no results. State and cost are those of ``recompute``, but:

Where results merge, settled events are replaced by few rows, with the partial results of several of them. Events that stay in
the same windows for good are one row from then on. Of snapshots, which part events as soon as one of them ends, those that
end about as late as one another are one row until then: meanwhile they sleep in a timing wheel, in slots that are the wider,
the farther away the ends are (Varghese and Lauck, *Hashed and Hierarchical Timing Wheels*). So the slots are few, however
many ends there are. The rows of a slot that is due are read together; those that end much later go into narrower slots.
State: the events that are not settled, and rows for the settled ones: those of each window, or of each range of windows that
have the same ones; of snapshots, those of each slot of the wheel, beside the sleeping events, which are read once their slot
is due.

With user modules only windows that are sent and have changed are called; the others have the results of the rows that were sent,
which have a digest of their windows' members. A window that fails is set aside once, when it is final: until then its members may
change. Cost: a hash per member, and a call for each window that is sent and has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.errors import ModuleFailed
from streamq.runtime.arrow.columnar import codes, concat, ints, with_column
from streamq.runtime.arrow.values import Ints, Mask, python_rows
from streamq.runtime.deltas import LE, RE, WAKES, WEIGHT, history_of, net_deltas, weighted, with_ends
from streamq.runtime.evaluators.member_evaluator import MemberEvaluator
from streamq.runtime.evaluators.window_evaluator import WindowEvaluator
from streamq.runtime.groups import GROUP_NUMBER, number_groups, with_hashes
from streamq.runtime.kernel import Arrival, Clock, Totals
from streamq.runtime.kernels.recompute import REPORTED, ActiveGroups, RecomputeKernel
from streamq.runtime.state.baskets import KernelBaskets
from streamq.runtime.state.time_bins import TimeBins
from streamq.runtime.time.lateness import QuarantineRows, weighted_events
from streamq.runtime.time.progress_rule import saturating
from streamq.runtime.user_code.code_values import LASTS, START
from streamq.time import INFINITY, MINUS_INFINITY

M = TypeVar("M", bound=MemberEvaluator)


@dataclass(frozen=True)
class WindowsKernel(RecomputeKernel[M]):
    """A kernel of results over the members of windows of any kind."""

    def _evaluated(self, groups: ActiveGroups) -> pa.Table:
        is_asked = partial(self._is_sent, clock=groups.clock)
        return self.evaluator.rows(groups.histories, groups.open_since, groups.upto, is_asked=is_asked)


ASLEEP = "asleep"
"""The basket of the deltas of events that sleep, in bins by slot."""

SLOT = "__slot"
"""The column of the slot in which a row sleeps: the instant from which on it is due."""


@dataclass(frozen=True)
class CondensingKernel(WindowsKernel[MemberEvaluator]):
    """A kernel of an evaluator that condenses events.

    The events in state and those in the wheel add up to all events that still matter: a slot has the events that sleep in it, and
    retracts the rows that stand for them.
    """

    ends_move: bool = False
    """True if an event's end may still move after its start has settled."""

    retracts: bool = False
    """True if an event may be taken back."""

    combines: bool = False
    """True if new events become one row for those alike in the same windows before they are sent; these are late together."""

    @property
    def _has_wheel(self) -> bool:
        """True if events sleep: windows part them by their ends, which cannot move."""
        return self.evaluator.assigner.traits.is_piecewise and not self.ends_move

    @property
    def _condenses(self) -> bool:
        """True if events are condensed: not if rows are sent at once, or wait for ends without which no event may be replaced."""
        return self.evaluator.condenses and not self._sends_at_once

    def combine(self, port: int, table: pa.Table) -> pa.Table:
        """Return new events, as one row for those of a group that are alike and in the same windows if events are combined."""
        if not self.combines or not table.num_rows:
            return table
        return self.evaluator.combined(with_ends(table))

    def _fresh(self, arrivals: Sequence[Arrival], totals: Totals) -> list[pa.Table]:
        """Return the deltas that have come, in the form in which events are condensed; late ones are counted."""
        if self.combines and arrivals:
            rows = concat([weighted_events(arrival, totals) for arrival in arrivals])
            deltas = with_hashes(rows, self.evaluator.group_columns[0])
        else:
            (deltas,) = super()._fresh(arrivals, totals)
        deltas = self.evaluator.condensable(deltas)
        if self._condenses and not self.retracts and self.evaluator.condenses_at_once:
            deltas = self._condensed_at_once(deltas)
        return [with_column(deltas, WAKES, np.full(deltas.num_rows, INFINITY)) if self._has_wheel else deltas]

    def _condensed_at_once(self, deltas: pa.Table) -> pa.Table:
        """Return new events as a row for those of a group that are alike and in the same windows: these are so for good."""
        (events,) = number_groups([history_of(deltas)], self.evaluator.group_columns)
        number = self.evaluator.alike_in_windows(events, MINUS_INFINITY)
        rows, _ = self.evaluator.condensed(events, number)
        return weighted(rows, 1).select(deltas.column_names)

    def _completed(self, fresh: list[pa.Table], state: KernelBaskets, clock: Clock, upto: int) -> list[pa.Table]:
        is_over = clock.c == INFINITY or not self._condenses
        woken = _wheel(state).take(INFINITY if is_over else upto) if self._has_wheel else None
        return fresh if woken is None else [concat([*fresh, woken.drop_columns([SLOT])])]

    def _outdated(self, groups: ActiveGroups, rows: pa.Table) -> list[tuple[Mask, pa.Table | None]]:
        """Return the events of final windows, and settled ones that are condensed, with the rows that replace these."""
        (events,), clock = groups.histories, groups.clock
        ((is_outdated, _),) = outdated = super()._outdated(groups, rows)
        if not self._condenses:
            return outdated
        is_settled = ~is_outdated & (ints(events, RE if self.ends_move else LE) < clock.c)
        if not self.evaluator.assigner.traits.counts_rows:
            # where windows count rows, those that stay by themselves say where others are
            alike = self.evaluator.alike(events, ints(events, GROUP_NUMBER))
            is_settled &= np.bincount(alike, is_settled)[alike] > 1
        settled = events.filter(pa.array(is_settled))
        number = self.evaluator.chains(settled, rows, clock.c)
        is_replaced = np.bincount(number)[number] > 1
        if self._has_wheel:
            is_replaced &= ints(settled, WAKES) == INFINITY
        elif not is_replaced.any():
            return outdated
        condensed, _ = self.evaluator.condensed(settled.filter(pa.array(is_replaced)), number[is_replaced])
        if self._has_wheel:
            left = int((~is_replaced).sum())
            remaining = concat([settled.filter(pa.array(~is_replaced)), condensed])
            sleeps, stand_ins = self._put_to_sleep(groups, remaining)
            condensed = concat([condensed.filter(pa.array(~sleeps[left:])), stand_ins])
            is_replaced[~is_replaced] = sleeps[:left]
        is_outdated[is_settled] = is_replaced
        return [(is_outdated, condensed)]

    def _put_to_sleep(self, groups: ActiveGroups, events: pa.Table) -> tuple[Mask, pa.Table]:
        """Put events of groups with many of them to sleep; return a mask of what is replaced, and the rows that stand for it.

        The rows of a slot are replaced together, those that stand for others with them, if one of them is awake.
        """
        c, upto = groups.clock.c, groups.upto
        wakes, end, group = ints(events, WAKES), ints(events, RE), ints(events, GROUP_NUMBER)
        # a window that ends at c - 1 may still have a row, a point at its end
        is_awake = (wakes == INFINITY) & (ints(events, LE) < c - 1) & (end >= upto) & (end < INFINITY)
        many = np.bincount(group[is_awake], minlength=int(group.max(initial=0)) + 1) > self.sizes.awake_upto
        slot = wakes.copy()
        slot[is_awake] = slots(end[is_awake], upto - 1, self.sizes.slot_parts)
        candidates = np.flatnonzero(many[group] & (slot < INFINITY))
        alike = self.evaluator.alike(events.take(pa.array(candidates)), group[candidates])
        number, first = codes(pa.table({"alike": alike, "slot": slot[candidates]}), ["alike", "slot"])
        has_awake = np.bincount(number, is_awake[candidates], minlength=len(first)) > 0
        is_replaced = (has_awake & (np.bincount(number, minlength=len(first)) > 1))[number]
        sleeps = np.zeros(events.num_rows, bool)
        sleeps[candidates[is_replaced]] = True
        sleeping = events.filter(pa.array(sleeps))
        stand_ins, of = self.evaluator.condensed(sleeping, number[is_replaced])
        stand_ins = with_column(stand_ins, WAKES, slot[candidates[first[of]]])
        deltas = concat([weighted(sleeping, 1), weighted(stand_ins, -1)]).drop_columns([GROUP_NUMBER])
        deltas = with_column(deltas, SLOT, np.concatenate([slot[sleeps], ints(stand_ins, WAKES)]))
        _wheel(groups.bins.state).append(net_deltas(deltas))
        return sleeps, stand_ins


def _wheel(state: KernelBaskets) -> TimeBins:
    return TimeBins(state, ASLEEP, SLOT, valued=SLOT)


def slots(at: Ints, now: int, parts: int) -> Ints:
    """Return the start of the slot of each instant, which is later than ``now``: an instant after ``now``, at most its own.

    The slot is not wider than the distance to the instant, divided by 2 to the power of ``parts``, which may be negative.
    """
    # modulo 2^64 a distance beyond int64 is right
    distance = at.view(np.uint64) - np.full(1, now, np.int64).view(np.uint64)
    width = np.clip(np.floor(np.log2(distance.astype(np.float64))).astype(np.int64) - parts, 0, 62)
    return np.maximum(now + 1, (at >> width) << width)


@dataclass(frozen=True)
class CallModulesKernel(RecomputeKernel[WindowEvaluator]):
    """A kernel of windows of which at least one reduction is a user's module."""

    sets_aside: bool = False
    """True if windows whose calls fail are set aside; a late output exists then."""

    time_bound_by: str = ""
    """The name of the user's time_bound operator, whose rows are final by their own lifetimes, not by windows; "": none."""

    def _evaluated(self, groups: ActiveGroups) -> pa.Table:
        """Return the evaluator's rows, calling modules only for windows whose members have changed since they were sent.

        The row of a window that fails has NULL as its result; once it is final, the window is set aside and counted. Failures
        that are not set aside raise ModuleFailed.
        """
        bins, clock = groups.bins, groups.clock
        sent = bins.read(REPORTED)
        is_asked = partial(self._is_sent, clock=clock)
        aside = QuarantineRows(lambda rows: ~self._is_open(rows, clock.c)) if self.sets_aside else None
        sent = pa.table({}) if sent is None else sent
        rows = self.evaluator.rows(groups.histories, groups.open_since, groups.upto, is_asked, aside, sent)
        if aside is not None:
            aside.count(groups.totals)
        return rows

    @property
    def _looks_at_final_rows(self) -> bool:
        """True if windows whose calls have failed are set aside once they are final."""
        return self.sets_aside

    def _difference(self, before: pa.Table | None, sent: pa.Table, c_before: int) -> pa.Table:
        """Return the difference that ``recompute`` sends; raise ModuleFailed if a time_bound operator breaks its promise."""
        delta = super()._difference(before, sent, c_before)
        if self.time_bound_by and c_before != MINUS_INFINITY:
            self._check_promise(delta, c_before)
        return delta

    def _check_promise(self, delta: pa.Table, c: int) -> None:
        """Raise ModuleFailed if rows of a time_bound operator have changed before c, against its promise."""
        rows = self.own_rows(delta)
        rows = with_column(rows, RE, np.minimum(ints(rows, RE), c))
        changed = net_deltas(rows.filter(pa.array(ints(rows, LE) < c)))
        if changed.num_rows:
            row = python_rows(changed.slice(0, 1))[0]
            shown = ", ".join(f"{n} = {v!r}" for n, v in row.items() if not n.startswith("__"))
            what = f"after CTI {c} the row ({shown}) at {row[LE]} has {'come' if row[WEIGHT] > 0 else 'gone'}"
            raise ModuleFailed(self.time_bound_by, "it breaks its promise to be time_bound", what)

    def own_rows(self, delta: pa.Table) -> pa.Table:
        """Return the rows within a delta's lists of rows, each with its own lifetime and the list's weight.

        Their columns are those of the lists, LE, RE, the group's and the weight; the window's number of members is left out. A
        row that says nothing about how long it lasts is endless.
        """
        (name,) = [r.column.name for r in self.evaluator.reductions]
        lists = delta.column(name).combine_chunks()
        at = pc.list_parent_indices(lists)
        rows = pa.Table.from_struct_array(pc.list_flatten(lists))
        start, lasts = ints(rows, START), pc.fill_null(rows.column(LASTS), INFINITY).to_numpy()
        end = np.where(lasts == INFINITY, INFINITY, saturating(start, lasts))
        rows = with_column(with_column(rows.drop_columns([START, LASTS]), LE, start), RE, end)
        for column in (*self.evaluator.keys, WEIGHT):
            rows = with_column(rows, column, delta.column(column).take(at))
        return rows
