"""Changes of windows since a module was last called for them, detected by digests of their members, and the memory of calls."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.plan.partial import Mask, RangedMembers
from streamq.runtime.arrow.columnar import codes, ints
from streamq.runtime.arrow.values import Ints, float_bits
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.groups import BITS, HASH, Hashes, combine_hashes, group_hashes, hashes
from streamq.runtime.user_code.calls import ModuleStates, pickled
from streamq.runtime.user_code.code_values import instants_of

RowNumbers = Ints
"""Rows of the members' table."""


@dataclass(frozen=True, eq=False)
class CallRecord:
    """A call: the hash of its window's group, the digest and number of the members, its result and the state after it as pickles.

    A result of None is NULL, also for a window in quarantine; failure: the reason of that.
    """

    group: int
    digest: int
    count: int
    result: bytes | None
    state: bytes | None
    failure: str | None = None


@dataclass(eq=False)
class CallMemory:
    """The calls of earlier micro-batches, and those of now, by the name of the result and a number that identifies the window.

    fresh: the deltas of this micro-batch, with their weights; None: there are none.
    """

    before: dict[tuple[str, int], CallRecord] = field(default_factory=dict)
    now: dict[tuple[str, int], CallRecord] = field(default_factory=dict)
    fresh: pa.Table | None = None

    @property
    def changes(self) -> pa.Table:
        """The calls that are new, and those no longer needed, with -1 as the number of members, as a table to store."""
        changed = {key: call for key, call in self.now.items() if self.before.get(key) != call}
        changed |= {key: replace(call, count=-1) for key, call in self.before.items() if key not in self.now}
        rows = [{"name": name, "window": window, **_as_stored(call)} for (name, window), call in changed.items()]
        return pa.Table.from_pylist(rows, schema=_STORED)

    @staticmethod
    def from_table(table: pa.Table | None, fresh: pa.Table | None) -> CallMemory:
        """Return the memory stored in a table, None: an empty one, with this micro-batch's deltas ``fresh``."""
        if table is None:
            return CallMemory(fresh=fresh)
        rows = latest_calls(table).to_pylist()
        before = {(row.pop("name"), row.pop("window")): _as_call(row) for row in rows}
        return CallMemory(before, fresh=fresh)


_STORED = pa.schema(
    [
        ("name", pa.string()),
        ("window", pa.uint64()),
        (HASH, pa.uint32()),
        ("digest", pa.uint64()),
        ("count", pa.int64()),
        ("result", pa.binary()),
        ("state", pa.binary()),
        ("failure", pa.string()),
    ]
)


def _as_stored(call: CallRecord) -> dict[str, Any]:
    """Return a call as a row of the table."""
    return {HASH: call.group, **{name: value for name, value in vars(call).items() if name != "group"}}


def _as_call(row: dict[str, Any]) -> CallRecord:
    """Return the call in a row of the table."""
    return CallRecord(group=row.pop(HASH), **row)


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


@dataclass(frozen=True, eq=False)
class WindowArguments:
    """The arguments of a module, by name, for all members and then for the deltas of this micro-batch.

    fresh: those of the deltas that pass the module's filter; None: there are none.
    """

    columns: Mapping[str, pa.Array]
    fresh: pa.Table | None

    @staticmethod
    def read(
        sources: Mapping[str, str], rows: pa.Table, memory: CallMemory | None, passes: Callable[[pa.Table], Mask]
    ) -> WindowArguments:
        """Return the columns of the members' ``rows``, and then of those deltas in the memory that pass the filter.

        ``sources``: the column of the rows for each argument name. ``passes``: the module's filter.
        """
        columns = {name: rows.column(source).combine_chunks() for name, source in sources.items()}
        if memory is None or memory.fresh is None:
            return WindowArguments(columns, None)
        fresh = memory.fresh.filter(pa.array(passes(memory.fresh)))
        for name, column in columns.items():
            deltas = fresh.column(sources[name]).combine_chunks().cast(column.type)
            columns[name] = pa.concat_arrays([column, deltas])
        return WindowArguments(columns, fresh)

    def of_members(self, members: WindowMembers, axis: pa.DataType) -> dict[str, pa.Array]:
        """Return the arguments of a window's members, with their lifetimes if the module reads them."""
        at = pa.array(members.row)
        columns = {name: column.take(at) for name, column in self.columns.items()}
        if members.start is not None and members.end is not None:
            columns |= {"start": instants_of(members.start, axis), "end": instants_of(members.end, axis)}
        return columns


class WindowChanges:
    """The changes in the windows of a walk since the previous micro-batch."""

    def __init__(
        self, name: str, module: ModuleStates, members: RangedMembers, memory: CallMemory, arguments: WindowArguments
    ):
        """Compute the hashes of windows, groups and arguments; ``name`` is the result's in the memory."""
        self.name, self.module, self.members, self.memory = name, module, members, memory
        self.fresh, self.first_fresh = arguments.fresh, members.rows.num_rows
        start, end = members.window
        self.groups = group_hashes(members.groups, members.groups.column_names)
        self.windows = combine_hashes([self.groups, start.view(np.uint64), end.view(np.uint64)])
        count = self.first_fresh
        if self.fresh is not None:
            count += self.fresh.num_rows
            self.fresh_groups = group_hashes(self.fresh, members.groups.column_names)
        self.content = _value_hashes(arguments.columns, count)

    def digests(self, block: WindowBlock) -> Hashes:
        """Return a number for each window of a block that identifies its members as the module sees them.

        It is a sum over the members' hashes. A time-sensitive module's members are hashed with their lifetimes, as cut to the
        window; for a module that depends on their order, each is hashed with its place.
        """
        lengths = np.diff(block.ends)
        member_hashes = self.content[block.row]
        if self.module.sensitive:
            window = np.repeat(block.first + np.arange(len(lengths)), lengths)
            member_hashes = _with_lifetimes(member_hashes, *self.members.cut(block.row, window))
        if not self.module.any_order:
            place = np.arange(len(block.row)) - np.repeat(np.asarray(block.ends[:-1]), lengths)
            member_hashes = combine_hashes([member_hashes, place.view(np.uint64)])
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(member_hashes)])
        ends = np.asarray(block.ends)
        digests: Hashes = sums[ends[1:]] - sums[ends[:-1]]
        return digests

    def unchanged(self, now: WindowMembers, digest: int) -> CallRecord | None:
        """Return the window's last call, and keep remembering it, if its members have not changed; else None."""
        key = self._key(now)
        call = self.memory.before.get(key)
        if call is None or (call.digest, call.count) != (digest, len(now.row)):
            return None
        self.memory.now[key] = call
        return call

    def since_last_call(self, now: WindowMembers, digest: int) -> StateChange | None:
        """Return the change from the window's last call to now, by this micro-batch's deltas.

        None without the state of that call or without deltas, if the deltas do not explain the change or are at least as many
        as the members, or if the module depends on the order.
        """
        call, fresh = self.memory.before.get(self._key(now)), self.fresh
        if (
            call is None
            or call.state is None
            or fresh is None
            or not self.module.any_order
            or fresh.num_rows >= len(now.row)
        ):
            return None
        start, end = (bound[now.window] for bound in self.members.window)
        le, re, weight = ints(fresh, LE), ints(fresh, RE), ints(fresh, WEIGHT)
        is_in = (self.fresh_groups == self.groups[now.window]) & (le < end) & (re > start)
        come, gone = (self._fresh_members(now, is_in, np.maximum(sign * weight, 0)) for sign in (1, -1))
        digest_then = (call.digest + self._digest_of(come) - self._digest_of(gone)) % 2**64
        if (digest_then, call.count + len(come.row) - len(gone.row)) != (digest, len(now.row)):
            # other members have changed, too: those of count windows, or lifetimes that are cut anew
            return None
        return StateChange(partial(pickle.loads, call.state), come, gone)

    def remember(
        self, now: WindowMembers, digest: int, result: Any, *, state: bytes | None, failure: str | None
    ) -> None:
        """Remember a call: its result (None: NULL), the pickled state after it, if it is kept, and, if it failed, why."""
        body = None if result is None else pickled(result)
        group = int(self.groups[now.window]) >> BITS
        self.memory.now[self._key(now)] = CallRecord(group, digest, len(now.row), body, state, failure)

    def _key(self, now: WindowMembers) -> tuple[str, int]:
        return self.name, int(self.windows[now.window])

    def _digest_of(self, members: WindowMembers) -> int:
        """Return the sum of the members' hashes, the part of :meth:`digests` that they add in any order."""
        member_hashes = self.content[members.row]
        if members.start is not None and members.end is not None:
            member_hashes = _with_lifetimes(member_hashes, members.start, members.end)
        return int(member_hashes.sum(dtype=np.uint64))

    def _fresh_members(self, now: WindowMembers, is_in: Mask, copies: Ints) -> WindowMembers:
        """Return the deltas that ``is_in`` marks as members of the window of ``now``, each as often as ``copies`` says.

        A time-sensitive module's members have their lifetimes, cut to the window.
        """
        assert self.fresh is not None
        at = np.repeat(np.arange(len(copies)), np.where(is_in, copies, 0))
        if not self.module.sensitive:
            return WindowMembers(now.window, self.first_fresh + at)
        le, re = ints(self.fresh, LE)[at], ints(self.fresh, RE)[at]
        cut = self.members.cut_to(le, re, np.full(len(at), now.window))
        return WindowMembers(now.window, self.first_fresh + at, *cut)


@dataclass(frozen=True)
class StateChange:
    """A state, which ``load`` returns, and the members that have been added and removed since."""

    load: Callable[[], Any]
    come: WindowMembers
    gone: WindowMembers

    @property
    def size(self) -> int:
        """The number of members that the module must process for it."""
        return len(self.come.row) + len(self.gone.row)

    def is_usable(self, module: ModuleStates, members: int) -> bool:
        """True if the state may be reused for a window of so many ``members``; otherwise these are read again.

        No member has gone, or the module has ``remove``; and fewer members have changed than there are.
        """
        return (module.remove is not None or not len(self.gone.row)) and self.size < members


def _value_hashes(columns: Mapping[str, pa.Array], count: int) -> Hashes:
    """Return a number for each of ``count`` rows that identifies its values; floats count by their bits."""
    parts = [hashes(float_bits(c) if pa.types.is_floating(c.type) else c) for c in columns.values()]
    return combine_hashes([np.ones(count, np.uint64), *parts])


def _with_lifetimes(row_hashes: Hashes, start: Ints, end: Ints) -> Hashes:
    return combine_hashes([row_hashes, start.view(np.uint64), end.view(np.uint64)])
