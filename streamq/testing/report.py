"""Reports: how much a verification ran, and what it left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


@dataclass
class Verified:
    """What a verification ran: executions by backend, cases, and the seconds it took.

    ``failing`` counts cases that fail by Spark's rules whatever computes them (an overflow, a division by zero), of which
    nothing is run; ``empty`` those whose answer has no row; ``left_out`` says which backends could not run, and why.
    """

    executions: Counter[str] = field(default_factory=Counter)
    cases: int = 0
    failing: int = 0
    empty: int = 0
    seconds: float = 0.0
    left_out: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        ran = ", ".join(f"{n} {name}" for name, n in self.executions.items())
        lines = [f"verified over {self.cases} cases ({ran}) in {self.seconds:.1f} s"]
        lines += [f"{self.failing} of them fail by Spark's rules and were not run"] * bool(self.failing)
        lines += [f"{self.empty} have an empty answer"] * bool(self.empty)
        lines += [f"not {name}: {why}" for name, why in self.left_out.items()]
        return "; ".join(lines)

    __repr__ = __str__


REPORTS: list[Verified] = []
"""What has been verified in this process."""


__all__ = ["REPORTS", "Verified"]
