"""Charts of numbers over time: a step for each event, over its lifetime, as a Vega-Lite chart that Altair shows and saves."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from streamq import html
from streamq.errors import PlanError, SessionError, TypeMismatch, counted, sentence
from streamq.html import element, markup_text, shortened_to_width, with_escapes
from streamq.pictures.panel_history import PanelHistory, shown_value
from streamq.pictures.svg_picture import LIGHT, dark_rules, folded, label_ids, named_elements
from streamq.plan.schema import Schema
from streamq.plan.spark_types import is_numeric
from streamq.runtime.arrow.rendering import python_rows
from streamq.time import INFINITY, TIMESTAMP, show_ticks

MOST_STEPS_DRAWN = 20_000
"""The most events of a chart."""

MOST_TABLE_ROWS = 800
"""The most events in the table beside a chart."""

TO_INSTALL = "pip install 'streamq[charts]'"


class StepChart:
    """A chart of numbers over time; a notebook shows it as SVG, without the network, with its words and a table below it.

    ``spec`` is the chart in Vega-Lite, as data. ``altair`` is it as an Altair chart, to be changed. :meth:`save` writes it.
    These raise SessionError if Altair or vl-convert, of the extra ``charts``, is not installed; a notebook then shows the
    words and the table, and what to install.
    """

    def __init__(self, spec: dict[str, Any], table: str = ""):
        """Draw ``spec``; ``table``: its events as HTML."""
        self.spec = spec
        self._table = table

    @property
    def altair(self) -> Any:
        """The chart as an Altair chart."""
        try:
            import altair
        except ImportError:
            raise SessionError(sentence("chart", "Altair is not installed", "", TO_INSTALL)) from None
        return altair.Chart.from_dict(self.spec)

    @cached_property
    def svg(self) -> str:
        """The chart as an SVG element, with a name and a description; its colours follow the reader's scheme, light or dark."""
        drawn: str = _vl_convert().vegalite_to_svg(self.spec)
        scope = f"streamq-{hashlib.sha256(f'{self!r}{drawn}'.encode()).hexdigest()[:10]}"
        opening = f'<svg id="{scope}" role="img" aria-labelledby="{label_ids(scope)}" '
        names = named_elements(scope, self.spec["title"] or "Numbers over time", self.spec["description"])
        style = element("style", f"\n{dark_rules(scope)}\n")
        return re.sub(r"\A<svg ([^>]*>)", lambda start: f"{opening}{start[1]}{names}{style}", drawn)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the chart to a file, SVG or PNG by the ending of its name, and return its path; PlanError for other endings."""
        file = Path(path)
        match file.suffix.lower():
            case ".svg":
                file.write_text(f"{self.svg}\n", encoding="utf-8")
            case ".png":
                file.write_bytes(_vl_convert().vegalite_to_png(self.spec, scale=2))
            case _:
                hint = "chart.altair.save(...) has other forms."
                raise PlanError(sentence("save", "a chart is saved as .svg or .png", f"found {file.name!r}", hint))
        return file

    def _repr_html_(self) -> str:
        description = [self.spec["description"]]
        try:
            return html.fragment(self.svg, folded(description, self._table))
        except SessionError as error:
            missing = element("p", markup_text(str(error)))
            return html.fragment(html.lines(repr(self)), missing, folded(description, self._table))

    def __repr__(self) -> str:
        return with_escapes(": ".join(text for text in (self.spec["title"], self.spec["description"]) if text))


def _vl_convert() -> Any:
    """Return the module that draws Vega-Lite charts; raise SessionError if it is not installed."""
    try:
        import vl_convert
    except ImportError:
        raise SessionError(sentence("chart", "vl-convert is not installed", "", TO_INSTALL)) from None
    return vl_convert


def number_columns(schema: Schema, columns: Sequence[str], keys: Sequence[str]) -> list[str]:
    """Return the columns of a chart, by default all that hold numbers and are no keys.

    Raises UnknownColumn, and TypeMismatch for columns without numbers, or if there is none.
    """
    for name in columns:
        kind = schema.require(name, "chart")
        if not is_numeric(kind):
            raise TypeMismatch(sentence("chart", f"column {name!r} holds no numbers", f"it is a {kind.simpleString()}"))
    numeric = [f.name for f in schema.fields if is_numeric(f.type) and f.name not in keys]
    if not columns and not numeric:
        raise TypeMismatch(sentence("chart", "no column holds numbers", f"there are: {schema.describe()}"))
    return list(columns) or numeric


def step_chart(history: PanelHistory, columns: Sequence[str], title: str) -> StepChart:
    """Return the chart of a history: one below the other the columns, in each a line for each key.

    A value is drawn over its event's lifetime, to the end of the axis if it has none. Events of a key that follow each other
    without a gap are one line; others, and all of a key whose events overlap, are lines of their own. Values that are NULL,
    NaN or infinite are left out. Raises PlanError for more than MOST_STEPS_DRAWN events.
    """
    if history.count > MOST_STEPS_DRAWN:
        wrong = f"more than {MOST_STEPS_DRAWN:,} events"
        hint = "Draw a coarser window, or fewer groups."
        raise PlanError(sentence("chart", wrong, f"found {history.count:,}", hint))
    last = int(max([*history.starts.tolist(), *(e for e in history.ends.tolist() if e != INFINITY)], default=0)) + 1
    keys, groups = history.key_groups
    runs = run_numbers(history, groups.tolist())
    panels = [
        _panel(
            column, list(_points(history, column, [keys[g] for g in groups.tolist()], runs, last)), history, len(keys)
        )
        for column in columns
    ]
    of_keys = f" of {counted(len(keys), 'key')} ({', '.join(history.keys)})" if history.keys else ""
    return StepChart(
        {
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "title": title,
            "description": f"{', '.join(columns)} over time; {counted(history.count, 'event')}{of_keys}.",
            "background": LIGHT.ground,
            "config": _COLOURS,
            "vconcat": panels,
        },
        _table_of(history, columns),
    )


_COLOURS = {
    "axis": {
        **{f"{part}Color": LIGHT.text for part in ("label", "title")},
        **{f"{part}Color": LIGHT.faint for part in ("domain", "tick")},
        "gridColor": LIGHT.line,
    },
    "legend": {"labelColor": LIGHT.text, "titleColor": LIGHT.text},
    "title": {"color": LIGHT.text},
    "view": {"stroke": LIGHT.line},
}
"""The colours of a chart beside those of keys; only colours of the palette have others where dark is preferred."""


_TIMES_OF_DAY = {"hours": "%H:%M", "minutes": "%H:%M"}
"""The form of marks that are not at midnight: the clock has 24 hours, where Vega's has 12."""


def _table_of(history: PanelHistory, columns: Sequence[str]) -> str:
    """Return the events of a chart as an HTML table: keys, numbers and lifetimes, the first MOST_TABLE_ROWS of them."""
    names = list(dict.fromkeys([*history.keys, *columns]))
    rows = python_rows(history.payload.select(names).slice(0, MOST_TABLE_ROWS))
    shown = [
        [*map(shown_value, row.values()), *(history.instant(int(t)) for t in lifetime)]
        for row, *lifetime in zip(rows, history.starts, history.ends, strict=False)
    ]
    left_out = history.count - len(shown)
    more = element("div", f"... {left_out} more rows") if left_out else ""
    return html.tabulated([*names, "start", "end"], shown, most=len(shown)) + more


def run_numbers(history: PanelHistory, groups: Sequence[int]) -> list[int]:
    """Return for each event the number of its line: events of a key that meet share one, if none of the key overlap."""
    by_key: dict[int, list[int]] = {}
    for event, group in enumerate(groups):
        by_key.setdefault(group, []).append(event)
    runs, number = [0] * len(groups), 0
    for events in by_key.values():
        in_order = sorted(events, key=lambda event: (int(history.starts[event]), event))
        neighbours = [(int(history.ends[a]), int(history.starts[b])) for a, b in pairwise(in_order)]
        overlap = any(end > start for end, start in neighbours)
        for event, (end, start) in zip(in_order, [(0, 1), *neighbours], strict=True):
            number += end != start or overlap
            runs[event] = number
    return runs


def _points(
    history: PanelHistory, column: str, keys: Sequence[str], runs: Sequence[int], last: int
) -> Iterator[dict[str, Any]]:
    """Yield the two ends of each event's step; ``last``: the end that events without one have in the chart."""
    values = history.payload.column(column).to_pylist()
    lifetimes = zip(history.starts.tolist(), history.ends.tolist(), strict=True)
    for (start, end), value, key, run in zip(lifetimes, values, keys, runs, strict=True):
        if value is not None and math.isfinite(value):
            number = float(value) if isinstance(value, Decimal) else value
            for t in (start, last if end == INFINITY else end):
                yield {"at": _instant(t, history.axis), "value": number, "key": key, "run": run}


def _instant(t: int, axis: str) -> int | str:
    """Return an instant as Vega reads it; beyond the years of the calendar as text that it leaves out."""
    return show_ticks(t, axis) if axis == TIMESTAMP else t


def _panel(column: str, points: list[dict[str, Any]], history: PanelHistory, keys: int) -> dict[str, Any]:
    """Return the chart of a column; the lines of keys have their names at their ends and in the legend."""
    times = {"type": "temporal", "scale": {"type": "utc"}, "title": "UTC", "axis": {"format": _TIMES_OF_DAY}}
    whole = {"tickMinStep": 1, "format": ",d"}
    number = {"type": "quantitative", "scale": {"zero": False, "nice": False}, "title": None, "axis": whole}
    x = {"field": "at", **(times if history.axis == TIMESTAMP else number)}
    # a temperature is not to be a flat line high above zero
    y = {"field": "value", "type": "quantitative", "title": column, "scale": {"zero": False}}
    colours = [border for _, border in LIGHT.keys]
    title = ", ".join(history.keys)
    colour = {"field": "key", "type": "nominal", "title": title, "scale": {"range": colours}}
    own_colour: dict[str, Any] = {"color": colour} if history.keys else {"color": {"value": colours[0]}}
    ends = {point["key"]: point for point in points}
    line = {
        "mark": {"type": "line", "strokeWidth": 2, "tooltip": True},
        "encoding": {"x": x, "y": y, "detail": {"field": "run", "type": "nominal"}, **own_colour},
    }
    names = {
        "data": {"values": [{**end, "name": shortened_to_width(end["key"], 11, 120)} for end in ends.values()]},
        "mark": {"type": "text", "align": "left", "dx": 5, "color": LIGHT.text},
        "encoding": {"x": x, "y": y, "text": {"field": "name", "type": "nominal"}},
    }
    layers = [line, names] if history.keys and keys <= len(colours) else [line]
    return {"width": 720, "height": 160, "data": {"values": points}, "layer": layers}
