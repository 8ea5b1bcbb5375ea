"""Places of instants in their groups, in numpy; windows of every kind are numbered by them.

``g`` are numbers of groups; ``group, at`` are the distinct pairs of a group and an instant, in order, and a place is an index
into these.
"""

from __future__ import annotations

import numpy as np

from streamq.runtime.values import Ints, Mask
from streamq.time import FIRST_INSTANT, INFINITY


def distinct_pairs(g: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Return the distinct pairs of a group and an instant, ordered by group, then instant."""
    order = np.lexsort((at, g))
    g, at = g[order], at[order]
    new = is_new_pair(g, at)
    return g[new], at[new]


def running_max(group: Ints, values: Ints) -> Ints:
    """Return the greatest value so far in each row's group; rows are ordered by group. There is at least one."""
    finite = values[values < INFINITY]
    least, most = (int(finite.min()), int(finite.max()) + 1) if len(finite) else (0, 0)
    width = most - least + 1
    if (int(group[-1]) + 1) * width < 1 << 62:
        base = group * width
        reached = np.maximum.accumulate(base + np.where(values < INFINITY, values - least, width - 1)) - base
        return np.where(reached == width - 1, INFINITY, reached + least)
    every = np.unique(values)
    base = group * len(every)
    greatest: Ints = every[np.maximum.accumulate(base + np.searchsorted(every, values)) - base]
    return greatest


def distance_behind(t: Ints | int, mark: Ints) -> Ints:
    """Return ``t - mark``, at most ``INFINITY - 1``; a difference below the axis becomes ``FIRST_INSTANT``."""
    with np.errstate(over="ignore"):
        distance = t - mark
    distance = np.where((t >= mark) & ((distance < 0) | (distance == INFINITY)), INFINITY - 1, distance)
    return np.where((t < mark) & (distance > 0), FIRST_INSTANT, distance)


def is_new_pair(a: Ints, b: Ints) -> Mask:
    """Mark the ordered pairs that differ from the pair before them; the first is marked."""
    new = np.ones(len(a), bool)
    new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    return new


def find_places(group: Ints, at: Ints, g: Ints, t: Ints) -> Ints:
    """Return the place of each (g, t) among the ordered pairs, which contain it."""
    every = np.unique(at)
    m = len(every) + 1
    return np.searchsorted(group * m + np.searchsorted(every, at), g * m + np.searchsorted(every, t))


def group_bounds(group: Ints, g: Ints) -> tuple[Ints, Ints]:
    """Return the first and last place of each group among ordered places; a group without places has a last below its first."""
    return np.searchsorted(group, g, "left"), np.searchsorted(group, g, "right") - 1


def run_bounds(values: Ints) -> tuple[Ints, Ints]:
    """Return, for each of some sorted values, the first and last place of the values equal to it."""
    heads = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    ends = np.append(heads, len(values))[1:]
    return np.repeat(heads, ends - heads), np.repeat(ends - 1, ends - heads)


def first_place(group: Ints, wanted: Mask, g: Ints) -> Ints:
    """Return the first wanted place of each group; for a group without one, some place past its last."""
    first, last = group_bounds(group, g)
    places = np.flatnonzero(wanted)
    place = np.searchsorted(places, first)
    return (
        np.where(place < len(places), places[np.minimum(place, max(len(places) - 1, 0))], last + 1)
        if len(places)
        else last + 1
    )
