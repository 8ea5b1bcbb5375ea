"""Plans as graphs, and the page of an explanation.

The model of a graph, its drawing as a self-contained SVG, and its text in Mermaid's notation; the sections of an explanation,
and the self-contained HTML page that shows them. Edges of a graph lead down: nodes lie in layers, with few crossings, each node
below the middle of its inputs.

Source of the layout: Sugiyama, Tagawa, Toda, *Methods for Visual Understanding of Hierarchical System Structures* (1981): layers
by longest paths, order by barycenters; the places in a layer are an isotonic regression of the places that the neighbours wish
for.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from textwrap import wrap
from typing import Any

from streamq import html
from streamq.html import element, markup_text, text_width

SIZE, LINE = 12.0, 16.0
"""The size of letters and the height of a line, in pixels."""

PADDING, MARGIN, FRAME, FRAME_TITLE = 10.0, 12.0, 12.0, 16.0
"""The room around the text of a box, around the graph, around the boxes of a frame, and above them for its title."""

LAYER_GAP, FRAMED_GAP = 34.0, 56.0
"""The room between two layers, without frames and with them."""

WIDEST, WIDEST_MARK, WIDEST_MEASURED, MOST_LINES = 44, 50, 54, 3
"""The greatest number of characters in a line of a box, of its mark and of its measurements, and of lines of the first two.

What is cut is in the details of the box; measurements are not cut.
"""

TIME_GUIDE = "The time of a stage is that of its tasks, that of an operator the part of it in Python."
"""Tells the reader of a graph which times it shows."""

STYLE = """
  .streamq svg.plan { max-width: 100%; height: auto; }
  .streamq .plan text { font: 12px ui-monospace, monospace; fill: currentColor; }
  .streamq .plan .title { font-weight: 600; }
  .streamq .plan .mark { font-size: 10.5px; fill: #a35200; }
  .streamq .plan rect { fill: color-mix(in srgb, currentColor 4%, transparent); stroke: #57906f; }
  .streamq .plan .source rect { fill: color-mix(in srgb, #4a8 16%, transparent); }
  .streamq .plan .state rect { stroke-width: 2.2; }
  .streamq .plan .result rect { fill: color-mix(in srgb, #47a 16%, transparent); stroke: #47a; }
  .streamq .plan .marked rect { stroke: #d97a1f; }
  .streamq .plan .edge { fill: none; stroke: currentColor; opacity: .55; }
  .streamq .plan .tip { fill: currentColor; opacity: .55; }
  .streamq .plan rect.frame { fill: none; stroke: currentColor; stroke-dasharray: 5 4; opacity: .5; }
  .streamq .plan a { color: inherit; }
  .streamq .plan a:focus rect, .streamq .plan a:hover rect { stroke-width: 3; }
  .streamq .plans { display: flex; flex-wrap: wrap; gap: 1.5em; align-items: flex-start; }
  .streamq .plans > section { min-width: 0; max-width: 100%; }
  .streamq .guide { max-width: 60em; opacity: .75; }
  .streamq .about { display: none; }
  .streamq .about:target { display: block; }
  @media (prefers-color-scheme: dark) { .streamq .plan .mark { fill: #f0a562; } }
"""


class OperatorBoxKind(StrEnum):
    """The kinds of boxes: a source, an operator that keeps state, one that does not, and a result."""

    SOURCE = "source"
    STATE = "state"
    STEP = "step"
    RESULT = "result"


@dataclass(frozen=True, kw_only=True)
class OperatorBox:
    """A node of a graph: its title, the rest of its line, and its details, which a click shows.

    ``mark``: why it is highlighted, such as the rule that made it; "" if it is not. ``measured``: the numbers of a run, which are
    shown uncut. ``band``: the number of its frame.
    """

    name: str
    kind: OperatorBoxKind
    title: str
    text: str = ""
    details: tuple[str, ...] = ()
    mark: str = ""
    measured: tuple[str, ...] = ()
    band: int = 0

    @property
    def line(self) -> str:
        """The title and the rest of the line."""
        return f"{self.title} {self.text}".strip()

    @property
    def in_words(self) -> str:
        """The line, and the numbers of a run if there are any, as one line."""
        return "; ".join([self.line, *self.measured])

    @property
    def all_details(self) -> tuple[str, ...]:
        """The numbers of a run, and the details."""
        return *self.measured, *self.details

    @property
    def lines(self) -> list[str]:
        """The lines below the title: the text, cut to what a box has room for, and the numbers of a run."""
        return [*_wrapped(self.text, WIDEST), *(line for text in self.measured for line in wrap(text, WIDEST_MEASURED))]

    @property
    def mark_lines(self) -> list[str]:
        """The lines of the mark, cut likewise."""
        return _wrapped(self.mark, WIDEST_MARK)

    @property
    def size(self) -> tuple[float, float]:
        """The width and height in pixels."""
        texts = [self.title, *self.lines, *self.mark_lines]
        return max(text_width(text, SIZE) for text in texts) * 1.06 + 2 * PADDING, LINE * len(texts) + PADDING


@dataclass(frozen=True)
class PlanGraph:
    """A graph of boxes, each behind its inputs; an edge leads from a box to one that reads it.

    ``frames``: the titles of bands that have a frame, by number. ``page``: graphs of different numbers share no id.
    """

    title: str
    boxes: tuple[OperatorBox, ...]
    edges: tuple[tuple[str, str], ...]
    frames: tuple[tuple[int, str], ...] = ()
    page: int = 0

    @property
    def id(self) -> str:
        """The beginning of the ids of its elements: equal graphs have equal ones, others others."""
        return f"g{hashlib.sha256(repr(self).encode()).hexdigest()[:8]}"

    @property
    def svg(self) -> str:
        """The graph as an SVG element: boxes that are links to their details, edges with tips, frames of dashes."""
        sizes, bands = {box.name: box.size for box in self.boxes}, {box.name: box.band for box in self.boxes}
        layout = layered(sizes, self.edges, bands, FRAMED_GAP if self.frames else LAYER_GAP)
        left = top = MARGIN + (FRAME if self.frames else 0.0)
        frames = "".join(self._frames(layout, left, top))
        edges = "".join(_edge(route, left, top) for route in layout.routes.values())
        boxes = "".join(self._box(box, layout, left, top) for box in self.boxes)
        width, height = layout.width + 2 * left, layout.height + 2 * top
        words = f"{len(self.boxes)} operators, from sources at the top to the result below: " + "; ".join(
            box.in_words for box in self.boxes
        )
        return element(
            "svg",
            element("title", markup_text(self.title), id=f"{self.id}-title"),
            element("desc", markup_text(words), id=f"{self.id}-desc"),
            frames,
            edges,
            boxes,
            class_="plan",
            role="img",
            xmlns="http://www.w3.org/2000/svg",
            width=width,
            height=height,
            viewBox=f"0 0 {width:.0f} {height:.0f}",
            aria_labelledby=f"{self.id}-title {self.id}-desc",
        )

    @property
    def guide(self) -> str:
        """The sentences that tell how to read the graph, one for each kind of mark that it has."""
        sentences = ["Sources are at the top, results below."]
        sentences += ["A thick border: an operator with state."] * any(
            box.kind == OperatorBoxKind.STATE for box in self.boxes
        )
        sentences += ["Orange: why stands in the box."] * any(box.mark for box in self.boxes)
        sentences += ["A dashed frame: a stage, in which each bucket of keys runs by itself."] * bool(self.frames)
        sentences += [TIME_GUIDE] * any(box.measured for box in self.boxes)
        return " ".join([*sentences, "Click a box for its details."])

    @property
    def details(self) -> str:
        """The details of each box as HTML, of which a page shows those whose box has been clicked."""
        return "".join(
            element(
                "div",
                element("h2", markup_text(box.line)),
                element(
                    "pre", markup_text("\n".join(line for line in (box.mark, *box.all_details) if line) or "stateless")
                ),
                class_="about",
                id=f"{self.id}-{box.name}",
            )
            for box in self.boxes
        )

    @property
    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart, for a README."""
        by_band: dict[int, list[OperatorBox]] = {}
        for box in self.boxes:
            by_band.setdefault(box.band, []).append(box)
        titles = dict(self.frames)
        lines = ["flowchart TD"]
        for band, boxes in sorted(by_band.items()):
            shown = [f'  {box.name}["{_quoted(box.in_words)}"]' for box in boxes]
            if band in titles:
                shown = [f'  subgraph band{band}["{_quoted(titles[band])}"]', *shown, "  end"]
            lines += shown
        return "\n".join([*lines, *(f"  {upper} --> {lower}" for upper, lower in self.edges)])

    def _frames(self, layout: Layout, left: float, top: float) -> Iterator[str]:
        for band, title in self.frames:
            low, high = layout.bands[band]
            x, y = left - FRAME, top + low - FRAME - FRAME_TITLE
            width, height = layout.width + 2 * FRAME, high - low + 2 * FRAME + FRAME_TITLE
            yield element("rect", class_="frame", rx=6, x=x, y=y, width=width, height=height)
            yield element("text", markup_text(title), x=x + 8, y=y + LINE)

    def _box(self, box: OperatorBox, layout: Layout, left: float, top: float) -> str:
        (x, y), (width, height) = layout.centers[box.name], box.size
        x, y = left + x - width / 2, top + y - height / 2
        rows = [
            (box.title, "title"),
            *((line, "line") for line in box.lines),
            *((line, "mark") for line in box.mark_lines),
        ]
        first = y + PADDING / 2 + LINE * 0.75
        texts = [
            element("text", markup_text(text), x=x + PADDING, y=first + LINE * number, class_=kind)
            for number, (text, kind) in enumerate(rows)
        ]
        whole = element("title", markup_text("\n".join([box.line, *box.all_details])))
        rectangle = element("rect", x=x, y=y, width=width, height=height, rx=6)
        kind = f"{box.kind} marked" if box.mark else str(box.kind)
        return element("a", whole, rectangle, *texts, href=f"#{self.id}-{box.name}", class_=kind)


def _wrapped(text: str, widest: int) -> list[str]:
    """Return a text in lines, the last of which is cut if they are too many."""
    shown = wrap(text, widest, break_long_words=True)
    return shown if len(shown) <= MOST_LINES else [*shown[: MOST_LINES - 1], f"{shown[MOST_LINES - 1][: widest - 1]}…"]


def _edge(route: Sequence[tuple[float, float]], left: float, top: float) -> str:
    """Return an edge as a curve that is vertical at its points, with a tip at its end."""
    points = [(left + x, top + y) for x, y in route]
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x, y), (u, v) in itertools.pairwise(points):
        half = (v - y) / 2
        path += f" C{x:.1f} {y + half:.1f} {u:.1f} {v - half:.1f} {u:.1f} {v:.1f}"
    u, v = points[-1]
    tip = element("path", d=f"M{u - 4:.1f} {v - 7:.1f} L{u + 4:.1f} {v - 7:.1f} L{u:.1f} {v:.1f} Z", class_="tip")
    return element("path", d=path, class_="edge") + tip


def _quoted(text: str) -> str:
    """Return a text for Mermaid's quotes, whose entities are written with ``#``."""
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


BESIDE = ("logical", "incremental")
"""The modes of sections that stand side by side."""


@dataclass(frozen=True)
class Section:
    """One section of an explanation: a heading, its lines, and a function that returns the same as JSON.

    ``picture``: HTML that a page shows instead of the lines. ``graph``: a function that returns the graph that a page shows
    above the lines, ``guide`` a sentence on terms of the graph's boxes.
    """

    mode: str
    heading: str
    lines: list[str]
    data: Callable[[], Any]
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


GAP, EDGE_WIDTH = 24.0, 12.0
"""The room between two nodes of a layer, and that of an edge which crosses the layer."""

SWEEPS = 4
"""The number of times that orders and places are improved, down and up again."""

Size = tuple[float, float]
Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """Places of nodes and edges: ``centers`` by node, ``routes`` by edge, from its upper end to its lower, ``bands`` by number.

    A band is the least and the greatest y of its nodes.
    """

    centers: Mapping[str, Point]
    routes: Mapping[tuple[str, str], tuple[Point, ...]]
    bands: Mapping[int, tuple[float, float]]
    width: float
    height: float


def layered(
    sizes: Mapping[str, Size], edges: Sequence[tuple[str, str]], bands: Mapping[str, int], layer_gap: float
) -> Layout:
    """Return the layout of nodes with these widths and heights, in an order in which each is behind its inputs.

    ``edges`` lead from a node to one that reads it. ``bands``: all layers of a node's band are below those of lesser bands.
    ``layer_gap`` is the room between two layers.
    """
    layers = _layers(sizes, edges, bands)
    routes = {edge: _through(edge, layers) for edge in dict.fromkeys(edges)}
    rows: dict[int, list[str]] = defaultdict(list)
    for name, number in layers.items():
        rows[number].append(name)
    for places in routes.values():
        for name, number in places[1:-1]:
            rows[number].append(name)
    ordered = [rows[number] for number in sorted(rows)]
    links = [(a, b) for places in routes.values() for (a, _), (b, _) in itertools.pairwise(places)]
    neighbours: dict[str, list[str]] = defaultdict(list)
    for upper, lower in links:
        neighbours[upper].append(lower)
        neighbours[lower].append(upper)
    ordered = _with_few_crossings(ordered, neighbours)
    widths = {name: sizes[name][0] if name in sizes else EDGE_WIDTH for row in ordered for name in row}
    x = _abscissas(ordered, neighbours, widths)
    return _placed(sizes, ordered, routes, x, bands, layer_gap)


def _layers(sizes: Mapping[str, Size], edges: Sequence[tuple[str, str]], bands: Mapping[str, int]) -> dict[str, int]:
    """Return the number of each node's layer: one more than those of its inputs, and than those of lesser bands."""
    inputs: dict[str, list[str]] = defaultdict(list)
    for upper, lower in edges:
        inputs[lower].append(upper)
    layers: dict[str, int] = {}
    first = 0
    for band in sorted(set(bands.values())):
        for name in sizes:
            if bands[name] == band:
                layers[name] = max([first, *(layers[above] + 1 for above in inputs[name])])
        first = max(layers.values()) + 1
    return layers


def _through(edge: tuple[str, str], layers: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the places of an edge by layer; between its ends it has a place of its own in each layer that it crosses."""
    upper, lower = edge
    between = range(layers[upper] + 1, layers[lower])
    return [(upper, layers[upper]), *((f"{upper}>{lower}>{n}", n) for n in between), (lower, layers[lower])]


def _with_few_crossings(rows: list[list[str]], neighbours: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the rows with the nodes of each in the order of the barycenters of their neighbours above, then below, ..."""
    for sweep in range(SWEEPS):
        is_down = sweep % 2 == 0
        numbers = range(1, len(rows)) if is_down else range(len(rows) - 2, -1, -1)
        for number in numbers:
            beside = rows[number - 1 if is_down else number + 1]
            place = {name: float(i) for i, name in enumerate(beside)}
            own = {name: float(i) for i, name in enumerate(rows[number])}
            wished = {name: _mean([place[n] for n in neighbours[name] if n in place], own[name]) for name in own}
            rows[number] = sorted(rows[number], key=lambda name: (wished[name], own[name]))
    return rows


def _mean(places: Sequence[float], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _abscissas(
    rows: Sequence[Sequence[str]], neighbours: Mapping[str, Sequence[str]], widths: Mapping[str, float]
) -> dict[str, float]:
    """Return the centre of each node: as near to the mean of its neighbours as its row permits."""
    x: dict[str, float] = {}
    for row in rows:
        left = 0.0
        for name in row:
            x[name] = left + widths[name] / 2
            left += widths[name] + GAP
    for sweep in range(2 * SWEEPS):
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            wished = [_mean([x[n] for n in neighbours[name]], x[name]) for name in row]
            apart = [(widths[a] + widths[b]) / 2 + GAP for a, b in itertools.pairwise(row)]
            x.update(zip(row, apart_at_least(wished, apart), strict=True))
    left = min(x[name] - widths[name] / 2 for name in x)
    return {name: at - left for name, at in x.items()}


def apart_at_least(wished: Sequence[float], apart: Sequence[float]) -> list[float]:
    """Return the numbers nearest to ``wished``, by the sum of squares, of which two neighbours differ by ``apart`` or more.

    >>> apart_at_least([0, 1, 9], [4, 4])
    [-1.5, 2.5, 9.0]
    """
    offsets = [0.0]
    for distance in apart:
        offsets.append(offsets[-1] + distance)
    # pool adjacent violators: means of runs whose wishes decrease
    pools: list[tuple[float, int]] = []
    for wish, offset in zip(wished, offsets, strict=True):
        mean, count = wish - offset, 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        pools.append((mean, count))
    levels = [mean for mean, count in pools for _ in range(count)]
    return [float(level + offset) for level, offset in zip(levels, offsets, strict=True)]


def _placed(
    sizes: Mapping[str, Size],
    rows: Sequence[Sequence[str]],
    routes: Mapping[tuple[str, str], Sequence[tuple[str, int]]],
    x: Mapping[str, float],
    bands: Mapping[str, int],
    layer_gap: float,
) -> Layout:
    """Return the layout of rows of nodes, each as high as its highest node; an edge crosses a row vertically."""
    centers: dict[str, Point] = {}
    heights: list[tuple[float, float]] = []
    top = 0.0
    for row in rows:
        high = max(sizes[name][1] if name in sizes else 0.0 for name in row)
        heights.append((top, top + high))
        centers.update((name, (x[name], top + high / 2)) for name in row if name in sizes)
        top += high + layer_gap
    edges: dict[tuple[str, str], tuple[Point, ...]] = {}
    for (upper, lower), places in routes.items():
        begin = (x[upper], centers[upper][1] + sizes[upper][1] / 2)
        end = (x[lower], centers[lower][1] - sizes[lower][1] / 2)
        crossings = ((x[name], y) for name, number in places[1:-1] for y in heights[number])
        edges[upper, lower] = (begin, *crossings, end)
    spans: dict[int, tuple[float, float]] = {}
    for name, (_, y) in centers.items():
        low, high = y - sizes[name][1] / 2, y + sizes[name][1] / 2
        least, most = spans.get(bands[name], (low, high))
        spans[bands[name]] = (min(low, least), max(high, most))
    width = max(x[name] + (sizes[name][0] / 2 if name in sizes else 0.0) for row in rows for name in row)
    return Layout(centers, edges, spans, width, top - layer_gap)
