"""The room of sources of points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from streamq.operators import Points
from streamq.plan.schema import Field
from streamq.runtime.event import INSERT
from streamq.testing.arrival import Item
from streamq.testing.oracle.definitions import defines
from streamq.testing.oracle.expressions import listed, payload
from streamq.testing.oracle.run import Run
from streamq.testing.oracle.sources import column, events_of, no_start, once, payload_of
from streamq.testing.program_text import one_or_more, string
from streamq.testing.sources.insert_only_model import InsertOnlyModel
from streamq.testing.sources.room import Arriving, Draw, SourceRoom
from streamq.time import INFINITY

if TYPE_CHECKING:
    from streamq.testing.scale import Scale


@defines(Points)
def points(node: Points, inputs: Sequence[str], run: Run) -> str:
    """Make an event ``[t, t + 1)`` of each row."""
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

    def arriving(self, draw: Draw, source: Points, how: Arriving) -> list[Item]:
        # imported here to avoid a cycle: events are drawn at a scale, which imports the rooms
        from streamq.testing import events

        items: list[Item] = draw(events.points(how.payloads, how.intent, how.scale, how.id, how.number))
        return items

    def invalid(self, draw: Draw, items: Sequence[Item], start: int, payload: Mapping[str, Any], scale: Scale) -> Item:
        return Item(INSERT, None, payload=payload)

    def written(self, source: Points) -> tuple[str, list[str]]:
        ids = [f"id={one_or_more(source.ids)}"] if source.ids else []
        return "sq.points", [f"time={string(source.time)}", *ids]
