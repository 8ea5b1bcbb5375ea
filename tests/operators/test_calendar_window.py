"""Days, weeks and months of time zones: where clocks change, and where days are skipped."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import streamq as sq
from streamq.runtime.evaluators.assigner import WindowTraits
from streamq.time import INFINITY, MINUS_INFINITY
from streamq.windows.hopping import UNITS, CalendarAssigner
from tests.judged import answer
from tests.rehearsed import rehearsal

HOUR = dt.timedelta(hours=1)


def windows(first: dt.datetime, last: dt.datetime, period: str, zone: str) -> list[tuple[dt.datetime, dt.datetime]]:
    """The windows of one event, by the clocks of their zone."""
    rows = sq.events([(first, last, {"v": 1})]).calendar_window(period, zone=zone).select(n=sq.count())
    answer = rows.to_pandas().sort_values("start")
    assert (answer["n"] == 1).all()
    here = [answer[name].dt.tz_convert(zone).dt.tz_localize(None) for name in ("start", "end")]
    return [(start.to_pydatetime(), end.to_pydatetime()) for start, end in zip(*here, strict=True)]


@pytest.mark.parametrize(
    ("period", "zone", "first", "hours"),
    [
        ("1 day", "Europe/Berlin", dt.datetime(2026, 3, 28, 23), [23, 24]),
        ("1 day", "Europe/Berlin", dt.datetime(2026, 10, 24, 22), [25]),
        ("2 days", "Europe/Berlin", dt.datetime(2026, 3, 28, 23), [23 + 24]),
        ("1 week", "Europe/Berlin", dt.datetime(2026, 3, 23), [7 * 24 - 1]),
        ("1 month", "Europe/Berlin", dt.datetime(2026, 3, 5), [31 * 24 - 1]),
        ("1 quarter", "UTC", dt.datetime(2026, 5, 5), [91 * 24]),
        ("3 months", "UTC", dt.datetime(2026, 5, 5), [91 * 24]),
        ("year", "America/New_York", dt.datetime(2024, 5, 5), [366 * 24]),
        # the clocks of Havana skip midnight, those of Apia a day
        ("1 day", "America/Havana", dt.datetime(2026, 3, 8, 12), [23, 24]),
        ("1 day", "Pacific/Apia", dt.datetime(2011, 12, 30, 2), [24, 24]),
        # at one minute past midnight those of St. John's show the hour before midnight again: it is the new day's
        ("1 day", "America/St_Johns", dt.datetime(2006, 10, 29, 2, 31), [25]),
        # the day on which Kwajalein crossed the date line eastwards, and the one on which it came back
        ("1 day", "Pacific/Kwajalein", dt.datetime(1969, 9, 29, 13), [24 + 23]),
        ("1 week", "Pacific/Kwajalein", dt.datetime(1993, 8, 20), [6 * 24]),
    ],
)
def test_windows_are_as_long_as_clocks_say(period: str, zone: str, first: dt.datetime, hours: list[int]) -> None:
    rows = sq.events([(first, first + 24 * HOUR, {"v": 1})]).calendar_window(period, zone=zone).select(n=sq.count())
    answer = rows.to_pandas().sort_values("start")
    lengths = ((answer["end"] - answer["start"]) / HOUR).tolist()
    assert lengths[: len(hours)] == hours, answer


DAYS_OF_CHANGE = [
    ("America/St_Johns", dt.date(2006, 10, 29)),
    ("America/St_Johns", dt.date(2007, 3, 11)),
    ("America/Havana", dt.date(2026, 3, 8)),
    ("America/Havana", dt.date(2026, 11, 1)),
    ("America/Toronto", dt.date(1919, 3, 31)),
    ("Africa/Cairo", dt.date(2025, 10, 31)),
    ("America/Sitka", dt.date(1867, 10, 19)),
    ("Pacific/Apia", dt.date(1892, 7, 5)),
    ("Pacific/Apia", dt.date(2011, 12, 30)),
    ("Pacific/Kwajalein", dt.date(1969, 9, 30)),
    ("Pacific/Kwajalein", dt.date(1993, 8, 21)),
]
"""Days that a zone's clocks repeat or skip, wholly or in part: midnight shown twice, or not at all."""


def midnight(day: dt.date, zone: ZoneInfo) -> dt.datetime:
    """The instant at which a day begins in a zone: its first midnight, or when it would have been.

    Clocks are read at instants, so what Python takes a local time for that exists twice or not at all is of no account.
    """
    local = dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC)
    offsets = [(local + hours * HOUR).astimezone(zone).utcoffset() or dt.timedelta() for hours in range(-48, 49)]
    shown = [local - offset for offset in set(offsets) if (local - offset).astimezone(zone).utcoffset() == offset]
    return min(shown) if shown else local - offsets[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "change"), DAYS_OF_CHANGE)
def test_days_that_a_zone_repeats_or_skips(name: str, change: dt.date) -> None:
    """Windows are the days from midnight to midnight, none of no length; as a stream and by the oracle too."""
    zone, days = ZoneInfo(name), [change + dt.timedelta(days=by) for by in range(-3, 5)]
    bounds = [midnight(day, zone) for day in days]
    windows = [(start, end) for start, end in itertools.pairwise(bounds) if start < end]
    assert len(windows) == len(days) - 1 - (change in (dt.date(2011, 12, 30), dt.date(1993, 8, 21)))
    hours = [bounds[0] + by * HOUR for by in range(int((bounds[-1] - bounds[0]) / HOUR) + 1)]
    hours = [at for at in hours if at < bounds[-1]]
    query = sq.events([(at, at + HOUR / 60, {"v": 1}) for at in hours], name="events", progress=sq.generate("1 hour"))
    daily = query.calendar_window("1 day", zone=name).select(n=sq.count())
    rows = answer(daily)
    assert rows == [(start, end, sum(start - HOUR / 60 < at < end for at in hours)) for start, end in windows]
    run = rehearsal(daily)
    as_stream = [
        row
        for part in (*(run.arrive(events=5) for _ in range(9)), run.arrive(), run.finish())
        for row in part.to_pylist()
    ]
    assert sorted((row["start"], row["end"], row["n"]) for row in as_stream) == rows


def test_weeks_begin_on_mondays_and_months_on_the_first() -> None:
    (week,) = windows(dt.datetime(2026, 11, 25, 9), dt.datetime(2026, 11, 25, 10), "1 week", "Asia/Tokyo")
    assert week == (dt.datetime(2026, 11, 23), dt.datetime(2026, 11, 30))
    months = windows(dt.datetime(2026, 11, 30, 20), dt.datetime(2026, 12, 31, 23, 30), "1 month", "Europe/Berlin")
    assert months == [
        (dt.datetime(2026, month, 1), dt.datetime(2026 + month // 12, month % 12 + 1, 1)) for month in (11, 12)
    ] + [(dt.datetime(2027, 1, 1), dt.datetime(2027, 2, 1))]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Havana", "Pacific/Apia", "Asia/Manila", "Africa/Cairo"])
def test_each_instant_lies_in_the_window_of_its_number(zone: str, unit: str) -> None:
    assigner: Any = CalendarAssigner(WindowTraits(), 1, unit, zone)
    draws = np.random.default_rng(0)
    instants = np.concatenate([
        draws.integers(-(10**16), 10**16, 200),
        draws.integers(-(2**62), 2**62, 20),
        np.array([int(dt.datetime(2011, 12, 30, 10, tzinfo=dt.UTC).timestamp()) * 10**6 + by for by in (-1, 0, 1)]),
    ])  # fmt: skip
    number = assigner._number(instants)
    assert ((assigner._starts(number) <= instants) & (instants < assigner._starts(number + 1))).all()


@pytest.mark.parametrize("c", [MINUS_INFINITY, MINUS_INFINITY + 1, INFINITY, INFINITY - 1])
def test_at_the_ends_of_the_axis_progress_is_itself(c: int) -> None:
    assert CalendarAssigner(WindowTraits(), 1, "month", "UTC")._window_of(c) == c
