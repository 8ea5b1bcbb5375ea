"""The groups that a micro-batch evaluates, with their events: those in state, and the deltas of now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamq.runtime.columnar import concat, ints, net_deltas
from streamq.runtime.deltas import history_of, weighted
from streamq.runtime.event import WEIGHT
from streamq.runtime.groups import GROUP_NUMBER, HASH, number_groups
from streamq.runtime.kernel import Clock, Totals
from streamq.runtime.state.group_bins import GroupBins
from streamq.runtime.values import Mask
from streamq.time import INFINITY, MINUS_INFINITY


def input_basket(port: int) -> str:
    """Return the name of the basket of an input's events."""
    return f"in{port}"


@dataclass(frozen=True, eq=False)
class InputEvents:
    """The events of an input in the active groups: their ``history``, with group numbers, and the deltas ``fresh`` of now in it.

    ``ends_in_fresh``: True if nothing was added up, so that the last rows of the history are the deltas of now.
    """

    history: pa.Table
    fresh: pa.Table
    ends_in_fresh: bool

    def changes(self, is_outdated: Mask, replacement: pa.Table | None) -> pa.Table:
        """Return the deltas of now, those that take the outdated events of the history out, and the events in their stead.

        Outdated events that are deltas of now need no deltas at all, if they can be told apart.
        """
        history, came = self.history, self.fresh
        if self.ends_in_fresh:
            held = history.num_rows - came.num_rows
            came = came.filter(pa.array(~is_outdated[held:]))
            history, is_outdated = history.slice(0, held), is_outdated[:held]
        events = [weighted(history.filter(pa.array(is_outdated)), -1)]
        events += [] if replacement is None else [weighted(replacement, 1)]
        changes = [table.select(self.fresh.column_names) for table in events]
        if self.ends_in_fresh:
            return concat([came, net_deltas(concat(changes))])
        return net_deltas(concat([came, *changes]))


def read_events(
    bins: GroupBins, fresh: Sequence[pa.Table], group_columns: Sequence[Sequence[str]]
) -> list[InputEvents]:
    """Return the events of the active groups by input: those in state, and the deltas ``fresh`` of now."""
    deltas = []
    for port, new in enumerate(fresh):
        held = bins.read(input_basket(port))
        deltas.append(new if held is None else concat([held, new]))
    ends_in_fresh = [bool((ints(table, WEIGHT) == 1).all()) for table in deltas]
    histories = number_groups(list(map(history_of, deltas)), group_columns)
    return [InputEvents(*parts) for parts in zip(histories, fresh, ends_in_fresh, strict=True)]


@dataclass(frozen=True, eq=False)
class ActiveGroups:
    """The groups that a micro-batch evaluates, with the events of each input.

    ``bins`` hold their state. ``upto`` bounds the windows to evaluate. ``totals`` count rows that are late or set aside.
    ``beside``: the numbers of rows that are evaluated beside the histories.
    """

    bins: GroupBins
    inputs: Sequence[InputEvents]
    clock: Clock
    upto: int
    totals: Totals
    beside: list[int] = field(default_factory=list)

    @property
    def histories(self) -> list[pa.Table]:
        """The events of each input, with group numbers."""
        return [events.history for events in self.inputs]

    @property
    def open_since(self) -> int:
        """An instant such that rows that could change in a micro-batch end after it; an infinite CTI before it as it is."""
        before = self.clock.c_before
        return before if before in (INFINITY, MINUS_INFINITY) else min(before, self.bins.since) - 1

    def hashes(self) -> Any:
        """Return the hash of each group, by its number."""
        greatest = max(int(ints(table, GROUP_NUMBER).max(initial=-1)) for table in self.histories)
        hash_of = np.zeros(1 + greatest, np.uint32)
        for table in self.histories:
            hash_of[ints(table, GROUP_NUMBER)] = table.column(HASH).to_numpy()
        return hash_of
