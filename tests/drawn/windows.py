"""Draws of windows of every kind but calendar windows, whose days are too long for data of a few ticks."""

from __future__ import annotations

from hypothesis import strategies as st

from streamq.choices import ClipInput, Stamp
from streamq.plan.schema import Schema
from streamq.testing.drawn_expressions import Draw, matched
from streamq.windows import Count, Hopping, Landmark, Rows, Session, Snapshot, Window

KINDS = (Count, *[Hopping] * 3, Landmark, Session, *[Snapshot] * 2)
"""The kinds that are drawn, each as often as it is to be drawn, without windows of rows."""


def hoppings() -> st.SearchStrategy[Hopping]:
    """Draw tumbling, overlapping and gapped windows, whose hop divides the size or not, with offsets of either sign."""
    length = st.integers(1, 9)
    tumbling = length.map(lambda n: Hopping(n, n))
    return st.one_of(tumbling, st.builds(Hopping, length, length, st.integers(-9, 9)))


@st.composite
def windows(draw: Draw, schema: Schema, exact_columns: frozenset[str]) -> tuple[Window, ClipInput, Stamp]:
    """Draw a window of any kind, with clip and stamp; one of rows, which go by the order of whole events, if all are exact."""
    kind = draw(st.sampled_from([*KINDS, *[Rows] * (exact_columns >= set(schema.names))]))
    stamp = draw(st.sampled_from([Stamp.ALIGN, Stamp.ALIGN, Stamp.POINT_AT_END]))
    clip = draw(st.sampled_from(ClipInput))
    if kind is Count:
        by = draw(st.sampled_from(["start", "end"]))
        clip = draw(st.sampled_from([ClipInput.NONE, ClipInput.RIGHT])) if by == "end" else clip
        return Count(draw(st.integers(1, 3)), by), clip, stamp
    if kind is Hopping:
        return draw(hoppings()), clip, draw(st.sampled_from([Stamp.ALIGN, Stamp.ALIGN, Stamp.ALIGN, stamp]))
    if kind is Landmark:
        period = draw(st.one_of(st.none(), st.integers(2, 15)))
        return Landmark(draw(st.integers(1, 6)), draw(st.integers(-5, 5)), period), clip, stamp
    if kind is Rows:
        ordered = matched(schema, schema.names)
        order = draw(st.lists(st.sampled_from(ordered), max_size=1)) if ordered else []
        return Rows(draw(st.integers(1, 3)), draw(st.integers(1, 4)), tuple(order)), clip, stamp
    return Session(draw(st.integers(2, 6))) if kind is Session else Snapshot(), clip, stamp
