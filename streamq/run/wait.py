"""The waits that ``run.why()`` lists: an operator that holds rows, and what would release them."""

from __future__ import annotations

from dataclasses import dataclass

from streamq.run.source_status import SourceStatus
from streamq.runtime.progress_rule import EndlessRow, MissingRows

EMPTIED = "nothing comes if all rows of that window have been taken back"
MOVING = "nothing comes while the ends of its members may still move"
DEPENDS = "whether that is enough depends on the rows"
"""The texts on what a goal depends on if it is not exact."""

ENDS = {
    EndlessRow.ITS_END: "an end of what has none: a row that never ends is held, and so is what it is part of",
    EndlessRow.A_CUT: "a row that cuts one of those that have no end",
    EndlessRow.THE_NEXT: "the next row of a key: until then its last one has no end",
    EndlessRow.LATER_ROWS: "later rows of a key: until then its last ones have no end",
}
"""The texts on what releases rows without an end, which progress alone does not release."""


def missing_rows(wanted: MissingRows | None) -> str:
    """Return a text on the missing rows of a count window, which time alone cannot close."""
    assert wanted is not None, "rows wait for progress or for more rows"
    instants = f"{wanted.n:,} different {wanted.distinct}s" if wanted.distinct else f"{wanted.n:,}"
    return f"more rows: a window takes {instants}{' of one group' if wanted.grouped else ''}"


@dataclass(frozen=True, kw_only=True)
class Wait:
    """An operator that holds rows, and what would release the next of them.

    ``cti`` is the least CTI of its inputs, ``least`` the name of the input that has it. ``goal`` is the CTI (if ``early``, the
    watermark) that releases the next rows if no others come, None if no progress releases them. ``window`` is the next window,
    None if rows are released one by one. ``source`` is the source furthest behind. ``release`` lists conditions, any one of which
    would release the next rows.

    ``by_start``: the goal is compared with starts, not ends. ``beyond``: rows are released when progress is past that instant,
    not when it is at it. ``proviso`` describes what is needed besides the goal, "" for nothing.
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
        """True if the goal is exact: unless other rows come, rows reach the last stateless steps at the goal, and no earlier."""
        return self.goal is not None and not self.proviso
