"""Late policies as tests know them: what each makes of late items, from docs/concepts.md, and how often it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamq.operators import Source
from streamq.runtime.late_policies import ADJUST, DROP, FAIL, LatePolicy


@dataclass(frozen=True)
class LateRoom:
    """The questions that a model of a source asks of its late policy.

    ``adjusts``: an item behind the promised CTI has an effect from the CTI on; ``fails``: the query ends with the first one.
    ``weight``: draws of it where items are to be late, ``weight_on_time`` where none is.
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
"""The weight of each where items are to be late."""


def late_room_of(source: Source) -> LateRoom:
    """Return the room of a source's late policy."""
    return ROOMS[source.policy.late]


def fails(word: str) -> bool:
    """Return True if a word names a policy under which late items end the query."""
    return any(room.fails for policy, room in ROOMS.items() if policy.name == word)


__all__ = ["ROOMS", "WEIGHTS", "LateRoom", "fails", "late_room_of"]
