"""Progress policies of sources: the CTI that items give, the state kept for it, and the CTI while the source is silent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import pyarrow as pa

from streamq.runtime.tick_arithmetic import Arithmetic, Number
from streamq.time import INFINITY, MINUS_INFINITY


class ProgressPolicy(ABC):
    """A rule by which a source makes progress: a frozen dataclass that plans hold and that ships to executors.

    Instants and lengths of application time are in ticks. By default a source's items make no progress.
    """

    name: ClassVar[str]
    """Its name in explain: the verb that users write."""

    @property
    def leader(self) -> str | None:
        """Return the table of the source whose progress this source follows; None: it has its own."""
        return None

    @property
    def allowed_silence(self) -> int | None:
        """Return the number of microseconds by the clock for which the source may bring no rows; None: any number.

        After that it has the progress of the sources that bring some.
        """
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the payload that ``part`` reads."""
        return ()

    @property
    def carried_columns(self) -> dict[str, str]:
        """Return the carried columns of a source's items that hold the columns ``part`` reads, by the columns' names.

        Steps do not change carried columns.
        """
        return {name: f"__progress{number}" for number, name in enumerate(self.columns)}

    # a micro-batch

    def cti_of_start(self, start: Number, arithmetic: Arithmetic) -> Number | None:
        """Return the CTI for a source's greatest start, an integer or a column; None: starts give no CTI.

        A policy that reads columns has this CTI only when it waits for no part of the source; otherwise its state gives the CTI.
        """
        return None

    def cti_of_item(self, cti: Number) -> Number | None:
        """Return the CTI for the greatest CTI among the source's items; None: the policy ignores them."""
        return None

    def cti_of_now(self, now: int) -> int | None:
        """Return the CTI that a time of day makes, in microseconds since 1970, rows or not; None: the clock makes none."""
        return None

    @property
    def follows_clock(self) -> bool:
        """True if the clock makes CTIs, for which there must be micro-batches without rows."""
        return self.cti_of_now(0) is not None

    def latest_start(self, now: int) -> int | None:
        """Return the greatest start allowed in a micro-batch of this time, in microseconds since 1970; None: any start is."""
        return None

    @property
    def bounds_starts(self) -> bool:
        """True if the time of a micro-batch bounds the starts in it."""
        return self.latest_start(0) is not None

    # state

    def cti_at_rest(self, start: int) -> int:
        """Return the CTI for the greatest start among all sources once they all are silent; by default without a delay."""
        return start

    def part(self, items: pa.Table) -> Any:
        """Return, as JSON, what the policy reads from a task's items that start events, beside their greatest start.

        ``items`` has ``__le`` and the columns in ``columns``; a policy without columns is not called.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no columns")

    def keep(self, state: dict[str, Any], parts: Sequence[Any], idle_before: int) -> None:
        """Add the parts that ``part`` has returned in the tasks of a micro-batch to the state.

        The state goes from micro-batch to micro-batch as JSON. ``keep`` is called once a micro-batch, with no parts if the
        source brought nothing. A micro-batch with parts is a round, numbered from 1. A part last active before the round
        ``idle_before`` is idle; a listener with a clock sets it, by ``readings``; 0: no part is idle.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no state")

    def cti_of_state(self, state: Mapping[str, Any]) -> int:
        """Return the CTI by the state, after every task of a micro-batch has reported."""
        return MINUS_INFINITY

    def greatest_cti(self, state: Mapping[str, Any]) -> int:
        """Return the CTI by the state if the policy waited for no part of the source."""
        return MINUS_INFINITY

    def readings(self, state: Mapping[str, Any]) -> dict[str, int | str]:
        """Return the readings of the source's parts by name: ``round`` to ``straggler_cti`` of ``SourceReadings``."""
        return {}

    # descriptions

    @abstractmethod
    def shown(self, axis: str) -> str:
        """Return the policy as explain shows it: ``generate(delay=5 minutes)``."""

    @property
    def lag(self) -> int:
        """Return the least distance of the CTI behind the greatest start; INFINITY: starts give no CTI."""
        return INFINITY

    def start_for(self, cti: int) -> int | None:
        """Return the least start that raises the CTI to ``cti``; None: no start does."""
        return None

    def now_for(self, cti: int) -> int | None:
        """Return the least time of day that makes its CTI as great as ``cti``; None: the clock makes none."""
        return None

    def lengths(self, axis: str) -> str:
        """Return the lengths that ``start_for`` counts with, as text: ``delay 5 minutes``; "" if there are none."""
        return ""

    def clock_lengths(self, axis: str) -> str:
        """Return how far its CTIs stay behind the time of day, by which ``now_for`` goes: ``10 seconds behind``."""
        return ""

    @abstractmethod
    def remedy(self, leader: str) -> str:
        """Return the advice for a source whose rows are mostly late; ``leader`` is the name of its leader, if any."""

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return the policy for a plan with other table names."""
        return self


__all__ = ["ProgressPolicy"]
