"""The base class of the rooms of progress policies: their CTIs by definition, and their text; and the look-up of rooms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

from hypothesis import strategies as st

from streamq.operators import Source
from streamq.runtime.event import CTI
from streamq.runtime.progress_policy import ProgressPolicy
from streamq.testing.arrival import Item, brings_start, start_of

P = TypeVar("P", bound=ProgressPolicy)

MINUTE = 60_000_000
"""The microseconds that pass with each micro-batch of a case whose sources do not follow the clock."""


class ProgressRoom(ABC, Generic[P]):
    """The definition of a progress policy, after docs/concepts.md. Defining a subclass registers it."""

    policy: ClassVar[type[ProgressPolicy]]

    weight: ClassVar[int] = 1
    """The relative weight with which its policies are drawn; failing cases shrink towards the most frequent ones."""

    def leader(self, policy: P) -> str | None:
        """Return the name of the source that makes progress for one with this policy; None if it makes its own."""
        return None

    @abstractmethod
    def cti(self, policy: P, start: int | None, cti: int | None) -> int | None:
        """Return the CTI that follows from the greatest start and the greatest CTI so far, each None if there was none."""

    def cti_after(self, policy: P, micro_batches: Sequence[Sequence[Item]], times: Sequence[int]) -> int | None:
        """Return the CTI that a source makes of what it has brought so far, items that are events or CTIs.

        ``times`` are the times of day, in microseconds, in these micro-batches and perhaps in later ones. A CTI that it has made
        before may be greater, and stays.
        """
        items = [item for items in micro_batches for item in items]
        starts = [start_of(item) for item in items if brings_start(item)]
        ctis = [start_of(item) for item in items if item.kind == CTI]
        return self.cti(policy, max(starts, default=None), max(ctis, default=None))

    def timeless(self, policy: P) -> P:
        """Return the policy as it is while no time passes by the clock: nothing is ever idle."""
        return policy

    def cti_of_now(self, policy: P, now: int) -> int | None:
        """Return the CTI that follows from the time of day in a micro-batch, in microseconds; None: none does."""
        return None

    def clock_delay(self, policy: P) -> int | None:
        """Return by how many microseconds its CTIs stay behind the time of day; None: the time of day makes none."""
        return None

    def behind(self, source: Source, delay: int, every: int) -> list[st.SearchStrategy[P]]:
        """Return strategies for its policies on a source whose CTIs stay ``delay`` ticks behind, in steps of ``every``.

        They are as likely as each other; empty: the policy is not drawn for such a source.
        """
        return []

    @abstractmethod
    def written(self, policy: P, axis: str) -> str:
        """Return the policy as Python text; raise Unwritable if that needs more than the policy."""


@cache
def rooms() -> dict[type[ProgressPolicy], ProgressRoom[Any]]:
    """Return the rooms by the classes of policies."""
    return {room.policy: room() for room in ProgressRoom.__subclasses__()}


def room_of(source: Source) -> ProgressRoom[Any]:
    """Return the room of a source's progress policy."""
    return rooms()[type(source.policy.progress)]


def policies_behind(source: Source, delay: int, every: int) -> st.SearchStrategy[ProgressPolicy]:
    """Draw a policy for a source whose CTIs stay ``delay`` ticks behind, in steps of ``every``, by the weights of the rooms."""
    by_weight = sorted(rooms().values(), key=lambda room: -room.weight)
    choices = [
        policies for room in by_weight for policies in room.behind(source, delay, every) for _ in range(room.weight)
    ]
    return st.sampled_from(choices).flatmap(lambda policies: policies)


def leader_of(source: Source) -> str | None:
    """Return the name of the source whose progress a source has; None if it has its own."""
    return room_of(source).leader(source.policy.progress)


__all__ = ["ProgressRoom", "leader_of", "policies_behind", "room_of", "rooms"]
