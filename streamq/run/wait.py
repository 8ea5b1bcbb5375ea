"""What an operator that holds rows waits for, as ``run.why()`` lists it."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.run.source_status import SourceStatus
from streamq.runtime.progress_rule import EndlessRow, MissingRows

EMPTIED = "nothing comes if all rows of that window have been taken back"
MOVING = "nothing comes while the ends of its members may still move"
DEPENDS = "whether that is enough depends on the rows"
"""What a goal that is not exact depends on."""

ENDS = {
    EndlessRow.ITS_END: "an end of what has none: a row that never ends is held, and so is what it is part of",
    EndlessRow.A_CUT: "a row that cuts one of those that have no end",
    EndlessRow.THE_NEXT: "the next row of a key: until then its last one has no end",
}
"""What releases rows that have no end, and that no progress releases therefore."""


def missing_rows(wanted: MissingRows | None) -> str:
    """Return what a window of so many rows waits for when time alone cannot close it."""
    assert wanted is not None, "rows wait for progress or for more rows"
    instants = f"{wanted.n:,} different {wanted.distinct}s" if wanted.distinct else f"{wanted.n:,}"
    return f"more rows: a window takes {instants}{' of one group' if wanted.grouped else ''}"


@dataclass(frozen=True, kw_only=True)
class Wait:
    """An operator that holds rows, and what would release the next of them.

    ``cti`` is what its inputs promise together, and ``least`` the input that promises least. ``goal`` is the CTI (the
    watermark, where ``early``) that releases the next rows if no others come, None where no progress does. ``window`` is the
    next one, or None where rows go one by one. ``source`` is the source furthest behind, and ``release`` what would release
    the next rows, any one of these.

    ``by_start`` is True if the goal counts starts, not ends; ``beyond`` if rows go once progress is past theirs, not at it.
    ``proviso`` says what else it takes than the goal, "" for nothing.
    """

    operator: str
    rows: int
    cti: int
    least: str
    goal: int | None = None
    window: tuple[int, int] | None = None
    source: SourceStatus | None = None
    release: tuple[str, ...]
    early: bool = False
    by_start: bool = False
    beyond: bool = False
    proviso: str = ""

    @property
    def exact(self) -> bool:
        """True if the goal is exact: as long as no others come in, rows reach the last filters at the goal, and no earlier."""
        return self.goal is not None and not self.proviso
