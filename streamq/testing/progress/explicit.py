"""The policy of a source whose CTIs are among its items."""

from __future__ import annotations

from streamq.progress.explicit import ExplicitCtis
from streamq.testing.progress.room import ProgressRoom


class ExplicitRoom(ProgressRoom[ExplicitCtis]):
    """The room of :class:`ExplicitCtis`."""

    policy = ExplicitCtis

    def cti(self, policy: ExplicitCtis, start: int | None, cti: int | None) -> int | None:
        return cti

    def written(self, policy: ExplicitCtis, axis: str) -> str:
        return "sq.explicit()"
