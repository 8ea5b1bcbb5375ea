"""The triggers of runs: how often a run looks for input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamq.errors import PlanError, TimeError, nearest, sentence
from streamq.time import TIMESTAMP, Duration, ticks

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

AVAILABLE_NOW = "available_now"
"""The trigger of a run that processes all available input and returns."""

ADAPTIVE = "adaptive"
"""The trigger of a run that has as many micro-batches in a hop of its windows as make results come soonest."""


@dataclass(frozen=True)
class Trigger:
    """The trigger of a run: a micro-batch every ``every`` microseconds (None: without a pause), or until no input is left.

    adaptive: the run pauses at the end of a micro-batch.
    """

    every: int | None = None
    available_now: bool = False
    adaptive: bool = False

    def set_on(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Return a ``writeStream`` with this trigger."""
        if self.available_now:
            return writer.trigger(availableNow=True)
        return writer if self.every is None else writer.trigger(processingTime=f"{self.every} microseconds")


def trigger_of(duration: Duration | None) -> Trigger:
    """Return the trigger for a user's argument; raise PlanError for an illegal one, such as a negative duration."""
    if duration is None:
        return Trigger()
    if duration == AVAILABLE_NOW:
        return Trigger(available_now=True)
    if duration == ADAPTIVE:
        return Trigger(adaptive=True)
    try:
        every = ticks(duration, TIMESTAMP, "run")
    except TimeError as error:
        raise _no_trigger(duration) from error
    if every < 0:
        raise _no_trigger(duration)
    return Trigger(every)


def _no_trigger(argument: object) -> PlanError:
    """Return the error for an argument that is no trigger."""
    hint = "Write 'available_now', 'adaptive', or a duration as '10 seconds' or '500 ms'."
    if isinstance(argument, str):
        hint = nearest("available_now" if argument == "once" else argument, [AVAILABLE_NOW, ADAPTIVE]) or hint
    return PlanError(sentence("run", "not a trigger", f"found {argument!r}", hint))
