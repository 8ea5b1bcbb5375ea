"""Layout of a graph whose edges lead down: nodes in layers, few crossings, and each node below the middle of its inputs.

Source: Sugiyama, Tagawa, Toda, *Methods for Visual Understanding of Hierarchical System Structures* (1981): layers by longest
paths, order by barycenters; the places in a layer are an isotonic regression of the places that the neighbours wish for.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
