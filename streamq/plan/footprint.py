"""The footprint of an operator in a stream: what it promises, keeps, reads and costs; explain and the docs show it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from streamq.plan.expected import Retention


class OpenedPart(StrEnum):
    """The parts of an operator's state that a micro-batch evaluates, in the words with which ``Footprint.opens`` begins."""

    NOTHING = "nothing"
    """It keeps nothing."""
    PARTS = "parts"
    """The work does not grow with the events that are open in a group."""
    WHOLE_GROUPS = "whole groups"
    """All events that are still needed of a group are evaluated once one of its rows is new or due."""


KEEPS, NOTHING_KEPT = "keeps: ", "nothing"
"""The beginning of explain's line on what an operator keeps, and the rest of that line if it keeps nothing."""


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """The footprint of an operator, or of a part of one; c is the CTI of its inputs, the least of them.

    ``cti``: the promise on its result. ``final``: the rows that no longer change. ``keeps``: the events or results that it keeps,
    "none" if none. ``opens``: the part of them that a micro-batch reads; it begins with an :class:`OpenedPart`. ``cost``: that of
    a micro-batch. ``for_good``: the rows that stay, more with each group or event, with the cure if there is one; "" if all go
    as time goes on, of lifetimes that end. ``bounds``: by input, the bound on what is kept of it if its rows are never taken
    back; an input without one may be kept as long as it lives. ``but_for``: the rows that estimates do not count.
    """

    cti: str = "c"
    final: str = "rows of final events"
    keeps: str = "none"
    opens: str = OpenedPart.NOTHING
    cost: str
    for_good: str = ""
    bounds: tuple[Retention | None, ...] = ()
    but_for: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError if ``opens`` does not begin with a part."""
        if not any(self.opens.startswith(part) for part in OpenedPart):
            raise ValueError(f"opens begins with none of {', '.join(OpenedPart)}: {self.opens!r}")

    @property
    def opened(self) -> OpenedPart:
        """The part of the state that a micro-batch reads."""
        return next(part for part in OpenedPart if self.opens.startswith(part))

    def bound(self, port: int) -> Retention | None:
        """Return the bound on what is kept of an input; None if there is none."""
        return self.bounds[port] if port < len(self.bounds) else None

    def lines(self, cti: str) -> tuple[str, ...]:
        """Return explain's lines: what it keeps, reads and costs, what stays for good, ``cti``, its CTI there, and final rows."""
        for_good = (f"kept for good: {self.for_good}",) if self.for_good else ()
        return *self.state_lines(), *for_good, f"CTI: {cti}", f"final: {self.final}"

    def state_lines(self) -> tuple[str, ...]:
        """Return explain's lines on the state, without one on the part that is read if that is nothing."""
        reads = () if self.opened is OpenedPart.NOTHING else (f"reads: {self.opens}",)
        return f"{KEEPS}{NOTHING_KEPT if self.keeps == 'none' else self.keeps}", *reads, f"cost: {self.cost}"


def live(longest: int | None, least: int = 0) -> Retention | None:
    """Return the bound on events that are kept as long as they live, ``least`` ticks at least; None if that has no bound."""
    return None if longest is None else Retention(max(least, longest))


__all__ = ["KEEPS", "NOTHING_KEPT", "Footprint", "OpenedPart", "live"]
