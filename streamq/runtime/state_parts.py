"""The parts of a kernel's state, and the way in which each moves into other buckets when their number changes.

A part takes its rows and values out of the states of some buckets, and puts them into those of the new ones. So one move divides
the state of a bucket, and unites the parts of several. It does not change rows. Bins are laid out anew, and the next micro-batch
computes again what groups wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.agenda import Agenda
from streamq.runtime.basic_window_blocks import BlocksBasket
from streamq.runtime.basket import AGENDA, ENDS, TIME_BINS, KernelBaskets
from streamq.runtime.bins import hold
from streamq.runtime.columnar import concat, ints, net_deltas, split_by
from streamq.runtime.consistency import BEGUN, EVENT, HELD, SYNC
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.grid_baskets import PARTIALS, REPORTED, ReportedBasket
from streamq.runtime.group_bins import BinSizes
from streamq.runtime.groups import HASH, with_timed_hashes
from streamq.runtime.joined_events import side_basket
from streamq.runtime.leaf import Leaf
from streamq.runtime.open_starts import LIFETIMES
from streamq.runtime.parts import PartedBins
from streamq.runtime.spread import Events, Spread
from streamq.runtime.state_layout import StatePart, States
from streamq.runtime.time_bins import TimeBins
from streamq.runtime.timing_wheel import ASLEEP, TimingWheel
from streamq.runtime.values import Ints
from streamq.runtime.waiting_rows import SETTLING, STARTING
from streamq.time import INFINITY, MINUS_INFINITY

# values


@dataclass(frozen=True)
class SameValue:
    """A value that is the same in all buckets that have it."""

    name: str

    def move(self, old: States, new: States, spread: Spread) -> None:
        """Copy the value of the first bucket that has one."""
        for value in _taken(old, self.name)[:1]:
            for state in new:
                state.values[self.name] = value


@dataclass(frozen=True)
class LeastValue:
    """A value that must not be greater in a bucket than in those whose rows it gets."""

    name: str

    def move(self, old: States, new: States, spread: Spread) -> None:
        """Copy the least value; there is none if a bucket has none."""
        values = _taken(old, self.name)
        for state in new if len(values) == len(old) else ():
            state.values[self.name] = min(values)


@dataclass(frozen=True)
class DerivedValue:
    """A value that the next micro-batch computes again."""

    name: str

    def move(self, old: States, new: States, spread: Spread) -> None:
        """Forget the value."""
        _taken(old, self.name)


def _taken(old: States, name: str) -> list[Any]:
    """Take a value out of the states that have it; return the values in the order of buckets."""
    return [state.values.pop(name) for state in old if name in state.values]


# rows by an instant


@dataclass(frozen=True, kw_only=True)
class TimedRows:
    """Rows in bins by an instant: see :class:`TimeBins`.

    port: the input of which they are rows; None: they are rows of the result, with their ``events``. scope: the name of the scope
    beside that of the kernel, if they are in another one.
    """

    basket: str
    by: str = LE
    then: str | None = None
    valued: str = LE
    port: int | None = None
    events: Events | None = None
    scope: str = ""

    def move(self, old: States, new: States, spread: Spread) -> None:
        """Take out all rows, and append those of each new bucket."""
        for state in old:
            rows = self._bins(state).take(INFINITY)
            self._state(state).values.pop(f"{self.basket}{TIME_BINS}", None)
            if rows is None:
                continue
            numbers = (
                spread.of_result(rows, state, self.events) if self.port is None else spread.of_input(rows, self.port)
            )
            for number, mine in split_by(rows, numbers):
                self._bins(new[number]).append(mine)

    def _bins(self, state: KernelBaskets) -> TimeBins:
        """Return the bins in a kernel's state."""
        return TimeBins(self._state(state), self.basket, self.by, self.then, self.valued)

    def _state(self, state: KernelBaskets) -> KernelBaskets:
        """Return the scope in which the rows are, beside a kernel's own."""
        return state.baskets.scoped(self.scope) if self.scope else state


def unsettled_rows(basket: str, port: int | None = None, events: Events | None = None) -> tuple[StatePart, ...]:
    """Return the parts of rows that wait until they are settled: see :class:`UnsettledRows`."""
    return (
        TimedRows(basket=basket, by=RE, then=LE, port=port, events=events),
        TimedRows(basket=f"{basket} without end", port=port, events=events),
    )


def waiting_rows(events: Events | None) -> tuple[StatePart, ...]:
    """Return the parts of rows of the result that wait: see :class:`WaitingRows`."""
    return (TimedRows(basket=STARTING, events=events), *unsettled_rows(SETTLING, events=events))


def held_rows(scope: str = "", port: int | None = None, events: Events | None = None) -> tuple[StatePart, ...]:
    """Return the parts of rows that a level of consistency holds back: see :class:`HeldRows`."""
    return (
        TimedRows(basket=HELD, port=port, events=events, scope=scope),
        TimedRows(basket=BEGUN, then=EVENT, valued=SYNC, port=port, events=events, scope=scope),
    )


@dataclass(frozen=True)
class AnnouncedEnds:
    """The endpoints that every bucket hears: see :class:`Endpoints`."""

    def move(self, old: States, new: States, spread: Spread) -> None:
        """Copy those of the first bucket that has heard any."""
        SameValue("ends").move(old, new, spread)
        tables = [rows for state in old if (rows := TimeBins(state, ENDS).take(INFINITY)) is not None]
        _taken(old, f"{ENDS}{TIME_BINS}")
        for rows in tables[:1]:
            for state in new:
                TimeBins(state, ENDS).append(rows)


@dataclass(frozen=True)
class OpenLifetimes:
    """The lifetimes of a join's left events: see :class:`OpenStarts`. ``events``: the basket of these events."""

    events: str

    def move(self, old: States, new: States, spread: Spread) -> None:
        """Forget them, and add those of the events anew; the least start is computed in the next micro-batch."""
        for state in old:
            TimeBins(state, LIFETIMES).take(INFINITY)
            state.values.pop(f"{LIFETIMES}{TIME_BINS}", None)
            is_begun = state.values.pop(LIFETIMES, None) is not None
            rows = state.read_all(self.events)
            for number, mine in split_by(rows, spread.of_input(rows)) if rows is not None else ():
                TimeBins(new[number], LIFETIMES).append(net_deltas(mine.select([LE, RE, WEIGHT])))
            for other in new if is_begun else ():
                other.values[LIFETIMES] = [MINUS_INFINITY, MINUS_INFINITY, 0]


# rows by group


@dataclass(frozen=True, kw_only=True)
class GroupedRows:
    """Rows in bins by group: see :class:`GroupBins`.

    inputs: the baskets of rows that have the columns of an input which choose the bucket, each with its port. result: the basket
    of rows of the result, "": there is none; events: those by which these find their bucket. by_hash: the basket of rows that
    only have the hash of their group, of which several groups may share one: "": there is none. timed_by: the columns of events
    whose hashes go with their start; (): hashes do not.
    """

    inputs: Mapping[str, int]
    result: str = ""
    events: Events | None = None
    by_hash: str = ""
    timed_by: tuple[str, ...] = ()

    def move(self, old: States, new: States, spread: Spread) -> None:
        """Put all rows of a new bucket into one bin, all of whose groups the next micro-batch evaluates if any waits."""
        SameValue("rule").move(old, new, spread)
        if self.timed_by:
            SameValue("cell").move(old, new, spread)
        leaf = self._leaf(old)
        for state in old:
            if self.by_hash and (rows := state.read_all(self.by_hash)) is not None:
                self._move_by_hash(rows, state, new, spread)
            if self.result and (rows := state.read_all(self.result)) is not None:
                self._append(self.result, rows, spread.of_result(rows, state, self.events), new)
        for state in old:
            for basket, port in self.inputs.items():
                if (rows := state.read_all(basket)) is not None:
                    self._append(basket, rows, spread.of_input(rows, port), new)
            for basket in (*self.inputs, self.result, self.by_hash, AGENDA):
                for bin in state.bins(basket):
                    state.drop(basket, bin)
        if leaf is not None:
            for state in new:
                state.values["leaves"] = [leaf.values]

    def _leaf(self, old: States) -> Leaf | None:
        """Take the bins out of the states; return one that waits for what all of them wait for, None if there are none."""
        leaves = [Leaf.from_values(values) for some in _taken(old, "leaves") for values in some]
        if not leaves:
            return None
        agenda = Agenda()
        for leaf in leaves:
            agenda = agenda.earlier(leaf.agenda)
        if any(leaf.agenda != Agenda() for leaf in leaves):
            # groups are evaluated to know what each waits for
            agenda.c = MINUS_INFINITY
        return Leaf(0, 0, agenda, min(leaf.clean for leaf in leaves), needed=sum(leaf.needed for leaf in leaves))

    def _append(self, basket: str, rows: pa.Table, numbers: Ints, new: States) -> None:
        """Append rows to a basket of the buckets with these numbers."""
        for number, mine in split_by(rows, numbers):
            if self.timed_by:
                mine = with_timed_hashes(mine, self.timed_by, new[number])
            live = int(ints(mine, WEIGHT).sum()) if WEIGHT in mine.column_names else mine.num_rows
            new[number].append(basket, ROOT, mine, live)

    def _move_by_hash(self, rows: pa.Table, state: KernelBaskets, new: States, spread: Spread) -> None:
        """Append rows that have only hashes to each bucket that has events of a group with that hash."""
        (basket, port), *_ = self.inputs.items()
        events = state.read_all(basket)
        for number, mine in split_by(events, spread.of_input(events, port)) if events is not None else ():
            is_mine = np.isin(rows.column(HASH).to_numpy(), mine.column(HASH).to_numpy())
            if is_mine.any():
                new[number].append(self.by_hash, ROOT, rows.filter(pa.array(is_mine)))


ROOT = Leaf(0, 0, Agenda()).name
"""The name of the bin of all groups."""


# bins of other kinds


@dataclass(frozen=True, kw_only=True)
class HeldEvents:
    """Events in bins by length of life and start, of a side of an inner join or of a scan: see :mod:`streamq.runtime.bins`."""

    basket: str
    port: int
    group_columns: tuple[str, ...]
    sizes: BinSizes

    def move(self, old: States, new: States, spread: Spread) -> None:
        """Take out all events, and hold those of each new bucket."""
        _taken(old, "grain")
        for state in old:
            events = _taken_rows(PartedBins(state, self.basket, net_deltas))
            if events is None:
                continue
            events = net_deltas(events)
            for number, mine in split_by(events, spread.of_input(events, self.port)):
                hold(new[number], self.basket, mine, net_deltas, self.group_columns, self.sizes)


def joined_sides(group_columns: Sequence[Sequence[str]], sizes: BinSizes) -> tuple[StatePart, ...]:
    """Return the parts of the events of both sides of an inner join: see :class:`JoinedEvents`."""
    return tuple(
        HeldEvents(basket=side_basket(port), port=port, group_columns=tuple(group_columns[port]), sizes=sizes)
        for port in (0, 1)
    )


@dataclass(frozen=True)
class GridRows:
    """Partial results by range of windows, and reported rows: see :mod:`streamq.runtime.grid_baskets`."""

    blocks: BlocksBasket
    reported: ReportedBasket

    def move(self, old: States, new: States, spread: Spread) -> None:
        """Take out all rows, and add those of each new bucket, which merges blocks anew if it has many."""
        held = self.blocks.held
        for state in old:
            self.blocks.drop(state)
            partials = held.read(state, MINUS_INFINITY, INFINITY)
            for number, mine in split_by(partials, spread.of_input(partials)) if partials is not None else ():
                held.add(new[number], mine)
            rows = _taken_rows(PartedBins(state, REPORTED, net_deltas))
            for number, mine in split_by(rows, spread.of_input(rows)) if rows is not None else ():
                self.reported.add(new[number], [mine], MINUS_INFINITY)
            for bin in state.bins(PARTIALS):
                state.drop(PARTIALS, bin)
        _taken(old, "spans")


def _taken_rows(bins: PartedBins) -> pa.Table | None:
    """Take all rows out of bins that may be split by group; None if there are none."""
    tables = [rows for bin in bins if (rows := bins.read(bin)) is not None]
    for bin in bins:
        bins.drop(bin)
    return concat(tables) if tables else None


@dataclass(frozen=True)
class SleepingRows:
    """Deltas in a timing wheel: see :class:`TimingWheel`."""

    def move(self, old: States, new: States, spread: Spread) -> None:
        """Take the deltas out of each slot, and add those of each new bucket to the same slot."""
        for state in old:
            for slot in state.bins(ASLEEP):
                rows = state.read(ASLEEP, slot)
                state.drop(ASLEEP, slot)
                assert rows is not None
                for number, mine in split_by(rows, spread.of_input(rows)):
                    TimingWheel(new[number]).add(mine, np.full(mine.num_rows, int(slot)))


__all__ = [
    "AnnouncedEnds",
    "DerivedValue",
    "GridRows",
    "GroupedRows",
    "HeldEvents",
    "LeastValue",
    "OpenLifetimes",
    "SameValue",
    "SleepingRows",
    "TimedRows",
    "held_rows",
    "joined_sides",
    "unsettled_rows",
    "waiting_rows",
]
