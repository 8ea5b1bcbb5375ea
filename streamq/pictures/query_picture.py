"""Draw a query: its inputs, the windows that they are in, its answer or changelog; or the numbers of its answer."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq import html
from streamq.aggregates.basic import COUNT
from streamq.choices import OutputForm, Stamp, check_word
from streamq.errors import PlanError, TypeMismatch, column_names, counted
from streamq.html import element, shortened_to_width
from streamq.operators import Source, WindowAggregate
from streamq.operators.member_operator import BOUNDS, MemberOperator
from streamq.pictures.panel_history import (
    MOST_ROWS,
    TIMES_OF_DAY,
    PanelHistory,
    TimeAxis,
    answer_history,
    history_of_changes,
    section,
    shown_value,
)
from streamq.pictures.panels import Panel, keys_with_rows
from streamq.pictures.picture import LIGHT, Picture, check_title
from streamq.plan.aggregate import Aggregate
from streamq.plan.node import Node, nodes, number_sources
from streamq.plan.schema import POINT, Schema, carried_key, show_keys
from streamq.plan.spark_types import is_numeric
from streamq.progress_policies import ExplicitCtis
from streamq.run.batch.answers import compute_answer
from streamq.run.batch.passed_batches import passed_batches, passed_tables
from streamq.runtime.arrow.values import python_rows
from streamq.runtime.deltas import BAD
from streamq.time import INFINITY, TIMESTAMP, instant_label, instant_ticks, show_ticks
from streamq.tracing.recorded_run import Recording, TracedOperator, record_run
from streamq.windows import Rows

Instant = int | dt.datetime


def draw_query(
    plan: Node,
    tables: Mapping[str, Any],
    rows: Any,
    *,
    until: Instant | None,
    output: str,
    key: str | Sequence[str] | None,
    between: tuple[Instant, Instant] | None,
    title: str | None,
) -> Picture:
    """Return the picture of a query over the tables of its sources; the arguments are those of ``Stream.plot``."""
    check_word(output, (OutputForm.FINAL, OutputForm.CHANGELOG), "output", "plot")
    check_title(title, "plot")
    # equal queries have equal pictures, whatever numbers their unnamed sources have
    plan, names = number_sources(plan)
    numbered = {names[name]: table for name, table in tables.items() if name in names}
    in_memory = passed_tables(plan, numbered, rows, verb="plot")
    drawing = _QueryDrawing(plan, in_memory, until, key_choice(plan, key, "plot"))
    histories = drawing.changelog() if output == OutputForm.CHANGELOG else drawing.final()
    return history_picture(histories, _section(between, plan.schema.axis), title or "", drawing.title)


def history_picture(
    histories: Sequence[PanelHistory], between: tuple[int, int] | None, title: str, name: str
) -> Picture:
    """Return the picture of histories as panels, one below the other on one axis, below a title if there is one.

    ``between``: the first and last tick of the axis; ``name``: what the picture is called if it has no title.
    """
    kind = histories[0].axis
    instants = np.concatenate([np.concatenate([h.starts, h.ends, np.array(h.ctis, np.int64)]) for h in histories])
    axis = TimeAxis(*(section(instants, kind) if between is None else between), kind)
    panels = []
    for history in histories:
        alike = [one for one in histories if one.keys == history.keys and not one.is_windows]
        with_rows = keys_with_rows([history] if history.is_windows else alike)
        panels.append(Panel(history, axis, with_rows, has_labels=history is histories[-1]))
    keys = dict.fromkeys(key for panel in panels if not panel.history.is_windows for key in panel.keys)
    colours = {key: number for number, key in enumerate(keys)}
    bands = sorted({band for history in histories for band in _bands(history)})
    specs = [panel.spec(colours, [] if panel.history.is_windows else bands) for panel in panels]
    zone = " (UTC)" if kind == TIMESTAMP else ""
    low, high = (instant_label(t, kind) for t in (axis.low, axis.high))
    sentences = [*(" ".join(panel.sentences()) for panel in panels), f"The axis goes from {low} to {high}{zone}."]
    drawn = {"vconcat": specs, "spacing": 12} | ({"title": title} if title else {})
    return Picture(title or name, sentences, drawn, "\n".join(panel.table for panel in panels))


MOST_BANDS = 60
"""The most windows that are drawn as bands behind the events."""


def _bands(history: PanelHistory) -> list[tuple[int, int]]:
    """Return every second window of a history, to be drawn behind events; none if windows overlap or are many."""
    lifetimes = sorted(set(zip(history.starts.tolist(), history.ends.tolist(), strict=True)))
    overlap = any(end > start for (_, end), (start, _) in pairwise(lifetimes))
    return lifetimes[::2] if history.is_windows and not overlap and len(lifetimes) <= MOST_BANDS else []


def chart_query(
    plan: Node,
    tables: Mapping[str, Any],
    columns: Sequence[str],
    *,
    key: str | Sequence[str] | None,
    until: Instant | None,
    title: str | None,
) -> Picture:
    """Return the chart of a query's answer; the arguments are those of ``Stream.chart``."""
    check_title(title, "chart")
    keys = chosen_keys(key_choice(plan, key, "chart"), plan.schema)
    drawn = number_columns(plan.schema, columns, keys)
    answer = compute_answer(plan, tables, until, "chart")
    history = answer_history(answer, title or "", plan.schema.axis, keys, has_points=_has_points(plan))
    return step_chart(history, drawn, title or "")


def _section(between: Any, axis: str) -> tuple[int, int] | None:
    """Return the first and last instant of the axis that a user asks for, in ticks; None if there is no such wish."""
    if between is None:
        return None
    if not isinstance(between, tuple | list) or len(between) != 2:
        raise PlanError("plot", "between is a pair of instants", f"found {between!r}")
    low, high = (instant_ticks(t, axis, "plot") for t in between)
    if low is None or high is None or low >= high:
        raise PlanError("plot", "between is a pair of instants, the first before the second", f"found {between!r}")
    return low, high


KeyChoice = list[tuple[str, ...]]
"""Columns that may give lanes and colours; the first whose columns a panel has do so."""


def key_choice(plan: Node, key: str | Sequence[str] | None, verb: str) -> KeyChoice:
    """Return the columns that the user named, or the keys of the query's operators.

    Raises UnknownColumn, worded for ``verb``, for columns that no panel has.
    """
    if key is None:
        return [keys for node in reversed(nodes(plan)) for keys in _keys_of(node)]
    names = column_names(key, verb, "key")
    drawn = [plan, *(node for node in nodes(plan) if isinstance(node, Source))]
    for name in names:
        if not any(name in node.schema.names for node in drawn):
            plan.schema.unknown(name, verb)
    return [names]


def chosen_keys(choice: KeyChoice, schema: Schema) -> tuple[str, ...]:
    """Return the first choice whose columns a schema has; () if there is none."""
    return next((keys for keys in choice if keys and set(keys) <= set(schema.names)), ())


def _keys_of(node: Node) -> list[tuple[str, ...]]:
    """Return the columns by which an operator groups or matches events, by the names that users know."""
    pairs: Sequence[tuple[str, str]] = getattr(node, "on", ())
    groups: Sequence[str] = getattr(node, "keys", ())
    columns = [groups, [left for left, _ in pairs], [right for _, right in pairs]]
    return [tuple(dict.fromkeys(carried_key(name) or name for name in names)) for names in columns]


class _QueryDrawing:
    """The histories of a query's panels over ``tables`` in memory."""

    def __init__(self, plan: Node, tables: Mapping[str, pa.Table], until: Instant | None, keys: KeyChoice):
        self.plan, self.tables, self.until, self.keys = plan, tables, until, keys
        self.sources = [node for node in nodes(plan) if isinstance(node, Source)]

    @property
    def title(self) -> str:
        """The title of the picture."""
        names = ", ".join(source.shown_name() for source in self.sources)
        return names if self.plan in self.sources else f"{names}, and the answer of a query"

    def final(self) -> list[PanelHistory]:
        """Return the histories of the inputs, of the windows and of the answer."""
        inputs = [self._input(source) for source in self.sources]
        if self.plan in self.sources:
            return inputs
        return [*inputs, *self._windows(), self._answer(self.plan, "answer")]

    def changelog(self) -> list[PanelHistory]:
        """Return the same with the result as a stream gives it: with what it takes back, and CTIs."""
        count = sum(table.num_rows for table in self.tables.values())
        if count > MOST_ROWS:
            hint = "Give fewer rows: q.plot(rows, output='changelog')."
            raise PlanError("plot", f"a changelog over more than {MOST_ROWS:,} rows", f"found {count:,}", hint)
        until = instant_ticks(self.until, self.plan.schema.axis)
        recording = _recorded(self.plan, self.tables, until)
        late = Counter((row["source"], row["reason"]) for batch in recording.batches for row in batch.late.to_pylist())
        shown = ", ".join(f"{number:,} {reason} ({name})" for (name, reason), number in sorted(late.items()))
        note = f"Rows late or otherwise odd: {shown}." if shown else ""
        result = _changed(recording, recording.operators[-1], "changelog", self.keys, note)
        if self.plan in self.sources:
            return [result]
        inputs = [
            replace(self._input(one.node), ctis=recording.promised(one.number))
            for one in recording.sources
            if isinstance(one.node, Source)
        ]
        return [*inputs, *self._windows(), result]

    def _input(self, source: Source) -> PanelHistory:
        """Return the events of a source; of one that may take them back, if its rows are not too many, also those taken back."""
        table = self.tables[source.table]
        if source.insert_only:
            return self._answer(source, source.shown_name())
        if table.num_rows > MOST_ROWS:
            note = f"Of more than {MOST_ROWS:,} rows only what stands is drawn."
            return replace(self._answer(source, source.shown_name()), note=note)
        # without progress nothing is late, as in a batch; CTIs are read beside
        policy = replace(source.policy, progress=ExplicitCtis())
        items = source.rows_in_arrow(table, False)
        ctis = np.unique(source.items.ctis_of(items.filter(pc.is_null(items.column(BAD)))).to_numpy())
        is_cti = source.items.ctis
        rows = table if is_cti is None else table.filter(pc.invert(pc.fill_null(is_cti.in_arrow(items), False)))
        recording = _recorded(replace(source, policy=policy), {source.table: rows}, None)
        history = _changed(recording, recording.operators[-1], source.shown_name(), self.keys)
        return replace(history, ctis=ctis.tolist())

    def _windows(self) -> list[PanelHistory]:
        """Return the windows of each operator over windows, from their members; those on a grid once for all groups."""
        operators = [
            node for node in nodes(self.plan) if isinstance(node, MemberOperator) and not BOUNDS.keys() & {*node.keys}
        ]
        distinct = {(node.input, node.window, _window_keys(node)): node for node in operators}
        return [self._windows_of(node) for node in distinct.values()]

    def _windows_of(self, node: MemberOperator) -> PanelHistory:
        keys = _window_keys(node)
        members = (("number of members", Aggregate(COUNT, ())),)
        window = replace(node.window, inner_keys=()) if isinstance(node.window, Rows) else node.window
        windows = WindowAggregate(node.input, keys, window, members, stamp=Stamp.ALIGN)
        title = f"{node.window.name} windows {node.window.shown(node.schema.axis)}{show_keys(keys)}"
        answer = compute_answer(windows, self.tables, self.until, "plot")
        return answer_history(answer, title, node.schema.axis, keys, has_points=False, is_windows=True)

    def _answer(self, plan: Node, title: str) -> PanelHistory:
        answer = compute_answer(plan, self.tables, self.until, "plot")
        keys = chosen_keys(self.keys, plan.schema)
        return answer_history(answer, title, plan.schema.axis, keys, has_points=_has_points(plan))


def _recorded(plan: Node, tables: Mapping[str, pa.Table], until: int | None) -> Recording:
    """Return what the operators of a plan do in-process while the rows of its tables arrive one by one."""
    passed = passed_batches(plan, tables, None, verb="plot")
    return record_run(plan, passed.static, passed.batches, until, verb="plot", streaming=False)


def _changed(recording: Recording, one: TracedOperator, title: str, keys: KeyChoice, note: str = "") -> PanelHistory:
    schema, steps = one.node.schema, [batch.deltas[one.number] for batch in recording.batches]
    return history_of_changes(
        steps,
        recording.promised(one.number),
        title,
        schema.axis,
        chosen_keys(keys, schema),
        has_points=_has_points(one.node),
        note=note,
    )


def _window_keys(node: MemberOperator) -> tuple[str, ...]:
    """Return the keys of the groups that have windows of their own: none on a grid, which all groups share."""
    return node.outer_keys if node.window.traits.grid is None else ()


def _has_points(plan: Node) -> bool:
    return plan.schema.shape == POINT


# charts of numbers

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
