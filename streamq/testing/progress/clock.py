"""The policy of a source whose CTIs follow the time of day."""

from __future__ import annotations

from hypothesis import strategies as st

from streamq.operators import Source
from streamq.progress.clock import ClockCtis
from streamq.testing.program_text import duration
from streamq.testing.progress.room import ProgressRoom
from streamq.time import TIMESTAMP


class ClockRoom(ProgressRoom[ClockCtis]):
    """The room of :class:`ClockCtis`."""

    policy = ClockCtis
    weight = 2

    def cti(self, policy: ClockCtis, start: int | None, cti: int | None) -> int | None:
        return None

    def cti_of_now(self, policy: ClockCtis, now: int) -> int | None:
        return (now - policy.delay) // policy.every * policy.every

    def clock_delay(self, policy: ClockCtis) -> int | None:
        return policy.delay

    def behind(self, source: Source, delay: int, every: int) -> list[st.SearchStrategy[ClockCtis]]:
        return [st.just(ClockCtis(delay, every))] if source.schema.axis == TIMESTAMP else []

    def written(self, policy: ClockCtis, axis: str) -> str:
        steps = [f"every={duration(policy.every, axis)}"] if policy.every > 1 else []
        return f"sq.clock({', '.join([duration(policy.delay, axis) if policy.delay else '0', *steps])})"
