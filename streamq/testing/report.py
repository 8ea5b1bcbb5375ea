"""Reports: how much a verification ran, and what it left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

FAILS = "the query fails over it"
"""The oracle finds no answer: an overflow, a division by zero, a cast that loses, a module that raises."""

REFUSED = 'late="fail" refuses an item'
"""The query fails as it must, so no answer is compared."""

QUARANTINED = "a window is quarantined"
"""A module failed in a run and its window went to the late output, so the answer lacks it."""

HUGE = "its answer does not fit into memory"
"""The query multiplies the rows that arrive."""

LONGEST = 200
"""So many characters of an error a report shows."""


@dataclass
class Verified:
    """What a verification ran: executions by backend, cases, and the seconds it took.

    ``cases`` counts those that were judged: at least one execution gave an answer, and it was compared. ``set_aside`` counts
    the others by the reason why there was nothing to compare, and ``first_failure`` is the first error among them; others
    were drawn in their place. ``missing`` is how many cases fewer were judged than asked for, because too many were set aside.
    ``empty`` counts the cases whose answer has no row; ``left_out`` says which backends could not run, and why.
    """

    executions: Counter[str] = field(default_factory=Counter)
    cases: int = 0
    set_aside: Counter[str] = field(default_factory=Counter)
    first_failure: str = ""
    missing: int = 0
    empty: int = 0
    seconds: float = 0.0
    left_out: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        ran = ", ".join(f"{n} {name}" for name, n in self.executions.items())
        lines = [f"verified over {self.cases} cases ({ran}) in {self.seconds:.1f} s"]
        lines += [f"{self.empty} have an empty answer"] * bool(self.empty)
        lines += [f"set aside, not counted: {self.reasons}"] * bool(self.set_aside)
        lines += [f"{self.missing} fewer than asked for, as too many were set aside"] * bool(self.missing)
        lines += [f"not {name}: {why}" for name, why in self.left_out.items()]
        return "; ".join(lines)

    __repr__ = __str__

    @property
    def reasons(self) -> str:
        """The cases that were set aside by reason, as text, with the first error."""
        first = self.first_failure if len(self.first_failure) <= LONGEST else f"{self.first_failure[:LONGEST]}..."
        shown = {reason: f"{reason} ({first})" if reason == FAILS and first else reason for reason in self.set_aside}
        return ", ".join(f"{n} where {shown[reason]}" for reason, n in self.set_aside.items())


REPORTS: list[Verified] = []
"""What has been verified in this process."""


__all__ = ["FAILS", "HUGE", "QUARANTINED", "REFUSED", "REPORTS", "Verified"]
