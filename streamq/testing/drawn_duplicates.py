"""Duplicates as an intent describes them: how often an item is delivered, and which repeated events are left out."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from streamq.testing.arrival import Item
from streamq.testing.drawn_lifetimes import forbids_overlap
from streamq.testing.intent import Intent
from streamq.testing.python_values import comparable


def copies(intent: Intent) -> st.SearchStrategy[int]:
    """Draw how many times an item is delivered: one to three times if the intent asks for duplicates, else mostly once.

    It is always once if the intent forbids duplicates, or leaves them open and forbids overlap.
    """
    if intent.duplicates is None and forbids_overlap(intent):
        return st.just(1)
    match intent.duplicates:
        case True:
            return st.sampled_from([2, 1, 3])
        case False:
            return st.just(1)
    return st.sampled_from([1, 1, 1, 2])


class DuplicateFilter:
    """Rejects repeated events if the intent forbids duplicates."""

    def __init__(self, intent: Intent):
        self.seen: set[Any] | None = set() if intent.duplicates is False else None

    def is_new(self, item: Item) -> bool:
        """True if duplicates are allowed, or no equal event has been passed to this method before."""
        if self.seen is None:
            return True
        event = (item.start, item.end, *((n, comparable(v)) for n, v in sorted(item.payload.items())))
        new = event not in self.seen
        self.seen.add(event)
        return new


__all__ = ["DuplicateFilter", "copies"]
