"""What is odd about a source's time is told from what is merely uneven."""

from __future__ import annotations

import datetime as dt
import warnings
from dataclasses import replace

import pyarrow as pa
import pytest

import streamq as sq
from streamq.errors import StreamqWarning
from streamq.progress_policies import ExplicitCtis, LeaderCtis
from streamq.run.status.run_status import SourceStatus
from streamq.run.status.why import oddities
from streamq.time import INTEGER, TIMESTAMP

MAY = int(dt.datetime(2024, 5, 1, tzinfo=dt.UTC).timestamp()) * 1_000_000
DAY = 86_400_000_000


def told(axis: str, *sources: SourceStatus) -> list[tuple[str, str]]:
    return [(w.kind, w.source) for w in oddities(sources, axis)]


def source(w: int, midst: int, least: int, rows: int = 50, name: str = "a", **late: int) -> SourceStatus:
    return SourceStatus(
        name=name, cti=w, watermark=w, rows=rows, new_rows=rows, least_start=least, middle_start=midst, late=late
    )


@pytest.mark.parametrize(
    ("found", "axis", "far"),
    [
        pytest.param(source(MAY + 5_000 * DAY, MAY, MAY - DAY), TIMESTAMP, True, id="years after days"),
        pytest.param(source(MAY + 5_000 * DAY, MAY, MAY), TIMESTAMP, True, id="years after an instant"),
        pytest.param(source(MAY + 5_000 * DAY, MAY, MAY - 5_000 * DAY), TIMESTAMP, False, id="an even history"),
        pytest.param(source(MAY + 300 * DAY, MAY, MAY - DAY), TIMESTAMP, False, id="most of a year"),
        pytest.param(source(MAY + 300 * DAY, MAY, MAY - DAY // 96), TIMESTAMP, True, id="most of a year after minutes"),
        pytest.param(source(100_000, 60, 10), INTEGER, True, id="a thousand times the spread"),
        pytest.param(source(100_000, 60, 10, rows=3), INTEGER, False, id="of three rows"),
        pytest.param(source(40_000, 60, 10), INTEGER, False, id="less than that"),
        pytest.param(SourceStatus(name="a"), TIMESTAMP, False, id="no rows"),
    ],
)
def test_a_start_far_ahead_of_the_others(found: SourceStatus, axis: str, far: bool) -> None:
    assert told(axis, found) == ([("far_future", "a")] if far else [])


def test_it_says_what_came_late_since_and_names_the_policy() -> None:
    (found,) = oddities([source(MAY + 5_000 * DAY, MAY, MAY - DAY, dropped=12, adjusted=3)], TIMESTAMP)
    assert "lies 13 years beyond its other rows (about 2024-05-01 00:00:00)" in found.text
    assert "15 rows have come late since" in found.text and "max_ahead" in found.text


@pytest.mark.parametrize(
    ("instant", "message"),
    [
        (1_714_521_600, "in 1970 (up to 1970-01-01 00:28:34.521600): seconds read as microseconds?"),
        (1_714_521_600_000, "in 1970 (up to 1970-01-20 20:15:21.600000): milliseconds read as microseconds?"),
        (5_000, "another unit read as microseconds?"),
        (1_714_521_600_000_000_000, "nanoseconds read as microseconds, or milliseconds read as seconds?"),
    ],
)
def test_units_that_were_mistaken(instant: int, message: str) -> None:
    (found,) = oddities([source(instant, instant, instant)], TIMESTAMP)
    assert found.kind == "unit" and message in found.text


def test_units_in_which_sources_do_not_agree() -> None:
    seconds, other = (source(t, t, t, name=f"by{t}") for t in (1_714_521_600, 1_714_521_999))
    millis = source(1_714_521_600_000, 1_714_521_600_000, 1_714_521_600_000, name="millis")
    assert told(INTEGER, seconds, other) == []
    assert told(INTEGER, seconds, millis) == [("unit", "by1714521600, millis")]
    assert told(INTEGER, millis, source(40, 30, 10)) == [], "small numbers need not be counted from 1970"
    assert told(TIMESTAMP, source(MAY, MAY, MAY)) == []


def test_many_late_or_invalid_rows() -> None:
    assert told(INTEGER, source(9, 8, 1, dropped=4)) == []
    assert told(INTEGER, source(9, 8, 1, dropped=4, adjusted=1)) == [("late", "a")]
    assert told(INTEGER, source(9, 8, 1, invalid=4)) == []
    assert told(INTEGER, source(9, 8, 1, invalid=5)) == [("invalid", "a")]
    none = SourceStatus(name="a", rows=3, late={"invalid": 3})
    assert told(INTEGER, none) == [("invalid", "a")]


def text(found: SourceStatus, axis: str = INTEGER) -> str:
    (warned,) = oddities([found], axis)
    return warned.text


def test_rows_that_are_no_events_are_counted_among_all_and_the_reasons_are_named() -> None:
    told = text(source(9, 8, 1, rows=3, invalid=1))
    assert told.startswith("a: 1 of 3 rows are no events: no start,") and "two edges of a key at one instant" in told
    assert told.endswith("The late output (late_sink) has each row's reason.")


def test_what_takes_late_rows_in_depends_on_who_makes_the_ctis() -> None:
    late = source(9, 8, 1, dropped=20)
    assert "a greater delay takes them in. Files are read in the order in which they were written" in text(late)
    followed = replace(late, progress=LeaderCtis("cars"), leader="cars")
    assert "a greater delay of cars, whose progress it has" in text(followed)
    assert "its own CTIs come too early; sent later, they admit these rows" in text(
        replace(late, progress=ExplicitCtis())
    )


def test_a_start_that_is_far_but_not_so_far_that_it_must_be_wrong() -> None:
    told = text(source(5_000, 5, 0, rows=23, dropped=11))
    assert "Its greatest start, 5000, lies 4,995 beyond the midst of its last rows: if that is wrong, mend" in told
    assert "greatest start" not in text(source(50, 5, 0, rows=23, dropped=11))


def test_max_ahead_is_advised_where_there_is_a_clock_to_go_by() -> None:
    assert "max_ahead" in text(source(MAY + 5_000 * DAY, MAY, MAY - DAY), TIMESTAMP)
    assert "max_ahead" not in text(source(100_000, 60, 10))


def test_answers_warn_of_mistaken_units() -> None:
    """At the user's line; a few ticks after 1970, as tests have them, say nothing."""
    ticks = 1_714_521_600
    s = sq.points(pa.table({"at": pa.array([5, ticks], pa.timestamp("us"))}), time="at", name="cars")
    for ask in (s.show, s.to_arrow, s.to_pandas, lambda: s.tumbling_window("1 hour").select(n=sq.count()).to_arrow()):
        with pytest.warns(StreamqWarning, match="cars: its starts lie in .*seconds read as microseconds") as caught:
            ask()
        assert len(caught) == 1
    with pytest.warns(StreamqWarning) as caught:
        s.to_arrow()
    assert caught[0].filename == __file__
    fine = sq.points(pa.table({"at": pa.array([5, MAY], pa.timestamp("us"))}), time="at")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fine.to_arrow()
        sq.points(pa.table({"at": [ticks]}), time="at").to_arrow()
        sq.points(pa.table({"at": pa.array([7], pa.timestamp("us"))}), time="at").to_arrow()
