"""Mutants that break the law on cost: each reads, or evaluates, what a micro-batch does not concern. No answer changes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamq.runtime.kernels.condensing import CondensingKernel
from streamq.runtime.kernels.inner_join import JoinedEvents, Sides
from streamq.runtime.state.agenda import Agenda, Leaf
from streamq.runtime.state.bins import Bins
from streamq.runtime.state.group_bins import GroupBins
from streamq.runtime.state.time_bins import TimeBins
from streamq.runtime.state.window_bins import PartialsBasket
from streamq.time import MINUS_INFINITY
from tests.mutation.mutant import Edit, Mutant, wrapped

KERNELS = "streamq/runtime/kernels"


def _reads_every_bin(right: Any, bins: GroupBins, *args: Any, **options: Any) -> None:
    right(bins, *args, **options)
    for leaf in bins.leaves:
        for basket in bins.state.names():
            bins.state.encoded(basket, leaf.name)


def _rows_of_all_groups(bins: GroupBins, basket: str, leaf: Leaf, groups: Any) -> pa.Table | None:
    return bins._whole(basket, leaf)


def _all_rows(bins: Bins, bin: str, hashes: Any) -> pa.Table | None:
    return bins.read(bin)


def _after_reading_all(right: Any, bins: TimeBins, *args: Any) -> pa.Table | None:
    for bin in bins.bins:
        bins._read(bin)
    return right(bins, *args)


def _after_all_pairs(right: Any, events: JoinedEvents, fresh: Sides) -> list[pa.Table]:
    events.pairs_beyond(MINUS_INFINITY)
    return right(events, fresh)


EVERY_BIN = Mutant(
    "every bin", "bins of groups that nobody touched are read", "", (wrapped(GroupBins, "open", _reads_every_bin),)
)
EVERY_GROUP = Mutant(
    "every group",
    "all groups of all bins are evaluated",
    "",
    ((GroupBins, "_rows_of", _rows_of_all_groups), (Agenda, "is_due", lambda *_: True)),
)
EVERY_STATE = Mutant(
    "every state",
    "the states of all groups are read for an event",
    "",
    edits=(Edit(f"{KERNELS}/scan.py", "bins.read(STATES)", "bins.state.read_all(STATES)"),),
)
CANDIDATES = "streamq/runtime/state/held_candidates.py"
EVERY_CANDIDATE = Mutant(
    "every candidate",
    "a match reads the candidates of all groups",
    "",
    edits=(
        Edit(
            CANDIDATES,
            """(table := bin.bins.read_groups(bin.name, lambda: hashes)) is not None
        ]
        if not tables:
            return events.slice(0, 0), not rest
        rows = _rows_before(concat(tables), [bin.starts for bin in rest], order)
        if keys := self.evaluator.keys:
""",
            """(table := bin.bins.read(bin.name)) is not None
        ]
        if not tables:
            return events.slice(0, 0), not rest
        rows = _rows_before(concat(tables), [bin.starts for bin in rest], order)
        if not (keys := self.evaluator.keys):
""",
        ),
    ),
)
NO_ORDER = Mutant(
    "no order",
    "a match reads all candidates of its group",
    "",
    edits=(Edit(CANDIDATES, "len(bins) if order is ReadOrder.ALL else", "len(bins) or"),),
)
EVERY_LEFT_EVENT = Mutant(
    "every left event",
    "a new start of clip reads the left events of all groups",
    "",
    edits=(
        Edit(
            f"{KERNELS}/left_join.py",
            "held = bins.read(LEFT, distinct_hashes([right]))",
            "held = bins.state.read_all(LEFT)",
        ),
    ),
)
EVERY_WINDOW = Mutant(
    "every window",
    "the partial results of all windows are read, though none is due",
    "",
    edits=(
        Edit(
            f"{KERNELS}/window_aggregate.py",
            """
        elif report_to >= report_from:
            due = self._with_new(self._blocks.read(state, report_from, report_to), new)
""",
            """
        else:
            due = self._with_new(self._held.read(state, MINUS_INFINITY, INFINITY), new)
""",
        ),
    ),
)
EVERY_MEMBER = Mutant(
    "every member",
    "a step keeps a row for each of its members",
    "",
    edits=(
        Edit(f"{KERNELS}/windows_of_sizes.py", "self.windows.combine(0, members)", "self.windows._partials(members)"),
    ),
)
EVERY_PART = Mutant(
    "every part",
    "all parts of a bin of time are read, and all their groups",
    "",
    ((Bins, "read_groups", _all_rows),),
)
EVERY_TIME = Mutant(
    "every time",
    "bins of rows that wait for a later instant are read",
    "",
    tuple(wrapped(TimeBins, name, _after_reading_all) for name in ("take", "append", "open")),
)
EVERY_PAIR = Mutant(
    "every pair",
    "all pairs of a windowed join are evaluated in each micro-batch",
    "",
    (wrapped(JoinedEvents, "new_pairs", _after_all_pairs),),
)
DEAD_ROWS = Mutant(
    "dead rows",
    "a bin keeps rows that others have taken back, until it has many chunks",
    "",
    edits=(Edit("streamq/runtime/state/baskets.py", "return has_dead_rows or filled", "return filled"),),
)
NO_STATE = Mutant(
    "no state",
    "events stay apart from the states of their windows",
    "",
    ((PartialsBasket, "_live", lambda _, rows: rows.num_rows),),
)
NO_SLEEP = Mutant("no sleep", "events of snapshots stay awake", "", ((CondensingKernel, "_has_wheel", False),))

EVERY_ROW = {
    "hopping": EVERY_WINDOW,
    "hopping median": EVERY_WINDOW,
    "hopping top_k": EVERY_WINDOW,
    "rows of members": EVERY_WINDOW,
    "time_weighted_avg": EVERY_WINDOW,
    "inner join": EVERY_PART,
    "windowed_join": EVERY_TIME,
    "clip": EVERY_LEFT_EVENT,
    "scan": EVERY_STATE,
    "first consume": EVERY_CANDIDATE,
}
"""The mutant that evaluates, or reads, the rows of all groups, for operators of which EVERY_GROUP shows too little."""
