"""Histories for pictures: random physical streams, and the parsed elements of a picture."""

from __future__ import annotations

import random
from xml.etree import ElementTree

import pyarrow as pa

from streamq import testing as t
from streamq.pictures.picture import Picture

SVG = "{http://www.w3.org/2000/svg}"

COLUMNS = "kind string, start bigint, end bigint, new_end bigint, k string, v bigint"


def physical_rows(seed: int) -> pa.Table:
    """Up to twelve events of three keys, half of them corrected once or twice, in an order in which each insert comes first."""
    draw = random.Random(seed)
    events: list[list[tuple[str, int, int | None, int | None, str, int]]] = []
    for v in range(draw.randrange(13)):
        start, k = draw.randrange(-5, 30), draw.choice("abc")
        end: int | None = None if draw.random() < 0.2 else start + draw.randrange(1, 12)
        items = [("insert", start, end, None, k, v)]
        while draw.random() < 0.4:
            new_end = start + draw.randrange(0, 12)
            if new_end == end:
                continue
            items.append(("retract", start, end, new_end, k, v))
            end = new_end
            if new_end == start:
                break
        events.append(items)
    rows = []
    while events:
        items = draw.choice(events)
        rows.append(items.pop(0))
        events = [rest for rest in events if rest]
    return t.table(COLUMNS, rows)


def parsed_svg(picture: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(picture.svg)


def table_rows(picture: Picture) -> list[list[str]]:
    """The cells of all rows of a picture's tables, those of their heads left out."""
    page = ElementTree.fromstring(picture.html)
    return [[cell.text or "" for cell in row] for row in page.iterfind(".//tbody/tr")]
