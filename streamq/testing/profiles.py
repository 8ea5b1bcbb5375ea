"""Profiles of verification, and reports of what was verified."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace

from streamq.choices import check_word
from streamq.errors import PlanError, check_keywords

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
class Verification:
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


REPORTS: list[Verification] = []
"""The reports of all verifications in this process."""


@dataclass(frozen=True)
class Profile:
    """The effort of a verification.

    ``examples`` is the number of cases run in-process, ``batch`` of those run on Spark as DataFrames, ``streams`` of those run
    as Structured Streaming queries. ``seed``: the seed of the search (None: another each time). ``seconds``: the time after
    which no further case is begun (None: no bound). ``shrinking``: seconds spent on making a failing case smaller.
    ``failures``: the folder into which failing cases are saved (None: they are not). Raises PlanError for illegal values.
    """

    examples: int = 200
    batch: int = 4
    streams: int = 1
    seed: int | None = 0
    seconds: float | None = None
    shrinking: float = 15.0
    failures: str | None = None

    def __post_init__(self) -> None:
        """Raise PlanError for a number of cases that is not 0 or more, and for a seed that is neither a whole number nor None.

        The other values are not checked.
        """
        for part in ("examples", "batch", "streams"):
            many = getattr(self, part)
            if not isinstance(many, int) or isinstance(many, bool) or many < 0:
                raise PlanError("Profile", f"{part} is not a number of cases", f"found {many!r}")
        if self.seed is not None and not isinstance(self.seed, int):
            raise PlanError("Profile", "seed is neither a whole number nor None", f"found {self.seed!r}")


PROFILES: dict[str, Profile] = {
    "fast": Profile(examples=50, batch=0, streams=0),
    "default": Profile(),
    "thorough": Profile(examples=1_000, batch=10, streams=3, seed=None),
    "nightly": Profile(examples=20_000, batch=100, streams=20, seed=None),
}
"""The predefined profiles by name; "fast" runs in-process only, without Spark."""

ENVIRONMENT = ("STREAMQ_PROFILE", "STREAMQ_EXAMPLES", "STREAMQ_SEED", "STREAMQ_FAILURES")
"""Environment variables that define the profile until one is loaded; the pytest plugin sets them from its options."""

_loaded: list[Profile] = []


def profile(name: str) -> Profile:
    """Return a profile by name; raise PlanError if there is none of that name."""
    check_word(name, list(PROFILES), "a profile's name", "profile")
    return PROFILES[name]


@check_keywords
def load_profile(chosen: str | Profile | None, **changes: object) -> Profile:
    """Set the default profile of :func:`verify` to a profile or the one of that name, with changes, and return it.

    None restores the profile of the environment: STREAMQ_PROFILE, STREAMQ_EXAMPLES, STREAMQ_SEED and STREAMQ_FAILURES; changes
    are then ignored. Raises PlanError for a name that no profile has, and for illegal values; TypeError for a change of what a
    profile does not have.

    >>> from streamq import testing as t
    >>> t.load_profile("default", examples=50)
    Profile(examples=50, batch=4, streams=1, seed=0, seconds=None, shrinking=15.0, failures=None)
    >>> t.load_profile(None).examples
    200
    """
    if chosen is None:
        _loaded.clear()
        return loaded_profile()
    _loaded[:] = [replace(profile(chosen) if isinstance(chosen, str) else chosen, **changes)]  # type: ignore[arg-type]
    return _loaded[0]


def loaded_profile() -> Profile:
    """Return the default profile of :func:`verify`: the one loaded, else that of the environment.

    There a seed of "random" is another each time, and an empty variable is none. Raises PlanError for a name that no profile has,
    and for another text than a number.
    """
    if _loaded:
        return _loaded[0]
    name, examples, seed, failures = (os.environ.get(variable) or None for variable in ENVIRONMENT)
    chosen = profile(name or "default")
    chosen = chosen if examples is None else replace(chosen, examples=_number("STREAMQ_EXAMPLES", examples))
    if seed is not None:
        chosen = replace(chosen, seed=None if seed == "random" else _number("STREAMQ_SEED", seed))
    return replace(chosen, failures=failures)


def _number(variable: str, text: str) -> int:
    """Return the whole number in an environment variable; raise PlanError for another text."""
    try:
        return int(text)
    except ValueError:
        raise PlanError(variable, "no whole number", f"found {text!r}") from None
