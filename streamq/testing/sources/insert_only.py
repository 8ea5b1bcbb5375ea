"""Sources of points and intervals: rows, items and definitions, and the model of what they admit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.choices import CountReason
from streamq.operators import Source
from streamq.plan.schema import Field
from streamq.runtime.deltas import INSERT
from streamq.sources.insert_only import Intervals, Points
from streamq.testing.arrival import Item, Scale, comparable, comparable_payload, end_or_none, end_ticks, start_of
from streamq.testing.drawn_lifetimes import DuplicateFilter, arranged, copies, lifetimes
from streamq.testing.intent import Draw
from streamq.testing.oracle.run import Run, column, defines, events_of, no_start, once, payload_of
from streamq.testing.oracle.values import listed, payload
from streamq.testing.program_text import column_lists, string
from streamq.testing.sources.room import ArrivalPlan, Reach, SourceModel, SourceRoom
from streamq.time import INFINITY


class InsertOnlyModel(SourceModel[Source]):
    """Points and intervals. With ids, an equal row of an id is a duplicate, a row that differs from the id's first is invalid.

    ``standing``: the valid row by id and start. ``seen``: all valid rows.
    """

    def __init__(self, source: Source):
        super().__init__(source)
        self.standing: dict[Any, Any] = {}
        self.seen: set[Any] = set()

    def _pass(self, at: Reach) -> None:
        """Do nothing, as no item waits for another."""

    def _take(self, items: Sequence[Item], at: Reach) -> None:
        """Count rows that differ from their id's first and duplicates, admit rows on time, and adjust or drop late ones.

        The first of an id and start is the least of its rows in the micro-batch that brings them. A late row that ended at c or
        before is dropped whatever the policy. Without ids no row counts as a duplicate or as invalid here.
        """
        by_name: dict[Any, list[Item]] = {}
        for item in items if self.source.ids else ():
            by_name.setdefault(self._name(item), []).append(item)
        for name, rows in by_name.items():
            self.standing.setdefault(name, self._whole(_least(rows)))
        for item in items:
            start, end, whole = start_of(item), end_ticks(item.end), self._whole(item)
            if self.source.ids and self.standing[self._name(item)] != whole:
                self.admitted.contradicted = True
                self._count(CountReason.INVALID, item)
                continue
            if self.source.ids and whole in self.seen:
                is_sure = end >= at.c
                self._count(CountReason.DUPLICATES, item, None if is_sure else at.c, forgotten=not is_sure)
                self.admitted.sure_duplicates += is_sure
                continue
            self.seen.add(whole)
            if start >= at.c:
                self.admitted.events.append(item)
                continue
            self.admitted.late += 1
            if self._acts(start, at) and end > at.c:
                self._count(CountReason.ADJUSTED, item, at.c)
                self.admitted.events.append(replace(item, start=at.c))
            else:
                self._count(CountReason.DROPPED, item, at.c)

    def _name(self, item: Item) -> Any:
        return (item.start, *(comparable(item.payload[name]) for name in self.source.ids))

    @staticmethod
    def _whole(item: Item) -> Any:
        return (item.start, end_ticks(item.end), comparable_payload(item))


def _least(rows: Sequence[Item]) -> Item:
    """Return the row, among rows of one id and start in one micro-batch, that is valid: the least by end, then by payload."""
    first, *_ = rows
    differ = [n for n in first.payload if any(comparable(r.payload[n]) != comparable(first.payload[n]) for r in rows)]
    return min(rows, key=lambda row: (end_ticks(row.end), *(row.payload[n] for n in differ)))


@defines(Intervals)
def intervals(node: Intervals, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that makes an event ``[start, end)`` of each row with ``start < end``, with ids once; a NULL end is infinity.

    Other rows are dropped, or raise InvalidEvent: see :func:`events_of`.
    """
    start, end = column(node, node.start), f"coalesce({column(node, node.end)}, {INFINITY})"
    rows = events_of(node, run, f"""
        SELECT {listed(f"{start} AS le", f"{end} AS re", *payload_of(node))},
            CASE {no_start(start)} WHEN NOT {start} < {end} THEN 'end before start' END AS bad
        FROM {run.source(node)}""")  # fmt: skip
    return f"SELECT {listed('le', 're', *payload(node.schema))} FROM {once(node, run, rows)}"


class IntervalsRoom(SourceRoom[Intervals]):
    kind = Intervals
    simplicity = 1
    shapes = ("intervals",)
    shapes_on_request = ("intervals_ids",)
    model = InsertOnlyModel

    def row(self, source: Intervals, item: Item) -> dict[str, Any]:
        return {source.start: item.start, source.end: item.end}

    def starts(self, source: Intervals, run: Run) -> str:
        start, end = column(source, source.start), column(source, source.end)
        return f"SELECT {start} AS t FROM {run.source(source)} WHERE ({end} <= {start}) IS DISTINCT FROM true"

    def drawn(
        self, draw: Draw, name: str, time: t.DataType, fields: tuple[Field, ...], ids: tuple[Field, ...]
    ) -> Intervals:
        columns = (Field("start", time), Field("end", time), *fields, *ids)
        return Intervals(name, columns, "start", "end", ids=tuple(f.name for f in ids))

    def arriving(self, source: Intervals, how: ArrivalPlan) -> st.SearchStrategy[list[Item]]:
        return interval_items(how)

    def invalid(self, draw: Draw, items: Sequence[Item], start: int, payload: Mapping[str, Any], scale: Scale) -> Item:
        """Draw an insert whose end is its start or a step before it, or an insert without a start."""
        short = draw(st.sampled_from([0, 0, 1])) * scale.step
        without_start = Item(INSERT, None, start, payload=payload)
        item: Item = draw(st.sampled_from([Item(INSERT, start, start - short, payload=payload), without_start]))
        return item

    def written(self, source: Intervals) -> tuple[str, list[str]]:
        times = [f"start={string(source.start)}", f"end={string(source.end)}"]
        return "sq.intervals", [*times, *column_lists(id=source.ids, beside=source.beside)]


@st.composite
def interval_items(draw: Draw, how: ArrivalPlan) -> list[Item]:
    """Draw inserts only, in order of arrival; ids count the events of one start, and a copy repeats its event's id."""
    chained: list[tuple[int, Item]] = []
    once = DuplicateFilter(how.intent)
    number: dict[int, int] = {}
    for start, end in draw(lifetimes(how.intent, how.scale)):
        payload = draw(how.payloads)
        if how.id:
            # events of different starts may have one id
            number[start] = number.get(start, -1) + 1
            payload = {**payload, how.id: how.number(number[start])}
        item = Item(INSERT, start, end_or_none(end), payload=payload)
        if once.is_new(item):
            chained += [(len(chained), item)] * draw(copies(how.intent))
    return draw(arranged(chained, how.intent, causal=False))


@defines(Points)
def points(node: Points, inputs: Sequence[str], run: Run) -> str:
    """Return SQL that makes an event ``[t, t + 1)`` of each row, with ids once.

    Rows without an instant, and those of the last two ticks, are dropped, or raise InvalidEvent: see :func:`events_of`.
    """
    time = column(node, node.time)
    rows = events_of(node, run, f"""
        SELECT {listed(f"{time} AS le", f"CASE WHEN {time} < {INFINITY} THEN {time} + 1 END AS re", *payload_of(node))},
            CASE {no_start(time, INFINITY - 2)} END AS bad
        FROM {run.source(node)}""")  # fmt: skip
    return f"SELECT {listed('le', 're', *payload(node.schema))} FROM {once(node, run, rows)}"


class PointsRoom(SourceRoom[Points]):
    kind = Points
    simplicity = 0
    shapes = ("points",)
    shapes_on_request = ("points_ids",)
    model = InsertOnlyModel

    def row(self, source: Points, item: Item) -> dict[str, Any]:
        return {source.time: item.start}

    def late_row(self, source: Points, item: Item) -> dict[str, Any]:
        end = None if item.start is None else item.start + 1
        return {**super().late_row(source, item), "end": end}

    def starts(self, source: Points, run: Run) -> str:
        return f"SELECT {column(source, source.time)} AS t FROM {run.source(source)}"

    def drawn(
        self, draw: Draw, name: str, time: t.DataType, fields: tuple[Field, ...], ids: tuple[Field, ...]
    ) -> Points:
        return Points(name, (Field("t", time), *fields, *ids), "t", ids=tuple(f.name for f in ids))

    def arriving(self, source: Points, how: ArrivalPlan) -> st.SearchStrategy[list[Item]]:
        return point_items(how)

    def invalid(self, draw: Draw, items: Sequence[Item], start: int, payload: Mapping[str, Any], scale: Scale) -> Item:
        return Item(INSERT, None, payload=payload)

    def written(self, source: Points) -> tuple[str, list[str]]:
        return "sq.points", [f"time={string(source.time)}", *column_lists(id=source.ids, beside=source.beside)]


@st.composite
def point_items(draw: Draw, how: ArrivalPlan) -> list[Item]:
    """Draw inserts of one tick."""
    unit_intervals = draw(interval_items(replace(how, intent=how.intent.but(duration=("point",)))))
    return [Item(INSERT, item.start, item.start + 1, payload=item.payload) for item in unit_intervals]
