"""Modules over windows: which windows are called, and with what.

Only windows whose rows are sent, and whose members have changed since the last micro-batch, are called; the others keep their
results (Ali et al., The Extensibility Framework in Microsoft StreamInsight, V.D and V.E). A module with states is given what has
changed: since the last call of the same window, or since the window before it, whichever is less, or, where that is less still,
all members. Cost: a hash a member and window, and the calls.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.plan.reduction import Mask, RangedMembers, ReducedColumn
from streamq.runtime.bucket import Hashes, beside, hashes
from streamq.runtime.call_memory import CallMemory, Remembered
from streamq.runtime.columnar import ints, runs
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.module_calls import Calling, Failure, guarded, pickled
from streamq.runtime.user_results import FAILURES
from streamq.runtime.values import Ints, bits
from streamq.runtime.window_interval import instants_of

COPIES = 1_000_000
"""About so many members of windows are laid out at a time."""

Rows = Ints
"""Rows of the members' table."""


def module_results(
    calling: Calling, column: ReducedColumn, members: RangedMembers, passes: Callable[[pa.Table], Mask]
) -> list[Any]:
    """Return what a module gives for each window, over the members that pass; None for a window in quarantine."""
    walk = _Walk(calling, column, members, passes)
    return [result for block in walk.blocks() for result in walk.results(block)]


@dataclass(frozen=True)
class _Block:
    """The windows ``first .. first + n - 1``; the members of one, in order, lie between two neighbours of ``ends`` in ``row``."""

    first: int
    row: Rows
    ends: list[int]


@dataclass(frozen=True)
class _Members:
    """The members of one window, as rows and the lifetimes that the module reads (for one that reads none, nothing)."""

    window: int
    row: Rows
    start: Ints | None = None
    end: Ints | None = None

    def some(self, mask: Mask) -> _Members:
        """Those of a mask."""
        if self.start is None or self.end is None:
            return _Members(self.window, self.row[mask])
        return _Members(self.window, self.row[mask], self.start[mask], self.end[mask])


class _Walk:
    """A walk over the windows in their order; ``_before`` are the members of the last window, ``_state`` the state over them."""

    def __init__(
        self, calling: Calling, column: ReducedColumn, members: RangedMembers, passes: Callable[[pa.Table], Mask]
    ):
        self.calling, self.name, self.members = calling, column.name, members
        self.module = calling.module
        rows = np.flatnonzero(passes(members.rows))
        place = np.arange(members.rows.num_rows) if members.place is None else members.place
        # in the order in which a window's members are handed over
        self.rows = rows[np.argsort(place[rows], kind="stable")]
        self.sources = dict(zip(calling.names, column.args, strict=True))
        self.columns = {n: members.rows.column(source).combine_chunks() for n, source in self.sources.items()}
        self._before: _Members | None = None
        self._state: Any = None
        memory: CallMemory | None = members.memory
        self._changes = None if memory is None else _Changes(self, memory, passes)

    def blocks(self) -> Iterator[_Block]:
        """Yield the windows in blocks of about ``COPIES`` members."""
        low, high, n = self.members.first[self.rows], self.members.last[self.rows], self.members.n
        counts = np.cumsum(np.bincount(low, minlength=n + 1)[:n] - np.bincount(high + 1, minlength=n + 1)[:n])
        total = np.cumsum(counts)
        first = 0
        while first < n:
            done = int(total[first - 1]) if first else 0
            last = max(first, int(np.searchsorted(total, done + COPIES, "right")) - 1)
            is_in = (low <= last) & (high >= first)
            which, window = runs(np.maximum(low[is_in], first), np.minimum(high[is_in], last))
            row = self.rows[is_in][which][np.argsort(window, kind="stable")]
            yield _Block(first, row, [0, *np.cumsum(counts[first : last + 1]).tolist()])
            first = last + 1

    def results(self, block: _Block) -> Iterator[Any]:
        """Yield the result of each window of a block: that of nothing where all are filtered out, None where nobody asks."""
        digests = self._changes.digests(block).tolist() if self._changes is not None else None
        asked = self.members.asked
        for i, (a, b) in enumerate(pairwise(block.ends)):
            if asked is not None and not asked[block.first + i]:
                yield None
                continue
            if a == b:
                yield self.calling.of_nothing
                continue
            now = self._cut(block.first + i, block.row[a:b])
            yield self._result(now) if digests is None else self._remembered_result(now, digests[i])

    def _remembered_result(self, now: _Members, digest: int) -> Any:
        """The result of a window: that of the last call, if its members are what they were, else of a new call."""
        changes = self._changes
        assert changes is not None
        call = changes.unchanged(now, digest)
        if call is None:
            result = self._result(now, changes.since_last_call(now, digest))
            try:
                changes.remember(now, digest, result, self._state)
            except FAILURES as error:  # a state that cannot be pickled
                self._failed(now, error)
                result = None
                changes.remember(now, digest, result, self._state)
            return result
        self._before, self._state = now, None if call.state is None else _Pickled(call.state)
        return None if call.result is None else pickle.loads(call.result)

    # one window

    def _cut(self, window: int, row: Rows) -> _Members:
        if not self.module.sensitive:
            return _Members(window, row)
        return _Members(window, row, *self.members.cut(row, np.full(len(row), window)))

    def _arguments(self, members: _Members) -> dict[str, pa.Array]:
        """The arguments of members by name, and, for a module that reads them, their lifetimes."""
        at = pa.array(members.row)
        columns = {n: column.take(at) for n, column in self.columns.items()}
        if members.start is not None and members.end is not None:
            axis = self.calling.axis
            columns |= {"start": instants_of(members.start, axis), "end": instants_of(members.end, axis)}
        return columns

    def _events(self, members: _Members) -> Any:
        return self.module.read(self._arguments(members))

    def _result(self, now: _Members, since_last_call: _Change | None = None) -> Any:
        """The result of a call: over what has changed since the last one or since the window before, or over all members."""
        changes = [c for c in (since_last_call, self._since_neighbour(now)) if c is not None]
        change = min(changes, key=lambda c: c.size, default=None)
        start, end = self.members.window
        window = int(start[now.window]), int(end[now.window])

        def compute() -> tuple[Any, Any]:
            is_less = change is not None and change.size < len(now.row)
            state = self._changed(change) if change is not None and is_less else self._over(now)
            asked = (state, self.calling.interval(window)) if self.module.sensitive else (state,)
            return self.calling.value(self.module.result(*asked), window), state

        try:
            result, self._state = guarded(self.calling, compute)
            self._before = now
            return result
        except FAILURES as error:
            self._failed(now, error)
            return None

    def _failed(self, now: _Members, error: BaseException) -> None:
        """Set a window aside whose call failed, where there is an output for it; raises ModuleFailed else."""
        self._before = self._state = None
        start, end = self.members.window
        window = int(start[now.window]), int(end[now.window])
        group = self.members.groups.slice(now.window, 1).to_pylist()
        events = pa.table(self._arguments(now))
        failure = Failure(self.module.name, window, group[0] if group else {}, error, events)
        memory: CallMemory | None = self.members.memory
        if not self.calling.quarantine or memory is None or not memory.sets_aside:
            raise failure.raised(self.calling) from error
        memory.failures.append((self.calling, failure))

    def _over(self, now: _Members) -> Any:
        return self.module.add(self.module.initial(), self._events(now))

    def _changed(self, change: _Change) -> Any:
        """A state without what has gone, and with what has come."""
        state = change.state
        if isinstance(state, _Pickled):
            state = pickle.loads(state.body)
        elif self.calling.checked:
            state = copy.deepcopy(state)
        if len(change.gone.row):
            assert self.module.remove is not None
            state = self.module.remove(state, self._events(change.gone))
        return self.module.add(state, self._events(change.come)) if len(change.come.row) else state

    def _since_neighbour(self, now: _Members) -> _Change | None:
        """The way from the window before to this one; None where there is none, or its state is not known."""
        before = self._before
        if before is None or self._state is None or not self.module.in_parts or before.window != now.window - 1:
            return None
        stays, stayed = self.members.first[now.row] < now.window, self.members.last[before.row] >= now.window
        if now.start is not None and before.start is not None and now.end is not None and before.end is not None:
            # those of both windows are in the same order in both
            is_cut_anew = (now.start[stays] != before.start[stayed]) | (now.end[stays] != before.end[stayed])
            stays[np.flatnonzero(stays)[is_cut_anew]] = False
            stayed[np.flatnonzero(stayed)[is_cut_anew]] = False
        if self.module.remove is None and not stayed.all():
            return None
        return _Change(self._state, now.some(~stays), before.some(~stayed))


class _Changes:
    """What has changed since the micro-batch before: digests of the windows' members tell."""

    def __init__(self, walk: _Walk, memory: CallMemory, passes: Callable[[pa.Table], Mask]):
        self.walk, self.memory, members = walk, memory, walk.members
        self.is_ordered = not walk.module.any_order
        start, end = members.window
        self.groups = beside([np.ones(members.n, np.uint64), *map(hashes, members.groups.columns)])
        self.windows = beside([self.groups, start.view(np.uint64), end.view(np.uint64)])
        # what came now stands behind the members' rows
        self.fresh = memory.fresh.filter(pa.array(passes(memory.fresh))) if memory.fresh is not None else None
        self.first_fresh = members.rows.num_rows
        if self.fresh is not None:
            of_fresh = self.fresh
            walk.columns = {
                n: pa.concat_arrays([column, of_fresh.column(walk.sources[n]).combine_chunks().cast(column.type)])
                for n, column in walk.columns.items()
            }
            keys = [hashes(of_fresh.column(n)) for n in members.groups.column_names]
            self.fresh_groups = beside([np.ones(of_fresh.num_rows, np.uint64), *keys])
        self.content = _content(walk.columns, self.first_fresh + (0 if self.fresh is None else self.fresh.num_rows))

    def digests(self, block: _Block) -> Hashes:
        """A number for each window of a block that tells its members, as the module sees them, from others.

        It is a sum over the members, in which those of a module that goes by their order count by their place.
        """
        lengths = np.diff(block.ends)
        member_hashes = self.content[block.row]
        if self.walk.module.sensitive:
            window = np.repeat(block.first + np.arange(len(lengths)), lengths)
            member_hashes = _timed(member_hashes, *self.walk.members.cut(block.row, window))
        if self.is_ordered:
            place = np.arange(len(block.row)) - np.repeat(np.asarray(block.ends[:-1]), lengths)
            member_hashes = beside([member_hashes, place.view(np.uint64)])
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(member_hashes)])
        ends = np.asarray(block.ends)
        digests: Hashes = sums[ends[1:]] - sums[ends[:-1]]
        return digests

    def unchanged(self, now: _Members, digest: int) -> Remembered | None:
        """The last call of the window, which is remembered on, if its members are what they were."""
        key = self._key(now)
        call = self.memory.before.get(key)
        if call is None or (call.digest, call.count) != (digest, len(now.row)):
            return None
        self.memory.now[key] = call
        return call

    def since_last_call(self, now: _Members, digest: int) -> _Change | None:
        """The way from the window's last call to now, over what came in this micro-batch; None where that does not lead there."""
        call, fresh = self.memory.before.get(self._key(now)), self.fresh
        if call is None or call.state is None or fresh is None or self.is_ordered or fresh.num_rows >= len(now.row):
            return None
        start, end = (bound[now.window] for bound in self.walk.members.window)
        le, re, weight = ints(fresh, LE), ints(fresh, RE), ints(fresh, WEIGHT)
        is_in = (self.fresh_groups == self.groups[now.window]) & (le < end) & (re > start)
        come, gone = (self._fresh_members(now, is_in, np.maximum(sign * weight, 0)) for sign in (1, -1))
        if len(gone.row) and self.walk.module.remove is None:
            return None
        digest_then = (call.digest + self._sum(come) - self._sum(gone)) % 2**64
        if (digest_then, call.count + len(come.row) - len(gone.row)) != (digest, len(now.row)):
            # windows whose members are told by rows or starts, and new lifetimes
            return None
        return _Change(_Pickled(call.state), come, gone)

    def remember(self, now: _Members, digest: int, result: Any, state: Any) -> None:
        """Remember a call that has been made; a result of None is that of a window in quarantine, or NULL."""
        body = None if result is None else pickled(result)
        kept = pickled(state) if state is not None and self.walk.module.in_parts else None
        self.memory.now[self._key(now)] = Remembered(digest, len(now.row), body, kept)

    def _key(self, now: _Members) -> tuple[str, int]:
        return self.walk.name, int(self.windows[now.window])

    def _sum(self, members: _Members) -> int:
        member_hashes = self.content[members.row]
        if members.start is not None and members.end is not None:
            member_hashes = _timed(member_hashes, members.start, members.end)
        return int(member_hashes.sum(dtype=np.uint64))

    def _fresh_members(self, now: _Members, is_in: Mask, copies: Ints) -> _Members:
        assert self.fresh is not None
        at = np.repeat(np.arange(len(copies)), np.where(is_in, copies, 0))
        if not self.walk.module.sensitive:
            return _Members(now.window, self.first_fresh + at)
        le, re = ints(self.fresh, LE)[at], ints(self.fresh, RE)[at]
        cut = self.walk.members.cut_to(le, re, np.full(len(at), now.window))
        return _Members(now.window, self.first_fresh + at, *cut)


@dataclass(frozen=True)
class _Pickled:
    """A state as the memory keeps it."""

    body: bytes


@dataclass(frozen=True)
class _Change:
    """A state, and the members that have come and gone since."""

    state: Any
    come: _Members
    gone: _Members

    @property
    def size(self) -> int:
        """How many members a module is given to go this way."""
        return len(self.come.row) + len(self.gone.row)


def _content(columns: Mapping[str, pa.Array], count: int) -> Hashes:
    """A number for each row that tells its values from others; of floats their bits count."""
    parts = [hashes(bits(c) if pa.types.is_floating(c.type) else c) for c in columns.values()]
    return beside([np.ones(count, np.uint64), *parts])


def _timed(row_hashes: Hashes, start: Ints, end: Ints) -> Hashes:
    return beside([row_hashes, start.view(np.uint64), end.view(np.uint64)])


__all__ = ["module_results"]
