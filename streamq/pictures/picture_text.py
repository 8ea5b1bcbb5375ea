"""The words of a picture: a description for those who do not see it, and tables of what is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamq import html
from streamq.errors import counted
from streamq.pictures.panel import MOST_CTIS, Panel
from streamq.pictures.panel_history import DELETED, PanelHistory
from streamq.time import INFINITY, TIMESTAMP


def describe(panels: Sequence[Panel]) -> list[str]:
    """Return a sentence or more on each panel, and one on the axis."""
    axis, kind = panels[0].axis, panels[0].history.axis
    zone = " (UTC)" if kind == TIMESTAMP else ""
    span = f"The axis goes from {panels[0].history.instant(axis.low)} to {panels[0].history.instant(axis.high)}{zone}."
    return [*(" ".join(_sentences(panel)) for panel in panels), span]


def _sentences(panel: Panel) -> Iterator[str]:
    """Yield the sentences on a panel: numbers of events and keys, their span, what was taken back, how it is drawn."""
    history = panel.history
    noun = "window" if history.is_windows else "event"
    if not history.count:
        yield f"{history.title}: no {noun}s."
        return
    keys = f" of {counted(len(panel.keys), 'key')} ({', '.join(history.keys)})" if history.keys else ""
    yield f"{history.title}: {counted(history.count, noun)}{keys}, {_span(history)}."
    gone = int(history.is_gone.sum())
    if gone:
        replaced = gone - int((history.successors == DELETED).sum())
        yield f"{gone:,} taken back, {replaced:,} of them replaced."
    if history.ctis:
        shown = f", the last {MOST_CTIS} are drawn" if len(history.ctis) > MOST_CTIS else ""
        yield f"{counted(len(history.ctis), 'CTI')}, the last is {history.instant(history.ctis[-1])}{shown}."
    beyond = int(((history.ends <= panel.axis.low) | (history.starts > panel.axis.high)).sum())
    if beyond:
        yield f"{counted(beyond, noun)} outside the axis."
    yield from panel.sentences(noun)
    if history.note:
        yield history.note


def _span(history: PanelHistory) -> str:
    """Return the span of some events as words."""
    first = history.instant(int(history.starts.min()))
    endless = int((history.ends == INFINITY).sum())
    finite = history.ends[history.ends != INFINITY]
    last = f" to {history.instant(int(finite.max()))}" if len(finite) else ""
    return f"from {first}{last}" + (f", {endless:,} without an end" if endless else "")


def table_of(panel: Panel) -> str:
    """Return the table of a panel, as HTML: a row for each event, or for each bin that has events."""
    header, rows = panel.rows()
    return html.tabulated(header, rows, panel.history.title, most=len(rows))


__all__ = ["describe", "table_of"]
