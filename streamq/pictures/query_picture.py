"""Draw a query: its inputs, the windows that they are in, its answer or changelog; or the numbers of its answer."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamq.aggregates.basic import COUNT
from streamq.choices import OutputForm, Stamp, check_word
from streamq.errors import PlanError, column_names
from streamq.operators import Source, WindowAggregate
from streamq.operators.member_operator import BOUNDS, MemberOperator
from streamq.pictures.charts import number_columns, step_chart
from streamq.pictures.panel_history import (
    MOST_ROWS,
    PanelHistory,
    TimeAxis,
    answer_history,
    history_of_changes,
    instant_label,
    section,
)
from streamq.pictures.panels import Panel, keys_with_rows
from streamq.pictures.picture import Picture, check_title
from streamq.plan.aggregate import Aggregate
from streamq.plan.node import Node, nodes, number_sources
from streamq.plan.schema import POINT, Schema, carried_key, show_keys
from streamq.progress.promises import ExplicitCtis
from streamq.run.batch.answers import compute_answer
from streamq.run.batch.passed_batches import passed_batches, passed_tables
from streamq.runtime.deltas import BAD
from streamq.time import TIMESTAMP, instant_ticks
from streamq.tracing.recorded_run import Recording, TracedOperator, record_run

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
    drawing = _QueryDrawing(plan, in_memory, until, _KeyChoice.from_argument(plan, key, "plot"))
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
    keys = _KeyChoice.from_argument(plan, key, "chart").for_schema(plan.schema)
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


class _KeyChoice:
    """The columns that give lanes and colours: those that the user named, or the keys of the query's operators."""

    def __init__(self, candidates: Sequence[tuple[str, ...]]):
        self.candidates = candidates

    @classmethod
    def from_argument(cls, plan: Node, key: str | Sequence[str] | None, verb: str) -> _KeyChoice:
        """Return the user's choice, or the query's; raise UnknownColumn, worded for ``verb``, for columns that no panel has."""
        if key is None:
            return cls([keys for node in reversed(nodes(plan)) for keys in _keys_of(node)])
        names = column_names(key, verb, "key")
        drawn = [plan, *(node for node in nodes(plan) if isinstance(node, Source))]
        for name in names:
            if not any(name in node.schema.names for node in drawn):
                plan.schema.unknown(name, verb)
        return cls([names])

    def for_schema(self, schema: Schema) -> tuple[str, ...]:
        """Return the first choice whose columns a schema has; () if there is none."""
        return next((keys for keys in self.candidates if keys and set(keys) <= set(schema.names)), ())


def _keys_of(node: Node) -> list[tuple[str, ...]]:
    """Return the columns by which an operator groups or matches events, by the names that users know."""
    pairs: Sequence[tuple[str, str]] = getattr(node, "on", ())
    groups: Sequence[str] = getattr(node, "keys", ())
    columns = [groups, [left for left, _ in pairs], [right for _, right in pairs]]
    return [tuple(dict.fromkeys(carried_key(name) or name for name in names)) for names in columns]


class _QueryDrawing:
    """The histories of a query's panels over ``tables`` in memory."""

    def __init__(self, plan: Node, tables: Mapping[str, pa.Table], until: Instant | None, keys: _KeyChoice):
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
        window = node.window.with_members((), node.window.where) or node.window
        windows = WindowAggregate(node.input, keys, window, members, stamp=Stamp.ALIGN)
        title = f"{node.window.name} windows {node.window.shown(node.schema.axis)}{show_keys(keys)}"
        answer = compute_answer(windows, self.tables, self.until, "plot")
        return answer_history(answer, title, node.schema.axis, keys, has_points=False, is_windows=True)

    def _answer(self, plan: Node, title: str) -> PanelHistory:
        answer = compute_answer(plan, self.tables, self.until, "plot")
        keys = self.keys.for_schema(plan.schema)
        return answer_history(answer, title, plan.schema.axis, keys, has_points=_has_points(plan))


def _recorded(plan: Node, tables: Mapping[str, pa.Table], until: int | None) -> Recording:
    """Return what the operators of a plan do in-process while the rows of its tables arrive one by one."""
    passed = passed_batches(plan, tables, None, verb="plot")
    return record_run(plan, passed.static, passed.batches, until, verb="plot", streaming=False)


def _changed(recording: Recording, one: TracedOperator, title: str, keys: _KeyChoice, note: str = "") -> PanelHistory:
    schema, steps = one.node.schema, [batch.deltas[one.number] for batch in recording.batches]
    return history_of_changes(
        steps,
        recording.promised(one.number),
        title,
        schema.axis,
        keys.for_schema(schema),
        has_points=_has_points(one.node),
        note=note,
    )


def _window_keys(node: MemberOperator) -> tuple[str, ...]:
    """Return the keys of the groups that have windows of their own: none on a grid, which all groups share."""
    return node.window.outer_keys(node.keys) if node.window.grid is None else ()


def _has_points(plan: Node) -> bool:
    return plan.schema.shape == POINT
