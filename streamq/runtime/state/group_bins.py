"""State binned by group: a micro-batch opens the bins that its rows fall into and those in which something is due, no others.

A bin holds the groups whose hashes begin with the same bits; a bin that has grown is split by one more bit. Every basket of the
kernel has the same bins. The agenda has, for each group, the least progress at which it must be evaluated without new rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.arrow.columnar import concat, ints, split_by, with_column
from streamq.runtime.arrow.values import Ints, Mask, distinct
from streamq.runtime.deltas import LE, RE, WEIGHT, cancelling_deltas, history_of, net_deltas, weighted
from streamq.runtime.groups import BITS, HASH, GroupHashes, group_hashes, hashes_with, is_among
from streamq.runtime.state.baskets import AGENDA, CELLS, Basket, BinSizes, Compact, KernelBaskets, grain
from streamq.time import INFINITY, MINUS_INFINITY

SECOND = 20
"""The width of a cell of time in hashes, as log2 of ticks, if the first rows start together: about a second of microseconds."""


class GroupBins:
    """The bins of one kernel in one micro-batch, between opening them and writing them."""

    def __init__(self, state: KernelBaskets, sizes: BinSizes, beside: Sequence[str] = ()):
        """Read the bins and what they wait for from the values of ``state``.

        ``beside`` are the baskets whose rows count for the size of a bin as those of events do.
        """
        self.state, self.sizes, self.beside = state, sizes, beside
        self.leaves = [Leaf.from_values(values) for values in state.values.get("leaves", [Leaf(0, 0, Agenda()).values])]
        self.opened: list[Leaf] = []
        self.added: dict[str, Leaf] = {}
        self.active = np.zeros(0, np.uint32)
        self.since = INFINITY
        self._new_ends: dict[tuple[str, str], list[tuple[Ints, Ints]]] = {}
        self._evaluated_whole: set[str] = set()
        self._baskets: dict[str, Basket] = {}

    # opening

    def open(
        self, touched: GroupHashes, c: int, m: int = MINUS_INFINITY, *, is_further: bool = False, rule: str = ""
    ) -> None:
        """Open the bins of the groups that new rows have touched, and those in which something is due at this progress.

        ``active`` are then the hashes of the groups to evaluate, and ``since`` is the least end of a row that groups of these
        bins have sent and that may change. ``is_further``: the bound on windows to come has moved. ``rule`` is the rule by which
        rows go: all bins are opened if an earlier run had another one, because the agenda goes by it.
        """
        has_other_rule = self.state.values.get("rule", rule) != rule
        self.state.values["rule"] = rule
        hit = set(self._leaf_of(touched).tolist())
        active = [touched]
        for number, leaf in enumerate(self.leaves):
            cleans = leaf.clean <= c or c == INFINITY or has_other_rule
            is_due = leaf.agenda.is_due(c, m, is_further)
            if not (cleans or number in hit or is_due):
                continue
            self.opened.append(leaf)
            self.since = min(self.since, leaf.agenda.since)
            if cleans or leaf.whole:
                self._evaluated_whole.add(leaf.name)
                active.append(self._hashes_in(leaf))
            elif is_due:
                agenda = self._latest_agenda(leaf)
                is_group_due = (ints(agenda, "c") <= c) | (ints(agenda, "m") <= m)
                if is_further:
                    is_group_due |= ints(agenda, "reaches") < INFINITY
                active.append(agenda.column(HASH).to_numpy()[is_group_due])
        self.active = distinct(np.concatenate(active))

    def read(self, basket: str, groups: GroupHashes | None = None) -> pa.Table | None:
        """Return the rows of the active groups in a basket, None if there are none; those of whole bins are among them.

        ``groups``: only these of the active groups, in order, and the bins that they are in.
        """
        some = self.active if groups is None else groups
        leaves = self.opened
        if groups is not None:
            leaves = [leaf for leaf in self.opened if len(_of_leaf(leaf, groups))]
        tables = [table for leaf in leaves if (table := self._rows_of(basket, leaf, some)) is not None]
        return concat(tables) if tables else None

    def read_whole(self, basket: str) -> pa.Table | None:
        """Return the rows in a basket of the opened bins all of whose groups are evaluated, None if there are none."""
        whole = [leaf for leaf in self.opened if leaf.name in self._evaluated_whole]
        tables = [table for leaf in whole if (table := self._basket(basket).read(leaf.name)) is not None]
        return concat(tables) if tables else None

    def is_active(self, table: pa.Table) -> Mask:
        """Mark the rows of active groups; in a bin that is evaluated as a whole, all groups are, new ones too."""
        hashes = table.column(HASH).to_numpy()
        is_whole = np.array([leaf.name in self._evaluated_whole for leaf in self.leaves])
        active: Mask = is_among(hashes, self.active) | is_whole[self._leaf_of(hashes)]
        return active

    def events(self, basket: str) -> pa.Table | None:
        """Return the events of the active groups in a basket, without weights: each as often as its weights add up to.

        None if there are none.
        """
        deltas = self.read(basket)
        return None if deltas is None else history_of(deltas)

    def has_rows(self, basket: str, table: pa.Table) -> Mask:
        """Mark the rows of a table, with hashes, whose bins have rows in a basket."""
        filled = np.array([self._basket(basket).known(leaf.name).chunks > 0 for leaf in self.leaves])
        return np.asarray(filled[self._leaf_of(table.column(HASH).to_numpy())], bool)

    def least(self, name: str) -> int:
        """Return the least instant of this name over all agendas."""
        return min(getattr(leaf.agenda, name) for leaf in self.leaves)

    @property
    def due(self) -> int | None:
        """The least progress that sends a waiting row; INFINITY: only the end of the input does; None: no row waits."""
        return min((leaf.agenda.due for leaf in self.leaves if leaf.agenda.waits < INFINITY), default=None)

    # writing

    def append(self, basket: str, rows: pa.Table, compact: Compact = net_deltas) -> None:
        """Add rows of active groups to a basket; a bin that is small, or has many chunks or dead rows, is rewritten."""
        for leaf, mine in self._by_leaf(rows):
            if mine.num_rows:
                self._append(basket, leaf, mine, compact)

    def add(self, basket: str, events: pa.Table) -> None:
        """Add events to a basket, of groups that are not active; their bins are read only if they must be rewritten or split."""
        rows = weighted(events, 1)
        for number, mine in split_by(rows, self._leaf_of(rows.column(HASH).to_numpy())):
            leaf = self.leaves[number]
            self._append(basket, leaf, mine, _added_up)
            self.added[leaf.name] = leaf

    def replace_events(self, basket: str, events: pa.Table | None) -> None:
        """Make these, or None, the events of the active groups in a basket; what changes is written.

        A bin that is evaluated as a whole is rewritten if anything changes.
        """
        parts = self._by_leaf(weighted(events, 1)) if events is not None else [(leaf, None) for leaf in self.opened]
        for leaf, mine in parts:
            before = self._rows_of(basket, leaf, self.active)
            if leaf.name in self._evaluated_whole:
                if mine is None or not mine.num_rows:
                    self._basket(basket).drop(leaf.name)
                elif before is None or not mine.equals(before.select(mine.column_names)):
                    self._basket(basket).replace(leaf.name, mine)
                continue
            changes = [mine] if mine is not None else []
            if before is not None:
                changes.append(cancelling_deltas(before))
            if changes and (change := net_deltas(concat(changes))).num_rows:
                self._append(basket, leaf, change)

    def write_agenda(self, rows: pa.Table, inputs: Sequence[str]) -> None:
        """Write the agendas of all active groups, a row each; a group without one waits for nothing.

        A bin with few events in the baskets ``inputs``, all of whose groups have been evaluated, keeps only what these wait for
        together.
        """
        for leaf, mine in self._by_leaf(without_silent(rows)):
            if leaf.name in self._evaluated_whole:
                leaf.whole = self._rows_in(leaf, inputs) <= self.sizes.whole_upto
                leaf.agenda = Agenda.of_rows(mine)
                if leaf.whole:
                    self._basket(AGENDA).drop(leaf.name)
                else:
                    self._basket(AGENDA).replace(leaf.name, mine)
                continue
            active = _of_leaf(leaf, self.active)
            silent = np.setdiff1d(active, mine.column(HASH).to_numpy())
            if not self._basket(AGENDA).known(leaf.name).chunks:
                silent = silent[:0]
            now = Agenda.of_rows(mine)
            if leaf.agenda.stands_without(active, now):
                leaf.agenda = leaf.agenda.earlier(now)
            else:
                old = self._latest_agenda(leaf)
                others = old.filter(pa.array(~is_among(old.column(HASH).to_numpy(), active)))
                leaf.agenda = now.earlier(Agenda.of_rows(others))
            if mine.num_rows + len(silent):
                self._append(AGENDA, leaf, concat([mine, agenda_of(silent)]), latest_agenda, mine.num_rows)

    def close(self, inputs: Sequence[str], c: int | None) -> None:
        """Plan when the opened bins are cleaned, split those that have grown, and store what bins wait for.

        ``inputs`` are the baskets of events. ``c`` None: bins are not cleaned, as agendas have when events are forgotten.
        """
        opened = {leaf.name for leaf in self.opened}
        added = [leaf for leaf in self.added.values() if leaf.name not in opened]
        for leaf in self.opened:
            if c is not None:
                self._plan_cleaning(leaf, inputs, c)
        for leaf in added:
            # it has not been read, so only the ends of its new events are known
            ends, weight = self._appended_ends(leaf, inputs)
            if (is_finite := (weight > 0) & (ends < INFINITY)).any():
                leaf.clean = min(leaf.clean, int(ends[is_finite].max()) + 1)
        for leaf in [*self.opened, *added]:
            if leaf.agenda == Agenda():
                leaf.whole = self._rows_in(leaf, inputs) <= self.sizes.whole_upto
            self._split(leaf, inputs)
        self._join_empty()
        self.state.values["leaves"] = [leaf.values for leaf in self.leaves]

    def drop(self, baskets: Iterable[str]) -> None:
        """Forget all rows of these baskets and the agenda, and all bins."""
        for basket in (*baskets, AGENDA):
            self.state.drop_basket(basket)
        self.state.values.pop("leaves", None)

    # inside

    def _basket(self, name: str) -> Basket:
        """Return a basket, the same one in all of the micro-batch: what has been read is read once."""
        if name not in self._baskets:
            self._baskets[name] = self.state.basket(name)
        return self._baskets[name]

    def _append(
        self, basket: str, leaf: Leaf, rows: pa.Table, compact: Compact = net_deltas, live: int | None = None
    ) -> None:
        """Add rows to a basket's bin; ``live`` is the number of live rows that they add, None: their weight."""
        if RE in rows.column_names:
            self._new_ends.setdefault((basket, leaf.name), []).append((ints(rows, RE), ints(rows, WEIGHT)))
        self._basket(basket).add(leaf.name, rows, compact, live)

    def _rows_of(self, basket: str, leaf: Leaf, groups: GroupHashes) -> pa.Table | None:
        """Return the rows of some active groups of an opened bin; others are not decoded, unless all have been read."""
        if leaf.name in self._evaluated_whole:
            return self._basket(basket).read(leaf.name)
        return self._basket(basket).read_groups(leaf.name, _of_leaf(leaf, groups))

    def _latest_agenda(self, leaf: Leaf) -> pa.Table:
        """Return the agenda of a bin, a row for each group that waits for something."""
        whole = self._basket(AGENDA).read(leaf.name)
        return STORED.empty_table() if whole is None else latest_agenda(whole)

    def _hashes_in(self, leaf: Leaf) -> Any:
        """Return the hashes of all groups of a bin that have rows in some basket."""
        tables = (self._basket(basket).read(leaf.name) for basket in self.state.names())
        return np.concatenate([np.zeros(0, np.uint32), *(t.column(HASH).to_numpy() for t in tables if t is not None)])

    def _rows_in(self, leaf: Leaf, baskets: Sequence[str]) -> int:
        """Return the number of live rows of a bin in some baskets, and in those beside them."""
        return sum(self._basket(basket).known(leaf.name).rows for basket in (*baskets, *self.beside))

    def _leaf_of(self, hashes: Any) -> Ints:
        starts = np.array([leaf.start for leaf in self.leaves], np.uint64)
        return np.searchsorted(starts, hashes.astype(np.uint64), "right") - 1

    def _is_in(self, leaf: Leaf, hashes: Any) -> Mask:
        numbers: Mask = (hashes.astype(np.uint64) >> np.uint64(BITS - leaf.depth)) == leaf.start >> (BITS - leaf.depth)
        return numbers

    def _by_leaf(self, rows: pa.Table) -> Iterable[tuple[Leaf, pa.Table]]:
        parts = dict(split_by(rows, self._leaf_of(rows.column(HASH).to_numpy())))
        numbers = {id(leaf): number for number, leaf in enumerate(self.leaves)}
        for leaf in self.opened:
            yield leaf, parts.get(numbers[id(leaf)], rows.slice(0, 0))

    def _appended_ends(self, leaf: Leaf, inputs: Sequence[str]) -> tuple[Ints, Ints]:
        """Return the ends of the events that a bin has got and lost in this micro-batch, and their weights."""
        parts = [part for basket in inputs for part in self._new_ends.get((basket, leaf.name), ())]
        nothing = np.zeros(0, np.int64)
        ends, weights = ([nothing, *(part[i] for part in parts)] for i in (0, 1))
        return np.concatenate(ends), np.concatenate(weights)

    def _plan_cleaning(self, leaf: Leaf, inputs: Sequence[str], c: int) -> None:
        """Set the CTI at which more than half of a bin's events will be settled, beside those that are known to be needed.

        That is known if all of the bin has been read. If not, it keeps the CTI that was set before, until enough events with
        earlier ends have come since: then it gets the last end of a new one.
        """
        if not all(self._basket(basket).is_read(leaf.name) for basket in inputs):
            self._bring_cleaning_forward(leaf, inputs, c)
            return
        tables = [t for basket in inputs if (t := self._basket(basket).read(leaf.name)) is not None]
        re = np.concatenate([np.zeros(0, np.int64), *(ints(t, RE) for t in tables)])
        weight = np.concatenate([np.zeros(0, np.int64), *(ints(t, WEIGHT) for t in tables)])
        settled = int(weight[re < c].sum())
        if leaf.name in self._evaluated_whole:
            leaf.needed = settled
        to_come = re[(re >= c) & (re < INFINITY) & (weight > 0)]
        more = max(1, leaf.needed + int(weight.sum()) // 2 + self.sizes.slack - settled)
        leaf.clean = int(np.partition(to_come, more - 1)[more - 1]) + 1 if more <= len(to_come) else INFINITY
        leaf.lacks = more if more <= len(to_come) else more - len(to_come)

    def _bring_cleaning_forward(self, leaf: Leaf, inputs: Sequence[str], c: int) -> None:
        """Set an earlier CTI at which a bin is cleaned if enough events have come that will be settled before the one set.

        Settled events that have been taken out count against it, and each event makes the half greater that must be exceeded.
        """
        ends, weight = self._appended_ends(leaf, inputs)
        is_earlier = (weight > 0) & (ends < leaf.clean)
        settles = int(weight[is_earlier | (ends < c)].sum())
        leaf.lacks -= (2 * settles - int(weight.sum()) + 1) // 2
        if leaf.lacks <= 0 and is_earlier.any():
            leaf.clean = int(ends[is_earlier].max()) + 1
            leaf.lacks = self._rows_in(leaf, inputs) // 2 + self.sizes.slack

    def _join_empty(self) -> None:
        """Join two bins that one was split into, once both are empty."""
        names = self.state.names()

        def is_empty(leaf: Leaf) -> bool:
            return not any(self._basket(basket).known(leaf.name).chunks for basket in names)

        if not any(is_empty(leaf) for leaf in self.opened):
            return
        place = 0
        while place + 1 < len(self.leaves):
            one, other = self.leaves[place : place + 2]
            is_pair = one.depth == other.depth and not (one.start >> (BITS - one.depth)) & 1
            if is_pair and is_empty(one) and is_empty(other):
                self.leaves[place : place + 2] = [Leaf(one.start, one.depth - 1, Agenda())]
                place = max(0, place - 1)
            else:
                place += 1

    def _split(self, leaf: Leaf, inputs: Sequence[str]) -> None:
        """Split a bin with many live events in two, and these again if need be; one of a single hash stays as it is."""
        rows = self._rows_in(leaf, inputs)
        if leaf.whole or rows <= max(self.sizes.split_above, leaf.split_above) or leaf.depth == BITS:
            return
        if len(distinct(self._hashes_in(leaf))) == 1:
            leaf.split_above = 2 * rows
            return
        depth, agenda = leaf.depth + 1, self._latest_agenda(leaf)
        halves = [
            Leaf(leaf.start + (i << (BITS - depth)), depth, Agenda(), leaf.clean, whole=False, lacks=leaf.lacks // 2)
            for i in (0, 1)
        ]
        for basket in self.state.names():
            whole = self._basket(basket).read(leaf.name)
            if whole is None:
                continue
            for half in halves:
                mine = whole.filter(pa.array(self._is_in(half, whole.column(HASH).to_numpy())))
                if mine.num_rows:
                    self._basket(basket).replace(half.name, mine)
            self._basket(basket).drop(leaf.name)
        at = self.leaves.index(leaf)
        self.leaves[at : at + 1] = halves
        for half in halves:
            half.agenda = Agenda.of_rows(agenda.filter(pa.array(self._is_in(half, agenda.column(HASH).to_numpy()))))
            self._split(half, inputs)


def _added_up(deltas: pa.Table) -> pa.Table:
    return net_deltas(deltas) if (ints(deltas, WEIGHT) < 0).any() else deltas


def _of_leaf(leaf: Leaf, groups: GroupHashes) -> GroupHashes:
    return hashes_with(groups, leaf.depth, leaf.start >> (BITS - leaf.depth))


def with_timed_hashes(table: pa.Table, columns: Sequence[str], state: KernelBaskets) -> pa.Table:
    """Return the rows with the hashes of their groups, of which the upper half goes with the start, one of the columns.

    So groups that start at about the same time lie in the same bins. The first rows decide how long that is; ``state`` keeps it.
    """
    starts = ints(table, LE)
    if "cell" not in state.values and len(starts):
        least, most = int(starts.min()), int(starts.max())
        state.values["cell"] = grain(least, most, CELLS) if most > least else SECOND
    lower = group_hashes(table, columns) >> np.uint64(BITS + BITS // 2)
    upper = (starts >> state.values.get("cell", 0)).view(np.uint64) << np.uint64(BITS // 2)
    return with_column(table, HASH, (upper | lower).astype(np.uint32))


NOBODY = -1
"""A hash that no group has."""

_NAMES = ("c", "m", "due", "held", "since", "waits", "reaches")


@dataclass(repr=False)
class Agenda:
    """The instants that the groups of a bin, or one group, wait for; INFINITY: for none.

    c, m: the least CTI and the least watermark at which a group must be evaluated. due: the least progress that sends a row, of
    those that wait. held: the least instant that a group holds the CTI back to. since: the least end of a sent row that may still
    change. waits, reaches: MINUS_INFINITY if a row waits, or if a group has events that lie in windows to come. by: for each of
    these the hash of a group to which it is due, so that changes of other groups need not be compared with all.
    """

    c: int = INFINITY
    m: int = INFINITY
    due: int = INFINITY
    held: int = INFINITY
    since: int = INFINITY
    waits: int = INFINITY
    reaches: int = INFINITY
    by: list[int] = field(default_factory=lambda: [NOBODY] * len(_NAMES))

    @staticmethod
    def of_rows(rows: pa.Table) -> Agenda:
        """Return the agenda of several groups, each a row of a table."""
        if not rows.num_rows:
            return Agenda()
        hashes, dues = rows.column(HASH).to_numpy(), []
        for name in _NAMES:
            column = ints(rows, name)
            place = int(column.argmin())
            due = int(column[place])
            dues.append((due, int(hashes[place]) if due < INFINITY else NOBODY))
        return Agenda._of_dues(dues)

    @staticmethod
    def _of_dues(dues: Sequence[tuple[Any, int]]) -> Agenda:
        """Return the agenda of instants, each with the hash of a group to which it is due."""
        return Agenda(**{name: at for name, (at, _) in zip(_NAMES, dues, strict=True)}, by=[by for _, by in dues])

    @property
    def _dues(self) -> list[tuple[int, int]]:
        """Each instant, with the hash of a group to which it is due."""
        return [(getattr(self, name), by) for name, by in zip(_NAMES, self.by, strict=True)]

    def earlier(self, other: Agenda) -> Agenda:
        """Return what the groups of both wait for."""
        least = [min(pair, key=lambda due: due[0]) for pair in zip(self._dues, other._dues, strict=True)]
        return Agenda._of_dues(least)

    def stands_without(self, groups: GroupHashes, instead: Agenda) -> bool:
        """Return True if nothing of it is due to some groups that wait for ``instead`` now, or if that is no less."""
        is_later = [new > at for (at, _), (new, _) in zip(self._dues, instead._dues, strict=True)]
        return not (np.isin(self.by, groups) & is_later).any()

    @property
    def values(self) -> list[Any]:
        return [getattr(self, f.name) for f in fields(self)]

    def is_due(self, c: int, m: int, is_further: bool) -> bool:
        """Return True if a group must be evaluated; ``is_further``: the bound on windows to come has moved."""
        return self.c <= c or self.m <= m or (is_further and self.reaches < INFINITY)


@dataclass(eq=False, repr=False)
class Leaf:
    """A bin: the hashes from ``start`` on that agree in the first ``depth`` bits, and what its groups wait for.

    ``clean`` is the least CTI at which many of its events are settled, so that all its groups are evaluated to forget them;
    ``needed`` is the number of settled events that were still needed when that last happened; ``lacks`` is the number of events
    with earlier ends that must arrive before ``clean`` can become earlier. A bin that is evaluated as a ``whole`` has no
    agendas of single groups. ``split_above`` is the number of live events above which it is split, if that is more than for all
    bins.
    """

    start: int
    depth: int
    agenda: Agenda
    clean: int = INFINITY
    needed: int = 0
    whole: bool = True
    lacks: int = 0
    split_above: int = 0

    @property
    def name(self) -> str:
        return f"g{self.depth}.{self.start >> (BITS - self.depth)}"

    @staticmethod
    def from_values(values: Sequence[Any]) -> Leaf:
        start, depth, clean, needed, whole, lacks, split_above, *agenda = values
        return Leaf(start, depth, Agenda(*agenda), clean, needed, whole, lacks, split_above)

    @property
    def values(self) -> list[Any]:
        """The fields' values, with those of the agenda last."""
        return [
            *(self.start, self.depth, self.clean, self.needed, self.whole, self.lacks, self.split_above),
            *self.agenda.values,
        ]


STORED = pa.schema([(HASH, pa.uint32()), *((name, pa.int64()) for name in _NAMES)])


def agenda_of(hashes: Any, **columns: Ints | Mask) -> pa.Table:
    """Return the agenda of groups, a row each; what ``columns`` do not name they do not wait for.

    A column may be a mask of the groups that wait.
    """
    dues = dict.fromkeys(_NAMES, np.full(len(hashes), INFINITY)) | columns
    at = {name: np.where(due, MINUS_INFINITY, INFINITY) if due.dtype == bool else due for name, due in dues.items()}
    return pa.table({HASH: hashes, **at}, schema=STORED)


def without_silent(agenda: pa.Table) -> pa.Table:
    """Return the rows of an agenda without those of groups that wait for nothing."""
    waits = np.any([ints(agenda, name) < INFINITY for name in _NAMES], axis=0)
    return agenda.filter(pa.array(waits))


def latest_agenda(agenda: pa.Table) -> pa.Table:
    """Return the last row of each group, without groups that wait for nothing."""
    hashes = agenda.column(HASH).to_numpy()
    _, last = np.unique(hashes[::-1], return_index=True)
    return without_silent(agenda.take(pa.array(len(hashes) - 1 - last)))
