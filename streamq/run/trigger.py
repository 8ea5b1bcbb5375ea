"""How often a run looks for input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamq.errors import PlanError, TimeError, nearest, sentence
from streamq.time import TIMESTAMP, Duration, ticks

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

AVAILABLE_NOW = "available_now"
"""The trigger of a run that processes what there is and returns."""


@dataclass(frozen=True)
class Trigger:
    """When a run starts a micro-batch: every so many microseconds, again and again (None), or until nothing is left to read."""

    every: int | None = None
    available_now: bool = False

    def set_on(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Return a ``writeStream`` with this trigger."""
        if self.available_now:
            return writer.trigger(availableNow=True)
        return writer if self.every is None else writer.trigger(processingTime=f"{self.every} microseconds")


def trigger_of(duration: Duration | None) -> Trigger:
    """Return the trigger that a user has asked for; raise PlanError for what is none."""
    if duration is None:
        return Trigger()
    if duration == AVAILABLE_NOW:
        return Trigger(available_now=True)
    try:
        every = ticks(duration, TIMESTAMP, "run")
    except TimeError as error:
        raise _no_trigger(duration) from error
    if every < 0:
        raise _no_trigger(duration)
    return Trigger(every)


def _no_trigger(given: object) -> PlanError:
    hint = "Write 'available_now', or a duration as '10 seconds' or '500 ms'."
    if isinstance(given, str):
        hint = nearest("available_now" if given == "once" else given, [AVAILABLE_NOW]) or hint
    return PlanError(sentence("run", "not a trigger", f"found {given!r}", hint))
