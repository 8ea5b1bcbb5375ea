"""The sections of an explanation, and the self-contained HTML page that shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamq import html
from streamq.compiler.plan_graph import STYLE, PlanGraph
from streamq.html import element, markup_text

BESIDE = ("logical", "incremental")
"""The modes of sections that stand side by side."""


@dataclass(frozen=True)
class Section:
    """One section of an explanation: a heading, its lines, and the same as data.

    ``picture``: HTML that a page shows instead of the lines. ``graph``: a function that returns the graph that a page shows
    above the lines, ``guide`` a sentence on terms of the graph's boxes.
    """

    mode: str
    heading: str
    lines: list[str]
    data: Any
    picture: str = ""
    graph: Callable[[], PlanGraph] | None = None
    guide: str = ""


def sections_html(parts: Sequence[Section], page: int = 0) -> str:
    """Return the sections as HTML, each under its heading, for a notebook's output or a page.

    Plans before and after rewriting stand side by side, as far as there is room. A box of a graph is a link to its details.
    ``page``: explanations on one page, as in a notebook, have different numbers, so that their graphs share no id.
    """
    plans = [part for part in parts if part.mode in BESIDE]
    bodies = [f"<style>{STYLE}</style>"] * any(part.graph is not None for part in parts)
    for part in parts:
        if part not in plans:
            bodies.append(_section(part, page))
        elif part is plans[0]:
            side_by_side = "".join(_section(plan, page) for plan in plans)
            bodies.append(f'<div class="plans">{side_by_side}</div>')
    return html.fragment(*bodies)


def _section(part: Section, page: int) -> str:
    """Return a section: its heading, and its graph with the lines below it, its picture, or its lines."""
    lines = html.lines("\n".join(part.lines))
    if part.graph is None:
        return html.heading(part.heading) + (part.picture or lines)
    graph = replace(part.graph(), page=page)
    text = f"<details><summary>as text</summary>{lines}</details>"
    guide = element("p", markup_text(f"{graph.guide} {part.guide}".strip()), class_="guide")
    return f"<section>{html.heading(part.heading)}{guide}{graph.svg}{graph.details}{text}</section>"
