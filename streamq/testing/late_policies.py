"""Late policies as the test model knows them: their effect on late items, after docs/concepts.md, and how often each is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamq.operators import Source
from streamq.runtime.late_policies import ADJUST, DROP, FAIL, LatePolicy


@dataclass(frozen=True)
class LateRoom:
    """The answers that the model of a source needs from its late policy.

    ``adjusts``: an item before the promised CTI takes effect from the CTI on. ``fails``: the first late item fails the query.
    ``weight``: how often the policy is drawn for a source with late items, ``weight_on_time`` for one without.
    """

    adjusts: bool = False
    fails: bool = False
    weight: int = 1
    weight_on_time: int = 1


ROOMS: Mapping[LatePolicy, LateRoom] = {
    DROP: LateRoom(weight=2, weight_on_time=3),
    ADJUST: LateRoom(adjusts=True, weight=3),
    FAIL: LateRoom(fails=True),
}
"""The rooms of all policies."""

WEIGHTS = {policy.name: room.weight for policy, room in ROOMS.items()}
"""The weight of each policy for sources with late items."""


def late_room_of(source: Source) -> LateRoom:
    """Return the room of a source's late policy."""
    return ROOMS[source.policy.late]


def fails(word: str) -> bool:
    """Return True if a word names a policy under which late items end the query."""
    return any(room.fails for policy, room in ROOMS.items() if policy.name == word)


__all__ = ["ROOMS", "WEIGHTS", "LateRoom", "fails", "late_room_of"]
