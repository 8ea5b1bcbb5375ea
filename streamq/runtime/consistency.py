"""Levels of consistency at ingress: how long items are blocked (Align), how long history is remembered (Finalize).

CEDR's spectrum, SEMANTICS section 8. A level is no part of a query's identity: what has once been said of progress stays
said, so a checkpoint goes on at another level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa

from streamq.policies import Level
from streamq.runtime.basket import Scope
from streamq.runtime.columnar import codes, concat, ints, net, with_column
from streamq.runtime.event import LE, RE, WEIGHT
from streamq.runtime.pairs import paired
from streamq.runtime.progress import Pace
from streamq.runtime.values import Ints, Mask
from streamq.time import INFINITY, MINUS_INFINITY, saturating_add


class AlignAt(StrEnum):
    """Where the level of consistency holds the rows of a kernel back, and by what."""

    INPUT = "input"
    """Before the kernel: the events that it takes from a source."""
    OUTPUT = "output"
    """Behind it: the events that it makes of items."""
    EDGE_OPEN = "edge open"
    """Behind it, where an event has two items, the edges of its start and of its end. Its start is released at once, with an
    infinite end, which is put right once the end is due."""
    EDGE_CLOSE = "edge close"
    """The same, where the edge of the end brings the payload: an event is released as a whole, once its end is due."""


CELLS = 64
"""How many bins the span of what is held makes."""

CROWDED = 4
"""How many times as many there may be before they are made wider."""


def paced(level: Level, spoken: Mapping[str, tuple[int, int]], follows: Mapping[str, str]) -> dict[str, Pace]:
    """What each source's c and W count as for the operators above, from what all sources have ``spoken``.

    At a blocking level every source counts as having the least c of all sources, because rows are released only when all of
    them have come that far. Where history is remembered for M only, every source counts as having sent ``cti(W - M)``, W the
    least of those that make their own progress; a source that has promised more than it has brought counts as having come
    that far.
    """
    own = {name: spoken[follows.get(name, name)][0] for name in spoken}
    least_c = min(own.values())
    # a source that has promised more than it has brought holds nobody back, nor keeps what is remembered
    least_w = min(max(c, w) for name, (c, w) in spoken.items() if name not in follows)
    paces = {}
    for name, (_, w) in spoken.items():
        c = own[name]
        if level.block != 0:
            c, w = least_c, _before(least_w, level.block)
        if level.remember is not None:
            c = max(c, _before(least_w, level.remember))
        paces[name] = Pace(c, w, own[name])
    return paces


def _before(t: int, by: int | None) -> int:
    if by is None:
        return MINUS_INFINITY
    return t if t in (INFINITY, MINUS_INFINITY) else max(MINUS_INFINITY + 1, saturating_add(t, -by))


def aligned(
    scope: Scope, table: pa.Table | None, c: int, w: int, at: AlignAt = AlignAt.INPUT, key: Sequence[str] = ()
) -> pa.Table | None:
    """Deltas of sync time before ``c``, or not after ``w``: those of ``table`` and those held; the others are held.

    A retraction of what is held is folded into it. ``at``: for EDGE_OPEN and EDGE_CLOSE, ``key`` are the columns whose equal
    values make a chain of edges.
    """
    limit = max(c, saturating_add(w, 1) if w != MINUS_INFINITY else w)
    ready: list[pa.Table] = []
    if table is not None and table.num_rows:
        now = ints(table, LE) < limit
        _hold(scope, table.filter(pa.array(~now)))
        ready.append(table.filter(pa.array(now)))
    grain = scope.values.get("grain", 0)
    for bin in scope.bins("held"):
        if (int(bin) << grain) < limit:
            held = scope.read("held", bin)
            scope.drop("held", bin)
            ready += [] if held is None else [held]
    ready = [t for t in ready if t.num_rows]
    scope.values["waits"] = {"limit": limit, "least": INFINITY}
    if not ready:
        return None
    rows = concat([t.select(ready[0].column_names) for t in ready])
    if (ints(rows, WEIGHT) < 0).any():
        rows = net(rows)
    closes = at == AlignAt.EDGE_CLOSE
    event = [*key, LE] if closes else [n for n in rows.column_names if n not in (RE, WEIGHT)]
    rows, sync = _synced(rows, event, closes)
    due = sync < limit
    if at == AlignAt.EDGE_OPEN:
        rows, sync, due = _opened(rows, sync, due, limit)
    scope.values["waits"] = {"limit": limit, "least": int(sync[~due].min(initial=INFINITY))}
    _hold(scope, rows.filter(pa.array(~due)))
    return rows.filter(pa.array(due))


def backlog(scope: Scope) -> tuple[int, int]:
    """How many rows are held, and the least sync time of them (INFINITY: nothing is)."""
    bins = sorted(int(b) for b in scope.bins("held"))
    if not bins:
        return 0, INFINITY
    # what starts before the limit that was last reached waits for an end; of the others the first bin has the least start
    waits = scope.values.get("waits", {"limit": MINUS_INFINITY, "least": INFINITY})
    limit, least = waits["limit"], int(waits["least"])
    for bin in bins:
        held = scope.read("held", str(bin))
        starts = ints(held, LE) if held is not None else np.zeros(0, np.int64)
        if (starts >= limit).any():
            return scope.size("held")[0], min(least, int(starts[starts >= limit].min()))
    return scope.size("held")[0], least


def _opened(rows: pa.Table, sync: Ints, due: Mask, limit: int) -> tuple[pa.Table, Ints, Mask]:
    """Deltas, of which events that are due before their ends go on as without one; what puts that right waits for the end."""
    re, weight = ints(rows, RE), ints(rows, WEIGHT)
    early = due & (weight > 0) & (re >= limit) & (re < INFINITY)
    if not early.any():
        return rows, sync, due
    n = int(early.sum())
    endless = with_column(rows.filter(pa.array(early)), RE, np.full(n, INFINITY))
    taken_back = with_column(endless, WEIGHT, -weight[early])
    sync = np.where(early, re, sync)
    due = np.concatenate([due & ~early, np.ones(n, bool), np.zeros(n, bool)])
    return concat([rows, endless, taken_back]), np.concatenate([sync, sync[early], sync[early]]), due


def _synced(rows: pa.Table, whose: Sequence[str], waits: bool) -> tuple[pa.Table, Ints]:
    """Deltas with their sync times: of an insert its start, of a pair that moves an end the lesser end, of a deletion the start.

    Pairs agree in the columns ``whose``; where rows of them come and go, each copy is a row of its own. ``waits``: an insert
    that has an end waits for it.
    """
    le, re, weight = (ints(rows, n) for n in (LE, RE, WEIGHT))
    sync = np.where((weight > 0) & (re < INFINITY), re, le) if waits else le
    if not (weight < 0).any():
        return rows, sync
    number, _ = codes(rows, whose)
    mixed = np.isin(number, number[weight < 0])
    copies = np.where(mixed, np.abs(weight), 1)
    at = np.repeat(np.arange(len(le)), copies)
    rows = with_column(rows.take(pa.array(at)), WEIGHT, np.where(mixed, np.sign(weight), weight)[at])
    sync, number, re, sign = sync[at], number[at], re[at], np.where(mixed, np.sign(weight), 0)[at]
    order = np.lexsort((re, number))
    taken_back, put_in = order[sign[order] < 0], order[sign[order] > 0]
    before, after = paired(number[taken_back], number[put_in])
    moved = np.minimum(re[taken_back[before]], re[put_in[after]])
    sync[taken_back[before]] = sync[put_in[after]] = moved
    return rows, sync


def _hold(scope: Scope, rows: pa.Table) -> None:
    """Put rows into bins by their starts, as wide as makes CELLS of them; where they have become too many, wider ones."""
    if not rows.num_rows:
        return
    least, most = (int(t) for t in (ints(rows, LE).min(), ints(rows, LE).max()))
    if "grain" not in scope.values:
        scope.values["grain"] = _grain(least, most)
    _fill(scope, rows)
    bins = [int(b) for b in scope.bins("held")]
    if len(bins) <= CROWDED * CELLS:
        return
    grain = scope.values["grain"]
    every = [held for b in bins if (held := scope.read("held", str(b))) is not None]
    for b in bins:
        scope.drop("held", str(b))
    scope.values["grain"] = max(grain + 1, _grain(min(bins) << grain, (max(bins) + 1) << grain))
    _fill(scope, concat([t.select(every[0].column_names) for t in every]))


def _grain(least: int, most: int) -> int:
    """The width of a bin, a power of two by its exponent."""
    return int(np.log2(max(1.0, (most - least) / CELLS)))


def _fill(scope: Scope, rows: pa.Table) -> None:
    cells = ints(rows, LE) >> scope.values["grain"]
    for cell in np.unique(cells):
        scope.append("held", str(cell), rows.filter(pa.array(cells == cell)))
