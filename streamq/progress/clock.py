"""CTIs that follow the time of day: ``cti(now - delay)``, in steps, in every micro-batch, with rows or without."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.errors import PlanError, sentence
from streamq.keywords import check_keywords
from streamq.progress.argument import ProgressArgument
from streamq.runtime.time.progress_policy import CtiSteps, ProgressPolicy
from streamq.time import TIMESTAMP, Duration, show_duration, ticks


@dataclass(frozen=True)
class ClockCtis(CtiSteps, ProgressPolicy):
    """The time of day less ``delay``, rounded down to a multiple of ``every``, both in microseconds; nothing is kept."""

    name = "clock"

    @property
    def clock(self) -> CtiSteps:
        return self

    def shown(self, axis: str) -> str:
        steps = f", every={show_duration(self.every, axis)}" if self.every != 1 else ""
        return f"clock(delay={show_duration(self.delay, axis)}{steps})"

    def remedy(self, leader: str) -> str:
        return (
            "a greater delay takes them in: it is how long a row is on its way, and the clock does not wait while a run is "
            "stopped (docs/concepts.md, CTIs and the watermark)"
        )


@check_keywords
def clock(delay: Duration, *, every: Duration | None = None) -> ProgressArgument:
    """Make progress of the time of day: ``cti(now - delay)`` in every micro-batch, also in one without rows.

    ``delay`` is the longest time from a row's start until Spark finds the row in its source; rows that take longer are *late*.
    So a query notices what did not come although all sources are silent: "no payment within ten minutes" is reported ten
    minutes and the delay after the order. ``every`` (default: none) rounds CTIs down to its multiples, for fewer of them.
    ``now`` is the time at which a micro-batch begins, the same if Spark repeats it. On Spark the clock ticks once a second, for
    the first time a second after the first start on a checkpoint, and every tick is a micro-batch unless the trigger waits
    longer. The clock does not stop with the run: the first micro-batch after a stop continues at now, and rows that arrived
    meanwhile and are read later than in that micro-batch are late. In batch there is no clock, as all rows are there. Only for
    sources on the timestamp axis.

    Raises TimeError for what is no duration with a unit, PlanError for a negative ``delay`` and for an ``every`` that is not
    positive; the source raises PlanError if its times are no timestamps.

    ::

        orders = sq.points(orders_df, time="at", progress=sq.clock("10 seconds"))
        payments = sq.points(payments_df, time="at", progress=sq.clock("10 seconds"))
        late = sq.cedr("EVENT E WHEN UNLESS(O, P, 10 minutes) WHERE O.order = P.order", O=orders, P=payments)
    """
    steps = 1 if every is None else ticks(every, TIMESTAMP, "clock")
    policy = ClockCtis(ticks(delay, TIMESTAMP, "clock"), steps)
    if policy.delay < 0:
        raise PlanError(sentence("clock", "delay is negative", f"found {delay!r}"))
    if policy.every < 1:
        raise PlanError(sentence("clock", "every is no length of time", f"found {every!r}"))

    def on_axis(axis: str) -> ProgressPolicy:
        """Return the policy; raise PlanError unless the axis is that of timestamps."""
        if axis != TIMESTAMP:
            hint = "Cast them to timestamps, or take sq.generate(...)."
            raise PlanError(sentence("clock", "a clock takes times that are timestamps", f"the axis is {axis}", hint))
        return policy

    steps_shown = "" if every is None else f", every={every!r}"
    return ProgressArgument(f"sq.clock({delay!r}{steps_shown})", on_axis)
