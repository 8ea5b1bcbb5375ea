"""The report of a verification: the cases that it ran, and those that it left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

FAILS = "the query fails over it"
"""The reason of a case for which the oracle fails: an overflow, a division by zero, a lossy cast, a module that raises."""

REFUSED = 'late="fail" refuses an item'
"""The reason of a case whose query fails, as it must, so that there is no answer."""

QUARANTINED = "a module fails, and nothing takes what is set aside"
"""The reason of a case in which a module with quarantine fails, in runs without a late output, which fail, too."""

HUGE = "its answer does not fit into memory"
"""The reason of a case whose query multiplies its rows too much."""

LONGEST = 200
"""The greatest number of characters of an error that a report shows."""


@dataclass
class Verified:
    """The result of a verification: executions by backend, cases, and the seconds it took.

    ``cases`` counts the judged cases, in which the answer of at least one execution was compared. ``set_aside`` counts the others
    by the reason why there was nothing to compare; other cases were drawn in their place. ``first_failure`` is the first error
    among them. ``missing`` is the number of cases that were asked for but not judged, because too many were set aside.
    ``empty`` counts the cases whose answer has no row. ``left_out`` maps backends that could not run to the reason.
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
        """Return the counts in a line: judged cases, executions, seconds, and what was empty, set aside, missing or left out."""
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
        """The number of cases set aside for each reason, as text, with the first error if a query failed; empty if none were."""
        first = self.first_failure if len(self.first_failure) <= LONGEST else f"{self.first_failure[:LONGEST]}..."
        shown = {reason: f"{reason} ({first})" if reason == FAILS and first else reason for reason in self.set_aside}
        return ", ".join(f"{n} where {shown[reason]}" for reason, n in self.set_aside.items())


REPORTS: list[Verified] = []
"""The reports of all verifications in this process."""


__all__ = ["FAILS", "HUGE", "QUARANTINED", "REFUSED", "REPORTS", "Verified"]
