"""Charts of numbers: those of an answer over time, and the costs of levels of consistency."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streamq import html
from streamq.errors import PlanError, TypeMismatch, counted
from streamq.html import element, shortened_to_width
from streamq.pictures.panel_history import TIMES_OF_DAY, PanelHistory, shown_value
from streamq.pictures.picture import LIGHT, Picture
from streamq.plan.schema import Schema
from streamq.plan.spark_types import is_numeric
from streamq.runtime.arrow.rendering import python_rows
from streamq.time import INFINITY, TIMESTAMP, show_ticks

if TYPE_CHECKING:
    from streamq.levels.compare_levels import LevelCosts

MOST_STEPS_DRAWN = 20_000
"""The most events of a chart."""

MOST_TABLE_ROWS = 800
"""The most events in the table beside a chart."""


def number_columns(schema: Schema, columns: Sequence[str], keys: Sequence[str]) -> list[str]:
    """Return the columns of a chart, by default all that hold numbers and are no keys.

    Raises UnknownColumn, and TypeMismatch for columns without numbers, or if there is none.
    """
    for name in columns:
        kind = schema.require(name, "chart")
        if not is_numeric(kind):
            raise TypeMismatch("chart", f"column {name!r} holds no numbers", f"it is a {kind.simpleString()}")
    numeric = [f.name for f in schema.fields if is_numeric(f.type) and f.name not in keys]
    if not columns and not numeric:
        raise TypeMismatch("chart", "no column holds numbers", f"there are: {schema.describe()}")
    return list(columns) or numeric


def step_chart(history: PanelHistory, columns: Sequence[str], title: str) -> Picture:
    """Return the chart of a history: one below the other the columns, in each a line for each key.

    A value is drawn over its event's lifetime, to the end of the axis if it has none. Events of a key that follow each other
    without a gap are one line; others, and all of a key whose events overlap, are lines of their own. Values that are NULL,
    NaN or infinite are left out. Raises PlanError for more than MOST_STEPS_DRAWN events.
    """
    if history.count > MOST_STEPS_DRAWN:
        wrong = f"more than {MOST_STEPS_DRAWN:,} events"
        hint = "Draw a coarser window, or fewer groups."
        raise PlanError("chart", wrong, f"found {history.count:,}", hint)
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
    description = f"{', '.join(columns)} over time; {counted(history.count, 'event')}{of_keys}."
    return Picture(title, [description], {"title": title, "vconcat": panels}, _table_of(history, columns))


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
    times = {"type": "temporal", "scale": {"type": "utc"}, "title": "UTC", "axis": {"format": TIMES_OF_DAY}}
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


def level_chart(
    title: str, costs: Sequence[LevelCosts], table: str, show_wait: Callable[[float], str], notes: Sequence[str]
) -> Picture:
    """Return a chart of the costs of levels of consistency: a panel for each kind of costs, with a bar for each level.

    ``table``: the same as HTML; ``show_wait`` writes the wait of a row; ``notes`` are more sentences.
    """
    panels: list[dict[str, Any]] = []

    def add(
        name: str, legend: str, shown: Sequence[str], parts: Sequence[Sequence[float]], most: Sequence[float]
    ) -> None:
        """Add a panel: a text, the parts of a bar, and the end of a line behind it, for each level."""
        names = {"field": "level", "type": "nominal", "sort": None, "title": None}
        y = {**names, "axis": {"ticks": False, "domain": False} if not panels else None}
        x = {"type": "quantitative", "axis": None}
        rows = [
            {"level": cost.level, "shown": text, "part": number, "value": value, "sum": sum(values), "most": end}
            for cost, text, values, end in zip(costs, shown, parts, most, strict=True)
            for number, value in enumerate(values)
        ]
        colours = {"scale": {"domain": [0, 1], "range": [LIGHT.keys[0][1], LIGHT.keys[5][1]]}, "legend": None}
        bars = {
            "mark": {"type": "bar", "height": 12, "yOffset": 8},
            "encoding": {
                "y": y,
                "x": {"field": "value", **x},
                "color": {"field": "part", "type": "nominal", **colours},
            },
        }
        lines = {
            "transform": [{"filter": "datum.most > datum.sum"}],
            "mark": {"type": "rule", "yOffset": 8, "color": LIGHT.faint},
            "encoding": {"y": y, "x": {"field": "sum", **x}, "x2": {"field": "most"}},
        }
        texts = {
            "transform": [{"filter": "datum.part == 0"}],
            "mark": {"type": "text", "align": "left", "dy": -8, "color": LIGHT.text},
            "encoding": {"y": y, "x": {"datum": 0, **x}, "text": {"field": "shown", "type": "nominal"}},
        }
        head = {"text": name, "subtitle": legend, "anchor": "start", "subtitleColor": LIGHT.faint}
        size = {"width": 180, "height": {"step": 36}}
        panels.append({"title": head, **size, "data": {"values": rows}, "layer": [bars, lines, texts]})

    waits = [f"{show_wait(cost.wait_mean)}; most {show_wait(cost.wait_most)}" for cost in costs]
    add("A row waits", "mean; line to the most", waits, [[c.wait_mean] for c in costs], [c.wait_most for c in costs])
    written = [f"{cost.inserts:,} + {cost.retractions:,}" for cost in costs]
    add(
        "Rows written",
        "inserts, then retractions",
        written,
        [[c.inserts, c.retractions] for c in costs],
        [0] * len(costs),
    )
    state = [f"{cost.state_mean:,.0f}; most {cost.state_most:,}" for cost in costs]
    add(
        "Rows of state", "mean; line to the most", state, [[c.state_mean] for c in costs], [c.state_most for c in costs]
    )
    right = [f"{cost.right:.1%}" for cost in costs]
    add("Right", "part of the answer; line to all", right, [[c.right] for c in costs], [1.0] * len(costs))
    sentences = [
        f"{cost.level}: a row waits {show_wait(cost.wait_mean)} on average, {show_wait(cost.wait_most)} at most; inserts: "
        f"{cost.inserts:,}; retractions: {cost.retractions:,}; rows of state: {cost.state_mean:,.0f} on average, "
        f"{cost.state_most:,} at most; right: {cost.right:.1%}."
        for cost in costs
    ]
    return Picture(title, [*sentences, *notes], {"title": title, "hconcat": panels}, table)
