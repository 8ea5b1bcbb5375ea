"""The rows of a trace's page: the changes of each operator with what the script of the page needs to know of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamq.operators import Source
from streamq.pictures.panel_history import instant_label, shown_value
from streamq.plan.schema import POINT
from streamq.runtime.arrow.columnar import concat
from streamq.runtime.arrow.rendering import python_rows
from streamq.runtime.event import LE, RE, RETRACT
from streamq.time import show_duration
from streamq.tracing.recorded_run import TracedOperator, row_identities
from streamq.tracing.traced_rows import CHANGE, MICRO_BATCH, plain_names, user_columns

if TYPE_CHECKING:
    from streamq.tracing.trace import Trace


@dataclass(kw_only=True)
class PageRow:
    """A change of an operator on the page.

    ``step``: the number of its micro-batch. ``gone``: that of the one which takes it back, None: it stands. ``place``: the place
    of the row that it leaves among the operator's distinct rows at the end; None: that row does not last. ``event``: the number
    of the event, at a source. ``rank``: the place in the order of application time.
    """

    step: int
    kind: str
    lifetime: str
    cells: list[str]
    rank: int = 0
    gone: int | None = None
    place: int | None = None
    event: int | None = None


def page_rows(trace: Trace, one: TracedOperator) -> list[PageRow]:
    """Return the changes of an operator, in order of arrival."""
    changes = trace.recording.changes(one.number)
    if not changes.num_rows:
        return []
    has_points = one.node.schema.shape == POINT
    axis, names = one.node.schema.axis, plain_names(one.node.schema)
    cells = (
        [[shown_value(v) for v in row.values()] for row in python_rows(changes.select(list(names.values())))]
        if names
        else []
    )
    steps, kinds, starts, ends, new_ends = (
        changes.column(name).to_pylist() for name in (MICRO_BATCH, CHANGE, "start", "end", "new_end")
    )
    ranks = np.empty(len(steps), np.int64)
    ranks[np.lexsort((np.arange(len(steps)), ends, starts))] = np.arange(len(steps))
    before, after = _identities(changes, names, "end"), _identities(changes, names, "new_end")
    place_of = _places(trace, one, changes, names, after)
    events = _events(trace, one)
    rows: list[PageRow] = []
    standing: defaultdict[int, list[PageRow]] = defaultdict(list)
    for number, (step, kind, start, end, new_end) in enumerate(zip(steps, kinds, starts, ends, new_ends, strict=True)):
        lifetime = instant_label(start, axis) if has_points and end == start + 1 else _shown_lifetime(start, end, axis)
        if kind == RETRACT:
            for earlier in standing[before[number]][:1]:
                earlier.gone = step
                standing[before[number]].remove(earlier)
            left = "nothing" if new_end == start else _shown_lifetime(start, new_end, axis)
            lifetime = f"{lifetime} → {left}"
        row = PageRow(
            step=step, kind=kind, lifetime=lifetime, cells=cells[number] if cells else [], rank=int(ranks[number])
        )
        if new_end != start:
            standing[after[number]].append(row)
        rows.append(row)
    for identity, lasting in standing.items():
        for row in lasting:
            row.place = place_of.get(identity)
            if row.place is not None and events[row.place]:
                row.event = events[row.place].pop(0)
    return rows


def _shown_lifetime(start: int, end: int, axis: str) -> str:
    """Return a lifetime as text; the end has no date if it is that of the start."""
    first, last = instant_label(start, axis), instant_label(end, axis)
    day, _, time = last.rpartition(" ")
    return f"[{first}, {time if day and first.startswith(f'{day} ') else last})"


def headings(one: TracedOperator) -> list[str]:
    """Return the headings of an operator's rows."""
    return ["micro-batch", "change", "lifetime", *user_columns(one.node.schema).values()]


def _identities(changes: pa.Table, names: Mapping[str, str], end: str) -> list[int]:
    """Return a number for each change, equal for rows of equal lifetime, up to ``end``, and payload; in all tables alike."""
    both = pa.concat_tables([_lifetimes(changes, names, "end"), _lifetimes(changes, names, "new_end")])
    numbers = row_identities(both).tolist()
    return numbers[: changes.num_rows] if end == "end" else numbers[changes.num_rows :]


def _lifetimes(changes: pa.Table, names: Mapping[str, str], end: str) -> pa.Table:
    return changes.select([*names.values(), "start", end]).rename_columns([*names, LE, RE])


def _places(
    trace: Trace, one: TracedOperator, changes: pa.Table, names: Mapping[str, str], after: list[int]
) -> dict[int, int]:
    """Return the place among an operator's distinct rows of each identity in ``after`` that lasts."""
    distinct = trace.lineage.distinct(one.number)
    rows = concat([distinct, _lifetimes(changes, names, "new_end").select(distinct.column_names)])
    numbers = row_identities(rows).tolist()
    place = {number: at for at, number in enumerate(numbers[: distinct.num_rows])}
    own = zip(after, numbers[distinct.num_rows :], strict=True)
    return {identity: place[number] for identity, number in own if number in place}


def _events(trace: Trace, one: TracedOperator) -> dict[int, list[int]]:
    """Return the numbers of a source's events by their places among its distinct rows; of another operator there are none."""
    events: defaultdict[int, list[int]] = defaultdict(list)
    if isinstance(one.node, Source):
        places = trace.lineage.place_of_row(one.number)
        for number, (owner, at) in enumerate(trace.lineage.events):
            if owner == one.number:
                events[places[at]].append(number)
    return events


def ancestors(trace: Trace) -> Iterator[list[int]]:
    """Yield for each operator the numbers of all operators that it reads, its own included."""
    above: list[set[int]] = []
    for one in trace.recording.operators:
        above.append({one.number}.union(*(above[below] for below in one.inputs)))
        yield sorted(above[-1])


def shown_late_rows(trace: Trace) -> list[dict[str, str]]:
    """Return the rows that sources left out or changed, as text, without the columns that are NULL in all of them."""
    axis = trace.recording.plan.schema.axis
    rows = trace.late.to_pylist()
    filled = [name for name in rows[0] if any(row[name] is not None for row in rows)] if rows else []

    def shown(name: str, value: Any) -> str:
        if value is None or name not in LATE_INSTANTS:
            return show_duration(value, axis) if value is not None and name == "late_by" else shown_value(value)
        return instant_label(value, axis)

    return [{name: shown(name, row[name]) for name in filled} for row in rows]


LATE_INSTANTS = ("start", "end", "new_end", "window_start", "window_end")
"""The columns of late rows that are instants, in ticks."""
