"""The policy of a source: how it makes progress, and what it does with late and with invalid rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from streamq.choices import Invalid, check_word, choose_word
from streamq.errors import PlanError, sentence
from streamq.plan.node import INLINE
from streamq.progress import verbs
from streamq.progress.argument import ProgressArgument
from streamq.progress.explicit import explicit
from streamq.progress.generate import GeneratedCtis, generate
from streamq.runtime.late_policies import DROP, LATE_POLICIES, LatePolicy
from streamq.runtime.progress_policy import ProgressPolicy


@dataclass(frozen=True, kw_only=True)
class SourcePolicy:
    """A source's progress, and its policies for late and for invalid rows.

    ``late`` and ``invalid`` may be passed as strings; ``invalid`` is None if the user has not chosen one.
    """

    progress: ProgressPolicy = field(default=GeneratedCtis(), metadata=INLINE)
    late: LatePolicy = DROP
    invalid: Invalid | None = None

    def __post_init__(self) -> None:
        """Replace words by the policies that they name."""
        if isinstance(self.late, str):
            object.__setattr__(self, "late", LATE_POLICIES[self.late])
        object.__setattr__(self, "invalid", None if self.invalid is None else Invalid(self.invalid))

    def invalid_in(self, streaming: bool) -> Invalid:
        """Return the policy for rows that are no events: the user's choice, else a batch fails and a stream drops them."""
        return self.invalid or (Invalid.DROP if streaming else Invalid.FAIL)

    def shown(self, axis: str) -> str:
        """Return the policy as explain shows it, without default late and invalid: ``generate(delay=5 minutes), late=adjust``."""
        late = [] if self.late is DROP else [f"late={self.late.name}"]
        invalid = [] if self.invalid is None else [f"invalid={self.invalid}"]
        return ", ".join([self.progress.shown(axis), *late, *invalid])

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return the policy for a plan whose tables are renamed: ``names`` maps old to new."""
        return replace(self, progress=self.progress.renamed(names))


def source_policy(
    verb: str,
    axis: str,
    progress: ProgressArgument | None,
    late: str,
    invalid: str | None,
    *,
    explicit_by_default: bool = False,
) -> SourcePolicy:
    """Return the policy that a source's arguments ask for; raise PlanError, at the user's line, for any that does not fit.

    ``verb`` made the source, for errors. Without ``progress`` CTIs are generated, or explicit if that is the default. Times of
    ``progress`` that do not fit the axis raise TimeError.
    """
    if progress is None:
        progress = explicit() if explicit_by_default else generate()
    anything: object = progress
    if not isinstance(anything, ProgressArgument):
        *others, last = (f"sq.{verb}(...)" for verb in verbs())
        wrong = f"progress is {', '.join(others)} or {last}"
        raise PlanError(sentence(verb, wrong, f"found {progress!r}"))
    check_word(late, list(LATE_POLICIES), "late", verb)
    return SourcePolicy(
        progress=progress.policy(axis),
        late=LATE_POLICIES[late],
        invalid=None if invalid is None else choose_word(Invalid, invalid, "invalid", verb),
    )


__all__ = ["SourcePolicy", "source_policy"]
