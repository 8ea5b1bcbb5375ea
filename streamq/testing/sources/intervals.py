"""The room of sources of intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.plan.schema import Field
from streamq.runtime.event import INSERT
from streamq.sources.intervals import Intervals
from streamq.testing.arrival import Item, end_or_none
from streamq.testing.arrival_order import arranged
from streamq.testing.drawn_duplicates import DuplicateFilter, copies
from streamq.testing.drawn_lifetimes import lifetimes
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.sources import column, events_of, no_start, once, payload_of
from streamq.testing.oracle.values import listed, payload
from streamq.testing.program_text import column_lists, string
from streamq.testing.scale import Scale
from streamq.testing.sources.insert_only_model import InsertOnlyModel
from streamq.testing.sources.room import Arriving, Draw, SourceRoom
from streamq.time import INFINITY


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
    """The room of :class:`Intervals`."""

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

    def arriving(self, source: Intervals, how: Arriving) -> st.SearchStrategy[list[Item]]:
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
def interval_items(draw: Draw, how: Arriving) -> list[Item]:
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
