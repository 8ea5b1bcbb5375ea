"""The room of sources of points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as t

from streamq.plan.schema import Field
from streamq.runtime.event import INSERT
from streamq.sources.points import Points
from streamq.testing.arrival import Item
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.sources import column, events_of, no_start, once, payload_of
from streamq.testing.oracle.values import listed, payload
from streamq.testing.program_text import column_lists, string
from streamq.testing.scale import Scale
from streamq.testing.sources.insert_only_model import InsertOnlyModel
from streamq.testing.sources.intervals import interval_items
from streamq.testing.sources.room import Arriving, Draw, SourceRoom
from streamq.time import INFINITY


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
    """The room of :class:`Points`."""

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

    def arriving(self, source: Points, how: Arriving) -> st.SearchStrategy[list[Item]]:
        return point_items(how)

    def invalid(self, draw: Draw, items: Sequence[Item], start: int, payload: Mapping[str, Any], scale: Scale) -> Item:
        return Item(INSERT, None, payload=payload)

    def written(self, source: Points) -> tuple[str, list[str]]:
        return "sq.points", [f"time={string(source.time)}", *column_lists(id=source.ids, beside=source.beside)]


@st.composite
def point_items(draw: Draw, how: Arriving) -> list[Item]:
    """Draw inserts of one tick."""
    unit_intervals = draw(interval_items(replace(how, intent=how.intent.but(duration=("point",)))))
    return [Item(INSERT, item.start, item.start + 1, payload=item.payload) for item in unit_intervals]
