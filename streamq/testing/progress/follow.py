"""The policy of a source that has the CTIs of another source."""

from __future__ import annotations

from streamq.progress.follow import LeaderCtis
from streamq.testing.program_text import Unwritable
from streamq.testing.progress.room import ProgressRoom


class FollowRoom(ProgressRoom[LeaderCtis]):
    """The room of :class:`LeaderCtis`. A follower's own CTIs are its reach, but do not move its progress."""

    policy = LeaderCtis

    def leader(self, policy: LeaderCtis) -> str:
        return policy.table

    def cti(self, policy: LeaderCtis, start: int | None, cti: int | None) -> int | None:
        return cti

    def written(self, policy: LeaderCtis, axis: str) -> str:
        raise Unwritable("a source that follows another")
