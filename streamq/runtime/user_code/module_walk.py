"""Calls of modules over windows: the choice of windows to call, and of the members to pass.

Only windows whose rows are sent, and whose members have changed since the last micro-batch, are called; the others keep their
results (Ali et al., The Extensibility Framework in Microsoft StreamInsight, V.D and V.E). A module with states gets only changes:
since the last call of the same window, or since the preceding window, whichever is less; or all members, if they are fewer still.
Cost: a hash per member and window, and the calls.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.plan.partial import Mask, RangedMembers, ReducedColumn
from streamq.runtime.arrow.columnar import expand_ranges, with_column
from streamq.runtime.arrow.rendering import python_rows
from streamq.runtime.event import LE, RE
from streamq.runtime.user_code.calls import WindowCall, first_rows, pickled
from streamq.runtime.user_code.code_values import FAILURES
from streamq.runtime.user_code.member_changes import (
    CallMemory,
    RowNumbers,
    StateChange,
    WindowArguments,
    WindowBlock,
    WindowChanges,
    WindowMembers,
)

COPIES = 1_000_000
"""The approximate number of members of windows that are expanded at a time."""


def module_results(
    calling: WindowCall, column: ReducedColumn, members: RangedMembers, passes: Callable[[pa.Table], Mask]
) -> list[Any]:
    """Return a module's result for each window, over the members that pass, as :meth:`ModuleWalk.results` yields them.

    ``column`` names the columns of the arguments. A call that fails raises ModuleFailed if its window is not set aside.
    """
    walk = ModuleWalk(calling, column, members, passes)
    return [result for block in walk.blocks() for result in walk.results(block)]


class ModuleWalk:
    """A walk over windows in order; ``_before`` are the members of the last window, ``_load`` returns the state after them."""

    def __init__(
        self, calling: WindowCall, column: ReducedColumn, members: RangedMembers, passes: Callable[[pa.Table], Mask]
    ):
        """Select the rows that pass the filter, in the module's order; if ``members`` has a memory, detect what has changed."""
        self.calling, self.members = calling, members
        self.module = calling.module
        rows = np.flatnonzero(passes(members.rows))
        place = np.arange(members.rows.num_rows) if members.place is None else members.place
        # in the order in which a module gets a window's members
        self.rows = rows[np.argsort(place[rows], kind="stable")]
        memory: CallMemory | None = members.memory
        sources = dict(zip(calling.names, column.args, strict=True))
        self.arguments = WindowArguments.read(sources, members.rows, memory, passes)
        self._before: WindowMembers | None = None
        self._load: Callable[[], Any] | None = None
        self._body: bytes | None = None
        self._failure: str | None = None
        self._changes = None
        if memory is not None:
            self._changes = WindowChanges(column.name, self.module, members, memory, self.arguments)
        self.keeps_states = self.module.in_parts and (memory is not None or calling.quarantine)

    def blocks(self) -> Iterator[WindowBlock]:
        """Yield all windows, even empty ones, in blocks of at most ``COPIES`` members that pass, or of one window with more."""
        low, high, n = self.members.first[self.rows], self.members.last[self.rows], self.members.n
        counts = np.cumsum(np.bincount(low, minlength=n + 1)[:n] - np.bincount(high + 1, minlength=n + 1)[:n])
        total = np.cumsum(counts)
        first = 0
        while first < n:
            done = int(total[first - 1]) if first else 0
            last = max(first, int(np.searchsorted(total, done + COPIES, "right")) - 1)
            is_in = (low <= last) & (high >= first)
            which, window = expand_ranges(np.maximum(low[is_in], first), np.minimum(high[is_in], last))
            row = self.rows[is_in][which][np.argsort(window, kind="stable")]
            yield WindowBlock(first, row, [0, *np.cumsum(counts[first : last + 1]).tolist()])
            first = last + 1

    def results(self, block: WindowBlock) -> Iterator[Any]:
        """Yield the result of each window of a block: ``of_nothing`` if no member passes, None if the row is not asked for.

        None, too, for NULL and for a window that is set aside. A failed call that is not set aside raises ModuleFailed.
        """
        digests = self._changes.digests(block).tolist() if self._changes is not None else None
        asked = self.members.asked
        for i, (a, b) in enumerate(pairwise(block.ends)):
            if asked is not None and not asked[block.first + i]:
                yield None
                continue
            if a == b:
                yield self.calling.of_nothing
                continue
            now = self._members_of(block.first + i, block.row[a:b])
            yield self._result(now) if digests is None else self._remembered_result(now, digests[i])

    def _remembered_result(self, now: WindowMembers, digest: int) -> Any:
        """Return the result of a window's last call if its members have not changed, else of a new call, and remember it.

        A window whose last call failed is set aside again.
        """
        changes = self._changes
        assert changes is not None
        call = changes.unchanged(now, digest)
        if call is None:
            result = self._result(now, changes.since_last_call(now, digest))
            changes.remember(now, digest, result, state=self._body, failure=self._failure)
            return result
        if call.failure is not None:
            self._set_aside(now, call.failure)
        self._before, self._load = now, None if call.state is None else partial(pickle.loads, call.state)
        return None if call.result is None else pickle.loads(call.result)

    # one window

    def _members_of(self, window: int, row: RowNumbers) -> WindowMembers:
        """Return the members of a window, with their lifetimes cut to it if the module reads them."""
        if not self.module.sensitive:
            return WindowMembers(window, row)
        return WindowMembers(window, row, *self.members.cut(row, np.full(len(row), window)))

    def _arguments(self, members: WindowMembers) -> dict[str, pa.Array]:
        return self.arguments.of_members(members, self.calling.axis)

    def _result(self, now: WindowMembers, since_last_call: StateChange | None = None) -> Any:
        """Return the result of a call over the changes since the last call or the preceding window, or over all members.

        The fewest are passed. The state is remembered for the window after this one. A failed call raises ModuleFailed, or sets
        the window aside and returns None. Under quarantine a failed call over changes is repeated over all members, and its
        error, if there is one, is the one reported.
        """
        changes = (since_last_call, self._since_preceding(now))
        usable = [c for c in changes if c is not None and c.is_usable(self.module, len(now.row))]
        change = min(usable, key=lambda c: c.size, default=None)
        window = self._interval(now)

        def compute() -> tuple[Any, Any, bytes | None]:
            """Return the result, the state, and the pickled state, None if states are not remembered."""
            state = self.module.state_over(self._arguments(now)) if change is None else self._changed_state(change)
            # pickled here, so that a state that cannot be pickled fails for its own window
            body = pickled(state) if self.keeps_states else None
            asked = (state, self.calling.interval(window)) if self.module.sensitive else (state,)
            return self.calling.value(self.module.result(*asked), window), state, body

        self._body = self._failure = None
        try:
            result, state, self._body = self.calling.guarded(compute, itemgetter(0))
            # in checking mode each of two calls has a copy
            self._before, self._load = now, partial(copy.deepcopy, state) if self.calling.checked else lambda: state
            return result
        except FAILURES as error:
            if change is not None and self.calling.quarantine:
                # report the error over all members, not over the change
                change = None
                error = _error_of(lambda: self.calling.guarded(compute, itemgetter(0))) or error
            self._handle_failure(now, error)
            return None

    def _handle_failure(self, now: WindowMembers, error: BaseException) -> None:
        """Set a window aside whose call failed, if module and run set such aside, else raise ModuleFailed; forget the state."""
        self._before = self._load = self._body = None
        events = pa.table(self._arguments(now))
        about = self.calling.subject(self._interval(now), self._group(now), first_rows(events), events.num_rows)
        reason = self.calling.reason(error, about)
        if not self.calling.quarantine or self.members.aside is None:
            raise self.calling.failure(reason) from error
        self._failure = reason
        self._set_aside(now, reason)

    def _set_aside(self, now: WindowMembers, reason: str) -> None:
        """Set aside the members of a failed window for ``reason``, if it can no longer change; else do nothing."""
        if self.members.final is not None and not self.members.final[now.window]:
            return
        start, end = (bound[now.row] for bound in self.members.lifetime)
        events = with_column(with_column(self.members.rows.take(pa.array(now.row)), LE, start), RE, end)
        self.members.aside.add(self.module.name, reason, events, window=self._interval(now), group=self._group(now))

    def _interval(self, now: WindowMembers) -> tuple[int, int]:
        start, end = self.members.window
        return int(start[now.window]), int(end[now.window])

    def _group(self, now: WindowMembers) -> dict[str, Any]:
        return next(iter(python_rows(self.members.groups.slice(now.window, 1))), {})

    def _changed_state(self, change: StateChange) -> Any:
        """Return a state with the removed members taken out, and the new ones added."""
        state = change.load()
        if len(change.gone.row):
            assert self.module.remove is not None
            state = self.module.remove(state, self.module.read(self._arguments(change.gone)))
        if len(change.come.row):
            state = self.module.add(state, self.module.read(self._arguments(change.come)))
        return state

    def _since_preceding(self, now: WindowMembers) -> StateChange | None:
        """Return the change from the preceding window to this one; None if there is none, or its state is unknown.

        None, too, if the module cannot take events in parts. A member of both windows whose lifetime is cut anew, and read,
        counts as gone and added.
        """
        before = self._before
        if before is None or self._load is None or not self.module.in_parts or before.window != now.window - 1:
            return None
        stays, stayed = self.members.first[now.row] < now.window, self.members.last[before.row] >= now.window
        if now.start is not None and before.start is not None and now.end is not None and before.end is not None:
            # members of both windows have the same order in both
            is_cut_anew = (now.start[stays] != before.start[stayed]) | (now.end[stays] != before.end[stayed])
            stays[np.flatnonzero(stays)[is_cut_anew]] = False
            stayed[np.flatnonzero(stayed)[is_cut_anew]] = False
        return StateChange(self._load, now.some(~stays), before.some(~stayed))


def _error_of(call: Callable[[], Any]) -> Exception | SystemExit | None:
    """Return the error with which a call fails; None if it does not fail."""
    try:
        call()
    except FAILURES as error:
        return error
    return None
