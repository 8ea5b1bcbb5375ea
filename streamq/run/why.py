"""The answer of ``run.why()``: the waits that it lists, as text, for notebooks, and as plain values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streamq import html
from streamq.choices import RunState, Verdict
from streamq.run.oddities import Oddity
from streamq.run.run_status import VERSION
from streamq.run.source_status import SourceStatus, instant_fields, instant_text, iso_time_of_day, moment_of
from streamq.runtime.time.progress_rule import EndlessRow, MissingRows
from streamq.time import MINUS_INFINITY

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


@dataclass(frozen=True, kw_only=True)
class Why:
    """The answer of ``run.why()``; it prints as text, also in a notebook, and ``to_dict()`` returns plain values.

    ``verdict`` is the reason why there is output or none, in one word, ``summary`` in a sentence. ``waits`` are the operators
    that hold rows, ``warnings`` the oddities in the times of sources.
    """

    state: RunState
    verdict: Verdict
    summary: str
    waits: tuple[Wait, ...]
    warnings: tuple[Oddity, ...]
    axis: str
    now: dt.datetime

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; ``docs/operations.md`` lists them."""
        return {
            "version": VERSION,
            "state": self.state,
            "verdict": self.verdict,
            "summary": self.summary,
            "waits": [self._plain(wait) for wait in self.waits],
            "warnings": [
                {"kind": oddity.kind, "source": oddity.source, "text": oddity.text} for oddity in self.warnings
            ],
        }

    def _plain(self, wait: Wait) -> dict[str, Any]:
        """Return a wait as plain values."""
        start, end = wait.window or (None, None)
        return {
            "operator": wait.operator,
            "state_rows": wait.rows,
            **instant_fields("cti", wait.cti, self.axis),
            "least_input": wait.least,
            **instant_fields("needs", wait.goal, self.axis),
            **instant_fields("window_start", start, self.axis),
            **instant_fields("window_end", end, self.axis),
            "exact": wait.exact,
            "proviso": wait.proviso or None,
            "source": None if wait.source is None else wait.source.name,
            "since": None if wait.source is None else iso_time_of_day(wait.source.moved_at),
            "partition": None if wait.source is None else wait.source.straggler,
            **instant_fields("partition_cti", None if wait.source is None else wait.source.straggler_cti, self.axis),
            "release": list(wait.release),
        }

    def _lines(self) -> Iterator[str]:
        """Yield the answer line by line: the summary, each operator that waits with its lines, and the warnings."""
        yield self.summary
        for wait in self.waits:
            yield wait.operator
            yield from (f"  {line}" for line in self._held(wait))
        for oddity in self.warnings:
            yield f"! {oddity.text}"

    def _held(self, wait: Wait) -> Iterator[str]:
        """Yield the lines on an operator that holds rows: its state, what comes next, and what it waits for."""
        cti = "no CTI yet" if wait.cti == MINUS_INFINITY else f"CTI {instant_text(wait.cti, self.axis)}"
        least = f" (from {wait.least})" if wait.source is None or wait.least != wait.source.name else ""
        yield f"{wait.rows:,} row(s) in its state; its input: {cti}{least}"
        if wait.window is not None:
            start, end = (instant_text(t, self.axis) for t in wait.window)
            yield f"next window: [{start}, {end})"
        elif wait.goal is not None:
            at = instant_text(wait.goal - 1 if wait.beyond else wait.goal, self.axis)
            yield f"next: what {'starts' if wait.by_start else 'ends'} at {at}"
        if wait.source is not None:
            yield self._stands(wait.source)
        for i, release in enumerate(wait.release):
            yield f"{'or' if i else 'waits for'} {release}"
        if wait.proviso:
            yield wait.proviso

    def _stands(self, source: SourceStatus) -> str:
        """Return a line on a source: its CTI, its greatest start, when the CTI last moved, and the partition furthest behind.

        Without a CTI the line has the number of its rows.
        """
        if source.cti == MINUS_INFINITY:
            return f"{source.name}: no CTI yet, {source.rows:,} rows"
        moved = ""
        if source.moved_at is not None:
            at = moment_of(source.moved_at)
            moved = f"; moved {_ago(self.now - at)} (at {at:%Y-%m-%d %H:%M:%S} UTC)"
        held = ""
        if source.straggler_cti is not None:
            held = f"; furthest behind is {source.straggler}, with CTI {instant_text(source.straggler_cti, self.axis)}"
            held += "" if source.progress.idle_after else " (idle_after in sq.generate lets a silent one pass)"
        stands = (
            f"CTI {instant_text(source.cti, self.axis)}, greatest start {instant_text(source.watermark, self.axis)}"
        )
        return f"{source.name}: {stands}{moved}{held}"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *rest = self._lines()
        return html.fragment(html.heading(first), *([html.lines("\n".join(rest))] if rest else []))


def _ago(span: dt.timedelta) -> str:
    """Return a length of time as text, in the greatest unit of which there are two, else seconds: ``3 minutes ago``."""
    for name, unit in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if span.total_seconds() >= 2 * unit:
            return f"{span.total_seconds() // unit:.0f} {name} ago"
    return f"{max(0, span.total_seconds()):.0f} seconds ago"
