"""Calls of modules over windows: the choice of windows to call, and of the members to pass; and the memory of these calls.

Only windows whose rows are sent, and whose members have changed since the last micro-batch, are called; the others keep their
results (Ali et al., The Extensibility Framework in Microsoft StreamInsight, V.D and V.E). A module with states gets the changes
since the preceding window, or all members, if they are fewer. Cost: a hash per member and window, and the calls.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.partial import Mask, RangedMembers, ReducedColumn
from streamq.runtime.arrow.columnar import codes, expand_ranges, with_column
from streamq.runtime.arrow.rendering import python_rows
from streamq.runtime.arrow.values import Ints, float_bits
from streamq.runtime.deltas import LE, RE
from streamq.runtime.groups import BITS, HASH, Hashes, combine_hashes, group_hashes, hashes
from streamq.runtime.user_code.calls import FIRST, WindowCall, pickled
from streamq.runtime.user_code.code_values import FAILURES, instants_of

COPIES = 1_000_000
"""The approximate number of members of windows that are expanded at a time."""

RowNumbers = Ints
"""Rows of the members' table."""


@dataclass(frozen=True, eq=False)
class CallRecord:
    """A call: the hash of its window's group, the digest and number of the members, and its result as a pickle.

    A result of None is NULL, also for a window in quarantine; failure: the reason of that.
    """

    group: int
    digest: int
    count: int
    result: bytes | None
    failure: str | None = None


_STORED = pa.schema(
    [
        ("name", pa.string()),
        ("window", pa.uint64()),
        (HASH, pa.uint32()),
        ("digest", pa.uint64()),
        ("count", pa.int64()),
        ("result", pa.binary()),
        ("failure", pa.string()),
    ]
)


@dataclass(eq=False)
class CallMemory:
    """The calls of earlier micro-batches, and those of now, by the name of the result and a number that identifies the window."""

    before: dict[tuple[str, int], CallRecord] = field(default_factory=dict)
    now: dict[tuple[str, int], CallRecord] = field(default_factory=dict)

    @property
    def changes(self) -> pa.Table:
        """The calls that are new, and those no longer needed, with -1 as the number of members, as a table to store."""
        changed = {key: call for key, call in self.now.items() if self.before.get(key) != call}
        changed |= {key: replace(call, count=-1) for key, call in self.before.items() if key not in self.now}
        rows = [{"name": n, "window": window, HASH: call.group, **vars(call)} for (n, window), call in changed.items()]
        return pa.Table.from_pylist(rows, schema=_STORED)

    @staticmethod
    def from_table(table: pa.Table | None) -> CallMemory:
        """Return the memory stored in a table, None: an empty one."""
        rows = [] if table is None else latest_calls(table).to_pylist()
        return CallMemory({(row.pop("name"), row.pop("window")): CallRecord(row.pop(HASH), **row) for row in rows})


def latest_calls(table: pa.Table) -> pa.Table:
    """Return the last call of each window, without those no longer needed."""
    number, _ = codes(table, ["name", "window"])
    last = np.sort(table.num_rows - 1 - np.unique(number[::-1], return_index=True)[1])
    latest = table.take(pa.array(last))
    return latest.filter(pc.greater_equal(latest.column("count"), 0))


@dataclass(frozen=True)
class WindowBlock:
    """The windows ``first .. first + n - 1``; the members of one, in order, lie between two neighbours of ``ends`` in ``row``."""

    first: int
    row: RowNumbers
    ends: list[int]


@dataclass(frozen=True)
class WindowMembers:
    """The members of one window: rows, and the lifetimes that the module reads (None if it reads none)."""

    window: int
    row: RowNumbers
    start: Ints | None = None
    end: Ints | None = None

    def some(self, mask: Mask) -> WindowMembers:
        """Return the members that a mask marks."""
        if self.start is None or self.end is None:
            return WindowMembers(self.window, self.row[mask])
        return WindowMembers(self.window, self.row[mask], self.start[mask], self.end[mask])


StateChange = tuple[WindowMembers, WindowMembers]
"""The members that have been added to a state, and those removed from it."""


class ModuleWalk:
    """A walk over windows in order, which calls a module for each, over the members that pass; ``column`` names its arguments.

    ``_before`` are the members of the last window, ``_load`` returns the state after them.
    """

    def __init__(
        self, calling: WindowCall, column: ReducedColumn, members: RangedMembers, passes: Callable[[pa.Table], Mask]
    ):
        """Select the rows that pass the filter, in the module's order; if ``members`` has a memory, compute hashes."""
        self.calling, self.members, self.name = calling, members, column.name
        self.module = calling.module
        rows = np.flatnonzero(passes(members.rows))
        place = np.arange(members.rows.num_rows) if members.place is None else members.place
        # in the order in which a module gets a window's members
        self.rows = rows[np.argsort(place[rows], kind="stable")]
        sources = zip(calling.names, column.args, strict=True)
        self.columns = {name: members.rows.column(source).combine_chunks() for name, source in sources}
        self.memory: CallMemory | None = members.memory
        self._before: WindowMembers | None = None
        self._load: Callable[[], Any] | None = None
        self._failure: str | None = None
        if self.memory is not None:
            start, end = members.window
            self.groups = group_hashes(members.groups, members.groups.column_names)
            self.windows = combine_hashes([self.groups, start.view(np.uint64), end.view(np.uint64)])
            self.content = _value_hashes(self.columns, members.rows.num_rows)

    def results(self) -> Iterator[Any]:
        """Yield the result of each window: ``of_nothing`` if no member passes, None if the row is not asked for.

        None, too, for NULL and for a window that is set aside. A failed call that is not set aside raises ModuleFailed.
        """
        asked = self.members.asked
        for block in self._blocks():
            digests = None if self.memory is None else self._digests(block).tolist()
            for i, (a, b) in enumerate(pairwise(block.ends)):
                if asked is not None and not asked[block.first + i]:
                    yield None
                elif a == b:
                    yield self.calling.of_nothing
                else:
                    now = self._members_of(block.first + i, block.row[a:b])
                    yield self._result(now) if digests is None else self._remembered_result(now, digests[i])

    def _blocks(self) -> Iterator[WindowBlock]:
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

    def _digests(self, block: WindowBlock) -> Hashes:
        """Return a number for each window of a block that identifies its members as the module sees them.

        It is a sum over the members' hashes. A time-sensitive module's members are hashed with their lifetimes, as cut to the
        window; for a module that depends on their order, each is hashed with its place.
        """
        lengths = np.diff(block.ends)
        member_hashes = self.content[block.row]
        if self.module.sensitive:
            window = np.repeat(block.first + np.arange(len(lengths)), lengths)
            start, end = self.members.cut(block.row, window)
            member_hashes = combine_hashes([member_hashes, start.view(np.uint64), end.view(np.uint64)])
        if not self.module.any_order:
            place = np.arange(len(block.row)) - np.repeat(np.asarray(block.ends[:-1]), lengths)
            member_hashes = combine_hashes([member_hashes, place.view(np.uint64)])
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(member_hashes)])
        ends = np.asarray(block.ends)
        digests: Hashes = sums[ends[1:]] - sums[ends[:-1]]
        return digests

    def _remembered_result(self, now: WindowMembers, digest: int) -> Any:
        """Return the result of a window's last call if its members have not changed, else of a new call, and remember it.

        A window whose last call failed is set aside again.
        """
        assert self.memory is not None
        key = self.name, int(self.windows[now.window])
        call = self.memory.before.get(key)
        if call is None or (call.digest, call.count) != (digest, len(now.row)):
            result = self._result(now)
            body = None if result is None else pickled(result)
            group = int(self.groups[now.window]) >> BITS
            self.memory.now[key] = CallRecord(group, digest, len(now.row), body, self._failure)
            return result
        self.memory.now[key] = call
        if call.failure is not None:
            self._set_aside(now, call.failure)
        self._load = None
        return None if call.result is None else pickle.loads(call.result)

    # one window

    def _members_of(self, window: int, row: RowNumbers) -> WindowMembers:
        """Return the members of a window, with their lifetimes cut to it if the module reads them."""
        if not self.module.sensitive:
            return WindowMembers(window, row)
        return WindowMembers(window, row, *self.members.cut(row, np.full(len(row), window)))

    def _arguments(self, members: WindowMembers) -> dict[str, pa.Array]:
        """Return the arguments of a window's members, with their lifetimes if the module reads them."""
        at = pa.array(members.row)
        columns = {name: column.take(at) for name, column in self.columns.items()}
        if members.start is not None and members.end is not None:
            axis = self.calling.axis
            columns |= {"start": instants_of(members.start, axis), "end": instants_of(members.end, axis)}
        return columns

    def _result(self, now: WindowMembers) -> Any:
        """Return the result of a call over the changes since the preceding window, or over all members if they are fewer.

        The state is remembered for the window after this one. A failed call raises ModuleFailed, or sets the window aside and
        returns None. Under quarantine a failed call over changes is repeated over all members.
        """
        change = self._since_preceding(now)

        def compute() -> tuple[Any, Any]:
            """Return the result, and the state."""
            state = self._state_over(now) if change is None else self._changed_state(change)
            return self.calling.answer(state, self._interval(now)), state

        self._failure = None
        try:
            result, state = self.calling.guarded(compute, itemgetter(0))
            # in checking mode each of two calls has a copy
            self._before, self._load = now, (lambda: copy.deepcopy(state)) if self.calling.checked else lambda: state
            return result
        except FAILURES as error:
            self._load = None
            if change is not None and self.calling.quarantine:
                return self._result(now)
            self._handle_failure(now, error)
            return None

    def _handle_failure(self, now: WindowMembers, error: BaseException) -> None:
        """Set a window aside whose call failed, if module and run set such aside, else raise ModuleFailed."""
        events = pa.table(self._arguments(now))
        first = python_rows(events.slice(0, FIRST))
        about = self.calling.subject(self._interval(now), self._group(now), first, events.num_rows)
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

    # states

    def _state_over(self, members: WindowMembers) -> Any:
        return self.module.add(self.module.initial(), self.module.events(self._arguments(members)))

    def _changed_state(self, change: StateChange) -> Any:
        """Return the state of the preceding window with the removed members taken out, and the new ones added."""
        assert self._load is not None
        state, (come, gone) = self._load(), change
        if len(gone.row):
            assert self.module.remove is not None
            state = self.module.remove(state, self.module.events(self._arguments(gone)))
        if len(come.row):
            state = self.module.add(state, self.module.events(self._arguments(come)))
        return state

    def _since_preceding(self, now: WindowMembers) -> StateChange | None:
        """Return the change from the preceding window to this one; None if there is none, or its state is unknown.

        None, too, if the module cannot take events in parts, or out again, or if as many have changed as there are. A member of
        both windows whose lifetime is cut anew, and read, counts as gone and added.
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
        come, gone = now.some(~stays), before.some(~stayed)
        is_possible = self.module.remove is not None or not len(gone.row)
        return (come, gone) if is_possible and len(come.row) + len(gone.row) < len(now.row) else None


def _value_hashes(columns: Mapping[str, pa.Array], count: int) -> Hashes:
    """Return a number for each of ``count`` rows that identifies its values; floats count by their bits."""
    parts = [hashes(float_bits(c) if pa.types.is_floating(c.type) else c) for c in columns.values()]
    return combine_hashes([np.ones(count, np.uint64), *parts])
