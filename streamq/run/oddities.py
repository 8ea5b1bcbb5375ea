"""Detect odd times of a source: a start far ahead of all others, seconds read as microseconds, mostly late rows.

Each oddity is detected from the status of a source (``streamq.run.source_status``), by a bound that ordinary data does not reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamq.choices import CountReason
from streamq.errors import CodeLine, warn
from streamq.run.source_status import SourceStatus, instant_text
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
    yield Oddity(
        "late",
        source.name,
        f"{source.name}: {text}{_lead_text(source, axis)}: {remedy}.",
    )


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
