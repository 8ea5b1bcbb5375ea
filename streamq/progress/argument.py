"""The argument with which a user chooses a source's progress, before the source's time axis is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from streamq.runtime.time.progress_policy import ProgressPolicy


@dataclass(frozen=True)
class ProgressArgument:
    """The argument ``progress`` of a source: ``text`` shows it as written, ``policy`` returns the policy for a time axis."""

    text: str
    policy: Callable[[str], ProgressPolicy] = field(compare=False)

    def __repr__(self) -> str:
        return self.text
