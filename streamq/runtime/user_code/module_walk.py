"""Calls of modules over windows: a walk from window to window, which reuses the state of the one before.

A module with states gets the changes since the last window, or all members, if they are fewer: ``states`` adds and removes them.
Cost: a sort of the members of each window that is called, and the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streamq.plan.partial import Mask, RangedMembers, ReducedColumn
from streamq.runtime.arrow.columnar import with_columns
from streamq.runtime.arrow.values import Ints, python_rows
from streamq.runtime.deltas import LE, RE
from streamq.runtime.user_code.calls import WindowCall
from streamq.runtime.user_code.code_values import FAILURES, instants_of
from streamq.runtime.user_code.states import FIRST, EventSlice, PartState, merged_parts


class WindowMembers(NamedTuple):
    """The members of a window, by number, as their places in the order in which the module gets them."""

    window: int
    place: Ints

    def some(self, mask: Mask) -> WindowMembers:
        """Return the members that a mask marks."""
        return WindowMembers(self.window, self.place[mask])


class ModuleWalk:
    """A walk over windows in order, which calls a module for each, over the members that pass; ``column`` names its arguments.

    ``_before`` are the members of the window that was called last, with their state; None: it failed, or there was none.
    """

    def __init__(
        self, calling: WindowCall, column: ReducedColumn, members: RangedMembers, passes: Callable[[pa.Table], Mask]
    ):
        """Select the rows that pass the filter, in the module's order."""
        self.calling, self.members, self.module = calling, members, calling.module
        self.rows = np.flatnonzero(passes(members.rows))
        if members.place is not None:
            self.rows = self.rows[np.argsort(members.place[self.rows], kind="stable")]
        self.first, self.last = members.first[self.rows], members.last[self.rows]
        rows = members.rows.take(pa.array(self.rows))
        sources = zip(calling.names, column.args, strict=True)
        self.columns = {name: rows.column(source).combine_chunks() for name, source in sources}
        self._before: tuple[WindowMembers, PartState] | None = None

    def results(self) -> Iterator[Any]:
        """Yield the result of each window: ``of_nothing`` if no member passes, None if the row is not asked for.

        None, too, for NULL and for a window that is set aside. A failed call that is not set aside raises ModuleFailed.
        """
        asked, order = self.members.asked, np.argsort(self.first, kind="stable")
        ends = np.searchsorted(self.first[order], np.arange(self.members.n), "right").tolist()
        place, begun = order[:0], 0
        for window, end in enumerate(ends):
            if asked is not None and not asked[window]:
                yield None
                continue
            place = np.sort(np.concatenate([place, order[begun:end]]), kind="stable")
            place, begun = place[self.last[place] >= window], end
            yield self._result(WindowMembers(window, place)) if len(place) else self.calling.of_nothing

    def _result(self, now: WindowMembers) -> Any:
        """Return the result of a call over the changes since the last window, or over all members if they are fewer.

        A failed call raises ModuleFailed, or sets the window aside and returns None. Under quarantine a failed call over changes
        is repeated over all members.
        """
        before, changes = self._changes(now)

        def compute() -> tuple[Any, PartState]:
            """Return the result, and the state."""
            part = merged_parts(before, self.module, *map(self._events, changes))
            assert part is not None
            return self.calling.answer(part.valid_state(), self._interval(now)), part

        try:
            result, part = self.calling.guarded(compute, itemgetter(0))
        except FAILURES as error:
            self._before = None
            if before and self.calling.quarantine:
                return self._result(now)
            self._handle_failure(now, error)
            return None
        self._before = now, part
        return result

    def _changes(self, now: WindowMembers) -> tuple[list[PartState], list[WindowMembers]]:
        """Return the state of the last window, with the members that have come and gone since; or no state, and all members.

        The latter if the module cannot take events in parts, or out again, or if as many have changed as there are. A member of
        both windows whose lifetime is cut anew, and read, counts as gone and added.
        """
        if self._before is None or not self.module.in_parts:
            return [], [now]
        before, part = self._before
        stays, stayed = self.first[now.place] <= before.window, self.last[before.place] >= now.window
        if self.module.sensitive:
            # members of both windows have the same order in both
            lifetimes = zip(self._lifetimes(now.some(stays)), self._lifetimes(before.some(stayed)), strict=True)
            is_cut_anew = np.any([new != old for new, old in lifetimes], axis=0)
            stays[np.flatnonzero(stays)[is_cut_anew]] = False
            stayed[np.flatnonzero(stayed)[is_cut_anew]] = False
        come, gone = now.some(~stays), before.some(~stayed)
        is_possible = self.module.remove is not None or not len(gone.place)
        is_less = len(come.place) + len(gone.place) < len(now.place)
        return ([part], [come, gone]) if is_possible and is_less else ([], [now])

    def _events(self, members: WindowMembers) -> EventSlice | None:
        """Return members as events that are added to a state, or removed; None if there are none."""
        if not len(members.place):
            return None
        return EventSlice(lambda: self.module.events(self._arguments(members)), (), len(members.place))

    def _arguments(self, members: WindowMembers) -> dict[str, pa.Array]:
        """Return the arguments of a window's members, with their lifetimes if the module reads them."""
        at = pa.array(members.place)
        columns = {name: column.take(at) for name, column in self.columns.items()}
        if self.module.sensitive:
            axis, lifetimes = self.calling.axis, zip(("start", "end"), self._lifetimes(members), strict=True)
            columns |= {name: instants_of(bound, axis) for name, bound in lifetimes}
        return columns

    def _lifetimes(self, members: WindowMembers) -> tuple[Ints, Ints]:
        """Return the starts and ends of a window's members, as it cuts them."""
        return self.members.cut(self.rows[members.place], np.full(len(members.place), members.window))

    def _handle_failure(self, now: WindowMembers, error: BaseException) -> None:
        """Set aside the members of a window whose call failed, once it can no longer change; else raise ModuleFailed.

        Nothing is set aside if the module or the run sets nothing aside.
        """
        first = python_rows(pa.table(self._arguments(WindowMembers(now.window, now.place[:FIRST]))))
        window, members = self._interval(now), self.members
        group = next(iter(python_rows(members.groups.slice(now.window, 1))), {})
        reason = self.calling.reason(error, self.calling.subject(window, group, first, len(now.place)))
        if not self.calling.quarantine or members.aside is None:
            raise self.calling.failure(reason) from error
        if members.final is None or members.final[now.window]:
            rows = self.rows[now.place]
            start, end = (bound[rows] for bound in members.lifetime)
            events = with_columns(members.rows.take(pa.array(rows)), {LE: start, RE: end})
            members.aside.add(self.module.name, reason, events, window=window, group=group)

    def _interval(self, now: WindowMembers) -> tuple[int, int]:
        start, end = self.members.window
        return int(start[now.window]), int(end[now.window])
