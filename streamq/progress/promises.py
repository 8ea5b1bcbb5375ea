"""Progress that is not generated: from CTIs that a source sends itself, or from another source that it follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from streamq.errors import PlanError, check_keywords
from streamq.runtime.time.progress_policy import ProgressPolicy


@dataclass(frozen=True)
class ProgressArgument:
    """The argument ``progress`` of a source: ``text`` shows it as written, ``policy`` returns the policy for a time axis."""

    text: str
    policy: Callable[[str], ProgressPolicy] = field(compare=False)

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ExplicitCtis(ProgressPolicy):
    """The greatest CTI among the source's items; each holds for the whole source, and no state is kept."""

    name = "explicit"
    takes_ctis = True

    def shown(self, axis: str) -> str:
        return "explicit()"

    def remedy(self, leader: str) -> str:
        return "its own CTIs come too early; sent later, they admit these rows"


@check_keywords
def explicit() -> ProgressArgument:
    """Take progress from the source's own CTI rows (``sq.cti`` in literal streams, ``cti`` rows in physical ones)."""
    return ProgressArgument("sq.explicit()", lambda axis: ExplicitCtis())


_UNNAMED = "#"
"""The beginning of the tables of unnamed sources; alone, an unnamed source that is not in the plan."""


@dataclass(frozen=True)
class LeaderCtis(ProgressPolicy):
    """The progress of the source over ``table``, its leader; its own items do not move it, and no state is kept."""

    table: str

    name = "follow"
    # the CTIs show only how far the source itself has come
    takes_ctis = True

    @property
    def leader(self) -> str:
        return self.table

    def shown(self, axis: str) -> str:
        return f"follow({self.table})"

    def remedy(self, leader: str) -> str:
        return f"a greater delay of {leader}, whose progress it has, takes them in, or progress of its own"

    def renamed(self, names: Mapping[str, str]) -> Self:
        # an unnamed leader that is not in the plan has no number there, and must not get that of another source
        outside = _UNNAMED if self.table.startswith(_UNNAMED) else self.table
        return type(self)(names.get(self.table, outside))


class TableHolder(Protocol):
    """An object built over tables, as a stream is over those of its sources."""

    @property
    def tables(self) -> Mapping[str, Any]:
        """The tables by the names of their sources."""


@check_keywords
def follow(other: TableHolder) -> ProgressArgument:
    """Take progress from another source of the same query: that source's CTIs are promises for this one, too.

    It is for a source that seldom sends rows, such as prices or settings, which would hold the others back. A row behind the
    other source's CTI is late; this source's own greatest start moves nothing. Raises PlanError if ``other`` is not built over
    exactly one source.
    """
    tables = list(getattr(other, "tables", ()))
    if len(tables) != 1:
        what = f"found {len(tables)}" if hasattr(other, "tables") else f"found {other!r}"
        raise PlanError("follow", "not one source", what, "Give the source itself, a stream.")
    return ProgressArgument(f"sq.follow({tables[0]})", lambda axis: LeaderCtis(tables[0]))
