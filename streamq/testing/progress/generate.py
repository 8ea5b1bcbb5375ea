"""The policy of a source whose CTIs are generated from the greatest start."""

from __future__ import annotations

from hypothesis import strategies as st

from streamq.operators import Source
from streamq.progress.generate import GeneratedCtis
from streamq.testing.program_text import duration
from streamq.testing.progress.clock import ClockRoom
from streamq.testing.progress.room import ProgressRoom
from streamq.time import TIMESTAMP

CLOCK = ClockRoom()
"""The room of the clocks beside which CTIs are generated."""


class GenerateRoom(ProgressRoom[GeneratedCtis]):
    """The room of :class:`GeneratedCtis`."""

    policy = GeneratedCtis
    weight = 4

    def cti(self, policy: GeneratedCtis, start: int | None, cti: int | None) -> int | None:
        return None if start is None else (start - policy.delay) // policy.every * policy.every

    def cti_of_now(self, policy: GeneratedCtis, now: int) -> int | None:
        return None if policy.clock is None else CLOCK.cti_of_now(policy.clock, now)

    def clock_delay(self, policy: GeneratedCtis) -> int | None:
        return None if policy.clock is None else CLOCK.clock_delay(policy.clock)

    def behind(self, source: Source, delay: int, every: int) -> list[st.SearchStrategy[GeneratedCtis]]:
        clocks = [st.none(), *CLOCK.behind(source, delay, every)]
        return [st.builds(GeneratedCtis, st.just(delay), st.just(every), clock=clock) for clock in clocks]

    def written(self, policy: GeneratedCtis, axis: str) -> str:
        return f"sq.generate({', '.join(self.arguments(policy, axis))})"

    def arguments(self, policy: GeneratedCtis, axis: str) -> list[str]:
        """Return the arguments of ``sq.generate`` that do not have their defaults, as text; ``per`` is left to the subclass."""
        arguments = [duration(policy.delay, axis)] if policy.delay else []
        arguments += [f"every={duration(policy.every, axis)}"] if policy.every > 1 else []
        arguments += [] if policy.idle_after is None else [f"idle_after={duration(policy.idle_after, TIMESTAMP)}"]
        arguments += [] if policy.max_ahead is None else [f"max_ahead={duration(policy.max_ahead, axis)}"]
        arguments += [] if policy.clock is None else [f"clock={CLOCK.written(policy.clock, axis)}"]
        return arguments
