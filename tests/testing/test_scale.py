"""Events are generated at the bounds of a query's windows, those of a calendar included."""

from __future__ import annotations

import datetime as dt

from streamq.testing.payload_values import EPOCH
from streamq.testing.scale import GridBounds, Scale
from streamq.testing.windows.grids import CalendarBounds
from streamq.time import Grid
from streamq.windows import Calendar


def test_bounds_of_a_grid_lie_from_about_an_instant_on() -> None:
    assert Scale(bounds=(GridBounds(Grid(5, 3, 1)),)).edges(0, many=2) == [-2, 1, 3, 6]


def test_bounds_of_a_calendar_are_the_midnights_of_its_zone() -> None:
    near = (dt.datetime(2023, 11, 20, tzinfo=dt.UTC) - EPOCH.replace(tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    edges = Scale(bounds=(CalendarBounds(Calendar(1, "month", "America/Havana")),)).edges(near, many=2)
    # clocks are set back on 5 November
    assert [str(EPOCH.replace(tzinfo=None) + dt.timedelta(microseconds=t)) for t in edges] == [
        "2023-11-01 04:00:00",
        "2023-12-01 05:00:00",
        "2024-01-01 05:00:00",
    ]
    assert list(CalendarBounds(Calendar(1, "day", "UTC")).around(1 << 62, 3)) == []
