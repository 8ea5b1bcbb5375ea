"""CTIs that follow from the greatest start: ``cti(greatest start - delay)``, in steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from streamq.errors import PlanError, sentence
from streamq.plan.node import ADDED
from streamq.progress.argument import ProgressArgument
from streamq.runtime.progress_policy import ProgressPolicy
from streamq.runtime.tick_arithmetic import Arithmetic, Number
from streamq.time import TIMESTAMP, Duration, length, show_duration, ticks


@dataclass(frozen=True)
class GeneratedCtis(ProgressPolicy):
    """The greatest start less ``delay``, rounded down to a multiple of ``every``.

    ``max_ahead``: how many ticks a start may lie beyond the wall clock; ``idle_after``: for how many microseconds by the clock
    the source may be silent. The CTI is the greatest over the tasks of a source, and nothing is kept.
    """

    delay: int = 0
    every: int = field(default=1, metadata=ADDED)
    max_ahead: int | None = field(default=None, metadata=ADDED)
    idle_after: int | None = field(default=None, metadata=ADDED)

    name = "generate"

    @property
    def allowed_silence(self) -> int | None:
        return self.idle_after

    def cti_of_start(self, start: Number, arithmetic: Arithmetic) -> Number:
        return arithmetic.floor(arithmetic.moved(start, -self.delay), self.every)

    def latest_start(self, now: int) -> int | None:
        return None if self.max_ahead is None else now + self.max_ahead

    def shown(self, axis: str) -> str:
        lengths = {"delay": self.delay, "every": self.every if self.every != 1 else 0, "max_ahead": self.max_ahead}
        shown = [f"{name}={show_duration(n, axis)}" for name, n in lengths.items() if n]
        shown += [f"idle_after={show_duration(self.idle_after, TIMESTAMP)}"] if self.idle_after else []
        return f"generate({', '.join(shown)})"

    @property
    def lag(self) -> int:
        return self.delay

    def start_for(self, cti: int) -> int:
        return -(-cti // self.every) * self.every + self.delay

    def lengths(self, axis: str) -> str:
        lengths = {"delay": self.delay, "every": self.every if self.every != 1 else 0}
        return ", ".join(f"{name} {show_duration(n, axis)}" for name, n in lengths.items() if n)

    def remedy(self, leader: str) -> str:
        return (
            "a greater delay takes them in. Files are read in the order in which they were written: where that is not the order "
            "of their times, the delay must cover it (docs/operations.md, Catching up with a history)"
        )


def generate(
    delay: Duration = 0,
    *,
    every: Duration | None = None,
    idle_after: Duration | None = None,
    max_ahead: Duration | None = None,
) -> ProgressArgument:
    """Progress from the data: ``cti(greatest start seen - delay)`` after every micro-batch.

    ``delay`` is a duration with a unit on a timestamp axis, integer ticks on an integer axis: how far out of order the
    source is; what comes later than that is *late*. ``every``: CTIs at whole multiples only, for fewer of them.
    ``idle_after``: a source that has brought no row for so long, by the wall clock, in a run that goes on, holds nobody back
    any more: it has the CTI of those that do speak, and where none does, the greatest start of all; what it
    says behind that is late. It is a time by the clock, as "1 minute", on any axis. ``max_ahead``:
    in a stream a row whose start lies further than that beyond the wall clock is no event (see a source's ``invalid``),
    for one such row would drag progress along and make all others late; timestamps only. Raises TimeError for what is no
    duration, PlanError for a negative ``delay`` or ``max_ahead`` and for an ``every`` or ``idle_after`` that is not positive; the
    source raises TimeError for a unit that does not fit its time axis.
    """
    rest = {"every": every, "idle_after": idle_after, "max_ahead": max_ahead}
    durations = {"delay": delay, **{name: duration for name, duration in rest.items() if duration is not None}}
    for name, duration in durations.items():
        least = 1 if name in ("every", "idle_after") else 0
        if length(duration, "generate") < least:
            wrong = f"{name} is {'no length of time' if least else 'negative'}"
            raise PlanError(sentence("generate", wrong, f"found {duration!r}"))
    silence = None if idle_after is None else ticks(idle_after, TIMESTAMP, "generate")

    def policy(axis: str) -> ProgressPolicy:
        if max_ahead is not None and axis != TIMESTAMP:
            wrong = "max_ahead goes by the wall clock, which takes timestamps"
            raise PlanError(sentence("generate", wrong, f"the axis is {axis}"))
        return GeneratedCtis(
            delay=ticks(delay, axis, "generate"),
            every=1 if every is None else ticks(every, axis, "generate"),
            max_ahead=None if max_ahead is None else ticks(max_ahead, axis, "generate"),
            idle_after=silence,
        )

    shown = [f"{name}={duration!r}" for name, duration in durations.items() if duration]
    return ProgressArgument(f"generate({', '.join(shown)})", policy)


__all__ = ["GeneratedCtis", "generate"]
