"""What is odd about a source's own time: a start far ahead of all others, seconds read as microseconds, all of it late.

Each is told from the readings of a source (``streamq.run.monitoring``), by a bound that ordinary data does not cross.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamq.errors import Line, warn
from streamq.run.monitoring import SourceReading, shown
from streamq.time import INFINITY, MINUS_INFINITY, TIMESTAMP, show_duration

YEAR = 365 * 86_400_000_000
FAR = 1_000
"""A start that lies so many times as far beyond the midst of the last rows as that lies beyond the first is far ahead."""
FEW = 10
"""Rows below which nothing is said of how far they are spread."""

UNITS = (("seconds", 10**9), ("milliseconds", 10**12), ("microseconds", 10**15), ("nanoseconds", 10**18))
"""What an instant of the years 2001 to 2100 is, counted from 1970, at least; four times as much at most."""

REASONS = (
    "no start, a start beyond the time axis, an end not after it, an unknown kind of row or edge, two edges of a key at one "
    "instant, an end or a retraction that matches nothing, or a start beyond max_ahead"
)
"""Why a row is no event, of a source of any shape."""


@dataclass(frozen=True)
class Warned:
    """Something odd: its kind ("far_future", "unit", "late", "invalid"), the source, and what it means."""

    kind: str
    source: str
    text: str


def oddities(sources: Sequence[SourceReading], axis: str) -> tuple[Warned, ...]:
    """What is odd about the sources of a query."""
    found = []
    for source in sources:
        far = list(_far(source, axis))
        found += [*far, *_unit(source, axis), *([] if far else _late(source, axis)), *_invalid(source)]
    return (*found, *_units_differ(sources, axis))


def _far(source: SourceReading, axis: str) -> Iterator[Warned]:
    if source.midst is None or source.least is None or source.w in (INFINITY, MINUS_INFINITY):
        return
    ahead, spread = source.w - source.midst, source.midst - source.least
    years = axis == TIMESTAMP and ahead > max(YEAR, FEW * spread)
    if not years and (source.rows < FEW or spread < 1 or ahead < FAR * spread):
        return
    so = f", and {source.refused:,} rows have come late since" if source.refused else ""
    bound = ", or bound how far one row may move progress: max_ahead in sq.generate" if axis == TIMESTAMP else ""
    yield Warned(
        "far_future",
        source.name,
        f"{source.name}: its greatest start, {shown(source.w, axis)}, lies {_about(ahead, axis)} beyond its other rows "
        f"(about {shown(source.midst, axis)}), and progress has followed it{so}. If that start is wrong, mend the source{bound}.",
    )


def _unit(source: SourceReading, axis: str) -> Iterator[Warned]:
    if axis != TIMESTAMP or not source.rows or not 0 <= source.w < INFINITY:
        return
    unit = _unit_of(source.w)
    if unit == "nanoseconds":
        likely = "nanoseconds read as microseconds, or milliseconds read as seconds"
    elif source.w < YEAR:
        likely = f"{unit} read as microseconds" if unit else "another unit read as microseconds"
    else:
        return
    where = "in 1970" if source.w < YEAR else "in the far future"
    yield Warned(
        "unit",
        source.name,
        f"{source.name}: its starts lie {where} (up to {shown(source.w, axis)}): {likely}? "
        "Spark's timestamp_seconds and timestamp_millis make timestamps of numbers.",
    )


def warn_of_units(sources: Sequence[SourceReading], axis: str, line: Line | None = None) -> None:
    """Warn, at a line or else at the user's, of sources whose instants look like seconds, ms or ns read as microseconds."""
    for source in sources:
        for odd in _unit(source, axis) if _unit_of(source.w) else ():
            warn(odd.text, line)


def _units_differ(sources: Sequence[SourceReading], axis: str) -> Iterator[Warned]:
    units = {s.name: _unit_of(s.w) for s in sources if s.rows}
    if axis == TIMESTAMP or len(set(units.values())) < 2 or None in units.values():
        return
    told = ", ".join(f"{name} as {unit}" for name, unit in units.items())
    yield Warned(
        "unit",
        ", ".join(units),
        f"Sources of one query count time in different units, if it is counted from 1970: {told}. "
        "Only sources that agree can be joined, or one holds the others back.",
    )


def _unit_of(t: int) -> str | None:
    return next((unit for unit, least in UNITS if least <= t < 4 * least), None)


def _late(source: SourceReading, axis: str) -> Iterator[Warned]:
    if source.refused * FEW < source.rows or not source.rows:
        return
    text = f"{source.refused:,} of {source.rows:,} rows came behind its CTI ({_reasons(source)})"
    yield Warned("late", source.name, f"{source.name}: {text}{_ahead(source, axis)}: {_remedy(source)}.")


def _remedy(source: SourceReading) -> str:
    """What takes late rows in, by who makes the source's CTIs."""
    if source.follows is not None:
        return f"a greater delay of {source.follows}, whose progress it has, takes them in, or progress of its own"
    if source.delay is None:
        return "its own CTIs promise too much; sent later, they take them in"
    return (
        "a greater delay takes them in. Files are read in the order in which they were written: where that is not the order "
        "of their times, the delay must cover it (docs/operations.md, Catching up with a history)"
    )


def _ahead(source: SourceReading, axis: str) -> str:
    """Where the greatest start is far from the others, though not so far that it must be wrong."""
    if source.midst is None or source.least is None or source.w in (INFINITY, MINUS_INFINITY):
        return ""
    ahead, spread = source.w - source.midst, source.midst - source.least
    if ahead <= FEW * max(spread, 1):
        return ""
    lies = f"Its greatest start, {shown(source.w, axis)}, lies {_about(ahead, axis)} beyond the midst of its last rows"
    return f". {lies}: if that is wrong, mend the source; if it is right"


def _invalid(source: SourceReading) -> Iterator[Warned]:
    invalid = source.late.get("invalid", 0)
    if invalid * FEW >= source.rows > 0:
        text = f"{invalid:,} of {source.rows:,} rows are no events: {REASONS}. The late output (late_sink) has each one's reason."
        yield Warned("invalid", source.name, f"{source.name}: {text}")


def _reasons(source: SourceReading) -> str:
    return ", ".join(f"{n:,} {reason}" for reason, n in source.late.items() if n and reason in ("dropped", "adjusted"))


def _about(ticks: int, axis: str) -> str:
    """A long duration, roughly."""
    if axis != TIMESTAMP:
        return f"{ticks:,}"
    for name, unit in (("years", YEAR), ("days", 86_400_000_000), ("hours", 3_600_000_000), ("minutes", 60_000_000)):
        if ticks >= 2 * unit:
            return f"{ticks // unit:,} {name}"
    return show_duration(ticks, axis)
