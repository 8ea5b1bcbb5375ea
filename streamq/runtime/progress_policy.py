"""The progress of a source: what its items say of its CTI, what of that is kept, and who speaks for it while it is silent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import pyarrow as pa

from streamq.runtime.tick_arithmetic import Arithmetic, Number
from streamq.time import INFINITY, MINUS_INFINITY


class ProgressPolicy(ABC):
    """A way in which a source makes progress: a frozen dataclass, which plans hold and which ships to executors.

    Instants and lengths of application time are in ticks. By default a source has no progress but what others say of it.
    """

    name: ClassVar[str]
    """Its name in explain: the verb that users write."""

    @property
    def leader(self) -> str | None:
        """Return the table of the source whose progress it has instead of its own; None: it has its own."""
        return None

    @property
    def allowed_silence(self) -> int | None:
        """Return for how many microseconds by the clock it may bring no row; None: for ever.

        After that it has the progress of those that bring some.
        """
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the payload that ``part`` reads."""
        return ()

    @property
    def carried_columns(self) -> dict[str, str]:
        """Return by their names what those columns are called beside a source's items, where steps do not change them."""
        return {name: f"__progress{number}" for number, name in enumerate(self.columns)}

    # a micro-batch

    def cti_of_start(self, start: Number, arithmetic: Arithmetic) -> Number | None:
        """Return the CTI that the greatest start of a source makes, an integer or a column; None: starts make none.

        If the policy reads columns, the source has it only once no part of it is waited for: until then the state says its CTI.
        """
        return None

    def cti_of_item(self, cti: Number) -> Number | None:
        """Return the CTI that the greatest one among its items makes; None: CTIs among items do not count."""
        return None

    def cti_of_now(self, now: int) -> int | None:
        """Return the CTI that a time of day makes, in microseconds since 1970, rows or not; None: the clock makes none."""
        return None

    @property
    def follows_clock(self) -> bool:
        """True if the clock makes CTIs, for which there must be micro-batches without rows."""
        return self.cti_of_now(0) is not None

    def latest_start(self, now: int) -> int | None:
        """Return the greatest start that an event may have at a time of day, in microseconds since 1970; None: any."""
        return None

    # state

    def cti_at_rest(self, start: int) -> int:
        """Return the CTI of the greatest start among sources once all of them are silent: by default no delay is waited for."""
        return start

    def part(self, items: pa.Table) -> Any:
        """Return what a task's items that start events say beside their greatest start, as JSON has it.

        They have ``__le`` and the columns in ``columns``; a policy that has none is not asked.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no columns")

    def keep(self, state: dict[str, Any], parts: Sequence[Any], idle_before: int) -> None:
        """Put what ``part`` has returned in the tasks of a micro-batch into the state.

        The state goes from micro-batch to micro-batch as JSON. It is called once a micro-batch, with no parts where the source
        has brought nothing. Micro-batches with parts are its rounds, numbered from 1 on: what was last heard of before the round
        ``idle_before`` is idle, as somebody with a clock says, who knows of rounds by ``readings``; 0: nothing is.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no state")

    def cti_of_state(self, state: Mapping[str, Any]) -> int:
        """Return the CTI by all that is kept, once every task of a micro-batch has been heard."""
        return MINUS_INFINITY

    def greatest_cti(self, state: Mapping[str, Any]) -> int:
        """Return the CTI by all that is kept if no part of the source is waited for: how far its progress has come."""
        return MINUS_INFINITY

    def readings(self, state: Mapping[str, Any]) -> dict[str, int | str]:
        """Return what is reported of the parts of a source: ``round`` to ``straggler_cti`` of ``SourceReadings``, by name."""
        return {}

    # what is said of it

    @abstractmethod
    def shown(self, axis: str) -> str:
        """Return it as explain shows it: ``generate(delay=5 minutes)``."""

    @property
    def lag(self) -> int:
        """Return by how much its CTI stays behind its greatest start, at least; INFINITY: starts make none."""
        return INFINITY

    def start_for(self, cti: int) -> int | None:
        """Return the least start that makes its CTI as great as ``cti``; None: no start does."""
        return None

    def now_for(self, cti: int) -> int | None:
        """Return the least time of day that makes its CTI as great as ``cti``; None: the clock makes none."""
        return None

    def lengths(self, axis: str) -> str:
        """Return the lengths by which ``start_for`` goes: ``delay 5 minutes``; nothing if there are none."""
        return ""

    def clock_lengths(self, axis: str) -> str:
        """Return how far its CTIs stay behind the time of day, by which ``now_for`` goes: ``10 seconds behind``."""
        return ""

    @abstractmethod
    def remedy(self, leader: str) -> str:
        """Return what would take in rows that are mostly late; ``leader`` is the name of its leader, if it has one."""

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return it for a plan whose tables have other names."""
        return self


__all__ = ["ProgressPolicy"]
