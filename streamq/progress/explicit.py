"""Progress from CTIs that a source sends itself, as items."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.keywords import check_keywords
from streamq.progress.argument import ProgressArgument
from streamq.runtime.time.progress_policy import ProgressPolicy
from streamq.runtime.time.tick_arithmetic import Number


@dataclass(frozen=True)
class ExplicitCtis(ProgressPolicy):
    """The greatest CTI among the source's items; each holds for the whole source, and no state is kept."""

    name = "explicit"

    def cti_of_item(self, cti: Number) -> Number:
        return cti

    def shown(self, axis: str) -> str:
        return "explicit()"

    def remedy(self, leader: str) -> str:
        return "its own CTIs come too early; sent later, they admit these rows"


@check_keywords
def explicit() -> ProgressArgument:
    """Take progress from the source's own CTI rows (``sq.cti`` in literal streams, ``cti`` rows in physical ones)."""
    return ProgressArgument("sq.explicit()", lambda axis: ExplicitCtis())
