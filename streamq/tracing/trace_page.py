"""A trace as HTML: the plan as a graph, a slider over arrival, and a panel of rows for each operator; without other files."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamq import html
from streamq.compiler.explain_graphs import plan_graph
from streamq.compiler.plan_graph import STYLE as GRAPH_STYLE
from streamq.errors import counted
from streamq.html import element, markup_text
from streamq.operators import Source
from streamq.pictures.panel_history import shown_value
from streamq.plan.schema import POINT
from streamq.runtime.arrow.columnar import concat
from streamq.runtime.arrow.values import python_rows
from streamq.runtime.deltas import LE, RE, RETRACT
from streamq.time import instant_label, show_duration
from streamq.tracing.recorded_run import (
    CHANGE,
    MICRO_BATCH,
    TracedOperator,
    plain_names,
    row_codes,
    shown_rows,
    user_columns,
)

if TYPE_CHECKING:
    from streamq.tracing.trace import Trace


@dataclass(kw_only=True)
class PageRow:
    """A change of an operator on the page.

    ``step``: the number of its micro-batch. ``gone``: that of the one which takes it back, None: it stands. ``place``: the place
    of the row that it leaves among the operator's distinct rows at the end; None: that row does not last. ``event``: the number
    of the event, at a source.
    """

    step: int
    kind: str
    lifetime: str
    cells: list[str]
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
    # the operator's distinct rows, and of each change the row that it is about, and the one that it leaves
    distinct, count = trace.lineage.distinct(one.number), changes.num_rows
    both = [
        changes.select([*names.values(), "start", end]).rename_columns([*names, LE, RE]).select(distinct.column_names)
        for end in ("end", "new_end")
    ]
    numbers = row_codes(concat([distinct, *both]))[0].tolist()
    place_of = {number: place for place, number in enumerate(numbers[: -2 * count])}
    before, after = numbers[-2 * count : -count], numbers[-count:]
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
        row = PageRow(step=step, kind=kind, lifetime=lifetime, cells=cells[number] if cells else [])
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


SCRIPT, STYLE = (Path(__file__).with_suffix(f".{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))
"""The script and the style of the page; in the script THE_ID_OF_THE_TRACE stands for the id of the page's element."""

MOST_LINKED = 200
"""The most events of a page whose rows are links to causes and effects."""

MOST_PANEL_ROWS = 1_000
"""The most rows of an operator that a page shows."""

HINT = (
    "Choose a row (click, or arrow keys and Enter): its causes and effects are marked. "
    "Left and right arrow, Home and End move in time."
)


def page_fragment(trace: Trace) -> str:
    """Return the trace as an element, for a notebook's output or for a page."""
    operators = trace.recording.operators
    rows = [page_rows(trace, one) for one in operators]
    graph = plan_graph("the plan", trace.recording.plan, lambda node: (), {})
    last = len(trace.recording.batches)
    named = [f"micro-batch {number} of {last - 1}" for number in range(1, last)]
    steps = ["before anything arrives", *named, "the end of the input"]
    data = {
        "boxes": [f"#{graph.id}-n{one.number + 1}" for one in operators],
        "names": [one.name for one in operators],
        "reads": list(ancestors(trace)),
        "sources": [one.number for one in trace.recording.sources],
        "steps": steps,
        **_links(trace),
    }
    panels = "".join(_panel(trace, one, own) for one, own in zip(operators, rows, strict=True))
    text = json.dumps(data).replace("<", "\\u003c")
    id = f"trace-{hashlib.sha256(f'{text}{panels}'.encode()).hexdigest()[:10]}"
    slider = element("input", type="range", min=0, max=last, value=last, aria_label="micro-batch")
    bar = element(
        "div",
        element("label", "Arrival ", slider),
        element("output", markup_text(steps[-1]), class_="now"),
        class_="bar",
    )
    flow = element(
        "div", element("div", graph.svg, class_="plan-column"), element("div", panels, class_="panels"), class_="flow"
    )
    table = trace.table().to_pylist()
    summary = html.tabulated(tuple(table[0]), [tuple(row.values()) for row in table], most=MOST_PANEL_ROWS)
    return element(
        "div",
        f"<style>{html.STYLE}{GRAPH_STYLE}{STYLE}</style>",
        html.heading(repr(trace).splitlines()[0]),
        bar,
        element("div", markup_text(data["hint"]), class_="says", role="status", aria_live="polite"),
        flow,
        *_late_rows(trace),
        element("details", "<summary>Every operator in every micro-batch, as a table</summary>", summary),
        f'<script type="application/json" class="links">{text}</script>',
        f"<script>{SCRIPT.replace('THE_ID_OF_THE_TRACE', id)}</script>",
        class_="streamq trace",
        id=id,
    )


def _late_rows(trace: Trace) -> Iterator[str]:
    """Yield the number of rows that sources left out or changed, and what they are, if there are any."""
    late = shown_late_rows(trace)
    if late:
        summary = element("summary", f"{counted(len(late), 'row')} left out or changed by their sources")
        rows = [tuple(row.values()) for row in late]
        yield element("details", summary, html.tabulated(tuple(late[0]), rows, most=MOST_PANEL_ROWS), open="open")


def _links(trace: Trace) -> dict[str, Any]:
    """Return the causes of all rows and what events prevent, for the script; without links, a hint that says why."""
    events = range(len(trace.lineage.events))
    if len(events) > MOST_LINKED:
        why = f"These are {len(events):,} events; causes and effects of up to {MOST_LINKED} are marked here."
        return {"hint": f"{why} trace.causes(...) and trace.effects(...) have them.", "caused": None}
    caused, prevented, failures = {}, {}, {}
    trace.leave_out_each("page of a trace")
    for event in events:
        effects = trace.lineage.effects([event])
        if effects.failure:
            failures[event] = effects.failure
        caused[event] = {operator: sorted(places) for operator, places in effects.caused.items()}
        texts = []
        for operator, rows in effects.prevented.items():
            one = trace.recording.operators[operator]
            axis = one.node.schema.axis
            texts += [
                f"{one.name} [{instant_label(row.start, axis)}, {instant_label(row.end, axis)}) {row.text}"
                for row in shown_rows(one.name, rows, one.node.schema)
            ]
        prevented[event] = texts
    none = "no single event causes it, because others would do as well; trace.causes(...) has a minimal set."
    return {"hint": HINT, "caused": caused, "prevented": prevented, "failures": failures, "none": none}


def _panel(trace: Trace, one: TracedOperator, rows: list[PageRow]) -> str:
    """Return the panel of an operator: what it reads, its CTI and state in each micro-batch, and its rows."""
    below = ", ".join(trace.recording.operators[number].name for number in one.inputs)
    lines = [
        element("p", markup_text(f"{one.node.line}" if not below else f"{one.node.line}; receives the rows of {below}"))
    ]
    if one.state:
        lines.append(element("p", markup_text(f"state: {'; '.join(one.state)}")))
    counts, received = trace.recording.change_counts(one.number), trace.recording.received(one.number)
    for number, batch in enumerate(trace.recording.batches):
        inserted, retracted = counts[number]
        cti = instant_label(batch.ctis[one.number], one.node.schema.axis)
        text = f"now: {received[number]:,} received, {inserted:,} inserted, {retracted:,} retracted; CTI {cti}"
        text += f"; {batch.state[one.number]:,} rows of state" if one.state else ""
        lines.append(element("p", markup_text(text), data_step=number + 1, hidden="hidden"))
    head = '<th scope="col" class="role">role</th>' + "".join(
        f'<th scope="col">{markup_text(name)}</th>'
        for name in ("micro-batch", "change", "lifetime", *user_columns(one.node.schema).values())
    )
    body = "".join(_row(one, number, row) for number, row in enumerate(rows[:MOST_PANEL_ROWS]))
    more = f"... {len(rows) - MOST_PANEL_ROWS:,} more changes; trace.rows({one.name!r}) has all"
    table = element(
        "table",
        element("thead", f"<tr>{head}</tr>"),
        element("tbody", body),
        role="grid",
        aria_label=f"rows of {one.name}",
    )
    return element(
        "section",
        html.heading(one.name),
        *lines,
        element("div", table, class_="scroll"),
        *([element("p", markup_text(more))] if len(rows) > MOST_PANEL_ROWS else []),
        data_op=one.number,
        tabindex=-1,
        aria_label=one.name,
    )


def _row(one: TracedOperator, number: int, row: PageRow) -> str:
    places = {"gone": row.gone, "row": row.place, "event": row.event}
    data = {f"data_{name}": value for name, value in places.items() if value is not None}
    cells = [str(row.step), row.kind, row.lifetime, *row.cells]
    return element(
        "tr",
        '<td class="role"></td>',
        *(element("td", markup_text(cell)) for cell in cells),
        data_op=one.number,
        data_step=row.step,
        tabindex=-1 if number else 0,
        **data,
    )
