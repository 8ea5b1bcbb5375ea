"""Profiles: how hard verification searches; pay as you go, from a second in a notebook to a night."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from streamq.choices import check_word
from streamq.errors import PlanError, sentence


@dataclass(frozen=True)
class Profile:
    """How much is tried.

    ``examples`` cases run in-process, ``batch`` on Spark as DataFrames, ``streams`` as Structured Streaming queries;
    ``seed`` of the search (None: another each time); ``seconds`` after which no further case is begun (None: no bound);
    ``shrinking``: seconds spent on making a failing case smaller; ``failures``: a folder into which failing cases are saved
    (None: they are not).
    """

    examples: int = 200
    batch: int = 4
    streams: int = 1
    seed: int | None = 0
    seconds: float | None = None
    shrinking: float = 15.0
    failures: str | None = None

    def __post_init__(self) -> None:
        for part in ("examples", "batch", "streams"):
            many = getattr(self, part)
            if not isinstance(many, int) or isinstance(many, bool) or many < 0:
                raise PlanError(sentence("Profile", f"{part} is a whole number of cases", f"found {many!r}"))
        if self.seed is not None and not isinstance(self.seed, int):
            raise PlanError(sentence("Profile", "a seed is a whole number, or None", f"found {self.seed!r}"))


PROFILES: dict[str, Profile] = {
    "fast": Profile(examples=50, batch=0, streams=0),
    "default": Profile(),
    "thorough": Profile(examples=1_000, batch=10, streams=3, seed=None),
    "nightly": Profile(examples=20_000, batch=100, streams=20, seed=None),
}
"""By name: fast (in-process only, no Spark), default, thorough, nightly."""

ENVIRONMENT = ("STREAMQ_PROFILE", "STREAMQ_EXAMPLES", "STREAMQ_SEED", "STREAMQ_FAILURES")
"""Variables that say what holds until a profile is loaded; the pytest plugin sets them from its options."""

_loaded: list[Profile] = []


def profile(name: str) -> Profile:
    """A profile by name; raises PlanError for a name that is none."""
    check_word(name, list(PROFILES), "a profile's name", "profile")
    return PROFILES[name]


def load_profile(chosen: str | Profile | None, **changes: object) -> Profile:
    """What :func:`verify` goes by from now on, where it is not told otherwise: a profile or its name, with changes.

    None: again what the environment says, in STREAMQ_PROFILE, STREAMQ_EXAMPLES, STREAMQ_SEED and STREAMQ_FAILURES.

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
    """The profile that :func:`verify` goes by: the one loaded, or what the environment says."""
    if _loaded:
        return _loaded[0]
    name, examples, seed, failures = (os.environ.get(variable) or None for variable in ENVIRONMENT)
    chosen = profile(name or "default")
    chosen = chosen if examples is None else replace(chosen, examples=int(examples))
    chosen = chosen if seed is None else replace(chosen, seed=None if seed == "random" else int(seed))
    return replace(chosen, failures=failures)


__all__ = ["PROFILES", "Profile", "load_profile", "loaded_profile", "profile"]
