"""Failures: a query whose answer is not the oracle's, and the case that shows it."""

from __future__ import annotations

from pathlib import Path

from streamq.testing.case import Case
from streamq.testing.difference import Difference
from streamq.testing.execution import Execution
from streamq.user_code.repository import called_modules


class VerificationFailed(AssertionError):
    """A query whose answer is not the oracle's.

    ``case`` is the smallest found, ``how`` the way it was run, ``difference`` what tells the histories apart or None if
    it failed with ``error``; ``saved`` is the file it was written to, if any. ``first`` is the failure that was found
    first, of which the search went on to smaller ones (itself, if none was smaller), ``number`` the number of that trial;
    ``shrinking`` is after how many seconds it stopped, None if it came to an end. ``is_steady``: whether the oracle, asked
    again, gives the same; only modules make it differ.
    """

    def __init__(self, case: Case, how: Execution, difference: Difference | None, error: Exception | None = None):
        super().__init__(case, how, difference, error)
        self.case, self.how, self.difference, self.error = case, how, difference, error
        self.saved: Path | None = None
        self.first, self.number = self, 0
        self.is_steady = True
        self.shrinking: float | None = None

    @property
    def says(self) -> str:
        """What is wrong, without the case."""
        wrong = str(self.difference) if self.difference is not None else f"{type(self.error).__name__}: {self.error}"
        return f"not the oracle's history ({self.how.shown(self.case.axis)})\n{self.suspects}{wrong}"

    @property
    def suspects(self) -> str:
        """A line on the modules of a user's own that the query calls, and how to check them alone; nothing without any."""
        names = [module.name for module in called_modules(self.case.plan) if not module.is_of_streamq]
        checks = " and ".join(f"t.check_module({name})" for name in names)
        if not names:
            return ""
        unsteady = "" if self.is_steady else "what they give differs from call to call, in the oracle alone too; "
        return f"the query calls {', '.join(names)}: {unsteady}what breaks a law of modules shows in {checks}\n"

    def __str__(self) -> str:
        again = (
            [] if self.saved is None else [f"saved; again by: t.replay({str(self.saved)!r}), or pytest {self.saved}"]
        )
        if self.shrinking:
            more = "with more, profile=t.Profile(shrinking=...), it may be smaller"
            again.append(f"the smallest case found in {self.shrinking:g} s: {more}")
        return "\n\n".join([self.says, self.case.drawn(), self.case.program(), *again])


__all__ = ["VerificationFailed"]
