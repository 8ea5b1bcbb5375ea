"""The answer of ``run.why()``: what operators wait for, and odd times of sources, such as seconds read as microseconds.

Each oddity is detected from the status of a source (``streamq.run.status.run_status``), by a bound that ordinary data does not
reach.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from streamq import html
from streamq.choices import CountReason, RunState, Verdict
from streamq.errors import CodeLine, warn
from streamq.run.status.run_status import (
    VERSION,
    SourceStatus,
    instant_fields,
    instant_text,
    iso_time_of_day,
    moment_of,
)
from streamq.runtime.time.progress_rule import EndlessRow, MissingRows
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, show_duration

YEAR = 365 * 86_400_000_000
FAR = 1_000
"""A start is far ahead if its distance from the middle of the last rows is this many times that middle's from the first row."""
FEW = 10
"""The least number of rows whose spread is considered; also, one row in this many counts as many rows."""

UNITS = (("seconds", 10**9), ("milliseconds", 10**12), ("microseconds", 10**15), ("nanoseconds", 10**18))
"""The least value of an instant in the years 2001 to 2100, counted from 1970 in each unit; the greatest is four times as much."""

REASONS = (
    "no start, a start beyond the time axis, an end not after it, an unknown kind of row or edge, two edges of a key at one "
    "instant, an end or a retraction that matches nothing, or a start beyond max_ahead"
)
"""The reasons for invalid rows, of sources of any shape."""


@dataclass(frozen=True)
class Oddity:
    """An oddity of a source: its kind ("far_future", "unit", "late", "invalid"), the source's name, and a text for readers."""

    kind: str
    source: str
    text: str


def oddities(sources: Sequence[SourceStatus], axis: str) -> tuple[Oddity, ...]:
    """Return the oddities of the sources of a query.

    A source with a start far ahead gets no oddity for late rows, because the one causes the other.
    """
    odd: list[Oddity] = []
    for source in sources:
        far = list(_far_ahead(source, axis))
        odd += [*far, *_wrong_unit(source, axis), *([] if far else _mostly_late(source, axis)), *_invalid(source)]
    return (*odd, *_different_units(sources, axis))


@dataclass(frozen=True)
class _Lead:
    """Two distances between starts of a source, in ticks: its greatest, its least, and one in the middle of its last rows.

    ahead: from the middle start to the greatest start; spread: from the least start to the middle start.
    """

    ahead: int
    spread: int


def _lead(source: SourceStatus) -> _Lead | None:
    """Return the distances between a source's starts; None if its status lacks one of these starts."""
    if source.middle_start is None or source.least_start is None or source.watermark in (INFINITY, MINUS_INFINITY):
        return None
    return _Lead(source.watermark - source.middle_start, source.middle_start - source.least_start)


def _far_ahead(source: SourceStatus, axis: str) -> Iterator[Oddity]:
    """Yield an oddity if the source's greatest start is far ahead of its other rows.

    That is FAR times as far as these lie apart, for a source of at least FEW rows; or, on the axis of instants, more than a year
    and FEW times as far, whatever the number of rows.
    """
    lead = _lead(source)
    if lead is None or source.middle_start is None:
        return
    is_years_ahead = axis == TIMESTAMP and lead.ahead > max(YEAR, FEW * lead.spread)
    is_ahead_of_few = source.rows < FEW or lead.spread < 1
    if not is_years_ahead and (is_ahead_of_few or lead.ahead < FAR * lead.spread):
        return
    late = f", and {source.late_rows:,} rows have come late since" if source.late_rows else ""
    bound = ", or bound how far one row may move progress: max_ahead in sq.generate" if axis == TIMESTAMP else ""
    greatest, middle = instant_text(source.watermark, axis), instant_text(source.middle_start, axis)
    text = (
        f"its greatest start, {greatest}, lies {_rough_duration(lead.ahead, axis)} beyond its other rows (about {middle}), "
        f"and progress has followed it{late}. If that start is wrong, mend the source{bound}."
    )
    yield Oddity("far_future", source.name, f"{source.name}: {text}")


def _wrong_unit(source: SourceStatus, axis: str) -> Iterator[Oddity]:
    """Yield an oddity if the source's timestamps lie in 1970 or in the far future, as after a wrong conversion."""
    if axis != TIMESTAMP or not source.rows or not 0 <= source.watermark < INFINITY:
        return
    unit = _unit_of(source.watermark)
    if unit == "nanoseconds":
        guess = "nanoseconds read as microseconds, or milliseconds read as seconds"
    elif source.watermark < YEAR:
        guess = f"{unit} read as microseconds" if unit else "another unit read as microseconds"
    else:
        return
    years = "in 1970" if source.watermark < YEAR else "in the far future"
    text = f"its starts lie {years} (up to {instant_text(source.watermark, axis)}): {guess}?"
    hint = "Spark's timestamp_seconds and timestamp_millis make timestamps of numbers."
    yield Oddity("unit", source.name, f"{source.name}: {text} {hint}")


def warn_of_units(sources: Sequence[SourceStatus], axis: str, line: CodeLine | None = None) -> None:
    """Warn, at ``line`` (None: the user's), of sources whose instants look like seconds, ms or ns read as microseconds."""
    for source in sources:
        for oddity in _wrong_unit(source, axis) if _unit_of(source.watermark) else ():
            warn(oddity.text, line)


def _different_units(sources: Sequence[SourceStatus], axis: str) -> Iterator[Oddity]:
    """Yield an oddity if the sources of a query on the integer axis count time in different units.

    The unit of every source must be recognizable, else there is no oddity.
    """
    units = {source.name: _unit_of(source.watermark) for source in sources if source.rows}
    if axis == TIMESTAMP or len(set(units.values())) < 2 or None in units.values():
        return
    listed = ", ".join(f"{name} as {unit}" for name, unit in units.items())
    wrong = f"Sources of one query count time in different units, if it is counted from 1970: {listed}."
    yield Oddity(
        "unit", ", ".join(units), f"{wrong} Only sources that agree can be joined, or one holds the others back."
    )


def _unit_of(t: int) -> str | None:
    """Return the unit in which ``t``, counted from 1970, lies in the years 2001 to 2100; None if there is none."""
    return next((unit for unit, least in UNITS if least <= t < 4 * least), None)


def _mostly_late(source: SourceStatus, axis: str) -> Iterator[Oddity]:
    """Yield an oddity if a tenth or more of the source's rows were late."""
    if source.late_rows * FEW < source.rows or not source.rows:
        return
    counts = ", ".join(
        f"{source.late[reason]:,} {reason}"
        for reason in (CountReason.DROPPED, CountReason.ADJUSTED)
        if source.late.get(reason)
    )
    remedy = source.progress.remedy(source.leader or "")
    text = f"{source.late_rows:,} of {source.rows:,} rows came behind its CTI ({counts})"
    yield Oddity("late", source.name, f"{source.name}: {text}{_lead_text(source, axis)}: {remedy}.")


def _lead_text(source: SourceStatus, axis: str) -> str:
    """Return the part of the text on late rows that names a greatest start far ahead of the others; "" if it is near them.

    Such a start may be right or wrong. One that must be wrong has an oddity of its own (:func:`_far_ahead`).
    """
    lead = _lead(source)
    if lead is None or lead.ahead <= FEW * max(lead.spread, 1):
        return ""
    distance = f"{_rough_duration(lead.ahead, axis)} beyond the midst of its last rows"
    text = f"Its greatest start, {instant_text(source.watermark, axis)}, lies {distance}"
    return f". {text}: if that is wrong, mend the source; if it is right"


def _invalid(source: SourceStatus) -> Iterator[Oddity]:
    """Yield an oddity if a tenth or more of the source's rows were invalid."""
    invalid = source.late.get(CountReason.INVALID, 0)
    if invalid * FEW >= source.rows > 0:
        text = f"{invalid:,} of {source.rows:,} rows are no events: {REASONS}. The late output (late_sink) has each row's reason."
        yield Oddity("invalid", source.name, f"{source.name}: {text}")


def _rough_duration(ticks: int, axis: str) -> str:
    """Return a duration as text, in whole years, days, hours or minutes; on the integer axis, the number of ticks.

    The unit is the greatest of which there are two; a duration below two minutes is shown exactly.
    """
    if axis != TIMESTAMP:
        return f"{ticks:,}"
    for name, unit in (("years", YEAR), ("days", 86_400_000_000), ("hours", 3_600_000_000), ("minutes", 60_000_000)):
        if ticks >= 2 * unit:
            return f"{ticks // unit:,} {name}"
    return show_duration(ticks, axis)


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
            unheard = "" if source.straggler is None else f"; furthest behind is {source.straggler}, without a row"
            return f"{source.name}: no CTI yet, {source.rows:,} rows{unheard}"
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
